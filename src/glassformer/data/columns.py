"""Detection of the columns with texts, pairs of texts and labels: by name, else by content.

All commands use the column that the user names; else a column with a usual name; else, in a table of two
columns, the column that is left; else the only column that looks like texts (or like labels). This module is
long because the rules for texts, pairs and labels refer to each other.
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

from glassformer.config import listed, nearest
from glassformer.data.checks import check_cells, check_class_names, check_labels, check_texts, is_missing
from glassformer.data.column_contents import (
    LABEL_COLUMNS,
    SAMPLE,
    TEXT_COLUMNS,
    are_dates,
    are_numbers,
    are_yes_no,
    is_constant,
    looks_like_labels,
    measures,
    present,
    sentence_size,
    text_size,
    yes_or_no,
)
from glassformer.data.in_memory import MemoryTable, as_list, likeliest
from glassformer.data.label_kinds import CUT, is_number, what_labels_are, whole_number
from glassformer.data.label_sets import (
    LabelSet,
    Unusable,
    are_sets,
    check_sets,
    flat_labels,
    holds_sets,
    split_column,
)
from glassformer.data.parquet import batches, to_list
from glassformer.data.spreadsheet import REVIEWED
from glassformer.data.tables import Table
from glassformer.data.text_pairs import SECOND_CELL, SIDES, check_side, join_sides
from glassformer.errors import DataError, NoSuchColumnError, UnclearColumnError

CLASSES = (
    "kind type class category categories label tag topic sentiment rating intent mood about subject reason"
).split()
# Names for the origin of a text, which does not depend on its content.
PLACES = re.compile("store|shop|branch|site|city|town|country|region|location|place|channel|device|platform")
PEOPLE = "by agent author owner user name person who customer client employee staff from to".split()
UNEVEN = 2.0  # if texts of one column are this many times as long as those of another, the other has titles


@dataclass(frozen=True)
class Columns:
    """The columns of a table; ``message`` is a message to the user if they were detected by their content."""

    text: str
    label: str | None
    message: str = ""
    pair: str | None = None  # column of the second texts, if rows are pairs
    candidates: tuple[str, ...] = ()  # columns that could be the label, if several; the likeliest first
    numbers: str | None = None  # if no column could be the label: a column of measurements


def find_columns(
    table: Table,
    text: str | None,
    label: str | None,
    *,
    labels: bool = True,
    need_labels: bool = False,
    pairs: bool = True,
) -> Columns:
    """The columns of texts and of labels.

    Args:
        text, label: column names given by the user; None: detect the column.
        labels: whether to detect labels by content; False: only by a name that is given or usual.
        need_labels: whether a table without labels is an error.
        pairs: whether rows may be pairs of texts; error messages then mention pairs.

    Raises:
        DataError: a column does not exist, there are none or several candidates, or both are the same column.
    """
    found_text = find_column(table, text, TEXT_COLUMNS, "text")
    found_label = find_column(table, label, LABEL_COLUMNS, "label")
    free, guessed = free_columns(table, found_text, found_label), False
    if found_text is None and found_label is not None and len(free) == 1:
        found_text = free[0]
    elif found_text is None and free:
        found_text = _guess_text(table, free, need_labels and pairs)
        guessed = found_text is not None
    if label is not None and found_label is not None and (found_text is None or found_text != text):
        _refuse_texts(table, found_label, found_text)
    if found_text is None:
        raise no_column_error(table, "text")
    if found_text == found_label:
        other = [name for name in table.names if name != found_text]
        fix = f"Name another column with label_column: {listed(other)}"
        fix = "Name both with text_column and label_column" if label is None else fix
        what = f"column {found_text!r} is taken for the text and for the label"
        raise UnclearColumnError(what, where=table.origin, fix=fix)
    unclear: list[str] = []
    if found_label is None:
        detect = labels or need_labels
        found_label = _find_labels(table, [found_text], need_labels, unclear, found_text, detect)
        guessed = guessed or found_label is not None
    messages = [f"{_ambiguous_message(unclear)}: name it with label_column"] if unclear else []
    if guessed:
        description = f"texts in {found_text!r}" + (f", labels in {found_label!r}" if found_label else "")
        messages.append(f"detected by content: {description}; set text_column and label_column to override")
    rest = free_columns(table, found_text) if found_label is None else []
    number_column = next((name for name in rest if measures(table.read(name))), None)
    candidates = likeliest_labels(table, unclear)
    return Columns(found_text, found_label, "; ".join(messages), candidates=candidates, numbers=number_column)


def free_columns(table: Table, *taken: str | None) -> list[str]:
    """The columns of a table that are neither ``taken`` nor written by a label review."""
    return [name for name in table.names if name not in taken and not name.startswith(REVIEWED)]


def _refuse_texts(table: Table, label: str, text: str | None) -> None:
    """Raise an error if the column named for the labels contains texts and no other column does."""
    values = table.read(label)
    if text_size(values) is None or (text is not None and text_size(table.read(text)) is not None):
        return
    nonmissing = [value for value in values if not is_missing(value)]
    what = f"{label!r} is named as the column of labels but contains the texts: "
    what += f"{len({*nonmissing}):,} different texts in {len(nonmissing):,} rows"
    candidates = [n for n in table.names if n != label and looks_like_labels(table.read(n))]
    known = list(likeliest_labels(table, candidates)) or [n for n in table.names if n != label]
    fix = "Name the column of classes with label_column" + (f", such as {known[0]!r}" if known else "")
    raise UnclearColumnError(what, where=table.origin, fix=fix)


def likeliest_labels(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    """Columns that could be the label, the likeliest first.

    Names of classes ("kind") come first, names of people or places ("handled by", "store") last; ties are
    decided by the number of values (fewest first), then by the order in the table.
    """

    def rank(name: str) -> tuple[bool, bool, int]:
        names_origin = names_person_or_place(name)
        values = len({*map(str, present(table.read(name)))})
        return names_origin, names_origin or _words(name).isdisjoint(CLASSES), values

    return tuple(sorted(names, key=rank)) if len(names) > 1 else tuple(names)


def _words(name: str) -> set[str]:
    return {*re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())}


def names_person_or_place(name: str) -> bool:
    """Whether a column's name refers to people or places, as tables without labels have them, too."""
    return not _words(name).isdisjoint(PEOPLE) or any(map(PLACES.fullmatch, _words(name)))


