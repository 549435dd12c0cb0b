"""The decoder: torch's own with copied weights, one by one, causality, and generation with a cache."""

from dataclasses import replace

import pytest
import torch
from tests.shaken import shaken
from torch import nn

from glassformer.nn import Decoder, Encoder, EncoderConfig, Trace
from glassformer.nn.trace import TraceRecord
from glassformer.packing import Packing

D, H, FF, LAYERS = 14, 2, 23, 3
SOURCES, TARGETS = Packing((5, 11, 1, 7)), Packing((3, 2, 13, 7))


def config(norm="post"):
    return EncoderConfig(D, LAYERS, H, FF, norm, "relu", 1e-5, final_norm=norm == "pre")


def randomised(module):
    torch.manual_seed(5)
    return shaken(module, 0.2)


def rows(packing, seed):
    return torch.randn(packing.total, D, generator=torch.Generator().manual_seed(seed))


def copy_attention(ours, theirs):
    theirs.in_proj_weight.data.copy_(ours.qkv.weight)
    theirs.in_proj_bias.data.copy_(ours.qkv.bias)
    theirs.out_proj.load_state_dict(ours.out.state_dict())


def peer_of(encoder, decoder, norm):
    """``torch.nn.Transformer`` with our weights."""
    peer = nn.Transformer(
        D, H, LAYERS, LAYERS, FF, dropout=0.0, activation="relu", batch_first=True, norm_first=norm == "pre"
    )
    for ours, theirs in zip(encoder.layers, peer.encoder.layers, strict=True):
        copy_attention(ours.attention, theirs.self_attn)
        for a, b in (("norm1", "norm1"), ("norm2", "norm2")):
            getattr(theirs, b).load_state_dict(getattr(ours, a).state_dict())
        theirs.linear1.load_state_dict(ours.feed_forward.up.state_dict())
        theirs.linear2.load_state_dict(ours.feed_forward.down.state_dict())
    for ours, theirs in zip(decoder.layers, peer.decoder.layers, strict=True):
        copy_attention(ours.attention, theirs.self_attn)
        copy_attention(ours.cross, theirs.multihead_attn)
        for name in ("norm1", "norm2", "norm3"):
            getattr(theirs, name).load_state_dict(getattr(ours, name).state_dict())
        theirs.linear1.load_state_dict(ours.feed_forward.up.state_dict())
        theirs.linear2.load_state_dict(ours.feed_forward.down.state_dict())
    for ours, theirs in ((encoder, peer.encoder), (decoder, peer.decoder)):
        if norm == "pre":
            theirs.norm.load_state_dict(ours.final_norm.state_dict())
        else:
            theirs.norm = None
    return peer.eval()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")  # torch's own, of its pre-norm encoder
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_equals_torch_transformer_with_copied_weights(norm):
    encoder, decoder = randomised(Encoder(config(norm))), randomised(Decoder(config(norm)))
    x, y = rows(SOURCES, 1), rows(TARGETS, 2)
    ours = decoder(y, TARGETS, encoder(x, SOURCES), SOURCES)
    peer = peer_of(encoder, decoder, norm)
    peer.encoder.enable_nested_tensor = False
    ahead = torch.triu(torch.ones(13, 13, dtype=torch.bool), 1)
    theirs = peer(
        SOURCES.pad(x, 3.0),
        TARGETS.pad(y, 3.0),
        tgt_mask=ahead,
        src_key_padding_mask=~SOURCES.mask(),
        memory_key_padding_mask=~SOURCES.mask(),
        tgt_key_padding_mask=~TARGETS.mask(),
    )
    torch.testing.assert_close(ours, theirs[TARGETS.mask()], atol=1e-5, rtol=1e-5)
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(3))
    (ours * weights).sum().backward()
    (theirs[TARGETS.mask()] * weights).sum().backward()
    for a, b in zip(decoder.layers, peer.decoder.layers, strict=True):
        torch.testing.assert_close(
            a.cross.qkv.weight.grad, b.multihead_attn.in_proj_weight.grad, atol=1e-4, rtol=1e-4
        )
        torch.testing.assert_close(a.norm3.weight.grad, b.norm3.weight.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_every_norm_has_the_eps_of_the_config(norm):
    decoder = Decoder(replace(config(norm), eps=0.37))
    norms = [(name, part) for name, part in decoder.named_modules() if isinstance(part, nn.LayerNorm)]
    assert len(norms) == 3 * LAYERS + (norm == "pre")
    assert [name for name, part in norms if part.eps != 0.37] == []


def test_packed_equals_one_by_one_and_neighbours_do_not_leak():
    decoder = randomised(Decoder(config()))
    memory, y = rows(SOURCES, 1), rows(TARGETS, 2)
    whole = TARGETS.split(decoder(y, TARGETS, memory, SOURCES))
    for i, (m, t) in enumerate(zip(SOURCES.split(memory), TARGETS.split(y), strict=True)):
        alone = decoder(t, Packing((len(t),)), m, Packing((len(m),)))
        torch.testing.assert_close(whole[i], alone, atol=1e-5, rtol=1e-5)
    other = memory.clone()
    other[: SOURCES.lengths[0]] += 1.0
    changed = TARGETS.split(decoder(y, TARGETS, other, SOURCES))
    assert not torch.allclose(changed[0], whole[0])
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(changed[1:], whole[1:], strict=True))


