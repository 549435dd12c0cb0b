"""Compares two models on the same labeled examples: changed predictions, worse slices, explanations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.audit.predicted import Predicted, metric_of
from glassformer.audit.slices import ALPHA, Found, Slice, more_losses, significant, slices_of, text_of
from glassformer.data.findings import excerpt
from glassformer.errors import ConfigError, InputError
from glassformer.evaluate.compare import bounds, mcnemar
from glassformer.explain.methods import explain_input

SHOWN = 20  # predictions that got worse to list
EXPLAINED = 5  # of these, how many to explain
PARTS = 5  # words or patches of an explanation
SAME = 1e-9  # scores that differ by less are equal
RESAMPLES = 2000


def diff(a: Predicted, b: Predicted, *, alpha: float = ALPHA, explained: int = EXPLAINED) -> dict[str, Any]:
    """How the predictions of ``b`` differ from those of ``a``, for JSON.

    Args:
        alpha: probability of reporting any slice (or all examples) if nothing has changed.
        explained: number of predictions to explain, among those that got worse.

    Returns:
        ``models``, ``n``, ``metric``; ``a`` and ``b`` (its values), ``difference`` (b - a), its 95 %
        ``interval`` (bootstrap over examples) and ``p`` (McNemar's test; for numbers and label sets, the sign
        test); the number of predictions that ``changed``, got ``worse`` and ``better``; ``slices`` on which
        ``b`` is worse, and ``improved`` ones (``p`` corrected for all slices); ``flips``: predictions that
        got worse, the most confident first; ``is_worse``: whether any slice is significantly worse.

    Raises:
        ConfigError: the models do not have the same inputs, examples and labels.
    """
    _check_same(a, b)
    change = b.scores - a.scores
    losses, gains = change < -SAME, change > SAME
    is_changed = np.array([x != y for x, y in zip(a.labels_of(a.chosen), b.labels_of(b.chosen), strict=True)])
    everything = Slice("all", "all examples", np.ones(len(a), bool))
    slices = [everything, *slices_of(a)]
    worse = significant(slices, more_losses(losses, gains), losses, alpha)
    better = significant(slices, more_losses(gains, losses), gains, alpha)
    rng = np.random.default_rng(0)
    means = change[rng.integers(0, len(change), (RESAMPLES, len(change)))].mean(1)
    metric = metric_of(a)
    lost = np.flatnonzero(losses)
    lost = lost[np.argsort(-_confidence(b)[lost], kind="stable")]
    flips = [_flip_record(a, b, i) for i in lost[:SHOWN].tolist()]
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
        "slices": [_slice_record(found, a, b, losses, gains) for found in worse],
        "improved": [_slice_record(found, a, b, losses, gains) for found in better],
        "flips": flips,
        "is_worse": bool(worse),
    }


def _check_same(a: Predicted, b: Predicted) -> None:
    if a.has_images != b.has_images:
        reads = ["images" if predicted.has_images else "texts" for predicted in (a, b)]
        message = f"{a.name} reads {reads[0]} and {b.name} reads {reads[1]}"
        raise ConfigError(message, where="diff", fix="Compare two models of the same inputs")
    if len(a) != len(b) or list(map(str, a.split.examples)) != list(map(str, b.split.examples)):
        message = f"{a.name} reads {len(a):,} examples and {b.name} {len(b):,}, and they are not the same"
        raise ConfigError(
            message, where="diff", fix="Name the columns, or correct the rows that one cannot use"
        )
    if a.gives_numbers != b.gives_numbers or list(map(str, a.split.labels)) != list(map(str, b.split.labels)):
        message = f"{a.name} and {b.name} do not predict the same kind of label"
        raise ConfigError(message, where="diff", fix="Compare two models of one task")


def _confidence(predicted: Predicted) -> np.ndarray:
    if predicted.gives_numbers:
        return -predicted.scores
    return np.asarray(predicted.clf.kind_.confidence(predicted.outputs, predicted.chosen))


def _slice_record(
    found: Found, a: Predicted, b: Predicted, losses: np.ndarray, gains: np.ndarray
) -> dict[str, Any]:
    rows, metric = found.slice.rows, metric_of(a)
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


def _flip_record(a: Predicted, b: Predicted, i: int) -> dict[str, Any]:
    labels = {key: p.labels_of(p.chosen[i : i + 1])[0] for key, p in (("a", a), ("b", b))}
    example = a.split.names()[i] if a.has_images else excerpt(text_of(a.split.examples[i]))
    confidences = (
        {} if a.gives_numbers else {f"p_{k}": float(_confidence(p)[i]) for k, p in (("a", a), ("b", b))}
    )
    return {"where": a.where(i), "example": example, "label": str(a.split.labels[i]), **labels, **confidences}


def parts_of(clf: Any, example: Any, target: Any = None) -> list[tuple[str, float]]:
    """Words (or patches by row and column) with their scores for a label; None: the predicted one."""
    explanation = explain_input(clf, example, target=target)
    return explanation.words() or explanation.top(explanation.scores.size)


def _why(a: Predicted, b: Predicted, i: int) -> list[dict[str, Any]]:
    """The words or patches whose share of the explanation of ``b``'s prediction changed most."""
    label = None if a.gives_numbers or b.clf.kind_.is_multilabel else b.labels_of(b.chosen[i : i + 1])[0]
    shares: list[dict[str, float]] = []
    try:
        for p in (a, b):
            parts = parts_of(p.clf, p.split.examples[i], label)
            total = sum(abs(score) for _, score in parts) or 1.0
            scores_by_name: dict[str, float] = {}
            for name, score in parts:
                scores_by_name[name] = scores_by_name.get(name, 0.0) + score / total
            shares.append(scores_by_name)
    except InputError:  # only one model knows the label, or the example cannot be explained
        return []
    names = list(dict.fromkeys([*shares[0], *shares[1]]))
    changes = {name: shares[1].get(name, 0.0) - shares[0].get(name, 0.0) for name in names}
    ranked: Sequence[str] = sorted(names, key=lambda name: -abs(changes[name]))[:PARTS]
    return [{"part": n, "a": shares[0].get(n, 0.0), "b": shares[1].get(n, 0.0)} for n in ranked]
