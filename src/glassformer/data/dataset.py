"""Texts with labels, in named splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from glassformer.data.label_sets import LabelSet, each
from glassformer.errors import DataError

T = TypeVar("T")

# The names a split goes by in files and folders.
SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
    "unsupervised": ("unsupervised", "unsup", "unlabelled", "unlabeled"),
}
SPLIT_OF = {alias: split for split, aliases in SPLITS.items() for alias in aliases}


class NoSplit(DataError):
    """A data set has no split of that name; the message has those that it has."""


@dataclass(frozen=True)
class TextSplit:
    """Texts in file order with their labels."""

    texts: list[str]  # or pairs of them (``TextPair``)
    labels: list[str] | list[int] | list[float] | list[LabelSet] | None  # None: unlabelled
    origin: str  # file or folder, for messages
    rows: Sequence[int] | None = None  # row of each example in the file

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def examples(self) -> list[str]:
        """What a classifier takes."""
        return self.texts

    def names(self) -> list[str]:
        """What to call each example in a table."""
        return self.texts

    def select(self, indices: Sequence[int]) -> TextSplit:
        """The examples at ``indices``, in that order."""
        labels, rows = self.labels, self.rows
        return TextSplit(
            [self.texts[i] for i in indices],
            None if labels is None else [labels[i] for i in indices],  # type: ignore[arg-type]  # of one kind
            self.origin,
            None if rows is None else [rows[i] for i in indices],
        )


@dataclass(frozen=True)
class TextDataset:
    """The splits of one data set, among ``train``, ``validation``, ``test`` and ``unsupervised``."""

    name: str
    splits: dict[str, TextSplit]
    label_names: tuple[str, ...] = ()
    description: str = ""
    licence: str = ""
    notes: tuple[str, ...] = ()
    rejected: tuple[Any, ...] = ()  # rows left out (``RejectedRow``), where that was asked for
    columns: tuple[str | None, str | None] = (None, None)  # of a table: of texts, of labels
    said: tuple[str, ...] = ()  # what was found or mended that the user should know of
    pair_column: str | None = None  # of a table of pairs: of the second texts
    label_candidates: tuple[str, ...] = ()  # columns of a table that could be the label, the likeliest first
    number_column: str | None = None  # of a table without labels: a column of measurements

    @property
    def license(self) -> str:
        """The terms of the data: ``licence`` under its American name."""
        return self.licence


def choose_splits(available: Mapping[str, T], wanted: Sequence[str] | None, where: str) -> dict[str, T]:
    """The ``wanted`` ones among what is there, in the usual order; None: all.

    Raises:
        NoSplit: one is not there.
    """
    for split in wanted or ():
        if split not in available:
            there = ", ".join(available) or "none"
            raise NoSplit(f"no split {split!r}", where=where, fix=f"There are: {there}")
    return {s: available[s] for s in SPLITS if s in available and (wanted is None or s in wanted)}


def names_of(splits: Mapping[str, TextSplit]) -> tuple[str, ...]:
    """The distinct labels of all splits as text, sorted by value."""
    labels: set[Any] = {label for split in splits.values() for label in each(split.labels)}
    mixed = len({type(label) for label in labels}) > 1
    return tuple(map(str, sorted(labels, key=str if mixed else None)))
