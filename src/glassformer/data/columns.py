"""Which column of a table holds the texts, and which the labels: by name, else by what the columns hold.

The rule is one for all verbs: a column that is named; else one with a usual name; else, of two columns, the
other one; else the only column that looks like texts, and the only one that looks like labels.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.config import listed, nearest
from glassformer.data.checks import is_missing
from glassformer.data.column_contents import (
    LABEL_COLUMNS,
    LOOKED_AT,
    TEXT_COLUMNS,
    are_dates,
    are_numbers,
    are_yes_no,
    is_constant,
    looks_like_labels,
    measures,
    present,
    text_size,
)
from glassformer.data.label_kinds import CUT
from glassformer.data.parquet import batches, to_list
from glassformer.data.spreadsheet import REVIEWED
from glassformer.data.tables import Table
from glassformer.errors import DataError

CLASSES = frozenset(
    [
        "kind",
        "type",
        "class",
        "category",
        "categories",
        "label",
        "tag",
        "topic",
        "sentiment",
        "rating",
        "intent",
        "mood",
        "about",
        "subject",
        "reason",
    ]
)
# Where a text came from, which says nothing of what is in it.
PLACES = re.compile("store|shop|branch|site|city|town|country|region|location|place|channel|device|platform")
PEOPLE = frozenset(
    [
        "by",
        "agent",
        "author",
        "owner",
        "user",
        "name",
        "person",
        "who",
        "customer",
        "client",
        "employee",
        "staff",
        "from",
        "to",
    ]
)
UNEVEN = 2.0  # times as long as the next column of texts: it is the text, and that one a title or a name


@dataclass(frozen=True)
class Columns:
    """The columns of a table; ``said`` is a sentence where they were found by what they hold."""

    text: str
    label: str | None
    said: str = ""
    pair: str | None = None  # of the second text, where a row has two
    candidates: tuple[str, ...] = ()  # where several could be the label: those, the likeliest first
    numbers: str | None = None  # where none could: a column of measurements


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
        text, label: as the user names them; None: not named.
        labels: labels are looked for; else only what is named, or has a usual name, is taken for them.
        need_labels: a table without labels is an error.
        pairs: a row may have two texts, which an error then speaks of.

    Raises:
        DataError: no such column, none or several that could be it, or one for both.
    """
    found_text = find_column(table, text, TEXT_COLUMNS, "text")
    found_label = find_column(table, label, LABEL_COLUMNS, "label")
    free = [n for n in table.names if n not in (found_text, found_label) and not n.startswith(REVIEWED)]
    guessed = False
    if found_text is None and found_label is not None and len(free) == 1:
        found_text = free.pop()
    elif found_text is None and free:
        found_text = _guess_text(table, free, need_labels and pairs)
        guessed = found_text is not None
        free = [name for name in free if name != found_text]
    if label is not None and found_label is not None and (found_text is None or found_text != text):
        _refuse_texts(table, found_label, found_text)
    if found_text is None:
        raise no_column(table, "text")
    if found_text == found_label:
        raise DataError(
            f"column {found_text!r} is taken for the text and for the label",
            where=table.origin,
            fix="Name both with text_column and label_column",
        )
    several: list[str] = []
    if found_label is None and (labels or need_labels) and free:
        found_label = _guess_label(table, free, need_labels, several, found_text)
        guessed = guessed or found_label is not None
    if found_label is None and need_labels:
        raise no_column(table, "label")
    said = _sentence(found_text, found_label) if guessed else ""
    if several:
        said = f"{_several(several)}: name it with label_column" + (f"; {said}" if said else "")
    measured = next((n for n in free if measures(table.read(n))), None) if found_label is None else None
    return Columns(found_text, found_label, said, candidates=likeliest(table, several), numbers=measured)


