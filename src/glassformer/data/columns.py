"""Detection of text and label columns.

The rules apply in this order:
1. the column that the user names
2. a column with a usual name
3. the remaining column of a table with two columns
4. the only column whose content looks like texts (or like labels)

The module also checks that no input column contains the targets. It is long because the rules for texts,
pairs and labels depend on each other.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from glassformer.config import join_names, suggest
from glassformer.data.checks import check_cells, check_texts, is_missing
from glassformer.data.column_contents import (
    LABEL_COLUMNS,
    SAMPLE_ROWS,
    TEXT_COLUMNS,
    are_dates,
    are_numbers,
    looks_like_labels,
    mean_text_length,
    nonmissing_sample,
)
from glassformer.data.in_memory import MemoryTable, as_list, column_with_longest_values
from glassformer.data.label_kinds import NUMBERS_FIX, is_number
from glassformer.data.label_sets import UnusableRow
from glassformer.data.parquet import read_batches, to_list
from glassformer.data.rejected import empty_column_error
from glassformer.data.spreadsheet import REVIEWED
from glassformer.data.tables import Table
from glassformer.data.text_pairs import SECOND_COLUMN, SIDES, check_side, join_sides
from glassformer.errors import DataError, NoSuchColumnError, UnclearColumnError, counted

CLASS_WORDS = "kind type class category categories label tag topic sentiment rating intent mood".split()
CLASS_WORDS += "about subject reason".split()
# A column whose name has one of these words says who wrote a text, or where. It is rarely the label.
ORIGIN_WORDS = "store shop branch site city town country region location place channel device agent".split()
ORIGIN_WORDS += "by platform author owner user name person who customer client employee staff from to".split()
TITLE_RATIO = 2.0  # if the texts of one column are this many times as long as another's, that one has titles

MIN_SENTENCE_WORDS = 5  # minimum mean number of words of sentences
MAX_SENTENCE_REPEATS = 20  # maximum mean number of repetitions of a sentence


@dataclass(frozen=True)
class Columns:
    """The columns of a table with texts and labels."""

    text: str
    label: str | None
    message: str = ""  # tells the user which columns were detected by content; otherwise empty
    pair: str | None = None  # column of the second texts, if rows are pairs
    candidates: tuple[str, ...] = ()  # columns that could be the label, if several; the likeliest first
    numbers: str | None = None  # a column of measurements, if no column could be the label

    def read(self, table: Table) -> list[str]:
        """The texts or pairs of a table; for errors see ``check_texts``."""
        texts = table.read(self.text)
        if self.pair is None:
            return check_texts(texts, table.origin, table.rows)
        return join_sides(texts, table.read(self.pair), table.origin, table.rows)

    def checks(self) -> dict[str, Callable]:
        """Name of each column of texts -> function that raises an error for an invalid value."""
        if self.pair is None:
            return {self.text: check_cells}
        names = zip((self.text, self.pair), SIDES, strict=True)
        return {name: partial(check_side, name=f"{which} text", origin="", rows=[0]) for name, which in names}


def find_columns(
    table: Table,
    text: str | None,
    label: str | None,
    *,
    labels: bool = True,
    need_labels: bool = False,
    pairs: bool = True,
) -> Columns:
    """Find the columns of texts and of labels.

    Args:
        text, label: column names given by the user; None: detect the column.
        labels: whether to detect labels by content; False: only by a given or usual name.
        need_labels: whether a table without labels is an error.
        pairs: whether rows may be pairs of texts; error messages then mention pairs.

    Raises:
        DataError: a column does not exist, has no or several candidates, or is used for both.
    """
    found_text = find_column(table, text, TEXT_COLUMNS, "text")
    found_label = find_column(table, label, LABEL_COLUMNS, "label")
    unused, is_guess = unused_columns(table, found_text, found_label), False
    if found_text is None and found_label is not None and len(unused) == 1:
        found_text = unused[0]
    elif found_text is None and unused:
        found_text = _guess_text_column(table, unused, need_labels and pairs)
        is_guess = found_text is not None
    if label is not None and found_label is not None and (found_text is None or found_text != text):
        _check_label_is_not_text(table, found_label, found_text)
    if found_text is None:
        raise no_column_error(table, "text")
    if found_text == found_label:
        other = [name for name in table.names if name != found_text]
        what = f"column {found_text!r} is used both as the text and as the label"
        fix = f"Name another column with label_column: {join_names(other)}"
        if not other:
            what += ", and the table has no other column"
            fix = "Give a table with a column of labels; without labels, use 'glassformer predict'"
        elif label is None:
            fix = "Name both with text_column and label_column"
        raise UnclearColumnError(what, where=table.origin, fix=fix)
    candidates: list[str] = []
    if found_label is None and (labels or need_labels):
        found_label = find_label_column(table, [found_text], need_labels, candidates, found_text)
        is_guess = is_guess or found_label is not None
    messages = [f"{_candidates_message(candidates)}: name it with label_column"] if candidates else []
    if is_guess:
        description = f"texts in {found_text!r}" + (f", labels in {found_label!r}" if found_label else "")
        messages.append(f"detected by content: {description}; set text_column and label_column to override")
    rest = unused_columns(table, found_text) if found_label is None else []
    numbers = next((name for name in rest if are_measurements(table.read(name))), None)
    ranked = rank_label_candidates(table, candidates)
    return Columns(found_text, found_label, "; ".join(messages), candidates=ranked, numbers=numbers)


def unused_columns(table: Table, *used: str | None) -> list[str]:
    """The columns of a table that are neither ``used`` nor written by a label review."""
    return [name for name in table.names if name not in used and not name.startswith(REVIEWED)]


def _check_label_is_not_text(table: Table, label: str, text: str | None) -> None:
    """Raise an error if the column named for the labels is the only column with texts."""
    values = table.read(label)
    if not _text_sizes(table, [label]) or (text is not None and _text_sizes(table, [text])):
        return
    nonmissing = [value for value in values if not is_missing(value)]
    what = f"{label!r} is named as the column of labels but contains the texts: "
    what += f"{len({*nonmissing}):,} different texts in {len(nonmissing):,} rows"
    others = [name for name in table.names if name != label]
    candidates = [name for name in others if looks_like_labels(table.read(name))]
    ranked = [*rank_label_candidates(table, candidates), *others]
    fix = "Name the column of classes with label_column" + (f", such as {ranked[0]!r}" if ranked else "")
    raise UnclearColumnError(what, where=table.origin, fix=fix)


def rank_label_candidates(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    """Sort the columns that could be the label, the likeliest first.

    Columns named like classes ("kind") come first, columns named after people or places ("handled by",
    "store") last. Of two columns with equal rank, the one with fewer distinct values comes first.
    """

    def rank(name: str) -> tuple[bool, bool, int]:
        is_origin = names_person_or_place(name)
        num_distinct = len({*map(str, nonmissing_sample(table.read(name)))})
        return is_origin, is_origin or _words(name).isdisjoint(CLASS_WORDS), num_distinct

    return tuple(sorted(names, key=rank)) if len(names) > 1 else tuple(names)


def _words(name: str) -> set[str]:
    return {*re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())}


def names_person_or_place(name: str) -> bool:
    """Whether a column's name refers to people or places, so that the column is rarely the label."""
    return not _words(name).isdisjoint(ORIGIN_WORDS)


