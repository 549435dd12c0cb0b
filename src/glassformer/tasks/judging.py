"""Steps that all runs share: fit, score the splits, reload the data of a finished run and check them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from glassformer.checkpoints.files import read_json
from glassformer.data.copies import content_digest
from glassformer.data.image_sources import NAMED_IMAGES
from glassformer.data.pairs import PAIR_SOURCES, SCORED_SOURCES
from glassformer.data.rejected import summary
from glassformer.data.sources import NAMED_SOURCES
from glassformer.data.splits import grouped_choice
from glassformer.errors import DataChangedError, InputError, NoSuchSplitError, TooFewExamplesError
from glassformer.tasks.task import RunContext

KEY = "data_sha256"  # key of metrics.json
PARTS = ("train", "validation", "judged")  # judged: the split that was evaluated


def is_named(source: str) -> bool:
    """Whether a source is the name of a data set, which comes with its splits."""
    return source in {*NAMED_SOURCES, *NAMED_IMAGES, *PAIR_SOURCES, *SCORED_SOURCES}


def part_digests(data: Any) -> dict[str, str]:
    """The SHA-256 of each split of a run's data: examples and targets, in order."""
    parts = {name: getattr(data, name, None) for name in PARTS}
    return {name: content_digest(part) for name, part in parts.items() if part is not None}


def changed_parts(folder: Path, data: Any) -> set[str] | None:
    """The splits that differ from those of the run; None if the run has no digests of them."""
    file = folder / "metrics.json"
    saved = read_json(file).get(KEY) if file.is_file() else None
    if not isinstance(saved, dict):
        return None
    current = part_digests(data)
    return {name for name in {*saved, *current} if saved.get(name) != current.get(name)}


def check_resumed(folder: Path, data: Any, source: str) -> None:
    """Raise DataError if a run would resume on other training data."""
    if "train" in (changed_parts(folder, data) or ()):
        fix = "Restore it, or train into another folder: --out FOLDER"
        raise DataChangedError("has changed since the training", where=source, fix=fix)


def own_data(context: RunContext, parts: Sequence[str] = ("judged",)) -> Any:
    """Load the data of a finished run, split as in its recipe. If one of the needed ``parts`` has changed but
    the training split has not, it is used and a line is logged."""
    data, source = context.task.load(context.recipe), context.recipe.data.source
    changed = changed_parts(context.folder, data)
    if changed is None:
        if not is_named(source):
            context.log(
                f"whether {source} is as it was at the training is not known: the run keeps no digest"
            )
        return data
    needed = changed.intersection(parts)
    if needed and "train" in changed:
        what = "has changed since the training: drawn anew, its split may hold rows that the model has seen"
        fix = f"Restore it, or give rows that are new: glassformer evaluate {context.folder} --data FILE"
        raise DataChangedError(what, where=source, fix=fix)
    if needed:
        context.log(f"{source} has changed since the training; its training examples are the same")
    return data


def training_part(context: RunContext) -> Any:
    """The training split of a finished run; None if it has changed or cannot be loaded."""
    recipe = context.trained or context.recipe  # ``context.recipe`` may have the columns of other data
    if not Path(recipe.data.source).exists():  # a named data set, which may need a download
        return None
    try:
        data = context.task.load(recipe)
    except InputError:
        return None
    return None if "train" in (changed_parts(context.folder, data) or ()) else data.train


Scored = Callable[[Any], tuple[dict[str, Any], Any]]  # split -> its metrics and predictions
Metrics = Callable[..., tuple[dict[str, Any], Any]]  # estimator, split, resamples, progress -> the same
TRAINING_SAMPLE = 500  # training examples that are evaluated, to show overfitting


def read_source(load_dataset: Callable[..., Any], recipe: Any, source: str | None, *columns: str) -> Any:
    """The data set of a recipe, or of another source; ``columns``: the recipe's keys of its columns."""
    d = recipe.data
    known = {key: getattr(d, key) for key in (*columns, "on_bad_row")}
    part = {"limit": d.limit, "seed": d.split_seed} if source is None else {}
    return load_dataset(d.source if source is None else source, **known, **part)


def splits_of(dataset: Any, d: Any, source: str) -> dict[str, Any]:
    """The splits of a source that the section ``data`` of a recipe names; raises DataError for none."""
    if not (by_name := {name: dataset.splits[name] for name in d.splits if name in dataset.splits}):
        what, fix = f"none of the splits {', '.join(d.splits)}", f"There are: {', '.join(dataset.splits)}"
        raise NoSuchSplitError(what, where=source, fix=fix)
    return by_name


