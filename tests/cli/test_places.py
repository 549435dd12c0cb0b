"""Folders and files that a command names: where it writes, and a folder where a file or a model is wanted."""

import os
import shutil

import pytest

import glassformer as gf
from glassformer.errors import CheckpointError, ConfigError
from glassformer.outputs import check_folder_path, check_new_file

from .tiny import sentences, settings, snapshot, write_csv

FILES = {
    "predict": ["predict", "run", "a film", "--out", "{}.csv"],
    "predict --data": ["predict", "run", "--data", "table.parquet", "--out", "{}.parquet"],
    "explain": ["explain", "run", "a film", "--out", "{}.html"],
    "translate": ["translate", "run", "a film", "--out", "{}.csv"],
    "translate --align": ["translate", "run", "a film", "--align", "{}.html"],
    "embed": ["embed", "run", "a film", "--out", "{}.npy"],
    "vectors": ["vectors", "run", "--out", "{}.txt"],
    "data show": ["data", "show", "digits", "--augment", "light", "--out", "{}.png"],
}
FOLDERS = {
    "train": ["train", "--text", "reviews.csv", *settings(), "--out", "{}"],
    "cross-validate": ["cross-validate", "--text", "reviews.csv", *settings(), "--out", "{}"],
    "compare": ["compare", "europe-pooling", "--out", "{}"],
    "export": ["export", "run", "--to", "onnx", "--out", "{}"],
}


@pytest.mark.parametrize(
    "place", ["link", "folder", "missing/new", "reviews.csv/new", "a\nb", "a\0b", "a" * 300, "a/" * 3_000]
)
@pytest.mark.parametrize("verb", FILES)
def test_a_file_that_cannot_be_made(refused, run, reviews, tmp_path, verb, place):
    end = FILES[verb][-1].removeprefix("{}")
    (tmp_path / f"link{end}").symlink_to("gone")
    (tmp_path / f"folder{end}").mkdir()
    before = snapshot(tmp_path)
    said = refused(*[word.format(place) for word in FILES[verb]])
    assert len(said) < 600 or len(place) > 600
    assert {"link": "a broken link (to gone)", "folder": "a folder, where a file is"}.get(place, "") in said
    assert snapshot(tmp_path) == before
    assert (tmp_path / f"link{end}").is_symlink()


@pytest.mark.parametrize(
    "place", ["link", "link/new", "reviews.csv", "reviews.csv/new", "a\nb", "a\0b", "a" * 300]
)
@pytest.mark.parametrize("verb", FOLDERS)
def test_a_folder_that_cannot_be_made(refused, run, reviews, tmp_path, verb, place):
    (tmp_path / "link").symlink_to("gone")
    before = snapshot(tmp_path)
    said = refused(*[word.format(place) for word in FOLDERS[verb]])
    assert ("a broken link (to gone)" in said) == place.startswith("link")
    assert snapshot(tmp_path) == before


def test_links_in_a_circle_and_rights(tmp_path, monkeypatch):
    (tmp_path / "circle").symlink_to("circle")
    for check in (check_new_file, check_folder_path):
        with pytest.raises(ConfigError):
            check(tmp_path / "circle")
        with pytest.raises(ConfigError):
            check(tmp_path / "circle" / "new")
    monkeypatch.setattr(os, "access", lambda *given: False)
    for check in (check_new_file, check_folder_path):
        with pytest.raises(ConfigError, match=r"is not (a )?writable"):
            check(tmp_path / "new")


def test_good_places_are_taken(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    assert check_new_file(tmp_path / "link" / "Übung 1.csv")
    assert check_folder_path(tmp_path / "there")
    assert check_folder_path(tmp_path / "link" / "a" / "b")


# --- a folder where a file or a text is wanted ------------------------------------------------------


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
    assert "mine: a folder, where a text or a file is expected" in said
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
    assert "'-' is among the texts" in refused("predict", run, "-", "a text")


# --- a folder above a model -------------------------------------------------------------------------


def test_python_names_the_models_below(run, tmp_path):
    above = tmp_path / "above"
    shutil.copytree(run, above / "mine")
    with pytest.raises(CheckpointError) as caught:
        gf.load(above)
    assert (
        str(caught.value)
        == f"{above}: contains no model itself. Give one of its sub-folders: {above / 'mine'}"
    )
    for name in ("b", "c", "d"):
        shutil.copytree(run / "model", above / name)
    with pytest.raises(CheckpointError) as caught:
        gf.load(above)
    assert str(caught.value).endswith(
        f"Give one of its sub-folders: {above / 'b'}, {above / 'c'}, {above / 'd'}, ..."
    )
    assert gf.load(above / "mine").predict(["a film"]).shape == (1,)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(CheckpointError, match="not a saved model or run"):
        gf.load(tmp_path / "nothing")


@pytest.mark.parametrize("verb", ["predict", "evaluate", "calibrate", "explain", "embed", "export", "serve"])
def test_every_verb_names_them(refused, run, tmp_path, verb):
    above = tmp_path / "above"
    shutil.copytree(run, above / "mine")
    more = {
        "export": ["--to", "onnx"],
        "embed": ["a film", "--out", "v.npy"],
        "predict": ["a film"],
        "explain": ["a film"],
    }
    said = refused(verb, above, *more.get(verb, []))
    assert f"Give one of its sub-folders: {above / 'mine'}" in said


def test_the_folder_of_others_below_is_named_too(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(CheckpointError) as caught:
        gf.load(tmp_path)
    assert str(caught.value).endswith(f"Give one of its sub-folders: {tmp_path / 'model'}")