def _candidates_message(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{names[0]!r} could be the label by its content, but not by its name"
    return f"several columns could be the label ({join_names(names)})"


def find_text_column(table: Table, requested: str | None = None, preferred: Sequence[str | None] = ()) -> str:
    """The column of texts of a table whose labels are not needed.

    Args:
        preferred: if ``requested`` is None, the first of these columns that exists is used.
    """
    if requested is None:
        requested = next((name for name in preferred if name in table.names), None)
    if requested is None and len(table.names) == 1:
        return table.names[0]
    found = find_column(table, requested, TEXT_COLUMNS, "text")
    if found is None:
        unused = [name for name in unused_columns(table) if name.lower() not in LABEL_COLUMNS]
        found = unused[0] if len(unused) == 1 < len(table.names) else _guess_text_column(table, unused, False)
    if found is None:
        fix = f"Name it with text_column: {join_names(table.names)}"
        raise UnclearColumnError("there is no column of texts", where=table.origin, fix=fix)
    return found


def find_column(table: Table, requested: str | None, usual_names: Sequence[str], kind: str) -> str | None:
    """The column ``requested``, else the column with a usual name; the first usual name has priority."""
    table.check_columns(requested)
    if requested is not None:
        return requested
    matches = [name for name in table.names if name.lower() in usual_names]
    if len(matches) > 1:
        exact = [name for name in matches if name.lower() == usual_names[0]]
        if len(exact) != 1:
            what = f"several columns could be the {kind}: {join_names(matches)}"
            raise UnclearColumnError(what, where=table.origin, fix=f"Name it with {kind}_column")
        return exact[0]
    return matches[0] if matches else None


def no_column_error(table: Table, kind: str) -> DataError:
    """The error if no column has a usual name or suitable content."""
    if kind == "text" and all(are_numbers(nonmissing_sample(table.read(name))) for name in table.names):
        what = f"all columns contain numbers ({join_names(table.names)})"
        fix = "Give a table with texts; to learn from columns of numbers, use scikit-learn"
        return NoSuchColumnError(what, where=table.origin, fix=fix)
    what = f"there is no column {kind!r}"
    hint = suggest(kind, table.names)
    fix = f"{hint if hint.endswith('?') else hint + '.'} Name it with {kind}_column"
    if not table.typed:
        fix += "; the first row must be the header"
    return NoSuchColumnError(what, where=table.origin, fix=fix)


# --- detection by content -------------------------------------------------------------------------


def are_measurements(values: Sequence[Any]) -> bool:
    """Whether a column has measurements, not ids (integers that are all different)."""
    nonmissing = nonmissing_sample(values)
    numbers = [float(value) for value in nonmissing if is_number(value)]
    if 2 * len(numbers) <= len(nonmissing) or len({*numbers}) < 2:
        return False
    return len({*numbers}) < len(numbers) or not all(number.is_integer() for number in numbers)


def is_constant(values: Sequence[Any]) -> bool:
    return len({str(value).strip() for value in values}) < 2


def _text_sizes(table: Table, names: Sequence[str]) -> dict[str, float]:
    """Column -> mean number of characters, for the columns that look like texts."""
    return {name: size for name in names if (size := mean_text_length(table.read(name))) is not None}


def _guess_text_column(table: Table, names: Sequence[str], may_be_pairs: bool) -> str | None:
    """The only column that looks like texts; an error if there are several, None if there is none."""
    ranked = _longest(_text_sizes(table, names))
    if len(ranked) < 2:
        return ranked[0] if ranked else None
    fix = "Name one with text_column"
    if may_be_pairs:
        fix += ", or the two of a pair with text_column and pair_column"
    what = f"several columns look like texts: {join_names(ranked)}"
    raise UnclearColumnError(what, where=table.origin, fix=fix)


def find_label_column(
    table: Table,
    excluded: Sequence[str],
    need_labels: bool,
    candidates: list[str] | None = None,
    text: str | None = None,
) -> str | None:
    """The only column, except ``excluded``, that looks like labels.

    If several columns look like labels, their names are added to ``candidates``. If labels are needed, the
    error also mentions the rows whose ``text`` is empty, since they would cause the next error.
    """
    names = unused_columns(table, *excluded)
    values = {name: table.read(name) for name in names}
    labels = [name for name in names if looks_like_labels(values[name])]
    for is_unlikely in (is_constant, are_numbers, are_dates):  # a count or a year next to names of classes
        if len(labels) > 1:
            labels = [name for name in labels if not is_unlikely(nonmissing_sample(values[name]))] or labels
    if len(labels) == 1 and (need_labels or candidates is None or not names_person_or_place(labels[0])):
        return labels[0]
    if labels and candidates is not None:
        candidates += labels
    if not need_labels:
        return None
    if labels:
        fix = "Name it with label_column"
        indicators = [name for name in names if are_yes_no(values[name])]
        if len(indicators) > 1:
            quoted_names = shlex.quote(",".join(indicators))
            fix += (
                f"; if each of several columns is one label (1: applies, 0: not): label_column={quoted_names}"
            )
        empty = sum(is_missing(value) for value in table.read(text)) if text else 0
        if empty:
            fix += f"; {counted(empty, 'row')} without a text can be skipped with on_bad_row=skip"
        raise UnclearColumnError(_candidates_message(labels), where=table.origin, fix=fix)
    if len(names) == 1:
        raise _not_labels_error(table, names[0], values[names[0]], text)
    if not unused_columns(table, *excluded):
        what = f"there is no column 'label' (columns: {join_names(table.names)})"
        fix = "Add a column with the label of each row"
        if not table.typed:
            fix += "; the first row must be the header"
        raise NoSuchColumnError(what, where=table.origin, fix=fix)
    raise no_column_error(table, "label")


def _not_labels_error(table: Table, name: str, values: Sequence[Any], text: str | None) -> DataError:
    """The error if the only remaining column, ``name``, does not look like labels."""
    cells = [value for value in values if not is_missing(value)]
    distinct = len({str(value) for value in cells})
    if not cells:
        return empty_column_error(table, name, "label_column", [text])
    content = f"{name!r} has {distinct:,} different values in {len(cells):,} rows"
    if are_numbers(cells):
        what = f"there is no column 'label': {content}; these look like numbers, not classes"
        fix = (
            f"{NUMBERS_FIX[0].upper()}{NUMBERS_FIX[1:]}. Or name a column of a few classes with label_column"
        )
    else:
        what = f"there is no column 'label', and no other column has classes: {content}"
        fix = "Add a column 'label', or name a column of a few classes with label_column"
    return UnclearColumnError(what, where=table.origin, fix=fix)


def parquet_text_columns(source: str | Path, schema: Any) -> list[str]:
    """The columns of a Parquet file whose first rows look like texts; one if its texts are by far longest."""
    import pyarrow as pa

    sizes = {}
    for field in schema:
        kind = field.type
        if pa.types.is_dictionary(kind):  # pandas categories
            kind = kind.value_type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            for first_batch in islice(read_batches(source, field.name, [0]), 1):
                first_values = to_list(first_batch.slice(0, SAMPLE_ROWS), source, 0)
                if (size := mean_text_length(first_values)) is not None:
                    sizes[field.name] = size
    return _longest(sizes)


def _longest(sizes: Mapping[str, float]) -> list[str]:
    """Columns sorted by the length of their texts; one column if its texts are by far the longest."""
    ranked = sorted(sizes, key=lambda name: -sizes[name])
    dominates = len(ranked) > 1 and sizes[ranked[0]] >= TITLE_RATIO * sizes[ranked[1]]
    return ranked[:1] if dominates else ranked


# --- pairs of texts -------------------------------------------------------------------------------
# The two columns of a pair are named by the user, have usual names, or are the only two columns with texts of
# similar length.

AUTO, NONE = "auto", "none"  # values of a recipe's pair_column that are not names of columns
is_generated_name = re.compile(r"column\d+").fullmatch  # names of columns in tables without a header
# Usual names of two columns of texts that form pairs.
PAIR_COLUMNS = [("premise", "hypothesis"), ("sentence1", "sentence2"), ("sentence_1", "sentence_2")]
PAIR_COLUMNS += [("sentence_a", "sentence_b"), ("text_a", "text_b"), ("text1", "text2")]
PAIR_COLUMNS += [("text", SECOND_COLUMN), ("question1", "question2"), ("question", "answer")]
PAIR_COLUMNS += [("query", "passage"), ("query", "document")]
# Further usual names, for tables whose rows are known to be pairs.
COMPARED_COLUMNS = (*PAIR_COLUMNS, ("anchor", "positive"), ("a", "b"), ("first", "second"))


# The columns of the first and of the second texts, and a message if they were detected; otherwise empty.
PairColumns = tuple[str, str, str]


def usual_pair_columns(
    names: Sequence[str], pairs: Sequence[tuple[str, str]] = PAIR_COLUMNS
) -> tuple[str, str] | None:
    """The two columns whose names are one of ``pairs``; None if the table has no such columns."""
    by_name = {name.lower(): name for name in names}
    return next(((by_name[a], by_name[b]) for a, b in pairs if a in by_name and b in by_name), None)


def find_pair_columns(
    table: Table, text: str | None, pair: str, label: str | None = None, *, guess: bool = True
) -> PairColumns | None:
    """The columns of the first and of the second texts; None: the table has one text per row.

    Args:
        text, label: columns named by the user; ``text`` without ``pair`` means one text per row.
        pair: the second column's name, or ``auto`` or ``none``.
        guess: whether to use two columns with texts of similar length, if no names match.

    Raises:
        DataError: a column does not exist, both columns are the same, or the first column is unclear.
    """
    if pair == NONE or (pair == AUTO and text is not None):
        return None
    if pair != AUTO:
        return _pair_columns_by_name(table, text, pair, label)
    unused = unused_columns(table, label)
    columns, how = usual_pair_columns(unused), "by their names"
    if columns is None and guess and not any(name.lower() in TEXT_COLUMNS for name in unused):
        has_label = label is not None or any(name.lower() in LABEL_COLUMNS for name in unused)
        columns, how = _guess_pair_columns(table, unused, has_label), "by content"
    if columns is None:
        return None
    message = f"pairs of texts, detected {how}: {columns[0]!r} and {columns[1]!r}; "
    return *columns, message + "for one text set text_column"


def _pair_columns_by_name(table: Table, text: str | None, pair: str, label: str | None) -> PairColumns:
    table.check_columns(pair, text)
    first, unused = text, unused_columns(table, pair, label)
    if first is None:
        names = {name.lower(): name for name in unused}
        first = next((names[a] for a, b in PAIR_COLUMNS if b == pair.lower() and a in names), None)
    if first is None:
        texts = [*_text_sizes(table, unused)]
        usual = [name for name in texts if name.lower() in TEXT_COLUMNS]
        first = texts[0] if len(texts) == 1 else usual[0] if len(usual) == 1 else None
    if first is None:
        fix = f"Name it with text_column: {join_names(table.names)}"
        what = f"{pair!r} has the second texts, but no column of first texts is recognized"
        raise UnclearColumnError(what, where=table.origin, fix=fix)
    if first == pair:
        what = f"column {pair!r} is used both as the first text and as the second"
        raise UnclearColumnError(what, where=table.origin, fix="Name both with text_column and pair_column")
    return first, pair, ""


def find_columns_of_pairs(
    table: Table, text: str | None, label: str | None, pair: str, *, labels: bool, need_labels: bool
) -> Columns | None:
    """Like ``find_columns``, for a table of pairs; None if rows have one text.

    For arguments and errors see ``find_columns`` and ``find_pair_columns``.
    """
    pair_columns = find_pair_columns(table, text, pair, label, guess=labels)
    if pair_columns is None:
        return None
    *texts, message = pair_columns
    candidates, messages = list[str](), [message] if message else []
    column = find_column(table, label, LABEL_COLUMNS, "label")
    if column in texts:
        what = f"column {column!r} is used both as a text and as the label"
        raise UnclearColumnError(what, where=table.origin, fix="Name another column with label_column")
    if column is None and (labels or need_labels):
        column = find_label_column(table, texts, need_labels, candidates)
        messages += [f"labels in {column!r}, detected by content; or set label_column"] if column else []
    messages += [f"{_candidates_message(candidates)}: name it with label_column"] if candidates else []
    return Columns(texts[0], column, "; ".join(messages), texts[1], rank_label_candidates(table, candidates))


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


def _guess_pair_columns(table: Table, names: Sequence[str], has_label: bool) -> tuple[str, str] | None:
    """The only two columns of texts, unless the texts of one are so short that they are probably titles.

    Args:
        has_label: whether the column of labels is known. Then sentences that repeat, such as a premise with
            several hypotheses, are texts and not classes.
    """
    sizes = _text_sizes(table, names)
    if has_label and len(sizes) == 1:
        others = [name for name in names if name not in sizes and name.lower() not in LABEL_COLUMNS]
        lengths = {name: mean_sentence_length(table.read(name)) for name in others}
        sizes |= {name: length for name, length in lengths.items() if length is not None}
        sizes = {name: sizes[name] for name in names if name in sizes}  # in the order of the table
    if len(sizes) != 2 or max(sizes.values()) >= TITLE_RATIO * min(sizes.values()):
        return None
    first, second = sizes
    return first, second


def columns_for_pair_model(
    names: Sequence[str],
    text: str | None,
    pair: str | None,
    where: str | Path,
    training_columns: Sequence[str | None] = (),
) -> PairColumns:
    """The two columns of a table from which a model of text pairs reads the texts.

    The columns are those that the user names, else those with the names used in training. If these do not
    exist, usual names or the order of the columns decide, and the returned message tells the user.

    Args:
        text, pair: columns named by the user; None, ``auto`` and ``none``: detect the column.
        training_columns: names of the first and second column in training; empty: unknown.
    """
    had_no_header = all(name and is_generated_name(name) for name in training_columns)
    trained = (None, None) if had_no_header else (*training_columns, None)[:2]
    requested = [
        None if name in (training_name, AUTO, NONE) else name
        for name, training_name in zip((text, pair), trained, strict=True)
    ]
    for name in requested:
        if name is not None and name not in names:
            fix = suggest(name, names)
            raise NoSuchColumnError(f"there is no column {name!r}", where=str(where), fix=fix)
    by_name = {name.lower(): name for name in names} | {name: name for name in names}
    columns = [
        name or (training_name and by_name.get(training_name, by_name.get(training_name.lower())))
        for name, training_name in zip(requested, trained, strict=True)
    ]
    unused = [name for name in names if name not in columns and name.lower() not in LABEL_COLUMNS]
    how = ""
    if sum(map(bool, columns)) == 1 and len(unused) == 1:
        columns, how = [name or unused[0] for name in columns], "the only other column"
    elif not any(columns):
        if usual := usual_pair_columns(names):
            columns, how = list(usual), "by their usual names"
        elif len(unused) == 2 and (not any(trained) or all(map(is_generated_name, unused))):
            columns, how = unused, "by their order"
    first, second = columns
    if not first or not second or first == second:
        raise _no_pair_error(names, training_columns if any(trained) else (), where)
    message = f"{first!r} is read as the first text and {second!r} as the second, {how}; "
    message += "set text_column and pair_column to override"
    return first, second, message if how else ""


def _no_pair_error(names: Sequence[str], trained: Sequence[str | None], where: str | Path) -> DataError:
    """The error if it is unclear which columns have the first and the second texts."""
    what = ", but it is unclear which two columns have the texts"
    if trained_names := [name for name in trained if name]:
        lacking = " and ".join(repr(name) for name in trained_names if name not in names)
        what = f", in training from {' and '.join(map(repr, trained_names))}, but the table lacks {lacking}"
    fix = "Name the column of the first texts with text_column, the column of the second with pair_column"
    fix += f": {join_names(list(names))}"
    return UnclearColumnError(f"this model reads pairs of texts{what}", where=str(where), fix=fix)


# --- multi-label tables with one 0/1 column per label ---------------------------------------------
# One column of lists replaces these columns.

NAME_SEPARATOR = ","  # separates the names of columns in the setting label_column
YES_NO = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}


