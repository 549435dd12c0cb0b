"""Reload the data of a finished run, and check that they have not changed."""

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
    known = read_json(file).get(KEY) if file.is_file() else None
    if not isinstance(known, dict):
        return None
    now = part_digests(data)
    return {name for name in {*known, *now} if known.get(name) != now.get(name)}


def check_resumed(folder: Path, data: Any, source: str) -> None:
    """Raise DataError if a run would resume on other training data."""
    if "train" in (changed_parts(folder, data) or ()):
        fix = "Restore it, or train into another folder: --out FOLDER"
        raise DataChangedError("has changed since the training", where=source, fix=fix)


def own_data(context: RunContext, parts: Sequence[str] = ("judged",)) -> Any:
    """Load the data of a finished run, split as in its recipe.

    Args:
        parts: the splits that are needed. If one has changed but the training split has not, it is used and
            a line is logged.
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
    """The training split of a finished run; None if it has changed or cannot be loaded."""
    recipe = context.trained or context.recipe  # ``context.recipe`` may have the columns of other data
    if not Path(recipe.data.source).exists():  # a named data set, which may need a download
        return None
    try:
        data = context.task.load(recipe)
    except InputError:
        return None
    return None if "train" in (changed_parts(context.folder, data) or ()) else data.train
