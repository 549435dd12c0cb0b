"""Both halves of CLIP against transformers': vectors, logits, gradients, folders both ways, zero-shot classification."""

import copy
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.shaken import shaken

import glassformer as gf
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.cli.app import main
from glassformer.errors import CheckpointError, ConfigError, DataError, NotForThisModelError
from glassformer.families.image_text import load_image_text, save_image_text, to_hub
from glassformer.models.image_text import end_rows
from glassformer.nn import Trace
from glassformer.packing import Packing, pack
from glassformer.tasks.zero_shot import PHOTO_TEMPLATE

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
DRAWS = pytest.mark.parametrize("draw", range(12))
LENGTHS = (7, 3, 11, 2)  # tokens of each text
START, END = "<|startoftext|>", "<|endoftext|>"


def settings_of(draw: int) -> dict:
    rng = random.Random(draw)
    heads, others, patch, grid = (rng.choice((2, 3, 5)) for _ in range(4))
    acts = ("quick_gelu", "gelu", "relu", "gelu_new")
    shared = {"layer_norm_eps": rng.choice((1e-5, 1e-6)), "attention_dropout": 0.1 * (draw % 2)}
    vision = {
        "hidden_size": heads * rng.choice((3, 5, 7)),
        "num_attention_heads": heads,
        "num_hidden_layers": rng.choice((1, 2)),
        "intermediate_size": rng.choice((31, 47)),
        "image_size": patch * grid,
        "patch_size": patch,
        "hidden_act": rng.choice(acts),
        "num_channels": rng.choice((1, 3)),
    }
    text = {
        "hidden_size": others * rng.choice((3, 5, 7)),
        "num_attention_heads": others,
        "num_hidden_layers": rng.choice((1, 3)),
        "intermediate_size": rng.choice((29, 41)),
        "vocab_size": 43,
        "max_position_embeddings": rng.choice((11, 13)),
        "hidden_act": rng.choice(acts),
        "eos_token_id": 2 if draw % 2 else 37,
        "bos_token_id": 36,
        "pad_token_id": 1,
    }
    return {
        "vision_config": vision | shared,
        "text_config": text | shared,
        "projection_dim": rng.choice((7, 13)),
    }


def peer_of(draw: int):
    """A random CLIPModel; every weight is moved off what it begins with."""
    config = transformers.CLIPConfig(**settings_of(draw))
    config.text_config._attn_implementation = config.vision_config._attn_implementation = "eager"
    torch.manual_seed(draw)
    return shaken(transformers.CLIPModel(config), 0.2)