def parse_columns(names: Sequence[str], setting: str | None) -> list[str]:
    """The columns that a setting such as ``joy,anger,fear`` lists; empty if it does not list columns."""
    parts = [part.strip() for part in (setting or "").split(NAME_SEPARATOR)]
    is_list = len(parts) > 1 and setting not in names
    return parts if is_list and all(part in names for part in parts) else []


def yes_or_no(value: Any) -> bool | None:
    """The boolean in a cell: 1, 0, true or false, also as text; None for any other value."""
    return YES_NO.get(str(value).strip().lower())


def are_yes_no(values: Sequence[Any]) -> bool:
    """Whether a column has only 0, 1, true and false."""
    nonmissing = nonmissing_sample(values)
    return bool(nonmissing) and all(yes_or_no(value) is not None for value in nonmissing)


def with_label_sets(
    table: Table, label: str | None, excluded: Sequence[str | None] = (), *, guess: bool = False
) -> tuple[Table, str | None, str]:
    """Add a column of label lists to a table with several 0/1 columns; it is named ``joy,anger,fear``.

    Args:
        label: column given by the user, or several separated by commas.
        excluded: columns that are not labels.
        guess: whether to detect the 0/1 columns if ``label`` is None (see ``_indicator_columns``).

    Returns:
        The table, the column of labels (None: unknown), and a message if the columns were detected.
    """
    names, message = parse_columns(table.names, label), ""
    if not names and label is None and guess:
        names = _indicator_columns(table, excluded)
        message = f"multi-label, detected by content: {join_names(names)} have 1 where a label "
        message += "applies; to use only one of the columns, set label_column"
    if not names:
        return table, label, ""
    joined = NAME_SEPARATOR.join(names)

    def read(name: str) -> list[Any]:
        if name != joined:
            return table.read(name)
        columns = [table.read(column) for column in names]
        return [_labels_of_row(names, cells) for cells in zip(*columns, strict=True)]

    return replace(table, names=(*table.names, joined), read=read), joined, message


