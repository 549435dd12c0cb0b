"""What a stranger types: slips, flags of other tools, data for a recipe; and what a message offers can be typed."""

import csv
import io
import json
import re
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from glassformer import (
    ImageClassifier,
    MaskedLM,
    QuestionAnswerer,
    TextClassifier,
    TextRegressor,
    TokenTagger,
    Word2Vec,
)
from glassformer.cli.app import main
from glassformer.cli.options import all_keys, guess_data_option, suggest_option, use_option_names
from glassformer.cli.own_data import choose_recipe
from glassformer.cli.stopping import INTERRUPTED
from glassformer.config import override
from glassformer.config.synonyms import KEYS, KEYS_BY_NAME
from glassformer.data.answered import load_qa
from glassformer.data.pairs import load_pairs, load_scored_pairs
from glassformer.data.tagged import load_tagged
from glassformer.errors import ConfigError, DataError
from glassformer.tasks.catalog import recipe_classes, recipe_names

from .tiny import sentences, settings, write_csv


def test_rows_in_another_encoding_are_not_lost_without_a_word(ok, run, tmp_path):
    rows = ["text", *(text for text, _ in sentences(7)), "un café", "", "une idée"]
    (tmp_path / "new.csv").write_bytes(("\n".join(rows) + "\n").encode("cp1252"))
    result = ok("predict", run, "new.csv", "--on-bad-row", "skip")
    assert "2 of them are not UTF-8: read it with --encoding cp1252, or save it as UTF-8" in result.err


def test_show_passes_over_rows_that_cannot_be_used(as_json, ok, tmp_path):
    table = write_csv(tmp_path / "gaps.csv", [*sentences(20), ("", "pos"), ("a text", "")])
    said = "2 rows left out; the first:"
    assert said in ok("data", "show", table).out
    assert any(
        said in note and "row 22: the text is empty" in note
        for note in as_json("data", "show", table)["notes"]
    )
    (tmp_path / "tags.conll").write_text("Ann B-PER\ncame O\n\nonly\n\nBob B-PER\nleft O\n")
    assert "1 row left out" in ok("data", "show", "tags.conll").out


def test_a_verb_without_the_option_does_not_offer_it(gf, tmp_path):
    table = write_csv(tmp_path / "pairs.csv", [("a text", "b text"), ("", "c text")], header="first,second")
    result = gf("similar", table)  # a note on the columns stands before the error
    said = result.err
    assert result.code == 2
    assert "row 3" in said
    assert "on_bad_row" not in said
    assert "on-bad-row" not in said


# --- what a message offers --------------------------------------------------------------------------


def test_a_training_ends_with_what_comes_next_and_with_how_many_warnings(ok, tmp_path):
    table = write_csv(tmp_path / "twice.csv", [*sentences(40), *sentences(20)])
    result = ok("train", "--text", table, "--out", "run", *settings())
    assert '"A TEXT OF YOUR OWN", or a table: FILE.csv --out PREDICTIONS.csv' in result.out
    warned = re.search(r"note: (\d+ warnings?) about the data: above, and in the report", result.err)
    assert warned is not None
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert f'<a href="#data">{warned[1]} about the data</a>' in page


def test_a_server_that_is_stopped_is_no_error(monkeypatch, capsys):
    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("glassformer.cli.app._run_command", stopped)
    assert main(["serve", "run"]) == INTERRUPTED
    assert capsys.readouterr().err == "stopped\n"
    assert main(["evaluate", "run"]) == INTERRUPTED
    assert capsys.readouterr().err.startswith("error: interrupted")


def test_the_help_begins_with_where_to_begin(gf):
    panels = gf("--help").out
    assert panels.index("Start here") < panels.index("Train and compare") < panels.index("Use a model")
    assert "glassformer data doctor FILE.csv, then glassformer train --text FILE.csv" in " ".join(
        panels.split()
    )
    for verb in ("predict", "train", "evaluate"):
        assert "--encoding cp1252" in gf(verb, "--help").out


# --- other tools, other places ----------------------------------------------------------------------


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


