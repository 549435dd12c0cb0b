"""Relative positions: the buckets of T5, and a bias in every branch of attention, with a gradient to its table."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import ConfigError, ShapeError
from glassformer.nn import Encoder, EncoderConfig, MultiHeadAttention, attend, attention_weights, kernels
from glassformer.nn.attention import choose_branch
from glassformer.nn.maps import first_row_weights
from glassformer.nn.positions import RelativeBias, bucket_bounds, expand_bias
from glassformer.nn.trace import LayerRecord
from glassformer.packing import Packing

BRANCHES = ("explicit", "grouped", "fused", "padded")
LENGTHS = st.lists(st.integers(1, 61), min_size=1, max_size=3)
few_examples = settings(max_examples=9, deadline=None, derandomize=True)


def table_of(heads: int) -> RelativeBias:
    torch.manual_seed(heads)
    return RelativeBias(32, heads)


def drawn(rows: int, heads: int, width: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, heads, width, generator=torch.Generator().manual_seed(seed))


def textbook(q, k, v, q_packing, kv_packing, causal, table):
    """One row after the other, the bias read from the table by each pair's distance."""
    starts, outs = table.starts, []
    for b, (rows, columns) in enumerate(zip(q_packing.lengths, kv_packing.lengths, strict=True)):
        q_i, k_i, v_i = (p.split(x)[b] for p, x in ((q_packing, q), (kv_packing, k), (kv_packing, v)))
        for t in range(rows):
            seen = t + 1 if causal else columns
            buckets = [sum(abs(s - t) >= n for n in starts) + 16 * (s > t) for s in range(seen)]
            scores = torch.einsum("hk,shk->hs", q_i[t], k_i[:seen]) * q.shape[2] ** -0.5
            weights = (scores + table.weight[buckets].T).softmax(1)
            outs.append(torch.einsum("hs,shk->hk", weights, v_i[:seen]))
    return torch.stack(outs)


def both(branch, dtype, q_packing, kv_packing, heads, width, causal):
    """(output, gradients of q, k, v and table) of a branch, and of the textbook in fp32."""
    found, table = [], table_of(heads)
    rows = (q_packing.total, kv_packing.total, kv_packing.total, q_packing.total)
    numbers = [drawn(n, heads, width, seed).to(dtype) for seed, n in enumerate(rows, 1)]
    longest = max(q_packing.max_length, kv_packing.max_length)
    for ours in (True, False):
        *inputs, upstream = (x.clone() if ours else x.float() for x in numbers)
        inputs = [x.requires_grad_() for x in inputs]
        if ours:
            bias = table(longest)
            out = attend(*inputs, q_packing, kv_packing, causal, branch=branch, bias=bias)
        else:
            out = textbook(*inputs, q_packing, kv_packing, causal, table)
        gradients = torch.autograd.grad(out, [*inputs, table.weight], upstream)
        found.append([out.detach().float(), *(g.float() for g in gradients)])
    return found


def check(branch, dtype, q_packing, kv_packing, heads=3, width=16, causal=False):
    for name, a, b in zip(
        "oqkvt", *both(branch, dtype, q_packing, kv_packing, heads, width, causal), strict=True
    ):
        assert a.isfinite().all(), name
        rough = dtype == torch.bfloat16
        allowed = (0.01, 0.005) if rough else (2e-6, 2e-6)
        assert float((a - b).norm()) <= allowed[0] * float(b.norm()) + allowed[1] * a.numel() ** 0.5, name


def test_short_distances_have_a_bucket_each_and_long_ones_share():
    assert bucket_bounds(32, 128) == (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91)
    assert bucket_bounds(8, 16) == (1, 2, 6)
    table = table_of(5)
    bias = table(200)
    assert bias.shape == (5, 399)
    assert torch.equal(bias[:, 199], table.weight[0])
    assert torch.equal(bias[:, 199 - 7], table.weight[7])  # a key before the query
    assert torch.equal(bias[:, 199 + 7], table.weight[16 + 7])
    assert torch.equal(bias[:, 0], table.weight[15])
    assert torch.equal(bias[:, -1], table.weight[31])
    matrix = expand_bias(bias, 3, 7)
    assert torch.equal(matrix[:, 2, 5], bias[:, 199 + 3])