def inputs_of(peer, draw: int):
    """Images, and padded texts with their mask; the second text has a second end, or a higher id before its end."""
    generator, c = torch.Generator().manual_seed(draw), peer.config
    size = c.vision_config.image_size
    pixels = torch.randn(3, c.vision_config.num_channels, size, size, generator=generator)
    ids = torch.full((len(LENGTHS), max(LENGTHS)), 1)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(LENGTHS):
        ids[row, :length] = torch.randint(3, 36, (length,), generator=generator)
        ids[row, length - 1], mask[row, :length] = 37, 1
    ids[1, 1] = 37 if c.text_config.eos_token_id == 37 else 38
    return pixels, ids, mask


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference, divided by the larger of 1 and the numbers themselves."""
    assert a.shape == b.shape
    return float((a - b).detach().abs().max() / max(1.0, float(b.detach().abs().max())))


@DRAWS
def test_vectors_logits_gradients_and_folders_both_ways(draw, tmp_path):
    peer = peer_of(draw)
    peer.save_pretrained(tmp_path / "theirs")
    model = load_image_text(tmp_path / "theirs")
    assert not model.training
    pixels, ids, mask = inputs_of(peer, draw)
    theirs = peer(pixel_values=pixels, input_ids=ids, attention_mask=mask)
    images, texts, logits = (
        model.image_vectors(pixels),
        model.text_vectors(ids, mask),
        model(pixels, ids, mask),
    )
    assert distance(images, theirs.image_embeds) <= 1e-5
    assert distance(texts, theirs.text_embeds) <= 1e-5
    assert distance(logits, theirs.logits_per_image) <= 1e-5

    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(3))
    (logits * weights).sum().backward()
    (theirs.logits_per_image * weights).sum().backward()
    gradients = to_hub({name: p.grad for name, p in model.named_parameters()}, model.config)
    for name, p in peer.named_parameters():
        if not name.endswith("k_proj.bias"):  # 0 but for rounding
            assert distance(gradients[name], p.grad) <= 1e-4, name

    save_image_text(model, tmp_path / "ours")
    again, info = transformers.CLIPModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    before, after = (read_tensors(tmp_path / side) for side in ("theirs", "ours"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert load_image_text(tmp_path / "ours").config == model.config
    with torch.no_grad():
        found = again.eval()(pixel_values=pixels, input_ids=ids, attention_mask=mask).logits_per_image
    assert distance(found, theirs.logits_per_image) <= 1e-5


def siglip_of(draw: int):
    """A random SiglipModel, and padded texts: the padding is read, the last token is pooled."""
    halves = settings_of(draw)
    vision, text = (halves[f"{half}_config"] for half in ("vision", "text"))
    acts = {"quick_gelu": "gelu_pytorch_tanh"}
    for half in (vision, text):
        half["hidden_act"] = acts.get(half["hidden_act"], half["hidden_act"])
    text["projection_size"] = vision["hidden_size"]
    config = transformers.SiglipConfig(vision_config=vision, text_config=text)
    config.text_config._attn_implementation = config.vision_config._attn_implementation = "eager"
    torch.manual_seed(draw)
    peer = shaken(transformers.SiglipModel(config), 0.2)
    pixels, _, _ = inputs_of(peer, draw)
    length = text["max_position_embeddings"]
    ids = torch.randint(0, 43, (5, length), generator=torch.Generator().manual_seed(draw))
    for row, used in zip(ids, (length, 3, 1, 7, 2), strict=True):
        row[used:] = 1
    return peer, pixels, ids


@DRAWS
def test_siglips_vectors_logits_gradients_and_folders_both_ways(draw, tmp_path):
    peer, pixels, ids = siglip_of(draw)
    peer.save_pretrained(tmp_path / "theirs")
    model = load_image_text(tmp_path / "theirs")
    theirs = peer(pixel_values=pixels, input_ids=ids)
    logits = model(pixels, ids)
    assert distance(model.image_vectors(pixels), theirs.image_embeds) <= 1e-5
    assert distance(model.text_vectors(ids), theirs.text_embeds) <= 1e-5
    assert distance(logits, theirs.logits_per_image) <= 1e-5
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(3))
    (logits * weights).sum().backward()
    (theirs.logits_per_image * weights).sum().backward()
    gradients = to_hub({name: p.grad for name, p in model.named_parameters()}, model.config)
    for name, p in peer.named_parameters():
        if not name.endswith("k_proj.bias"):  # 0 but for rounding
            found = gradients[name]
            assert distance(found, p.grad) <= 1e-4, name

    save_image_text(model, tmp_path / "ours")
    again, info = transformers.SiglipModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    before, after = (read_tensors(tmp_path / side) for side in ("theirs", "ours"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert load_image_text(tmp_path / "ours").config == model.config
    with torch.no_grad():
        found = again.eval()(pixel_values=pixels, input_ids=ids).logits_per_image
    assert distance(found, theirs.logits_per_image) <= 1e-5


@DRAWS
def test_states_and_maps_of_texts(draw, tmp_path):
    peer = peer_of(draw)
    peer.save_pretrained(tmp_path)
    _, ids, _ = inputs_of(peer, draw)
    with torch.no_grad():
        theirs = peer.text_model(ids, output_hidden_states=True, output_attentions=True)
        text = load_image_text(tmp_path).text
        ours = text(ids, trace=Trace(attentions=True, hidden_states=True))
        graph = text.encoder.padded(text.embeddings.padded(ids, torch.ones_like(ids), None), None)
    assert distance(ours.last_hidden_state, theirs.last_hidden_state) <= 1e-5
    assert distance(graph, theirs.last_hidden_state) <= 1e-5
    for i, state in enumerate(theirs.hidden_states):
        assert distance(ours.trace.hidden_states[i], state) <= 1e-5
    for i, maps in enumerate(theirs.attentions):
        assert distance(ours.trace.attentions[i], maps) <= 1e-5


@DRAWS
def test_packed_is_padded_and_bf16_within_its_rounding(draw, tmp_path):
    peer = peer_of(draw)
    peer.save_pretrained(tmp_path)
    model = load_image_text(tmp_path)
    pixels, ids, mask = inputs_of(peer, draw)
    rows, packing = pack([row[: int(n)] for row, n in zip(ids, mask.sum(1), strict=True)])
    half = copy.deepcopy(model)
    half.image.set_compute_dtype(torch.bfloat16)
    half.text.set_compute_dtype(torch.bfloat16)
    with torch.no_grad():
        exact = model(pixels, ids, mask)
        assert distance(model(pixels, rows, packing=packing), exact) <= 1e-6
        rough = half(pixels, ids, mask)
    assert rough.dtype == torch.float32
    assert float((rough - exact).norm() / exact.norm()) < 2**-4


def test_the_row_of_the_end():
    ids, packing = torch.tensor([5, 9, 9, 1, 7, 2, 9, 3, 7]), Packing((4, 5))
    assert end_rows(ids, packing, 9).tolist() == [1, 6]
    assert end_rows(ids, packing, None).tolist() == [1, 6]  # the highest id
    assert end_rows(ids, packing, 7).tolist() == [0, 4]  # without an end the first row, as in transformers


# As openai/clip-vit-base-patch32 and laion/CLIP-ViT-B-32-laion2B-s34B-b79K have it, with small sizes.
SMALL = {"hidden_size": 15, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 23}
PUBLISHED = {
    "architectures": ["CLIPModel"],
    "initializer_factor": 1.0,
    "logit_scale_init_value": 2.6592,
    "model_type": "clip",
    "projection_dim": 11,
    "text_config": {
        "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1, "dropout": 0.0, "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-05, "max_position_embeddings": 77, "model_type": "clip_text_model", "vocab_size": 101, **SMALL,
    },
    "text_config_dict": None,
    "vision_config": {
        "dropout": 0.0, "hidden_act": "quick_gelu", "image_size": 21, "layer_norm_eps": 1e-05,
        "model_type": "clip_vision_model", "patch_size": 7, **SMALL,
    },
    "vision_config_dict": None,
    "torch_dtype": "float32",
}  # fmt: skip


@pytest.fixture
def published(tmp_path) -> Path:
    c = transformers.CLIPConfig(
        **{key: value for key, value in PUBLISHED.items() if not key.endswith(("_dict", "_type", "dtype"))}
    )
    torch.manual_seed(0)
    transformers.CLIPModel(c).save_pretrained(tmp_path)
    buffers = {
        f"{half}_model.embeddings.position_ids": torch.arange(n)[None]
        for half, n in (("text", 77), ("vision", 10))
    }
    write_tensors(tmp_path, read_tensors(tmp_path) | buffers)
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED))
    return tmp_path


def test_the_layout_of_published_files_is_explained(published):
    model = load_image_text(published)
    assert (model.config.end_token, model.config.image.projection) == (None, 11)
    assert model.text.config.encoder.causal
    half = {key: SMALL[key] for key in ("hidden_size", "intermediate_size")}
    twice = PUBLISHED | {
        "text_config": PUBLISHED["text_config"] | {"hidden_size": 999},
        "text_config_dict": half,
    }
    (published / "config.json").write_text(json.dumps(twice))
    assert load_image_text(published).config == model.config
    tensors = read_tensors(published)
    write_tensors(published, tensors | {"text_model.stranger.weight": torch.zeros(3)})
    with pytest.raises(CheckpointError, match=r"unexpected tensors: text_model\.stranger\.weight"):
        load_image_text(published)
    for lacks, name in (
        ("text_projection.weight", "text_projection"),
        ("visual_projection.weight", r"image\.pooling"),
    ):
        write_tensors(published, {key: tensor for key, tensor in tensors.items() if key != lacks})
        with pytest.raises(CheckpointError, match=f"missing tensors: {name}"):
            load_image_text(published)
    write_tensors(published, tensors)
    gf.save_pretrained(gf.load_pretrained(published), published / "image")
    with pytest.raises(CheckpointError, match="'clip_vision_model' does not compare images with texts"):
        load_image_text(published / "image")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"text_config": None}, "'text_config' is missing or not an object"),
        ({"projection_dim": 0}, "projection_dim = 0 is not a size"),
        ({"projection_dim": 7}, r"is \(11, 15\), but config.json requires \(7, 15\)"),
        ({"model_type": "align"}, "model_type 'align' does not compare images with texts"),
        *(
            ({"text_config": PUBLISHED["text_config"] | change}, said)
            for change, said in (
                ({"hidden_act": "mish"}, "hidden_act = 'mish' is not supported"),
                ({"num_attention_heads": 7}, "is not a multiple of num_heads 7"),
                ({"attention_dropout": 1}, "attention_dropout = 1 is not a number from 0 to 1"),
                ({"eos_token_id": 101}, "eos_token_id = 101 is not in the vocabulary of 101 tokens"),
                ({"eos_token_id": [2]}, r"eos_token_id = \[2\] is not a whole number"),
                ({"vocab_size": True}, "vocab_size = True is not a size"),
                ({"max_position_embeddings": 10**9}, "max_position_embeddings = 1000000000 is not a size"),
                ({"num_hidden_layers": 10**6}, "1,000,000 layers, but the weights have only"),
                ({"layer_norm_eps": -1}, "layer_norm_eps = -1 is not a number"),
            )
        ),
    ],
)
def test_settings_that_cannot_be_raise_an_error(change, said, published):
    (published / "config.json").write_text(json.dumps(PUBLISHED | change))
    with pytest.raises(CheckpointError, match=said):
        load_image_text(published)


# --- zero-shot classification ---------------------------------------------------------------------


LABELS = ["tree", "a dog", "cat"]  # in no order
TEMPLATES = ["a photo of a {}.", "art of {}", "{}"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Random weights with CLIP's tokenizer and preprocessor, as transformers saves them."""
    folder = tmp_path_factory.mktemp("clip")
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("p", "h"), ("ph", "o"), ("t", "o</w>"), ("c", "a"), ("ca", "t</w>"), ("o", "f</w>")]
    pieces = [*letters, *(f"{letter}</w>" for letter in letters), *map("".join, merges), START, END]
    tokenizer = transformers.CLIPTokenizer({piece: i for i, piece in enumerate(pieces)}, merges)
    tokenizer.save_pretrained(folder)
    processor = {"size": {"shortest_edge": 21}, "crop_size": {"height": 21, "width": 21}}
    transformers.CLIPImageProcessorPil(**processor).save_pretrained(folder)
    text = PUBLISHED["text_config"] | {"vocab_size": len(pieces), "eos_token_id": len(pieces) - 1}
    config = transformers.CLIPConfig(
        vision_config=PUBLISHED["vision_config"], text_config=text, projection_dim=11
    )
    torch.manual_seed(1)
    shaken(transformers.CLIPModel(config), 0.2).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> list[str]:
    rng, folder, paths = np.random.default_rng(5), tmp_path_factory.mktemp("images"), []
    for i, size in enumerate(((29, 37), (53, 31), (21, 21))):
        paths.append(str(folder / f"{i}.png"))
        Image.fromarray(rng.integers(0, 256, (*size, 3), np.uint8)).save(paths[-1])
    return paths


