"""What a run of a picture classifier is made of.

It leaves ``predictions.csv``, ``pictures.json``, ``maps.json`` and ``grid.png`` beside what every run leaves.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from glassformer.data.augment import KINDS, SEVERITIES, corrupt
from glassformer.data.image import refuse_unreadable
from glassformer.data.image_doctor import examine_pictures
from glassformer.data.image_sources import ImageSplit, load_image_dataset
from glassformer.data.label_sets import each
from glassformer.data.mending import mended
from glassformer.data.splits import Splits, as_they_are, split_up
from glassformer.data.transform import read_pictures
from glassformer.errors import DataError
from glassformer.evaluate.baselines import pixel_features, pixel_logistic
from glassformer.explain.attention import rollout
from glassformer.explain.methods import explain_input
from glassformer.runtime import computing
from glassformer.targets.multiclass import Classes
from glassformer.tasks.export import export
from glassformer.tasks.folds import LabelsOutOfFold
from glassformer.tasks.image_classification.estimator import ImageClassifier
from glassformer.tasks.image_classification.recipe import ImageRecipe
from glassformer.tasks.image_data import first_range, leave_out
from glassformer.tasks.labelled import (
    a_regression_a_label,
    answers,
    baseline_weights,
    check_unseen,
    fit,
    judge_again,
    judge_splits,
)
from glassformer.tasks.task import TINY, Look, Task, Work, page_of
from glassformer.train.callbacks import Count, uncounted

SHOWN_MISTAKES = 20
MAPPED = 4  # pictures whose attention goes into the report
MAPPED_SIDE = 192  # pixels of a picture that lies under its map
MOST_MAPS = 2**20  # shares between patches that are kept of one picture; a page has no room for more


def load(recipe: ImageRecipe, source: str | None = None) -> Splits:
    """The pictures of a recipe, split as it says; or those of another source, as they are.

    Raises:
        DataError: no such source, no training split, no labels.
    """
    d = recipe.data
    part: dict[str, Any] = {"limit": d.limit, "seed": d.split_seed} if source is None else {}
    dataset = load_image_dataset(
        d.source if source is None else source,
        image_column=d.image_column,
        label_column=d.label_column,
        label_separator=d.label_separator,
        broken=d.broken,
        image_range=recipe.image.image_range,
        **part,
    )
    dataset, said = mended(dataset, d.merge_labels, d.drop_duplicates and source is None)
    dataset = replace(dataset, notes=(*dataset.notes, *said))
    if source is not None:
        return as_they_are(dataset)
    splits = split_up(dataset, d, recipe.evaluate.split)
    if splits.train.labels is None:
        raise DataError("the pictures have no labels", where=splits.train.origin, fix="Name label_column")
    return splits


def look(work: Work) -> Look:
    """Labels that training would not show and pictures that cannot be read are found before it, not after it.

    Raises:
        DataError: there are some.
    """
    work.data, unknown = check_unseen(work.data, work.recipe.data.broken == "skip")
    splits = work.data
    parts = {"train": splits.train, "validation": splits.validation, splits.judged_name: splits.judged}
    there = {k: v for k, v in parts.items() if v is not None}
    refuse_unreadable(there, first_range(work.recipe.image, work.recipe.model, work.folder))
    name, notes = splits.dataset.name, splits.dataset.notes
    return Look(
        [f"{name}: {splits.sizes()}"],
        unknown,
        doctor=lambda: examine_pictures(name, there, notes, transform=work.estimator.transform_),
        speak=("warning", "note"),
    )


def judge(work: Work) -> dict[str, Any]:
    """Figures of the splits beside a baseline, and on pictures that are changed."""
    started = time.perf_counter()
    work.say("judging")
    out = judge_readable(work)
    clf, splits, wanted = work.estimator, work.data, work.recipe.evaluate
    out["tokens_per_picture"] = clf.model_.config.embedding.num_tokens
    if clf.tried_:
        out["tried"] = list(clf.tried_)
    if out["test"] and wanted.robustness:
        work.say("robustness: crops, lighting, blur, noise, JPEG, rotation")
        out["robustness"] = robustness(clf, some_of(splits.judged, wanted.robustness_limit), work.count)
    out["seconds"]["evaluate"] = time.perf_counter() - started
    return out


def judge_readable(work: Work) -> dict[str, Any]:
    """The figures of every split; a picture that cannot be read any more does not take them along.

    Raises:
        DataError: what else is wrong with the pictures, or none of a split is left.
    """
    try:
        return judge_splits(work)
    except DataError:
        kept, said = leave_out(work.data, work)
        if not said:
            raise
    for line in said:
        work.say(line)
    work.data = kept
    return judge_splits(work) | {"left_out": said}


def pixels(clf: Any, recipe: ImageRecipe, splits: Any, targets: np.ndarray) -> tuple:
    """Logistic regression on small pixels."""
    if clf.kind_.binary:
        features = partial(pixel_features, image_range=clf.transform_.image_range)
        name = "logistic regression a label on 16 x 16 pixels"
        return (name, *a_regression_a_label(clf, splits, targets, features))
    classes = len(clf.classes_)
    found, name = pixel_logistic(
        splits.train.images,
        targets,
        splits.judged.images,
        num_classes=classes,
        sample_weight=baseline_weights(clf, targets),
        image_range=clf.transform_.image_range,
    )
    return name, found


def some_of(split: ImageSplit, limit: int, seed: int = 0) -> ImageSplit:
    """At most ``limit`` pictures of a split (0: all), the same ones for every model, in their order."""
    if not limit or len(split) <= limit:
        return split
    return split.select(sorted(np.random.default_rng(seed).permutation(len(split))[:limit].tolist()))


def robustness(
    clf: ImageClassifier, split: ImageSplit, count: Count = uncounted, seed: int = 0
) -> dict[str, Any]:
    """Kind -> a row for each severity: accuracy and macro-F1 on pictures changed in fixed ways.

    Pictures are changed after scaling, before they are normalized; the choice follows from ``seed`` alone.
    """
    import torch

    table = read_pictures(split.images, clf.transform_, split.origin, split.rows)
    targets = clf.targets(split.labels or [], split.origin, split.rows)
    model = clf.predictor()
    device = next(model.parameters()).device
    out: dict[str, Any] = {}
    changes = len(KINDS) * len(SEVERITIES)
    with computing(clf.threads), count("changed pictures", len(split) * changes) as told:
        for kind in KINDS:
            out[kind] = []
            for severity in SEVERITIES:
                changed = corrupt(table, kind, severity, seed)
                logits = clf.table_rows(model, changed, "logits", torch.device(device), told)
                meter = clf.kind_.meter(clf.classes_.tolist(), curves=False)
                probabilities = clf.chances(logits)
                meter.update(probabilities, targets, predicted=clf.chosen(probabilities))
                result = meter.result(bootstrap=0)
                out[kind].append(
                    {key: result[key] for key in ("accuracy", "macro_f1")}
                    | {"severity": severity, "n": len(targets)}
                )
    return out


def show(work: Work) -> dict[str, Any]:
    """One picture a class and the surest mistakes, small; where the model looks in some; and ``grid.png``."""
    from glassformer.report.pictures import draw_grid, thumbnail

    if work.answers is None:
        return {}
    clf, split, probabilities = work.estimator, work.data.judged, work.answers
    truth, labels = split.labels, clf.decide(probabilities).tolist()
    firsts = _firsts(truth, clf.classes_.tolist())
    sure = np.array(answers(clf, probabilities)[1])
    wrong = [i for i in np.argsort(-sure, kind="stable").tolist() if labels[i] != truth[i]][:SHOWN_MISTAKES]

    def one(i: int) -> dict[str, Any]:
        return {
            "name": split.names()[i],
            "label": str(truth[i]),
            "predicted": str(labels[i]),
            "probability": float(sure[i]),
            "png": thumbnail(split.images[i], image_range=clf.transform_.image_range),
        }

    examples, mistakes = [one(i) for i in firsts], [one(i) for i in wrong]
    right = [i for i in firsts if labels[i] == truth[i]]
    mapped = [*dict.fromkeys([*wrong[:1], *right, *firsts])][:MAPPED]
    if work.recipe.evaluate.grid:
        images, image_range = [split.images[i] for i in firsts], clf.transform_.image_range
        draw_grid(work.folder / "grid.png", images, examples, image_range=image_range)
    return {
        "maps.json": {"examples": [attention_example(clf, split, i) for i in mapped]},
        "pictures.json": {"examples": examples, "mistakes": mistakes},
    }


def _firsts(truth: Sequence[Any], classes: Sequence[Any], most: int = 10) -> list[int]:
    """The place of the first picture of each class, or with each label."""
    places: dict[Any, int] = {}
    for i, given in enumerate(truth):
        for label in each([given]):
            places.setdefault(label, i)
    return [*dict.fromkeys(places[c] for c in classes if c in places)][:most]


def attention_example(clf: ImageClassifier, split: ImageSplit, i: int) -> dict[str, Any]:
    """One picture as the model reads it, with its maps: the rows that the head reads, per layer and head."""
    from glassformer.report.maps import encode as encode_maps
    from glassformer.report.pictures import thumbnail

    e = explain_input(clf, split.images[i])
    assert e.maps is not None
    assert e.image is not None
    reads = np.eye(e.maps.shape[-1])[0] if e.reads is None else e.reads
    return {
        "name": split.names()[i],
        "label": str((split.labels or [""])[i]),
        "predicted": str(e.label),
        "probability": e.probability,
        "png": thumbnail(e.image, MAPPED_SIDE),
        "size": [e.image.shape[1], e.image.shape[0]],
        "grid": list(e.scores.shape),
        "cls_rows": np.round(np.einsum("t,lhts->lhs", reads, e.maps), 4).tolist(),
        "rollout": np.round(reads @ rollout(e.maps), 4).tolist(),
        "maps": encode_maps(e.maps) if e.maps.size <= MOST_MAPS else None,
    }


def tiny() -> tuple[ImageClassifier, tuple]:
    """Noise under two labels."""
    pictures = list(np.random.default_rng(1).integers(0, 256, (7, 8, 8, 3)).astype(np.uint8))
    settings: dict[str, Any] = {**TINY, "image_size": 8, "patch_size": 4}
    return ImageClassifier(**settings), (pictures, [1, 0, 1, 1, 1, 0, 0])


TASK = Task(
    name="image-classification",
    recipe=ImageRecipe,
    estimator=ImageClassifier,
    gives="labels",
    target=Classes(),
    load=load,
    look=look,
    fit=fit,
    judge=judge,
    again=judge_again,
    page=page_of("classes"),
    leave_out=leave_out,
    tiny=tiny,
    show=show,
    baselines=(pixels,),
    answer=answers,
    folds=LabelsOutOfFold,
    export=export,
    packages=("pillow", "kornia", "safetensors", "scikit-learn"),
)
