"""The checks of an audit; each examines a model and its predictions and returns findings.

A check that cannot be run reports the reason ("not measured"), to distinguish it from one without findings.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from glassformer.audit import TITLES
from glassformer.audit.perturb import IMAGE_CHANGES, TEXT_CHANGES, as_image, changed, pixels_of
from glassformer.audit.predicted import Predicted, metric_of
from glassformer.audit.slices import more_errors, significant, slices_of, text_of, words_in
from glassformer.data.copies import copy_keys
from glassformer.data.findings import Finding, excerpt, listed_in_part
from glassformer.data.label_sets import flat_labels
from glassformer.data.text_pairs import TextPair
from glassformer.errors import InputError
from glassformer.evaluate.calibrate import calibration_error, calibration_interval
from glassformer.evaluate.compare import mcnemar
from glassformer.evaluate.intervals import share_interval
from glassformer.evaluate.metrics import percent
from glassformer.explain.faithfulness import MASKING_NAMES, MIN_INPUTS
from glassformer.explain.methods import default_method, explain_input
from glassformer.train.callbacks import Count, no_progress

SHOWN = 5  # examples that a finding lists
RESAMPLES = 1000
MANY = 0.01  # share of copies or leaks from which a finding is a warning


@dataclass(frozen=True)
class Checked:
    """The result of a check.

    Attributes:
        not_measured: the reason why the check was not run; empty: it was.
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
        """Plain values for JSON."""
        findings = [dict(vars(f)) | {"examples": list(f.examples)} for f in self.findings]
        about = {"not_measured": self.not_measured} if self.not_measured else {"values": dict(self.values)}
        return {
            "name": self.name,
            "title": self.title,
            "measured": not self.not_measured,
            **about,
            "findings": findings,
        }


Check = Callable[[Predicted, Count], Checked]


def with_progress(count: Count, description: str, items: Sequence[Any]) -> Iterator[Any]:
    """Iterate over items with a progress bar."""
    with count(description, len(items)) as records:
        for item in items:
            yield item
            if records is not None:
                records(1)


def places(p: Predicted, rows: Sequence[int] | np.ndarray) -> tuple[str, ...]:
    """File, row and content of the first of some examples."""
    shown = p.split.names()
    return tuple(f"{p.where(i)}: {excerpt(str(shown[i]), 90)}" for i in list(rows)[:SHOWN])


# --- performance --------------------------------------------------------------------------------------


def performance(p: Predicted, count: Count = no_progress) -> Checked:
    """The metric with its interval, compared with a model that always predicts the same."""
    metric = metric_of(p)
    value = metric.value(p.scores)
    constant_score = _constant(p)
    if metric.name == "accuracy":
        interval = share_interval(value, len(p))
    else:
        samples = np.random.default_rng(0).integers(0, len(p), (RESAMPLES, len(p)))
        interval = np.quantile(metric.sign * p.scores[samples].mean(1), [0.025, 0.975]).tolist()
    values = {
        "metric": metric.name,
        "value": value,
        "interval": interval,
        "n": len(p),
        "constant": constant_score,
    }
    findings = []
    if metric.sign * (interval[0] if metric.sign > 0 else interval[1]) <= metric.sign * constant_score:
        message = (
            f"the model is not clearly better than one that always predicts the same ({constant_score:.4g})"
        )
        findings.append(Finding("warning", "no-better-than-constant", message, len(p), fix="Do not use it"))
    return Checked("performance", [*findings, *_label_map(p)], values)


def _constant(p: Predicted) -> float:
    if p.gives_numbers:
        return float(np.abs(p.targets - np.median(p.targets)).mean())
    if p.targets.ndim == 1:
        return float(np.bincount(p.targets).max() / len(p))
    most_frequent = np.argsort(-p.targets.sum(0))[:1]
    return float(np.mean([bool(row[most_frequent].any()) / max(row.sum(), 1) for row in p.targets > 0]))


