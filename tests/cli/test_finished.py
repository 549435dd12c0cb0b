"""What the end of a training says of few examples, and of probabilities that are too low."""

from __future__ import annotations

from pathlib import Path

import pytest

from glassformer.cli.finished import _of_validation, unsure


@pytest.mark.parametrize(
    ("n", "accuracy", "said"),
    [
        (4, 0.75, "validation accuracy: 3 of 4"),
        (29, 28 / 29, "validation accuracy: 28 of 29"),
        (101, 0.9, "validation accuracy: 90.0\u202f%"),
    ],
)
def test_a_handful_is_counted(n, accuracy, said):
    assert _of_validation({"n": n, "accuracy": accuracy}, "accuracy").startswith(said)


def test_a_measure_that_is_no_count_says_of_how_many_it_is():
    assert _of_validation({"n": 7, "accuracy": 1.0, "macro_f1": 0.5}, "macro_f1").endswith("(of 7 examples)")


def figures(n: int, accuracy: float, confidence: float) -> dict:
    return {"n": n, "accuracy": accuracy, "confidence": confidence}


def test_probabilities_that_are_too_low_are_told_with_what_mends_them():
    low, run = figures(300, 0.93, 0.59), Path("runs/few")
    few = unsure(run, {"test": low, "validation": figures(4, 0.75, 0.6)})
    assert "too low: 0.59 on average, and 0.93 of the answers are right" in few
    assert "the 4 validation examples are too few" in few
    assert "glassformer calibrate runs/few --data" in few
    many = unsure(run, {"test": low, "validation": figures(211, 0.9, 0.6)})
    assert many.endswith("glassformer calibrate runs/few scales them")
    assert "no validation examples" in unsure(run, {"test": low, "validation": None})
    high = {"test": figures(300, 0.7, 0.95), "validation": figures(211, 0.72, 0.94)}
    assert "too high" in unsure(run, high)


def test_nothing_is_said_where_it_would_not_help():
    run = Path("runs/few")
    assert unsure(run, {"test": figures(300, 0.93, 0.95)}) == ""  # as sure as it should be
    assert unsure(run, {"test": figures(11, 0.9, 0.8)}) == ""  # chance
    assert unsure(run, {"test": {"n": 300, "accuracy": 0.5}}) == ""  # several labels, or an older run
    against = {"test": figures(300, 0.93, 0.59), "validation": figures(211, 0.6, 0.6)}
    assert unsure(run, against) == ""  # the validation examples would not mend it
    assert unsure(run, {"test": None, "validation": None}) == ""
