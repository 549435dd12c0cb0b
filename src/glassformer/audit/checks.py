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
from glassformer.explain.faithfulness import HIDING, LEAST
from glassformer.explain.methods import default_method, explain_input
from glassformer.train.callbacks import Count, uncounted

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


def with_progress(count: Count, what: str, items: Sequence[Any]) -> Iterator[Any]:
    """Iterate over items with a progress bar."""
    with count(what, len(items)) as records:
        for item in items:
            yield item
            if records is not None:
                records(1)


def places(p: Predicted, rows: Sequence[int] | np.ndarray) -> tuple[str, ...]:
    """File, row and content of the first of some examples."""
    shown = p.split.names()
    return tuple(f"{p.where(i)}: {excerpt(str(shown[i]), 90)}" for i in list(rows)[:SHOWN])


# --- performance --------------------------------------------------------------------------------------


def performance(p: Predicted, count: Count = uncounted) -> Checked:
    """The metric with its interval, compared with a model that always predicts the same."""
    metric = metric_of(p)
    value = metric.value(p.scores)
    same = _constant(p)
    if metric.name == "accuracy":
        ends = share_interval(value, len(p))
    else:
        drawn = np.random.default_rng(0).integers(0, len(p), (RESAMPLES, len(p)))
        ends = np.quantile(metric.sign * p.scores[drawn].mean(1), [0.025, 0.975]).tolist()
    values = {"metric": metric.name, "value": value, "interval": ends, "n": len(p), "constant": same}
    findings = []
    if metric.sign * (ends[0] if metric.sign > 0 else ends[1]) <= metric.sign * same:
        what = f"the model is not clearly better than one that always predicts the same ({same:.4g})"
        findings.append(Finding("warning", "no-better-than-constant", what, len(p), fix="Do not use it"))
    return Checked("performance", [*findings, *_label_map(p)], values)


def _constant(p: Predicted) -> float:
    if p.gives_numbers:
        return float(np.abs(p.targets - np.median(p.targets)).mean())
    if p.targets.ndim == 1:
        return float(np.bincount(p.targets).max() / len(p))
    most = np.argsort(-p.targets.sum(0))[:1]
    return float(np.mean([bool(own[most].any()) / max(own.sum(), 1) for own in p.targets > 0]))


def _label_map(p: Predicted) -> list[Finding]:
    """Whether predictions fit the labels much better with permuted label names."""
    if p.gives_numbers or p.targets.ndim > 1 or len(p.clf.classes_) < 2:
        return []
    from scipy.optimize import linear_sum_assignment

    classes = list(map(str, p.clf.classes_.tolist()))
    table = np.zeros((len(classes), len(classes)))
    np.add.at(table, (p.chosen, p.targets), 1)
    _, named = linear_sum_assignment(-table)
    now, then = table.trace() / len(p), table[np.arange(len(classes)), named].sum() / len(p)
    moved = [i for i in range(len(classes)) if named[i] != i and table[i].sum()]
    if then < now + 0.2 or not moved:
        return []
    names = [f"{classes[i]} → {classes[named[i]]}" for i in moved]
    what = (
        f"predictions fit the labels much better if label names are exchanged ({listed_in_part(names, 6)}): "
    )
    what += f"accuracy would be {percent(then)} instead of {percent(now)}"
    fix = "Compare the label names of the model with those of the data"
    return [Finding("warning", "label-map", what, len(moved), fix=fix)]


def calibration(p: Predicted, count: Count = uncounted) -> Checked:
    """Whether probabilities agree with accuracy."""
    made = partial(Checked, "calibration")
    if p.gives_numbers or p.targets.ndim > 1:
        return made(not_measured="it needs a classifier with one label per example")
    error = calibration_error(p.outputs, p.targets)
    ends = calibration_interval(p.outputs, p.targets, resamples=RESAMPLES)
    gap = float(p.outputs.max(1).mean() - (p.outputs.argmax(1) == p.targets).mean())
    values = {"calibration_error": error, "interval": ends, "confidence_minus_accuracy": gap}
    findings = []
    if ends[0] > 0.03:
        how = "too high" if gap > 0 else "too low"
        what = f"probabilities are {how}: {percent(abs(gap))} on average (calibration error {error:.3f})"
        fix = "Calibrate it on labeled data that it was not trained on: glassformer calibrate"
        findings.append(Finding("warning", "miscalibrated", what, len(p), fix=fix))
    return made(findings, values)


