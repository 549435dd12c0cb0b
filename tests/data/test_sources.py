"""Data sets from paths and by name."""

import json
import socket
from collections import Counter

import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glassformer.data import NAMED_SOURCES, load_text_dataset
from glassformer.data.corpus import messages, read_messages
from glassformer.errors import DataError


def csv(path, *rows, header="text,label"):
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def class_label_parquet(path, texts, labels, names=("neg", "pos")):
    info = {"info": {"features": {"label": {"names": list(names), "_type": "ClassLabel"}}}}
    schema = pa.schema([("text", pa.string()), ("label", pa.int64())], {"huggingface": json.dumps(info)})
    pq.write_table(pa.table({"text": texts, "label": labels}, schema), path)
    return path


def test_csv_is_the_split_train(tmp_path):
    path = csv(tmp_path / "reviews.csv", "good film,pos", "bad film, neg ")
    dataset = load_text_dataset(path)
    split = dataset.splits["train"]
    assert dataset.name == "reviews"
    assert (split.texts, split.labels) == (["good film", "bad film"], ["pos", "neg"])
    assert (split.origin, list(split.rows)) == (str(path), [2, 3])
    assert dataset.label_names == ("neg", "pos")


def test_whole_number_labels_of_csv_become_int_in_all_splits_or_none(tmp_path):
    csv(tmp_path / "train.csv", "a,1", "b,0")
    csv(tmp_path / "dev.csv", "c,1")
    dataset = load_text_dataset(tmp_path)
    assert dataset.splits["train"].labels == [1, 0]
    assert dataset.splits["validation"].labels == [1]
    csv(tmp_path / "test.csv", "d,unsure")
    assert load_text_dataset(tmp_path).splits["train"].labels == ["1", "0"]


@pytest.mark.parametrize("labels", [["01", "1"], ["1.5", "2"], ["+1", "2"], ["1", "x"]])
def test_other_labels_of_csv_stay_text(tmp_path, labels):
    path = csv(tmp_path / "a.csv", *(f"text,{label}" for label in labels))
    assert load_text_dataset(path).splits["train"].labels == labels


def test_jsonl_labels_keep_their_type(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"review": "a", "sentiment": "1"}\n{"review": "b", "sentiment": "0"}\n')
    assert load_text_dataset(path).splits["train"].labels == ["1", "0"]
    (tmp_path / "b.jsonl").write_text('{"text": "a", "label": 1}\n{"text": "b", "label": 0}\n')
    assert load_text_dataset(tmp_path / "b.jsonl").splits["train"].labels == [1, 0]


def test_parquet_with_class_names(tmp_path):
    class_label_parquet(tmp_path / "train.parquet", ["a", "b", "c"], [0, 1, 0], ("zero", "one"))
    class_label_parquet(tmp_path / "test.parquet", ["d"], [-1], ("zero", "one"))
    dataset = load_text_dataset(tmp_path)
    assert dataset.label_names == ("zero", "one")
    assert dataset.splits["train"].labels == ["zero", "one", "zero"]
    assert dataset.splits["test"].labels is None

    class_label_parquet(tmp_path / "test.parquet", ["d", "e"], [1, -1])
    with pytest.raises(DataError, match=r"test.parquet, row 2: label -1 has no name"):
        load_text_dataset(tmp_path)


def test_parts_of_a_split_are_joined(tmp_path):
    for part, texts in enumerate([["a", "b"], ["c"]]):
        class_label_parquet(tmp_path / f"train-0000{part}-of-00002.parquet", texts, [1] * len(texts))
    split = load_text_dataset(tmp_path).splits["train"]
    assert split.texts == ["a", "b", "c"]
    assert split.labels == ["pos"] * 3
    assert list(split.rows) == [1, 2, 3]
    csv(tmp_path / "train.csv", "d,pos")
    with pytest.raises(DataError, match="two files for train"):
        load_text_dataset(tmp_path)


