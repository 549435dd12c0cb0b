"""Data that lack what a command needs: an empty column, no labels, the wrong kind of input, copies only."""

import json
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf_api
from glassformer.data.answered import load_qa
from glassformer.data.pairs import load_pairs, load_scored_pairs
from glassformer.data.tagged import load_tagged
from glassformer.errors import DataError

from .tiny import sentences, sets, write_csv

LINEAR = ["--model", "tfidf", *sets("baselines=false", "bootstrap=7")]
TEXTS = [text for text, _ in sentences(20)]


def table(path: Path, names: str, rows: list) -> Path:
    lines = [names, *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """Runs of a linear classifier and of a linear regressor."""
    from glassformer.cli.app import main

    folder = tmp_path_factory.mktemp("runs")
    labeled = write_csv(folder / "reviews.csv", sentences(60))
    numbers = table(
        folder / "numbers.csv", "text,score", [(t, i / 7) for i, (t, _) in enumerate(sentences(60))]
    )
    for name, words in (("classes", [str(labeled)]), ("numbers", [str(numbers), "--set", "target=number"])):
        assert main(["train", "--text", *words, *LINEAR, "--out", str(folder / name)]) == 0
    return {name: folder / name for name in ("classes", "numbers")}


@pytest.mark.parametrize("verb", [["train", "--text"], ["data", "doctor"], ["review-labels", "--text"]])
def test_an_empty_column_is_named(refused, tmp_path, verb):
    table(tmp_path / "a.csv", "text,label,note", [("", "ab"[i % 2], text) for i, text in enumerate(TEXTS)])
    said = refused(*verb, "a.csv", *([] if verb[0] == "data" else ["--out", "out"]))
    assert "a.csv, column 'text': empty in all 20 rows" in said
    assert said.endswith("Fill it in, or name another column with --text-column: note")
    table(tmp_path / "b.csv", "text,label", [(text, "") for text in TEXTS])
    said = refused(*verb, "b.csv", *([] if verb[0] == "data" else ["--out", "out"]))
    assert "b.csv, column 'label': empty in all 20 rows. Fill it in, or give another table" in said


def test_an_empty_column_is_named_where_a_model_reads_it(refused, runs, tmp_path):
    table(tmp_path / "a.csv", "text,note", [("", text) for text in TEXTS])
    for verb in ("predict", "explain"):
        assert "column 'text': empty in all 20 rows" in refused(verb, runs["classes"], "a.csv")
    table(tmp_path / "b.csv", "text,score", [(text, "") for text in TEXTS])
    assert "column 'score': empty in all 20 rows" in refused("evaluate", runs["numbers"], "b.csv")


@pytest.mark.parametrize(
    ("load", "names", "row", "column"),
    [
        (load_scored_pairs, "first,second,score", ("a b c d", "", 1), "second"),
        (load_pairs, "source,target", ("", "x y"), "source"),
        (load_qa, "question,context,answer", ("", "a b c", "b"), "question"),
        (load_qa, "question,context,answer", ("who is it", "", "b"), "context"),
        (load_tagged, "tokens,tags", ("", "O"), "tokens"),
    ],
)
def test_an_empty_column_of_other_tasks_is_named(load, names, row, column, tmp_path):
    path = table(tmp_path / "a.csv", names, [row] * 3)
    with pytest.raises(DataError, match=f"a.csv, column '{column}': empty in all 3 rows"):
        load(path)


def test_an_empty_cell_of_a_short_table_is_a_row(refused, tmp_path):
    table(tmp_path / "a.csv", "text,label", [("", "x")])
    assert "a.csv, row 2: the text is empty" in refused("train", "--text", "a.csv", "--out", "out")


@pytest.mark.parametrize("verb", ["evaluate", "audit", "calibrate"])
def test_a_table_without_labels_is_for_predict(refused, ok, runs, tmp_path, verb):
    table(tmp_path / "a.csv", "text,shop", [(text, f"shop {i}") for i, text in enumerate(TEXTS)])
    said = refused(verb, runs["classes"], "--data", "a.csv")
    assert "a.csv: there is no column 'label', and no other column has classes: 'shop' has 20" in said
    assert said.endswith(f"To predict without labels: glassformer predict {runs['classes']} a.csv")
    ok("predict", runs["classes"], "a.csv", "--out", "predictions.csv")
    table(tmp_path / "b.csv", "text", [(text,) for text in TEXTS])
    said = refused(verb, runs["classes"], "--data", "b.csv")
    assert (
        "b.csv: there is no column 'label' (columns: text). Add a column with the label of each row" in said
    )


def test_a_regressor_has_no_temperature(refused, ok, runs, tmp_path):
    said = refused("calibrate", runs["numbers"])
    assert said.startswith(f"error: {runs['numbers']}: a regressor has no probabilities to calibrate")
    assert f"glassformer predict {runs['numbers']} FILE --coverage 0.9" in said
    table(tmp_path / "a.csv", "text", [(text,) for text in TEXTS])
    said = refused("predict", runs["numbers"], "a.csv", "--coverage", "0.9", "--out", "predictions.csv")
    assert "Use 0.83 or less, or hold out 9 or more in training: --set validation_size=9" in said
    ok("predict", runs["numbers"], "a.csv", "--coverage", "0.83", "--out", "predictions.csv")
    numbers = runs["numbers"].parent / "numbers.csv"
    larger = sets("target=number", "validation_size=9")
    ok("train", "--text", numbers, *LINEAR, *larger, "--out", "larger")
    ok("predict", "larger", "a.csv", "--coverage", "0.9", "--out", "predictions-90.csv")
    said = refused("evaluate", runs["numbers"], "--data", "a.csv")
    assert "no column holds numbers (columns: text)" in said
    assert "target=number" not in said


def test_models_that_cannot_be_compared_are_named_first(refused, runs, tmp_path):
    write_csv(tmp_path / "a.csv", sentences(20))
    said = refused("diff", runs["classes"], runs["numbers"], "--data", "a.csv")
    assert f"{runs['classes']} predicts one label per example and {runs['numbers']} predicts a number" in said


def test_similar_needs_two_columns(refused, ok, tmp_path):
    table(tmp_path / "a.csv", "text", [(text,) for text in TEXTS])
    said = refused("similar", "a.csv")
    assert "only 'text' has texts. Add a column with the second text" in said
    assert said.endswith("to find similar rows in one column: --doubles")
    said = refused("similar", "a.csv", "--first", "text", "--second", "text")
    assert "column 'text' is used both as the first text and as the second" in said


def test_a_folder_is_no_index(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "empty: is a folder without an index or a table" in refused("search", "x", "empty", "a")
    table(tmp_path / "empty" / "a.csv", "text", [("a b",)])
    assert "empty: is a folder, but not an index. Name empty/a.csv" in refused("search", "x", "empty", "a")
    assert "Did you mean 'empty'?" in refused("search", "x", "emtpy", "a")


def test_a_question_of_squad_is_named(tmp_path):
    qa = [{"id": "q7", "question": "Where?", "answers": [{"text": "Rome", "answer_start": 0}]}]
    data = {"data": [{"paragraphs": [{"context": "In Paris.", "qas": qa}]}]}
    (tmp_path / "qa.json").write_text(json.dumps(data))
    with pytest.raises(
        DataError,
        match=r"qa.json, question 1 \(id 'q7', 'Where\?'\): the answer 'Rome' is not in the context",
    ):
        load_qa(tmp_path / "qa.json")


def test_copies_only_cannot_be_held_out(refused, ok, tmp_path):
    (tmp_path / "a.conll").write_text("Ada B-PER\nis O\n\n" * 12)
    command = ["train", "wnut17-minilm", "--data", "a.conll", "--model", "encoder-mini", "--epochs", 1]
    said = refused(*command, "--out", "out", "--set", "test_size=0.1")
    assert (
        "a.conll, test_size: all 12 examples are copies of one another, and copies stay in one split" in said
    )
    assert "test_size=0.1" not in ok(*command, "--out", "out").out


def test_a_line_of_conll_is_a_line(tmp_path):
    (tmp_path / "a.conll").write_text("Ada B-PER\nis O\nhere\n")
    with pytest.raises(DataError, match=r"a.conll, line 3: 1 column where the sentence's first word has 2"):
        load_tagged(tmp_path / "a.conll")


@pytest.mark.parametrize("estimator", [gf_api.TextClassifier, gf_api.TextRegressor])
def test_numbers_are_no_texts(estimator):
    with pytest.raises(DataError, match=r"texts: an array \[10, 5\] of numbers where texts are expected"):
        estimator("tfidf").fit(np.zeros((10, 5)), list(range(10)))


@pytest.mark.parametrize(
    ("estimator", "X", "y"),
    [
        (gf_api.TokenTagger, np.zeros((4, 3)), [["O"] * 3] * 4),
        (gf_api.QuestionAnswerer, np.zeros((4, 2)), ["a"] * 4),
        (gf_api.TextClassifier, np.zeros((4, 2)), list("abab")),
    ],
)
def test_numbers_are_no_sentences_or_questions(estimator, X, y):
    with pytest.raises(DataError, match=r"of numbers where texts are expected.*use scikit-learn"):
        estimator("encoder-mini").fit(X, y)


def test_lists_of_numbers_are_no_pairs():
    with pytest.raises(DataError, match=r"texts\[0\]: 3 values where a text is expected"):
        gf_api.TextClassifier("tfidf").fit([[1.0, 2.0, 3.0]] * 4, list("abab"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["predict", "all-minilm-l6-v2", "a"], "glassformer train --text FILE --model all-minilm-l6-v2"),
        (
            ["train", "--text", "a.csv", "--model", "all-minilm-l6-v2", *sets("d_model=8")],
            "Leave d_model out",
        ),
        (["export", "x", "--to", "foo"], "'--to': 'foo' is not one of"),
    ],
)
def test_a_fix_is_one_for_the_command(refused, tmp_path, words, said):
    write_csv(tmp_path / "a.csv", sentences(40))
    assert said in refused(*words)


def test_a_model_is_served_once(refused, runs, tmp_path):
    said = refused("serve", runs["classes"], runs["classes"])
    assert said.endswith("the model is named twice. Name it once")


def test_an_option_is_named_as_typed(refused, runs, tmp_path):
    said = refused("calibrate", runs["classes"], "--abstain-below", "90")
    assert said.startswith("error: --abstain-below: 90.0 is not a probability")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_text("a")
    write_csv(tmp_path / "a.csv", sentences(20))
    said = refused("train", "--text", "a.csv", *LINEAR, "--out", "mine")
    assert said.endswith(
        "mine: the output folder exists and is not a run folder: it has no config.toml. Choose another --out"
    )
    assert refused("train", "--text", "a.cvs", *LINEAR).endswith("Did you mean 'a.csv'?")
