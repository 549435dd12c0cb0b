"""Seeded splits that keep the share of every class, or equal texts or neighboring rows together."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from glassformer.config import nearest
from glassformer.data.columns import refuse_target_columns
from glassformer.data.copies import distinct, groups_of
from glassformer.data.dataset import Dataset
from glassformer.data.label_kinds import FEW, about_labels, hardly_classes, what_labels_are, without_class
from glassformer.data.label_sets import are_sets
from glassformer.data.label_sets import strata as strata_of_sets
from glassformer.data.numbers import are_numbers, strata_of
from glassformer.errors import BadValueError, DataError, NoSuchSplitError, TooFewExamplesError

D = TypeVar("D", bound=Dataset)
APART = (None, "apart")  # what ``copies`` says where copies of one example may stand on both sides
Labels = Sequence[Any]  # str or int, or a ``LabelSet`` each
MOST = 5  # classes that one setting leaves out; with more it would be longer than anybody reads
BLOCKS = 4  # runs of neighboring rows of each class in a part that is held out in blocks


def _count(size: float, n: int) -> int:
    """``size`` examples of ``n``: a share below 1, or a count."""
    count = round(size * n) if size < 1 else int(min(size, n)) if size >= 1 else 0  # NaN is neither
    if not 0 < count < n or (size >= 1 and size != count):
        sizes = f", a share between 0 and 1, or a whole number from 1 to {n - 1}" if n > 1 else ""
        fix = f"Give more examples{sizes}"
        raise TooFewExamplesError(f"a part of {size:g} out of {n} examples", where="split size", fix=fix)
    return count


def _strata(labels: Labels, size: float) -> Sequence[Any]:
    """What a part of that size is stratified by; single labels as they are."""
    if are_sets(labels) or are_numbers(labels):
        return strata(labels, _count(size, len(labels)))
    return labels


def strata(labels: Labels, held: int) -> Sequence[Any]:
    """What a choice of ``held`` examples is stratified by: class, a set's rarest label, a number's rank."""
    if are_numbers(labels):
        return strata_of(labels, min(held, len(labels) - held))
    return strata_of_sets(labels, held)


def _lone(labels: Labels, where: str, every: Counter | None = None) -> DataError | None:
    """What is said where classes have one example, which cannot stand in both parts; None: none has.

    Args:
        labels: one an example, copies counted once.
        every: how many examples each class has, copies counted; None: there are no copies.
    """
    counts = Counter(labels)
    lone = [label for label, count in counts.items() if count == 1]
    if not lone:
        return None
    copies, total = (1, 0) if every is None else (every[lone[0]], every.total())
    distinct = "" if every is None else "distinct "
    what = f"class {lone[0]!r} has one {distinct}example"
    what += f" ({copies} copies of it)" if copies > 1 else ""
    fix = f"Add examples of it, or {'set copies=apart' if copies > 1 else without_class(lone[0])}"
    if hardly_classes(labels) and what_labels_are(labels) is None:
        what = f"{len(counts):,} classes for {len(labels):,} {distinct}examples, "
        what += f"{len(lone):,} of them with one"
        fix = "Are these the labels? Name the column of classes with label_column"
    elif FEW * len(labels) < total:
        what = f"{len(labels):,} distinct examples in {total:,} rows; {what}"
        fix = "Is that their column? Name it with text_column or image_column, or set copies=apart"
    elif len(lone) > 1:
        what += f", and so {'has' if len(lone) == 2 else 'have'} {len(lone) - 1:,} more"
        fix = f"Add examples of them, or {'set copies=apart' if copies > 1 else without_class(*lone[:MOST])}"
    what, fix = about_labels(labels, f"{what}, which cannot be in both parts", fix)
    return TooFewExamplesError(what, where=where, fix=fix)


def stratified_split(labels: Labels, size: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two disjoint sets of indices, ``(rest, held)``, each int64 and ascending.

    Args:
        labels: one per example.
        size: of ``held``: a share (< 1) or a count (>= 1).

    Raises:
        DataError: the size does not fit, or a class is too small to stand in both parts.
    """
    from sklearn.model_selection import StratifiedShuffleSplit

    labels = list(_strata(labels, size))
    if error := _lone(labels, "split"):
        raise error
    held, classes = _count(size, len(labels)), len(set(labels))
    if min(held, len(labels) - held) < classes:
        what = f"a part of {min(held, len(labels) - held)} examples cannot hold {classes} classes"
        what, fix = about_labels(labels, what, "Choose another size")
        raise TooFewExamplesError(what, where="split size", fix=fix)
    split = StratifiedShuffleSplit(n_splits=1, test_size=held, random_state=seed)
    rest_idx, held_idx = next(split.split(np.zeros(len(labels)), np.asarray(labels)))
    return np.sort(rest_idx).astype(np.int64), np.sort(held_idx).astype(np.int64)