@pytest.fixture(scope="module")
def clf(folder):
    found = gf.ZeroShotImageClassifier(folder, LABELS)
    found.classifier.set_params(precision="fp32")
    return found


def theirs_of(folder, images, texts):
    """transformers' own model, and what its processors make of images and texts."""
    peer = transformers.CLIPModel.from_pretrained(folder).eval()
    processor = transformers.CLIPImageProcessorPil.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pixels = processor([Image.open(path) for path in images], return_tensors="pt")
    return peer, pixels, tokenizer(texts, padding=True, return_tensors="pt")


def test_probabilities_are_those_of_their_model(folder, images, clf):
    texts = [PHOTO_TEMPLATE.replace("{}", label) for label in LABELS]
    peer, pixels, ids = theirs_of(folder, images, texts)
    with torch.no_grad():
        logits = peer(**pixels, **ids).logits_per_image
    np.testing.assert_allclose(clf.logits(images), logits, atol=1e-5 * float(logits.abs().max()))
    np.testing.assert_allclose(clf.predict_proba(images), logits.softmax(1), atol=1e-5)
    np.testing.assert_allclose(clf.outputs(images).sum(1), 1)
    assert clf.predict(images).tolist() == [LABELS[i] for i in logits.argmax(1)]
    assert clf.decide(clf.outputs(images)).tolist() == clf.predict(images).tolist()
    assert clf.classes_.tolist() == LABELS


