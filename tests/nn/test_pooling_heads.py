"""From rows to one vector a sequence, and what stands on it: by hand."""

import math

import numpy as np
import pytest
import torch
from tests.shaken import shaken

from glassformer.errors import ConfigError, ShapeError
from glassformer.explain.subject import pooling_weights
from glassformer.models.backbone import ModelOutput
from glassformer.nn import ClassificationHead, MaskedLMHead, make_pooling
from glassformer.nn.encoder import EncoderConfig
from glassformer.packing import Packing

D = 7
KINDS = (
    *("first", "mean", "max", "attention", "multihead", "pooler", "unit-first", "unit-mean"),
    *("first-norm", "patches", "first-mean", "first-two"),
)
PACKINGS = {"ragged": Packing((5, 2, 3, 1)), "uniform": Packing((3, 3, 3)), "single rows": Packing((1, 1))}
PATCHES = {"patches": 0, "first-mean": 1}  # rows before the patches; every image has a patch
TWO = ("first-mean", "first-two")  # of sequences of two rows and more
CASES = [(kind, name) for kind in KINDS for name in PACKINGS if kind not in TWO or name == "uniform"]


def made(kind):
    encoder = EncoderConfig(D, 1, 1, 11, activation="relu", eps=1e-3)
    return shaken(make_pooling(kind, D, skip=PATCHES.get(kind, 1), encoder=encoder), 0.1)


def by_hand(pooling, kind, rows):
    if kind.startswith("unit-"):
        vector = by_hand(pooling, kind.removeprefix("unit-"), rows)
        return 5 * vector / vector.square().sum().sqrt()
    if kind == "first":
        return rows[0]
    if kind in ("mean", "patches"):
        return rows.sum(0) / len(rows)
    if kind == "first-mean":
        return torch.cat([rows[0], rows[1:].sum(0) / (len(rows) - 1)])
    if kind == "first-two":
        return torch.cat([rows[0], rows[1]])
    if kind == "first-norm":
        centered = rows[0] - rows[0].sum() / D
        scaled = centered / (centered.square().sum() / D + 1e-3).sqrt()
        return scaled * pooling.norm.weight + pooling.norm.bias
    if kind == "max":
        return rows.max(0).values
    if kind == "pooler":
        return torch.tanh(pooling.dense.weight @ rows[0] + pooling.dense.bias)
    if kind == "multihead":  # of one head
        qkv, ff = pooling.attention.qkv, pooling.feed_forward
        q = qkv.weight[:D] @ pooling.query + qkv.bias[:D]
        k, v = (rows @ qkv.weight[i : i + D].T + qkv.bias[i : i + D] for i in (D, 2 * D))
        z = ((k @ q / D**0.5).softmax(0) @ v) @ pooling.attention.out.weight.T + pooling.attention.out.bias
        return z + ff.down(torch.relu(ff.up(pooling.norm(z))))
    exp = (rows @ pooling.score.weight[0] + pooling.score.bias).exp()
    return (exp / exp.sum()) @ rows


@pytest.mark.parametrize(("kind", "packing"), CASES)
def test_each_sequence_by_itself(kind, packing):
    torch.manual_seed(3)
    packing = PACKINGS[packing]
    pooling = made(kind)
    x = torch.randn(packing.total, D, requires_grad=True)
    out = pooling(x, packing)
    wanted = torch.stack([by_hand(pooling, kind, rows) for rows in packing.split(x)])
    torch.testing.assert_close(out, wanted)
    inputs = [x, *pooling.parameters()]
    upstream = torch.randn(out.shape)
    found = torch.autograd.grad(out, inputs, upstream, allow_unused=True)
    for a, b in zip(found, torch.autograd.grad(wanted, inputs, upstream, allow_unused=True), strict=True):
        torch.testing.assert_close(a, b)


