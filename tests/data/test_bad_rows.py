"""Rows that cannot be used, whatever the task: counted by kind, refused with the way out, or left out and listed."""

import json
from dataclasses import replace

import pytest

from glassformer.data.doctor import examine
from glassformer.data.pair_doctor import examine_pairs
from glassformer.data.pairs import load_pairs
from glassformer.data.rejected import RejectedRow, group_reasons, lenient_table, skip_message, write_rejected
from glassformer.data.sources import load_text_dataset
from glassformer.data.tables import read_table
from glassformer.errors import DataError
from glassformer.tasks.catalog import load_recipe, recipe_names
from glassformer.tasks.masked_lm.estimator import load_corpus
from glassformer.tasks.word2vec.estimator import load_texts

from .conftest import by_code, json_lines


def test_kinds_are_counted_with_the_first_rows():
    rows = [RejectedRow("a.csv", i, "the text is empty") for i in (3, 8, 9, 11)]
    rows += [RejectedRow("a.csv", i, f"{i - 2} fields where the header has 2") for i in (5, 6)]
    assert group_reasons(rows) == (
        "the text is empty (4: rows 3, 8, 9 ...), 3 fields where the header has 2 and the like (2: rows 5, 6)"
    )
    many = [RejectedRow("a", i, f"{'x' * (i + 1)}") for i in range(7)]
    assert group_reasons(many, limit=2).endswith("and 5 more reasons")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["a film,x", ",y"], "row 3: the text is empty"),
        (["a film,x", "no film,"], "row 3: the label is missing"),
        (["a film,x", "no film,nan"], "row 3: the label is missing"),
        (["a film,x", ",y", "no film,", ",x"], r"row 3: the text is empty \(2 more rows cannot be used\)"),
        (["a film,x", "b,y,z", "c,x,y"], r"row 3: 3 fields where .* \(1 more row cannot be used\)"),
    ],
)
def test_a_refused_row_says_how_to_go_on_without_it(put, rows, said):
    path = put("a.csv", ["text,label", *rows])
    with pytest.raises(DataError, match=f"{path}, {said}.*on_bad_row=skip"):
        load_text_dataset(path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"text,label\n,1\n,0\n", "column 'text': empty in all 2 rows"),
        (
            "a.jsonl",
            b'{"text": "a", "label": {"x": 1}}\n' * 3,
            "no row can be used.*the labels look like lis",
        ),
        ("a.csv", b"text,label\ncaf\xe9,1\nth\xe9,0\n", "; the first: not UTF-8.*--encoding cp1252"),
        ("a.csv", b"caf\xe9,label\nfine,1\n", "line 1: not UTF-8"),
    ],
)
def test_a_table_of_which_nothing_is_left_says_why(put, name, content, said):
    with pytest.raises(DataError, match=said):
        load_text_dataset(put(name, content), on_bad_row="skip")


RAGGED = "text,label\ngood film,1\nragged,0,9\n,1\nbad film,0\nno label,\nfine film,1\n"
LINES = '{"text": "good", "label": 1}\n{"text": \n["x"]\n{"label": 0}\n{"text": "bad", "label": 0}\n'
WIDE = ",".join(["text,label", *(f"c{i}" for i in range(23))])  # rows of many columns are read again
WIDE = "\n".join([WIDE, "a film,0" + ",1" * 23, "ragged,0", "", "bad film,0" + ",1" * 23, ""])


@pytest.mark.parametrize(
    ("name", "content", "kept", "dropped"),
    [
        ("a.csv", RAGGED, [2, 5, 7], [3, 4, 6]),
        ("a.jsonl", LINES, [1, 5], [2, 3, 4]),
        ("wide.csv", WIDE, [2, 5], [3]),
    ],
)
def test_bad_rows_are_skipped_and_listed(put, tmp_path, name, content, kept, dropped):
    path = put(name, content)
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
    assert f"{len(dropped)} row{'s' * (len(dropped) > 1)} left out" in skip_message(dataset.rejected)


