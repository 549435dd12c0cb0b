"""Texts and labels: one check stands before each, wherever it comes from."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import glassformer as gf
from glassformer.data import check_classes, check_labels, check_texts
from glassformer.data.checks import check_class_names, check_label
from glassformer.data.image_sources import load_image_folder
from glassformer.data.sources import load_text_dataset
from glassformer.errors import DataError

from .conftest import class_labels


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", ""], r"texts\[1\]: the text is empty"),
        (["a", " \n\t"], r"texts\[1\]: the text is empty"),
        ([None], r"texts\[0\]: the text is missing"),
        ([float("nan")], r"texts\[0\]: the text is missing"),
        ([pd.NA], r"texts\[0\]: the text is missing"),
        ([3], r"texts\[0\]: the text is not a string but int"),
        (["a\0b"], "NUL character"),
        (["a\ud800"], "a lone surrogate"),
        ([], "texts: there are no texts"),
        ("one text", "one string where a list of texts is expected"),
    ],
)
def test_texts_that_cannot_be_used(texts, message):
    with pytest.raises(DataError, match=message):
        check_texts(texts)


def test_rows_of_a_file_are_named():
    with pytest.raises(DataError, match=r"reviews.csv, row 7: the text is empty"):
        check_texts(["a", ""], "reviews.csv", [2, 7])
    with pytest.raises(DataError, match=r"reviews.csv, row 7: the label is missing"):
        check_labels(["a", ""], "reviews.csv", [2, 7])


def test_classes():
    assert check_classes(["b", "a", "b"]) == ["a", "b"]
    assert check_classes([3, 1]) == [1, 3]
    with pytest.raises(DataError, match=r"reviews.csv: one class only \('a'\)"):
        check_classes(["a", "a"], "reviews.csv")


UNFIT = [
    ("a\0", "contains a NUL character"),
    ("\ud800", "contains a lone surrogate"),
    ("a\x1b[2J", r"contains the control character U\+001B"),
    ("a\x85b", r"contains the control character U\+0085"),
    ("a" * 1001, "has 1,001 characters, but at most 1,000 can be read"),
    *(
        (label, "is missing")
        for label in ("", " \u2003", "NaN", None, float("nan"), np.float32("nan"), pd.NaT)
    ),
    (Decimal("NaN"), "is missing"),
    (2**63, "beyond 64 bits"),
    (-(2**63) - 1, "beyond 64 bits"),
    (10**40, "beyond 64 bits"),
    (2.0**53 + 2, "too large to be exact"),
    (1e300, "too large to be exact"),
    *((label, "is a fraction") for label in (float("inf"), 0.5, Decimal("0.5"), Decimal("Infinity"))),
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
        *((text, text) for text in ("a\nb\tc\r", "\u202ea", "e\u0301", "a" * 1000)),
        (np.str_("a"), "a"),
        *((number, number) for number in (2**63 - 1, -(2**63))),
        (np.int8(3), 3),
        (True, 1),
        (np.bool_(False), 0),
        (-0.0, 0),
        (2.0**53, 2**53),
        *((Decimal(text), number) for text, number in (("3", 3), ("2.00", 2), ("1E+1", 10), (2**60, 2**60))),
    ],
)
def test_labels_that_are_kept(label, kept):
    found = check_label(label)
    assert (found, type(found)) == (kept, type(kept))


@pytest.mark.parametrize("labels", [[True, 1], [1, True], [0, False], [1.0, True], [np.True_, 0], [1, "1"]])
def test_kinds_are_not_mixed(labels):
    said = r"labels\[1\]: label .* is (a truth value|a number|text) where the first is"
    with pytest.raises(DataError, match=said):
        check_labels(labels)
    assert check_labels([True, False, np.True_]) == [1, 0, 1]
    assert check_labels(pd.Series([1, 2.0, 3])) == [1, 2, 3]


def test_fit_refuses_what_numpy_would_merge_or_round():
    sizes = {"d_model": 6, "num_layers": 1, "num_heads": 1, "d_ff": 5}
    clf = gf.TextClassifier("encoder-mini", **sizes, epochs=1, min_count=1)
    for labels, said in [
        (["a", "a\0"] * 2, r"labels\[1\]: the label contains a NUL"),
        ([2**63, -1] * 2, r"labels\[0\]: the label is a number beyond 64 bits"),
        ([True, 1] * 2, r"labels\[1\]: label 1 is a number where the first is a truth value"),
    ]:
        with pytest.raises(DataError, match=said):
            clf.fit(["good film", "bad film"] * 2, labels)
    clf.fit(["good film", "bad film"] * 2, [2**63 - 1, -(2**63)] * 2)
    assert clf.classes_.tolist() == [-(2**63), 2**63 - 1]
    assert clf.classes_.dtype == np.int64


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ('"x" "\\u0000"', "row 2: the label contains a NUL"),
        ("1 true", "row 2: label True is a truth value"),
        ("1 9223372036854775808", "row 2: .*beyond 64 bits"),
        ('1 0,"label":1', "row 2: .*'label' occurs twice"),
        ('1 "\\ud800"', "row 2: .*a lone surrogate"),
    ],
)
def test_rows_of_json_lines(put, labels, said):
    path = put("t.jsonl", [f'{{"text": "a", "label": {label}}}' for label in labels.split()])
    with pytest.raises(DataError, match=rf"t\.jsonl, {said}"):
        load_text_dataset(path)


def test_numbers_of_csv_stay_apart(put):
    for pair in ("-0 0", "01 1", "1\u0661 11", "9" * 19 + " 1", "1.5 2", "+1 2"):
        first, second = pair.split()
        found = load_text_dataset(put("t.csv", ["text,label", f"a,{first}", f"b,{second}"]))
        assert found.splits["train"].labels == [first, second]


def test_names_of_classes_in_files_and_folders(put, tmp_path):
    for names, said in [
        (["x", "x"], "two classes are called 'x'"),
        (["x", "y\0"], "NUL"),
        (["x", 7], "not a text but int"),
    ]:
        with pytest.raises(DataError, match=said):
            check_class_names(names, "here")
        path = class_labels(tmp_path / "t.parquet", {"text": ["a", "b"], "label": [0, 1]}, names)
        if 7 not in names:  # which is written out when the file is opened
            with pytest.raises(DataError, match=rf"t\.parquet: .*{said}"):
                load_text_dataset(path)
    for kind, load in [("txt", load_text_dataset), ("png", load_image_folder)]:
        for name in ("good", "bad\x1b"):
            put(f"{kind}/{name}/1.{kind}", "a film")
        with pytest.raises(DataError, match=r"control character U\+001B"):
            load(tmp_path / kind)
