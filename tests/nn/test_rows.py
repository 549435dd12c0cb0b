"""GELU and layer norm of the encoder: torch's own in all they compute, with passes of ours for bf16 on a processor."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from glassformer.nn import kernels
from glassformer.nn.feedforward import gelu
from glassformer.nn.kernels import gelu_norm
from glassformer.nn.linear import LayerNorm

here = pytest.mark.skipif(not kernels.has_dtype(torch.bfloat16), reason="no kernels in bf16")
WIDTHS = [(1031, 16), (129, 384), (257, 80), (23, 1552)]  # rows and their width: shares that are full and not


def drawn(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def rounded(exact: torch.Tensor, beside: float = 1e-5) -> torch.Tensor:
    """What one number may be off: bf16 keeps 8 bits of it, and fp32 loses little beside the largest."""
    return 2**-8 * exact.abs() + beside * exact.abs().max()


def on_threads(compute):
    """The results of ``compute`` with 1, 2, 3 and 5 threads."""
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            found.append(compute())
    finally:
        torch.set_num_threads(before)
    return found


@here
def test_gelu_and_its_gradient_are_the_exact_ones_but_for_their_last_rounding():
    x = torch.linspace(-12, 12, 20_000).bfloat16().requires_grad_()
    upstream = drawn(20_000)
    assert gelu_norm.can_gelu(x)
    y = gelu(x)
    (gradient,) = torch.autograd.grad(y, x, upstream)
    exact = x.detach().double().requires_grad_()
    below = torch.special.erfc(-exact / 2**0.5) / 2  # without the cancellation of 1 + erf far below 0
    want = exact * below
    assert ((y.double() - want).abs() <= 2**-8 * want.abs() + 1e-38).all()
    slope = (
        below + exact * torch.exp(-exact * exact / 2) / (2 * torch.pi) ** 0.5
    ).detach() * upstream.double()
    near = upstream.double().abs() * 2e-6  # where the two summands cancel
    assert ((gradient.double() - slope).abs() <= 2**-8 * slope.abs() + near).all()


@here
def test_gelu_of_numbers_that_are_none():
    x = (
        torch.tensor([float("inf"), float("nan"), 0.0, -0.0, 1e-30, -1e-30, 30.0, -30.0])
        .bfloat16()
        .repeat(2048)
    )
    for ours, torchs in (
        (gelu_norm.gelu(x), F.gelu(x)),
        (gelu_norm.gelu_of(x, torch.ones_like(x)), torch.ops.aten.gelu_backward(torch.ones_like(x), x)),
    ):
        torch.testing.assert_close(ours, torchs, equal_nan=True, rtol=2**-8, atol=0)


@here
@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize(("count", "width"), WIDTHS)
def test_the_norm_and_its_gradients_are_the_exact_ones_but_for_rounding(count, width, summed):
    x, plus, upstream = (3.0 * drawn(count, width, seed=s) + 0.5 for s in (3, 5, 7))
    weight, bias = drawn(width, seed=11).requires_grad_(), drawn(width, seed=13).requires_grad_()
    x, plus = x.requires_grad_(), plus.requires_grad_() if summed else None
    assert gelu_norm.can_norm(x, plus, weight, bias)
    y = gelu_norm.layer_norm(x, plus, weight, bias, 1e-5)
    asked = [x, weight, bias, *([plus] if summed else [])]
    found = torch.autograd.grad(y, asked, upstream)
    total = (x + plus if summed else x).detach().double().requires_grad_()  # the sum is rounded, as torch's
    exact = [p.detach().double().requires_grad_() for p in (weight, bias)]
    want = F.layer_norm(total, (width,), *exact, 1e-5)
    assert ((y.double() - want).abs() <= rounded(want)).all()
    wanted = torch.autograd.grad(want, [total, *exact], upstream.double())
    for ours, theirs in zip(found, [*wanted, wanted[0]], strict=False):
        assert ((ours.double() - theirs).abs() <= rounded(theirs, 1e-4)).all()
    if summed:
        assert torch.equal(found[0], found[3])


@here
def test_bits_do_not_depend_on_the_threads():
    x, plus, upstream = (drawn(1031, 80, seed=s) for s in (3, 5, 7))
    weight, bias = drawn(80, seed=11).requires_grad_(), drawn(80, seed=13).requires_grad_()

    def norm():
        return torch.autograd.grad(
            gelu_norm.layer_norm(x, plus, weight, bias, 1e-5), (weight, bias), upstream
        )

    for one in (norm, lambda: (gelu_norm.gelu(x), gelu_norm.gelu_of(x, upstream))):
        first, *others = on_threads(one)
        assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))


@here
def test_rows_that_do_not_lie_together():
    wide, weight = drawn(300, 128), drawn(64, seed=5)
    part, turned = wide[:, 32:96], drawn(64, 300, seed=7).T
    for x in (part, turned):
        assert torch.equal(gelu_norm.gelu(x), gelu_norm.gelu(x.contiguous()))
        ours = gelu_norm.layer_norm(x, part, weight, weight, 1e-5)
        assert torch.equal(
            ours, gelu_norm.layer_norm(x.contiguous(), part.contiguous(), weight, weight, 1e-5)
        )
        one = torch.autograd.grad(
            gelu_norm.gelu(y := x.clone().requires_grad_()), y, torch.ones(1, 1).bfloat16().expand(300, 64)
        )
        assert torch.equal(one[0], gelu_norm.gelu_of(x.contiguous(), torch.ones(300, 64).bfloat16()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(3, 7), (1200, 13), (0, 16), (5, 7, 16)])
def test_everything_else_is_torchs(shape, dtype):
    """Few numbers, an odd width, no rows, padded rows, other formats."""
    x, plus = (torch.randn(shape, generator=torch.Generator().manual_seed(s)).to(dtype) for s in (3, 5))
    norm, peer = LayerNorm(shape[-1], eps=1e-5).to(dtype), nn.LayerNorm(shape[-1], eps=1e-5).to(dtype)
    assert not gelu_norm.can_norm(x, plus, norm.weight, norm.bias)
    assert not gelu_norm.can_gelu(x)
    torch.testing.assert_close(norm(x), peer(x), rtol=0, atol=0)
    torch.testing.assert_close(norm(x, plus), peer(x + plus), rtol=0, atol=0)
    torch.testing.assert_close(gelu(x), F.gelu(x), rtol=0, atol=0)
    assert list(norm.state_dict()) == list(peer.state_dict())


@here
def test_scales_of_another_width_or_format_are_left_to_torch():
    x, right = drawn(512, 64), drawn(64)
    for weight, bias in (
        (drawn(48), right),
        (right, drawn(48)),
        (right, right.float()),
        (None, None),
        (right, None),
    ):
        assert not gelu_norm.can_norm(x, None, weight, bias)
    with pytest.raises(RuntimeError, match="normalized_shape"):
        LayerNorm(48).bfloat16()(x)
    plain = LayerNorm(64, elementwise_affine=False)
    torch.testing.assert_close(plain(x), F.layer_norm(x, (64,), eps=1e-5))


@here
def test_the_module_takes_the_kernel_for_bf16_rows():
    norm, x, plus = LayerNorm(48).bfloat16(), drawn(400, 48), drawn(400, 48, seed=5)
    with torch.no_grad():
        norm.weight.copy_(drawn(48, seed=7))
    assert torch.equal(norm(x, plus), gelu_norm.layer_norm(x, plus, norm.weight, norm.bias, norm.eps))
    torch.testing.assert_close(norm(x, plus), nn.LayerNorm.forward(norm, x + plus), rtol=2**-7, atol=2**-8)
