"""Folders and files that a command names: where it writes, and a folder where a file or a model is wanted."""

import os
import shutil

import pytest

import glassformer as gf
from glassformer.errors import CheckpointError, ConfigError
from glassformer.outputs import check_folder_path, check_new_file

from .tiny import settings, snapshot

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


# --- a folder above a model -------------------------------------------------------------------------


def test_python_names_the_models_below(run, tmp_path):
    above, theirs, nothing = (tmp_path / name for name in ("above", "theirs", "nothing"))
    shutil.copytree(run, above / "mine")
    fix = "contains no model itself. Give one of its sub-folders: "
    with pytest.raises(CheckpointError, match=f"^{above}: {fix}{above / 'mine'}$"):
        gf.load(above)
    for name in ("b", "c", "d"):
        shutil.copytree(run / "model", above / name)
    with pytest.raises(CheckpointError, match=rf"{above / 'b'}, {above / 'c'}, {above / 'd'}, \.\.\.$"):
        gf.load(above)
    assert gf.load(above / "mine").predict(["a film"]).shape == (1,)
    (theirs / "model").mkdir(parents=True)
    (theirs / "model" / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=f"{fix}{theirs / 'model'}$"):
        gf.load(theirs)
    nothing.mkdir()
    with pytest.raises(CheckpointError, match="not a saved model or run"):
        gf.load(nothing)
