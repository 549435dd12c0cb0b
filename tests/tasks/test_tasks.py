"""A task costs a folder and a line in ``TASKS``: the suite takes every one that stands there, and a made-up one."""

import ast
import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from tests.commands import as_json, ok, refused
from tests.sources import PACKAGE, modules, tree_of

import glassformer as gf
from glassformer.checkpoints.settings import get_section as section_of
from glassformer.config import section, setting, to_toml
from glassformer.errors import ConfigError
from glassformer.report.metrics import numbers_in
from glassformer.tasks import catalog
from glassformer.tasks.catalog import TASKS, build_recipe, check_classifies
from glassformer.tasks.estimator import Estimator, with_settings
from glassformer.tasks.run import evaluate_task, run_task
from glassformer.tasks.task import DataPreview, RunContext, Task

ASKS = ("tasks/catalog.py", "tasks/run.py", "tasks/load.py", "study/", "scale/", "serve/", "cli/")


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_a_folder_with_files_of_always_the_same_names(name):
    task = TASKS[name]
    assert task.name == name == task.recipe().task == task.estimator.RECIPE.task
    assert task.estimator.RECIPE is task.recipe is TASKS.recipe(name)
    home = Path(inspect.getfile(task.recipe)).parent
    assert home.parent == PACKAGE / "tasks"
    assert {file.name for file in home.glob("*.py")} >= {"__init__.py", "recipe.py", "estimator.py"}
    assert Path(inspect.getfile(task.estimator)) == home / "estimator.py"
    assert type(build_recipe({"task": name}, "x")) is task.recipe


def trees() -> Iterator[tuple[str, ast.Module]]:
    return ((path.relative_to(PACKAGE).as_posix(), tree_of(path)) for path in modules())


def test_few_places_ask_the_catalogue_and_a_task_does_not_know_the_runner():
    folders = {Path(inspect.getfile(task.recipe)).parent.name for task in TASKS.values()}
    wrong = []
    for place, tree in trees():
        own = Path(place).parts[1] if place.startswith("tasks/") else ""
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            taken = {alias.name for alias in node.names}
            if "TASKS" in taken and node.module.endswith("catalog") and not place.startswith(ASKS):
                wrong.append(f"{place} asks TASKS")
            parts = node.module.split(".")
            above = parts[2:] in (["run"], ["catalog"], ["load"])
            if own in folders and parts[:2] == ["glassformer", "tasks"] and above:
                wrong.append(f"{place} takes from {node.module}")
    assert not wrong


def test_no_task_is_named_outside_its_own_folder_and_the_dictionary():
    """By the names that are no word of the language; ``translation`` is one."""
    homes = {name: Path(inspect.getfile(TASKS.recipe(name))).parent.name for name in TASKS if "-" in name}
    assert len(homes) >= 3
    wrong = [
        f"{place}: {node.value}"
        for place, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and node.value in homes
        and place != "tasks/catalog.py"
        and Path(place).parent.name != homes[node.value]
    ]
    assert not wrong


# --- one that is made up --------------------------------------------------------------------------


@section
class MeanFit:
    power: float = setting(1.0, "of each length before the mean")
    seed: int = setting(0, "of nothing at all")


@dataclass(frozen=True)
class MeanData:
    source: str = setting("", "a file with a text a line")


@dataclass(frozen=True)
class MeanRecipe:
    name: str = setting("", "of the run folder; by default the file's")
    task: Literal["mean-length"] = setting("mean-length", "which engine runs it")
    summary: str = setting("", "one line for lists and reports")
    expect: str = setting("", "scores")
    data: MeanData = field(default_factory=MeanData)
    fit: MeanFit = field(default_factory=MeanFit)


