"""Two texts that are read as one input: does one follow from the other, do they mean the same?

A ``TextPair`` is a text as others are, its two sides a line each: what counts words, finds copies or shows a
text needs to know nothing of pairs. What encodes it asks for its sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from glassformer.data.checks import check_texts, place
from glassformer.data.in_memory import read_rows
from glassformer.errors import DataError

JOINT = "\n"  # between the sides of a pair that is shown or counted as one text
SIDES = ("first", "second")
SECOND_CELL = "text_pair"  # the column, field and argument of the second text, as transformers calls it


class TextPair(str):
    """Two texts. As a ``str`` it is both, a line each."""

    first: str
    second: str

    def __new__(cls, first: str, second: str) -> TextPair:
        made = super().__new__(cls, f"{first}{JOINT}{second}")
        made.first, made.second = first, second
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # of copies and pickles
        return self.first, self.second

    @property
    def sides(self) -> tuple[str, str]:
        """Both texts."""
        return self.first, self.second


def first_of(text: str) -> str:
    """The first text of a pair; one text is its own."""
    return text.first if isinstance(text, TextPair) else text


def second_of(text: str) -> str:
    """The second text of a pair; of one text empty."""
    return text.second if isinstance(text, TextPair) else ""


def are_pairs(texts: Sequence[Any]) -> bool:
    """Whether checked texts are pairs; they are all of one kind."""
    return any(isinstance(text, TextPair) for text in texts[:1])


def join_sides(
    first: Iterable[Any], second: Iterable[Any], origin: str = "texts", rows: Sequence[int] | None = None
) -> list[str]:
    """Two columns of texts as pairs.

    Raises:
        DataError: a side that cannot be used (see ``check_texts``), or other numbers of them.
    """
    checked = []
    for which, side in zip(SIDES, (first, second), strict=True):
        try:
            checked.append(check_texts(side, origin, rows))
        except DataError as error:
            what = error.what.replace("the text", f"the {which} text", 1)
            raise DataError(what, where=error.where, fix=error.fix) from None
    if len(checked[0]) != len(checked[1]):
        what = f"{len(checked[0])} first texts but {len(checked[1])} second ones"
        raise DataError(what, where=origin, fix="Give one second text for each first")
    return list(map(TextPair, *checked))


def check_inputs(X: Any, origin: str = "texts", rows: Sequence[int] | None = None) -> list[str]:
    """Texts, or pairs: a list of tuples or lists of two, an ``[n, 2]`` array, a table of two columns.

    Returns:
        ``str`` each, or ``TextPair`` each.

    Raises:
        DataError: as ``check_texts``; also, some are pairs and some are none, or a tuple of another length.
    """
    X = read_rows(X, origin, "texts", most=2)
    if not X or not _is_pair(X[0]):
        for i, x in enumerate(X):
            if _is_pair(x):
                raise _mixed("a pair of texts where the first is one text", origin, i, rows)
        return check_texts(X, origin, rows)
    sides = []
    for i, x in enumerate(X):
        if not _is_pair(x):
            raise _mixed("one text where the first is a pair", origin, i, rows)
        two = x.sides if isinstance(x, TextPair) else list(x)
        if len(two) != 2:
            what = f"{len(two)} texts where a pair is wanted"
            raise DataError(what, where=place(origin, i, rows), fix="Give two texts: (first, second)")
        sides.append(two)
    return join_sides([a for a, _ in sides], [b for _, b in sides], origin, rows)


def _is_pair(x: Any) -> bool:
    if isinstance(x, str | bytes):
        return isinstance(x, TextPair)
    return isinstance(x, tuple | list) or getattr(x, "ndim", 0) == 1


def _mixed(what: str, origin: str, index: int, rows: Sequence[int] | None) -> DataError:
    return DataError(what, where=place(origin, index, rows), fix="Give texts only, or pairs only")