def _ambiguous_message(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{names[0]!r} could be the label by its content, but not by its name"
    return f"several columns could be the label ({listed(names)})"


def find_label(table: Table, name: str | None, image_column: str, needed: bool = False) -> str | None:
    """The column of labels of a table of images; None if there is none.

    Raises:
        DataError: no such column, several columns with usual names, or no column although it is ``needed``.
    """
    return find_column(table, name, LABEL_COLUMNS, "label") or _find_labels(table, [image_column], needed)


def find_text(table: Table, requested: str | None = None, preferred: Sequence[str | None] = ()) -> str:
    """The column of texts of a table whose labels are not needed.

    Args:
        usual: if ``requested`` is None, the first of these columns that exists is used.

    Raises:
        DataError: no such column, or none or several candidates.
    """
    if requested is None:
        requested = next((name for name in preferred if name in table.names), None)
    if requested is None and len(table.names) == 1:
        return table.names[0]
    found = find_column(table, requested, TEXT_COLUMNS, "text")
    if found is None:
        free = [name for name in free_columns(table) if name.lower() not in LABEL_COLUMNS]
        found = free[0] if len(free) == 1 < len(table.names) else _guess_text(table, free, False)
    if found is None:
        fix = f"Name it with text_column: {listed(table.names)}"
        raise UnclearColumnError("there is no column of texts", where=table.origin, fix=fix)
    return found


def find_column(table: Table, requested: str | None, usual: Sequence[str], kind: str) -> str | None:
    """The column ``requested``, else the column with a usual name; the first usual name has priority.

    Raises:
        DataError: no such column, or several candidates.
    """
    table.check_columns(requested)
    if requested is not None:
        return requested
    matches = [name for name in table.names if name.lower() in usual]
    if len(matches) > 1:
        exact = [name for name in matches if name.lower() == usual[0]]
        if len(exact) != 1:
            what = f"several columns could be the {kind}: {listed(matches)}"
            raise UnclearColumnError(what, where=table.origin, fix=f"Name it with {kind}_column")
        return exact[0]
    return matches[0] if matches else None


def no_column_error(table: Table, kind: str) -> DataError:
    """The error if neither names nor content show which column is meant."""
    what = f"there is no column {kind!r}"
    hint = nearest(kind, table.names)
    fix = f"{hint if hint.endswith('?') else hint + '.'} Name it with {kind}_column"
    if not table.typed:
        fix += "; the first row must be the header"
    return NoSuchColumnError(what, where=table.origin, fix=fix)


# --- detection by content -------------------------------------------------------------------------


def _guess_text(table: Table, names: Sequence[str], pairs: bool) -> str | None:
    ranked = _longest({name: size for name in names if (size := text_size(table.read(name))) is not None})
    if len(ranked) < 2:
        return ranked[0] if ranked else None
    fix = "Name one with text_column"
    if pairs:
        fix += ", or the two of a pair with text_column and pair_column"
    what = f"several columns look like texts: {listed(ranked)}"
    raise UnclearColumnError(what, where=table.origin, fix=fix)


def _find_labels(
    table: Table,
    excluded: Sequence[str],
    need_labels: bool,
    ambiguous: list[str] | None = None,
    text: str | None = None,
    detect: bool = True,
) -> str | None:
    """The only column, except ``excluded``, that looks like labels; the names of several go to ``ambiguous``.

    An error also mentions rows whose ``text`` is empty, which would be the next error.
    """
    names = free_columns(table, *excluded) if detect else []
    values = {name: table.read(name) for name in names}
    labels = [name for name in names if looks_like_labels(values[name])]
    for odd in (is_constant, are_numbers, are_dates):  # a count or a year next to the names of classes
        if len(labels) > 1:
            labels = [name for name in labels if not odd(present(values[name]))] or labels
    if len(labels) == 1 and (need_labels or ambiguous is None or not names_person_or_place(labels[0])):
        return labels[0]
    if labels and ambiguous is not None:
        ambiguous += labels
    if not need_labels:
        return None
    if labels:
        fix = "Name it with label_column"
        indicators = [name for name in names if are_yes_no(values[name])]
        if len(indicators) > 1:
            quoted_names = shlex.quote(",".join(indicators))
            fix += f"; if several are labels that apply (1) or not (0): label_column={quoted_names}"
        empty = sum(is_missing(value) for value in table.read(text)) if text else 0
        if empty:
            fix += f"; {empty:,} row{'s' * (empty > 1)} without a text can be left out with on_bad_row=skip"
        raise UnclearColumnError(_ambiguous_message(labels), where=table.origin, fix=fix)
    if len(names) == 1:
        _refuse_doubtful(table, names[0], values[names[0]])
    raise no_column_error(table, "label")


def _refuse_doubtful(table: Table, name: str, values: Sequence[Any]) -> None:
    """Raise an error if the only column left does not look like labels; the error describes its content."""
    cells = [value for value in values if not is_missing(value)]
    distinct = len({str(value) for value in cells})
    what = f"there is no column 'label': {name!r} holds {distinct:,} different values in {len(cells):,} rows"
    numbers = are_numbers(cells)
    what += "; these look like numbers, not classes" if numbers else ""
    hint = f"{CUT}. " if numbers else f"{nearest('label', [name])} "
    fix = f"{hint}Name a column of a few classes with label_column"
    raise UnclearColumnError(what, where=table.origin, fix=fix[0].upper() + fix[1:])


def parquet_texts(source: str | Path, schema: Any) -> list[str]:
    """The columns whose first rows look like texts; only one column, if its texts are by far the longest."""
    import pyarrow as pa

    sizes = {}
    for field in schema:
        kind = field.type
        if pa.types.is_dictionary(kind):  # pandas categories
            kind = kind.value_type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            for first_batch in islice(batches(source, field.name, [0]), 1):
                if (size := text_size(to_list(first_batch.slice(0, SAMPLE), source, 0))) is not None:
                    sizes[field.name] = size
    return _longest(sizes)


def _longest(sizes: Mapping[str, float]) -> list[str]:
    """Columns of texts, the longest first; only the first column if its texts are by far the longest."""
    ranked = sorted(sizes, key=lambda name: -sizes[name])
    dominates = len(ranked) > 1 and sizes[ranked[0]] >= UNEVEN * sizes[ranked[1]]
    return ranked[:1] if dominates else ranked


# --- sides of pairs -------------------------------------------------------------------------------
# Columns that the user names, that have usual names, or the only two with texts of similar length.

AUTO, NONE = "auto", "none"  # values of a recipe's pair_column that are not names of columns
NAMELESS = re.compile(r"column\d+").fullmatch  # names of columns in tables without a header
# Usual names of two columns of texts that form pairs.
PAIR_COLUMNS = [("premise", "hypothesis"), ("sentence1", "sentence2"), ("sentence_1", "sentence_2")]
PAIR_COLUMNS += [("sentence_a", "sentence_b"), ("text_a", "text_b"), ("text1", "text2")]
PAIR_COLUMNS += [("text", SECOND_CELL), ("question1", "question2"), ("question", "answer")]
PAIR_COLUMNS += [("query", "passage"), ("query", "document")]
# Further usual names, for tables whose rows are known to be pairs.
COMPARED_COLUMNS = (*PAIR_COLUMNS, ("anchor", "positive"), ("a", "b"), ("first", "second"))


@dataclass(frozen=True)
class Sides:
    """The two columns of pairs; ``message`` is a message to the user if they were detected."""

    first: str
    second: str
    message: str = ""


def usual_pair_columns(
    names: Sequence[str], pairs: Sequence[tuple[str, str]] = PAIR_COLUMNS
) -> tuple[str, str] | None:
    """The two columns whose names are one of ``pairs``; None if there are no such columns."""
    known = {name.lower(): name for name in names}
    return next(((known[a], known[b]) for a, b in pairs if a in known and b in known), None)


def find_sides(
    table: Table, text: str | None, pair: str, label: str | None = None, *, guess: bool = True
) -> Sides | None:
    """The columns of the first and of the second texts; None: the table has one text per row.

    Args:
        text, label: columns named by the user; ``text`` without ``pair`` means one text per row.
        pair: the second column's name, or ``auto`` or ``none``.
        guess: whether to use two columns with texts of similar length, if no names match.

    Raises:
        DataError: no such column, the same column for both texts, or a second column without a first column.
    """
    if pair == NONE or (pair == AUTO and text is not None):
        return None
    if pair != AUTO:
        return _sides_by_name(table, text, pair, label)
    free = free_columns(table, label)
    sides, how = usual_pair_columns(free), "by their names"
    if sides is None and guess and not any(name.lower() in TEXT_COLUMNS for name in free):
        label_known = label is not None or any(name.lower() in LABEL_COLUMNS for name in free)
        sides, how = _find_text_pair(table, free, label_known), "by content"
    if sides is None:
        return None
    message = f"pairs of texts, detected {how}: {sides[0]!r} and {sides[1]!r}; for one text set text_column"
    return Sides(*sides, message)


def _sides_by_name(table: Table, text: str | None, pair: str, label: str | None) -> Sides:
    if pair not in table.names:
        table.check_columns(pair)
    first = None if text is None else find_column(table, text, TEXT_COLUMNS, "text")
    free = free_columns(table, pair, label)
    if first is None:
        names = {name.lower(): name for name in free}
        first = next((names[a] for a, b in PAIR_COLUMNS if b == pair.lower() and a in names), None)
    if first is None:
        texts = [name for name in free if text_size(table.read(name)) is not None]
        usual = [name for name in texts if name.lower() in TEXT_COLUMNS]
        first = texts[0] if len(texts) == 1 else usual[0] if len(usual) == 1 else None
    if first is None:
        fix = f"Name it with text_column: {listed(table.names)}"
        raise UnclearColumnError(f"there is no first text to go with {pair!r}", where=table.origin, fix=fix)
    if first == pair:
        what = f"column {pair!r} is taken for the first text and for the second"
        raise UnclearColumnError(what, where=table.origin, fix="Name both with text_column and pair_column")
    return Sides(first, pair)


def columns_of_pairs(
    table: Table, text: str | None, label: str | None, pair: str, *, labels: bool, need_labels: bool
) -> Columns | None:
    """Like ``find_columns``, for a table of pairs; None if rows have one text. For arguments and errors see
    ``find_columns`` and ``find_sides``."""
    sides = find_sides(table, text, pair, label, guess=labels)
    if sides is None:
        return None
    texts, ambiguous = (sides.first, sides.second), list[str]()
    messages = [sides.message] if sides.message else []
    column = find_column(table, label, LABEL_COLUMNS, "label")
    if column in texts:
        what = f"column {column!r} is taken for a text and for the label"
        raise UnclearColumnError(what, where=table.origin, fix="Name another column with label_column")
    if column is None:
        column = _find_labels(table, texts, need_labels, ambiguous, detect=labels or need_labels)
        messages += [f"labels in {column!r}, detected by content; or set label_column"] if column else []
    messages += [f"{_ambiguous_message(ambiguous)}: name it with label_column"] if ambiguous else []
    return Columns(sides.first, column, "; ".join(messages), sides.second, likeliest_labels(table, ambiguous))


def read_inputs(table: Table, columns: Columns) -> list[str]:
    """The texts of a table, or its pairs; for errors see ``check_texts``."""
    texts = table.read(columns.text)
    if columns.pair is None:
        return check_texts(texts, table.origin, table.rows)
    return join_sides(texts, table.read(columns.pair), table.origin, table.rows)


def row_checks(columns: Columns) -> dict[str, Callable]:
    """Column of texts -> function that raises an error for an invalid value."""
    if columns.pair is None:
        return {columns.text: check_cells}
    sides = zip((columns.text, columns.pair), SIDES, strict=True)
    return {name: partial(check_side, which=f"{which} text", origin="", rows=[0]) for name, which in sides}


def _find_text_pair(table: Table, names: Sequence[str], labeled: bool = False) -> tuple[str, str] | None:
    """The only two columns of texts, unless one is so much longer that the other probably has titles.

    Args:
        labeled: whether the column of labels is known; then sentences that repeat (a premise with several
            hypotheses) are texts, not classes.
    """
    sizes = {name: size for name in names if (size := text_size(table.read(name))) is not None}
    if labeled and len(sizes) == 1:
        free = [name for name in names if name not in sizes and name.lower() not in LABEL_COLUMNS]
        again = {name: size for name in free if (size := sentence_size(table.read(name))) is not None}
        sizes = {name: (sizes | again)[name] for name in names if name in sizes or name in again}
    if len(sizes) != 2 or max(sizes.values()) >= UNEVEN * min(sizes.values()):
        return None
    first, second = sizes
    return first, second


def columns_for_pair_model(
    names: Sequence[str],
    text: str | None,
    pair: str | None,
    where: str | Path,
    training: Sequence[str | None] = (),
) -> Sides:
    """The two columns of a table that a model of pairs reads: those named by the user, else the columns with
    the names used in training, in any order.

    A table with usual names, without a header, or for a model whose columns had no names, is read in the
    order of its columns; ``message`` then reports this to the user.

    Args:
        text, pair: columns named by the user; None, ``auto`` and ``none``: detect the column.
        training_columns: the first and second column in training; empty: unknown.
    """
    known = (None, None) if all(name and NAMELESS(name) for name in training) else (*training, None)[:2]
    both = zip((text, pair), known, strict=True)
    named = [None if name in (then, AUTO, NONE) else name for name, then in both]
    for name in named:
        if name is not None and name not in names:
            fix = nearest(name, names)
            raise NoSuchColumnError(f"there is no column {name!r}", where=str(where), fix=fix)
    places = {name.lower(): name for name in names} | {name: name for name in names}
    both = zip(named, known, strict=True)
    sides = [name or (then and places.get(then, places.get(then.lower()))) for name, then in both]
    free = [name for name in names if name not in sides and name.lower() not in LABEL_COLUMNS]
    how = ""
    if sum(map(bool, sides)) == 1 and len(free) == 1:  # of two columns, the other one
        sides, how = [name or free[0] for name in sides], "the only other column"
    elif not any(sides):
        if usual := usual_pair_columns(names):
            sides, how = list(usual), "by their usual names"
        elif len(free) == 2 and (not any(known) or all(map(NAMELESS, free))):
            sides, how = free, "by their order"
    first, second = sides
    if not first or not second or first == second:
        raise _no_sides(names, training if any(known) else (), where)
    message = f"{first!r} is read as the first text and {second!r} as the second, {how}"
    return Sides(first, second, f"{message}; set text_column and pair_column to override" if how else "")


def _no_sides(names: Sequence[str], training_columns: Sequence[str | None], where: str | Path) -> DataError:
    """The error for a table whose columns do not show which texts are first and which second."""
    what = ", but it is unclear which two columns have the texts"
    if training_names := [name for name in training_columns if name]:
        lacking = " and ".join(repr(name) for name in training_names if name not in names)
        what = f", in training from {' and '.join(map(repr, training_names))}, but the table lacks {lacking}"
    fix = "Name the column of the first texts with text_column, the column of the second with pair_column"
    fix += f": {listed(list(names))}"
    return UnclearColumnError(f"this model reads pairs of texts{what}", where=str(where), fix=fix)


WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}").fullmatch  # different strings are different numbers