@pytest.fixture(scope="module")
def siglip_folder(tmp_path_factory) -> Path:
    """Random weights with SigLIP's pieces and preprocessor, as transformers saves them."""
    library = pytest.importorskip("sentencepiece", reason="trains a model with the package sentencepiece")
    pytest.importorskip("google.protobuf")
    folder = tmp_path_factory.mktemp("siglip")
    lines = [f"a photo of a {word}, {n} {word}s" for n in range(31) for word in ("tree", "dog", "cat", "hat")]
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    with (folder / "spiece.model").open("wb") as file:
        library.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=file, vocab_size=31, minloglevel=2, **ids
        )
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "SiglipTokenizer", "pad_token": "</s>"}'
    )
    size = {"height": 21, "width": 21}
    transformers.SiglipImageProcessorPil(size=size).save_pretrained(folder)
    text = {"vocab_size": 31, "max_position_embeddings": 17, "projection_size": 15, **SMALL}
    config = transformers.SiglipConfig(
        vision_config={"image_size": 21, "patch_size": 7, **SMALL}, text_config=text
    )
    torch.manual_seed(1)
    shaken(transformers.SiglipModel(config), 0.2).save_pretrained(folder)
    return folder


def test_siglip_compares_labels_as_their_model_does(siglip_folder, images, tmp_path, capsys):
    clf = gf.ZeroShotImageClassifier(siglip_folder, LABELS)
    clf.classifier.set_params(precision="fp32")
    peer = transformers.SiglipModel.from_pretrained(siglip_folder).eval()
    processor = transformers.SiglipImageProcessorPil.from_pretrained(siglip_folder)
    tokenizer = transformers.SiglipTokenizer.from_pretrained(siglip_folder)
    pixels = processor([Image.open(path).convert("RGB") for path in images], return_tensors="pt")
    texts = [PHOTO_TEMPLATE.replace("{}", label) for label in LABELS]
    ids = tokenizer(texts, padding="max_length", max_length=17, truncation=True, return_tensors="pt")[
        "input_ids"
    ]
    with torch.no_grad():
        logits = peer(**pixels, input_ids=ids).logits_per_image
    np.testing.assert_allclose(clf.logits(images), logits, atol=1e-5 * float(logits.abs().max()))
    np.testing.assert_allclose(clf.predict_proba(images), logits.softmax(1), atol=1e-5)

    clf.classifier.save(tmp_path / "model")
    again = gf.load(tmp_path / "model")
    columns = [LABELS.index(label) for label in again.classes_]
    np.testing.assert_allclose(again.predict_proba(images), clf.predict_proba(images)[:, columns], atol=1e-6)
    network, pixels = again.model_, torch.zeros(2, 3, 21, 21)
    with torch.no_grad():
        graph = network.padded_logits(network.embeddings.padded(pixels), None)
        assert distance(graph, network(pixels).logits) <= 1e-5
    assert clf.explain(images[0], "cat").target == "cat"
    assert (
        main(["predict", str(siglip_folder), *images, "--labels", ",".join(LABELS), "--precision", "fp32"])
        == 0
    )
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [label for label, *_ in lines] == clf.predict(images).tolist()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"text_config": None}, "'text_config' is missing or not an object"),
        ({"text_config": {"projection_size": 7, **SMALL}}, r"images \(15\) have different widths"),
        ({"text_config": {"hidden_act": "mish", **SMALL}}, "hidden_act = 'mish' is not supported"),
        ({"text_config": {"vocab_size": 59, **SMALL}}, "config.json requires"),
        ({"text_config": {**SMALL, "num_attention_heads": 7}}, "is not a multiple of num_heads 7"),
        ({"model_type": "siglip2"}, "model_type 'siglip2' does not compare images with texts"),
    ],
)
def test_settings_of_siglip_that_cannot_be_raise_an_error(change, said, siglip_folder, tmp_path):
    for file in siglip_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | change))
    with pytest.raises(CheckpointError, match=said):
        load_image_text(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "SiglipTokenizer", "pad_token": "<p>"}'
    )
    with pytest.raises(CheckpointError, match="no padding token '<p>'"):
        gf.ZeroShotImageClassifier(tmp_path, LABELS)


