"""A recipe around data of one's own: its name, its task, and what is held out where the data say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

HELD_OUT = 0.1  # of a file without splits


def around(
    cls: Any, source: str, settings: Sequence[str], chosen: dict[str, Any] | None
) -> tuple[dict[str, Any], Any]:
    """The values of a recipe around data of one's own, and its class, as ``target`` says."""
    from glassformer.tasks.catalog import TASKS, task_with_target

    task = task_with_target(cls.task, {}, settings)
    kind = "a classifier" if task == cls.task else "a regressor"
    values: dict[str, Any] = {"name": Path(source).stem, "summary": f"{kind} of {Path(source).name}"}
    values |= {"task": task, "data": {"source": source}} | (chosen or {})
    return values, TASKS.recipe(task)


def hold_out(values: dict[str, Any], dataset: Any) -> None:
    """A tenth for each split that the data lack; where that is too little, a place for every class."""
    from glassformer.data.label_sets import are_sets
    from glassformer.data.numbers import are_numbers

    labels = dataset.splits["train"].labels if "train" in dataset.splits else None
    examples, classes = (
        len(labels or ()),
        1 if are_sets(labels) or are_numbers(labels) else len(set(labels or ())),
    )
    held = HELD_OUT if round(HELD_OUT * examples) >= classes else classes
    for split in ("validation", "test"):
        if split not in dataset.splits:
            values["data"][f"{split}_size"] = held
