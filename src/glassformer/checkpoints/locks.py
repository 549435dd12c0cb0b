"""Locks: one that a writer holds on its folder until it ends, and short-lived ones while a folder is moved.

    RUN/.lock    {"pid", "host", "command", "since"} of the process that writes there

The kernel holds the lock (``flock``) and releases it when the process ends, also after a crash or a kill; the
file that then remains locks nothing. On file systems without such locks the note in the file decides: a
note of an ended process of this machine no longer counts, a note of another machine counts until the file
is removed. Readers take no lock.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from glassformer.errors import CannotWriteError, ConfigError, RunInUseError
from glassformer.finite import json_text

try:
    import fcntl
except ImportError:  # on Windows, only the note decides
    fcntl = None

LOCK = ".lock"
MAX_NOTE_BYTES = 4096  # a longer note is read up to here
LOCK_ATTEMPTS = 10  # 20 ms apart: another process may hold the lock only to test whether it is free
MOVE_ATTEMPTS = 1200  # 50 ms apart: another process may need that long to move a folder into its place
LOCKED_ERRORS = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}


def try_lock(handle: int) -> bool | None:
    """Lock an open file or folder for this process; returns whether it succeeded (None: no locks here)."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in LOCKED_ERRORS else None
    return True


@contextmanager
def writing(folder: str | Path) -> Iterator[Path]:
    """Hold the lock of ``folder``, created if missing; folders that stay empty are removed at the end.

    Raises:
        ConfigError: another process, or another thread of this one, writes there; the message names it.
        GlassformerError: the folder or its lock cannot be created.
    """
    folder = Path(folder)
    created = [path for path in (folder.absolute(), *folder.absolute().parents) if not os.path.lexists(path)]
    handle = _acquire(folder)
    try:
        yield folder
    finally:
        _release(folder, handle, created)


def check_unlocked(folder: str | Path) -> None:
    """Raise ConfigError if another process holds the lock of ``folder``; creates nothing."""
    path = Path(folder) / LOCK
    try:
        handle = os.open(path, os.O_RDWR | _SAFE)
    except OSError:
        return
    try:
        for _ in range(LOCK_ATTEMPTS):
            if _try_acquire(handle):
                return
            time.sleep(0.02)
        if _is_same_file(handle, path):
            raise _in_use_error(Path(folder), handle)
    finally:
        os.close(handle)


def is_empty_folder(folder: Path) -> bool:
    """Whether a folder is empty but for a lock file that a killed process may have left."""
    return all(name == LOCK for name in os.listdir(folder))


@contextmanager
def moving(folder: Path) -> Iterator[None]:
    """Keep other processes from creating, moving or removing folders in ``folder``; may wait a minute."""
    handle = _open_folder(folder)
    try:
        for _ in range(MOVE_ATTEMPTS):
            if handle is None or try_lock(handle) is not False:
                break
            time.sleep(0.05)
        else:
            raise CannotWriteError(f"{folder}: another process has been moving folders there for a minute")
        yield
    finally:
        if handle is not None:
            os.close(handle)


@contextmanager
def alive(folder: Path) -> Iterator[None]:
    """Mark a temporary folder as in use, so that no other process removes it; see ``is_alive``."""
    handle = _open_folder(folder)
    if handle is not None:
        try_lock(handle)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def is_alive(folder: Path, pid: int) -> bool:
    """Whether a temporary folder's writer is running; without locks, any process with the PID in its name."""
    handle = _open_folder(folder)
    if handle is None:
        return False
    try:
        free = try_lock(handle)
        return _process_exists(pid) if free is None else not free
    finally:
        os.close(handle)


# --- the lock of a folder -----------------------------------------------------------------------------

_SAFE = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def _acquire(folder: Path) -> int:
    path, attempts = folder / LOCK, 0
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, 0o666)
        except FileNotFoundError:  # the previous holder has just removed the folder with its lock
            continue
        except OSError as error:
            raise CannotWriteError.of(path, error) from error
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise CannotWriteError(f"{path}: is not a plain file; remove it")
            if not _try_acquire(handle):
                attempts += 1
                if attempts > LOCK_ATTEMPTS:
                    raise _in_use_error(folder, handle)
                time.sleep(0.02)
            elif _is_same_file(handle, path) and os.fstat(handle).st_nlink > 1:
                path.unlink()  # also hard-linked elsewhere: the next turn creates a new file
            elif _is_same_file(handle, path):
                _write_note(handle, path)
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # locked by another process, or removed before its holder released it: try again


def _try_acquire(handle: int) -> bool:
    """Whether we now hold this open lock file; without locks, whether its note says that it is free."""
    locked = try_lock(handle)
    if locked is not None:
        return locked
    note = _read_note(handle)
    if not note or (note.get("pid"), note.get("host")) == (os.getpid(), socket.gethostname()):
        return True
    return note.get("host") == socket.gethostname() and not _process_exists(note.get("pid"))


def _release(folder: Path, handle: int, created: list[Path]) -> None:
    path = folder / LOCK
    with suppress(OSError):
        if _is_same_file(handle, path):
            path.unlink()
        for path in created:
            path.rmdir()  # fails if something was written there
    os.close(handle)


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def _write_note(handle: int, path: Path) -> None:
    program = Path(sys.argv[0] or "python")
    command = [program.parent.name if program.name == "__main__.py" else program.name, *sys.argv[1:]]
    note = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": shlex.join(command)[:500],
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    try:
        os.truncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, (json_text(note, ascii=True) + "\n").encode())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise CannotWriteError.of(path, error) from error


def _read_note(handle: int) -> dict[str, Any]:
    try:
        os.lseek(handle, 0, os.SEEK_SET)
        note = json.loads(os.read(handle, MAX_NOTE_BYTES).decode())
    except (OSError, ValueError, RecursionError):  # being written, or not one of our notes
        return {}
    return note if isinstance(note, dict) else {}


def _in_use_error(folder: Path, handle: int) -> ConfigError:
    note = _read_note(handle)
    process = f"process {note['pid']}" if "pid" in note else "another process"
    if note.get("host") and note["host"] != socket.gethostname():
        process += f" on {note['host']}"
    since = f" since {note['since']}" if "since" in note else ""
    command = f" ({note['command']})" if note.get("command") else ""
    fix = "Wait until it has ended, stop it, or choose another folder"
    if try_lock(handle) is None:
        fix += f"; if it has ended, remove {folder / LOCK}"
    return RunInUseError(f"is being written by {process}{since}{command}", where=str(folder), fix=fix)


def _process_exists(pid: Any) -> bool:
    """Whether a process with this PID runs on this machine."""
    if type(pid) is not int or pid <= 0 or os.name == "nt":
        return os.name == "nt"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _open_folder(folder: Path) -> int | None:
    try:
        return os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _SAFE)
    except OSError:  # it is gone, it is a file, or this system cannot open folders
        return None
