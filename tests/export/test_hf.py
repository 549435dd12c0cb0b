"""Hub folders: transformers gives the same logits, by its own class or through run.py."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.commands import values as settings

import glassformer as gf
from glassformer.errors import CheckpointError, ConfigError
from glassformer.export.hf_folder import export_hf
from glassformer.export.outputs import samples_of
from glassformer.families.bert import bert
from glassformer.models.text import TextEncoder as Bert

from .conftest import TEXTS, build, odd_pictures

transformers = pytest.importorskip("transformers")


@pytest.fixture
def minilm(text_model, tmp_path: Path):
    """A BERT of the Hub's layout under a fitted classifier's tokenizer; ``pooling`` decides what opens it."""

    def make(**options):
        clf = gf.TextClassifier("encoder-mini", max_length=19, precision="fp32", threads=1)
        for name in ("classes_", "tokenizer_", "truncated_"):
            setattr(clf, name, getattr(text_model, name))
        torch.manual_seed(0)
        size = clf.tokenizer_.get_vocab_size()
        config = bert(size, 14, 2, 2, 22, 19, 0.0, head="classification", init_std=0.5, **options)
        clf.model_, clf.temperature_, clf.threshold_ = Bert(config).eval(), 1.0, None
        return clf

    return make


def test_without_its_manifest_a_folder_opens_alike_or_says_that_it_is_missing(
    minilm, text_model, tmp_path: Path
):
    clf = minilm()
    export_hf(clf, tmp_path / "hf", TEXTS)
    whole = gf.load(tmp_path / "hf").predict_proba(TEXTS)
    (tmp_path / "hf" / "manifest.json").unlink()
    np.testing.assert_array_equal(gf.load(tmp_path / "hf").predict_proba(TEXTS), whole)
    text_model.save(tmp_path / "own")
    (tmp_path / "own" / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match=r"manifest\.json: is missing: the folder is incomplete"):
        gf.load(tmp_path / "own")


@pytest.mark.parametrize("count", [0, 1, 3])
def test_what_transformers_does_not_have_is_named(minilm, tmp_path: Path, count):
    clf = minilm()
    values = {"temperature": 2.5, "threshold": 0.4, "abstain_below": 0.6}
    for name, value in [*values.items()][:count]:
        setattr(clf, f"{name}_", value)
    wanted = ["temperature", "threshold", "abstention"][:count]
    assert export_hf(clf, tmp_path / "hf", TEXTS).get("left_out", []) == wanted


def test_the_hubs_own_class(minilm, tmp_path: Path):
    clf = minilm()
    found = export_hf(clf, tmp_path / "hf", TEXTS)
    wanted = {"opens_as": "BertForSequenceClassification", "whole": True, "inputs": 40, "clean": "none"}
    assert found == wanted | {"largest_difference": 0.0}
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    batch = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        logits = model(batch["input_ids"], batch["attention_mask"]).logits.numpy()
    np.testing.assert_allclose(logits, clf.export_outputs().outputs(TEXTS), atol=1e-5)
    assert not (tmp_path / "hf" / "glassformer.json").exists()
    assert model.config.id2label == {0: "bad", 1: "good"}


OURS = """pooling=mean; pooling=max head_type=mlp head_hidden=5; pooling=attention; pooling=first; head_type=mlp;
    pooling=mean head_type=mlp head_hidden=5 head_activation=none"""


@pytest.mark.parametrize("options", OURS.split(";"))
def test_the_script_adds_what_is_ours(minilm, tmp_path: Path, options):
    clf = minilm(**settings(options))
    assert export_hf(clf, tmp_path / "hf", TEXTS)["whole"] is False
    script = runpy.run_path(str(tmp_path / "hf" / "run.py"))
    wanted = clf.export_outputs().outputs(TEXTS)
    np.testing.assert_allclose(script["logits"](TEXTS).numpy(), wanted, atol=1e-5)


@pytest.mark.parametrize("pooling", ["auto", "pooler"])
def test_an_encoder_from_scratch_that_the_hub_can_express(pooling, tmp_path: Path):
    clf = build("encoder-base, " + pooling)
    found = export_hf(clf, tmp_path / "hf", TEXTS)
    assert found["whole"] == (pooling == "pooler")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    batch = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
    table = clf.encode(TEXTS)
    assert batch["input_ids"][0][batch["attention_mask"][0].bool()].tolist() == table[0].tolist()
    expected = clf.export_outputs().outputs(TEXTS)
    if pooling == "pooler":
        model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf").eval()
        with torch.inference_mode():
            logits = model(batch["input_ids"], batch["attention_mask"]).logits.numpy()
        np.testing.assert_allclose(logits, expected, atol=1e-5)
    else:
        script = runpy.run_path(str(tmp_path / "hf" / "run.py"))
        np.testing.assert_allclose(script["logits"](TEXTS).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("textcnn", "'textcnn': it is not a Transformer"),
        ("mean, pre-norm, sinusoidal", "'encoder-mini': no layout of the Hub has pre-norm layers"),
        (
            "no special tokens",
            "'encoder-small': no layout of the Hub has embeddings without a norm and sinus",
        ),
    ],
)
def test_what_the_hub_cannot_express_is_told_what_can(name, why, tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        export_hf(build(name), tmp_path / "hf", TEXTS)
    assert f"transformers has no class for {why}" in str(caught.value)
    assert "Use --to onnx, which supports every classifier" in caught.value.fix
    assert "--to hf supports encoder-base and checkpoints of bert, roberta" in caught.value.fix
    assert list(tmp_path.iterdir()) == []


def test_pictures(picture_model, tmp_path: Path):
    assert export_hf(picture_model, tmp_path / "hf", samples_of(picture_model, "", 5)[0])["whole"]
    picture = Image.fromarray(np.random.default_rng(1).integers(0, 256, (12, 12, 3), np.uint8))
    model = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "hf").eval()
    pixels = picture_model.transform_.normalize(
        torch.from_numpy(picture_model.transform_.read(picture))[None]
    )
    with torch.inference_mode():
        np.testing.assert_allclose(
            model(pixels).logits, picture_model.export_outputs().outputs([picture]), atol=1e-5
        )


def test_the_script_reads_pictures_as_the_classifier_does(tmp_path: Path):
    clf = build("class token", epochs=1, head="mlp", head_hidden=5, pooling="first")
    assert export_hf(clf, tmp_path / "hf", samples_of(clf, "", 5)[0])["whole"] is False
    files = odd_pictures(tmp_path)
    script = runpy.run_path(str(tmp_path / "hf" / "run.py"))
    np.testing.assert_allclose(
        script["logits"](files).numpy(), clf.export_outputs().outputs(files), atol=1e-5
    )
    # a tokenizer that adds what the model never saw is refused
    clf = build("encoder-base, auto")
    clf.add_special_tokens = False
    with pytest.raises(ConfigError, match="this model has none"):
        export_hf(clf, tmp_path / "texts", TEXTS)
    assert not (tmp_path / "texts").exists()
