"""``glassformer evaluate`` and ``glassformer predict``: a trained model on texts and files."""

import io
import json
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables import read_csv

from glassformer.errors import DataError
from glassformer.evaluate.predictions import read_predictions
from glassformer.inputs.images import read_image_table
from glassformer.inputs.rows import InputRequest, gather_rows, is_file_name, read_rows

from .tiny import sentences, settings, write_csv


def test_words_with_a_dot_or_a_slash_are_texts(ok, run: Path):
    result = ok("predict", run, "and/or", "yes.", "v1.0", "http://example.org/a", "w" * 300)
    assert len(result.out.splitlines()) == 5


def test_evaluate_leaves_out_and_counts_as_the_training_did(ok, tmp_path: Path):
    data = write_csv(tmp_path / "data.csv", [*sentences(41), ("", "pos")])
    ok("train", "--text", data, "--on-bad-row", "skip", "--out", "run", *settings("max_length=9"))
    other = write_csv(tmp_path / "other.csv", [*sentences(7, seed=1), ("", "neg"), ("a film " * 11, "neg")])
    result = ok("evaluate", "run", "--data", other)
    assert f"1 row left out; the first: {other}, row 9: the text is empty" in result.out
    assert f"8 texts of {other}" in result.out
    cut = sum(len(text.split()) + 2 > 9 for text, _ in sentences(7, seed=1)) + 1
    assert f"{cut} of 8 texts are longer than 9 tokens and were cut there" in result.out


