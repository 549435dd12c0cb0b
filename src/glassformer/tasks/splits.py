"""The examples of a recipe in named splits: what is learned from, what chooses, what the figures come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from glassformer.config import nearest
from glassformer.data.splits import block_split, stratified_split, stratified_subset
from glassformer.errors import ConfigError, DataError


@dataclass(frozen=True)
class Splits:
    """The examples of one run. ``judged`` is the split that the final figures come from."""

    dataset: Any  # TextDataset, ImageDataset, PairDataset
    train: Any  # TextSplit, ImageSplit, PairSplit
    validation: Any | None
    judged: Any | None
    judged_name: str

    def sizes(self) -> str:
        """``97 train, 29 validation, 31 test``."""
        parts = {"train": self.train, "validation": self.validation, self.judged_name: self.judged}
        return ", ".join(f"{len(v):,} {k}" for k, v in parts.items() if v is not None)


def as_they_are(dataset: Any) -> Splits:
    """Data other than a recipe's own, of which nothing is held out: the test split is judged, or the first there is."""
    splits = dataset.splits
    judged = splits.get("test") or next(iter(splits.values()))
    return Splits(dataset, splits.get("train"), splits.get("validation"), judged, "test")


def labelled(split: Any | None) -> Any | None:
    """A split that has labels; None where it has none."""
    return None if split is None or split.labels is None else split


def split_up(dataset: Any, recipe: Any) -> Splits:
    """The splits of a data set, and what the recipe holds out of its training part.

    Raises:
        DataError: no training split, or a part that cannot be held out.
    """
    d, splits = recipe.data, dataset.splits
    if "train" not in splits:
        raise DataError(f"no train split, only {', '.join(splits)}", where=d.source)
    train, validation = splits["train"], splits.get("validation")
    if d.test_size is not None and "test" not in splits:
        train, splits = _held_out(train, d.test_size, d, splits, "test")
    if d.validation_size is not None:
        train, splits = _held_out(train, d.validation_size, d, splits, "validation")
        validation = splits["validation"]
    if d.train_size is not None and d.train_size < len(train):
        train = train.select(stratified_subset(train.labels or [], d.train_size, d.split_seed).tolist())
    name = choose_judged(recipe.evaluate.split, [*splits])
    judged = splits.get(name, validation)
    if judged is None and recipe.evaluate.split == "validation":
        raise DataError(
            "no validation split to judge on", where=d.source, fix="Set validation_size, such as 0.1"
        )
    return Splits(dataset, train, validation, judged, name)


def _held_out(train: Any, size: float, d: Any, splits: dict, name: str) -> tuple[Any, dict]:
    split = block_split if d.hold_out == "blocks" else stratified_split
    kept, held = split(train.labels or [], size, d.split_seed)
    return train.select(kept.tolist()), {**splits, name: train.select(held.tolist())}


def choose_judged(wanted: str, splits: Sequence[str]) -> str:
    """The split that is judged: the one asked for, or validation where there is no test split.

    Raises:
        ConfigError: another split is asked for and not there (the nearest is named).
    """
    if wanted not in (*splits, "test", "validation"):
        raise ConfigError(f"no split {wanted!r}", where="evaluate.split", fix=nearest(wanted, [*splits]))
    return wanted if wanted in splits else "validation"