def test_columns_are_found_named_or_reported(tmp_path):
    path = csv(tmp_path / "a.csv", "7,good,yes", header="id,Review,Recommended")
    assert load_text_dataset(path).splits["train"].texts == ["good"]
    assert load_text_dataset(path).splits["train"].labels is None
    assert "id, Review, Recommended" in load_text_dataset(path).notes[0]
    assert load_text_dataset(path, label_column="Recommended").splits["train"].labels == ["yes"]
    with pytest.raises(DataError, match=r"no column 'Recomended'\. Did you mean 'Recommended'\?"):
        load_text_dataset(path, label_column="Recomended")
    with pytest.raises(DataError, match=r"no column 'label'\. .*Name it with label_column"):
        load_text_dataset(path, need_labels=True)
    with pytest.raises(DataError, match=r"no column 'txt'"):
        load_text_dataset(path, text_column="txt")


def test_ambiguous_and_absent_text_columns(tmp_path):
    path = csv(tmp_path / "a.csv", "a,b,1", header="review,comment,label")
    with pytest.raises(DataError, match="several columns could be the text: review, comment"):
        load_text_dataset(path)
    path = csv(tmp_path / "b.csv", "a,1", header="txt,label")  # two columns: the other one is the text
    assert load_text_dataset(path).splits["train"].texts == ["a"]
    path = csv(tmp_path / "c.csv", "more,stuff,0", header="a good film,pos,1")
    with pytest.raises(DataError, match="the first row must be the header"):
        load_text_dataset(path)


def test_one_column_is_not_text_and_label(tmp_path):
    path = csv(tmp_path / "a.csv", "a,1", header="text,label")
    with pytest.raises(DataError, match="column 'label' is used both as the text and as the label"):
        load_text_dataset(path, text_column="label")
    with pytest.raises(DataError, match="column 'text' is used"):
        load_text_dataset(path, label_column="text")
    path = csv(tmp_path / "b.csv", "a", header="text")
    with pytest.raises(DataError, match=r"no other column\. Give a table with a column of labels"):
        load_text_dataset(path, label_column="text")


def test_a_hint_ends_with_one_mark(tmp_path):
    path = csv(tmp_path / "a.csv", "a1", "b2", header="textlabel")
    with pytest.raises(DataError, match="Did you mean 'textlabel'\\? Name it"):
        load_text_dataset(path)
    path = csv(tmp_path / "b.csv", "a,1,c", header="w,x,y")
    with pytest.raises(DataError, match=r"Known: w, x, y\. Name it"):
        load_text_dataset(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["good,1", ",0"], "row 3: the text is empty"),
        (["good,1", "bad,"], "row 3: the label is missing"),
        (["good,1", "bad,nan"], "row 3: the label is missing"),
    ],
)
def test_faulty_rows_are_named(tmp_path, rows, message):
    path = csv(tmp_path / "a.csv", *rows)
    with pytest.raises(DataError, match=f"{path}, {message}"):
        load_text_dataset(path)


