"""Whether a training ended while its validation loss still fell."""

from __future__ import annotations

import pytest

from glassformer.tasks.labelled import still_learning


def history(*losses: float | None) -> list[dict]:
    rows = [{"kind": "step", "step": i, "loss": 3.0 - i} for i in range(3)]
    return rows + [{"kind": "evaluation", "epoch": i, "loss": loss} for i, loss in enumerate(losses)]


@pytest.mark.parametrize(
    ("losses", "found"),
    [
        ((2.9, 2.1, 1.7), {"epochs": 3, "before": 2.1, "after": 1.7}),
        ((2.9, 2.1, 2.03), None),  # by three percent
        ((0.5, 0.9, 0.7), None),  # an earlier one was better
        ((0.5, 0.7), None),
        ((2.9,), None),
        ((), None),
        ((2.9, None, 1.7), {"epochs": 2, "before": 2.9, "after": 1.7}),
    ],
)
def test_only_a_last_epoch_that_gained_much_says_that_it_goes_on(losses, found):
    assert still_learning(history(*losses)) == found
