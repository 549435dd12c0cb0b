"""Data sets from paths and by name; folders of shards."""

import socket
import unicodedata
from collections import Counter
from decimal import Decimal
from pathlib import Path

import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glassformer.data import NAMED_SOURCES, load_text_dataset
from glassformer.data.answered import load_qa
from glassformer.data.corpus import messages, read_messages
from glassformer.data.folders import split_files
from glassformer.data.image_sources import load_image_dataset
from glassformer.data.kinds import detect_kind
from glassformer.data.tagged import load_tagged
from glassformer.errors import DataError

from .conftest import class_labels


@pytest.fixture
def csv(put):
    """``csv("a.csv", "a film,pos", ...)``: the path of a table with these rows."""
    return lambda name, *rows, header="text,label": put(name, [header, *rows])


@pytest.fixture
def named(tmp_path):
    """``named("a.parquet", texts, labels)``: the path of a table whose numbers have names."""

    def write(name, texts, labels, names=("neg", "pos")):
        return class_labels(tmp_path / name, {"text": texts, "label": labels}, names)

    return write


SIX = [f"a film {i}" for i in range(6)]


def test_csv_is_the_split_train(csv):
    path = csv("reviews.csv", "good film,pos", "bad film, neg ")
    dataset = load_text_dataset(path)
    split = dataset.splits["train"]
    assert (dataset.name, dataset.label_names) == ("reviews", ("neg", "pos"))
    assert (split.texts, split.labels) == (["good film", "bad film"], ["pos", "neg"])
    assert (split.origin, list(split.rows)) == (str(path), [2, 3])


def test_whole_number_labels_of_csv_become_int_in_all_splits_or_none(csv, tmp_path):
    csv("train.csv", "a,1", "b,0")
    csv("dev.csv", "c,1")
    dataset = load_text_dataset(tmp_path)
    assert dataset.splits["train"].labels == [1, 0]
    assert dataset.splits["validation"].labels == [1]
    csv("test.csv", "d,unsure")
    assert load_text_dataset(tmp_path).splits["train"].labels == ["1", "0"]


def test_jsonl_labels_keep_their_type(put):
    path = put("a.jsonl", '{"review": "a", "sentiment": "1"}\n{"review": "b", "sentiment": "0"}\n')
    assert load_text_dataset(path).splits["train"].labels == ["1", "0"]
    path = put("b.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": 0}\n')
    assert load_text_dataset(path).splits["train"].labels == [1, 0]


def test_parquet_with_class_names(named, tmp_path):
    named("train.parquet", ["a", "b", "c"], [0, 1, 0], ("zero", "one"))
    named("test.parquet", ["d"], [-1], ("zero", "one"))
    dataset = load_text_dataset(tmp_path)
    assert dataset.label_names == ("zero", "one")
    assert dataset.splits["train"].labels == ["zero", "one", "zero"]
    assert dataset.splits["test"].labels is None

    named("test.parquet", ["d", "e"], [1, -1])
    with pytest.raises(DataError, match=r"test.parquet, row 2: label -1 has no name"):
        load_text_dataset(tmp_path)


def test_parts_of_a_split_are_joined(named, csv, tmp_path):
    for part, texts in enumerate([["a", "b"], ["c"]]):
        named(f"train-0000{part}-of-00002.parquet", texts, [1] * len(texts))
    split = load_text_dataset(tmp_path).splits["train"]
    assert split.texts == ["a", "b", "c"]
    assert split.labels == ["pos"] * 3
    assert list(split.rows) == [1, 2, 3]
    csv("train.csv", "d,pos")
    with pytest.raises(DataError, match="two files for train"):
        load_text_dataset(tmp_path)


def test_columns_are_found_named_or_reported(csv):
    path = csv("a.csv", "7,good,yes", header="id,Review,Recommended")
    found = load_text_dataset(path)
    assert (found.splits["train"].texts, found.splits["train"].labels) == (["good"], None)
    assert "id, Review, Recommended" in found.notes[0]
    assert load_text_dataset(path, label_column="Recommended").splits["train"].labels == ["yes"]
    path = csv("b.csv", "a,1", header="txt,label")  # two columns: the other one is the text
    assert load_text_dataset(path).splits["train"].texts == ["a"]


