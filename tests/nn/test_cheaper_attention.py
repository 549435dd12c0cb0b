"""Local attention equals the textbook under a band mask; linear attention equals its paper's formula."""

import pytest
import torch
from torch.nn import functional as F

from glassformer.errors import ConfigError, ShapeError
from glassformer.nn import attend, attend_linear, attend_local, cheaper
from glassformer.packing import Packing

H, K, V = 3, 5, 7
LENGTHS = (11, 1, 2, 23, 13)
PACKING = Packing(LENGTHS)


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(PACKING.total, H, n, generator=generator).requires_grad_() for n in (K, K, V)]


def one_by_one(rows, compute):
    """``compute`` on each sequence as ``[H, T, .]``, joined to packed rows again."""
    parts = zip(*(PACKING.split(x) for x in rows), strict=True)
    return torch.cat([compute(*(x.transpose(0, 1) for x in part)).transpose(0, 1) for part in parts])


def banded(window, causal):
    def compute(q, k, v):
        t = q.shape[1]
        distance = torch.arange(t) - torch.arange(t)[:, None]
        mask = (distance.abs() <= window) & ((distance <= 0) | (not causal))
        return attend(q[None], k[None], v[None], mask=mask[None])[0]

    return compute


def by_the_formula(causal):
    def compute(q, k, v):
        similarity = torch.einsum("htk,hsk->hts", F.elu(q) + 1, F.elu(k) + 1)
        similarity = similarity.tril() if causal else similarity
        return torch.einsum("hts,hsv->htv", similarity / similarity.sum(-1, keepdim=True), v)

    return compute


def compare(rows, got, wanted):
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    weight = torch.linspace(-1, 1, got.numel()).view(got.shape)
    ours = torch.autograd.grad((got * weight).sum(), rows)
    theirs = torch.autograd.grad((wanted * weight).sum(), rows)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [1, 2, 3, 7, 13, 22, 23, 1000])
def test_local_is_full_attention_under_a_band(rows, window, causal):
    compare(rows, attend_local(*rows, PACKING, window, causal), one_by_one(rows, banded(window, causal)))


@pytest.mark.parametrize("causal", [False, True])
def test_a_window_as_wide_as_the_sequence_is_full_attention(rows, causal):
    full = attend(*rows, PACKING, PACKING, causal, branch="explicit")
    torch.testing.assert_close(attend_local(*rows, PACKING, 23, causal), full, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_linear_is_its_papers_formula(rows, causal):
    compare(rows, attend_linear(*rows, PACKING, causal), one_by_one(rows, by_the_formula(causal)))


def test_a_causal_sequence_of_many_chunks():
    """Longer than one chunk of rows, and not a multiple of it."""
    packing = Packing((307,))
    q, k, v = torch.randn(3, 307, 2, 5, generator=torch.Generator().manual_seed(2)).unbind(0)
    wanted = by_the_formula(True)(*(x.transpose(0, 1) for x in (q, k, v))).transpose(0, 1)
    torch.testing.assert_close(attend_linear(q, k, v, packing, True), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_chunks_of_any_size_give_the_same(monkeypatch, chunk):
    monkeypatch.setattr(cheaper, "CHUNK", chunk)
    q, k, v = torch.randn(3, 31, 2, 7, generator=torch.Generator().manual_seed(2)).unbind(0)
    wanted = by_the_formula(True)(*(x.transpose(0, 1) for x in (q, k, v))).transpose(0, 1)
    torch.testing.assert_close(attend_linear(q, k, v, Packing((31,)), True), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attention", [lambda *a: attend_local(*a, 3), attend_linear])
def test_a_neighbour_in_the_batch_is_never_seen(rows, attention):
    q, k, v = (x.detach() for x in rows)
    before = attention(q, k, v, PACKING)
    start, end = PACKING.starts[3], PACKING.starts[4]
    k, v = k.clone(), v.clone()
    k[start:end] += 5.0
    v[start:end] -= 3.0
    after = attention(q, k, v, PACKING)
    others = torch.cat([torch.arange(start), torch.arange(end, PACKING.total)])
    assert torch.equal(after[others], before[others])
    assert not torch.allclose(after[start:end], before[start:end])


@pytest.mark.parametrize("attention", [lambda *a: attend_local(*a, 5), attend_linear])
def test_bf16_stays_near_fp32(rows, attention):
    exact = attention(*(x.detach() for x in rows), PACKING)
    half = attention(*(x.detach().bfloat16() for x in rows), PACKING)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), exact, rtol=0.05, atol=0.05)


def test_bad_input(rows):
    q, k, v = rows
    with pytest.raises(ConfigError, match="the window must be at least 1, got 0"):
        attend_local(q, k, v, PACKING, 0)
    with pytest.raises(ConfigError, match="unknown branch 'kernal'"):
        attend_local(q, k, v, PACKING, 3, branch="kernal")
    with pytest.raises(ConfigError, match="no kernel for this call"):  # its heads are 5 wide
        attend_local(q, k, v, PACKING, 3, branch="kernel")
    for attention in (lambda *a: attend_local(*a, 3), attend_linear):
        with pytest.raises(ShapeError, match="shapes do not fit"):
            attention(q, k[:, :2], v, PACKING)
        with pytest.raises(ShapeError, match="tokens, but the packing has 3"):
            attention(q, k, v, Packing((3,)))
