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
SAMPLE_ROWS = 2_000  # number of rows from which the content of a column is detected
MAX_LABEL_LENGTH = 60  # maximum mean length of labels in characters; longer values are texts


def are_numbers(values: Sequence[Any]) -> bool:
    return all(map(is_number, values))


def are_dates(values: Sequence[Any]) -> bool:
    return all(isinstance(value, date) or DATE(str(value).strip()) for value in values)


@cache
def sampled_rows(count: int) -> Sequence[int]:
    """Ascending row numbers from which a column's content is detected: all rows, or a fixed random sample.

    The sample is random, since every second row of alternating labels has the same label.
    """
    if count < 2 * SAMPLE_ROWS:
        return range(count)
    return sorted(np.random.default_rng(0).choice(count, SAMPLE_ROWS, replace=False).tolist())


def nonmissing_sample(values: Sequence[Any]) -> list[Any]:
    """The values of the sampled rows that are not missing."""
    return [value for i in sampled_rows(len(values)) if not is_missing(value := values[i])]


def mean_text_length(values: Sequence[Any]) -> float | None:
    """Mean number of characters of a text; None if the column does not look like texts.

    Texts have several words (or eight characters of a script without spaces), and most texts differ.
    """
    nonmissing = nonmissing_sample(values)
    if not nonmissing or not all(isinstance(value, str) for value in nonmissing):
        return None
    multiword = sum(len(value.split(None, 1)) > 1 for value in nonmissing)
    unspaced = sum(len(value) >= 8 and not value.isascii() for value in nonmissing)
    if multiword + unspaced <= len(nonmissing) / 2 or len(set(nonmissing)) <= len(nonmissing) / 2:
        return None
    return sum(map(len, nonmissing)) / len(nonmissing)


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
