"""Rows that cannot be used, whatever the task: counted by kind, refused with the way out, or left out and listed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from glassformer.data.pair_doctor import examine_pairs
from glassformer.data.pairs import load_pairs
from glassformer.data.rejected import RejectedRow, by_kind
from glassformer.data.sources import load_text_dataset
from glassformer.errors import DataError
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.masked_lm.run import load_corpus
from glassformer.tasks.recipe import recipe_names
from glassformer.tasks.word2vec.run import load_texts

PAIRS = "en,de\n" + "".join(f"the cat {i} sleeps,die Katze {i} schläft\n" for i in range(9))


def test_kinds_are_counted_with_the_first_rows():
    rows = [RejectedRow("a.csv", i, "the text is empty") for i in (3, 8, 9, 11)]
    rows += [
        RejectedRow("a.csv", 5, "3 fields where the header has 2"),
        RejectedRow("a.csv", 6, "4 fields where the header has 2"),
    ]
    assert by_kind(rows) == (
        "4 the text is empty (rows 3, 8, 9 ...), 2 n fields where the header has n (rows 5, 6)"
    )
    assert by_kind([RejectedRow("a", i, f"{'x' * (i + 1)}") for i in range(7)], most=2).endswith(
        "and 5 more kinds"
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
    path.write_text('{"text": "a", "label": ["x", "y"]}\n' * 3)
    with pytest.raises(
        DataError, match=r"no row can be used.*these look like lists.*classifier for each label"
    ):
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
        (13, "3 fields where the header has 2"), (11, "a side is empty"), (12, "a side is empty")
    ]  # fmt: skip
    report = {f.code: f for f in examine_pairs(load_pairs(path, keep_empty=True)).findings}
    assert "1 n fields where the header has n (row 13)" in report["bad-rows"].message
    assert report["empty"].count == 2
    assert "--on-bad-row skip" in report["empty"].sentence
    path.write_text("en,de\na text,\n")
    with pytest.raises(DataError, match="no pair can be used"):
        load_pairs(path, on_bad_row="skip")
    with pytest.raises(DataError, match=r"column 'de': the text is empty.*on_bad_row=skip"):
        load_pairs(path)


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
    name = next(name for name in recipe_names() if load_recipe(name).task.startswith("masked"))
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
