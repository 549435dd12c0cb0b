"""The table of a label review: the user's columns and rows, to be corrected and given back."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.tables import read_csv, write_csv

from glassformer.cli.app import main
from glassformer.data.image_sources import load_image_dataset
from glassformer.data.sources import load_text_dataset
from glassformer.evaluate.predictions import Prediction
from glassformer.study.review import REVIEW_COLUMNS, separator_for, training_command, write_to_correct

from ..cli.tiny import sentences, settings

JUDGED = SimpleNamespace(
    order=np.array([1, 0]),
    suggested=np.array([0, 0]),
    quality=np.array([0.75, 0.25]),
    suspicious=np.array([False, True]),
)


def answers(*texts: str) -> list[Prediction]:
    return [Prediction("out-of-fold", str(i), text, "b", "a", 0.5, {}) for i, text in enumerate(texts, 2)]


def test_rows_and_columns_are_those_of_the_table(tmp_path):
    source, texts = tmp_path / "own.csv", ("=1+1 is two", "@you so so")
    source.write_text("id,comment,emotion\n7,=1+1 is two,b\n8,@you so so,b\n9,not judged,\n")
    path, fresh = write_to_correct(tmp_path, {"source": str(source)}, answers(*texts), JUDGED, ["a", "b"])
    assert fresh
    rows = read_csv(path)
    assert list(rows[0]) == [*REVIEW_COLUMNS, "id", "comment", "emotion"]
    keys = ("review:rank", "id", "review:suggested", "review:suspicious")
    told = [tuple(row[key] for key in keys) for row in rows]
    assert told == [("1", "8", "a", "yes"), ("2", "7", "a", "no"), ("", "9", "", "")]
    assert rows[1]["comment"] == "'=1+1 is two"  # what a spreadsheet would run is guarded
    found = load_text_dataset(path, on_bad_row="skip", need_labels=True)
    assert found.columns == ("comment", "emotion")
    assert found.splits["train"].texts == ["@you so so", "=1+1 is two"]  # and the guard is taken off


def test_a_table_in_another_encoding_keeps_its_columns(tmp_path):
    source = tmp_path / "own.csv"
    source.write_bytes("id,comment,emotion\n7,café,b\n8,so so,b\n".encode("cp1252"))
    data = {"source": str(source), "encoding": "cp1252"}
    path, _ = write_to_correct(tmp_path, data, answers("café", "so so"), JUDGED, ["a", "b"])
    assert [(r["id"], r["comment"]) for r in read_csv(path)] == [("8", "so so"), ("7", "café")]


def typed(kind: str, tmp_path: Path) -> Path:
    """A table whose labels ``b``, ``b``, ``a`` (and of sets ``a`` with ``b``, ``b``, none) have a type."""
    path = tmp_path / f"own.{'jsonl' if kind in ('bool', 'float', 'list') else 'parquet'}"
    texts = ["one", "two", "not judged"]
    if path.suffix == ".jsonl":
        own = {"bool": [True, True, False], "float": [1.0, 1.0, 0.0], "list": [["b", "a"], ["b"], []]}
        labels = own[kind]
        lines = (json.dumps({"text": t, "label": y}) for t, y in zip(texts, labels, strict=True))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path
    feature = {"names": ["a", "b"], "_type": "ClassLabel"}
    if kind == "sets":
        feature = {"feature": feature, "_type": "List"}
    labels = [1, 1, 0] if kind == "names" else [[1, 0], [1], []]
    note = {"huggingface": json.dumps({"info": {"features": {"label": feature}}})}
    pq.write_table(pa.table({"text": texts, "label": labels}).replace_schema_metadata(note), path)
    return path


@pytest.mark.parametrize(
    ("kind", "given", "cells"),
    [
        ("names", ("b", "b"), ["b", "b", "a"]),
        ("sets", ("a|b", "b"), ["b", "a|b", ""]),
        ("bool", ("1", "1"), ["1", "1", "0"]),
        ("float", ("1", "1"), ["1", "1", "0"]),
        ("list", ("a|b", "b"), ["b", "a|b", ""]),
    ],
)
def test_labels_are_spelled_as_suggestions_are(kind, given, cells, tmp_path):
    data: dict = {"source": str(typed(kind, tmp_path))}
    data |= {"label_separator": "|"} if "|" in given[0] else {}
    rows = [replace(row, label=label) for row, label in zip(answers("one", "two"), given, strict=True)]
    rows = [replace(row, row=str(int(row.row) - 1)) for row in rows]  # there is no header above them
    path, _ = write_to_correct(tmp_path, data, rows, JUDGED, ["a", "b"])
    assert [r["text"] for r in read_csv(path)] == ["two", "one", "not judged"]
    assert [r["label"] for r in read_csv(path)] == cells
    words = training_command(data, path)
    assert words[3:] == [str(path), *(["--label-separator", "|"] if "|" in given[0] else [])]


def test_merged_labels_keep_their_own_names(tmp_path):
    """What merges them comes back with the table; a suggestion is the name that they are merged into."""
    data = {"source": str(typed("names", tmp_path)), "merge_labels": {"b": "c"}}
    rows = [replace(r, label="c", row=str(int(r.row) - 1)) for r in answers("one", "two")]
    path, _ = write_to_correct(tmp_path, data, rows, JUDGED, ["c", "a"])
    told = [(row["label"], row["review:suggested"]) for row in read_csv(path)]
    assert told == [("b", "c"), ("b", "c"), ("a", "")]
    assert training_command(data, path)[-2:] == ["--set", 'merge_labels={"b" = "c"}']


def test_what_joins_labels_stands_in_none_of_them():
    assert separator_for({}, ["a", "b"]) == "|"
    assert separator_for({}, ["C|C++", "a;b"]) == "/"
    assert separator_for({"label_separator": ","}, ["a,b"]) == ","


def test_an_edited_table_is_kept(tmp_path):
    given = (tmp_path, {}, answers("one", "two"), JUDGED, ["a", "b"])
    path, _ = write_to_correct(*given)
    assert write_to_correct(*given) == (path, True)
    path.write_text(path.read_text(encoding="utf-8").replace("two,b", "two,a"), encoding="utf-8")
    edited = path.read_bytes()
    assert write_to_correct(*given) == (path, False)
    assert path.read_bytes() == edited


def test_where_the_source_has_changed_the_judged_texts_are_given(tmp_path):
    source = tmp_path / "own.csv"
    source.write_text("comment,emotion\nanother,b\ntext,b\n", encoding="utf-8")
    path, _ = write_to_correct(tmp_path, {"source": str(source)}, answers("one", "two"), JUDGED, ["a", "b"])
    assert [(r["text"], r["label"]) for r in read_csv(path)] == [("two", "b"), ("one", "b")]


def test_pictures_are_given_as_a_table_of_files(tmp_path):
    files = [str(tmp_path / f"{i}.png") for i in range(2)]
    for file in files:
        Image.new("RGB", (5, 5)).save(file)
    data = {"broken": "refuse", "source": str(tmp_path)}
    path, _ = write_to_correct(tmp_path, data, answers(*files), JUDGED, ["a", "b"])
    split = load_image_dataset(path).splits["train"]
    assert (split.images, split.labels) == ([files[1], files[0]], ["b", "b"])


@pytest.mark.slow
def test_the_command_gives_a_table_that_train_takes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [(i, *row) for i, row in enumerate(sentences(40))]
    write_csv(Path("own.csv"), ["id", "comment", "emotion"], rows)
    assert main(["review-labels", "--text", "own.csv", "--folds", "2", "--out", "r", *settings()]) == 0
    assert "then train on that file: glassformer train --text r/to_correct.csv" in capsys.readouterr().out
    assert sorted(int(row["id"]) for row in read_csv(Path("r/to_correct.csv"))) == list(range(40))
    assert json.loads(Path("r/review.json").read_text(encoding="utf-8"))["n"] == 40
    assert main(["train", "--text", "r/to_correct.csv", "--out", "again", *settings()]) == 0
