"""Checks of translation pairs and scored pairs: empty sides, duplicates, leakage, unusual lengths."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from glassformer.data.dataset import Dataset
from glassformer.data.doctor_checks import doubled_quotes, each_split, run_checks
from glassformer.data.findings import DoctorReport, Finding, Severity, at_rows, finding_of
from glassformer.data.pairs import PairSplit, ScoredSplit
from glassformer.data.rejected import RejectedRow

MANY = 0.01  # if a larger share of the pairs is affected, the finding is a warning
ODD = 3.0  # a ratio of lengths is unusual if it differs from the median by more than this factor
FIXES = {  # check -> what to do
    "untranslated": "translate such pairs, or remove them",
    "length-ratio": "check them: a side may be truncated, or belong to another pair",
    "contradictions": "give each pair one score",
    "same": "remove such pairs, or correct their scores",
}
LONG = 20  # characters; if the longer side has fewer, the ratio of lengths means little


def examine_pairs(dataset: Dataset) -> DoctorReport:
    """Run every check on translation pairs; ``dataset`` may hold empty sides (see ``load_pairs``).

    ``figures`` of the report has ``splits``: split -> pairs, distinct, median target / source in characters.
    """
    figures = {"splits": {name: _figures(split) for name, split in dataset.splits.items()}}
    within_split = each_split(_empty, _repeats, _untranslated, _odd_lengths)
    quotes = [partial(doubled_quotes, texts=side) for side in ("source", "target")]
    checks = [within_split, *quotes, _shared_sources]
    return run_checks(dataset.name, dataset.splits, checks, dataset.rejected, figures)


def _figures(split: PairSplit) -> dict[str, Any]:
    ratios = _ratios(split)
    usual = float(np.exp(np.nanmedian(ratios))) if np.isfinite(ratios).any() else None
    return {"pairs": len(split), "distinct": len({*_sides(split)}), "length_ratio": usual}


def _sides(split: Any) -> list[tuple[str, str]]:
    """Both texts of each pair."""
    second = split.target if isinstance(split, PairSplit) else split.second
    return list(zip(split.source, second, strict=True))


def _some(
    name: str, code: str, split: Any, rows: Sequence[int], what: str, ok: str = ""
) -> Iterable[Finding]:
    """Yield a finding about suspicious pairs of a split: a note if they are few, otherwise a warning."""
    severity: Severity = "warning" if len(rows) > MANY * len(split) else "note"
    sides = _sides(split)
    shown = at_rows(split, rows, lambda i: " | ".join(sides[i]))
    message = f"{name}: {len(rows):,} of {len(split):,} pairs {what}"
    yield from finding_of(severity, code, rows, message, FIXES[code], shown=shown, ok=ok)


def _empty(name: str, split: PairSplit) -> Iterable[Finding]:
    rows = [i for i, sides in enumerate(_sides(split)) if not all(side.strip() for side in sides)]
    shown = [at.removesuffix(": ") for at in at_rows(split, rows, lambda i: "")]
    message = f"{name}: {len(rows):,} of {len(split):,} pairs have an empty side"
    fix = "fill them in, or leave such pairs out with --on-bad-row skip"
    # always a warning: training stops at the first such pair
    yield from finding_of("warning", "empty", rows, message, fix, shown=shown, ok=f"{name}: no side is empty")


def _repeats(name: str, split: Any) -> Iterable[Finding]:
    pairs = Counter(_sides(split) if isinstance(split, PairSplit) else _keys(split))
    again = pairs.total() - len(pairs)
    if not again:
        yield Finding("ok", "duplicates", f"{name}: no pair occurs twice")
        return
    often = tuple(f"{n} times: {a} | {b}" for (a, b), n in pairs.most_common(3))
    severity: Severity = "warning" if again > MANY * pairs.total() else "note"
    message = f"{name}: {again:,} of {pairs.total():,} pairs repeat an earlier one"
    fix = "remove repeats; a split that is held out at random shares none with train"
    yield Finding(severity, "duplicates", message, again, often, fix)


def _untranslated(name: str, split: PairSplit) -> Iterable[Finding]:
    both = enumerate(_sides(split))
    rows = [i for i, (a, b) in both if len(a) >= LONG and a.casefold() == b.casefold()]
    yield from _some(name, "untranslated", split, rows, "have the same text on both sides")


def _ratios(split: PairSplit) -> np.ndarray:
    """Logarithm of target / source in characters; NaN if a side is empty or both are short."""
    left, right = (np.array([len(x.strip()) for x in side], float) for side in (split.source, split.target))
    usable = (left > 0) & (right > 0) & (np.maximum(left, right) >= LONG)
    return np.where(usable, np.log(np.maximum(right, 1) / np.maximum(left, 1)), np.nan)


def _odd_lengths(name: str, split: PairSplit) -> Iterable[Finding]:
    ratios = _ratios(split)
    if not np.isfinite(ratios).any():
        return
    away = np.abs(ratios - np.nanmedian(ratios))
    rows = np.flatnonzero(away > np.log(ODD)).tolist()
    usual = f"{np.exp(np.nanmedian(ratios)):.2f} characters for one"
    what = f"have lengths more than {ODD:g} times off the usual {usual}"
    ok = f"{name}: no target is {ODD:g} times longer or shorter than usual ({usual})"
    yield from _some(name, "length-ratio", split, rows, what, ok)


def _shared_sources(splits: Mapping[str, PairSplit], figures: dict[str, Any]) -> Iterable[Finding]:
    sources = {name: {*split.source} - {""} for name, split in splits.items()}
    for a, b in itertools.combinations(splits, 2):
        shared = sorted(sources[a] & sources[b])
        message = f"distinct source texts in both {a} and {b}: {len(shared):,}"
        fix, ok = _too_good(a), f"no source text is in both {a} and {b}"
        yield from finding_of("warning", "leaks", shared, message, fix, ok=ok)


def _too_good(split: str) -> str:
    return f"remove them from {split}: the score would be too good"


# --- pairs with scores ------------------------------------------------------------------------------


def examine_scored(
    name: str, splits: Mapping[str, ScoredSplit], rejected: Sequence[RejectedRow] = ()
) -> DoctorReport:
    """Run every check on pairs with similarity scores.

    ``figures`` of the report has ``splits``: split -> pairs, distinct, lowest, mean and highest score.
    """
    sizes = {k: {"pairs": len(v), "distinct": len({*_keys(v)}), **_spread(v)} for k, v in splits.items()}
    figures: dict[str, Any] = {"splits": sizes}
    quotes = [partial(doubled_quotes, texts=side) for side in ("first", "second")]
    checks = [each_split(_repeats, _scores), *quotes, _shared_pairs]
    return run_checks(name, splits, checks, rejected, figures)


def _keys(split: ScoredSplit) -> list[tuple[str, str]]:
    """The pairs with both texts sorted, so that swapped pairs are equal."""
    return [(a, b) if a <= b else (b, a) for a, b in _sides(split)]


def _spread(split: ScoredSplit) -> dict[str, float]:
    if split.scores is None:
        return {}
    scores = np.asarray(split.scores)
    return {"lowest": float(scores.min()), "mean": float(scores.mean()), "highest": float(scores.max())}


def _scores(name: str, split: ScoredSplit) -> Iterable[Finding]:
    keys = _keys(split)
    same = [i for i, (a, b) in enumerate(keys) if a == b]
    if split.scores is None:
        what = "have the same text on both sides: nothing can be learned from them"
        yield from _some(name, "same", split, same, what)
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
    ok = f"{name}: no pair has two scores"
    yield from _some(name, "contradictions", split, odd, "occur again with another score", ok)
    middle = float(scores.min() + np.ptp(scores) / 2)
    rows = [i for i in same if split.scores[i] < middle]
    what = f"have the same text on both sides and a score below {middle:g}"
    yield from _some(name, "same", split, rows, what)


def _shared_pairs(splits: Mapping[str, ScoredSplit], figures: dict[str, Any]) -> Iterable[Finding]:
    """Leakage: a warning for pairs in two splits, only a note for single texts, which are common."""
    keys = {name: _keys(split) for name, split in splits.items()}
    for a, b in itertools.combinations(splits, 2):
        pairs, other = {*keys[a]}, _sides(splits[b])
        rows = [i for i, key in enumerate(keys[b]) if key in pairs]
        if rows:
            message = f"pairs in both {a} and {b}, in either order: {len(rows):,}"
            shown = [" | ".join(other[i]) for i in rows[:3]]
            yield from finding_of("warning", "leaks", rows, message, _too_good(a), shown=shown)
            continue
        texts = sorted({x for key in keys[a] for x in key} & {x for key in keys[b] for x in key})
        message = f"texts in both {a} and {b}, on either side of other pairs: {len(texts):,}"
        yield from finding_of("note", "leaks", texts, message, ok=f"no text is in both {a} and {b}")
