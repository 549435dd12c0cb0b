"""Tables that are not UTF-8: what is said of them, and how they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from glassformer.cli.rows import read_rows
from glassformer.data.files import check_utf8, read_utf8, text_lines
from glassformer.data.tables import StreamedTable, read_table, stop
from glassformer.errors import ConfigError, DataError
from glassformer.process import ENCODING

ROWS = ["key,text,note", "a1,plain,x", "a2,café – “très bon”,y", 'a3,"two\nlines",z']


def table(path: Path, encoding: str, rows: list[str] = ROWS) -> Path:
    path.write_bytes("\r\n".join(rows).encode(encoding))
    return path


@pytest.mark.parametrize("name", ["cp1252", "utf-16", "utf-16-le", "mac_roman"])
@pytest.mark.parametrize("read", ["table", "streamed", "lines", "whole"])
def test_a_table_in_another_encoding_is_read_as_its_utf8_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, read: str
):
    def found(path: Path) -> object:
        if read == "table":
            return [read_table(path).read(column) for column in ("key", "text", "note")]
        if read == "streamed":
            return list(StreamedTable(path, stop).rows())
        return list(text_lines(path, newline="")) if read == "lines" else read_utf8(path)

    monkeypatch.setenv(ENCODING, name)
    there, copy = table(tmp_path / "a.csv", name), table(tmp_path / "b.csv", "utf-8-sig")
    check_utf8(there)
    assert found(there) == found(copy)  # and what is UTF-8 is read as that


@pytest.mark.parametrize(
    ("content", "fix"),
    [
        ("text\ncafé – bon\n".encode("cp1252"), "--encoding cp1252"),
        ("text\ncafé\n".encode("utf-16"), "--encoding utf-16"),
        ("text\ncafé, déjà vu, naïf\n".encode() + b"caf\xe9\n", r"\. Save it as UTF-8"),
        (b"text\n\x81\x8d\n", r"\. Save it as UTF-8"),
    ],
    ids=["cp1252", "utf-16", "damaged UTF-8", "none that shows"],
)
def test_the_message_names_the_encoding_that_reads_it(tmp_path: Path, content: bytes, fix: str):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(DataError, match=fix):
        read_table(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("name", "what"),
    [("cp1253x", "no encoding"), ("rot13", "no encoding"), ("utf-7", "is not told from UTF-8")],
)
def test_a_wrong_encoding_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, what: str
):
    monkeypatch.setenv(ENCODING, name)
    with pytest.raises(ConfigError, match=what):
        read_table(table(tmp_path / "a.csv", "cp1252"))


def test_bytes_that_the_named_encoding_lacks_are_refused_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(ENCODING, "cp1252")
    (tmp_path / "a.csv").write_bytes(b"key,text\na1,caf\xe9\na2,\x81\n")
    with pytest.raises(DataError, match="not cp1252"):
        read_rows(tmp_path / "a.csv")
    good, bad = read_rows(tmp_path / "a.csv", skip=True)
    assert (good.text, bad.error, bad.given) == ("café", "not cp1252", {"key": "a2"})


def test_rows_that_cannot_be_used_keep_what_can_be_read_of_them(tmp_path: Path):
    lines = [b"key,text,note", b"a1,caf\xe9,n\xe9", b"a2,one,two,three", b"a3,", b"a4,good,z"]
    (tmp_path / "a.csv").write_bytes(b"\n".join(lines))
    rows = read_rows(tmp_path / "a.csv", "text", skip=True)
    assert [(row.row, row.given["key"], row.given["note"]) for row in rows] == [
        (2, "a1", "n\ufffd"),
        (3, "a2", ""),  # a stray separator moves what stands behind it
        (4, "a3", ""),
        (5, "a4", "z"),
    ]
    assert rows[0].text == "caf\ufffd"
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "caf\xe9", "key": 7}\n{"text": "good", "key": 8}\n')
    assert [row.given for row in read_rows(tmp_path / "a.jsonl", skip=True)] == [{"key": "7"}, {"key": "8"}]
