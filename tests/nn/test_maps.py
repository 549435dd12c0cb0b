"""Maps computed by groups, or for the first rows alone, are the textbook's."""

import pytest
import torch

from glassformer.nn import attend
from glassformer.nn.attention import choose_branch
from glassformer.nn.maps import attention_weights, first_row_weights
from glassformer.packing import Packing


def test_weights_that_are_to_be_differentiated_come_from_the_textbook():
    q = torch.zeros(8, 1, 2, requires_grad=True)
    packing = Packing((5, 3))
    assert choose_branch(q, q, q, packing, packing, False, 0.0, True) == "explicit"
    with torch.no_grad():
        assert choose_branch(q, q, q, packing, packing, False, 0.0, True) == "grouped"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("lengths", "kv_lengths"),
    [
        ((5, 3), (5, 3)),
        ((7, 7), (7, 7)),
        ((53, 50, 2, 51, 1), (53, 50, 2, 51, 1)),
        ((2, 5), (7, 3)),
        ((1, 1), (5, 3)),
    ],
)
def test_maps_by_groups_are_the_textbooks(lengths, kv_lengths, causal):
    """Lengths that share a group, that do not, cross-attention, and one row each."""
    q_packing, kv_packing = Packing(lengths), Packing(kv_lengths)
    generator = torch.Generator().manual_seed(5)
    q = torch.randn(q_packing.total, 3, 7, generator=generator)
    k, v = torch.randn(2, kv_packing.total, 3, 7, generator=generator).unbind(0)
    out, maps = attend(q, k, v, q_packing, kv_packing, causal, return_weights=True)
    wanted, textbook = attend(q, k, v, q_packing, kv_packing, causal, return_weights=True, branch="explicit")
    torch.testing.assert_close(out, wanted)
    for ours, theirs in zip(maps, textbook, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("lengths", [(5, 2, 7), (3, 3), (1,), (53, 1, 50, 2)])
def test_first_rows_are_the_first_rows_of_the_maps(lengths):
    packing = Packing(lengths)
    q, k = torch.randn(2, packing.total, 3, 7, generator=torch.Generator().manual_seed(5)).unbind(0)
    maps = attention_weights(q, k, packing, packing)
    for first, full in zip(first_row_weights(q[packing.first_rows], k, packing), maps, strict=True):
        torch.testing.assert_close(first, full[:, :1])


def test_first_rows_in_bf16_stay_near_fp32():
    packing = Packing((31, 29))
    q, k = torch.randn(2, packing.total, 3, 17, generator=torch.Generator().manual_seed(6)).unbind(0)
    first = q[packing.first_rows]
    exact = first_row_weights(first, k, packing)
    for half, wanted in zip(first_row_weights(first.bfloat16(), k.bfloat16(), packing), exact, strict=True):
        assert half.dtype == torch.bfloat16
        torch.testing.assert_close(half.float(), wanted, rtol=0.05, atol=0.01)


def test_maps_can_be_differentiated_where_a_gradient_is_wanted():
    packing = Packing((5, 3))
    q, k = torch.randn(2, 8, 2, 3, generator=torch.Generator().manual_seed(7)).unbind(0)
    q.requires_grad_()
    for maps in (
        attention_weights(q, k, packing, packing),
        first_row_weights(q[packing.first_rows], k, packing),
    ):
        (gradient,) = torch.autograd.grad(sum((w**2).sum() for w in maps), q)
        assert gradient[packing.first_rows].abs().min() > 0
