"""Readers of CSV, TSV, JSONL and Parquet files, and of plain text, that can name the faulty row.

Rows are counted from 1 as the file shows them: in CSV and TSV the header is row 1, in JSONL a row
is a line, in Parquet row 1 is the first.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer.errors import DataError
from glassformer.reading import unique_keys

PLAIN = ".txt"  # one text a line
MAX_BYTES = 8 << 30  # a table is held in memory
MAX_CELL = 1 << 26  # characters in one cell; more means a quote that is never closed


@dataclass(frozen=True)
class Table:
    """A file's columns, read one by one when asked for."""

    origin: str
    names: tuple[str, ...]
    rows: Sequence[int]  # row number of each record in the file
    read: Callable[[str], list[Any]]  # column name -> its values, one a record
    typed: bool = True  # False: every value is text (CSV, TSV)
    class_names: dict[str, tuple[str, ...]] = field(default_factory=dict)  # column -> names of its ints


Refuse = Callable[[DataError, int], None]  # (what is wrong with a row, its number)


def _stop(error: DataError, row: int) -> None:
    raise error


def read_table(path: str | Path, refuse: Refuse = _stop) -> Table:
    """A table from ``.csv``, ``.tsv``, ``.jsonl``, ``.json`` (an array of objects) or ``.parquet``.

    Args:
        refuse: called with a row that is ragged or no JSON object; where it returns, the row is left out, and a key
            that a JSON object lacks is None. Other damage (encoding, quoting) always ends the reading.

    Raises:
        DataError: no such file, another kind of file, not UTF-8, damaged, ragged, or without rows.
    """
    path = Path(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(READERS)
        raise DataError(f"files of kind {path.suffix!r} are not read", where=str(path), fix=f"Known: {known}")
    table = reader(path, refuse)
    if not table.rows:
        raise DataError("the file has no rows", where=str(path), fix="Give at least one example")
    return table


def check_file(path: Path) -> None:
    """Raises DataError when ``path`` is no readable file or too large to hold in memory."""
    if not path.is_file():
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, siblings, n=1)
        fix = f"Did you mean {close[0]!r}?" if close else "Check the path"
        raise DataError("no such file", where=str(path), fix=fix)
    if path.stat().st_size > MAX_BYTES:
        raise DataError(f"larger than {MAX_BYTES >> 30} GB", where=str(path), fix="Split the file")


def read_utf8(path: Path) -> str:
    """The text of a UTF-8 file, a byte order mark taken off.

    Raises:
        DataError: missing, unreadable, UTF-16, with NUL bytes, or not UTF-8 (line and byte named).
    """
    check_file(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"cannot be read ({error.strerror})", where=str(path), fix="Check its rights"
        ) from None
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError("the file is UTF-16", where=str(path), fix="Save it as UTF-8")
    nul = data.find(b"\0")
    if nul >= 0:
        what = f"a NUL byte (byte {nul}): binary, or UTF-16 without a mark"
        raise DataError(what, where=_line(path, data, nul), fix="Save it as UTF-8 text")
    start = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
    try:
        return data[start:].decode("utf-8")
    except UnicodeDecodeError as error:
        at = start + error.start
        what = f"not UTF-8: byte 0x{data[at]:02x} at position {at}"
        raise DataError(what, where=_line(path, data, at), fix="Save it as UTF-8") from None


def read_lines(path: Path) -> tuple[list[str], list[int]]:
    """The lines of a plain text file that hold something, and their numbers from 1.

    Raises:
        DataError: see ``read_utf8``; also no such line.
    """
    lines = [(i, line.rstrip("\r")) for i, line in enumerate(read_utf8(path).split("\n"), 1) if line.strip()]
    if not lines:
        raise DataError("the file has no texts", where=str(path), fix="Write one text a line")
    return [line for _, line in lines], [i for i, _ in lines]


def count_lines(path: Path) -> int:
    """How many lines a plain text file has, empty ones included; a last one need not end.

    Raises:
        DataError: see ``read_utf8``.
    """
    text = read_utf8(path)
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


def _line(path: Path, data: bytes, position: int) -> str:
    line = data.count(b"\n", 0, position) + 1
    return f"{path}, line {line}"


# --- CSV and TSV ------------------------------------------------------------------------------