def test_vectors_of_several_templates_are_averaged(folder, images):
    clf = gf.ZeroShotImageClassifier(folder, LABELS, template=TEMPLATES)
    clf.classifier.set_params(precision="fp32")
    texts = [template.replace("{}", label) for label in LABELS for template in TEMPLATES]
    peer, pixels, ids = theirs_of(folder, images, texts)
    with torch.no_grad():
        out = peer(**pixels, **ids)
        means = out.text_embeds.view(3, 3, -1).mean(1)
        means = means / means.norm(dim=1, keepdim=True)
        logits = peer.logit_scale.exp() * out.image_embeds @ means.T
    np.testing.assert_allclose(clf.predict_proba(images), logits.softmax(1), atol=1e-5)


def test_it_is_saved_and_explained_as_an_ordinary_classifier(clf, images, tmp_path):
    clf.classifier.save(tmp_path / "model")
    again = gf.load(tmp_path / "model")
    assert again.classes_.tolist() == sorted(LABELS)
    assert again.model_.config == clf.classifier.model_.config
    columns = [LABELS.index(label) for label in again.classes_]
    np.testing.assert_allclose(again.predict_proba(images), clf.predict_proba(images)[:, columns], atol=1e-6)
    e = clf.explain(images[0], "cat")
    assert (e.method, e.target) == ("decomposition", "cat")
    assert clf.explain(images[0]).target == clf.predict(images[:1])[0]
    vectors = again.embed(images)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    new = gf.load_pretrained(tmp_path / "model", "classification", num_labels=5)  # another head and pooling
    assert new.config.projection is None
    with torch.no_grad():
        graph = again.model_.padded_logits(again.model_.embeddings.padded(torch.zeros(2, 3, 21, 21)), None)
        assert distance(graph, again.model_(torch.zeros(2, 3, 21, 21)).logits) <= 1e-5