def _labels_of_row(names: Sequence[str], cells: Sequence[Any]) -> list[str] | UnusableRow:
    """The labels of a row, or the reason why it is unusable."""
    values = [yes_or_no(cell) for cell in cells]
    if None in values:
        at = values.index(None)
        cell = cells[at]
        what = "nothing" if is_missing(cell) else repr(cell)[:40]
        return UnusableRow(f"column {names[at]!r} has {what} instead of 0 or 1")
    return [name for name, applies in zip(names, values, strict=True) if applies]


def _indicator_columns(table: Table, excluded: Sequence[str | None]) -> list[str]:
    """All 0/1 columns; empty if there are fewer than two, or if another column could be the label."""
    unused = unused_columns(table, *excluded)
    if any(name.lower() in LABEL_COLUMNS for name in unused):
        return []
    values = {name: table.read(name) for name in unused}
    indicators = [name for name in unused if are_yes_no(values[name])]

    def could_be_label(name: str) -> bool:
        if name in indicators or names_person_or_place(name) or not looks_like_labels(values[name]):
            return False
        return not is_constant(nonmissing_sample(values[name]))

    return indicators if len(indicators) > 1 and not any(map(could_be_label, unused)) else []


# --- targets among the inputs ---------------------------------------------------------------------
# If a column of the inputs contains the targets, the model would only learn to copy them.

