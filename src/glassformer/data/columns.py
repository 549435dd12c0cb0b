"""Detection of the columns with texts, pairs of texts and labels: by name, else by content.

All commands follow one rule: the column that the user names; else one with a usual name; else, if there are
two columns, the other one; else the only column that looks like texts, and the only one like labels.
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
from glassformer.data.label_sets import LabelSet, Unusable, are_sets, check_sets, each, holds_sets, of_column
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
UNEVEN = 2.0  # a column this many times as long as the next has the texts, and the next has titles or names


@dataclass(frozen=True)
class Columns:
    """The columns of a table; ``said`` is a message to the user if they were detected by their content."""

    text: str
    label: str | None
    said: str = ""
    pair: str | None = None  # column of the second texts, if a row has two
    candidates: tuple[str, ...] = ()  # if several columns could be the label: those, the likeliest first
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
        text, label: names given by the user; None: not given.
        labels: detect labels by content; otherwise only a column that is named or has a usual name counts.
        need_labels: a table without labels is an error.
        pairs: a row may have two texts, which error messages then mention.

    Raises:
        DataError: no such column, none or several candidates, or the same column for both.
    """
    found_text = find_column(table, text, TEXT_COLUMNS, "text")
    found_label = find_column(table, label, LABEL_COLUMNS, "label")
    free, guessed = free_of(table, found_text, found_label), False
    if found_text is None and found_label is not None and len(free) == 1:
        found_text = free[0]
    elif found_text is None and free:
        found_text = _guess_text(table, free, need_labels and pairs)
        guessed = found_text is not None
    if label is not None and found_label is not None and (found_text is None or found_text != text):
        _refuse_texts(table, found_label, found_text)
    if found_text is None:
        raise no_column(table, "text")
    if found_text == found_label:
        other = [name for name in table.names if name != found_text]
        fix = f"Name another one with label_column: {listed(other)}"
        fix = "Name both with text_column and label_column" if label is None else fix
        what = f"column {found_text!r} is taken for the text and for the label"
        raise UnclearColumnError(what, where=table.origin, fix=fix)
    several: list[str] = []
    if found_label is None:
        look = labels or need_labels
        found_label = _label_beside(table, [found_text], need_labels, several, found_text, look)
        guessed = guessed or found_label is not None
    said = [f"{_several(several)}: name it with label_column"] if several else []
    if guessed:
        both = f"texts in {found_text!r}" + (f", labels in {found_label!r}" if found_label else "")
        said.append(f"detected by content: {both}; set text_column and label_column to override")
    rest = free_of(table, found_text) if found_label is None else []
    measured = next((name for name in rest if measures(table.read(name))), None)
    candidates = likeliest_labels(table, several)
    return Columns(found_text, found_label, "; ".join(said), candidates=candidates, numbers=measured)


def free_of(table: Table, *taken: str | None) -> list[str]:
    """The columns of a table that are neither ``taken`` nor written by a label review."""
    return [name for name in table.names if name not in taken and not name.startswith(REVIEWED)]


def _refuse_texts(table: Table, label: str, text: str | None) -> None:
    """Raise an error if the column named for the labels holds the texts and no other column holds any."""
    values = table.read(label)
    if text_size(values) is None or (text is not None and text_size(table.read(text)) is not None):
        return
    there = [value for value in values if not is_missing(value)]
    what = f"{label!r} is named as the column of labels but contains the texts: "
    what += f"{len({*there}):,} different ones in {len(there):,} rows"
    others = [n for n in table.names if n != label and looks_like_labels(table.read(n))]
    known = list(likeliest_labels(table, others)) or [n for n in table.names if n != label]
    fix = "Name the column of classes with label_column" + (f", such as {known[0]!r}" if known else "")
    raise UnclearColumnError(what, where=table.origin, fix=fix)


def likeliest_labels(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    """Columns that could be the label, the likeliest first.

    Names of classes ("kind") come first, names of people or places ("handled by", "store") last; ties are
    decided by the number of values (fewest first), then by the order in the table.
    """

    def rank(name: str) -> tuple[bool, bool, int]:
        besides = tells_besides(name)
        values = len({*map(str, present(table.read(name)))})
        return besides, besides or _words(name).isdisjoint(CLASSES), values

    return tuple(sorted(names, key=rank)) if len(names) > 1 else tuple(names)


def _words(name: str) -> set[str]:
    return {*re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())}


