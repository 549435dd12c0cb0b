"""The history of a training: few bytes a step, and the same records as were put in."""

import json

import numpy as np
import pytest

from glassformer.train.state import History


def step(i: int) -> dict:
    return {
        "kind": "step",
        "step": i,
        "epoch": i // 7,
        "loss": 1 / (i + 3),
        "lr": 1e-3 * i,
        "tokens": 2**40 + i,
        "seconds": i / 1000,
    }


def records(count: int) -> list[dict]:
    """Steps; after every third an evaluation, some of them two in a row, and steps of another form."""
    out = []
    for i in range(count):
        out.append(step(i))
        if i % 3 == 2:
            out += [{"kind": "evaluation", "step": i, "accuracy": 0.5, "best": False}] * (1 + i % 2)
        if i % 5 == 4:
            out += [step(i) | {"pairs": 3}, step(i) | {"loss": 2}, {"step": 1, "kind": "step"}]
    return out


@pytest.mark.parametrize("count", [0, 1, 2, 3, 23])
def test_what_comes_out_is_what_went_in(count):
    wanted = records(count)
    history = History(wanted)
    assert len(history) == len(wanted)
    assert json.dumps(list(history)) == json.dumps(wanted)  # order of keys and types too
    assert history == wanted
    assert wanted == history
    assert history != [*wanted, step(0)]
    for i in range(-len(wanted), len(wanted)):
        assert history[i] == wanted[i]
    for part in (slice(None), slice(-5, None), slice(3, 17, 4), slice(9, 2), slice(None, None, -1)):
        assert history[part] == wanted[part]
    with pytest.raises(IndexError):
        history[len(wanted)]


def test_it_comes_back_from_a_checkpoint():
    wanted = records(23)
    history = History(wanted)
    again = History.restore(json.loads(json.dumps(history.other_records())), history.tensors())
    assert json.dumps(list(again)) == json.dumps(wanted)
    again.append(step(99))
    history.append(step(99))
    assert again == history
    assert History.restore(wanted, {}) == wanted  # as checkpoints of format 1 have it


def test_a_step_takes_few_bytes():
    history = History(step(i) for i in range(1000))
    assert sum(t.numel() * t.element_size() for t in history.tensors().values()) == 48_000
    assert history.other_records() == {"places": [], "others": []}
    assert np.isclose(history.tensors()["history/loss"].sum(), sum(r["loss"] for r in history))
