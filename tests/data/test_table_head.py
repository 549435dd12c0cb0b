"""What stands in a file beside one table is named: lines above the header, the header again, HTML."""

import pytest

from glassformer.data.sources import load_text_dataset
from glassformer.data.tables import StreamedTable, ignore_error, read_table
from glassformer.errors import DataError

ROWS = [
    (f"visit {i} was {'superb' if i % 2 else 'slow'}, all in all", "pos" if i % 2 else "neg")
    for i in range(23)
]
LINES = [f'"{text}",{label}' for text, label in ROWS]
WIDE = [f"{text};{label};;" for text, label in ROWS]


def refused(path) -> str:
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


@pytest.mark.parametrize(
    ("lines", "first", "header", "names", "fix"),
    [
        (
            ["# exported by a form", "# 2024-01-05, 23 rows", "text,label", *LINES],
            "# exported by a form",
            3,
            "text, label",
            "the 2 rows",
        ),
        (
            ["Umfrage 2024;;;", ";;;", "Kommentar;Urteil;;", *WIDE],
            "Umfrage 2024",
            3,
            "Kommentar, Urteil",
            "the 2 rows",
        ),
        (
            ["Umfrage 2024", "", "Kommentar;Urteil", *(x[:-2] for x in WIDE)],
            "Umfrage 2024",
            3,
            "Kommentar, Urteil",
            "the 2 rows",
        ),
        (
            ["Answers", "review\tkind", *(f"{t}\t{k}" for t, k in ROWS)],
            "Answers",
            2,
            "review, kind",
            "the row",
        ),
    ],
)
def test_lines_above_the_header_are_named(tmp_path, lines, first, header, names, fix):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + "\n")
    assert refused(path) == (
        f"{path}: row 1 is not a header but a line above the table ({first!r}); row {header} looks like the "
        f"header: {names}. Remove {fix} above row {header}; if row 1 is the header, add --header yes"
    )
    path.write_text("\n".join(lines[header - 1 :]).replace(";;", "") + "\n")
    assert len(read_table(path).rows) == len(ROWS)


@pytest.mark.parametrize(
    "lines",
    [
        ["comment", *(f"good {i}; bad" for i in range(23))],  # one column, a semicolon in each text
        [",text", *(f'{i},"{text}"' for i, (text, _) in enumerate(ROWS))],  # pandas' index has no name
        ["#,text", *(f'{i},"{text}"' for i, (text, _) in enumerate(ROWS))],
        ["label", *(label for _, label in ROWS)],
        ["text,label", *LINES],
    ],
)
def test_a_header_is_no_line_above_one(tmp_path, lines):
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    assert len(read_table(tmp_path / "t.csv").rows) == 23


def test_columns_without_a_name_are_counted(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["Kommentar;Urteil;;", *WIDE]) + "\n")
    with pytest.raises(DataError, match=r"row 1: columns 3, 4 have no name\. Name them, or remove them"):
        read_table(path)


@pytest.mark.parametrize("begin", ["<html><table>", "<!DOCTYPE html>\n<html>", "\n  <TABLE border=1>"])
def test_a_page_of_html_is_named(tmp_path, begin):
    path = tmp_path / "t.csv"
    path.write_text(f"{begin}\n<tr><td>text</td><td>label</td></tr>\n" + "<tr><td>a, b</td></tr>\n" * 7)
    assert refused(path) == (
        f"{path}: the file is an HTML page, not a .csv table. Open it in a spreadsheet and "
        "save the sheet as CSV in UTF-8"
    )


@pytest.mark.parametrize("names", ["text,label", "Kommentar,Urteil"])
def test_rows_that_repeat_the_header_are_named_and_left_out(tmp_path, names):
    path = tmp_path / "t.csv"
    path.write_text("\n".join([names, *LINES[:11], names, *LINES[11:19], names, *LINES[19:]]) + "\n")
    with pytest.raises(DataError) as error:
        load_text_dataset(path)
    assert str(error.value) == (
        f"{path}, row 13: the header is repeated where a row is expected (rows 13, 22) (1 more row cannot be "
        "used). Remove the rows that repeat the header, or leave such rows out with on_bad_row=skip"
    )
    skipped = load_text_dataset(path, on_bad_row="skip", need_labels=True)
    assert skipped.splits["train"].texts == [text for text, _ in ROWS]
    assert skipped.splits["train"].labels == [label for _, label in ROWS]
    assert [(row.row, row.reason) for row in skipped.rejected] == [
        (row, "the header is repeated where a row is expected") for row in (13, 22)
    ]
    assert [tuple(row.values()) for _, row in StreamedTable(path, ignore_error).rows()] == ROWS


def test_a_header_in_another_order_begins_another_table(tmp_path):
    path = tmp_path / "t.csv"
    swapped = [f'{label},"{text}"' for text, label in ROWS[11:]]
    path.write_text("\n".join(["text,label", *LINES[:11], "label,text", *swapped]) + "\n")
    assert refused(path) == (
        f"{path}: row 13 is a second header (label,text), with another order of the columns than the first "
        "header (text,label), so a second table begins there. Save the rows from row 13 on as another file, or "
        "change the order of their columns"
    )


@pytest.mark.parametrize("names", [("text", "label"), ("review", "mood")])
@pytest.mark.parametrize("column", [None, "named"])
def test_a_split_without_labels_is_named(tmp_path, names, column):
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    train.write_text("\n".join([",".join(names), *LINES]) + "\n")
    test.write_text(
        "\n".join(["id," + names[0], *(f'{i},"{text}"' for i, (text, _) in enumerate(ROWS))]) + "\n"
    )
    column = names[1] if column else None
    with pytest.raises(DataError) as error:
        load_text_dataset(tmp_path, need_labels=True, label_column=column)
    assert str(error.value) == (
        f"{test}: the split 'test' has no labels: it lacks the column {names[1]!r} of 'train'. Use only {train}"
        ", or move this file out of the folder, or add its labels"
    )
    assert len(load_text_dataset(train, need_labels=True, label_column=column).splits["train"].labels) == 23