def _label_map(p: Predicted) -> list[Finding]:
    """Whether predictions fit the labels much better with permuted label names."""
    if p.gives_numbers or p.targets.ndim > 1 or len(p.clf.classes_) < 2:
        return []
    from scipy.optimize import linear_sum_assignment

    classes = list(map(str, p.clf.classes_.tolist()))
    table = np.zeros((len(classes), len(classes)))
    np.add.at(table, (p.chosen, p.targets), 1)
    _, matched = linear_sum_assignment(-table)
    agreement, agreement_if_swapped = (
        table.trace() / len(p),
        table[np.arange(len(classes)), matched].sum() / len(p),
    )
    swapped = [i for i in range(len(classes)) if matched[i] != i and table[i].sum()]
    if agreement_if_swapped < agreement + 0.2 or not swapped:
        return []
    names = [f"{classes[i]} → {classes[matched[i]]}" for i in swapped]
    message = (
        f"predictions fit the labels much better if label names are exchanged ({listed_in_part(names, 6)}): "
    )
    message += f"accuracy would be {percent(agreement_if_swapped)} instead of {percent(agreement)}"
    fix = "Compare the label names of the model with those of the data"
    return [Finding("warning", "label-map", message, len(swapped), fix=fix)]


def calibration(p: Predicted, count: Count = no_progress) -> Checked:
    """Whether probabilities agree with accuracy."""
    result = partial(Checked, "calibration")
    if p.gives_numbers or p.targets.ndim > 1:
        return result(not_measured="it needs a classifier with one label per example")
    error = calibration_error(p.outputs, p.targets)
    interval = calibration_interval(p.outputs, p.targets, resamples=RESAMPLES)
    gap = float(p.outputs.max(1).mean() - (p.outputs.argmax(1) == p.targets).mean())
    values = {"calibration_error": error, "interval": interval, "confidence_minus_accuracy": gap}
    findings = []
    if interval[0] > 0.03:
        direction = "too high" if gap > 0 else "too low"
        message = (
            f"probabilities are {direction}: {percent(abs(gap))} on average (calibration error {error:.3f})"
        )
        fix = "Calibrate it on labeled data that it was not trained on: glassformer calibrate"
        findings.append(Finding("warning", "miscalibrated", message, len(p), fix=fix))
    return result(findings, values)


def slices(p: Predicted, count: Count = no_progress) -> Checked:
    """Slices with more errors than the other examples."""
    parts = slices_of(p)
    significant_slices = significant(parts, more_errors(p.wrong), p.wrong) if parts else []
    records, findings = [], []
    for finding in significant_slices:
        rows = finding.slice.rows
        inside, outside = float(p.wrong[rows].mean()), float(p.wrong[~rows].mean())
        records.append(
            {
                "slice": finding.slice.name,
                "kind": finding.slice.kind,
                "n": finding.slice.n,
                "errors": inside,
                "errors_elsewhere": outside,
                "p": finding.p,
            }
        )
        is_far = inside >= 2 * outside and inside - outside >= 0.1
        message = f"{finding.slice.name}: {percent(inside)} errors on {finding.slice.n:,} examples, "
        message += f"{percent(outside)} elsewhere"
        fix = "Collect more such examples, or do not use the model on them" if is_far else ""
        severity = "warning" if is_far else "note"
        examples = places(p, np.flatnonzero(rows & p.wrong))
        findings.append(Finding(severity, "weak-slice", message, finding.slice.n, examples, fix))
    return Checked("slices", findings, {"tested": len(parts), "found": records})


# --- the data -----------------------------------------------------------------------------------------


