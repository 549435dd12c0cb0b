"""Several labels as columns of 0 and 1: found, named together, and what is wrong in one named."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from glassformer.data.columns import parse_columns
from glassformer.data.image_sources import load_image_dataset
from glassformer.data.sources import load_text_dataset
from glassformer.errors import DataError

NAMES = ("joy", "anger", "fear")
BITS = np.random.default_rng(0).integers(0, 2, (29, 3))
SETS = [tuple(sorted(np.array(NAMES)[row == 1].tolist())) for row in BITS]
TEXTS = [f"text number {i} of many" for i in range(29)]


def write(path, bits=BITS, extra=(), text="text"):
    """A table of texts with a column for each label; ``extra``: (name, values) of more."""
    rows = [
        {text: TEXTS[i]} | dict(zip(NAMES, row, strict=True)) | {name: values[i] for name, values in extra}
        for i, row in enumerate(bits.tolist())
    ]
    if path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        between = "\t" if path.suffix == ".tsv" else ","
        lines = [between.join(rows[0]), *(between.join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("named", [None, "joy,anger,fear", " joy , anger,fear"])
@pytest.mark.parametrize("kind", [int, float, bool])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
def test_columns_of_0_and_1_are_several_labels(tmp_path, name, kind, named):
    path = write(tmp_path / name, BITS.astype(kind))
    dataset = load_text_dataset(path, need_labels=True, label_column=named)
    assert dataset.splits["train"].labels == SETS
    assert dataset.label_names == tuple(sorted(NAMES))
    assert dataset.columns == ("text", "joy,anger,fear")
    assert ("multi-label, detected by content: joy, anger, fear" in " ".join(dataset.messages)) == (
        named is None
    )


def test_some_of_them_can_be_named(tmp_path):
    path = write(tmp_path / "a.csv")
    assert load_text_dataset(path, label_column="fear,joy").splits["train"].labels == [
        tuple(x for x in own if x != "anger") for own in SETS
    ]
    assert load_text_dataset(path, label_column="joy").splits["train"].labels == BITS[:, 0].tolist()
    assert load_text_dataset(path).splits["train"].labels is None  # nobody asked for labels
    assert len(load_text_dataset(path, find_labels=True).splits["train"].labels) == 29


@pytest.mark.parametrize(
    ("name", "values", "found"),
    [
        ("id", list(range(29)), "joy,anger,fear"),  # tells rows apart
        ("source", ["web"] * 29, "joy,anger,fear"),  # one value
        ("user", ["ann", "bob"] * 14 + ["ann"], "joy,anger,fear"),  # a person
        ("mood", ["good", "bad"] * 14 + ["good"], "mood"),  # labels of their own
        ("stars", [1, 2, 3, 4] * 7 + [5], None),
    ],
)
def test_other_columns_beside_them(tmp_path, name, values, found):
    path = write(tmp_path / "a.csv", extra=[(name, values)])
    if found:
        assert load_text_dataset(path, need_labels=True).columns[1] == found
        return
    with pytest.raises(DataError, match="several columns could be the label") as error:
        load_text_dataset(path, need_labels=True)
    assert "label_column=joy,anger,fear" in error.value.fix


def test_a_column_of_labels_goes_before(tmp_path):
    path = write(tmp_path / "a.csv", extra=[("label", ["pos", "neg"] * 14 + ["pos"])])
    assert load_text_dataset(path, need_labels=True).columns[1] == "label"


@pytest.mark.parametrize(("cell", "what"), [("2", "'2'"), ("", "nothing"), ("yes", "'yes'")])
def test_another_value_is_named_with_its_row(tmp_path, cell, what):
    path = write(tmp_path / "a.csv")
    lines = path.read_text().splitlines()
    first, joy, anger, _ = lines[4].split(",")
    lines[4] = ",".join([first, joy, anger, cell])
    path.write_text("\n".join(lines))
    with pytest.raises(DataError) as error:
        load_text_dataset(path, label_column="joy,anger,fear")
    assert error.value.where == f"{path}, row 5"
    assert error.value.what == f"column 'fear' has {what} instead of 0 or 1"
    dataset = load_text_dataset(path, label_column="joy,anger,fear", on_bad_row="skip")
    assert dataset.splits["train"].labels == SETS[:3] + SETS[4:]
    assert [row.row for row in dataset.rejected] == [5]


def test_every_split_has_them(tmp_path):
    write(tmp_path / "train.csv")
    few = BITS[:5].copy()
    few[:, 2] = 0
    write(tmp_path / "test.csv", few)
    splits = load_text_dataset(tmp_path, need_labels=True).splits
    assert splits["train"].labels == SETS
    assert splits["test"].labels == [tuple(x for x in own if x != "fear") for own in SETS[:5]]


def test_images_too(tmp_path):
    for i in range(29):
        Image.new("RGB", (5, 7), (i, 0, 0)).save(tmp_path / f"{i}.png")
    path = write(tmp_path / "a.csv", text="other")
    lines = path.read_text().splitlines()
    lines = [f"image,{lines[0].split(',', 1)[1]}"] + [
        f"{i}.png,{line.split(',', 1)[1]}" for i, line in enumerate(lines[1:])
    ]
    path.write_text("\n".join(lines))
    assert load_image_dataset(path).splits["train"].labels == SETS
    assert load_image_dataset(path, label_column="joy,anger").splits["train"].labels == [
        tuple(x for x in own if x != "fear") for own in SETS
    ]


def test_names_with_a_comma_of_their_own():
    assert parse_columns(["text", "a,b", "c"], "a,b") == []
    assert parse_columns(["text", "a", "b"], "a,b") == ["a", "b"]
    assert parse_columns(["text", "a", "b"], "a,c") == []
    assert parse_columns(["text", "a"], None) == []
