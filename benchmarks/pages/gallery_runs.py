"""Finished runs as the gallery reads them: from their folder, or of a published run from its result file; what was changed
in their recipe, their figure in words.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.common import RESULTS
from glassformer.config import to_dict
from glassformer.errors import InputError
from glassformer.report.published import headline
from glassformer.study.grid import folder_name
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.run_folder import Run, read_run_recipe

# Keys that decide how a run goes, not what comes out of it.
ASIDE = {"name", "summary", "expect", "seed", "threads", "verbose", "baselines", "device", "checkpoint_every"}


@dataclass(frozen=True)
class Drawn:
    """A picture with its words."""

    content: bytes
    alt: str  # for those who cannot see it
    caption: str


@dataclass(frozen=True)
class GalleryRun:
    """A finished run with its recipe."""

    folder: Path | None  # None: of a result file
    metrics: dict[str, Any]
    recipe: Any
    records: list[dict[str, Any]]  # of the training

    @classmethod
    def of(cls, folder: Path) -> GalleryRun:
        """The run in a folder; CheckpointError where there is none that has ended."""
        run = Run.of(folder)
        return cls(folder, run.metrics, read_run_recipe(folder), list(run.history))

    @classmethod
    def published(cls, name: str) -> GalleryRun:
        """The first run in the result file of a recipe.

        Raises:
            InputError: it has none.
        """
        file = RESULTS / f"recipe-{name}.json"
        if not file.is_file():
            raise InputError(
                "no such result file", where=str(file), fix=f"benchmarks/quality/recipes.py {name}"
            )
        found = json.loads(file.read_text(encoding="utf-8"))
        first = found["runs"][0]
        return cls(None, first, load_recipe(name, found["overrides"]), first["evaluations"])

    def file(self, name: str) -> Path:
        """A file of its folder.

        Raises:
            InputError: it has no such file.
        """
        if self.folder is None or not (self.folder / name).exists():
            raise InputError(f"the run has no {name}", where=str(self.folder or self.recipe.name))
        return self.folder / name

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        return [record for record in self.records if record["kind"] == "evaluation"]

    def told(self) -> str:
        """Recipe, changed settings, seed and the run's own figure, in a sentence."""
        changed = changed_settings(self.recipe)
        words = f"Recipe `{self.recipe.name}`"
        if changed:
            words += " with " + ", ".join(f"`{key} = {value}`" for key, value in changed.items())
        words += f", seed {self.metrics['seed']}; this run reached {self.figure()}"
        return f"{words} ({str(self.metrics.get('date', ''))[:10]})."

    def figure(self) -> str:
        """What the run is judged by, with the number of examples where it says so."""
        found = headline(self.metrics, self.recipe.name)
        if found is None:
            raise InputError("the run has no figure", where=str(self.folder or self.recipe.name))
        value, unit = found
        judged = self.metrics.get("judged", "")
        n = (self.metrics.get(judged) or {}).get("n")
        words = unit.format(value).removesuffix(" (validation)")
        return f"{words} on {n:,} {judged} examples" if n else words


def find_run(recipe: str, folders: Sequence[Path]) -> Path:
    """The folder of a finished run of a recipe, the lowest seed first, or of an arm of a study (STUDY/ARM).

    Raises:
        InputError: there is none.
    """
    study, _, arm = recipe.partition("/")
    for folder in folders:
        place = folder / study / "arms" / folder_name(arm) / "seed-0"
        if arm and (place / "metrics.json").is_file():
            return place
        for name in (*(f"{recipe}-seed{seed}" for seed in range(10)), recipe):
            if (folder / name / "metrics.json").is_file():
                return folder / name
    where = ", ".join(map(str, folders))
    raise InputError(f"no finished run of {recipe}", where=where, fix=f"glassformer train {recipe} --out ...")


def changed_settings(recipe: Any) -> dict[str, Any]:
    """Settings of a run that differ from those of the recipe that ships under its name."""
    shipped, own = flat(to_dict(load_recipe(recipe.name))), flat(to_dict(recipe))
    found = {
        key.rpartition(".")[2]: without_place(value)
        for key, value in own.items()
        if key.rpartition(".")[2] not in ASIDE and shipped.get(key) != value
    }
    return found


def without_place(value: Any) -> Any:
    """A setting; of a folder or file the last two names, for its place on this machine says nothing."""
    return "/".join(Path(value).parts[-2:]) if isinstance(value, str) and value.startswith("/") else value


def flat(values: dict[str, Any]) -> dict[str, Any]:
    """``{"train": {"lr": 0.1}}`` as ``{"train.lr": 0.1}``."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        out |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
    return out
