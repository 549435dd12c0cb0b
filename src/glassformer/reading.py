"""Files from outside, opened safely: regular files only, and never more of one than was asked for.

A pipe, a device or a socket under the name of a file would hang its reader or do something else when it is
opened, so what a name stands for is looked at before and after opening, and opening itself never waits.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

from glassformer.errors import CannotReadError

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}
_FLAGS = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY")
)


_ESCAPED = re.compile(rb"\\x([89a-f][0-9a-f])")


def file_called(name: str) -> str:
    """The path of a file or folder whose name ``outputs.readable`` has written; the name itself if it exists,
    or none does."""
    if "\\x" not in name or os.path.exists(name):
        return name
    path = os.fsdecode(_ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), os.fsencode(name)))
    return path if os.path.exists(path) else name


class NotRegularError(OSError):
    """What stands there is no plain file, or nothing can; ``strerror`` says what it is."""


def check_regular(info: os.stat_result) -> None:
    """Raises NotRegularError (EINVAL, EISDIR for a folder) where this is not a plain file."""
    kind = stat.S_IFMT(info.st_mode)
    if kind != stat.S_IFREG:
        number = errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL
        raise NotRegularError(number, f"is {_KINDS.get(kind, 'something else')}, not a plain file")


def open_regular(path: str | Path) -> BufferedReader:
    """A plain file, or a link to one, opened for reading bytes.

    Raises:
        NotRegularError: a folder, pipe, device or socket, or a name that no file can have.
        OSError: it is missing, a link that leads in a circle, or may not be read; ``strerror`` says so.
    """
    try:
        check_regular(os.stat(path))  # opening a device can do something by itself
        handle = os.open(path, _FLAGS)
    except ValueError:  # a NUL, or a lone surrogate
        raise NotRegularError(errno.EINVAL, "is a name that no file can have") from None
    try:
        check_regular(os.fstat(handle))  # what was opened, whatever has taken the name since
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: str | Path, most: int) -> bytes:
    """The bytes of a plain file of at most ``most``.

    Raises:
        OSError: as ``open_regular``; EFBIG where it is larger.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(most + 1) if size <= most else b""
        if size > most or len(content) > most:
            raise OSError(errno.EFBIG, f"is larger than the {most:,} bytes allowed")
    return content


class Unchanged:
    """A table that a long job reads in parts: ``check`` tells when another has taken its place.

    Raises:
        DataError: by ``check``: the file was replaced, written to or removed since this was made.
    """

    def __init__(self, path: str | Path):
        self.path = path
        self._before = self._stamp()

    def check(self) -> None:
        if self._stamp() != self._before:
            what = "the file has changed while it was read, so its rows are not of one table"
            fix = "Give the command again when nothing writes to the file"
            raise CannotReadError(what, where=str(self.path), fix=fix)

    def _stamp(self) -> tuple[int, ...] | None:
        try:
            info = os.stat(self.path)
        except OSError:
            return None
        return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, for ``json.loads``; raises ValueError where a key stands in it twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {twice[:80]!r} occurs twice")
    return found
