"""Folders are complete or not there, notice every later change, and keep what is not ours."""

import hashlib
import json
import os
import random
import resource
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from glassformer.checkpoints import files
from glassformer.checkpoints.files import MANIFEST, read_json, verify_folder, write_folder
from glassformer.errors import CheckpointError, GlassformerError, UserFileLostWarning

from .conftest import damage, damages

CONTENT = {"config.json": b"{}\n", "model.safetensors": bytes(range(256)) * 4, "deep/er/vocab.txt": b"a\nb\n"}


def fill(folder: Path, content: Mapping[str, bytes] = CONTENT) -> None:
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def holding(**content: bytes) -> Callable[[Path], None]:
    """What writes these files, for ``write_folder``."""
    return lambda folder: fill(folder, content)


def moved_one_after_the_other(monkeypatch) -> None:
    """As on systems that cannot exchange two names."""
    monkeypatch.setattr(files, "swap_names", lambda one, two: False)


def content(folder: Path) -> dict[str, bytes]:
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    found.pop(MANIFEST)
    return found


def hidden(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".")]


def test_a_written_folder_holds_its_files_and_their_sums(tmp_path):
    (tmp_path / "plain").mkdir()
    path = write_folder(str(tmp_path / "a" / "model"), fill, extra={"step": 3})
    assert path == tmp_path / "a" / "model"
    manifest = verify_folder(path)
    assert content(path) == CONTENT
    assert manifest["extra"] == {"step": 3}
    assert manifest["files"] == {
        name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in CONTENT.items()
    }
    assert os.listdir(tmp_path / "a") == ["model"]
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_existing_folder_is_kept_unless_overwrite_is_asked_for(tmp_path):
    path = write_folder(tmp_path / "model", fill)
    with pytest.raises(CheckpointError, match="exists already"):
        write_folder(path, holding(new=b"1"))
    assert content(path) == CONTENT
    write_folder(path, holding(new=b"1"), overwrite=True)
    assert content(path) == {"new": b"1"}
    assert hidden(tmp_path) == []


def test_only_folders_of_ours_are_replaced(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "thesis")
    for name in ("thesis", "file", "link"):
        with pytest.raises(CheckpointError, match=name):
            write_folder(tmp_path / name, fill, overwrite=True)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"
    (tmp_path / "empty").mkdir()
    assert verify_folder(write_folder(tmp_path / "empty", fill, overwrite=True))


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_a_writer_that_fails_leaves_nothing_and_its_error_passes(tmp_path, error):
    path = write_folder(tmp_path / "model", fill)

    def broken(folder: Path) -> None:
        fill(folder, {"half": b"1"})
        raise error

    with pytest.raises(type(error)):
        write_folder(path, broken, overwrite=True)
    with pytest.raises(type(error)):
        write_folder(tmp_path / "other", broken)
    assert content(path) == CONTENT
    assert os.listdir(tmp_path) == ["model"]


def test_links_are_not_saved(tmp_path):
    with pytest.raises(CheckpointError, match="plain files"):
        write_folder(tmp_path / "model", lambda folder: (folder / "l").symlink_to("/etc/hostname"))
    assert os.listdir(tmp_path) == []


def test_linked_files_are_refused(tmp_path):
    path = write_folder(tmp_path / "model", fill)
    (path / "config.json").rename(tmp_path / "blob")
    (path / "config.json").symlink_to(tmp_path / "blob")
    with pytest.raises(CheckpointError, match=r"config\.json: is a symbolic link"):
        verify_folder(path)
    (path / "config.json").unlink()
    (path / "config.json").write_bytes(CONTENT["config.json"])
    (path / "deep").rename(tmp_path / "elsewhere")
    (path / "deep").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="deep: is a symbolic link"):
        verify_folder(path)


def test_every_damaged_file_is_named(tmp_path):
    """Of the manifest every byte counts."""
    path = write_folder(tmp_path / "model", fill, extra={"note": "ø", "score": 0.5})
    rng = random.Random(0)
    for name in [*CONTENT, MANIFEST]:
        original = (path / name).read_bytes()
        for kind, data in damages(original, rng, None if name == MANIFEST else 8).items():
            damage(path / name, data)
            with pytest.raises(CheckpointError) as caught:
                verify_folder(path)
            assert str(path / name) in str(caught.value), kind
            (path / name).write_bytes(original)
    assert verify_folder(path)


