"""One writer at a time: a lock on a folder that its holder keeps to its end, and short ones around moves.

    RUN/.lock    {"pid", "host", "command", "since"} of the process that writes there

The kernel holds the lock (``flock``) and lets go of it when the process ends, however it ends: a file that a
kill has left behind locks nothing. Where a file system has no such locks, the note in the file decides: a
process of this machine that has ended counts no more, one of another machine counts until the file is
removed. Readers take no lock.
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
except ImportError:  # Windows: the note alone decides
    fcntl = None

LOCK = ".lock"
MOST_NOTE = 4096  # bytes of a note that are read
GRACE = 10  # times 20 ms for one that only looks whether the lock is free
WAIT = 1200  # times 50 ms for another process to finish moving a folder into its place
_HELD = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}


def try_lock(handle: int) -> bool | None:
    """Lock an open file or folder for this process: whether it got it; None: the file system has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in _HELD else None
    return True


@contextmanager
def writing(folder: str | Path) -> Iterator[Path]:
    """Hold the lock of ``folder`` (made if it is not there); folders that stay empty are removed at the end.

    Raises:
        ConfigError: another process, or another thread of this one, writes there; the message says which.
        GlassformerError: the folder or its lock cannot be made.
    """
    folder = Path(folder)
    made = _missing(folder)
    handle = _take(folder)
    try:
        yield folder
    finally:
        _release(folder, handle, made)


def refuse_held(folder: str | Path) -> None:
    """Raises ConfigError where another process holds the lock of ``folder``; nothing is made."""
    path = Path(folder) / LOCK
    try:
        handle = os.open(path, os.O_RDWR | _SAFE)
    except OSError:
        return
    try:
        for _ in range(GRACE):
            if _ours(handle):
                return
            time.sleep(0.02)
        if _same(handle, path):
            raise _refusal(Path(folder), handle)
    finally:
        os.close(handle)


def holds_nothing(folder: Path) -> bool:
    """Whether there is nothing in a folder but the lock that a kill may have left."""
    return all(name == LOCK for name in os.listdir(folder))


@contextmanager
def moving(folder: Path) -> Iterator[None]:
    """Alone, for an instant, among processes that make, move or clear folders in ``folder``; waits for them.

    Raises:
        GlassformerError: another process has been at it for a minute.
    """
    handle = _open_folder(folder)
    try:
        for _ in range(WAIT):
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
    """Mark a temporary folder as one whose writer lives, so that nobody clears it; see ``is_alive``."""
    handle = _open_folder(folder)
    if handle is not None:
        try_lock(handle)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def is_alive(folder: Path, pid: int) -> bool:
    """Whether a temporary folder's writer lives; without locks, any process with the number that it bears."""
    handle = _open_folder(folder)
    if handle is None:
        return False
    try:
        free = try_lock(handle)
        return _exists(pid) if free is None else not free
    finally:
        os.close(handle)


# --- the lock of a folder -----------------------------------------------------------------------------

_SAFE = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def _take(folder: Path) -> int:
    path, refused = folder / LOCK, 0
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, 0o666)
        except FileNotFoundError:  # the holder before has just removed the folder with its lock
            continue
        except OSError as error:
            raise CannotWriteError.of(path, error) from error
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise CannotWriteError(f"{path}: is not a plain file; remove it")
            if not _ours(handle):
                refused += 1
                if refused > GRACE:
                    raise _refusal(folder, handle)
                time.sleep(0.02)
            elif _same(handle, path) and os.fstat(handle).st_nlink > 1:
                path.unlink()  # a copy of hard links names it too: the next turn makes one of our own
            elif _same(handle, path):
                _write_note(handle, path)
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # refused, or removed by its holder before it let go: the next one is another file


def _ours(handle: int) -> bool:
    """Whether this open lock file is now locked by us, or free by its note where there are no locks."""
    free = try_lock(handle)
    if free is not None:
        return free
    note = _read_note(handle)
    if not note or (note.get("pid"), note.get("host")) == (os.getpid(), socket.gethostname()):
        return True
    return note.get("host") == socket.gethostname() and not _exists(note.get("pid"))


def _release(folder: Path, handle: int, made: list[Path]) -> None:
    path = folder / LOCK
    with suppress(OSError):
        if _same(handle, path):
            path.unlink()
        for one in made:
            one.rmdir()  # not where something was written
    os.close(handle)


def _same(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def _missing(folder: Path) -> list[Path]:
    """The folders that would have to be made, the innermost first."""
    folder = folder.absolute()
    return [path for path in (folder, *folder.parents) if not os.path.lexists(path)]


def _write_note(handle: int, path: Path) -> None:
    program = Path(sys.argv[0] or "python")
    words = [program.parent.name if program.name == "__main__.py" else program.name, *sys.argv[1:]]
    note = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": shlex.join(words)[:500],
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
        note = json.loads(os.read(handle, MOST_NOTE).decode())
    except (OSError, ValueError, RecursionError):  # being written, or nothing of ours
        return {}
    return note if isinstance(note, dict) else {}


def _refusal(folder: Path, handle: int) -> ConfigError:
    note = _read_note(handle)
    who = f"process {note['pid']}" if "pid" in note else "another process"
    if note.get("host") and note["host"] != socket.gethostname():
        who += f" on {note['host']}"
    since = f" since {note['since']}" if "since" in note else ""
    command = f" ({note['command']})" if note.get("command") else ""
    fix = "Wait until it has ended, stop it, or choose another folder"
    if try_lock(handle) is None:
        fix += f"; if it has ended, remove {folder / LOCK}"
    return RunInUseError(f"is being written by {who}{since}{command}", where=str(folder), fix=fix)


def _exists(pid: Any) -> bool:
    """Whether there is a process of that number on this machine."""
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
    except OSError:  # it is gone, it is a file, or this system opens no folders
        return None
