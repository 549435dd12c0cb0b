"""CSV and TSV that can be parsed and were hardly meant so: rows within a quoted cell, data as a header, pipes."""

import csv
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from glassformer.data.files import reading
from glassformer.data.kinds import detect_kind
from glassformer.data.pairs import load_pairs, load_scored_pairs
from glassformer.data.sources import load_text_dataset
from glassformer.data.tables import StreamedTable, detect_delimiter, read_table
from glassformer.errors import ConfigError, DataError

WORDS = "the film plot actor scene music good bad slow bright story camera voice".split()
Cell = Callable[[random.Random], str]


def text(rng: random.Random, count: int = 7) -> str:
    return " ".join(rng.choices(WORDS, k=count))


def label(rng: random.Random) -> str:
    return rng.choice(["pos", "neg"])


def bit(rng: random.Random) -> str:
    return rng.choice("01")


def price(rng: random.Random) -> str:
    return f"{100 * rng.random():.2f}"


def rare(rng: random.Random) -> str:
    return f"class_{rng.randrange(40)}"


def day(rng: random.Random) -> str:
    return f"2026-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"


def number(rng: random.Random) -> str:
    return str(rng.randrange(10**6))


def rows_of(cells: list[Cell], count: int = 60, seed: int = 0) -> list[list[str]]:
    rng = random.Random(seed)
    return [[cell(rng) for cell in cells] for _ in range(count)]


def write(path: Path, rows: list[list[str]], delimiter: str = ",") -> Path:
    """The rows as they are: what must be quoted, is."""
    path.write_text("\n".join(map(delimiter.join, rows)) + "\n", encoding="utf-8")
    return path


def refused(path: Path) -> list[tuple[int, str]]:
    """The rows that a lenient reader leaves out, and why."""
    found: list[tuple[int, str]] = []
    read_table(path, lambda error, row: found.append((row, error.what)))
    return found


# --- rows within a quoted cell ----------------------------------------------------------------

TABLES = {
    "text, label": (["text", "label"], [text, label], 0),
    "label, text": (["label", "text"], [label, text], 1),
    "id, text, label": (["id", "text", "label"], [number, text, label], 1),
    "text, 0 or 1": (["text", "label"], [text, bit], 0),
    "text, price": (["text", "price"], [text, price], 0),
    "text, one of many classes": (["text", "label"], [text, rare], 0),
    "date, text, label": (["date", "text", "label"], [day, text, label], 1),
    "premise, hypothesis, label": (["premise", "hypothesis", "label"], [text, text, label], 0),
}


@pytest.mark.parametrize("more", [1, 2, 10])
@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_quote_that_swallows_rows_is_named(tmp_path, table, delimiter, more):
    names, cells, at = table
    rows = rows_of(cells)
    rows[9][at] = '"' + rows[9][at]
    rows[9 + more][at] += '"'
    path = write(tmp_path / ("a.tsv" if delimiter == "\t" else "a.csv"), [names, *rows], delimiter)
    with pytest.raises(DataError) as error:
        read_table(path)
    assert error.value.where == f"{path}, row 11"
    assert error.value.what.startswith(
        f"a double quote opens in line 11 and closes in line {11 + more}, so that lines 11 to {11 + more} are read as one row"
    )
    assert "--quoting none" in error.value.fix
    assert "--quoting csv" in error.value.fix
    with pytest.raises(DataError, match="a double quote opens in line 11"):
        StreamedTable(path, lambda error, row: (_ for _ in ()).throw(error))
    assert [row for row, _ in refused(path)] == [11]  # the lines behind are read as rows
    assert len(read_table(path, lambda *_: None).rows) == 59
    with reading(quoting="none"):
        assert len(read_table(path).rows) == 60
        assert read_table(path).read(names[at])[9].startswith('"')
    with reading(quoting="csv"):
        assert len(read_table(path).rows) == 60 - more


