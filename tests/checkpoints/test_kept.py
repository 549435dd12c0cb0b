"""What its owner has put into a saved folder outlives the next save, and folders of others are not replaced."""

import os
import shutil
from pathlib import Path

import pytest

from glassformer.checkpoints.files import MANIFEST, verify_folder, write_folder
from glassformer.errors import CheckpointError, UserFileLostWarning


def writer(**content: str):
    def write(folder: Path) -> None:
        for name, text in content.items():
            (folder / name).write_text(text)

    return write


@pytest.fixture(params=["linked", "copied"])
def second_names(request, monkeypatch):
    if request.param == "copied":

        def refuse(*_, **__):
            raise OSError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)


def test_notes_exports_and_links_stay(tmp_path, second_names):
    path = write_folder(tmp_path / "model", writer(weights="old", tokens="old"))
    (path / "notes.txt").write_text("mine")
    (path / "onnx").mkdir()
    (path / "onnx" / MANIFEST).write_text("{}")
    (path / "drafts" / "empty").mkdir(parents=True)
    (path / "data").symlink_to("/nowhere")
    write_folder(path, writer(weights="new", extra="new"), overwrite=True)
    found = sorted(p.relative_to(path).as_posix() for p in path.rglob("*"))
    own = ["data", "drafts", "drafts/empty", "notes.txt", "onnx", f"onnx/{MANIFEST}"]
    assert found == sorted([*own, "extra", "weights", MANIFEST])
    assert (path / "notes.txt").read_text() == "mine"
    assert os.readlink(path / "data") == "/nowhere"
    assert (path / "weights").read_text() == "new"
    assert verify_folder(path)["files"].keys() == {"extra", "weights"}


def test_a_new_file_comes_before_one_of_its_name(tmp_path):
    path = write_folder(tmp_path / "model", writer(weights="old"))
    (path / "extra").write_text("mine")
    write_folder(path, writer(weights="new", extra="new", a="a file now"), overwrite=True)
    assert {p.name: p.read_text() for p in path.iterdir() if p.name != MANIFEST} == {
        "weights": "new",
        "extra": "new",
        "a": "a file now",
    }


def test_what_cannot_be_kept_stops_no_save_and_is_told(tmp_path, monkeypatch):
    path = write_folder(tmp_path / "model", writer(weights="old"))
    for name in ("mine", "n2/inside", ".weights.4711-0123abcd.tmp"):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text("mine")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    for name in ("link", "symlink"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr(shutil, "copy2", refuse)
    write_folder(path, writer(weights="new", n3="new"), overwrite=True)  # may not be read, but moved
    assert (path / "mine").read_text() == "mine"
    assert not (path / ".weights.4711-0123abcd.tmp").exists()
    with pytest.warns(UserFileLostWarning, match=r"model/n2/inside was lost"):
        write_folder(path, writer(weights="newer", n2="a file now"), overwrite=True)
    assert (path / "weights").read_text() == "newer"
    verify_folder(path)


@pytest.mark.parametrize("manifest", ['{"name": "My PWA"}', '{"files": ["a.js"], "format": 1, "extra": {}}'])
def test_a_manifest_of_something_else_is_no_leave_to_replace(tmp_path, manifest):
    (tmp_path / "app" / "src").mkdir(parents=True)
    (tmp_path / "app" / MANIFEST).write_text(manifest)
    (tmp_path / "app" / "src" / "app.js").write_text("code")
    with pytest.raises(CheckpointError, match="that glassformer did not write"):
        write_folder(tmp_path / "app", writer(weights="new"), overwrite=True)
    assert (tmp_path / "app" / "src" / "app.js").read_text() == "code"


def test_a_damaged_folder_of_ours_is_replaced_and_loses_nothing(tmp_path):
    path = write_folder(tmp_path / "model", writer(weights="old"))
    (path / MANIFEST).write_text((path / MANIFEST).read_text()[:-20])
    (path / "notes.txt").write_text("mine")
    write_folder(path, writer(weights="new"), overwrite=True)
    assert (path / "weights").read_text() == "new"
    assert (path / "notes.txt").read_text() == "mine"
    assert verify_folder(path)
