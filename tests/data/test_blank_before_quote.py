"""Blanks between a separator and a quote: no part of a cell where the rows show it."""

from pathlib import Path

import pytest

from glassformer.data.sources import load_text_dataset
from glassformer.data.tables import StreamedTable, ignore_error, read_table
from glassformer.errors import DataError

ROWS = [
    ("a film, good", "pos"),
    ('she said "no", twice', "neg"),
    ("plain", "pos"),
    ("two\nlines; here", "neg"),
]


def cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def write(path: Path, sign: str, blanks: str, extra: str = "") -> Path:
    lines = [f"text{sign}label", *(f"{cell(text)}{sign}{blanks}{cell(label)}" for text, label in ROWS)]
    path.write_text("\n".join(lines) + "\n" + extra)
    return path


def read(path: Path, refuse=None) -> list[tuple[str, str]]:
    table = read_table(path, refuse) if refuse else read_table(path)
    return list(zip(table.read("text"), table.read("label"), strict=True))


@pytest.mark.parametrize("blanks", ["", " ", "   "])
@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
def test_cells_are_as_without_the_blank(tmp_path, sign, blanks):
    path = write(tmp_path / "t.csv", sign, blanks)
    assert read(path) == ROWS
    assert [tuple(row.values()) for _, row in StreamedTable(path, ignore_error).rows()] == ROWS
    assert load_text_dataset(path).splits["train"].labels == [label for _, label in ROWS]


def test_a_quoted_text_that_holds_the_separator(tmp_path):
    (tmp_path / "t.csv").write_text('label,text\npos, "b, c"\nneg, d\n')
    assert read(tmp_path / "t.csv") == [("b, c", "pos"), ("d", "neg")]


def test_other_ragged_rows_change_nothing(tmp_path):
    path = write(tmp_path / "t.csv", ",", " ", "one,two,three\n")
    with pytest.raises(
        DataError, match=r"row 6: 3 fields where the header has 2\. Put a text that contains the separator"
    ):
        read(path)
    assert read(path, ignore_error) == ROWS


def test_where_the_rows_do_not_agree_the_blank_is_named(tmp_path):
    (tmp_path / "t.csv").write_text('text,label\nhe said, "well, yes",pos\nfine,neg\n')
    with pytest.raises(
        DataError, match=r"row 2: 4 fields where .*Remove the blanks between a separator and an opening quote"
    ):
        read(tmp_path / "t.csv")


def test_a_separator_and_a_quote_within_a_quoted_text(tmp_path):
    """Then blanks at the beginning of other cells stay."""
    (tmp_path / "t.csv").write_text('text,note\n"he said, ""well"", yes", free\nfine, more\n')
    table = read_table(tmp_path / "t.csv")
    assert table.read("text") == ['he said, "well", yes', "fine"]
    assert table.read("note") == [" free", " more"]


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
@pytest.mark.parametrize(("before", "behind"), [(" ", " "), ("", " "), ("  ", "   ")])
def test_blanks_behind_a_closing_quote(tmp_path, sign, before, behind):
    path = tmp_path / "t.csv"
    rows = [*ROWS, (f'a "" {sign} "b"\n"c" {sign} d', "neg")]
    lines = [
        f"{cell(text)}{behind}{sign}{before}{cell(label)}{behind}"
        for text, label in [("text", "label"), *rows]
    ]
    path.write_bytes("\r\n".join(lines).encode())
    assert read(path) == rows
    assert [tuple(row.values()) for _, row in StreamedTable(path, ignore_error).rows()] == rows
    assert load_text_dataset(path).splits["train"].labels == [label for _, label in rows]


def test_blanks_behind_a_quote_are_named_where_the_rows_do_not_fit(tmp_path):
    (tmp_path / "t.csv").write_text('text,label\n"well, yes" ,"pos" \n"fine" , "good" , "neg"\n')
    with pytest.raises(DataError, match=r"row 2: .*Remove the blanks between a closing quote") as error:
        read(tmp_path / "t.csv")
    assert "--quoting" not in str(error.value)
