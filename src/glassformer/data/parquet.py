"""Reader of Parquet columns with bounded memory.

A file of two kilobytes may expand to gigabytes, for instance if a page repeats one text a million times. So
the page headers are checked before a page is decompressed. Texts are read as dictionary indices, and equal
texts share one string.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from glassformer.data.files import (
    LIMIT_VARIABLE,
    MAX_EXPANSION,
    check_file,
    memory_limit,
    memory_limit_fix,
    open_file,
)
from glassformer.errors import DataError, MalformedFileError, NotUtf8Error, TooLargeError

# --- sizes in page headers ------------------------------------------------------------------------
# A page is decompressed to the size in its header, so all headers of a column are read first. The sizes in
# the footer of the file may be wrong, since no reader checks them. A header is a struct in Thrift's compact
# protocol (apache/parquet-format, ``parquet.thrift``: PageHeader).

MAX_HEADER = 1 << 24  # bytes of one header, which may include statistics
MAX_PAGES = 1 << 20  # pages of one column in one row group
_MAX_DEPTH = 8  # maximum nesting of structs
_DICTIONARY_HEADER = 7  # number of the field of PageHeader with a dictionary page header
# Number of the field of PageHeader with a data page header (V1, V2) -> its field with the encoding.
_DATA_HEADERS = {5: 2, 8: 4}
_NUM_VALUES = 1  # field of a data page header
# Encodings of byte arrays: 0 plain, 2 and 8 dictionary indices, 7 prefixes of the previous value.
PREFIX_ENCODING = 7
DICTIONARY_ENCODINGS = {0, 2, 8}  # encodings that Arrow can return as dictionary arrays
EXPANDING_ENCODINGS = {2, 7, 8}  # encodings that can represent many bytes by a few


class PagesError(ValueError):
    """The page headers of a column are invalid."""


@dataclass
class Pages:
    """Decompressed sizes of the pages of a column."""

    values: int = 0  # number of values in data pages
    total: int = 0  # bytes of all pages
    largest: int = 0  # bytes of the largest page
    dictionary: int = 0  # bytes of the largest dictionary page
    encodings: set[int] = field(default_factory=set)  # of data pages


def add_chunk(pages: Pages, file: BinaryIO, start: int, length: int) -> None:
    """Add the sizes of the pages at bytes ``start`` to ``start + length`` of a file to ``pages``."""
    position, end = start, start + length
    for _ in range(MAX_PAGES):
        if position >= end:
            return
        header_size, header = _read_header(file, position, end)
        size, compressed_size = (_nonnegative(header, field, "a page without a size") for field in (2, 3))
        for kind, encoding in _DATA_HEADERS.items():
            if kind in header:
                data_header = header[kind] if isinstance(header[kind], dict) else {}
                pages.values += _nonnegative(data_header, _NUM_VALUES, "a page without a number of values")
                pages.encodings.add(data_header.get(encoding, -1))
        if _DICTIONARY_HEADER in header:
            pages.dictionary = max(pages.dictionary, size)
        pages.total += size
        pages.largest = max(pages.largest, size)
        position += header_size + compressed_size
    raise PagesError(f"more than {MAX_PAGES:,} pages")


def _nonnegative(fields: dict[int, Any], field: int, problem: str) -> int:
    """The non-negative integer in a field of a header; raise PagesError with ``problem`` otherwise."""
    value = fields.get(field)
    if not isinstance(value, int) or value < 0:
        raise PagesError(problem)
    return value


def _read_header(file: BinaryIO, position: int, end: int) -> tuple[int, dict[int, Any]]:
    """The number of bytes and the fields of the header at a position."""
    size = 256
    while True:
        file.seek(position)
        raw = file.read(min(size, MAX_HEADER, end - position))
        parser = _CompactParser(raw)
        try:
            fields = parser.struct(0)
            return parser.position, fields
        except IndexError:  # the header is longer than the bytes read
            if len(raw) < size or size >= MAX_HEADER:
                raise PagesError("a page whose header does not end") from None
            size *= 16


class _CompactParser:
    """A parser of Thrift's compact protocol: reads integers and structs, and skips other values."""

    def __init__(self, raw: bytes):
        self.raw, self.position = raw, 0

    def struct(self, depth: int) -> dict[int, Any]:
        if depth > _MAX_DEPTH:
            raise PagesError("a header nested too deeply")
        fields: dict[int, Any] = {}
        field = 0
        while head := self.byte():  # 4 bits: increment of the field number (0: it follows); 4 bits: type
            step, kind = head >> 4, head & 15
            field = field + step if step else self.number()
            fields[field] = self.value(kind, depth)
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):  # true and false
            return kind == 1
        if kind == 3:
            return self.byte()
        if kind in (4, 5, 6):
            return self.number()
        if kind == 7:  # a double
            return self.skip(8)
        if kind == 8:  # bytes
            return self.skip(self.varint())
        if kind in (9, 10):  # a list or a set
            head = self.byte()
            count, inner = head >> 4, head & 15
            for _ in range(self.varint() if count == 15 else count):
                # booleans in a list take one byte each
                self.byte() if inner in (1, 2) else self.value(inner, depth + 1)
            return None
        if kind == 12:
            return self.struct(depth + 1)
        raise PagesError(f"a header with a field of kind {kind}")

    def byte(self) -> int:
        self.position += 1
        return self.raw[self.position - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise PagesError("a number without an end")

    def number(self) -> int:
        value = self.varint()  # zigzag: 0, -1, 1, -2 ... are written as 0, 1, 2, 3 ...
        return (value >> 1) ^ -(value & 1)

    def skip(self, count: int) -> None:
        self.position += count
        if self.position > len(self.raw):
            raise IndexError


# --- columns --------------------------------------------------------------------------------------

NO_SIZE_LIMIT = 1 << 62
BATCH_BYTES = 64 << 20  # decompressed bytes of one batch of rows
BATCH_ROWS = 65_536  # maximum number of rows of a batch
MIN_ROWS_LIMIT = 1 << 24  # maximum number of rows of a small file; the limit of others grows with their size
BYTE_ARRAY = "BYTE_ARRAY"  # Parquet's name for values of any length
match_partition = re.compile(r"([^=]+)=(.*)").fullmatch  # name of a partition folder: column=value
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_POINTER = 8  # bytes per element of a Python list


def open_parquet(path: str | Path, *leaves: str) -> Any:
    """Open a Parquet file and read its footer.

    Args:
        leaves: paths of leaf columns with byte arrays, which are read as dictionary arrays.

    Raises:
        DataError: the file is missing, not regular, or not Parquet (encrypted, truncated, another format).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_file(Path(path), NO_SIZE_LIMIT)  # the size is checked per column
    try:
        return pq.ParquetFile(path, read_dictionary=list(leaves) or None, buffer_size=1 << 20)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        what, fix = f"not a Parquet file ({first_line(error).rstrip('.')})", "Write it again as Parquet"
        with open(path, "rb") as file:
            start = file.read(4096)
        if start.strip() and start[:4] != b"PAR1" and start.isascii():
            what, fix = "not a Parquet file: it looks like text", "If it is CSV, rename it to .csv"
        raise MalformedFileError(what, where=str(path), fix=fix) from None


def partition_values(path: str | Path) -> dict[str, str | None]:
    """Column -> value, from the names of the partition folders (``label=good``) around a file."""
    values = []
    for folder in Path(path).parents:
        if (match := match_partition(folder.name)) is None:
            break
        values.append((unquote(match[1]), None if match[2] == NULL_PARTITION else unquote(match[2])))
    return dict(reversed(values))


def check_rows(path: str | Path, file: Any) -> int:
    """The number of rows; raise DataError if it is inconsistent or too large."""
    meta = file.metadata
    groups = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
    size = os.stat(path).st_size
    if sum(groups) != meta.num_rows or any(count < 0 for count in groups):
        what = f"the footer says {meta.num_rows:,} rows, its row groups {sum(groups):,}"
        raise _damaged_error(path, what)
    if meta.num_rows > max(MIN_ROWS_LIMIT, MAX_EXPANSION * size) and not os.environ.get(LIMIT_VARIABLE):
        what = f"{meta.num_rows:,} rows in {size:,} bytes"
        raise TooLargeError(what, where=str(path), fix=memory_limit_fix(path, _POINTER * meta.num_rows))
    return meta.num_rows


def read_column(path: str | Path, column: str) -> list[Any]:
    """All values of a column; equal texts of a batch share one string.

    Raises:
        DataError: the column is damaged, of an unsupported type, not UTF-8 (the message has the row), or
            expands beyond ``files.memory_limit``.
    """
    limit, memory = memory_limit(os.stat(path).st_size), 0
    values: list[Any] = []
    for batch in read_batches(path, column, limit=limit):
        memory += expanded_size(batch) + _POINTER * len(batch)
        if memory > limit:
            raise _too_large_error(path, column, memory, limit)
        values += to_list(batch, path, len(values))
    return values


def _too_large_error(path: str | Path, column: str, memory: int, limit: int) -> DataError:
    size = os.stat(path).st_size
    what = f"column {column!r} expands to more than {limit >> 20:,} MB, from a file of {size:,} bytes"
    return TooLargeError(what, where=str(path), fix=memory_limit_fix(path, memory))


def read_batches(
    path: str | Path, column: str, groups: Sequence[int] | None = None, *, limit: int | None = None
) -> Iterator[Any]:
    """Iterate over a column in batches of rows, as Arrow arrays; texts are dictionary arrays if possible.

    Args:
        groups: numbers of the row groups to read; None: all.
        limit: maximum decompressed size of all pages in bytes; None: limit only the size of each page.
    """
    import pyarrow as pa

    file = open_parquet(path)
    check_rows(path, file)
    groups = range(file.metadata.num_row_groups) if groups is None else groups
    pages = _column_pages(path, file, column, groups)
    rows = sum(file.metadata.row_group(i).num_rows for i in groups)
    file_limit = max(limit or 0, memory_limit(os.stat(path).st_size))
    leaves = [leaf for _, leaf in _leaves(file, column)]
    value_size = max((leaf.length for leaf in leaves), default=0)  # bytes of fixed-length values
    max_entry = pages.largest if PREFIX_ENCODING in pages.encodings else pages.dictionary
    are_lists = any(leaf.max_repetition_level for leaf in leaves)
    is_struct = len(leaves) != 1 or not (are_lists or leaves[0].path == column)
    texts = [leaf.path for leaf in leaves if not is_struct and leaf.physical_type == BYTE_ARRAY]
    if not pages.encodings <= DICTIONARY_ENCODINGS:
        texts = []
    if are_lists:  # a row may have any number of values, so the whole column must fit
        limit, value_size = limit or file_limit, value_size if texts else max(value_size, max_entry)
    if limit is not None and (memory := max(pages.total, (_POINTER + value_size) * pages.values)) > limit:
        raise _too_large_error(path, column, memory, limit)
    if max(pages.largest, value_size) > file_limit:
        raise _too_large_error(path, column, pages.largest, file_limit)
    row_size = max(pages.total // max(rows, 1), value_size, 1)
    if not texts and pages.encodings & EXPANDING_ENCODINGS:
        row_size = max(row_size, max_entry)  # each value may have this length
    batch_rows = max(1, min(BATCH_ROWS, BATCH_BYTES // row_size))
    file = open_parquet(path, *texts)
    # Arrow cannot combine lists with the dictionaries of two row groups, so each group is read separately.
    group_lists = [[group] for group in groups] if are_lists else [list(groups)]
    try:
        for group_list in group_lists:
            for batch in file.iter_batches(batch_rows, row_groups=group_list, columns=[column]):
                yield batch.column(batch.schema.get_field_index(column))
    except (pa.ArrowException, OSError, ValueError, OverflowError, KeyError) as error:
        raise _damaged_error(path, f"column {column!r} is damaged ({first_line(error)})") from None


def _leaves(file: Any, column: str) -> list[tuple[int, Any]]:
    """The numbers and schemas of the leaf columns of a column: itself, or the fields of a struct."""
    leaves = ((i, file.schema.column(i)) for i in range(len(file.schema)))
    return [(i, leaf) for i, leaf in leaves if leaf.path == column or leaf.path.startswith(f"{column}.")]


def _column_pages(path: str | Path, file: Any, column: str, groups: Sequence[int]) -> Pages:
    """Sizes of the pages of a column in the row groups ``groups``, from the page headers."""
    total, leaves, has_lists = Pages(), _leaves(file, column), False
    with open_file(Path(path)) as raw:
        for group in groups:
            metadata = file.metadata.row_group(group)
            if not metadata.num_rows:  # an empty row group has no pages
                continue
            for number, leaf in leaves:
                chunk = metadata.column(number)
                start = chunk.data_page_offset
                if chunk.has_dictionary_page and 0 < (first := chunk.dictionary_page_offset or 0) < start:
                    start = first
                num_before = total.values
                try:
                    add_chunk(total, raw, start, chunk.total_compressed_size)
                except (OSError, ValueError) as error:
                    raise _damaged_error(path, f"column {column!r} is damaged ({error})") from None
                has_lists = has_lists or leaf.max_repetition_level != 0
                num_values, rows = total.values - num_before, metadata.num_rows
                if not has_lists and num_values != rows:
                    what = f"column {column!r} has {num_values:,} values in {rows:,} rows"
                    raise _damaged_error(path, what)
    return total


def _damaged_error(path: str | Path, what: str) -> DataError:
    return MalformedFileError(what, where=str(path), fix="Write the file again")


def expanded_size(array: Any) -> int:
    """Bytes of an array if every row had its own copy of its text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_struct(array.type):
        return sum(expanded_size(array.field(i)) for i in range(array.type.num_fields))
    if pa.types.is_dictionary(array.type):
        if not _is_bytes(array.dictionary.type):
            return array.nbytes
        lengths = pc.binary_length(array.dictionary)  # type: ignore[attr-defined]  # made at run time
        lengths = lengths.take(array.indices).cast(pa.int64())
        return pc.sum(lengths).as_py() or 0  # type: ignore[attr-defined]  # made at run time
    return array.nbytes


def _is_bytes(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(test(kind) for test in tests)


def to_list(array: Any, path: str | Path, first_row: int) -> list[Any]:
    """Convert an array to Python objects; equal texts share one string.

    Args:
        first_row: index of the array's first row in the file, for messages.
    """
    import numpy as np
    import pyarrow as pa

    if pa.types.is_list(array.type) and pa.types.is_dictionary(array.type.value_type):
        return _to_lists(array, path, first_row)
    if not pa.types.is_dictionary(array.type) or not _is_bytes(array.dictionary.type):
        return array.to_pylist()
    indices = array.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    used, inverse = np.unique(indices, return_inverse=True)
    distinct = array.dictionary.take(pa.array(used[used >= 0]))
    num_null = len(used) - len(distinct)  # 1 if used[0] is -1, the index of missing values; otherwise 0
    try:
        values = distinct.to_pylist()
    except UnicodeDecodeError:
        values = []
        for i, raw in enumerate(distinct.cast(pa.large_binary()).to_pylist()):
            try:
                values.append(raw.decode())
            except UnicodeDecodeError as error:
                where = f"{path}, row {first_row + int(np.argmax(inverse == i + num_null)) + 1}"
                what = f"not UTF-8 ({error.reason} at byte {error.start})"
                raise NotUtf8Error(what, where=where, fix="Write the column as UTF-8") from None
    values = [None] * num_null + values
    return [values[i] for i in inverse.tolist()]


def _to_lists(array: Any, path: str | Path, first_row: int) -> list[Any]:
    """Convert an array of lists of texts; equal texts share one string."""
    import pyarrow.compute as pc

    lengths = pc.list_value_length(array).to_pylist()  # type: ignore[attr-defined]  # made at run time
    try:
        flat = to_list(array.flatten(), path, first_row)
    except DataError as error:  # its row number counts values of lists, not rows
        raise error.replace(where=str(path)) from None
    ends = itertools.accumulate(length or 0 for length in lengths)
    slices = zip(lengths, ends, strict=True)
    return [None if length is None else flat[end - length : end] for length, end in slices]


def first_line(error: Exception) -> str:
    """The first line of an error message, shortened."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def hub_class_names(metadata: bytes) -> dict[str, tuple[str, ...]]:
    """Column -> class names, which the ``datasets`` library stores in the Parquet schema."""
    try:
        features = json.loads(metadata)["info"]["features"]
        elements = {name: _element_type(feature) for name, feature in features.items()}
        labels = {name: e["names"] for name, e in elements.items() if e.get("_type") == "ClassLabel"}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}  # another tool may use the same key
    return {name: tuple(map(str, names)) for name, names in labels.items()}


def _element_type(feature: Any) -> dict[str, Any]:
    """The element type of a list feature of ``datasets``; other features unchanged."""
    if isinstance(feature, list):
        return feature[0] if len(feature) == 1 else {}
    return feature.get("feature", feature) if feature.get("_type") in ("Sequence", "List") else feature
