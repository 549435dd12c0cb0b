"""Random splits of data sets."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from glassformer.config import suggest
from glassformer.data.checks import FIT_LABELS
from glassformer.data.columns import check_no_target_in_pairs
from glassformer.data.dataset import Dataset
from glassformer.data.duplicates import copy_keys, first_occurrences, group_by, positions_by_key
from glassformer.data.findings import listed_in_part
from glassformer.data.label_kinds import (
    MIN_CLASS_EXAMPLES,
    drop_class_hint,
    explain_label_error,
    find_label_problem,
    too_many_classes,
)
from glassformer.data.label_sets import are_sets, set_strata
from glassformer.data.numbers import are_numbers, quantile_bins
from glassformer.errors import (
    BadValueError,
    DataError,
    NoSuchSplitError,
    TooFewExamplesError,
    UnclearColumnError,
    counted,
)

D = TypeVar("D", bound=Dataset)
Parts = tuple[np.ndarray, np.ndarray]  # indices of the remaining examples, and of the held-out examples
COPIES_ALLOWED_FOR = (None, "apart")  # values of ``copies`` that allow copies of an example in both splits
Labels = Sequence[Any]  # every label is a str, an int, a float or a ``LabelSet``
MAX_DROPPED = 5  # maximum number of classes in a proposed setting that drops classes
NEED_ONE = "each need one"
SIZE_NAME = "split size"  # in messages, if the caller does not name the setting
MAX_BLOCKS = 4  # maximum number of blocks of neighboring rows per class in a held-out split


def _count(size: float, n: int, size_name: str = SIZE_NAME) -> int:
    """Number of examples that ``size`` denotes: a share of ``n`` if below 1, otherwise a count."""
    if not size > 0 or (size > 1 and size % 1):  # also true for NaN and infinity
        what = f"{size:g} is neither a share nor a number of examples"
        fix = "Use a share between 0 and 1, such as 0.1, or a whole number"
        raise BadValueError(what, where=size_name, fix=f"{fix} from 1 to {n - 1}" if n > 1 else fix)
    count = round(size * n) if size < 1 else int(min(size, n))
    if not 0 < count < n:
        sizes = f", a share between 0 and 1, or a whole number from 1 to {n - 1}" if n > 1 else ""
        what, fix = f"cannot hold out {size:g} of {counted(n, 'example')}", f"Give more examples{sizes}"
        raise TooFewExamplesError(what, where=size_name, fix=fix)
    return count


def _strata(labels: Labels, size: float, size_name: str) -> Sequence[Any]:
    """The stratum of each example, for holding out ``size`` examples (a share or a count)."""
    if are_sets(labels) or are_numbers(labels):
        return strata(labels, _count(size, len(labels), size_name))
    return labels


def strata(labels: Labels, num_held_out: int) -> Sequence[Any]:
    """The stratum of each example: its class, the rarest label of its set, or the bin of its number."""
    if are_numbers(labels):
        return quantile_bins(labels, min(num_held_out, len(labels) - num_held_out))
    return set_strata(labels, num_held_out) if are_sets(labels) else labels


def _single_example_error(
    labels: Labels, reason: str, where: str = FIT_LABELS, all_labels: Counter | None = None
) -> DataError | None:
    """The error for classes with only one distinct example, which cannot be split; None if there are none.

    Args:
        labels: the label of each distinct example.
        reason: a clause that says why one example is not enough.
        all_labels: counts of the labels of all examples, including copies; None: there are no copies.
    """
    counts = Counter(labels)
    total_counts = counts if all_labels is None else all_labels
    rare = [label for label, count in counts.items() if count == 1]
    if not rare:
        return None
    if problem := find_label_problem(labels):
        return UnclearColumnError(problem[0], where=where, fix=problem[1])
    single = [label for label in rare if total_counts[label] == 1]
    names = listed_in_part(list(map(repr, single or rare)))
    if too_many_classes(labels):
        what = f"{len(counts):,} classes for {len(labels):,} examples, "
        what += f"{len(rare):,} of which have one example, but {reason}"
        fix = "Are these the labels? Name the column of classes with label_column"
    elif MIN_CLASS_EXAMPLES * len(labels) < total_counts.total():
        what = f"{len(labels):,} distinct examples in {total_counts.total():,} rows are too few: {reason}"
        fix = "Add different examples, or pass --set copies=apart. "
        fix += "If another column has the examples, name it with text_column or image_column"
    elif not single:
        what = f"{len(rare):,} of {len(counts):,} classes have only copies of one example ({names})"
        if len(rare) == 1:
            count = total_counts[rare[0]]
            what = f"the {count:,} examples of class {rare[0]!r} are copies of one another"
        what += ", and copies stay in one split"
        fix = "Add different examples, or pass --set copies=apart"
    else:
        what, fix = f"class {single[0]!r} has only one example, but {reason}", "Add examples of the class"
        if len(single) > 1:
            what = f"{len(single):,} of {len(counts):,} classes have only one example ({names}), but {reason}"
            fix = "Add examples of these classes"
        if len(counts) - len(single) > 1:  # otherwise fewer than two classes would be left
            fix += f", or {drop_class_hint(*single[:MAX_DROPPED])}"
    return TooFewExamplesError(what, where=where, fix=fix)


def _both_parts(size_name: str) -> str:
    """The clause that says why a class needs two examples, such as "training and test each need one"."""
    part = size_name.partition("_")[0] if size_name != SIZE_NAME else "the held-out part"
    return f"training and {part} {NEED_ONE}"


def stratified_split(labels: Labels, size: float, seed: int, *, size_name: str = SIZE_NAME) -> Parts:
    """Split examples at random, stratified by label.

    Args:
        labels: one label per example.
        size: size of the held-out part: a share (< 1) or a count (>= 1).
        size_name: the setting of ``size`` in error messages, such as ``test_size``.

    Returns:
        The indices of the remaining examples and of the held-out examples, int64 and ascending.

    Raises:
        BadValueError: ``size`` is neither a share nor a count.
        DataError: ``size`` is too small or too large, or a class is too small to be in both parts.
    """
    from sklearn.model_selection import StratifiedShuffleSplit

    labels = list(_strata(labels, size, size_name))
    if error := _single_example_error(labels, _both_parts(size_name)):
        raise error
    n, classes = len(labels), len(set(labels))
    num_held_out = _count(size, n, size_name)
    if min(num_held_out, n - num_held_out) < classes:
        what, bound = f"{num_held_out} of {n} examples would be held out", f"at least {classes}"
        if n - num_held_out < classes:
            what = f"{n - num_held_out} of {n} examples would be left for training"
            bound = f"at most {n - classes}"
        what, fix = f"{what}, fewer than the {classes} classes", f"Add examples, or hold out {bound}"
        what, fix = explain_label_error(labels, what, fix)
        raise TooFewExamplesError(what, where=size_name, fix=fix)
    split = StratifiedShuffleSplit(n_splits=1, test_size=num_held_out, random_state=seed)
    rest, held_out = next(split.split(np.zeros(len(labels)), np.asarray(labels)))
    return np.sort(rest).astype(np.int64), np.sort(held_out).astype(np.int64)


def random_split(
    columns: Sequence[Sequence], size: float, seed: int, groups: Sequence[str] | None = None
) -> tuple[list[list], list[list]]:
    """Split the rows of ``columns`` into remaining and held-out rows, in the original order.

    Args:
        size: size of the held-out part: a share (< 1) or a count (>= 1).
        groups: one key per row; rows with the same key stay together.
    """
    n = len(columns[0])
    name = "validation_fraction"
    held_out = {*grouped_choice(groups or range(n), _count(size, n, name), seed, size_name=name).tolist()}
    rest = [[x for i, x in enumerate(column) if i not in held_out] for column in columns]
    return rest, [[x for i, x in enumerate(column) if i in held_out] for column in columns]


def block_split(labels: Labels, size: float, seed: int, *, size_name: str = SIZE_NAME) -> Parts:
    """Like ``stratified_split``, but hold out up to four blocks of neighboring rows of every class.

    This is for tables in which related rows (reviews of the same film, comments of the same author) are
    adjacent. Except at the ends of the blocks, related rows stay in the same part. Two rows are neighbors if
    they have the same class and no row of this class is between them.
    """
    labels = [0] * len(labels) if are_numbers(labels) else list(_strata(labels, size, size_name))
    # A stratified split checks the arguments, and gives the number of held-out rows of each class.
    _, stratified = stratified_split(labels, size, seed, size_name=size_name)
    sizes = Counter(labels[i] for i in stratified.tolist())
    rng, blocks = np.random.default_rng(seed), []
    for name in sorted(sizes, key=str):
        rows = np.flatnonzero([label == name for label in labels])
        num_blocks = min(MAX_BLOCKS, sizes[name])
        # the number of other rows before each block
        gaps = np.sort(rng.integers(0, len(rows) - sizes[name] + 1, num_blocks))
        lengths = np.array([len(block) for block in np.array_split(np.arange(sizes[name]), num_blocks)])
        starts = gaps + np.cumsum(lengths) - lengths
        blocks += [rows[start : start + length] for start, length in zip(starts, lengths)]
    held_out = np.sort(np.concatenate(blocks)).astype(np.int64)
    return np.setdiff1d(np.arange(len(labels)), held_out).astype(np.int64), held_out


def grouped_split(
    labels: Labels,
    groups: Sequence[Any],
    size: float,
    seed: int,
    blocks: bool = False,
    *,
    size_name: str = SIZE_NAME,
) -> Parts:
    """Like ``stratified_split`` (or ``block_split``), with all examples of a group in the same part.

    A group's class is the label of its first example. If all groups have one example, the result is the same
    as without groups.

    Args:
        groups: one key per example.
        size: size of the held-out part in examples; the result may differ, since groups are not divided.
        size_name: the setting of ``size`` in error messages.

    Raises:
        DataError: ``size`` is impossible, or a class has only one group, which cannot be in both parts.
    """
    split = partial(block_split if blocks else stratified_split, size_name=size_name)
    labels, first_indices = list(labels), first_occurrences(groups)
    if len(first_indices) in (1, len(labels)):  # for one group, ``split`` raises the error
        return split(labels, size, seed)
    share = size if size < 1 else size / len(labels)
    group_labels = list(_strata([labels[i] for i in first_indices], share, size_name))
    all_labels = Counter(group_labels) if are_sets(labels) or are_numbers(labels) else Counter(labels)
    if error := _single_example_error(group_labels, _both_parts(size_name), all_labels=all_labels):
        raise error
    classes = len(set(group_labels))
    num_groups = round(_count(size, len(labels), size_name) / len(labels) * len(first_indices))
    max_groups = max(len(first_indices) - classes, 1)
    _, held_out = split(group_labels, float(min(max(num_groups, classes), max_groups)), seed)
    held_out_groups = {groups[first_indices[i]] for i in held_out.tolist()}
    is_held_out = np.array([key in held_out_groups for key in groups])
    return np.flatnonzero(~is_held_out).astype(np.int64), np.flatnonzero(is_held_out).astype(np.int64)


def grouped_choice(groups: Sequence[Any], count: int, seed: int, *, size_name: str = SIZE_NAME) -> np.ndarray:
    """Sorted positions of about ``count`` random examples, int64; groups are not divided.

    Raises:
        DataError: all examples are in one group, so no other examples would remain.
    """
    firsts = first_occurrences(groups)
    if len(firsts) == 1 < len(groups):
        what = f"all {len(groups):,} examples are copies of one another, and copies stay in one split"
        raise TooFewExamplesError(
            what, where=size_name, fix=f"Add different examples, or leave {size_name} out"
        )
    num_groups = count if len(firsts) == len(groups) else round(count / len(groups) * len(firsts))
    num_groups = min(max(num_groups, 1), max(len(firsts) - 1, 1))
    order = np.random.default_rng(seed).permutation(len(firsts))[:num_groups]
    chosen_groups = {groups[firsts[i]] for i in order.tolist()}
    return np.flatnonzero([key in chosen_groups for key in groups]).astype(np.int64)


def stratified_folds(
    labels: Labels,
    folds: int,
    seed: int,
    groups: Sequence[str] | None = None,
    blocks: bool = False,
    *,
    origin: str = "folds",
) -> np.ndarray:
    """The fold of each example, int64 [n] in ``0..folds-1``, stratified by class.

    Args:
        groups: one key per example; examples of a group are in the same fold. A group's class is its first
            label.
        blocks: whether a fold is one block of neighboring rows of each class; if so, ``seed`` is ignored.
        origin: the file and column of the labels in error messages.

    Raises:
        DataError: a class has fewer (distinct) examples than folds.
    """
    from sklearn.model_selection import StratifiedKFold

    keys = list(range(len(labels))) if groups is None else list(groups)
    firsts = first_occurrences(keys)
    group_labels = list(strata([labels[i] for i in firsts], len(firsts) // folds))
    group_labels = [0] * len(group_labels) if blocks and are_numbers(labels) else group_labels
    rare, num_examples = min(Counter(group_labels).items(), key=lambda item: item[1])
    if num_examples < folds:
        reason = f"{folds} folds need {folds}"
        if too_many_classes(group_labels) and (error := _single_example_error(group_labels, reason, origin)):
            raise error
        noun = "example" if len(firsts) == len(labels) else "distinct example"
        what = f"class {rare!r} has {counted(num_examples, noun)}, but {reason}"
        fix = f"Use {num_examples} folds or fewer, or add examples"
        if num_examples == 1:
            fix = "Add examples of the class"
            if len(set(group_labels)) > 2:  # otherwise fewer than two classes would be left
                fix += f", or {drop_class_hint(rare)}"
        what, fix = explain_label_error(group_labels, what, fix)
        raise TooFewExamplesError(what, where=origin, fix=fix)
    splitter = StratifiedKFold(folds, shuffle=not blocks, random_state=None if blocks else seed)
    split = splitter.split(np.zeros(len(group_labels)), np.asarray(group_labels))
    fold_of = {keys[firsts[i]]: fold for fold, (_, held_out) in enumerate(split) for i in held_out.tolist()}
    return np.array([fold_of[key] for key in keys], np.int64)


def stratified_subset(labels: Labels, size: float, seed: int) -> np.ndarray:
    """Ascending indices of ``size`` examples (share or count), or of all examples if there are fewer.

    The choice is stratified by class, or purely random if classes are too small.
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
    """Split texts at random, with all copies of a text in the same part.

    Args:
        sizes: name of a part -> its share of the distinct texts of each class; the shares add up to 1. A
            text's class is the label of its first copy.

    Returns:
        Name of each part -> ascending indices.

    Raises:
        DataError: the shares do not add up to 1, or a part would be empty.
    """
    if not sizes or min(sizes.values()) <= 0 or abs(sum(sizes.values()) - 1) > 1e-9:
        fix = 'Use shares such as {"train": 0.8, "test": 0.2}'
        raise DataError("the shares do not add up to 1", where="sizes", fix=fix)
    positions = positions_by_key(texts)
    by_class = group_by(positions, lambda text: labels[positions[text][0]])
    rng = random.Random(seed)
    parts: dict[str, list[int]] = {name: [] for name in sizes}
    for label in sorted(by_class, key=str):
        texts_of_class = sorted(by_class[label])
        rng.shuffle(texts_of_class)
        start, share = 0, 0.0
        for name, size in sizes.items():
            share += size
            stop = round(share * len(texts_of_class))
            parts[name] += [index for text in texts_of_class[start:stop] for index in positions[text]]
            start = stop
    if empty := [name for name, indices in parts.items() if not indices]:
        fix = "Give more texts, or use a larger share"
        raise TooFewExamplesError(f"part {empty[0]!r} would be empty", where="sizes", fix=fix)
    return {name: np.sort(np.asarray(indices, dtype=np.int64)) for name, indices in parts.items()}