def tells_besides(name: str) -> bool:
    """Whether a column's name is one of people or places; texts without labels have such columns, too."""
    return not _words(name).isdisjoint(PEOPLE) or any(map(PLACES.fullmatch, _words(name)))


def _several(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{names[0]!r} could be the label by its content, but not by its name"
    return f"several columns could be the label ({listed(names)})"


def find_label(table: Table, wanted: str | None, taken: str, needed: bool = False) -> str | None:
    """The column of labels, if the column of images is known; None: there is none.

    Raises:
        DataError: no such column, several with usual names, or none although it is ``needed``.
    """
    return find_column(table, wanted, LABEL_COLUMNS, "label") or _label_beside(table, [taken], needed)


def find_text(table: Table, wanted: str | None = None, usual: Sequence[str | None] = ()) -> str:
    """The column of texts of a table whose labels are not needed.

    Args:
        usual: if ``wanted`` is None, the first of these columns that exists is used.

    Raises:
        DataError: no such column, or none or several candidates.
    """
    if wanted is None:
        wanted = next((name for name in usual if name in table.names), None)
    if wanted is None and len(table.names) == 1:
        return table.names[0]
    found = find_column(table, wanted, TEXT_COLUMNS, "text")
    if found is None:
        free = [name for name in free_of(table) if name.lower() not in LABEL_COLUMNS]
        found = free[0] if len(free) == 1 < len(table.names) else _guess_text(table, free, False)
    if found is None:
        fix = f"Name it with text_column: {listed(table.names)}"
        raise UnclearColumnError("no column of texts", where=table.origin, fix=fix)
    return found


def find_column(table: Table, wanted: str | None, usual: Sequence[str], kind: str) -> str | None:
    """The column ``wanted``, else the one with a usual name; the first usual name has priority.

    Raises:
        DataError: no such column, or several candidates.
    """
    table.check_columns(wanted)
    if wanted is not None:
        return wanted
    found = [name for name in table.names if name.lower() in usual]
    if len(found) > 1:
        exact = [name for name in found if name.lower() == usual[0]]
        if len(exact) != 1:
            what = f"several columns could be the {kind}: {listed(found)}"
            raise UnclearColumnError(what, where=table.origin, fix=f"Name it with {kind}_column")
        return exact[0]
    return found[0] if found else None


def no_column(table: Table, kind: str) -> DataError:
    """The error if neither names nor content show which column is meant."""
    what = f"no column {kind!r}"
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


def _label_beside(
    table: Table,
    taken: Sequence[str],
    need_labels: bool,
    several: list[str] | None = None,
    text: str | None = None,
    look: bool = True,
) -> str | None:
    """The only column except ``taken`` that looks like labels; if several do, ``several`` gets their names.

    An error also mentions rows whose ``text`` is empty, which would be the next error.
    """
    names = free_of(table, *taken) if look else []
    values = {name: table.read(name) for name in names}
    like = [name for name in names if looks_like_labels(values[name])]
    for other in (is_constant, are_numbers, are_dates):  # a count or a year next to the names of classes
        if len(like) > 1:
            like = [name for name in like if not other(present(values[name]))] or like
    if len(like) == 1 and (need_labels or several is None or not tells_besides(like[0])):
        return like[0]
    if like and several is not None:
        several += like
    if not need_labels:
        return None
    if like:
        fix = "Name it with label_column"
        together = [name for name in names if are_yes_no(values[name])]
        if len(together) > 1:
            all_of_them = shlex.quote(",".join(together))
            fix += f"; if each of several is a label that applies (1) or not (0): label_column={all_of_them}"
        empty = sum(is_missing(value) for value in table.read(text)) if text else 0
        if empty:
            fix += f"; {empty:,} row{'s' * (empty > 1)} without a text can be left out with on_bad_row=skip"
        raise UnclearColumnError(_several(like), where=table.origin, fix=fix)
    if len(names) == 1:
        _refuse_doubtful(table, names[0], values[names[0]])
    raise no_column(table, "label")


def _refuse_doubtful(table: Table, name: str, values: Sequence[Any]) -> None:
    """Raise an error if the only column left does not look like labels; it says what the column holds."""
    there = [value for value in values if not is_missing(value)]
    distinct = len({str(value) for value in there})
    what = f"no column 'label': {name!r} holds {distinct:,} different values in {len(there):,} rows"
    numbers = are_numbers(there)
    what += "; these look like numbers, not classes" if numbers else ""
    hint = f"{CUT}. " if numbers else f"{nearest('label', [name])} "
    fix = f"{hint}Name a column of a few classes with label_column"
    raise UnclearColumnError(what, where=table.origin, fix=fix[0].upper() + fix[1:])


def parquet_texts(source: str | Path, schema: Any) -> list[str]:
    """The columns whose first rows look like texts; only one, if its texts are by far the longest."""
    import pyarrow as pa

    sizes = {}
    for field in schema:
        kind = field.type
        if pa.types.is_dictionary(kind):  # pandas categories
            kind = kind.value_type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            for first in islice(batches(source, field.name, [0]), 1):
                if (size := text_size(to_list(first.slice(0, SAMPLE), source, 0))) is not None:
                    sizes[field.name] = size
    return _longest(sizes)


def _longest(sizes: Mapping[str, float]) -> list[str]:
    """Columns of texts by size, the longest first; only the first if it is by far the longest."""
    ranked = sorted(sizes, key=lambda name: -sizes[name])
    alone = len(ranked) > 1 and sizes[ranked[0]] >= UNEVEN * sizes[ranked[1]]
    return ranked[:1] if alone else ranked


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
COMPARED = (*PAIR_COLUMNS, ("anchor", "positive"), ("a", "b"), ("first", "second"))


@dataclass(frozen=True)
class Sides:
    """The two columns of pairs; ``said`` is a message to the user if they were detected."""

    first: str
    second: str
    said: str = ""


def usual_sides(
    names: Sequence[str], pairs: Sequence[tuple[str, str]] = PAIR_COLUMNS
) -> tuple[str, str] | None:
    """The two columns whose names are one of ``pairs``; None: there are none."""
    known = {name.lower(): name for name in names}
    return next(((known[a], known[b]) for a, b in pairs if a in known and b in known), None)


def find_sides(
    table: Table, text: str | None, pair: str, label: str | None = None, *, guess: bool = True
) -> Sides | None:
    """The columns of the first and of the second texts; None: the table has one text per row.

    Args:
        text, label: columns named by the user; ``text`` alone means one text per row.
        pair: the second column's name, or ``auto`` or ``none``.
        guess: if names do not decide, two columns with texts of similar length are the pair.

    Raises:
        DataError: no such column, the same column for both texts, or a second column without a first one.
    """
    if pair == NONE or (pair == AUTO and text is not None):
        return None
    if pair != AUTO:
        return _named(table, text, pair, label)
    free = free_of(table, label)
    found, how = usual_sides(free), "by their names"
    if found is None and guess and not any(name.lower() in TEXT_COLUMNS for name in free):
        known = label is not None or any(name.lower() in LABEL_COLUMNS for name in free)
        found, how = _only_two(table, free, known), "by content"
    if found is None:
        return None
    said = f"pairs of texts, detected {how}: {found[0]!r} and {found[1]!r}; text_column names one text alone"
    return Sides(*found, said)


def _named(table: Table, text: str | None, pair: str, label: str | None) -> Sides:
    if pair not in table.names:
        table.check_columns(pair)
    first = None if text is None else find_column(table, text, TEXT_COLUMNS, "text")
    free = free_of(table, pair, label)
    if first is None:
        names = {name.lower(): name for name in free}
        first = next((names[a] for a, b in PAIR_COLUMNS if b == pair.lower() and a in names), None)
    if first is None:
        texts = [name for name in free if text_size(table.read(name)) is not None]
        usual = [name for name in texts if name.lower() in TEXT_COLUMNS]
        first = texts[0] if len(texts) == 1 else usual[0] if len(usual) == 1 else None
    if first is None:
        fix = f"Name it with text_column: {listed(table.names)}"
        raise UnclearColumnError(f"no first text to go with {pair!r}", where=table.origin, fix=fix)
    if first == pair:
        what = f"column {pair!r} is taken for the first text and for the second"
        raise UnclearColumnError(what, where=table.origin, fix="Name two with text_column and pair_column")
    return Sides(first, pair)


def columns_of_pairs(
    table: Table, text: str | None, label: str | None, pair: str, *, labels: bool, need_labels: bool
) -> Columns | None:
    """Like ``find_columns``, for a table of pairs; None: a row has one text. For arguments and errors see it
    and ``find_sides``."""
    sides = find_sides(table, text, pair, label, guess=labels)
    if sides is None:
        return None
    two, said, several = (sides.first, sides.second), [sides.said] if sides.said else [], list[str]()
    found = find_column(table, label, LABEL_COLUMNS, "label")
    if found in two:
        what = f"column {found!r} is taken for a text and for the label"
        raise UnclearColumnError(what, where=table.origin, fix="Name another with label_column")
    if found is None:
        found = _label_beside(table, two, need_labels, several, look=labels or need_labels)
        said += [f"labels in {found!r}, detected by content; label_column names another"] if found else []
    said += [f"{_several(several)}: name it with label_column"] if several else []
    return Columns(sides.first, found, "; ".join(said), sides.second, likeliest_labels(table, several))


def read_inputs(table: Table, found: Columns) -> list[str]:
    """The texts of a table, or its pairs; for errors see ``check_texts``."""
    texts = table.read(found.text)
    if found.pair is None:
        return check_texts(texts, table.origin, table.rows)
    return join_sides(texts, table.read(found.pair), table.origin, table.rows)


def row_checks(found: Columns) -> dict[str, Callable]:
    """Column of texts -> function that raises an error for an invalid value."""
    if found.pair is None:
        return {found.text: check_cells}
    sides = zip((found.text, found.pair), SIDES, strict=True)
    return {name: partial(check_side, which=f"{which} text", origin="", rows=[0]) for name, which in sides}


def _only_two(table: Table, names: Sequence[str], labeled: bool = False) -> tuple[str, str] | None:
    """The only two columns of texts, unless one is so much longer that the other holds its titles.

    Args:
        labeled: the column of the labels is known, so that sentences that repeat, as a premise does with
            each of its hypotheses, are texts and not classes.
    """
    sizes = {name: size for name in names if (size := text_size(table.read(name))) is not None}
    if labeled and len(sizes) == 1:
        others = [name for name in names if name not in sizes and name.lower() not in LABEL_COLUMNS]
        again = {name: size for name in others if (size := sentence_size(table.read(name))) is not None}
        sizes = {name: (sizes | again)[name] for name in names if name in sizes or name in again}
    if len(sizes) != 2 or max(sizes.values()) >= UNEVEN * min(sizes.values()):
        return None
    first, second = sizes
    return first, second


def trained_sides(
    names: Sequence[str],
    text: str | None,
    pair: str | None,
    where: str | Path,
    trained: Sequence[str | None] = (),
) -> Sides:
    """The two columns of a table that a model of pairs reads: those named by the user, else the columns with
    the names used in training, in any order.

    A table with usual names, without a header, or for a model whose columns had no names, is read in the
    order of its columns; ``said`` then tells the user.

    Args:
        text, pair: columns named by the user; None, ``auto`` and ``none``: detect them.
        trained: the first and second column in training; empty: unknown.
    """
    known = (None, None) if all(name and NAMELESS(name) for name in trained) else (*trained, None)[:2]
    both = zip((text, pair), known, strict=True)
    named = [None if name in (own, AUTO, NONE) else name for name, own in both]
    for name in named:
        if name is not None and name not in names:
            raise NoSuchColumnError(f"no column {name!r}", where=str(where), fix=nearest(name, names))
    places = {name.lower(): name for name in names} | {name: name for name in names}
    both = zip(named, known, strict=True)
    found = [name or (own and places.get(own, places.get(own.lower()))) for name, own in both]
    free = [name for name in names if name not in found and name.lower() not in LABEL_COLUMNS]
    how = ""
    if sum(map(bool, found)) == 1 and len(free) == 1:  # of two columns, the other one
        found, how = [name or free[0] for name in found], "the only other column"
    elif not any(found):
        if usual := usual_sides(names):
            found, how = list(usual), "by their usual names"
        elif len(free) == 2 and (not any(known) or all(map(NAMELESS, free))):
            found, how = free, "by their order"
    first, second = found
    if not first or not second or first == second:
        raise _no_sides(names, trained if any(known) else (), where)
    said = f"{first!r} is read as the first text and {second!r} as the second, {how}"
    return Sides(first, second, f"{said}; set text_column and pair_column to override" if how else "")


def _no_sides(names: Sequence[str], trained: Sequence[str | None], where: str | Path) -> DataError:
    """The error for a table whose columns do not show which texts are first and which second."""
    what = ", and which two columns they are is not clear"
    if own := [name for name in trained if name]:
        lacking = " and ".join(repr(name) for name in own if name not in names)
        what = f", in training from {' and '.join(map(repr, own))}, and the table lacks {lacking}"
    fix = "Name the column of the first texts with text_column, that of the second with pair_column"
    fix += f": {listed(list(names))}"
    return UnclearColumnError(f"this model reads pairs of texts{what}", where=str(where), fix=fix)


WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}").fullmatch  # different strings are different numbers


