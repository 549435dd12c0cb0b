"""Text files from outside: regular, of bounded size, UTF-8 or as it is said, and read line by line.

How large a table may become in memory is decided here: a file may grow to ``GROWTH`` times its size, and
always to ``ALWAYS`` bytes, but never beyond ``MAX_BYTES``. The environment variable ``GLASSFORMER_TABLE_GB``
replaces all three.
"""

from __future__ import annotations

import codecs
import difflib
import io
import os
import re
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO

from glassformer.config import nearest
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
from glassformer.process import OPTION, READING
from glassformer.reading import NotRegularError, open_regular

# --- what tables do not say of themselves ---------------------------------------------------------
# Their encoding, what quotes mean, whether there is a header.
# It is said once, for a command and all processes that it starts, or by a recipe for its own data.

NOT_ASCII = ("\xe9", "\u0416", "\u3042")  # letters, of which most encodings have one
CHOICES = {"quoting": ("csv", "none"), "header": ("yes", "no")}  # what the others may be
# Of the recipe whose data are read.
_RECIPE: ContextVar[dict[str, str]] = ContextVar("reading", default={})  # noqa: B039  # it is never changed


def check_encoding(name: str) -> str:
    """The same name, if it is an encoding of texts; ConfigError where it is none."""
    where = READING["encoding"][0]
    try:
        "a,;\t\n".encode(name).decode(name)
        plain = all(letter.encode(name, "ignore").isascii() for letter in NOT_ASCII)
    except (LookupError, ValueError):  # none, no text (rot13, base64), or a name with a NUL
        known = "cp1252, latin-1, cp1250, cp1251, utf-16, shift_jis, gb18030, big5"
        raise BadValueError(f"no encoding {name!r}", where=where, fix=f"Such as {known}") from None
    if plain:
        what = f"{name} writes every letter in bytes of ASCII, and is not told from UTF-8"
        raise BadValueError(what, where=where, fix="Save the file as UTF-8")
    return name


def _checked(key: str, value: str) -> str:
    if key == "encoding":
        return check_encoding(value)
    if value not in CHOICES[key]:
        fix = nearest(value, CHOICES[key])
        raise BadValueError(f"{value!r} is not a choice", where=READING[key][0], fix=fix)
    return value


def said(key: str) -> str:
    """A setting as the environment variable says, or else the recipe whose data are read; empty: neither.

    Args:
        key: ``encoding`` of files that are not UTF-8 (not said: these are refused); ``quoting``: with ``csv``
            a quoted cell may have line breaks, with ``none`` quotes are characters; ``header``: yes or no.
    """
    given = os.environ.get(READING[key][1], "") or _RECIPE.get().get(key, "")
    return _checked(key, given) if given else ""


def said_of_tables() -> dict[str, str]:
    """Everything that is said of tables, by the keys of recipes."""
    return {key: value for key in READING if (value := said(key))}


def reading_flags() -> list[str]:
    """The options that tell another command the same."""
    return [f"{READING[key][0]}={value}" for key, value in said_of_tables().items()]


@contextmanager
def reading(encoding: str | None = None, **others: str | None) -> Iterator[None]:
    """Files are read so, unless the command says otherwise; None: nothing changes.

    Args:
        encoding: of files that are not UTF-8.
        others: ``quoting`` and ``header``, as the keys of recipes have them.

    Raises:
        ConfigError: no encoding of that name, or another value.
    """
    given = {"encoding": encoding, **others}
    known = {key: _checked(key, value) for key, value in given.items() if value}
    before = _RECIPE.set(_RECIPE.get() | known)
    try:
        yield
    finally:
        _RECIPE.reset(before)


def reading_as(data: Any, *, other: bool = False) -> Any:
    """``reading`` as the data section of a recipe says.

    Args:
        other: other data are read than the recipe's own, of which it knows the encoding at most.
    """
    keys = ("encoding",) if other else tuple(READING)
    return reading(**{key: getattr(data, key, None) for key in keys})


def as_recipes_say(load: Callable[..., Any]) -> Callable[..., Any]:
    """What loads a recipe's data, reading them as the recipe says."""

    @wraps(load)
    def loaded(recipe: Any, *more: Any, **options: Any) -> Any:
        with reading_as(recipe.data, other=bool(more and more[0] is not None)):
            return load(recipe, *more, **options)

    return loaded


# --- rows that cannot be used ---------------------------------------------------------------------
# And what can be read of them all the same.

NOT_UTF8_BYTE = re.compile("[\udc80-\udcff]")  # as ``surrogateescape`` reads one
NOT_UTF8 = NOT_UTF8_BYTE.search
Refuse = Callable[[DataError, int], None]  # (what is wrong with a row, its number)


