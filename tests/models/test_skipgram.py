"""The readable skip-gram, and the compiled loops held to the same loss and gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glassformer.models.skipgram import (
    NONE,
    SkipGram,
    SkipGramBatch,
    draw_negatives,
    draw_positives,
    keep_probability,
    noise_distribution,
)
from glassformer.train.negative_sampling import (
    LOSS_EVERY,
    empty_table,
    kernel,
    make_sampler,
    padded_width,
    random_state,
)

V, D = 37, 13
WIDTH = padded_width(D)


def tables(seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(2):
        table = empty_table(V, D)
        table[:, :D] = rng.normal(0, 0.5, (V, D))
        made.append(table)
    return made[0], made[1]


def compiled_step(centre_table, context_table, around, middle, negatives, lr: float, judge=True) -> float:
    """One window through the compiled loops, in place; returns its loss."""
    words = np.array([middle, *negatives], np.int32)
    return kernel(WIDTH).window(
        centre_table,
        context_table,
        np.asarray(around, np.int32),
        len(around),
        words,
        len(words),
        np.float32(lr),
        np.empty(len(words), np.float32),
        np.empty(WIDTH, np.float32),
        judge,
    )


def readable_loss(model: SkipGram, around, middle, negatives) -> torch.Tensor:
    """The same pairs through the page's model: each neighbour tells the middle word from all negatives."""
    rows = (around, [[middle]] * len(around), [negatives] * len(around))
    return model(SkipGramBatch(*map(torch.tensor, rows))).sum()


def model_of(centre_table, context_table) -> SkipGram:
    model = SkipGram(V, D)
    with torch.no_grad():
        model.centres.weight.copy_(torch.from_numpy(centre_table[:, :D].copy()))
        model.contexts.weight.copy_(torch.from_numpy(context_table[:, :D].copy()))
    return model


def test_one_pair_has_autograds_gradient_exactly():
    a, b = tables()
    around, middle, negatives = [5], 7, [1, 3, 9, 12, 13]
    model = model_of(a, b)
    loss = readable_loss(model, around, middle, negatives)
    loss.backward()
    lr = 0.03
    before_a, before_b = a.copy(), b.copy()
    assert compiled_step(a, b, around, middle, negatives, lr) == pytest.approx(loss.item(), rel=1e-6)
    moved = np.concatenate([before_a - a, before_b - b])[:, :D] / lr
    wanted = torch.cat([model.centres.weight.grad, model.contexts.weight.grad]).numpy()
    np.testing.assert_allclose(moved, wanted, atol=2e-5)
    assert np.flatnonzero((before_a != a).any(1)).tolist() == around
    assert np.flatnonzero((before_b != b).any(1)).tolist() == sorted([middle, *negatives])
    assert not a[:, D:].any()
    assert not b[:, D:].any()


def test_a_window_has_autograds_gradient_as_the_rate_goes_to_zero():
    """Rows move from pair to pair; what that changes is of the order of the rate."""
    around, middle, negatives = (
        [7, 8, 5, 7, 2],
        5,
        [1, 3, 7, 9, 12, 9],
    )  # words of one another, and drawn twice
    errors = []
    for lr in (1e-2, 1e-3):
        a, b = tables(7)
        model = model_of(a, b)
        loss = readable_loss(model, around, middle, negatives)
        loss.backward()
        before_a, before_b = a.copy(), b.copy()
        judged = compiled_step(a, b, around, middle, negatives, lr)
        wanted = torch.cat([model.centres.weight.grad, model.contexts.weight.grad]).numpy()
        found = np.concatenate([before_a - a, before_b - b])[:, :D] / lr
        errors.append(np.abs(found - wanted).max() / np.abs(wanted).max())
        assert judged == pytest.approx(loss.item(), rel=2.0 * lr)
    assert errors[0] < 0.05
    assert errors[1] < 0.005


def test_a_window_moves_the_same_whether_its_loss_is_wanted_or_not():
    looked, not_looked = tables(5), tables(5)
    words = ([7, 11, 2], 5, [1, 3, 9])
    assert compiled_step(*looked, *words, 0.03, judge=True) > 0.0
    assert compiled_step(*not_looked, *words, 0.03, judge=False) == 0.0
    assert np.array_equal(looked, not_looked)


def one_sentence(words, window: int, negative: int, noise, lr=0.02):
    """Both tables after one sentence through the compiled loops, and what they return."""
    a, b = tables()
    sampler = make_sampler(np.ones(V), np.asarray(noise, float))
    ids, starts = np.array(words, np.int32), np.array([0, len(words)])
    found = kernel(WIDTH).sentences(
        a, b, ids, starts, 0, 1, *sampler, window, negative, lr, 0.0, random_state(3)
    )
    return a, b, found