def data(p: Predicted, count: Count = no_progress) -> Checked:
    """Duplicates, contradictory labels, class imbalance, lost accents, and labels that look wrong."""
    keys, labels = copy_keys(p.split), list(map(str, p.split.labels))
    members: dict[str, list[int]] = defaultdict(list)
    for i, key in enumerate(keys):
        members[key].append(i)
    copies = [i for members_of_group in members.values() for i in members_of_group[1:]]
    conflicting = [
        i
        for members_of_group in members.values()
        if len({labels[i] for i in members_of_group}) > 1
        for i in members_of_group
    ]
    findings = []
    if len(copies) > MANY * len(p):
        message = (
            f"{len(copies):,} of {len(p):,} examples are copies of others, which makes intervals too narrow"
        )
        fix = "Drop the copies"
        findings.append(Finding("warning", "duplicates", message, len(copies), places(p, copies), fix))
    if conflicting:
        message, fix = f"{len(conflicting):,} examples are copies with different labels", "Correct the labels"
        findings.append(
            Finding("warning", "contradictions", message, len(conflicting), places(p, conflicting), fix)
        )
    values: dict[str, Any] = {"examples": len(p), "copies": len(copies), "contradictions": len(conflicting)}
    if not p.gives_numbers:
        counts = Counter(
            str(x) for members_of_group in p.split.labels for x in flat_labels([members_of_group])
        )
        counts |= {str(c): 0 for c in p.clf.classes_.tolist() if str(c) not in counts}
        values["labels"] = dict(counts)
        findings += _balance(counts, len(p))
        findings += _wrong_labels(p, values)
    if p.train is not None and not p.has_images:
        findings += _accents(p, values)
    return Checked("data", findings, values)


def _accents(p: Predicted, values: dict[str, Any]) -> list[Finding]:
    """Whether texts have lost accents that training texts had."""
    share_in_training, share_now = (
        float(np.mean([any(c.isalpha() and not c.isascii() for c in text_of(x)) for x in examples]))
        for examples in (p.train.examples, p.split.examples)
    )
    values["with_accents"] = {"training": share_in_training, "here": share_now}
    if share_in_training < 0.1 or share_now > share_in_training / 4:
        return []
    message = f"accents are lost: {percent(share_now)} of the texts have non-English letters, "
    message += f"{percent(share_in_training)} in training"
    fix = "Check the encoding of the data, and its cleaning"
    return [Finding("warning", "accents-lost", message, len(p), fix=fix)]


def _balance(counts: Mapping[str, int], n: int) -> list[Finding]:
    largest, smallest = max(counts, key=lambda k: counts[k]), min(counts, key=lambda k: counts[k])
    if counts[largest] < 10 * max(counts[smallest], 1):
        return []
    message = f"classes are imbalanced: {counts[largest]:,} examples of {largest}"
    message += f", {counts[smallest]:,} of {smallest}"
    fix = "Look at macro-F1 and at each class; collect more examples of the rare ones"
    return [Finding("warning", "imbalance", message, counts[smallest], fix=fix)]


def _wrong_labels(p: Predicted, values: dict[str, Any]) -> list[Finding]:
    """Labels that look wrong: a maximum likelihood estimate of the share of random labels."""
    if p.targets.ndim > 1 or len(p.clf.classes_) < 2:
        return []
    from scipy.optimize import minimize

    logs = np.log(p.outputs.clip(1e-12))
    rows, k = np.arange(len(p)), p.outputs.shape[1]

    def given(sharpness: float) -> np.ndarray:
        scaled = logs * sharpness
        scaled = np.exp(scaled - scaled.max(1, keepdims=True))
        return (scaled / scaled.sum(1, keepdims=True))[rows, p.targets]

    def loss(x: np.ndarray, noise: float | None = None) -> float:
        wrong_share = x[1] if noise is None else noise
        return float(-np.log((1 - wrong_share) * given(x[0]) + wrong_share / k).sum())

    fitted = minimize(loss, [1.0, 0.02], bounds=[(0.2, 5), (0, 0.5)])
    without = minimize(lambda x: loss(x, 0.0), [1.0], bounds=[(0.2, 5)])
    wrong_share = float(fitted.x[1]) * (k - 1) / k  # 1 of k random labels is right
    values["wrong_labels"] = wrong_share
    if not 0.02 <= wrong_share <= 0.3 or 2 * (without.fun - fitted.fun) < 10:
        return []
    likelihood = given(fitted.x[0])
    wrong_probability = fitted.x[1] / k / ((1 - fitted.x[1]) * likelihood + fitted.x[1] / k)
    order = np.argsort(-wrong_probability, kind="stable")[: max(SHOWN, round(wrong_share * len(p)))]
    message = (
        f"about {percent(wrong_share)} of the labels look wrong: the model confidently predicts another label"
    )
    fix = "Check them: glassformer review-labels"
    return [Finding("warning", "wrong-labels", message, round(wrong_share * len(p)), places(p, order), fix)]


