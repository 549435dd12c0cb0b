"""What can be told to be wrong with a command before its data are read: keys, values, columns, models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer.config import apply_overrides, build, nearest
from glassformer.errors import ConfigError, DataError
from glassformer.tasks.recipe import AUTO

COLUMNS = ("text_column", "label_column", "image_column", "pair_column")
NAMELESS = ("auto", "none")  # of pair_column: it names no column


def asked_of(cls: Any, source: str, settings: Sequence[str], chosen: dict[str, Any] | None) -> Any:
    """The recipe of one's own data that a command asks for, before anything is known of the data.

    Raises:
        ConfigError: an unknown key, a value that no data allow, no such model.
        DataError: the table has no column of that name.
    """
    from glassformer.cli.own_data import around

    values, cls = around(cls, source, settings, chosen)
    recipe = build(cls, apply_overrides(values, settings, cls), "--set")
    check_values(recipe)
    check_columns(recipe.data)
    return recipe


def check_values(recipe: Any) -> None:
    """Raises ConfigError for values that only the training or its data would refuse, much later."""
    weight = getattr(getattr(recipe, "train", None), "class_weight", None)
    if isinstance(weight, str) and weight != "balanced":
        fix = "Use balanced or a table {label: weight}"
        raise ConfigError(f"{weight!r} is no weighting", where="class_weight", fix=fix)
    merge = getattr(recipe.data, "merge_labels", "none")
    if isinstance(merge, str) and merge not in ("none", "spelling"):
        fix = 'Use spelling, or a table such as {"Good" = "good"}'
        raise ConfigError(f"{merge!r} does not say what to merge", where="merge_labels", fix=fix)
    check_model(recipe)


def check_model(recipe: Any) -> None:
    """Raises ConfigError, with the nearest name, for a model that is no architecture, path or Hub id."""
    from glassformer.checkpoints.catalog import CATALOG

    name = getattr(getattr(recipe, "model", None), "model", None)
    pictures = hasattr(recipe, "image")
    if not name or name == AUTO or name in CATALOG or "/" in name or Path(name).expanduser().exists():
        return
    if not pictures and not hasattr(recipe, "text"):  # of tasks with models of their own
        return
    from glassformer.families import IMAGE_ARCHITECTURES, TEXT_ARCHITECTURES

    known = [*(IMAGE_ARCHITECTURES if pictures else TEXT_ARCHITECTURES), *CATALOG]
    if name not in known:
        raise ConfigError(f"no model {name!r}", where="model", fix=nearest(name, known))


def check_columns(data: Any) -> None:
    """Raises DataError where a table lacks a column that is named; the header alone is read."""
    from glassformer.data.files import reading_as
    from glassformer.data.table_labels import named_together
    from glassformer.data.tables import names_in

    named = [name for key in COLUMNS if (name := getattr(data, key, None)) and name not in NAMELESS]
    if not named:
        return
    with reading_as(data):
        names = names_in(Path(data.source).expanduser())
    for name in named:
        if names is not None and name not in names and not named_together(names, name):
            raise DataError(f"no column {name!r}", where=data.source, fix=nearest(name, names))
