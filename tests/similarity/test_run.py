"""A table of scored pairs to a judged, explained, reported run by the command line; and what is wrong with tables."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.tiny import sets
from tests.commands import as_json, ok, refused
from tests.tables import read_csv, write_csv

import glassformer as gf
from glassformer.data.dataset import Dataset
from glassformer.data.pair_doctor import examine_scored
from glassformer.data.pairs import ScoredSplit, load_scored_pairs
from glassformer.errors import DataError

from .tiny import PAIRS, checkpoint

ROWS = [(*pair, score) for pair, score in zip(PAIRS * 4, [5, 1, 0, 4, 2] * 4, strict=True)]
ROWS = [(f"{a} {i}", f"{b} {i}", score) for i, (a, b, score) in enumerate(ROWS)]
KEYS = ["d_model=14", "num_layers=1", "num_heads=2", "d_ff=11", "min_count=1", "batch_size=3", "epochs=2"]


def write(path: Path, rows, header=("sentence1", "sentence2", "score")) -> Path:
    return write_csv(path, header, rows)


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_cosines_of_a_run_are_those_of_its_model(here):
    write(here / "pairs.csv", ROWS)
    (here / "mine.toml").write_text(
        'task = "similarity"\n[data]\nsource = "pairs.csv"\ntest_size = 5\nvalidation_size = 3\n'
        '[model]\nmodel = "encoder-mini"\n[evaluate]\nbootstrap = 20\nmaps = 3\n'
    )
    ok("train", "mine.toml", "--out", "run", *sets(*KEYS))
    rows = read_csv("run/pairs.csv")
    embedder = gf.load("run")
    assert len(rows) == 5
    for row in rows:
        cosine = embedder.similarity(row["first"], row["second"])
        assert float(row["cosine"]) == pytest.approx(cosine, abs=1e-4)
    for one in json.loads(Path("run/similarities.json").read_text())["examples"]:
        assert np.sum(one["table"]) == pytest.approx(one["score"], abs=1e-3)  # rounded
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert 'style="' not in page
    other = write(here / "other.csv", ROWS[:4], ("premise", "hypothesis", "relatedness"))
    assert "4" in ok("evaluate", "run", "--data", other).out


def test_questions_to_a_model_on_the_command_line(here):
    """More verbs are in tests/records, tables in test_doubles.py."""
    model = str(checkpoint(here / "checkpoint"))
    cosine = float(ok("similar", "a dog", "the dog", "--model", model).out)
    assert cosine == pytest.approx(gf.Embedder(model).similarity("a dog", "the dog"), abs=1e-4)
    ok("similar", "a dog", "the dog", "--model", model, "--out", "page.html")
    assert "<svg" in Path("page.html").read_text(encoding="utf-8")
    ok("similar", write(here / "pairs.csv", ROWS[:3]), "--model", model, "--out", "cosines.csv")
    assert [row["first"] for row in read_csv("cosines.csv")] == [row[0] for row in ROWS[:3]]
    texts = write(here / "texts.csv", [(text,) for pair in PAIRS for text in pair], ("text",))
    lines = ok("search", model, texts, "a dog", "--count", "3", "--save", "index").out.splitlines()
    assert lines[0] == "index: index"
    assert lines[1].split("\t")[1:] == ["2", "a dog"]
    again = as_json("search", model, "index", "a dog", "rain", "--count", "1")
    assert [one["found"][0]["row"] for one in again] == [2, 10]
    saved = str(gf.Embedder(model, batch_size=3).fit(PAIRS).save(here / "saved"))
    (told,) = as_json("explain", saved, "a dog", "the dog")
    assert told["score"] == pytest.approx(gf.load(saved).similarity("a dog", "the dog"), abs=1e-4)
    argv = ("similar", "a dog", "the dog", "--model", saved, "--explain", "--out", "e.html")
    assert as_json(*argv) == {"explained": 1, "out": "e.html"}
    for option in (("--cross",), ("--word", "dog"), ("--method", "occlusion")):
        assert "this model is an Embedder" in refused("explain", saved, "a dog", "the dog", *option)
    assert "is a model, not a text. Name it with --model" in refused("similar", saved, "a dog", "the dog")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("similar one", "Give two texts"),
        ("similar a b --first x", "--first: has an effect only for a table"),
        ("similar a b --out x.pdf", "the output is written as HTML or JSON"),
        ("similar a  ", "the text is empty"),
        ("similar a b --model no-such-model", "no-such-model"),
        ("search x no.csv a", "no such table or index"),
        ("search x no.csv", "nothing to search for"),
        ("train stsb-minilm --data no.csv", "no.csv"),
    ],
)
def test_a_wrong_question_is_one_line_and_exit_code_2(words, said, here):
    error = refused(*words.split(" ")[: 3 if words.endswith(" ") else None])
    assert said in error
    assert len(error.strip().splitlines()) == 1


# --- tables -----------------------------------------------------------------------------------------


def test_columns_are_found_by_their_names_or_by_what_they_hold(here):
    assert load_scored_pairs(write(here / "a.csv", ROWS)).columns == ("sentence1", "sentence2", "score")
    odd = [(i, a, b, score / 5) for i, (a, b, score) in enumerate(ROWS)]
    table = write(here / "b.csv", odd, ("id", "left side", "right side", "how alike"))
    with pytest.raises(DataError, match="several columns could be the score: id, how alike"):
        load_scored_pairs(table)
    found = load_scored_pairs(table, score="how alike")
    assert found.columns == ("left side", "right side", "how alike")
    assert found.splits["train"].scores == [row[3] for row in odd]
    for none in (None, "none"):  # as the library says it, and as a recipe does
        assert load_scored_pairs(table, score=none).splits["train"].scores is None
    with pytest.raises(DataError, match="no column 'rating'"):
        load_scored_pairs(table, score="rating")
    one = write(here / "c.csv", [(a, score) for a, _, score in ROWS], ("text", "score"))
    with pytest.raises(DataError, match="two columns of texts are expected, but only 'text' has texts"):
        load_scored_pairs(one)


def test_bad_rows_are_named_or_left_out(here):
    rows = [*ROWS[:3], ("", "b", 1), ("a", "b", "much"), ("a", "b", ""), *ROWS[3:6]]
    table = write(here / "bad.csv", rows)
    with pytest.raises(DataError, match=r"bad.csv, row 5: the text is empty.*on_bad_row=skip"):
        load_scored_pairs(table)
    found = load_scored_pairs(table, on_bad_row="skip")
    assert len(found.splits["train"]) == 6
    assert [(row.row, row.reason) for row in found.rejected] == [
        (5, "the text is empty"),
        (6, "the score 'much' is not a number"),
        (7, "the score is missing"),
    ]
    assert found.splits["train"].rows == [2, 3, 4, 8, 9, 10]


def test_the_doctor_sees_leaks_on_either_side_and_pairs_with_two_scores():
    def split(rows, origin):
        return ScoredSplit([r[0] for r in rows], [r[1] for r in rows], [float(r[2]) for r in rows], origin)

    train = split([("a b", "c d", 1), ("c d", "a b", 4), ("e f", "e f", 0), ("g h", "i j", 5)], "train")
    test = split([("i j", "g h", 5), ("k l", "m n", 2)], "test")
    report = examine_scored(Dataset("pairs", {"train": train, "test": test}))
    found = {(f.code, f.severity): f for f in report.findings}
    for code in ("duplicates", "contradictions", "same", "leaks"):
        assert found[code, "warning"].count == 1
    wanted = {"pairs": 4, "distinct": 3, "lowest": 0.0, "mean": 2.5, "highest": 5.0}
    assert report.figures["splits"]["train"] == wanted
    alone = examine_scored(Dataset("pairs", {"train": train, "test": split([("g h", "o p", 1)], "test")}))
    assert next(f for f in alone.findings if f.code == "leaks").severity == "note"


def test_the_named_source_is_the_benchmark(data_root):
    dataset = load_scored_pairs("stsb")
    assert {name: len(split) for name, split in dataset.splits.items()} == {
        "train": 5749,
        "validation": 1500,
        "test": 1379,
    }
    assert max(dataset.splits["test"].scores or ()) == 5