def read_labels(
    table: Table, column: str, class_names: Sequence[str], separator: str | None = None
) -> Sequence[Any]:
    """The labels, as class names if the file has them; empty if all are -1, which means "unlabeled".

    Args:
        separator: separator between labels in a multi-label cell; None: a cell is one label or a list.

    Raises:
        DataError: an invalid label; the message names the row.
    """
    values = table.read(column)
    if separator is not None or holds_sets(values):
        sets = check_sets(split_column(values, separator, column), table.origin, table.rows)
        return named_labels(sets, class_names, table) if class_names else sets
    if not table.typed:
        values = [value.strip() for value in values]
    elif class_names and all(value == -1 for value in values):
        return []
    try:
        labels = check_labels(values, table.origin, table.rows)
    except DataError as error:
        kind = what_labels_are(values)
        if kind is None or kind[0] in error.what:
            raise
        raise error.but(what=f"{error.what}: {kind[0]}", fix=kind[1]) from None
    return named_labels(labels, class_names, table) if class_names else labels


def column_checks(table: Table, label: str, separator: str | None) -> dict[str, Callable]:
    """Column of labels -> function that raises an error for an invalid value."""
    values = table.read(label)
    if separator is not None or holds_sets(values):
        return {label: lambda values: check_sets(split_column(values, separator))}
    names = table.class_names.get(label, ())
    if not names or all(value == -1 for value in values):
        return {label: check_labels}
    return {label: lambda cells: [_class_name(item, names, table, 0) for item in check_labels(cells)]}


