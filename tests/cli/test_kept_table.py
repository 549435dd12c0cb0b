"""``predict --keep-table`` and ``--least-sure``: one's own table with the answers behind, and those to look at."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from glassformer.cli.predictions import LeastConfident, Prediction, table_format
from glassformer.data.text_pairs import TextPair
from glassformer.errors import ConfigError, DataError
from glassformer.evaluate.predictions import table_file
from glassformer.inputs.rows import InputRequest, Layout, Row, read_rows

from .tiny import TINY, sentences, sets, write_csv

MARK = b"\xef\xbb\xbf"


def records(path: Path, delimiter: str = ",", encoding: str = "utf-8-sig") -> list[list[str]]:
    with path.open(encoding=encoding, newline="") as file:
        return list(csv.reader(file, delimiter=delimiter))


def test_columns_keep_names_order_and_separator(ok, run: Path, tmp_path: Path):
    table = tmp_path / "mine.csv"
    lines = ["Ticket;Customer comment;predicted;Mood", '1;"a splendid; café";x;fine', "2;a dreadful plot;;"]
    table.write_bytes(MARK + ("\r\n".join(lines) + "\r\n").encode())
    ok("predict", run, table, "--text-column", "Customer comment", "--out", "out.csv", "--keep-table")
    out = tmp_path / "out.csv"
    assert out.read_bytes().startswith(MARK)
    head, *rows = records(out, ";")
    assert head == ["Ticket", "Customer comment", "predicted", "Mood", "model:predicted", "probability"]
    kept = [["1", "a splendid; café", "x", "fine"], ["2", "a dreadful plot", "", ""]]
    assert [row[:4] for row in rows] == kept
    ok("predict", run, table, "--text-column", "Customer comment", "--out", "usual.csv")
    wanted = [row[4:6] for row in records(tmp_path / "usual.csv")[1:]]
    assert [row[4:] for row in rows] == wanted


def test_a_table_that_was_answered_can_be_answered_again_and_again(ok, run: Path, tmp_path: Path):
    (tmp_path / "0.csv").write_text('text,change\na splendid film,"-5,0"\n')
    for i in range(3):
        ok("predict", run, f"{i}.csv", "--text-column", "text", "--out", f"{i + 1}.csv", "--keep-table")
    head, row = records(tmp_path / "3.csv")
    assert len(set(head)) == len(head) == 8
    assert row[:2] == ["a splendid film", "-5,0"]
    assert row[2] == row[4] == row[6]


@pytest.fixture(params=[False, True], ids=["whole", "piecewise"])
def however(request, monkeypatch):
    """A table is read as a whole, or in pieces of two rows."""
    if request.param:
        monkeypatch.setattr("glassformer.inputs.texts.LARGE_FILE_BYTES", 1)
        monkeypatch.setattr("glassformer.inputs.texts.CHUNK_ROWS", 2)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_encoding_and_line_ends_stay(ok, run: Path, tmp_path: Path, however, encoding, line_end):
    lines = ["text,who", "a splendid café,Zoë", "dreadful,Ann"]
    (tmp_path / "t.csv").write_bytes((line_end.join(lines) + line_end).encode(encoding))
    words = ("--encoding", encoding) if encoding in ("cp1252", "utf-16") else ()
    ok(*words, "predict", run, "t.csv", "--out", "o.csv", "--keep-table")
    raw = (tmp_path / "o.csv").read_bytes()
    assert raw.startswith(MARK) is (encoding == "utf-8-sig")
    found = raw.decode(encoding).split(line_end)
    assert found[0].startswith("text,who,")
    assert [row.split(",")[:2] for row in found[1:3]] == [line.split(",") for line in lines[1:]]
    assert found[3:] == [""]
    assert not {"\r", "\n"} - {*line_end} & {*raw.decode(encoding)}


def test_a_character_that_the_encoding_lacks_is_named(tmp_path: Path):
    raised = pytest.raises(DataError, match="'ě' cannot be written in")
    with raised, table_file(tmp_path / "o.csv", encoding="cp1252") as writer:
        writer.writerow(["ě"])
    assert not (tmp_path / "o.csv").exists()


CELLS = ["@at", "=1+1", "+49 30", "-5,0", "-x", "'quoted'", "'@at", "''=x", "a;=b", 'say "=b"', "\t=x"]
CELLS += [
    "  lead",
    "trail  ",
    "two\nlines",
    "\r@x",
    "\uff20wide",
    "007",
    "1e5",
    "NULL",
    "nan",
    "\u200bx",
    "\xa0",
    "",
]
CELLS += ["trail  ", "two\nlines", "\r@x", "\uff20wide", "007", "1e5", "NULL", "nan", "\u200bx", "\xa0", ""]


@pytest.mark.parametrize(("name", "delimiter"), [("mine.csv", ","), ("mine.csv", ";"), ("mine.tsv", "\t")])
def test_every_cell_stays_as_it_is(ok, run: Path, tmp_path: Path, however, name, delimiter):
    head = ["=id", "note", "text"]
    rows = [[str(i), cell, f"@a film {cell}" if cell.strip() else "@x"] for i, cell in enumerate(CELLS)]
    with (tmp_path / name).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([head, *rows])
    ok("predict", run, name, "--text-column", "text", "--out", "out.csv", "--keep-table")
    found = records(tmp_path / "out.csv", delimiter)
    assert [line[:3] for line in found] == [head, *rows]
    assert found[0][3:] == ["predicted", "probability"]
    ok("predict", run, name, "--text-column", "text", "--out", "usual.csv")
    assert records(tmp_path / "usual.csv")[1][2] == "'@a film @at"  # all other output is guarded


def test_the_guards_of_a_label_review_stay(tmp_path: Path):
    table = write_csv(tmp_path / "t.csv", [("yes", "'=a film", "''@x")], "review:rank,text,note")
    kept = table_format([str(table)], tmp_path / "o.csv")
    (read,) = read_rows(table, InputRequest([], "text"))
    assert (read.text, read.other_columns["note"]) == ("=a film", "'@x")
    with kept.open(tmp_path / "o.csv", ["text"], ["predicted"]) as write:
        write(read, ["@yes"])
    assert records(tmp_path / "o.csv")[1] == ["yes", "'=a film", "''@x", "'@yes"]


def test_rows_without_an_answer_say_why(ok, run: Path, tmp_path: Path, however):
    write_csv(tmp_path / "t.csv", [("7", "a film"), ("11", ""), ("13", "a plot")], "id,text")
    ok("predict", run, "t.csv", "--out", "o.csv", "--keep-table", "--on-bad-row", "skip")
    head, *rows = records(tmp_path / "o.csv")
    assert head == ["id", "text", "predicted", "probability", "error"]
    assert [row[:2] for row in rows] == [["7", "a film"], ["11", ""], ["13", "a plot"]]
    assert [bool(row[2]) for row in rows] == [True, False, True]
    assert [row[4] for row in rows] == ["", "the text is empty", ""]


def test_numbers_have_their_bounds(ok, tmp_path: Path):
    rows = [(text, str(i % 5)) for i, (text, _) in enumerate(sentences(60))]
    data = write_csv(tmp_path / "scores.csv", rows, "text,score")
    tiny = [setting for setting in TINY if setting != "maps=1"]
    ok("train", "--text", data, "--label-column", "score", "--out", "run", *sets(*tiny, "target=number"))
    write_csv(tmp_path / "t.csv", [("7", "a film")], "id,text")
    ok("predict", "run", "t.csv", "--out", "o.csv", "--keep-table")
    head, row = records(tmp_path / "o.csv")
    assert head == ["id", "text", "predicted", "low", "high"]
    assert row[:2] == ["7", "a film"]
    ok("predict", "run", "t.csv", "--out", "usual.csv")
    usual = dict(zip(*records(tmp_path / "usual.csv"), strict=True))
    assert row[2:] == [usual[name] for name in ("predicted", "low", "high")]


def test_both_texts_of_a_pair_go_back_to_their_columns(tmp_path: Path):
    table = write_csv(tmp_path / "t.csv", [("b", "7", "a")], "second,id,first")
    kept = replace(table_format([str(table)], tmp_path / "o.csv"), pair=("first", "second"))
    layout = Layout(("id",), False, False, True)
    with kept.open(tmp_path / "o.csv", kept.text_columns(layout), ["predicted"]) as write:
        write(Row(TextPair("a", "b"), 2, "t.csv", {"id": "7"}), ["yes"])
    assert records(tmp_path / "o.csv") == [["second", "id", "first", "predicted"], ["b", "7", "a", "yes"]]


def test_columns_that_do_not_stand_beside_the_answers_are_told(ok, run: Path, tmp_path: Path):
    names = ["text", *(f"c{i}" for i in range(203))]
    table = write_csv(tmp_path / "wide.csv", [["a film", *["x"] * 203]] * 2, ",".join(names))
    result = ok("predict", run, table, "--out", "o.csv")
    assert "3 of 203 other columns, those after 'c199', are not written with the predictions" in result.err
    written = records(tmp_path / "o.csv")[0]
    assert "c199" in written
    assert "c200" not in written


# --- the least sure answers -------------------------------------------------------------------------


def test_the_least_sure_come_first():
    p = np.random.default_rng(0).dirichlet([1, 1, 1], 53)
    p[7] = p[11] = [0.34, 0.33, 0.33]
    rows = [Row(f"text {i}", i + 2, "t.csv") for i in range(53)]
    shares, labels = p.max(1), [("a", "b", "c")[k] for k in p.argmax(1)]
    kept = LeastConfident(5)
    for row, label, share, own in zip(rows, labels, shares.tolist(), p, strict=True):
        found = {"label": label, "probability": share, "probabilities": own}
        kept.add(Prediction(row, found), ["a", "b", "c"])
    found = kept.predictions()
    assert [f["row"] - 2 for f in found] == np.argsort(shares, kind="stable")[:5].tolist()
    assert [f["row"] for f in found[:2]] == [9, 13]
    for f in found:
        own = p[f["row"] - 2]
        assert [share for _, share in f["likeliest"]] == sorted(own.tolist(), reverse=True)[:2]
        assert f["likeliest"][0][0] == f["label"]
    with pytest.raises(ConfigError, match="0 rows"):
        LeastConfident(0)


def test_predict_lists_them(gf, as_json, ok, run, tmp_path):
    data = write_csv(tmp_path / "new.csv", sentences(13, seed=2))
    result = ok("predict", run, data, "--least-sure", 3)
    assert "the 3 least confident of 13 texts" in result.out
    assert f"glassformer calibrate {run}" in result.err
    answers = as_json("predict", run, data)["answers"]
    found = as_json("predict", run, data, "--least-sure", 3)
    assert found["answers"] == answers
    order = sorted(answers, key=lambda a: a["probability"])[:3]
    assert [f["row"] for f in found["least_sure"]] == [a["row"] for a in order]
    written = gf("predict", run, data, "--least-sure", 2, "--out", "answers.csv")
    assert "the 2 least confident of 13 texts" in written.out
    assert len((tmp_path / "answers.csv").read_text(encoding="utf-8").splitlines()) == 14