def leaks(p: Predicted, count: Count = no_progress) -> Checked:
    """Examples that the model was trained on, including copies."""
    result = partial(Checked, "leaks")
    if p.train is None:
        return result(
            not_measured="the training data are not available: audit the run, with its data in place"
        )
    training_groups = set(copy_keys(p.train))
    leaked = [i for i, key in enumerate(copy_keys(p.split)) if key in training_groups]
    findings = []
    if len(leaked) > MANY * len(p):
        is_new = np.ones(len(p), bool)
        is_new[leaked] = False
        metric = metric_of(p)
        without = (
            f"; without them {metric.name} is {metric.value(p.scores[is_new]):.4g}" if is_new.any() else ""
        )
        message = f"{len(leaked):,} of {len(p):,} examples, or copies of them, were in training{without}"
        findings.append(Finding("warning", "leak", message, len(leaked), places(p, leaked), "Leave them out"))
    return result(findings, {"training_examples": len(p.train), "seen": len(leaked)})


# --- robustness -------------------------------------------------------------------------------------

SAMPLE = 500  # examples to change
FALL = 0.1  # fall of the metric from which a finding is a warning


def robustness(p: Predicted, count: Count = no_progress, most: int = SAMPLE) -> Checked:
    """How much the metric falls under changes that preserve the meaning."""
    result = partial(Checked, "robustness")
    rows = _sample(len(p), most)
    changes = list(IMAGE_CHANGES if p.has_images else TEXT_CHANGES)
    examples = [p.split.examples[i] for i in rows]
    base_scores, metric = p.scores[rows], metric_of(p)
    spread = float(np.abs(p.targets - np.median(p.targets)).mean()) if p.gives_numbers else 1.0
    table, findings = [], []
    plain_inputs = [as_image(pixels_of(x)) for x in examples] if p.has_images else examples
    for name in with_progress(count, "changing examples", changes):
        perturbed = [changed(x, name, seed) for seed, x in enumerate(examples)]
        touched = np.array([str(a) != str(b) for a, b in zip(plain_inputs, perturbed, strict=True)])
        scores = base_scores.copy()
        if touched.any():
            touched_indices = np.flatnonzero(touched)
            scores[touched_indices] = rescored(
                p, rows[touched_indices], [perturbed[i] for i in touched_indices]
            )
        fall = float((base_scores - scores).mean())
        table.append(
            {
                "change": name,
                "changed": int(touched.sum()),
                "value": metric.value(scores),
                "before": metric.value(base_scores),
            }
        )
        worse, better = base_scores - scores > 1e-9, scores - base_scores > 1e-9
        if fall > FALL * spread and mcnemar(worse, better).p < 0.01:
            message = (
                f"{name}: {metric.name} {metric.value(base_scores):.4g} becomes {metric.value(scores):.4g}"
            )
            lost = rows[np.argsort(scores - base_scores, kind="stable")]
            fix = "Train with such changes (augmentation), or undo them before predicting"
            findings.append(Finding("warning", "not-robust", message, int(worse.sum()), places(p, lost), fix))
    values: dict[str, Any] = {"n": len(rows), "changes": table}
    if not p.has_images:
        values["not_measured"] = {
            "negation": "the label of a negated text is unknown",
            "paraphrase": "a text with other words may have another label",
        }
    return result(findings, values)


def rescored(p: Predicted, rows: np.ndarray, examples: Sequence[Any]) -> np.ndarray:
    """``Predicted.scores`` if the examples in ``rows`` are replaced by others."""
    again = Predicted(p.clf, p.name, p.split, p.clf.outputs(list(examples)), p.targets[rows], {})
    return again.scores


def _sample(n: int, most: int) -> np.ndarray:
    return np.sort(np.random.default_rng(0).permutation(n)[:most])


