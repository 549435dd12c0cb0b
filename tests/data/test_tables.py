"""Table files: what is read, and that every fault is named with its row."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data import files, tables
from glassformer.data.files import read_utf8
from glassformer.data.parquet import read_column
from glassformer.data.sources import load_text_dataset
from glassformer.data.tables import StreamedTable, detect_delimiter, ignore_error, raise_error, read_table
from glassformer.errors import DataError

from .conftest import class_labels, json_lines


def cells(path, refuse=raise_error) -> list[tuple]:
    """The rows of a table; streaming gives the same."""
    table = read_table(path, refuse)
    found = [*zip(*map(table.read, table.names), strict=True)]
    if path.suffix in (".csv", ".tsv"):
        assert [tuple(row.values()) for _, row in StreamedTable(path, ignore_error).rows()] == found
    return found


LONG = "word, " * 40_000  # above the csv module's own limit
AB = [("a, b", "x"), ("c d", "y")]
READ = {
    "blank lines before the header": ('\n \ntext;label\n"a, b";x\nc d;y\n', AB),
    "a comma in a quoted name": ('"text, as it came, raw";label\n"a, b";x\nc d;y\n', AB),
    "inches in a name": ('text 5"\tlabel\na, b\tx\nc d\ty\n', AB),
    **{
        f"{end!r} in a quoted name": (f'"my{end}text, a, b";label\nab;x\n'.encode(), [("ab", "x")])
        for end in ("\r", "\r\n", "\n")
    },
    "an empty name in quotes is no blank line": ('""\nfirst\nsecond\n', [("first",), ("second",)]),
    "a column called as Excel's line": ("text,sep=\na b,x\nsep=;,y\n", [("a b", "x"), ("sep=;", "y")]),
    "a byte order mark": (b"\xef\xbb\xbftext,label\nfilm,1\n", [("film", "1")]),
    "the separator in quotes": ('label,text\npos, "b, c"\nneg, d\n', [("pos", "b, c"), ("neg", "d")]),
    "blanks that stay": (
        'text,note\n"he said, ""well"", yes", free\nfine, more\n',
        [('he said, "well", yes', " free"), ("fine", " more")],
    ),
    "old Macs": (
        "\r".join(
            ["text;label", *(f"well, number {i}, is it, so;{'ab'[i % 2]}" for i in range(9)), ""]
        ).encode(),
        [(f"well, number {i}, is it, so", "ab"[i % 2]) for i in range(9)],
    ),
    "long cells": (f"text\tlabel\n{LONG}\t1\n", [(LONG, "1")]),
}


@pytest.mark.parametrize("name", READ)
def test_what_is_read(put, name):
    content, wanted = READ[name]
    limit = csv.field_size_limit()
    assert cells(put("a.csv", content)) == wanted
    assert csv.field_size_limit() == limit


def test_csv_counts_rows_as_a_spreadsheet_does(put):
    table = read_table(put("a.csv", 'text,label\n"one\ntwo",x\n\n"say ""hi""",y\n'))
    assert (table.names, table.typed) == (("text", "label"), False)
    assert dict(zip(table.rows, table.read("text"), strict=True)) == {2: "one\ntwo", 4: 'say "hi"'}


@given(st.lists(st.tuples(st.text(min_size=1), st.text()), min_size=1, max_size=5))
def test_csv_written_by_python_comes_back(tmp_path_factory, records):
    clean = [[c.replace("\0", "").replace("\r", "") for c in r] for r in records]
    clean = [[a or "x", b] for a, b in clean]
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", newline="", encoding="utf-8", errors="replace") as file:
        csv.writer(file).writerows([["text", "label"], *clean])
    readable = [tuple(cell.encode(errors="replace").decode() for cell in record) for record in clean]
    assert cells(path) == readable


@pytest.mark.parametrize(
    ("content", "delimiter"),
    [
        ('sep=;\ntext;label\n"a, b";x\nc d;y\n', ";"),
        ('sep=,\r\ntext,label\r\n"a, b",x\r\nc d,y\r\n', ","),
        ("\ufeffSEP=|\ntext|label\na, b|x\nc d|y\n", "|"),
        ('"sep=;"\ntext;label\n"a, b";x\nc d;y\n', ";"),
        ("sep=\t\ntext\tlabel\na, b\tx\nc d\ty\n", "\t"),
    ],
)
def test_excels_line_names_the_separator_and_is_no_header(put, content, delimiter):
    path = put("a.csv", content)
    assert detect_delimiter(path, "strict") == delimiter
    assert (read_table(path).names, cells(path)) == (("text", "label"), AB)
    assert [*read_table(path).rows] == [row for row, _ in StreamedTable(path, raise_error).rows()] == [3, 4]


