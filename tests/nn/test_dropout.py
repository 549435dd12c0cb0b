"""Dropout and stochastic depth: statistics, scale, gradient, and where the bits come from."""

import math

import pytest
import torch

from glassformer.errors import ConfigError
from glassformer.nn import Dropout, dropout, stochastic_depth
from glassformer.nn.dropout import keep_mask, zero_dropped
from glassformer.packing import Packing

N = 200_003  # prime: no multiple of the four lots that one draw gives
CPU = torch.device("cpu")


def near(count, n, p):
    """Within five standard deviations of a binomial."""
    return abs(float(count) - n * p) < 5 * math.sqrt(n * p * (1 - p))


@pytest.mark.parametrize("p", [0.003, 0.1, 0.37, 0.5, 0.9])
def test_share_of_zeros_and_scale(p):
    torch.manual_seed(1)
    out = dropout(torch.full((N,), 2.0), p, True)
    kept = out != 0
    assert near(kept.sum(), N, 1 - p)
    torch.testing.assert_close(out[kept], torch.full((int(kept.sum()),), 2.0 / (1 - p)))


def test_every_lane_has_the_same_share():
    torch.manual_seed(2)
    lanes = keep_mask((N // 4, 4), 0.3, CPU)
    assert all(near(lanes[:, i].sum(), N // 4, 0.7) for i in range(4))


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 5])
def test_neighbours_are_independent(lag):
    torch.manual_seed(3)
    keep = keep_mask((N,), 0.3, CPU)
    both = (keep[lag:] & keep[:-lag]).sum()
    assert near(both, N - lag, 0.49)


@pytest.mark.parametrize("shape", [(1,), (2,), (3,), (5, 7), (3, 1, 11), (0, 5)])
def test_any_shape(shape):
    mask = keep_mask(shape, 0.5, CPU)
    assert mask.shape == shape
    assert mask.dtype == torch.bool


def test_gradient_passes_where_the_value_passed():
    torch.manual_seed(4)
    x = torch.randn(13, 17, dtype=torch.float64, requires_grad=True)
    out = dropout(x, 0.4, True)
    upstream = torch.randn(13, 17, dtype=torch.float64)
    out.backward(upstream)
    kept = out != 0
    assert 0 < int(kept.sum()) < kept.numel()
    torch.testing.assert_close(x.grad, upstream * kept / 0.6)
    torch.testing.assert_close(out.detach(), x.detach() * kept / 0.6)


FORMATS = [torch.bfloat16, torch.float16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_numbers_are_kept_to_the_bit_or_become_zero(dtype):
    torch.manual_seed(9)
    x = torch.randn(13, 7, 11).to(dtype)
    x[0, 0, :5] = torch.tensor([0.0, torch.inf, -torch.inf, torch.nan, torch.finfo(dtype).tiny])
    keep = keep_mask(x.shape, 0.4, CPU)
    bits = torch.int16 if x.element_size() == 2 else torch.int32 if x.element_size() == 4 else torch.int64
    for given, mask in ((x, keep), (x.transpose(0, 2), keep.transpose(0, 2)), (x[:, 3], keep[:, 3])):
        out = zero_dropped(given, mask)
        assert (out.dtype, out.shape) == (dtype, given.shape)
        assert torch.equal(out[mask].view(bits), given[mask].view(bits))  # NaN too
        assert not out[~mask].view(bits).any()
    assert torch.equal(zero_dropped(x[0, 1, 0], keep[0, 1, 0]), x[0, 1, 0] * keep[0, 1, 0])  # a single number


def test_other_devices_multiply():
    meta = torch.device("meta")
    x = torch.empty(7, 5, dtype=torch.bfloat16, device=meta)
    out = zero_dropped(x, keep_mask((7, 5), 0.3, meta))
    assert (out.dtype, out.shape, out.device) == (torch.bfloat16, (7, 5), meta)


def test_gradients_have_gradients():
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)

    def drop(x):  # the same elements every time
        torch.manual_seed(10)
        return dropout(x, 0.4, True).square()

    assert torch.autograd.gradcheck(drop, (x,))
    assert torch.autograd.gradgradcheck(drop, (x,))


def test_numbers_without_bits_of_their_own_are_multiplied():
    torch.manual_seed(11)
    complex_ = torch.randn(5, 3, dtype=torch.complex64)
    keep = keep_mask((5, 3), 0.4, CPU)
    for x in (complex_, complex_.conj(), complex_.conj().imag, torch.randn(5, 3).to_sparse()):
        out = zero_dropped(x, keep)
        assert torch.equal(out.to_dense() if out.is_sparse else out, x.to_dense() * keep)


def test_gradients_of_several_outputs_at_once():
    x = torch.randn(7, 3, requires_grad=True)
    torch.manual_seed(12)
    out = dropout(x, 0.4, True)
    directions = torch.randn(4, 7, 3)
    (found,) = torch.autograd.grad(out, x, directions, is_grads_batched=True, retain_graph=True)
    for direction, one in zip(directions, found, strict=True):
        assert torch.equal(one, torch.autograd.grad(out, x, direction, retain_graph=True)[0])


def test_bits_come_from_torch_and_differ_from_call_to_call():
    x = torch.ones(101)
    state = torch.get_rng_state()
    first, second = dropout(x, 0.5, True), dropout(x, 0.5, True)
    assert not torch.equal(first, second)
    torch.set_rng_state(state)
    assert torch.equal(dropout(x, 0.5, True), first)
    assert torch.equal(dropout(x, 0.5, True), second)


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.5, False)])
def test_nothing_to_drop_costs_nothing(p, training):
    x, state = torch.ones(7), torch.get_rng_state()
    assert dropout(x, p, training) is x
    assert torch.equal(torch.get_rng_state(), state)


