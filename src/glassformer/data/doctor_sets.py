"""The data doctor on several labels an example: how many, how often, and which stand together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from glassformer.data.findings import Finding, Severity, excerpt, percent
from glassformer.data.label_sets import NONE, are_sets, each, together

RARE = 20  # examples of a label, below which its figures are chance
LEAVE_EMPTY = (
    "where an empty cell means that nobody looked, leave them out with "
    f'--set \'merge_labels={{"{NONE}" = ""}}\''
)
TIED = 0.95  # share of two labels' examples that have both: one name too many


def several_labels(splits: Mapping[str, Any], figures: dict[str, Any]) -> Iterable[Finding]:
    """Labels an example, rare labels and pairs that stand together; nothing where examples have one class.

    Adds ``labels`` to ``figures``: split -> labels an example and pairs (``label_sets.together``).
    """
    found = {name: split for name, split in splits.items() if are_sets(split.labels)}
    if not found:
        return
    figures["labels"] = {}
    for name, split in found.items():
        sizes, counts, n = Counter(map(len, split.labels)), Counter(each(split.labels)), len(split.labels)
        mean = counts.total() / n
        figures["labels"][name] = {"an example": round(mean, 3), "none": sizes[0]}
        several = sum(count for size, count in sizes.items() if size > 1)
        message = f"{name}: {mean:.2f} labels an example, several on {percent(several, n)}"
        yield Finding("ok", "label-sets", message, several)
        if said := said_of_empty(name, split.labels):
            shown = tuple(
                excerpt(text) for text, own in zip(_shown(split), split.labels, strict=True) if not own
            )
            yield Finding("note", "empty-sets", said, sizes[0], shown[:3], LEAVE_EMPTY)
        yield from _counts(name, counts, n)
    name, split = next(iter(found.items()))
    pairs = together(split.labels)
    figures["together"] = {
        " + ".join(pair["labels"]): {"examples": pair["count"], "lift": round(pair["lift"], 1)}
        for pair in pairs
    }
    if pairs:
        shown = tuple(
            f"{' + '.join(pair['labels'])}: {pair['count']:,} examples, "
            f"{pair['lift']:.1f} times as often as by chance"
            for pair in pairs
        )
        a, b = pairs[0]["labels"]
        message = (
            f"{name}: the labels that most often stand together are {a!r} and {b!r} ({pairs[0]['count']:,})"
        )
        yield Finding("note", "co-occurrence", message, pairs[0]["count"], shown)
    tied = [pair for pair in pairs if min(pair["of_first"], pair["of_second"]) >= TIED and pair["count"] > 2]
    if tied:
        listed = "; ".join(" and ".join(map(repr, pair["labels"])) for pair in tied[:3])
        message = f"{name}: labels that hardly ever stand apart: {len(tied)} ({listed})"
        fix = "make them one with merge_labels, unless they differ where the model is used"
        yield Finding("warning", "tied-labels", message, len(tied), fix=fix)


def said_of_empty(name: str, labels: Sequence[Any] | None) -> str:
    """How many examples of a split have no label, and what they are taken for; empty: there are none."""
    empty = sum(not own for own in labels or ()) if are_sets(labels) else 0
    if not empty:
        return ""
    of = f"{empty:,} of {len(labels or ()):,}"
    return f"{name}: examples without a label: {of}, learned and judged as 'none of these'"


def _shown(split: Any) -> Sequence[str]:
    return split.names() if hasattr(split, "images") else split.texts


def _counts(name: str, counts: Counter[Any], n: int) -> Iterable[Finding]:
    if not counts:
        yield Finding("warning", "balance", f"{name}: no example has a label", n)
        return
    (most, n_most), (least, n_least) = counts.most_common()[0], counts.most_common()[-1]
    ratio = n_most / n_least
    severity: Severity = "note" if ratio >= 10 else "ok"
    message = f"{name}: {len(counts)} labels, {n_most:,} examples with {most!r} to {n_least:,} with {least!r}"
    fix = "weigh a yes of rare labels with --set pos_weight=root" if severity == "note" else ""
    yield Finding(severity, "balance", message, n_most - n_least, fix=fix)
    rare = sorted(str(label) for label, count in counts.items() if count < RARE)
    if rare:
        listed = ", ".join(map(repr, rare[:3])) + (f" and {len(rare) - 3:,} more" if len(rare) > 3 else "")
        message = f"{name}: labels on fewer than {RARE} examples: {len(rare):,} ({listed})"
        fix = "add examples of them, or leave them out: their figures are chance"
        yield Finding("note", "rare-labels", message, len(rare), tuple(rare[:10]), fix)
