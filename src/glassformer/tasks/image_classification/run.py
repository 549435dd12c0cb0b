"""One recipe for pictures, from data to report, in one run folder: what ``experiment.py`` is for texts.

config.toml  doctor.json  history.jsonl  checkpoints/  model/  metrics.json  predictions.csv  pictures.json  maps.json
grid.png  report.html
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.image_doctor import examine_pictures
from glassformer.data.image_sources import ImageSplit, load_image_dataset
from glassformer.data.robustness import KINDS, SEVERITIES, corrupt
from glassformer.data.transform import read_pictures
from glassformer.errors import DataError
from glassformer.evaluate.baselines import pixel_logistic
from glassformer.evaluate.metrics import ClassificationMeter
from glassformer.evaluate.predict import softmax
from glassformer.evaluate.predictions import write_predictions
from glassformer.explain.architecture import blocks
from glassformer.explain.attention import rollout
from glassformer.explain.methods import explain_input
from glassformer.report.html import write_report
from glassformer.report.maps import encode as encode_maps
from glassformer.report.pictures import draw_grid, thumbnail
from glassformer.runtime import machine_facts, peak_memory_mb, versions
from glassformer.tasks.catalog import known_recipe
from glassformer.tasks.image_classification.estimator import ImageClassifier
from glassformer.tasks.image_classification.recipe import ImageRecipe
from glassformer.tasks.load import load
from glassformer.tasks.run_folder import (
    Announce,
    Examine,
    Run,
    Say,
    Splits,
    alone,
    begin,
    check_unseen,
    counter,
    describe,
    one_writer,
    read_run_recipe,
    split_up,
    training_sample,
    write_json,
)
from glassformer.train.callbacks import Callback, Count, HistoryFile, StopOnSignal, uncounted

SHOWN_MISTAKES = 20
MAPPED = 4  # pictures whose attention goes into the report
MAPPED_SIDE = 192  # pixels of a picture that lies under its map
MOST_MAPS = 2**20  # shares between patches that are kept of one picture; a page has no room for more


def load_image_splits(recipe: ImageRecipe) -> Splits:
    """The pictures of a recipe, split as it says.

    Raises:
        DataError: no such source, no training split, no labels.
    """
    d = recipe.data
    dataset = load_image_dataset(
        d.source, image_column=d.image_column, label_column=d.label_column, limit=d.limit, seed=d.split_seed,
        broken=d.broken,
    )  # fmt: skip
    splits = split_up(dataset, recipe)
    if splits.train.labels is None:
        raise DataError("the pictures have no labels", where=splits.train.origin, fix="Name label_column")
    return splits


@alone
def run_image_recipe(
    recipe: ImageRecipe,
    folder: str | Path,
    *,
    resume: bool = False,
    say: Say = lambda line: None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Run a recipe for pictures in ``folder``; arguments and errors as in ``experiment.run_recipe``."""
    folder, started = Path(folder), time.perf_counter()
    splits = load_image_splits(recipe)
    check_unseen(splits)
    clf = ImageClassifier.from_recipe(recipe)
    begin(folder, recipe)
    say(describe(splits))
    parts = {"train": splits.train, "validation": splits.validation, splits.judged_name: splits.judged}
    there = {k: v for k, v in parts.items() if v is not None}
    doctor = Examine(
        lambda: examine_pictures(splits.dataset.name, there, splits.dataset.notes), folder, say,
        speak=("warning", "note"),
    )  # fmt: skip
    stop = StopOnSignal(folder / "checkpoints")
    setup = time.perf_counter() - started
    held = splits.validation
    clf.fit(
        splits.train.images,
        splits.train.labels,
        validation=(held.images, held.labels or []) if held else None,
        checkpoints=folder / "checkpoints",
        resume=resume,
        callbacks=[HistoryFile(folder / "history.jsonl"), doctor, Announce(say, clf), *callbacks, stop],
    )
    one_writer()
    clf.save(folder / "model", overwrite=True)
    if recipe.train.lora_rank:
        clf.save_adapter(folder / "adapter")
    say("judging")
    metrics = judge(clf, recipe, splits, folder, say, counter(callbacks))
    metrics["seconds"] = {
        "setup": setup + doctor.seconds,
        "train": clf.train_seconds_ - doctor.seconds,
        "total": time.perf_counter() - started,
    } | metrics["seconds"]
    write_json(folder / "metrics.json", metrics)
    return Run(folder, metrics, write_report(folder, known_recipe(folder)))