TARGET_NAMES = frozenset([*LABEL_COLUMNS, "y", "score", "tag", "rating", "stars", "number", "value"])


def check_no_target_column(
    table: MemoryTable, y: Any, max_columns: int, noun: str, target_noun: str = "labels"
) -> None:
    """Raise DataError if a column of the ``X`` of ``fit`` contains the targets.

    Args:
        y: one target per row; None: only the names of the columns are checked.
        max_columns: maximum number of columns of an example.
        noun, target_noun: names of examples and targets in messages.
    """
    targets = None if y is None else list(map(normalize_value, as_list(y)))
    for i, name in enumerate(table.keys):
        has_target_name = isinstance(name, str) and name.lower() in TARGET_NAMES
        if targets is None:
            cells = table.first_values(i)
            repeats = len({*map(str, cells)}) <= len(cells) / 2
            leaks = len(table) > 1 and has_target_name and (repeats or all(map(is_number, cells)))
        elif len(table) == 1:  # the only column is an error only if it equals the targets
            cells = list(map(normalize_value, table.first_values(i)))
            leaks = cells == targets[: len(cells)] and leaks_targets(table.column(i), targets, (), True)
        else:
            others = [table.column(k) for k in range(len(table)) if k != i]
            leaks = leaks_targets(table.column(i), targets, others, has_target_name)
        if leaks:
            fix = f"Give the column of {noun}"
            if len(table) > 1:
                inputs = table.code(*guess_input_columns(table, max_columns, name))
                fix += f" without the {target_noun}: fit({inputs}, {table.code(name)})"
            raise UnclearColumnError(f"column {name!r} of X contains the {target_noun}", where="fit", fix=fix)


