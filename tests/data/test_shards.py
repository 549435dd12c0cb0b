"""Folders of shards: the same data set as the one file that they were cut from."""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glassformer.data.answered import load_qa
from glassformer.data.folders import split_files
from glassformer.data.kinds import detect_kind
from glassformer.data.sources import load_text_dataset
from glassformer.data.tagged import load_tagged
from glassformer.errors import DataError

ROWS = [{"text": f"text number {i} of many", "label": ("neg", "pos")[i % 2]} for i in range(23)]


def write(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.mark.parametrize(
    "names",
    [
        ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"],
        ["train/0000.parquet", "train/0001.parquet", "train/0002.parquet"],
        [f"train-{i:05d}-of-00003.parquet" for i in range(3)],
        [f"data/train-{i:05d}-of-00003.parquet" for i in range(3)],
        [f"data/train/{i}.parquet" for i in range(3)],
    ],
)
def test_shards_are_read_in_order_as_one_table(tmp_path: Path, names):
    for i, name in enumerate(names):
        write(tmp_path / "d" / name, ROWS[i * 8 : (i + 1) * 8])
    base = tmp_path / "d" / Path(names[0]).parent
    (base / "_SUCCESS").write_text("")
    (base / ".part-00000.parquet.crc").write_text("x")
    (tmp_path / "d" / "README.md").write_text("x")
    dataset = load_text_dataset(tmp_path / "d")
    assert list(dataset.splits) == ["train"]
    assert dataset.splits["train"].texts == [row["text"] for row in ROWS]
    assert dataset.splits["train"].labels == [row["label"] for row in ROWS]


def test_a_folder_of_shards_a_split(tmp_path: Path):
    for split, rows in (("train", ROWS[:16]), ("test", ROWS[16:])):
        for i in range(2):
            write(tmp_path / split / f"{i}.parquet", rows[i * len(rows) // 2 : (i + 1) * len(rows) // 2])
    dataset = load_text_dataset(tmp_path)
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 16, "test": 7}


def test_files_that_are_called_as_splits_go_before(tmp_path: Path):
    write(tmp_path / "train.parquet", ROWS[:5])
    write(tmp_path / "other.parquet", ROWS[5:])
    assert split_files(tmp_path) == {"train": [tmp_path / "train.parquet"]}


def test_folders_of_texts_and_pictures_are_none_of_tables(tmp_path: Path):
    (tmp_path / "train" / "pos").mkdir(parents=True)
    (tmp_path / "train" / "pos" / "a.txt").write_text("x")
    assert split_files(tmp_path) == {}
    write(tmp_path / "val" / "0.parquet", ROWS)
    write(tmp_path / "validation" / "0.parquet", ROWS)
    with pytest.raises(DataError, match="two folders for validation"):
        split_files(tmp_path)


@pytest.mark.parametrize(
    ("load", "names", "content"),
    [
        (
            load_tagged,
            ("train.conll", "train.jsonl"),
            ("a O\nb B-X\n\n", '{"tokens": ["a"], "ner_tags": ["O"]}\n'),
        ),
        (load_qa, ("train-v1.1.json", "train-v2.0.json"), ('{"data": []}', '{"data": []}')),
    ],
)
def test_two_whole_files_for_one_split_are_not_read_as_one(load, names, content, tmp_path: Path):
    for name, text in zip(names, content, strict=True):
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=f"two files for train: {names[0]} and {names[1]}"):
        load(tmp_path)


@pytest.mark.parametrize("numbers", [False, True])
def test_decimals_of_a_data_base_are_labels_and_numbers(tmp_path: Path, numbers):
    write(tmp_path / "a.parquet", [{"text": f"text {i}", "label": Decimal(i % 3)} for i in range(9)])
    found = load_text_dataset(tmp_path / "a.parquet", numbers=numbers).splits["train"].labels
    assert found == [i % 3 for i in range(9)]
    assert {type(label) for label in found} == {float if numbers else int}


def parts(rows: list[dict], path: Path) -> None:
    """One partition for each label."""
    for label in {row["label"] for row in rows}:
        write(
            path / f"label={label}" / "part-0.parquet",
            [{"text": r["text"]} for r in rows if r["label"] == label],
        )


@pytest.mark.parametrize(
    ("layout", "splits"),
    [
        ({".": ROWS}, {"train": ROWS}),
        ({"train": ROWS[:12], "test": ROWS[12:]}, {"train": ROWS[:12], "test": ROWS[12:]}),
        ({"split=train": ROWS[:12], "split=test": ROWS[12:]}, {"train": ROWS[:12], "test": ROWS[12:]}),
        ({"year=2025": ROWS[:12], "year=2026": ROWS[12:]}, {"train": ROWS}),
    ],
)
def test_partitions_name_a_column(tmp_path: Path, layout, splits):
    for folder, rows in layout.items():
        parts(rows, tmp_path / "d" / folder)
    (tmp_path / "d" / "_SUCCESS").write_text("")
    found = load_text_dataset(tmp_path / "d", label_column="label").splits
    assert {name: sorted(zip(split.texts, split.labels, strict=True)) for name, split in found.items()} == {
        name: sorted((row["text"], row["label"]) for row in rows) for name, rows in splits.items()
    }


def test_partitions_as_other_tools_write_them(tmp_path: Path):
    table = pa.Table.from_pylist([row | {"label": row["label"] + " / x"} for row in ROWS])
    pq.write_to_dataset(table, tmp_path / "d", partition_cols=["label"])
    split = load_text_dataset(tmp_path / "d").splits["train"]
    assert sorted(set(split.labels)) == ["neg / x", "pos / x"]
    assert detect_kind(tmp_path / "d") == "texts"


def test_a_partition_without_a_value_is_a_missing_label(tmp_path: Path):
    write(tmp_path / "d" / "label=neg" / "0.parquet", [{"text": "a"}, {"text": "b"}])
    write(tmp_path / "d" / "label=__HIVE_DEFAULT_PARTITION__" / "0.parquet", [{"text": "c"}])
    with pytest.raises(DataError, match="the label is missing"):
        load_text_dataset(tmp_path / "d")


def test_a_column_of_the_file_goes_before_a_folder_of_that_name(tmp_path: Path):
    write(tmp_path / "label=other" / "a.parquet", ROWS)
    assert load_text_dataset(tmp_path / "label=other" / "a.parquet").splits["train"].labels == [
        row["label"] for row in ROWS
    ]
