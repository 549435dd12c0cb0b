"""The readable skip-gram, and the compiled loops held to the same loss and gradient."""

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
from glassformer.nn import kernels
from glassformer.nn.kernels import skip_gram
from glassformer.train.negative_sampling import (
    LOSS_EVERY,
    empty_table,
    kernel,
    loops,
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


# --- the package's kernel ---------------------------------------------------------------------


@pytest.mark.skipif(kernels.why_not() is not None, reason="no kernels here")
@pytest.mark.parametrize(("dim", "window", "negative"), [(13, 1, 0), (13, 5, 5), (23, 3, 17), (101, 2, 31)])
def test_the_package_s_kernel_is_the_loops_above(dim, window, negative):
    """The same pairs and draws, sums in another order; more negatives than a register has numbers, too."""
    rng = np.random.default_rng(7)
    lengths = np.array([0, 1, 2, 53, 19, 101])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.integers(0, V, starts[-1]).astype(np.int32)
    counts = np.bincount(ids, minlength=V) + 1
    sampler = make_sampler(keep_probability(counts, 0.05), noise_distribution(counts, 0.75))
    results = []
    for train in (kernel(padded_width(dim)).sentences, skip_gram.train_sentences):
        a, b = empty_table(V, dim), empty_table(V, dim)
        for table in (a, b):
            table[:, :dim] = np.random.default_rng(3).normal(0, 0.3, (V, dim))
        told = train(a, b, ids, starts, 1, 6, *sampler, window, negative, 0.02, 1e-5, random_state(3, 5))
        results.append((told, a, b))
    ((pairs, loss, judged), *tables), (theirs, *moved) = results
    assert theirs[0] == pairs > 0
    assert theirs[2] == judged > 0
    assert theirs[1] == pytest.approx(loss, rel=1e-5)
    for table, other in zip(tables, moved):
        np.testing.assert_allclose(other, table, rtol=0, atol=3e-6)
        assert not other[:, dim:].any()


@pytest.mark.skipif(kernels.why_not() is not None, reason="no kernels here")
def test_the_kernel_repeats_itself_and_tells_of_infinities():
    a, b = tables()
    ids, starts = np.arange(V, dtype=np.int32), np.array([0, V])
    sampler = make_sampler(np.ones(V), np.full(V, 1 / V))
    given = (ids, starts, 0, 1, *sampler, 5, 5, 0.05, 0.0, random_state(1))
    first, second = (a.copy(), b.copy()), (a.copy(), b.copy())
    assert skip_gram.train_sentences(*first, *given) == skip_gram.train_sentences(*second, *given)
    assert np.array_equal(first, second)
    assert not np.array_equal(first[0], a)
    broken = a.copy()
    broken[:, 0] = np.nan
    assert np.isnan(skip_gram.train_sentences(broken, b, *given)[1])


@pytest.mark.skipif(kernels.why_not() is not None, reason="no kernels here")
def test_loops_are_the_kernel_s_unless_it_is_switched_off(monkeypatch):
    assert loops(WIDTH) is skip_gram.train_sentences
    monkeypatch.setattr(kernels, "why_not", lambda: "switched off")
    assert loops(WIDTH) is kernel(WIDTH).sentences