def name_classes(labels: Sequence[Any], class_names: Sequence[str], table: Table) -> Sequence[Any]:
    """The labels of a file without class names, named by the class names of an earlier file.

    If all labels are names, they are returned unchanged; a mixture of names and numbers is an error.

    Raises:
        DataError: a number without a class name, or a mixture; the message names the row.
    """
    all_labels = flat_labels(labels)
    numbers = {label: whole_number(label) for label in all_labels if label not in class_names}
    if not class_names or all(number is None for number in numbers.values()):
        return labels
    if {*numbers.values()} == {-1} and len(numbers) == len({*all_labels}):
        return []
    if all(whole_number(label) is not None for label in all_labels):
        numbers = {label: whole_number(label) for label in all_labels}

    return _map_labels(
        labels, table, lambda label, row: _class_name(numbers.get(label, label), class_names, table, row)
    )


def _map_labels(labels: Sequence[Any], table: Table, name: Callable[[Any, int], Any]) -> list[Any]:
    """Apply ``name`` to each label of a table with its row, or to each label of a set."""
    numbered = zip(table.rows, labels, strict=True)
    if are_sets(labels):
        return [LabelSet(sorted(name(label, row) for label in label_set)) for row, label_set in numbered]
    return [name(label, row) for row, label in numbered]


