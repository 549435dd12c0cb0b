"""Rows that cannot be used, whatever the task: counted by kind, refused with the way out, or left out and listed."""

import json
from dataclasses import replace

import pytest

from glassformer.data.pair_doctor import examine_pairs
from glassformer.data.pairs import load_pairs
from glassformer.data.rejected import RejectedRow, group_reasons, lenient_table
from glassformer.data.sources import load_text_dataset
from glassformer.data.tables import read_table
from glassformer.errors import DataError
from glassformer.tasks.catalog import load_recipe, recipe_names
from glassformer.tasks.masked_lm.estimator import load_corpus
from glassformer.tasks.word2vec.estimator import load_texts

PAIRS = "en,de\n" + "".join(f"the cat {i} sleeps,die Katze {i} schläft\n" for i in range(9))


def test_kinds_are_counted_with_the_first_rows():
    rows = [RejectedRow("a.csv", i, "the text is empty") for i in (3, 8, 9, 11)]
    rows += [
        RejectedRow("a.csv", 5, "3 fields where the header has 2"),
        RejectedRow("a.csv", 6, "4 fields where the header has 2"),
    ]
    assert group_reasons(rows) == (
        "the text is empty (4: rows 3, 8, 9 ...), 3 fields where the header has 2 and the like (2: rows 5, 6)"
    )
    assert group_reasons([RejectedRow("a", i, f"{'x' * (i + 1)}") for i in range(7)], limit=2).endswith(
        "and 5 more reasons"
    )


