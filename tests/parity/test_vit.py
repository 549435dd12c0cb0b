"""ViT against transformers: hidden states, maps, logits, gradients, folders both ways, other resolutions."""

from __future__ import annotations

import json

import pytest
import torch
import transformers

import glassformer as gf
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.errors import CheckpointError, ShapeError
from glassformer.families.vit import vit_base
from glassformer.models.image import ImageEncoder as ViT
from glassformer.nn import Trace

# image, patch, channels, D, layers, heads, d_ff, activation, eps, pooler
CONFIGS = [
    ((23, 19), (5, 3), 3, 33, 2, 3, 47, "gelu", 1e-12, True),
    ((13, 29), (3, 7), 1, 26, 3, 2, 53, "gelu_new", 1e-6, False),
    ((17, 17), (5, 5), 2, 35, 1, 5, 31, "relu", 1e-12, True),
    ((31, 11), (7, 2), 3, 14, 5, 7, 17, "gelu", 1e-5, False),
    ((7, 37), (7, 3), 5, 22, 2, 11, 43, "gelu", 1e-12, True),
    ((19, 19), (2, 2), 3, 38, 2, 2, 59, "gelu_pytorch_tanh", 1e-12, False),
    ((29, 23), (11, 5), 3, 39, 3, 13, 61, "gelu", 1e-12, True),
    ((11, 13), (11, 13), 2, 34, 2, 17, 37, "relu", 1e-7, False),
    ((41, 5), (3, 5), 3, 21, 4, 3, 41, "gelu", 1e-12, True),
]
TOLERANCE = 1e-5


def peer_config(sizes, **more):
    image, patch, channels, d, layers, heads, d_ff, activation, eps, _ = sizes
    if image[0] == image[1]:
        image, patch = image[0], patch[0]  # one number where one is enough, as the Hub's files have it
    return transformers.ViTConfig(
        image_size=image,
        patch_size=patch,
        num_channels=channels,
        hidden_size=d,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=d_ff,
        hidden_act=activation,
        layer_norm_eps=eps,
        attn_implementation="eager",
        **more,
    )


def randomise(peer, seed=5):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in peer.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=generator))
    return peer.eval()


def pictures(sizes, count=3):
    return torch.randn(count, sizes[2], *sizes[0], generator=torch.Generator().manual_seed(7))


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("sizes", CONFIGS, ids=lambda s: f"{s[0]}-{s[1]}-{s[7]}")
def test_states_maps_and_pooler(sizes, tmp_path):
    peer = randomise(transformers.ViTModel(peer_config(sizes), add_pooling_layer=sizes[9]))
    peer.save_pretrained(tmp_path)
    model = gf.load_pretrained(tmp_path)
    assert isinstance(model, ViT)
    x = pictures(sizes)
    with torch.no_grad():
        theirs = peer(x, output_hidden_states=True, output_attentions=True)
        ours = model(x, trace=Trace(attentions=True, hidden_states=True))
    close(ours.last_hidden_state, theirs.last_hidden_state)
    assert len(ours.trace.hidden_states) == len(theirs.hidden_states) == sizes[4] + 1
    for i in range(sizes[4] + 1):
        close(ours.trace.hidden_states[i], theirs.hidden_states[i])
    for i in range(sizes[4]):
        close(ours.trace.attentions[i], theirs.attentions[i])
    if sizes[9]:
        close(ours.pooler_output, theirs.pooler_output)
    else:
        assert ours.pooler_output is None


@pytest.mark.parametrize("sizes", CONFIGS, ids=lambda s: f"{s[0]}-{s[1]}-{s[7]}")
def test_classifier_round_trip(sizes, tmp_path):
    peer = randomise(transformers.ViTForImageClassification(peer_config(sizes, num_labels=7)))
    peer.save_pretrained(tmp_path / "theirs")
    model = gf.load_pretrained(tmp_path / "theirs")
    x = pictures(sizes)
    with torch.no_grad():
        ours, theirs = model(x).logits, peer(x).logits
        close(ours, theirs)
        close(model(x, packed=True).logits, theirs)  # the last layer for [CLS] only
    (tmp_path / "ours").mkdir()
    names = tuple("abcdefg")
    gf.save_pretrained(model, tmp_path / "ours", label_names=names)
    again = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "ours").eval()
    assert again.config.id2label == dict(enumerate(names))
    with torch.no_grad():
        close(again(x).logits, theirs)
    saved, given = read_tensors(tmp_path / "ours"), read_tensors(tmp_path / "theirs")
    assert saved.keys() == given.keys()
    assert all(torch.equal(saved[k], given[k]) for k in saved)


def saved_classifier(folder, sizes, labels=3):
    peer = randomise(transformers.ViTForImageClassification(peer_config(sizes, num_labels=labels)))
    peer.save_pretrained(folder)
    return peer, gf.load_pretrained(folder)