def named_labels(labels: Sequence[Any], class_names: Sequence[str], table: Table) -> list[Any]:
    """The class names of numeric labels, by the names in the file itself.

    Raises:
        DataError: a number without a class name, or a class name that is invalid or occurs twice.
    """
    check_class_names(class_names, table.origin)
    return _map_labels(labels, table, lambda label, row: _class_name(label, class_names, table, row))


def _class_name(label: Any, class_names: Sequence[str], table: Table, row: int) -> str:
    if not isinstance(label, int) or not 0 <= label < len(class_names):
        fix = f"The file has class names for 0 to {len(class_names) - 1}: {', '.join(class_names)}"
        raise DataError(f"label {label!r} has no name", where=f"{table.origin}, row {row}", fix=fix)
    return class_names[label]


def with_integer_labels(splits: Mapping[str, Any], untyped: set[str]) -> dict[str, Any]:
    """Convert labels of CSV files, which have no types, to ``int`` if every text label is an integer."""
    texts = {k: {x for x in flat_labels(v.labels) if isinstance(x, str)} for k, v in splits.items()}
    if any(distinct and (k not in untyped or not all(map(WHOLE, distinct))) for k, distinct in texts.items()):
        return dict(splits)
    out = dict(splits)
    for name in untyped & splits.keys():
        if (labels := splits[name].labels) is not None:
            whole = [LabelSet(sorted({*map(int, own)})) if are_sets(labels) else int(own) for own in labels]
            out[name] = replace(splits[name], labels=whole)
    return out


