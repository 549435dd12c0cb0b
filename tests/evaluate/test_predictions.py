"""predictions.csv: safe in a spreadsheet, unchanged when read back, whole or absent."""

import csv
import os
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import write_predictions

from glassformer.checkpoints import files
from glassformer.data.spreadsheet import MAX_CELL, csv_plain, csv_safe
from glassformer.errors import DataError, GlassformerError, ShapeError
from glassformer.evaluate import predictions
from glassformer.evaluate.predictions import read_predictions

INSIDE = """hello;=cmd|' /C calc'!A0<>hello; =1+1<>hello\t+1<>one\r\n@SUM(A1)<>x;"=1"<>x;'=1<>x;\u201c=1<>a;;\uff1d1<>
 =1<>"=1""".replace("<>\n", "<>").split("<>")
PIECES = st.lists(
    st.sampled_from([";", "\t", "\n", " ", '"', "'", "=", "-", "a", "\uff0b", ","]), max_size=12
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
ATTACKS = """=1+1<>+cmd|' /C calc'!A0<>-2+3<>@SUM(A1)<>\t=1<>\r=1<>\n=1<>'=1<>\uff1d1<>="x"\n""".split("<>")


@given(st.one_of(TEXT, PIECES.map("".join), st.sampled_from(ATTACKS + INSIDE), TEXT.map("'=".__add__)))
def test_guard_comes_off_unambiguously(text):
    assert csv_plain(csv_safe(text)) == text


@pytest.mark.parametrize("text", ATTACKS)
def test_no_cell_begins_like_a_formula(text):
    assert csv_safe(text).startswith("'")


@given(st.one_of(st.sampled_from(INSIDE), PIECES.map("".join)))
def test_no_part_between_semicolons_tabs_or_lines_begins_like_a_formula(text):
    safe = csv_safe(text)
    if re.fullmatch(r"-?\d*", safe):
        return
    for part in re.split(r"[;\t\r\n]", safe):
        assert not part.lstrip(' "\u201c').startswith(("=", "+", "-", "@", "\uff1d", "\uff0b")), (text, safe)


def test_a_text_of_separators_takes_no_time():
    text = ";\t \n" * 500_000
    assert csv_plain(csv_safe(text)) == text
    assert csv_safe("'" * 200_000) == "'" * 200_000


def test_names_and_texts_come_back_whole(tmp_path, monkeypatch):
    classes = ["a;=1+1", "b\t@SUM(A1)"]
    write_predictions(tmp_path / "p.csv", ["x"], [[0.75, 0.25]], classes)
    header, row = (tmp_path / "p.csv").read_text().splitlines()
    assert ";=" not in header + row
    assert "\t@" not in header + row
    (found,) = read_predictions(tmp_path / "p.csv")
    assert found.probabilities == {"a;=1+1": 0.75, "b\t@SUM(A1)": 0.25}
    assert found.predicted == "a;=1+1"
    texts = ["a\r\nb", "c\rd", "e\nf", "g\u2028h"]
    write_predictions(tmp_path / "p.csv", texts, [[0.9, 0.1]] * 4, [0, 1])
    assert [row.text for row in read_predictions(tmp_path / "p.csv")] == texts
    sizes = []
    monkeypatch.setattr(os, "fsync", lambda handle: sizes.append(os.fstat(handle).st_size))
    write_predictions(tmp_path / "p.csv", ["a"], [[0.9, 0.1]], [0, 1])
    assert sizes == [(tmp_path / "p.csv").stat().st_size]


def test_numbers_and_harmless_text_stay_as_they_are():
    cells = ["-1", "+2.5", "1e-5", -1, "fine", "it's", "", None, "a=b"]
    assert [csv_safe(c) for c in cells] == ["-1", "+2.5", "1e-5", "-1", "fine", "it's", "", "", "a=b"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(TEXT, st.sampled_from(["=neg", "pos"])), min_size=1, max_size=5))
def test_written_rows_read_back_equal(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "predictions.csv"
    texts, labels = map(list, zip(*rows, strict=True))
    p = np.random.default_rng(0).dirichlet([1, 1], len(texts))
    numbers = range(7, 7 + len(texts))
    write_predictions(path, texts, p, ["=neg", "pos"], labels=labels, rows=numbers, split="test")
    got = list(read_predictions(path))
    assert [g.text for g in got] == texts
    assert [g.label for g in got] == labels
    assert [g.predicted for g in got] == [["=neg", "pos"][k] for k in p.argmax(1)]
    assert [g.probability for g in got] == pytest.approx(p.max(1).tolist(), abs=1e-5)
    assert [g.probabilities["pos"] for g in got] == pytest.approx(p[:, 1].tolist(), abs=1e-5)
    assert [(g.split, g.row) for g in got] == [("test", str(7 + i)) for i in range(len(texts))]
    assert [g.is_wrong for g in got] == [g.label != g.predicted for g in got]


def test_text_alone_needs_no_labels(tmp_path):
    path = tmp_path / "p.csv"
    write_predictions(path, ["x" * 200_000, "b"], [[0.9, 0.1], [0.4, 0.6]], [0, 1], predicted=[0, 0])
    long, other = read_predictions(path)
    assert (len(long.text), long.label, long.is_wrong) == (200_000, "", False)
    assert (other.predicted, other.probability) == ("0", 0.4)
    with open(path, newline="", encoding="utf-8") as file:
        csv.field_size_limit(MAX_CELL)
        assert next(csv.reader(file)) == [*predictions.HEADER, "p:0", "p:1"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "p.csv"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(GlassformerError, match="disk full"):
        write_predictions(path, ["a"], [[1.0, 0.0]], ["x", "y"])
    assert [f.name for f in tmp_path.iterdir()] == ["p.csv"]
    assert path.read_text() == "old"


HEADER = b"split,row,text,label,predicted,probability,p:a\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text,label\nx,y\n", "header"),
        (b"", "header"),
        (HEADER + b"t,1,x,a,a,0.5,0.5\nt,1,x\n", "line 3"),
        (HEADER + b"t,1,x,a,a,high,0.5\n", "line 2"),
        (HEADER + b"t,1,\xff,a,a,0.5,0.5\n", "UTF-8"),
    ],
)
def test_damaged_files_are_named(tmp_path, content, message):
    path = tmp_path / "p.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(read_predictions(path))


def test_missing_file_and_wrong_lengths(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        list(read_predictions(tmp_path / "none.csv"))
    with pytest.raises(ShapeError, match="2 texts"):
        write_predictions(tmp_path / "p.csv", ["a", "b"], [[1.0, 0.0]], ["x", "y"], rows=[2, 3])
    with pytest.raises(ShapeError, match="labels"):
        write_predictions(tmp_path / "p.csv", ["a"], [[1.0, 0.0]], ["x", "y"], labels=[])


@pytest.mark.parametrize("cells", ["test,3,a,b,b,1", "test,3,a,b,b,1,1,0,0", "test"])
def test_a_row_of_another_width_is_named(tmp_path, cells):
    path = tmp_path / "p.csv"
    write_predictions(path, ["two\nlines"], [[0.9, 0.1]], [0, 1], split="test")
    path.write_text(path.read_text(encoding="utf-8") + cells + "\n", encoding="utf-8")
    rows = read_predictions(path)
    assert next(rows).text == "two\nlines"
    width = cells.count(",") + 1
    with pytest.raises(DataError, match=rf"p.csv: line 4: {width} cells in a table of 8 columns"):
        next(rows)
