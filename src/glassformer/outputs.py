"""Check output paths, write files atomically, and make names printable."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from glassformer.errors import BadValueError, CannotWriteError, ExistsError, OutputPathError

sub_lone_surrogates = re.compile("[\ud800-\udfff]").sub  # half of a UTF-16 pair; UTF-8 cannot encode it
MAX_NAME_BYTES = 220  # file systems allow 255, but names of temporary files are longer
MAX_PATH_BYTES = 4_000


def check_new_file(path: str | Path, option: str = "--out") -> Path:
    """Return ``path``, after checking that a new file can be written there.

    Raises:
        ConfigError: the path exists (even as a broken link), its folder is missing or not writable, or the
            name is not valid.
    """
    path = _check_name(Path(path), option)
    fix = f"Choose another {option}"
    if path.is_symlink() and not path.exists():
        raise OutputPathError(f"a broken link (to {os.readlink(path)})", where=str(path), fix=fix)
    if path.is_dir():
        raise OutputPathError("a folder, where a file is to be written", where=str(path), fix=fix)
    if os.path.lexists(path):
        raise ExistsError("the output file exists", where=str(path), fix=fix)
    if not path.parent.is_dir():
        if path.parent.exists():
            raise OutputPathError("a file, not a folder", where=str(path.parent), fix=fix)
        raise OutputPathError("there is no such folder", where=str(path.parent), fix="Create it first")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise OutputPathError("the folder is not writable", where=str(path.parent), fix=fix)
    return path


def check_folder_path(path: str | Path, option: str = "--out") -> Path:
    """Return ``path``, after checking that it is a writable folder or that it can be created.

    Raises:
        ConfigError: the path or a parent is a file or a broken link, is not writable, is not UTF-8, or has
            a name that is not valid.
    """
    path = _check_name(Path(path), option)
    fix = f"Choose another {option}"
    if escape_surrogates(str(path.absolute())) != str(path.absolute()):  # safetensors cannot open such paths
        what = "the folder's path is not UTF-8, so a model could not be read from it"
        raise OutputPathError(what, where=escape_surrogates(str(path)), fix=fix)
    for folder in (path, *path.absolute().parents):
        if folder.is_symlink() and not folder.exists():
            raise OutputPathError(f"a broken link (to {os.readlink(folder)})", where=str(folder), fix=fix)
        if not folder.exists():
            continue
        if folder == path and not folder.is_dir():
            raise OutputPathError("is a file, not a folder", where=str(path), fix=fix)
        if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
            what = f"the folder cannot be created: {folder} is not a writable folder"
            if folder == path:
                what = "the folder is not writable"
            raise OutputPathError(what, where=str(path), fix=fix)
        return path
    return path


def _check_name(path: Path, option: str) -> Path:
    name = os.fsencode(str(path)) if "\0" not in str(path) else b"\0"
    if any(byte < 32 or byte == 127 for byte in name):
        what = "a name with a control character (a line break, a tab, NUL)"
        raise OutputPathError(what, where=f"{option} {str(path)!r}"[:300], fix="Use letters and digits")
    if len(name) > MAX_PATH_BYTES or any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in path.parts):
        what = f"a name of {len(name):,} bytes is too long"
        fix = f"Use at most {MAX_NAME_BYTES} bytes between two slashes"
        raise OutputPathError(what, where=f"{option} {str(path)[:80]}...", fix=fix)
    try:
        path.exists()
    except OSError as error:  # circular links, or a folder without permission
        raise OutputPathError(str(error.strerror), where=str(path), fix=f"Choose another {option}") from None
    return path


def escape_surrogates(text: str) -> str:
    """Escape lone surrogates, which UTF-8 cannot encode.

    A byte of a file name that is not UTF-8 becomes for example ``\\xe9``, and another lone surrogate
    ``\\ud800``. ``reading.find_escaped`` finds the file for such a name.
    """
    if text.isascii():
        return text
    return sub_lone_surrogates(lambda match: escape(match[0]), text)


def escape(surrogate: str) -> str:
    """A lone surrogate as ASCII: ``\\xe9`` or ``\\ud800``."""
    number = ord(surrogate)
    return f"\\x{number - 0xDC00:02x}" if 0xDC80 <= number <= 0xDCFF else f"\\u{number:04x}"


def make_printable(text: str, allowed: str = "") -> str:
    """Make text safe to print.

    Control characters, bidirectional marks and line separators become U+FFFD. Lone surrogates are escaped as
    in ``escape_surrogates``.

    Args:
        allowed: characters to leave unchanged, such as a line break.
    """
    text = text if text.isprintable() else escape_surrogates(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in allowed else "\N{REPLACEMENT CHARACTER}" for c in text)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary file in the same folder; at the end it replaces ``path``.

    Raises:
        GlassformerError: the disk is full or read-only; the old file stays unchanged.
    """
    temporary = path.parent / f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise CannotWriteError.of(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically; lone surrogates are escaped as in ``escape_surrogates``."""
    with atomic_write(path) as temporary:
        temporary.write_text(escape_surrogates(text), encoding="utf-8")


def check_page_path(path: str | Path) -> Path:
    """Return ``path`` as a Path, after checking that it ends in .html or .json and that its folder exists."""
    path = Path(path)
    if path.suffix.lower() not in (".json", ".html"):
        raise BadValueError("not .json or .html", where=str(path), fix="End the name with one of them")
    if not path.parent.is_dir():
        raise OutputPathError("no such folder", where=str(path.parent), fix="Make it first")
    return path
