"""One side of pairs: its texts checked, kept with gaps, or what cannot be used marked to be left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from glassformer.data.checks import check_cells, check_texts
from glassformer.errors import DataError

Gaps = Literal["refuse", "keep", "skip"]


class Unusable(str):
    """An empty text in the place of one that cannot be used, and why."""

    reason: str

    @staticmethod
    def of(text: Any) -> str:
        """The text, or its place where it is none."""
        try:
            return check_cells([text])[0]
        except DataError as error:
            place = Unusable()
            place.reason = error.what
            return place


def checked_side(texts: Sequence[Any], origin: str, rows: Sequence[int], gaps: Gaps) -> list[str]:
    """The texts of a side.

    Args:
        gaps: ``keep``: what is empty becomes an empty text; ``skip``: so does all that cannot be used.

    Raises:
        DataError: a text that cannot be used; with ``keep`` one that is not empty.
    """
    if gaps == "refuse":
        return check_texts(texts, origin, rows)
    texts = ["" if text is None or text == "" or str(text).isspace() else text for text in texts]
    if gaps == "skip":
        return [text if text == "" else Unusable.of(text) for text in texts]
    there = [i for i, text in enumerate(texts) if text != ""]
    if there:
        check_texts([texts[i] for i in there], origin, [rows[i] for i in there])
    return texts
