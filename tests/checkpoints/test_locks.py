"""One writer at a time: who holds a folder, who is refused, and what is left behind."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from glassformer.checkpoints import files, locks
from glassformer.checkpoints.files import remove_leftovers, verify_folder, write_folder
from glassformer.checkpoints.locks import LOCK, check_unlocked, is_empty_folder, write_lock
from glassformer.errors import CheckpointError, ConfigError, GlassformerError

HOLD = """\
import sys
from glassformer.checkpoints.locks import write_lock
with write_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def holding(value: object, names: str = "a"):
    """What writes files with this content, for ``write_folder``."""

    def write(folder: Path) -> None:
        for name in names:
            (folder / name).write_text(str(value))

    return write


def acquire(folder: Path) -> None:
    write_lock(folder).__enter__()


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of ``tmp_path / "run"``."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_another_process_is_refused_and_told_who_writes(tmp_path, holder):
    for refused in (check_unlocked, acquire):
        said = rf"run: is being written by process {holder.pid} since 20.* \(-c"
        with pytest.raises(ConfigError, match=said) as e:
            refused(tmp_path / "run")
        assert e.value.exit_code == 2
    holder.communicate(b"")
    assert not (tmp_path / "run").exists()  # nothing was written: nothing stays
    with write_lock(tmp_path / "run") as run:
        note = json.loads((run / LOCK).read_text())
        assert (note["pid"], sorted(note)) == (os.getpid(), ["command", "host", "pid", "since"])


def test_the_lock_of_a_killed_process_locks_nothing(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "run" / LOCK).is_file()
    assert is_empty_folder(tmp_path / "run")
    check_unlocked(tmp_path / "run")
    with write_lock(tmp_path / "run") as run:
        (run / "kept").touch()
    assert os.listdir(tmp_path / "run") == ["kept"]


def test_a_copy_of_hard_links_keeps_the_lock_that_a_kill_left(tmp_path):
    run, copy = tmp_path / "run", tmp_path / "copy"
    run.mkdir(), copy.mkdir()
    (run / LOCK).write_text('{"pid": 1}\n')
    (copy / LOCK).hardlink_to(run / LOCK)
    with write_lock(run):
        assert (copy / LOCK).read_text() == '{"pid": 1}\n'
        assert json.loads((run / LOCK).read_text())["pid"] == os.getpid()
        with write_lock(copy):  # another folder
            pass
        with pytest.raises(ConfigError, match="is being written by"):
            check_unlocked(run)
    assert os.listdir(run) == os.listdir(copy) == []


def test_two_threads_of_one_process_are_two_writers(tmp_path):
    told = []

    def refused():
        with pytest.raises(ConfigError) as error:
            acquire(tmp_path)
        told.append(error.value.code)

    with write_lock(tmp_path):
        thread = threading.Thread(target=refused)
        thread.start()
        thread.join()
    assert told == ["run-in-use"]
    assert os.listdir(tmp_path) == []


def test_folders_are_made_and_only_what_is_empty_goes(tmp_path):
    with write_lock(tmp_path / "a" / "b" / "c"):
        pass
    assert os.listdir(tmp_path) == []
    with write_lock(tmp_path / "a" / "b") as b:
        (b / "x").touch()
    assert os.listdir(tmp_path / "a" / "b") == ["x"]
    (tmp_path / "file").touch()
    with pytest.raises(GlassformerError, match=r"\.lock: could not be written"):
        acquire(tmp_path / "file")


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_of_the_file_system_the_note_decides(tmp_path, monkeypatch, code):
    def refuses(handle, how):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(locks.fcntl, "flock", refuses)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = {"host": locks.socket.gethostname(), "command": "x", "since": "y"}
    with write_lock(tmp_path):
        pass
    for note, free in (
        ({**here, "pid": ended.pid}, True),  # of this machine, and gone
        ({**here, "pid": os.getppid()}, False),
        ({**here, "pid": ended.pid, "host": "elsewhere"}, False),
        ({}, True),  # cut by a kill
        ([1], True),
        ({**here, "pid": "x"}, True),
    ):
        (tmp_path / LOCK).write_text(json.dumps(note))
        if free:
            with write_lock(tmp_path):
                pass
        else:
            with pytest.raises(ConfigError, match=r"if it has ended, remove .*\.lock"):
                acquire(tmp_path)
            (tmp_path / LOCK).unlink()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/etc/hostname", path), os.mkdir])