class RowError(DataError):
    """A row that cannot be used; ``values`` holds those of its cells that can be read, by column."""

    code = MalformedFileError.code

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None):
        super().__init__(what, where=where, fix=fix)
        self.values: dict[str, Any] = {}
        self.ragged = False  # whether they may stand under the names of others


def not_text() -> str:
    """What is wrong with bytes that cannot be decoded."""
    return f"not {said('encoding') or 'UTF-8'}"


def readable(cell: str) -> str:
    """A cell read by ``surrogateescape``, U+FFFD in the place of bytes that are not UTF-8."""
    return NOT_UTF8_BYTE.sub("\ufffd", cell)


def stop(error: DataError, row: int) -> None:
    raise error


def pass_over(error: DataError, row: int) -> None:
    """A row that was refused before."""


# --- bounds ---------------------------------------------------------------------------------------

MAX_BYTES = 8 << 30  # a table is held in memory
MAX_TEXT = 1 << 26  # characters of one text, one cell
MAX_LINE = 1 << 27  # characters
ALWAYS = 256 << 20  # bytes that every packed file may unfold to
GROWTH = 100  # times its size, that a packed file may unfold to; honest tables stay below 50
VARIABLE = "GLASSFORMER_TABLE_GB"
UTF8 = "utf-8-sig"
ESCAPE = "surrogateescape"
CLUTTER = frozenset(  # what other programs leave between folders of data
    ["__MACOSX", "__pycache__", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found"]
)
WESTERN = "cp1252"  # what Windows saves as text, or as CSV, in Western Europe and the Americas
UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]").search  # bytes that it has no letters for
MARKS = {  # that begin a file; those of 32 bits first, since one begins as that of 16 does
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_CHUNK = 1 << 20
_HEADER = 16  # bytes of a file that show how wide its letters are


def memory_limit(size: int) -> int:
    """Bytes that the content of a file of ``size`` bytes may take.

    Raises:
        DataError: the environment variable holds no number of gigabytes.
    """
    given = os.environ.get(VARIABLE, "")
    if not given:
        return min(MAX_BYTES, max(ALWAYS, GROWTH * size))
    try:
        gigabytes = float(given)
    except ValueError:
        gigabytes = 0.0
    if not 0 < gigabytes < 2**20:
        raise DataError(
            f"{given!r} is not a number of gigabytes", where=VARIABLE, fix="Use 16, or leave it out"
        )
    return int(gigabytes * (1 << 30))


def more_room(path: str | Path, size: int) -> str:
    """How a table that is refused for its size is read after all."""
    return f"Split the file, or set {VARIABLE}={-(-size // (1 << 30)) or 1} where you trust {Path(path).name}"


def check_file(path: Path, most: int | None = None) -> None:
    """Raises DataError when ``path`` is no plain file, or over ``most`` bytes (None: a table's limit)."""
    try:
        info = os.stat(path)
    except PermissionError:
        raise CannotReadError("cannot be read", where=str(path), fix="Check its rights") from None
    except (OSError, ValueError):
        raise NoSuchFileError("no such file", where=str(path), fix=close_to(path)) from None
    if stat.S_ISDIR(info.st_mode):
        raise CannotReadError("no such file, but a folder", where=str(path), fix="Name a file in it")
    if not stat.S_ISREG(info.st_mode):
        what = "a pipe or a device, not a plain file"
        raise CannotReadError(what, where=str(path), fix="Write its content into a file first")
    limit = most or max(MAX_BYTES, memory_limit(0))
    if info.st_size > limit:
        size = f"{limit >> 30} GB" if limit >= 1 << 30 else f"{limit >> 20} MB"
        raise TooLargeError(f"larger than {size}", where=str(path), fix=more_room(path, info.st_size))


def close_to(path: Path) -> str:
    """How to go on where there is no such file: the file that may be meant, or where it was looked for."""
    try:
        siblings = [p.name for p in path.parent.iterdir()][:10_000] if path.parent.is_dir() else []
    except (OSError, ValueError):
        siblings = []
    close = near_name(path.name[:255], siblings)
    seen_from = "" if path.is_absolute() else f": {str(path)!r} is looked for in {Path.cwd()}"
    return f"Did you mean {close!r}?" if close else f"Check the path{seen_from}"


def near_name(name: str, names: Sequence[str]) -> str | None:
    """The file that a slip of a letter or two, or another ending, makes of ``name``; None: there is none.

    The ending alone, which most tables share, does not count.
    """
    stem = Path(name).stem
    for near in difflib.get_close_matches(name, names, n=5, cutoff=0.75):
        if difflib.SequenceMatcher(None, stem, Path(near).stem).ratio() >= 0.6:
            return near
    return next((other for other in names if Path(other).stem == stem), None)


def is_clutter(path: Path) -> bool:
    """Whether a file or folder is hidden, or left there by another program (``__MACOSX``, ``._a.txt``)."""
    return path.name.startswith(".") or path.name in CLUTTER


def opened(path: Path) -> BinaryIO:
    """A plain file, opened for reading bytes; DataError where it cannot be."""
    try:
        return open_regular(path)
    except NotRegularError as error:
        raise CannotReadError(str(error.strerror), where=str(path), fix="Name a file") from None
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise CannotReadError(what, where=str(path), fix="Check its rights") from None


def encoding_of(path: Path) -> str:
    """How a file is decoded: as UTF-8 if it is that, else as is ``said``."""
    if other := said("encoding"):
        try:
            _check_decoded(path, UTF8)
        except DataError:
            return other
    return UTF8


EXPORT = "If it is a file of another program, export it as CSV in UTF-8"
CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1a\x1b"))  # which no text has


def encoding_fix(path: Path) -> str:
    """How a file that is not UTF-8 is read after all: by the encoding that it shows, where it shows one."""
    if given := said("encoding"):
        return f"Name another encoding than {given}, or save the file as UTF-8"
    with opened(path) as file:
        piece = file.read(_CHUNK)
        while piece.isascii() and b"\0" not in piece and (more := file.read(_CHUNK)):
            piece = more
    if wide := _wide_encoding(piece):
        return f"Read it with {OPTION} {wide}, or save it as UTF-8"
    if b"\0" in piece:
        return "Save it as UTF-8 text"
    letters = [c for c in piece.decode("utf-8", "surrogateescape") if not c.isascii()]
    damaged = sum("\udc80" <= c <= "\udcff" for c in letters) <= len(letters) // 2  # but UTF-8 in the main
    if damaged or UNDEFINED(piece):
        return "Save it as UTF-8"
    return f"Read it with {OPTION} {WESTERN}, or save it as UTF-8"


def _is_binary(path: Path) -> bool:
    """Whether a file's beginning has control characters that no text has, at least one in fifty bytes."""
    with opened(path) as file:
        piece = file.read(_CHUNK)
    return 50 * (len(piece) - len(piece.translate(None, CONTROLS))) > len(piece)


def _wide_encoding(begin: bytes) -> str:
    """The encoding of two or four bytes a letter that a file's beginning shows, by its mark or by where its
    NUL bytes are (in a header of ASCII: beside each letter); empty: another."""
    for mark, name in MARKS.items():
        if begin.startswith(mark):
            return name
    letters = begin[:_HEADER] if begin[:_HEADER].isascii() else b""
    for size, name in ((4, "utf-32"), (2, "utf-16")):
        part = letters[: len(letters) - len(letters) % size]
        for end, at in (("le", 0), ("be", size - 1)):
            others = b"".join(part[i::size] for i in range(size) if i != at)
            if part and not any(others) and all(part[at::size]):
                return f"{name}-{end}"
    return ""


def check_utf8(path: Path) -> None:
    """Go through a file once, a piece at a time.

    Raises:
        NotUtf8Error: neither UTF-8 nor of the encoding that is ``said`` (line and byte are named).
        DataError: missing, unreadable, UTF-16, NUL bytes, an endless line.
    """
    _check_decoded(path, encoding_of(path))


# --- lines ------------------------------------------------------------------------------------


def _newline_in(pieces: Iterable[str]) -> str:
    """What ends the lines, as ``open`` takes it: ``"\\n"``, or ``""`` (CR too) where more lines end with CR
    alone, as old Macs and some exports write them. A stray CR within a text ends no line.
    """
    alone = ends = 0
    held = ""
    for piece in pieces:
        part = held + piece
        held = "\r" * (len(part) - len(part.rstrip("\r")))  # whether it belongs to an LF shows in the next
        part = part[: len(part) - len(held)]
        ends += part.count("\n")
        alone += part.count("\r") - part.count("\r\n") - part.count("\r\r\n")
    return "" if alone + len(held) > ends else "\n"


def _newline_of(path: Path, encoding: str) -> str:
    encoding = "latin-1" if encoding == UTF8 else encoding  # which leaves the line ends as they are
    with io.TextIOWrapper(opened(path), encoding=encoding, newline="", errors="replace") as text:
        return _newline_in(iter(lambda: text.read(_CHUNK), ""))


def split_lines(text: str) -> list[str]:
    """The lines of a text without their ends, as ``text_lines`` finds those of a file."""
    return [line.rstrip("\r\n") for line in io.StringIO(text, newline=_newline_in([text]))]


# --- checks -----------------------------------------------------------------------------------


def _check_decoded(path: Path, encoding: str) -> None:
    """Go through a file of an encoding once; errors as those of ``check_utf8``."""
    check_file(path)
    name, fix = (
        ("UTF-8", "Save it as UTF-8 text") if encoding == UTF8 else (encoding, "Name another encoding")
    )
    ends, alone, size = 0, 0, 0  # LF, and CR without it, which ends lines where there are more of them

    def where() -> str:
        return f"{path}, line {1 + ends + alone * (alone > ends)}"

    try:
        with opened(path) as raw:
            wide = _wide_encoding(raw.read(_HEADER)) if encoding == UTF8 else ""
        if wide:
            raise NotUtf8Error(f"the file is {wide.upper()}", where=str(path), fix=encoding_fix(path))
        with io.TextIOWrapper(opened(path), encoding=encoding, newline="", errors=ESCAPE) as file:
            while piece := file.readline(_CHUNK):
                size += len(piece)
                if "\0" in piece:
                    what = "a NUL byte: not a text file, or a damaged one"
                    fix = EXPORT if _is_binary(path) else fix
                    raise MalformedFileError(what, where=where(), fix=fix)
                if not piece.isascii() and (found := NOT_UTF8(piece)):
                    what = f"not {name}: byte 0x{ord(found[0]) - 0xDC00:02x}"
                    if _is_binary(path):
                        what = f"not a text file ({what})"
                        raise NotUtf8Error(what, where=str(path), fix=EXPORT)
                    raise NotUtf8Error(what, where=where(), fix=encoding_fix(path))
                if size > MAX_LINE:
                    fix = "Check that it is the file you mean, or break the line"
                    raise MalformedFileError(
                        f"more than {MAX_LINE:,} characters in one line", where=where(), fix=fix
                    )
                if piece[-1] in "\r\n":
                    ends, alone, size = ends + (piece[-1] == "\n"), alone + (piece[-1] == "\r"), 0
    except UnicodeError as error:  # of units of more than a byte
        what = f"not {name} ({getattr(error, 'reason', error)})"
        raise NotUtf8Error(what, where=where(), fix=encoding_fix(path)) from None
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise CannotReadError(what, where=str(path), fix="Check its rights") from None


def text_lines(path: Path, newline: str | None = None, errors: str = "strict") -> Iterator[str]:
    """The lines of a file that ``check_utf8`` has passed, with their ends, a byte order mark taken off.

    Args:
        newline: what ends a line, as in ``open``: ``"\\n"`` that alone, ``""`` also ``"\\r"``; None: as the
            file shows.
        errors: of bytes that are not UTF-8, as in ``open``.

    Raises:
        DataError: the file has changed in the meantime.
    """
    encoding = encoding_of(path)
    newline = _newline_of(path, encoding) if newline is None else newline
    with io.TextIOWrapper(opened(path), encoding=encoding, newline=newline, errors=errors) as file:
        try:
            yield next(file, "").removeprefix("\ufeff")
            yield from file
        except (UnicodeDecodeError, OSError) as error:
            what = f"changed while it was read ({error})"
            raise CannotReadError(what, where=str(path), fix="Try again") from None


class ReturningLines:
    """Lines, of which those of a record that turns out to be broken are read again but for its first."""

    def __init__(self, lines: Iterator[str]):
        self.lines, self.taken, self.waiting = lines, [], deque[str]()
        self.number = 0  # of the last line that was given, from 1

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self.waiting.popleft() if self.waiting else next(self.lines)
        self.taken.append(line)
        self.number += 1
        return line

    def go_back(self) -> None:
        """Give the lines since ``taken`` was cleared once more, the first of them left out."""
        self.waiting.extendleft(reversed(self.taken[1:]))
        self.number -= len(self.taken) - 1
        self.taken.clear()


def read_utf8(path: Path, most: int | None = None) -> str:
    """The text of a UTF-8 file of at most ``most`` bytes, a byte order mark taken off.

    Raises:
        DataError: see ``check_utf8``; also larger than that.
    """
    check_file(path, most)
    check_utf8(path)
    with opened(path) as file:
        try:
            return file.read().decode(encoding_of(path)).removeprefix("\ufeff")
        except (OSError, UnicodeDecodeError) as error:
            what = f"changed while it was read ({error})"
            raise CannotReadError(what, where=str(path), fix="Try again") from None


def read_lines(path: Path) -> tuple[list[str], list[int]]:
    """The lines of a plain text file that hold something, and their numbers from 1.

    Raises:
        DataError: see ``check_utf8``; also no such line, or one that is too long.
    """
    check_utf8(path)
    lines = [(i, line.rstrip("\r\n")) for i, line in enumerate(text_lines(path), 1) if line.strip()]
    if not lines:
        raise MissingValueError("the file has no texts", where=str(path), fix="Write one text per line")
    return [line for _, line in lines], [i for i, _ in lines]