# --- shortcuts ------------------------------------------------------------------------------------------

EXPLAINED = 200  # examples
CANDIDATES = 25  # words to try
TRIED = 60  # examples that a candidate is inserted into
TURNS = 0.8  # share of examples whose prediction a shortcut must flip
CONTROL = 3  # minimum ratio to the share that random words or regions flip
GRID = 4  # regions per side of an image
PER_CLASS = 12  # images per class whose regions are copied


def shortcuts(p: Predicted, count: Count = no_progress) -> Checked:
    """Words or image regions that flip other examples to a class when inserted."""
    result = partial(Checked, "shortcuts")
    if p.gives_numbers or p.targets.ndim > 1 or len(p.clf.classes_) < 2:
        return result(not_measured="it needs a classifier with one label per example")
    parts, chance = _regions(p, count) if p.has_images else _words(p, count)
    findings = []
    for part in sorted(parts, key=lambda part: -part["turned"]):
        if part["turned"] >= max(TURNS, CONTROL * chance):
            rows = [] if p.has_images else _with(p, part["part"])
            placement = "copied into" if p.has_images else "appended to"
            turned, chance_share = percent(part["turned"], 0), percent(chance, 0)
            message = (
                f"{part['part']!r} alone decides: {placement} other examples, it flips {turned} of them to "
            )
            message += f"'{part['label']}' (random {'regions' if p.has_images else 'words'}: {chance_share})"
            fix = "Check whether it should decide; if not, remove it from the training data"
            findings.append(Finding("warning", "shortcut", message, len(rows), places(p, rows), fix))
    return result(findings, {"tried": len(parts), "random": chance, "strongest": parts[:CANDIDATES]})


def _with(p: Predicted, word: str) -> list[int]:
    return [i for i, x in enumerate(p.split.examples) if word in words_in(text_of(x))]


def _words(p: Predicted, count: Count) -> tuple[list[dict[str, Any]], float]:
    """Try words with the largest mean score for a class in texts of other classes."""
    rows = _sample(len(p), EXPLAINED)
    sums: dict[tuple[str, int], list[float]] = defaultdict(list)
    method = default_method(p.clf)
    for i in with_progress(count, "explaining", rows.tolist()):
        try:
            explanation = explain_input(p.clf, p.split.examples[i], method=method)
        except InputError:
            continue
        total = sum(abs(score) for _, score in explanation.words()) or 1.0
        for word, score in explanation.words():
            for part in words_in(word):
                sums[part, int(p.chosen[i])].append(score / total)
    mean = {key: float(np.sum(values) / (len(values) + 1)) for key, values in sums.items()}
    # Also words whose texts nearly all get one class, even rare ones.
    counts: dict[str, Counter] = defaultdict(Counter)
    for x, chosen in zip(p.split.examples, p.chosen.tolist(), strict=True):
        for word in words_in(text_of(x)):
            counts[word][chosen] += 1
    base = np.bincount(p.chosen, minlength=len(p.clf.classes_)) / len(p)
    pure = {
        (word, k): n * np.log(n / values.total() / base[k])
        for word, values in counts.items()
        for k, n in values.items()
        if n >= 5 and n >= 0.9 * values.total()
    }
    ranked = sorted(mean, key=lambda key: -mean[key])[:CANDIDATES]
    ranked += [key for key in sorted(pure, key=lambda key: -pure[key])[:CANDIDATES] if key not in ranked]
    rng = np.random.default_rng(0)
    vocabulary = sorted(counts)
    others = [
        (str(rng.choice(vocabulary)), int(rng.integers(len(p.clf.classes_)))) for _ in range(CANDIDATES)
    ]
    found = [_flipped(p, word, k, lambda x, word=word: _with_word(x, word)) for word, k in (*ranked, *others)]
    random = found[len(ranked) :]
    return found[: len(ranked)], float(np.mean([one["turned"] for one in random])) if random else 0.0


def _with_word(x: Any, word: str) -> Any:
    return TextPair(x.first, f"{x.second} {word}") if isinstance(x, TextPair) else f"{x} {word}"