def slices(p: Predicted, count: Count = uncounted) -> Checked:
    """Slices with more errors than the other examples."""
    parts = slices_of(p)
    found = significant(parts, more_errors(p.wrong), p.wrong) if parts else []
    records, findings = [], []
    for one in found:
        rows = one.slice.rows
        inside, outside = float(p.wrong[rows].mean()), float(p.wrong[~rows].mean())
        records.append(
            {
                "slice": one.slice.name,
                "kind": one.slice.kind,
                "n": one.slice.n,
                "errors": inside,
                "errors_elsewhere": outside,
                "p": one.p,
            }
        )
        far = inside >= 2 * outside and inside - outside >= 0.1
        what = f"{one.slice.name}: {percent(inside)} errors on {one.slice.n:,} examples, "
        what += f"{percent(outside)} elsewhere"
        fix = "Collect more such examples, or do not use the model on them" if far else ""
        severity = "warning" if far else "note"
        shown = places(p, np.flatnonzero(rows & p.wrong))
        findings.append(Finding(severity, "weak-slice", what, one.slice.n, shown, fix))
    return Checked("slices", findings, {"tested": len(parts), "found": records})


# --- the data -----------------------------------------------------------------------------------------


def data(p: Predicted, count: Count = uncounted) -> Checked:
    """Duplicates, contradictory labels, class imbalance, lost accents, and labels that look wrong."""
    keys, labels = copy_keys(p.split), list(map(str, p.split.labels))
    members: dict[str, list[int]] = defaultdict(list)
    for i, key in enumerate(keys):
        members[key].append(i)
    copies = [i for own in members.values() for i in own[1:]]
    apart = [i for own in members.values() if len({labels[i] for i in own}) > 1 for i in own]
    findings = []
    if len(copies) > MANY * len(p):
        what = (
            f"{len(copies):,} of {len(p):,} examples are copies of others, which makes intervals too narrow"
        )
        fix = "Drop the copies"
        findings.append(Finding("warning", "duplicates", what, len(copies), places(p, copies), fix))
    if apart:
        what, fix = f"{len(apart):,} examples are copies with different labels", "Correct the labels"
        findings.append(Finding("warning", "contradictions", what, len(apart), places(p, apart), fix))
    values: dict[str, Any] = {"examples": len(p), "copies": len(copies), "contradictions": len(apart)}
    if not p.gives_numbers:
        counts = Counter(str(x) for own in p.split.labels for x in flat_labels([own]))
        counts |= {str(c): 0 for c in p.clf.classes_.tolist() if str(c) not in counts}
        values["labels"] = dict(counts)
        findings += _balance(counts, len(p))
        findings += _wrong_labels(p, values)
    if p.train is not None and not p.has_images:
        findings += _accents(p, values)
    return Checked("data", findings, values)


def _accents(p: Predicted, values: dict[str, Any]) -> list[Finding]:
    """Whether texts have lost accents that training texts had."""
    before, now = (
        float(np.mean([any(c.isalpha() and not c.isascii() for c in text_of(x)) for x in examples]))
        for examples in (p.train.examples, p.split.examples)
    )
    values["with_accents"] = {"training": before, "here": now}
    if before < 0.1 or now > before / 4:
        return []
    what = f"accents are lost: {percent(now)} of the texts have non-English letters, "
    what += f"{percent(before)} in training"
    fix = "Check the encoding of the data, and its cleaning"
    return [Finding("warning", "accents-lost", what, len(p), fix=fix)]