def _refuse_texts(table: Table, label: str, text: str | None) -> None:
    """A column that was named for the labels and holds the texts, where no other holds any."""
    values = table.read(label)
    if text_size(values) is None or (text is not None and text_size(table.read(text)) is not None):
        return
    there = [value for value in values if not is_missing(value)]
    what = f"{label!r} is named as the column of labels and holds the texts: "
    what += f"{len({*there}):,} different ones in {len(there):,} rows"
    others = [n for n in table.names if n != label and looks_like_labels(table.read(n))]
    known = list(likeliest(table, others)) or [n for n in table.names if n != label]
    fix = "Name the column of classes with label_column" + (f", such as {known[0]!r}" if known else "")
    raise DataError(what, where=table.origin, fix=fix)


def likeliest(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    """Columns that could be the label, the likeliest first.

    A name of classes ("kind") goes before others and one of people or places ("handled by", "store") after
    them; of equal ones the column with the fewest values goes first, then the first in the table.
    """

    def rank(name: str) -> tuple[bool, bool, int]:
        besides = tells_besides(name)
        values = len({*map(str, present(table.read(name)))})
        return besides, besides or not _words(name) & CLASSES, values

    return tuple(sorted(names, key=rank)) if len(names) > 1 else tuple(names)


def _words(name: str) -> set[str]:
    return {*re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())}


def tells_besides(name: str) -> bool:
    """Whether a column is called as one of people or places: texts without labels have such a one, too."""
    return bool(_words(name) & PEOPLE) or any(map(PLACES.fullmatch, _words(name)))


def label_beside(
    table: Table, sides: Sequence[str], label: str | None, *, labels: bool, need_labels: bool
) -> tuple[str | None, list[str], tuple[str, ...]]:
    """The column of labels beside two of texts, what to say of it, and what else it could be; see
    ``find_columns``."""
    found = find_column(table, label, LABEL_COLUMNS, "label")
    if found in sides:
        what = f"column {found!r} is taken for a text and for the label"
        raise DataError(what, where=table.origin, fix="Name another with label_column")
    free = [n for n in table.names if n not in (*sides, found) and not n.startswith(REVIEWED)]
    several: list[str] = []
    said: list[str] = []
    if found is None and (labels or need_labels) and free:
        found = _guess_label(table, free, need_labels, several)
        if found is not None:
            said.append(f"labels in {found!r}, found by what it holds; label_column names another")
    if found is None and need_labels:
        raise no_column(table, "label")
    said += [f"{_several(several)}: name it with label_column"] if several else []
    return found, said, likeliest(table, several)