def _flipped(p: Predicted, part: str, k: int, put: Callable[[Any], Any]) -> dict[str, Any]:
    """The share of examples with other predictions that flip to class ``k``."""
    other_examples = np.flatnonzero(p.chosen != k)
    rows = np.random.default_rng(1).permutation(other_examples)[:TRIED]
    label = str(p.clf.classes_[k])
    if not len(rows):
        return {"part": part, "label": label, "turned": 0.0, "n": 0}
    predicted = p.clf.chosen(p.clf.outputs([put(p.split.examples[i]) for i in rows.tolist()]))
    return {"part": part, "label": label, "turned": float((predicted == k).mean()), "n": len(rows)}


def _regions(p: Predicted, count: Count) -> tuple[list[dict[str, Any]], float]:
    """Copy each region of images of a class to the same place in images of other classes."""
    rng, cells = np.random.default_rng(0), [(i, j) for i in range(GRID) for j in range(GRID)]
    regions: list[dict[str, Any]] = []
    classes = [k for k in range(len(p.clf.classes_)) if (p.chosen == k).any()]
    for k in with_progress(count, "copying regions", classes):
        donors = rng.permutation(np.flatnonzero(p.chosen == k))[:PER_CLASS].tolist()
        rows = rng.permutation(np.flatnonzero(p.chosen != k))[:PER_CLASS].tolist()
        from_, into = ([pixels_of(p.split.examples[i]) for i in indices] for indices in (donors, rows))
        pairs = [(a, b) for a, b in zip(from_, into, strict=False)]
        images = [as_image(_copied(a, b, cell)) for cell in cells for a, b in pairs]
        predicted = (
            p.clf.chosen(p.clf.outputs(images)).reshape(len(cells), len(pairs)) if pairs else np.zeros((0, 0))
        )
        for cell, indices in zip(cells, predicted, strict=False):
            turned, label = float((indices == k).mean()), str(p.clf.classes_[k])
            name = f"region in row {cell[0] + 1}, column {cell[1] + 1} of {GRID} x {GRID}"
            regions.append({"part": name, "label": label, "turned": turned, "n": len(pairs)})
    return regions, float(np.median([one["turned"] for one in regions])) if regions else 0.0


def _copied(a: np.ndarray, b: np.ndarray, cell: tuple[int, int]) -> np.ndarray:
    """Image ``b`` with a region copied from image ``a``."""
    from PIL import Image

    (i, j), (height, width), out = cell, a.shape[:2], b.copy()
    top, bottom = (round(at * b.shape[0] / GRID) for at in (i, i + 1))
    left, right = (round(at * b.shape[1] / GRID) for at in (j, j + 1))
    if bottom > top and right > left:
        box = (j * width / GRID, i * height / GRID, (j + 1) * width / GRID, (i + 1) * height / GRID)
        part = Image.fromarray(as_image(a)).resize((right - left, bottom - top), box=box)
        out[top:bottom, left:right] = np.asarray(part, float) / 255
    return out


# --- explanations ---------------------------------------------------------------------------------------


def faithfulness(p: Predicted, count: Count = no_progress, most: int = MIN_INPUTS) -> Checked:
    """Whether explanations of the model pass the faithfulness test on some inputs."""
    result = partial(Checked, "faithfulness")
    method = default_method(p.clf)
    passed: dict[str, list[bool]] = defaultdict(list)
    rows = _sample(len(p), most)
    for i in with_progress(count, "testing explanations", rows.tolist()):
        try:
            explanation = explain_input(p.clf, p.split.examples[i], method=method, trust=True).trust or {}
        except InputError:
            continue
        for name, counts in explanation.get("operators", {}).items():
            if counts["passes"] is not None:
                passed[name].append(bool(counts["passes"]))
    if not passed:
        return result(not_measured="no input has enough parts to mask")
    table = {name: {"n": len(counts), "passes": sum(counts)} for name, counts in passed.items()}
    values = {
        "method": method,
        "inputs": len(rows),
        "operators": table,
        "maskable": bool(getattr(p.clf, "maskable", False)),
    }
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