def _balance(counts: Mapping[str, int], n: int) -> list[Finding]:
    most, least = max(counts, key=lambda k: counts[k]), min(counts, key=lambda k: counts[k])
    if counts[most] < 10 * max(counts[least], 1):
        return []
    what = f"classes are imbalanced: {counts[most]:,} examples of {most}, {counts[least]:,} of {least}"
    fix = "Look at macro-F1 and at each class; collect more examples of the rare ones"
    return [Finding("warning", "imbalance", what, counts[least], fix=fix)]


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
        share = x[1] if noise is None else noise
        return float(-np.log((1 - share) * given(x[0]) + share / k).sum())

    free = minimize(loss, [1.0, 0.02], bounds=[(0.2, 5), (0, 0.5)])
    without = minimize(lambda x: loss(x, 0.0), [1.0], bounds=[(0.2, 5)])
    share = float(free.x[1]) * (k - 1) / k  # 1 of k random labels is right
    values["wrong_labels"] = share
    if not 0.02 <= share <= 0.3 or 2 * (without.fun - free.fun) < 10:
        return []
    own = given(free.x[0])
    doubt = free.x[1] / k / ((1 - free.x[1]) * own + free.x[1] / k)
    order = np.argsort(-doubt, kind="stable")[: max(SHOWN, round(share * len(p)))]
    what = f"about {percent(share)} of the labels look wrong: the model confidently predicts another label"
    fix = "Check them: glassformer review-labels"
    return [Finding("warning", "wrong-labels", what, round(share * len(p)), places(p, order), fix)]


def leaks(p: Predicted, count: Count = uncounted) -> Checked:
    """Examples that the model was trained on, including copies."""
    made = partial(Checked, "leaks")
    if p.train is None:
        return made(not_measured="the training data are not available: audit the run, with its data in place")
    known = set(copy_keys(p.train))
    seen = [i for i, key in enumerate(copy_keys(p.split)) if key in known]
    findings = []
    if len(seen) > MANY * len(p):
        rest = np.ones(len(p), bool)
        rest[seen] = False
        metric = metric_of(p)
        without = f"; without them {metric.name} is {metric.value(p.scores[rest]):.4g}" if rest.any() else ""
        what = f"{len(seen):,} of {len(p):,} examples, or copies of them, were in training{without}"
        findings.append(Finding("warning", "leak", what, len(seen), places(p, seen), "Leave them out"))
    return made(findings, {"training_examples": len(p.train), "seen": len(seen)})


# --- robustness -------------------------------------------------------------------------------------

SAMPLE = 500  # examples to change
FALL = 0.1  # fall of the metric from which a finding is a warning


def robustness(p: Predicted, count: Count = uncounted, most: int = SAMPLE) -> Checked:
    """How much the metric falls under changes that preserve the meaning."""
    made = partial(Checked, "robustness")
    rows = _sample(len(p), most)
    changes = list(IMAGE_CHANGES if p.has_images else TEXT_CHANGES)
    examples = [p.split.examples[i] for i in rows]
    before, metric = p.scores[rows], metric_of(p)
    spread = float(np.abs(p.targets - np.median(p.targets)).mean()) if p.gives_numbers else 1.0
    table, findings = [], []
    plain = [as_image(pixels_of(x)) for x in examples] if p.has_images else examples
    for name in with_progress(count, "changing examples", changes):
        new = [changed(x, name, seed) for seed, x in enumerate(examples)]
        touched = np.array([str(a) != str(b) for a, b in zip(plain, new, strict=True)])
        scores = before.copy()
        if touched.any():
            here = np.flatnonzero(touched)
            scores[here] = rescored(p, rows[here], [new[i] for i in here])
        fall = float((before - scores).mean())
        table.append(
            {
                "change": name,
                "changed": int(touched.sum()),
                "value": metric.value(scores),
                "before": metric.value(before),
            }
        )
        worse, better = before - scores > 1e-9, scores - before > 1e-9
        if fall > FALL * spread and mcnemar(worse, better).p < 0.01:
            what = f"{name}: {metric.name} {metric.value(before):.4g} becomes {metric.value(scores):.4g}"
            lost = rows[np.argsort(scores - before, kind="stable")]
            fix = "Train with such changes (augmentation), or undo them before predicting"
            findings.append(Finding("warning", "not-robust", what, int(worse.sum()), places(p, lost), fix))
    values: dict[str, Any] = {"n": len(rows), "changes": table}
    if not p.has_images:
        values["not_measured"] = {
            "negation": "the label of a negated text is unknown",
            "paraphrase": "a text with other words may have another label",
        }
    return made(findings, values)


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


