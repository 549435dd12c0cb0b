"""The encoding of tables as a key of recipes: a run remembers it, and is judged again without being told."""

from __future__ import annotations

from pathlib import Path

import pytest

from glassformer.cli.train import choose_recipe
from glassformer.config import read_toml
from glassformer.data.files import reading, said
from glassformer.process import ENCODING
from glassformer.tasks.catalog import TASKS, load_recipe

from .tiny import sentences, settings


def latin(path: Path, count: int = 60) -> Path:
    """A table with one text that is not UTF-8."""
    rows = [("a café – naïve film", "pos"), *sentences(count)]
    path.write_bytes("\n".join(["text,label", *(f"{text},{label}" for text, label in rows)]).encode("cp1252"))
    return path


@pytest.mark.parametrize("named", [("--set", "encoding=cp1252"), ("--encoding", "cp1252")])
def test_a_run_remembers_the_encoding_of_its_data(gf, refused, tmp_path, named):
    table = latin(tmp_path / "latin.csv")
    assert "--encoding cp1252" in refused("train", "--text", table, "--out", "run", *settings())
    result = gf("train", "--text", table, "--out", "run", *settings(), *named)
    assert result.code == 0, result.err
    assert read_toml(tmp_path / "run" / "config.toml")["data"]["encoding"] == "cp1252"
    assert gf("evaluate", "run").code == 0  # its own split, and no option
    other = latin(tmp_path / "other.csv", 20)
    assert gf("evaluate", "run", "--data", other).code == 0
    assert gf("train", "--resume", "--out", "run").code == 0
    assert said("encoding") == ""  # nothing stays behind in this process


def test_a_name_that_is_no_encoding_is_refused(refused, tmp_path):
    table = latin(tmp_path / "latin.csv")
    said = refused("train", "--text", table, "--out", "run", *settings("encoding=cp1253x"))
    assert "no encoding 'cp1253x'" in said
    assert not (tmp_path / "run").exists()


def test_every_task_reads_its_table_so(tmp_path):
    table = latin(tmp_path / "latin.csv")
    for task in TASKS:
        assert "encoding" in vars(TASKS.recipe(task)().data), task
    recipe = load_recipe("europe-mlm", ["encoding=cp1252", "source=" + str(table)])
    assert "café" in str(TASKS["masked-lm"].load(recipe))


def test_the_command_goes_before_the_recipe_and_leaves_nothing_behind(monkeypatch, tmp_path):
    with reading("cp1252"):
        assert said("encoding") == "cp1252"
        with reading(None):
            assert said("encoding") == "cp1252"
        monkeypatch.setenv(ENCODING, "mac_roman")
        assert said("encoding") == "mac_roman"
    monkeypatch.delenv(ENCODING)
    assert said("encoding") == ""
    recipe = choose_recipe(None, str(latin(tmp_path / "a.csv")), settings=["encoding=cp1252"])
    assert recipe.data.encoding == "cp1252"
    assert said("encoding") == ""
