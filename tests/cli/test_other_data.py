"""``train RECIPE --data OTHER``: what a recipe says of its own data does not go along."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glassformer.cli.own_data import held_out_line
from glassformer.cli.train import choose_recipe
from glassformer.config import to_dict
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.question_answering.run import load as load_answers
from glassformer.tasks.recipe import recipe_names
from glassformer.tasks.token_tagging.run import load

EXAMPLES = {"evaluate": ("sentences", "questions"), "judge": ("neighbours", "analogies")}


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


def tagged(path: Path, sentences: int) -> Path:
    path.write_text("\n".join(f"Ann{i}\tB-PER\nleft\tO\n" for i in range(sentences)))
    return path


def answered(path: Path, texts: int) -> Path:
    """Three questions on each text."""
    paragraphs = []
    for i in range(texts):
        text = f"Person{i} met Bo{i} in town{i} ."
        qas = [
            {"question": q, "answers": [{"text": a, "answer_start": text.index(a)}]}
            for q, a in (("who ?", f"Person{i}"), ("whom ?", f"Bo{i}"), ("where ?", f"town{i}"))
        ]
        paragraphs.append({"context": text, "qas": qas})
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return path


@pytest.mark.parametrize("how", ["--data", "--set source"])
def test_one_file_of_tags_is_split_as_a_table_is(how: str, tmp_path: Path):
    file = str(tagged(tmp_path / "own.conll", 101))
    given = {"data": file} if how == "--data" else {"settings": [f"source={file}"]}
    recipe = choose_recipe("wnut17-minilm", **given)
    assert (recipe.data.validation_size, recipe.data.test_size) == (0.1, 0.1)
    assert held_out_line(recipe).startswith("held out of the sentences: 10% for validation and 10% for test")
    assert load(recipe).sizes() == "82 train, 9 validation, 10 test"


def test_one_file_of_answers_is_split_by_text(tmp_path: Path):
    recipe = choose_recipe("facts-minilm", data=str(answered(tmp_path / "own.json", 31)))
    splits = load_answers(recipe)
    parts = [set(split.texts) for split in (splits.train, splits.validation, splits.judged)]
    assert [len(part) for part in parts] == [25, 3, 3]
    assert len(set.union(*parts)) == 31
    assert recipe.evaluate.questions == ()


def test_what_is_asked_for_or_there_is_not_held_out(tmp_path: Path):
    file = tagged(tmp_path / "train.conll", 101)
    asked = choose_recipe("wnut17-minilm", data=str(file), settings=["test_size=7"])
    assert (asked.data.validation_size, asked.data.test_size) == (0.1, 7)
    assert choose_recipe("wnut17-minilm", data=str(file), whole=True).data.test_size is None
    tagged(tmp_path / "test.conll", 5)
    folder = choose_recipe("wnut17-minilm", data=str(tmp_path))
    assert (folder.data.validation_size, folder.data.test_size) == (0.1, None)
    assert held_out_line(choose_recipe("wnut17-minilm")) is None


@pytest.mark.parametrize(("count", "sizes"), [(2, (None, None)), (3, (1, 1)), (9, (1, 1)), (10, (0.1, 0.1))])
def test_a_few_are_held_out_by_count(count: int, sizes: tuple, tmp_path: Path):
    recipe = choose_recipe("wnut17-minilm", data=str(tagged(tmp_path / "own.conll", count)))
    assert (recipe.data.validation_size, recipe.data.test_size) == sizes
    splits = load(recipe)
    assert len(splits.train) == count - 2 * (count > 2)


def test_a_run_that_has_begun_goes_on_as_it_was_split(tmp_path: Path):
    file = str(tagged(tmp_path / "own.conll", 101))
    begun = tmp_path / "run"
    begun.mkdir()
    (begun / "config.toml").write_text('task = "token-tagging"\n[data]\ntest_size = 5\n')
    data = choose_recipe("wnut17-minilm", data=file, begun=begun).data
    assert (data.validation_size, data.test_size) == (None, 5)