def test_a_refused_row_says_how_to_go_on_without_it(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\na film,x\n,y\n")
    with pytest.raises(DataError, match=r"row 3: the text is empty.*on_bad_row=skip"):
        load_text_dataset(path)
    path.write_text("text,label\na film,x\nno film,\n")
    with pytest.raises(DataError, match=r"row 3: the label is missing.*on_bad_row=skip"):
        load_text_dataset(path)


def test_a_table_of_which_nothing_is_left_says_what_its_labels_are(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "label": {"x": 1}}\n' * 3)
    with pytest.raises(DataError, match=r"no row can be used.*the labels look like lists, several label"):
        load_text_dataset(path, on_bad_row="skip")


def test_files_of_a_folder_too(tmp_path):
    for name, content in (("x/1", "a film"), ("x/2", " "), ("y/1", "no film"), ("y/2", "so so")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.txt").write_text(content)
    (tmp_path / "y" / "3.txt").write_bytes(b"caf\xe9")
    with pytest.raises(
        DataError, match=r"2\.txt: the text is empty.*leave such files out with on_bad_row=skip"
    ):
        load_text_dataset(tmp_path)
    found = load_text_dataset(tmp_path, on_bad_row="skip")
    assert found.splits["train"].labels == ["x", "y", "y"]
    assert [row.reason.split(":")[0] for row in found.rejected] == ["the text is empty", "not UTF-8"]


def test_pairs_with_an_empty_side_or_too_many_are_left_out(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text(PAIRS + "a text,\n,ein Text\none,two,three\n", encoding="utf-8")
    with pytest.raises(DataError, match="row 13: 3 fields"):
        load_pairs(path)
    found = load_pairs(path, on_bad_row="skip")
    assert len(found.splits["train"]) == 9
    assert [(row.row, row.reason) for row in found.rejected] == [
        (13, "3 fields where the header has 2"),
        (11, "a side is empty"),
        (12, "a side is empty"),
    ]
    report = {f.code: f for f in examine_pairs(load_pairs(path, keep_empty=True)).findings}
    assert "3 fields where the header has 2 (row 13)" in report["bad-rows"].message
    assert report["empty"].count == 2
    assert "--on-bad-row skip" in report["empty"].sentence
    path.write_text("en,de\na text,\n")
    with pytest.raises(DataError, match="no pair can be used"):
        load_pairs(path, on_bad_row="skip")
    with pytest.raises(DataError, match=r"column 'de': the text is empty.*on_bad_row=skip"):
        load_pairs(path)


def test_pairs_with_a_text_that_is_none_are_left_out_with_the_reason(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"en": f"text {i}", "de": f"Text {i}"} for i in range(5)]
    rows[0]["en"], rows[1]["de"], rows[2]["en"], rows[3]["de"] = 0, "a\0b", "half \ud800", None
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = load_pairs(path, on_bad_row="skip")
    assert found.splits["train"].source == ["text 4"]
    reasons = [row.reason for row in found.rejected]
    assert [row.row for row in found.rejected] == [1, 2, 3, 4]
    assert reasons[0] == "the text is not a string but int"
    assert "NUL" in reasons[1]
    assert "surrogate" in reasons[2]
    assert reasons[3] == "a side is empty"


def test_plain_files_of_pairs_too(tmp_path):
    (tmp_path / "c.en").write_text("one\n\nthree\n")
    (tmp_path / "c.de").write_text("eins\nzwei\ndrei\n")
    found = load_pairs(tmp_path / "c", on_bad_row="skip")
    assert found.splits["train"].target == ["eins", "drei"]
    assert [row.row for row in found.rejected] == [2]


def test_texts_without_labels_teach_a_language(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(
        "text,label\n" + "".join(f"text number {i},{'' if i % 2 else 'x'}\n" for i in range(12)) + ",x\n"
    )
    name = next(name for name in recipe_names() if load_recipe(name).task == "masked-lm")
    recipe = load_recipe(name)
    recipe = replace(recipe, data=replace(recipe.data, source=str(path), validation_size=0.25))
    with pytest.raises(DataError, match=r"row 14: the text is empty.*on_bad_row=skip"):
        load_corpus(recipe)
    corpus = load_corpus(replace(recipe, data=replace(recipe.data, on_bad_row="skip")))
    assert len(corpus.train) + len(corpus.validation) == 12
    assert [row.row for row in corpus.rejected] == [14]


def test_word_vectors_too(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text\none two\n""\nthree\n')
    name = next(name for name in recipe_names() if hasattr(load_recipe(name), "vectors"))
    data = replace(load_recipe(name).data, source=str(path), splits=("train",), exclude=(), limit=None)
    with pytest.raises(DataError, match="on_bad_row=skip"):
        load_texts(data)
    assert load_texts(replace(data, on_bad_row="skip")).sentences == [["one", "two"], ["three"]]


BROKEN = b"""text,label
a good film,pos
caf\xe9 and cake,neg
"never closed,neg
a bad film,neg
"a fine, film",pos
"quoted" and more,pos
"a film
of two lines",neg
"""


@pytest.mark.parametrize("many", [False, True])
def test_what_can_be_read_of_a_damaged_table_is_read(tmp_path, many):
    """Wrong bytes and broken quotes cost their own rows only; with many columns rows are read again."""
    content = BROKEN
    if many:
        lines = [line for line in BROKEN.split(b"\n")[:-3] if line]
        content = (
            b"\n".join(line + b",x" * 20 for line in lines).replace(
                b"label" + b",x" * 20, b"label," + b",".join(b"c%d" % i for i in range(20)), 1
            )
            + b"\n"
        )
    (tmp_path / "a.csv").write_bytes(content)
    rejected: list[RejectedRow] = []
    table = lenient_table(tmp_path / "a.csv", rejected)
    wanted = {2: "a good film", 5: "a bad film", 6: "a fine, film"} | (
        {} if many else {8: "a film\nof two lines"}
    )
    assert dict(zip(table.rows, table.read("text"), strict=True)) == wanted
    assert [row.row for row in sorted(rejected, key=lambda row: row.row)] == [3, 4, 7]
    reasons = {row.row: row.reason for row in rejected}
    assert reasons[3] == "not UTF-8"
    assert "quot" in reasons[4]
    assert "invalid quotes" in reasons[7]
    with pytest.raises(DataError, match="not UTF-8: byte 0xe9"):
        read_table(tmp_path / "a.csv")


def test_wrong_bytes_in_json_lines_cost_their_line(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "fine", "label": 1}\n{"text": "caf\xe9", "label": 0}\n')
    rejected: list[RejectedRow] = []
    assert lenient_table(tmp_path / "a.jsonl", rejected).read("text") == ["fine"]
    assert [(row.row, row.reason) for row in rejected] == [(2, "not UTF-8")]


def test_a_table_of_which_nothing_can_be_read_says_why(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"text,label\ncaf\xe9,1\nth\xe9,0\n")
    with pytest.raises(DataError, match=r"no row can be used; the first: not UTF-8.*--encoding cp1252"):
        lenient_table(tmp_path / "a.csv", [])
    (tmp_path / "a.csv").write_bytes(b"caf\xe9,label\nfine,1\n")
    with pytest.raises(DataError, match="line 1: not UTF-8"):
        lenient_table(tmp_path / "a.csv", [])


def test_what_labels_look_like_is_said_once(tmp_path):
    sets = ["food|money", "", "travel|food", "money|travel", "food"]
    lines = [f"text number {i},{sets[i % 5]}" for i in range(60)]
    file = tmp_path / "t.csv"
    file.write_text("\n".join(["text,labels", *lines]), encoding="utf-8")
    with pytest.raises(DataError, match="row 3: the label is missing") as caught:
        load_text_dataset(str(file), label_column="labels")
    assert str(caught.value).count("the labels look like") == 1
