"""Tables that can be parsed and were hardly meant so: swallowed rows, data as a header, lines above it, pipes, HTML."""

import csv
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from glassformer.data.files import reading
from glassformer.data.kinds import detect_kind
from glassformer.data.pairs import load_pairs, load_scored_pairs
from glassformer.data.sources import load_text_dataset
from glassformer.data.tables import StreamedTable, detect_delimiter, ignore_error, read_table
from glassformer.errors import ConfigError, DataError

WORDS = "the film plot actor scene music good bad slow bright story camera voice".split()
CELLS: dict[str, Callable[[random.Random], str]] = {
    "text": lambda rng: " ".join(rng.choices(WORDS, k=7)),
    "short": lambda rng: " ".join(rng.choices(WORDS, k=2)),
    "question": lambda rng: CELLS["text"](rng) + "?",
    "sentence": lambda rng: CELLS["text"](rng) + ".",
    "label": lambda rng: rng.choice(["pos", "neg"]),
    "answer": lambda rng: rng.choice(["yes", "no"]),
    "bit": lambda rng: rng.choice("01"),
    "stars": lambda rng: rng.choice("12345"),
    "rare": lambda rng: f"class_{rng.randrange(40)}",
    "price": lambda rng: f"{100 * rng.random():.2f}",
    "day": lambda rng: f"2026-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}",
    "number": lambda rng: str(rng.randrange(10**6)),
}
every_sign = pytest.mark.parametrize("sign", [",", "\t", ";"])


def rows_of(kinds: str, count: int = 60) -> list[list[str]]:
    """Rows of cells of these kinds, such as "label text"."""
    rng = random.Random(0)
    return [[CELLS[kind](rng) for kind in kinds.split()] for _ in range(count)]


def write(folder: Path, rows: list[list[str]], sign: str = ",", name: str = "a.csv") -> Path:
    """The rows as they are, without quotes."""
    path = folder / (name if sign != "\t" else "a.tsv")
    path.write_text("\n".join(map(sign.join, rows)) + "\n", encoding="utf-8")
    return path


def refused(path: Path) -> list[tuple[int, str]]:
    """The rows that a lenient reader leaves out, and why."""
    found: list[tuple[int, str]] = []
    read_table(path, lambda error, row: found.append((row, error.what)))
    return found


# --- rows within a quoted cell ----------------------------------------------------------------

TABLES = {  # names -> the cells, and which of them is the text
    "text,label": ("text label", 0),
    "label,text": ("label text", 1),
    "id,text,label": ("number text label", 1),
    "text,0 or 1": ("text bit", 0),
    "text,price": ("text price", 0),
    "text,class": ("text rare", 0),
    "date,text,label": ("day text label", 1),
    "premise,hypothesis,label": ("text text label", 0),
}


@pytest.mark.parametrize("more", [1, 2, 10])
@pytest.mark.parametrize("sign", [",", "\t", ";", "|"])
@pytest.mark.parametrize("names", TABLES)
def test_a_quote_that_swallows_rows_is_named(tmp_path, names, sign, more):
    kinds, at = TABLES[names]
    rows = rows_of(kinds)
    rows[9][at] = '"' + rows[9][at]
    rows[9 + more][at] += '"'
    path = write(tmp_path, [names.split(","), *rows], sign)
    with pytest.raises(DataError) as error:
        read_table(path)
    assert error.value.where == f"{path}, row 11"
    lines = f"so that lines 11 to {11 + more} are read as one row"
    assert error.value.what.startswith(
        f"a double quote opens in line 11 and closes in line {11 + more}, {lines}"
    )
    assert "--quoting none" in error.value.fix
    assert "--quoting csv" in error.value.fix
    with pytest.raises(DataError, match="a double quote opens in line 11"):
        StreamedTable(path, lambda error, row: (_ for _ in ()).throw(error))
    assert [row for row, _ in refused(path)] == [11]  # the lines behind are read as rows
    assert len(read_table(path, lambda *_: None).rows) == 59
    with reading(quoting="none"):
        assert len(read_table(path).rows) == 60
        assert read_table(path).read(names.split(",")[at])[9].startswith('"')
    with reading(quoting="csv"):
        assert len(read_table(path).rows) == 60 - more


def test_a_quote_that_closes_behind_a_label_is_named(tmp_path):
    """Whose row has one cell, and would be left out as ragged, and nine good ones with it."""
    rows = rows_of("text label")
    rows[9][0], rows[18][1] = '"' + rows[9][0], rows[18][1] + '"'
    path = write(tmp_path, [["text", "label"], *rows], "\t")
    assert refused(path)[0][1].startswith("a double quote opens in line 11 and closes in line 20")
    assert len(read_table(path, lambda *_: None).rows) == 59


