"""``glassformer doctor MODEL``: what is in a checkpoint, what opens it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from glassformer.data.text import wordpiece_tokenizer
from glassformer.families import FAMILIES
from glassformer.families.pretrained import save_pretrained


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
