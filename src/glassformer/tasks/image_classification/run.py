"""Labels of images: what is particular to their runs.

A run leaves ``predictions.csv``, ``pictures.json``, ``maps.json`` and ``grid.png`` beside what every run
leaves.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from glassformer.data.augment import KINDS, SEVERITIES, corrupt
from glassformer.data.image_sources import ImageSplit
from glassformer.data.label_sets import each
from glassformer.data.transform import read_pictures
from glassformer.evaluate.baselines import pixel_features, pixel_logistic
from glassformer.explain.attention import rollout
from glassformer.explain.methods import explain_input
from glassformer.runtime import computing
from glassformer.targets.multiclass import Classes
from glassformer.tasks.image_classification.estimator import ImageClassifier
from glassformer.tasks.image_classification.recipe import ImageRecipe
from glassformer.tasks.labelled import a_regression_a_label, answers, baseline_weights, evaluate, labelled
from glassformer.tasks.task import RunContext
from glassformer.train.callbacks import Count, uncounted

SHOWN_MISTAKES = 20
MAPPED = 4  # images whose attention goes into the report
MAPPED_SIDE = 192  # pixels of an image that lies under its map
MOST_MAPS = 2**20  # shares between patches that are kept of one image; a page has no room for more


def judge_images(context: RunContext) -> dict[str, Any]:
    """As ``judge``, and figures on images that are changed, where that is asked for."""
    out, wanted = evaluate(context), context.recipe.evaluate
    if out["test"] and wanted.robustness:
        started = time.perf_counter()
        context.log("robustness: crops, lighting, blur, noise, JPEG, rotation")
        judged = some_of(context.data.judged, wanted.robustness_limit)
        out["robustness"] = robustness(context.estimator, judged, context.count)
        out["seconds"]["evaluate"] += time.perf_counter() - started
    return out


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
    """At most ``limit`` images of a split (0: all), the same ones for every model, in their order."""
    if not limit or len(split) <= limit:
        return split
    return split.select(sorted(np.random.default_rng(seed).permutation(len(split))[:limit].tolist()))


def robustness(
    clf: ImageClassifier, split: ImageSplit, count: Count = uncounted, seed: int = 0
) -> dict[str, Any]:
    """Kind -> a row for each severity: accuracy and macro-F1 on images changed in fixed ways.

    Images are changed after scaling, before they are normalized; the choice follows from ``seed`` alone.
    """
    import torch

    table = read_pictures(split.images, clf.transform_, split.origin, split.rows)
    targets = clf.targets(split.labels or [], split.origin, split.rows)
    model = clf.predictor()
    device = next(model.parameters()).device
    out: dict[str, Any] = {}
    changes = len(KINDS) * len(SEVERITIES)
    with computing(clf.threads), count("changed images", len(split) * changes) as told:
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


def collect_artifacts(context: RunContext) -> dict[str, Any]:
    """One image a class and the surest mistakes, small; where the model looks in some; and ``grid.png``."""
    from glassformer.report.pictures import draw_grid, thumbnail

    if context.answers is None:
        return {}
    clf, split, probabilities = context.estimator, context.data.judged, context.answers
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
    mapped = [*dict.fromkeys([*wrong[:1], *right, *firsts])][: MAPPED if clf.model_.has_attention else 0]
    if context.recipe.evaluate.grid:
        images, image_range = [split.images[i] for i in firsts], clf.transform_.image_range
        draw_grid(context.folder / "grid.png", images, examples, image_range=image_range)
    return {
        "maps.json": {"examples": [attention_example(clf, split, i) for i in mapped]},
        "pictures.json": {"examples": examples, "mistakes": mistakes},
    }


def _firsts(truth: Sequence[Any], classes: Sequence[Any], most: int = 10) -> list[int]:
    """The place of the first image of each class, or with each label."""
    places: dict[Any, int] = {}
    for i, given in enumerate(truth):
        for label in each([given]):
            places.setdefault(label, i)
    return [*dict.fromkeys(places[c] for c in classes if c in places)][:most]


def attention_example(clf: ImageClassifier, split: ImageSplit, i: int) -> dict[str, Any]:
    """One image as the model reads it, with its maps: the rows that the head reads, per layer and head."""
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


TASK = labelled(
    "image-classification",
    ImageRecipe,
    ImageClassifier,
    Classes(),
    label_of=lambda image: int(image.mean() > 127),  # is it bright?
    report="classes",
    evaluate=judge_images,
    collect_artifacts=collect_artifacts,
    baselines=(pixels,),
)
