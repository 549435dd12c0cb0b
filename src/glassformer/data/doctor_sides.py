"""The data doctor on pairs of texts: texts in two splits on either side, pairs that stand there swapped."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from glassformer.data.copies import groups_of, same_but_for_case
from glassformer.data.dataset import TextSplit
from glassformer.data.findings import Finding, Severity, excerpt, percent
from glassformer.data.splits import grouped_split
from glassformer.data.text_pairs import SIDES, TextPair
from glassformer.errors import DataError

HELD_OUT = 0.1  # of a table without splits, as ``train`` takes it
MANY = 0.5  # of a split's rows; where so many share a text with training, its figures speak of known texts


def sides(splits: Mapping[str, TextSplit], figures: dict[str, Any]) -> Iterable[Finding]:
    """What is particular to pairs; nothing where the texts are none."""
    if not any(isinstance(text, TextPair) for split in splits.values() for text in split.texts[:1]):
        return
    figures["sides"] = {"splits": {}, "leaks": {}}
    keys = {name: [_keys(text) for text in split.texts] for name, split in splits.items()}
    for name, split in splits.items():
        yield from _within(name, split, keys[name], figures["sides"]["splits"])
    for a, b in itertools.combinations(splits, 2):
        yield from _between(a, b, splits, keys, figures["sides"]["leaks"])
    if [*splits] == ["train"]:
        yield from _to_come(splits["train"], keys["train"], figures["sides"])


def _keys(text: str) -> tuple[str, str]:
    first, second = text.sides if isinstance(text, TextPair) else (text, "")
    return same_but_for_case(first), same_but_for_case(second)


def _within(
    name: str, split: TextSplit, keys: list[tuple[str, str]], figures: dict[str, Any]
) -> Iterable[Finding]:
    same = [i for i, (a, b) in enumerate(keys) if a == b]
    there = set(keys)
    swapped = [i for i, (a, b) in enumerate(keys) if a < b and (b, a) in there]
    figures[name] = {
        "distinct_first": len({a for a, _ in keys}),
        "distinct_second": len({b for _, b in keys}),
        "same": len(same),
        "swapped": len(swapped),
    }
    if same:
        message = f"{name}: pairs whose two texts are the same: {len(same):,}"
        examples = tuple(excerpt(split.texts[i].split("\n")[0]) for i in same[:3])
        yield Finding("note", "same-sides", message, len(same), examples)
    if swapped:
        message = f"{name}: pairs that stand there the other way round, too: {len(swapped):,}"
        examples = tuple(excerpt(split.texts[i]) for i in swapped[:3])
        fix = "a random split keeps them together, as it does copies"
        yield Finding("note", "swapped", message, len(swapped), examples, fix)
    if not same and not swapped:
        yield Finding("ok", "swapped", f"{name}: no pair stands there swapped, none is of one text twice")


def _to_come(split: TextSplit, keys: list[tuple[str, str]], figures: dict[str, Any]) -> Iterable[Finding]:
    """What a test part would know that training holds out of these pairs at random, copies kept together."""
    try:
        kept, held = grouped_split(split.labels or [0] * len(split), groups_of(split), HELD_OUT, 0)
    except DataError:  # too few of a class: training will say so
        return
    known = {side for i in kept.tolist() for side in keys[i]}
    shared = [i for i in held.tolist() if known & {*keys[i]}]
    families = Counter(groups_of(split, sides=True))
    largest = max(families.values())
    figures["held_out"] = {
        "rows": len(held),
        "shared": len(shared),
        "families": len(families),
        "largest": largest,
    }
    if len(shared) <= MANY * len(held):
        return
    message = (
        f"rows of a part held out at random with a text that stands in a pair of train, on either side: "
        f"{len(shared):,} of {len(held):,} ({percent(len(shared), len(held))}); figures would speak of pairs "
        "of known texts"
    )
    examples = tuple(excerpt(split.texts[i]) for i in shared[:3])
    if largest > MANY * len(split):
        fix = (
            f"{largest:,} of {len(split):,} pairs hang together by their texts, so that copies=sides cannot "
            "part them: judge on texts of their own, in a file test.csv beside train.csv"
        )
        yield Finding("note", "side-leaks", message, len(shared), examples, fix)
        return
    yield Finding(
        "warning", "known-sides", message, len(shared), examples, "keep them apart with --set copies=sides"
    )


def _between(
    a: str, b: str, splits: Mapping[str, TextSplit], keys: Mapping[str, list], figures: dict[str, Any]
) -> Iterable[Finding]:
    known = [{pair[side] for pair in keys[a]} for side in (0, 1)]
    either, pairs = known[0] | known[1], set(keys[a])
    rows = {
        which: [i for i, pair in enumerate(keys[b]) if pair[side] in either]
        for side, which in enumerate(SIDES)
    }
    shared = sorted({*rows[SIDES[0]], *rows[SIDES[1]]})
    both = {*rows[SIDES[0]]} & {*rows[SIDES[1]]}
    swapped = [i for i, (x, y) in enumerate(keys[b]) if x != y and (y, x) in pairs]
    figures[f"{a}/{b}"] = {
        "rows": len(shared),
        **{which: len(found) for which, found in rows.items()},
        "both": len(both),
        "swapped": len(swapped),
    }
    if swapped:
        message = f"pairs of {b} that stand in {a} the other way round: {len(swapped):,}"
        examples = tuple(excerpt(splits[b].texts[i]) for i in swapped[:3])
        yield Finding("warning", "swapped", message, len(swapped), examples, "leave them out of one of them")
    if not shared:
        yield Finding("ok", "side-leaks", f"no text of {b} stands in a pair of {a}")
        return
    share = len(shared) / len(keys[b])
    severity: Severity = "warning" if share > MANY else "note"
    counts = ", ".join(f"the {which} {len(found):,}" for which, found in rows.items())
    message = (
        f"rows of {b} with a text that stands in a pair of {a}, on either side: {len(shared):,} "
        f"({percent(len(shared), len(keys[b]))}; {counts}, both {len(both):,})"
    )
    fix = "figures speak of pairs of known texts; a random split keeps texts apart with copies = 'sides'"
    examples = tuple(excerpt(splits[b].texts[i]) for i in shared[:3])
    yield Finding(severity, "side-leaks", message, len(shared), examples, fix)