def read_labels(
    table: Table, column: str, class_names: Sequence[str], separator: str | None = None
) -> Sequence[Any]:
    """The labels, by name if the file has names; empty if all are -1, which ``datasets`` uses for no label.

    Args:
        separator: separator between labels in a multi-label cell; None: a cell is one label, or a list.

    Raises:
        DataError: an invalid label; the message names the row.
    """
    values = table.read(column)
    if separator is not None or holds_sets(values):
        sets = check_sets(of_column(values, separator, column), table.origin, table.rows)
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
        return {label: lambda values: check_sets(of_column(values, separator))}
    names = table.class_names.get(label, ())
    if not names or all(value == -1 for value in values):
        return {label: check_labels}
    return {label: lambda cells: [_class_name(own, names, table, 0) for own in check_labels(cells)]}


def by_name(labels: Sequence[Any], class_names: Sequence[str], table: Table) -> Sequence[Any]:
    """The labels of a file without class names, named by the class names of an earlier file.

    Labels that are all names stay as they are; a mixture of names and numbers is an error.

    Raises:
        DataError: a number without a name, or next to names; the message names its row.
    """
    every = each(labels)
    numbers = {label: whole_number(label) for label in every if label not in class_names}
    if not class_names or all(number is None for number in numbers.values()):
        return labels
    if {*numbers.values()} == {-1} and len(numbers) == len({*every}):
        return []
    if all(whole_number(label) is not None for label in every):
        numbers = {label: whole_number(label) for label in every}

    return _mapped(
        labels, table, lambda label, row: _class_name(numbers.get(label, label), class_names, table, row)
    )


