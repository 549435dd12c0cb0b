"""A folder where a file or a text is wanted: it is never taken for a text, and no advice costs its content."""

from __future__ import annotations

import shutil

import pytest

from .tiny import sentences, write_csv


@pytest.fixture
def mine(tmp_path):
    """A folder of one's own tables, with a run in it."""
    for name in ("feedback.csv", "new.csv"):
        write_csv(tmp_path / "mine" / name, sentences(13))
    (tmp_path / "mine" / "runs" / "feedback" / "model").mkdir(parents=True)
    return tmp_path / "mine"


@pytest.mark.parametrize("verb", [("predict",), ("explain",), ("embed", "--out", "v.npy")])
def test_the_name_of_a_folder_is_no_text(refused, run, mine, verb):
    said = refused(verb[0], run, "mine", *verb[1:])
    assert "mine: a folder where texts or their files are read" in said
    assert "Name one of the files there: mine/feedback.csv, mine/new.csv" in said
    shutil.rmtree(mine)
    mine.mkdir()
    assert "Name a file" in refused(verb[0], run, "a text", "mine", *verb[1:])


@pytest.mark.parametrize("command", [("train", "--text"), ("data", "doctor"), ("data", "show")])
def test_a_folder_of_tables_names_them_and_is_not_to_be_removed(refused, mine, command):
    said = refused(*command, "mine")
    assert "a folder of tables" in said
    assert f"{mine.name}/feedback.csv" in said
    assert f"{mine.name}/new.csv" in said
    assert "emove" not in said


@pytest.mark.parametrize(
    "command",
    [
        ("train", "--images", "mine"),
        ("train", "stsb-minilm", "--data", "mine"),
        ("train", "wnut17-minilm", "--data", "mine"),
        ("train", "facts-minilm", "--data", "mine"),
        ("train", "multi30k-rnn", "--data", "mine"),
        ("train", "imdb-textcnn", "--data", "mine"),
    ],
)
def test_every_kind_of_data_names_the_tables_of_a_folder(refused, mine, command):
    said = refused(*command, "--out", "out")
    assert "feedback.csv" in said
    assert "emove" not in said


def test_a_class_without_texts_is_not_to_be_removed(refused, tmp_path):
    (tmp_path / "own" / "runs").mkdir(parents=True)
    said = refused("train", "--text", "own")
    assert "class 'runs' has no .txt files" in said
    assert "emove" not in said


def test_a_sheet_is_to_be_saved_as_csv(refused, tmp_path):
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    for command in (("train", "--text"), ("data", "doctor"), ("data", "show")):
        assert "Save the sheet as CSV" in refused(*command, "a.xlsx")


def test_no_text_on_standard_input_says_whose_dash_it_was(refused, run, monkeypatch):
    import io

    empty = type("Stdin", (), {"buffer": io.BytesIO(b"")})()
    monkeypatch.setattr("sys.stdin", empty)
    assert "'-' stands among the texts" in refused("predict", run, "-", "a text")
