"""Tables that ask for more than they are: refused from what their headers say, or read within bounds."""

import os
import socket

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glassformer.data import parquet
from glassformer.data.files import LIMIT_VARIABLE, memory_limit
from glassformer.data.parquet import (
    Pages,
    PagesError,
    add_chunk,
    check_rows,
    open_parquet,
    read_batches,
    read_column,
    to_list,
)
from glassformer.data.sources import load_text_dataset
from glassformer.errors import DataError


def repeated(text: str, rows: int) -> pa.Table:
    """One text in every row; in the file it stands once."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))
    return pa.table({"text": column, "label": [i % 2 for i in range(rows)]})


def varint(value: int, width: int) -> bytes:
    value <<= 1
    out = [(value >> (7 * i)) & 127 for i in range(width)]
    return bytes([b | 128 for b in out[:-1]] + out[-1:])


@pytest.fixture
def bomb(tmp_path):
    """A kilobyte that stands for 610 MB."""
    path = tmp_path / "bomb.parquet"
    pq.write_table(repeated("a " * 500_000, 611), path, compression="zstd")
    assert path.stat().st_size < 2_000
    return path


def test_a_bomb_is_refused_before_it_goes_off(bomb, monkeypatch):
    made = []
    monkeypatch.setattr(parquet, "to_list", lambda *given: made.append(given))
    said = r"column 'text' expands to more than 256 MB.* set GLASSFORMER_TABLE_GB=1"
    with pytest.raises(DataError, match=said):
        load_text_dataset(bomb)
    assert made == []


def test_the_limit_can_be_raised(bomb, monkeypatch):
    monkeypatch.setenv(LIMIT_VARIABLE, "1")
    texts = read_column(bomb, "text")
    assert (len(texts), len(texts[0])) == (611, 1_000_000)
    assert texts[0] is texts[610]  # equal texts are one string
    monkeypatch.setenv(LIMIT_VARIABLE, "much")
    with pytest.raises(DataError, match="'much' is not a number of gigabytes"):
        memory_limit(1)


def test_a_stream_of_a_bomb_shares_its_texts(bomb):
    found = [text for batch in read_batches(bomb, "text") for text in to_list(batch, bomb, 0)]
    assert len(found) == 611
    assert len({id(text) for text in found}) == 1


def test_a_footer_that_says_little_is_not_believed(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "memory_limit", lambda size: 1 << 20)
    path = tmp_path / "a.parquet"
    table = pa.table({"text": ["a " * 1_000_003, "b"], "label": [0, 1]})
    pq.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)
    size = pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size
    path.write_bytes(path.read_bytes().replace(varint(size, 4), varint(999, 4)))
    assert pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size == 999
    with pytest.raises(DataError, match="expands to more than 1 MB"):
        read_column(path, "text")
    with pytest.raises(DataError, match="expands to more than 1 MB"):
        next(read_batches(path, "text"))


def test_prefixes_that_repeat_are_counted_as_they_unfold(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "memory_limit", lambda size: 1 << 22)
    path = tmp_path / "a.parquet"
    options = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    pq.write_table(pa.table({"text": ["a" * 100_003] * 211}), path, **options)
    with pytest.raises(DataError, match="expands to more than 4 MB"):
        read_column(path, "text")


def test_columns_that_nobody_asks_for_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "memory_limit", lambda size: 1 << 20)
    path = tmp_path / "a.parquet"
    junk = repeated("z" * 10_007, 211).rename_columns(["junk", "label"])
    pq.write_table(junk.append_column("text", [["a film"] * 211]), path)
    assert read_column(path, "text") == ["a film"] * 211
    with pytest.raises(DataError, match="'junk' expands"):
        read_column(path, "junk")


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("packed", ["none", "zstd"])
@pytest.mark.parametrize("encoding", [None, "PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_what_is_honest_is_read_as_it_is(tmp_path, version, packed, encoding):
    texts = [None if i % 11 == 3 else f"a film {i % 17} " * (i % 5 + 1) for i in range(1_009)]
    objects = [{"bytes": b"x%d" % i, "path": None} for i in range(1_009)]
    columns = {"text": texts, "n": range(1_009), "o": objects}
    given = {"use_dictionary": encoding is None, "column_encoding": encoding and {"text": encoding}}
    given |= {"row_group_size": 307, "data_page_size": 509}
    given |= {"data_page_version": version, "compression": packed}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path, **given)
    for name, values in columns.items():
        assert read_column(path, name) == list(values)
    assert [x for b in read_batches(path, "text", [1, 2]) for x in to_list(b, path, 0)] == texts[307:921]


def test_headers_of_pages_are_counted(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"text {i}" for i in range(1_009)]}), path, data_page_size=97)
    chunk = pq.read_metadata(path).row_group(0).column(0)
    start = chunk.dictionary_page_offset
    with path.open("rb") as file:
        pages = Pages()
        add_chunk(pages, file, start, chunk.total_compressed_size)
        assert pages.values == 1_009
        assert pages.dictionary > 7_000
        with pytest.raises(PagesError):
            add_chunk(pages, file, start + 1, chunk.total_compressed_size)


def test_more_rows_than_pages_have(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a film"] * 41}), path)
    path.write_bytes(path.read_bytes().replace(varint(41, 1), varint(47, 1)))
    with pytest.raises(DataError, match=r"a\.parquet"):
        read_column(path, "text")


def test_rows_out_of_proportion_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": pa.array([1] * 1_000_003, pa.int8())}), path)
    monkeypatch.setattr(parquet, "MIN_ROWS_LIMIT", 1_000)
    with pytest.raises(DataError, match=r"1,000,003 rows in .* bytes"):
        check_rows(path, open_parquet(path))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json", ".parquet", ".txt"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "socket", "circle", "nowhere"])
def test_what_is_no_plain_file_is_refused_at_once(tmp_path, suffix, kind):
    path = tmp_path / f"a{suffix}"
    if kind == "pipe":
        os.mkfifo(path)  # opening it to read would wait for a writer
    elif kind == "folder":
        path.mkdir()
        (path / "b").mkfifo() if hasattr(path, "mkfifo") else os.mkfifo(path / "train.csv")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    else:
        path.symlink_to({"device": "/dev/zero", "circle": path.name, "nowhere": "gone"}[kind])
    with pytest.raises(DataError):
        load_text_dataset(path)


def test_lists_of_numbers_are_bounded_by_their_values(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "label": [[0] * 1_000_003, [1]]}), path)
    monkeypatch.setattr(parquet, "memory_limit", lambda size: 1 << 22)
    with pytest.raises(DataError, match="'label' expands to more than 4 MB"):
        read_column(path, "label")