def test_evaluate_takes_the_columns_of_other_data(as_json, run, other):
    columns = ("--text-column", "comment", "--label-column", "emotion")
    assert as_json("evaluate", run, "--data", other, *columns)["n"] == 23
    assert as_json("calibrate", run, "--data", other, *columns)["chosen_by"].endswith("other.csv")


def test_a_table_in_the_place_of_a_recipe_is_taken_for_data(ok, other, tmp_path):
    columns = ("--text-column", "comment", "--label-column", "emotion")
    flags = ("--epochs", 1, "--lr", 0.01, "--batch-size", 7, "--max-length", 13, "--seed", 5)
    result = ok("train", other, *columns, *flags, "--out", "run", *settings())
    assert f"{other} is not a recipe: read as data, --text {other}" in result.err
    config = (tmp_path / "run" / "config.toml").read_text()
    for line in ('text_column = "comment"', "lr = 0.01", "batch_size = 7", "seed = 5"):
        assert line in config


def test_pictures_in_the_place_of_a_recipe(gf, tmp_path):
    folder = tmp_path / "cats"
    (folder / "a").mkdir(parents=True)
    assert guess_data_option(str(folder)) is None
    (folder / "a" / "one.JPG").touch()
    (folder / "notes.txt").touch()
    (folder / "a" / "two.png").touch()
    assert guess_data_option(str(folder)) == "--images"
    result = gf("cross-validate", folder)
    assert result.code == 2
    assert f"{folder} is not a recipe: read as data, --images {folder}" in result.err
    (folder / "config.toml").touch()
    assert guess_data_option(str(folder)) is None
    assert guess_data_option("nowhere.jsonl") == "--text"
    assert guess_data_option("europe") is None


def test_an_unknown_recipe_is_no_list_of_all(refused):
    assert len(refused("train")) < 200
    with pytest.raises(ConfigError, match="no recipe 'zzzzzz'") as caught:
        choose_recipe("zzzzzz")
    assert len(str(caught.value)) < 200
    assert len(recipe_names()) > 30


def test_estimators_answer_names_of_other_tools_too():
    said = {"learning_rate": ".* called 'lr'", "frobnicate": "Known: accum"}
    said |= {"epoch": "Did you mean 'epochs'", "alpha": ".* called 'weight_decay'"}
    for cls in (TextClassifier, ImageClassifier, MaskedLM):
        for name, fix in said.items():
            with pytest.raises(TypeError, match=rf"{cls.__name__} has no parameter '{name}'\. {fix}"):
                cls(**{name: 1})
        assert clone(cls(lr=1e-3)).lr == 1e-3
        assert next(iter(signature(cls).parameters)) == "model"


def test_word_vectors_answer_names_of_gensim():
    theirs = "vector_size workers alpha sample iter ns_exponent max_final_vocab".split()
    for name, ours in zip(theirs, "dim threads lr subsample epochs exponent max_words".split(), strict=True):
        with pytest.raises(TypeError, match=f"no parameter '{name}'. Here it is called '{ours}'"):
            Word2Vec(**{name: 1})


def test_messages_speak_of_options_where_there_are_some():
    told, options = "Name both with text_column and label_column", ["--text-column", "--label-column"]
    assert use_option_names(told, options) == "Name both with --text-column and --label-column"
    assert use_option_names(told, options[:1]) == "Name both with --text-column and label_column"
    assert suggest_option("--frobnicate", ["--out"], {}) is None


def test_keys_of_other_tools_are_of_keys_that_there_are():
    keys = {key for cls in recipe_classes().values() for key in vars(cls()) if not key.startswith("_")}
    assert set(KEYS) <= set(all_keys()) | keys
    ours = {"target_column"}  # of pairs; of labels it is another's name
    assert set(KEYS_BY_NAME) & set(all_keys()) <= ours
    with pytest.raises(ConfigError, match="called 'd_model'"):
        override({}, {"hidden_size": 1}, recipe_classes()["text-classification"], "x")


