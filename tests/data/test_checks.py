"""Texts and labels given in memory."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from glassformer.data import check_classes, check_labels, check_texts
from glassformer.errors import DataError


@pytest.mark.parametrize(
    "texts",
    [["tệ quá", "好"], ("a", "b"), np.array(["a", "b"]), np.array(["a", "b"], object), pd.Series(["a", "b"])],
)
def test_texts_of_every_container(texts):
    assert check_texts(texts) == list(texts)


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


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        (["b", "a"], ["b", "a"]),
        ([1.0, 0.0], [1, 0]),
        ([True, False], [1, 0]),
        (np.array([1, 0], np.int8), [1, 0]),
        (np.array(["x", "y"]), ["x", "y"]),
        (pd.Series([2, 3]), [2, 3]),
        ([Decimal("3"), Decimal("2.00"), Decimal("1E+1"), Decimal(2**60)], [3, 2, 10, 2**60]),
    ],
)
def test_labels_become_plain(labels, wanted):
    found = check_labels(labels)
    assert found == wanted
    assert {type(x) for x in found} <= {int, str}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, float("nan")], r"labels\[1\]: the label is missing"),
        ([1, np.float32("nan")], "missing"),
        ([None], "missing"),
        ([pd.NaT], "missing"),
        (["a", "NaN"], "missing"),
        ([0.5], "0.5 is a fraction"),
        ([float("inf")], "fraction"),
        ([Decimal("0.5")], "0.5 is a fraction"),
        ([Decimal("Infinity")], "fraction"),
        ([Decimal("NaN")], "missing"),
        ([1, "a"], r"labels\[1\]: label 'a' is text where the first is a number"),
        ([["a"]], "neither text nor a whole number but list"),
    ],
)
def test_labels_that_cannot_be_used(labels, message):
    with pytest.raises(DataError, match=message):
        check_labels(labels)


def test_classes():
    assert check_classes(["b", "a", "b"]) == ["a", "b"]
    assert check_classes([3, 1]) == [1, 3]
    with pytest.raises(DataError, match=r"reviews.csv: one class only \('a'\)"):
        check_classes(["a", "a"], "reviews.csv")
