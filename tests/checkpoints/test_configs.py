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
CONFIGS = {
    "pooler": (Bert, TEXT),
    "none": (Bert, replace(TEXT, pooling=None)),
    "mean": (Bert, replace(TEXT, pooling="mean")),
    "classes": (Bert, replace(TEXT, head="classification", num_labels=5, head_dropout=0.37)),
    "mlp": (
        Bert,
        replace(
            TEXT, head="classification", num_labels=3, head_type="mlp", head_hidden=13, head_dropout=0.37
        ),
    ),
    "mean classes": (
        Bert,
        replace(TEXT, head="classification", pooling="mean", num_labels=3, head_dropout=0.37),
    ),
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
    "picture classes": (ViT, replace(PICTURE, head="classification", num_labels=5)),
    "picture mean": (
        ViT,
        replace(PICTURE, head="classification", pooling="mean", num_labels=3, head_dropout=0.37),
    ),
    "picture mlp": (
        ViT,
        replace(PICTURE, head="classification", head_type="mlp", head_hidden=13, num_labels=3),
    ),
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
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_and_its_tensors_come_back_as_they_were(tmp_path, name):
    model_class, config = CONFIGS[name]
    torch.manual_seed(3)
    model = model_class(config)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_()
    names = ("b", "c", "a", "e", "d")[: config.num_labels] if config.head == "classification" else ()
    save_pretrained(model, tmp_path / "new" / "folder", label_names=names)
    again = load_pretrained(tmp_path / "new" / "folder")
    assert again.config == config
    assert not again.training
    for key, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], tensor), key
    settings = json.loads((tmp_path / "new" / "folder" / "config.json").read_text(encoding="utf-8"))
    assert settings.get("id2label", {}) == {str(i): label for i, label in enumerate(names)}
    assert settings.get("label2id", {}) == {label: i for i, label in enumerate(names)}


@pytest.mark.parametrize("name", ["classes", "picture classes"])
def test_without_names_the_labels_have_numbers(tmp_path, name):
    model_class, config = CONFIGS[name]
    save_pretrained(model_class(config), tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert settings["id2label"] == {str(i): f"LABEL_{i}" for i in range(5)}


ALIKE = tuple(
    """
    layer_norm_eps hidden_dropout_prob attention_probs_dropout_prob initializer_range hidden_act
    position_embedding_type
""".split()
)


def without(folder, *keys, **changes):
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8")) | changes
    (folder / "config.json").write_text(json.dumps({k: v for k, v in settings.items() if k not in keys}))


def test_what_a_hub_config_of_bert_leaves_out(tmp_path):
    config = replace(TEXT, embedding=replace(TEXT.embedding, max_positions=512, segments=2))
    save_pretrained(Bert(config), tmp_path)
    without(tmp_path, *ALIKE, "max_position_embeddings", "type_vocab_size", "classifier_dropout")
    found = load_pretrained(tmp_path).config
    assert (found.embedding.eps, found.encoder.eps) == (1e-12, 1e-12)
    assert (found.embedding.dropout, found.encoder.dropout, found.encoder.attention_dropout) == (
        0.1,
        0.1,
        0.1,
    )
    assert (found.head_dropout, found.init_std, found.encoder.activation) == (0.1, 0.02, "gelu")
    assert (found.embedding.max_positions, found.embedding.segments) == (512, 2)


@pytest.mark.parametrize(
    ("key", "value"),
    [("is_decoder", True), ("add_cross_attention", True), ("position_embedding_type", "relative_key")],
)
def test_variants_of_bert_that_are_not_supported(tmp_path, key, value):
    save_pretrained(Bert(TEXT), tmp_path)
    without(tmp_path, **{key: value})
    with pytest.raises(CheckpointError, match=rf"{key} = {value!r} is not supported"):
        load_pretrained(tmp_path)
    without(tmp_path, **{key: None})
    assert load_pretrained(tmp_path).config.embedding == TEXT.embedding


def test_what_a_hub_config_of_a_vit_leaves_out(tmp_path):
    config = replace(
        PICTURE, embedding=replace(PICTURE.embedding, channels=3, image_size=(224, 224), patch_size=(16, 16))
    )
    save_pretrained(ViT(replace(config, pooling=None)), tmp_path)
    without(tmp_path, *ALIKE, "image_size", "patch_size", "num_channels")
    found = load_pretrained(tmp_path).config
    assert (found.embedding.image_size, found.embedding.patch_size, found.embedding.channels) == (
        (224, 224),
        (16, 16),
        3,
    )
    assert (found.encoder.eps, found.init_std, found.encoder.activation) == (1e-12, 0.02, "gelu")
    assert (found.embedding.dropout, found.encoder.dropout, found.encoder.attention_dropout) == (
        0.0,
        0.0,
        0.0,
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
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
    ],
)
def test_configs_of_a_vit_that_cannot_be(tmp_path, changes, said):
    save_pretrained(ViT(replace(PICTURE, pooling="pooler")), tmp_path)
    without(tmp_path, pooler_output_size=6, pooler_act="tanh")
    assert load_pretrained(tmp_path).config.pooling == "pooler"
    without(tmp_path, **changes)
    with pytest.raises(CheckpointError, match=said):
        load_pretrained(tmp_path)


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
    assert load_pretrained(tmp_path).weights_source.endswith(
        "classification head for regression: numbers instead of classes"
    )
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


