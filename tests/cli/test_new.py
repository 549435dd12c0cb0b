"""``glassformer new``: a commented recipe that says every key, loads to what was asked for, and trains."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from glassformer.cli.options import recipe_keys
from glassformer.cli.recipes import commented_toml, default_recipe, needs_files
from glassformer.tasks.catalog import TASKS, load_recipe, recipe_names

from .tiny import sentences, settings, write_csv

SHIPPED = sorted({load_recipe(name).task for name in recipe_names()})


@pytest.mark.parametrize("task", sorted({*TASKS} - {*SHIPPED}))
def test_a_task_without_a_recipe_names_the_way(ok, refused, tmp_path: Path, task):
    line = refused("new", "mine.toml", "--task", task)
    given = "--images" if task.startswith("image") else "--text"
    assert line.endswith(f"Give {given} FILE --set target=number, or a recipe")
    if given == "--text":
        rows = [(text, str(i / 7)) for i, (text, _) in enumerate(sentences(13))]
        data = write_csv(tmp_path / "n.csv", rows, "text,score")
        ok("new", "mine.toml", "--text", data, "--set", "target=number")
        assert load_recipe("mine.toml").task == task


@pytest.mark.parametrize("task", SHIPPED)
def test_the_usual_recipe_of_every_task_is_written_and_read_back(ok, task):
    result = ok("new", "mine.toml", "--task", task)
    written = load_recipe("mine.toml")
    assert written == replace(load_recipe(default_recipe(task)), name="mine")
    assert result.out.splitlines()[-1] == "next: glassformer train mine.toml"
    assert ("is not part of the package" in result.err) == needs_files(written)


def test_a_setting_that_is_a_table_is_written_and_read_back(ok):
    asked = ["--set", "merge_labels={'Ger.'='de', 7=''}", "--set", "class_weight={de=2.0, 'a \"b\"'=0.5}"]
    ok("new", "mine.toml", "europe", *asked)
    written = load_recipe("mine.toml")
    assert written.data.merge_labels == {"Ger.": "de", "7": ""}
    assert written.train.class_weight == {"de": 2.0, 'a "b"': 0.5}


@pytest.mark.parametrize("task", SHIPPED)
def test_every_key_stands_there_with_its_meaning(task):
    recipe = load_recipe(default_recipe(task))
    text = commented_toml(recipe, "x.toml")
    lines = text.splitlines()
    words = " ".join(line.removeprefix("# ") for line in lines)
    for key in recipe_keys(task):
        assert any(line.removeprefix("# ").startswith(f"{key.name} =") for line in lines), key
        assert " ".join(key.meaning.split()) in words
    assert max(len(line) for line in lines if line.startswith("# ") and " = " not in line) <= 100


def test_a_default_can_be_uncommented(ok):
    ok("new", "mine.toml")
    text = Path("mine.toml").read_text(encoding="utf-8")
    keys = {key.name for key in recipe_keys()}
    lines = [line for line in text.splitlines() if not line.endswith(" =")]
    uncommented = lambda match: match[1] if match[1] in keys else match[0]  # noqa: E731
    plain = "\n".join(re.sub(r"^# (\w+)(?= = )", uncommented, line) for line in lines)
    assert plain.count("\n# ") < text.count("\n# ") - 50
    Path("all.toml").write_text(plain, encoding="utf-8")
    assert load_recipe("all.toml") == load_recipe("mine.toml")
    other = text.replace("# weight_decay = 0.01", "weight_decay = 0.03")
    Path("other.toml").write_text(other, encoding="utf-8")
    assert load_recipe("other.toml").train.weight_decay == 0.03


def test_it_trains(ok, tmp_path: Path):
    data = write_csv(tmp_path / "reviews.csv", sentences(41))
    ok("new", "mine.toml", "--text", data, *settings())
    ok("train", "mine.toml")
    assert json.loads(Path("runs/mine/metrics.json").read_text())["test"]["n"] == 4


def test_it_takes_what_train_takes(gf, tmp_path: Path):
    result = gf("new", "m.toml", "europe", "--model", "textcnn", "--set", "epochs=7", "--json")
    assert json.loads(result.out) == {"file": "m.toml", "task": "text-classification", "data": "europe"}
    made = load_recipe("m.toml")
    assert (made.model.model, made.train.epochs, made.expect) == ("textcnn", 7, "")
