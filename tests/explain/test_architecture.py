"""The picture's figures are the model's, and it is drawn for every architecture there is."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
import torch

from glassformer.explain.architecture import Block, blocks, draw, picture
from glassformer.models.bert import Bert, encoder_mini, minilm


@pytest.mark.parametrize("head", ["classification", "mlm", "pretraining"])
def test_parameters_add_up(head):
    pooling = "first" if head == "classification" else "pooler"
    model = Bert(replace(encoder_mini(101), head=head, num_labels=7, pooling=pooling))
    found = blocks(model)
    assert sum(b.parameters for b in found) == sum(p.numel() for p in model.parameters())
    for block in found:
        if block.parts:
            assert sum(p.parameters for p in block.parts) * block.repeat == block.parameters


def test_what_is_said_of_minilm():
    with torch.device("meta"):
        found = {b.name: b for b in blocks(Bert(minilm(head="classification", num_labels=2)))}
    layer = found["encoder layer"]
    assert (layer.repeat, layer.shape, layer.parameters) == (6, "[N, 384]", 10_646_784)
    assert [p.name for p in layer.parts] == ["self-attention", "norm", "feed-forward", "norm"]
    assert layer.parts[0].about == "12 heads of 32"
    assert found["head"].shape == "[B, 2]"
    assert found["embeddings"].parts[0].about == "table 30,522 × 384"


def test_pre_norm_is_drawn_as_such():
    parts = {b.name: b for b in blocks(Bert(encoder_mini(11)))}["encoder layer"].parts
    assert [p.name for p in parts] == ["norm", "self-attention", "norm", "feed-forward"]
    assert [p.residual for p in parts] == [0, 2, 0, 2]


@pytest.mark.parametrize("detail", ["blocks", "layers"])
def test_the_picture_is_plain_svg(detail):
    svg = picture(Bert(encoder_mini(11)), detail)
    root = ET.fromstring(svg)
    assert {e.tag.rpartition("}")[2] for e in root.iter()} <= {"svg", "rect", "text", "path"}
    assert "style" not in {name for e in root.iter() for name in e.attrib}
    text = " ".join(root.itertext())
    assert ("feed-forward" in text) == (detail == "layers")


def test_names_are_text():
    svg = draw([Block("<script>x</script>", '"&', "'")])
    assert "<script" not in svg
    assert "<script>x</script>" in "".join(ET.fromstring(svg).itertext())


def test_blocks_survive_json():
    found = blocks(Bert(encoder_mini(11)))
    assert [Block.from_dict(b.to_dict()) for b in found] == found


def test_a_model_without_encoder_is_listed():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 7), torch.nn.Linear(11, 13))
    found = blocks(model)
    assert [b.about for b in found] == ["convolution 7 × 7, 3 → 5", "linear 11 → 13"]
    assert sum(b.parameters for b in found) == sum(p.numel() for p in model.parameters())