def _several(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{names[0]!r} could be the label, by what it holds; by its name it is something else"
    return f"several columns could be the label ({listed(names)})"


def _sentence(text: str, label: str | None) -> str:
    both = f"texts in {text!r}" + (f", labels in {label!r}" if label else "")
    return f"found by what the columns hold: {both}; text_column and label_column name others"


def find_label(table: Table, wanted: str | None, taken: str, needed: bool = False) -> str | None:
    """The column of labels beside one that is known (of pictures); None: there is none.

    Raises:
        DataError: no such column, several with usual names, or none though it is ``needed``.
    """
    found = find_column(table, wanted, LABEL_COLUMNS, "label")
    free = [name for name in table.names if name not in (taken, found) and not name.startswith(REVIEWED)]
    found = found or (_guess_label(table, free, needed) if free else None)
    if needed and found is None:
        raise no_column(table, "label")
    return found


def find_text(table: Table, wanted: str | None = None, usual: Sequence[str | None] = ()) -> str:
    """The column of texts of a table whose labels are of no interest.

    Args:
        usual: columns of which the first that is there is taken where ``wanted`` names none.

    Raises:
        DataError: no such column, or none or several that could be it.
    """
    if wanted is None:
        wanted = next((name for name in usual if name in table.names), None)
    if wanted is None and len(table.names) == 1:
        return table.names[0]
    found = find_column(table, wanted, TEXT_COLUMNS, "text")
    if found is None:
        free = [n for n in table.names if n.lower() not in LABEL_COLUMNS and not n.startswith(REVIEWED)]
        found = free[0] if len(free) == 1 < len(table.names) else _guess_text(table, free, False)
    if found is None:
        fix = f"Name it with text_column: {listed(table.names)}"
        raise DataError("no column of texts", where=table.origin, fix=fix)
    return found


def find_column(table: Table, wanted: str | None, usual: Sequence[str], kind: str) -> str | None:
    """The column ``wanted``, else the one with a usual name; the first of these goes before the others.

    Raises:
        DataError: no such column, or several that could be it.
    """
    if wanted is not None:
        if wanted not in table.names:
            raise DataError(f"no column {wanted!r}", where=table.origin, fix=nearest(wanted, table.names))
        return wanted
    found = [name for name in table.names if name.lower() in usual]
    if len(found) > 1:
        exact = [name for name in found if name.lower() == usual[0]]
        if len(exact) != 1:
            what = f"several columns could be the {kind}: {listed(found)}"
            raise DataError(what, where=table.origin, fix=f"Name it with {kind}_column")
        return exact[0]
    return found[0] if found else None


def no_column(table: Table, kind: str) -> DataError:
    """What is said where neither a name nor its content tells which column it is."""
    what = f"no column {kind!r}"
    hint = nearest(kind, table.names)
    fix = f"{hint if hint.endswith('?') else hint + '.'} Name it with {kind}_column"
    if not table.typed:
        fix += "; the first row must be the header"
    return DataError(what, where=table.origin, fix=fix)


# --- by what a column holds -------------------------------------------------------------------


def _guess_text(table: Table, names: Sequence[str], pairs: bool) -> str | None:
    sizes = {name: size for name in names if (size := text_size(table.read(name))) is not None}
    ranked = sorted(sizes, key=lambda name: -sizes[name])
    if len(ranked) < 2 or sizes[ranked[0]] >= UNEVEN * sizes[ranked[1]]:
        return ranked[0] if ranked else None
    fix = "Name one with text_column"
    if pairs:
        fix += ", or the two of a pair with text_column and pair_column"
    what = f"several columns look like texts: {listed(ranked)}"
    raise DataError(what, where=table.origin, fix=fix)


def _guess_label(
    table: Table,
    names: Sequence[str],
    need_labels: bool,
    several: list[str] | None = None,
    text: str | None = None,
) -> str | None:
    """The only column that looks like labels; where several do, their names are added to ``several``.

    Rows whose ``text`` is empty are told with a refusal, which would be the next one.
    """
    values = {name: table.read(name) for name in names}
    like = [name for name in names if looks_like_labels(values[name])]
    for other in (is_constant, are_numbers, are_dates):  # a count, a year beside the names of classes
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
        raise DataError(_several(like), where=table.origin, fix=fix)
    if len(names) == 1:
        return _doubtful(table, names[0], values[names[0]])
    return None


def _doubtful(table: Table, name: str, values: Sequence[Any]) -> str:
    """The only column left, of which nothing says that it holds labels: what it holds instead is said."""
    there = [value for value in values if not is_missing(value)]
    distinct = len({str(value) for value in there})
    what = f"no column 'label': {name!r} holds {distinct:,} different values in {len(there):,} rows"
    numbers = are_numbers(there)
    what += "; these look like numbers, not classes" if numbers else ""
    hint = f"{CUT}. " if numbers else f"{nearest('label', [name])} "
    fix = f"{hint}Name a column of a few classes with label_column"
    raise DataError(what, where=table.origin, fix=fix[0].upper() + fix[1:])


def parquet_texts(source: str | Path, schema: Any) -> list[str]:
    """The columns whose first rows look like texts; the one whose texts are by far the longest goes alone."""
    import pyarrow as pa

    sizes = {}
    for field in schema:
        kind = field.type
        if pa.types.is_dictionary(kind):  # categories of pandas
            kind = kind.value_type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            first = next(iter(batches(source, field.name, [0])), None)
            values = to_list(first.slice(0, LOOKED_AT), source, 0) if first is not None else []
            if (size := text_size(values)) is not None:
                sizes[field.name] = size
    ranked = sorted(sizes, key=lambda name: -sizes[name])
    alone = len(ranked) > 1 and sizes[ranked[0]] >= UNEVEN * sizes[ranked[1]]
    return ranked[:1] if alone else ranked
