"""One check stands before every label, wherever it comes from."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import glassformer as gf
from glassformer.data.checks import check_class_names, check_label, check_labels
from glassformer.data.image_sources import load_image_folder
from glassformer.data.sources import load_text_dataset
from glassformer.errors import DataError

UNFIT = [
    ("a\0", "holds a NUL character"),
    ("\ud800", "holds a lone surrogate"),
    ("a\x1b[2J", r"holds the control character U\+001B"),
    ("a\x85b", r"holds the control character U\+0085"),
    ("a" * 1001, "has 1,001 characters, but at most 1,000 can be read"),
    ("", "is missing"),
    (" \u2003", "is missing"),
    (None, "is missing"),
    (float("nan"), "is missing"),
    (2**63, "beyond 64 bits"),
    (-(2**63) - 1, "beyond 64 bits"),
    (10**40, "beyond 64 bits"),
    (2.0**53 + 2, "too large to be exact"),
    (1e300, "too large to be exact"),
    (float("inf"), "is a fraction"),
    (0.5, "is a fraction"),
    (b"a", "neither text nor a whole number but bytes"),
    (["a"], "neither text nor a whole number but list"),
]


@pytest.mark.parametrize(("label", "said"), UNFIT)
def test_labels_that_cannot_be_kept(label, said):
    with pytest.raises(DataError, match=rf"^here: (the )?label .*{said}") as caught:
        check_label(label, "here")
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match=rf"^labels\[1\]: (the )?label .*{said}"):
        check_labels([check_label("a") if isinstance(label, str) else 1, label])


@pytest.mark.parametrize(
    ("label", "kept"),
    [
        ("a\nb\tc\r", "a\nb\tc\r"),
        ("\u202ea", "\u202ea"),
        ("e\u0301", "e\u0301"),
        (np.str_("a"), "a"),
        ("a" * 1000,) * 2,
        (2**63 - 1,) * 2,
        (-(2**63),) * 2,
        (np.int8(3), 3),
        (True, 1),
        (np.bool_(False), 0),
        (-0.0, 0),
        (2.0**53, 2**53),
    ],
)
def test_labels_that_are_kept(label, kept):
    found = check_label(label)
    assert (found, type(found)) == (kept, type(kept))


@pytest.mark.parametrize("labels", [[True, 1], [1, True], [0, False], [1.0, True], [np.True_, 0], [1, "1"]])
def test_kinds_are_not_mixed(labels):
    with pytest.raises(
        DataError, match=r"labels\[1\]: label .* is (a truth value|a number|text) where the first is"
    ):
        check_labels(labels)
    assert check_labels([True, False, np.True_]) == [1, 0, 1]
    assert check_labels(pd.Series([1, 2.0, 3])) == [1, 2, 3]


def test_fit_refuses_what_numpy_would_merge_or_round():
    clf = gf.TextClassifier(
        "encoder-mini", d_model=6, num_layers=1, num_heads=1, d_ff=5, epochs=1, min_count=1
    )
    for labels, said in [
        (["a", "a\0"] * 2, r"labels\[1\]: the label holds a NUL"),
        ([2**63, -1] * 2, r"labels\[0\]: the label is a number beyond 64 bits"),
        ([True, 1] * 2, r"labels\[1\]: label 1 is a number where the first is a truth value"),
    ]:
        with pytest.raises(DataError, match=said):
            clf.fit(["good film", "bad film"] * 2, labels)
    clf.fit(["good film", "bad film"] * 2, [2**63 - 1, -(2**63)] * 2)
    assert clf.classes_.tolist() == [-(2**63), 2**63 - 1]
    assert clf.classes_.dtype == np.int64


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ['{"text": "a", "label": "x"}', '{"text": "b", "label": "\\u0000"}'],
            "row 2: the label holds a NUL",
        ),
        (['{"text": "a", "label": 1}', '{"text": "b", "label": true}'], "row 2: label True is a truth value"),
        (
            ['{"text": "a", "label": 1}', '{"text": "b", "label": 9223372036854775808}'],
            "row 2: .*beyond 64 bits",
        ),
        (
            ['{"text": "a", "label": 1}', '{"text": "b", "label": 0, "label": 1}'],
            "row 2: .*'label' occurs twice",
        ),
        (
            ['{"text": "a", "label": 1}', '{"text": "b", "label": "\\ud800"}'],
            "row 2: .*a lone surrogate",
        ),
    ],
)
def test_rows_of_json_lines(tmp_path, lines, said):
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    with pytest.raises(DataError, match=rf"t\.jsonl, {said}"):
        load_text_dataset(tmp_path / "t.jsonl")


def test_numbers_of_csv_stay_apart(tmp_path):
    for first, second in [("-0", "0"), ("01", "1"), ("1\u0661", "11"), ("9" * 19, "1")]:
        (tmp_path / "t.csv").write_text(f"text,label\na,{first}\nb,{second}\n")
        assert load_text_dataset(tmp_path / "t.csv").splits["train"].labels == [first, second]


def test_names_of_classes_in_files_and_folders(tmp_path):
    for names, said in [
        (["x", "x"], "two classes are called 'x'"),
        (["x", "y\0"], "NUL"),
        (["x", 7], "not a text but int"),
    ]:
        note = {"info": {"features": {"label": {"_type": "ClassLabel", "names": names}}}}
        table = pa.table({"text": ["a", "b"], "label": [0, 1]})
        pq.write_table(
            table.replace_schema_metadata({"huggingface": json.dumps(note)}), tmp_path / "t.parquet"
        )
        with pytest.raises(DataError, match=said):
            check_class_names(names, "here")
        if all(isinstance(name, str) for name in names):  # others are written out when the file is opened
            with pytest.raises(DataError, match=rf"t\.parquet: .*{said}"):
                load_text_dataset(tmp_path / "t.parquet")
    for kind, load in [("txt", load_text_dataset), ("png", load_image_folder)]:
        folder = tmp_path / kind
        for name in ("good", "bad\x1b"):
            (folder / name).mkdir(parents=True)
            (folder / name / f"1.{kind}").write_text("a film")
        with pytest.raises(DataError, match=r"control character U\+001B"):
            load(folder)
