"""Data doctor for translation pairs and scored pairs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from glassformer.data.dataset import Dataset
from glassformer.data.doctor_checks import doubled_quotes, each_split, run_checks
from glassformer.data.duplicates import positions_by_key
from glassformer.data.findings import DoctorReport, Finding, Findings, Stats, row_examples
from glassformer.data.pairs import PairSplit, ScoredSplit

MAX_NOTE_SHARE = 0.01  # if a larger share of the pairs is affected, the finding is a warning
UNUSUAL_FACTOR = 3.0  # a ratio of lengths is unusual if it differs from the median by more than this factor
FIXES = {  # check -> fix
    "untranslated": "translate such pairs, or remove them",
    "length-ratio": "check them: a text may be truncated, or belong to another pair",
    "contradictions": "give each pair one score",
    "same": "remove such pairs, or correct their scores",
}
MIN_LENGTH = 20  # characters of the longer text; the ratio of lengths of shorter pairs means little


def examine_pairs(dataset: Dataset) -> DoctorReport:
    """Run every check on translation pairs; ``dataset`` may have empty texts (see ``load_pairs``).

    ``figures`` of the report has ``splits``: split -> pairs, distinct, median target / source in characters.
    """
    stats = {"splits": {name: _split_stats(split) for name, split in dataset.splits.items()}}
    within_split = each_split(_empty, _duplicates, _untranslated, _unusual_lengths)
    quotes = [partial(doubled_quotes, texts=side) for side in ("source", "target")]
    checks = [within_split, *quotes, _shared_sources]
    return run_checks(dataset, checks, stats)


def _split_stats(split: PairSplit) -> dict[str, Any]:
    ratios = _log_length_ratios(split)
    median = float(np.exp(np.nanmedian(ratios))) if np.isfinite(ratios).any() else None
    return {"pairs": len(split), "distinct": len({*_text_pairs(split)}), "length_ratio": median}


def _text_pairs(split: Any) -> list[tuple[str, str]]:
    second = split.target if isinstance(split, PairSplit) else split.second
    return list(zip(split.source, second, strict=True))


def _suspicious_pairs(name: str, code: str, split: Any, rows: list[int], what: str, ok: str = "") -> Findings:
    """Yield a finding about suspicious pairs of a split: a note for few pairs, otherwise a warning."""
    severity = "warning" if len(rows) > MAX_NOTE_SHARE * len(split) else "note"
    pairs = _text_pairs(split)
    shown = row_examples(split, rows, lambda i: " | ".join(pairs[i]))
    message = f"{name}: {len(rows):,} of {len(split):,} pairs {what}"
    yield from Finding.if_any(severity, code, rows, message, FIXES[code], shown=shown, ok=ok)


def _empty(name: str, split: PairSplit) -> Findings:
    rows = [i for i, pair in enumerate(_text_pairs(split)) if not all(text.strip() for text in pair)]
    shown = [row.removesuffix(": ") for row in row_examples(split, rows, lambda i: "")]
    message = f"{name}: {len(rows):,} of {len(split):,} pairs have an empty text"
    fix = "fill them in, or leave such pairs out with --on-bad-row skip"
    ok = f"{name}: no text is empty"
    # always a warning, because training stops at the first such pair
    yield from Finding.if_any("warning", "empty", rows, message, fix, shown=shown, ok=ok)


def _duplicates(name: str, split: Any) -> Findings:
    pairs = Counter(_text_pairs(split) if isinstance(split, PairSplit) else _sorted_pairs(split))
    num_repeated = pairs.total() - len(pairs)
    if not num_repeated:
        yield Finding("ok", "duplicates", f"{name}: no pair occurs twice")
        return
    examples = tuple(f"{n} times: {a} | {b}" for (a, b), n in pairs.most_common(3))
    severity = "warning" if num_repeated > MAX_NOTE_SHARE * pairs.total() else "note"
    message = f"{name}: {num_repeated:,} of {pairs.total():,} pairs repeat an earlier one"
    fix = "remove duplicates; a split that is held out at random shares none with train"
    yield Finding(severity, "duplicates", message, num_repeated, examples, fix)


def _untranslated(name: str, split: PairSplit) -> Findings:
    pairs = enumerate(_text_pairs(split))
    rows = [i for i, (a, b) in pairs if len(a) >= MIN_LENGTH and a.casefold() == b.casefold()]
    yield from _suspicious_pairs(name, "untranslated", split, rows, "consist of two equal texts")


def _log_length_ratios(split: PairSplit) -> np.ndarray:
    """Logarithm of target / source in characters; NaN if a text is empty or both texts are short."""
    source, target = (
        np.array([len(x.strip()) for x in side], float) for side in (split.source, split.target)
    )
    is_usable = (source > 0) & (target > 0) & (np.maximum(source, target) >= MIN_LENGTH)
    return np.where(is_usable, np.log(np.maximum(target, 1) / np.maximum(source, 1)), np.nan)


def _unusual_lengths(name: str, split: PairSplit) -> Findings:
    ratios = _log_length_ratios(split)
    if not np.isfinite(ratios).any():
        return
    median = np.nanmedian(ratios)
    rows = np.flatnonzero(np.abs(ratios - median) > np.log(UNUSUAL_FACTOR)).tolist()
    usual = f"usually {np.exp(median):.2f} target characters per source character"
    what = f"have a ratio of lengths that is {UNUSUAL_FACTOR:g} times larger or smaller than usual ({usual})"
    ok = f"{name}: no target is {UNUSUAL_FACTOR:g} times longer or shorter than usual ({usual})"
    yield from _suspicious_pairs(name, "length-ratio", split, rows, what, ok)


def _shared_sources(splits: Mapping[str, PairSplit], stats: Stats) -> Findings:
    sources = {name: {*split.source} - {""} for name, split in splits.items()}
    for a, b in itertools.combinations(splits, 2):
        shared = sorted(sources[a] & sources[b])
        message = f"distinct source texts in both {a} and {b}: {len(shared):,}"
        fix, ok = _leak_fix(a), f"no source text is in both {a} and {b}"
        yield from Finding.if_any("warning", "leaks", shared, message, fix, ok=ok)


def _leak_fix(split: str) -> str:
    return f"remove them from {split}: the score would be too high"


# --- pairs with scores ------------------------------------------------------------------------------


def examine_scored(dataset: Dataset) -> DoctorReport:
    """Run every check on pairs with similarity scores.

    ``figures`` of the report has ``splits``: split -> pairs, distinct, lowest, mean and highest score.
    """
    stats: Stats = {"splits": {}}
    for name, split in dataset.splits.items():
        sizes = {"pairs": len(split), "distinct": len({*_sorted_pairs(split)})}
        stats["splits"][name] = sizes | _score_range(split)
    quotes = [partial(doubled_quotes, texts=side) for side in ("first", "second")]
    checks = [each_split(_duplicates, _scores), *quotes, _shared_pairs]
    return run_checks(dataset, checks, stats)


def _sorted_pairs(split: ScoredSplit) -> list[tuple[str, str]]:
    """The pairs with both texts sorted, so that swapped pairs are equal."""
    return [(a, b) if a <= b else (b, a) for a, b in _text_pairs(split)]


def _score_range(split: ScoredSplit) -> dict[str, float]:
    if split.scores is None:
        return {}
    scores = np.asarray(split.scores)
    return {"lowest": float(scores.min()), "mean": float(scores.mean()), "highest": float(scores.max())}


def _scores(name: str, split: ScoredSplit) -> Findings:
    keys = _sorted_pairs(split)
    same = [i for i, (a, b) in enumerate(keys) if a == b]
    if split.scores is None:
        what = "consist of two equal texts: nothing can be learned from them"
        yield from _suspicious_pairs(name, "same", split, same, what)
        return
    scores = np.asarray(split.scores)
    if np.ptp(scores) == 0:
        fix = "give scores that differ, or none: --set score=none"
        yield Finding("warning", "scores", f"{name}: all scores are {scores[0]:g}", len(scores), (), fix)
        return
    copies = positions_by_key(keys).values()
    conflicting = [rows[-1] for rows in copies if len({split.scores[i] for i in rows}) > 1]
    what, ok = "occur again with another score", f"{name}: no pair has two scores"
    yield from _suspicious_pairs(name, "contradictions", split, conflicting, what, ok)
    middle = float(scores.min() + np.ptp(scores) / 2)
    rows = [i for i in same if split.scores[i] < middle]
    what = f"consist of two equal texts and have a score below {middle:g}"
    yield from _suspicious_pairs(name, "same", split, rows, what)


def _shared_pairs(splits: Mapping[str, ScoredSplit], stats: Stats) -> Findings:
    """Leakage: a warning for pairs in two splits, but a note for single texts, which are often shared."""
    keys = {name: _sorted_pairs(split) for name, split in splits.items()}
    for a, b in itertools.combinations(splits, 2):
        pairs = _text_pairs(splits[b])
        keys_of_a = {*keys[a]}
        rows = [i for i, key in enumerate(keys[b]) if key in keys_of_a]
        if rows:
            message = f"pairs in both {a} and {b}, in either order: {len(rows):,}"
            shown = [" | ".join(pairs[i]) for i in rows[:3]]
            yield from Finding.if_any("warning", "leaks", rows, message, _leak_fix(a), shown=shown)
            continue
        texts = sorted({x for key in keys[a] for x in key} & {x for key in keys[b] for x in key})
        message = f"texts in both {a} and {b}, in other pairs: {len(texts):,}"
        yield from Finding.if_any("note", "leaks", texts, message, ok=f"no text is in both {a} and {b}")