def test_the_buckets_are_those_of_transformers():
    modeling = pytest.importorskip("transformers.models.mpnet.modeling_mpnet")
    distances = torch.arange(-1031, 1032)
    theirs = modeling.MPNetEncoder.relative_position_bucket(distances)
    starts = torch.tensor(bucket_bounds(32, 128))
    ours = (distances.abs()[:, None] >= starts).sum(1) + 16 * (distances > 0)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("branch", BRANCHES)
@given(lengths=LENGTHS)
@few_examples
def test_self_attention_and_its_gradients(branch, causal, lengths):
    packing = Packing(tuple(lengths))
    check(branch, torch.float32, packing, packing, causal=causal)


@pytest.mark.parametrize("branch", BRANCHES)
def test_cross_attention(branch):
    check(branch, torch.float32, Packing((5, 1, 31)), Packing((3, 67, 2)), 2, 7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@given(lengths=LENGTHS, width=st.sampled_from([16, 48, 64]))
@few_examples
def test_the_kernel(dtype, causal, lengths, width):
    if not kernels.has_dtype(dtype):
        pytest.skip(f"no kernel in {dtype}")
    packing = Packing(tuple(lengths))
    check("kernel", dtype, packing, packing, 3, width, causal)


@pytest.mark.skipif(not kernels.has_dtype(torch.float32), reason="no kernels")
def test_the_kernel_is_what_is_chosen_and_its_bits_depend_on_no_company():
    packing, table = Packing((31, 97, 5)), table_of(3)
    q, k, v = (drawn(packing.total, 3, 32, seed) for seed in (1, 2, 3))
    bias = table(97).detach()
    assert choose_branch(q, k, v, packing, packing, False, 0.0, False, bias) == "kernel"
    whole = packing.split(attend(q, k, v, packing, bias=bias))
    for i, one in enumerate(whole):
        q_i, k_i, v_i = (packing.split(x)[i] for x in (q, k, v))
        alone = attend(q_i, k_i, v_i, Packing((len(q_i),)), bias=table(len(q_i)).detach())
        assert torch.equal(alone, one)


@pytest.mark.skipif(not kernels.has_dtype(torch.float32), reason="no kernels")
def test_a_graph_holds_the_kernel_with_its_bias():
    packing, table = Packing((7, 31)), table_of(3)
    numbers = [drawn(38, 3, 16, seed) for seed in (1, 2, 3, 4)]

    def run(q, k, v, weight):
        bias = torch.nn.functional.pad(weight.T, (0, 31))
        return attend(q, k, v, packing, branch="kernel", bias=bias)

    found = []
    for one in (run, torch.compile(run, backend="aot_eager", fullgraph=True)):
        inputs = [x.clone().requires_grad_() for x in numbers[:3]]
        table.zero_grad()
        out = one(*inputs, table.weight)
        out.backward(numbers[3])
        found.append([out.detach(), *(x.grad for x in inputs), table.weight.grad.clone()])
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours, theirs)


def test_maps_have_the_bias_in_them():
    packing, table = Packing((7, 13, 13, 2)), table_of(3)
    q, k, v = (drawn(35, 3, 5, seed) for seed in (1, 2, 3))
    bias = table(13)
    wanted = attention_weights(q, k, packing, packing, bias=bias)  # differentiable: the textbook's
    fast = attention_weights(q, k, packing, packing, bias=bias.detach())
    out, given_back = attend(q, k, v, packing, return_weights=True, bias=bias.detach())
    first = first_row_weights(q[packing.first_rows], k, packing, bias=bias)
    plain = attention_weights(q, k, packing, packing)
    for i, map_i in enumerate(wanted):
        torch.testing.assert_close(fast[i], map_i)
        torch.testing.assert_close(given_back[i], map_i)
        torch.testing.assert_close(first[i], map_i[:, :1])
        assert float((plain[i] - map_i).detach().abs().max()) > 0.05
        made = torch.einsum("hts,shk->thk", map_i, packing.split(v)[i])
        torch.testing.assert_close(packing.split(out)[i], made)