# --- multi-label tables with one 0/1 column per label ---------------------------------------------
# These columns are replaced by one column of lists.

NAME_SEPARATOR = ","  # separates the names of columns in the setting label_column


def parse_columns(names: Sequence[str], setting: str | None) -> list[str]:
    """The columns that a setting such as ``joy,anger,fear`` lists; empty unless it lists several."""
    parts = [part.strip() for part in (setting or "").split(NAME_SEPARATOR)]
    is_list = len(parts) > 1 and setting not in names
    return parts if is_list and all(part in names for part in parts) else []


def with_label_sets(
    table: Table, label: str | None, taken: Sequence[str | None] = (), *, guess: bool = False
) -> tuple[Table, str | None, str]:
    """Add a column of label lists to a table with several 0/1 columns; its name is their names, joined.

    Args:
        label: column given by the user, or several separated by commas.
        taken: columns that are not labels.
        guess: if ``label`` is None, use all 0/1 columns, provided that there are two or more and no other
            column could be the label.

    Returns:
        The table, the column of labels (None: unknown), and a message if the columns were detected.
    """
    names, message = parse_columns(table.names, label), ""
    if not names and label is None and guess:
        names = _indicator_columns(table, taken)
        message = f"multi-label, detected by content: {listed(names)} have 1 where a label "
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


