"""Table files: what is read, and that every fault is named with its row."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data.files import read_utf8
from glassformer.data.parquet import read_column
from glassformer.data.rejected import skip_message, write_rejected
from glassformer.data.sources import load_text_dataset
from glassformer.data.tables import StreamedTable, detect_delimiter, raise_error, read_table
from glassformer.errors import DataError


def write(path, content: str | bytes):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_csv_counts_rows_as_a_spreadsheet_does(tmp_path):
    table = read_table(write(tmp_path / "a.csv", 'text,label\n"one\ntwo",x\n\n"say ""hi""",y\n'))
    assert table.names == ("text", "label")
    assert table.read("text") == ["one\ntwo", 'say "hi"']
    assert list(table.rows) == [2, 4]  # the blank line is row 3
    assert not table.typed


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_separator_is_seen_in_the_header(tmp_path, delimiter):
    table = read_table(write(tmp_path / "a.csv", f"text{delimiter}label\r\ngood film{delimiter}1\r\n"))
    assert table.read("text") == ["good film"]
    assert table.read("label") == ["1"]


def test_tsv_keeps_commas_and_long_cells(tmp_path):
    long = "word, " * 40_000  # above the csv module's own limit
    limit = csv.field_size_limit()
    table = read_table(write(tmp_path / "a.tsv", f"text\tlabel\n{long}\t1\n"))
    assert table.read("text") == [long]
    assert csv.field_size_limit() == limit


def test_byte_order_mark_is_taken_off(tmp_path):
    assert read_table(write(tmp_path / "a.csv", b"\xef\xbb\xbftext,label\nfilm,1\n")).names == (
        "text",
        "label",
    )
    line = b'\xef\xbb\xbf{"text": "film"}\n'
    assert read_table(write(tmp_path / "a.jsonl", line)).read("text") == ["film"]


@given(st.lists(st.tuples(st.text(min_size=1), st.text()), min_size=1, max_size=5))
def test_csv_written_by_python_comes_back(tmp_path_factory, records):
    clean = [[c.replace("\0", "").replace("\r", "") for c in r] for r in records]
    clean = [[a or "x", b] for a, b in clean]
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", newline="", encoding="utf-8", errors="replace") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(clean)
    table = read_table(path)
    written = [[cell.encode(errors="replace").decode() for cell in record] for record in clean]
    assert [list(r) for r in zip(table.read("text"), table.read("label"), strict=True)] == written


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,label\ngood,1\nbad,film,0\n", "row 3: 3 fields where the header has 2"),
        ("a.csv", "text,label\ngood\n", "row 2: 1 fields where the header has 2"),
        ("a.csv", 'text,label\ngood,1\n"never closed,0\nmore,1\n', "row 3: a double quote is never closed"),
        ("a.csv", 'text,label\n"a" film,1\n', "row 2: invalid quotes"),
        ("a.csv", "text,text\na,b\n", "row 1: column 'text' occurs twice"),
        ("a.csv", "text,label\n", "the file has no rows"),
        ("a.csv", "", "the file has no rows"),
        ("a.csv", b"text,label\nok,1\ncaf\xe9,0\n", "line 3: not UTF-8: byte 0xe9"),
        ("a.csv", b"\xef\xbb\xbftext\n\xe9\n", "line 2: not UTF-8: byte 0xe9"),
        ("a.csv", "text,label\nfilm,1\n".encode("utf-16"), "the file is UTF-16"),
        ("a.csv", "text,label\nfilm,1\n".encode("utf-16-le"), "the file is UTF-16-LE"),
        ("a.csv", "text,label\nfilm,1\n".encode("utf-32"), "the file is UTF-32"),
        ("a.csv", b"text,label\nfi\0lm,1\n", "line 2: a NUL byte"),
        ("a.jsonl", '{"text": "a"}\n\n{"text": \n', "row 3: not JSON"),
        ("a.jsonl", '{"text": "a"}\n["b"]\n', "row 2: not a JSON object"),
        ("a.jsonl", '{"n": ' + "9" * 5000 + "}\n", "row 1: not JSON"),
        ("a.jsonl", "[" * 100_000 + "\n", "row 1: nested too deeply"),
        ("a.jsonl", "\n", "the file has no rows"),
        ("a.json", "[1, 2]", "row 1: not a JSON object"),
        ("a.parquet", b"PAR1 this is not a table", "not a Parquet file"),
        ("a.xlsx", b"", "files of type '.xlsx' are not supported"),
    ],
)
def test_faults_are_named(tmp_path, name, content, message):
    path = write(tmp_path / name, content)
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.fix