def test_each_word_of_a_window_tells_its_middle_word_from_the_negatives():
    """A window of 1 has no chance in it, and neither have draws of one word."""
    only = np.eye(V)[9]  # every negative is word 9
    words = [7, 11, 2]
    a, b, (pairs, loss, judged) = one_sentence(words, 1, 4, only)
    assert (pairs, judged) == (4, 1)  # the first window of LOSS_EVERY is looked at
    assert LOSS_EVERY > 3
    plain_a, plain_b = tables()
    losses = [
        compiled_step(plain_a, plain_b, around, middle, [9] * 4, 0.02)
        for around, middle in (([11], 7), ([7, 2], 11), ([11], 2))
    ]
    assert np.array_equal(a, plain_a)
    assert np.array_equal(b, plain_b)
    assert loss == pytest.approx(losses[0], rel=1e-6)


def test_a_draw_of_the_middle_word_does_not_count():
    words = [7, 11]
    a, b, _ = one_sentence(words, 1, 4, np.eye(V)[11])
    plain_a, plain_b = tables()
    compiled_step(plain_a, plain_b, [11], 7, [11] * 4, 0.02)  # the neighbour may be drawn
    compiled_step(plain_a, plain_b, [7], 11, [], 0.02)
    assert np.array_equal(a, plain_a)
    assert np.array_equal(b, plain_b)


def test_rows_lie_on_cache_lines_and_have_no_remainder():
    table = empty_table(V, D)
    assert table.shape == (V, 16)
    assert table.ctypes.data % 64 == 0
    assert (padded_width(1), padded_width(16), padded_width(100)) == (16, 16, 112)


def test_the_alias_table_draws_unigram_to_the_three_quarters():
    counts = np.array([1000, 300, 40, 7, 1])
    noise = noise_distribution(counts)
    np.testing.assert_allclose(noise, counts**0.75 / (counts**0.75).sum())
    sampler = make_sampler(np.ones(5), noise)
    full = 2.0**32 - 1
    drawn = np.bincount(sampler.alias, 1 - sampler.probability / full, 5) + sampler.probability / full
    np.testing.assert_allclose(drawn / 5, noise, atol=1e-6)


def test_frequent_words_are_thinned_and_rare_ones_kept():
    keep = keep_probability(np.array([900_000, 99_000, 1_000, 1]), 1e-3)
    assert keep[0] < keep[1] < keep[2] == keep[3] == 1.0
    assert (keep_probability(np.array([5, 5]), 0.0) == 1.0).all()


def test_generators_differ_by_place():
    states = {
        int(random_state(seed, round_, thread))
        for seed in range(5)
        for round_ in range(5)
        for thread in range(5)
    }
    assert len(states) == 125


# --- what the readable form draws -----------------------------------------------------------------


def sentences() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    lengths = np.array([2, 7, 3])
    ends = np.cumsum(lengths)
    return np.arange(12) + 100, np.repeat(ends - lengths, lengths), np.repeat(ends, lengths)


def test_positives_are_distinct_words_around_the_centre_in_its_own_sentence():
    ids, first, last = sentences()
    places = np.repeat(np.arange(12), 200)
    drawn = draw_positives(ids, first, last, places, 3, 2, np.random.default_rng(0))
    for place, row in zip(places, drawn, strict=True):
        real = row[row != NONE] - 100
        assert len(set(real)) == len(real) > 0
        assert all(first[place] <= p < last[place] and 0 < abs(p - place) <= 3 for p in real)
    assert (drawn[places == 0] != NONE).sum(1).max() == 1  # two words: only one context
    middle = drawn[places == 5]
    near = np.isin(middle - 100, (4, 6)).sum()
    assert near > 1.5 * np.isin(middle - 100, (2, 8)).sum() > 0  # the dynamic window prefers the near


def test_a_negative_that_is_a_positive_does_not_count():
    positives = np.array([[0, 1], [2, NONE]])
    drawn = draw_negatives(np.cumsum([0.4, 0.3, 0.2, 0.1]), positives, 500, np.random.default_rng(1))
    assert not np.isin(drawn[0], (0, 1)).any()
    assert (drawn[0] == NONE).mean() == pytest.approx(0.7, abs=0.07)
    assert set(drawn[1]) == {0, 1, 3, NONE}


def test_the_loss_without_negatives_only_grows_vectors():
    torch.manual_seed(0)
    model = SkipGram(5, 3)
    assert float(model.centres.weight.detach().abs().max()) <= 0.5 / 3
    assert not model.contexts.weight.any()
    batch = SkipGramBatch(torch.tensor([1]), torch.tensor([[2, NONE]]), torch.tensor([[NONE, NONE]]))
    assert float(model(batch).detach()) == pytest.approx(np.log(2), abs=1e-6)
