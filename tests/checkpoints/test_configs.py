"""Configs that come back from a folder as they were, what a Hub's leaves out, and other heads on the same encoder."""

import json
from dataclasses import replace

import pytest
import torch

from glassformer.checkpoints.seq2seq import load_seq2seq
from glassformer.errors import CheckpointError, UnsupportedModelError
from glassformer.families import UNSUPPORTED_FAMILIES
from glassformer.families.bert import bert
from glassformer.families.pretrained import load_pretrained, save_pretrained
from glassformer.families.vit import vit
from glassformer.models.image import ImageEncoder as ViT
from glassformer.models.rnn import Rnn, RnnConfig
from glassformer.models.text import TextEncoder as Bert
from glassformer.models.textcnn import TextCnn, TextCnnConfig
from glassformer.nn.embed import EmbeddingConfig

TEXT = bert(17, 6, 2, 3, 7, 11, init_std=0.05)
TEXT = replace(
    TEXT,
    embedding=replace(TEXT.embedding, segments=5, eps=3e-4, dropout=0.23),
    encoder=replace(TEXT.encoder, activation="relu", eps=3e-4, dropout=0.23, attention_dropout=0.31),
)
PICTURE = vit((11, 13), (5, 3), 6, 2, 3, 7, init_std=0.05)
PICTURE = replace(
    PICTURE,
    embedding=replace(PICTURE.embedding, channels=2, dropout=0.23),
    encoder=replace(PICTURE.encoder, activation="relu", eps=3e-4, dropout=0.23, attention_dropout=0.31),
)
CLASSES = replace(TEXT, head="classification", num_labels=5, head_dropout=0.37)
SEEN = replace(PICTURE, head="classification", num_labels=3)
WORDS = EmbeddingConfig(17, 5, "none", segments=0, norm=False)
CONFIGS = {
    "pooler": (Bert, TEXT),
    "none": (Bert, replace(TEXT, pooling=None)),
    "mean": (Bert, replace(TEXT, pooling="mean")),
    "classes": (Bert, CLASSES),
    "mlp": (Bert, replace(CLASSES, num_labels=3, head_type="mlp", head_hidden=13)),
    "mean classes": (Bert, replace(CLASSES, pooling="mean", num_labels=3)),
    "words": (Bert, replace(TEXT, head="mlm", pooling=None)),
    "pretraining": (Bert, replace(TEXT, head="pretraining")),
    "own": (Bert, replace(TEXT, encoder=replace(TEXT.encoder, norm="pre", final_norm=True))),
    "own eps": (Bert, replace(TEXT, embedding=replace(TEXT.embedding, eps=0.1))),
    "no segments": (Bert, replace(TEXT, embedding=replace(TEXT.embedding, segments=0))),
    "narrow": (Bert, replace(TEXT, embedding=replace(TEXT.embedding, token_width=5))),
    "scaled": (Bert, replace(TEXT, embedding=replace(TEXT.embedding, scale=2.0))),
    "damped": (Bert, replace(TEXT, embedding=replace(TEXT.embedding, damp_repeats=0.5))),
    "final norm": (Bert, replace(TEXT, encoder=replace(TEXT.encoder, final_norm=True))),
    "picture": (ViT, replace(PICTURE, pooling=None)),
    "picture pooler": (ViT, replace(PICTURE, pooling="pooler")),
    "picture classes": (ViT, replace(SEEN, num_labels=5)),
    "picture mean": (ViT, replace(SEEN, pooling="mean", head_dropout=0.37)),
    "picture mlp": (ViT, replace(SEEN, head_type="mlp", head_hidden=13)),
    "sinusoidal": (ViT, replace(PICTURE, embedding=replace(PICTURE.embedding, positions="sinusoidal"))),
    "no cls": (
        ViT,
        replace(PICTURE, pooling="mean", embedding=replace(PICTURE.embedding, class_token=False)),
    ),
    "no bias": (ViT, replace(PICTURE, embedding=replace(PICTURE.embedding, bias=False))),
    "stem": (ViT, replace(PICTURE, embedding=replace(PICTURE.embedding, patch_size=(4, 8), stem=5))),
    "another dropout": (ViT, replace(PICTURE, embedding=replace(PICTURE.embedding, dropout=0.0))),
    "post": (ViT, replace(PICTURE, encoder=replace(PICTURE.encoder, norm="post"))),
    "no final norm": (ViT, replace(PICTURE, encoder=replace(PICTURE.encoder, final_norm=False))),
    "gru": (Rnn, RnnConfig(WORDS, "gru", 7, num_labels=3)),
    "cnn": (TextCnn, TextCnnConfig(WORDS, 7, (2, 3), num_labels=3)),
}
ARCHITECTURES = {  # the class that other readers take
    "pooler": "BertModel",
    "none": "BertModel",
    "mean": "BertModel",
    "mean classes": "BertModel",
    "classes": "BertForSequenceClassification",
    "words": "BertForMaskedLM",
    "pretraining": "BertForPreTraining",
    "picture": "ViTModel",
    "picture mean": "ViTModel",
    "picture classes": "ViTForImageClassification",
}