def test_a_broken_array_is_not_told_to_be_lines(tmp_path):
    path = write(tmp_path / "a.json", '[{"text": "a"}, ')
    with pytest.raises(DataError, match=r"not JSON .* Write one array of objects"):
        read_table(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '[\n {"text": "a",\n  "label": "x",\n }\n]',
            "line 3: not JSON (there is a comma before '}', column 15)",
        ),
        (
            '[\n {"text": "a"},\n]',
            "line 2: not JSON (there is a comma before ']', column 15). Remove the comma",
        ),
        ('[{"text": "a"},\n{"text" "b"}]', "line 2: not JSON (expecting ':' delimiter, column 9)"),
        ('[{"text": "a"}\n {"text": "b"}]', "line 2: not JSON (a ',' or ']' is missing, column 2)"),
    ],
)
def test_a_broken_array_names_the_line_and_the_column(tmp_path, content, message):
    with pytest.raises(DataError) as caught:
        read_table(write(tmp_path / "a.json", content))
    assert message in str(caught.value)


def test_missing_file_names_the_nearest(tmp_path):
    write(tmp_path / "reviews.csv", "text\na\n")
    with pytest.raises(DataError, match=r"no such file\. Did you mean 'reviews.csv'\?"):
        read_table(tmp_path / "review.csv")