def test_the_doctor_counts_them_by_kind(put):
    rows = "a fine film,pos|,pos|a dull film,|so,what,neg|  ,neg|a film,nan|good,pos|a story,neg".split("|")
    path = put("a.csv", ["text,label", *rows])
    found = by_code(examine(load_text_dataset(path, on_bad_row="skip")))["bad-rows"]
    assert (found.severity, found.count) == ("warning", 5)
    kinds = "empty (2: rows 3, 6)", "the label is missing (2: rows 4, 7)", "the header has 2 (row 5)"
    assert [kind for kind in kinds if kind not in found.message] == []
    assert f"{path}, row 5: 3 fields where the header has 2" in found.examples
    assert "--on-bad-row skip" in found.fix


def test_rows_in_another_encoding_are_said_to_be_that(put):
    path = put("a.csv", "text,label\na text,x\ncafé,y\n,x\nnaïve,x\n".encode("cp1252"))
    dataset = load_text_dataset(path, on_bad_row="skip")
    assert skip_message(dataset.rejected).endswith(
        "; 2 of them are not UTF-8: read it with --encoding cp1252, or save it as UTF-8"
    )
    kinds = "not UTF-8 (2: rows 3, 5), the text is empty (row 4)"
    assert group_reasons(dataset.rejected) == kinds
    found = by_code(examine(dataset))["bad-rows"]
    assert found.message.startswith(f"3 rows cannot be used: {kinds[:25]}")
    assert "--encoding cp1252" in found.fix


def test_files_of_a_folder_too(put, tmp_path):
    texts = {"x/1": "a film", "x/2": " ", "y/1": "no film", "y/2": "so so", "y/3": b"caf\xe9"}
    for name, content in texts.items():
        put(f"{name}.txt", content)
    with pytest.raises(DataError, match=r"2\.txt: the text is empty.*such files out with on_bad_row=skip"):
        load_text_dataset(tmp_path)
    found = load_text_dataset(tmp_path, on_bad_row="skip")
    assert found.splits["train"].labels == ["x", "y", "y"]
    assert [row.reason.split(":")[0] for row in found.rejected] == ["the text is empty", "not UTF-8"]


# --- other tasks --------------------------------------------------------------------------------------


def test_pairs_with_an_empty_side_or_too_many_are_left_out(put):
    rows = [f"the cat {i} sleeps,die Katze {i} schläft" for i in range(9)]
    path = put("pairs.csv", ["en,de", *rows, "a text,", ",ein Text", "one,two,three"])
    with pytest.raises(DataError, match="row 13: 3 fields"):
        load_pairs(path)
    found = load_pairs(path, on_bad_row="skip")
    assert len(found.splits["train"]) == 9
    ragged = (13, "3 fields where the header has 2")
    empty = [(row, "a text of the pair is empty") for row in (11, 12)]
    assert [(row.row, row.reason) for row in found.rejected] == [ragged, *empty]
    report = by_code(examine_pairs(load_pairs(path, keep_empty=True)))
    assert "3 fields where the header has 2 (row 13)" in report["bad-rows"].message
    assert report["empty"].count == 2
    assert "--on-bad-row skip" in report["empty"].sentence
    path = put("pairs.csv", "en,de\na text,\n")
    with pytest.raises(DataError, match="no pair can be used"):
        load_pairs(path, on_bad_row="skip")
    with pytest.raises(DataError, match=r"column 'de': the text is empty.*on_bad_row=skip"):
        load_pairs(path)


def test_pairs_with_a_text_that_is_none_are_left_out_with_the_reason(put):
    rows = [{"en": f"text {i}", "de": f"Text {i}"} for i in range(5)]
    rows[0]["en"], rows[1]["de"], rows[2]["en"], rows[3]["de"] = 0, "a\0b", "half \ud800", None
    found = load_pairs(put("pairs.jsonl", json_lines(rows)), on_bad_row="skip")
    assert found.splits["train"].source == ["text 4"]
    assert [row.row for row in found.rejected] == [1, 2, 3, 4]
    said = "the text is not a string but int", "NUL", "surrogate", "a text of the pair is empty"
    assert all(part in row.reason for part, row in zip(said, found.rejected, strict=True))


