"""Image families against transformers': equal states, maps, logits and gradients, folders both ways, other sizes."""

import json
import random
from typing import Any

import numpy as np
import pytest
import torch
from tests.shaken import shaken

import glassformer as gf
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.errors import CheckpointError
from glassformer.families import FAMILIES, family_of
from glassformer.families.dinov2 import dinov2
from glassformer.inputs.images import load_transform, save_transform
from glassformer.models.image import ImageEncoder
from glassformer.nn import Trace

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
KINDS = {
    "vit": "ViT",
    "dinov2": "Dinov2",
    "dinov2_with_registers": "Dinov2WithRegisters",
    "deit": "DeiT",
    "siglip": "Siglip",
    "clip": "CLIP",
}
# Of a pair with texts: the encoder has its own model_type, the classifier that of the pair.
HALVES = ("siglip", "clip")
ASKED = ("vit", "deit", *HALVES)  # transformers interpolates the positions of others only
KEY_BIAS = ("key.bias", "k_proj.bias")  # its gradient is 0 but for rounding
CASES = pytest.mark.parametrize(("kind", "draw"), [(kind, draw) for kind in KINDS for draw in range(10)])
FEW = pytest.mark.parametrize(("kind", "draw"), [(kind, draw) for kind in KINDS for draw in range(4)])


def sizes_of(kind: str, draw: int) -> dict[str, Any]:
    rng = random.Random(f"{kind} {draw}")
    heads, patch, grid = rng.choice((2, 3, 5, 7)), rng.choice((2, 3, 5)), rng.choice((3, 5))
    shared = {
        "hidden_size": heads * rng.choice((3, 5, 7)),
        "num_attention_heads": heads,
        "num_hidden_layers": rng.choice((1, 2, 3)),
        "image_size": patch * grid + rng.choice((0, 1)),
        "patch_size": patch,
        "num_channels": rng.choice((1, 3)),
        "layer_norm_eps": rng.choice((1e-6, 1e-5)),
        "qkv_bias": draw % 3 > 0,
        "hidden_act": rng.choice(("gelu", "relu")),
    }
    if kind in HALVES:
        del shared["qkv_bias"]
        own = {"vision_use_head": draw % 3 > 0} if kind == "siglip" else {"initializer_range": 0.03}
        acts = ("gelu", "relu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu")
        return {
            **shared,
            **own,
            "intermediate_size": rng.choice((31, 47)),
            "hidden_act": "quick_gelu" if kind == "clip" and draw % 2 else rng.choice(acts),
            "attention_dropout": 0.1 * (draw % 2),
        }
    if kind in ("vit", "deit"):
        if draw % 2:  # one number for both sides where one is enough, as the Hub's files have it
            shared |= {"image_size": (shared["image_size"], 29), "patch_size": (patch, 7)}
        act = {"hidden_act": rng.choice(("gelu", "relu", "gelu_new", "gelu_pytorch_tanh"))}
        return shared | act | {"intermediate_size": rng.choice((31, 47)), "layer_norm_eps": 1e-12}
    more = {"num_register_tokens": rng.choice((1, 3, 5))} if "registers" in kind else {}
    own = {
        "mlp_ratio": rng.choice((1, 2, 3)),
        "use_swiglu_ffn": draw % 2 > 0,
        "layerscale_value": rng.choice((1.0, 0.1)),
        "drop_path_rate": 0.1 * (draw % 2),
    }
    return shared | more | own


def peer_of(kind: str, draw: int, ending: str = "Model", **extra):
    """A random model of transformers; scales, biases, norms and registers are moved off what they begin with."""
    if kind in HALVES and ending == "Model":
        kind, ending = f"{kind}_vision_model", "VisionModel"
    sizes = sizes_of(kind.removesuffix("_vision_model"), draw)
    sizes = {"vision_config": sizes} if kind in HALVES else sizes
    config = transformers.CONFIG_MAPPING[kind](**sizes, **extra)
    config._attn_implementation = "eager"
    torch.manual_seed(draw)
    pooler = {"add_pooling_layer": draw % 4 < 2} if kind in ("vit", "deit") and ending == "Model" else {}
    model = getattr(transformers, KINDS[kind.removesuffix("_vision_model")] + ending)(config, **pooler)
    return shaken(model, 0.2)


def of_images(settings: Any) -> Any:
    """The part of a config, or of its file, that is about images."""
    if isinstance(settings, dict):
        return settings.get("vision_config", settings)
    return getattr(settings, "vision_config", settings)