# --- blanks between a separator and a quote: no part of a cell where the rows show it -----------------

PAIRS = [
    ("a film, good", "pos"),
    ('she said "no", twice', "neg"),
    ("plain", "pos"),
    ("two\nlines; here", "neg"),
]


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
@pytest.mark.parametrize(
    ("before", "behind"), [("", ""), (" ", ""), ("   ", ""), (" ", " "), ("", " "), ("  ", "   ")]
)
def test_blanks_beside_quotes(put, sign, before, behind):
    rows = [*PAIRS, (f'a "" {sign} "b"\n"c" {sign} d', "neg")] if behind else PAIRS
    lines = [f"{quoted(text)}{behind}{sign}{before}{quoted(label)}{behind}" for text, label in rows]
    header = f"text{sign}label"
    if behind:
        header = f'"text"{behind}{sign}{before}"label"{behind}'
    path = put("t.csv", ("\r\n" if behind else "\n").join([header, *lines]))
    assert cells(path) == rows
    assert load_text_dataset(path).splits["train"].labels == [label for _, label in rows]


def test_other_ragged_rows_change_nothing(put):
    lines = ["text,label", *(f"{quoted(text)}, {quoted(label)}" for text, label in PAIRS), "one,two,three"]
    path = put("t.csv", lines)
    with pytest.raises(DataError, match=r"row 6: 3 fields .*Put a text that contains the separator"):
        read_table(path)
    assert cells(path, ignore_error) == PAIRS


# --- JSON ---------------------------------------------------------------------------------------------


def test_json_array_and_line_separators_inside_texts(put):
    records = [{"text": "one\u2028two", "label": 0}, {"text": "three", "label": 1}]
    array = read_table(put("a.json", json.dumps(records)))
    lines = read_table(put("a.jsonl", "\r\n".join(json.dumps(r, ensure_ascii=False) for r in records)))
    assert array.read("text") == lines.read("text") == ["one\u2028two", "three"]
    assert list(lines.rows) == [1, 2]
    assert read_table(put("b.jsonl", b'\xef\xbb\xbf{"text": "film"}\n')).read("text") == ["film"]
    assert read_table(put("b.json", '{"text": "a", "tags": ["x", "y"]}')).read("tags") == [["x", "y"]]


def test_long_arrays_are_parsed_piece_by_piece(put):
    records = [{"text": f"film {i} " * (1 + 20_011 * (i == 5)), "label": i % 2} for i in range(97)]
    table = read_table(put("a.json", "\ufeff \n" + json.dumps(records, indent=1)))
    assert table.read("text") == [r["text"] for r in records]
    assert list(table.rows) == list(range(1, 98))


def test_jsonl_row_without_the_key(put):
    table = read_table(put("a.jsonl", json_lines([{"text": "a", "label": 1}, {"text": "b"}])))
    assert table.names == ("text", "label")
    with pytest.raises(DataError, match="row 2: the object has no 'label'"):
        table.read("label")


# --- what is refused ----------------------------------------------------------------------------------

