"""Texts of word vectors that also stand in a test set: left out, counted and said."""

import json
from pathlib import Path
from unicodedata import normalize

import pytest

from glassformer.cli.app import main
from glassformer.errors import ConfigError, DataError
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.run import run_task
from glassformer.tasks.word2vec.estimator import load_texts
from glassformer.tasks.word2vec.recipe import CorpusConfig

TRAIN = [
    "the king and the queen",
    "a fine film",
    "Café <br />du monde!",
    "a bad film",
    "a fine film",
    "le café",
]
TEST = ["A fine  film", "nothing else", normalize("NFD", "café du monde!"), "a bad film"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a table of each split; a text of train stands in test, three more do once they are cleaned."""
    folder = tmp_path / "reviews"
    folder.mkdir()
    for split, texts in (("train", TRAIN), ("test", TEST), ("validation", ["the king and the queen"])):
        rows = (json.dumps({"text": text}) + "\n" for text in texts)
        (folder / f"{split}.jsonl").write_text("".join(rows), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("options", "left", "excluded"),
    [
        ({}, 6, {}),
        ({"exclude": ("test",)}, 2, {"test": 4}),
        ({"exclude": ("test",), "lowercase": False}, 5, {"test": 1}),
        ({"exclude": ("test", "validation", "test")}, 1, {"test": 4, "validation": 1}),
        ({"exclude": ("unsupervised",)}, 6, {}),
        ({"exclude": ("test",), "splits": ("validation",)}, 1, {"test": 0}),
        ({"exclude": ("validation",), "splits": ("train", "validation")}, 5, {"validation": 2}),
    ],
)
def test_what_is_left(options, left, excluded, source):
    found = load_texts(CorpusConfig(source=str(source), **options))
    assert len(found.sentences) == left
    assert found.excluded == excluded


def test_the_excluded_split_is_whole_whatever_the_limit(source):
    (source / "train.jsonl").write_text('{"text": "a bad film"}\n{"text": "a good film"}\n')
    found = load_texts(CorpusConfig(source=str(source), exclude=("test",), limit=3))
    assert found.sentences == [["a", "good", "film"]]
    assert found.excluded == {"test": 1}


def test_a_single_file_has_nothing_to_exclude(tmp_path):
    for name, body in (
        ("t.txt", "a fine film\na bad one\n"),
        ("t.csv", "text,label\na fine film,1\na bad one,0\n"),
    ):
        (tmp_path / name).write_text(body)
        found = load_texts(CorpusConfig(source=str(tmp_path / name), exclude=("test",)))
        assert found.sentences == [["a", "fine", "film"], ["a", "bad", "one"]]
        assert found.excluded == {}


def test_when_nothing_is_left_the_way_out_is_right(source, tmp_path, capsys):
    with pytest.raises(DataError, match=r"no text is left: each one is also in test\..*exclude=\[\]"):
        load_texts(CorpusConfig(source=str(source), splits=("test",), exclude=("test",)))
    command = [
        "train",
        "imdb-word2vec",
        "--data",
        str(source),
        "--set",
        'splits=["test"]',
        "--set",
        "min_count=1",
    ]
    command += ["--set", "tests=[]", "--set", "epochs=1", "--set", "dim=3", "--out", str(tmp_path / "run")]
    assert main(command) == 2
    assert "no text is left" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert main([*command, "--set", "exclude=[]"]) == 0
    assert "were left out" not in capsys.readouterr().out


def test_a_name_that_is_no_split(source):
    with pytest.raises(ConfigError, match=r"data\.exclude: no split is called 'tset'\. Did you mean 'test'"):
        load_texts(CorpusConfig(source=str(source), exclude=("tset",)))


def test_the_run_says_how_many(source, tmp_path):
    said: list[str] = []
    keys = [f"source={source}", "min_count=1", "tests=[]", "epochs=1", "dim=3"]
    recipe = load_recipe("imdb-word2vec", [*keys, 'splits=["train"]'])
    assert recipe.data.exclude == ("test",)
    run = run_task(recipe, tmp_path / "run", log=said.append)
    assert "texts that are also in test, left out: 4" in said
    assert run.metrics["excluded"] == {"test": 4}
    assert run.metrics["texts"] == 2
    assert "Texts that are also in test, left out: 4." in run.report.read_text()
    metrics = json.loads((run.folder / "metrics.json").read_text())
    del metrics["excluded"]  # as earlier versions wrote it
    (run.folder / "metrics.json").write_text(json.dumps(metrics))
    assert main(["report", str(run.folder)]) == 0
    assert "were left out" not in run.report.read_text()


@pytest.mark.slow
def test_the_reviews_of_imdb_that_stand_in_its_test_set(data_root):
    found = load_texts(load_recipe("imdb-word2vec").data)
    assert found.excluded["test"] >= 266 + 123  # that many distinct texts, unlabelled and of train
    assert len(found.sentences) + found.excluded["test"] == 75_000