def test_a_quote_that_closes_behind_a_label_is_named(tmp_path):
    """Whose row has one cell, and would be left out as ragged, and nine good ones with it."""
    rows = rows_of([text, label])
    rows[9][0] = '"' + rows[9][0]
    rows[18][1] += '"'
    path = write(tmp_path / "a.tsv", [["text", "label"], *rows], "\t")
    assert refused(path)[0][1].startswith("a double quote opens in line 11 and closes in line 20")
    assert len(read_table(path, lambda *_: None).rows) == 59


def test_two_languages_between_tabs(tmp_path):
    rows = rows_of([text, text])
    rows[9][0], rows[12][0] = '"' + rows[9][0], rows[12][0] + '"'
    path = write(tmp_path / "a.tsv", [["en", "de"], *rows], "\t")
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
@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_text_of_several_lines_is_one_text(tmp_path, table, delimiter, quote):
    names, cells, at = table
    for every in (1, 7, 60):  # how often a text has several lines
        rows = rows_of(cells)
        for i in range(0, len(rows), every):
            rows[i][at] = [*PROSE.values()][i % len(PROSE)]
        path = tmp_path / ("a.tsv" if delimiter == "\t" else "a.csv")
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=delimiter, quoting=quote).writerows([names, *rows])
        assert refused(path) == []
        table = read_table(path)
        assert [*zip(*map(table.read, names), strict=True)] == list(map(tuple, rows))


def test_a_key_that_is_neither_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="'maybe' is not a choice"), reading(quoting="maybe"):
        read_table(write(tmp_path / "a.csv", [["text"], ["a"]]))


def test_broken_quoting_names_the_way(tmp_path):
    path = write(tmp_path / "a.tsv", [["text", "label"], ['"Great" film', "pos"], ["a film", "neg"]], "\t")
    with pytest.raises(DataError, match="--quoting none"):
        read_table(path)
    with reading(quoting="none"):
        assert read_table(path).read("text") == ['"Great" film', "a film"]


# --- the header -------------------------------------------------------------------------------


def short(rng: random.Random) -> str:
    return text(rng, 2)


def ends(mark: str) -> Cell:
    return lambda rng: text(rng) + mark


HEADLESS: dict[str, list[Cell]] = {
    "text, label": [text, label],
    "label, text": [label, text],
    "text, 0 or 1": [text, bit],
    "text, price": [text, price],
    "id, text, label": [number, text, label],
    "date, text, label": [day, text, label],
    "two texts, label": [text, text, label],
    "two texts, score": [text, text, price],
    "two texts": [text, text],
    "one text": [text],
    "questions": [ends("?")],
    "sentences": [ends(".")],
    "short texts, label": [short, label],
    "id, text": [number, text],
    "text, 0/1 three times": [text, bit, bit, bit],
}


@pytest.mark.parametrize("count", [60, 3])
@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
@pytest.mark.parametrize("cells", HEADLESS.values(), ids=HEADLESS)
def test_a_table_without_a_header_is_asked_about(tmp_path, cells, delimiter, count):
    rows = rows_of(cells, count)
    path = write(tmp_path / ("a.tsv" if delimiter == "\t" else "a.csv"), rows, delimiter)
    with pytest.raises(DataError, match="the first row looks like data, not like a header") as error:
        read_table(path)
    assert error.value.where == f"{path}, row 1"
    assert "--header no" in error.value.fix
    assert "--header yes" in error.value.fix
    with pytest.raises(DataError, match="looks like data"):
        detect_kind(path)
    with reading(header="no"):
        table = read_table(path)
        assert table.names == tuple(f"column{i}" for i in range(1, len(cells) + 1))
        assert [*zip(*map(table.read, table.names), strict=True)] == list(map(tuple, rows))
        assert [*table.rows] == [*range(1, count + 1)]
        streamed = StreamedTable(path, lambda *_: None)
        assert [list(values.values()) for _, values in streamed.rows()] == rows
    with reading(header="yes"):
        if len(set(rows[0])) == len(rows[0]):
            assert len(read_table(path).rows) == count - 1


def stars(rng: random.Random) -> str:
    return rng.choice("12345")


