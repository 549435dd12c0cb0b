"""DINOv2, without and with registers, against transformers': states, maps, logits, gradients, folders both ways."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.checkpoints.tensors import read_tensors
from glassformer.errors import CheckpointError
from glassformer.families import family_of
from glassformer.families.dinov2 import dinov2
from glassformer.inputs.images import load_transform
from glassformer.models.image import ImageEncoder
from glassformer.nn import Trace

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
KINDS = {"dinov2": "Dinov2", "dinov2_with_registers": "Dinov2WithRegisters"}
EACH = pytest.mark.parametrize("kind", KINDS)
CASES = pytest.mark.parametrize(("kind", "draw"), [(kind, draw) for kind in KINDS for draw in range(11)])
FEW = pytest.mark.parametrize(("kind", "draw"), [(kind, draw) for kind in KINDS for draw in range(4)])


def peer_of(kind: str, draw: int, ending: str = "Model", **extra):
    """A random model of transformers; scales, biases, norms and registers are moved off what they begin with."""
    rng = random.Random(f"{kind} {draw}")
    heads, patch = rng.choice((2, 3, 5, 7)), rng.choice((2, 3, 5))
    more = {"num_register_tokens": rng.choice((1, 3, 5))} if "registers" in kind else {}
    config = transformers.CONFIG_MAPPING[kind](
        hidden_size=heads * rng.choice((3, 5, 7)),
        num_attention_heads=heads,
        num_hidden_layers=rng.choice((1, 2, 3)),
        mlp_ratio=rng.choice((1, 2, 3)),
        image_size=patch * rng.choice((3, 5)) + rng.choice((0, 1)),
        patch_size=patch,
        num_channels=rng.choice((1, 3)),
        layer_norm_eps=rng.choice((1e-6, 1e-5)),
        qkv_bias=draw % 3 > 0,
        use_swiglu_ffn=draw % 2 > 0,
        layerscale_value=rng.choice((1.0, 0.1)),
        drop_path_rate=0.1 * (draw % 2),
        hidden_act=rng.choice(("gelu", "relu")),
        **more,
        **extra,
    )
    config._attn_implementation = "eager"
    torch.manual_seed(draw)
    model = getattr(transformers, KINDS[kind] + ending)(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model


def pictures(config, height: int | None = None, width: int | None = None) -> torch.Tensor:
    shape = (3, config.num_channels, height or config.image_size, width or config.image_size)
    return torch.randn(shape, generator=torch.Generator().manual_seed(7))


def furthest(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference, by the larger of 1 and the numbers themselves."""
    assert a.shape == b.shape
    return float((a - b).detach().abs().max() / max(1.0, float(b.detach().abs().max())))


@CASES
def test_states_and_maps_on_its_own_grid_and_on_others(kind, draw, tmp_path):
    peer = peer_of(kind, draw)
    peer.save_pretrained(tmp_path)
    model = gf.load_pretrained(tmp_path)
    side, patch = peer.config.image_size, peer.config.patch_size
    for sizes in ((side, side), (7 * patch + 1, 2 * patch), (patch, 11 * patch)):
        x = pictures(peer.config, *sizes)
        with torch.no_grad():
            theirs = peer(x, output_hidden_states=True, output_attentions=True)
            ours = model(x, trace=Trace(attentions=True, hidden_states=True))
            assert furthest(ours.last_hidden_state, theirs.last_hidden_state) <= 1e-5
            for i, state in enumerate(theirs.hidden_states):
                assert furthest(ours.trace.hidden_states[i], state) <= 1e-5
            for i, maps in enumerate(theirs.attentions):
                assert furthest(ours.trace.attentions[i], maps) <= 1e-5
            if sizes[0] == sizes[1]:
                continue
            at_size = model.at_size(sizes)(x).last_hidden_state  # the table read on this grid once
            assert furthest(at_size, theirs.last_hidden_state) <= 1e-5


@CASES
def test_classifiers_both_ways(kind, draw, tmp_path):
    peer = peer_of(kind, draw, "ForImageClassification", num_labels=7)
    peer.save_pretrained(tmp_path / "theirs")
    model, x = gf.load_pretrained(tmp_path / "theirs"), pictures(peer.config)
    assert model.config.pooling == "first-mean"
    ours, theirs = model(x).logits, peer(x).logits
    assert furthest(ours, theirs) <= 1e-5
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(3))
    (ours * weights).sum().backward()
    (theirs * weights).sum().backward()
    body = getattr(peer, kind)
    pairs = [
        (model.embeddings.positions.grad, body.embeddings.position_embeddings.grad[0]),
        (model.embeddings.cls.grad, body.embeddings.cls_token.grad[0, 0]),
        (model.encoder.layers[0].scale1.weight.grad, body.encoder.layer[0].layer_scale1.lambda1.grad),
        (model.encoder.layers[0].scale2.weight.grad, body.encoder.layer[0].layer_scale2.lambda1.grad),
        (model.head.out.weight.grad, peer.classifier.weight.grad),
    ]
    if "registers" in kind:
        pairs.append((model.embeddings.registers.grad, body.embeddings.register_tokens.grad[0]))
    for mine, other in pairs:
        assert mine.shape == other.shape
        assert float((mine - other).abs().max() / other.abs().max()) <= 1e-4

    with torch.no_grad():
        assert furthest(model(x, packed=True).logits, theirs) <= 1e-5
        several = [x[0], pictures(peer.config, 3 * peer.config.patch_size)[1]]
        packed = model(several).logits
        assert furthest(packed[:1], peer(x[:1]).logits) <= 1e-5
        assert furthest(packed[1:], peer(several[1][None]).logits) <= 1e-5
        graph = model.answer_padded(model.embeddings.padded(x), None)
        assert furthest(graph, theirs) <= 1e-5
        assert furthest(model.classify(model.features(x)), theirs) <= 1e-5
    gf.save_pretrained(model, tmp_path / "ours")
    again, info = transformers.AutoModelForImageClassification.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert type(again) is type(peer)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        assert furthest(again.eval()(x).logits, theirs) <= 1e-5
    before, after = (read_tensors(tmp_path / side) for side in ("theirs", "ours"))
    assert before.keys() <= after.keys()
    assert {key.rpartition(".")[2] for key in after.keys() - before.keys()} <= {
        "bias"
    }  # of queries and so on
    for key in before:
        assert torch.equal(before[key], after[key]) or key.endswith("mask_token"), key
    said, wrote = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("theirs", "ours"))
    for key in (
        "mlp_ratio",
        "image_size",
        "patch_size",
        "use_swiglu_ffn",
        "layerscale_value",
        "layer_norm_eps",
    ):
        assert wrote[key] == said[key], key


