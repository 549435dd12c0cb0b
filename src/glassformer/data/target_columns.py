"""Targets among the inputs: a column of a table in memory, or a side of pairs, that holds the labels."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from glassformer.data.columns import LABEL_COLUMNS, TEXT_COLUMNS
from glassformer.data.in_memory import MemoryTable, as_list, likeliest
from glassformer.data.label_kinds import is_number
from glassformer.data.pair_columns import COMPARED, usual_sides
from glassformer.data.text_pairs import SIDES
from glassformer.errors import DataError

CALLED = frozenset([*LABEL_COLUMNS, "y", "score", "tag", "rating", "stars", "number", "value"])


def refuse_targets(table: MemoryTable, y: Any, most: int, noun: str, word: str = "labels") -> None:
    """Raises DataError where a column of what ``fit`` was given holds the targets.

    Args:
        y: targets, a value for each row; None: there are none, and columns are compared by their names.
        most: columns that an example may have.
        noun, word: what examples and targets are called, for messages.
    """
    targets = None if y is None else list(map(plain, as_list(y)))
    for i, label in enumerate(table.labels):
        if targets is None:
            first = table.first(i)
            found = len(table) > 1 and _called(label) and (_repeats(first) or all(map(is_number, first)))
        elif len(table) == 1:  # nothing else can be meant unless they are equal, row by row
            first = list(map(plain, table.first(i)))
            found = first == targets[: len(first)] and gives_away(table.column(i), targets, (), True)
        else:
            others = [table.column(k) for k in range(len(table)) if k != i]
            found = gives_away(table.column(i), targets, others, _called(label))
        if found:
            fix = f"Give the column of {noun}"
            if len(table) > 1:
                kept = inputs_of(table, most, label)
                fix = f"Give the {noun} alone: fit({table.code(*kept)}, {table.code(label)})"
            raise DataError(f"column {label!r} of X holds the {word}", where="fit", fix=fix)


def refuse_target_sides(sides: Sequence[Sequence[Any]], y: Iterable[Any], noun: str) -> None:
    """The same of pairs that were given as tuples."""
    if (found := _target_side(sides, y)) is not None:
        i, equal = found
        what = (
            f"the {SIDES[i]} text of each pair {'is its label' if equal else 'has one value for each label'}"
        )
        fix = f"Give the {noun} alone: fit([pair[{1 - i}] for pair in X], y)"
        raise DataError(what, where="fit", fix=fix)


def refuse_target_columns(split: Any, columns: tuple[str, str]) -> None:
    """The same of pairs that were read from two columns of a table."""
    sides = list(zip(*(pair.sides for pair in split.examples), strict=True))
    if (found := _target_side(sides, split.labels or ())) is not None:
        i, equal = found
        what = f"column {columns[i]!r}, read as the {SIDES[i]} text of pairs, "
        what += "holds the labels" if equal else "has one value for each label"
        alone = shlex.quote(columns[1 - i])
        fix = f"Read {columns[1 - i]!r} alone: text_column {alone} pair_column none"
        raise DataError(what, where=split.origin, fix=fix)


def _target_side(sides: Sequence[Sequence[Any]], y: Iterable[Any]) -> tuple[int, bool] | None:
    """The side of pairs that gives the targets away, and whether it is equal to them; None: neither does."""
    targets = list(map(plain, y))
    for i, side in enumerate(sides):
        others = [other for k, other in enumerate(sides) if k != i]
        if gives_away(side, targets, others, False):
            return i, list(map(plain, side)) == targets
    return None


def gives_away(
    values: Sequence[Any], targets: Sequence[str], others: Sequence[Sequence[Any]], called: bool
) -> bool:
    """Whether a column holds the targets: themselves, or under one other name for each.

    Args:
        targets: as ``plain`` gives them.
        others: the other columns of the table. Where they tell the targets as well, as in a table of a few
            rows that are repeated, nothing is said.
        called: the column is called as one of labels is; then several of its values may stand for one target.
    """
    if len(values) != len(targets) or not targets:
        return False
    given = list(map(plain, values))
    if given == list(targets):
        return True
    if not others or not _tells(given, targets):
        return False
    if called:
        return True
    return len(set(given)) == len(set(targets)) and all(len({*map(str, x)}) > len(x) / 2 for x in others)


def plain(value: Any) -> str:
    """A value as it is compared: numbers by what they count, texts without regard to case."""
    if is_number(value) and getattr(value, "size", 1) == 1:
        return repr(float(value))
    return str(value).strip().casefold()


def _tells(given: Sequence[str], targets: Sequence[str]) -> bool:
    """Whether each of a few values goes with one target."""
    known: dict[str, str] = {}
    for value, target in zip(given, targets, strict=True):
        if known.setdefault(value, target) != target or len(known) > len(given) / 2:
            return False
    return True


def inputs_of(table: MemoryTable, most: int, target: Any = None) -> Sequence[Any]:
    """The labels of the columns that are the examples: two usual ones or the only two of texts, else one."""
    texts = [
        label
        for i, label in enumerate(table.labels)
        if label != target and all(isinstance(value, str) for value in table.first(i))
    ]
    names = [label for label in texts if isinstance(label, str)]
    usual = usual_sides(names, COMPARED) if most > 1 else None
    if usual is None and len(texts) == most == 2 and not {name.lower() for name in names} & {*TEXT_COLUMNS}:
        return texts
    return usual or [likeliest(table, [target])]


def _called(label: Any) -> bool:
    return isinstance(label, str) and label.lower() in CALLED


def _repeats(values: Sequence[Any]) -> bool:
    return len({*map(str, values)}) <= len(values) / 2