def test_patches_alone_with_paper_and_pencil():
    """Two images whose rows are a class token, a register and patches: packed, padded, and read."""
    x = torch.tensor([[9.0, 9], [8, 8], [1, 2], [3, 6], [9, 9], [8, 8], [5, 7]])
    packing, wanted = Packing((4, 3)), torch.tensor([[2.0, 4.0], [5.0, 7.0]])
    pooling, both, two = (make_pooling(kind, 2, skip=2) for kind in ("patches", "first-mean", "first-two"))
    assert torch.equal(pooling(x, packing), wanted)
    assert torch.equal(both(x, packing), torch.cat([torch.full((2, 2), 9.0), wanted], 1))
    padded = torch.stack([x[:4], torch.cat([torch.full((1, 2), 70.0), x[4:]])])
    mask = torch.tensor([[True] * 4, [False, True, True, True]])
    assert torch.equal(pooling.padded(padded, mask), wanted)
    assert torch.equal(both.padded(padded, mask), both(x, packing))
    assert two(x, packing).tolist() == two.padded(padded, mask).tolist() == [[9, 9, 8, 8]] * 2
    assert two.padded(padded[:1], None).tolist() == [[9, 9, 8, 8]]
    out = ModelOutput(packing)
    np.testing.assert_array_equal(pooling_weights(pooling, out, 4), [0, 0, 0.5, 0.5])
    np.testing.assert_array_equal(pooling_weights(both, out, 4), [0.5, 0, 0.25, 0.25])
    np.testing.assert_array_equal(pooling_weights(two, out, 4), [0.5, 0.5, 0, 0])
    assert torch.equal(pooling(wanted, packing), wanted)  # cached features


@pytest.mark.parametrize("kind", ["first", "pooler", "unit-first", "first-norm"])
def test_first_rows_alone_are_enough(kind):
    packing = PACKINGS["ragged"]
    pooling, x = made(kind), torch.randn(packing.total, D)
    assert pooling.reads_first_row_only
    assert torch.equal(pooling(x[packing.first_rows], packing), pooling(x, packing))


def test_a_projection_to_length_one():
    encoder = EncoderConfig(D, 1, 1, 11, eps=1e-3)
    pooling = shaken(make_pooling("first-norm", D, encoder=encoder, projection=3), 0.1)
    packing = PACKINGS["ragged"]
    x = torch.randn(packing.total, D)
    plain = torch.stack([by_hand(pooling, "first-norm", rows) for rows in packing.split(x)])
    projected = plain @ pooling.project.weight.T
    wanted = projected / projected.square().sum(1, keepdim=True).sqrt()
    torch.testing.assert_close(pooling(x, packing), wanted)
    torch.testing.assert_close(pooling.padded(packing.pad(x), None), wanted)
    assert pooling.width == 3


@pytest.mark.parametrize("kind", ["mean", "max", "attention", "multihead", "unit-mean"])
def test_the_others_read_every_row(kind):
    packing = PACKINGS["ragged"]
    pooling, x = made(kind), torch.randn(packing.total, D)
    assert not pooling.reads_first_row_only
    changed = x.clone()
    changed[4] += 7.0  # the last row of the first sequence
    before, after = pooling(x, packing), pooling(changed, packing)
    assert bool((before[0] != after[0]).any())
    assert torch.equal(before[1:], after[1:])


@torch.no_grad()
def test_a_learned_query_with_paper_and_pencil():
    """The scores of two rows are ln 3 and 0, so that they are weighed 3 to 1."""
    pooling = make_pooling("multihead", 2, encoder=EncoderConfig(2, 1, 1, 2, activation="relu"))
    for layer, weight in (
        (pooling.attention.qkv, [[1, 0], [0, 1]] * 3),
        (pooling.attention.out, [[1, 0], [0, 1]]),
        (pooling.feed_forward.up, [[1, 0], [0, 1]]),
        (pooling.feed_forward.down, [[2, 0], [0, 3]]),
    ):
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.zero_()
    pooling.query.copy_(torch.tensor([2**0.5 * math.log(3), 0.0]))
    x = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 5.0]])
    packing = Packing((2, 1))
    # z is (3/4, 0), its norm (1, -1), of which relu leaves (1, 0), and down makes (2, 0); of (0, 5): (0, 3).
    wanted = torch.tensor([[0.75 + 2, 0.0], [0.0, 5.0 + 3]])
    torch.testing.assert_close(pooling(x, packing), wanted)
    alone = torch.stack([x[:2], torch.stack([x[2], 99 + x[2]])])
    mask = torch.tensor([[True, True], [True, False]])
    torch.testing.assert_close(pooling.padded(alone, mask), wanted)
    read = pooling_weights(pooling, ModelOutput(Packing((2,)), states=x[:2]), 2)
    np.testing.assert_allclose(read, [0.75, 0.25], rtol=1e-6)


