"""Comparisons of two models on the same labeled examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.audit.predictions import Predictions, score_metric
from glassformer.audit.slices import (
    ALPHA,
    SignificantSlice,
    Slice,
    example_text,
    find_slices,
    more_losses_test,
    significant,
)
from glassformer.data.findings import excerpt
from glassformer.errors import ConfigError, InputError
from glassformer.evaluate.compare import bounds, mcnemar
from glassformer.explain.methods import explain_input

MAX_FLIPS = 20  # maximum number of listed predictions that got worse
NUM_EXPLAINED = 5  # number of explained predictions
MAX_PARTS = 5  # maximum number of listed words or patches per explanation
TOLERANCE = 1e-9  # scores with a smaller difference count as equal
RESAMPLES = 2000  # number of bootstrap resamples


def diff(
    a: Predictions, b: Predictions, *, alpha: float = ALPHA, explained: int = NUM_EXPLAINED
) -> dict[str, Any]:
    """The differences between the predictions of two models, for JSON.

    Args:
        a, b: the predictions of the old and of the new model.
        alpha: significance level: the probability of a false alarm if nothing has changed.
        explained: number of predictions that got worse to explain.

    Returns:
        - ``models``, ``n``, ``metric``.
        - ``a``, ``b``: the metric of each model; ``difference``: b - a.
        - ``interval``: 95 % interval of the difference (bootstrap over examples).
        - ``p``: McNemar's test; for numbers and label sets, the sign test.
        - ``changed``, ``worse``, ``better``: numbers of predictions.
        - ``slices``, ``improved``: slices on which ``b`` is worse, and slices on which it is better; their
          ``p`` is corrected for all tested slices.
        - ``flips``: predictions that got worse, the most confident first.
        - ``is_worse``: whether any slice is significantly worse.

    Raises:
        ConfigError: the models do not have the same inputs, examples and labels.
    """
    _check_same(a, b)
    change = b.scores - a.scores
    losses, gains = change < -TOLERANCE, change > TOLERANCE
    is_changed = np.array(
        [x != y for x, y in zip(a.label_names(a.predicted), b.label_names(b.predicted), strict=True)]
    )
    slices = [Slice("all", "all examples", np.ones(len(a), bool)), *find_slices(a)]
    worse = significant(slices, more_losses_test(losses, gains), losses, alpha)
    better = significant(slices, more_losses_test(gains, losses), gains, alpha)
    rng = np.random.default_rng(0)
    means = change[rng.integers(0, len(change), (RESAMPLES, len(change)))].mean(1)
    metric = score_metric(a)
    lost = np.flatnonzero(losses)
    lost = lost[np.argsort(-_confidence(b)[lost], kind="stable")]
    flips = [_flip_record(a, b, i) for i in lost[:MAX_FLIPS].tolist()]
    for flip, i in zip(flips[:explained], lost.tolist(), strict=False):
        flip["why"] = _why(a, b, i)
    return {
        "models": [a.name, b.name],
        "data": str(a.split.origin),
        "n": len(a),
        "metric": metric.name,
        "a": metric.value(a.scores),
        "b": metric.value(b.scores),
        "difference": metric.value(b.scores) - metric.value(a.scores),
        "interval": sorted(metric.sign * x for x in bounds(means)),
        "p": mcnemar(gains, losses).p,
        "alpha": alpha,
        "changed": int(is_changed.sum()),
        "worse": int(losses.sum()),
        "better": int(gains.sum()),
        "slices_tested": len(slices),
        "slices": [_slice_record(one, a, b, losses, gains) for one in worse],
        "improved": [_slice_record(one, a, b, losses, gains) for one in better],
        "flips": flips,
        "is_worse": bool(worse),
    }


def _check_same(a: Predictions, b: Predictions) -> None:
    if a.has_images != b.has_images:
        reads = ["images" if predicted.has_images else "texts" for predicted in (a, b)]
        message = f"{a.name} reads {reads[0]} and {b.name} reads {reads[1]}"
        raise ConfigError(message, where="diff", fix="Compare two models of the same inputs")
    if len(a) != len(b) or list(map(str, a.split.examples)) != list(map(str, b.split.examples)):
        message = f"{a.name} reads {len(a):,} examples and {b.name} {len(b):,}, but they are not the same"
        fix = "Name the columns, or correct the rows that only one model can use"
        raise ConfigError(message, where="diff", fix=fix)
    if a.predicts_numbers != b.predicts_numbers or list(map(str, a.split.labels)) != list(
        map(str, b.split.labels)
    ):
        message = f"{a.name} and {b.name} do not predict the same kind of label"
        raise ConfigError(message, where="diff", fix="Compare two models of one task")


def _confidence(predicted: Predictions) -> np.ndarray:
    if predicted.predicts_numbers:
        return -predicted.scores
    return np.asarray(predicted.clf.kind_.confidence(predicted.outputs, predicted.predicted))


def _slice_record(
    found: SignificantSlice, a: Predictions, b: Predictions, losses: np.ndarray, gains: np.ndarray
) -> dict[str, Any]:
    rows, metric = found.slice.rows, score_metric(a)
    return {
        "slice": found.slice.name,
        "kind": found.slice.kind,
        "n": found.slice.n,
        "a": metric.value(a.scores[rows]),
        "b": metric.value(b.scores[rows]),
        "worse": int(losses[rows].sum()),
        "better": int(gains[rows].sum()),
        "p": found.p,
    }


def _flip_record(a: Predictions, b: Predictions, i: int) -> dict[str, Any]:
    labels = {key: p.label_names(p.predicted[i : i + 1])[0] for key, p in (("a", a), ("b", b))}
    example = a.split.names()[i] if a.has_images else excerpt(example_text(a.split.examples[i]))
    pairs = () if a.predicts_numbers else (("a", a), ("b", b))
    confidences = {f"p_{k}": float(_confidence(p)[i]) for k, p in pairs}
    return {"where": a.where(i), "example": example, "label": str(a.split.labels[i]), **labels, **confidences}


def explanation_parts(clf: Any, example: Any, target: Any = None) -> list[tuple[str, float]]:
    """Words (or patches) with their scores for the label ``target``; None: the predicted label."""
    explanation = explain_input(clf, example, target=target)
    return explanation.words() or explanation.top(explanation.scores.size)


def _why(a: Predictions, b: Predictions, i: int) -> list[dict[str, Any]]:
    """The words or patches whose share of the explanation changed most, for the prediction of ``b``."""
    has_label = not (a.predicts_numbers or b.clf.kind_.is_multilabel)
    label = b.label_names(b.predicted[i : i + 1])[0] if has_label else None
    shares: list[dict[str, float]] = []
    try:
        for p in (a, b):
            parts = explanation_parts(p.clf, p.split.examples[i], label)
            total = sum(abs(score) for _, score in parts) or 1.0
            scores_by_name: dict[str, float] = {}
            for name, score in parts:
                scores_by_name[name] = scores_by_name.get(name, 0.0) + score / total
            shares.append(scores_by_name)
    except InputError:  # one model does not have the label, or the example cannot be explained
        return []
    names = list(dict.fromkeys([*shares[0], *shares[1]]))
    changes = {name: shares[1].get(name, 0.0) - shares[0].get(name, 0.0) for name in names}
    ranked: Sequence[str] = sorted(names, key=lambda name: -abs(changes[name]))[:MAX_PARTS]
    return [{"part": name, "a": shares[0].get(name, 0.0), "b": shares[1].get(name, 0.0)} for name in ranked]
