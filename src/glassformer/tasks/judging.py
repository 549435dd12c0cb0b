"""Steps that all runs share: fit, score the splits, and find the split to evaluate a saved model on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

from glassformer.data.rejected import summary
from glassformer.errors import NoSuchSplitError
from glassformer.tasks.same_data import own_data
from glassformer.tasks.task import RunContext

Scored = Callable[[Any], tuple[dict[str, Any], Any]]  # split -> its metrics and predictions


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
    """Metrics of the splits, for metrics.json. The predictions for the test split (or its substitute) become
    ``context.answers``.

    Args:
        sample: training examples, whose metrics show overfitting.
    """
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


def split_to_evaluate(
    context: RunContext,
    source: str | None,
    load: Callable[..., Any],
    noun: str,
    needed: str = "",
    also: Callable[[Any], str] = lambda dataset: "",
) -> Any:
    """The split to evaluate, of a run's own data or of another source; logs its size.

    Args:
        needed: noun of the targets that it must have, for the message; empty: examples are enough.
        also: returns more text for the log line, given the data set.
    """
    splits = own_data(context) if source is None else load(context.recipe, source)
    if rejected := splits.dataset.rejected:
        context.log(summary(rejected, listed=False))
    split, where = splits.judged, source or context.recipe.data.source
    if split is None or (needed and split.labels is None):
        raise NoSuchSplitError(
            f"nothing to evaluate: no {needed or 'validation and no test split'}", where=where
        )
    context.log(f"{len(split):,} {noun} of {split.origin}{also(splits.dataset)}")
    return split
