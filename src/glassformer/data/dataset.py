"""Texts with labels, in named splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeVar

from glassformer.data.label_sets import LabelSet, each
from glassformer.errors import NoSuchSplitError

T = TypeVar("T")

# The names a split goes by in files and folders.
SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
    "unsupervised": ("unsupervised", "unsup", "unlabelled", "unlabeled"),
}
SPLIT_OF = {alias: split for split, aliases in SPLITS.items() for alias in aliases}


class NoSplit(NoSuchSplitError):
    """A data set has no split of that name; the message has those that it has."""


class Split:
    """Base of every split: a dataclass whose fields, but for ``origin``, have a value for each example.

    ``STRATIFIED``: parts that are drawn from it keep the share of each class; else they are plainly random.
    ``SHUFFLED``: fewer examples for training are the first of a permutation, else numpy's choice.
    """

    STRATIFIED: ClassVar[bool] = False
    SHUFFLED: ClassVar[bool] = False

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def examples(self) -> list[Any]:
        """What an estimator takes: the first field."""
        return getattr(self, fields(self)[0].name)  # type: ignore[arg-type]  # each of them is a dataclass

    def names(self) -> list[str]:
        """What to call each example in a table."""
        return self.texts  # type: ignore[attr-defined]  # splits without texts have names of their own

    def select(self, indices: Sequence[int]) -> Self:
        """The examples at ``indices``, in that order."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]  # as above
        of_each = {k: v for k, v in values.items() if k != "origin" and v is not None and len(v)}
        return type(self)(**(values | {k: [v[i] for i in indices] for k, v in of_each.items()}))


@dataclass(frozen=True)
class TextSplit(Split):
    """Texts in file order with their labels."""

    STRATIFIED = True

    texts: list[str]  # or pairs of them (``TextPair``)
    labels: list[str] | list[int] | list[float] | list[LabelSet] | None  # None: unlabeled
    origin: str  # file or folder, for messages
    rows: Sequence[int] | None = None  # row of each example in the file


@dataclass(frozen=True)
class Dataset:
    """The splits of one data set, among ``train``, ``validation``, ``test`` and ``unsupervised``."""

    name: str
    splits: dict[str, Any]
    label_names: tuple[str, ...] = ()
    description: str = ""
    licence: str = ""
    notes: tuple[str, ...] = ()
    rejected: tuple[Any, ...] = ()  # rows left out (``RejectedRow``), where that was asked for
    columns: tuple[Any, ...] = (None, None)  # of a table: of texts and labels, or of what its kind has
    said: tuple[str, ...] = ()  # what was found or mended that the user should know of

    @property
    def license(self) -> str:
        """The terms of the data: ``licence`` under its American name."""
        return self.licence


@dataclass(frozen=True)
class TextDataset(Dataset):
    """Texts and their labels."""

    splits: dict[str, TextSplit]
    pair_column: str | None = None  # of a table of pairs: of the second texts
    label_candidates: tuple[str, ...] = ()  # columns of a table that could be the label, the likeliest first
    number_column: str | None = None  # of a table without labels: a column of measurements


@dataclass(frozen=True)
class NamedSource:
    """What is known of a named data set, and how it is loaded."""

    description: str
    licence: str
    load: Any = None  # a function; None: tables in ``folder``
    notes: tuple[str, ...] = ()
    folder: str = ""  # below a data folder; empty: the data are made
    origin: str = ""  # where to get it
    hub: str = ""  # dataset repository on the Hugging Face Hub
    revision: str = ""  # its pinned commit
    files: tuple[tuple[str, str], ...] = ()  # (split, path in that repository)
    language: str = ""  # of the texts, as ISO 639-1 writes it
    tagged: bool = False  # its words have tags, which data/tagged.py reads
    columns: tuple[str, ...] = ()  # of pairs: the languages that it has

    def described(self, dataset: Any) -> Any:
        """A data set that was loaded, with what is known of it; its own notes follow."""
        notes = (*self.notes, *dataset.notes)
        return replace(dataset, description=self.description, licence=self.licence, notes=notes)


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