def pictures(config, height: int | None = None, width: int | None = None) -> torch.Tensor:
    config = of_images(config)
    own = config.image_size if isinstance(config.image_size, tuple) else (config.image_size,) * 2
    shape = (3, config.num_channels, height or own[0], width or own[1])
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
    patch, sizes, more = peer.config.patch_size, [(None, None)], {}
    if isinstance(patch, int):  # transformers reads others from square grids only
        sizes += [(7 * patch + 1, 2 * patch), (patch, 11 * patch)]
        more = {"interpolate_pos_encoding": True} if kind in ASKED else {}
    for height, width in sizes:
        x = pictures(peer.config, height, width)
        with torch.no_grad():
            theirs = peer(x, output_hidden_states=True, output_attentions=True, **more)
            ours = model(x, trace=Trace(attentions=True, hidden_states=True))
        assert furthest(ours.last_hidden_state, theirs.last_hidden_state) <= 1e-5
        assert len(ours.trace.hidden_states) == len(theirs.hidden_states)
        for i, state in enumerate(theirs.hidden_states):
            assert furthest(ours.trace.hidden_states[i], state) <= 1e-5
        for i, maps in enumerate(theirs.attentions):
            assert furthest(ours.trace.attentions[i], maps) <= 1e-5
        if kind in ASKED and theirs.pooler_output is not None:
            assert furthest(ours.pooler_output, theirs.pooler_output) <= 1e-5
        if height:
            other = model.at_size((height, width)).eval()  # the table read on this grid once
            assert furthest(other(x).last_hidden_state, theirs.last_hidden_state) <= 1e-5
            assert other.config.embedding.grid == (height // patch, width // patch)


TEACHER = "with a teacher"
CLASSIFIERS = [(kind, draw) for kind in (*KINDS, TEACHER) for draw in range(10)]


@pytest.mark.parametrize(("kind", "draw"), CLASSIFIERS)
def test_classifiers_both_ways(kind, draw, tmp_path):
    kind, two_heads = ("deit", True) if kind == TEACHER else (kind, False)
    ending = "ForImageClassification" + ("WithTeacher" if two_heads else "")
    peer = peer_of(kind, draw, ending, num_labels=7)
    peer.save_pretrained(tmp_path / "theirs")
    model, x = gf.load_pretrained(tmp_path / "theirs"), pictures(peer.config)
    assert model.config.pooling == ("first-two" if two_heads else FAMILIES[kind].hub.pooling)
    ours, theirs = model(x).logits, peer(x).logits
    assert furthest(ours, theirs) <= 1e-5
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(3))
    (ours * weights).sum().backward()
    (theirs * weights).sum().backward()
    learning = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    gradients = FAMILIES[kind].hub.to_hub(learning, True, model.config)
    for name, p in peer.named_parameters():
        if name in gradients and p.grad is not None and not name.endswith(KEY_BIAS):
            # Half of each head, and half of each bias, is in ours.
            share = {"weight": 4, "bias": 2}[name.rpartition(".")[2]] if "_classifier." in name else 1
            assert furthest(gradients[name] / share, p.grad) <= 2e-5, name

    with torch.no_grad():
        assert furthest(model(x, packed=True).logits, theirs) <= 1e-5
        graph = model.padded_logits(model.embeddings.padded(x), None)
        assert furthest(graph, theirs) <= 1e-5
        assert furthest(model.classify(model.features(x)), theirs) <= 1e-5
        if kind not in ("vit", "deit"):
            several = [x[0], pictures(peer.config, 3 * of_images(peer.config).patch_size)[1]]
            packed, more = model(several).logits, {"interpolate_pos_encoding": True} if kind in ASKED else {}
            assert furthest(packed[:1], peer(x[:1]).logits) <= 1e-5
            assert furthest(packed[1:], peer(several[1][None], **more).logits) <= 1e-5
    gf.save_pretrained(model, tmp_path / "ours", label_names=tuple("abcdefg"))
    again, info = transformers.AutoModelForImageClassification.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert type(again) is type(peer)
    assert again.config.id2label == dict(enumerate("abcdefg"))
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        assert furthest(again.eval()(x).logits, theirs) <= 1e-5
    before, after = (read_tensors(tmp_path / side) for side in ("theirs", "ours"))
    before = {key: t for key, t in before.items() if ".head." not in key}  # a pooling that nothing reads
    assert before.keys() <= after.keys()
    more = {key.rpartition(".")[2] for key in after.keys() - before.keys()}
    assert more <= {"bias"}  # of queries and so on
    for key in before:
        unused = key.endswith("mask_token") or (kind == "clip" and "post_layernorm" in key)
        averaged = key.endswith("_classifier.bias")
        assert torch.equal(before[key], after[key]) or unused or averaged, key
    files = (tmp_path / side / "config.json" for side in ("theirs", "ours"))
    said, wrote = (of_images(json.loads(file.read_text())) for file in files)
    not_kept = {
        "qkv_bias",
        "hidden_act",
        "drop_path_rate",
        "vision_use_head",
    }  # of two ratios one gated width can come
    for key in (
        sizes_of(kind, draw).keys() - not_kept - ({"mlp_ratio"} if said.get("use_swiglu_ffn") else set())
    ):
        assert wrote[key] == said[key], key


