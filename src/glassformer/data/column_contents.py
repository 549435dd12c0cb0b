"""Detection of a column's content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from functools import cache
from typing import Any

import numpy as np

from glassformer.data.checks import is_missing
from glassformer.data.label_kinds import is_number

# Usual names of columns.
TEXT_COLUMNS = ("text", "review", "sentence", "comment", "content", "document", "message", "tweet")
LABEL_COLUMNS = ("label", "labels", "sentiment", "class", "category", "target")
DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T]\d{1,2}:\d\d\S*)?").fullmatch
YES_NO = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}
SAMPLE_ROWS = 2_000  # sampled rows of a column
MAX_LABEL_LENGTH = 60  # maximum mean length of labels in characters; longer values are texts
MIN_SENTENCE_WORDS = 5  # minimum mean number of words of sentences
MAX_SENTENCE_REPEATS = 20  # maximum mean number of repetitions of a sentence


def are_measurements(values: Sequence[Any]) -> bool:
    """Whether a column has measurements, not ids (integers that are all different)."""
    nonmissing = nonmissing_sample(values)
    numbers = [float(value) for value in nonmissing if is_number(value)]
    if 2 * len(numbers) <= len(nonmissing) or len({*numbers}) < 2:
        return False
    return len({*numbers}) < len(numbers) or not all(number.is_integer() for number in numbers)


def is_constant(values: Sequence[Any]) -> bool:
    return len({str(value).strip() for value in values}) < 2


def are_numbers(values: Sequence[Any]) -> bool:
    return all(map(is_number, values))


def are_dates(values: Sequence[Any]) -> bool:
    return all(isinstance(value, date) or DATE(str(value).strip()) for value in values)


def yes_or_no(value: Any) -> bool | None:
    """The boolean in a cell: 1, 0, true or false, also as text; None for any other value."""
    return YES_NO.get(str(value).strip().lower())


def are_yes_no(values: Sequence[Any]) -> bool:
    """Whether a column has only 0, 1, true and false."""
    nonmissing = nonmissing_sample(values)
    return bool(nonmissing) and all(yes_or_no(value) is not None for value in nonmissing)


@cache
def sampled_rows(count: int) -> Sequence[int]:
    """Ascending row numbers of the sample: all rows, or a fixed random sample.

    A sample of every second row could miss one of two alternating labels.
    """
    if count < 2 * SAMPLE_ROWS:
        return range(count)
    return sorted(np.random.default_rng(0).choice(count, SAMPLE_ROWS, replace=False).tolist())


def nonmissing_sample(values: Sequence[Any]) -> list[Any]:
    """The values of the sampled rows that are not missing."""
    return [value for i in sampled_rows(len(values)) if not is_missing(value := values[i])]


def mean_text_length(values: Sequence[Any]) -> float | None:
    """Mean number of characters of a text; None if the column does not look like texts.

    Texts have several words (or many letters of a script without spaces), and most texts differ.
    """
    nonmissing = nonmissing_sample(values)
    if not nonmissing or not all(isinstance(value, str) for value in nonmissing):
        return None
    multiword = sum(len(value.split(None, 1)) > 1 for value in nonmissing)
    unspaced = sum(len(value) >= 8 and not value.isascii() for value in nonmissing)
    if multiword + unspaced <= len(nonmissing) / 2 or len(set(nonmissing)) <= len(nonmissing) / 2:
        return None
    return sum(map(len, nonmissing)) / len(nonmissing)


def mean_sentence_length(values: Sequence[Any]) -> float | None:
    """Mean number of characters of a sentence; None if the column does not look like (repeated) sentences."""
    nonmissing = nonmissing_sample(values)
    n = len(nonmissing)
    if not n or not all(isinstance(value, str) for value in nonmissing):
        return None
    words = sum(len(value.split()) for value in nonmissing)
    if words < MIN_SENTENCE_WORDS * n or len(set(nonmissing)) * MAX_SENTENCE_REPEATS < n:
        return None
    return sum(map(len, nonmissing)) / n


def looks_like_labels(values: Sequence[Any]) -> bool:
    """Whether a column has few distinct short values that repeat, and few missing values."""
    nonmissing = nonmissing_sample(values)
    if len(nonmissing) < max(2, len(sampled_rows(len(values))) / 2):
        return False
    if any(isinstance(value, list | dict | bytes) for value in nonmissing):
        return False
    distinct = {str(value).strip() for value in nonmissing}
    is_short = sum(map(len, distinct)) <= MAX_LABEL_LENGTH * len(distinct)
    return is_short and len(distinct) <= max(2, len(nonmissing) // 2)