def test_gradients(tmp_path):
    peer, model = saved_classifier(tmp_path, CONFIGS[0])
    x = pictures(CONFIGS[0])
    ours, theirs = model(x).logits, peer(x).logits
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(3))
    (ours * weights).sum().backward()
    (theirs * weights).sum().backward()
    embeddings = peer.vit.embeddings
    kernel = embeddings.patch_embeddings.projection.weight.grad.flatten(1)
    close(model.embeddings.projection.weight.grad, kernel)
    close(model.embeddings.positions.grad, embeddings.position_embeddings.grad[0])
    close(model.embeddings.cls.grad, embeddings.cls_token.grad[0, 0])


def test_other_resolution(tmp_path):
    """Bicubic positions on another grid, as transformers reads them (there from square grids only)."""
    peer, model = saved_classifier(tmp_path, CONFIGS[2])
    x = torch.randn(2, 2, 31, 23, generator=torch.Generator().manual_seed(11))
    with torch.no_grad():
        theirs = peer(x, interpolate_pos_encoding=True).logits
        close(model(x).logits, theirs)
        close(model.at_size((31, 23))(x).logits, theirs)
    assert model.at_size((31, 23)).config.embedding.num_tokens == 6 * 4 + 1


def test_pooling_and_head_of_ours_beside_their_encoder(tmp_path):
    _, model = saved_classifier(tmp_path, CONFIGS[0])
    ours = model.with_head(pooling="mean", head_type="mlp", head_hidden=5, num_labels=11).eval()
    (tmp_path / "ours").mkdir()
    gf.save_pretrained(ours, tmp_path / "ours")
    x = pictures(CONFIGS[0])
    theirs = transformers.ViTModel.from_pretrained(tmp_path / "ours", add_pooling_layer=False).eval()
    with torch.no_grad():
        close(ours(x).last_hidden_state, theirs(x).last_hidden_state)
        close(gf.load_pretrained(tmp_path / "ours")(x).logits, ours(x).logits)


def test_no_bias_in_queries_is_a_bias_of_0(tmp_path):
    peer = randomise(transformers.ViTModel(peer_config(CONFIGS[0], qkv_bias=False), add_pooling_layer=False))
    peer.save_pretrained(tmp_path)
    x = pictures(CONFIGS[0])
    with torch.no_grad():
        close(gf.load_pretrained(tmp_path)(x).last_hidden_state, peer(x).last_hidden_state)


def test_the_real_layout_has_197_tokens(tmp_path):
    assert vit_base().embedding.num_tokens == 197
    config = transformers.ViTConfig(num_hidden_layers=1)  # every other number is that of ViT-B/16
    transformers.ViTModel(config).save_pretrained(tmp_path)  # as in21k has it: no head, a pooler, no prefix
    model = gf.load_pretrained(tmp_path, head="classification", num_labels=10)
    assert model.config.pooling == "first"
    assert "new (random): classification head" in model.weights_source
    with torch.no_grad():
        out = model(torch.zeros(1, 3, 224, 224))
    assert out.last_hidden_state.shape == (1, 197, 768)
    assert out.logits.shape == (1, 10)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.pop("vit.layernorm.bias"), "missing tensors: encoder.final_norm.bias"),
        (lambda t: t.pop("vit.embeddings.cls_token"), "missing tensors: embeddings.cls"),
        (
            lambda t: t.pop("vit.encoder.layer.1.attention.attention.key.weight"),
            "the key of encoder.layers.1",
        ),
        (lambda t: t.update({"vit.extra.weight": torch.zeros(3)}), "unexplained tensors: vit.extra.weight"),
        (lambda t: t.update({"vit.layernorm.bias": torch.zeros(5)}), r"final_norm.bias is \(5,\)"),
    ],
    ids=["missing", "no cls", "third missing", "extra", "shape"],
)
def test_wrong_tensors_are_named(change, said, tmp_path):
    saved_classifier(tmp_path, CONFIGS[0])
    tensors = read_tensors(tmp_path)
    change(tensors)
    write_tensors(tmp_path, tensors)
    with pytest.raises(CheckpointError, match=said):
        gf.load_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("pooler_act", "relu", "pooler_act = 'relu'"),
        ("image_size", "big", "image_size = 'big'"),
        ("patch_size", [3], r"patch_size = \[3\]"),
        ("hidden_act", "swish", "hidden_act = 'swish'"),
        ("num_channels", 0, "num_channels = 0"),
    ],
)
def test_unsupported_configs(key, value, said, tmp_path):
    saved_classifier(tmp_path, CONFIGS[0])
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    with pytest.raises(CheckpointError, match=said):
        gf.load_pretrained(tmp_path)


def test_wrong_pictures_are_named(tmp_path):
    _, model = saved_classifier(tmp_path, CONFIGS[0])
    for x, said in (
        (torch.zeros(2, 1, 23, 19), "pixel values are \\[B, 3, H, W\\]"),
        (torch.zeros(3, 23, 19), "pixel values are"),
        (torch.zeros(2, 3, 23, 19, dtype=torch.uint8), "torch.uint8"),
        (torch.zeros(2, 3, 4, 19), "smaller than a patch"),
    ):
        with pytest.raises(ShapeError, match=said):
            model(x)