def shortcuts(p: Predicted, count: Count = uncounted) -> Checked:
    """Words or image regions that flip other examples to a class when inserted."""
    made = partial(Checked, "shortcuts")
    if p.gives_numbers or p.targets.ndim > 1 or len(p.clf.classes_) < 2:
        return made(not_measured="it needs a classifier with one label per example")
    found, chance = _regions(p, count) if p.has_images else _words(p, count)
    findings = []
    for one in sorted(found, key=lambda one: -one["turned"]):
        if one["turned"] >= max(TURNS, CONTROL * chance):
            rows = [] if p.has_images else _with(p, one["part"])
            where = "copied into" if p.has_images else "appended to"
            turned, usual = percent(one["turned"], 0), percent(chance, 0)
            what = f"{one['part']!r} alone decides: {where} other examples, it flips {turned} of them to "
            what += f"{one['label']} (random ones: {usual})"
            fix = "Check whether it should decide; if not, remove it from the training data"
            findings.append(Finding("warning", "shortcut", what, len(rows), places(p, rows), fix))
    return made(findings, {"tried": len(found), "random": chance, "strongest": found[:CANDIDATES]})


def _with(p: Predicted, word: str) -> list[int]:
    return [i for i, x in enumerate(p.split.examples) if word in words_in(text_of(x))]


def _words(p: Predicted, count: Count) -> tuple[list[dict[str, Any]], float]:
    """Try words with the largest mean score for a class in texts of other classes."""
    rows = _sample(len(p), EXPLAINED)
    sums: dict[tuple[str, int], list[float]] = defaultdict(list)
    by = default_method(p.clf)
    for i in with_progress(count, "explaining", rows.tolist()):
        try:
            made = explain_input(p.clf, p.split.examples[i], method=by)
        except InputError:
            continue
        whole = sum(abs(score) for _, score in made.words()) or 1.0
        for word, score in made.words():
            for part in words_in(word):
                sums[part, int(p.chosen[i])].append(score / whole)
    mean = {key: float(np.sum(own) / (len(own) + 1)) for key, own in sums.items()}
    # Also words whose texts nearly all get one class, even rare ones.
    counts: dict[str, Counter] = defaultdict(Counter)
    for x, chosen in zip(p.split.examples, p.chosen.tolist(), strict=True):
        for word in words_in(text_of(x)):
            counts[word][chosen] += 1
    base = np.bincount(p.chosen, minlength=len(p.clf.classes_)) / len(p)
    pure = {
        (word, k): n * np.log(n / own.total() / base[k])
        for word, own in counts.items()
        for k, n in own.items()
        if n >= 5 and n >= 0.9 * own.total()
    }
    first = sorted(mean, key=lambda key: -mean[key])[:CANDIDATES]
    first += [key for key in sorted(pure, key=lambda key: -pure[key])[:CANDIDATES] if key not in first]
    rng = np.random.default_rng(0)
    vocabulary = sorted(counts)
    others = [
        (str(rng.choice(vocabulary)), int(rng.integers(len(p.clf.classes_)))) for _ in range(CANDIDATES)
    ]
    found = [_flipped(p, word, k, lambda x, word=word: _with_word(x, word)) for word, k in (*first, *others)]
    random = found[len(first) :]
    return found[: len(first)], float(np.mean([one["turned"] for one in random])) if random else 0.0


