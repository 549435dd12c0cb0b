"""Two folders that change their names in one step, and reading a folder that may be exchanged meanwhile."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from glassformer.errors import CheckpointError

Found = TypeVar("Found")

MANIFEST = "manifest.json"
TRIES = 20  # of a reader whose folder is saved anew while it reads
LOOKS = 4  # at a folder that fails, where it is missing or has come to its place within SETTLED seconds
SETTLED = 2.0
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of fcntl.h and linux/fs.h


def exchange(one: Path, two: Path) -> bool:
    """Exchange the names of two folders in one step: whether this system and this disk can."""
    call = _renameat2()
    return (
        call is not None
        and call(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(two), RENAME_EXCHANGE) == 0
    )


@cache
def _renameat2() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # a C library that is older, or another one
        return None
    call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return call


def steadily(path: Path, read: Callable[[], Found]) -> Found:
    """What ``read`` gives of the folder ``path``, all from one save: called again where another came between.

    Raises:
        CheckpointError: it is saved anew faster than read; what ``read`` raises of a folder that stays.
    """
    for turn in range(TRIES):
        before = _stamp(path)
        try:
            found = read()
        except Exception:
            if _stamp(path) == before and (turn >= LOOKS or _stays(path)):
                raise
        else:
            if _stamp(path) == before:
                return found
        time.sleep(0.002 * turn)
    raise CheckpointError("is saved anew again and again while it is read", where=str(path), fix="Try again")


def _stamp(path: Path) -> tuple[Any, ...] | None:
    """What is another after each save; None where there is no folder with a manifest."""
    try:
        info = os.stat(path)
        with open(path / MANIFEST, "rb", opener=_without_waiting) as file:
            return info.st_dev, info.st_ino, info.st_mtime_ns, hash(file.read(2**20))
    except OSError:
        return None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(
        path, flags | getattr(os, "O_NONBLOCK", 0)
    )  # a pipe of that name gives nothing and holds up nobody


def _stays(path: Path) -> bool:
    """Whether what stands at the path has stood there for a while, with or without a manifest.

    Where names cannot be exchanged, a folder is away between the two moves of a save, and comes back as it
    was where a reader who misses it takes that for the end of a killed one.
    """
    try:
        return not 0 <= time.time() - os.stat(path).st_ctime < SETTLED
    except OSError:  # it may be away for this instant
        return False
