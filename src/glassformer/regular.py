"""Opening a file that must be a plain one: a pipe, a device or a folder is refused before anything waits for it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class NotRegularError(OSError):
    """What stands there is no plain file; ``strerror`` says what it is."""


def open_regular(path: str | Path) -> BinaryIO:
    """A plain file, or a link to one, opened for reading bytes.

    Raises:
        NotRegularError: a folder, pipe, device or socket, or a name that no file can have.
        OSError: it is missing or cannot be read.
    """
    try:
        _refuse(os.stat(path), path)
        # between the two calls the name may have become a pipe: opening one for reading would wait for a writer
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError:  # a NUL, or half of a surrogate pair
        raise NotRegularError(errno.EINVAL, "no file can have this name", str(path)) from None
    try:
        _refuse(os.fstat(handle), path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _refuse(info: os.stat_result, path: str | Path) -> None:
    kind = stat.S_IFMT(info.st_mode)
    if kind != stat.S_IFREG:
        what = KINDS.get(kind, "something else")
        raise NotRegularError(errno.EINVAL, f"{what}, not a plain file", str(path))