def test_a_place_does_not_see_what_comes_after():
    decoder = randomised(Decoder(config()))
    memory, y = rows(SOURCES, 1), rows(TARGETS, 2)
    before = TARGETS.split(decoder(y, TARGETS, memory, SOURCES))[2]
    y[TARGETS.starts[2] + 6] += 1.0
    after = TARGETS.split(decoder(y, TARGETS, memory, SOURCES))[2]
    torch.testing.assert_close(before[:6], after[:6])
    assert not torch.allclose(before[6], after[6])


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_step_by_step_with_a_cache_equals_all_at_once(norm):
    decoder = randomised(Decoder(config(norm)))
    memory = rows(SOURCES, 1)
    beams, length = 3, 5
    y = torch.randn(SOURCES.count, beams, length, D, generator=torch.Generator().manual_seed(7))
    cache = decoder.start(memory, SOURCES)
    found = torch.stack([decoder.step(y[:, :, t].flatten(0, 1), cache) for t in range(length)], 1)
    repeated = torch.cat([m for m in SOURCES.split(memory) for _ in range(beams)])
    sources = Packing(tuple(n for n in SOURCES.lengths for _ in range(beams)))
    targets = Packing.uniform(SOURCES.count * beams, length)
    whole = decoder(y.reshape(-1, D), targets, repeated, sources)
    torch.testing.assert_close(found.flatten(0, 1), whole, atol=1e-5, rtol=1e-5)


def test_selected_rows_go_on_as_if_they_were_alone():
    decoder = randomised(Decoder(config()))
    memory = rows(SOURCES, 1)
    y = torch.randn(4, 2, D, generator=torch.Generator().manual_seed(7))
    cache = decoder.start(memory, SOURCES)
    decoder.step(y[:, 0], cache)
    keep = torch.tensor([3, 1])
    cache.select(keep, keep)
    found = decoder.step(y[keep, 1], cache)
    fresh = decoder.start(memory, SOURCES)
    decoder.step(y[:, 0], fresh)
    torch.testing.assert_close(found, decoder.step(y[:, 1], fresh)[keep], atol=1e-6, rtol=1e-5)


def test_traces_have_maps_that_sum_to_one_and_every_parameter_learns():
    decoder = randomised(Decoder(config()))
    request = Trace(attentions=True, hidden_states=True)
    trace, cross = TraceRecord(request, LAYERS), TraceRecord(request, LAYERS)
    x = rows(TARGETS, 2)
    out = decoder(x, TARGETS, rows(SOURCES, 1), SOURCES, trace=trace, cross_trace=cross)
    assert trace.hidden_states[0] is x
    assert trace.hidden_states.numbers == list(range(LAYERS + 1))
    first = decoder.layers[0](x, TARGETS, rows(SOURCES, 1), SOURCES)
    torch.testing.assert_close(trace.hidden_states[1], first)
    for i, (t, s) in enumerate(zip(TARGETS.lengths, SOURCES.lengths, strict=True)):
        assert cross.attentions[-1][i].shape == (H, t, s)
        torch.testing.assert_close(cross.attentions[0][i].sum(-1), torch.ones(H, t))
        assert trace.attentions[1][i].triu(1).abs().max() == 0
    torch.testing.assert_close(trace.hidden_states[LAYERS], out)
    (out * torch.randn_like(out)).sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in decoder.parameters())


def test_bf16_is_near_fp32():
    decoder = randomised(Decoder(config()))
    memory, y = rows(SOURCES, 1), rows(TARGETS, 2)
    exact = decoder(y, TARGETS, memory, SOURCES)
    rough = decoder.bfloat16()(y.bfloat16(), TARGETS, memory.bfloat16(), SOURCES)
    assert rough.dtype == torch.bfloat16
    assert float((exact - rough.float()).detach().abs().mean()) < 0.05
