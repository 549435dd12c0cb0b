"""``train RECIPE --data OTHER``: what goes along of a recipe, and a masked language model of one's own."""

import json
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.cli.own_data import choose_recipe, describe_held_out
from glassformer.config import read_toml, to_dict
from glassformer.data.masking import multi_sentence_share
from glassformer.errors import ConfigError, ShortModelWarning
from glassformer.tasks.catalog import load_recipe, recipe_names
from glassformer.tasks.question_answering.estimator import load as load_answers
from glassformer.tasks.token_tagging.estimator import load

from .tiny import sentences, sets, write_csv

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
    said = "held out of the sentences: 10% for validation and 10% for test"
    assert describe_held_out(recipe).startswith(said)
    assert load(recipe).sizes() == "82 train, 9 validation, 10 test"


def test_one_file_of_answers_is_split_by_text(tmp_path: Path):
    recipe = choose_recipe("facts-minilm", data=str(answered(tmp_path / "own.json", 31)))
    splits = load_answers(recipe)
    parts = [set(split.texts) for split in (splits.train, splits.validation, splits.evaluated)]
    assert [len(part) for part in parts] == [25, 3, 3]
    assert len(set.union(*parts)) == 31
    assert recipe.evaluate.questions == ()


def test_what_is_asked_for_or_there_is_not_held_out(tmp_path: Path):
    file = tagged(tmp_path / "train.conll", 101)
    asked = choose_recipe("wnut17-minilm", data=str(file), settings=["test_size=7"])
    assert (asked.data.validation_size, asked.data.test_size) == (0.1, 7)
    assert choose_recipe("wnut17-minilm", data=str(file), all_in_folds=True).data.test_size is None
    tagged(tmp_path / "test.conll", 5)
    folder = choose_recipe("wnut17-minilm", data=str(tmp_path))
    assert (folder.data.validation_size, folder.data.test_size) == (0.1, None)
    assert describe_held_out(choose_recipe("wnut17-minilm")) is None


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
    data = choose_recipe("wnut17-minilm", data=file, run_folder=begun).data
    assert (data.validation_size, data.test_size) == (None, 5)


# --- masked words -----------------------------------------------------------------------------------

MLM = sets(*"d_model=8 num_layers=1 num_heads=2 d_ff=13 epochs=1 precision=fp32 vocab_size=90".split())


def test_pairs_are_made_only_of_texts_with_several_sentences(ok, tmp_path: Path):
    one = tmp_path / "one.txt"
    one.write_text("\n".join(text for text, _ in sentences(60)), encoding="utf-8")
    result = ok("train", "europe-mlm", "--data", one, "--out", "one", *MLM)
    assert "most texts have one sentence: next_sentence=false" in result.err
    assert read_toml("one/config.toml")["text"]["next_sentence"] is False
    ok("train", "europe-mlm", "--data", one, "--out", "one", "--resume", *MLM)
    two = tmp_path / "two.txt"
    two.write_text("\n".join(f"{text}. And {text}!" for text, _ in sentences(60)), encoding="utf-8")
    ok("train", "europe-mlm", "--data", two, "--out", "two", *MLM)
    assert read_toml("two/config.toml")["text"]["next_sentence"] is True
    asked = ok("train", "europe-mlm", "--data", one, "--out", "asked", *MLM, "--set", "next_sentence=true")
    assert "100% of the texts have one sentence" in asked.out
    assert read_toml("asked/config.toml")["text"]["next_sentence"] is True


def test_a_run_stopped_with_pairs_goes_on_with_them(gf, ok, tmp_path: Path):
    one = tmp_path / "one.txt"
    one.write_text("\n".join(text for text, _ in sentences(60)), encoding="utf-8")
    command = ("train", "europe-mlm", "--data", one, "--out", "run", *MLM)
    ok(*command, "--set", "next_sentence=true")
    assert gf(*command, "--resume").code == 0  # as such a run was begun before lines were looked at


@pytest.mark.filterwarnings("always::glassformer.errors.ShortModelWarning")
def test_a_classifier_begins_from_the_run_and_reads_what_it_has_positions_for(gf, ok, tmp_path: Path):
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(text for text, _ in sentences(60)), encoding="utf-8")
    ok("train", "europe-mlm", "--data", lines, "--out", "runs/mlm", *MLM)
    long = [("long " * 90, "pos"), ("long and dull " * 90, "neg")]
    data = write_csv(tmp_path / "reviews.csv", [*sentences(60), *long])
    quick = sets("epochs=1", "precision=fp32", "bootstrap=20", "baselines=false")
    train = ("train", "--text", data, "--model", "runs/mlm", *quick, "--out")
    result = ok(*train, "run")
    assert "note: runs/mlm has positions for 64 tokens: max_length = 64" in result.err
    assert "longer than 64 tokens" in result.out
    ok("predict", "run", "a splendid film " * 99)
    ok(*train, "run", "--resume")
    said = gf(*train, "b", "--set", "max_length=65").err
    assert "max_length: 65 is more than the model's 64 positions" in said


def test_in_python_the_length_follows_too(tmp_path: Path):
    texts, labels = zip(*sentences(12), strict=True)
    sizes = {"d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": 13, "epochs": 1, "precision": "fp32"}
    mlm = gf.MaskedLM(max_positions=17, max_length=17, min_count=1, vocab_size=90, **sizes).fit(texts)
    mlm.save(tmp_path / "mlm")
    clf = gf.TextClassifier(str(tmp_path / "mlm"), epochs=1, precision="fp32")
    with pytest.warns(ShortModelWarning, match="positions for 17 tokens"):
        clf.fit(texts, labels)
    assert clf.max_length == 17
    assert clf.truncated(["word " * 40, "short"]).tolist() == [True, False]
    clf.save(tmp_path / "clf")
    assert gf.load(tmp_path / "clf").max_length == 17
    with pytest.raises(ConfigError, match="more than the model's 17 positions"):
        gf.TextClassifier(str(tmp_path / "mlm"), max_length=31).fit(texts, labels)


def test_how_many_texts_have_several_sentences():
    texts = ["One. Two.", "One", 'He said "no." She left.', "3.5 stars", "What?! Yes."]
    assert multi_sentence_share(texts) == 0.6
    assert multi_sentence_share([]) == 0
