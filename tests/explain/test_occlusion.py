"""Occlusion: against captum, against hiding by hand, and windows on a grid."""

from dataclasses import replace
from itertools import combinations
from math import factorial

import captum.attr
import numpy as np
import pytest
import torch
from tests.commands import values

from glassformer.errors import InputError
from glassformer.explain.methods import explain
from glassformer.explain.occlusion import mean_decrease, windows
from glassformer.explain.subject import run_rows, text_subject
from glassformer.packing import Packing

from .conftest import PLAIN, fitted, forward_of

TEXT = "it was wonderful , not a dull film"


def test_windows_cover_the_grid():
    inside = windows((5, 7), (2, 3), (2, 2))
    assert inside.shape == (3 * 3, 5, 7)
    assert inside.any(0).all()
    assert inside[0].sum() == 6
    assert inside[-1].sum() == 1 * 3  # sticks out below and is cut there
    np.testing.assert_array_equal(windows((3,), (1,), (1,)), np.eye(3, dtype=bool))


def test_a_patch_that_decides_is_found():
    """The logit is one patch's own value: only windows over it lower the logit."""
    values = np.zeros((5, 7))
    values[3, 2] = 11.0

    def predict(keep):
        return np.stack([np.zeros(len(keep)), (keep * values).sum((1, 2))], 1)

    falls, scores = mean_decrease(predict, windows((5, 7), (1, 1), (1, 1)), 1)
    np.testing.assert_array_equal(scores, values)
    falls, scores = mean_decrease(predict, windows((5, 7), (3, 3), (1, 1)), 1)
    assert falls.max() == 11.0
    assert scores[3, 2] == 11.0  # every window over it
    assert scores[0, 6] == 0
    assert scores[2, 3] == pytest.approx(11 * 4 / 9)  # 4 of the 9 windows over it hold the patch


@pytest.mark.parametrize(
    ("kind", "window", "stride"),
    [("first", 1, 1), ("first", 3, 1), ("first", 3, 2), ("first", 5, 3), *[(kind, 1, 1) for kind in PLAIN]],
)
def test_spans_equal_captum_s(kind, window, stride):
    """captum slides over all rows, so the special tokens count as words here."""
    subject = text_subject(fitted(kind), TEXT)
    subject.words[:] = np.arange(len(subject))
    base = subject.baseline("mask") if kind in PLAIN else torch.zeros_like(subject.embeddings)
    subject.baselines["mask"] = lambda: base
    ours = explain(subject, method="occlusion", unit="token", window=window, stride=stride)
    d = subject.embeddings.shape[1]
    theirs = captum.attr.Occlusion(forward_of(subject)).attribute(
        subject.embeddings[None], (window, d), (stride, d), baselines=base[None], target=subject.target
    )
    np.testing.assert_allclose(ours.scores, theirs[0, :, 0].detach().numpy(), atol=1e-5)
    assert ours.scores.any()


def test_a_masked_token_is_a_mask_in_the_text(tiny):
    e = tiny.explain("a dull film", method="occlusion", target="neg")
    masked = tiny.tokenizer_.token_to_id("[MASK]")
    ids = tiny.encode(["a dull film"])[0].tolist()
    whole = tiny.model_(torch.tensor([ids])).logits[0, 0].item()
    for i in (1, 2, 3):
        changed = [*ids[:i], masked, *ids[i + 1 :]]
        expected = whole - tiny.model_(torch.tensor([changed])).logits[0, 0].item()
        assert e.scores[i] == pytest.approx(expected, abs=1e-5)
    assert e.scores[0] == e.scores[-1] == 0.0
    # to delete it leaves its row out
    subject = text_subject(tiny, "a dull film")
    keep = np.ones((2, 5), bool)
    keep[1, 2] = False
    rows = subject.embeddings[[0, 1, 3, 4]]
    expected = run_rows(tiny.model_, rows, Packing((4,))).logits[0].detach().numpy()
    np.testing.assert_allclose(subject.logits(keep, "delete")[1], expected, atol=1e-6)
    # a text without words has nothing to hide
    subject = text_subject(tiny, "a film")
    subject.words[:] = -1
    for unit in ("token", "word", "span"):
        assert not explain(subject, method="occlusion", unit=unit).scores.any()
    # everything hidden still has a row
    subject.words[:] = np.arange(4)
    assert np.isfinite(subject.logits(np.zeros((3, 4), bool), "delete")).all()


