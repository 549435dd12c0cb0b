"""Locks on folders, so that only one process writes to a run.

    RUN/.lock    {"pid", "host", "command", "since"} of the process that writes to RUN

The lock is a kernel lock (``flock``) on this file. The kernel releases it when the process ends or crashes,
even if the file remains. Some file systems have no such locks. There, the content of the file decides: a
process of this machine holds the lock while it runs, and a process of another machine holds it until the file
is removed. Readers do not need the lock.
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
except ImportError:  # Windows has no flock
    fcntl = None

LOCK = ".lock"
MAX_OWNER_BYTES = 4096  # maximum number of bytes that are read of a lock file
LOCK_ATTEMPTS = 10  # one every 20 ms, because a process that only tests the lock holds it for a moment
MOVE_ATTEMPTS = 1200  # one every 50 ms, because another process may take up to a minute to move a folder
LOCKED_ERRORS = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}


def try_lock(handle: int) -> bool | None:
    """Lock an open file or folder; return whether that succeeded (None: the system has no locks)."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in LOCKED_ERRORS else None
    return True


@contextmanager
def write_lock(folder: str | Path) -> Iterator[Path]:
    """Hold the lock of ``folder``, which is created if missing, and removed at the end if it is empty.

    Raises:
        ConfigError: another process, or another thread of this process, holds the lock.
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
    """Raise ConfigError if another process holds the lock of ``folder``; no file is created."""
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
    """Whether a folder is empty, or only contains a lock file that a killed process may have left."""
    return all(name == LOCK for name in os.listdir(folder))


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Prevent other processes from changing the folders in ``folder``; wait for the lock up to a minute."""
    handle = _open_folder(folder)
    try:
        for _ in range(MOVE_ATTEMPTS):
            if handle is None or try_lock(handle) is not False:
                break
            time.sleep(0.05)
        else:
            raise CannotWriteError(f"{folder}: another process has been changing it for a minute")
        yield
    finally:
        if handle is not None:
            os.close(handle)


@contextmanager
def marked_in_use(folder: Path) -> Iterator[None]:
    """Lock a temporary folder, so that no other process removes it; see ``is_in_use``."""
    handle = _open_folder(folder)
    if handle is not None:
        try_lock(handle)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def is_in_use(folder: Path, pid: int) -> bool:
    """Whether the process that writes a temporary folder is running.

    Args:
        pid: the process in the folder's name, for file systems without locks.
    """
    handle = _open_folder(folder)
    if handle is None:
        return False
    try:
        locked = try_lock(handle)
        return _process_exists(pid) if locked is None else not locked
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
        except FileNotFoundError:  # the previous owner has just removed the folder
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
                path.unlink()  # the file has other hard links: the next attempt creates a new file
            elif _is_same_file(handle, path):
                _write_owner(handle, path)
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # another process has locked or removed the file: try again


def _try_acquire(handle: int) -> bool:
    """Lock an open lock file; return whether that succeeded (without kernel locks: no owner is running)."""
    locked = try_lock(handle)
    if locked is not None:
        return locked
    owner = _read_owner(handle)
    if not owner or (owner.get("pid"), owner.get("host")) == (os.getpid(), socket.gethostname()):
        return True
    return owner.get("host") == socket.gethostname() and not _process_exists(owner.get("pid"))


def _release(folder: Path, handle: int, created: list[Path]) -> None:
    path = folder / LOCK
    with suppress(OSError):
        if _is_same_file(handle, path):
            path.unlink()
        for path in created:
            path.rmdir()  # fails if the folder is not empty
    os.close(handle)


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def _write_owner(handle: int, path: Path) -> None:
    program = Path(sys.argv[0] or "python")
    command = [program.parent.name if program.name == "__main__.py" else program.name, *sys.argv[1:]]
    owner = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": shlex.join(command)[:500],
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    try:
        os.truncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, (json_text(owner, ascii=True) + "\n").encode())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise CannotWriteError.of(path, error) from error


def _read_owner(handle: int) -> dict[str, Any]:
    try:
        os.lseek(handle, 0, os.SEEK_SET)
        owner = json.loads(os.read(handle, MAX_OWNER_BYTES).decode())
    except (OSError, ValueError, RecursionError):  # it is being written, or is not a lock file
        return {}
    return owner if isinstance(owner, dict) else {}


def _in_use_error(folder: Path, handle: int) -> ConfigError:
    owner = _read_owner(handle)
    process = f"process {owner['pid']}" if "pid" in owner else "another process"
    if owner.get("host") and owner["host"] != socket.gethostname():
        process += f" on {owner['host']}"
    since = f" since {owner['since']}" if "since" in owner else ""
    command = f" ({owner['command']})" if owner.get("command") else ""
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
    except (OSError, OverflowError):  # for example a process of another user
        pass
    return True


def _open_folder(folder: Path) -> int | None:
    try:
        return os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _SAFE)
    except OSError:  # missing, a file, or a system that cannot open folders
        return None