def test_two_languages_between_tabs(tmp_path):
    rows = rows_of("text text")
    rows[9][0], rows[12][0] = '"' + rows[9][0], rows[12][0] + '"'
    path = write(tmp_path, [["en", "de"], *rows], "\t")
    with pytest.raises(DataError, match="opens in line 11 and closes in line 14"):
        load_pairs(path)
    with reading(quoting="none"):
        assert len(load_pairs(path).splits["train"]) == 60


PROSE = {
    "two lines": "a good film\nwith a slow plot",
    "a comma in each line": "a good film, and slow\nbright, as ever\nthe end, at last",
    "lines that end in a label": "is it good? well, pos\nor is it, neg",
    "numbers with commas": "it cost 10,000\nand 20,000\nin all 30,000",
    "semicolons": "a good film; and slow\nbright; as ever\nthe end; at last",
    "a table in the text": "name,age\nann,33\nbob,41",
    "empty lines": "a good film\n\n\nwith, a slow plot",
    "a list": "good:\n- plot, music\n- camera, voice\n- story",
    "a letter": "Dear all,\nthe film was good,\nthe plot slow,\nyours, ann",
    "a tab": "a good film\tslow\nbright\tas ever",
}


@pytest.mark.parametrize("quote", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@every_sign
@pytest.mark.parametrize("names", TABLES)
def test_a_text_of_several_lines_is_one_text(tmp_path, names, sign, quote):
    kinds, at = TABLES[names]
    for every in (1, 7, 60):  # how often a text has several lines
        rows = rows_of(kinds)
        for i in range(0, len(rows), every):
            rows[i][at] = [*PROSE.values()][i % len(PROSE)]
        path = tmp_path / ("a.tsv" if sign == "\t" else "a.csv")
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=sign, quoting=quote).writerows([names.split(","), *rows])
        assert refused(path) == []
        table = read_table(path)
        assert [*zip(*map(table.read, names.split(",")), strict=True)] == list(map(tuple, rows))


def test_what_quoting_can_be(tmp_path):
    with pytest.raises(ConfigError, match="'maybe' is not a choice"), reading(quoting="maybe"):
        read_table(write(tmp_path, [["text"], ["a"]]))
    path = write(tmp_path, [["text", "label"], ['"Great" film', "pos"], ["a film", "neg"]], "\t")
    with reading(quoting="none"):
        assert read_table(path).read("text") == ['"Great" film', "a film"]


# --- the header -------------------------------------------------------------------------------


HEADLESS = """
    text label, label text, text bit, text price, number text label, day text label, text text label, text text price,
    text text, text, question, sentence, short label, number text, text bit bit bit
"""


@pytest.mark.parametrize("count", [60, 3])
@every_sign
@pytest.mark.parametrize("kinds", [kinds.strip() for kinds in HEADLESS.split(",")])
def test_a_table_without_a_header_is_asked_about(tmp_path, kinds, sign, count):
    rows = rows_of(kinds, count)
    path = write(tmp_path, rows, sign)
    with pytest.raises(DataError, match="the first row looks like data, not like a header") as error:
        read_table(path)
    assert error.value.where == f"{path}, row 1"
    assert "--header no" in error.value.fix
    assert "--header yes" in error.value.fix
    with pytest.raises(DataError, match="looks like data"):
        detect_kind(path)
    with reading(header="no"):
        table = read_table(path)
        assert table.names == tuple(f"column{i}" for i in range(1, len(rows[0]) + 1))
        assert [*zip(*map(table.read, table.names), strict=True)] == list(map(tuple, rows))
        assert [*table.rows] == [*range(1, count + 1)]
        streamed = StreamedTable(path, lambda *_: None)
        assert [list(values.values()) for _, values in streamed.rows()] == rows
    with reading(header="yes"):
        if len(set(rows[0])) == len(rows[0]):
            assert len(read_table(path).rows) == count - 1


HEADED = {
    "text,label": "text label",
    "0,1": "text bit",
    ",0,1": "number text bit",
    "comment,yes": "text answer",
    "body,1": "text bit",
    "What did you like about us?,How satisfied are you (1-5)?": "text stars",
    "What did you like about us?": "sentence",
    "What did you like about us?,What can we do better?": "sentence text",
    "Your comment,Mood": "text label",
    "text,joy,anger": "text bit bit",
    "text,1,2,3": "text bit bit bit",
    "review text,stars": "text stars",
    "customer feedback text": "text",
    "en,de": "text text",
    "English sentence,German sentence": "text text",
    "price,text": "price text",
    "country,2019,2020": "rare price price",
    "Timestamp,Please describe your experience in your own words.,Overall rating": "day text stars",
    "Frage an den Kunden,Antwort": "question text",
    "ham or spam,message": "label text",
    "v1,v2": "label text",
    "name,positive": "text bit",
}