def config_json(folder):
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_and_its_tensors_come_back_as_they_were(tmp_path, name):
    model_class, config = CONFIGS[name]
    torch.manual_seed(3)
    model = model_class(config)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_()
    has_classes = getattr(config, "head", "classification") == "classification"
    names = ("b", "c", "a", "e", "d")[: config.num_labels] if has_classes else ()
    save_pretrained(model, tmp_path / "new" / "folder", label_names=names)
    again = load_pretrained(tmp_path / "new" / "folder")
    assert (type(again), again.config, again.training) == (model_class, config, False)
    for key, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], tensor), key
    settings = config_json(tmp_path / "new" / "folder")
    assert settings.get("id2label", {}) == {str(i): label for i, label in enumerate(names)}
    assert settings.get("label2id", {}) == {label: i for i, label in enumerate(names)}
    if name in ARCHITECTURES:
        assert (settings["architectures"], settings["torch_dtype"]) == ([ARCHITECTURES[name]], "float32")


@pytest.mark.parametrize(("name", "count"), [("classes", 5), ("picture classes", 5), ("gru", 0), ("cnn", 0)])
def test_without_names_the_labels_of_the_hub_s_models_have_numbers(tmp_path, name, count):
    model_class, config = CONFIGS[name]
    save_pretrained(model_class(config), tmp_path)
    assert config_json(tmp_path).get("id2label", {}) == {str(i): f"LABEL_{i}" for i in range(count)}


ALIKE = (
    "layer_norm_eps hidden_dropout_prob attention_probs_dropout_prob initializer_range hidden_act "
    "position_embedding_type"
).split()


def without(folder, *keys, **changes):
    settings = config_json(folder) | changes
    (folder / "config.json").write_text(json.dumps({k: v for k, v in settings.items() if k not in keys}))


def test_what_a_hub_config_of_bert_leaves_out(tmp_path):
    config = replace(TEXT, embedding=replace(TEXT.embedding, max_positions=512, segments=2))
    save_pretrained(Bert(config), tmp_path)
    without(tmp_path, *ALIKE, "max_position_embeddings", "type_vocab_size", "classifier_dropout")
    found = load_pretrained(tmp_path).config
    assert (found.embedding.eps, found.encoder.eps) == (1e-12, 1e-12)
    dropouts = found.embedding.dropout, found.encoder.dropout, found.encoder.attention_dropout
    assert dropouts == (0.1, 0.1, 0.1)
    assert (found.head_dropout, found.init_std, found.encoder.activation) == (0.1, 0.02, "gelu")
    assert (found.embedding.max_positions, found.embedding.segments) == (512, 2)


def test_what_a_hub_config_of_a_vit_leaves_out(tmp_path):
    sizes = {"channels": 3, "image_size": (224, 224), "patch_size": (16, 16)}
    config = replace(PICTURE, embedding=replace(PICTURE.embedding, **sizes))
    save_pretrained(ViT(replace(config, pooling=None)), tmp_path)
    without(tmp_path, *ALIKE, "image_size", "patch_size", "num_channels")
    found = load_pretrained(tmp_path).config
    assert {key: getattr(found.embedding, key) for key in sizes} == sizes
    assert (found.encoder.eps, found.init_std, found.encoder.activation) == (1e-12, 0.02, "gelu")
    assert found.embedding.dropout == found.encoder.dropout == found.encoder.attention_dropout == 0.0


