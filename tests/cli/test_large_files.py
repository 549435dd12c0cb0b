"""``predict`` on a large table, read piece by piece: the same answers, rows, columns and errors as all at once."""

import csv
import json
import tracemalloc
from pathlib import Path

import pytest

from glassformer.cli.predictions import Writer
from glassformer.data.column_contents import sampled_rows
from glassformer.data.tables import StreamedTable, read_table
from glassformer.errors import DataError
from glassformer.inputs import texts as rows_module
from glassformer.inputs.rows import InputRequest, read_rows
from glassformer.inputs.texts import LargeFile

from .tiny import sentences


@pytest.fixture
def piecewise(monkeypatch):
    """Every file counts as large, and its pieces are small."""

    def switch(on: bool) -> None:
        monkeypatch.setattr(rows_module, "LARGE_FILE_BYTES", 0 if on else 1 << 40)
        monkeypatch.setattr(rows_module, "CHUNK_ROWS", 7)

    return switch


def table_files(folder: Path, bad: bool) -> list[Path]:
    """One table as CSV, TSV and JSON Lines, with columns beside the texts, some of which are called as ours."""
    rows = [{"id": i, "text": t, "label": y, "note": "=1+1"} for i, (t, y) in enumerate(sentences(31))]
    if bad:
        rows[11]["text"] = ""
        rows[23]["text"] = " "
    names = list(rows[0])
    for name, sign in (("a.csv", ";"), ("a.tsv", "\t")):
        with (folder / name).open("w", encoding="utf-8-sig", newline="") as file:
            writer = csv.writer(file, delimiter=sign)
            writer.writerows([names, *([row[n] for n in names] for row in rows)])
            if bad:
                writer.writerow(["1", "2"])
    lines = [json.dumps(row) for row in rows]
    if bad:
        del rows[5]["note"]
        lines[5:6] = [json.dumps(rows[5]), "not JSON", "[1]"]
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    return [folder / name for name in ("a.csv", "a.tsv", "a.jsonl")]


@pytest.mark.parametrize("bad", [False, True])
def test_the_answers_are_the_same_as_all_at_once(gf, as_json, ok, run: Path, tmp_path: Path, piecewise, bad):
    for path in table_files(tmp_path, bad):
        seen = []
        for on in (True, False):
            piecewise(on)
            skip = ("--on-bad-row", "skip") if bad else ()
            shown = ok("predict", run, path, *skip)
            told = gf("predict", run, path, *skip, "--out", f"{path.name}-{on}.csv")
            found = as_json("predict", run, path, *skip)
            with open(f"{path.name}-{on}.csv", encoding="utf-8", newline="") as file:
                seen.append((shown.out, shown.err, told.err, list(csv.reader(file)), found))
        one, other = seen
        assert one[:3] == other[:3]
        assert one[3][0] == other[3][0]
        for left, right in zip(one[3][1:], other[3][1:], strict=True):
            assert left[:5] + left[8:] == right[:5] + right[8:]
            p, q = ([float(x or 0) for x in cells[5:8]] for cells in (left, right))
            assert p == pytest.approx(q, abs=1e-5)
        for key in ("row", "error"):
            assert [a[key] for a in one[4]["answers"]] == [a[key] for a in other[4]["answers"]]
        assert one[4]["without_answer"] == (0 if not bad else 4 if path.suffix == ".jsonl" else 3)


def test_a_bad_row_ends_it_before_the_first_answer(refused, run: Path, tmp_path: Path, piecewise):
    for path in table_files(tmp_path, bad=True):
        said = []
        for on in (True, False):
            piecewise(on)
            said.append(refused("predict", run, path, "--out", "p.csv"))
            assert not Path("p.csv").exists()
        assert said[0] == said[1]


def test_no_row_that_can_be_used(refused, run: Path, tmp_path: Path, piecewise):
    (tmp_path / "a.jsonl").write_text('{"text": "", "id": 1}\n{"text": null}\n')
    said = []
    for on in (True, False):
        piecewise(on)
        said.append(refused("predict", run, "a.jsonl", "--on-bad-row", "skip"))
    assert "row 1: no row can be used; the text is empty" in said[0]  # it has not seen the other rows
    assert "column 'text': empty in all 2 rows" in said[1]