@pytest.mark.parametrize("count", [60, 3])
@pytest.mark.parametrize("names", HEADED)
def test_a_header_is_a_header(tmp_path, names, count):
    table = read_table(write(tmp_path, [names.split(","), *rows_of(HEADED[names], count)]))
    assert (table.names, len(table.rows)) == (tuple(names.split(",")), count)


@pytest.mark.parametrize(
    ("load", "kinds", "columns"),
    [(load_text_dataset, "text label", ("column1", "column2")), (load_scored_pairs, "text text price", None)],
)
def test_a_table_without_a_header_at_every_reader(tmp_path, load, kinds, columns):
    path = write(tmp_path, rows_of(kinds))
    with pytest.raises(DataError, match="looks like data"):
        load(path)
    with reading(header="no"):
        dataset = load(path) if columns is None else load(path, need_labels=True)
        assert dataset.columns == (columns or ("column1", "column2", "column3"))
        assert len(dataset.splits["train"]) == 60


def test_what_cannot_be_a_header_names_the_way(tmp_path):
    for row in (["a film", "a film"], ["a film", "a very long text " * 100]):
        with reading(header="yes"), pytest.raises(DataError, match="--header no"):
            read_table(write(tmp_path, [row] * 2))
    path = write(tmp_path, [["a good film"]])
    with pytest.raises(DataError, match="the file has no rows") as error:
        read_table(path)
    assert "--header no" in error.value.fix
    with reading(header="no"):
        assert read_table(path).read("column1") == ["a good film"]


# --- separators -------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["|", "^", "~", "\x01", "\x1f"])
def test_rare_separators(tmp_path, sign):
    rows = rows_of("text label")
    table = read_table(write(tmp_path, [["text", "label"], *rows], sign))
    assert table.names == ("text", "label")
    assert [*zip(table.read("text"), table.read("label"), strict=True)] == list(map(tuple, rows))


@pytest.mark.parametrize(
    ("lines", "name", "delimiter"),
    [
        (["pros|cons", "a good film", "a bad one"], "a.csv", ","),  # the name of one column
        (["text,tags", "a film,a|b", "a plot,b|c"], "a.csv", ","),
        (["text|label", "a, film|pos", "b, film|neg"], "a.csv", "|"),
        (['"a|b"', "c", "d"], "a.csv", ","),
        (["text,label", "a film,pos", "a plot,neg"], "a.tsv", ","),
        (["text, as it is", "a film", "a, plot, so"], "a.tsv", "\t"),
    ],
)
def test_the_separator_is_that_of_most_lines(tmp_path, lines, name, delimiter):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    assert detect_delimiter(path, "strict") == delimiter


# --- tables in .txt ---------------------------------------------------------------------------


@pytest.mark.parametrize("names", [[], [["text", "label"]], [["comment", "verdict"]]])
def test_a_txt_file_with_tabs_is_a_table(tmp_path, names):
    rows = rows_of("text label")
    rows[3][0] = '"' + rows[3][0]  # as in many such files: a quote is a character
    path = write(tmp_path, [*names, *rows], "\t").rename(tmp_path / "a.txt")
    dataset = load_text_dataset(path, need_labels=True)
    split = dataset.splits["train"]
    assert [*map(list, zip(split.texts, split.labels, strict=True))] == rows
    assert "a.txt is read as a table: 2 columns with tabs between them" in dataset.messages[0]
    assert detect_kind(path) == "texts"


@pytest.mark.parametrize("lines", [["one text"], ["a\ttab"], ["a text", "a\ttab", "more"], ["", "\t"]])
def test_a_txt_file_without_columns_is_a_text_a_line(tmp_path, lines):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(["a text", *lines]) + "\n")
    assert load_text_dataset(path).splits["train"].texts == ["a text", *(x for x in lines if x.strip())]
    with pytest.raises(DataError, match="the file has texts without labels"):
        load_text_dataset(path, need_labels=True)


# --- what stands beside one table: lines above the header, the header again, HTML ---------------------


ROWS = [(f"visit {i} was {('slow', 'superb')[i % 2]}, all in all", ("neg", "pos")[i % 2]) for i in range(23)]
LINES = [f'"{text}",{label}' for text, label in ROWS]
WIDE = [f"{text};{label};;" for text, label in ROWS]


def said_by_all(path) -> str:
    """What both readers and the loader of data sets say, which is the same."""
    said = set()
    for read in (
        read_table,
        lambda path: read_table(path, ignore_error),
        lambda path: StreamedTable(path, ignore_error),
        load_text_dataset,
        lambda path: load_text_dataset(path, on_bad_row="skip"),
    ):
        with pytest.raises(DataError) as error:
            read(path)
        said.add(str(error.value))
    assert len(said) == 1
    return said.pop()


