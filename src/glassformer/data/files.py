"""Safe reading of text files.

Only regular files of bounded size are read, in UTF-8 or another encoding. The memory limit of a table is
``MAX_EXPANSION`` times the size of its file, but at least ``MIN_LIMIT`` and at most ``MAX_BYTES`` bytes. The
environment variable ``GLASSFORMER_TABLE_GB`` replaces this limit.
"""

from __future__ import annotations

import codecs
import difflib
import io
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO

from glassformer.config import suggest
from glassformer.errors import (
    BadValueError,
    CannotReadError,
    DataError,
    MalformedFileError,
    MissingValueError,
    NoSuchFileError,
    NotUtf8Error,
    TooLargeError,
)
from glassformer.process import ENCODING_OPTION, READ_OPTIONS
from glassformer.reading import NotRegularError, open_regular

# --- settings of tables -----------------------------------------------------------------------------
# There are three settings: the encoding, how quotes are read, and whether a table has a header. Environment
# variables set them for a command and the processes that it starts. A recipe sets them for its own data.

NON_ASCII_LETTERS = ("\xe9", "\u0416", "\u3042")  # é, Ж, あ; most encodings have one of these letters
CHOICES = {"quoting": ("csv", "none"), "header": ("yes", "no")}
# The settings of the current recipe.
_RECIPE: ContextVar[dict[str, str]] = ContextVar("reading", default={})  # noqa: B039  # the default is never modified


def check_encoding(name: str) -> str:
    """Return ``name`` if it is a supported text encoding; otherwise raise ConfigError."""
    where = READ_OPTIONS["encoding"][0]
    try:
        "a,;\t\n".encode(name).decode(name)
        is_ascii = all(letter.encode(name, "ignore").isascii() for letter in NON_ASCII_LETTERS)
    except (LookupError, ValueError):  # unknown, not a text encoding (rot13, base64), or a name with a NUL
        known = "cp1252, latin-1, cp1250, cp1251, utf-16, shift_jis, gb18030, big5"
        fix = f"Use an encoding such as {known}"
        raise BadValueError(f"there is no encoding {name!r}", where=where, fix=fix) from None
    if is_ascii:
        what = f"{name} encodes every letter in ASCII bytes, which cannot be distinguished from UTF-8"
        raise BadValueError(what, where=where, fix="Save the file as UTF-8")
    return name


def _check_setting(key: str, value: str) -> str:
    if key == "encoding":
        return check_encoding(value)
    if value not in CHOICES[key]:
        fix = suggest(value, CHOICES[key])
        raise BadValueError(f"{value!r} is not a choice", where=READ_OPTIONS[key][0], fix=fix)
    return value


def reading_setting(key: str) -> str:
    """The value of a setting from its environment variable, otherwise from the recipe; empty if not set.

    Args:
        key: ``encoding``: of files that are not UTF-8 (not set: such files raise an error); ``quoting``: with
            ``csv`` a quoted cell may have line breaks, with ``none`` quotes are ordinary characters;
            ``header``: ``yes`` or ``no``.
    """
    value = os.environ.get(READ_OPTIONS[key][1], "") or _RECIPE.get().get(key, "")
    return _check_setting(key, value) if value else ""


def reading_settings() -> dict[str, str]:
    """The settings that have a value, with their keys in recipes."""
    return {key: value for key in READ_OPTIONS if (value := reading_setting(key))}


def reading_flags() -> list[str]:
    """``reading_settings`` as command-line options, to start another command."""
    return [f"{READ_OPTIONS[key][0]}={value}" for key, value in reading_settings().items()]


@contextmanager
def reading(encoding: str | None = None, **others: str | None) -> Iterator[None]:
    """Read files with these settings inside the ``with`` block; environment variables take precedence.

    Args:
        encoding: encoding of files that are not UTF-8; None: unchanged.
        others: ``quoting`` and ``header``, with the values of recipes; None: unchanged.
    """
    settings = {"encoding": encoding, **others}
    checked = {key: _check_setting(key, value) for key, value in settings.items() if value}
    token = _RECIPE.set(_RECIPE.get() | checked)
    try:
        yield
    finally:
        _RECIPE.reset(token)


def reading_as(data: Any, *, other: bool = False) -> Any:
    """``reading`` with the settings of a recipe's data section.

    Args:
        other: True if the data are not the recipe's own; then only the encoding applies.
    """
    keys = ("encoding",) if other else tuple(READ_OPTIONS)
    return reading(**{key: getattr(data, key, None) for key in keys})


