"""Local and linear attention inside the encoder: equal to full attention and to the formula where they must be."""

import copy
from dataclasses import replace

import pytest
import torch
from tests.shaken import shaken
from torch.nn import functional as F

from glassformer.errors import ConfigError
from glassformer.explain.architecture import blocks
from glassformer.families import family_of
from glassformer.families.bert import bert
from glassformer.families.own import encoder_small
from glassformer.families.vit import vit_tiny
from glassformer.models.image import ImageEncoder
from glassformer.models.text import TextEncoder
from glassformer.nn import Decoder, Encoder, EncoderConfig, Trace
from glassformer.nn.cheaper import LinearAttention, LocalAttention
from glassformer.nn.trace import LayerRecord
from glassformer.packing import Packing

D, HEADS, FF, V = 14, 2, 11, 31
LENGTHS = (13, 1, 7, 7, 3)
PACKING = Packing(LENGTHS)
KINDS = {"local": {"attention": "local", "attention_window": 3}, "linear": {"attention": "linear"}}


def stack(layers=3, norm="pre", **kind):
    torch.manual_seed(5)
    return shaken(
        Encoder(EncoderConfig(D, layers, HEADS, FF, norm, "gelu", 1e-5, final_norm=True, **kind)), 0.3
    )


def draw(rows=PACKING.total, width=D):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(7))


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_window_as_long_as_the_texts_is_full_attention(norm):
    full = stack(norm=norm)
    local = stack(norm=norm, attention="local", attention_window=max(LENGTHS))
    local.load_state_dict(full.state_dict())
    torch.testing.assert_close(local(draw(), PACKING), full(draw(), PACKING), rtol=1e-4, atol=1e-5)
    narrow = stack(norm=norm, attention="local", attention_window=2)
    narrow.load_state_dict(full.state_dict())
    assert not torch.allclose(narrow(draw(), PACKING), full(draw(), PACKING), atol=1e-3)


def test_linear_attention_is_the_papers_formula_between_its_projections():
    torch.manual_seed(3)
    layer, x = LinearAttention(D, HEADS), draw()
    q, k, v = layer.qkv(x).view(-1, 3, HEADS, D // HEADS).unbind(1)
    wanted = []
    for q_i, k_i, v_i in zip(*(PACKING.split(part) for part in (q, k, v)), strict=True):
        alike = torch.einsum("thk,shk->hts", F.elu(q_i) + 1, F.elu(k_i) + 1)
        alike = alike / alike.sum(-1, keepdim=True)
        wanted.append(torch.einsum("hts,shv->thv", alike, v_i).flatten(1))
    torch.testing.assert_close(layer(x, PACKING), layer.out(torch.cat(wanted)), rtol=1e-4, atol=1e-5)


def test_packed_is_padded_and_one_by_one(kind):
    encoder, x = stack(**kind), draw()
    packed = encoder(x, PACKING)
    padded = encoder.padded(PACKING.pad(x), PACKING.mask())
    torch.testing.assert_close(padded[PACKING.mask()], packed, rtol=1e-4, atol=1e-5)
    alone = torch.cat([encoder(part, Packing((len(part),))) for part in PACKING.split(x)])
    torch.testing.assert_close(alone, packed, rtol=1e-4, atol=1e-5)


def test_rows_asked_for_are_those_of_the_whole(kind):
    encoder, x = stack(**kind), draw()
    rows = PACKING.first_rows + torch.tensor([4, 0, 2, 0, 1])
    torch.testing.assert_close(
        encoder(x, PACKING, rows=rows), encoder(x, PACKING)[rows], rtol=1e-4, atol=1e-5
    )


def test_every_parameter_receives_a_gradient(kind):
    encoder = stack(**kind).train()
    weight = torch.linspace(-1, 1, PACKING.total * D).view(-1, D)
    (encoder(draw(), PACKING) * weight).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in encoder.parameters())


def test_bf16_stays_near_fp32(kind):
    encoder, x = stack(layers=1, **kind), draw()
    half = copy.deepcopy(encoder).bfloat16()(x.bfloat16(), PACKING)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), encoder(x, PACKING), rtol=0.1, atol=0.1)