def test_pieces_share_the_score_of_their_word(tiny):
    subject = text_subject(tiny, "a dull film was not wonderful")
    subject.words[:] = [-1, 0, 0, 0, 1, 2, 2, -1]  # as if pieces of three words
    e = explain(subject, method="occlusion", unit="word")
    keep = np.ones((4, 8), bool)
    for i, pieces in enumerate(([1, 2, 3], [4], [5, 6]), start=1):
        keep[i, pieces] = False
    logits = subject.logits(keep)[:, subject.target]
    expected = logits[0] - logits[1:]
    np.testing.assert_allclose([e.scores[1:4].sum(), e.scores[4], e.scores[5:7].sum()], expected, atol=1e-6)
    assert e.scores[1] == e.scores[2] == e.scores[3]


def test_a_patch_grid(tiny):
    """A text of 2 x 3 tokens taken for patches: scores on the grid, equal to those of its tokens."""
    subject = text_subject(tiny, "a dull film it was not")
    plain = explain(subject, method="occlusion")
    grid = explain(replace(subject, grid=(2, 3)), method="occlusion")
    assert grid.scores.shape == (2, 3)
    np.testing.assert_array_equal(grid.scores.ravel(), plain.scores[1:-1])
    wide = explain(replace(subject, grid=(2, 3)), method="occlusion", window=2)
    assert wide.settings["window"] == 2
    assert wide.scores.shape == (2, 3)
    assert grid.top(1)[0][0] == "({}, {})".format(*np.unravel_index(grid.scores.argmax(), (2, 3)))


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("unit=letter", "unknown unit 'letter'"),
        ("by=nothing", "unknown baseline 'nothing'"),
        ("window=-1", "a window of -1"),
        ("stride=0", "stride 0"),
        ("target=neutral", "no label 'neutral'"),
    ],
)
def test_options_that_cannot_be(tiny, option, said):
    with pytest.raises(InputError, match=said):
        tiny.explain(TEXT, method="occlusion", **values(option))


# --- Shapley values -------------------------------------------------------------------------------


@pytest.fixture
def subject():
    return text_subject(fitted("mean"), "it was not dull")


def exact(subject, target):
    """By the definition, over all sets of words."""
    words = subject.words[subject.maskable_indices]
    n = int(words.max()) + 1
    value = {}
    for size in range(n + 1):
        for shown in combinations(range(n), size):
            keep = np.isin(subject.words, shown)
            value[shown] = subject.logits(keep[None])[0, target]
    out = np.zeros(n)
    for shown, y in value.items():
        for i in set(range(n)) - set(shown):
            share = factorial(len(shown)) * factorial(n - len(shown) - 1) / factorial(n)
            out[i] += share * (value[tuple(sorted((*shown, i)))] - y)
    return out


def test_many_orders_come_to_the_exact_values(subject):
    wanted = exact(subject, subject.target)
    e = explain(subject, method="shapley", pairs=300)
    found = np.array([score for _, score in e.words()])
    np.testing.assert_allclose(found, wanted, atol=0.05 * np.abs(wanted).max())


@pytest.mark.parametrize("options", [{}, {"unit": "token", "pairs": 1}, {"by": "delete", "seed": 7}])
def test_scores_add_up(subject, options):
    e = explain(subject, method="shapley", **options)
    keep = np.array([[True] * len(subject), [False] * len(subject)])
    ends = subject.logits(keep, options.get("by", "mask"))[:, subject.target]
    assert e.scores.sum() == pytest.approx(ends[0] - ends[1], abs=1e-6)
    assert (e.scores[subject.words < 0] == 0).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [({"unit": "span"}, "unknown unit 'span'"), ({"pairs": 0}, "0 pairs"), ({"seed": -1}, "seed -1")],
)
def test_options_that_shapley_values_do_not_have(subject, options, said):
    with pytest.raises(InputError, match=said):
        explain(subject, method="shapley", **options)