def check_no_target_side(sides: Sequence[Sequence[Any]], y: Iterable[Any], noun: str) -> None:
    """Like ``check_no_target_column``, for pairs given as tuples."""
    if (match := _find_target_side(sides, y)) is not None:
        i, is_equal = match
        how = "is its label" if is_equal else "has one value for each label"
        what = f"the {SIDES[i]} text of each pair {how}"
        fix = f"Pass the {noun} without the labels: fit([pair[{1 - i}] for pair in X], y)"
        raise UnclearColumnError(what, where="fit", fix=fix)


def check_no_target_in_pairs(split: Any, columns: tuple[str, str]) -> None:
    """Like ``check_no_target_column``, for pairs read from two columns of a table."""
    sides = list(zip(*(pair.sides for pair in split.examples), strict=True))
    if (match := _find_target_side(sides, split.labels or ())) is not None:
        i, is_equal = match
        what = f"column {columns[i]!r}, read as the {SIDES[i]} text of pairs, "
        what += "contains the labels" if is_equal else "has one value for each label"
        fix = f"Read only {columns[1 - i]!r}: text_column {shlex.quote(columns[1 - i])} pair_column none"
        raise UnclearColumnError(what, where=split.origin, fix=fix)


def _find_target_side(sides: Sequence[Sequence[Any]], y: Iterable[Any]) -> tuple[int, bool] | None:
    """Index of the side (0 or 1) that contains the targets, and whether it equals them; otherwise None."""
    targets = list(map(normalize_value, y))
    for i, side in enumerate(sides):
        others = [other for k, other in enumerate(sides) if k != i]
        if leaks_targets(side, targets, others, False):
            return i, list(map(normalize_value, side)) == targets
    return None