SIGNS = "::", ":", " - ", "#", "/"
SQUAD = json.dumps({"version": "1.1", "data": [{"paragraphs": [{"context": "a", "qas": []}]}]})
REFUSED = [
    ("a.csv", "text,label\ngood,1\nbad,film,0\n", "row 3: 3 fields where the header has 2"),
    ("a.csv", "text,label\ngood\n", "row 2: 1 fields where the header has 2"),
    ("a.csv", 'text,label\ngood,1\n"never closed,0\nmore,1\n', "row 3: a double quote is never closed"),
    ("a.csv", 'text,label\n"a" film,1\n', "row 2: invalid quotes"),
    ("a.tsv", 'text\tlabel\n"Great" film\tpos\na film\tneg\n', "--quoting none"),
    ("a.csv", 'text,label\nhe said, "well, yes",pos\nfine,neg\n', "Remove the blanks between a separator"),
    ("a.csv", 'text,label\n"well, yes" ,"pos" \n"fine" , "a" , "b"\n', "Remove the blanks between a closing"),
    ("a.csv", "text,text\na,b\n", "row 1: column 'text' occurs twice"),
    ("a.csv", "text;label;;\na film;pos;;\na plot;neg;;\n", "row 1: columns 3, 4 have no name. Name them"),
    ("a.csv", "text,label\n", "the file has no rows"),
    ("a.csv", "", "the file has no rows"),
    ("a.csv", b"text,label\nok,1\ncaf\xe9,0\n", "line 3: not UTF-8: byte 0xe9"),
    ("a.csv", b"\xef\xbb\xbftext\n\xe9\n", "line 2: not UTF-8: byte 0xe9"),
    ("a.csv", b"text,label\nfi\0lm,1\n", "line 2: a NUL byte"),
    ("a.csv", ",".join(map(str, range(70_001))) + "\n", "row 1: 70,001 columns, and at most 65,536"),
    ("a.csv", "text," * 60_000 + "x\na\n", "'text' occurs twice"),
    ("a.csv", "word " * 503 + ",1\na,2\n", "the name of column 1 has 2,514 characters"),
    *(
        ("a.csv", f"text{sign}label\na{sign}b\n", f"unsupported separator '{sign.strip()}' in the")
        for sign in SIGNS
    ),
    ("a.jsonl", '{"text": "a"}\n\n{"text": \n', "row 3: not JSON"),
    ("a.jsonl", '{"text": "a"}\n["b"]\n', "row 2: not a JSON object"),
    ("a.jsonl", '{"n": ' + "9" * 5000 + "}\n", "row 1: not JSON"),
    ("a.jsonl", "[" * 100_000 + "\n", "row 1: nested too deeply"),
    ("a.jsonl", '{"a": ' + "[" * 100_003, "nested too deeply"),
    ("a.jsonl", "\n", "the file has no rows"),
    ("a.jsonl", "".join(f'{{"k{i}": 1}}\n' for i in range(70_001)), "65,537 columns"),
    ("a.jsonl", json.dumps({"k" * 1_009: 1}) + "\n", "the name of column 1 has 1,009 characters"),
    ("a.json", "[1, 2]", "row 1: not a JSON object"),
    ("a.json", '[{"a": ' + "[" * 100_003, "nested too deeply"),
    ("a.json", '[{"text": "a", "text": "b"}]', "the key 'text' occurs twice"),
    ("a.json", '[{"text": "a"}, ', "Write one array of objects"),  # and not lines
    ("a.json", '[{"text": "a"},', "line 1: not JSON (it ends too early, column 16)"),
    ("a.json", '[{"text": "a"}] []', "text after the end of the array"),
    ("a.json", '[{"text": "a"} {"text": "b"}]', "line 1: not JSON (a ',' or ']' is missing, column 16)"),
    ("a.json", '[{"text": "a"}\n {"text": "b"}]', "line 2: not JSON (a ',' or ']' is missing, column 2)"),
    ("a.json", '[{"text": "a"},\n{"text" "b"}]', "line 2: not JSON (expecting ':' delimiter, column 9)"),
    ("a.json", '[\n {"text": "a",\n  "x": "x",\n }\n]', "line 3: not JSON (there is a comma before '}', c"),
    ("a.json", '[\n {"text": "a"},\n]', "line 2: not JSON (there is a comma before ']', column 15). Remo"),
    *(
        ("a.json", json.dumps(whole, indent=1), "orient=")
        for whole in (
            {"text": {"0": "a", "1": "b"}, "label": {"0": 1, "1": 0}},  # as pandas writes it by default
            {"text": ["a", "b"], "label": [1, 0]},
            {"columns": ["text"], "index": [0], "data": [["a"]]},
            {"version": "1", "rows": [{"text": "a"}]},
        )
    ),
    ("squad.json", SQUAD, "glassformer train facts-minilm --data "),
    ("a.parquet", b"PAR1 this is not a table", "not a Parquet file"),
    ("a.xlsx", b"", "files of type '.xlsx' are not supported"),
]


@pytest.mark.parametrize(("name", "content", "said"), REFUSED, ids=[row[2][:60] for row in REFUSED])
def test_faults_are_named(put, name, content, said):
    path = put(name, content)
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.fix
    assert len(str(caught.value)) < 2_000