def _labels_of_row(names: Sequence[str], cells: Sequence[Any]) -> list[str] | Unusable:
    """The labels of a row, or the reason why it is unusable."""
    values = [yes_or_no(cell) for cell in cells]
    if None in values:
        at = values.index(None)
        cell = cells[at]
        what = "nothing" if is_missing(cell) else repr(cell)[:40]
        return Unusable(f"column {names[at]!r} has {what} instead of 0 or 1")
    return [name for name, applies in zip(names, values, strict=True) if applies]


def _indicator_columns(table: Table, taken: Sequence[str | None]) -> list[str]:
    """All 0/1 columns; empty if there are fewer than two, or if another column could be the label."""
    free = free_columns(table, *taken)
    if any(name.lower() in LABEL_COLUMNS for name in free):
        return []
    values = {name: table.read(name) for name in free}
    flags = [name for name in free if are_yes_no(values[name])]
    rest = [name for name in free if name not in flags and looks_like_labels(values[name])]
    rest = [
        name for name in rest if not is_constant(present(values[name])) and not names_person_or_place(name)
    ]
    return flags if len(flags) > 1 and not rest else []


# --- targets among the inputs ---------------------------------------------------------------------
# Errors if a column of a table in memory, or one side of pairs, contains the targets.

TARGET_NAMES = frozenset([*LABEL_COLUMNS, "y", "score", "tag", "rating", "stars", "number", "value"])


def refuse_targets(table: MemoryTable, y: Any, max_columns: int, noun: str, word: str = "labels") -> None:
    """Raise DataError if a column of the ``X`` of ``fit`` contains the targets.

    Args:
        y: one target per row; None: only the names of the columns are checked.
        most: maximum number of columns of an example.
        noun, word: names of examples and targets in messages.
    """
    targets = None if y is None else list(map(normalized, as_list(y)))
    for i, label in enumerate(table.keys):
        if targets is None:
            cells = table.first(i)
            repeats = len({*map(str, cells)}) <= len(cells) / 2
            found = len(table) > 1 and _has_target_name(label) and (repeats or all(map(is_number, cells)))
        elif len(table) == 1:  # the only column is an error only if it equals the targets
            cells = list(map(normalized, table.first(i)))
            found = cells == targets[: len(cells)] and gives_away(table.column(i), targets, (), True)
        else:
            others = [table.column(k) for k in range(len(table)) if k != i]
            found = gives_away(table.column(i), targets, others, _has_target_name(label))
        if found:
            fix = f"Give the column of {noun}"
            if len(table) > 1:
                input_columns = inputs_of(table, max_columns, label)
                fix += f" without the {word}: fit({table.code(*input_columns)}, {table.code(label)})"
            raise UnclearColumnError(f"column {label!r} of X holds the {word}", where="fit", fix=fix)


