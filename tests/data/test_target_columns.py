"""A column that holds the labels is found, whatever it is called; one that does not is left alone."""

import pandas as pd
import pytest

from glassformer.data.columns import check_no_target_column, check_no_target_in_pairs, check_no_target_side
from glassformer.data.dataset import TextSplit
from glassformer.data.in_memory import table_of
from glassformer.data.text_pairs import TextPair
from glassformer.errors import DataError

N = 23
TEXTS = [f"text number {i}" for i in range(N)]
LABELS = [("pos", "neg", "none")[i * i % 3] for i in range(N)]
CODES = [{"pos": 2, "neg": 0, "none": 1}[label] for label in LABELS]
SIDES = [f"side {i % 4}" for i in range(N)]


def refuse(columns, y, most=2):
    return check_no_target_column(table_of(pd.DataFrame(columns)), y, most, "texts")


@pytest.mark.parametrize(
    ("column", "y"),
    [
        (LABELS, LABELS),
        (LABELS, CODES),  # as LabelEncoder makes them
        (CODES, LABELS),
        (CODES, CODES),
        (list(map(str, CODES)), [float(code) for code in CODES]),
        ([f" {label.upper()} " for label in LABELS], LABELS),
        (LABELS, [label == "pos" for label in LABELS]),  # one class against the others
        ([float(i) for i in range(N)], list(range(N))),  # a number each
        ([str(i / 7) for i in range(N)], [i / 7 for i in range(N)]),
    ],
)
def test_a_column_of_the_labels_raises(column, y):
    said = r"column 'label' of X holds the labels. Give the column of texts without the labels: fit\(X\['text'\], X\['label'\]\)"
    with pytest.raises(DataError, match=said):
        refuse({"text": TEXTS, "label": column}, y)
    with pytest.raises(DataError, match=said):
        refuse({"label": column, "text": TEXTS}, y)
    with pytest.raises(DataError, match=said):
        refuse({"id": range(7, 7 + N), "text": TEXTS, "label": column}, y)


def test_a_column_by_any_other_name():
    with pytest.raises(DataError, match="column 'x' of X holds the labels"):
        refuse({"text": TEXTS, "x": LABELS}, CODES)
    with pytest.raises(DataError, match=r"column 'x' .* Give the column of texts"):
        refuse({"x": LABELS}, LABELS)


def test_the_fix_names_both_sides_of_pairs():
    with pytest.raises(DataError, match=r"fit\(X\[\['premise', 'hypothesis'\]\], X\['label'\]\)"):
        refuse({"premise": TEXTS, "hypothesis": SIDES, "label": LABELS}, CODES)
    with pytest.raises(DataError, match=r"fit\(X\[\['sentence1', 'sentence2'\]\], X\['score'\]\)"):
        refuse({"sentence1": TEXTS, "sentence2": SIDES, "score": [i / 7 for i in range(N)]}, None)


@pytest.mark.parametrize(
    ("columns", "y"),
    [
        ({"text": TEXTS}, LABELS),
        ({"premise": TEXTS, "hypothesis": SIDES}, LABELS),
        ({"premise": TEXTS, "hypothesis": SIDES}, [float(i) for i in range(N)]),
        ({"premise": TEXTS, "hypothesis": SIDES}, None),
        ({"text": ["good", "bad"] * 10}, [1, 0] * 10),  # a few texts that are repeated
        ({"a": ["x y", "z w"] * 10, "b": ["good", "bad"] * 10}, [1, 0] * 10),
        ({"a": TEXTS, "topic": LABELS}, [int(i > 7) for i in range(N)]),  # tells something, not the label
        ({"text": TEXTS, "label": LABELS}, [int(i > 7) for i in range(N)]),
    ],
)
def test_what_is_no_label_is_left_alone(columns, y):
    assert refuse(columns, y) is None


def test_sides_of_tuples():
    with pytest.raises(
        DataError,
        match=r"the second text of each pair has one value for each label.*\[pair\[0\] for pair in X\]",
    ):
        check_no_target_side([TEXTS, LABELS], CODES, "texts")
    with pytest.raises(
        DataError, match=r"the first text of each pair is its label.*\[pair\[1\] for pair in X\]"
    ):
        check_no_target_side([LABELS, TEXTS], LABELS, "texts")
    check_no_target_side([TEXTS, SIDES], LABELS, "texts")


@pytest.mark.parametrize(
    ("sides", "said"),
    [
        ((TEXTS, LABELS), "column 'b c', read as the second text of pairs, has one value for each label. "),
        (
            (TEXTS, list(map(str, CODES))),
            "column 'b c', read as the second text of pairs, holds the labels. ",
        ),
        ((list(map(str, CODES)), TEXTS), "column 'a', read as the first text of pairs, holds the labels. "),
    ],
)
def test_sides_of_two_columns_of_a_table(sides, said):
    pairs = [TextPair(*pair) for pair in zip(*sides, strict=True)]
    fix = "Read only 'a': text_column a pair_column none"
    if sides[1] is TEXTS:
        fix = "Read only 'b c': text_column 'b c' pair_column none"
    with pytest.raises(DataError) as raised:
        check_no_target_in_pairs(TextSplit(pairs, CODES, "t.csv"), ("a", "b c"))
    assert str(raised.value) == f"t.csv: {said}{fix}"
    others = [TextPair(*pair) for pair in zip(TEXTS, SIDES, strict=True)]
    assert check_no_target_in_pairs(TextSplit(others, CODES, "t.csv"), ("a", "b c")) is None