def test_jsonl_row_without_the_key(tmp_path):
    table = read_table(write(tmp_path / "a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n'))
    assert table.names == ("text", "label")
    with pytest.raises(DataError, match="row 2: the object has no 'label'"):
        table.read("label")


def test_json_array_and_line_separators_inside_texts(tmp_path):
    records = [{"text": "one\u2028two", "label": 0}, {"text": "three", "label": 1}]
    array = read_table(write(tmp_path / "a.json", json.dumps(records)))
    lines = read_table(
        write(tmp_path / "a.jsonl", "\r\n".join(json.dumps(r, ensure_ascii=False) for r in records))
    )
    assert array.read("text") == lines.read("text") == ["one\u2028two", "three"]
    assert list(lines.rows) == [1, 2]


def test_parquet_class_names_and_damage(tmp_path):
    info = {"info": {"features": {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}, "text": {}}}}
    schema = pa.schema([("text", pa.string()), ("label", pa.int64())], {"huggingface": json.dumps(info)})
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a" * 5000, "b"], "label": [0, 1]}, schema), path, compression="none")
    table = read_table(path)
    assert table.class_names == {"label": ("neg", "pos")}
    assert table.read("label") == [0, 1]

    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
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


def test_read_utf8_refuses_a_folder(tmp_path):
    with pytest.raises(DataError, match="a folder, where a file is expected"):
        read_utf8(tmp_path)


def test_bad_rows_are_skipped_and_listed(tmp_path):
    csv = "text,label\ngood film,1\nragged,0,9\n,1\nbad film,0\nno label,\nfine film,1\n"
    lines = '{"text": "good", "label": 1}\n{"text": \n["x"]\n{"label": 0}\n{"text": "bad", "label": 0}\n'
    for name, content, kept, dropped in (
        ("a.csv", csv, [2, 5, 7], [3, 4, 6]),
        ("a.jsonl", lines, [1, 5], [2, 3, 4]),
    ):
        path = write(tmp_path / name, content)
        with pytest.raises(DataError):
            load_text_dataset(path)
        dataset = load_text_dataset(path, on_bad_row="skip")
        assert list(dataset.splits["train"].rows or ()) == kept
        assert sorted(row.row for row in dataset.rejected) == dropped
        assert {row.file for row in dataset.rejected} == {str(path)}
        write_rejected(tmp_path / "rejected.jsonl", dataset.rejected)
        told = [json.loads(line) for line in (tmp_path / "rejected.jsonl").read_text().splitlines()]
        assert sorted(row["row"] for row in told) == dropped
        assert all(row["reason"] for row in told)
        assert f"{len(dropped)} rows left out" in skip_message(dataset.rejected)


def test_a_file_without_one_good_row_is_refused(tmp_path):
    with pytest.raises(DataError, match="column 'text': empty in all 2 rows"):
        load_text_dataset(write(tmp_path / "a.csv", "text,label\n,1\n,0\n"), on_bad_row="skip")


@pytest.mark.parametrize(
    "content",
    [
        '\n \ntext;label\n"a, b";x\nc d;y\n',
        '"text, as it came, raw";label\n"a, b";x\nc d;y\n',
        'text 5"\tlabel\na, b\tx\nc d\ty\n',
    ],
)
def test_the_separator_is_that_of_the_header(tmp_path, content):
    path = tmp_path / "a.csv"
    path.write_text(content, encoding="utf-8", newline="")
    table = read_table(path)
    assert table.names[1] == "label"
    assert table.read(table.names[0]) == ["a, b", "c d"]
    assert table.read("label") == ["x", "y"]


def test_an_empty_name_in_quotes_is_no_blank_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('""\nfirst\nsecond\n')
    assert read_table(path).read("") == ["first", "second"]


def test_a_key_that_stands_twice_is_refused_in_an_array_too(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[{"text": "a", "text": "b"}]')
    with pytest.raises(DataError, match="the key 'text' occurs twice"):
        read_table(path)


SEPARATED = [
    ('sep=;\ntext;label\n"a, b";x\nc d;y\n', ";"),
    ('sep=,\r\ntext,label\r\n"a, b",x\r\nc d,y\r\n', ","),
    ("\ufeffSEP=|\ntext|label\na, b|x\nc d|y\n", "|"),
    ('"sep=;"\ntext;label\n"a, b";x\nc d;y\n', ";"),
    ("sep=\t\ntext\tlabel\na, b\tx\nc d\ty\n", "\t"),
]


@pytest.mark.parametrize(("content", "delimiter"), SEPARATED)
def test_excels_line_names_the_separator_and_is_no_header(tmp_path, content, delimiter):
    path = tmp_path / "a.csv"
    path.write_text(content, encoding="utf-8", newline="")
    table = read_table(path)
    assert detect_delimiter(path, "strict") == delimiter
    assert table.names == ("text", "label")
    assert table.read("text") == ["a, b", "c d"]
    assert list(table.rows) == [3, 4]
    assert [row for row, _ in StreamedTable(path, raise_error).rows()] == [3, 4]


def test_a_column_may_be_called_as_excels_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,sep=\na b,x\nsep=;,y\n", encoding="utf-8")
    assert read_table(path).read("text") == ["a b", "sep=;"]


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_a_row_group_without_rows_is_passed_over(empty, tmp_path):
    schema = pa.schema([("c", pa.list_(pa.string())), ("t", pa.string())])
    full = iter([{"c": [["a"], ["b"]], "t": ["x", "y"]}, {"c": [["c"]], "t": ["z"]}])
    with pq.ParquetWriter(tmp_path / "t.parquet", schema) as writer:
        for i in range(3):
            writer.write_table(pa.table({"c": [], "t": []} if i == empty else next(full), schema=schema))
    assert read_column(tmp_path / "t.parquet", "c") == [["a"], ["b"], ["c"]]
    assert read_column(tmp_path / "t.parquet", "t") == ["x", "y", "z"]


def test_a_line_end_within_a_quoted_name_does_not_end_the_header(tmp_path):
    for end in ("\r", "\r\n", "\n"):
        (tmp_path / "t.csv").write_bytes(f'"my{end}text, a, b";label\nab;x\n'.encode())
        assert read_table(tmp_path / "t.csv").names[1] == "label"


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.list_(pa.struct([("x", pa.string())]))])
def test_lists_are_read_across_row_groups_which_have_a_dictionary_each(kind, compact, tmp_path):
    rows = [["a", "b"], [], None, ["c"] * 3, ["a"]] * 7
    if pa.types.is_struct(kind.value_type):
        rows = [row and [{"x": x} for x in row] for row in rows]
    table = pa.table({"k": range(35), "c": pa.array(rows, kind)})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=3, use_dictionary=compact)
    assert read_column(tmp_path / "t.parquet", "c") == rows


def test_one_object_is_not_a_table(tmp_path):
    columns = {"text": {"0": "a", "1": "b"}, "label": {"0": 1, "1": 0}}  # as pandas writes it by default
    lists = {"text": ["a", "b"], "label": [1, 0]}
    split = {"columns": ["text"], "index": [0], "data": [["a"]]}
    for whole in (columns, lists, split, {"version": "1", "rows": [{"text": "a"}]}):
        path = write(tmp_path / "a.json", json.dumps(whole, indent=1))
        with pytest.raises(DataError, match=r"one JSON object, where an array .*orient="):
            read_table(path)
    squad = {"version": "1.1", "data": [{"paragraphs": [{"context": "a", "qas": []}]}]}
    path = write(tmp_path / "squad.json", json.dumps(squad))
    with pytest.raises(
        DataError, match=r"in the format of SQuAD.*glassformer train facts-minilm --data .*squad\.json"
    ):
        read_table(path)
    one = {"text": "a", "tags": ["x", "y"]}
    assert read_table(write(tmp_path / "b.json", json.dumps(one))).read("tags") == [["x", "y"]]
