"""``train RECIPE --data OTHER``: what a recipe says of its own data does not go along."""

from __future__ import annotations

from pathlib import Path

import pytest

from glassformer.cli.train import choose_recipe
from glassformer.config import to_dict
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.recipe import recipe_names

EXAMPLES = {"evaluate": ("sentences",), "judge": ("neighbours", "analogies")}


@pytest.mark.parametrize("name", recipe_names())
def test_other_data_take_the_examples_and_the_expectation_away(name: str, tmp_path: Path):
    own = load_recipe(name)
    other = choose_recipe(name, data=str(tmp_path))
    assert other.data.source == str(tmp_path)
    assert (other.summary, other.expect) == (f"as {name}, on {tmp_path.name}", "")
    before, after = to_dict(own), to_dict(other)
    for section, keys in EXAMPLES.items():
        for key in keys:
            if key in before.get(section, {}):
                assert after[section].pop(key) == []
                del before[section][key]
    if "judge" in before:
        left = [test for test in before["judge"].pop("tests") if test != own.data.source]
        assert after["judge"].pop("tests") == left
    for values in (before, after):
        del values["data"]["source"], values["summary"], values["expect"]
    assert after == before


@pytest.mark.parametrize("name", recipe_names())
def test_the_same_data_change_nothing(name: str):
    own = load_recipe(name)
    assert choose_recipe(name, data=own.data.source) == own


def test_what_is_asked_for_stays(tmp_path: Path):
    asked = ['evaluate.sentences=["Rome is in Italy ."]', "expect=much"]
    other = choose_recipe("europe", data=str(tmp_path), settings=asked)
    assert other.evaluate.sentences == ("Rome is in Italy .",)
    assert other.expect == "much"


def test_a_recipe_of_ones_own_keeps_its_sentences(tmp_path: Path):
    mine = tmp_path / "mine.toml"
    mine.write_text('expect = "80 %"\n[data]\nsource = "a.csv"\n[evaluate]\nsentences = ["so so"]\n')
    other = choose_recipe(str(mine), data="b.csv")
    assert other.evaluate.sentences == ("so so",)
    assert other.expect == ""