def test_swapped_files_are_noticed(tmp_path):
    one = {"a": b"same size 1", "b": b"same size 2"}
    path = write_folder(tmp_path / "model", lambda folder: fill(folder, one))
    other = write_folder(tmp_path / "other", lambda folder: fill(folder, {**one, "a": b"same size 3"}))
    (path / "a").write_bytes(one["b"])
    (path / "b").write_bytes(one["a"])
    with pytest.raises(CheckpointError, match=r"model/a: is damaged"):
        verify_folder(path)
    assert verify_folder(path, contents=False)
    fill(path, one)
    (path / MANIFEST).write_bytes((other / MANIFEST).read_bytes())
    with pytest.raises(CheckpointError, match=r"model/a: is damaged"):
        verify_folder(path)


def forge(path: Path, manifest: dict) -> None:
    """A manifest that agrees with itself, as an attacker would write it."""
    manifest.pop("check", None)
    (path / MANIFEST).write_bytes(files._render(manifest))


OUTSIDE = r"../s a/../../s .. . /etc/hostname deep//er ./config.json deep/ ..\s C:s config.json/".split()


@pytest.mark.parametrize("name", ["", "a\0b", *OUTSIDE])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path, name):
    path = write_folder(tmp_path / "model", fill)
    (tmp_path / "s").write_bytes(b"x")
    manifest = json.loads((path / MANIFEST).read_bytes())
    manifest["files"][name] = {"size": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
    forge(path, manifest)
    with pytest.raises(CheckpointError, match="not a plain name inside the folder"):
        verify_folder(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"files": []}, "lacks 'files'"),
        ({"extra": None}, "lacks 'files' or 'extra'"),
        ({"files": {"config.json": 3}}, "lacks size and checksum of 'config.json'"),
        ({"files": {"config.json": {"size": "3", "sha256": ""}}}, "lacks size and checksum"),
        ({"files": {"deep": {"size": 3, "sha256": ""}}}, "deep: is not a plain file"),
        *(
            ({"format": version}, f"manifest.json: has format {version!r}")
            for version in (2, 0, "1", None, True, 1.0)
        ),
    ],
)
def test_a_manifest_of_another_shape_is_refused(tmp_path, change, message):
    path = write_folder(tmp_path / "model", fill)
    forge(path, json.loads((path / MANIFEST).read_bytes()) | change)
    with pytest.raises(CheckpointError, match=message):
        verify_folder(path)


def test_json_is_read_within_bounds(tmp_path):
    file = tmp_path / "x.json"
    for data in (b"[" * 100_000, b"{", b"[1]", b"\xff\xfe", b'{"a": 1' + b" " * 2000 + b"}"):
        file.write_bytes(data)
        with pytest.raises(CheckpointError, match=r"x\.json"):
            read_json(file, max_bytes=150_000 if data[:1] == b"[" else 1000)
    with pytest.raises(CheckpointError, match="is missing"):
        read_json(tmp_path / "none.json")
    with pytest.raises(CheckpointError, match="is a folder, not a plain file"):
        read_json(tmp_path)


def test_everything_is_synced_whole_before_the_rename_and_the_parent_after(
    tmp_path, recording_disk, monkeypatch
):
    real, sizes = os.fsync, {}

    def fsync(handle):
        sizes[os.fstat(handle).st_ino] = os.fstat(handle).st_size
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    path = write_folder(tmp_path / "model", fill)
    events = recording_disk.events
    at = next(i for i, (name, _) in enumerate(events) if name == "rename")
    before = {inode for name, inode in events[:at] if name == "fsync"}
    assert before == {p.stat().st_ino for p in [path, *path.rglob("*")]}
    assert ("fsync", tmp_path.stat().st_ino) in events[at:]
    manifest_synced = events.index(("fsync", (path / MANIFEST).stat().st_ino))
    file_syncs = [events.index(("fsync", (path / name).stat().st_ino)) for name in CONTENT]
    assert max(file_syncs) < manifest_synced
    assert all(sizes[p.stat().st_ino] == p.stat().st_size for p in path.rglob("*") if p.is_file())


@pytest.fixture(params=["exchanged", "one after the other"])
def moves(request, monkeypatch) -> str:
    """How a folder is replaced: in one step, or in two."""
    if request.param != "exchanged":
        moved_one_after_the_other(monkeypatch)
    return request.param