def test_from_the_command_line(clf, folder, images, tmp_path, capsys):
    given = ["--labels", ",".join(LABELS), "--precision", "fp32"]
    assert main(["predict", str(folder), *images, *given]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [label for label, *_ in lines] == clf.predict(images).tolist()
    out = ["--template", "{}", "--out", str(tmp_path / "out.csv")]
    assert main(["predict", str(folder), str(Path(images[0]).parent), *given, *out]) == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 4
    capsys.readouterr()
    assert main(["predict", str(folder), images[0]]) == 2
    assert "ZeroShotImageClassifier(path, labels)" in capsys.readouterr().err


def test_what_does_not_fit_raises_an_error(folder, published):
    with pytest.raises(NotForThisModelError, match="Give two labels or more"):
        gf.ZeroShotImageClassifier(folder, ["cat"])
    with pytest.raises(DataError, match="two classes are called 'cat'"):
        gf.ZeroShotImageClassifier(folder, ["cat", "cat"])
    for wrong in ("no place", ["{}", "{} and {}"]):
        with pytest.raises(ConfigError, match="for the label"):
            gf.ZeroShotImageClassifier(folder, LABELS, template=wrong)
    with pytest.raises(ConfigError, match="no template"):
        gf.ZeroShotImageClassifier(folder, LABELS, template=[])
    with pytest.raises(ConfigError, match="no list of labels"):
        gf.ZeroShotImageClassifier(folder, "cat")
    with pytest.raises(CheckpointError, match=r"contains no tokenizer\.json"):
        gf.ZeroShotImageClassifier(published, LABELS)
    (published / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    with pytest.raises(CheckpointError, match=r"preprocessor_config\.json"):
        gf.ZeroShotImageClassifier(published, LABELS)
    (published / "config.json").write_text(json.dumps({"model_type": "clip_text_model", **SMALL}))
    with pytest.raises(CheckpointError, match="can only be loaded together with its image encoder"):
        gf.load_pretrained(published)


def test_texts_longer_than_the_model_reads_are_truncated(folder):
    long = [f"{'very ' * 99}{label}" for label in LABELS]
    assert gf.ZeroShotImageClassifier(folder, long).classes_.tolist() == long


def test_only_first_norm_pooling_projects(folder):
    config = load_image_text(folder).image.config
    assert replace(config, pooling="mean").projection is None
    with pytest.raises(ConfigError, match="mean pooling have no projection"):
        replace(load_image_text(folder).config, image=replace(config, pooling="mean"))
