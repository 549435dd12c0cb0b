"""Study files.

A study compares arms, which are variants of a base recipe, with one or more seeds each:

recipe = "imdb-encoder-small"            the base: a recipe of the package, or a TOML file in the same folder
seeds = [0, 1, 2]
baseline = "pooling=first"               the arm with which the other arms are compared; default: the first
[set]                                    settings of every arm
train_size = 8000
[grid]                                   every combination of values is an arm
pooling = ["first", "mean"]
[arms.wide]                              another arm; ``recipe`` may name another base
d_model = 256
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from glassformer.config import build, key_paths, override, read_toml, suggest, to_dict
from glassformer.errors import BadValueError, ConfigError, NoSuchRecipeError
from glassformer.tasks.catalog import build_recipe, load_recipe, study_names

SPLIT_KEYS = (  # settings that determine the evaluated examples; they must be equal in all arms
    "source text_column image_column label_column label_separator on_bad_row broken validation_size "
    "test_size limit split_seed hold_out copies merge_labels drop_duplicates"
).split()
EVALUATION_SPLITS = ("validation", "test")


@dataclass(frozen=True)
class Study:
    """The keys of a study's file."""

    name: str = ""  # default: the file's name
    summary: str = ""  # one line for lists and reports
    expect: str = ""  # expected result, with machine and time
    recipe: str = ""  # the base: a recipe of the package, or a TOML file in the same folder
    split: str = "validation"  # the split to evaluate on; use "test" only if nothing is selected by it
    seeds: tuple[int, ...] = (0,)
    baseline: str = ""  # the arm with which the other arms are compared; empty: the first arm
    ladder: tuple[str, ...] = ()  # arms from the weakest to the strongest change, for a sentence
    bootstrap: int = 2000  # number of resamples for intervals and tests
    set: dict = field(default_factory=dict)  # key -> value, applied to every arm
    grid: dict = field(default_factory=dict)  # key -> values; every combination is an arm
    arms: dict = field(default_factory=dict)  # name -> changed settings; ``recipe`` names another base


@dataclass(frozen=True)
class Arm:
    """One variant in a comparison: its name, its changes to the base recipe, and the resulting recipe."""

    name: str
    changes: dict[str, Any]
    recipe: Any

    def with_seed(self, seed: int) -> Any:
        """The recipe with another seed."""
        return with_changes(self.recipe, {"seed": seed}, f"variant {self.name!r}")


def load_study(name_or_path: str | Path) -> Study:
    """Load a shipped study by its name, or a study from a TOML file.

    Raises:
        ConfigError: no such study, an unknown key, or a value of the wrong type or out of range.
    """
    names, path = study_names(), Path(name_or_path)
    if str(name_or_path) in names:
        path = names[str(name_or_path)]
    elif path.suffix != ".toml":
        fix = suggest(str(name_or_path), list(names) or ["FILE.toml"])
        raise NoSuchRecipeError(f"no study {str(name_or_path)!r}", fix=fix)
    study = build(Study, {"name": path.stem} | read_toml(path), path.name)
    if not study.recipe:
        fix = 'Write recipe = "NAME"'
        raise ConfigError("no base recipe is named", where=f"{path.name}.recipe", fix=fix)
    if not study.seeds or len(set(study.seeds)) < len(study.seeds) or min(study.seeds) < 0:
        what = f"{list(study.seeds)} are not distinct seeds"
        raise BadValueError(what, where=f"{path.name}.seeds", fix="Write [0, 1, 2]")
    if study.bootstrap < 100:
        what = f"{study.bootstrap} resamples are too few"
        raise BadValueError(what, where=f"{path.name}.bootstrap", fix="Use 100 or more")
    for key, values in study.grid.items():
        if not isinstance(values, list) or not values:
            fix = f"Write {key} = [...]"
            raise ConfigError(f"{values!r} is not a list of values", where=f"{path.name}.grid.{key}", fix=fix)
    for arm, changes in study.arms.items():
        if not isinstance(changes, Mapping):
            fix = f"Write [arms.{arm}]"
            raise ConfigError(f"{changes!r} is not a table", where=f"{path.name}.arms.{arm}", fix=fix)

    def resolve(recipe: str) -> str:
        """The absolute path of a recipe file in the study's folder; names of recipes stay unchanged."""
        file = path.parent / recipe
        return str(file.resolve()) if recipe.endswith(".toml") and file.is_file() else recipe

    arms = {
        name: {k: resolve(str(v)) if k == "recipe" else v for k, v in changes.items()}
        for name, changes in study.arms.items()
    }
    return replace(study, recipe=resolve(study.recipe), arms=arms)


