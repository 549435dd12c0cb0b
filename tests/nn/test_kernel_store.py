"""A library is loaded from where nobody else can write, or is built for one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer.cli.doctor import examine_machine
from glassformer.nn import kernels
from glassformer.nn.kernels import store

here = pytest.mark.skipif(kernels.why_not() is not None, reason=f"no kernel: {kernels.why_not()}")
PLANTED = (
    '#include <stdio.h>\n__attribute__((constructor)) void f(void) {{ fclose(fopen("{marker}", "w")); }}\n'
)
TRIAL = """
import ctypes
from glassformer.nn import kernels
print(kernels.why_not(), bool(kernels.not_kept()))
"""


def run(cache: Path) -> str:
    (cache.parent / "tmp").mkdir()
    places = {"XDG_CACHE_HOME": str(cache), "TMPDIR": str(cache.parent / "tmp")}
    environment = os.environ | places | {"OMP_NUM_THREADS": "1"}
    environment.pop("GLASSFORMER_KERNELS", None)
    command = [sys.executable, "-c", TRIAL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


def plant(library: Path, marker: Path) -> None:
    source = marker.with_suffix(".c")
    source.write_text(PLANTED.format(marker=marker))
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)


@here
@pytest.mark.parametrize(
    "writable", ["folder", *(pytest.param(w, marks=pytest.mark.slow) for w in ("above", "file"))]
)
def test_a_planted_library_is_never_loaded(tmp_path, writable):
    cache, marker = tmp_path / "cache", tmp_path / "ran"
    file = cache / "glassformer" / kernels._build(kernels.has_amx()).name
    file.parent.mkdir(mode=0o700, parents=True)
    plant(file, marker)
    if writable == "file":
        file.chmod(0o777)
    else:
        (file.parent if writable == "folder" else cache).chmod(0o777)
    # A file of a good folder is built again, and kept; in a bad folder nothing is touched.
    assert run(cache) == f"None {writable != 'file'}"
    assert not marker.exists()
    assert not list((tmp_path / "tmp").glob("glassformer-*"))


@here
def test_doctor_says_why_kernels_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "glassformer").mkdir()
    (tmp_path / "glassformer").chmod(0o777)
    (line,) = [line for line in examine_machine()["machine"] if line.what == "kernels in C"]
    assert f"built by every process anew, since {tmp_path}" in line.found
    assert "can be written by others" in line.found


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners of files")
def test_owner_and_mode_of_folder_and_file_decide(tmp_path, monkeypatch):
    folder = tmp_path / "a" / "b"
    assert store.why_unsafe(folder) is None
    assert folder.stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(folder)
    assert store.why_unsafe(tmp_path / "link") is None
    file = folder / "x.so"
    file.write_bytes(b"")
    file.chmod(0o700)
    assert store.is_ours(file)
    for mode in (0o720, 0o702):
        file.chmod(mode)
        assert not store.is_ours(file)
        folder.chmod(mode)
        assert "can be written by others" in str(store.why_unsafe(folder))
        assert "can be written by others" in str(store.why_unsafe(folder / "c"))
        folder.chmod(0o700)
    (folder / "link.so").symlink_to(file)
    assert not store.is_ours(folder / "link.so")
    folder.parent.chmod(0o1777)  # as /tmp: others may add names there, but not change this one
    assert store.why_unsafe(folder) is None
    monkeypatch.setattr(os, "geteuid", lambda: 12_347)
    assert "belongs to another user" in str(store.why_unsafe(folder))
    assert not store.is_ours(file)