def test_attention_pooling_stands_large_scores():
    packing = PACKINGS["ragged"]
    pooling = make_pooling("attention", D)
    with torch.no_grad():
        pooling.score.weight.fill_(300.0)
    x = torch.randn(packing.total, D)
    out = pooling(x, packing)
    winners = [rows[rows.sum(1).argmax()] for rows in packing.split(x)]
    torch.testing.assert_close(out, torch.stack(winners), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("lengths", [(601, 3), (601,)])
def test_the_mean_of_bf16_rows_is_summed_in_fp32(lengths):
    """Only the result is rounded, by half a step at most; sums in bf16 are off by more."""
    torch.manual_seed(0)
    packing = Packing(lengths)
    x = torch.rand(packing.total, 101).bfloat16()
    out = make_pooling("mean", D)(x, packing)
    assert out.dtype == torch.bfloat16
    exact = torch.stack([rows.double().mean(0) for rows in packing.split(x)])
    assert float((out.double() / exact - 1).abs().max()) <= 2**-8 * 1.001


def test_unknown_pooling():
    with pytest.raises(ConfigError, match=r"'maen'.*'mean'"):
        make_pooling("maen", D)


# --- heads ----------------------------------------------------------------------------------------


def test_linear_head():
    head, x = ClassificationHead(D, 3).eval(), torch.randn(5, D)
    torch.testing.assert_close(head(x), x @ head.out.weight.T + head.out.bias)
    assert sum(p.numel() for p in head.parameters()) == D * 3 + 3


@pytest.mark.parametrize(("hidden", "width"), [(None, D), (11, 11)])
def test_mlp_head(hidden, width):
    head, x = ClassificationHead(D, 3, "mlp", hidden).eval(), torch.randn(5, D)
    h = (x @ head.hidden.weight.T + head.hidden.bias).clamp(min=0)
    assert h.shape == (5, width)
    torch.testing.assert_close(head(x), h @ head.out.weight.T + head.out.bias)


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_dropout_stands_before_the_last_product(kind):
    head = ClassificationHead(D, D, kind, dropout=0.5).train()
    with torch.no_grad():
        head.out.weight.copy_(torch.eye(D))
        head.out.bias.zero_()
        if head.hidden is not None:
            head.hidden.weight.copy_(torch.eye(D))
            head.hidden.bias.zero_()
    x = torch.rand(101, D) + 1.0
    torch.manual_seed(2)
    out = head(x)
    kept = out != 0
    assert 250 < int(kept.sum()) < 450  # of 707
    torch.testing.assert_close(out[kept], 2 * x[kept])


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_wrong_size_names_both(kind):
    head = ClassificationHead(768, 10, kind)
    with pytest.raises(ShapeError, match=r"expects 768 features, the encoder gives 384.*d_model=384"):
        head(torch.zeros(2, 384))


def test_heads_compute_in_fp32():
    head = ClassificationHead(D, 3)
    x = torch.randn(5, D, dtype=torch.bfloat16)
    assert head(x).dtype == torch.float32
    assert torch.equal(head(x), head(x.float()))


def test_a_head_needs_a_class():
    with pytest.raises(ConfigError, match="at least one class, got 0"):
        ClassificationHead(D, 0)


def test_unknown_kind_of_head():
    with pytest.raises(ConfigError, match="lineer"):
        ClassificationHead(D, 3, "lineer")


def test_masked_words_head():
    torch.manual_seed(4)
    head, x, table = MaskedLMHead(D, 31, "gelu", 0.1), torch.randn(5, D), torch.randn(31, D)
    shaken(head, 0.3).train()
    h = x @ head.dense.weight.T + head.dense.bias
    h = h * 0.5 * (1 + torch.erf(h / 2**0.5))
    h = (h - h.mean(1, keepdim=True)) / (h.var(1, correction=0, keepdim=True) + 0.1).sqrt()
    h = h * head.norm.weight + head.norm.bias
    torch.testing.assert_close(head(x, table), h @ table.T + head.bias)


@pytest.mark.parametrize("hidden", [0, -3])
def test_a_hidden_layer_without_units_is_refused(hidden):
    with pytest.raises(ConfigError, match="at least one unit"):
        ClassificationHead(7, 3, "mlp", hidden)