def expand(study: Study, settings: Mapping[str, Any] | None = None) -> list[Arm]:
    """The arms of a study, with checked recipes.

    Args:
        settings: settings of every arm, which override ``set``.

    Raises:
        ConfigError: fewer than two arms, an unknown key or invalid value, two arms with the same name, arms
            of different tasks or splits, or an unknown baseline.
    """
    common = study.set | dict(settings or {})
    plans: list[tuple[str, str, dict[str, Any]]] = []
    for values in itertools.product(*study.grid.values()) if study.grid else ():
        changes = dict(zip(study.grid, values, strict=True))
        plans.append((", ".join(f"{k}={_format(v)}" for k, v in changes.items()), study.recipe, changes))
    for name, arm_settings in study.arms.items():
        changes = dict(arm_settings)
        plans.append((name, changes.pop("recipe", study.recipe), changes))
    if len(plans) < 2:
        fix = "Give [grid] values, or [arms.NAME] tables"
        raise ConfigError("a comparison needs two arms or more", where=study.name, fix=fix)
    arms = [_build_arm(study, name, base, common, changes) for name, base, changes in plans]
    _check(study, arms)
    return arms


def _build_arm(study: Study, name: str, base: str, common: dict[str, Any], changes: dict[str, Any]) -> Arm:
    where = f"{study.name}, variant {name!r}"
    recipe = load_recipe(base)
    split = {"evaluate.split": study.split} if "evaluate.split" in key_paths(type(recipe)) else {}
    if "seed" in common or "seed" in changes:
        fix = "List them in seeds = [...]"
        raise ConfigError("the seed is set in addition to the study's seeds", where=where, fix=fix)
    return Arm(name, changes, with_changes(recipe, split | common | changes, where))


def with_changes(recipe: Any, changes: Mapping[str, Any], where: str) -> Any:
    """The recipe with changed settings; ``where`` is for error messages."""
    return build_recipe(override(to_dict(recipe), changes, type(recipe), where), where)


def _check(study: Study, arms: list[Arm]) -> None:
    """Raise ConfigError if the arms of a study cannot be compared."""
    first = arms[0]
    names = [arm.name for arm in arms]
    for name in names:
        if names.count(name) > 1 or not name.strip():
            what = f"two arms are called {name!r}" if name.strip() else "an arm has no name"
            raise ConfigError(what, where=study.name)
    if study.baseline and study.baseline not in names:
        fix = suggest(study.baseline, names)
        raise ConfigError(f"no arm {study.baseline!r}", where=f"{study.name}.baseline", fix=fix)
    for arm in arms[1:]:
        if arm.recipe.task != first.recipe.task:
            what = f"{arm.name!r} is {arm.recipe.task}, {first.name!r} is {first.recipe.task}"
            raise ConfigError(what, where=study.name, fix="Compare recipes of one task")
        arm_data, first_data = (to_dict(a.recipe).get("data", {}) for a in (arm, first))
        for key in SPLIT_KEYS:
            if arm_data.get(key) != first_data.get(key):
                what = f"{key} is {arm_data.get(key)!r} in {arm.name!r} and {first_data.get(key)!r} in "
                fix = "All arms must be evaluated on the same examples: put it under [set]"
                raise ConfigError(f"{what}{first.name!r}", where=study.name, fix=fix)
    for name in study.ladder:
        if name not in names:
            raise ConfigError(f"no arm {name!r}", where=f"{study.name}.ladder", fix=suggest(name, names))
    names_by_recipe: dict[str, str] = {}
    for arm in arms:
        other = names_by_recipe.setdefault(repr(to_dict(arm.recipe) | {"name": ""}), arm.name)
        if other != arm.name:
            what = f"{arm.name!r} and {other!r} are the same recipe"
            raise ConfigError(what, where=study.name, fix="Remove one")


def check_split(split: str | None) -> str | None:
    """Return the split; raise ConfigError if it is not validation or test."""
    if split not in (None, *EVALUATION_SPLITS):
        raise BadValueError(f"no split {split!r}", where="split", fix=suggest(split, EVALUATION_SPLITS))
    return split


def baseline_of(study: Study, arms: Sequence[Arm]) -> str:
    """The name of the arm with which the other arms are compared."""
    return study.baseline or arms[0].name


def folder_name(arm: str) -> str:
    """A valid and unique folder name for an arm."""
    cleaned = re.sub(r"[^\w.=+-]+", "_", arm, flags=re.ASCII).strip("._")[:80]
    if cleaned == arm and cleaned:
        return cleaned
    return f"{cleaned or 'arm'}-{hashlib.sha256(arm.encode()).hexdigest()[:6]}"


def _format(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)