@pytest.mark.parametrize("name", ["great", "v1.0", "so so"])
def test_a_text_that_is_the_name_of_a_file(name: str, ok, run: Path, monkeypatch):
    Path(name).write_text("x", encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{name}\n".encode())))
    result = ok("predict", run, "-")
    assert result.out.rstrip("\n").split("\t")[2] == name


def test_a_text_that_cannot_be_used_is_named_and_the_others_are_answered(ok, run: Path):
    result = ok("predict", run, "a splendid film", "", "a dreadful film", "--on-bad-row", "skip")
    rows = [line.split("\t") for line in result.out.splitlines()]
    assert [row[2] for row in rows] == ["a splendid film", "", "a dreadful film"]
    assert [bool(row[0]) for row in rows] == [True, False, True]
    assert result.err == "note: 1 row was not predicted: the text is empty (row 2)\n"


def test_predict_counts_the_texts_that_were_cut(ok, run: Path):
    result = ok("predict", run, "a film", "a film " * 50)
    assert result.err == "note: 1 of 2 texts are longer than 16 tokens and were cut there\n"


def files_of(tmp_path: Path, rows: list[tuple[str, str]]) -> list[Path]:
    """The same texts in every kind of file."""
    texts, labels = zip(*rows, strict=True)
    records = [{"text": t, "label": label} for t, label in rows]
    files = {
        "a.txt": "\n\n".join(texts) + "\n",
        "a.jsonl": "".join(json.dumps(r) + "\n" for r in records),
        "a.tsv": "text\tlabel\n" + "".join(f"{t}\t{label}\n" for t, label in rows),
        "one.csv": "words\n" + "".join(f"{t}\n" for t in texts),
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    pq.write_table(pa.table({"text": texts, "label": labels}), tmp_path / "a.parquet")
    return [*(tmp_path / name for name in files), tmp_path / "a.parquet", write_csv(tmp_path / "a.csv", rows)]


def test_predict_reads_every_kind_of_file(gf, ok, run: Path, tmp_path: Path):
    rows = sentences(5, seed=2)
    expected = gf("predict", run, *(text for text, _ in rows)).out
    for path in files_of(tmp_path, rows):
        result = ok("predict", run, path)
        assert [line for line in result.out.splitlines() if line.strip()] == expected.splitlines(), path


def test_empty_lines_of_a_text_file_keep_their_places(gf, ok, run: Path, tmp_path: Path):
    (tmp_path / "three.txt").write_text("a splendid film\n\na dreadful one\n", encoding="utf-8")
    result = gf("predict", run, "three.txt")
    cells = [line.split("\t") for line in result.out.splitlines()]
    assert [(len(own), own[2]) for own in cells] == [(3, "a splendid film"), (3, ""), (3, "a dreadful one")]
    assert result.err == "note: 1 row was not predicted: the line is empty (row 2)\n"
    ok("predict", run, "three.txt", "--out", "p.csv")
    rows = read_csv("p.csv")
    told = [(r["row"], r["predicted"] != "", r["error"]) for r in rows]
    assert told == [("1", True, ""), ("2", False, "the line is empty"), ("3", True, "")]
    assert [r.predicted != "" for r in read_predictions("p.csv")] == [True, False, True]


def test_the_columns_of_a_table_are_kept(ok, run: Path, tmp_path: Path):
    rows = [("7", "a splendid film", "?", "=1+1"), ("9", "a dreadful one", "", "z")]
    table = write_csv(tmp_path / "own.csv", rows, "id,Comment,label,p:x")
    ok("predict", run, table, "--out", "p.csv")
    told = [tuple(r[key] for key in ("id", "text", "given:label", "given:p:x")) for r in read_csv("p.csv")]
    assert told == [(*rows[0][:3], "'=1+1"), rows[1]]
    assert set(next(read_predictions("p.csv")).probabilities) == {"neg", "pos"}
    other = tmp_path / "more.jsonl"
    other.write_text(json.dumps({"text": "so so", "tags": ["a", 1], "id": 11}) + "\n", encoding="utf-8")
    ok("predict", run, table, other, "--out", "q.csv")
    told = [(r["file"], r["id"], r["tags"]) for r in read_csv("q.csv")]
    assert told == [(str(table), "7", ""), (str(table), "9", ""), (str(other), "11", '["a", 1]')]


def test_bad_rows_are_marked_where_that_is_asked_for(ok, run: Path, tmp_path: Path):
    table = tmp_path / "own.csv"
    table.write_text("id,comment\n1,a splendid film\n2,\n3,so,what\n4,a dreadful one\n", encoding="utf-8")
    result = ok("predict", run, table, "--on-bad-row", "skip", "--out", "p.csv")
    said = "2 rows were not predicted: the text is empty (row 3), 3 fields where the header has 2 (row 4)"
    assert said in result.err
    told = [(r["row"], r["id"], bool(r["predicted"])) for r in read_csv("p.csv")]
    assert told == [("2", "1", True), ("3", "2", False), ("4", "3", False), ("5", "4", True)]


def test_the_column_of_texts_is_found_by_what_it_holds(gf, ok, run: Path, tmp_path: Path):
    rows = [(f"u{i}", text) for i, (text, _) in enumerate(sentences(5))]
    write_csv(tmp_path / "a.csv", rows, "user,utterance")
    expected = gf("predict", run, *(text for text, _ in sentences(5))).out
    assert gf("predict", run, "a.csv").out == expected
    pq.write_table(pa.table({"user": ["u"] * 5, "utterance": [t for t, _ in sentences(5)]}), "a.parquet")
    categories = pa.array([t for t, _ in sentences(5)]).dictionary_encode()  # as pandas writes them
    pq.write_table(pa.table({"user": ["u"] * 5, "utterance": categories}), "c.parquet")
    ok("predict", run, "--data", "a.parquet", "--out", "s.parquet")
    ok("predict", run, "--data", "c.parquet", "--out", "t.parquet")
    assert pq.read_table("t.parquet")["label"] == pq.read_table("s.parquet")["label"]
    labels = [line.split("\t")[0] for line in expected.splitlines()]
    assert pq.read_table("s.parquet")["label"].to_pylist() == labels


def read_texts(path: Path, column: str | None = None) -> tuple[list[str], list[int | None]]:
    rows = [row for row in read_rows(path, InputRequest([], column)) if row.error is None]
    return [row.text for row in rows], [row.row for row in rows]


def test_rows_are_those_of_the_file(tmp_path: Path):
    (tmp_path / "a.txt").write_text("\ufeffone\r\n\r\ntwo\r\n", encoding="utf-8", newline="")
    assert read_texts(tmp_path / "a.txt") == (["one", "two"], [1, 3])
    assert read_texts(write_csv(tmp_path / "a.csv", [("one", ""), ("two", "")])) == (["one", "two"], [2, 3])


def test_labels_of_a_file_to_be_labelled_are_not_looked_at(tmp_path: Path):
    texts, _ = read_texts(write_csv(tmp_path / "a.csv", [("one", ""), ("two", "NaN")]))
    assert texts == ["one", "two"]


def test_texts_and_files_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert not is_file_name("a splendid film")
    assert not is_file_name("I read it in reviews.csv")
    assert not is_file_name("film " * 2000)
    assert not is_file_name("a\0b")
    assert is_file_name("missing.csv")
    Path("notes").write_text("x", encoding="utf-8")
    with pytest.raises(DataError, match="a file without an extension"):
        is_file_name("notes")


@pytest.mark.parametrize(
    ("header", "column", "wanted", "message"),
    [
        ("body,text", None, "text", ""),
        ("body,review", None, "review", ""),
        ("body,review,text", None, "text", ""),
        ("body,review", "body", "body", ""),
        ("body,title", None, None, "no column of texts.*text_column"),
        ("body,review,comment", None, None, "several columns"),
        ("body,title", "bdy", None, "no column 'bdy'.*'body'"),
    ],
)
def test_the_column_of_texts_is_found_or_asked_for(header, column, wanted, message, tmp_path: Path):
    path = write_csv(tmp_path / "a.csv", [header.split(",")], header)
    with pytest.raises(DataError, match=message) if message else nullcontext():
        assert read_texts(path, column)[0] == [wanted]


def test_predictions_as_a_table(ok, run: Path, tmp_path: Path):
    rows = [*sentences(4, seed=3), ("=1+1 splendid", "pos")]
    source = write_csv(tmp_path / "a.csv", rows)
    ok("predict", run, source, "--out", "p.csv")
    found = read_csv("p.csv")
    assert [int(r["row"]) for r in found] == [2, 3, 4, 5, 6]
    assert [r["text"] for r in found] == [text for text, _ in rows[:-1]] + ["'=1+1 splendid"]
    assert all(float(r["p:neg"]) + float(r["p:pos"]) == pytest.approx(1, abs=1e-5) for r in found)


def test_a_row_that_names_no_picture_says_so(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"image": "x.png", "id": 1}\n{"id": 2}\n{"image": "", "id": 3}\n')
    found = read_image_table(path, InputRequest([], skip=True))
    said = "the image is missing"
    assert [(row.row, row.error) for row in found] == [(1, None), (2, said), (3, said)]
    with pytest.raises(DataError, match=rf"a\.jsonl, row 2: {said}\. Enter an image path, or mark such rows"):
        read_image_table(path, InputRequest([]))


def test_texts_keep_their_order_among_files(tmp_path: Path):
    path = write_csv(tmp_path / "a.csv", [("two", ""), ("three", "")])
    found = gather_rows(InputRequest(["one", str(path), "four"]))
    assert [row.text for row in found] == ["one", "two", "three", "four"]
    assert [row.row for row in found] == [None, 2, 3, None]


def test_a_file_stands_with_data_or_without(gf, ok, run: Path, tmp_path: Path):
    path = write_csv(tmp_path / "a.csv", sentences(9))
    for verb, options in (("predict", []), ("explain", []), ("embed", ["--out", "{}.npy"])):
        said = [
            gf(verb, run, *way, *(option.format(i) for option in options))
            for i, way in enumerate(([path], ["--data", path]))
        ]
        assert said[0].code == said[1].code == 0, said
        assert said[0].out.replace("0.npy", "1.npy") == said[1].out
    judged = [gf("evaluate", run, *way, "--json").out for way in ([path], ["--data", path])]
    assert judged[0] == judged[1]
    ok("calibrate", run, path, "--json")


def test_predict_a_large_table(gf, ok, refused, run: Path, tmp_path: Path):
    texts = [text for text, _ in sentences(9)]
    texts.append("a film " * 50)
    pq.write_table(pa.table({"text": [*texts, None]}), tmp_path / "big.parquet")
    result = ok("predict", run, "--data", "big.parquet", "--out", "scores.parquet")
    assert result.out == "11 rows: scores.parquet\n"
    assert "1 texts were too long and truncated;" in result.err
    assert pq.read_table(tmp_path / "scores.parquet")["truncated"].to_pylist() == [False] * 9 + [True, None]
    assert "1 rows have no prediction;" in result.err
    labels = pq.read_table(tmp_path / "scores.parquet")["label"].to_pylist()
    assert labels[:10] == [line.split("\t")[0] for line in gf("predict", run, *texts).out.splitlines()]
    again = ("predict", run, "big.parquet", "--out")
    assert "the output file exists" in refused(*again, "scores.parquet")
    assert gf(*again, "again.parquet").out == "11 rows: again.parquet\n"