def _with_word(x: Any, word: str) -> Any:
    return TextPair(x.first, f"{x.second} {word}") if isinstance(x, TextPair) else f"{x} {word}"


def _flipped(p: Predicted, part: str, k: int, put: Callable[[Any], Any]) -> dict[str, Any]:
    """The share of examples with other predictions that flip to class ``k``."""
    others = np.flatnonzero(p.chosen != k)
    rows = np.random.default_rng(1).permutation(others)[:TRIED]
    label = str(p.clf.classes_[k])
    if not len(rows):
        return {"part": part, "label": label, "turned": 0.0, "n": 0}
    now = p.clf.chosen(p.clf.outputs([put(p.split.examples[i]) for i in rows.tolist()]))
    return {"part": part, "label": label, "turned": float((now == k).mean()), "n": len(rows)}


def _regions(p: Predicted, count: Count) -> tuple[list[dict[str, Any]], float]:
    """Copy each region of images of a class to the same place in images of other classes."""
    rng, cells = np.random.default_rng(0), [(i, j) for i in range(GRID) for j in range(GRID)]
    found: list[dict[str, Any]] = []
    classes = [k for k in range(len(p.clf.classes_)) if (p.chosen == k).any()]
    for k in with_progress(count, "copying regions", classes):
        donors = rng.permutation(np.flatnonzero(p.chosen == k))[:PER_CLASS].tolist()
        rows = rng.permutation(np.flatnonzero(p.chosen != k))[:PER_CLASS].tolist()
        from_, into = ([pixels_of(p.split.examples[i]) for i in own] for own in (donors, rows))
        pairs = [(a, b) for a, b in zip(from_, into, strict=False)]
        made = [as_image(_copied(a, b, cell)) for cell in cells for a, b in pairs]
        now = p.clf.chosen(p.clf.outputs(made)).reshape(len(cells), len(pairs)) if pairs else np.zeros((0, 0))
        for cell, own in zip(cells, now, strict=False):
            turned, label = float((own == k).mean()), str(p.clf.classes_[k])
            name = f"region in row {cell[0] + 1}, column {cell[1] + 1} of {GRID} x {GRID}"
            found.append({"part": name, "label": label, "turned": turned, "n": len(pairs)})
    return found, float(np.median([one["turned"] for one in found])) if found else 0.0


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


def faithfulness(p: Predicted, count: Count = uncounted, most: int = LEAST) -> Checked:
    """Whether explanations of the model pass the faithfulness test on some inputs."""
    made = partial(Checked, "faithfulness")
    by = default_method(p.clf)
    passed: dict[str, list[bool]] = defaultdict(list)
    rows = _sample(len(p), most)
    for i in with_progress(count, "testing explanations", rows.tolist()):
        try:
            found = explain_input(p.clf, p.split.examples[i], method=by, trust=True).trust or {}
        except InputError:
            continue
        for name, own in found.get("operators", {}).items():
            if own["passes"] is not None:
                passed[name].append(bool(own["passes"]))
    if not passed:
        return made(not_measured="no input has enough parts to mask")
    table = {name: {"n": len(own), "passes": sum(own)} for name, own in passed.items()}
    values = {
        "method": by,
        "inputs": len(rows),
        "operators": table,
        "maskable": bool(getattr(p.clf, "maskable", False)),
    }
    weak = [HIDING[name] for name, own in passed.items() if np.mean(own) < 0.5]
    findings = []
    if weak:
        what = f"fewer than half of the explanations by {by} pass the faithfulness test with parts "
        what += listed_in_part(weak)
        fix = "Use its explanations as hints only; train with maskable=true, or try another method"
        findings.append(Finding("note", "unfaithful", what, len(rows), fix=fix))
    return made(findings, values)


CHECKS: Mapping[str, Check] = {
    check.__name__: check
    for check in (performance, data, leaks, calibration, slices, robustness, shortcuts, faithfulness)
}
