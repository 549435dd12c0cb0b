"""One recipe, from data to report, in one run folder.

    config.toml  doctor.json  history.jsonl  checkpoints/  model/  metrics.json  predictions.csv  maps.json  report.html

Training can be killed at any instant: ``resume=True`` goes on from the newest whole checkpoint to the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.batching import BatchSettings, evaluation_batches, training_batches
from glassformer.data.checks import check_texts
from glassformer.data.doctor import DoctorReport, HeldOut, examine
from glassformer.data.rejected import summary, write_rejected
from glassformer.data.sources import TextDataset, TextSplit, load_text_dataset
from glassformer.data.tokenizer_file import id_count
from glassformer.errors import DataError
from glassformer.evaluate.baselines import bag_of_embeddings, tfidf_logistic
from glassformer.evaluate.metrics import ClassificationMeter
from glassformer.evaluate.predictions import write_predictions
from glassformer.explain.architecture import blocks
from glassformer.explain.attention import rollout
from glassformer.explain.methods import explain_input
from glassformer.nn.groups import padding_share
from glassformer.packing import Packing
from glassformer.report.html import write_report
from glassformer.report.maps import encode as encode_maps
from glassformer.runtime import machine_facts, peak_memory_mb, versions
from glassformer.tasks.catalog import known_recipe
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
from glassformer.tasks.text_classification.estimator import TextClassifier
from glassformer.tasks.text_classification.recipe import Recipe
from glassformer.train.callbacks import Callback, Count, HistoryFile, StopOnSignal, uncounted


def load_splits(recipe: Recipe) -> Splits:
    """The data of a recipe, split as it says.

    Raises:
        DataError: no such source, no training split, no labels.
    """
    d = recipe.data
    dataset = load_text_dataset(
        d.source, text_column=d.text_column, label_column=d.label_column, limit=d.limit, seed=d.split_seed,
        need_labels=True, on_bad_row=d.on_bad_row,
    )  # fmt: skip
    return split_up(dataset, recipe)


@alone
def run_recipe(
    recipe: Recipe,
    folder: str | Path,
    *,
    resume: bool = False,
    say: Say = lambda line: None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Run a recipe in ``folder``.

    Args:
        resume: continue what was begun there; without it an existing folder is refused.
        say: called with one line at each stage.

    Raises:
        ConfigError: the folder exists and ``resume`` is False, or it holds another recipe.
        InputError: whatever is wrong with the data, the settings or the checkpoint.
    """
    folder, started = Path(folder), time.perf_counter()
    splits = load_splits(recipe)
    check_unseen(splits)
    if recipe.evaluate.sentences:  # found before the training, not after it
        check_texts(recipe.evaluate.sentences, "evaluate.sentences")
    clf = TextClassifier.from_recipe(recipe)
    begin(folder, recipe)
    say(describe(splits))
    if rejected := splits.dataset.rejected:
        write_rejected(folder / "rejected.jsonl", rejected)
        say(summary(rejected))
    doctor = Examine(lambda: _examine(clf, recipe, splits), folder, say)
    checkpoints = folder / "checkpoints"
    stop = StopOnSignal(checkpoints)
    setup = time.perf_counter() - started
    clf.fit(
        splits.train.texts,
        splits.train.labels or [],
        validation=(splits.validation.texts, splits.validation.labels or []) if splits.validation else None,
        checkpoints=checkpoints,
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
    write_json(folder / "maps.json", {"examples": attention_examples(clf, splits, recipe.evaluate.maps)})
    return Run(folder, metrics, write_report(folder, known_recipe(folder)))


def judge(
    clf: TextClassifier, recipe: Recipe, splits: Splits, folder: Path, say: Say, count: Count = uncounted
) -> dict[str, Any]:
    """Figures on the judged split (looked at once), beside the baselines, and ``predictions.csv``."""
    started = time.perf_counter()
    steps = [r for r in clf.history_ if r["kind"] == "step"]
    table = clf.encode(splits.train.texts)
    out: dict[str, Any] = {
        "train": _figures(clf, training_sample(splits), recipe, count)[0] | {"of": len(splits.train)},
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
        "padding": {"linear": 0.0, **attention_padding(table.lengths, recipe)},
        "truncated": {"train": [clf.truncated_, len(splits.train)]},
        "machine": machine_facts(),
        "versions": versions("tokenizers", "safetensors", "scikit-learn"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": recipe.train.seed,
        "best_step": clf.best_step_,
        "label_names": [str(c) for c in clf.classes_.tolist()],
    }
    if splits.validation is not None:
        out["validation"] = _figures(clf, splits.validation, recipe, count)[0]
        out["truncated"]["validation"] = _cut(clf, splits.validation)
    if splits.judged is not None and splits.judged.labels is not None:
        inference = time.perf_counter()
        out["test"], probabilities = _figures(clf, splits.judged, recipe, count)
        inference = time.perf_counter() - inference
        out["truncated"][splits.judged_name] = _cut(clf, splits.judged)
        write_predictions(
            folder / "predictions.csv", splits.judged.texts, probabilities, clf.classes_.tolist(),
            labels=splits.judged.labels, predicted=clf.decide(probabilities).tolist(), rows=splits.judged.rows,
            split=splits.judged_name,
        )  # fmt: skip
        if recipe.evaluate.baselines:
            say("baselines on the same split")
            out["baselines"] = baselines(clf, recipe, splits)
        out["seconds"] = {"inference": inference}
    if recipe.evaluate.sentences:
        probabilities = clf.predict_proba(list(recipe.evaluate.sentences))
        labels = clf.decide(probabilities)
        out["sentences"] = [
            {"text": t, "label": str(label), "probability": float(p.max())}
            for t, label, p in zip(recipe.evaluate.sentences, labels, probabilities, strict=True)
        ]
    out["seconds"] = {"evaluate": time.perf_counter() - started} | out.get("seconds", {})
    out["peak_memory_mb"] = peak_memory_mb()
    return out


def _cut(clf: TextClassifier, split: TextSplit) -> list[int]:
    """How many texts were cut to max_length, of how many."""
    return [int(clf.truncated(split.texts).sum()), len(split)]


def _figures(
    clf: TextClassifier, split: TextSplit, recipe: Recipe, count: Count
) -> tuple[dict[str, Any], np.ndarray]:
    with count("judging", len(split)) as told:
        probabilities = clf.predict_proba(split.texts, progress=told)
    meter = ClassificationMeter(clf.classes_.tolist())
    targets = clf.targets(split.labels or [], split.origin, split.rows)
    meter.update(probabilities, targets, predicted=np.searchsorted(clf.classes_, clf.decide(probabilities)))
    return meter.result(recipe.evaluate.bootstrap), probabilities


def baselines(clf: TextClassifier, recipe: Recipe, splits: Splits) -> dict[str, Any]:
    """TF-IDF + logistic regression and a mean bag of embeddings, trained and judged on the same splits."""
    assert splits.judged is not None
    train, judged, classes = splits.train, splits.judged, clf.classes_.tolist()
    y, truth = (
        clf.targets(train.labels or [], train.origin),
        clf.targets(judged.labels or [], judged.origin),
    )
    table, judged_table = clf.encode(train.texts), clf.encode(judged.texts)
    work = {
        "TF-IDF + logistic regression": lambda: tfidf_logistic(train.texts, y, judged.texts, num_classes=len(classes)),
        "mean bag of embeddings": lambda: bag_of_embeddings(
            table, y, judged_table, vocab_size=id_count(clf.tokenizer_), num_classes=len(classes),
            seed=recipe.train.seed,
        ),
    }  # fmt: skip
    out = {}
    for name, predict in work.items():
        started = time.perf_counter()
        meter = ClassificationMeter(classes)
        meter.update(predict(), truth)
        out[name] = meter.result(recipe.evaluate.bootstrap) | {"seconds": time.perf_counter() - started}
    return out


def attention_padding(lengths: np.ndarray, recipe: Recipe) -> dict[str, float]:
    """The share of padded rows inside attention in training and in evaluation; linear layers have none."""
    t = recipe.train
    settings = BatchSettings(t.batch_size, t.batch_tokens, t.length_window)
    kinds = {
        "attention": training_batches(lengths, settings, t.seed, 0),
        "attention_evaluation": evaluation_batches(lengths, t.batch_tokens or 8192),
    }
    shares = {}
    for kind, batches in kinds.items():
        real = padded = 0.0
        for index in batches:
            packing = Packing(tuple(lengths[index].tolist()))
            real += packing.total
            padded += packing.total / (1.0 - padding_share(packing))
        shares[kind] = 1.0 - real / padded
    return shares


def attention_examples(clf: TextClassifier, splits: Splits, count: int) -> list[dict[str, Any]]:
    """A few judged texts of readable length with their maps: the rows that the head reads, per layer and head."""
    split = splits.judged or splits.train
    count = count if getattr(clf.model_, "has_attention", True) else 0
    lengths = clf.encode(split.texts[:2000]).lengths
    chosen = np.argsort(np.abs(lengths - 60), kind="stable")[:count].tolist()
    examples = []
    for i in chosen:
        e = explain_input(clf, split.texts[i])
        assert e.maps is not None
        first = e.maps.shape[-1] > 1 and bool(getattr(clf.model_.pooling, "reads_first_row_only", False))
        rows = e.maps[:, :, 0] if first else e.maps.mean(2)  # [L, H, T]
        flow = rollout(e.maps)
        examples.append(
            {
                "text": e.text, "label": str(split.labels[i]) if split.labels else "", "predicted": str(e.label),
                "probability": e.probability, "tokens": e.tokens, "offsets": [list(o) for o in e.offsets],
                "words": e.numbers.tolist(),
                "cls_rows": np.round(rows, 4).tolist(),
                "rollout": np.round(flow[0] if first else flow.mean(0), 4).tolist(),
                "maps": encode_maps(e.maps),
            }
        )  # fmt: skip
    return examples


def evaluate_run(
    folder: str | Path, data: str | None = None, say: Say = lambda line: None, count: Count = uncounted
) -> dict[str, Any]:
    """Judge the saved model of a run again, on its own split or on other data."""
    folder = Path(folder)
    recipe = read_run_recipe(folder)
    clf = load(folder)
    if data is None:
        splits = load_splits(recipe)
        split = splits.judged
    else:
        d = recipe.data
        dataset = load_text_dataset(
            data, text_column=d.text_column, label_column=d.label_column, need_labels=True,
            on_bad_row=d.on_bad_row,
        )  # fmt: skip
        if dataset.rejected:
            say(summary(dataset.rejected, listed=False))
        split = dataset.splits.get("test") or next(iter(dataset.splits.values()))
    if split is None or split.labels is None:
        raise DataError("nothing to judge: no labelled split", where=data or recipe.data.source)
    say(f"{len(split):,} texts of {split.origin}")
    figures = _figures(clf, split, recipe, count)[0]
    cut, total = _cut(clf, split)
    if cut:
        say(f"{cut:,} of {total:,} texts are longer than {clf.max_length} tokens and were cut there")
    return figures


def _examine(clf: TextClassifier, recipe: Recipe, splits: Splits) -> DoctorReport:
    """The data as they are trained on, with the tokenizer that reads them."""
    return examine(
        _as_split(splits),
        tokenizer=clf.tokenizer_,
        max_length=recipe.text.max_length,
        clean=recipe.text.clean,
        held_out=_how_held_out(recipe, splits),
    )


def _how_held_out(recipe: Recipe, splits: Splits) -> HeldOut | None:
    """How parts were taken out of the source's training rows; None: the source has them all."""
    d = recipe.data
    taken = d.validation_size is not None or (d.test_size is not None and "test" not in splits.dataset.splits)
    return d.hold_out if taken else None


def _as_split(splits: Splits) -> TextDataset:
    """The data as this experiment uses them, for the doctor."""
    parts = {"train": splits.train, "validation": splits.validation, splits.judged_name: splits.judged}
    others = {k: v for k, v in splits.dataset.splits.items() if k not in parts}
    return replace(splits.dataset, splits={k: v for k, v in parts.items() if v is not None} | others)
