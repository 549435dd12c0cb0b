"""A recipe around data of one's own: its name, its task, and what is held out where the data say nothing."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.cli.given import data_option, is_run
from glassformer.cli.output import note
from glassformer.errors import ConfigError

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


def refuse_tagged(source: str) -> None:
    """Raises ConfigError for a file of words with tags in the place of labeled texts."""
    from glassformer.data.kinds import TAGGED

    if Path(source).suffix.lower() in TAGGED:
        fix = f"Give it to a recipe of tags: glassformer train wnut17-minilm --data {shlex.quote(source)}"
        raise ConfigError("holds words with tags, not labeled texts", where=source, fix=fix)


def in_given_encoding(recipe: Any) -> Any:
    """A recipe that keeps the ``--encoding`` of its command, so that its run is judged again without it."""
    from glassformer.data.encodings import other_encoding

    other = other_encoding()
    if not other or recipe.data.encoding:
        return recipe
    return replace(recipe, data=replace(recipe.data, encoding=other))


def as_data(name: str, command: str, others: str) -> tuple[str | None, str | None, str | None]:
    """Recipe, texts and pictures that a word means which names no recipe: a path of data is taken for data.

    Raises:
        ConfigError: data that the command does not take so, or the folder of a run.
    """
    if is_run(name):
        fix = f"To go on with it: glassformer train --resume --out {shlex.quote(name)}"
        raise ConfigError("is the folder of a run and no recipe", where=name, fix=fix)
    refuse_tagged(name)
    option = data_option(name)
    if option is None:
        return name, None, None
    if option not in others:
        raise ConfigError(f"looks like data for {option} and is no recipe", where=name, fix=f"Give {others}")
    note(f"{name} is no recipe: taken for data, as {option} {shlex.quote(name)}")
    return (None, name, None) if option == "--text" else (None, None, name)
