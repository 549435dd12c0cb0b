"""Rows of one list that mean the same, answers with their rows' columns, and none where nothing fits."""

import numpy as np
import pytest
from tests.commands import as_json, ok, refused
from tests.tables import read_csv, write_csv

import glassformer as gf
from glassformer.errors import DataError
from glassformer.tasks.similarity import search

from .tiny import PAIRS, checkpoint, tiny

ROWS = [
    row.split("|")
    for row in "q1|a dog and a cat|yes;q2|rain and sun|no;q3|a dog and a cat|=1+1;q4|two and three|".split(
        ";"
    )
]
ROWS += [["q5", "a red car rained", "no"]]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoint(tmp_path / "model")
    write_csv(tmp_path / "faq.csv", ("id", "question", "answer"), ROWS)
    return tmp_path


def said(*words: str) -> tuple[str, str]:
    done = ok(*words)
    return done.out, done.err


def test_doubles_are_what_all_cosines_say(monkeypatch):
    embedder, texts = tiny().fit(PAIRS), [text for pair in PAIRS for text in pair]
    every = embedder.similarity(texts, texts)
    wanted = {(i, j) for i in range(10) for j in range(i + 1, 10) if every[i, j] >= 0.3}
    monkeypatch.setattr(search, "BLOCK", 3)
    found = embedder.doubles(texts, least=0.3)
    assert {(i, j) for i, j, _ in found} == wanted
    cosines = [cosine for _, _, cosine in found]
    assert cosines == sorted(cosines, reverse=True)
    np.testing.assert_allclose(cosines, [every[i, j] for i, j, _ in found], atol=1e-6)
    assert embedder.doubles(embedder.encode(texts), 0.3) == found
    assert embedder.doubles(texts[:1]) == []
    monkeypatch.setattr(search, "MAX_PAIRS", 7)
    with pytest.raises(DataError, match="Ask for a higher one"):
        embedder.doubles(texts, -1)


def test_doubles_of_a_table_have_rows_ids_and_columns(here):
    words = tuple("similar faq.csv --doubles --text-column question --model model --least 0.999".split())
    out, err = said(*words)
    assert out == "1.0000\t2 (q1)\t4 (q3)\ta dog and a cat\ta dog and a cat\n"
    assert "1 pairs among 5 rows" in err
    (found,) = as_json(*words)
    assert found["rows"] == [2, 4]
    assert found["columns"][1] == {"id": "q3", "answer": "=1+1"}
    said(*words, "--out", "doubles.csv")
    (row,) = read_csv("doubles.csv")
    assert (row["first_row"], row["second_row"], row["first_id"], row["second_id"]) == ("2", "4", "q1", "q3")
    assert row["second_answer"] == "'=1+1"  # safe in a spreadsheet


def test_answers_bring_their_rows_columns_and_none_is_given_below_the_least(here):
    (here / "asked.txt").write_text("a dog and a cat\nrain\n")
    words = "search", "model", "faq.csv", "asked.txt", "--count", "1", "--text-column", "question"
    said(*words, "--out", "answers.csv")
    first, second = read_csv("answers.csv")
    assert (first["query"], first["rank"], first["row"], first["id"]) == ("a dog and a cat", "1", "2", "q1")
    assert second["query"] == "rain"
    found = as_json(*words, "--least", "0.9999")
    assert found[0]["found"][0]["columns"] == {"id": "q1", "answer": "yes"}
    assert found[1]["found"] == []
    assert -1 <= found[1]["nearest"] < 0.9999
    assert "no result: the nearest text has" in said(*words, "--least", "0.9999")[0]
    out, _ = said(*words, "--least", "0.9999", "--out", "few.csv")
    assert out == "2 queries, 1 without a result: few.csv\n"
    assert [row["id"] for row in read_csv("few.csv")] == ["q1", ""]
    said("search", "model", "faq.csv", "--save", "index", "--text-column", "question")
    found = as_json("search", "model", "index", "two and three", "--count", "1")
    assert found[0]["found"][0]["columns"] == {"id": "q4", "answer": ""}


def test_what_a_table_of_two_texts_means_is_said(here):
    (here / "two.csv").write_text("question,answer\na dog runs,the dog runs\na cat runs,\n")
    err = refused("similar", "two.csv", "--model", "model")
    assert "'question' is compared with 'answer' in each row" in err
    assert "--doubles" in err
    assert "on_bad_row" not in err
    assert "--set" not in refused("similar", "faq.csv", "--model", "model")
    least = refused("similar", "a", "b", "--model", "model", "--least", "0.5")
    assert "has an effect only with --doubles" in least
    for option in (["--first", "id"], ["--second", "question"], ["--explain"]):
        err = refused("similar", "faq.csv", "--doubles", "--model", "model", *option)
        assert f"{option[0]}: has no effect with --doubles" in err


def test_a_checkpoint_that_is_named_is_served_as_it_is(monkeypatch, tmp_path):
    pytest.importorskip("fastapi")
    from glassformer.serve import models
    from glassformer.serve.limits import Limits

    folder = checkpoint(tmp_path / "words")
    known = {"all-minilm-l6-v2": folder}
    monkeypatch.setattr(models, "Embedder", lambda name: gf.Embedder(str(known[name])))
    ((model, calibrated),) = models.load_models(["all-minilm-l6-v2"], Limits(), threads=1, precision="fp32")
    assert (model.name, model.output_kind, calibrated) == ("all-minilm-l6-v2", "vectors", False)
    vectors = model.compute(model.prepare(["a dog", "rain"]))
    wanted = gf.Embedder(str(folder), precision="fp32").encode(["a dog", "rain"])
    np.testing.assert_allclose(vectors, wanted, atol=1e-5)