def test_the_padded_form_gives_what_packed_rows_give():
    packing, table = Packing((7, 3)), table_of(2)
    q, k, v = (drawn(10, 2, 5, seed) for seed in (1, 2, 3))
    bias = table(7)
    out = attend(*(packing.pad(x).transpose(1, 2) for x in (q, k, v)), mask=packing.mask(), bias=bias)
    packed = attend(q, k, v, packing, bias=bias)
    torch.testing.assert_close(out.transpose(1, 2).flatten(0, 1)[packing.padded_rows], packed)
    one_head = attend(packing.pad(q[:, 0]), packing.pad(k[:, 0]), mask=packing.mask(), bias=bias[:1])
    wanted = attend(q[:, 0], k[:, 0], None, packing, bias=bias[:1])
    torch.testing.assert_close(one_head.flatten(0, 1)[packing.padded_rows], wanted)


def test_rows_that_are_not_the_first_keep_their_distances():
    torch.manual_seed(3)
    layer, packing, table = MultiHeadAttention(12, 3), Packing((7, 5)), table_of(3)
    x, bias = torch.randn(12, 12), table(7)
    every = layer(x, packing, bias=bias)
    for rows in (packing.first_rows, torch.tensor([4, 11])):
        record = LayerRecord("first")
        out = layer(x, packing, rows=rows, record=record, bias=bias)
        torch.testing.assert_close(out, every[rows])
        assert [w.shape for w in record.weights] == [(3, 1, 7), (3, 1, 5)]


def test_an_encoder_shares_one_table_that_stays_in_fp32():
    torch.manual_seed(5)
    encoder = Encoder(EncoderConfig(12, 2, 3, 17, relative_buckets=32))
    x, packing = torch.randn(12, 12), Packing((7, 5))
    before = encoder.relative.weight.detach().clone()
    whole = encoder(x, packing)
    torch.testing.assert_close(encoder(x, packing, rows=packing.first_rows), whole[packing.first_rows])
    torch.testing.assert_close(encoder(x[7:], Packing((5,))), whole[7:])
    padded = encoder.padded(packing.pad(x), packing.mask()).flatten(0, 1)[packing.padded_rows]
    torch.testing.assert_close(padded, whole)
    whole.square().sum().backward()
    near = encoder.relative.weight.grad.abs().sum(1)
    assert bool((near[:7] > 0).all())
    assert bool((near[17:23] > 0).all())
    assert not near[9:17].any()  # no text is so long, and nothing is both after the query and at its place
    encoder.to(torch.bfloat16)
    assert encoder.relative.weight.dtype == torch.float32
    assert torch.equal(encoder.relative.weight, before)
    assert encoder(x.bfloat16(), packing).dtype == torch.bfloat16
    assert encoder.double().relative.weight.dtype == torch.float64


def test_what_cannot_be_is_refused():
    packing, bias = Packing((5, 3)), torch.zeros(2, 9)
    q = torch.ones(8, 2, 3)
    for wrong in (bias[:1], bias[:, :8], bias[:, :7], bias[0]):
        with pytest.raises(
            ShapeError, match=r"the bias has shape .*, but there are 2 heads and 5 positions.*\[2, 9\]"
        ):
            attend(q, q, q, packing, bias=wrong)
    with pytest.raises(ConfigError, match=r"the varlen branch takes no bias\..*branch=padded"):
        attend(q, q, q, packing, branch="varlen", bias=bias)
    with pytest.raises(ConfigError, match="a causal bias needs as many queries as keys"):
        attend(q[:4], q, q, Packing((2, 2)), packing, True, bias=bias)
    with pytest.raises(ConfigError, match="a bias requires a scale other than 0"):
        attend(q, q, q, packing, scale=0.0, bias=bias)
    for buckets, furthest in ((30, 128), (0, 128), (32, 8)):
        with pytest.raises(ConfigError, match=f"{buckets} buckets do not suit distances up to {furthest}"):
            RelativeBias(buckets, 2, furthest)
    for kind in ("local", "linear"):
        with pytest.raises(ConfigError, match=f"{kind} attention does not support relative positions"):
            EncoderConfig(12, 1, 3, 17, attention=kind, relative_buckets=32)
