"""Every branch of ``attend`` against the textbook, forward and gradient, over ragged packings."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import ShapeError
from glassformer.nn import attend, padding_share
from glassformer.nn.attention import LONG, choose_branch
from glassformer.nn.maps import TOLERANCE, length_groups
from glassformer.packing import Packing

BRANCHES = ("explicit", "grouped", "fused", "padded")
LENGTHS = st.lists(st.integers(1, 19), min_size=1, max_size=7)
PAIRS = st.lists(st.tuples(st.integers(1, 13), st.integers(1, 13)), min_size=1, max_size=6)
SIZES = st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([1, 5, 7]))  # heads, width of a head
few_examples = settings(max_examples=25, deadline=None, derandomize=True)


def textbook(q, k, v, q_packing, kv_packing, causal, scale):
    """softmax(Q K^T scale) V, one row, one head and one sequence at a time."""
    out, weights = torch.zeros(len(q), q.shape[1], v.shape[2], dtype=q.dtype), []
    for b, (t_len, s_len) in enumerate(zip(q_packing.lengths, kv_packing.lengths, strict=True)):
        t0, s0 = q_packing.starts[b], kv_packing.starts[b]
        w = torch.zeros(q.shape[1], t_len, s_len, dtype=q.dtype)
        rows = []
        for t in range(t_len):
            seen = min(s_len, max(0, s_len - t_len + t + 1)) if causal else s_len
            scores = torch.einsum("hk,shk->hs", q[t0 + t], k[s0 : s0 + seen]) * scale
            exp = (scores - scores.detach().amax(1, keepdim=True)).exp() if seen else scores
            share = exp / exp.sum(1, keepdim=True)
            w[:, t, :seen] = share.detach()
            rows.append(torch.einsum("hs,shk->hk", share, v[s0 : s0 + seen]))
        out = out.index_copy(0, torch.arange(t0, t0 + t_len), torch.stack(rows))
        weights.append(w)
    return out, weights


def make(q_packing, kv_packing, heads, width, v_width=None, dtype=torch.float64):
    generator = torch.Generator().manual_seed(q_packing.total * 31 + kv_packing.total)

    def draw(rows, columns):
        x = torch.randn(rows, heads, columns, generator=generator, dtype=torch.float64)
        return (2.0 * x).to(dtype).requires_grad_()

    m = kv_packing.total
    return draw(q_packing.total, width), draw(m, width), draw(m, v_width or width)


def gradients(out, inputs):
    generator = torch.Generator().manual_seed(5)
    upstream = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
    return torch.autograd.grad(out, inputs, upstream)


def check(branch, q_packing, kv_packing, heads=2, width=5, causal=False, scale=None):
    q, k, v = inputs = make(q_packing, kv_packing, heads, width)
    out = attend(q, k, v, q_packing, kv_packing, causal, scale=scale, branch=branch)
    wanted, _ = textbook(q, k, v, q_packing, kv_packing, causal, width**-0.5 if scale is None else scale)
    torch.testing.assert_close(out, wanted)
    for ours, theirs in zip(gradients(out, inputs), gradients(wanted, inputs), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("branch", BRANCHES)
@given(lengths=LENGTHS, sizes=SIZES)
@few_examples
def test_self_attention(branch, causal, lengths, sizes):
    packing = Packing(tuple(lengths))
    check(branch, packing, packing, *sizes, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("branch", BRANCHES)
@given(pairs=PAIRS, sizes=SIZES)
@few_examples
def test_cross_attention(branch, causal, pairs, sizes):
    q_lengths = tuple(t for t, _ in pairs)
    kv_lengths = tuple(max(t, s) if causal else s for t, s in pairs)
    check(branch, Packing(q_lengths), Packing(kv_lengths), *sizes, causal=causal)


@pytest.mark.parametrize("scale", [0.0, 0.3, -1.7])
@pytest.mark.parametrize("branch", BRANCHES)
def test_scale(branch, scale):
    packing = Packing((7, 2, 5))
    check(branch, packing, packing, scale=scale)


@pytest.mark.parametrize("lengths", [(5, 5, 5), (7, 7, 3, 3, 3), (100, 97, 95, 94, 93), (3,), (1, 1, 1)])
@pytest.mark.parametrize("branch", BRANCHES)
def test_equal_and_nearly_equal_lengths(branch, lengths):
    packing = Packing(lengths)
    check(branch, packing, packing, causal=True)
    check(branch, packing, packing, heads=3)


CAUSAL_WITH_FEWER_KEYS = ["explicit", "grouped", "fused", "padded"]


@pytest.mark.parametrize("branch", CAUSAL_WITH_FEWER_KEYS)
def test_a_row_that_may_attend_nowhere_gives_zeros(branch):
    q_packing, kv_packing = Packing((5, 3)), Packing((2, 7))
    q, k, v = inputs = make(q_packing, kv_packing, 2, 3)
    out = attend(q, k, v, q_packing, kv_packing, causal=True, branch=branch)
    assert torch.equal(out[:3], torch.zeros_like(out[:3]))
    assert bool((out[3:] != 0).all())
    found = gradients(out, inputs)
    assert all(bool(gradient.isfinite().all()) for gradient in found)
    assert bool((found[0][:3] == 0).all())


@pytest.mark.parametrize("branch", ["explicit", "grouped", "fused", "padded"])
def test_values_of_another_width(branch):
    q_packing, kv_packing = Packing((5, 3)), Packing((2, 7))
    q, k, v = inputs = make(q_packing, kv_packing, 2, 3, v_width=5)
    out = attend(q, k, v, q_packing, kv_packing, branch=branch)
    wanted, _ = textbook(q, k, v, q_packing, kv_packing, False, 3**-0.5)
    torch.testing.assert_close(out, wanted)
    for ours, theirs in zip(gradients(out, inputs), gradients(wanted, inputs), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("branch", BRANCHES)
def test_keys_serve_as_values(branch):
    q_packing, kv_packing = Packing((5, 2, 7)), Packing((3, 11, 2))
    q, k, _ = make(q_packing, kv_packing, 2, 3)
    out = attend(q, k, None, q_packing, kv_packing, branch=branch)
    wanted, _ = textbook(q, k, k, q_packing, kv_packing, False, 3**-0.5)
    torch.testing.assert_close(out, wanted)
    for ours, theirs in zip(gradients(out, (q, k)), gradients(wanted, (q, k)), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("branch", BRANCHES)
def test_one_head_without_a_head_axis(branch):
    packing = Packing((5, 2))
    q, k, v = (x[:, 0] for x in make(packing, packing, 1, 3))
    out, weights = attend(q, k, v, packing, branch=branch, return_weights=True)
    wanted, _ = textbook(q[:, None], k[:, None], v[:, None], packing, packing, False, 3**-0.5)
    torch.testing.assert_close(out, wanted[:, 0])
    assert [tuple(w.shape) for w in weights] == [(1, 5, 5), (1, 2, 2)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("branch", ["auto", *BRANCHES])
def test_weights_on_request(branch, causal):
    q_packing, kv_packing = Packing((5, 2, 7)), Packing((11, 3, 7))
    q, k, v = make(q_packing, kv_packing, 3, 2)
    out, weights = attend(q, k, v, q_packing, kv_packing, causal, return_weights=True, branch=branch)
    wanted, wanted_weights = textbook(q, k, v, q_packing, kv_packing, causal, 2**-0.5)
    torch.testing.assert_close(out, wanted)
    assert len(weights) == 3
    for ours, theirs in zip(weights, wanted_weights, strict=True):
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(ours.sum(-1), torch.ones(ours.shape[:-1], dtype=ours.dtype))


@pytest.mark.parametrize("branch", BRANCHES)
def test_strided_inputs_and_broadcast_gradients(branch):
    """What the module hands over: three views of one product, and an expanded gradient from a sum."""
    packing = Packing((5, 2, 5))
    qkv = torch.randn(12, 3, 2, 3, dtype=torch.float64, requires_grad=True)
    out = attend(*qkv.unbind(1), packing, branch=branch)
    wanted, _ = textbook(*qkv.unbind(1), packing, packing, False, 3**-0.5)
    torch.testing.assert_close(out, wanted)
    ours, theirs = (torch.autograd.grad(x.sum(), qkv)[0] for x in (out, wanted))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("branch", BRANCHES)
def test_bf16_within_its_rounding(branch):
    packing = Packing((13, 2, 47, 31))
    q, k, v = inputs = make(packing, packing, 3, 7, dtype=torch.bfloat16)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    out = attend(q, k, v, packing, branch=branch)
    wanted = attend(*exact, packing, branch="explicit")
    assert out.dtype == torch.bfloat16
    pairs = [(out, wanted), *zip(gradients(out, inputs), gradients(wanted, exact), strict=True)]
    for ours, theirs in pairs:  # one rounding is at most 2^-8 of a value; a few add up
        error = (ours.detach().double() - theirs.detach()).norm() / theirs.detach().norm()
        assert float(error) < 2**-6


@pytest.mark.parametrize("branch", BRANCHES)
def test_perturbing_one_sequence_changes_no_other(branch):
    packing = Packing((7, 7, 3, 7, 2))
    q, k, v = (x.detach() for x in make(packing, packing, 2, 5))
    before = attend(q, k, v, packing, branch=branch)
    changed = [x.clone() for x in (q, k, v)]
    for x in changed:
        x[7:14] = 1e6
    after = attend(*changed, packing, branch=branch)
    others = packing.sequence_ids != 1
    assert torch.equal(before[others], after[others])
    assert not torch.allclose(before[~others], after[~others])


def test_inference_first_and_training_after():
    """The groups are remembered between calls: those made under inference_mode must serve autograd."""
    lengths = (11, 3, 11, 5)
    with torch.inference_mode():
        q, k, v = make(Packing(lengths), Packing(lengths), 2, 5)
        attend(q, k, v, Packing(lengths), branch="grouped")
    check("grouped", Packing(lengths), Packing(lengths))


def test_second_derivatives_are_right_or_refused():
    packing = Packing((5, 3))
    q, k, v = make(packing, packing, 2, 3)

    def twice(branch):
        loss = attend(q, k, v, packing, branch=branch).square().sum()
        (first,) = torch.autograd.grad(loss, q, create_graph=True)
        return torch.autograd.grad(first.square().sum(), q)[0]

    wanted = twice("explicit")
    try:
        found = twice("grouped")
    except RuntimeError:  # "trying to differentiate twice ..."
        found = wanted
    torch.testing.assert_close(found, wanted)


# --- dropout on the weights -----------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_padded_rows_drop_weights_the_same_way_back(causal):
    """With one draw the output is linear in the values, and over many draws its mean is the plain one."""
    packing = Packing((5, 2, 11))
    q, k, v = make(packing, packing, 3, 7)
    plain, outs = attend(q, k, v, packing, causal=causal).detach(), []
    for seed in range(200):
        torch.manual_seed(seed)
        out = attend(q, k, v, packing, causal=causal, dropout=0.25, branch="padded")
        upstream = torch.randn_like(out)
        (dv,) = torch.autograd.grad(out, v, upstream)
        torch.testing.assert_close((out * upstream).sum(), (v * dv).sum())
        outs.append(out.detach())
    assert (torch.stack(outs).mean(0) - plain).norm() < 0.1 * plain.norm()
    assert (outs[0] - plain).norm() > 0.2 * plain.norm()


def test_dropout_zeroes_weights_and_scales_the_rest():
    packing, p = Packing((53, 31)), 0.37
    torch.manual_seed(3)
    q, k = torch.randn(84, 1, 5), torch.randn(84, 1, 5)
    v = torch.zeros(84, 1, 5, requires_grad=True)
    out, weights = attend(q, k, v, packing, dropout=p, return_weights=True)
    # With a one-hot upstream gradient, the gradient of v is the column of dropped weights.
    dropped = []
    for row in range(53):
        upstream = torch.zeros_like(out)
        upstream[row, 0, 0] = 1.0
        dropped.append(torch.autograd.grad(out, v, upstream, retain_graph=True)[0][:53, 0, 0])
    dropped = torch.stack(dropped)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], (weights[0][0] / (1 - p))[kept])
    n = kept.numel()
    assert abs(float(kept.sum()) - n * (1 - p)) < 5 * math.sqrt(n * p * (1 - p))


# --- the choice -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "kv_lengths", "dropout", "weights", "wanted"),
    [
        ((5, 3), (5, 3), 0.0, False, "grouped"),
        ((5, 3), (5, 3), 0.1, False, "explicit"),
        ((5, 3), (5, 3), 0.0, True, "grouped"),
        ((LONG - 1,), (LONG - 1,), 0.0, False, "grouped"),
        ((LONG,), (LONG,), 0.0, False, "fused"),
        ((3,), (LONG,), 0.0, False, "fused"),
        ((LONG,), (3,), 0.0, False, "fused"),
    ],
)
def test_choice_of_branch(lengths, kv_lengths, dropout, weights, wanted):
    q = torch.zeros(sum(lengths), 1, 2)
    assert choose_branch(q, q, q, Packing(lengths), Packing(kv_lengths), False, dropout, weights) == wanted


def test_auto_at_a_long_length_equals_explicit():
    packing = Packing((LONG + 7, 3))
    q, k, v = (x.detach() for x in make(packing, packing, 1, 2))
    ours = attend(q, k, v, packing, causal=True)
    torch.testing.assert_close(ours, attend(q, k, v, packing, causal=True, branch="explicit"))


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40))
@few_examples
def test_groups_hold_every_sequence_once_and_little_padding(lengths):
    packing = Packing(tuple(lengths))
    groups = length_groups(packing, packing)
    assert sorted(start for g in groups for start in g.k.starts) == list(packing.starts)
    computed = 0
    for group in groups:
        shortest, longest = min(group.k.lengths), max(group.k.lengths)
        assert (
            group.k.lengths
            == group.q.lengths
            == tuple(lengths[packing.starts.index(s)] for s in group.k.starts)
        )
        assert shortest >= longest * (1 - TOLERANCE)
        step = 1 if longest < 48 else 2 if longest < 96 else 4 if longest < 192 else 8
        padded = longest if shortest == longest else math.ceil(longest / step) * step
        assert padded <= 1.04 * longest
        computed += len(group.k.lengths) * padded
    assert padding_share(packing) == pytest.approx(1 - sum(lengths) / computed)


@pytest.mark.parametrize("low", [3, 17, 40, 90, 150])
def test_a_batch_of_neighbouring_lengths_has_little_padding(low):
    lengths = tuple(range(low, low + low // 4 + 2)) * 3
    packing = Packing(lengths)
    assert padding_share(packing) <= 0.05


@pytest.mark.parametrize("lengths", [(1,), (7, 7, 7), (131, 131)])
def test_one_length_has_no_padding_at_all(lengths):
    packing = Packing(lengths)
    assert padding_share(packing) == 0.0
    assert len(length_groups(packing, packing)) == 1


# --- errors ---------------------------------------------------------------------------------------

P, M = Packing((5, 3)), Packing((2, 7))


def rows(*shape):
    return torch.zeros(shape)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((rows(8, 2, 3), rows(9, 2, 5), rows(9, 2, 5), P, M), r"q \(8, 2, 3\), k \(9, 2, 5\)"),
        ((rows(8, 2, 3), rows(9, 3, 3), rows(9, 3, 3), P, M), r"q \(8, 2, 3\), k \(9, 3, 3\)"),
        ((rows(8, 2, 3), rows(9, 2, 3), rows(8, 2, 3), P, M), r"v \(8, 2, 3\)"),
        ((rows(8, 3), rows(9, 2, 3), rows(9, 2, 3), P, M), "shapes do not fit"),
        ((rows(1, 8, 2, 3), rows(1, 8, 2, 3), rows(1, 8, 2, 3), P), "shapes do not fit"),
        ((rows(7, 2, 3), rows(9, 2, 3), rows(9, 2, 3), P, M), "q has 7 tokens and its packing 8"),
        ((rows(8, 2, 3), rows(8, 2, 3), rows(8, 2, 3), P, M), "k has 8 tokens and its packing 9"),
        ((rows(8, 2, 3), rows(9, 2, 3), rows(9, 2, 3), P, Packing((9,))), "2 query sequences, but 1"),
    ],
)
def test_shapes_that_do_not_fit(args, said):
    with pytest.raises(ShapeError, match=said):
        attend(*args)


def test_a_mask_and_a_packing_exclude_each_other():
    with pytest.raises(ShapeError, match="needs no mask"):
        attend(rows(8, 2, 3), rows(8, 2, 3), None, P, mask=torch.ones(2, 5, dtype=torch.bool))


def test_an_unknown_branch_is_an_error():
    with pytest.raises(ValueError, match="nonsense"):
        attend(rows(8, 2, 3), rows(8, 2, 3), None, P, branch="nonsense")


@pytest.mark.parametrize("branch", ["grouped", "fused"])
def test_dropout_on_a_branch_without_it_is_an_error(branch):
    with pytest.raises(ValueError, match="dropout"):
        attend(rows(8, 2, 3), rows(8, 2, 3), None, P, dropout=0.5, branch=branch)


def test_a_key_packing_alone_is_an_error():
    with pytest.raises(ShapeError, match="q_packing"):
        attend(rows(8, 2, 3), rows(8, 2, 3), None, kv_packing=P)