def _read_delimited(path: Path, refuse: Refuse) -> Table:
    text = read_utf8(path)
    header = text[: text.find("\n")] if "\n" in text else text
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=header.count)
    names: list[str] = []
    records: list[list[str]] = []
    rows: list[int] = []
    row = 0
    before = csv.field_size_limit(MAX_CELL)
    try:
        for row, record in enumerate(
            csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), 1
        ):
            if not names:
                names = [name.strip() for name in record]
            elif record and len(record) != len(names):
                error = DataError(
                    f"{len(record)} fields where the header has {len(names)}",
                    where=f"{path}, row {row}",
                    fix="Put a text that holds the separator or a line break into double quotes",
                )
                refuse(error, row)
            elif record:  # a blank line is no record, yet it counts as a row
                records.append(record)
                rows.append(row)
    except csv.Error as error:
        what = (
            "a double quote is never closed" if "end of data" in str(error) else f"broken quoting ({error})"
        )
        raise DataError(
            what, where=f"{path}, row {row + 1}", fix='Write a quote inside a text as ""'
        ) from None
    finally:
        csv.field_size_limit(before)
    _check_names(names, f"{path}, row 1")
    place = {name: i for i, name in enumerate(names)}
    return Table(str(path), tuple(names), rows, lambda name: [r[place[name]] for r in records], typed=False)


def _check_names(names: Sequence[str], where: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"column {twice[0]!r} stands there twice", where=where, fix="Rename one of them")


# --- JSONL and JSON ---------------------------------------------------------------------------


def _read_jsonl(path: Path, refuse: Refuse) -> Table:
    text = read_utf8(path)
    if path.suffix.lower() == ".json" and text.lstrip().startswith("["):
        found = list(enumerate(_parse(text, str(path), "Write one array of objects"), 1))
    else:
        lines = enumerate(text.split("\n"), 1)  # not splitlines: a text may hold U+2028
        found = []
        for row, line in lines:
            try:
                found += [(row, _parse(line, f"{path}, row {row}"))] if line.strip() else []
            except DataError as error:
                refuse(error, row)
    names: dict[str, None] = {}  # a set in order of appearance
    for row, record in found:
        if isinstance(record, dict):
            names |= dict.fromkeys(record)
        else:
            what = DataError(
                "not a JSON object", where=f"{path}, row {row}", fix='Write {"text": ...} a line'
            )
            refuse(what, row)
    found = [(row, record) for row, record in found if isinstance(record, dict)]

    def read(name: str) -> list[Any]:
        for row, record in found:
            if name not in record and refuse is _stop:
                raise DataError(f"no {name!r} here", where=f"{path}, row {row}", fix="Give every row the key")
        return [record.get(name) for _, record in found]

    return Table(str(path), tuple(names), [row for row, _ in found], read)


def _parse(text: str, where: str, fix: str = "Write one JSON object a line") -> Any:
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except RecursionError:
        raise DataError("nested too deeply", where=where, fix="Write one flat object a line") from None
    except ValueError as error:
        raise DataError(f"not JSON ({error})", where=where, fix=fix) from None


# --- Parquet ----------------------------------------------------------------------------------


def _read_parquet(path: Path, refuse: Refuse) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_file(path)
    try:
        file = pq.ParquetFile(path)
        schema, meta = file.schema_arrow, file.metadata
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"not a Parquet file ({_first_line(error)})", where=str(path), fix="Write it anew"
        ) from None
    if sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups)) > MAX_BYTES:
        raise DataError(f"larger than {MAX_BYTES >> 30} GB", where=str(path), fix="Split the file")
    _check_names(schema.names, str(path))

    def read(name: str) -> list[Any]:
        try:
            column = file.read(columns=[name]).column(0)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(
                f"column {name!r} is damaged ({_first_line(error)})",
                where=str(path),
                fix="Write the file anew",
            ) from None
        try:
            return column.to_pylist()
        except UnicodeDecodeError:
            return _decode_rows(column.cast(pa.large_binary()).to_pylist(), path)

    class_names = _huggingface_class_names((schema.metadata or {}).get(b"huggingface", b"{}"))
    return Table(str(path), tuple(schema.names), range(1, meta.num_rows + 1), read, class_names=class_names)


def _decode_rows(values: list[bytes | None], path: Path) -> list[str | None]:
    decoded = []
    for row, value in enumerate(values, 1):
        try:
            decoded.append(None if value is None else value.decode())
        except UnicodeDecodeError as error:
            raise DataError(
                f"not UTF-8 ({error.reason} at byte {error.start})",
                where=f"{path}, row {row}",
                fix="Write the column as UTF-8",
            ) from None
    return decoded


def _huggingface_class_names(metadata: bytes) -> dict[str, tuple[str, ...]]:
    """Column -> class names as the ``datasets`` library notes them in a Parquet schema."""
    try:
        features = json.loads(metadata)["info"]["features"]
        labels = {name: f["names"] for name, f in features.items() if f.get("_type") == "ClassLabel"}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}  # another tool's note under the same key is no reason to refuse the table
    return {name: tuple(map(str, names)) for name, names in labels.items()}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


READERS: dict[str, Callable[[Path, Refuse], Table]] = {
    ".csv": _read_delimited,
    ".tsv": _read_delimited,
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".json": _read_jsonl,
    ".parquet": _read_parquet,
}