# --- the splits of one run ------------------------------------------------------------------------


@dataclass(frozen=True)
class Splits:
    """The examples of one run."""

    dataset: Any  # Dataset
    train: Any  # TextSplit, ImageSplit, PairSplit
    validation: Any | None
    evaluated: Any | None  # the split that is evaluated for the final metrics
    evaluated_split: str  # its name

    def parts(self) -> dict[str, Any]:
        """Name -> split, without missing splits."""
        splits = {"train": self.train, "validation": self.validation, self.evaluated_split: self.evaluated}
        return {name: split for name, split in splits.items() if split is not None}

    def sizes(self) -> str:
        """The sizes of the splits as text, such as ``97 train, 29 validation, 31 test``."""
        return ", ".join(f"{len(split):,} {name}" for name, split in self.parts().items())


def evaluation_splits(dataset: Any) -> Splits:
    """The splits of data other than the recipe's, to evaluate their test split, or else the first split."""
    splits = dataset.splits
    evaluated = splits.get("test") or next(iter(splits.values()))
    return Splits(dataset, splits.get("train"), splits.get("validation"), evaluated, "test")


def labeled_or_none(split: Any | None) -> Any | None:
    """The split if it has labels, otherwise None."""
    return None if split is None or split.labels is None else split


def make_splits(
    dataset: Any,
    settings: Any,
    evaluated_split: str,
    *,
    copies_allowed_for: Sequence[str | None] = COPIES_ALLOWED_FOR,
) -> Splits:
    """The splits of a data set, including those held out of its training split.

    Args:
        settings: the section ``data`` of a recipe.
        evaluated_split: name of the split that is evaluated.
        copies_allowed_for: values of ``settings.copies`` that allow copies of an example in both splits.

    Raises:
        DataError: there is no training split, or a split cannot be held out.
        ConfigError: there is no split ``evaluated_split``.
    """
    splits, source = dict(dataset.splits), settings.source
    if "train" not in splits:
        raise NoSuchSplitError(f"there is no train split, only {', '.join(splits)}", where=source)
    for name, size in (("test", settings.test_size), ("validation", settings.validation_size)):
        if size is None or (name == "test" and name in splits):
            continue
        try:
            options = {"size_name": f"{name}_size"}
            splits["train"], splits[name] = hold_out(
                splits["train"], size, settings, copies_allowed_for, **options
            )
        except DataError as error:
            origin, what = splits["train"].origin, error.what
            if error.where == FIT_LABELS:
                if name == "validation" and "test" in splits and "test" not in dataset.splits:
                    what = f"with the test split held out, {what}"
                fix, pair = error.fix or "", _both_parts("test_size")
                if settings.validation_size is not None and "validation" not in splits and pair in what:
                    what = what.replace(pair, f"training, validation and test {NEED_ONE}")
                    fix = fix.replace("examples of", "examples (3 in all) of")
                raise error.replace(what=what, fix=fix, where=location_of_labels(dataset, origin)) from None
            if not str(error.where).endswith("_size"):
                raise
            raise error.replace(where=f"{origin}, {error.where}") from None
    train, train_size = splits["train"], settings.train_size
    if train_size is not None and train_size < len(train):
        selected = _sample(train, train_size, settings.split_seed, shuffled=train.SHUFFLED)
        train = train.select(selected.tolist())
    if (pair := getattr(dataset, "pair_column", None)) is not None:
        check_no_target_in_pairs(train, (dataset.columns[0], pair))
    name = choose_evaluated_split(evaluated_split, [*splits])
    evaluated = splits.get(name)
    if evaluated is None and evaluated_split == "validation":
        fix = "Set validation_size, for example to 0.1"
        raise NoSuchSplitError("there is no validation split to evaluate on", where=source, fix=fix)
    return Splits(dataset, train, splits.get("validation"), evaluated, name)