RECOMMENDED = ("id,Review,Recommended", "7,good,yes")


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        (RECOMMENDED, {"label_column": "Recomended"}, r"'Recomended'\. Did you mean 'Recommended'\?"),
        (RECOMMENDED, {"need_labels": True}, "no column 'label'.*; the first row must be the header"),
        (RECOMMENDED, {"text_column": "txt"}, "no column 'txt'"),
        (("review,comment,label", "a,b,1"), {}, "several columns could be the text: review, comment"),
        (("w,x,y", "a,1,c"), {}, r"Known: w, x, y\. Name it"),
        (("a good film,pos,1", "more,stuff,0"), {}, "the first row must be the header"),
        (("textlabel", "a1", "b2"), {}, r"Did you mean 'textlabel'\? Name it"),
        (
            ("id,price", "1,2.5", "2,"),
            {},
            r"all columns contain numbers \(id, price\)\. Give a table with texts",
        ),
        (("text,label", "a,1"), {"text_column": "label"}, "column 'label' is used both as the text and as"),
        (("text,label", "a,1"), {"label_column": "text"}, "column 'text' is used"),
        (("text", "a"), {"label_column": "text"}, r"no other column\. Give a table with a column of labels"),
        (("id,text,labell", "7,good,yes"), {"need_labels": True}, r"mean 'labell'\? Name it"),
        (("text,x,y", "a,1,2"), {"need_labels": True}, r"Known: text, x, y\. Name it"),
    ],
)
def test_columns_that_cannot_be_are_named(put, rows, options, said):
    with pytest.raises(DataError, match=said):
        load_text_dataset(put("a.csv", rows), **options)


def test_text_folder(put, tmp_path):
    texts = {"neg/0": "bad", "neg/1": "worse", "pos/0": "good", ".hidden/0": "x", "pos/.9": "hidden"}
    for name, text in texts.items():
        put(f"{name}.txt", text)
    split = load_text_dataset(tmp_path).splits["train"]
    assert (split.texts, split.labels) == (["bad", "worse", "good"], ["neg", "neg", "pos"])
    for content, said in ((" ", ": the text is empty"), (b"caf\xe9", ", line 1: not UTF-8")):
        put("pos/1.txt", content)
        with pytest.raises(DataError, match=said):
            load_text_dataset(tmp_path)


def test_text_folder_with_splits_as_the_imdb_archive_has_it(put, tmp_path):
    for place in ("train/neg", "train/pos", "train/unsup", "test/neg", "test/pos"):
        put(f"{place}/0_1.txt", f"a film, {place}")
    splits = load_text_dataset(tmp_path).splits
    labels = {"train": ["neg", "pos"], "test": ["neg", "pos"], "unsupervised": None}
    assert {name: split.labels for name, split in splits.items()} == labels
    assert splits["unsupervised"].texts == ["a film, train/unsup"]


def test_folders_without_use(put, tmp_path):
    with pytest.raises(DataError, match="neither tables nor folders of texts"):
        load_text_dataset(tmp_path)
    put("pos/1.md", "a good film")
    with pytest.raises(DataError, match=r"class 'pos' has no \.txt files\. Rename its files to \*\.txt"):
        load_text_dataset(tmp_path)


@pytest.mark.parametrize("other", ["__MACOSX", "@eaDir", "__pycache__", ".ipynb_checkpoints", "$RECYCLE.BIN"])
@pytest.mark.parametrize("parts", [["train"], ["train", "test"]])
def test_what_other_programs_leave_beside_the_classes_is_no_class(put, tmp_path, other, parts):
    for part in parts if len(parts) > 1 else [""]:
        for name in ("good/a", "good/b", "good/._a", "bad/a"):
            put(f"d/{part}/{name}.txt", f"a text called {name}")
    for name in ("good/._a", "good/._b", "good/c", "note"):
        put(f"d/{other}/{name}.txt", "another text")
    found = load_text_dataset(tmp_path / "d").splits
    labels = {part: ["bad", "good", "good"] for part in parts}
    assert {name: split.labels for name, split in found.items()} == labels
    assert detect_kind(tmp_path / "d") == "texts"


def test_splits_not_asked_for_are_not_read(csv, tmp_path):
    csv("train.csv", "a,1", "b,0")
    (tmp_path / "test.csv").write_bytes(b"\xff\xfe broken")
    assert list(load_text_dataset(tmp_path, splits=["train"]).splits) == ["train"]
    with pytest.raises(DataError, match=r"no split 'validation'\. The splits are: train, test"):
        load_text_dataset(tmp_path, splits=["validation"])