def test_files_that_are_not_there(put, tmp_path):
    put("reviews.csv", "text\na\n")
    with pytest.raises(DataError, match=r"no such file\. Did you mean 'reviews.csv'\?"):
        read_table(tmp_path / "review.csv")
    with pytest.raises(DataError, match="a folder, where a file is expected"):
        read_utf8(tmp_path)


def test_lines_and_values_are_bounded(put, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE", 2_000_003)
    for suffix in (".txt", ".csv", ".jsonl"):
        with pytest.raises(DataError, match="line 212: more than 2,000,003 characters in one line"):
            load_text_dataset(put(f"long{suffix}", "short\n" * 211 + "a" * 2_000_017 + "\n"))
    files.check_utf8(put("long.jsonl", "short\n" * 211 + "a" * 1_999_993 + "\n" + "b" * 1_999_993))
    monkeypatch.setattr(tables, "MAX_VALUES", 1_000)
    many = '{"a": [' + "[]," * 701 + "[]]}"
    for path in (put("a.jsonl", many + "\n"), put("b.json", f"[{many}]")):
        with pytest.raises(DataError, match="more than 1,000 values in one row"):
            read_table(path)
    with pytest.raises(DataError, match="line 2: more than 1,000 separators in one line"):
        read_table(put("a.csv", "text,label\n" + "," * 1_009 + "\n"))


def test_a_wide_table_is_read_for_its_columns_only(put):
    texts, wide = ["a good film", "a bad film", "żółw"] * 7, [f"c{i}" for i in range(30_011)]
    rows = [",".join([text, str(i % 2), *["1"] * 30_011]) for i, text in enumerate(texts)]
    path = put("wide.csv", [",".join(["text", "label", *wide]), *rows])
    table = read_table(path)
    assert table.read("text") == texts
    assert table.read("c30010") == ["1"] * len(texts)
    with pytest.raises(DataError) as caught:
        load_text_dataset(path, label_column="lebal_of_nothing_here")
    assert len(str(caught.value)) < 2_000


# --- Parquet ------------------------------------------------------------------------------------------


def test_parquet_class_names_and_damage(tmp_path):
    path = class_labels(tmp_path / "a.parquet", {"text": ["a" * 5000, "b"], "label": [0, 1]}, ("neg", "pos"))
    assert read_table(path).class_names == {"label": ("neg", "pos")}
    assert read_table(path).read("label") == [0, 1]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match="not a Parquet file"):
        read_table(path)


@pytest.mark.parametrize("note", [b"no json", b"[]", b'{"info": {"features": {"label": 3}}}'])
def test_foreign_schema_notes_are_passed_over(tmp_path, note):
    schema = pa.schema([("text", pa.string())], {b"huggingface": note})
    pq.write_table(pa.table({"text": ["a"]}, schema), tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet").class_names == {}


def test_parquet_text_that_is_not_utf8(tmp_path):
    raw = pa.array([b"fine", b"caf\xe9"], pa.binary())
    column = pa.StringArray.from_buffers(2, *raw.buffers()[1:])
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"row 2: not UTF-8"):
        read_table(tmp_path / "a.parquet").read("text")


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_a_row_group_without_rows_is_passed_over(empty, tmp_path):
    schema = pa.schema([("c", pa.list_(pa.string())), ("t", pa.string())])
    full = iter([{"c": [["a"], ["b"]], "t": ["x", "y"]}, {"c": [["c"]], "t": ["z"]}])
    with pq.ParquetWriter(tmp_path / "t.parquet", schema) as writer:
        for i in range(3):
            writer.write_table(pa.table({"c": [], "t": []} if i == empty else next(full), schema=schema))
    assert read_column(tmp_path / "t.parquet", "c") == [["a"], ["b"], ["c"]]
    assert read_column(tmp_path / "t.parquet", "t") == ["x", "y", "z"]


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.list_(pa.struct([("x", pa.string())]))])
def test_lists_are_read_across_row_groups_which_have_a_dictionary_each(kind, compact, tmp_path):
    rows = [["a", "b"], [], None, ["c"] * 3, ["a"]] * 7
    if pa.types.is_struct(kind.value_type):
        rows = [row and [{"x": x} for x in row] for row in rows]
    table = pa.table({"k": range(35), "c": pa.array(rows, kind)})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=3, use_dictionary=compact)
    assert read_column(tmp_path / "t.parquet", "c") == rows