def random_split(
    columns: Sequence[Sequence], size: float, seed: int, groups: Sequence[str] | None = None
) -> tuple[list[list], list[list]]:
    """Rows of ``columns`` of one length in two parts, ``(rest, held)``, each in the order given.

    Args:
        size: of ``held``: a share (< 1) or a count (>= 1).
        groups: one key a row; those of one key stay together.

    Raises:
        DataError: the size does not fit.
    """
    n = len(columns[0])
    held = set(grouped_choice(groups or range(n), _count(size, n), seed).tolist())
    rest = [[x for i, x in enumerate(column) if i not in held] for column in columns]
    return rest, [[x for i, x in enumerate(column) if i in held] for column in columns]


def block_split(labels: Labels, size: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """As ``stratified_split``, but of every class ``held`` takes up to four runs of neighboring rows.

    For tables in which rows that belong together (reviews of one film, comments of one author) stand
    together: but for the ends of the runs, no such group has rows in both parts. Neighbors are rows of one
    class with no other row of that class between them.

    Args and errors: as in ``stratified_split``.
    """
    labels = [0] * len(labels) if are_numbers(labels) else list(_strata(labels, size))
    _, of_class = stratified_split(labels, size, seed)  # checks, and how many of each class
    wanted = Counter(labels[i] for i in of_class.tolist())
    rng, held = np.random.default_rng(seed), []
    for name in sorted(wanted, key=str):
        rows = np.flatnonzero([label == name for label in labels])
        runs = min(BLOCKS, wanted[name])
        gaps = np.sort(rng.integers(0, len(rows) - wanted[name] + 1, runs))  # rows left out before each run
        lengths = np.array([len(part) for part in np.array_split(np.arange(wanted[name]), runs)])
        starts = gaps + np.cumsum(lengths) - lengths
        held += [rows[start : start + length] for start, length in zip(starts, lengths)]
    held_idx = np.sort(np.concatenate(held)).astype(np.int64)
    return np.setdiff1d(np.arange(len(labels)), held_idx).astype(np.int64), held_idx


def grouped_split(
    labels: Labels, groups: Sequence[str], size: float, seed: int, blocks: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """As ``stratified_split`` (or ``block_split``), with all examples of one group on one side.

    A group's class is the label of its first example. Where no group has two, the parts are those that
    the split without groups makes.

    Args:
        groups: one key per example.
        size: of ``held``, in examples; what it has may differ, since groups are taken whole.

    Raises:
        DataError: the size does not fit, or a class has one group, which cannot stand in both parts.
    """
    split = block_split if blocks else stratified_split
    labels, first = list(labels), distinct(groups)
    if len(first) in (1, len(labels)):  # of one group the check of classes says what is wrong
        return split(labels, size, seed)
    kept = list(_strata([labels[i] for i in first], size if size < 1 else size / len(labels)))
    every = Counter(kept) if are_sets(labels) or are_numbers(labels) else Counter(labels)
    if error := _lone(kept, "split", every):
        raise error
    classes = len(set(kept))
    wanted = round(_count(size, len(labels)) / len(labels) * len(first))
    most = max(len(first) - classes, 1)
    _, held = split(kept, float(min(max(wanted, classes), most)), seed)
    chosen = {groups[first[i]] for i in held.tolist()}
    inside = np.array([key in chosen for key in groups])
    return np.flatnonzero(~inside).astype(np.int64), np.flatnonzero(inside).astype(np.int64)


def grouped_choice(groups: Sequence[Any], count: int, seed: int) -> np.ndarray:
    """Of examples without labels about ``count``, drawn at random, every group whole: rising places, int64.

    Where no group has two these are the first ``count`` of numpy's permutation.
    """
    first = distinct(groups)
    wanted = count if len(first) == len(groups) else round(count / len(groups) * len(first))
    wanted = min(max(wanted, 1), max(len(first) - 1, 1))
    order = np.random.default_rng(seed).permutation(len(first))[:wanted]
    chosen = {groups[first[i]] for i in order.tolist()}
    return np.flatnonzero([key in chosen for key in groups]).astype(np.int64)


def stratified_folds(
    labels: Labels, folds: int, seed: int, groups: Sequence[str] | None = None, blocks: bool = False
) -> np.ndarray:
    """The fold of each example, int64 [n] in ``0..folds-1``; classes keep their shares in every fold.

    Args:
        groups: one per example; equal ones share a fold, which is chosen by the label of the first.
        blocks: each fold has one run of neighboring rows a class (``block_split``), whatever the seed.

    Raises:
        DataError: a class has fewer (distinct) examples than folds.
    """
    from sklearn.model_selection import StratifiedKFold

    keys = list(range(len(labels))) if groups is None else list(groups)
    first = distinct(keys)
    kept = list(strata([labels[i] for i in first], len(first) // folds))
    kept = [0] * len(kept) if blocks and are_numbers(labels) else kept
    rare, seen = min(Counter(kept).items(), key=lambda item: item[1])
    if seen < folds:
        if hardly_classes(kept) and (error := _lone(kept, "folds")):
            raise error
        what = f"class {rare!r} has {seen} distinct examples for {folds} folds"
        fix = f"Use {seen} folds or fewer, or add examples"
        fix = fix if seen > 1 else f"Add examples of it, or {without_class(rare)}"
        what, fix = about_labels(kept, what, fix)
        raise TooFewExamplesError(what, where="folds", fix=fix)
    maker = StratifiedKFold(folds, shuffle=not blocks, random_state=None if blocks else seed)
    split = maker.split(np.zeros(len(kept)), np.asarray(kept))
    fold_of = {keys[first[i]]: number for number, (_, held) in enumerate(split) for i in held.tolist()}
    return np.array([fold_of[key] for key in keys], np.int64)


def stratified_subset(labels: Labels, size: float, seed: int) -> np.ndarray:
    """Ascending indices of ``size`` examples (share or count), all of them if there are no more.

    Classes keep their shares; where they are too small for that, the choice is plainly random.
    """
    n = len(labels)
    if size >= n:
        return np.arange(n)
    try:
        return stratified_split(labels, size, seed)[1]
    except DataError:
        count = max(1, _count(size, n))
        return np.sort(np.random.default_rng(seed).choice(n, count, replace=False)).astype(np.int64)


def split_by_distinct_text(
    texts: Sequence[str], labels: Labels, sizes: Mapping[str, float], seed: int
) -> dict[str, np.ndarray]:
    """Part -> ascending indices, where all copies of a text fall into the same part.

    Args:
        sizes: part -> share of the distinct texts of each class; the shares add up to 1. A text's
            class is the label of its first copy.

    Raises:
        DataError: the shares do not add up to 1, or a part would stay empty.
    """
    if not sizes or min(sizes.values()) <= 0 or abs(sum(sizes.values()) - 1) > 1e-9:
        fix = 'Give {"train": 0.8, "test": 0.2}'
        raise DataError("the shares do not add up to 1", where="sizes", fix=fix)
    copies, by_class = defaultdict[str, list[int]](list), defaultdict[Any, list[str]](list)
    for index, text in enumerate(texts):
        copies[text].append(index)
    for text, indices in copies.items():
        by_class[labels[indices[0]]].append(text)
    rng = random.Random(seed)
    parts: dict[str, list[int]] = {name: [] for name in sizes}
    for label in sorted(by_class, key=str):
        own = sorted(by_class[label])
        rng.shuffle(own)
        start, share = 0, 0.0
        for name, size in sizes.items():
            share += size
            stop = round(share * len(own))
            parts[name] += [index for text in own[start:stop] for index in copies[text]]
            start = stop
    if empty := [name for name, indices in parts.items() if not indices]:
        fix = "Give more texts or a larger share"
        raise TooFewExamplesError(f"part {empty[0]!r} would be empty", where="sizes", fix=fix)
    return {name: np.sort(np.asarray(indices, dtype=np.int64)) for name, indices in parts.items()}


# --- the splits of one run ------------------------------------------------------------------------


@dataclass(frozen=True)
class Splits:
    """The examples of one run. ``judged`` is the split that the final figures come from."""

    dataset: Any  # Dataset
    train: Any  # TextSplit, ImageSplit, PairSplit
    validation: Any | None
    judged: Any | None
    judged_name: str

    def parts(self) -> dict[str, Any]:
        """Name -> split of those that there are."""
        parts = {"train": self.train, "validation": self.validation, self.judged_name: self.judged}
        return {name: split for name, split in parts.items() if split is not None}

    def sizes(self) -> str:
        """``97 train, 29 validation, 31 test``."""
        return ", ".join(f"{len(split):,} {name}" for name, split in self.parts().items())


def as_they_are(dataset: Any) -> Splits:
    """Data other than a recipe's own, nothing held out: the test split is judged, or the first there is."""
    splits = dataset.splits
    judged = splits.get("test") or next(iter(splits.values()))
    return Splits(dataset, splits.get("train"), splits.get("validation"), judged, "test")


def labelled(split: Any | None) -> Any | None:
    """A split that has labels; None where it has none."""
    return None if split is None or split.labels is None else split


def split_up(dataset: Any, d: Any, judged_name: str, *, apart: Sequence[str | None] = APART) -> Splits:
    """The splits of a data set, and what is held out of its training part.

    Args:
        d: the section ``data`` of a recipe.
        judged_name: of the split that is judged.
        apart: values of ``d.copies`` that let copies of one example stand on both sides.

    Raises:
        DataError: no training split, or a part that cannot be held out.
        ConfigError: no split of that name.
    """
    splits = dict(dataset.splits)
    if "train" not in splits:
        raise NoSuchSplitError(f"no train split, only {', '.join(splits)}", where=d.source)
    try:
        for name, size in (("test", d.test_size), ("validation", d.validation_size)):
            if size is not None and (name == "validation" or name not in splits):
                splits["train"], splits[name] = hold_out(splits["train"], size, d, apart)
    except DataError as error:  # which columns were read may be what is wrong
        text, label, *_ = getattr(dataset, "columns", (None, None))
        if error.where != "split" or text is None or label is None:
            raise
        where = f"split of {text!r} by {label!r}"
        raise error.but(where=where) from None
    train = splits["train"]
    if d.train_size is not None and d.train_size < len(train):
        train = train.select(_drawn(train, d.train_size, d.split_seed, shuffled=train.SHUFFLED).tolist())
    if (pair := getattr(dataset, "pair_column", None)) is not None:
        refuse_target_columns(train, (dataset.columns[0], pair))
    name = choose_judged(judged_name, [*splits])
    judged = splits.get(name)
    if judged is None and judged_name == "validation":
        fix = "Set validation_size, such as 0.1"
        raise NoSuchSplitError("no validation split to evaluate on", where=d.source, fix=fix)
    return Splits(dataset, train, splits.get("validation"), judged, name)


def hold_out(train: Any, size: float, d: Any, apart: Sequence[str | None] = APART) -> tuple[Any, Any]:
    """What is kept of a split and what is held out; arguments and errors as of ``split_up``."""
    copies, seed = getattr(d, "copies", None), d.split_seed
    groups = None if copies in apart else groups_of(train, copies == "sides")
    if not train.STRATIFIED:
        held = grouped_choice(groups or range(len(train)), _count(size, len(train)), seed)
        kept = np.setdiff1d(np.arange(len(train)), held)
        return train.select(kept.tolist()), train.select(held.tolist())
    labels, blocks = train.labels or [], d.hold_out == "blocks"
    if not labels:
        fix = "Name their column with label_column"
        raise DataError("no labels, by whose shares a part is held out", where=train.origin, fix=fix)
    if groups is not None:
        kept, held = grouped_split(labels, groups, size, seed, blocks)
    else:
        kept, held = (block_split if blocks else stratified_split)(labels, size, seed)
    return train.select(kept.tolist()), train.select(held.tolist())


def _drawn(split: Any, count: int, seed: int, *, shuffled: bool) -> np.ndarray:
    """Ascending places of ``count`` examples of a split, drawn as its kind draws."""
    if split.STRATIFIED:
        return stratified_subset(split.labels or [0] * len(split), count, seed)
    rng = np.random.default_rng(seed)
    if shuffled:
        return np.sort(rng.permutation(len(split))[:count])
    return np.sort(rng.choice(len(split), count, replace=False))


def choose_judged(wanted: str, splits: Sequence[str]) -> str:
    """The split that is judged: the one asked for, or validation where there is no test split.

    Raises:
        ConfigError: another split is asked for and not there (the nearest is named).
    """
    if wanted not in (*splits, "test", "validation"):
        raise BadValueError(f"no split {wanted!r}", where="evaluate.split", fix=nearest(wanted, [*splits]))
    return wanted if wanted in splits else "validation"


def with_limit(dataset: D, limit: int | None, seed: int) -> D:
    """At most ``limit`` examples of each split, of each class its share, file order kept; None: all."""
    if limit is None:
        return dataset
    splits = dict(dataset.splits)
    for name, split in splits.items():
        if len(split) > limit:
            splits[name] = split.select(_drawn(split, limit, seed, shuffled=False).tolist())
    return replace(dataset, splits=splits)