def test_its_map_is_what_the_output_was_made_with(kind):
    encoder, x = stack(layers=1, **kind), draw()
    layer, record = encoder.layers[0].attention, LayerRecord()
    out = layer(x, PACKING, record=record)
    _, _, v = layer.project(x)
    read = [m @ part.transpose(0, 1) for m, part in zip(record.weights, PACKING.split(v), strict=True)]
    made = torch.cat([r.transpose(0, 1).flatten(1) for r in read])
    torch.testing.assert_close(layer.out(made), out, rtol=1e-4, atol=1e-5)
    assert [m.shape for m in record.weights] == [(HEADS, n, n) for n in LENGTHS]
    for m in record.weights:
        torch.testing.assert_close(m.sum(-1), torch.ones(m.shape[:2]))
    far = record.weights[0][:, 0, 4:]
    assert bool((far == 0).all()) == (kind["attention"] == "local")


def test_a_map_of_single_rows_is_part_of_the_whole(kind):
    layer, x = stack(layers=1, **kind).layers[0].attention, draw()
    whole, first, some = LayerRecord(), LayerRecord("first"), LayerRecord()
    layer(x, PACKING, record=whole)
    layer(x, PACKING, record=first)
    layer(x, PACKING, rows=PACKING.first_rows + torch.tensor([4, 0, 2, 0, 1]), record=some)
    for w, f, s, at in zip(whole.weights, first.weights, some.weights, (4, 0, 2, 0, 1), strict=True):
        assert torch.equal(f, w[:, :1])
        assert torch.equal(s, w[:, at : at + 1])


def test_causal_sees_nothing_that_comes_later(kind):
    layer, x = stack(layers=1, **kind).layers[0].attention, draw()
    record = LayerRecord()
    before = layer(x, PACKING, causal=True, record=record)
    assert not record.weights[0].detach().triu(1).any()
    x = x.clone()
    x[12] += 3.0  # the last row of the first sequence
    after = layer(x, PACKING, causal=True)
    assert torch.equal(after[:12], before[:12])
    assert not torch.allclose(after[12], before[12])


def test_models_of_both_kinds_are_written_in_our_own_layout(kind, tmp_path):
    config = replace(bert(V, D, 2, HEADS, FF, 17, 0.0), pooling="mean")
    assert family_of(config).model_type == "bert"
    other = replace(config, encoder=replace(config.encoder, **kind))
    assert family_of(other).model_type == "glassformer-text"
    picture = vit_tiny(image_size=(8, 8), patch_size=(2, 2))
    picture = replace(picture, encoder=replace(picture.encoder, **kind))
    assert family_of(picture).model_type == "glassformer-image"
    out = ImageEncoder(picture).eval()(torch.rand(2, 3, 8, 8), trace=Trace(attentions=True))
    assert out.trace.attentions[0].shape[1:] == (picture.encoder.num_heads, 17, 17)


def test_the_architecture_says_the_kind():
    small = encoder_small(V)
    config = replace(small, encoder=replace(small.encoder, attention="local", attention_window=7))
    layer = next(block for block in blocks(TextEncoder(config)) if block.name == "encoder layer")
    about = next(part.about for part in layer.parts if part.name == "self-attention")
    assert about == "4 heads of 32, local, 7 tokens on either side"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention": "locl"}, "unknown attention 'locl'.*Did you mean 'local'"),
        ({"attention_window": 0}, "the window must be at least 1, got 0"),
        (
            {"attention": "linear", "attention_dropout": 0.1},
            "linear attention does not support dropout on its weights",
        ),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises(ConfigError, match=message):
        EncoderConfig(D, 1, HEADS, FF, **changes)


def test_what_they_cannot_do(kind):
    layer, x = stack(layers=1, **kind).layers[0].attention, draw()
    with pytest.raises(ConfigError, match="does not support cross-attention"):
        layer(x, PACKING, x, PACKING)
    with pytest.raises(ConfigError, match="rows and causal"):
        layer(x, PACKING, causal=True, rows=PACKING.first_rows)
    with pytest.raises(ConfigError, match=f"a decoder does not support {kind['attention']} attention"):
        Decoder(EncoderConfig(D, 1, HEADS, FF, **kind))
    with pytest.raises(ConfigError, match="the window must be at least 1, got 0"):
        LocalAttention(D, HEADS, 0)