def answer(rng: random.Random) -> str:
    return rng.choice(["yes", "no"])


HEADED: dict[str, list[Cell]] = {
    "text,label": [text, label],
    "0,1": [text, bit],
    ",0,1": [number, text, bit],
    "comment,yes": [text, answer],
    "body,1": [text, bit],
    "What did you like about us?,How satisfied are you (1-5)?": [text, stars],
    "What did you like about us?": [ends(".")],
    "What did you like about us?,What can we do better?": [ends("."), text],
    "Your comment,Mood": [text, label],
    "text,joy,anger": [text, bit, bit],
    "text,1,2,3": [text, bit, bit, bit],
    "review text,stars": [text, stars],
    "customer feedback text": [text],
    "en,de": [text, text],
    "English sentence,German sentence": [text, text],
    "price,text": [price, text],
    "country,2019,2020": [rare, price, price],
    "Timestamp,Please describe your experience in your own words.,Overall rating": [day, text, stars],
    "Frage an den Kunden,Antwort": [ends("?"), text],
    "ham or spam,message": [label, text],
    "v1,v2": [label, text],
    "name,positive": [text, bit],
}


@pytest.mark.parametrize("count", [60, 3])
@pytest.mark.parametrize("names", HEADED)
def test_a_header_is_a_header(tmp_path, names, count):
    table = read_table(write(tmp_path / "a.csv", [names.split(","), *rows_of(HEADED[names], count)]))
    assert table.names == tuple(names.split(","))
    assert len(table.rows) == count


def test_a_table_without_a_header_at_every_reader(tmp_path):
    path = write(tmp_path / "a.csv", rows_of([text, label]))
    with pytest.raises(DataError, match="looks like data"):
        load_text_dataset(path)
    with reading(header="no"):
        dataset = load_text_dataset(path, need_labels=True)
        assert dataset.columns == ("column1", "column2")
        assert len(dataset.splits["train"]) == 60
    pairs = write(tmp_path / "b.tsv", rows_of([text, text, price]), "\t")
    with pytest.raises(DataError, match="looks like data"):
        load_scored_pairs(pairs)
    with reading(header="no"):
        assert load_scored_pairs(pairs).columns == ("column1", "column2", "column3")


@pytest.mark.parametrize(
    "row", ["a film,a film", "a film," + "a very long text " * 100], ids=["the same twice", "a long name"]
)
def test_what_cannot_be_a_header_names_the_way(tmp_path, row):
    path = write(tmp_path / "a.csv", [row.split(",")] * 2)
    with reading(header="yes"), pytest.raises(DataError, match="--header no"):
        read_table(path)


def test_one_row_alone_names_the_way(tmp_path):
    path = write(tmp_path / "a.csv", [["a good film"]])
    with pytest.raises(DataError, match="the file has no rows") as error:
        read_table(path)
    assert "--header no" in error.value.fix
    with reading(header="no"):
        assert read_table(path).read("column1") == ["a good film"]


# --- separators -------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", ["|", "^", "~", "\x01", "\x1f"])
def test_rare_separators(tmp_path, delimiter):
    rows = rows_of([text, label])
    path = write(tmp_path / "a.csv", [["text", "label"], *rows], delimiter)
    table = read_table(path)
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


@pytest.mark.parametrize("sign", ["::", ":", " - ", "#", "/"])
def test_a_separator_that_is_not_read_is_named(tmp_path, sign):
    path = write(tmp_path / "a.csv", [["text", "label"], ["a film", "pos"]], sign)
    with pytest.raises(DataError, match=f"unsupported separator '{sign.strip()}' in the header"):
        read_table(path)


# --- tables in .txt ---------------------------------------------------------------------------


@pytest.mark.parametrize("names", [[], [["text", "label"]], [["comment", "verdict"]]])
def test_a_txt_file_with_tabs_is_a_table(tmp_path, names):
    rows = rows_of([text, label])
    rows[3][0] = '"' + rows[3][0]  # as in many such files: a quote is a character
    path = write(tmp_path / "a.txt", [*names, *rows], "\t")
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
