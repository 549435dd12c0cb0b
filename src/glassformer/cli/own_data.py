"""A recipe around data of one's own: its name, its task, and what is held out where the data say nothing."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glassformer.cli.given import data_option, is_run
from glassformer.cli.output import note
from glassformer.config import parse_settings
from glassformer.errors import ConfigError
from glassformer.finite import json_text

HELD_OUT = 0.1  # of a file without splits


def is_set(key: str, settings: Sequence[str]) -> bool:
    """Whether ``settings`` have a value for a key of any section."""
    return key in {name.rsplit(".", 1)[-1] for name in parse_settings(settings)}


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


@dataclass(frozen=True)
class Given:
    """What a command is to train on: a recipe, or texts or images of one's own."""

    recipe: str | None = None
    text: str | None = None
    images: str | None = None
    data: str | None = None  # instead of the recipe's own
    settings: tuple[str, ...] = ()
    own: bool = False  # whether a path of labeled texts or images is given, as an option or as a word


def own_task(given: Given, command: str, others: str) -> Given:
    """The same with the recipe of the task that fits the data, where these are no labeled texts, and a word
    that is no recipe taken for data.

    Args:
        command, others: for messages: which command this is, and what it takes instead of a recipe.

    Raises:
        ConfigError: the folder of a run, data that the command does not take, or that fit several tasks.
        DataError: data that cannot be read.
    """
    from glassformer.tasks.recipe import recipe_names

    if given.recipe is not None and not (given.text or given.images) and given.recipe not in recipe_names():
        name, text, images = as_data(given.recipe, command, others)
        given = replace(given, recipe=name, text=text, images=images)
    given = replace(given, own=bool(given.text or given.images))
    if given.text is None or given.recipe or given.images or given.data:
        return given
    kind, said = _other_kind(given.text, given.settings)
    if kind == "pictures":
        note(f"{given.text} holds images: taken as --images {shlex.quote(given.text)}")
        return replace(given, text=None, images=given.text)
    if kind is None:
        return given
    recipe = FITTING[kind]
    note(
        f"{given.text} holds {said}: taken as glassformer {command} {recipe} --data {shlex.quote(given.text)}"
    )
    usual = {"name": json_text(Path(given.text).stem)}
    if "pairs" in kind:  # of which nothing is held out unless that is asked for
        usual |= dict.fromkeys(("validation_size", "test_size"), str(HELD_OUT))
    settings = [f"{key}={value}" for key, value in usual.items() if not is_set(key, given.settings)]
    settings = (*given.settings, *settings)
    return replace(given, recipe=recipe, text=None, data=given.text, settings=settings, own=False)


# Kind of data -> the recipe of its task.
FITTING = {
    "tags": "wnut17-minilm",
    "answers": "facts-minilm",
    "scored pairs": "stsb-minilm",
    "pairs": "multi30k-transformer",
}
HELD = {
    "tags": "words with tags",
    "answers": "questions with answers in texts",
    "scored pairs": "pairs of texts with a score",
    "pairs": "texts with their translations",
}


def _other_kind(source: str, settings: Sequence[str]) -> tuple[str | None, str]:
    """What data hold that are no labeled texts, by ``kind_of``, and in words; None: labeled texts, or the
    settings say how to read them so.

    Raises:
        ConfigError: two columns of sentences that may be translations, or compared.
        DataError: data that cannot be read.
    """
    from glassformer.data.answered import QUESTION_COLUMNS
    from glassformer.data.column_contents import LABEL_COLUMNS, TEXT_COLUMNS
    from glassformer.data.files import reading
    from glassformer.data.kinds import kind_of
    from glassformer.data.tables import names_in
    from glassformer.process import READING

    if any(is_set(key, settings) for key in ("target", "text_column", "pair_column", "label_column")):
        return None, ""
    names = {name.lower() for name in names_in(Path(source).expanduser()) or ()}
    if names & {*TEXT_COLUMNS} and names & {*LABEL_COLUMNS} and not names & {*QUESTION_COLUMNS}:
        return None, ""  # the file need not be read for that
    said = {key.rpartition(".")[2]: value for key, value in parse_settings(settings).items()}
    with reading(**{key: str(said[key]) for key in READING if said.get(key)}):
        kind = kind_of(source)
        if kind == "pairs" and not _names_languages(source):
            each = [
                f"glassformer train {FITTING[k]} --data {shlex.quote(source)}"
                for k in ("pairs", "scored pairs")
            ]
            what = "two columns of texts and no labels"
            fix = f"To learn to translate: {each[0]}; to compare texts by their meaning: {each[1]}"
            raise ConfigError(what, where=source, fix=fix)
    return (None, "") if kind == "texts" else (kind, HELD.get(kind, kind))


def _names_languages(source: str) -> bool:
    """Whether the columns or files of pairs are named as a text and its translation."""
    from glassformer.data.pairs import SOURCE_COLUMNS, TARGET_COLUMNS, columns_in

    names = columns_in(source)
    return names is None or bool({*SOURCE_COLUMNS} & names and {*TARGET_COLUMNS} & names)


def as_the_command_reads(recipe: Any) -> Any:
    """A recipe that keeps what its command says of tables (``--encoding``, ``--quoting``, ``--header``), so
    that its run is evaluated again without these options."""
    from glassformer.data.files import said_of_tables

    said = {k: value for k, value in said_of_tables().items() if getattr(recipe.data, k) is None}
    return replace(recipe, data=replace(recipe.data, **said)) if said else recipe


def as_data(name: str, command: str, others: str) -> tuple[str | None, str | None, str | None]:
    """Recipe, texts and pictures that a word means which names no recipe: a path of data is taken for data.

    Raises:
        ConfigError: data that the command does not take so, or the folder of a run.
    """
    if is_run(name):
        fix = f"To go on with it: glassformer train --resume --out {shlex.quote(name)}"
        raise ConfigError("is the folder of a run and no recipe", where=name, fix=fix)
    option = data_option(name)
    if option is None:
        return name, None, None
    if option not in others:
        raise ConfigError(f"looks like data for {option} and is no recipe", where=name, fix=f"Give {others}")
    note(f"{name} is no recipe: taken for data, as {option} {shlex.quote(name)}")
    return (None, name, None) if option == "--text" else (None, None, name)
