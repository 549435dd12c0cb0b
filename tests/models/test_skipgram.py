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
    BLOCK,
    SHARED,
    empty_table,
    kernel,
    make_sampler,
    padded_width,
    random_state,
)

V, D = 37, 13
WIDTH = padded_width(D)
NEGATIVE = 5


def tables(seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(2):
        table = empty_table(V, D)
        table[:, :D] = rng.normal(0, 0.5, (V, D))
        made.append(table)
    return made[0], made[1]


def compiled_step(centre_table, context_table, centres, around, negatives, lr: float) -> float:
    """One block through the compiled loops, in place; returns its loss."""
    bounds = np.zeros(BLOCK + 1, np.int32)
    bounds[1 : len(around) + 1] = np.cumsum([len(a) for a in around])
    bounds[len(around) + 1 :] = bounds[len(around)]
    grad, noise = np.empty(WIDTH, np.float32), np.empty((SHARED, WIDTH), np.float32)
    return kernel(WIDTH).block(
        centre_table,
        context_table,
        np.asarray(centres, np.int32),
        len(centres),
        np.concatenate(around).astype(np.int32),
        bounds,
        np.asarray(negatives, np.int32),
        np.float32(NEGATIVE / SHARED),
        np.float32(lr),
        grad,
        noise,
        True,
    )


def readable_loss(model: SkipGram, centres, around, negatives) -> torch.Tensor:
    """The same pairs through the page's model: every pair has all shared negatives but its own context."""
    rows_c, rows_p, rows_n = [], [], []
    for c, words in zip(centres, around, strict=True):
        for w in words:
            rows_c.append(c)
            rows_p.append([w])
            rows_n.append([NONE if n == w else n for n in negatives])
    batch = SkipGramBatch(*(torch.tensor(x) for x in (rows_c, rows_p, rows_n)))
    return model(batch, weight=NEGATIVE / SHARED).sum()


def model_of(centre_table, context_table) -> SkipGram:
    model = SkipGram(V, D)
    with torch.no_grad():
        model.centres.weight.copy_(torch.from_numpy(centre_table[:, :D].copy()))
        model.contexts.weight.copy_(torch.from_numpy(context_table[:, :D].copy()))
    return model


def test_one_centre_has_autograds_gradient_exactly():
    a, b = tables()
    centres, around = [5], [np.array([7, 11, 2, 30, 19])]
    negatives = [1, 3, 7, 9, 12, 13, 14, 15, 16, 17, 18, 20, 11, 22, 23, 24]  # 7 and 11 are contexts too
    model = model_of(a, b)
    loss = readable_loss(model, centres, around, negatives)
    loss.backward()
    lr = 0.03
    # A context that is also drawn is moved before it serves as a negative; keep those out of the exact comparison.
    exact = [n for n in negatives if n not in (7, 11)] + [2, 30, 19]
    before_a, before_b = a.copy(), b.copy()
    assert compiled_step(a, b, centres, around, negatives, lr) == pytest.approx(loss.item(), rel=lr)
    moved = (before_b - b)[:, :D] / lr
    np.testing.assert_allclose(moved[exact], model.contexts.weight.grad.numpy()[exact], atol=2e-5)
    others = np.setdiff1d(np.arange(V), [*negatives, *around[0]])
    assert not (before_b - b)[others].any()
    assert not np.delete(before_a - a, 5, axis=0).any()
    assert not a[:, D:].any()
    assert not b[:, D:].any()


def test_a_block_has_autograds_gradient_as_the_rate_goes_to_zero():
    """Inside a block rows move one after another; what that changes is of the order of the rate."""
    centres = [5, 8, 5, 2]
    around = [np.array(x) for x in ([7, 8], [5, 2, 7], [2], [8, 5, 33, 8])]
    negatives = [1, 3, 7, 9, 12, 13, 14, 15, 16, 17, 18, 20, 2, 22, 9, 24]
    errors = []
    for lr in (1e-2, 1e-3):
        a, b = tables(7)
        model = model_of(a, b)
        loss = readable_loss(model, centres, around, negatives)
        loss.backward()
        before_a, before_b = a.copy(), b.copy()
        judged = compiled_step(a, b, centres, around, negatives, lr)
        wanted = torch.cat([model.centres.weight.grad, model.contexts.weight.grad]).numpy()
        found = np.concatenate([before_a - a, before_b - b])[:, :D] / lr
        errors.append(np.abs(found - wanted).max() / np.abs(wanted).max())
        assert judged == pytest.approx(loss.item(), rel=0.5 * lr)
    assert errors[0] < 0.02
    assert errors[1] < 0.003


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