def _mapped(labels: Sequence[Any], table: Table, name: Callable[[Any, int], Any]) -> list[Any]:
    """Apply ``name`` to each label of a table with its row, or to each label of a set."""
    both = zip(table.rows, labels, strict=True)
    if are_sets(labels):
        return [LabelSet(sorted(name(label, row) for label in own)) for row, own in both]
    return [name(label, row) for row, label in both]


def named_labels(labels: Sequence[Any], class_names: Sequence[str], table: Table) -> list[Any]:
    """The class names of numeric labels, by the names in the file itself.

    Raises:
        DataError: a number without a name, or a name that is not a valid label or occurs twice.
    """
    check_class_names(class_names, table.origin)
    return _mapped(labels, table, lambda label, row: _class_name(label, class_names, table, row))


def _class_name(label: Any, class_names: Sequence[str], table: Table, row: int) -> str:
    if not isinstance(label, int) or not 0 <= label < len(class_names):
        fix = f"The file names 0 to {len(class_names) - 1}: {', '.join(class_names)}"
        raise DataError(f"label {label!r} has no name", where=f"{table.origin}, row {row}", fix=fix)
    return class_names[label]


def whole_numbers(splits: Mapping[str, Any], untyped: set[str]) -> dict[str, Any]:
    """CSV has no types: if every text label is an integer, those of CSV files become ``int``."""
    texts = {k: {x for x in each(v.labels) if isinstance(x, str)} for k, v in splits.items()}
    if any(found and (k not in untyped or not all(map(WHOLE, found))) for k, found in texts.items()):
        return dict(splits)
    out = dict(splits)
    for name in untyped & splits.keys():
        if (labels := splits[name].labels) is not None:
            whole = [LabelSet(sorted({*map(int, own)})) if are_sets(labels) else int(own) for own in labels]
            out[name] = replace(splits[name], labels=whole)
    return out