def test_plain_files_of_pairs_too(put, tmp_path):
    put("c.en", "one\n\nthree\n"), put("c.de", "eins\nzwei\ndrei\n")
    found = load_pairs(tmp_path / "c", on_bad_row="skip")
    assert found.splits["train"].target == ["eins", "drei"]
    assert [row.row for row in found.rejected] == [2]


def test_texts_without_labels_teach_a_language(put):
    path = put("a.csv", ["text,label", *(f"text number {i},{'' if i % 2 else 'x'}" for i in range(12)), ",x"])
    recipe = load_recipe(next(name for name in recipe_names() if load_recipe(name).task == "masked-lm"))
    recipe = replace(recipe, data=replace(recipe.data, source=str(path), validation_size=0.25))
    with pytest.raises(DataError, match=r"row 14: the text is empty.*on_bad_row=skip"):
        load_corpus(recipe)
    corpus = load_corpus(replace(recipe, data=replace(recipe.data, on_bad_row="skip")))
    assert len(corpus.train) + len(corpus.validation) == 12
    assert [row.row for row in corpus.rejected] == [14]


def test_word_vectors_too(put):
    recipe = next(load_recipe(name) for name in recipe_names() if hasattr(load_recipe(name), "vectors"))
    path = put("a.csv", 'text\none two\n""\nthree\n')
    data = replace(recipe.data, source=str(path), splits=("train",), exclude=(), limit=None)
    with pytest.raises(DataError, match="on_bad_row=skip"):
        load_texts(data)
    assert load_texts(replace(data, on_bad_row="skip")).sentences == [["one", "two"], ["three"]]


# --- damaged files ------------------------------------------------------------------------------------

BROKEN = [b"a good film,pos", b"caf\xe9 and cake,neg", b'"never closed,neg', b"a bad film,neg"]
BROKEN += [b'"a fine, film",pos', b'"quoted" and more,pos']


@pytest.mark.parametrize("many", [0, 20])
def test_what_can_be_read_of_a_damaged_table_is_read(put, many):
    """Wrong bytes and broken quotes cost their own rows only; with many columns rows are read again."""
    header = ",".join(["text,label", *(f"c{i}" for i in range(many))]).encode()
    rows = [line + b",x" * many for line in BROKEN] + ([] if many else [b'"a film\nof two lines",neg'])
    path = put("a.csv", b"\n".join([header, *rows, b""]))
    rejected: list[RejectedRow] = []
    table = lenient_table(path, rejected)
    wanted = {2: "a good film", 5: "a bad film", 6: "a fine, film"}
    wanted |= {} if many else {8: "a film\nof two lines"}
    assert dict(zip(table.rows, table.read("text"), strict=True)) == wanted
    reasons = {row.row: row.reason for row in rejected}
    assert sorted(reasons) == [3, 4, 7]
    assert reasons[3] == "not UTF-8"
    assert "quot" in reasons[4]
    assert "invalid quotes" in reasons[7]
    with pytest.raises(DataError, match="not UTF-8: byte 0xe9"):
        read_table(path)


def test_wrong_bytes_in_json_lines_cost_their_line(put):
    path = put("a.jsonl", b'{"text": "fine", "label": 1}\n{"text": "caf\xe9", "label": 0}\n')
    rejected: list[RejectedRow] = []
    assert lenient_table(path, rejected).read("text") == ["fine"]
    assert [(row.row, row.reason) for row in rejected] == [(2, "not UTF-8")]


def test_what_labels_look_like_is_said_once(put):
    sets = ["food|money", "", "travel|food", "money|travel", "food"]
    file = put("t.csv", ["text,labels", *(f"text number {i},{sets[i % 5]}" for i in range(60))])
    with pytest.raises(DataError, match="row 3: the label is missing") as caught:
        load_text_dataset(str(file), label_column="labels")
    assert str(caught.value).count("the labels look like") == 1
