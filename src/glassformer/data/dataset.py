"""Data sets and their splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeVar

from glassformer.data.label_sets import LabelSet, flat_labels
from glassformer.errors import NoSuchSplitError

T = TypeVar("T")

# Names of each split in files and folders.
SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
    "unsupervised": ("unsupervised", "unsup", "unlabelled", "unlabeled"),
}
SPLIT_OF = {alias: split for split, aliases in SPLITS.items() for alias in aliases}


class MissingSplitError(NoSuchSplitError):
    """The data set has no split of this name; the message lists its splits."""


class Split:
    """Base class of splits: a dataclass whose fields, except ``origin``, have one value per example."""

    STRATIFIED: ClassVar[bool] = False  # whether random subsets keep the share of each class
    SHUFFLED: ClassVar[bool] = False  # whether a training subset is drawn by a permutation, not by ``choice``

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def examples(self) -> list[Any]:
        """The inputs of an estimator: the first field."""
        return getattr(self, fields(self)[0].name)  # type: ignore[arg-type]  # subclasses are dataclasses

    def names(self) -> list[str]:
        """A name for each example in tables."""
        return self.texts  # type: ignore[attr-defined]  # splits without texts override this

    def select(self, indices: Sequence[int]) -> Self:
        """The examples at ``indices``, in that order."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]  # as above
        per_example = {k: v for k, v in values.items() if k != "origin" and v is not None and len(v)}
        return type(self)(**(values | {k: [v[i] for i in indices] for k, v in per_example.items()}))


@dataclass(frozen=True)
class TextSplit(Split):
    """Texts with their labels, in file order."""

    STRATIFIED = True

    texts: list[str]  # or pairs of texts (``TextPair``)
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
    rejected: tuple[Any, ...] = ()  # skipped rows (``RejectedRow``), if skipping was requested
    columns: tuple[Any, ...] = (None, None)  # names of the columns that were read: texts, labels
    messages: tuple[str, ...] = ()  # messages to the user: what was detected or repaired while reading

    @property
    def license(self) -> str:
        """The same as ``licence``."""
        return self.licence

    @property
    def said(self) -> tuple[str, ...]:
        """The same as ``messages``."""
        return self.messages


@dataclass(frozen=True)
class TextDataset(Dataset):
    """Texts and their labels."""

    splits: dict[str, TextSplit]
    pair_column: str | None = None  # column of the second texts, in a table of pairs
    label_candidates: tuple[str, ...] = ()  # columns that could be the label, the likeliest first
    number_column: str | None = None  # a column of measurements, in a table without labels


@dataclass(frozen=True)
class NamedSource:
    """A built-in data set: its description, and how it is loaded."""

    description: str
    licence: str
    load: Any = None  # the function that loads it; None: read tables in ``folder``
    notes: tuple[str, ...] = ()
    folder: str = ""  # inside a data folder; empty: the data are generated
    origin: str = ""  # where to download it
    hub: str = ""  # dataset repository on the Hugging Face Hub
    revision: str = ""  # its pinned commit
    files: tuple[tuple[str, str], ...] = ()  # (split, path in that repository)
    language: str = ""  # of the texts, ISO 639-1
    tagged: bool = False  # a data set of tagged words, read by data/tagged.py
    columns: tuple[str, ...] = ()  # the languages of translation pairs

    def describe(self, dataset: Any) -> Any:
        """Add the description, the license and the notes of this source to the loaded ``dataset``."""
        notes = (*self.notes, *dataset.notes)
        return replace(dataset, description=self.description, licence=self.licence, notes=notes)


def choose_splits(available: Mapping[str, T], requested: Sequence[str] | None, where: str) -> dict[str, T]:
    """Select the splits named in ``requested`` (None: all), in the usual order.

    Raises:
        MissingSplitError: a split is missing.
    """
    for split in requested or ():
        if split not in available:
            names = ", ".join(available) or "none"
            raise MissingSplitError(
                f"there is no split {split!r}", where=where, fix=f"The splits are: {names}"
            )
    return {s: available[s] for s in SPLITS if s in available and (requested is None or s in requested)}


def label_names(splits: Mapping[str, TextSplit]) -> tuple[str, ...]:
    """The distinct labels of all splits as text, sorted by value."""
    labels: set[Any] = {label for split in splits.values() for label in flat_labels(split.labels)}
    mixed = len({type(label) for label in labels}) > 1
    return tuple(map(str, sorted(labels, key=str if mixed else None)))
