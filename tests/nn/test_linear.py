"""The encoder's linear layer: torch's own in all it computes, with a gradient of ours where the processor has AMX."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from glassformer.nn import kernels
from glassformer.nn.linear import Linear, product, split_qkv
from glassformer.packing import Packing

here = pytest.mark.skipif(
    kernels.why_not() is not None or not kernels.has_amx(), reason="no AMX, or it is switched off"
)
SIZES = [  # rows, out, in: one block and several, one chunk of rows and several, panels that are not full
    (257, 16, 16),
    (521, 48, 80),
    (512, 1152, 384),
    (1031, 400, 784),
    (2053, 96, 1552),
]


def example(rows: int, out: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows + out + width)
    draw = lambda n: torch.randn(rows, n, generator=generator).bfloat16()  # noqa: E731
    return draw(out), draw(width)


def rounding(exact: torch.Tensor) -> torch.Tensor:
    """What one number may be off: bf16 keeps 8 bits of it, and a sum in fp32 loses little beside the largest."""
    return 2**-8 * exact.abs() + 1e-5 * exact.abs().max()


@here
@pytest.mark.parametrize(("rows", "out", "width"), SIZES)
def test_the_gradient_is_the_exact_one_but_for_its_last_rounding(rows, out, width):
    grad, x = example(rows, out, width)
    weight, bias = kernels.weight_gradient(grad, x, bias=True)
    assert bias is not None
    exact = grad.double().T @ x.double()
    assert ((weight.double() - exact).abs() <= rounding(exact)).all()
    summed = grad.double().sum(0)
    assert ((bias.double() - summed).abs() <= rounding(summed)).all()
    assert kernels.weight_gradient(grad, x, bias=False)[1] is None


@here
@pytest.mark.parametrize(("rows", "out", "width"), SIZES)
def test_its_bits_do_not_depend_on_the_threads(rows, out, width):
    grad, x = example(rows, out, width)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            found.append(kernels.weight_gradient(grad, x, bias=True))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(weight, found[0][0]) for weight, _ in found)
    assert all(torch.equal(bias, found[0][1]) for _, bias in found)


@here
def test_parts_of_wider_rows_and_turned_ones_are_read_where_they_lie():
    grad, x = example(307, 160, 112)
    want = kernels.weight_gradient(grad[:, 32:96].contiguous(), x[:, 16:64].contiguous(), bias=True)
    found = kernels.weight_gradient(grad[:, 32:96], x[:, 16:64], bias=True)
    turned = kernels.weight_gradient(grad[:, 32:96].T.contiguous().T, x[:, 16:64].T.contiguous().T, bias=True)
    one = kernels.weight_gradient(grad[:1, :64].expand(307, 64), x[:, 16:64], bias=True)
    for (weight, bias), (ours, summed) in ((want, found), (want, turned)):
        assert torch.equal(weight, ours)
        assert torch.equal(bias, summed)
    exact = grad[0, :64].double()[:, None] * x[:, 16:64].double().sum(0)
    assert ((one[0].double() - exact).abs() <= rounding(exact)).all()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("rows", "dtype"), [(300, torch.bfloat16), (300, torch.float32), (7, torch.bfloat16)]
)
def test_a_layer_trains_as_torchs_own(rows, dtype, bias):
    torch.manual_seed(0)
    ours = Linear(48, 80, bias=bias).to(dtype)
    theirs = nn.Linear(48, 80, bias=bias).to(dtype)
    theirs.load_state_dict(ours.state_dict())
    x, found = torch.randn(rows, 48, dtype=dtype), []
    for layer in (ours, theirs):
        given = x.clone().requires_grad_()
        out = layer(given)
        out.square().sum().backward()
        found.append([out, given.grad, *(p.grad for p in layer.parameters())])
    close = dict(rtol=2**-7, atol=2**-7 * rows**0.5) if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(found[0][0], found[1][0], rtol=0, atol=0)
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other, **close)


def test_what_does_not_learn_gets_no_gradient():
    layer = Linear(48, 80).bfloat16().requires_grad_(False)
    x = torch.randn(300, 48).bfloat16().requires_grad_()
    layer(x).sum().backward()
    assert layer.weight.grad is None
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(300, 48), rtol=2**-6, atol=2**-6)
    half = Linear(48, 80).bfloat16()
    half.bias.requires_grad_(False)
    half(x.detach()).sum().backward()
    assert half.bias.grad is None
    assert half.weight.grad is not None


@pytest.mark.parametrize("learns", [(True, True), (True, False), (False, True)])
def test_the_kernels_gradients_go_to_what_learns(monkeypatch, learns):
    """The layer's own part of it on every machine: torch's product stands in for the kernel."""

    def by_torch(grad, x, bias):
        return grad.T @ x, grad.sum(0) if bias else None

    monkeypatch.setattr(kernels, "has_gradient", lambda x, weight: True)
    monkeypatch.setattr(kernels, "weight_gradient", by_torch)
    torch.manual_seed(0)
    layer, plain, x = Linear(5, 7), nn.Linear(5, 7), torch.randn(11, 5)
    plain.load_state_dict(layer.state_dict())
    found = []
    for one in (layer, plain):
        given = x.clone().requires_grad_(learns[0])
        one.bias.requires_grad_(learns[1])
        one(given).square().sum().backward()
        found.append([given.grad, one.weight.grad, one.bias.grad])
    for ours, theirs in zip(*found, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs)


def test_memory_that_the_kernels_cannot_get_is_said(monkeypatch):
    def refuse(*given):
        assert given[-1] == 1234  # after the job
        return 1

    monkeypatch.setattr(kernels, "library", lambda: SimpleNamespace(attention=refuse, weight_gradient=refuse))
    monkeypatch.setattr(kernels, "torch_threads", lambda: 1234)
    rows = torch.zeros(7, 16, dtype=torch.bfloat16)
    with pytest.raises(MemoryError, match="linear layer: no memory"):
        kernels.weight_gradient(rows, rows, bias=True)
    packing, q = Packing((3, 4)), rows[:, None]
    with pytest.raises(MemoryError, match="attention: no memory"):
        kernels.KernelAttention.apply(q, q, q, packing, packing, False, 1.0, None)


def test_the_kernel_gets_one_matrix_to_fill_and_one_row_where_a_bias_learns(monkeypatch):
    monkeypatch.setattr(kernels, "library", lambda: SimpleNamespace(weight_gradient=lambda *_: 0))
    grad, x = torch.zeros(7, 16).bfloat16(), torch.zeros(7, 48).bfloat16()
    weight, bias = kernels.weight_gradient(grad, x, bias=True)
    assert (weight.shape, weight.dtype) == ((16, 48), torch.bfloat16)
    assert bias is not None
    assert (bias.shape, bias.dtype) == ((16,), torch.bfloat16)
    assert kernels.weight_gradient(grad, x, bias=False)[1] is None


def test_no_gradient_is_asked_for_where_none_is_wanted(monkeypatch):
    def never(*_):
        raise AssertionError("asked")

    layer = Linear(48, 80).bfloat16()
    monkeypatch.setattr(kernels, "has_gradient", never)
    with torch.no_grad():
        layer(torch.randn(300, 48).bfloat16())
    with pytest.raises(AssertionError, match="asked"):
        layer(torch.randn(300, 48).bfloat16())


@here
def test_rows_too_few_sides_too_odd_and_other_numbers_are_torchs():
    weight = torch.zeros(80, 48, dtype=torch.bfloat16)
    rows = torch.zeros(kernels.MIN_ROWS, 48, dtype=torch.bfloat16)
    assert kernels.has_gradient(rows, weight)
    assert not kernels.has_gradient(rows[1:], weight)
    assert not kernels.has_gradient(rows[:, :40], weight[:, :40])
    assert not kernels.has_gradient(rows, weight[:77])
    assert not kernels.has_gradient(rows.float(), weight.float())
    assert not kernels.has_gradient(rows.expand(3, -1, -1), weight)
    assert not kernels.has_gradient(rows.to("meta"), weight)


def test_its_state_is_that_of_torchs_layer():
    assert set(Linear(5, 7).state_dict()) == {"weight", "bias"} == set(nn.Linear(5, 7).state_dict())


def test_three_gradients_that_lie_together_are_not_copied(monkeypatch):
    """Whatever lies otherwise is put together, and gradients of gradients are torch's."""
    monkeypatch.setattr(kernels, "has_dtype", lambda dtype: True)
    torch.manual_seed(0)
    x = torch.randn(7, 3, 2, 5, requires_grad=True)
    wanted, stacked = torch.randn(7, 3, 2, 5), []
    stack = torch.stack
    monkeypatch.setattr(torch, "stack", lambda *given, **how: stacked.append(0) or stack(*given, **how))
    for parts, copies in (
        (wanted.unbind(1), 0),
        ([part.clone() for part in wanted.unbind(1)], 1),
        (wanted.permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2).unbind(1), 1),
    ):
        stacked.clear()
        (found,) = torch.autograd.grad(split_qkv(x), x, list(parts))
        assert torch.equal(found, wanted)
        assert len(stacked) == copies
    torch.autograd.gradgradcheck(
        lambda y: sum(t.sin().sum() for t in split_qkv(y)), x.double()[:2].detach().requires_grad_()
    )


def test_the_bias_is_added_to_the_bit_as_torch_adds_it(monkeypatch):
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(*shape).bfloat16() for shape in ((307, 64), (48, 64), (48,)))
    for given in (x, x[:1], x[:0], x[:, :32], x.view(1, 307, 64)):
        inside = weight[:, : given.shape[-1]]
        assert torch.equal(product(given, inside, bias), nn.functional.linear(given, inside, bias))
    layer = Linear(64, 48).bfloat16()
    assert product(x, layer.weight, layer.bias).requires_grad
    monkeypatch.setattr(kernels, "has_dtype", lambda dtype: False)
    assert torch.equal(product(x, weight, bias), nn.functional.linear(x, weight, bias))
