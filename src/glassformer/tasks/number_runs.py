"""What the runs of all regressors share: the fit, figures and intervals of the splits, and the page."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from glassformer.data.label_kinds import said_of_left_out
from glassformer.data.numbers import (
    Scale,
    far_from,
    number_findings,
    off_scale,
    on_scale,
    wide_span,
    with_logarithms,
)
from glassformer.data.splits import Splits, as_they_are, split_up
from glassformer.data.text_pairs import TextPair
from glassformer.errors import DataError
from glassformer.evaluate.predictions import SIMPLE, write_numbers, write_simple
from glassformer.targets.regression import COVERAGE, coverage_figures, errors_on, examples_needed
from glassformer.tasks import judging
from glassformer.tasks.judging import score_splits
from glassformer.tasks.labelled import figures, judge_again, measured, name_columns, training_sample
from glassformer.tasks.task import Work

POINTS = 2000  # of the report's figures; more cannot be seen
Baseline = Callable[[Sequence[Any], np.ndarray, Sequence[Any]], tuple[str, np.ndarray] | None]


def split_numbers(dataset: Any, recipe: Any, source: str | None) -> Splits:
    """The splits of a run; those of another source are as they are.

    Raises:
        DataError: no numbers in a split that is learned from or judged, none that can be held out, or one
            without a logarithm where these are learned.
    """
    d, scale = recipe.data, recipe.train.number_scale
    if scale == "log":
        skip = "skip" in (getattr(d, "on_bad_row", ""), getattr(d, "broken", ""))
        dataset = with_logarithms(dataset, skip)
    if source is not None:
        return as_they_are(dataset)
    splits = split_up(dataset, d, recipe.evaluate.split)
    if splits.train.labels is None:
        raise DataError("no numbers to learn", where=splits.train.origin, fix="Name label_column")
    return without_far(splits, scale) if getattr(d, "far_numbers", "keep") == "skip" else splits


def without_far(splits: Splits, scale: Scale = "linear") -> Splits:
    """Without the training and validation examples whose numbers lie far from all training numbers, which is
    said; what is judged stays whole."""
    numbers, parts, said = np.asarray(splits.train.labels, np.float64), {}, []
    for name, split in (("train", splits.train), ("validation", splits.validation)):
        if split is None or not split.labels or (name == "validation" and split is splits.judged):
            continue
        values = np.asarray(split.labels, np.float64)
        far = far_from(values, numbers, scale)
        parts[name] = split.select(np.flatnonzero(~far).tolist())
        if far.any():
            some = ", ".join(f"{value:.10g}" for value in values[far][:3])
            said.append(f"{far.sum():,} of {len(values):,} {name} numbers ({some})")
    if not said:
        return splits
    line = f"far from all others and left out: {', '.join(said)}"
    notes = getattr(splits.dataset, "said", None)
    kept = {"notes": (*splits.dataset.notes, line)} if notes is None else {"said": (*notes, line)}
    return replace(splits, dataset=replace(splits.dataset, **kept), **parts)


def said_of_rows(dataset: Any) -> list[str]:
    """Of the rows that are left out, those whose number can be read by an option."""
    line = said_of_left_out(row.reason for row in dataset.rejected)
    return [line] if line else []


def findings(splits: Splits, keys: Callable[[Any], list[str]], scale: Scale = "linear") -> list[Any]:
    """The data doctor's part on the numbers; ``keys`` gives one key for each example of a split, ``scale`` is
    what they are learned on."""
    parts = {"train": splits.train, "validation": splits.validation, splits.judged_name: splits.judged}
    there = {name: split for name, split in parts.items() if split is not None and split.labels}
    numbers = {name: split.labels for name, split in there.items()}
    return list(number_findings(numbers, {name: keys(split) for name, split in there.items()}, scale))


def said_of_intervals(splits: Splits) -> list[str]:
    """What the validation examples are too few for, before the training."""
    held = 0 if splits.validation is None else len(splits.validation)
    if not held:
        return [
            "no validation examples: predictions will have no intervals; --set validation_size=0.1 gives them"
        ]
    if held < (needed := examples_needed(COVERAGE)):
        return [f"{held} validation examples are too few for intervals of {COVERAGE:.0%}: it takes {needed}"]
    return []


def fit(work: Work, **options: Any) -> None:
    """Train on the training split; the validation split chooses, and gives the intervals."""
    judging.fit(work, **options)
    name_columns(work)


def judge_numbers(work: Work, *baselines: Baseline) -> dict[str, Any]:
    """Figures on every split, the judged one looked at once, beside baselines; and ``predictions.csv``."""
    started = time.perf_counter()
    work.say("judging")
    est, recipe, splits, judged = work.estimator, work.recipe, work.data, work.data.judged
    seen: dict[int, np.ndarray] = {}

    def scored(split: Any) -> tuple[dict[str, Any], np.ndarray]:
        scores, found = figures(est, split, recipe, work.count)
        seen[id(split)] = found[:, 0]
        return scores, found[:, 0]

    kind = est.kind_
    out = score_splits(work, scored, training_sample(splits), kind.measure)
    about = {"mean": kind.mean, "unit": kind.unit, "scale": kind.scale, "held_out": len(est.errors_)}
    out |= {"numbers": about, "intervals": []}
    if splits.validation is not None and (far := chosen_by_far(work, seen[id(splits.validation)])):
        about["far"] = far
    if out["test"] is not None:
        if splits.judged_name != "validation":  # whose own errors are the intervals
            out["intervals"] = _coverage(est, work.answers, judged.labels)
        if recipe.evaluate.baselines:
            work.say("baselines on the same split")
            out["baselines"] = _baselines(work, baselines)
        write_numbers(
            work.folder / "predictions.csv",
            judged.names(),
            work.answers.tolist(),
            bounds=bounds_of(est, work.answers),
            labels=judged.labels,
            rows=judged.rows,
            split=splits.judged_name,
        )
    out["seconds"]["evaluate"] = time.perf_counter() - started
    return out


def chosen_by_far(work: Work, held: np.ndarray) -> dict[str, Any] | None:
    """Validation numbers far from all training numbers, where they make most of the loss that chose the
    epoch: how many, the first of them, their share of the loss, the epoch, and whether the training numbers
    span orders of magnitude, so that it takes no slip of the pen; else None.

    Args:
        held: what is predicted for the validation examples, ``[n]``.
    """
    train, est = work.recipe.train, work.estimator
    if train.monitor != "loss" or not train.keep_best:
        return None
    true, learned = (
        np.asarray(split.labels, np.float64) for split in (work.data.validation, work.data.train)
    )
    far = far_from(true, learned, est.kind_.scale)
    errors = errors_on(est.kind_.scale, held, true) ** 2
    share = float(errors[far].sum() / errors.sum()) if far.any() else 0.0
    if share <= 0.5:
        return None
    judged = [r for r in est.history_ if r["kind"] == "evaluation"]
    epochs = [r["epoch"] + 1 for r in judged if r["step"] == est.best_step_]
    return {
        "count": int(far.sum()),
        "first": [float(x) for x in true[far][:3]],
        "share_of_loss": share,
        "best_epoch": epochs[0] if epochs else None,
        "wide": est.kind_.scale == "linear" and wide_span(learned) is not None,
    }


def bounds_of(est: Any, numbers: np.ndarray, coverage: float = COVERAGE) -> np.ndarray | None:
    """Intervals ``[n, 2]`` around predicted numbers ``[n]``; None where too few examples were held out."""
    return est.interval(numbers, coverage) if len(est.errors_) >= examples_needed(coverage) else None


def _coverage(est: Any, found: np.ndarray, true: Any) -> list[dict[str, Any]]:
    return coverage_figures(est.errors_, found, true, scale=est.kind_.scale)


def _baselines(work: Work, baselines: Sequence[Baseline]) -> dict[str, Any]:
    est, splits, judged = work.estimator, work.data, work.data.judged
    numbers = np.asarray(splits.train.labels, np.float64)

    def mean(train: Sequence[Any], numbers: np.ndarray, judged: Sequence[Any]) -> tuple[str, np.ndarray]:
        return "mean of the training numbers", np.full(len(judged), numbers.mean())

    out: dict[str, Any] = {}
    said: dict[str, list[float]] = {}
    for simple in (mean, *baselines):
        started = time.perf_counter()
        scale = "linear" if simple is mean else est.kind_.scale
        try:
            made = simple(splits.train.examples, on_scale(numbers, scale), judged.examples)
        except DataError as error:
            work.say(f"left out: {error}")
            continue
        if made is None:  # nothing to compare with
            continue
        name, found = made[0], off_scale(made[1], scale)
        out[name] = measured(est, judged, found[:, None], work.recipe)
        out[name]["seconds"], said[name] = time.perf_counter() - started, found.tolist()
        work.say(f"baseline {name}: {out[name]['seconds']:.1f} s")
    write_simple(work.folder / SIMPLE, said)
    return out


def again(work: Work, source: str | None) -> dict[str, Any]:
    """The figures of a saved regressor on its own judged split, or on other data; and how many numbers lie in
    their intervals, but of the validation numbers, by whose errors the intervals were made.

    Raises:
        DataError: no split with numbers, or data that cannot be read.
    """
    found = judge_again(work, source)
    if source is None and work.data.judged_name == "validation":
        return found | {"intervals": []}
    numbers, true = work.answers[:, 0], work.data.judged.labels
    return found | {"intervals": _coverage(work.estimator, numbers, true)}


def answers(est: Any, outputs: np.ndarray) -> tuple[list[Any], list[float]]:
    """The number of each row ``[n, 1]``, and NaN: how sure it is, its interval says."""
    chosen = est.kind_.chosen(outputs)
    return chosen.tolist(), est.kind_.sureness(outputs, chosen).tolist()


def show(work: Work) -> dict[str, Any]:
    """Predicted and true numbers of the judged split, for the report, and the examples furthest off."""
    split, found = work.data.judged, work.answers
    if split is None or found is None:
        return {}
    true = np.asarray(split.labels, np.float64)
    some = np.sort(np.random.default_rng(0).permutation(len(true))[:POINTS])
    kind = work.estimator.kind_
    order = np.argsort(-errors_on(kind.scale, found, true), kind="stable")[: work.recipe.evaluate.shown]
    names, bounds = split.names(), bounds_of(work.estimator, found)
    far = [
        {
            "text": list(name.sides) if isinstance(name := names[i], TextPair) else name,
            "true": float(true[i]),
            "predicted": float(found[i]),
            "low": None if bounds is None else float(bounds[i, 0]),
            "high": None if bounds is None else float(bounds[i, 1]),
        }
        for i in order.tolist()
    ]
    points = {"true": true[some].tolist(), "predicted": found[some].tolist(), "scale": kind.scale}
    about = kind.about_export(work.estimator)
    reach = {key: about[key] for key in ("half_width", "factor") if key in about}
    return {"numbers.json": {"points": points, **reach, "furthest": far}}


def without_labels(dataset: Any, splits: Splits) -> Any:
    """The data as a run uses them, for checks that would take numbers for classes."""
    parts = {"train": splits.train, "validation": splits.validation, splits.judged_name: splits.judged}
    used = {name: replace(split, labels=None) for name, split in parts.items() if split is not None}
    return replace(dataset, splits=used)
