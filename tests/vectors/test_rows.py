"""Word vectors from tables: what a row lacks, and what is said of the texts."""

import json
from pathlib import Path

import pytest

from glassformer.cli.app import main
from glassformer.errors import DataError
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.word2vec.estimator import load, load_texts


def recipe(path: Path, *settings: str):
    given = [f"source={path}", "exclude=[]", "tests=[]", "analogies=[]", "neighbours=[]", "min_count=1"]
    return load_recipe(
        "imdb-word2vec", ["splits=['train']", *given, "epochs=1", "threads=1", "dim=5", *settings]
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    lines = [f"the dog {i} runs,{'ab'[i % 2]}" for i in range(9)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["text,label", *lines[:3], "a good text without a label,", *lines[3:], ""]))
    return path


def test_labels_are_not_looked_at(table):
    assert len(load_texts(recipe(table).data).sentences) == 10


def test_rows_without_a_text_are_told_and_listed(table, tmp_path, capsys):
    table.write_text(table.read_text() + ",a\n   ,b\n")
    with pytest.raises(DataError, match="row 12: the text is empty"):
        load_texts(recipe(table).data)
    words = recipe(table, "on_bad_row=skip")
    assert [row.row for row in load(words).rejected] == [12, 13]
    (tmp_path / "r.toml").write_text(
        "\n".join(
            [
                'name = "mine"',
                'task = "word2vec"',
                "[data]",
                f'source = "{table}"',
                'on_bad_row = "skip"',
                'splits = ["train"]',
                "exclude = []",
                "[vectors]",
                "dim = 5",
                "min_count = 1",
                "epochs = 1",
                "threads = 1",
                "[judge]",
                "tests = []",
            ]
        )
    )
    assert main(["train", str(tmp_path / "r.toml"), "--out", str(tmp_path / "run")]) == 0
    lines = (tmp_path / "run" / "rejected.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"] for line in lines] == [12, 13]
    assert "2 rows" in capsys.readouterr().out


def test_texts_are_counted_and_not_their_pieces(tmp_path):
    path = tmp_path / "t.csv"
    long = " ".join(["the dog runs far"] * 6_000)
    path.write_text("\n".join(["text", f"{long}", "the dog runs", "rare words alone", ""]))
    found = load(recipe(path, "min_count=2"))
    assert len(found.sentences) == 3
    assert len(found.corpus) > 3