def with_recipe_settings(load: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that loads a recipe's data, so that it reads files with the recipe's settings."""

    @wraps(load)
    def load_with_settings(recipe: Any, *args: Any, **options: Any) -> Any:
        with reading_as(recipe.data, other=bool(args and args[0] is not None)):
            return load(recipe, *args, **options)

    return load_with_settings


# --- bytes that are not UTF-8 -----------------------------------------------------------------------

NOT_UTF8_BYTE = re.compile("[\udc80-\udcff]")  # a byte that is not UTF-8, decoded by ``surrogateescape``
NOT_UTF8 = NOT_UTF8_BYTE.search


def decoding_error_message() -> str:
    """The error message for bytes that cannot be decoded."""
    return f"not {reading_setting('encoding') or 'UTF-8'}"


def replace_undecoded(cell: str) -> str:
    """A cell decoded by ``surrogateescape``, with U+FFFD for every byte that is not UTF-8."""
    return NOT_UTF8_BYTE.sub("\ufffd", cell)


# --- limits ---------------------------------------------------------------------------------------

MAX_BYTES = 8 << 30  # maximum size of a table in memory
MAX_TEXT = 1 << 26  # maximum number of characters of one text or one cell
MAX_LINE = 1 << 27  # maximum number of characters of one line
MIN_LIMIT = 256 << 20  # bytes to which even a small compressed file may expand
MAX_EXPANSION = 100  # maximum ratio of expanded to compressed size; real tables have less than 50
LIMIT_VARIABLE = "GLASSFORMER_TABLE_GB"
CHECK_PERMISSIONS = "Check its permissions"
UTF8 = "utf-8-sig"
ESCAPE = "surrogateescape"
# Folders that other programs create.
SYSTEM_FOLDERS = ["__MACOSX", "__pycache__", "@eaDir", "$RECYCLE.BIN", "lost+found"]
SYSTEM_FOLDERS += ["System Volume Information"]
WESTERN = "cp1252"  # encoding of text and CSV files of Windows in Western Europe and the Americas
has_undefined_byte = re.compile(rb"[\x81\x8d\x8f\x90\x9d]").search  # bytes that are undefined in cp1252
# Byte order mark -> encoding; UTF-32 first, since its mark begins with the mark of UTF-16.
BYTE_ORDER_MARKS = dict.fromkeys((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-32")
BYTE_ORDER_MARKS |= dict.fromkeys((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16")
_CHUNK = 1 << 20
_DETECTED_BYTES = 16  # number of first bytes from which UTF-16 and UTF-32 without a mark are detected


def memory_limit(size: int) -> int:
    """Maximum number of bytes in memory for the content of a file of ``size`` bytes."""
    setting = os.environ.get(LIMIT_VARIABLE, "")
    if not setting:
        return min(MAX_BYTES, max(MIN_LIMIT, MAX_EXPANSION * size))
    try:
        gigabytes = float(setting)
    except ValueError:
        gigabytes = 0.0
    if not 0 < gigabytes < 2**20:
        what = f"{setting!r} is not a number of gigabytes"
        raise DataError(what, where=LIMIT_VARIABLE, fix="Set a number such as 16, or unset the variable")
    return int(gigabytes * (1 << 30))


def memory_limit_fix(path: str | Path, size: int) -> str:
    """The fix for a table that needs ``size`` bytes, more than the memory limit."""
    gigabytes = -(-size // (1 << 30)) or 1
    return f"Split the file, or set {LIMIT_VARIABLE}={gigabytes} if you trust {Path(path).name}"


def check_file(path: Path, max_bytes: int | None = None) -> None:
    """Raise DataError if ``path`` is not a regular file or is too large.

    Args:
        max_bytes: maximum size; None: the limit of tables.
    """
    try:
        info = os.stat(path)
    except PermissionError:
        raise CannotReadError("cannot be read", where=str(path), fix=CHECK_PERMISSIONS) from None
    except (OSError, ValueError):
        raise NoSuchFileError("no such file", where=str(path), fix=missing_file_fix(path)) from None
    if stat.S_ISDIR(info.st_mode):
        raise CannotReadError("a folder, where a file is expected", where=str(path), fix="Name a file in it")
    if not stat.S_ISREG(info.st_mode):
        what = "a pipe or a device, not a plain file"
        raise CannotReadError(what, where=str(path), fix="Write its content into a file first")
    limit = max_bytes or max(MAX_BYTES, memory_limit(0))
    if info.st_size > limit:
        size = f"{limit >> 30} GB" if limit >= 1 << 30 else f"{limit >> 20} MB"
        raise TooLargeError(f"larger than {size}", where=str(path), fix=memory_limit_fix(path, info.st_size))


def missing_file_fix(path: Path) -> str:
    """The fix for a missing file: a file with a similar name, or the folder to which the path is relative."""
    try:
        siblings = [p.name for p in path.parent.iterdir()][:10_000] if path.parent.is_dir() else []
    except (OSError, ValueError):
        siblings = []
    similar = similar_name(path.name[:255], siblings)
    relative_to = "" if path.is_absolute() else f": {str(path)!r} is relative to {Path.cwd()}"
    return f"Did you mean {similar!r}?" if similar else f"Check the path{relative_to}"


def similar_name(name: str, names: Sequence[str]) -> str | None:
    """The most similar of ``names``, or a name that differs only in the extension; otherwise None.

    The names without extension must also be similar, since most tables have the same extension.
    """
    stem = Path(name).stem
    for similar in difflib.get_close_matches(name, names, n=5, cutoff=0.75):
        if difflib.SequenceMatcher(None, stem, Path(similar).stem).ratio() >= 0.6:
            return similar
    return next((other for other in names if Path(other).stem == stem), None)


def is_system_file(path: Path) -> bool:
    """Whether a file or folder is hidden, or created by another program (``__MACOSX``, ``._a.txt``)."""
    return path.name.startswith(".") or path.name in SYSTEM_FOLDERS


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading bytes; raise DataError if that is impossible."""
    try:
        return open_regular(path)
    except NotRegularError as error:
        raise CannotReadError(str(error.strerror), where=str(path), fix="Name a file") from None
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise CannotReadError(what, where=str(path), fix=CHECK_PERMISSIONS) from None


def encoding_of(path: Path) -> str:
    """The encoding of a file: UTF-8 if it is valid UTF-8, otherwise the encoding in the settings."""
    if setting := reading_setting("encoding"):
        try:
            check_utf8(path, UTF8)
        except DataError:
            return setting
    return UTF8


EXPORT_FIX = "If it is a file of another program, export it as CSV in UTF-8"
BINARY_BYTES = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1a\x1b"))  # control characters that texts never have


def encoding_fix(path: Path) -> str:
    """The fix for a file that is not UTF-8: the option with its encoding, if the encoding is detected."""
    if setting := reading_setting("encoding"):
        return f"Use an encoding other than {setting}, or save the file as UTF-8"
    with open_file(path) as file:
        piece = file.read(_CHUNK)
        while piece.isascii() and b"\0" not in piece and (next_piece := file.read(_CHUNK)):
            piece = next_piece
    if wide := _wide_encoding(piece):
        return f"Read it with {ENCODING_OPTION} {wide}, or save it as UTF-8"
    if b"\0" in piece:
        return "Save it as UTF-8 text"
    letters = [c for c in piece.decode("utf-8", ESCAPE) if not c.isascii()]
    is_mostly_utf8 = sum("\udc80" <= c <= "\udcff" for c in letters) <= len(letters) // 2
    if is_mostly_utf8 or has_undefined_byte(piece):
        return "Save it as UTF-8"
    return f"Read it with {ENCODING_OPTION} {WESTERN}, or save it as UTF-8"


def _is_binary(path: Path) -> bool:
    """Whether more than 2 % of the first bytes are control characters that texts never have."""
    with open_file(path) as file:
        piece = file.read(_CHUNK)
    return 50 * (len(piece) - len(piece.translate(None, BINARY_BYTES))) > len(piece)


def _wide_encoding(first_bytes: bytes) -> str:
    """``utf-16`` or ``utf-32`` (with the byte order) if a file begins like this encoding; otherwise empty.

    The encoding is detected by its byte order mark, or by the NUL bytes next to ASCII letters.
    """
    for mark, name in BYTE_ORDER_MARKS.items():
        if first_bytes.startswith(mark):
            return name
    start = first_bytes[:_DETECTED_BYTES]
    for size, name in ((4, "utf-32"), (2, "utf-16")):
        part = start[: len(start) - len(start) % size] if start.isascii() else b""
        for order, position in (("le", 0), ("be", size - 1)):
            other_bytes = b"".join(part[i::size] for i in range(size) if i != position)
            if part and not any(other_bytes) and all(part[position::size]):
                return f"{name}-{order}"
    return ""


def check_utf8(path: Path, encoding: str | None = None) -> None:
    """Check that a file can be decoded, in one pass.

    Args:
        encoding: the encoding to check; None: the encoding of the file (``encoding_of``).

    Raises:
        NotUtf8Error: neither UTF-8 nor the encoding in the settings; the message has line and byte.
        DataError: the file is missing, unreadable, UTF-16, has NUL bytes or a line that is too long.
    """
    encoding = encoding or encoding_of(path)
    check_file(path)
    name, fix = encoding, "Name another encoding"
    if encoding == UTF8:
        name, fix = "UTF-8", "Save it as UTF-8 text"
    num_lf = num_cr = size = 0  # number of LF, of CR without LF, and of characters in the line

    def where() -> str:
        return f"{path}, line {1 + num_lf + num_cr * (num_cr > num_lf)}"

    try:
        with open_file(path) as raw:
            wide = _wide_encoding(raw.read(_DETECTED_BYTES)) if encoding == UTF8 else ""
        if wide:
            raise NotUtf8Error(f"the file is {wide.upper()}", where=str(path), fix=encoding_fix(path))
        with io.TextIOWrapper(open_file(path), encoding=encoding, newline="", errors=ESCAPE) as file:
            while piece := file.readline(_CHUNK):
                size += len(piece)
                if "\0" in piece:
                    what = "a NUL byte: not a text file, or a damaged one"
                    fix = EXPORT_FIX if _is_binary(path) else fix
                    raise MalformedFileError(what, where=where(), fix=fix)
                if not piece.isascii() and (invalid := NOT_UTF8(piece)):
                    what = f"not {name}: byte 0x{ord(invalid[0]) - 0xDC00:02x}"
                    if _is_binary(path):
                        what = f"not a text file ({what})"
                        raise NotUtf8Error(what, where=str(path), fix=EXPORT_FIX)
                    raise NotUtf8Error(what, where=where(), fix=encoding_fix(path))
                if size > MAX_LINE:
                    fix = "Check that it is the intended file, or break the line"
                    what = f"more than {MAX_LINE:,} characters in one line"
                    raise MalformedFileError(what, where=where(), fix=fix)
                if piece[-1] in "\r\n":
                    num_lf, num_cr, size = num_lf + (piece[-1] == "\n"), num_cr + (piece[-1] == "\r"), 0
    except UnicodeError as error:  # an encoding with units of several bytes
        what = f"not {name} ({getattr(error, 'reason', error)})"
        raise NotUtf8Error(what, where=where(), fix=encoding_fix(path)) from None
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise CannotReadError(what, where=str(path), fix=CHECK_PERMISSIONS) from None


# --- lines ------------------------------------------------------------------------------------


def _newline_in(pieces: Iterable[str]) -> str:
    """The ``newline`` argument of ``open`` with which a text should be read.

    If most lines end with CR alone, as in files of old Macs, it is ``""``: CR also ends a line. Otherwise it
    is ``"\\n"``, so that a CR within a text does not end a line.
    """
    lone_cr = line_feeds = 0
    pending_cr = ""
    for piece in pieces:
        part = pending_cr + piece
        pending_cr = "\r" * (len(part) - len(part.rstrip("\r")))  # the next piece may begin with its LF
        part = part[: len(part) - len(pending_cr)]
        line_feeds += part.count("\n")
        lone_cr += part.count("\r") - part.count("\r\n") - part.count("\r\r\n")
    return "" if lone_cr + len(pending_cr) > line_feeds else "\n"


def _newline_of(path: Path, encoding: str) -> str:
    encoding = "latin-1" if encoding == UTF8 else encoding  # every byte is valid, and line ends are unchanged
    with io.TextIOWrapper(open_file(path), encoding=encoding, newline="", errors="replace") as text:
        return _newline_in(iter(lambda: text.read(_CHUNK), ""))


def split_lines(text: str) -> list[str]:
    """The lines of a text without line ends, split in the same way as by ``text_lines``."""
    return [line.rstrip("\r\n") for line in io.StringIO(text, newline=_newline_in([text]))]


def text_lines(path: Path, newline: str | None = None, errors: str = "strict") -> Iterator[str]:
    """The lines of a file that passed ``check_utf8``, with line ends, without a byte order mark.

    Args:
        newline: as in ``open``: with ``"\\n"`` only LF ends a line, with ``""`` also CR; None: detected.
        errors: as in ``open``.
    """
    encoding = encoding_of(path)
    newline = _newline_of(path, encoding) if newline is None else newline
    with io.TextIOWrapper(open_file(path), encoding=encoding, newline=newline, errors=errors) as file:
        try:
            yield next(file, "").removeprefix("\ufeff")
            yield from file
        except (UnicodeDecodeError, OSError) as error:
            what = f"changed while it was read ({error})"
            raise CannotReadError(what, where=str(path), fix="Try again") from None


def read_utf8(path: Path, max_bytes: int | None = None) -> str:
    """The text of a file of at most ``max_bytes`` bytes, without a byte order mark."""
    check_file(path, max_bytes)
    check_utf8(path)
    with open_file(path) as file:
        try:
            return file.read().decode(encoding_of(path)).removeprefix("\ufeff")
        except (OSError, UnicodeDecodeError) as error:
            what = f"changed while it was read ({error})"
            raise CannotReadError(what, where=str(path), fix="Try again") from None


def read_lines(path: Path) -> tuple[list[str], list[int]]:
    """The non-empty lines of a text file, and their numbers from 1."""
    check_utf8(path)
    lines = [(i, line.rstrip("\r\n")) for i, line in enumerate(text_lines(path), 1) if line.strip()]
    if not lines:
        raise MissingValueError("the file has no texts", where=str(path), fix="Write one text per line")
    return [line for _, line in lines], [i for i, _ in lines]