def sampled(items: list[Any], d: Any) -> list[Any]:
    """At most ``limit`` of the items, drawn with ``split_seed``, in their order."""
    if d.limit is None or d.limit >= len(items):
        return items
    rows = np.random.default_rng(d.split_seed).choice(len(items), d.limit, replace=False)
    return [items[i] for i in np.sort(rows).tolist()]


def held_out(n: int, noun: str, d: Any, keys: Sequence[str] | None) -> tuple[list[int], list[int]]:
    """Indices of the training and validation part of ``n`` examples; equal ``keys`` stay together."""
    size = d.validation_size
    held = round(size * n) if size < 1 else min(round(size), n // 5)
    if not 0 < held < n:
        what = f"{size:g} of {n} {noun} cannot be held out"
        raise TooFewExamplesError(what, where=d.source, fix="Change validation_size")
    if keys is None:
        held_rows = np.sort(np.random.default_rng(d.split_seed).permutation(n)[:held])
    else:
        held_rows = grouped_choice(keys, held, d.split_seed)
    return np.setdiff1d(np.arange(n), held_rows).tolist(), held_rows.tolist()


def nothing_held_out(splits: Any, noun: str, predictions: str) -> list[str]:
    """A line for the preview if no examples are held out; ``noun`` and ``predictions`` name them."""
    if splits.validation is not None or splits.judged is not None:
        return []
    what = f"no held-out {noun}: nothing will evaluate the {predictions}"
    return [f"{what}; --set test_size=0.1 holds out a tenth"]


def measure_of(recipe: Any) -> Literal["accuracy", "macro_f1"]:
    """The main metric of a classification run: macro F1 if ``monitor`` is, otherwise accuracy."""
    monitor = getattr(getattr(recipe, "train", None), "monitor", None)
    return "macro_f1" if monitor == "macro_f1" else "accuracy"


def fit(context: RunContext, **options: Any) -> None:
    """Train on the training split; the validation split selects the best epoch."""
    train, held = context.data.train, context.data.validation
    validation = (held.examples, held.labels) if held else None
    context.estimator.fit(train.examples, train.labels, validation=validation, **options)


def score_splits(context: RunContext, scored: Scored, sample: Any, measure: str) -> dict[str, Any]:
    """Metrics of the splits and a ``sample`` of the training examples (which show overfitting), for
    metrics.json. The predictions for the test split (or its substitute) become ``context.answers``."""
    splits = context.data
    out: dict[str, Any] = {
        "train": scored(sample)[0] | {"of": len(splits.train)},
        "validation": None if splits.validation is None else scored(splits.validation)[0],
        "test": None,
        "judged": splits.judged_name,
        "measure": measure,
        "baselines": {},
        "seconds": {},
    }
    if splits.judged is not None and splits.judged.labels is not None:
        started = time.perf_counter()
        out["test"], context.answers = scored(splits.judged)
        out["seconds"]["inference"] = time.perf_counter() - started
        out["openings"] = {splits.judged_name: 1}
    return out


def evaluate_splits(context: RunContext, metrics: Metrics, measure: str) -> dict[str, Any]:
    """``score_splits``; of the training split some examples, without intervals."""
    train = context.data.train
    too_few = train.select(range(min(TRAINING_SAMPLE, len(train))))

    def scored(split: Any) -> tuple[dict[str, Any], Any]:
        bootstrap = 0 if split is too_few else context.recipe.evaluate.bootstrap
        with context.count("evaluating", len(split)) as progress:
            return metrics(context.estimator, split, bootstrap, progress)

    return score_splits(context, scored, too_few, measure)


def split_to_evaluate(
    context: RunContext,
    source: str | None,
    load: Callable[..., Any],
    noun: str,
    needed: str = "",
    also: Callable[[Any], str] = lambda dataset: "",
) -> Any:
    """The split to evaluate, of a run's own data or of another source; logs its size, and ``also`` of the
    data set. ``needed``: noun of the targets that it must have; empty: examples are enough."""
    splits = own_data(context) if source is None else load(context.recipe, source)
    if rejected := splits.dataset.rejected:
        context.log(summary(rejected, is_listed=False))
    split, where = splits.judged, source or context.recipe.data.source
    if split is None or (needed and split.labels is None):
        raise NoSuchSplitError(
            f"nothing to evaluate: no {needed or 'validation and no test split'}", where=where
        )
    context.log(f"{len(split):,} {noun} of {split.origin}{also(splits.dataset)}")
    return split
