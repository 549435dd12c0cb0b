"""What the data doctor found, as one command: every warning that an option of ``train`` answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from glassformer.config import listed
from glassformer.data.findings import Finding
from glassformer.data.label_kinds import BETWEEN, NUMBER
from glassformer.data.label_sets import are_sets
from glassformer.data.mending import commonest

ANSWERS = {  # check -> options
    "bad-rows": ("--on-bad-row", "skip"),
    "duplicates": ("--set", "drop_duplicates=true"),
    "leaks": ("--set", "drop_duplicates=true"),
    "known-sides": ("--set", "copies=sides"),
    "balance": ("--set", "class_weight=balanced", "--set", "monitor=macro_f1"),
    "orders-of-magnitude": ("--set", "number_scale=log"),
    "unreadable": ("--set", "broken=skip"),  # of pictures, as the next
    "leak": ("--set", "drop_duplicates=true"),
}
ENCODING = re.compile(r"(--encoding) ([\w-]+)").search  # which rows that are not UTF-8 show
WHITE = re.compile(r"image_range=(\d+)").search  # the likely one, of images of more than 8 bits
FIRST = (
    "examples with several labels: correct them first, since drop_duplicates=true keeps the label of the "
    "first copy"
)


def remedy(findings: Sequence[Finding], splits: Mapping[str, Any]) -> list[str]:
    """The options that answer the warnings, in words of the command line; empty where no option helps."""
    warned = [f.code for f in findings if f.severity == "warning"]
    pictures = any(hasattr(split, "images") for split in splits.values())
    answers = ANSWERS | ({"bad-rows": ANSWERS["unreadable"]} if pictures else {})
    rows = next((f for f in findings if f.code == "bad-rows"), None)
    other = ENCODING(rows.fix) if rows else None
    alone = "(row " if rows and rows.count == 1 else f"({rows.count if rows else 0:,}: "
    if rows and other and f"not UTF-8 {alone}" in rows.message:  # all of them are read so
        del answers["bad-rows"]
    chosen: list[tuple[str, ...]] = [(other[1], other[2])] if other else []
    kind = next((f for f in findings if f.code == "label-kind"), None)
    chosen += dict.fromkeys(answers[code] for code in warned if code in answers)
    if whites := [int(found[1]) for f in findings if (found := WHITE(f.fix))]:
        chosen.append(("--set", f"image_range={max(whites)}"))
    if kind and (between := BETWEEN(kind.fix)):
        chosen.append(("--label-separator", between[1]))
    elif kind and NUMBER in kind.fix:
        chosen.append(tuple(NUMBER.split()))
    elif not kind and "twin-classes" in warned:
        chosen.append(("--set", "merge_labels=spelling"))  # never what leaves a label or a class out
    return [word for options in chosen for word in options]


def correct_first(findings: Sequence[Finding], options: Sequence[str], splits: Mapping[str, Any]) -> str:
    """What has to be corrected before the command is used; empty: nothing."""
    warned = {f.code: f for f in findings if f.severity == "warning"}
    first = [FIRST] if "contradictions" in warned and "drop_duplicates=true" in options else []
    sets = any(are_sets(split.labels) for split in splits.values())
    if "lone-classes" in warned and not sets and not {"validation", "test"} <= splits.keys():
        labels = splits["train"].labels
        merged = commonest(splits) if "merge_labels=spelling" in options else {x: x for x in labels}
        lone = [str(label) for label, n in Counter(merged[x] for x in labels).items() if n == 1]
        if lone and options:
            said = f"classes with one example ({listed(sorted(lone))})"
            first.append(f"{said}: add examples first, a random split needs two")
    return "; ".join(first)
