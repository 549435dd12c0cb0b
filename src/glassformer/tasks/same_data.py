"""The data of a finished run, read again: are they what it was trained on?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import read_json
from glassformer.data.copies import content_digest
from glassformer.data.image_sources import NAMED_IMAGES
from glassformer.data.pairs import PAIR_SOURCES, SCORED_SOURCES
from glassformer.data.sources import NAMED_SOURCES
from glassformer.errors import DataChangedError, InputError
from glassformer.tasks.task import RunContext

KEY = "data_sha256"  # of metrics.json
PARTS = ("train", "validation", "judged")


def is_named(source: str) -> bool:
    """Whether a source is one of the data sets that go by a name, which come with their splits."""
    return source in {*NAMED_SOURCES, *NAMED_IMAGES, *PAIR_SOURCES, *SCORED_SOURCES}


def part_digests(data: Any) -> dict[str, str]:
    """The SHA-256 of each part of a run's data: its examples in order, with what is learned of each."""
    parts = {name: getattr(data, name, None) for name in PARTS}
    return {name: content_digest(part) for name, part in parts.items() if part is not None}


def changed_parts(folder: Path, data: Any) -> set[str] | None:
    """The parts that are not those of the run's training; None: a run that keeps no digest of them."""
    file = folder / "metrics.json"
    known = read_json(file).get(KEY) if file.is_file() else None
    if not isinstance(known, dict):
        return None
    now = part_digests(data)
    return {name for name in {*known, *now} if known.get(name) != now.get(name)}


def check_resumed(folder: Path, data: Any, source: str) -> None:
    """Raises DataError where a finished run would be trained anew on other data."""
    if "train" in (changed_parts(folder, data) or ()):
        fix = "Restore it, or train into another folder: --out FOLDER"
        raise DataChangedError("has changed since the training", where=source, fix=fix)


def own_data(context: RunContext, parts: Sequence[str] = ("judged",)) -> Any:
    """The data of a finished run, split as its recipe says.

    Args:
        parts: what is asked for. A part that has changed is used where the training examples are as they
            were, and a line says so.

    Raises:
        DataError: a part and the training examples have changed: some of these may stand in that part now.
    """
    data, source = context.task.load(context.recipe), context.recipe.data.source
    changed = changed_parts(context.folder, data)
    if changed is None:
        if not is_named(source):
            context.log(
                f"whether {source} is as it was at the training is not known: the run keeps no digest"
            )
        return data
    wanted = changed.intersection(parts)
    if wanted and "train" in changed:
        what = "has changed since the training: drawn anew, its split may hold rows that the model has seen"
        fix = f"Restore it, or give rows that are new: glassformer evaluate {context.folder} --data FILE"
        raise DataChangedError(what, where=source, fix=fix)
    if wanted:
        context.log(f"{source} has changed since the training; its training examples are the same")
    return data


def training_part(context: RunContext) -> Any:
    """The training examples of a finished run; None where its data have changed since, or are gone."""
    recipe = context.trained or context.recipe  # other data may have other columns
    if not Path(recipe.data.source).exists():  # a named data set, which may have to be fetched
        return None
    try:
        data = context.task.load(recipe)
    except InputError:
        return None
    return None if "train" in (changed_parts(context.folder, data) or ()) else data.train
