"""The kernels of attention and GELU against torch, at every level of this processor: each level's own library computes."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.nn.levels import HERE, at_level, drawn
from torch.nn import functional as F

from glassformer.errors import ConfigError
from glassformer.nn import attend, attend_local, kernels
from glassformer.nn.attention import choose_branch
from glassformer.nn.encoder import Encoder, EncoderConfig
from glassformer.nn.feedforward import gelu, gelu_tanh
from glassformer.nn.kernels import gelu_norm, loading
from glassformer.nn.linear import LayerNorm
from glassformer.packing import Packing

if kernels.why_not() is not None:
    pytest.skip(f"no kernels: {kernels.why_not()}", allow_module_level=True)
LENGTHS = st.lists(st.tuples(st.integers(1, 97), st.integers(1, 131)), min_size=1, max_size=5)
WIDTHS = st.sampled_from([16, 32, 48, 64, 80, 112, 128])


@pytest.fixture(params=[level.name for level in HERE], autouse=True, scope="module")
def level(request):
    with at_level(request.param) as found:
        yield found


def formats() -> Iterator[torch.dtype]:
    """The number formats that the level computes in."""
    yield from (dtype for dtype in (torch.float32, torch.bfloat16) if kernels.has_dtype(dtype))


def agree(ours: torch.Tensor, exact: torch.Tensor, share: float) -> None:
    """Nowhere farther apart than a share of the largest number."""
    assert ours.dtype == torch.float32
    assert float((ours.double() - exact).abs().max()) <= share * max(float(exact.abs().max()), 0.1)


def check(q_packing: Packing, kv_packing: Packing, heads: int, width: int, causal: bool, scale=None) -> None:
    """Output and gradients, in every format, beside the textbook in fp64 on the same numbers."""
    for dtype in formats():
        q = 1.5 * drawn(q_packing.total, heads, width, seed=1)
        k, v = (1.5 * drawn(kv_packing.total, heads, width, seed=seed) for seed in (5, 7))
        given_, upstream = [x.to(dtype) for x in (q, k, v)], drawn(*q.shape, seed=11).to(dtype)
        found = []
        for branch, exact in (("kernel", dtype), ("explicit", torch.float64)):
            inputs = [x.to(exact).requires_grad_() for x in given_]
            out = attend(*inputs, q_packing, kv_packing, causal, scale=scale, branch=branch)
            found.append([out.detach(), *torch.autograd.grad(out, inputs, upstream.to(exact))])
        for number, (ours, wanted) in enumerate(zip(*found, strict=True)):
            assert ours.isfinite().all()
            if dtype == torch.float32:
                agree(ours, wanted, 1e-4 if number else 1e-5)
            else:  # bf16 rounds to 2 ** -8; where large terms cancel, the rounding of numbers around 1 remains.
                off = float((ours.double() - wanted).norm())
                assert off <= 0.01 * float(wanted.norm()) + 0.005 * ours.numel() ** 0.5


@pytest.mark.parametrize("causal", [False, True])
@given(pairs=LENGTHS, width=WIDTHS)
@settings(max_examples=13, deadline=None, derandomize=True)
def test_attention_and_its_gradients_are_the_textbooks(causal, pairs, width):
    check(Packing(tuple(t for t, _ in pairs)), Packing(tuple(s for _, s in pairs)), 2, width, causal)
    check(Packing(tuple(s for _, s in pairs)), Packing(tuple(s for _, s in pairs)), 1, width, causal)


@pytest.mark.parametrize("causal", [False, True])
@given(
    lengths=st.lists(st.integers(1, 331), min_size=1, max_size=4), width=WIDTHS, window=st.integers(1, 150)
)
@settings(max_examples=13, deadline=None, derandomize=True)
def test_windows_and_their_gradients_equal_masked_attention(causal, lengths, width, window):
    """Lengths below and above a chunk of queries, which has keys of its own."""
    packing = Packing(tuple(lengths))
    for dtype in formats():
        inputs = [1.5 * drawn(packing.total, 2, width, seed=seed) for seed in (1, 5, 7)]
        upstream = drawn(packing.total, 2, width, seed=11).to(dtype)
        ours = [x.to(dtype).requires_grad_() for x in inputs]
        exact = [x.detach().double().requires_grad_() for x in ours]
        out = attend_local(*ours, packing, window, causal, branch="kernel")
        wanted = attend_local(*exact, packing, window, causal, branch="blocks")
        pairs = zip(
            (out, *torch.autograd.grad(out, ours, upstream)),
            (wanted, *torch.autograd.grad(wanted, exact, upstream.double())),
            strict=True,
        )
        for number, (got, reference) in enumerate(pairs):
            assert got.isfinite().all()
            if dtype == torch.float32:
                agree(got.detach(), reference.detach(), 1e-4 if number else 1e-5)
            else:
                off = float((got.detach().double() - reference.detach()).norm())
                assert off <= 0.01 * float(reference.detach().norm()) + 0.005 * got.numel() ** 0.5


@pytest.mark.parametrize("radius", [63, 64, 65])
def test_a_window_ends_after_64_positions(radius):
    """Only the kernel with the right radius agrees with a mask."""
    packing = Packing((307,))
    q, k, v = (drawn(307, 1, 16, seed=seed) for seed in (1, 5, 7))
    distance = torch.arange(307) - torch.arange(307)[:, None]
    mask = (distance.abs() <= 64)[None, None]
    wanted = attend(*(x.transpose(0, 1)[None] for x in (q, k, v)), mask=mask)[0].transpose(0, 1)
    out = attend_local(q, k, v, packing, radius, branch="kernel")
    assert torch.allclose(out, wanted, atol=1e-5) == (radius == 64)


@pytest.mark.parametrize("scale", [0.0, 0.3, -0.7])
def test_long_texts_and_other_scales(scale):
    check(Packing((1031, 3)), Packing((1031, 3)), 1, 64, scale < 0, scale)


def test_attentions_gradient_is_its_slope():
    """By differences, along the gradient."""
    packing, x, pull = Packing((13, 7, 29)), drawn(49, 3, 3, 16).requires_grad_(), drawn(49, 3, 16, seed=7)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (attend(*x.unbind(1), packing, branch="kernel").double() * pull).sum()

    (gradient,) = torch.autograd.grad(loss(x), x)
    way = gradient / gradient.norm()  # the steepest
    with torch.no_grad():
        slope = (loss(x + 0.02 * way) - loss(x - 0.02 * way)) / 0.04
    assert float(slope) == pytest.approx(float(gradient.norm()), rel=1e-3)


def test_rows_that_see_nothing_are_zero_and_nan_stays_in_its_sequence():
    check(Packing((5, 3)), Packing((2, 7)), 2, 16, True)
    for dtype in formats():
        q, k, v = (drawn(n, 2, 16).to(dtype).requires_grad_() for n in (8, 9, 9))
        out = attend(q, k, v, Packing((5, 3)), Packing((2, 7)), True, branch="kernel")
        assert not out[:3].any()
        assert not torch.autograd.grad(out.sum(), q)[0][:3].any()
        q, k, v = (drawn(43, 2, 32, seed=seed).to(dtype) for seed in (1, 2, 3))
        k[15] = float("nan")
        out = attend(q, k, v, Packing((11, 19, 13)), branch="kernel")
        assert out[11:30].isnan().all()
        assert out[:11].isfinite().all()
        assert out[30:].isfinite().all()


def test_large_scores_do_not_overflow_and_one_key_has_all_the_weight():
    packing = Packing((37, 1))
    for dtype in formats():
        q, v = (300 * drawn(38, 2, 32)).to(dtype), drawn(38, 2, 32, seed=5).to(dtype)
        out = attend(q, q, v, packing, branch="kernel")
        wanted = attend(*(x.double() for x in (q, q, v)), packing, branch="explicit")
        if dtype == torch.float32:
            agree(out, wanted, 1e-4)
        else:
            torch.testing.assert_close(out.double(), wanted, rtol=0.02, atol=0.02)
        torch.testing.assert_close(out[37], v[37], rtol=1e-6 if dtype == torch.float32 else 2**-7, atol=0)


def test_bits_depend_neither_on_the_batch_nor_on_the_threads_nor_on_the_layout():
    lengths = (31, 97, 5, 64)
    packing, up, x = Packing(lengths), drawn(197, 5, 32, seed=5), drawn(1031, 80)
    for dtype in formats():
        qkv = drawn(197, 3, 5, 32).to(dtype).requires_grad_()

        def compute(qkv=qkv, dtype=dtype):
            out = attend(*qkv.unbind(1), packing, branch="kernel")
            bent = [gelu_norm.gelu_of(x, grad, tanh=True) for grad in (None, drawn(1031, 80, seed=7))]
            return [out, *torch.autograd.grad(out, qkv, up.to(dtype)), *bent]

        before, found = torch.get_num_threads(), []
        try:
            for threads in (1, 2, 3, 5):
                torch.set_num_threads(threads)
                found.append(compute())
        finally:
            torch.set_num_threads(before)
        for other in found[1:]:
            assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))
        for n, part, out in zip(lengths, packing.split(qkv), packing.split(found[0][0]), strict=True):
            q, k, v = (own.contiguous() for own in part.unbind(1))
            turned = q.transpose(1, 2).contiguous().transpose(1, 2)  # places are not contiguous
            for one in (q, turned):
                assert torch.equal(attend(one, k, v, Packing((n,)), branch="kernel"), out)


def test_gelu_with_tanh_and_its_slope():
    x = torch.linspace(-14, 14, 20_000).requires_grad_()
    exact = x.detach().double().requires_grad_()
    assert gelu_norm.can_gelu(x, tanh=True)
    y, want = gelu_tanh(x), F.gelu(exact, approximate="tanh")
    agree(y.detach(), want.detach(), 1e-7)
    assert ((y.double() - want).abs() <= 2e-6 * want.abs() + 1e-6).all()
    slopes = torch.autograd.grad(y, x, torch.ones_like(y))[0], torch.autograd.grad(want.sum(), exact)[0]
    assert float((slopes[0].double() - slopes[1]).abs().max()) <= 3e-6
    odd = torch.tensor([float("nan"), 0.0, -0.0, 30.0, -30.0, 1e-30, 88.0, -88.0]).repeat(2048)
    torch.testing.assert_close(
        gelu_tanh(odd), F.gelu(odd, approximate="tanh"), equal_nan=True, rtol=1e-6, atol=1e-30
    )


def choice(q, k=None, v=None, dropout=0.0, weights=False) -> str:
    packing, k = Packing((7, 5)), q if k is None else k
    return choose_branch(q, k, k if v is None else v, packing, packing, False, dropout, weights)


def test_auto_takes_what_pays_and_a_graph_for_others_does_not(monkeypatch):
    q = drawn(12, 2, 32)
    assert choice(q) == "kernel"
    assert choice(q.double()) == choice(q[..., :24]) == choice(q, q, q[..., :16]) == "grouped"
    assert choice(q, dropout=0.1) == "explicit"
    assert choice(q, weights=True) == "grouped"
    assert choice(q.clone().requires_grad_(), q, q, weights=True) == "explicit"
    x, norm = drawn(400, 48), LayerNorm(48)
    assert torch.equal(gelu_tanh(x), gelu_norm.gelu(x, tanh=True))
    assert not gelu_norm.can_gelu(x.bfloat16(), tanh=True)
    assert not gelu_norm.can_gelu(x.double(), tanh=True)
    assert torch.equal(gelu(x), F.gelu(x))  # torch's are as fast
    assert not gelu_norm.can_norm(x, x, norm.weight, norm.bias)
    monkeypatch.setattr(gelu_norm, "is_exporting", lambda: True)
    assert not gelu_norm.can_gelu(x, tanh=True)


def test_bf16_is_left_to_torch_where_the_level_has_none(level):
    q = drawn(12, 2, 16).bfloat16()
    assert kernels.supports(q, q, q) == gelu_norm.can_gelu(drawn(400, 48).bfloat16()) == level.bf16
    assert choice(q) == ("kernel" if level.bf16 else "grouped")
    assert attend(q, q, q, Packing((12,))).dtype == torch.bfloat16


@pytest.mark.parametrize(("order", "activation"), [("post", "gelu"), ("pre", "gelu_tanh")])
def test_an_encoder_with_and_without_them_computes_the_same(order, activation, monkeypatch):
    torch.manual_seed(3)
    encoder = Encoder(EncoderConfig(64, 2, 2, 128, norm=order, activation=activation, dropout=0.1))
    packing = Packing((211, 131, 7, 67))
    found = []
    for used in (True, False):
        if not used:
            monkeypatch.setenv(loading.SWITCH, "0")
            monkeypatch.setattr(loading, "_loaded", [])
            assert kernels.why_not() == "switched off by GLASSFORMER_KERNELS=0"
        torch.manual_seed(5)  # the same units are dropped
        encoder.zero_grad()
        out = encoder(drawn(packing.total, 64), packing)
        out.backward(drawn(packing.total, 64, seed=7))
        found.append([out.detach(), *(p.grad for p in encoder.parameters())])
    for ours, torchs in zip(*found, strict=True):
        agree(ours, torchs.double(), 1e-4)


def test_a_refusal_says_why(monkeypatch):
    q, wants = (
        torch.zeros(5, 2, 24),
        "it needs fp32 or bf16 on a CPU and a head size that is a multiple of 16",
    )
    for reason, said in ((None, wants), ("no library", "no library")):
        monkeypatch.setattr(kernels, "why_not", lambda reason=reason: reason)
        with pytest.raises(ConfigError, match=rf"no kernel for this call: {said}(.|\n)*branch=auto"):
            attend(q, q, q, Packing((5,)), branch="kernel")