# --- multi-label tables with one 0/1 column per label ---------------------------------------------
# These columns are replaced by one column of lists.

BETWEEN = ","  # separates the names of columns in the setting label_column


def named_together(names: Sequence[str], wanted: str | None) -> list[str]:
    """The columns that a name such as ``joy,anger,fear`` lists; empty unless there are several."""
    parts = [part.strip() for part in (wanted or "").split(BETWEEN)]
    several = len(parts) > 1 and wanted not in names
    return parts if several and all(part in names for part in parts) else []


def with_label_sets(
    table: Table, label: str | None, taken: Sequence[str | None] = (), *, guess: bool = False
) -> tuple[Table, str | None, str]:
    """Add a column of label lists to a table with several 0/1 columns; its name joins theirs.

    Args:
        label: column given by the user, or several separated by commas.
        taken: columns that are not labels.
        guess: if ``label`` is None, use all 0/1 columns, provided that there are two or more and no other
            column could be the label.

    Returns:
        The table, the column of labels (None: not known), and a message if the columns were detected.
    """
    names, said = named_together(table.names, label), ""
    if not names and label is None and guess:
        names = _found(table, taken)
        said = f"multi-label, detected by content: {listed(names)} have 1 where a label "
        said += "applies; label_column names one of them alone"
    if not names:
        return table, label, ""
    joined = BETWEEN.join(names)

    def read(name: str) -> list[Any]:
        if name != joined:
            return table.read(name)
        columns = [table.read(own) for own in names]
        return [_set(names, cells) for cells in zip(*columns, strict=True)]

    return replace(table, names=(*table.names, joined), read=read), joined, said


