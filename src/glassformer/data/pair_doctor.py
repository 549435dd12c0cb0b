"""What is wrong with pairs of texts, before a model learns them: empty sides, repeats, leaks, odd lengths."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from glassformer.data.checks import place
from glassformer.data.doctor_checks import bad_rows, doubled_quotes
from glassformer.data.findings import DoctorReport, Finding, Severity
from glassformer.data.pairs import PairDataset, PairSplit
from glassformer.data.rejected import RejectedRow
from glassformer.data.scored_pairs import ScoredSplit

MANY = 0.01  # of the pairs: more than a note
ODD = 3.0  # times the usual ratio of lengths, or a third of it
WAYS_OUT = {  # check -> what to do
    "untranslated": "translate such pairs, or remove them",
    "length-ratio": "look at them: a side may be cut, or belong to another pair",
    "duplicates": "remove repeats; a split that is held out at random shares none with train",
    "contradictions": "give each pair one score",
    "same": "remove such pairs, or correct their scores",
}
LONG = 20  # characters of the longer side, from which a ratio says something


def examine_pairs(dataset: PairDataset) -> DoctorReport:
    """Every check on pairs; ``dataset`` may hold empty sides (see ``load_pairs``).

    ``figures`` of the report has ``splits``: split -> pairs, distinct, median target / source in characters.
    """
    figures: dict = {"splits": {}}
    findings = []
    for name, split in dataset.splits.items():
        pairs = Counter(zip(split.source, split.target, strict=True))
        ratios = _ratios(split)
        usual = float(np.exp(np.nanmedian(ratios))) if np.isfinite(ratios).any() else None
        figures["splits"][name] = {"pairs": len(split), "distinct": len(pairs), "length_ratio": usual}
        findings += [*_empty(name, split), *_repeats(name, pairs), *_same(name, split)]
        findings += _odd(name, split, ratios)
    findings += [f for side in ("source", "target") for f in doubled_quotes(dataset.splits, side)]
    findings = [*bad_rows(dataset.rejected), *findings, *_leaks(dataset.splits)]
    return DoctorReport(dataset.name, findings, figures)


def _finding(name: str, code: str, what: str, rows: list[int], split: PairSplit) -> Finding:
    severity: Severity = "warning" if len(rows) > MANY * len(split) else "note"
    shown = tuple(
        f"{place(split.origin, i, split.rows)}: {split.source[i]} | {split.target[i]}" for i in rows[:3]
    )
    message = f"{name}: {len(rows):,} of {len(split):,} pairs {what}"
    return Finding(severity, code, message, len(rows), shown, WAYS_OUT[code])


def _empty(name: str, split: PairSplit) -> Iterable[Finding]:
    rows = [
        i
        for i, sides in enumerate(zip(split.source, split.target, strict=True))
        if not all(side.strip() for side in sides)
    ]
    if rows:  # one is enough for a training to refuse them
        shown = tuple(place(split.origin, i, split.rows) for i in rows[:3])
        message = f"{name}: {len(rows):,} of {len(split):,} pairs have an empty side"
        fix = "fill them in, or leave such pairs out with --on-bad-row skip"
        yield Finding("warning", "empty", message, len(rows), shown, fix)
    else:
        yield Finding("ok", "empty", f"{name}: no side is empty")


def _repeats(name: str, pairs: Counter[tuple[str, str]]) -> Iterable[Finding]:
    again = pairs.total() - len(pairs)
    if again:
        often = tuple(f"{n} times: {a} | {b}" for (a, b), n in pairs.most_common(3))
        severity: Severity = "warning" if again > MANY * pairs.total() else "note"
        message = f"{name}: {again:,} of {pairs.total():,} pairs repeat an earlier one"
        yield Finding(severity, "duplicates", message, again, often, WAYS_OUT["duplicates"])
    else:
        yield Finding("ok", "duplicates", f"{name}: no pair occurs twice")


def _same(name: str, split: PairSplit) -> Iterable[Finding]:
    both = enumerate(zip(split.source, split.target, strict=True))
    rows = [i for i, (a, b) in both if len(a) >= LONG and a.casefold() == b.casefold()]
    if rows:
        yield _finding(name, "untranslated", "have the same text on both sides", rows, split)


def _ratios(split: PairSplit) -> np.ndarray:
    """Logarithm of target / source in characters; nan where a side is empty or both are short."""
    left, right = (np.array([len(x.strip()) for x in side], float) for side in (split.source, split.target))
    told = (left > 0) & (right > 0) & (np.maximum(left, right) >= LONG)
    return np.where(told, np.log(np.maximum(right, 1) / np.maximum(left, 1)), np.nan)


def _odd(name: str, split: PairSplit, ratios: np.ndarray) -> Iterable[Finding]:
    if not np.isfinite(ratios).any():
        return
    away = np.abs(ratios - np.nanmedian(ratios))
    rows = np.flatnonzero(away > np.log(ODD)).tolist()
    usual = np.exp(np.nanmedian(ratios))
    if rows:
        what = f"have lengths more than {ODD:g} times off the usual {usual:.2f} characters for one"
        yield _finding(name, "length-ratio", what, rows, split)
    else:
        usually = f"{usual:.2f} characters for one"
        message = f"{name}: no target is {ODD:g} times longer or shorter than usual ({usually})"
        yield Finding("ok", "length-ratio", message)


def _leaks(splits: dict[str, PairSplit]) -> Iterable[Finding]:
    sources = {name: {*split.source} - {""} for name, split in splits.items()}
    for a, b in itertools.combinations(splits, 2):
        shared = sorted(sources[a] & sources[b])
        if shared:
            message = f"distinct source texts in both {a} and {b}: {len(shared):,}"
            fix = f"remove them from {a}: the score would be too good"
            yield Finding("warning", "leaks", message, len(shared), tuple(shared[:3]), fix)
        else:
            yield Finding("ok", "leaks", f"no source text stands in both {a} and {b}")


# --- pairs with scores ------------------------------------------------------------------------------


def examine_scored(
    name: str, splits: Mapping[str, ScoredSplit], rejected: Sequence[RejectedRow] = ()
) -> DoctorReport:
    """Every check on pairs and how alike they are.

    ``figures`` of the report has ``splits``: split -> pairs, distinct, lowest, mean and highest score.
    """
    figures: dict = {"splits": {}}
    findings = []
    for split_name, split in splits.items():
        keys = [_key(a, b) for a, b in zip(split.first, split.second, strict=True)]
        figures["splits"][split_name] = {"pairs": len(split), "distinct": len({*keys}), **_spread(split)}
        findings += [*_repeats(split_name, Counter(keys)), *_scores(split_name, split, keys)]
    findings += [f for side in ("first", "second") for f in doubled_quotes(splits, side)]
    return DoctorReport(name, [*bad_rows(rejected), *findings, *_shared(splits)], figures)


def _key(a: str, b: str) -> tuple[str, str]:
    """A pair in whichever order it stands."""
    return (a, b) if a <= b else (b, a)


def _spread(split: ScoredSplit) -> dict[str, float]:
    if split.scores is None:
        return {}
    scores = np.asarray(split.scores)
    return {"lowest": float(scores.min()), "mean": float(scores.mean()), "highest": float(scores.max())}


def _scores(name: str, split: ScoredSplit, keys: Sequence[tuple[str, str]]) -> Iterable[Finding]:
    if split.scores is None:
        rows = [i for i, (a, b) in enumerate(keys) if a == b]
        if rows:
            yield _scored_finding(
                name, "same", "have the same text on both sides: they teach nothing", rows, split
            )
        return
    scores = np.asarray(split.scores)
    if np.ptp(scores) == 0:
        fix = "give scores that differ, or none: --set score=none"
        yield Finding("warning", "scores", f"{name}: all scores are {scores[0]:g}", len(scores), (), fix)
        return
    given: dict[tuple[str, str], list[int]] = {}
    for i, key in enumerate(keys):
        given.setdefault(key, []).append(i)
    odd = [rows[-1] for rows in given.values() if len({split.scores[i] for i in rows}) > 1]
    if odd:
        yield _scored_finding(name, "contradictions", "stand there again with another score", odd, split)
    else:
        yield Finding("ok", "contradictions", f"{name}: no pair has two scores")
    middle = float(scores.min() + np.ptp(scores) / 2)
    rows = [i for i, (a, b) in enumerate(keys) if a == b and split.scores[i] < middle]
    if rows:
        what = f"have the same text on both sides and a score below {middle:g}"
        yield _scored_finding(name, "same", what, rows, split)


def _scored_finding(name: str, code: str, what: str, rows: list[int], split: ScoredSplit) -> Finding:
    severity: Severity = "warning" if len(rows) > MANY * len(split) else "note"
    shown = tuple(
        f"{place(split.origin, i, split.rows)}: {split.first[i]} | {split.second[i]}" for i in rows[:3]
    )
    message = f"{name}: {len(rows):,} of {len(split):,} pairs {what}"
    return Finding(severity, code, message, len(rows), shown, WAYS_OUT[code])


def _shared(splits: Mapping[str, ScoredSplit]) -> Iterable[Finding]:
    """Leaks: whole pairs in two splits are serious, single texts are common and worth knowing."""
    for a, b in itertools.combinations(splits, 2):
        one, other = splits[a], splits[b]
        pairs = {_key(x, y) for x, y in zip(one.first, one.second, strict=True)}
        rows = [
            i for i, (x, y) in enumerate(zip(other.first, other.second, strict=True)) if _key(x, y) in pairs
        ]
        texts = {*one.first, *one.second} & {*other.first, *other.second}
        if rows:
            shown = tuple(f"{other.first[i]} | {other.second[i]}" for i in rows[:3])
            message = f"pairs in both {a} and {b}, in either order: {len(rows):,}"
            fix = f"remove them from {a}: the score would be too good"
            yield Finding("warning", "leaks", message, len(rows), shown, fix)
        elif texts:
            message = f"texts in both {a} and {b}, on either side of other pairs: {len(texts):,}"
            yield Finding("note", "leaks", message, len(texts), tuple(sorted(texts)[:3]))
        else:
            yield Finding("ok", "leaks", f"no text stands in both {a} and {b}")
