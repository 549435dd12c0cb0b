"""Detect the content of a table's column: texts, repeated sentences, labels, numbers, dates."""

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
SAMPLE = 2_000  # sampled rows of a column
LONGEST_LABEL = 60  # maximum mean length of labels in characters; longer values are texts
SENTENCE, REPEATED = 5, 20  # of sentences: minimum mean number of words, maximum mean number of repetitions


def measures(values: Sequence[Any]) -> bool:
    """Whether a column has measurements, not ids (integers that are all different)."""
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
    """The boolean in a cell: 1, 0, true or false, also as text; None for another value."""
    return YES_NO.get(str(value).strip().lower())


def are_yes_no(values: Sequence[Any]) -> bool:
    """Whether a column has only 0, 1, true and false."""
    values_present = present(values)
    return bool(values_present) and all(yes_or_no(value) is not None for value in values_present)


@cache
def sampled_rows(count: int) -> Sequence[int]:
    """Ascending row numbers of the sample: all rows, or a fixed random sample of them.

    The sample is random because, with every second row, it could miss one of two alternating labels.
    """
    if count < 2 * SAMPLE:
        return range(count)
    return sorted(np.random.default_rng(0).choice(count, SAMPLE, replace=False).tolist())


def present(values: Sequence[Any]) -> list[Any]:
    """The values of the sampled rows that are not missing."""
    return [value for i in sampled_rows(len(values)) if not is_missing(value := values[i])]


def text_size(values: Sequence[Any]) -> float | None:
    """Mean number of characters of a text; None if the column does not look like texts.

    Texts have several words (or many letters of a script without spaces), and most of them differ.
    """
    values_present = present(values)
    if not values_present or not all(isinstance(value, str) for value in values_present):
        return None
    words = sum(len(value.split(None, 1)) > 1 for value in values_present)
    unspaced = sum(len(value) >= 8 and not value.isascii() for value in values_present)
    if words + unspaced <= len(values_present) / 2 or len(set(values_present)) <= len(values_present) / 2:
        return None
    return sum(map(len, values_present)) / len(values_present)


def sentence_size(values: Sequence[Any]) -> float | None:
    """Mean number of characters of a sentence; None if the column does not look like (repeated) sentences."""
    values_present = present(values)
    if not values_present or not all(isinstance(value, str) for value in values_present):
        return None
    words = sum(len(value.split()) for value in values_present)
    if words < SENTENCE * len(values_present) or len(set(values_present)) * REPEATED < len(values_present):
        return None
    return sum(map(len, values_present)) / len(values_present)


def looks_like_labels(values: Sequence[Any]) -> bool:
    """Whether a column has few distinct short values that repeat, and few missing values."""
    values_present = present(values)
    if len(values_present) < max(2, len(sampled_rows(len(values))) / 2):
        return False
    if any(isinstance(value, list | dict | bytes) for value in values_present):
        return False
    distinct = {str(value).strip() for value in values_present}
    short = sum(map(len, distinct)) <= LONGEST_LABEL * len(distinct)
    return short and len(distinct) <= max(2, len(values_present) // 2)
