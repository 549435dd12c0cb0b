"""Which two columns of a table are the sides of pairs: those that are named, that have usual names, or the
only two that hold texts of like length."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.config import listed, nearest
from glassformer.data.checks import check_cells, check_labels, check_texts
from glassformer.data.column_contents import sentence_size, text_size
from glassformer.data.columns import LABEL_COLUMNS, TEXT_COLUMNS, UNEVEN, Columns, find_column, label_beside
from glassformer.data.spreadsheet import REVIEWED
from glassformer.data.tables import Table
from glassformer.data.text_pairs import SECOND_CELL, SIDES, join_sides
from glassformer.errors import DataError

AUTO, NONE = "auto", "none"  # what a recipe's pair_column says where it names no column
NAMELESS = re.compile(r"column\d+").fullmatch  # what columns without a header are called
PAIR_COLUMNS = (  # usual names of two columns of texts that belong together
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("sentence_a", "sentence_b"),
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("text", SECOND_CELL),
    ("question1", "question2"),
    ("question", "answer"),
    ("query", "passage"),
    ("query", "document"),
)
# Of a table whose rows are pairs in any case, these names too say which columns they are.
COMPARED = (*PAIR_COLUMNS, ("anchor", "positive"), ("a", "b"), ("first", "second"))


@dataclass(frozen=True)
class Sides:
    """Two columns; ``said`` is a sentence where they were found by themselves."""

    first: str
    second: str
    said: str = ""


def usual_sides(
    names: Sequence[str], pairs: Sequence[tuple[str, str]] = PAIR_COLUMNS
) -> tuple[str, str] | None:
    """The two columns with usual names, those of ``pairs``; None: there are none."""
    known = {name.lower(): name for name in names}
    return next(((known[a], known[b]) for a, b in pairs if a in known and b in known), None)


def find_sides(
    table: Table, text: str | None, pair: str, label: str | None = None, *, guess: bool = True
) -> Sides | None:
    """The columns of the first and of the second texts; None: the table has one text a row.

    Args:
        text, label: columns as the user names them; ``text`` alone means one text a row.
        pair: the second column's name, or ``auto`` or ``none``.
        guess: where no names tell it, two columns that hold texts of like length are taken for the sides.

    Raises:
        DataError: no such column, or one that is both sides, or no first column beside a named second one.
    """
    if pair == NONE or (pair == AUTO and text is not None):
        return None
    if pair != AUTO:
        return _named(table, text, pair, label)
    free = [n for n in table.names if n != label and not n.startswith(REVIEWED)]
    found, how = usual_sides(free), "by their names"
    if found is None and guess and not any(name.lower() in TEXT_COLUMNS for name in free):
        known = label is not None or any(name.lower() in LABEL_COLUMNS for name in free)
        found, how = _only_two(table, free, known), "by what the columns hold"
    if found is None:
        return None
    said = f"pairs of texts, found {how}: {found[0]!r} and {found[1]!r}; text_column names one text alone"
    return Sides(*found, said)


def _named(table: Table, text: str | None, pair: str, label: str | None) -> Sides:
    if pair not in table.names:
        raise DataError(f"no column {pair!r}", where=table.origin, fix=nearest(pair, table.names))
    first = None if text is None else find_column(table, text, TEXT_COLUMNS, "text")
    free = [n for n in table.names if n not in (pair, label) and not n.startswith(REVIEWED)]
    if first is None:
        names = {name.lower(): name for name in free}
        first = next((names[a] for a, b in PAIR_COLUMNS if b == pair.lower() and a in names), None)
    if first is None:
        texts = [name for name in free if text_size(table.read(name)) is not None]
        usual = [name for name in texts if name.lower() in TEXT_COLUMNS]
        first = texts[0] if len(texts) == 1 else usual[0] if len(usual) == 1 else None
    if first is None:
        fix = f"Name it with text_column: {listed(table.names)}"
        raise DataError(f"no first text to go with {pair!r}", where=table.origin, fix=fix)
    if first == pair:
        what = f"column {pair!r} is taken for the first text and for the second"
        raise DataError(what, where=table.origin, fix="Name two with text_column and pair_column")
    return Sides(first, pair)


def columns_of_pairs(
    table: Table, text: str | None, label: str | None, pair: str, *, labels: bool, need_labels: bool
) -> Columns | None:
    """As ``find_columns`` of a table of pairs; None: a row has one text. Arguments and errors: there, and
    ``find_sides``."""
    sides = find_sides(table, text, pair, label, guess=labels)
    if sides is None:
        return None
    two = sides.first, sides.second
    label, said, several = label_beside(table, two, label, labels=labels, need_labels=need_labels)
    sentence = "; ".join([*([sides.said] if sides.said else []), *said])
    return Columns(sides.first, label, sentence, sides.second, several)


def read_inputs(table: Table, found: Columns) -> list[str]:
    """The texts of a table, or its pairs; errors as those of ``check_texts``."""
    texts = table.read(found.text)
    if found.pair is None:
        return check_texts(texts, table.origin, table.rows)
    return join_sides(texts, table.read(found.pair), table.origin, table.rows)


def row_checks(found: Columns) -> dict[str, Any] | None:
    """Column -> what raises for a value of it, in a table of pairs; None: the usual checks."""
    if found.pair is None:
        return None
    return side_checks(found.text, found.pair) | ({found.label: check_labels} if found.label else {})


def _only_two(table: Table, names: Sequence[str], labelled: bool = False) -> tuple[str, str] | None:
    """The only two columns of texts, if neither is as much longer as a text is than its title.

    Args:
        labelled: which column has the labels is known, so that sentences which come again and again, as a
            premise does with each of its hypotheses, are texts and no classes.
    """
    sizes = {name: size for name in names if (size := text_size(table.read(name))) is not None}
    if labelled and len(sizes) == 1:
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
    """The sides in a table that a model of pairs is to read: columns that are named, else those of the
    training by their names, in any order.

    A table with usual names, without a header, or for a model whose columns had no names, is read by its
    order; ``said`` tells it.

    Args:
        text, pair: columns as the user names them; None, ``auto`` and ``none``: to be found.
        trained: the columns of the training, first and second; empty: they are not known.

    Raises:
        DataError: they are not there.
    """
    known = (None, None) if all(name and NAMELESS(name) for name in trained) else (*trained, None)[:2]
    named = tuple(
        None if name == own or name in (AUTO, NONE) else name
        for name, own in zip((text, pair), known, strict=True)
    )
    for name in named:
        if name is not None and name not in names:
            raise DataError(f"no column {name!r}", where=str(where), fix=nearest(name, names))
    places = {name.lower(): name for name in names} | {name: name for name in names}
    found = [
        name or (own and places.get(own, places.get(own.lower())))
        for name, own in zip(named, known, strict=True)
    ]
    free = [name for name in names if name not in found and name.lower() not in LABEL_COLUMNS]
    how = ""
    if sum(map(bool, found)) == 1 and len(free) == 1:  # the other one of two
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
    return Sides(first, second, f"{said}; text_column and pair_column name others" if how else "")


def _no_sides(names: Sequence[str], trained: Sequence[str | None], where: str | Path) -> DataError:
    """A table whose columns do not tell which texts are first and which second."""
    what = "this model reads pairs of texts"
    if trained:
        own = [name for name in trained if name]
        lacking = " and ".join(repr(name) for name in own if name not in names)
        what += f", in training from {' and '.join(map(repr, own))}, and the table lacks {lacking}"
    else:
        what += ", and which two columns they are is not clear"
    fix = "Name the column of the first texts with text_column, that of the second with pair_column"
    fix += f": {listed(list(names))}"
    return DataError(what, where=str(where), fix=fix)


def side_checks(first: str, second: str) -> dict[str, Any]:
    """Column -> what raises for a value of it, in words that say which side it is."""

    def check(which: str) -> Any:
        def checked(values: list[Any]) -> None:
            try:
                check_cells(values)
            except DataError as error:
                what = error.what.replace("the text", f"the {which} text", 1)
                raise DataError(what, where=error.where, fix=error.fix) from None

        return checked

    return {name: check(which) for name, which in zip((first, second), SIDES, strict=True)}