def judge(
    clf: ImageClassifier,
    recipe: ImageRecipe,
    splits: Splits,
    folder: Path,
    say: Say,
    count: Count = uncounted,
) -> dict[str, Any]:
    """Figures on the judged split (looked at once), beside a baseline, predictions and pictures."""
    started = time.perf_counter()
    steps = [r for r in clf.history_ if r["kind"] == "step"]
    out: dict[str, Any] = {
        "train": figures(clf, training_sample(splits), recipe, count)[0] | {"of": len(splits.train)},
        "validation": None,
        "test": None,
        "judged": splits.judged_name,
        "baselines": {},
        "weights_source": clf.weights_source_,
        "parameters": sum(p.numel() for p in clf.model_.parameters()),
        "architecture": [block.to_dict() for block in blocks(clf.model_)],
        "tokens_per_second": sum(r["tokens"] for r in steps) / max(steps[-1]["seconds"], 1e-9)
        if steps
        else None,
        "tokens_per_picture": clf.model_.config.embedding.num_tokens,
        "machine": machine_facts(),
        "versions": versions("pillow", "kornia", "safetensors", "scikit-learn"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": recipe.train.seed,
        "best_step": clf.best_step_,
        "label_names": [str(c) for c in clf.classes_.tolist()],
    }
    if splits.validation is not None:
        out["validation"] = figures(clf, splits.validation, recipe, count)[0]
    seconds: dict[str, float] = {}
    if splits.judged is not None and splits.judged.labels is not None:
        inference = time.perf_counter()
        out["test"], probabilities = figures(clf, splits.judged, recipe, count)
        seconds["inference"] = time.perf_counter() - inference
        labels = clf.decide(probabilities).tolist()
        write_predictions(
            folder / "predictions.csv", splits.judged.names(), probabilities, clf.classes_.tolist(),
            labels=splits.judged.labels, predicted=labels, rows=splits.judged.rows, split=splits.judged_name,
        )  # fmt: skip
        show(clf, splits.judged, probabilities, labels, recipe, folder)
        if recipe.evaluate.baselines:
            say("baseline on the same split")
            out["baselines"] = baselines(clf, recipe, splits)
        if recipe.evaluate.robustness:
            say("robustness: crops, lighting, blur, noise, JPEG, rotation")
            out["robustness"] = robustness(
                clf, some_of(splits.judged, recipe.evaluate.robustness_limit), count
            )
    out["seconds"] = {"evaluate": time.perf_counter() - started} | seconds
    out["peak_memory_mb"] = peak_memory_mb()
    return out


def figures(
    clf: ImageClassifier, split: ImageSplit, recipe: Any, count: Count = uncounted
) -> tuple[dict[str, Any], np.ndarray]:
    """The figures of a split and its probabilities ``[n, C]``."""
    with count("judging", len(split)) as told:
        probabilities = clf.predict_proba(split.images, progress=told)
    meter = ClassificationMeter(clf.classes_.tolist())
    targets = clf.targets(split.labels or [], split.origin, split.rows)
    meter.update(probabilities, targets, predicted=decided(clf, probabilities))
    return meter.result(recipe.evaluate.bootstrap), probabilities


def decided(clf: ImageClassifier, probabilities: np.ndarray) -> np.ndarray:
    """The classes ``[n]``, as numbers, that the classifier gives; a calibrated one has a threshold."""
    return np.searchsorted(clf.classes_, clf.decide(probabilities))


def baselines(clf: ImageClassifier, recipe: ImageRecipe, splits: Splits) -> dict[str, Any]:
    """Logistic regression on small pixels, trained and judged on the same splits."""
    assert splits.judged is not None
    started = time.perf_counter()
    classes = clf.classes_.tolist()
    y = clf.targets(splits.train.labels or [], splits.train.origin)
    probabilities, name = pixel_logistic(
        splits.train.images, y, splits.judged.images, num_classes=len(classes)
    )
    meter = ClassificationMeter(classes)
    meter.update(probabilities, clf.targets(splits.judged.labels or [], splits.judged.origin))
    return {name: meter.result(recipe.evaluate.bootstrap) | {"seconds": time.perf_counter() - started}}


def some_of(split: ImageSplit, limit: int, seed: int = 0) -> ImageSplit:
    """At most ``limit`` pictures of a split (0: all), the same ones for every model, in their order."""
    if not limit or len(split) <= limit:
        return split
    return split.select(sorted(np.random.default_rng(seed).permutation(len(split))[:limit].tolist()))


def robustness(
    clf: ImageClassifier, split: ImageSplit, count: Count = uncounted, seed: int = 0
) -> dict[str, Any]:
    """Kind -> a row for each severity: accuracy and macro-F1 on pictures changed in fixed ways.

    The pictures are changed after scaling, before they are normalised; the choice follows from ``seed`` alone.
    """
    import torch

    table = read_pictures(split.images, clf.transform_, split.origin, split.rows)
    targets = clf.targets(split.labels or [], split.origin, split.rows)
    model = clf.predictor()
    device = next(model.parameters()).device
    out: dict[str, Any] = {}
    with count("changed pictures", len(split) * len(KINDS) * len(SEVERITIES)) as told:
        for kind in KINDS:
            out[kind] = []
            for severity in SEVERITIES:
                changed = corrupt(table, kind, severity, seed)
                logits = clf.table_rows(model, changed, "logits", torch.device(device), told)
                meter = ClassificationMeter(clf.classes_.tolist())
                probabilities = softmax(logits, clf.temperature_)
                meter.update(probabilities, targets, predicted=decided(clf, probabilities))
                result = meter.result(bootstrap=0)
                out[kind].append(
                    {key: result[key] for key in ("accuracy", "macro_f1")}
                    | {"severity": severity, "n": len(targets)}
                )
    return out


def show(
    clf: ImageClassifier,
    split: ImageSplit,
    probabilities: np.ndarray,
    labels: list,
    recipe: ImageRecipe,
    folder: Path,
) -> None:
    """``pictures.json``: one picture a class and the surest mistakes, small; and the grid as a figure."""
    truth = split.labels or []
    firsts = [truth.index(c) for c in clf.classes_.tolist() if c in truth][:10]
    sure = probabilities.max(1)
    wrong = [i for i in np.argsort(-sure, kind="stable").tolist() if labels[i] != truth[i]][:SHOWN_MISTAKES]

    def one(i: int) -> dict[str, Any]:
        return {
            "name": split.names()[i], "label": str(truth[i]), "predicted": str(labels[i]),
            "probability": float(sure[i]), "png": thumbnail(split.images[i]),
        }  # fmt: skip

    examples, mistakes = [one(i) for i in firsts], [one(i) for i in wrong]
    right = [i for i in firsts if labels[i] == truth[i]]
    mapped = [*dict.fromkeys([*wrong[:1], *right, *firsts])][:MAPPED]
    write_json(folder / "maps.json", {"examples": [attention_example(clf, split, i) for i in mapped]})
    write_json(folder / "pictures.json", {"examples": examples, "mistakes": mistakes})
    if recipe.evaluate.grid:
        draw_grid(folder / "grid.png", [split.images[i] for i in firsts], examples)


def attention_example(clf: ImageClassifier, split: ImageSplit, i: int) -> dict[str, Any]:
    """One picture as the model reads it, with its maps: the rows that the head reads, per layer and head."""
    e = explain_input(clf, split.images[i])
    assert e.maps is not None
    assert e.image is not None
    reads = np.eye(e.maps.shape[-1])[0] if e.reads is None else e.reads
    return {
        "name": split.names()[i], "label": str((split.labels or [""])[i]), "predicted": str(e.label),
        "probability": e.probability, "png": thumbnail(e.image, MAPPED_SIDE),
        "size": [e.image.shape[1], e.image.shape[0]], "grid": list(e.scores.shape),
        "cls_rows": np.round(np.einsum("t,lhts->lhs", reads, e.maps), 4).tolist(),
        "rollout": np.round(reads @ rollout(e.maps), 4).tolist(),
        "maps": encode_maps(e.maps) if e.maps.size <= MOST_MAPS else None,
    }  # fmt: skip


def evaluate_image_run(
    folder: str | Path, data: str | None = None, say: Say = lambda line: None, count: Count = uncounted
) -> dict[str, Any]:
    """Judge the saved model of a run again, on its own split or on other pictures."""
    folder = Path(folder)
    recipe = read_run_recipe(folder)
    clf = load(folder)
    if data is None:
        split = load_image_splits(recipe).judged
    else:
        d = recipe.data
        dataset = load_image_dataset(
            data, image_column=d.image_column, label_column=d.label_column, broken=d.broken
        )
        split = dataset.splits.get("test") or next(iter(dataset.splits.values()))
    if split is None or split.labels is None:
        raise DataError("nothing to judge: no labelled split", where=data or recipe.data.source)
    say(f"{len(split):,} pictures of {split.origin}")
    return figures(clf, split, recipe, count)[0]
