"""A study: one base recipe, the changes to it that are compared, and the seeds.

recipe = "imdb-encoder-small"            a recipe that ships, or a TOML file beside the study
seeds = [0, 1, 2]
baseline = "pooling=first"               the arm that the others are compared with; else the first
[set]                                    laid over every arm
train_size = 8000
[grid]                                   every combination is an arm
pooling = ["first", "mean"]
[arms.wide]                              and so is each of these; ``recipe`` may name another base
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

from glassformer.config import build, key_places, lay_over, nearest, read_toml, to_dict
from glassformer.errors import BadValueError, ConfigError, NoSuchRecipeError
from glassformer.tasks.catalog import build_recipe, load_recipe
from glassformer.tasks.recipe import study_names

# What decides which examples are judged, and so must be one for all arms.
SPLIT_KEYS = (
    "source",
    "text_column",
    "image_column",
    "label_column",
    "label_separator",
    "on_bad_row",
    "broken",
    "validation_size",
    "test_size",
    "limit",
    "split_seed",
    "hold_out",
    "copies",
    "merge_labels",
    "drop_duplicates",
)


JUDGING = ("validation", "test")  # splits that arms can be judged on


@dataclass(frozen=True)
class Study:
    """What a study's file can say."""

    name: str = ""  # by default the file's
    summary: str = ""  # one line for lists and reports
    expect: str = ""  # what came out, where and in what time
    recipe: str = ""  # the base: a recipe that ships with the package, or a TOML file beside this one
    split: str = "validation"  # what the arms are judged on; "test" only where nothing is chosen by it
    seeds: tuple[int, ...] = (0,)
    baseline: str = ""  # the arm that the others are compared with; "": the first
    ladder: tuple[str, ...] = ()  # arms from the weakest change to the strongest, of which a sentence is said
    bootstrap: int = 2000  # resamples for intervals and tests
    set: dict = field(default_factory=dict)  # key -> value, laid over every arm
    grid: dict = field(default_factory=dict)  # key -> values; every combination is an arm
    arms: dict = field(default_factory=dict)  # name -> changes; ``recipe`` among them is another base


@dataclass(frozen=True)
class Arm:
    """One way of doing it: its name, what it changes, and the recipe that comes of it."""

    name: str
    changes: dict[str, Any]
    recipe: Any

    def with_seed(self, seed: int) -> Any:
        return _laid_over(self.recipe, {"seed": seed}, f"arm {self.name!r}")


def load_study(name_or_path: str | Path) -> Study:
    """A study by its name or from a TOML file.

    Raises:
        ConfigError: no such study (the nearest is named), an unknown key, a value of the wrong type or range.
    """
    known, path = study_names(), Path(name_or_path)
    if str(name_or_path) in known:
        path = known[str(name_or_path)]
    elif path.suffix != ".toml":
        raise NoSuchRecipeError(
            f"no study {str(name_or_path)!r}", fix=nearest(str(name_or_path), list(known) or ["FILE.toml"])
        )
    study = build(Study, {"name": path.stem} | read_toml(path), path.name)
    if not study.recipe:
        raise ConfigError("no base recipe is named", where=f"{path.name}.recipe", fix='Write recipe = "NAME"')
    if not study.seeds or len(set(study.seeds)) < len(study.seeds) or min(study.seeds) < 0:
        raise BadValueError(
            f"{list(study.seeds)} are not distinct seeds", where=f"{path.name}.seeds", fix="Write [0, 1, 2]"
        )
    if study.bootstrap < 100:
        raise BadValueError(
            f"{study.bootstrap} resamples are too few", where=f"{path.name}.bootstrap", fix="Use 100 or more"
        )
    for key, values in study.grid.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(
                f"{values!r} is not a list of values",
                where=f"{path.name}.grid.{key}",
                fix=f"Write {key} = [...]",
            )
    for arm, changes in study.arms.items():
        if not isinstance(changes, Mapping):
            raise ConfigError(
                f"{changes!r} is not a table", where=f"{path.name}.arms.{arm}", fix=f"Write [arms.{arm}]"
            )
    return replace(
        study, recipe=_base(study.recipe, path), arms={k: _with_base(v, path) for k, v in study.arms.items()}
    )


def _base(recipe: str, study: Path) -> str:
    """A recipe file's path as seen from the study's own folder; a name stays a name."""
    beside = study.parent / recipe
    return str(beside.resolve()) if recipe.endswith(".toml") and beside.is_file() else recipe


def _with_base(changes: Mapping[str, Any], study: Path) -> dict[str, Any]:
    return {k: _base(str(v), study) if k == "recipe" else v for k, v in changes.items()}