def test_limit_keeps_the_classes_in_proportion_and_the_order(csv):
    path = csv("a.csv", *(f"text {i},{'a' if i < 75 else 'b'}" for i in range(100)))
    first, again, other = (load_text_dataset(path, limit=20, seed=s).splits["train"] for s in (0, 0, 1))
    assert first == again
    assert first.texts != other.texts
    assert (first.labels.count("a"), first.labels.count("b")) == (15, 5)
    assert list(first.rows) == sorted(first.rows)
    assert [f"text {row - 2}" for row in first.rows] == first.texts
    assert len(load_text_dataset(path, limit=1000).splits["train"]) == 100
    with pytest.raises(DataError, match="limit"):
        load_text_dataset(path, limit=0)


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """A working folder and a cache without data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GLASSFORMER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("glassformer.data.sources.unreachable", lambda address: None)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("imbd", "no file, folder or named data set 'imbd'. Check the path. Did you mean 'imdb'"),
        ("", "no data set is named"),
        ("missing.csv", "missing.csv: no such file"),
        ("ntc-scv", r"'ntc-scv' is not on this machine, and cannot be downloaded\. Put its"),
    ],
)
def test_sources_that_are_not_there(nowhere, source, message):
    with pytest.raises(DataError, match=message):
        load_text_dataset(source)


@pytest.mark.parametrize("where", ["x", "data", "cache/glassformer/data"])
def test_imdb_is_looked_for_at_hand_first(nowhere, tmp_path, named, monkeypatch, where):
    folder = tmp_path / where / "imdb"
    folder.mkdir(parents=True)
    if where == "x":
        monkeypatch.setenv("GLASSFORMER_DATA", str(folder.parent))
    named(folder / "train.parquet", ["awful", "lovely"], [0, 1])
    dataset = load_text_dataset("imdb")
    assert dataset.splits["train"].labels == ["neg", "pos"]
    assert "Maas" in dataset.description
    assert dataset.licence


def test_imdb_comes_from_the_hub_at_a_pinned_commit(nowhere, named, monkeypatch):
    asked = []

    def fetch(repo, path, **kwargs):
        asked.append((repo, path, kwargs))
        return named("part.parquet", ["awful", "lovely"], [0, 1])

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    assert load_text_dataset("imdb", splits=["test"]).splits["test"].labels == ["neg", "pos"]
    revision = NAMED_SOURCES["imdb"].revision
    place = "stanfordnlp/imdb", "plain_text/test-00000-of-00001.parquet"
    assert asked == [(*place, {"repo_type": "dataset", "revision": revision})]
    assert len(revision) == 40


def test_offline_the_way_out_is_named(nowhere, monkeypatch):
    asked = []

    def fetch(*args, **kwargs):
        asked.append(kwargs.get("local_files_only", False))
        raise socket.gaierror("no network\nsecond line")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    with pytest.raises(DataError, match=r"was not downloaded \(no network\)\. .*GLASSFORMER_DATA") as caught:
        load_text_dataset("imdb")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr("glassformer.data.sources.unreachable", lambda address: "the host: no route")
    with pytest.raises(DataError, match=r"was not downloaded \(the host: no route\)"):
        load_text_dataset("imdb")
    assert asked == [False, True]  # without a connection only the cache is asked, which takes no time


def test_the_real_imdb(data_root):
    dataset = load_text_dataset("imdb", splits=["train", "test"])
    for split in dataset.splits.values():
        assert len(split) == 25_000
        assert split.labels == ["neg"] * 12_500 + ["pos"] * 12_500
    assert dataset.label_names == ("neg", "pos")
    assert load_text_dataset("imdb", splits=["unsupervised"], limit=10).splits["unsupervised"].labels is None


def test_the_real_reviews_in_vietnamese(data_root):
    found = load_text_dataset("ntc-scv")
    sizes = {name: len(split) for name, split in found.splits.items()}
    assert sizes == {"train": 30_000, "validation": 10_000, "test": 10_000}
    assert set(found.splits["train"].labels or ()) == {0, 1} or found.label_names
    texts = [text for split in found.splits.values() for text in split.texts]
    assert all(unicodedata.is_normalized("NFC", text) for text in texts)
    assert sum("_" in text for text in texts) > 0.9 * len(texts)


@pytest.mark.parametrize(
    ("names", "given", "labels"),
    [
        (("neg", "pos"), ["0", "1"], ["neg", "pos"]),
        (("neg", "pos"), ["pos", "neg"], ["pos", "neg"]),
        (("neg", "pos"), ["other", "pos"], ["other", "pos"]),
        (("1", "2", "3"), ["0", "1", "2", "0"], ["1", "2", "3", "1"]),  # names or numbers of a whole file
        (("1", "2", "3"), ["1", "2", "3"], ["1", "2", "3"]),
    ],
)
def test_names_of_a_file_hold_for_the_numbers_of_one_without_any(names, given, labels, named, csv, tmp_path):
    named("train.parquet", SIX, [i % len(names) for i in range(6)], names)
    csv("test.csv", *(f"text {i},{label}" for i, label in enumerate(given)))
    splits = load_text_dataset(tmp_path, need_labels=True).splits
    assert splits["train"].labels == [names[i % len(names)] for i in range(6)]
    assert list(map(str, splits["test"].labels)) == labels


@pytest.mark.parametrize("labels", ["2 1", "0 pos", "-1 1", "0 other"])
def test_a_number_without_a_name_is_refused_by_its_row(labels, named, csv, tmp_path):
    named("train.parquet", SIX, [0, 1] * 3)
    csv("test.csv", *(f"x y,{label}" for label in labels.split()))
    with pytest.raises(DataError, match=r"row [23]: label '?.*'? has no name"):
        load_text_dataset(tmp_path, need_labels=True)


@pytest.mark.parametrize("labels", [(0, 1), ("neg", "pos")])
def test_names_of_pictures_in_one_file_hold_for_another(labels, csv, tmp_path):
    columns = {"image": [b"1", b"2", b"3"], "label": [0, 1, 0]}
    class_labels(tmp_path / "train.parquet", columns, ["neg", "pos"])
    csv("test.csv", *(f"{i}.png,{label}" for i, label in enumerate(labels)), header="image,label")
    splits = load_image_dataset(tmp_path).splits
    assert splits["train"].labels == ["neg", "pos", "neg"]
    assert splits["test"].labels == ["neg", "pos"]


def test_a_number_without_a_name_is_left_out_where_that_is_asked(named):
    path = named("t.parquet", SIX, [0, 1, -1, 1, 0, 7])
    with pytest.raises(DataError, match="row 3: label -1 has no name"):
        load_text_dataset(path, need_labels=True)
    found = load_text_dataset(path, need_labels=True, on_bad_row="skip")
    assert found.splits["train"].labels == ["neg", "pos", "pos", "neg"]
    nameless = [(3, "label -1 has no name"), (6, "label 7 has no name")]
    assert [(row.row, row.reason) for row in found.rejected] == nameless
    hidden = named("u.parquet", ["a film", "b film"], [-1, -1])
    assert load_text_dataset(hidden, on_bad_row="skip").splits["train"].labels is None


def test_the_messages_are_split_by_intent():
    """Eight of each of six intents to learn from; no message stands twice, and every draw is another one."""
    texts, intents = read_messages()
    assert len(set(texts)) == len(texts) == 396
    assert set(Counter(intents).values()) == {66}
    train, test = (load_text_dataset("messages").splits[name] for name in ("train", "test"))
    assert set(Counter(train.labels).values()) == {8}
    assert sorted([*train.texts, *test.texts]) == sorted(texts)
    assert [intents[i] for i in test.rows] == test.labels
    assert messages(seed=1).splits["train"].texts != train.texts


# --- folders of shards: the same data set as the one file that they were cut from ---------------------


ROWS = [{"text": f"text number {i} of many", "label": ("neg", "pos")[i % 2]} for i in range(23)]


def write(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


NAMES = "part-0000{0}, train/000{0}, train-0000{0}-of-00003, data/train-0000{0}-of-00003, data/train/{0}"


@pytest.mark.parametrize("name", [f"{name}.parquet" for name in NAMES.split(", ")])
def test_shards_are_read_in_order_as_one_table(put, tmp_path, name):
    for i in range(3):
        write(tmp_path / "d" / name.format(i), ROWS[i * 8 : (i + 1) * 8])
    for other in ("_SUCCESS", ".part-00000.parquet.crc"):
        (tmp_path / "d" / name).with_name(other).touch()
    put("d/README.md", "x")
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


def test_folders_of_texts_and_pictures_are_none_of_tables(put, tmp_path: Path):
    put("train/pos/a.txt", "x")
    assert split_files(tmp_path) == {}
    write(tmp_path / "val" / "0.parquet", ROWS)
    write(tmp_path / "validation" / "0.parquet", ROWS)
    with pytest.raises(DataError, match="two folders for validation"):
        split_files(tmp_path)


@pytest.mark.parametrize(
    ("load", "files"),
    [
        (
            load_tagged,
            {"train.conll": "a O\nb B-X\n\n", "train.jsonl": '{"tokens": ["a"], "ner_tags": ["O"]}\n'},
        ),
        (load_qa, {"train-v1.1.json": '{"data": []}', "train-v2.0.json": '{"data": []}'}),
    ],
)
def test_two_whole_files_for_one_split_are_not_read_as_one(load, files, put, tmp_path: Path):
    for name, text in files.items():
        put(name, text)
    with pytest.raises(DataError, match=f"two files for train: {' and '.join(files)}"):
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
        own = [{"text": row["text"]} for row in rows if row["label"] == label]
        write(path / f"label={label}" / "part-0.parquet", own)


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
    assert found.keys() == splits.keys()
    for name, rows in splits.items():
        both = sorted(zip(found[name].texts, found[name].labels, strict=True))
        assert both == sorted((row["text"], row["label"]) for row in rows)


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
    found = load_text_dataset(tmp_path / "label=other" / "a.parquet").splits["train"]
    assert found.labels == [row["label"] for row in ROWS]