@FEW
def test_the_encoder_alone_and_heads_of_ours(kind, draw, tmp_path):
    peer = peer_of(kind, draw)
    peer.save_pretrained(tmp_path / "theirs")
    model, x = gf.load_pretrained(tmp_path / "theirs"), pictures(peer.config)
    new = gf.load_pretrained(tmp_path / "theirs", "classification", num_labels=5)
    assert new.config.pooling == FAMILIES[kind].hub.pooling
    own = model.with_head(head="classification", pooling="mean", head_type="mlp", head_hidden=5, num_labels=3)
    for i, one in enumerate((model, new, own)):
        gf.save_pretrained(one, tmp_path / f"ours-{i}")
        opener = transformers.AutoModel
        if kind in HALVES:  # of a classifier too, which names the pair
            opener = getattr(transformers, f"{KINDS[kind]}VisionModel")
        again = opener.from_pretrained(tmp_path / f"ours-{i}").eval()
        read = gf.load_pretrained(tmp_path / f"ours-{i}")
        assert read.config == one.config
        with torch.no_grad():
            assert furthest(again(x).last_hidden_state, peer(x).last_hidden_state) <= 1e-5
            if one.head is not None:
                assert torch.equal(read(x).logits, one.eval()(x).logits)


@pytest.mark.parametrize(
    ("kind", "draw"),
    [
        (kind, draw)
        for kind in HALVES
        for draw in range(15)
        if sizes_of(kind, draw).get("vision_use_head", True)
    ],
)
def test_what_an_encoder_pools_and_its_gradients(kind, draw, tmp_path):
    peer = peer_of(kind, draw)
    peer.save_pretrained(tmp_path / "theirs")
    model, x = gf.load_pretrained(tmp_path / "theirs"), pictures(peer.config)
    pooling = {"siglip": "multihead", "clip": "first-norm"}[kind]
    assert (model.config.head, model.config.pooling) == (None, pooling)
    ours, theirs = model(x).pooler_output, peer(x).pooler_output
    assert furthest(ours, theirs) <= 1e-5
    assert furthest(model.pooling.padded(model(x).last_hidden_state, None), theirs) <= 1e-5
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(3))
    (ours * weights).sum().backward()
    (theirs * weights).sum().backward()
    learning = {name: p.grad for name, p in model.named_parameters()}
    gradients = FAMILIES[kind].hub.to_hub(learning, False, model.config)
    for name, p in peer.named_parameters():
        if not name.endswith(KEY_BIAS):
            assert furthest(gradients[name], p.grad) <= 2e-5, name
    gf.save_pretrained(model, tmp_path / "ours")
    before, after = (read_tensors(tmp_path / side) for side in ("theirs", "ours"))
    assert before.keys() == after.keys()
    again = transformers.AutoModel.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        assert furthest(again(x).pooler_output, theirs) <= 1e-5


@pytest.mark.parametrize("kind", HALVES)
def test_of_both_halves_the_one_for_images_opens(kind, tmp_path):
    """As published: with texts, buffers, and hardly a setting."""
    small = {key: value for key, value in sizes_of(kind, 1).items() if key != "layer_norm_eps"}
    texts = {"hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 1, "vocab_size": 31}
    config = transformers.CONFIG_MAPPING[kind](vision_config=small, text_config=texts)
    whole = shaken(getattr(transformers, KINDS[kind] + "Model")(config), 0.2)
    whole.save_pretrained(tmp_path)
    buffers = {f"{half}_model.embeddings.position_ids": torch.arange(9)[None] for half in ("text", "vision")}
    write_tensors(tmp_path, read_tensors(tmp_path) | buffers)
    file = tmp_path / "config.json"
    settings = {"model_type": kind, "architectures": [KINDS[kind] + "Model"], "vision_config": small}
    file.write_text(json.dumps(settings))
    model, x = gf.load_pretrained(tmp_path), pictures(config)
    with torch.no_grad():
        theirs = whole.vision_model(x)
        assert furthest(model(x).last_hidden_state, theirs.last_hidden_state) <= 1e-5
        assert furthest(model(x).pooler_output, theirs.pooler_output) <= 1e-5
    new = gf.load_pretrained(tmp_path, "classification", num_labels=3)
    assert new.config.pooling == FAMILIES[kind].hub.pooling
    if kind == "clip":  # old files have the settings twice
        short = {"patch_size": small["patch_size"]}
        twice = {"vision_config": small | {"patch_size": 999}, "vision_config_dict": short}
        file.write_text(json.dumps(settings | twice))
        assert gf.load_pretrained(tmp_path).config == model.config
    del settings["vision_config"]
    file.write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match="'vision_config' is missing"):
        gf.load_pretrained(tmp_path)