def expand(study: Study, settings: Mapping[str, Any] | None = None) -> list[Arm]:
    """Every arm with its recipe, all checked before any is run.

    Args:
        settings: key -> value, laid over ``set``.

    Raises:
        ConfigError: nothing to compare, an unknown key or wrong value (the arm is named), two arms of one
            name, arms of different tasks or splits, or a baseline that is no arm.
    """
    common = study.set | dict(settings or {})
    plans: list[tuple[str, str, dict[str, Any]]] = []
    for values in itertools.product(*study.grid.values()) if study.grid else ():
        changes = dict(zip(study.grid, values, strict=True))
        plans.append((", ".join(f"{k}={_shown(v)}" for k, v in changes.items()), study.recipe, changes))
    for name, given in study.arms.items():
        changes = dict(given)
        plans.append((name, changes.pop("recipe", study.recipe), changes))
    if len(plans) < 2:
        raise ConfigError(
            "a comparison needs two arms or more",
            where=study.name,
            fix="Give [grid] values, or [arms.NAME] tables",
        )
    arms = [_arm(study, name, base, common, changes) for name, base, changes in plans]
    _check(study, arms)
    return arms


def _arm(study: Study, name: str, base: str, common: dict[str, Any], changes: dict[str, Any]) -> Arm:
    where = f"{study.name}, arm {name!r}"
    recipe = load_recipe(base)
    fixed = {"evaluate.split": study.split} if "evaluate.split" in key_places(type(recipe)) else {}
    if "seed" in common or "seed" in changes:
        raise ConfigError(
            "the seed is set beside the study's seeds", where=where, fix="List them in seeds = [...]"
        )
    return Arm(name, changes, _laid_over(recipe, fixed | common | changes, where))


def _laid_over(recipe: Any, changes: Mapping[str, Any], where: str) -> Any:
    return build_recipe(lay_over(to_dict(recipe), changes, type(recipe), where), where)


def _check(study: Study, arms: list[Arm]) -> None:
    first = arms[0]
    names = [arm.name for arm in arms]
    for name in names:
        if names.count(name) > 1 or not name.strip():
            raise ConfigError(
                f"two arms are called {name!r}" if name.strip() else "an arm has no name", where=study.name
            )
    if study.baseline and study.baseline not in names:
        raise ConfigError(
            f"no arm {study.baseline!r}", where=f"{study.name}.baseline", fix=nearest(study.baseline, names)
        )
    for arm in arms[1:]:
        if arm.recipe.task != first.recipe.task:
            what = f"{arm.name!r} is {arm.recipe.task}, {first.name!r} is {first.recipe.task}"
            raise ConfigError(what, where=study.name, fix="Compare recipes of one task")
        ours, theirs = (to_dict(a.recipe).get("data", {}) for a in (arm, first))
        for key in SPLIT_KEYS:
            if ours.get(key) != theirs.get(key):
                what = f"{key} is {ours.get(key)!r} in {arm.name!r} and {theirs.get(key)!r} in {first.name!r}"
                raise ConfigError(
                    what,
                    where=study.name,
                    fix="All arms must be evaluated on the same examples: put it under [set]",
                )
    known = [arm.name for arm in arms]
    for name in study.ladder:
        if name not in known:
            raise ConfigError(f"no arm {name!r}", where=f"{study.name}.ladder", fix=nearest(name, known))
    seen: dict[str, str] = {}
    for arm in arms:
        other = seen.setdefault(repr(to_dict(arm.recipe) | {"name": ""}), arm.name)
        if other != arm.name:
            raise ConfigError(
                f"{arm.name!r} and {other!r} are the same recipe", where=study.name, fix="Remove one"
            )


def check_split(split: str | None) -> str | None:
    """The same; ConfigError for what arms cannot be judged on."""
    if split not in (None, *JUDGING):
        raise BadValueError(f"no split {split!r}", where="split", fix=nearest(split, JUDGING))
    return split


def baseline_of(study: Study, arms: Sequence[Arm]) -> str:
    """The name of the arm that the others are compared with."""
    return study.baseline or arms[0].name


def folder_name(arm: str) -> str:
    """An arm's name as that of a folder: the same for the same arm, different for different ones."""
    plain = re.sub(r"[^\w.=+-]+", "_", arm, flags=re.ASCII).strip("._")[:80]
    if plain == arm and plain:
        return plain
    return f"{plain or 'arm'}-{hashlib.sha256(arm.encode()).hexdigest()[:6]}"


def _shown(value: Any) -> str:
    return (
        f"{value:g}"
        if isinstance(value, float)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )
