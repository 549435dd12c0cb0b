"""``glassformer doctor MODEL``: what is in a checkpoint, what opens it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from glassformer.data.text import wordpiece_tokenizer
from glassformer.data.transform import ImageTransform
from glassformer.families import FAMILIES
from glassformer.families.pretrained import save_pretrained
from glassformer.inputs.images import save_transform


def put(folder: Path, kind: str, tokenizer: bool = True) -> Path:
    """A tiny checkpoint as the Hub has it."""
    torch.manual_seed(0)
    family = FAMILIES[kind]
    save_pretrained(family.model(family.tiny()), folder, label_names=("a", "b", "c"))
    if tokenizer:
        found = wordpiece_tokenizer(["abc abd abe", "a b c d e"] * 3, vocab_size=31, min_count=1)
        found.save(str(folder / "tokenizer.json"))
    return folder


def lines(result) -> dict[str, dict]:
    return {line["what"]: line for part in json.loads(result.out).values() for line in part}


@pytest.mark.parametrize("kind", ["bert", "distilbert", "glassformer-textcnn"])
def test_a_model_that_opens(gf, kind, tmp_path):
    found = gf("doctor", put(tmp_path / "m", kind), "--json")
    assert found.code == 0
    said = lines(found)
    assert not [line for line in said.values() if line["state"] == "missing"]
    assert said["family"]["found"].startswith(f"{kind}, reads texts")
    assert said["head"]["found"].startswith("3 classes")
    assert said["read from"]["found"] == "tokenizer.json"
    assert "no modules.json" in said["embed"]["found"]
    assert ("train further" in said) == (kind != "glassformer-textcnn")
    assert ("pooling='first', head='mlp' opens whole" in said["fine-tune"]["found"]) == (kind == "distilbert")
    assert "ready" in gf("doctor", tmp_path / "m").out


@pytest.mark.parametrize("kind", [n for n, f in FAMILIES.items() if f.hub and f.model.reads == "pictures"])
def test_what_a_head_on_an_image_encoder_reads(gf, kind, tmp_path):
    folder = put(tmp_path / "m", kind, tokenizer=False)
    save_transform(ImageTransform((8, 8)), folder)
    said = lines(gf("doctor", folder, "--json"))["fine-tune"]["found"]
    assert f": {FAMILIES[kind].hub.pooling} pooling under a new linear head" in said
    assert "opens whole" not in said


def test_what_embed_will_do(gf, tmp_path):
    folder = put(tmp_path / "m", "bert")
    (folder / "1_Pooling").mkdir()
    kinds = [("", "models.Transformer"), ("1_Pooling", "models.Pooling"), ("", "models.Normalize")]
    steps = [{"path": path, "type": f"sentence_transformers.{kind}"} for path, kind in kinds]
    (folder / "modules.json").write_text(json.dumps(steps))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    assert (
        "modules.json: cls, Normalize; 12 numbers" in lines(gf("doctor", folder, "--json"))["embed"]["found"]
    )
    said = lines(gf("doctor", folder, "--json"))["fine-tune"]["found"]
    assert ": first pooling under a new linear head" in said
    steps[2]["type"] = "sentence_transformers.models.Strange"
    (folder / "modules.json").write_text(json.dumps(steps))
    assert lines(gf("doctor", folder, "--json"))["embed"]["found"].startswith("refused: ")


@pytest.mark.parametrize(
    ("harm", "what", "said"),
    [
        ({"model_type": "modernbert"}, "model", "model_type 'modernbert' is not supported"),
        ({"hidden_act": "silu"}, "model", "hidden_act = 'silu' is not supported"),
        ({}, "tokenizer", "no tokenizer here"),
    ],
)
def test_what_is_refused_and_why(gf, harm, what, said, tmp_path):
    folder = put(tmp_path / "m", "bert", tokenizer=False)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | harm))
    found = gf("doctor", folder, "--json")
    assert found.code == 1
    assert lines(found)[what]["state"] == "missing"
    assert said in lines(found)[what]["found"]
    assert f"cannot be used: {what}" in gf("doctor", folder).out


def test_no_such_model_and_no_model(refused):
    assert "neither a known checkpoint" in refused("doctor", "nothing-here")
    assert "--revision belongs to a MODEL" in refused("doctor", "--revision", "main")


def test_a_run_and_a_model_of_word_vectors_are_named(gf, tmp_path):
    small = ["--set", "limit=200", "--set", "epochs=1"]
    assert gf("train", "countries-word2vec", "--out", "vectors", *small).code == 0
    said = lines(gf("doctor", "vectors", "--json"))
    assert said["run"]["found"] == "countries-word2vec, word2vec, trained on countries"
    assert said["saved by glassformer"]["found"] == "Word2Vec"
    assert said["use"]["found"].startswith("glassformer vectors vectors, or gf.load('vectors')")
    assert "run" not in lines(gf("doctor", "vectors/model", "--json"))
    (tmp_path / "vectors" / "model" / "model.safetensors").write_bytes(b"cut")
    found = gf("doctor", "vectors", "--json")
    assert found.code == 1
    assert lines(found)["saved by glassformer"]["state"] == "missing"


def test_a_run_of_texts_names_its_recipe(gf, run):
    assert lines(gf("doctor", run, "--json"))["run"]["found"].startswith("reviews, text-classification")


def test_data_are_sent_to_the_doctor_of_data(refused, reviews):
    said = refused("doctor", reviews)
    assert "looks like data for --text and is no model. To look at data: glassformer data doctor" in said


@pytest.mark.parametrize(
    "verb", [("data", "doctor"), ("data", "show"), ("train", "--text"), ("train", "--images")]
)
def test_models_are_no_data(refused, run, verb):
    said = refused(*verb, run)
    assert "is the folder of a run, not of data. To look at the model: glassformer doctor" in said
    assert "at what it was trained on: glassformer data doctor" in said
    said = refused(*verb, run / "model")
    assert "is a saved model, not data. To look at the model: glassformer doctor" in said
