"""What a column of a table holds: texts, sentences that repeat, labels, numbers, dates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from functools import cache
from typing import Any

import numpy as np

from glassformer.data.checks import is_missing
from glassformer.data.label_kinds import is_number

# Usual names.
TEXT_COLUMNS = ("text", "review", "sentence", "comment", "content", "document", "message", "tweet")
LABEL_COLUMNS = ("label", "labels", "sentiment", "class", "category", "target")
DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T]\d{1,2}:\d\d\S*)?").fullmatch
YES_NO = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}
LOOKED_AT = 2_000  # rows of a column, to say what it holds
LONGEST_LABEL = 60  # characters on average; what is longer is a text
SENTENCE, REPEATED = 5, 20  # words on average, and how often each of such a column's texts may stand there


def measures(values: Sequence[Any]) -> bool:
    """Numbers that say how much: not whole numbers that differ from row to row, which tell rows apart."""
    numbers = [float(value) for value in present(values) if is_number(value)]
    if 2 * len(numbers) <= len(present(values)) or len({*numbers}) < 2:
        return False
    return len({*numbers}) < len(numbers) or not all(number.is_integer() for number in numbers)


def is_constant(values: Sequence[Any]) -> bool:
    return len({str(value).strip() for value in values}) < 2


def are_numbers(values: Sequence[Any]) -> bool:
    return all(map(is_number, values))


def are_dates(values: Sequence[Any]) -> bool:
    return all(isinstance(value, date) or DATE(str(value).strip()) for value in values)


def yes_or_no(value: Any) -> bool | None:
    """Whether a cell says that a label applies: 1, 0, true or false, as text too; None: another value."""
    return YES_NO.get(str(value).strip().lower())


def are_yes_no(values: Sequence[Any]) -> bool:
    """Whether a column has 0 and 1 only."""
    there = present(values)
    return bool(there) and all(yes_or_no(value) is not None for value in there)


@cache
def looked_at(count: int) -> Sequence[int]:
    """Which of so many rows say what a column holds: all, or some by chance, always the same, rising.

    Every second row would see one of two labels that stand there in turn.
    """
    if count < 2 * LOOKED_AT:
        return range(count)
    return sorted(np.random.default_rng(0).choice(count, LOOKED_AT, replace=False).tolist())


def present(values: Sequence[Any]) -> list[Any]:
    """The values of the rows that are looked at, without those that are missing."""
    return [value for i in looked_at(len(values)) if not is_missing(value := values[i])]


def text_size(values: Sequence[Any]) -> float | None:
    """Characters of a text on average; None where the column does not look like texts.

    Texts have several words (or many letters of a script without spaces), and most differ from each other.
    """
    there = present(values)
    if not there or not all(isinstance(value, str) for value in there):
        return None
    words = sum(len(value.split(None, 1)) > 1 for value in there)
    unspaced = sum(len(value) >= 8 and not value.isascii() for value in there)
    if words + unspaced <= len(there) / 2 or len(set(there)) <= len(there) / 2:
        return None
    return sum(map(len, there)) / len(there)


def sentence_size(values: Sequence[Any]) -> float | None:
    """Characters of a sentence on average, where a column holds sentences that may repeat; else None."""
    there = present(values)
    if not there or not all(isinstance(value, str) for value in there):
        return None
    words = sum(len(value.split()) for value in there)
    if words < SENTENCE * len(there) or len(set(there)) * REPEATED < len(there):
        return None
    return sum(map(len, there)) / len(there)


def looks_like_labels(values: Sequence[Any]) -> bool:
    """Whether a column holds a few short values that come again and again, and hardly any gap."""
    there = present(values)
    if len(there) < max(2, len(looked_at(len(values))) / 2):
        return False
    if any(isinstance(value, list | dict | bytes) for value in there):
        return False
    distinct = {str(value).strip() for value in there}
    short = sum(map(len, distinct)) <= LONGEST_LABEL * len(distinct)
    return short and len(distinct) <= max(2, len(there) // 2)
