"""Audits of models on labeled data.

Each check examines a model and its predictions, and returns findings. A check that cannot be run gives a
reason (``not_measured``).
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from glassformer.audit import TITLES
from glassformer.audit.perturb import IMAGE_CHANGES, TEXT_CHANGES, as_image, changed, pixels_of
from glassformer.audit.predictions import Predictions, score_metric
from glassformer.audit.slices import example_text, find_slices, more_errors_test, significant, words_in
from glassformer.data.duplicates import copy_keys
from glassformer.data.findings import Finding, excerpt, listed_in_part
from glassformer.data.label_sets import flat_labels
from glassformer.data.text_pairs import TextPair
from glassformer.errors import InputError
from glassformer.evaluate.calibrate import calibration_error, confidences, error_interval
from glassformer.evaluate.compare import mcnemar
from glassformer.evaluate.intervals import share_interval
from glassformer.evaluate.metrics import interval, percent
from glassformer.explain.faithfulness import MASKING_NAMES, MIN_INPUTS
from glassformer.explain.methods import default_method, explain_input
from glassformer.runtime import machine_facts, versions
from glassformer.train.callbacks import Count, no_progress

NUM_LISTED = 5  # maximum number of examples that a finding lists
RESAMPLES = 1000  # number of bootstrap resamples
WARNING_SHARE = 0.01  # a warning is given for a larger share of copies or leaks


@dataclass(frozen=True)
class CheckResult:
    """The result of a check.

    Attributes:
        not_measured: the reason why the check was not run; empty: the check was run.
        values: measurements, for JSON.
    """

    name: str
    findings: Sequence[Finding] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    not_measured: str = ""

    @property
    def title(self) -> str:
        return TITLES[self.name]

    def to_dict(self) -> dict[str, Any]:
        """The result for JSON."""
        findings = [dict(vars(f)) | {"examples": list(f.examples)} for f in self.findings]
        result = {"not_measured": self.not_measured} if self.not_measured else {"values": dict(self.values)}
        header = {"name": self.name, "title": self.title, "measured": not self.not_measured}
        return header | result | {"findings": findings}


Check = Callable[[Predictions, Count], CheckResult]


def with_progress(count: Count, description: str, items: Sequence[Any]) -> Iterator[Any]:
    """Yield the items, with a progress bar."""
    with count(description, len(items)) as progress:
        for item in items:
            yield item
            if progress is not None:
                progress(1)


def describe_examples(predictions: Predictions, rows: Sequence[int] | np.ndarray) -> tuple[str, ...]:
    """Texts with file, row and content of the first ``NUM_LISTED`` examples."""
    names = predictions.split.names()
    return tuple(f"{predictions.where(i)}: {excerpt(str(names[i]), 90)}" for i in list(rows)[:NUM_LISTED])


def _warning(
    predictions: Predictions,
    code: str,
    message: str,
    rows: Sequence[int] | np.ndarray,
    fix: str,
    n: int | None = None,
) -> Finding:
    """A warning about the examples ``rows``, or only about the first ``n`` of them."""
    return Finding(
        "warning", code, message, len(rows) if n is None else n, describe_examples(predictions, rows), fix
    )


# --- performance --------------------------------------------------------------------------------------


def performance(predictions: Predictions, count: Count = no_progress) -> CheckResult:
    """Check the metric: compare it with a model that always predicts the same."""
    metric = score_metric(predictions)
    value = metric.value(predictions.scores)
    constant_score = _constant_score(predictions)
    if metric.name == "accuracy":
        interval = share_interval(value, len(predictions))
    else:
        samples = np.random.default_rng(0).integers(0, len(predictions), (RESAMPLES, len(predictions)))
        interval = np.quantile(metric.sign * predictions.scores[samples].mean(1), [0.025, 0.975]).tolist()
    values: dict[str, Any] = {
        "metric": metric.name,
        "value": value,
        "interval": interval,
        "n": len(predictions),
    }
    values["constant"] = constant_score
    findings = []
    if metric.sign * (interval[0] if metric.sign > 0 else interval[1]) <= metric.sign * constant_score:
        message = "the model is not significantly better than one that always predicts the same "
        message += f"({constant_score:.4g})"
        findings.append(
            Finding("warning", "no-better-than-constant", message, len(predictions), fix="Do not use it")
        )
    return CheckResult("performance", [*findings, *_check_label_names(predictions)], values)


def _constant_score(predictions: Predictions) -> float:
    if predictions.predicts_numbers:
        return float(np.abs(predictions.targets - np.median(predictions.targets)).mean())
    if predictions.targets.ndim == 1:
        return float(np.bincount(predictions.targets).max() / len(predictions))
    most_frequent = np.argsort(-predictions.targets.sum(0))[:1]
    return float(
        np.mean([bool(row[most_frequent].any()) / max(row.sum(), 1) for row in predictions.targets > 0])
    )


def _check_label_names(predictions: Predictions) -> list[Finding]:
    """A finding if the accuracy would be much higher with permuted label names."""
    if predictions.predicts_numbers or predictions.targets.ndim > 1 or len(predictions.clf.classes_) < 2:
        return []
    from scipy.optimize import linear_sum_assignment

    classes = list(map(str, predictions.clf.classes_.tolist()))
    table = np.zeros((len(classes), len(classes)))
    np.add.at(table, (predictions.predicted, predictions.targets), 1)
    _, matched = linear_sum_assignment(-table)
    agreement = table.trace() / len(predictions)
    agreement_if_swapped = table[np.arange(len(classes)), matched].sum() / len(predictions)
    swapped = [i for i in range(len(classes)) if matched[i] != i and table[i].sum()]
    if agreement_if_swapped < agreement + 0.2 or not swapped:
        return []
    names = [f"{classes[i]} → {classes[matched[i]]}" for i in swapped]
    message = "predictions fit the labels much better if label names are exchanged "
    message += f"({listed_in_part(names, 6)}): accuracy would be {percent(agreement_if_swapped)} "
    message += f"instead of {percent(agreement)}"
    fix = "Compare the label names of the model with those of the data"
    return [Finding("warning", "label-map", message, len(swapped), fix=fix)]


def calibration(predictions: Predictions, count: Count = no_progress) -> CheckResult:
    """Check whether the probabilities are calibrated."""
    result = partial(CheckResult, "calibration")
    if predictions.predicts_numbers or predictions.targets.ndim > 1:
        return result(not_measured="it needs a classifier with one label per example")
    confidence, is_correct = confidences(predictions.outputs, predictions.targets)
    error = calibration_error(confidence, is_correct)
    interval = error_interval(confidence, is_correct, resamples=RESAMPLES)
    overconfidence = float(confidence.mean() - is_correct.mean())
    values = {"calibration_error": error, "interval": interval, "confidence_minus_accuracy": overconfidence}
    findings = []
    if interval[0] > 0.03:
        direction = "too high" if overconfidence > 0 else "too low"
        message = f"probabilities are {direction}: {percent(abs(overconfidence))} on average "
        message += f"(calibration error {error:.3f})"
        fix = "Calibrate the model on labeled data that it was not trained on: glassformer calibrate"
        findings.append(Finding("warning", "miscalibrated", message, len(predictions), fix=fix))
    return result(findings, values)


def slices(predictions: Predictions, count: Count = no_progress) -> CheckResult:
    """Find slices with more errors than the other examples."""
    candidates = find_slices(predictions)
    weak = (
        significant(candidates, more_errors_test(predictions.wrong), predictions.wrong) if candidates else []
    )
    records, findings = [], []
    for weak_slice in weak:
        rows, name, n = weak_slice.slice.rows, weak_slice.slice.name, weak_slice.slice.n
        inside, outside = float(predictions.wrong[rows].mean()), float(predictions.wrong[~rows].mean())
        record = {"slice": name, "kind": weak_slice.slice.kind, "n": n, "errors": inside}
        records.append(record | {"errors_elsewhere": outside, "p": weak_slice.p})
        is_far_worse = inside >= 2 * outside and inside - outside >= 0.1
        message = f"{name}: {percent(inside)} errors on {n:,} examples, {percent(outside)} elsewhere"
        fix = "Collect more such examples, or do not use the model on them" if is_far_worse else ""
        severity = "warning" if is_far_worse else "note"
        examples = describe_examples(predictions, np.flatnonzero(rows & predictions.wrong))
        findings.append(Finding(severity, "weak-slice", message, n, examples, fix))
    return CheckResult("slices", findings, {"tested": len(candidates), "found": records})


# --- the data -----------------------------------------------------------------------------------------


def data(predictions: Predictions, count: Count = no_progress) -> CheckResult:
    """Check for duplicates, contradictory labels, class imbalance, lost accents, and wrong labels."""
    keys, labels = copy_keys(predictions.split), list(map(str, predictions.split.labels))
    groups: dict[str, list[int]] = defaultdict(list)
    for i, key in enumerate(keys):
        groups[key].append(i)
    copies = [i for group in groups.values() for i in group[1:]]
    conflicting = [i for group in groups.values() if len({labels[i] for i in group}) > 1 for i in group]
    findings = []
    if len(copies) > WARNING_SHARE * len(predictions):
        message = f"{len(copies):,} of {len(predictions):,} examples are copies of others, "
        message += "which makes intervals too narrow"
        findings.append(_warning(predictions, "duplicates", message, copies, "Drop the copies"))
    if conflicting:
        message = f"{len(conflicting):,} examples are copies with different labels"
        findings.append(_warning(predictions, "contradictions", message, conflicting, "Correct the labels"))
    values: dict[str, Any] = {
        "examples": len(predictions),
        "copies": len(copies),
        "contradictions": len(conflicting),
    }
    if not predictions.predicts_numbers:
        counts = Counter(map(str, flat_labels(predictions.split.labels)))
        counts |= {str(c): 0 for c in predictions.clf.classes_.tolist() if str(c) not in counts}
        values["labels"] = dict(counts)
        findings += _balance(counts, len(predictions))
        findings += _wrong_labels(predictions, values)
    if predictions.train is not None and not predictions.has_images:
        findings += _lost_accents(predictions, values)
    return CheckResult("data", findings, values)


def _lost_accents(predictions: Predictions, values: dict[str, Any]) -> list[Finding]:
    """A finding if the texts have lost the accents of the training texts."""
    share_in_training, share_now = (
        float(np.mean([any(c.isalpha() and not c.isascii() for c in example_text(x)) for x in examples]))
        for examples in (predictions.train.examples, predictions.split.examples)
    )
    values["with_accents"] = {"training": share_in_training, "here": share_now}
    if share_in_training < 0.1 or share_now > share_in_training / 4:
        return []
    message = f"accents are lost: {percent(share_now)} of the texts have non-ASCII letters, "
    message += f"{percent(share_in_training)} in training"
    fix = "Check the encoding of the data, and its cleaning"
    return [Finding("warning", "accents-lost", message, len(predictions), fix=fix)]


def _balance(counts: Mapping[str, int], n: int) -> list[Finding]:
    largest, smallest = max(counts, key=lambda k: counts[k]), min(counts, key=lambda k: counts[k])
    if counts[largest] < 10 * max(counts[smallest], 1):
        return []
    message = f"classes are imbalanced: {counts[largest]:,} examples of {largest}"
    message += f", {counts[smallest]:,} of {smallest}"
    fix = "Look at macro-F1 and at each class; collect more examples of rare classes"
    return [Finding("warning", "imbalance", message, counts[smallest], fix=fix)]


def _wrong_labels(predictions: Predictions, values: dict[str, Any]) -> list[Finding]:
    """A finding if many labels look wrong.

    A model of the labels is fitted by maximum likelihood: a share of the labels is random, and the others
    follow the predicted probabilities, raised to a power (``sharpness``).
    """
    if predictions.targets.ndim > 1 or len(predictions.clf.classes_) < 2:
        return []
    from scipy.optimize import minimize

    logs = np.log(predictions.outputs.clip(1e-12))
    rows, k = np.arange(len(predictions)), predictions.outputs.shape[1]

    def label_probability(sharpness: float) -> np.ndarray:
        scaled = logs * sharpness
        scaled = np.exp(scaled - scaled.max(1, keepdims=True))
        return (scaled / scaled.sum(1, keepdims=True))[rows, predictions.targets]

    def loss(x: np.ndarray, noise: float | None = None) -> float:
        wrong_share = x[1] if noise is None else noise
        return float(-np.log((1 - wrong_share) * label_probability(x[0]) + wrong_share / k).sum())

    fitted = minimize(loss, [1.0, 0.02], bounds=[(0.2, 5), (0, 0.5)])
    without = minimize(lambda x: loss(x, 0.0), [1.0], bounds=[(0.2, 5)])
    wrong_share = float(fitted.x[1]) * (k - 1) / k  # one of k random labels is correct
    values["wrong_labels"] = wrong_share
    if not 0.02 <= wrong_share <= 0.3 or 2 * (without.fun - fitted.fun) < 10:
        return []
    likelihood = label_probability(fitted.x[0])
    wrong_probability = fitted.x[1] / k / ((1 - fitted.x[1]) * likelihood + fitted.x[1] / k)
    order = np.argsort(-wrong_probability, kind="stable")
    message = f"about {percent(wrong_share)} of the labels look wrong: "
    message += "the model confidently predicts another label"
    fix = "Check them: glassformer review-labels"
    return [_warning(predictions, "wrong-labels", message, order, fix, round(wrong_share * len(predictions)))]


def leaks(predictions: Predictions, count: Count = no_progress) -> CheckResult:
    """Find examples that the model was trained on, including copies."""
    result = partial(CheckResult, "leaks")
    if predictions.train is None:
        reason = "the training data are not available: audit a run whose data still exist"
        return result(not_measured=reason)
    training_keys = set(copy_keys(predictions.train))
    leaked = [i for i, key in enumerate(copy_keys(predictions.split)) if key in training_keys]
    findings = []
    if len(leaked) > WARNING_SHARE * len(predictions):
        is_new = np.ones(len(predictions), bool)
        is_new[leaked] = False
        message = f"{len(leaked):,} of {len(predictions):,} examples, or copies of them, were in training"
        if is_new.any():
            metric = score_metric(predictions)
            message += f"; without them {metric.name} is {metric.value(predictions.scores[is_new]):.4g}"
        findings.append(_warning(predictions, "leak", message, leaked, "Leave these examples out"))
    return result(findings, {"training_examples": len(predictions.train), "seen": len(leaked)})


# --- robustness -------------------------------------------------------------------------------------

NUM_CHANGED = 500  # maximum number of changed examples
WARNING_DROP = 0.1  # a warning is given for a larger drop of the metric


def robustness(predictions: Predictions, count: Count = no_progress, most: int = NUM_CHANGED) -> CheckResult:
    """Measure the metric on examples with changes that preserve their meaning."""
    result = partial(CheckResult, "robustness")
    rows = _sample(len(predictions), most)
    changes = list(IMAGE_CHANGES if predictions.has_images else TEXT_CHANGES)
    examples = [predictions.split.examples[i] for i in rows]
    base_scores, metric = predictions.scores[rows], score_metric(predictions)
    scale = (
        float(np.abs(predictions.targets - np.median(predictions.targets)).mean())
        if predictions.predicts_numbers
        else 1.0
    )
    table, findings = [], []
    original = [as_image(pixels_of(x)) for x in examples] if predictions.has_images else examples
    for name in with_progress(count, "changing examples", changes):
        perturbed = [changed(x, name, seed) for seed, x in enumerate(examples)]
        indices = [i for i, x in enumerate(perturbed) if str(original[i]) != str(x)]
        scores = base_scores.copy()
        if indices:
            outputs = predictions.clf.outputs([perturbed[i] for i in indices])
            scores[indices] = replace(
                predictions, outputs=outputs, targets=predictions.targets[rows[indices]]
            ).scores
        before, after = metric.value(base_scores), metric.value(scores)
        table.append({"change": name, "changed": len(indices), "value": after, "before": before})
        worse, better = base_scores - scores > 1e-9, scores - base_scores > 1e-9
        drop = float((base_scores - scores).mean())
        if drop > WARNING_DROP * scale and mcnemar(worse, better).p < 0.01:
            message = f"{name}: {metric.name} {before:.4g} becomes {after:.4g}"
            lost = rows[np.argsort(scores - base_scores, kind="stable")]
            fix = "Train with such changes (augmentation), or undo them before predicting"
            findings.append(_warning(predictions, "not-robust", message, lost, fix, int(worse.sum())))
    values: dict[str, Any] = {"n": len(rows), "changes": table}
    if not predictions.has_images:
        values["not_measured"] = {
            "negation": "the label of a negated text is unknown",
            "paraphrase": "a text with other words may have another label",
        }
    return result(findings, values)


def _sample(n: int, most: int) -> np.ndarray:
    return np.sort(np.random.default_rng(0).permutation(n)[:most])


# --- shortcuts ------------------------------------------------------------------------------------------

NUM_EXPLAINED = 200  # maximum number of explained examples
NUM_CANDIDATES = 25  # number of tested words
NUM_INSERTED = 60  # number of examples that a word is appended to
MIN_FLIP_SHARE = 0.8  # minimum share of examples whose prediction a shortcut flips
MIN_CONTROL_RATIO = 3  # minimum ratio of that share to the share that random words or regions flip
GRID = 4  # number of regions per side of an image
PER_CLASS = 12  # number of images per class whose regions are copied


def shortcuts(predictions: Predictions, count: Count = no_progress) -> CheckResult:
    """Find words or image regions that flip the prediction of other examples when inserted."""
    result = partial(CheckResult, "shortcuts")
    if predictions.predicts_numbers or predictions.targets.ndim > 1 or len(predictions.clf.classes_) < 2:
        return result(not_measured="it needs a classifier with one label per example")
    parts, random_share = (
        _try_regions(predictions, count) if predictions.has_images else _try_words(predictions, count)
    )
    placement, kind = ("copied into", "regions") if predictions.has_images else ("appended to", "words")
    words_per_text = (
        [] if predictions.has_images else [words_in(example_text(x)) for x in predictions.split.examples]
    )
    findings = []
    for part in sorted(parts, key=lambda part: -part["turned"]):
        if part["turned"] >= max(MIN_FLIP_SHARE, MIN_CONTROL_RATIO * random_share):
            rows = [i for i, words in enumerate(words_per_text) if part["part"] in words]
            message = f"{part['part']!r} alone decides: {placement} other examples, it flips "
            message += f"{percent(part['turned'], 0)} of them to '{part['label']}' "
            message += f"(random {kind}: {percent(random_share, 0)})"
            fix = "Check whether it should decide; if not, remove it from the training data"
            findings.append(_warning(predictions, "shortcut", message, rows, fix))
    values = {"tried": len(parts), "random": random_share, "strongest": parts[:NUM_CANDIDATES]}
    return result(findings, values)


def _try_words(predictions: Predictions, count: Count) -> tuple[list[dict[str, Any]], float]:
    """The effects of words on texts of other classes, and the mean effect of random words.

    The tested words have the largest mean score for a class, or occur almost only in texts of one class.
    """
    rows = _sample(len(predictions), NUM_EXPLAINED)
    sums: dict[tuple[str, int], list[float]] = defaultdict(list)
    method = default_method(predictions.clf)
    for i in with_progress(count, "explaining", rows.tolist()):
        try:
            explanation = explain_input(predictions.clf, predictions.split.examples[i], method=method)
        except InputError:
            continue
        total = sum(abs(score) for _, score in explanation.words()) or 1.0
        for word, score in explanation.words():
            for part in words_in(word):
                sums[part, int(predictions.predicted[i])].append(score / total)
    mean = {key: float(np.sum(values) / (len(values) + 1)) for key, values in sums.items()}
    counts: dict[str, Counter] = defaultdict(Counter)
    for x, predicted in zip(predictions.split.examples, predictions.predicted.tolist(), strict=True):
        for word in words_in(example_text(x)):
            counts[word][predicted] += 1
    class_shares = np.bincount(predictions.predicted, minlength=len(predictions.clf.classes_)) / len(
        predictions
    )
    pure = {
        (word, k): n * np.log(n / values.total() / class_shares[k])
        for word, values in counts.items()
        for k, n in values.items()
        if n >= 5 and n >= 0.9 * values.total()
    }
    ranked = sorted(mean, key=lambda key: -mean[key])[:NUM_CANDIDATES]
    ranked += [key for key in sorted(pure, key=lambda key: -pure[key])[:NUM_CANDIDATES] if key not in ranked]
    rng = np.random.default_rng(0)
    vocabulary = sorted(counts)
    random = [
        (str(rng.choice(vocabulary)), int(rng.integers(len(predictions.clf.classes_))))
        for _ in range(NUM_CANDIDATES)
    ]
    random_shares = [_flip_share(predictions, word, k)["turned"] for word, k in random]
    return [_flip_share(predictions, word, k) for word, k in ranked], float(np.mean(random_shares))


def _flip_share(predictions: Predictions, word: str, k: int) -> dict[str, Any]:
    """The share of other examples that the model predicts as class ``k`` if a word is appended."""
    other_examples = np.flatnonzero(predictions.predicted != k)
    rows = np.random.default_rng(1).permutation(other_examples)[:NUM_INSERTED]
    label = str(predictions.clf.classes_[k])
    if not len(rows):
        return {"part": word, "label": label, "turned": 0.0, "n": 0}
    appended = [
        TextPair(x.first, f"{x.second} {word}") if isinstance(x, TextPair) else f"{x} {word}"
        for x in (predictions.split.examples[i] for i in rows.tolist())
    ]
    predicted = predictions.clf.predicted_index(predictions.clf.outputs(appended))
    return {"part": word, "label": label, "turned": float((predicted == k).mean()), "n": len(rows)}


def _try_regions(predictions: Predictions, count: Count) -> tuple[list[dict[str, Any]], float]:
    """The effects of regions that are copied into images of other classes, and the median effect."""
    rng, cells = np.random.default_rng(0), [(i, j) for i in range(GRID) for j in range(GRID)]
    regions: list[dict[str, Any]] = []
    classes = [k for k in range(len(predictions.clf.classes_)) if (predictions.predicted == k).any()]
    for k in with_progress(count, "copying regions", classes):
        donors = rng.permutation(np.flatnonzero(predictions.predicted == k))[:PER_CLASS].tolist()
        rows = rng.permutation(np.flatnonzero(predictions.predicted != k))[:PER_CLASS].tolist()
        pairs = [
            (pixels_of(predictions.split.examples[source]), pixels_of(predictions.split.examples[row]))
            for source, row in zip(donors, rows, strict=False)
        ]
        if not pairs:
            continue
        images = [as_image(_copy_region(a, b, cell)) for cell in cells for a, b in pairs]
        predicted = predictions.clf.predicted_index(predictions.clf.outputs(images)).reshape(
            len(cells), len(pairs)
        )
        for cell, classes_in_cell in zip(cells, predicted, strict=True):
            turned, label = float((classes_in_cell == k).mean()), str(predictions.clf.classes_[k])
            name = f"region in row {cell[0] + 1}, column {cell[1] + 1} of {GRID} x {GRID}"
            regions.append({"part": name, "label": label, "turned": turned, "n": len(pairs)})
    return regions, float(np.median([one["turned"] for one in regions])) if regions else 0.0


def _copy_region(a: np.ndarray, b: np.ndarray, cell: tuple[int, int]) -> np.ndarray:
    """Image ``b`` with one region from image ``a``; both are pixels ``[H, W, 3]`` in 0 to 1."""
    from PIL import Image

    (i, j), (height, width), out = cell, a.shape[:2], b.copy()
    top, bottom = (round(edge * b.shape[0] / GRID) for edge in (i, i + 1))
    left, right = (round(edge * b.shape[1] / GRID) for edge in (j, j + 1))
    if bottom > top and right > left:
        box = (j * width / GRID, i * height / GRID, (j + 1) * width / GRID, (i + 1) * height / GRID)
        part = Image.fromarray(as_image(a)).resize((right - left, bottom - top), box=box)
        out[top:bottom, left:right] = np.asarray(part, float) / 255
    return out


# --- explanations ---------------------------------------------------------------------------------------


def faithfulness(predictions: Predictions, count: Count = no_progress, most: int = MIN_INPUTS) -> CheckResult:
    """Run the faithfulness test on explanations of some inputs."""
    result = partial(CheckResult, "faithfulness")
    method = default_method(predictions.clf)
    passed: dict[str, list[bool]] = defaultdict(list)
    rows = _sample(len(predictions), most)
    for i in with_progress(count, "testing explanations", rows.tolist()):
        try:
            explanation = (
                explain_input(predictions.clf, predictions.split.examples[i], method=method, trust=True).trust
                or {}
            )
        except InputError:
            continue
        for name, counts in explanation.get("operators", {}).items():
            if counts["passes"] is not None:
                passed[name].append(bool(counts["passes"]))
    if not passed:
        return result(not_measured="no input has enough parts to mask")
    table = {name: {"n": len(counts), "passes": sum(counts)} for name, counts in passed.items()}
    values: dict[str, Any] = {"method": method, "inputs": len(rows), "operators": table}
    values["maskable"] = bool(getattr(predictions.clf, "maskable", False))
    weak = [MASKING_NAMES[name] for name, counts in passed.items() if np.mean(counts) < 0.5]
    findings = []
    if weak:
        message = f"fewer than half of the explanations by {method} pass the faithfulness test with parts "
        message += listed_in_part(weak)
        fix = "Use its explanations as hints only; train with maskable=true, or try another method"
        findings.append(Finding("note", "unfaithful", message, len(rows), fix=fix))
    return result(findings, values)


CHECKS: Mapping[str, Check] = {
    check.__name__: check
    for check in (performance, data, leaks, calibration, slices, robustness, shortcuts, faithfulness)
}


def audit(
    predicted: Predictions,
    *,
    checks: Sequence[str] | None = None,
    count: Count = no_progress,
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Run the checks of ``CHECKS`` on a model's predictions; trains nothing.

    Args:
        checks: keys of ``CHECKS``; None: all. The other checks are reported as "not measured".

    Returns:
        The content of audit.json: ``model``, ``data``, ``n``, ``date``, ``sentences`` (the summary),
        ``warnings`` (their number), ``checks`` (see ``CheckResult.to_dict``), ``about`` (facts about the
        model), ``seconds``, ``machine`` and ``versions``.
    """
    audit_start, results = time.perf_counter(), []
    for name, check in CHECKS.items():
        if checks is not None and name not in checks:
            results.append(CheckResult(name, not_measured="it was not selected"))
            continue
        start = time.perf_counter()
        results.append(check(predicted, count))
        log(f"{results[-1].title}: {summary_line(results[-1])} ({time.perf_counter() - start:.0f} s)")
    return {
        "model": predicted.name,
        "data": str(predicted.split.origin),
        "n": len(predicted),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "sentences": sentences({result.name: result for result in results}, predicted),
        "warnings": sum(f.severity == "warning" for result in results for f in result.findings),
        "checks": [result.to_dict() for result in results],
        "about": about(predicted),
        "seconds": round(time.perf_counter() - audit_start, 1),
        "machine": machine_facts(),
        "versions": versions(),
    }