@FEW
def test_the_encoder_alone_and_heads_of_ours(kind, draw, tmp_path):
    peer = peer_of(kind, draw)
    peer.save_pretrained(tmp_path / "theirs")
    model, x = gf.load_pretrained(tmp_path / "theirs"), pictures(peer.config)
    new = gf.load_pretrained(tmp_path / "theirs", "classification", num_labels=5)
    assert new.config.pooling == "first-mean"
    for i, one in enumerate(
        (model, new, model.with_head(head="classification", pooling="mean", num_labels=3))
    ):
        gf.save_pretrained(one, tmp_path / f"ours-{i}")
        again = transformers.AutoModel.from_pretrained(tmp_path / f"ours-{i}").eval()
        read = gf.load_pretrained(tmp_path / f"ours-{i}")
        assert read.config == one.config
        with torch.no_grad():
            assert furthest(again(x).last_hidden_state, peer(x).last_hidden_state) <= 1e-5
            if one.head is not None:
                assert torch.equal(read(x).logits, one.eval()(x).logits)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"image_size": [23, 46]}, "whose positions are no square"),
        ({"use_swiglu_ffn": 1}, "use_swiglu_ffn = 1 is no truth value"),
        ({"hidden_act": "silu"}, "hidden_act = 'silu' is not supported"),
        ({"layerscale_value": -1.0}, "layerscale_value = -1.0 is no number"),
        ({"num_register_tokens": 0}, "num_register_tokens = 0 is no size"),
    ],
)
def test_settings_that_cannot_be_are_refused(change, said, tmp_path):
    gf.save_pretrained(ImageEncoder(dinov2((23, 23), (3, 3), 14, 1, 2, 28, registers=3)), tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(CheckpointError, match=said):
        gf.load_pretrained(tmp_path)


def test_what_the_layout_cannot_express_is_kept_in_ours():
    fits = dinov2((23, 23), (3, 3), 14, 1, 2, 28)
    assert family_of(fits).model_type == "dinov2"
    assert (
        family_of(dinov2((23, 23), (3, 3), 14, 1, 2, 28, registers=3)).model_type == "dinov2_with_registers"
    )
    for config in (dinov2((23, 23), (3, 3), 14, 1, 2, 29), dinov2((23, 29), (3, 3), 14, 1, 2, 28)):
        assert family_of(config).model_type == "glassformer-image"


def test_real_weights(weights_root):
    folder = weights_root / "dinov2-small-saliency"
    peer = transformers.Dinov2Model.from_pretrained(folder, attn_implementation="eager").eval()
    model = gf.load_pretrained(folder)
    for sizes in ((224, 224), (98, 140)):
        x = torch.randn(2, 3, *sizes, generator=torch.Generator().manual_seed(7))
        with torch.no_grad():
            theirs = peer(x, output_hidden_states=True, output_attentions=True)
            ours = model(x, trace=Trace(attentions=True, hidden_states=True))
        assert float((ours.last_hidden_state - theirs.last_hidden_state).abs().max()) <= 1e-4
        for i, state in enumerate(theirs.hidden_states):
            assert float((ours.trace.hidden_states[i] - state).abs().max()) <= 1e-4
        for i, maps in enumerate(theirs.attentions):
            assert float((ours.trace.attentions[i] - maps).abs().max()) <= 1e-4


@pytest.mark.parametrize("size", [(307, 211), (131, 389), (256, 256), (1021, 769)])
def test_pixels_of_the_real_folder_s_own_processor(size, weights_root):
    pil = pytest.importorskip("PIL.Image")
    folder = weights_root / "dinov2-small-saliency"
    rng = np.random.default_rng(size[0])
    image = pil.fromarray(rng.integers(0, 256, (*size[::-1], 3), dtype=np.uint8))
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    theirs = processor(image, return_tensors="pt")["pixel_values"][0]
    transform = load_transform(folder)
    ours = transform.normalize(torch.from_numpy(transform.picture(image))[None])[0]
    assert ours.shape == theirs.shape == (3, 224, 224)
    assert float((ours - theirs).abs().max()) <= 1e-6