@pytest.mark.parametrize("mode", ["kill", "full"])
def test_a_replaced_folder_is_the_old_or_the_new_one_at_every_instant(tmp_path, fail_everywhere, mode, moves):
    new = {"config.json": b"new", "other": b"1"}

    def prepare(k: int) -> Path:
        return write_folder(tmp_path / str(k) / "model", fill)

    def check(path: Path) -> None:
        assert mode == "kill" or path.is_dir()  # a full disk leaves time to put things back
        assert verify_folder(path)
        assert content(path) in (CONTENT, new)
        write_folder(path, lambda folder: fill(folder, {"last": b""}), overwrite=True)
        assert content(path) == {"last": b""}
        assert os.listdir(path.parent) == ["model"]

    def act(path: Path) -> None:
        write_folder(path, lambda folder: fill(folder, new), overwrite=True)

    assert fail_everywhere(mode, prepare, act, check) >= (15 if moves == "exchanged" else 20)


@pytest.mark.parametrize("mode", ["kill", "full"])
def test_a_new_folder_is_complete_or_not_there(tmp_path, fail_everywhere, mode):
    def check(path: Path) -> None:
        assert not path.exists() or verify_folder(path)
        if mode == "full" and path.parent.exists():
            assert hidden(path.parent) == []

    points = fail_everywhere(
        mode, lambda k: tmp_path / str(k) / "model", lambda p: write_folder(p, fill), check
    )
    assert points >= 15