def leaks_targets(
    values: Sequence[Any], targets: Sequence[str], others: Sequence[Sequence[Any]], has_target_name: bool
) -> bool:
    """Whether a column contains the targets: the same values, or a different value for each target.

    Args:
        targets: the results of ``normalize_value``.
        others: the other columns. If their values repeat as well, as in a table of a few repeated rows, the
            result is False.
        has_target_name: whether the column has a usual name of targets; then several of its values may mean
            one target.
    """
    if len(values) != len(targets) or not targets:
        return False
    column = list(map(normalize_value, values))
    if column == list(targets):
        return True
    if not others or not _determines(column, targets):
        return False
    if has_target_name:
        return True
    return len(set(column)) == len(set(targets)) and all(len({*map(str, x)}) > len(x) / 2 for x in others)


def normalize_value(value: Any) -> str:
    """Normalize a value for comparison: numbers by value, texts case-folded."""
    if is_number(value) and getattr(value, "size", 1) == 1:
        return repr(float(value))
    return str(value).strip().casefold()


def _determines(values: Sequence[str], targets: Sequence[str]) -> bool:
    """Whether a column has few distinct values, and each value always occurs with the same target."""
    target_of: dict[str, str] = {}
    for value, target in zip(values, targets, strict=True):
        if target_of.setdefault(value, target) != target or len(target_of) > len(values) / 2:
            return False
    return True


def guess_input_columns(table: MemoryTable, max_columns: int, target: Any = None) -> Sequence[Any]:
    """The columns that probably have the examples: two with usual names, the only two of texts, or one."""
    columns = [(i, key) for i, key in enumerate(table.keys) if key != target]
    texts = [key for i, key in columns if all(isinstance(value, str) for value in table.first_values(i))]
    names = [key for key in texts if isinstance(key, str)]
    usual = usual_pair_columns(names, COMPARED_COLUMNS) if max_columns > 1 else None
    has_text_name = any(name.lower() in TEXT_COLUMNS for name in names)
    if usual is None and len(texts) == max_columns == 2 and not has_text_name:
        return texts
    return usual or [column_with_longest_values(table, [target])]