def test_classifiers_of_tokens_and_unknown_kinds_are_refused(tmp_path):
    saved(tmp_path, head="classification")
    without(tmp_path, model_type="poem")
    with pytest.raises(CheckpointError, match=r"model_type 'poem' is not supported\. Supported: bert"):
        load_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        *(
            ({"model_type": kind}, f"model_type '{kind}' is not supported: {why}")
            for kind, why in UNSUPPORTED_FAMILIES.items()
        ),
        (
            {"model_type": None, "architecture": "eva02_base_patch14_224"},
            "'eva02_base_.*', a model of the package timm",
        ),
        (
            {"model_type": "bert", "position_embedding_type": "alibi"},
            "position_embedding_type = 'alibi' is not",
        ),
    ],
)
def test_encoders_that_stay_closed_are_refused_with_the_reason(changes, said, tmp_path):
    saved(tmp_path, head="classification")
    without(tmp_path, **changes)
    with pytest.raises(UnsupportedModelError, match=said):
        load_pretrained(tmp_path)


@pytest.mark.parametrize(
    "rate", ["attention_probs_dropout_prob", "hidden_dropout_prob", "classifier_dropout"]
)
def test_rates_of_a_bert_are_below_1(tmp_path, rate):
    saved(tmp_path)
    without(tmp_path, **{rate: 1})
    with pytest.raises(CheckpointError, match=rf"config\.json: {rate} = 1 is not a number from 0 to 1"):
        load_pretrained(tmp_path)


WORDS = EmbeddingConfig(17, 5, "none", segments=0, norm=False)


@pytest.mark.parametrize("names", [(), ("b", "c", "a")])
@pytest.mark.parametrize(
    ("model_class", "config"),
    [
        (Rnn, RnnConfig(WORDS, "gru", 7, num_labels=3)),
        (TextCnn, TextCnnConfig(WORDS, 7, (2, 3), num_labels=3)),
    ],
)
def test_baselines_come_back_as_they_were(tmp_path, model_class, config, names):
    torch.manual_seed(3)
    model = model_class(config)
    save_pretrained(model, tmp_path, label_names=names)
    again = load_pretrained(tmp_path)
    assert (type(again), again.config, again.training) == (model_class, config, False)
    assert all(torch.equal(again.state_dict()[name], p) for name, p in model.state_dict().items())
    settings = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert settings.get("id2label", {}) == {str(i): label for i, label in enumerate(names)}
    assert settings.get("label2id", {}) == {label: i for i, label in enumerate(names)}


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("pooler", "BertModel"),
        ("none", "BertModel"),
        ("mean", "BertModel"),
        ("mean classes", "BertModel"),
        ("classes", "BertForSequenceClassification"),
        ("words", "BertForMaskedLM"),
        ("pretraining", "BertForPreTraining"),
        ("picture", "ViTModel"),
        ("picture classes", "ViTForImageClassification"),
        ("picture mean", "ViTModel"),
    ],
)
def test_other_readers_learn_which_class_to_take(tmp_path, name, architecture):
    model_class, config = CONFIGS[name]
    save_pretrained(model_class(config), tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert settings["architectures"] == [architecture]
    assert settings["torch_dtype"] == "float32"


def test_a_folder_of_another_model_is_no_translator(tmp_path):
    saved(tmp_path)
    with pytest.raises(CheckpointError, match=r"config.json: model_type 'bert' is not a translator"):
        load_seq2seq(tmp_path)
    without(tmp_path, model_type=["bert"])
    with pytest.raises(CheckpointError, match=r"model_type \['bert'\] is not a translator"):
        load_seq2seq(tmp_path)