def test_a_dash_is_standard_input(gf, ok, refused, run, stdin, tmp_path):
    stdin("\ufeffa splendid film\n\na dreadful plot\r\n".encode())
    result = ok("predict", run, "-")
    texts = [line.split("\t")[2] if line.count("\t") > 1 else "" for line in result.out.splitlines()]
    assert texts == ["a splendid film", "", "a dreadful plot"]
    stdin("a great\u2028place\nslow\x0cfood\n".encode())
    assert gf("predict", run, "-").out.count("\n") == 2
    stdin(b"one\n\ntwo\n")
    ok("predict", run, "-", "--out", "out.csv")
    with open(tmp_path / "out.csv", newline="") as file:
        assert [row["text"] for row in csv.DictReader(file)][-1] == "two"
    stdin(b"one\n")
    assert gf("embed", run, "-", "and two", "--out", "out.npy").out.startswith("2 embeddings of dimension")


def test_standard_input_that_cannot_be_read(refused, run, stdin, monkeypatch):
    stdin(b"\n \n")
    assert "standard input: there is no text" in refused("predict", run, "-")
    stdin(b"\xff\xfe")
    assert "standard input: not UTF-8" in refused("explain", run, "-")
    stdin(b"")
    assert "'-' is among the texts" in refused("predict", run, "-", "a text")
    monkeypatch.setattr("glassformer.inputs.rows.MAX_STDIN_BYTES", 5)
    stdin(b"123456")
    assert "standard input: more than" in refused("predict", run, "-")


# --- what the library says of the same ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("load", "content", "said"),
    [
        (
            load_scored_pairs,
            "first,second,score" + 3 * "\na b c d,,1",
            "column 'second': empty in all 3 rows",
        ),
        (load_pairs, "source,target" + 3 * "\n,x y", "column 'source': empty in all 3 rows"),
        (load_qa, "question,context,answer" + 3 * "\n,a b c,b", "column 'question': empty in all 3 rows"),
        (load_qa, "question,context,answer" + 3 * "\nwho is it,,b", "column 'context': empty in all 3 rows"),
        (load_tagged, "tokens,tags" + 3 * "\n,O", "column 'tokens': empty in all 3 rows"),
    ],
)
def test_an_empty_column_of_other_tasks_is_named(load, content, said, tmp_path):
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(DataError, match=f"a.csv, {said}"):
        load(tmp_path / "a.csv")


def test_a_question_and_a_line_are_named(tmp_path):
    qa = [{"id": "q7", "question": "Where?", "answers": [{"text": "Rome", "answer_start": 0}]}]
    data = {"data": [{"paragraphs": [{"context": "In Paris.", "qas": qa}]}]}
    (tmp_path / "qa.json").write_text(json.dumps(data))
    with pytest.raises(DataError, match=r"qa.json, question 1 \(id 'q7', 'Where\?'\): the answer 'Rome'"):
        load_qa(tmp_path / "qa.json")
    (tmp_path / "a.conll").write_text("Ada B-PER\nis O\nhere\n")
    with pytest.raises(DataError, match=r"a.conll, line 3: 1 column where the sentence's first word has 2"):
        load_tagged(tmp_path / "a.conll")


@pytest.mark.parametrize(
    ("estimator", "X", "y", "said"),
    [
        (TextClassifier("tfidf"), np.zeros((10, 5)), range(10), r"an array \[10, 5\] of numbers"),
        (TextRegressor("tfidf"), np.zeros((10, 5)), range(10), r"an array \[10, 5\] of numbers"),
        (TextClassifier("tfidf"), [[1.0, 2.0, 3.0]] * 4, "abab", r"texts\[0\]: 3 values where a text is"),
        (TextClassifier("encoder-mini"), np.zeros((4, 2)), "abab", "of numbers .* use scikit-learn"),
        (TokenTagger("encoder-mini"), np.zeros((4, 3)), [["O"] * 3] * 4, "of numbers .* use scikit-learn"),
        (QuestionAnswerer("encoder-mini"), np.zeros((4, 2)), ["a"] * 4, "of numbers .* use scikit-learn"),
    ],
)
def test_numbers_are_no_texts(estimator, X, y, said):
    with pytest.raises(DataError, match=said):
        estimator.fit(X, list(y))