def summary_line(checked: CheckResult) -> str:
    """The result of a check, such as "2 warnings"."""
    if checked.not_measured:
        return f"not measured: {checked.not_measured}"
    n_warnings = sum(f.severity == "warning" for f in checked.findings)
    if n_warnings:
        return f"{n_warnings} warning{'s' * (n_warnings > 1)}"
    return "no warnings"


def sentences(checks: Mapping[str, CheckResult], predicted: Predictions) -> list[str]:
    """A summary of an audit in five sentences."""
    no_data_warnings = "No copies, leaks or suspicious labels were found in the data"
    no_slices = "No group of examples has far more errors than the others"
    is_robust = "No meaning-preserving change and no single word or region determines its predictions"
    return [
        _performance_sentence(checks["performance"]),
        _warning_sentence(checks, ("data", "leaks"), no_data_warnings),
        _warning_sentence(checks, ("slices",), no_slices),
        _warning_sentence(checks, ("robustness", "shortcuts"), is_robust),
        _calibration_sentence(checks["calibration"], checks["faithfulness"]),
    ]


def _performance_sentence(checked: CheckResult) -> str:
    if checked.not_measured:
        return f"Performance: not measured ({checked.not_measured})."
    values = checked.values
    metric, value, constant, examples = (values[key] for key in ("metric", "value", "constant", "n"))
    low, high = values["interval"]
    if metric == "mean absolute error":
        text = f"{metric} {value:.4g} (95 % interval {low:.4g} to {high:.4g}) on {examples:,} examples; "
        text += f"always predicting the median gives {constant:.4g}"
    else:
        text = f"{metric} {percent(value)} (95 % interval {interval([low, high])}) on {examples:,} examples; "
        text += f"always predicting the same gives {percent(constant)}"
    messages = [finding.message for finding in checked.findings if finding.severity == "warning"]
    return f"{text[0].upper()}{text[1:]}{': but ' + messages[0] if messages else ''}."


