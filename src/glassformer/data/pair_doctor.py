"""What is wrong with pairs of texts, before a model learns them: empty sides, repeats, leaks, odd lengths."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

import numpy as np

from glassformer.data.checks import place
from glassformer.data.doctor_rows import bad_rows
from glassformer.data.findings import DoctorReport, Finding, Severity
from glassformer.data.pairs import PairDataset, PairSplit

MANY = 0.01  # of the pairs: more than a note
ODD = 3.0  # times the usual ratio of lengths, or a third of it
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
    findings = [*bad_rows(dataset.rejected), *findings, *_leaks(dataset.splits)]
    return DoctorReport(dataset.name, findings, figures)


def _finding(name: str, code: str, what: str, rows: list[int], split: PairSplit) -> Finding:
    severity: Severity = "warning" if len(rows) > MANY * len(split) else "note"
    shown = tuple(
        f"{place(split.origin, i, split.rows)}: {split.source[i]} | {split.target[i]}" for i in rows[:3]
    )
    return Finding(severity, code, f"{name}: {len(rows):,} of {len(split):,} pairs {what}", len(rows), shown)


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
        yield Finding(severity, "duplicates", message, again, often)
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