def _set(names: Sequence[str], cells: Sequence[Any]) -> list[str] | Unusable:
    """The labels of a row, or the reason why it is unusable."""
    found = [yes_or_no(cell) for cell in cells]
    if None in found:
        at = found.index(None)
        cell = cells[at]
        what = "nothing" if is_missing(cell) else repr(cell)[:40]
        return Unusable(f"column {names[at]!r} has {what} instead of 0 or 1")
    return [name for name, there in zip(names, found, strict=True) if there]


def _found(table: Table, taken: Sequence[str | None]) -> list[str]:
    """All 0/1 columns; empty if there are fewer than two, or if another column could be the label."""
    free = free_of(table, *taken)
    if any(name.lower() in LABEL_COLUMNS for name in free):
        return []
    values = {name: table.read(name) for name in free}
    ours = [name for name in free if are_yes_no(values[name])]
    others = [name for name in free if name not in ours and looks_like_labels(values[name])]
    others = [name for name in others if not is_constant(present(values[name])) and not tells_besides(name)]
    return ours if len(ours) > 1 and not others else []


# --- targets among the inputs ---------------------------------------------------------------------
# Errors if a column of a table in memory, or one side of pairs, contains the targets.

TARGET_NAMES = frozenset([*LABEL_COLUMNS, "y", "score", "tag", "rating", "stars", "number", "value"])


def refuse_targets(table: MemoryTable, y: Any, most: int, noun: str, word: str = "labels") -> None:
    """Raise DataError if a column of the ``X`` of ``fit`` contains the targets.

    Args:
        y: one target per row; None: columns are checked by their names.
        most: maximum number of columns of an example.
        noun, word: names of examples and targets in messages.
    """
    targets = None if y is None else list(map(plain, as_list(y)))
    for i, label in enumerate(table.labels):
        if targets is None:
            first = table.first(i)
            repeats = len({*map(str, first)}) <= len(first) / 2
            found = len(table) > 1 and _has_target_name(label) and (repeats or all(map(is_number, first)))
        elif len(table) == 1:  # the only column is an error only if it equals the targets
            first = list(map(plain, table.first(i)))
            found = first == targets[: len(first)] and gives_away(table.column(i), targets, (), True)
        else:
            others = [table.column(k) for k in range(len(table)) if k != i]
            found = gives_away(table.column(i), targets, others, _has_target_name(label))
        if found:
            fix = f"Give the column of {noun}"
            if len(table) > 1:
                kept = inputs_of(table, most, label)
                fix = f"Give the {noun} alone: fit({table.code(*kept)}, {table.code(label)})"
            raise UnclearColumnError(f"column {label!r} of X holds the {word}", where="fit", fix=fix)