def location_of_labels(dataset: Any, origin: str) -> str:
    """The file and the column of the labels, for messages."""
    label = getattr(dataset, "columns", (None, None))[1]
    return f"{origin}, column {label!r}" if label else origin


def hold_out(
    train: Any,
    size: float,
    settings: Any,
    copies_allowed_for: Sequence[str | None] = COPIES_ALLOWED_FOR,
    *,
    size_name: str,
) -> tuple[Any, Any]:
    """Divide a split into the remaining and the held-out examples; for arguments see ``make_splits``."""
    copies, seed = getattr(settings, "copies", None), settings.split_seed
    groups = range(len(train)) if copies in copies_allowed_for else copy_keys(train, copies == "sides")
    if not train.STRATIFIED:
        held_out = grouped_choice(groups, _count(size, len(train), size_name), seed, size_name=size_name)
        rest = np.setdiff1d(np.arange(len(train)), held_out)
        return train.select(rest.tolist()), train.select(held_out.tolist())
    labels, blocks = train.labels, settings.hold_out == "blocks"
    if not labels:
        fix = "Name the column of labels with label_column"
        raise DataError("there are no labels to stratify the held-out split by", where=train.origin, fix=fix)
    rest, held_out = grouped_split(labels, groups, size, seed, blocks, size_name=size_name)
    return train.select(rest.tolist()), train.select(held_out.tolist())