def test_a_disk_that_stops_taking_bytes_leaves_the_old_folder(tmp_path):
    path = write_folder(tmp_path / "model", fill)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))  # writing past it fails as a full disk does
    try:
        with pytest.raises(GlassformerError, match="model: could not be written: File too large"):
            write_folder(path, lambda f: fill(f, {"big": bytes(2 << 20)}), overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert content(path) == CONTENT
    assert os.listdir(tmp_path) == ["model"]


def test_a_reader_between_the_two_renames_does_no_harm(tmp_path, monkeypatch):
    path = write_folder(tmp_path / "model", fill)
    real, seen = os.rename, []

    def rename(source, target):
        if str(source).endswith(".tmp") and not seen:
            seen.append(verify_folder(path))  # finds nothing, puts the old folder back, reads it
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    moved_one_after_the_other(monkeypatch)
    write_folder(path, holding(new=b"1"), overwrite=True)
    assert len(seen) == 1
    assert content(path) == {"new": b"1"}
    assert os.listdir(tmp_path) == ["model"]


def test_what_a_save_left_aside_is_cleared_or_counts_as_existing(tmp_path):
    path = write_folder(tmp_path / "model", fill)
    shutil.copytree(path, tmp_path / ".model.77-0123abcd.old")
    write_folder(path, fill, overwrite=True)
    assert os.listdir(tmp_path) == ["model"]
    path.rename(tmp_path / ".model.77-0123abcd.old")  # as a kill leaves it
    with pytest.raises(CheckpointError, match="exists already"):
        write_folder(path, fill)
    assert content(path) == CONTENT
    path.rename(tmp_path / ".model.old")  # as an earlier version did
    assert verify_folder(path)["files"].keys() == CONTENT.keys()


def put(own: str, mine: Path, model: Path) -> None:
    """Something of the user under a name like those that we use."""
    if own == "notes":
        mine.mkdir()
        (mine / MANIFEST).write_text('{"mine": 1}')
    elif own == "copy":
        shutil.copytree(model, mine)
    elif own == "file":
        mine.write_text("mine")
    else:
        mine.symlink_to(model)


@pytest.mark.parametrize("name", [".model.old", ".model.tmp", ".model.bak", ".other.old"])
@pytest.mark.parametrize("own", ["notes", "copy", "file", "link"])
def test_a_folder_of_the_user_beside_ours_stays(tmp_path, moves, name, own):
    path, mine = write_folder(tmp_path / "model", fill), tmp_path / name
    put(own, mine, path)
    before = mine.lstat().st_ino, sorted(os.listdir(mine)) if mine.is_dir() else mine.read_text()
    verify_folder(path)
    write_folder(path, holding(new=b"1"), overwrite=True)
    files.remove_leftovers(tmp_path)
    if own == "link":  # it leads to the folder that is new now
        assert os.readlink(mine) == str(path)
        return
    assert (mine.lstat().st_ino, sorted(os.listdir(mine)) if mine.is_dir() else mine.read_text()) == before


@pytest.mark.parametrize("own", ["notes", "file", "link"])
def test_a_load_renames_nothing_that_is_not_ours(tmp_path, own):
    mine = tmp_path / ".model.old"
    put(own, mine, write_folder(tmp_path / "elsewhere", fill))
    with pytest.raises(CheckpointError, match="model: no such folder"):
        verify_folder(tmp_path / "model")
    write_folder(tmp_path / "model", fill)
    assert os.path.lexists(mine)


def test_leftovers_of_others_are_not_touched(tmp_path):
    others = [".model.mine.tmp", ".model.backup.old", ".model2.1-00000000.tmp", ".notes.tmp"]
    for name in (*others, ".model.77-0123abcd.tmp"):
        (tmp_path / name).mkdir()
    write_folder(tmp_path / "model", fill)
    assert sorted(os.listdir(tmp_path)) == sorted(["model", *others])


@pytest.mark.parametrize("path", ["runs/imdb", "runs/imdb/model", "runs", "imdb", "my/runs/imdb"])
def test_a_missing_run_says_which_recipe_makes_it(path):
    more = "; if imdb is a recipe, run 'glassformer train imdb' first, in this folder"
    wanted = more if path.startswith("runs/") else ""
    assert files.missing_run_hint(Path(path)) == f"Check the path{wanted}"


# --- what its owner has put into a saved folder ---------------------------------------------------------


@pytest.fixture(params=["linked", "copied"])
def second_names(request, monkeypatch):
    if request.param == "copied":
        monkeypatch.setattr(os, "link", refuse)


def refuse(*_, **__):
    raise PermissionError(13, "Permission denied")


def test_notes_exports_and_links_stay(tmp_path, second_names):
    path = write_folder(tmp_path / "model", holding(weights=b"old", tokens=b"old"))
    (path / "notes.txt").write_text("mine")
    (path / "onnx").mkdir()
    (path / "onnx" / MANIFEST).write_text("{}")
    (path / "drafts" / "empty").mkdir(parents=True)
    (path / "data").symlink_to("/nowhere")
    (path / ".notes.old").write_text("mine")
    (path / "extra").write_text("mine")  # whose name is one of ours in the next save
    write_folder(path, holding(weights=b"new", extra=b"new"), overwrite=True)
    found = sorted(p.relative_to(path).as_posix() for p in path.rglob("*"))
    own = [".notes.old", "data", "drafts", "drafts/empty", "notes.txt", "onnx", f"onnx/{MANIFEST}"]
    assert found == sorted([*own, "extra", "weights", MANIFEST])
    assert (path / "notes.txt").read_text() == "mine"
    assert os.readlink(path / "data") == "/nowhere"
    assert [(path / name).read_text() for name in ("weights", "extra")] == ["new", "new"]
    assert verify_folder(path)["files"].keys() == {"extra", "weights"}


def test_what_cannot_be_kept_stops_no_save_and_is_told(tmp_path, monkeypatch):
    path = write_folder(tmp_path / "model", holding(weights=b"old"))
    fill(path, dict.fromkeys(("mine", "n2/inside", ".weights.4711-0123abcd.tmp"), b"mine"))
    for name in ("link", "symlink"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr(shutil, "copy2", refuse)
    write_folder(path, holding(weights=b"new", n3=b"new"), overwrite=True)  # may not be read, but moved
    assert (path / "mine").read_text() == "mine"
    assert not (path / ".weights.4711-0123abcd.tmp").exists()
    with pytest.warns(UserFileLostWarning, match=r"model/n2/inside was lost"):
        write_folder(path, holding(weights=b"newer", n2=b"a file now"), overwrite=True)
    assert (path / "weights").read_text() == "newer"
    verify_folder(path)


@pytest.mark.parametrize("manifest", ['{"name": "My PWA"}', '{"files": ["a.js"], "format": 1, "extra": {}}'])
def test_a_manifest_of_something_else_is_no_leave_to_replace(tmp_path, manifest):
    fill(tmp_path / "app", {MANIFEST: manifest.encode(), "src/app.js": b"code"})
    with pytest.raises(CheckpointError, match="that glassformer did not write"):
        write_folder(tmp_path / "app", fill, overwrite=True)
    assert (tmp_path / "app" / "src" / "app.js").read_text() == "code"


def test_a_damaged_folder_of_ours_is_replaced_and_loses_nothing(tmp_path):
    path = write_folder(tmp_path / "model", holding(weights=b"old"))
    (path / MANIFEST).write_text((path / MANIFEST).read_text()[:-20])
    (path / "notes.txt").write_text("mine")
    write_folder(path, holding(weights=b"new"), overwrite=True)
    assert [(path / name).read_text() for name in ("weights", "notes.txt")] == ["new", "mine"]
    assert verify_folder(path)
