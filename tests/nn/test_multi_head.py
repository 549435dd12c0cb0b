"""``MultiHeadAttention`` against torch's with the same weights, and its shortcuts against the long way."""

import math

import pytest
import torch

from glassformer.errors import ConfigError
from glassformer.nn import MultiHeadAttention
from glassformer.nn.attention import attention_weights
from glassformer.nn.trace import LayerRecord
from glassformer.packing import Packing

D, H = 15, 3
PACKING, MEMORY_PACKING = Packing((7, 2, 5)), Packing((3, 11, 5))


def pair():
    """Ours and torch's with equal weights, in fp64; biases are not zero."""
    torch.manual_seed(29)
    ours = MultiHeadAttention(D, H).double()
    theirs = torch.nn.MultiheadAttention(D, H, batch_first=True).double()
    with torch.no_grad():
        for p in ours.parameters():
            p.copy_(torch.randn_like(p) * 0.5)
        theirs.in_proj_weight.copy_(ours.qkv.weight)
        theirs.in_proj_bias.copy_(ours.qkv.bias)
        theirs.out_proj.weight.copy_(ours.out.weight)
        theirs.out_proj.bias.copy_(ours.out.bias)
    return ours, theirs


def compare_weights(ours, theirs):
    torch.testing.assert_close(ours.qkv.weight.grad, theirs.in_proj_weight.grad)
    torch.testing.assert_close(ours.qkv.bias.grad, theirs.in_proj_bias.grad)
    torch.testing.assert_close(ours.out.weight.grad, theirs.out_proj.weight.grad)
    torch.testing.assert_close(ours.out.bias.grad, theirs.out_proj.bias.grad)


def draw(rows):
    return torch.randn(rows, D, dtype=torch.float64, generator=torch.Generator().manual_seed(rows))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("want_weights", [False, True])
def test_self_attention_equals_torch(causal, want_weights):
    ours, theirs = pair()
    x = draw(14)
    record = LayerRecord("all") if want_weights else None
    out = ours(x, PACKING, causal=causal, record=record)
    padded = PACKING.pad(x, value=9.0)
    ahead = torch.arange(7) > torch.arange(7)[:, None] if causal else None
    wanted, maps = theirs(
        padded, padded, padded, key_padding_mask=~PACKING.mask(), attn_mask=ahead, average_attn_weights=False
    )
    wanted = wanted[PACKING.mask()]
    torch.testing.assert_close(out, wanted)
    (out.square().sum()).backward()
    (wanted.square().sum()).backward()
    compare_weights(ours, theirs)
    if record is not None:
        for b, (n, weights) in enumerate(zip(PACKING.lengths, record.weights, strict=True)):
            torch.testing.assert_close(weights, maps[b, :, :n, :n])


def test_cross_attention_equals_torch():
    ours, theirs = pair()
    x, memory = draw(14), draw(19)
    record = LayerRecord("all")
    out = ours(x, PACKING, memory, MEMORY_PACKING, record=record)
    q, kv = PACKING.pad(x, value=9.0), MEMORY_PACKING.pad(memory, value=9.0)
    wanted, maps = theirs(q, kv, kv, key_padding_mask=~MEMORY_PACKING.mask(), average_attn_weights=False)
    wanted = wanted[PACKING.mask()]
    torch.testing.assert_close(out, wanted)
    (out.square().sum()).backward()
    (wanted.square().sum()).backward()
    compare_weights(ours, theirs)
    for b, (t, s) in enumerate(zip(PACKING.lengths, MEMORY_PACKING.lengths, strict=True)):
        torch.testing.assert_close(record.weights[b], maps[b, :, :t, :s])


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("rows", [[0, 7, 9], [6, 8, 13], [3, 7, 10]])
def test_wanted_rows_only(rows, cross):
    """One row per sequence, any row: the same values and the same gradient as from all rows."""
    rows = torch.tensor(rows)
    model, _ = pair()
    x, memory = draw(14).requires_grad_(), draw(19).requires_grad_()
    inputs = (x, memory) if cross else (x,)
    more = (memory, MEMORY_PACKING) if cross else ()
    few, full = model(x, PACKING, *more, rows=rows), model(x, PACKING, *more)
    torch.testing.assert_close(few, full[rows])
    wanted = torch.autograd.grad(full[rows].square().sum(), (*inputs, *model.parameters()))
    found = torch.autograd.grad(few.square().sum(), (*inputs, *model.parameters()))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("short_cut", [False, True])
@pytest.mark.parametrize("cross", [False, True])
def test_first_rows_of_the_weights(short_cut, cross):
    model, _ = pair()
    x, more = draw(14), (draw(19), MEMORY_PACKING) if cross else ()
    first, full = LayerRecord("first"), LayerRecord("all")
    model(x, PACKING, *more, rows=PACKING.first_rows if short_cut else None, record=first)
    model(x, PACKING, *more, record=full)
    for a, b in zip(first.weights, full.weights, strict=True):
        torch.testing.assert_close(a, b[:, :1])


@pytest.mark.parametrize("short_cut", ["record", "rows"])
def test_first_rows_of_causal_attention(short_cut):
    model, _ = pair()
    x = draw(14)
    if short_cut == "record":
        first, full = LayerRecord("first"), LayerRecord("all")
        model(x, PACKING, causal=True, record=first)
        model(x, PACKING, causal=True, record=full)
        for a, b in zip(first.weights, full.weights, strict=True):
            torch.testing.assert_close(a, b[:, :1])
    else:
        rows = PACKING.first_rows + 1
        torch.testing.assert_close(
            model(x, PACKING, causal=True, rows=rows), model(x, PACKING, causal=True)[rows]
        )


def test_recording_changes_nothing():
    model, _ = pair()
    x = draw(14)
    for kind in ("all", "first"):
        torch.testing.assert_close(model(x, PACKING, record=LayerRecord(kind)), model(x, PACKING))


def test_dropout_works_in_training_only():
    torch.manual_seed(1)
    model = MultiHeadAttention(D, H, dropout=0.4).double()
    x = draw(14)
    calm = model.eval()(x, PACKING)
    torch.testing.assert_close(calm, model(x, PACKING))
    model.train()
    draws = torch.stack([model(x, PACKING) for _ in range(400)])
    assert float((draws[0] - draws[1]).detach().abs().max()) > 1e-3
    # Unbiased: the mean over many draws is what comes out without dropout.
    spread = draws.std(0) / math.sqrt(400)
    assert bool(((draws.mean(0) - calm).abs() < 6 * spread + 1e-9).all())


def test_attention_weights_alone():
    q, k = draw(14).view(14, H, 5), draw(19).view(19, H, 5)
    weights = attention_weights(q, k, PACKING, MEMORY_PACKING)
    assert [tuple(w.shape) for w in weights] == [(3, 7, 3), (3, 2, 11), (3, 5, 5)]
    scores = torch.einsum("thk,shk->hts", q[7:9], k[3:14]) / math.sqrt(5)
    torch.testing.assert_close(weights[1], scores.exp() / scores.exp().sum(-1, keepdim=True))


@pytest.mark.parametrize(("d_model", "heads"), [(15, 2), (7, 0), (7, -1)])
def test_heads_must_divide_the_width(d_model, heads):
    with pytest.raises(ConfigError, match=rf"d_model {d_model} is not a multiple of num_heads {heads}"):
        MultiHeadAttention(d_model, heads)


@pytest.mark.parametrize("p", [1.0, 1.5, -0.1])
def test_dropout_must_be_a_probability(p):
    with pytest.raises(ConfigError, match="dropout"):
        MultiHeadAttention(D, H, dropout=p)