def _warning_sentence(results: Mapping[str, CheckResult], names: Sequence[str], no_warnings: str) -> str:
    """A sentence with the first warning of some checks; ``no_warnings`` if there are no warnings."""
    checks = [results[name] for name in names]
    warnings = [f.message for check in checks for f in check.findings if f.severity == "warning"]
    not_measured = [f"{check.title.lower()} not measured" for check in checks if check.not_measured]
    if warnings:
        more = f" (warnings not shown: {len(warnings) - 1})" if len(warnings) > 1 else ""
        return f"{warnings[0][0].upper()}{warnings[0][1:]}{more}."
    if len(not_measured) == len(checks):
        return f"{not_measured[0][0].upper()}{not_measured[0][1:]}: {checks[0].not_measured}."
    return f"{no_warnings}{'; ' + ', '.join(not_measured) if not_measured else ''}."


def _calibration_sentence(calibration: CheckResult, faithfulness: CheckResult) -> str:
    messages = [finding.message for finding in calibration.findings]
    if calibration.not_measured:
        first = "Calibration was not measured"
    elif messages:
        first = f"{messages[0][0].upper()}{messages[0][1:]}"
    else:
        error = calibration.values["calibration_error"]
        first = f"No miscalibration beyond chance (calibration error {error:.3f})"
    if faithfulness.not_measured:
        return f"{first}; explanations were not tested."
    table = faithfulness.values["operators"]
    passes = sum(counts["passes"] for counts in table.values())
    tests = sum(counts["n"] for counts in table.values())
    return f"{first}; explanations pass {passes} of {tests} faithfulness tests."


def about(predicted: Predictions) -> dict[str, Any]:
    """Facts about the model for its technical documentation; unknown facts are None."""
    clf = predicted.clf
    labels = None if predicted.predicts_numbers else list(map(str, clf.classes_.tolist()))
    return {
        "model": predicted.name,
        "kind": type(clf).__name__,
        "architecture": str(clf.model),
        "parameters": sum(parameter.numel() for parameter in clf.model_.parameters()),
        "weights": getattr(clf, "weights_source_", None),
        "reads": clf.inputs.noun,
        "predicts": labels or "a number",
        "training_examples": None if predicted.train is None else len(predicted.train),
        "training_data": None if predicted.train is None else str(predicted.train.origin),
        "intended_use": None,
        "human_oversight": None,
        "monitoring": None,
    }