@with_settings
class MeanLength(Estimator, MeanFit):
    """The mean length of some texts: an estimator without a network."""

    RECIPE, SAVED_STATE = MeanRecipe, ("train_seconds",)
    SINGLE_PROCESS_REASON = "a mean needs one process"

    def fit(self, texts, *, checkpoints=None, resume=False, callbacks=()):
        self.mean_ = float(np.mean([len(text) ** self.power for text in texts]))
        self.history_, self.train_seconds_ = [], 0.25
        return self

    def _check_fitted(self) -> None:
        assert hasattr(self, "mean_")

    def _write_model(self, folder: Path) -> None:
        (folder / "mean.json").write_text(json.dumps({"mean": self.mean_}))

    def _read_model(self, folder: Path, in_bf16: bool = False) -> None:
        self.mean_ = json.loads((folder / "mean.json").read_text())["mean"]

    def write_parts(self, folder: Path) -> dict[str, Any]:
        return {"kept": {"mean": self.mean_}}

    def read_parts(self, folder: Path, about: dict[str, Any]) -> None:
        assert section_of(about, "kept", str(folder)) == {"mean": self.mean_}


def lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").split("\n")


def off(work: RunContext, texts: list[str]) -> float:
    return float(np.mean([abs(len(text) - work.estimator.mean_) for text in texts]))


def show_page(folder: Path, known: Any) -> Path:
    (folder / "report.html").write_text(f"<p>{json.loads((folder / 'metrics.json').read_text())['off']}")
    return folder / "report.html"


MEAN = Task(
    estimator=MeanLength,
    load=lambda recipe: lines(recipe.data.source),
    preview_data=lambda context: DataPreview([f"{len(context.data)} texts"]),
    fit=lambda work, **options: work.estimator.fit(work.data, **options),
    evaluate=lambda context: {"off": off(context, context.data)},
    evaluate_saved=lambda context, source: {"off": off(context, lines(source or context.recipe.data.source))},
    report=show_page,
    example_fixture=lambda: (MeanLength(), (["a", "bcd"],)),
    collect_artifacts=lambda work: {"lengths.json": [len(text) for text in work.data]},
    verb="vectors",
)


def test_a_new_task_is_trained_judged_shown_and_opened_once_it_stands_in_the_dictionary(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(TASKS, MEAN.name, MEAN)
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("ab\nabcd\nabcdefg")
    Path("mine.toml").write_text('task = "mean-length"\n[data]\nsource = "texts.txt"\n')
    said = ok("train", "mine.toml", "--out", "run", "--set", "power=1.5").out
    assert said.startswith("3 texts\n")
    assert f"report: {Path('run/report.html')}" in said
    wanted = float(np.mean([2**1.5, 4**1.5, 7**1.5]))
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert metrics["off"] == pytest.approx(np.mean([abs(n - wanted) for n in (2, 4, 7)]))
    assert metrics["seed"] == 0
    assert metrics["seconds"].keys() == {"setup", "train", "total"}
    assert json.loads(Path("run/lengths.json").read_text()) == [2, 4, 7]
    assert gf.load("run").mean_ == pytest.approx(wanted)
    assert as_json("evaluate", "run") == {"off": pytest.approx(metrics["off"])}
    assert f"{metrics['off']:.4f}" in ok("evaluate", "run").out
    Path("run/report.html").unlink()
    ok("report", "run")
    assert Path("run/report.html").is_file()
    refused("train", "mine.toml", "--out", "run")
    refused("export", "run", "--to", "onnx")
    assert "which predicts no labels" in refused("predict", "run", "a text")
    assert "which does not predict labels" in refused("explain", "run", "a text")
    with pytest.raises(ConfigError, match="mean-length does not predict labels"):
        check_classifies(MeanRecipe())


def test_a_model_of_another_task_than_its_recipes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(TASKS, MEAN.name, MEAN)
    (tmp_path / "texts.txt").write_text("ab\nabcd")
    recipe = MeanRecipe(name="mine", data=MeanData(str(tmp_path / "texts.txt")))
    run = run_task(recipe, tmp_path / "run")
    (run.folder / "config.toml").write_text(to_toml(catalog.load_recipe("europe-mlm")))
    with pytest.raises(ConfigError, match="contains no MaskedLM, as its recipe says"):
        evaluate_task(run.folder)


def test_figures_of_any_shape_are_shown():
    found = list(numbers_in({"of_vowels": {"error": 1, "where": "here", "none": None}, "share": 0.5}))
    assert found == [("of vowels error", 1), ("share", 0.5)]