def _sample(split: Any, count: int, seed: int, *, shuffled: bool) -> np.ndarray:
    """Ascending positions of ``count`` random examples.

    Args:
        shuffled: whether to take the first of a random permutation; ignored for stratified splits.
    """
    if split.STRATIFIED:
        return stratified_subset(split.labels or [0] * len(split), count, seed)
    rng = np.random.default_rng(seed)
    if shuffled:
        return np.sort(rng.permutation(len(split))[:count])
    return np.sort(rng.choice(len(split), count, replace=False))


def choose_evaluated_split(name: str, splits: Sequence[str]) -> str:
    """Name of the split to evaluate: ``name``, or ``validation`` if the data set lacks that split."""
    if name not in (*splits, "test", "validation"):
        fix = suggest(name, [*splits])
        raise BadValueError(f"there is no split {name!r}", where="evaluate.split", fix=fix)
    return name if name in splits else "validation"


def limit_examples(dataset: D, limit: int | None, seed: int) -> D:
    """At most ``limit`` examples of each split, stratified by class and in file order; None: all examples."""
    if limit is None:
        return dataset
    large = {k: split for k, split in dataset.splits.items() if len(split) > limit}
    samples = {k: v.select(_sample(v, limit, seed, shuffled=False).tolist()) for k, v in large.items()}
    return replace(dataset, splits=dataset.splits | samples)
