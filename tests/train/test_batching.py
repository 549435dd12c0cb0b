"""Which examples go into which batch: every one once, within the limits, the same each time."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.data.batching import (
    BatchSettings,
    accumulation_groups,
    beam_token_budget,
    evaluation_batches,
    pack_texts,
    split_batches,
    training_batches,
)
from glassformer.data.text import TokenTable
from glassformer.errors import ConfigError
from glassformer.nn import padding_share
from glassformer.packing import Packing

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=150).map(np.array)
SETTINGS = st.tuples(st.integers(0, 13), st.integers(0, 200), st.sampled_from([0, 1, 3, 50])).filter(
    lambda t: t[0] or t[1]
)
few_examples = settings(max_examples=60, deadline=None, derandomize=True)


def check_batches(batches, lengths, batch_size, batch_tokens):
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for index in batches:
        assert len(index) >= 1
        if batch_size:
            assert len(index) <= batch_size
        if batch_tokens and len(index) > 1:
            assert lengths[index].sum() <= batch_tokens


@given(LENGTHS, SETTINGS, st.integers(0, 5), st.integers(0, 3))
@few_examples
def test_every_example_once_within_the_limits(lengths, limits, seed, epoch):
    batches = training_batches(lengths, BatchSettings(*limits), seed, epoch)
    check_batches(batches, lengths, *limits[:2])
    again = training_batches(lengths, BatchSettings(*limits), seed, epoch)
    assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))


@given(LENGTHS, st.integers(0, 200))
@few_examples
def test_evaluation_takes_like_lengths_together_and_most_tokens_first(lengths, budget):
    batches = evaluation_batches(lengths, budget or 8192)
    check_batches(batches, lengths, 0, budget or 8192)
    assert (np.diff([lengths[index].sum() for index in batches]) <= 0).all()
    spans = sorted((lengths[index].min(), lengths[index].max()) for index in batches)
    assert all(shorter[1] <= longer[0] for shorter, longer in pairwise(spans))


@given(LENGTHS, SETTINGS)
@few_examples
def test_no_batch_ends_before_a_limit(lengths, limits):
    """A batch that had room for the next example would waste it."""
    batch_size, batch_tokens, _ = limits
    batches = split_batches(np.arange(len(lengths)), lengths, BatchSettings(batch_size, batch_tokens))
    assert np.concatenate(batches).tolist() == list(range(len(lengths)))
    for index, following in pairwise(batches):
        full = batch_size and len(index) == batch_size
        over = batch_tokens and lengths[index].sum() + lengths[following[0]] > batch_tokens
        assert full or over


def test_seed_and_epoch_decide_the_order():
    lengths = np.random.default_rng(1).integers(1, 60, 211)
    orders = {
        key: np.concatenate(training_batches(lengths, BatchSettings(7), *key)).tolist()
        for key in [(0, 0), (0, 1), (1, 0), (1, 1)]
    }
    assert len({tuple(order) for order in orders.values()}) == 4
    assert all(order != sorted(order) for order in orders.values())


def test_windows_sort_by_length_and_stay_random():
    rng = np.random.default_rng(2)
    lengths = rng.integers(5, 500, 3001)
    sorted_, loose = (training_batches(lengths, BatchSettings(16, 0, window), 0, 0) for window in (50, 0))

    def spread(batches):
        return float(np.mean([np.ptp(lengths[index]) for index in batches]))

    assert spread(sorted_) < spread(loose) / 10
    means = np.array([lengths[index].mean() for index in sorted_])
    assert abs(np.corrcoef(np.arange(len(means)), means)[0, 1]) < 0.2  # short and long batches are mixed
    # Only the examples of one window are sorted: a batch's examples lie close together in the shuffle.
    epochs = [training_batches(lengths, BatchSettings(16, 0, 50), 0, epoch) for epoch in (0, 1)]
    partners = [
        {i: frozenset(index.tolist()) for index in batches for i in index.tolist()} for batches in epochs
    ]
    assert np.mean([len(partners[0][i] & partners[1][i]) for i in range(3001)]) < 4  # itself and few more


@pytest.mark.parametrize("limits", [(32, 0, 50), (0, 8192, 50), (32, 8192, 50)])
def test_little_padding_is_left_for_attention(limits):
    """Lengths as those of reviews cut at 256 tokens: log-normal, a quarter of them at the limit."""
    lengths = np.minimum(np.random.default_rng(3).lognormal(5.0, 0.6, 4001).astype(int) + 8, 256)
    real = padded = 0.0
    for index in training_batches(lengths, BatchSettings(*limits), 0, 0):
        packing = Packing(tuple(lengths[index].tolist()))
        real += packing.total
        padded += packing.total / (1 - padding_share(packing))
    assert 1 - real / padded <= 0.03


def test_a_text_longer_than_the_budget_stands_alone_and_steps_have_several_batches():
    batches = split_batches(np.arange(6), np.array([3, 90, 4, 5, 70, 70]), BatchSettings(0, 50))
    assert [b.tolist() for b in batches] == [[0], [1], [2, 3], [4], [5]]
    assert [len(step) for step in accumulation_groups(batches, 2)] == [2, 2, 1]
    assert [batch for step in accumulation_groups(batches, 2) for batch in step] == batches
    for limits in ((0, 0), (-1, 8), (8, -1)):
        with pytest.raises(ConfigError, match="cannot both be 0, nor negative"):
            BatchSettings(*limits)


@pytest.mark.parametrize("with_segments", [False, True])
def test_packing_texts(with_segments):
    starts = np.array([0, 3, 4, 9])
    ids = np.arange(10, 19, dtype=np.int32)
    segments = (np.arange(9) % 2).astype(np.int8) if with_segments else None
    table = TokenTable(ids, starts, segments, np.zeros(3, bool))
    batch = pack_texts(table, np.array([2, 0]))
    assert batch.ids.tolist() == [14, 15, 16, 17, 18, 10, 11, 12]
    assert batch.ids.dtype == torch.int64
    assert batch.packing == Packing((5, 3))
    assert batch.index.tolist() == [2, 0]
    found = None if batch.segments is None else batch.segments.tolist()
    assert found == ([0, 1, 0, 1, 0, 0, 1, 0] if with_segments else None)


def test_a_gpu_takes_more_tokens_at_a_time_and_fewer_the_wider_a_beam_is():
    lengths = np.full(1000, 100)
    sizes = [len(evaluation_batches(lengths, tokens, "cuda")[0]) for tokens in (512, 8192, 50_000)]
    assert sizes == [327, 327, 500]
    assert len(evaluation_batches(lengths, 512)[0]) == 5
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert [beam_token_budget(beam, gpu) for beam in (1, 5, 16, 256, 0)] == [32768, 6553, 2048, 128, 2048]
    assert [beam_token_budget(beam, cpu) for beam in (1, 5, 16, 32, 256)] == [2048, 2048, 2048, 1024, 128]