def refuse_target_sides(sides: Sequence[Sequence[Any]], y: Iterable[Any], noun: str) -> None:
    """Like ``refuse_targets``, for pairs given as tuples."""
    if (match := _target_side(sides, y)) is not None:
        i, equal = match
        how = "is its label" if equal else "has one value for each label"
        what = f"the {SIDES[i]} text of each pair {how}"
        fix = f"Pass the {noun} without the labels: fit([pair[{1 - i}] for pair in X], y)"
        raise UnclearColumnError(what, where="fit", fix=fix)


def refuse_target_columns(split: Any, columns: tuple[str, str]) -> None:
    """Like ``refuse_targets``, for pairs read from two columns of a table."""
    sides = list(zip(*(pair.sides for pair in split.examples), strict=True))
    if (match := _target_side(sides, split.labels or ())) is not None:
        i, equal = match
        what = f"column {columns[i]!r}, read as the {SIDES[i]} text of pairs, "
        what += "holds the labels" if equal else "has one value for each label"
        alone = shlex.quote(columns[1 - i])
        fix = f"Read only {columns[1 - i]!r}: text_column {alone} pair_column none"
        raise UnclearColumnError(what, where=split.origin, fix=fix)


def _target_side(sides: Sequence[Sequence[Any]], y: Iterable[Any]) -> tuple[int, bool] | None:
    """The side of pairs that contains the targets, and whether it equals them; None if neither does."""
    targets = list(map(normalized, y))
    for i, side in enumerate(sides):
        others = [other for k, other in enumerate(sides) if k != i]
        if gives_away(side, targets, others, False):
            return i, list(map(normalized, side)) == targets
    return None


def gives_away(
    values: Sequence[Any], targets: Sequence[str], others: Sequence[Sequence[Any]], target_name: bool
) -> bool:
    """Whether a column contains the targets: the same values, or one value of its own for each target.

    Args:
        targets: normalized by ``normalized``.
        other_columns: the other columns. If their values repeat as well, as in a table of a few repeated
            rows, the result is False.
        target_name: whether the column has a usual name of targets; then several values may mean one target.
    """
    if len(values) != len(targets) or not targets:
        return False
    column = list(map(normalized, values))
    if column == list(targets):
        return True
    if not others or not _determines(column, targets):
        return False
    if target_name:
        return True
    return len(set(column)) == len(set(targets)) and all(len({*map(str, x)}) > len(x) / 2 for x in others)


def normalized(value: Any) -> str:
    """Normalize a value for comparison: numbers by value, texts case-folded."""
    if is_number(value) and getattr(value, "size", 1) == 1:
        return repr(float(value))
    return str(value).strip().casefold()


def _determines(values: Sequence[str], targets: Sequence[str]) -> bool:
    """Whether there are few distinct values, and each always occurs with the same target."""
    target_of: dict[str, str] = {}
    for value, target in zip(values, targets, strict=True):
        if target_of.setdefault(value, target) != target or len(target_of) > len(values) / 2:
            return False
    return True


def inputs_of(table: MemoryTable, limit: int, target: Any = None) -> Sequence[Any]:
    """The columns of the examples: a usual pair of names, or the only two columns of texts, or one column."""
    columns = [(i, label) for i, label in enumerate(table.keys) if label != target]
    texts = [label for i, label in columns if all(isinstance(value, str) for value in table.first(i))]
    names = [label for label in texts if isinstance(label, str)]
    usual = usual_pair_columns(names, COMPARED_COLUMNS) if limit > 1 else None
    if usual is None and len(texts) == limit == 2 and not {name.lower() for name in names} & {*TEXT_COLUMNS}:
        return texts
    return usual or [likeliest(table, [target])]


def _has_target_name(label: Any) -> bool:
    return isinstance(label, str) and label.lower() in TARGET_NAMES