def test_text_folder(tmp_path):
    for label, texts in {"neg": ["bad", "worse"], "pos": ["good"], ".hidden": ["x"]}.items():
        (tmp_path / label).mkdir()
        for i, text in enumerate(texts):
            (tmp_path / label / f"{i}.txt").write_text(text)
    (tmp_path / "pos" / ".9.txt").write_text("hidden")
    dataset = load_text_dataset(tmp_path)
    assert dataset.splits["train"].texts == ["bad", "worse", "good"]
    assert dataset.splits["train"].labels == ["neg", "neg", "pos"]
    (tmp_path / "pos" / "1.txt").write_text(" ")
    with pytest.raises(DataError, match=r"pos/1.txt: the text is empty"):
        load_text_dataset(tmp_path)
    (tmp_path / "pos" / "1.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"pos/1.txt, line 1: not UTF-8"):
        load_text_dataset(tmp_path)


def test_text_folder_with_splits_as_the_imdb_archive_has_it(tmp_path):
    for place in ("train/neg", "train/pos", "train/unsup", "test/neg", "test/pos"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "0_1.txt").write_text(f"a film, {place}")
    dataset = load_text_dataset(tmp_path)
    assert list(dataset.splits) == ["train", "test", "unsupervised"]
    assert dataset.splits["train"].labels == ["neg", "pos"]
    assert dataset.splits["unsupervised"].texts == ["a film, train/unsup"]
    assert dataset.splits["unsupervised"].labels is None


def test_folders_without_use(tmp_path):
    with pytest.raises(DataError, match="neither tables nor folders of texts"):
        load_text_dataset(tmp_path)
    (tmp_path / "pos").mkdir()
    (tmp_path / "pos" / "1.md").write_text("a good film")
    with pytest.raises(DataError, match=r"class 'pos' has no \.txt files\. Rename its files to \*\.txt"):
        load_text_dataset(tmp_path)


def test_splits_not_asked_for_are_not_read(tmp_path):
    csv(tmp_path / "train.csv", "a,1", "b,0")
    (tmp_path / "test.csv").write_bytes(b"\xff\xfe broken")
    assert list(load_text_dataset(tmp_path, splits=["train"]).splits) == ["train"]
    with pytest.raises(DataError, match=r"no split 'validation'\. The splits are: train, test"):
        load_text_dataset(tmp_path, splits=["validation"])


def test_limit_keeps_the_classes_in_proportion_and_the_order(tmp_path):
    path = csv(tmp_path / "a.csv", *(f"text {i},{'a' if i < 75 else 'b'}" for i in range(100)))
    first, again, other = (load_text_dataset(path, limit=20, seed=s).splits["train"] for s in (0, 0, 1))
    assert first == again
    assert first.texts != other.texts
    assert (first.labels.count("a"), first.labels.count("b")) == (15, 5)
    assert list(first.rows) == sorted(first.rows)
    assert [f"text {row - 2}" for row in first.rows] == first.texts
    assert len(load_text_dataset(path, limit=1000).splits["train"]) == 100
    with pytest.raises(DataError, match="limit"):
        load_text_dataset(path, limit=0)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("imbd", "no file, folder or named data set 'imbd'. Check the path. Did you mean 'imdb'"),
        ("", "no data set is named"),
        ("missing.csv", "missing.csv: no such file"),
    ],
)
def test_sources_that_are_not_there(tmp_path, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=message):
        load_text_dataset(source)