OF_BERT = [
    ({"vocab_size": 10_000_000, "hidden_size": 4096, "num_attention_heads": 1}, "but config.json requires"),
    ({"num_hidden_layers": 1_000_000}, "1,000,000 layers, but the weights have only"),
    ({"max_position_embeddings": 10_000_000}, "but config.json requires"),
    ({"max_position_embeddings": "9"}, "max_position_embeddings = '9' is not a size"),
    ({"type_vocab_size": -3}, "type_vocab_size = -3 is not a size"),
    ({"initializer_range": -1}, "initializer_range = -1 is not a number 0 or more"),
    ({"vocab_size": 10**60}, "vocab_size = a number of more than 30 digits is not a size"),
    ({"layer_norm_eps": float("nan")}, "layer_norm_eps = nan is not a number"),
    ({"layer_norm_eps": 0}, "eps = 0 is not between 1e-30 and 1"),
    ({"layer_norm_eps": 1e-320}, "eps = .* is not between 1e-30 and 1"),
    ({"layer_norm_eps": 1e300}, r"eps = 1e\+300 is not between 1e-30 and 1"),
    ({"initializer_range": 1e300}, r"init_std = 1e\+300 is not between 0 and 1000"),
    *(
        ({rate: 1}, rf"config\.json: {rate} = 1 is not a number from 0 to 1")
        for rate in ("attention_probs_dropout_prob", "hidden_dropout_prob", "classifier_dropout")
    ),
    ({"classifier_dropout": "much"}, "classifier_dropout = 'much'"),
    ({"hidden_act": ["gelu"]}, "hidden_act = .* is not supported"),
    ({"model_type": ["bert"]}, "model_type .* is not supported"),
    ({"model_type": "poem"}, r"model_type 'poem' is not supported\. Supported: bert"),
    ({"glassformer": 3}, "'glassformer' is missing or not an object"),
    ({"is_decoder": True}, "is_decoder = True is not supported"),
    ({"add_cross_attention": True}, "add_cross_attention = True is not supported"),
    ({"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key' is not s"),
]
CLOSED = [  # encoders that stay closed, with the reason
    *(
        ({"model_type": kind}, f"model_type '{kind}' is not supported: {why}")
        for kind, why in UNSUPPORTED_FAMILIES.items()
    ),
    (
        {"model_type": None, "architecture": "eva02_base_patch14_224"},
        "'eva02_.*', a model of the package timm",
    ),
    ({"position_embedding_type": "alibi"}, "position_embedding_type = 'alibi' is not"),
]
OF_VIT = [
    ({"image_size": [11]}, r"image_size = \[11\] is not a size"),
    ({"image_size": [11, 13, 5]}, "is not a size"),
    ({"image_size": [11, 0]}, "is not a size"),
    ({"patch_size": 100_001}, "patch_size = 100001 is not a size"),
    ({"patch_size": "5"}, "patch_size = '5' is not a size"),
    ({"pooler_act": "relu"}, "pooler_act = 'relu' is not supported"),
    ({"pooler_output_size": 5}, "a pooler of another width"),
    ({"hidden_act": "swish"}, "hidden_act = 'swish' is not supported"),
    ({"attention_probs_dropout_prob": 1}, "attention_probs_dropout_prob = 1 is not a number from 0 to 1"),
    ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob = 1.0 is not a number from 0 to 1"),
    ({"layer_norm_eps": -1}, "layer_norm_eps = -1 is not a number 0 or more"),
    ({"initializer_range": None}, "initializer_range = None is not a number"),
]


@pytest.mark.parametrize(
    ("kind", "error", "changes", "said"),
    [
        *((Bert, CheckpointError, *row) for row in OF_BERT),
        *((Bert, UnsupportedModelError, *row) for row in CLOSED),
        *((ViT, CheckpointError, *row) for row in OF_VIT),
    ],
)
def test_a_config_that_cannot_be_is_refused_before_a_model_is_made(
    tmp_path, monkeypatch, kind, error, changes, said
):
    config = TEXT if kind is Bert else replace(PICTURE, pooling="pooler")
    save_pretrained(kind(replace(config, head="classification" if kind is Bert else None)), tmp_path)
    if kind is ViT:
        without(tmp_path, pooler_output_size=6, pooler_act="tanh")
        assert load_pretrained(tmp_path).config.pooling == "pooler"
    without(tmp_path, **changes)
    monkeypatch.setattr(kind, "load_state_dict", None)
    with pytest.raises(error, match=said):
        load_pretrained(tmp_path)


@pytest.mark.parametrize("key", ["is_decoder", "add_cross_attention", "position_embedding_type"])
def test_null_counts_as_not_said(tmp_path, key):
    save_pretrained(Bert(TEXT), tmp_path)
    without(tmp_path, **{key: None})
    assert load_pretrained(tmp_path).config.embedding == TEXT.embedding


def saved(folder, **changes):
    save_pretrained(Bert(replace(TEXT, **changes)), folder)
    return folder


@pytest.mark.parametrize(
    ("had", "asked", "new"),
    [
        ({"pooling": None}, {}, ""),
        ({}, {"head": "classification"}, "classification head"),
        ({"pooling": None}, {"head": "classification"}, "pooler, classification head"),
        ({"pooling": "mean"}, {"head": "classification"}, "classification head"),
        ({"pooling": None}, {"head": "mlm"}, "mlm head"),
        ({"head": "mlm", "pooling": None}, {"head": "pretraining"}, "pooler, next-sentence head"),
        ({"head": "pretraining"}, {"head": "mlm"}, ""),
        ({"head": "pretraining"}, {"head": "pretraining"}, ""),
        ({"head": "classification", "num_labels": 3}, {"head": "classification", "num_labels": 3}, ""),
        ({"head": "classification", "num_labels": 3}, {"head": "classification"}, ""),
        ({"head": "classification", "num_labels": 3}, {"num_labels": 5}, "classification head"),
    ],
)
def test_a_head_is_the_checkpoints_or_a_new_one_and_the_source_says_which(tmp_path, had, asked, new):
    model = load_pretrained(saved(tmp_path, **had), **asked)
    wanted = asked.get("head", had.get("head"))
    assert model.config.head == wanted
    told = model.weights_source.partition("; new (random): ")
    assert told[2] == new
    kept = had.get("head")
    assert told[0].endswith(f": encoder and {kept} head" if kept else ": encoder")
    if wanted == "classification":
        assert model.config.num_labels == asked.get("num_labels", had.get("num_labels", 2))


def test_a_new_head_has_as_many_labels_as_the_config_names(tmp_path):
    saved(tmp_path)
    assert load_pretrained(tmp_path, head="classification").config.num_labels == 2
    without(tmp_path, id2label={str(i): f"L{i}" for i in range(7)})
    assert load_pretrained(tmp_path, head="classification").config.num_labels == 7
    assert load_pretrained(tmp_path, head="classification", num_labels=3).config.num_labels == 3
    without(tmp_path, id2label=["a", "b"])
    with pytest.raises(CheckpointError, match="'id2label' is missing or not an object"):
        load_pretrained(tmp_path, head="classification")


def test_a_head_for_another_task_is_told(tmp_path):
    saved(tmp_path, head="classification", num_labels=1)
    said = "classification head for regression: numbers instead of classes"
    assert load_pretrained(tmp_path).weights_source.endswith(said)
    with pytest.raises(CheckpointError, match="the checkpoint's head is for regression"):
        load_pretrained(tmp_path, head="classification")
    model = load_pretrained(tmp_path, head="classification", num_labels=1)
    assert model.weights_source.endswith("new (random): classification head")
    assert "for regression" not in load_pretrained(saved(tmp_path, pooling=None)).weights_source
    without(tmp_path, problem_type="regression")
    assert "for regression" not in load_pretrained(tmp_path).weights_source  # it has no such head


@pytest.mark.parametrize("rates", [(0.41, None), (None, 0.43), (0.41, 0.43), (0.0, 0.0), (None, None)])
def test_dropout_instead_of_the_checkpoints_own(tmp_path, rates):
    saved(tmp_path)
    model = load_pretrained(tmp_path, dropout=rates[0], attention_dropout=rates[1])
    own = load_pretrained(tmp_path)
    c = model.config
    wanted = [0.23 if rates[0] is None else rates[0], 0.31 if rates[1] is None else rates[1]]
    assert [c.encoder.dropout, c.encoder.attention_dropout] == wanted
    assert c.embedding.dropout == wanted[0]
    assert model.weights_source == own.weights_source
    assert not model.training
    for key, tensor in own.state_dict().items():
        assert torch.equal(model.state_dict()[key], tensor)


def test_a_picture_models_new_head_reads_cls(tmp_path):
    save_pretrained(ViT(replace(PICTURE, pooling="pooler")), tmp_path)
    model = load_pretrained(tmp_path, head="classification", num_labels=5)
    assert (model.config.pooling, model.config.num_labels) == ("first", 5)
    assert model.weights_source.endswith("; new (random): classification head")


def test_a_folder_of_another_model_is_no_translator(tmp_path):
    saved(tmp_path)
    with pytest.raises(CheckpointError, match=r"config.json: model_type 'bert' is not a translator"):
        load_seq2seq(tmp_path)
    without(tmp_path, model_type=["bert"])
    with pytest.raises(CheckpointError, match=r"model_type \['bert'\] is not a translator"):
        load_seq2seq(tmp_path)