def test_what_stands_where_the_lock_belongs_is_left_alone(tmp_path, make):
    make(tmp_path / LOCK)
    try:
        with write_lock(tmp_path):
            pass
    except GlassformerError:
        assert os.path.lexists(tmp_path / LOCK)
    assert Path("/etc/hostname").stat().st_size > 0


def test_a_sweep_spares_the_folder_of_a_living_writer(tmp_path):
    seen = []

    def writer(folder: Path) -> None:
        (folder / "b").write_bytes(b"1")
        remove_leftovers(tmp_path)
        write_folder(tmp_path / "model", holding(2))
        seen.append(folder.is_dir())

    with pytest.raises(CheckpointError, match="exists already"):  # the one inside came first
        write_folder(tmp_path / "model", writer)
    assert seen == [True]
    assert os.listdir(tmp_path) == ["model"]
    assert verify_folder(tmp_path / "model")["files"].keys() == {"a"}


@pytest.mark.parametrize("exchanged", [True, False])
def test_many_save_and_read_one_path_at_once(tmp_path, monkeypatch, exchanged):
    """Two savers and two readers: every reader sees the files of one save."""
    if not exchanged:
        monkeypatch.setattr(files, "swap_names", lambda one, two: False)
    path, done = write_folder(tmp_path / "model", holding(0, "abc")), threading.Event()

    def save(first: int) -> None:
        for value in range(first, first + 23):
            write_folder(path, holding(value, "abc"), overwrite=True)

    def look() -> set[str]:
        verify_folder(path)
        return {(path / name).read_text() for name in "abc"}

    def read() -> None:
        while not done.is_set():
            assert len(files.read_consistently(path, look)) == 1

    with ThreadPoolExecutor(4) as pool:
        savers = [pool.submit(save, first) for first in (100, 200)]
        readers = [pool.submit(read) for _ in range(2)]
        wait(savers)
        done.set()
    assert [future.exception() for future in savers + readers] == [None] * 4
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("away", ["missing", "back"])
def test_a_folder_that_is_away_for_an_instant_is_read_again(tmp_path, away):
    """Between the two moves of a save, also where another reader has put the old folder back by then."""
    path, reads = write_folder(tmp_path / "model", holding(1)), []

    def read() -> str:
        reads.append(1)
        if len(reads) == 1:
            path.rename(tmp_path / ".model.old")
        try:
            return (path / "a").read_text()
        finally:
            if away == "back" or len(reads) == 2:
                (tmp_path / ".model.old").rename(path) if not path.exists() else None

    assert files.read_consistently(path, read) == "1"
    assert len(reads) == (2 if away == "back" else 3)


def test_a_folder_that_stays_as_it_is_fails_at_once(tmp_path, monkeypatch):
    path, reads = write_folder(tmp_path / "model", holding(1)), []
    monkeypatch.setattr(files, "STABLE_SECONDS", 0.0)

    def read() -> str:
        reads.append(1)
        raise CheckpointError("is damaged")

    with pytest.raises(CheckpointError, match="is damaged"):
        files.read_consistently(path, read)
    assert len(reads) == 1


def test_a_reader_does_not_mix_two_saves(tmp_path):
    path, reads = write_folder(tmp_path / "model", holding(1)), []

    def look() -> str:
        first = (path / "a").read_text()
        if not reads:
            write_folder(path, holding(2), overwrite=True)
        reads.append(first)
        return first + (path / "a").read_text()

    assert files.read_consistently(path, look) == "22"
    assert reads == ["1", "2"]
