"""Only plain files are opened, and never more of one than is allowed: pipes and circles do not hang a reader."""

import hashlib
import json
import os
import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import glassformer as gf
from glassformer.checkpoints.files import MANIFEST, UNLISTED, read_json, write_folder
from glassformer.config import read_toml
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.errors import CheckpointError, ConfigError, InputError
from glassformer.families.pretrained import load_pretrained
from glassformer.reading import open_regular, read_regular

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
TEXTS, LABELS = ["a fine film", "a bad film", "bad, not fine", "a fine one"], [1, 0, 0, 1]
KINDS = ("a named pipe", "a folder", "a socket", "a device", "a circle", "too large")


def put(kind: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something that is no file of sane size, under that name."""
    if kind == "a named pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a socket":
        monkeypatch.chdir(path.parent)  # names of sockets are short
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(path.name)
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    elif kind == "a circle":
        path.symlink_to(path.name)
    else:
        with path.open("wb") as file:
            file.truncate(2**41)  # takes no room on the disk


def ended(work: Callable[[], Any], seconds: float = 20) -> BaseException | None:
    """The error of a call that must come back."""
    found: list[BaseException | None] = []

    def run() -> None:
        try:
            work()
            found.append(None)
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, "it hangs"
    return found[0]


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    sizes = {"d_model": 6, "num_layers": 1, "num_heads": 1, "d_ff": 5, "max_length": 9}
    clf = gf.TextClassifier("encoder-mini", **sizes, epochs=1, min_count=1, threads=1)
    return clf.fit(TEXTS, LABELS).save(tmp_path_factory.mktemp("saved") / "model")


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_of_a_saved_model_hangs_its_reader(saved, tmp_path, monkeypatch, kind):
    for name in sorted(p.name for p in saved.iterdir()):
        folder = tmp_path / name
        shutil.copytree(saved, folder)
        (folder / name).unlink()
        put(kind, folder / name, monkeypatch)
        error = ended(lambda folder=folder: gf.load(folder))
        if name in UNLISTED:  # the model card, which no reader opens
            assert error is None
            continue
        assert isinstance(error, CheckpointError), (name, error)
        assert name in str(error)
        assert "\n" not in str(error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json"]
)
def test_nor_of_a_folder_without_a_manifest(saved, tmp_path, monkeypatch, kind, name):
    folder = tmp_path / "hub"
    shutil.copytree(saved, folder)
    (folder / MANIFEST).unlink()
    (folder / "glassformer.json").unlink()
    if name.endswith("index.json"):
        (folder / "model.safetensors").unlink()
    (folder / name).unlink(missing_ok=True)
    put(kind, folder / name, monkeypatch)
    error = ended(lambda: load_tokenizer(folder) if "tokenizer" in name else load_pretrained(folder))
    assert isinstance(error, CheckpointError), error
    assert "\n" not in str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_other_files_of_settings(tmp_path, monkeypatch, kind):
    path = tmp_path / "x"
    put(kind, path, monkeypatch)
    reads = (read_toml, ConfigError), (read_json, CheckpointError), (load_tokenizer, CheckpointError)
    for read, wanted in reads:
        error = ended(lambda read=read: read(path))
        assert isinstance(error, wanted), error
        assert isinstance(error, InputError)
    assert isinstance(ended(lambda: read_regular(path, 1000)), OSError)
    if kind != "too large":
        assert isinstance(ended(lambda: open_regular(path)), OSError)


def test_a_plain_file_and_a_link_to_one_are_read(tmp_path):
    (tmp_path / "a").write_bytes(b"seven!!")
    (tmp_path / "b").symlink_to("a")
    for name in "ab":
        assert read_regular(tmp_path / name, 7) == b"seven!!"
        with pytest.raises(OSError, match="larger than the 6 bytes"):
            read_regular(tmp_path / name, 6)
    assert read_regular("/proc/self/status", 1 << 20)  # says that it has 0 bytes


def test_a_manifest_is_not_summed_up_for_hours(tmp_path):
    def write(folder: Path) -> None:
        with (folder / "x").open("wb") as file:
            file.truncate(3)

    folder = write_folder(tmp_path / "m", write)
    text = (folder / MANIFEST).read_text()
    assert '"size": 3' in text

    manifest = json.loads(text)
    manifest.pop("check")
    manifest["files"]["x"]["size"] = 2**41
    body = json.dumps(manifest, indent=1, sort_keys=True)
    signed = {**manifest, "check": hashlib.sha256(body.encode()).hexdigest()}
    (folder / MANIFEST).write_text(json.dumps(signed, indent=1, sort_keys=True) + "\n")
    with (folder / "x").open("wb") as file:
        file.truncate(2**41)
    with pytest.raises(CheckpointError, match="lists more than 1,024 GiB"):
        gf.load(folder)


def test_a_key_twice_and_numbers_without_end(tmp_path):
    (tmp_path / "x.json").write_text('{"a": 1, "a": 2}')
    with pytest.raises(CheckpointError, match="the key 'a' occurs twice"):
        read_json(tmp_path / "x.json")
    (tmp_path / "x.toml").write_text("a = " + "9" * 6000)
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_toml(tmp_path / "x.toml")
    (tmp_path / "x.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(ConfigError, match=r"nested too deeply|not valid TOML"):
        read_toml(tmp_path / "x.toml")
