"""Defaults that have changed: files from before, which do not name them, mean what they meant."""

from dataclasses import is_dataclass

import pytest
from tests.checkpoints.test_settings import altered

import glassformer as gf
from glassformer.config import values_in_files
from glassformer.tasks.catalog import TASKS, load_recipe, recipe_names

BEFORE = {"model": "all-minilm-l6-v2", "head_start": "random", "calibration": "none"}
NOW = {"model": "auto", "head_start": "solved", "calibration": "auto"}
TEXTS = [f"visit {i} {'warm' if i % 2 else 'dull'}" for i in range(13)]
LABELS = [i % 2 for i in range(13)]


def settings_of(recipe) -> dict:
    return {k: v for section in (recipe.model, recipe.train) for k, v in vars(section).items() if k in BEFORE}


def test_a_recipe_that_names_none_has_those_from_before(tmp_path):
    assert {key: gf.TextClassifier().get_params()[key] for key in NOW} == NOW
    path = tmp_path / "mine.toml"
    path.write_text('[data]\nsource = "mine.csv"\n')
    assert settings_of(load_recipe(path)) == BEFORE
    assert {key: gf.TextClassifier.from_recipe(path).get_params()[key] for key in BEFORE} == BEFORE
    path.write_text('[model]\nmodel = "auto"\n[train]\nhead_start = "solved"\n')
    assert settings_of(load_recipe(path, ["calibration=auto"])) == NOW


def test_shipped_recipes_are_as_they_were():
    for name, path in recipe_names().items():
        recipe, text = load_recipe(name), path.read_text(encoding="utf-8")
        for section in filter(is_dataclass, vars(recipe).values()):
            for key, value in values_in_files(type(section)).items():
                assert getattr(section, key) == value or f"{key} = " in text


def test_a_folder_that_names_none_has_those_from_before(tmp_path):
    small = {"d_model": 14, "num_layers": 1, "num_heads": 2, "d_ff": 11, "epochs": 1, "min_count": 1}
    clf = gf.TextClassifier("encoder-mini", **small).fit(TEXTS, LABELS)
    kept = {k: v for k, v in clf.get_params().items() if k not in ("head_start", "calibration")}
    folder = altered(clf.save(tmp_path / "new"), tmp_path / "old", "glassformer.json", parameters=kept)
    again = gf.load(folder)
    assert (again.head_start, again.calibration) == ("random", "none")


@pytest.mark.parametrize("name", TASKS)
def test_a_stopped_training_goes_on_with_those_from_before(name):
    estimator = TASKS[name].estimator()
    assert not hasattr(estimator, "head_start") or estimator._old_defaults()["head_start"] == "random"
