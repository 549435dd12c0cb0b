"""Where a line ends, at every door that reads lines, and tables that are not UTF-8."""

import io
import json
import sys
from pathlib import Path

import pytest

from glassformer.cli.options import read_stdin
from glassformer.data.files import (
    check_utf8,
    read_lines,
    read_utf8,
    reading,
    split_lines,
    text_lines,
)
from glassformer.data.kinds import detect_kind
from glassformer.data.pairs import load_pairs
from glassformer.data.sources import load_text_dataset
from glassformer.data.tables import StreamedTable, raise_error, read_table
from glassformer.data.tagged import load_tagged
from glassformer.errors import ConfigError, DataError
from glassformer.evaluate.vectors import _lines
from glassformer.inputs.rows import InputRequest, read_rows
from glassformer.inputs.texts import gather_pairs
from glassformer.process import ENCODING_VARIABLE

ENDS = {"LF": "\n", "CR LF": "\r\n", "CR": "\r", "CR CR LF": "\r\r\n"}
every_end = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\rb\rc", ["a", "b", "c"]),
        ("a\r\rb\r", ["a", "", "b"]),
        ("a\rb\rc\n", ["a", "b", "c"]),  # whose last line an editor has ended
        ("a\rb\nc\nd\n", ["a\rb", "c", "d"]),  # a stray CR ends no line
        ("a\r\r\nb\r\r\n", ["a", "b"]),
        ("a\r\nb\rc\r\n", ["a", "b\rc"]),
        ("a\u2028b\u0085c\x0bd\x0ce", ["a\u2028b\u0085c\x0bd\x0ce"]),
        ("", []),
        ("\r", [""]),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_line_ends(tmp_path, text, lines, encoding):
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(encoding))
    assert split_lines(text) == lines
    with reading(encoding if encoding != "utf-8" else None):
        assert [line.rstrip("\r\n") for line in text_lines(path) if line] == lines


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 7])
def test_ends_across_the_pieces_of_a_file(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr("glassformer.data.files._CHUNK", chunk)
    for text in ("ab\r\ncd\r\n\r\ne", "ab\rcd\r\re\r", "ab\r\r\ncd\r\r\n"):
        path = tmp_path / "a.txt"
        path.write_bytes(text.encode())
        check_utf8(path)
        assert [line.rstrip("\r\n") for line in text_lines(path)] == split_lines(text)


@pytest.fixture
def write(put):
    """``write("a.txt", lines, end)``: the path of a file whose lines end so."""
    return lambda name, lines, end: put(name, end.join([*lines, ""]))


@every_end
def test_plain_text(write, monkeypatch, end):
    path = write("a.txt", ["one text", "", "two texts"], end)
    assert read_lines(path) == (["one text", "two texts"], [1, 3])
    assert load_text_dataset(path).splits["train"].texts == ["one text", "two texts"]
    assert [(row.text, row.row) for row in read_rows(path)] == [("one text", 1), ("", 2), ("two texts", 3)]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert read_stdin() == (["one text", "two texts"], [1, 3])


@every_end
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_tables(write, end, name):
    rows = [("a good film", "pos"), ("a bad film", "neg"), ("no film", "neg")]
    if name == "a.jsonl":
        lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    else:
        between = "\t" if name == "a.tsv" else ","
        lines = [between.join(row) for row in [("text", "label"), *rows]]
    path = write(name, lines, end)
    table = read_table(path)
    assert [*zip(table.read("text"), table.read("label"), strict=True)] == rows
    assert [*StreamedTable(path, lambda *_: None).sample().read("label")] == ["pos", "neg", "neg"]
    assert detect_kind(path) == "texts"


@every_end
@pytest.mark.parametrize("name", ["train.conll", "train.txt", "a.conllu"])
def test_conll(write, end, name):
    path = write(name, ["Ann\tB-per", "saw\tO", "", "Rome\tB-loc"], end)
    split = load_tagged(path).splits["train"]
    assert split.words == [["Ann", "saw"], ["Rome"]]
    assert split.tags == [["B-per", "O"], ["B-loc"]]


@every_end
def test_pairs_with_a_tab_and_tests_of_word_vectors(write, end):
    path = write("a.txt", ["one\ttwo", "three\tfour"], end)
    pairs = [row.text.sides for row in gather_pairs(InputRequest([str(path)]))]
    assert pairs == [("one", "two"), ("three", "four")]
    assert _lines(write("b.txt", [": capitals", "a b c d"], end)) == [(1, ": capitals"), (2, "a b c d")]


@every_end
def test_translations_line_by_line(write, tmp_path, end):
    write("a.en", ["one", "two", "three"], end)
    write("a.de", ["eins", "zwei", "drei"], "\n")
    split = load_pairs(tmp_path / "a").splits["train"]
    assert (split.source, split.target) == (["one", "two", "three"], ["eins", "zwei", "drei"])


@every_end
@pytest.mark.parametrize("fault", [b"caf\xe9", b"a\x00b"])
def test_a_fault_has_the_number_of_its_line(put, end, fault):
    with pytest.raises(DataError, match=r"a\.txt, line 3: "):
        check_utf8(put("a.txt", end.encode().join([b"one", b"two", fault, b"four"])))


@pytest.mark.parametrize("name", ["utf-32", "utf-16", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_encodings_of_wide_letters_are_named(put, name):
    path = put("a.csv", "text,label\nfilm \u017c,1\nplot,0\n".encode(name))
    with pytest.raises(DataError) as error:
        read_table(path)
    assert error.value.what == f"the file is {name.upper()}"
    assert error.value.fix == f"Read it with --encoding {name}, or save it as UTF-8"
    with reading(name):
        assert read_table(path).read("text") == ["film \u017c", "plot"]


# --- encodings --------------------------------------------------------------------------------------


ROWS = ["key,text,note", "a1,plain,x", "a2,café – “très bon”,y", 'a3,"two\nlines",z']


def table(path: Path, encoding: str) -> Path:
    path.write_bytes("\r\n".join(ROWS).encode(encoding))
    return path


@pytest.mark.parametrize("name", ["cp1252", "utf-16", "utf-16-le", "mac_roman"])
@pytest.mark.parametrize(
    "found",
    [
        lambda path: [read_table(path).read(column) for column in ("key", "text", "note")],
        lambda path: list(StreamedTable(path, raise_error).rows()),
        lambda path: list(text_lines(path, newline="")),
        read_utf8,
    ],
    ids=["table", "streamed", "lines", "whole"],
)
def test_a_table_in_another_encoding_is_read_as_its_utf8_copy(tmp_path, monkeypatch, name, found):
    monkeypatch.setenv(ENCODING_VARIABLE, name)
    there, copy = table(tmp_path / "a.csv", name), table(tmp_path / "b.csv", "utf-8-sig")
    check_utf8(there)
    assert found(there) == found(copy)  # and what is UTF-8 is read as that


@pytest.mark.parametrize(
    ("content", "fix"),
    [
        ("text\ncafé – bon\n".encode("cp1252"), "--encoding cp1252"),
        ("text\ncafé, déjà vu, naïf\n".encode() + b"caf\xe9\n", r"\. Save it as UTF-8"),  # damaged UTF-8
        (b"text\n\x81\x8d\n", r"\. Save it as UTF-8"),  # none that shows
    ],
)
def test_the_message_names_the_encoding_that_reads_it(put, content, fix):
    with pytest.raises(DataError, match=fix):
        read_table(put("a.csv", content))


@pytest.mark.parametrize(
    ("name", "what"),
    [("cp1253x", "no encoding"), ("rot13", "no encoding"), ("utf-7", "cannot be distinguished from UTF-8")],
)
def test_a_wrong_encoding_is_one_clear_line(tmp_path, monkeypatch, name, what):
    monkeypatch.setenv(ENCODING_VARIABLE, name)
    with pytest.raises(ConfigError, match=what):
        read_table(table(tmp_path / "a.csv", "cp1252"))


def test_bytes_that_the_named_encoding_lacks_are_refused_row_by_row(put, monkeypatch):
    monkeypatch.setenv(ENCODING_VARIABLE, "cp1252")
    path = put("a.csv", b"key,text\na1,caf\xe9\na2,\x81\n")
    with pytest.raises(DataError, match="not cp1252"):
        read_rows(path)
    good, bad = read_rows(path, InputRequest([], skip=True))
    assert (good.text, bad.error, bad.other_columns) == ("café", "not cp1252", {"key": "a2"})


def test_rows_that_cannot_be_used_keep_what_can_be_read_of_them(put):
    path = put("a.csv", b"key,text,note\na1,caf\xe9,n\xe9\na2,one,two,three\na3,\na4,good,z")
    rows = read_rows(path, InputRequest([], "text", skip=True))
    assert [(row.row, row.other_columns["key"], row.other_columns["note"]) for row in rows] == [
        (2, "a1", "n\ufffd"),
        (3, "a2", ""),  # a stray separator moves what stands behind it
        (4, "a3", ""),
        (5, "a4", "z"),
    ]
    assert rows[0].text == "caf\ufffd"
    path = put("a.jsonl", b'{"text": "caf\xe9", "key": 7}\n{"text": "good", "key": 8}\n')
    found = read_rows(path, InputRequest([], skip=True))
    assert [row.other_columns for row in found] == [{"key": "7"}, {"key": "8"}]
