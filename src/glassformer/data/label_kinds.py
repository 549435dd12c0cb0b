"""Labels that are no names of classes: numbers to be predicted, several labels in one cell."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from glassformer.data.columns import is_number

SEPARATED = re.compile(r"\s*[|;,/]\s*")
FEW = 10  # examples of a class, on average: with fewer, numbers are measurements rather than classes
CUT = (
    "Cut them into a few classes first (such as low, middle, high): models of ours give classes, not numbers"
)
SEVERAL = "Name what stands between them with label_separator: an example may have several labels"


def what_labels_are(labels: Sequence[Any]) -> tuple[str, str] | None:
    """What labels look like that are no classes, and what to do; None where they look like classes."""
    there = [label for label in labels if label is not None]
    if not there:
        return None
    counts = Counter(str(label).strip() for label in there)
    if lists := [text for text in counts if _is_list(text)]:
        what = f"these look like lists, several labels an example ({_shown(lists)})"
        return what, SEVERAL
    if all(map(is_number, there)) and len(there) < FEW * len(counts) and _measured(there, counts):
        return f"these look like numbers, not classes ({_shown(list(counts))})", CUT
    several = [text for text in counts if _holds_several(text, counts)]
    if several:
        return f"these look like several labels an example ({_shown(several)})", SEVERAL
    return None


def _measured(labels: Sequence[Any], counts: Counter[str]) -> bool:
    """Numbers with fractions, or so many that hardly one comes again."""
    fractions = any(float(label) != int(float(label)) for label in labels if abs(float(label)) < 2**53)
    return len(counts) > 2 and (fractions or len(counts) > len(labels) / 2)


def _is_list(text: str) -> bool:
    return len(text) > 1 and (text[0], text[-1]) in {("[", "]"), ("{", "}"), ("(", ")")}


def _holds_several(text: str, counts: Counter[str]) -> bool:
    """Whether a label is made of two or more that are labels by themselves."""
    parts = [part for part in SEPARATED.split(text) if part]
    return len(parts) > 1 and all(part in counts for part in parts)


def _shown(texts: Sequence[str], most: int = 3) -> str:
    return ", ".join(repr(text[:40]) for text in sorted(texts)[:most])
