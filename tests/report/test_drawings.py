"""Bars, confusion matrices and learning curves as files, against what one would work out by hand."""

import xml.etree.ElementTree as ET

import pytest

from glassformer.errors import DataError
from glassformer.explain.view import short_names
from glassformer.report import charts
from glassformer.report.charts import COLORS, bar_panels, confusion_matrix, curves, learning_curves


def parts(svg: str, tag: str) -> list[ET.Element]:
    return [e for e in ET.fromstring(svg).iter() if e.tag == f"{{http://www.w3.org/2000/svg}}{tag}"]


def test_a_bar_is_as_long_as_its_share_of_the_largest():
    svg = bar_panels({"<one>": [("a", 0.5), ("b", -0.25)], "two": [("c", 0.1)], "three": []})
    ground, *bars = parts(svg, "rect")
    room = charts.BARS_WIDTH - charts.NAME_WIDTH - charts.VALUE_WIDTH - 16
    assert [float(b.get("width") or 0) for b in bars] == [room, room / 2, pytest.approx(room / 5, abs=0.05)]
    assert [b.get("fill") for b in bars] == [COLORS[0], COLORS[1], COLORS[0]]
    texts = [t.text for t in parts(svg, "text")]
    assert texts == ["<one>", "a", "50.0%", "b", "-25.0%", "two", "c", "10.0%", "three"]
    assert ground.get("fill") == "#ffffff"
    assert (
        float(bars[2].get("x") or 0) == charts.BARS_WIDTH + charts.NAME_WIDTH
    )  # the second panel stands beside the first
    assert bar_panels({"x": [("n" * 40, 0.0)]}, "{:.2f}").count("…") == 1
    assert 'width="0.0"' in bar_panels({"x": [("a", 0.0)]})


LONG = ["balance_not_updated_after_bank_transfer", "balance_not_updated_after_cheque_or_cash_deposit"]


@pytest.mark.parametrize(
    ("names", "longest", "shown"),
    [
        (["cat", "d\u202eg"], 9, ["cat", "d\ufffdg"]),
        (LONG, 18, ["balance_n…transfer", "balance_n…_deposit"]),
        (["begin_a_end", "begin_b_end"], 7, ["begin_a_end", "begin_b_end"]),  # the middle tells them apart
        (["same" * 9, "same" * 9], 7, ["sam…ame"] * 2),
        ([], 7, []),
    ],
)
def test_names_are_shortened_in_the_middle_and_stay_different(names, longest, shown):
    assert short_names(names, longest) == shown


def test_long_names_stay_different_in_drawings():
    matrix = confusion_matrix(LONG, [[9, 1], [0, 4]])
    bars = bar_panels(
        {"x": [(name, 1.0) for name in LONG], "y": [("begin_first_end", 1.0), ("begin_other_end", 2.0)]}
    )
    for svg in (matrix, bars):
        names = [t.text for t in parts(svg, "text") if "bal" in (t.text or "")]
        assert len(set(names)) == 2


def test_squares_of_a_confusion_matrix():
    svg = confusion_matrix(["cat", "d<g"], [[9, 1], [0, 4]])
    ground, *squares = parts(svg, "rect")
    assert ground.get("fill") == "#ffffff"
    assert [s.get("fill") for s in squares] == [COLORS[0], COLORS[1], COLORS[1], COLORS[0]]
    assert [s.get("fill-opacity") for s in squares] == ["0.856", "0.319", "0.050", "0.900"]
    texts = [t.text for t in parts(svg, "text")]
    assert texts == ["predicted", "true", "cat", "cat", "9", "1", "d<g", "d<g", "4"]  # a 0 is left out


def test_counts_that_cannot_be_drawn():
    many = (["a"] * 31, [[0] * 31] * 31)
    for wrong, said in (
        ((["a", "b"], [[1, 2]]), "not 2 by 2"),
        (([], []), "0 classes"),
        (many, "31 classes"),
    ):
        with pytest.raises(DataError, match=said):
            confusion_matrix(*wrong)


def test_learning_curves_have_what_was_measured():
    same = {"train_accuracy": 0.5, "accuracy": 0.4}
    evaluations = [same | {"train_loss": 2.0 - i, "loss": 2.5 - i, "epoch": i} for i in range(2)]
    judged = [{"log_loss": 1.0, "accuracy": 0.3}, {"log_loss": 0.9, "accuracy": 0.6}]
    loss = {"training": [2.0, 1.0], "validation": [2.5, 1.5], "test": [1.0, 0.9]}
    accuracy = {"training": [0.5, 0.5], "validation": [0.4, 0.4], "test": [0.3, 0.6]}
    assert learning_curves(evaluations, judged) == curves({"loss": loss, "accuracy": accuracy}, 2)
    assert len(parts(learning_curves(evaluations, judged), "polyline")) == 6
    assert learning_curves(evaluations, judged[:1]) == learning_curves(evaluations)
    assert learning_curves(evaluations[:1]) == ""
    assert learning_curves([]) == ""
