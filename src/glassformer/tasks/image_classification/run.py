"""Runs of image classification and regression.

In addition to the files of every run, they write ``predictions.csv``. Classification also writes
``pictures.json``, ``maps.json`` and ``grid.png``, regression ``numbers.json``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from glassformer.data.augment import CORRUPTIONS, SEVERITIES, corrupt
from glassformer.data.image_sources import ImageSplit
from glassformer.data.label_sets import flat_labels
from glassformer.data.transform import read_images
from glassformer.evaluate.baselines import pixel_features, pixel_logistic
from glassformer.explain.attention import rollout
from glassformer.explain.methods import explain_input
from glassformer.runtime import computing
from glassformer.targets.multiclass import Classes
from glassformer.targets.regression import Numbers, as_baseline, mean_number, pixel_ridge
from glassformer.tasks.image_classification.estimator import ImageClassifier, ImageRegressor
from glassformer.tasks.image_classification.recipe import ImageRecipe
from glassformer.tasks.supervised import (
    baseline_weights,
    collect_numbers,
    evaluate,
    labels_and_confidences,
    one_vs_rest_baseline,
    supervised_task,
)
from glassformer.tasks.task import RunContext
from glassformer.train.callbacks import Count, no_progress

MAX_MISTAKES = 20  # in the report
NUM_MAPS = 4  # number of images whose attention is in the report
MAP_SIDE = 192  # side length of such an image, in pixels
MAX_WEIGHTS = 2**20  # maximum number of attention weights per image, which limits the size of the report


def evaluate_images(context: RunContext) -> dict[str, Any]:
    """``evaluate``, and metrics on perturbed images if the recipe has ``robustness``."""
    out, settings = evaluate(context), context.recipe.evaluate
    if out["test"] and settings.robustness:
        started = time.perf_counter()
        context.log("robustness: crops, lighting, blur, noise, JPEG, rotation")
        split = sample_split(context.data.evaluated, settings.robustness_limit)
        out["robustness"] = robustness(context.estimator, split, context.count)
        out["seconds"]["evaluate"] += time.perf_counter() - started
    return out


def pixels(clf: Any, recipe: ImageRecipe, splits: Any, targets: np.ndarray) -> tuple:
    """Baseline: logistic regression on downscaled pixels."""
    if clf.kind_.is_multilabel:
        features = partial(pixel_features, image_range=clf.transform_.image_range)
        name = "logistic regression a label on 16 x 16 pixels"
        return (name, *one_vs_rest_baseline(clf, splits, targets, features))
    classes = len(clf.classes_)
    probabilities, name = pixel_logistic(
        splits.train.images,
        targets,
        splits.evaluated.images,
        num_classes=classes,
        sample_weight=baseline_weights(clf, targets),
        image_range=clf.transform_.image_range,
    )
    return name, probabilities


def sample_split(split: ImageSplit, limit: int) -> ImageSplit:
    """A random sample of at most ``limit`` images (0: all). It is the same for every model."""
    if not limit or len(split) <= limit:
        return split
    return split.select(sorted(np.random.default_rng(0).permutation(len(split))[:limit].tolist()))


def robustness(clf: ImageClassifier, split: ImageSplit, count: Count = no_progress) -> dict[str, Any]:
    """Kind of perturbation -> accuracy and macro F1 per severity."""
    import torch

    table = read_images(split.images, clf.transform_, split.origin, split.rows)
    targets = clf.targets(split.labels or [], split.origin, split.rows)
    model = clf.predictor()
    device = next(model.parameters()).device
    out: dict[str, Any] = {}
    num_images = len(split) * len(CORRUPTIONS) * len(SEVERITIES)
    with computing(clf.threads), count("changed images", num_images) as progress:
        for kind in CORRUPTIONS:
            out[kind] = []
            for severity in SEVERITIES:
                changed = corrupt(table, kind, severity, seed=0)
                logits = clf.table_outputs(model, changed, "logits", torch.device(device), progress)
                meter = clf.kind_.meter(clf.classes_.tolist(), curves=False)
                probabilities = clf.to_probabilities(logits)
                meter.update(probabilities, targets, predicted=clf.predicted_index(probabilities))
                result = meter.result(bootstrap=0)
                out[kind].append(
                    {key: result[key] for key in ("accuracy", "macro_f1")}
                    | {"severity": severity, "n": len(targets)}
                )
    return out


def collect_artifacts(context: RunContext) -> dict[str, Any]:
    """Thumbnails of one image per class and of the most confident mistakes, and attention of a few images.

    The function also writes ``grid.png``.
    """
    from glassformer.report.images import draw_grid, thumbnail

    if context.predictions is None:
        return {}
    clf, split, probabilities = context.estimator, context.data.evaluated, context.predictions
    truth, labels = split.labels, clf.decide(probabilities).tolist()
    firsts = _first_of_each_class(truth, clf.classes_.tolist())
    confidence = np.array(labels_and_confidences(clf, probabilities)[1])
    order = np.argsort(-confidence, kind="stable").tolist()
    wrong = [i for i in order if labels[i] != truth[i]][:MAX_MISTAKES]

    def record(i: int) -> dict[str, Any]:
        return {
            "name": split.names()[i],
            "label": str(truth[i]),
            "predicted": str(labels[i]),
            "probability": float(confidence[i]),
            "png": thumbnail(split.images[i], image_range=clf.transform_.image_range),
        }

    examples, mistakes = [record(i) for i in firsts], [record(i) for i in wrong]
    correct = [i for i in firsts if labels[i] == truth[i]]
    mapped = [*dict.fromkeys([*wrong[:1], *correct, *firsts])][: NUM_MAPS if clf.model_.has_attention else 0]
    if context.recipe.evaluate.grid:
        images, image_range = [split.images[i] for i in firsts], clf.transform_.image_range
        draw_grid(context.folder / "grid.png", images, examples, image_range=image_range)
    return {
        "maps.json": {"examples": [attention_example(clf, split, i) for i in mapped]},
        "pictures.json": {"examples": examples, "mistakes": mistakes},
    }


def _first_of_each_class(truth: Sequence[Any], classes: Sequence[Any], limit: int = 10) -> list[int]:
    """The index of the first image of each class (for multi-label, with each label)."""
    first: dict[Any, int] = {}
    for i, labels in enumerate(truth):
        for label in flat_labels([labels]):
            first.setdefault(label, i)
    return [*dict.fromkeys(first[c] for c in classes if c in first)][:limit]


def attention_example(clf: ImageClassifier, split: ImageSplit, i: int) -> dict[str, Any]:
    """An image as the model reads it, with attention weights per layer and head.

    ``maps`` has all weights, ``cls_rows`` those of the tokens that the head reads.
    """
    from glassformer.report.images import thumbnail
    from glassformer.report.maps import encode as encode_maps

    e = explain_input(clf, split.images[i], method="attention")
    assert e.maps is not None
    assert e.image is not None
    reads = np.eye(e.maps.shape[-1])[0] if e.reads is None else e.reads
    return {
        "name": split.names()[i],
        "label": str((split.labels or [""])[i]),
        "predicted": str(e.label),
        "probability": e.probability,
        "png": thumbnail(e.image, MAP_SIDE),
        "size": [e.image.shape[1], e.image.shape[0]],
        "grid": list(e.scores.shape),
        "cls_rows": np.round(np.einsum("t,lhts->lhs", reads, e.maps), 4).tolist(),
        "rollout": np.round(reads @ rollout(e.maps), 4).tolist(),
        "maps": encode_maps(e.maps) if e.maps.size <= MAX_WEIGHTS else None,
    }


TASK = supervised_task(
    ImageClassifier,
    Classes(),
    label_of=lambda image: int(image.mean() > 127),
    report="classes",
    evaluate=evaluate_images,
    collect_artifacts=collect_artifacts,
    baselines=(pixels,),
)

REGRESSION = supervised_task(
    ImageRegressor,
    Numbers(),
    label_of=lambda image: float(image.mean()),
    report="numbers",
    collect_artifacts=collect_numbers,
    baselines=(mean_number, as_baseline(pixel_ridge)),
)
