"""Open the files of users safely.

Only regular files with a limited number of bytes are read. Opening a pipe, a device or a socket could block
or have side effects. So the file type is checked before and after opening, and files are opened in
non-blocking mode.
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

_FILE_TYPES = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}
_FLAGS = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY")
)
_ESCAPED = re.compile(rb"\\x([89a-f][0-9a-f])")  # an escaped byte of a name, such as \xe9


def find_escaped(name: str) -> str:
    """The path of a file or folder whose name was escaped by ``outputs.escape_surrogates``.

    It is ``name`` itself if there is a file of this name, or no file with the decoded name.
    """
    if "\\x" not in name or os.path.exists(name):
        return name
    path = os.fsdecode(_ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), os.fsencode(name)))
    return path if os.path.exists(path) else name


class NotRegularError(OSError):
    """The path is not a regular file, or its name is not valid; ``strerror`` has the reason."""


def check_regular(info: os.stat_result) -> None:
    """Raise NotRegularError (errno EISDIR for a folder, else EINVAL) unless this is a regular file."""
    file_type = stat.S_IFMT(info.st_mode)
    if file_type != stat.S_IFREG:
        number = errno.EISDIR if file_type == stat.S_IFDIR else errno.EINVAL
        raise NotRegularError(number, f"is {_FILE_TYPES.get(file_type, 'something else')}, not a plain file")


def open_regular(path: str | Path) -> BufferedReader:
    """Open a regular file, or a link to one, for reading bytes.

    Raises:
        NotRegularError: the path is a folder, pipe, device or socket, or the name is not valid.
        OSError: the file is missing, not readable, or a circular link; ``strerror`` has the reason.
    """
    try:
        check_regular(os.stat(path))  # opening a device can have side effects
        handle = os.open(path, _FLAGS)
    except ValueError:  # a NUL, or a lone surrogate
        raise NotRegularError(errno.EINVAL, "is not a valid file name") from None
    try:
        check_regular(os.fstat(handle))  # the file may have been replaced since the first check
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: str | Path, max_bytes: int) -> bytes:
    """Read a regular file of at most ``max_bytes`` bytes.

    Raises:
        OSError: see ``open_regular``; errno is EFBIG if the file is larger.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(max_bytes + 1) if size <= max_bytes else b""
        if size > max_bytes or len(content) > max_bytes:
            raise OSError(errno.EFBIG, f"is larger than the {max_bytes:,} bytes allowed")
    return content


class ChangeDetector:
    """Detects whether a table changes while a long job reads it.

    ``check`` raises DataError if the file was replaced, written to or removed since this object was created.
    """

    def __init__(self, path: str | Path):
        self.path = path
        self._first_stamp = self._stamp()

    def check(self) -> None:
        if self._stamp() != self._first_stamp:
            what = "the file has changed while it was read, so its rows may belong to different tables"
            fix = "Run the command again when nothing writes to the file"
            raise CannotReadError(what, where=str(self.path), fix=fix)

    def _stamp(self) -> tuple[int, ...] | None:
        try:
            info = os.stat(self.path)
        except OSError:
            return None
        return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An ``object_pairs_hook`` for ``json.loads``, which raises ValueError for a duplicate key."""
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        duplicate = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {duplicate[:80]!r} occurs twice")
    return result
