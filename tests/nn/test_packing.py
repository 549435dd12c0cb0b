"""Where each sequence lies: against plain loops."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import ShapeError
from glassformer.packing import Packing, pack

LENGTHS = st.lists(st.integers(1, 13), min_size=1, max_size=9)
few_examples = settings(max_examples=50, deadline=None, derandomize=True)


@given(LENGTHS)
@few_examples
def test_places(lengths):
    packing = Packing(tuple(lengths))
    ids = [b for b, n in enumerate(lengths) for _ in range(n)]
    places = [t for n in lengths for t in range(n)]
    assert packing.count == len(lengths)
    assert packing.total == sum(lengths)
    assert packing.max_length == max(lengths)
    assert packing.is_uniform == (len(set(lengths)) == 1)
    assert packing.sequence_ids.tolist() == ids
    assert packing.positions.tolist() == places
    assert packing.starts == tuple(i for i, t in enumerate(places) if t == 0)
    assert packing.first_rows.tolist() == list(packing.starts)
    assert packing.cu_seqlens.tolist() == [*packing.starts, sum(lengths)]
    assert packing.cu_seqlens.dtype == torch.int32
    assert packing.length_tensor.tolist() == lengths
    assert packing.one_row_each.lengths == (1,) * len(lengths)


@given(LENGTHS)
@few_examples
def test_pad_split_and_mask(lengths):
    packing = Packing(tuple(lengths))
    rows = torch.arange(packing.total * 2.0).view(-1, 2)
    padded, mask = packing.pad(rows, value=-1.0), packing.mask()
    assert padded.shape == (len(lengths), max(lengths), 2)
    for b, part in enumerate(packing.split(rows)):
        assert len(part) == lengths[b]
        assert torch.equal(padded[b, : lengths[b]], part)
        assert bool((padded[b, lengths[b] :] == -1).all())
        assert mask[b].tolist() == [t < lengths[b] for t in range(max(lengths))]
    again, packing_again = pack(packing.split(rows))
    assert torch.equal(again, rows)
    assert packing_again == packing


@given(LENGTHS, st.booleans(), st.integers(0, 3))
@few_examples
def test_from_mask_on_either_side(lengths, left, extra):
    width = max(lengths) + extra
    mask = torch.zeros(len(lengths), width, dtype=torch.long)
    for b, n in enumerate(lengths):
        mask[b, slice(width - n, width) if left else slice(n)] = 1
    packing, real = Packing.from_mask(mask)
    assert packing == Packing(tuple(lengths))
    wanted = [b * width + t for b in range(len(lengths)) for t in range(width) if mask[b, t]]
    assert real.tolist() == wanted


def test_padding_passes_gradients():
    packing = Packing((3, 5))
    rows = torch.randn(8, 2, requires_grad=True)
    packing.pad(rows).square().sum().backward()
    torch.testing.assert_close(rows.grad, 2 * rows.detach())


def test_a_uniform_batch():
    packing = Packing.uniform(3, 7)
    assert packing == Packing((7, 7, 7))
    assert packing.is_uniform
    assert hash(packing) == hash(Packing((7, 7, 7)))
    assert packing != Packing((7, 7))


@pytest.mark.parametrize("lengths", [(), (0,), (3, 0, 2), (3, -1)])
def test_no_empty_sequences(lengths):
    with pytest.raises(ShapeError, match="at least one token"):
        Packing(lengths)


def test_masks_that_cannot_be():
    with pytest.raises(ShapeError, match=r"\[B, T\], got \(7,\)"):
        Packing.from_mask(torch.ones(7))
    with pytest.raises(ShapeError, match="at least one token"):
        Packing.from_mask(torch.tensor([[1, 1], [0, 0]]))


def test_a_packing_seen_under_inference_serves_training():
    packing = Packing((3, 5))
    rows = torch.randn(8, 2, requires_grad=True)
    with torch.inference_mode():
        packing.pad(rows)
        rows[packing.first_rows]
    rows[packing.first_rows].sum().backward()
    assert rows.grad.sum(1).tolist() == [2, 0, 0, 2, 0, 0, 0, 0]