def refuse_target_sides(sides: Sequence[Sequence[Any]], y: Iterable[Any], noun: str) -> None:
    """Like ``refuse_targets``, for pairs given as tuples."""
    if (found := _target_side(sides, y)) is not None:
        i, equal = found
        how = "is its label" if equal else "has one value for each label"
        what = f"the {SIDES[i]} text of each pair {how}"
        fix = f"Give the {noun} alone: fit([pair[{1 - i}] for pair in X], y)"
        raise UnclearColumnError(what, where="fit", fix=fix)


def refuse_target_columns(split: Any, columns: tuple[str, str]) -> None:
    """Like ``refuse_targets``, for pairs read from two columns of a table."""
    sides = list(zip(*(pair.sides for pair in split.examples), strict=True))
    if (found := _target_side(sides, split.labels or ())) is not None:
        i, equal = found
        what = f"column {columns[i]!r}, read as the {SIDES[i]} text of pairs, "
        what += "holds the labels" if equal else "has one value for each label"
        alone = shlex.quote(columns[1 - i])
        fix = f"Read {columns[1 - i]!r} alone: text_column {alone} pair_column none"
        raise UnclearColumnError(what, where=split.origin, fix=fix)


def _target_side(sides: Sequence[Sequence[Any]], y: Iterable[Any]) -> tuple[int, bool] | None:
    """The side of pairs that contains the targets, and whether it equals them; None if neither does."""
    targets = list(map(plain, y))
    for i, side in enumerate(sides):
        others = [other for k, other in enumerate(sides) if k != i]
        if gives_away(side, targets, others, False):
            return i, list(map(plain, side)) == targets
    return None


def gives_away(
    values: Sequence[Any], targets: Sequence[str], others: Sequence[Sequence[Any]], target_name: bool
) -> bool:
    """Whether a column contains the targets: the same values, or one other value for each target.

    Args:
        targets: normalized by ``plain``.
        others: the other columns of the table. If they repeat as well, as in a table that repeats a few rows,
            the result is False.
        target_name: the column has a usual name of targets; then several values may stand for one target.
    """
    if len(values) != len(targets) or not targets:
        return False
    given = list(map(plain, values))
    if given == list(targets):
        return True
    if not others or not _determines(given, targets):
        return False
    if target_name:
        return True
    return len(set(given)) == len(set(targets)) and all(len({*map(str, x)}) > len(x) / 2 for x in others)


def plain(value: Any) -> str:
    """Normalize a value for comparison: numbers by value, texts case-folded."""
    if is_number(value) and getattr(value, "size", 1) == 1:
        return repr(float(value))
    return str(value).strip().casefold()


def _determines(given: Sequence[str], targets: Sequence[str]) -> bool:
    """Whether there are few distinct values, and each always occurs with the same target."""
    known: dict[str, str] = {}
    for value, target in zip(given, targets, strict=True):
        if known.setdefault(value, target) != target or len(known) > len(given) / 2:
            return False
    return True


def inputs_of(table: MemoryTable, most: int, target: Any = None) -> Sequence[Any]:
    """The columns of the examples: a usual pair of names, or the only two columns of texts, or one column."""
    others = [(i, label) for i, label in enumerate(table.labels) if label != target]
    texts = [label for i, label in others if all(isinstance(value, str) for value in table.first(i))]
    names = [label for label in texts if isinstance(label, str)]
    usual = usual_sides(names, COMPARED) if most > 1 else None
    if usual is None and len(texts) == most == 2 and not {name.lower() for name in names} & {*TEXT_COLUMNS}:
        return texts
    return usual or [likeliest(table, [target])]


def _has_target_name(label: Any) -> bool:
    return isinstance(label, str) and label.lower() in TARGET_NAMES
