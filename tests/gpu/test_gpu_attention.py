"""Attention on a GPU against the textbook on a processor in double precision: values, gradients, dropout."""

import pytest
import torch

from glassformer.nn import attend
from glassformer.nn.attention import choose_branch
from glassformer.packing import Packing

SELF, KEYS = (5, 2, 11, 1, 67), (3, 13, 7, 1, 129)
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def drawn(q_packing, kv_packing, width):
    generator = torch.Generator().manual_seed(q_packing.total + width)
    sizes = (q_packing.total, kv_packing.total, kv_packing.total, q_packing.total)
    return [torch.randn(n, 3, width, dtype=torch.float64, generator=generator) for n in sizes]


def with_gradients(rows, upstream, *packings, **options):
    rows = [x.detach().clone().requires_grad_() for x in rows]
    out = attend(*rows, *packings, **options)
    return out.detach(), *torch.autograd.grad(out, rows, upstream)


def compare(gpu, dtype, width, q_lengths, kv_lengths, branch="auto", **options):
    """Values and gradients; gives the branch that is chosen there."""
    q_packing = Packing(q_lengths)
    kv_packing = q_packing if q_lengths == kv_lengths else Packing(kv_lengths)
    *rows, upstream = drawn(q_packing, kv_packing, width)
    rows, upstream = [x.to(dtype).double() for x in rows], upstream.to(dtype).double()
    wanted = with_gradients(rows, upstream, q_packing, kv_packing, branch="explicit", **options)
    there = Packing(q_lengths, gpu)
    places = (there, there if kv_packing is q_packing else Packing(kv_lengths, gpu))
    sent = [x.to(gpu, dtype) for x in rows]
    found = with_gradients(sent, upstream.to(gpu, dtype), *places, branch=branch, **options)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == dtype
        assert (ours.cpu().double() - theirs).norm() <= TOLERANCE[dtype] * theirs.norm()
    return choose_branch(*sent, *places, options.get("causal", False), 0.0, False)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [7, 32, 64])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_self_attention_is_the_textbooks(gpu, dtype, width, causal):
    branch = compare(gpu, dtype, width, SELF, SELF, causal=causal)
    assert branch == ("varlen" if dtype != torch.float32 and width % 8 == 0 else "padded")


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_cross_attention_is_the_textbooks(gpu, dtype, scale):
    compare(gpu, dtype, 32, SELF, KEYS, scale=scale)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_last_of_more_keys(gpu, dtype):
    """As in generation: a causal mask over the newest rows, with all the keys before them."""
    assert compare(gpu, dtype, 32, (2, 3, 7, 1, 61), KEYS, causal=True) == "padded"


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_one_query_for_each_sequence(gpu, dtype):
    compare(gpu, dtype, 32, (1,) * 5, KEYS)


@pytest.mark.parametrize("branch", ["explicit", "grouped", "fused", "padded"])
def test_every_branch_that_can_be_named(gpu, branch):
    compare(gpu, torch.float32, 7, SELF, KEYS, branch=branch)
    compare(gpu, torch.float32, 7, SELF, SELF, branch=branch, causal=True)


@pytest.mark.parametrize("branch", ["padded", "fused"])
def test_a_row_that_may_attend_nowhere_gives_zeros(gpu, branch):
    q_packing, kv_packing = Packing((5, 3), gpu), Packing((2, 7), gpu)
    *rows, upstream = (x.to(gpu, torch.float32) for x in drawn(q_packing, kv_packing, 8))
    out, *found = with_gradients(rows, upstream, q_packing, kv_packing, causal=True, branch=branch)
    assert torch.equal(out[:3], torch.zeros_like(out[:3]))
    assert all(bool(gradient.isfinite().all()) for gradient in found)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_drops_the_same_weights_backwards(gpu, dtype, causal):
    """With one draw the output is linear in the values, so ``<out, g> = <v, dv>``, and its mean is the plain one."""
    packing = Packing((61, 127, 3), gpu)
    *rows, upstream = (x.to(gpu, dtype) for x in drawn(packing, packing, 32))
    outs = []
    for seed in range(200):
        torch.manual_seed(seed)
        out, _, _, dv = with_gradients(rows, upstream, packing, causal=causal, dropout=0.25)
        outs.append(out.double())
        ours, theirs = (out.double() * upstream).sum(), (dv.double() * rows[2]).sum()
        assert abs(ours - theirs) <= 1e-2 * (out.double() * upstream).norm() * len(out) ** 0.5
    plain = attend(*rows, packing, causal=causal).double()
    mean = torch.stack(outs).mean(0)
    assert (mean - plain).norm() < 0.1 * plain.norm()
    assert (outs[0] - plain).norm() > 0.1 * plain.norm()  # one draw is not the mean
    torch.manual_seed(7)
    first = attend(*rows, packing, causal=causal, dropout=0.25)
    torch.manual_seed(7)
    assert torch.equal(first, attend(*rows, packing, causal=causal, dropout=0.25))


def test_maps_on_a_gpu_are_those_of_a_processor(gpu):
    packing, there = Packing(SELF), Packing(SELF, gpu)
    *rows, _ = drawn(packing, packing, 8)
    _, wanted = attend(*rows, packing, return_weights=True)
    _, found = attend(*(x.to(gpu, torch.float32) for x in rows), there, return_weights=True)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours.cpu().double(), theirs, rtol=1e-4, atol=1e-5)