FORM = ["# exported by a form", "# 2024-01-05, 23 rows", "text,label", *LINES]
SURVEY = ["Umfrage 2024;;;", ";;;", "Kommentar;Urteil;;", *WIDE]
SHORT = ["Umfrage 2024", "", "Kommentar;Urteil", *(x[:-2] for x in WIDE)]
TABS = ["Answers", "review\tkind", *(f"{t}\t{k}" for t, k in ROWS)]


@pytest.mark.parametrize(
    ("lines", "first", "header", "names", "fix"),
    [
        (FORM, "# exported by a form", 3, "text, label", "the 2 rows"),
        (SURVEY, "Umfrage 2024", 3, "Kommentar, Urteil", "the 2 rows"),
        (SHORT, "Umfrage 2024", 3, "Kommentar, Urteil", "the 2 rows"),
        (TABS, "Answers", 2, "review, kind", "the row"),
    ],
)
def test_lines_above_the_header_are_named(put, lines, first, header, names, fix):
    path = put("t.csv", lines)
    assert said_by_all(path) == (
        f"{path}: row 1 is not a header but a line above the table ({first!r}); row {header} looks like the "
        f"header: {names}. Remove {fix} above row {header}; if row 1 is the header, add --header yes"
    )
    put("t.csv", "\n".join(lines[header - 1 :]).replace(";;", "") + "\n")
    assert len(read_table(path).rows) == len(ROWS)


@pytest.mark.parametrize(
    "lines",
    [
        ["comment", *(f"good {i}; bad" for i in range(23))],  # one column, a semicolon in each text
        [",text", *(f'{i},"{text}"' for i, (text, _) in enumerate(ROWS))],  # pandas' index has no name
        ["#,text", *(f'{i},"{text}"' for i, (text, _) in enumerate(ROWS))],
        ["label", *(label for _, label in ROWS)],
    ],
)
def test_a_header_is_no_line_above_one(put, lines):
    assert len(read_table(put("t.csv", lines)).rows) == 23


@pytest.mark.parametrize("begin", ["<html><table>", "<!DOCTYPE html>\n<html>", "\n  <TABLE border=1>"])
def test_a_page_of_html_is_named(put, begin):
    path = put("t.csv", [begin, "<tr><td>text</td><td>label</td></tr>", *["<tr><td>a, b</td></tr>"] * 7])
    assert said_by_all(path) == (
        f"{path}: the file is an HTML page, not a .csv table. If it is the error page of a "
        "failed download, download again; otherwise save the table as CSV"
    )


@pytest.mark.parametrize("names", ["text,label", "Kommentar,Urteil"])
def test_rows_that_repeat_the_header_are_named_and_left_out(put, names):
    path = put("t.csv", [names, *LINES[:11], names, *LINES[11:19], names, *LINES[19:]])
    again = "the header is repeated where a row is expected"
    with pytest.raises(DataError) as error:
        load_text_dataset(path)
    assert str(error.value) == (
        f"{path}, row 13: {again} (rows 13, 22) (1 more row cannot be used). Remove the rows that repeat the "
        "header, or leave such rows out with on_bad_row=skip"
    )
    skipped = load_text_dataset(path, on_bad_row="skip", need_labels=True)
    assert [*zip(skipped.splits["train"].texts, skipped.splits["train"].labels, strict=True)] == ROWS
    assert [(row.row, row.reason) for row in skipped.rejected] == [(13, again), (22, again)]
    assert [tuple(row.values()) for _, row in StreamedTable(path, ignore_error).rows()] == ROWS


def test_a_header_in_another_order_begins_another_table(put):
    swapped = [f'{label},"{text}"' for text, label in ROWS[11:]]
    path = put("t.csv", ["text,label", *LINES[:11], "label,text", *swapped])
    assert said_by_all(path) == (
        f"{path}: row 13 is a second header (label,text), with another order of the columns than the first "
        "header (text,label), so a second table begins there. Save the rows from row 13 on as another file, or "
        "change the order of their columns"
    )


@pytest.mark.parametrize("names", [("text", "label"), ("review", "mood")])
@pytest.mark.parametrize("named", [False, True])
def test_a_split_without_labels_is_named(put, tmp_path, names, named):
    train = put("train.csv", [",".join(names), *LINES])
    test = put("test.csv", ["id," + names[0], *(f'{i},"{text}"' for i, (text, _) in enumerate(ROWS))])
    options = {"need_labels": True, "label_column": names[1] if named else None}
    with pytest.raises(DataError) as error:
        load_text_dataset(tmp_path, **options)
    assert str(error.value) == (
        f"{test}: the split 'test' has no labels: it lacks the column {names[1]!r} of 'train'. Use only {train}"
        ", or move this file out of the folder, or add its labels"
    )
    assert len(load_text_dataset(train, **options).splits["train"].labels) == 23