@pytest.mark.parametrize("where", ["variable", "working folder", "cache"])
def test_imdb_is_looked_for_at_hand_first(tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GLASSFORMER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    roots = {"variable": "x", "working folder": "data", "cache": "cache/glassformer/data"}
    folder = tmp_path / roots[where] / "imdb"
    folder.mkdir(parents=True)
    if where == "variable":
        monkeypatch.setenv("GLASSFORMER_DATA", str(folder.parent))
    class_label_parquet(folder / "train.parquet", ["awful", "lovely"], [0, 1])
    dataset = load_text_dataset("imdb")
    assert dataset.splits["train"].labels == ["neg", "pos"]
    assert "Maas" in dataset.description
    assert dataset.licence


def test_imdb_comes_from_the_hub_at_a_pinned_commit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GLASSFORMER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = []

    def fetch(repo, path, **kwargs):
        asked.append((repo, path, kwargs))
        return class_label_parquet(tmp_path / "part.parquet", ["awful", "lovely"], [0, 1])

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    monkeypatch.setattr("glassformer.data.sources.unreachable", lambda address: None)
    dataset = load_text_dataset("imdb", splits=["test"])
    assert dataset.splits["test"].labels == ["neg", "pos"]
    source = NAMED_SOURCES["imdb"]
    assert asked == [
        (
            "stanfordnlp/imdb",
            "plain_text/test-00000-of-00001.parquet",
            {"repo_type": "dataset", "revision": source.revision},
        )
    ]
    assert len(source.revision) == 40


def test_offline_the_way_out_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GLASSFORMER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    asked = []

    def fetch(*args, **kwargs):
        asked.append(kwargs.get("local_files_only", False))
        raise socket.gaierror("no network\nsecond line")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    monkeypatch.setattr("glassformer.data.sources.unreachable", lambda address: None)
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


@pytest.mark.parametrize(
    ("lines", "labels"),
    [
        (["x y,0", "z y,1"], ["neg", "pos"]),
        (["x y,pos", "z y,neg"], ["pos", "neg"]),
        (["x y,other", "z y,pos"], ["other", "pos"]),
    ],
)
def test_names_of_a_file_hold_for_the_numbers_of_one_without_any(lines, labels, tmp_path):
    class_label_parquet(tmp_path / "train.parquet", [f"a film {i}" for i in range(6)], [0, 1] * 3)
    (tmp_path / "test.csv").write_text("\n".join(["text,label", *lines, ""]))
    splits = load_text_dataset(tmp_path, need_labels=True).splits
    assert splits["train"].labels == ["neg", "pos"] * 3
    assert list(map(str, splits["test"].labels)) == labels


def test_names_that_are_digits_are_names_or_numbers_of_a_whole_file(tmp_path):
    names = ("1", "2", "3")
    class_label_parquet(tmp_path / "train.parquet", [f"a film {i}" for i in range(6)], [0, 1, 2] * 2, names)
    for given, labels in (([0, 1, 2, 0], ["1", "2", "3", "1"]), ([1, 2, 3], ["1", "2", "3"])):
        lines = [f"text {i},{label}" for i, label in enumerate(given)]
        (tmp_path / "test.csv").write_text("\n".join(["text,label", *lines, ""]))
        found = load_text_dataset(tmp_path, need_labels=True).splits["test"].labels
        assert list(map(str, found)) == labels


@pytest.mark.parametrize(
    "lines", [["x y,2", "z y,1"], ["x y,0", "z y,pos"], ["x y,-1", "z y,1"], ["x y,0", "z y,other"]]
)
def test_a_number_without_a_name_is_refused_by_its_row(lines, tmp_path):
    class_label_parquet(tmp_path / "train.parquet", [f"a film {i}" for i in range(6)], [0, 1] * 3)
    (tmp_path / "test.csv").write_text("\n".join(["text,label", *lines, ""]))
    with pytest.raises(DataError, match=r"row [23]: label '?.*'? has no name"):
        load_text_dataset(tmp_path, need_labels=True)


@pytest.mark.parametrize("labels", [(0, 1), ("neg", "pos")])
def test_names_of_pictures_in_one_file_hold_for_another(labels, tmp_path):
    from glassformer.data.image_sources import load_image_dataset

    info = {"info": {"features": {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}}}
    table = pa.table({"image": [b"1", b"2", b"3"], "label": [0, 1, 0]})
    pq.write_table(
        table.replace_schema_metadata({"huggingface": json.dumps(info)}), tmp_path / "train.parquet"
    )
    lines = [f"{i}.png,{label}" for i, label in enumerate(labels)]
    (tmp_path / "test.csv").write_text("\n".join(["image,label", *lines, ""]))
    splits = load_image_dataset(tmp_path).splits
    assert splits["train"].labels == ["neg", "pos", "neg"]
    assert splits["test"].labels == ["neg", "pos"]


def test_a_number_without_a_name_is_left_out_where_that_is_asked(tmp_path):
    path = class_label_parquet(tmp_path / "t.parquet", [f"a film {i}" for i in range(6)], [0, 1, -1, 1, 0, 7])
    with pytest.raises(DataError, match="row 3: label -1 has no name"):
        load_text_dataset(path, need_labels=True)
    found = load_text_dataset(path, need_labels=True, on_bad_row="skip")
    assert found.splits["train"].labels == ["neg", "pos", "pos", "neg"]
    assert [(row.row, row.reason) for row in found.rejected] == [
        (3, "label -1 has no name"),
        (6, "label 7 has no name"),
    ]
    hidden = class_label_parquet(tmp_path / "u.parquet", ["a film", "b film"], [-1, -1])
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
