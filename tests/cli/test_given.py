"""What a stranger types: data for a recipe, flags and names of other tools, other columns, a dash for a text."""

from __future__ import annotations

import csv
import io
import json
from inspect import signature
from pathlib import Path

import pytest
from sklearn.base import clone

from glassformer import ImageClassifier, MaskedLM, TextClassifier, Word2Vec
from glassformer.cli.options import all_keys, data_option, instead_of_option, named_as_options
from glassformer.cli.train import choose_recipe
from glassformer.config import lay_over
from glassformer.config.synonyms import KEYS, SAID
from glassformer.errors import ConfigError
from glassformer.tasks.catalog import recipe_classes
from glassformer.tasks.recipe import recipe_names

from .tiny import sentences, settings, write_csv


@pytest.fixture
def stdin(monkeypatch):
    def give(content: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The reviews with columns of other names, and a third one between them."""
    rows = [(text, "7", label) for text, label in sentences(23, seed=5)]
    return write_csv(tmp_path / "other.csv", rows, "comment,stars,emotion")


def test_evaluate_takes_the_columns_of_other_data(gf, refused, run, other):
    rows = other.read_text().splitlines()
    twice = [f"{row},{'mood' if i == 0 else row.rsplit(',', 1)[1]}" for i, row in enumerate(rows)]
    other.with_name("wider.csv").write_text("\n".join(twice))
    told = refused("evaluate", run, "--data", other.with_name("wider.csv"))
    assert "column" in told
    assert "label_column" not in told
    assert "--label-column" in told or "--text-column" in told
    columns = ("--text-column", "comment", "--label-column", "emotion")
    result = gf("evaluate", run, "--data", other, *columns, "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["n"] == 23
    assert "belongs to --data" in refused("evaluate", run, *columns)
    assert "has no --source-column" in refused("evaluate", run, "--data", other, "--source-column", "a")
    calibrated = gf("calibrate", run, "--data", other, *columns, "--json")
    assert calibrated.code == 0, calibrated.err
    assert json.loads(calibrated.out)["chosen_by"].endswith("other.csv")
    assert "belongs to --data" in refused("calibrate", run, "--label-column", "emotion")


def test_a_table_in_the_place_of_a_recipe_is_taken_for_data(gf, refused, other, tmp_path):
    columns = ("--text-column", "comment", "--label-column", "emotion")
    flags = ("--epochs", 1, "--lr", 0.01, "--batch-size", 7, "--max-length", 13, "--seed", 5)
    result = gf("train", other, *columns, *flags, "--out", "run", *settings())
    assert result.code == 0, result.err
    assert f"{other} is no recipe: taken for data, as --text {other}" in result.err
    config = (tmp_path / "run" / "config.toml").read_text()
    for line in ('text_column = "comment"', "lr = 0.01", "batch_size = 7", "seed = 5"):
        assert line in config
    told = refused("train", "run")
    assert "is the folder of a run and no recipe" in told
    assert "glassformer train --resume --out run" in told


def test_pictures_in_the_place_of_a_recipe(gf, tmp_path):
    folder = tmp_path / "cats"
    (folder / "a").mkdir(parents=True)
    assert data_option(str(folder)) is None
    (folder / "a" / "one.JPG").touch()
    (folder / "notes.txt").touch()
    (folder / "a" / "two.png").touch()
    assert data_option(str(folder)) == "--images"
    result = gf("cross-validate", folder)
    assert result.code == 2
    assert f"{folder} is no recipe: taken for data, as --images {folder}" in result.err
    (folder / "config.toml").touch()
    assert data_option(str(folder)) is None
    assert data_option("nowhere.jsonl") == "--text"
    assert data_option("europe") is None


def test_an_unknown_recipe_is_no_list_of_all(refused):
    assert len(refused("train")) < 200
    with pytest.raises(ConfigError, match="no recipe 'zzzzzz'") as caught:
        choose_recipe("zzzzzz")
    assert len(str(caught.value)) < 200
    assert len(recipe_names()) > 30


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "europe", "--learning-rate", "1e-3"], "Write --lr 1e-3"),
        (["train", "europe", "--num_train_epochs=2"], "Write --epochs 2"),
        (["train", "europe", "--per-device-train-batch-size", "8"], "Write --batch-size 8"),
        (["train", "europe", "--weight-decay", "0.1"], "Write --set weight_decay=0.1"),
        (["train", "europe", "--hidden_size", "--lr"], "Write --set d_model=VALUE"),
        (["cross-validate", "europe", "--lr", "1e-3"], "Write --set lr=1e-3"),
        (["compare", "europe-pooling", "--epochs", "2"], "Write --set epochs=2"),
        (["evaluate", "run", "--text_field", "a"], "Write --text-column a"),
    ],
)
def test_flags_of_other_tools_are_answered_with_ours(refused, words, said):
    assert f"No such option: {words[2].partition('=')[0]}. {said}" in refused(*words)


def test_a_flag_that_nobody_knows_is_refused_as_before(refused):
    assert "See 'glassformer train --help'" in refused("train", "europe", "--frobnicate")
    assert instead_of_option("--frobnicate", ["--out"], {}) is None
    assert "Write" not in refused("predict", "run", "--lr", "1")


def test_keys_of_other_tools_are_answered_with_ours(refused):
    told = refused("train", "europe", "--set", "learning_rate=1e-3")
    assert told == "error: --set: unknown key 'learning_rate'. Here it is called 'lr'"
    assert "called 'epochs'" in refused("train", "europe", "--set", "train.num_train_epochs=3")
    assert "the option --out" in refused("train", "europe", "--set", "output_dir=here")
    assert "'glassformer train --help-keys' lists them all" in refused("train", "europe", "--set", "xyzzy=1")
    keys = {key for cls in recipe_classes().values() for key in vars(cls()) if not key.startswith("_")}
    assert set(KEYS) <= set(all_keys()) | keys
    assert set(SAID) & set(all_keys()) <= {"target_column"}  # of pairs; of labels it is another's name


def test_estimators_answer_names_of_other_tools_too():
    for cls in (TextClassifier, ImageClassifier, MaskedLM):
        with pytest.raises(
            TypeError, match=f"{cls.__name__} has no parameter 'learning_rate'. .* called 'lr'"
        ):
            cls(learning_rate=1e-3)
        with pytest.raises(TypeError, match=f"{cls.__name__} has no parameter 'frobnicate'. Known: accum"):
            cls(frobnicate=1)
        with pytest.raises(TypeError, match=r"has no parameter 'epoch'\. Did you mean 'epochs'"):
            cls(epoch=1)
        with pytest.raises(TypeError, match=r"has no parameter 'alpha'\. .* called 'weight_decay'"):
            cls(alpha=1)
        assert clone(cls(lr=1e-3)).lr == 1e-3
        assert next(iter(signature(cls).parameters)) == "model"


def test_word_vectors_answer_names_of_gensim():
    theirs = {
        "vector_size": "dim",
        "workers": "threads",
        "alpha": "lr",
        "sample": "subsample",
        "iter": "epochs",
    }
    theirs |= {"ns_exponent": "exponent", "max_final_vocab": "max_words"}
    for name, ours in theirs.items():
        with pytest.raises(
            TypeError, match=f"Word2Vec has no parameter '{name}'. Here it is called '{ours}'"
        ):
            Word2Vec(**{name: 1})


def test_a_recipe_file_with_keys_of_other_tools(refused, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[data]\nsource = "europe"\n[train]\nlearning_rate = 1e-3\n')
    assert "unknown key 'learning_rate'. Here it is called 'lr'" in refused("train", path)
    with pytest.raises(ConfigError, match="called 'd_model'"):
        lay_over({}, {"hidden_size": 1}, recipe_classes()["text-classification"], "x")


def test_messages_speak_of_options_where_there_are_some():
    told = "no column 'label'. Name it with label_column"
    assert named_as_options(told, ["--label-column"]) == "no column 'label'. Name it with --label-column"
    assert named_as_options(told, ["--text-column"]) == told
    both = named_as_options(
        "Name both with text_column and label_column", ["--text-column", "--label-column"]
    )
    assert both == "Name both with --text-column and --label-column"


def test_a_dash_is_standard_input(gf, refused, run, stdin, tmp_path):
    stdin("\ufeffa splendid film\n\na dreadful plot\r\n".encode())
    result = gf("predict", run, "-")
    assert result.code == 0, result.err
    texts = [line.split("\t")[2] if line.count("\t") > 1 else "" for line in result.out.splitlines()]
    assert texts == ["a splendid film", "", "a dreadful plot"]
    stdin("a great\u2028place\nslow\x0cfood\n".encode())
    assert gf("predict", run, "-").out.count("\n") == 2
    stdin(b"one\n\ntwo\n")
    assert gf("predict", run, "-", "--out", "out.csv").code == 0
    with open(tmp_path / "out.csv", newline="") as file:
        assert [row["text"] for row in csv.DictReader(file)][-1] == "two"
    stdin(b"one\n")
    assert gf("embed", run, "-", "and two", "--out", "out.npy").out.startswith("2 vectors")
    stdin(b"\n \n")
    assert "standard input: no text" in refused("predict", run, "-")
    stdin(b"\xff\xfe")
    assert "standard input: not UTF-8" in refused("explain", run, "-")


def test_standard_input_is_bounded(refused, run, stdin, monkeypatch):
    monkeypatch.setattr("glassformer.cli.options.MOST_STDIN", 5)
    stdin(b"123456")
    assert "standard input: more than" in refused("predict", run, "-")
