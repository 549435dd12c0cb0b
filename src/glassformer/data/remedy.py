"""What the data doctor found, as one command: every warning that an option of ``train`` answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from glassformer.data.findings import Finding
from glassformer.data.label_kinds import BETWEEN, NUMBER, missing_names
from glassformer.data.label_sets import each
from glassformer.data.mending import commonest
from glassformer.finite import json_text

ANSWERS = {  # check -> options
    "bad-rows": ("--on-bad-row", "skip"),
    "duplicates": ("--set", "drop_duplicates=true"),
    "leaks": ("--set", "drop_duplicates=true"),
    "known-sides": ("--set", "copies=sides"),
    "balance": ("--set", "class_weight=balanced", "--set", "monitor=macro_f1"),
    "orders-of-magnitude": ("--set", "number_scale=log"),
    "accents": ("--set", "strip_accents=false"),
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
    elif not kind and {"twin-classes", "lone-classes", "no-label"} & {*warned}:
        chosen.append(("--set", f"merge_labels={_merged(splits)}"))
    return [word for options in chosen for word in options]


def correct_first(findings: Sequence[Finding], options: Sequence[str]) -> str:
    """What has to be corrected before the options are used, else they decide it; empty: nothing."""
    torn = any(f.code == "contradictions" and f.severity == "warning" for f in findings)
    return FIRST if torn and "drop_duplicates=true" in options else ""


def _merged(splits: Mapping[str, Any]) -> str:
    """``spelling``, or a table where classes with one example, or that mean none, have to be left out too."""
    new = commonest(splits)
    labels = splits["train"].labels if "train" in splits else ()
    counts = Counter(new[label] for label in each(labels))
    lone = {name for name, count in counts.items() if count == 1}
    lone |= {*missing_names(x for split in splits.values() for x in each(split.labels))}
    if not lone:
        return "spelling"
    names = {str(old): "" if {old, name} & lone else str(name) for old, name in new.items()}
    table = [f"{_text(old)} = {_text(name)}" for old, name in sorted(names.items()) if old != name]
    return "{" + ", ".join(table) + "}"


def _text(name: str) -> str:
    return json_text(name)