def rows_now(path: Path) -> list[tuple[int, dict]]:
    def stop(error: DataError, row: int) -> None:
        raise error

    return list(StreamedTable(path, stop).rows())


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_the_rows_are_those_of_the_table(tmp_path: Path, suffix):
    path = next(p for p in table_files(tmp_path, bad=False) if p.suffix == suffix)
    table = read_table(path)
    values = {name: table.read(name) for name in table.names}
    expected = [(row, {n: values[n][i] for n in table.names}) for i, row in enumerate(table.rows)]
    assert rows_now(path) == expected


@pytest.mark.parametrize("content", ["", "\n\n", "text\n", "a,a\n1,2\n", '"text\nopen', "text,b\n1\n"])
def test_what_the_table_refuses_is_refused(tmp_path: Path, content):
    path = tmp_path / "x.csv"
    path.write_text(content)
    with pytest.raises(DataError) as whole:
        read_table(path)
    with pytest.raises(DataError) as streamed:
        rows_now(path)
    assert str(streamed.value) == str(whole.value)


def test_the_sample_is_what_a_look_at_the_table_sees(tmp_path: Path):
    path = tmp_path / "n.csv"
    path.write_text("n\n" + "".join(f"{i}\n" for i in range(6007)))
    sample = StreamedTable(path, lambda error, row: None).sample()
    every = read_table(path).read("n")
    assert sample.read("n") == [every[i] for i in sampled_rows(6007)]
    assert len(sample.rows) == 2_000


def test_memory_does_not_grow_with_the_file(tmp_path: Path, piecewise):
    piecewise(True)

    def peak(rows: int) -> int:
        path = tmp_path / f"{rows}.csv"
        lines = (f"a rather long text of row {i} {'x' * 99},{i}\n" for i in range(rows))
        path.write_text("text,id\n" + "".join(lines))
        tracemalloc.start()
        total = sum(len(piece) for piece in LargeFile(path, InputRequest([], "text")))
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert total == rows
        return used

    peak(100)  # what is imported once
    small, large = peak(5_000), peak(20_000)
    assert large < small + 1_000_000
    tracemalloc.start()
    kept = read_rows(tmp_path / "20000.csv", InputRequest([], "text"))
    assert len(kept) == 20_000
    assert tracemalloc.get_traced_memory()[1] > large + 5_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
@pytest.mark.parametrize("how", ["replaced", "appended", "removed"])
def test_a_table_that_changes_between_two_pieces_ends_the_work(tmp_path: Path, piecewise, name, how):
    piecewise(True)
    path = next(path for path in table_files(tmp_path, False) if path.name == name)
    pieces = iter(LargeFile(path, InputRequest([], "text")))
    assert len(next(pieces)) == 7
    if how == "appended":
        path.write_bytes(path.read_bytes() + b"\n")
    elif how == "replaced":
        (tmp_path / "other").write_bytes(path.read_bytes())  # same size, other file
        (tmp_path / "other").replace(path)
    else:
        path.unlink()
    said = rf"{name}: the file has changed while it was read.*Run the command again"
    with pytest.raises(DataError, match=said):
        list(pieces)


def test_predict_of_a_table_that_changes_leaves_no_file_and_ends_with_one_line(
    refused, run: Path, tmp_path: Path, piecewise, monkeypatch
):
    piecewise(True)
    path = table_files(tmp_path, False)[0]
    before = Writer.add

    def add(self, rows, progress):
        (tmp_path / "other").write_bytes(path.read_bytes())
        (tmp_path / "other").replace(path)
        before(self, rows, progress)

    monkeypatch.setattr(Writer, "add", add)
    assert "the file has changed while it was read" in refused("predict", run, path, "--out", "o.csv")
    assert not (tmp_path / "o.csv").exists()