def test_bf16_stays_bf16():
    torch.manual_seed(5)
    out = dropout(torch.ones(101, dtype=torch.bfloat16), 0.5, True)
    assert out.dtype == torch.bfloat16
    assert set(out.tolist()) == {0.0, 2.0}


def test_module_follows_its_mode():
    torch.manual_seed(6)
    module, x = Dropout(0.5), torch.ones(101)
    assert 0 < int((module(x) == 0).sum()) < 101
    assert torch.equal(module.eval()(x), x)


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5])
def test_p_outside_its_range(p):
    with pytest.raises(ConfigError, match=r"\[0, 1\)"):
        Dropout(p)


def test_p_next_to_one():
    torch.manual_seed(7)
    assert int((dropout(torch.ones(N), 0.999995, True) != 0).sum()) < 100


# --- stochastic depth -----------------------------------------------------------------------------


def test_whole_sequences_are_dropped_and_the_rest_scaled():
    torch.manual_seed(8)
    lengths = (3, 1, 7, 2, 5) * 200
    packing, p = Packing(lengths), 0.3
    x = torch.randn(packing.total, 3, requires_grad=True)
    out = stochastic_depth(x, packing, p, True)
    kept = 0
    for before, after in zip(packing.split(x.detach()), packing.split(out.detach()), strict=True):
        if after.any():
            kept += 1
            torch.testing.assert_close(after, before / (1 - p))
    assert near(kept, len(lengths), 1 - p)
    out.sum().backward()
    torch.testing.assert_close(x.grad, (out.detach() != 0).float() / (1 - p))


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.5, False)])
def test_no_stochastic_depth(p, training):
    x = torch.ones(5, 3)
    assert stochastic_depth(x, Packing((2, 3)), p, training) is x


def test_nothing_is_dropped_unless_asked():
    assert Dropout().p == 0.0
    x = torch.ones(7, 5)
    assert torch.equal(Dropout().train()(x), x)
    assert repr(Dropout(0.25)) == "Dropout(p=0.25)"


def test_masks_are_made_on_the_device_of_the_rows():
    mask = keep_mask(
        torch.Size((7, 5)), 0.3, torch.device("meta")
    )  # as on any other device than the processor
    assert (mask.shape, mask.dtype, mask.device.type) == ((7, 5), torch.bool, "meta")


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_one_graph_of_torch_compile_holds_it(backend):
    torch._dynamo.reset()
    torch.manual_seed(8)
    packing, p = Packing((1, 3, 17) * 7), 0.37
    assert (
        len(packing.sequence_ids) == packing.total
    )  # known before: a graph cannot hold the lock of what is kept

    def both(x, branch):
        return dropout(x, p, True), stochastic_depth(branch, packing, p, True)

    x = torch.full((N,), 2.0, requires_grad=True)
    branch = torch.full((packing.total, 3), 2.0)
    out, added = torch.compile(both, backend=backend, fullgraph=True)(x, branch)
    out.sum().backward()
    for found in (out, added):
        assert found.unique().tolist() == pytest.approx([0.0, 2.0 / (1 - p)])
    assert near((out != 0).sum(), N, 1 - p)
    torch.testing.assert_close(x.grad, (out != 0) / (1 - p))
    for rows in added.split(list(packing.lengths)):
        assert (rows == rows[:1]).all()