@pytest.mark.parametrize("lacks", ["cls_classifier.weight", "distillation_classifier.bias"])
def test_both_heads_of_a_distilled_model_are_there(lacks, tmp_path):
    peer_of("deit", 0, "ForImageClassificationWithTeacher").save_pretrained(tmp_path)
    tensors = read_tensors(tmp_path)
    write_tensors(tmp_path, tensors | {lacks: tensors[lacks][:1]})
    with pytest.raises(CheckpointError, match="have different shapes"):
        gf.load_pretrained(tmp_path)
    del tensors[lacks]
    write_tensors(tmp_path, tensors)
    with pytest.raises(CheckpointError, match=f"missing tensors: {lacks}"):
        gf.load_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("deit", {"pooler_act": "relu"}, "pooler_act = 'relu' is not supported"),
        ("deit", {"image_size": [8, 0]}, r"image_size = \[8, 0\] is not a size"),
        ("deit", {"hidden_act": "mish"}, "hidden_act = 'mish' is not supported"),
        ("deit", {"hidden_dropout_prob": 1.0}, "hidden_dropout_prob = 1.0 is not a number from 0 to 1"),
        ("dinov2_with_registers", {"image_size": [23, 46]}, "have a grid that is not square"),
        ("dinov2_with_registers", {"use_swiglu_ffn": 1}, "use_swiglu_ffn = 1 is neither true nor false"),
        ("dinov2_with_registers", {"hidden_act": "mish"}, "hidden_act = 'mish' is not supported"),
        ("dinov2_with_registers", {"layerscale_value": -1.0}, "layerscale_value = -1.0 is not a number"),
        ("dinov2_with_registers", {"num_register_tokens": 0}, "num_register_tokens = 0 is not a size"),
        *(
            (kind, change, said)
            for kind in HALVES
            for change, said in (
                ({"image_size": [8, 16]}, "have a grid that is not square"),
                ({"hidden_act": "mish"}, "hidden_act = 'mish' is not supported"),
                ({"hidden_act": None}, "hidden_act = None is not supported"),
                ({"num_attention_heads": 5}, "is not a multiple of num_heads 5"),
                ({"attention_dropout": 1}, "attention_dropout = 1 is not a number from 0 to 1"),
                ({"num_channels": 0}, "num_channels = 0 is not a size"),
                ({"intermediate_size": 2.5}, "intermediate_size = 2.5 is not a size"),
                ({"layer_norm_eps": -1}, "layer_norm_eps = -1 is not a number"),
                ({"patch_size": [4]}, r"patch_size = \[4\] is not a size"),
            )
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(kind, change, said, tmp_path):
    gf.save_pretrained(ImageEncoder(FAMILIES[kind].tiny()), tmp_path)
    file = tmp_path / "config.json"
    settings = json.loads(file.read_text())
    of_images(settings).update(change)
    file.write_text(json.dumps(settings))
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


def test_the_layout_of_published_vits(tmp_path):
    """As in21k has it: no head, a pooler, no prefix."""
    config = transformers.ViTConfig(num_hidden_layers=1)  # every other number is that of ViT-B/16
    transformers.ViTModel(config).save_pretrained(tmp_path)
    model = gf.load_pretrained(tmp_path, head="classification", num_labels=10)
    assert model.config.pooling == "first"
    assert "new (random): classification head" in model.weights_source
    with torch.no_grad():
        out = model(torch.zeros(1, 3, 224, 224))
    assert (out.last_hidden_state.shape, out.logits.shape) == ((1, 197, 768), (1, 10))


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
@pytest.mark.parametrize("kind", ["the real folder's", "Siglip", "CLIP", "DeiT"])
def test_pixels_of_their_processors(kind, size, tmp_path, request):
    pil = pytest.importorskip("PIL.Image")
    if kind == "the real folder's":
        folder = request.getfixturevalue("weights_root") / "dinov2-small-saliency"
    else:  # as published: with what is the default
        folder = tmp_path
        getattr(transformers, f"{kind}ImageProcessorPil")().save_pretrained(folder)
    rng = np.random.default_rng(size[0])
    image = pil.fromarray(rng.integers(0, 256, (*size[::-1], 3), dtype=np.uint8))
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    theirs = processor(image, return_tensors="pt")["pixel_values"][0]
    transform = load_transform(folder)
    ours = transform.normalize(torch.from_numpy(transform.read(image))[None])[0]
    assert ours.shape == theirs.shape == (3, 224, 224)
    assert float((ours - theirs).abs().max()) <= 1e-6
    save_transform(transform, tmp_path)
    assert load_transform(tmp_path) == transform
    again = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    assert torch.equal(again(image, return_tensors="pt")["pixel_values"][0], theirs)
