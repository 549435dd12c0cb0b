"""The picture's figures are the model's, and it is drawn for every architecture there is."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
import torch

from glassformer.explain.architecture import Block, blocks, draw, picture
from glassformer.families import IMAGE_ARCHITECTURES, TEXT_ARCHITECTURES, family_of
from glassformer.families.baselines import lstm, textcnn
from glassformer.families.bert import minilm
from glassformer.families.own import encoder_mini
from glassformer.models.rnn import Rnn, RnnConfig
from glassformer.models.seq2seq import TransformerConfig, TransformerSeq2Seq
from glassformer.models.seq2seq_rnn import RecurrentConfig, RecurrentSeq2Seq
from glassformer.models.skipgram import SkipGram
from glassformer.models.text import TextEncoder as Bert
from glassformer.models.textcnn import TextCnn
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.encoder import EncoderConfig


def transformer(**choices) -> TransformerSeq2Seq:
    table = EmbeddingConfig(61, 14, "sinusoidal", segments=0, norm=False)
    target = table if choices.get("shared_vocabulary") else replace(table, vocab_size=53)
    layer = {"d_model": 14, "num_heads": 2, "d_ff": 23}
    encoder, decoder = (EncoderConfig(num_layers=n, final_norm=True, **layer) for n in (2, 3))
    return TransformerSeq2Seq(TransformerConfig(table, target, encoder, decoder, **choices))


def recurrent(**choices) -> RecurrentSeq2Seq:
    vocabularies = (61, 61) if choices.get("shared_vocabulary") else (61, 53)
    return RecurrentSeq2Seq(RecurrentConfig(*vocabularies, d_model=14, **choices))


MODELS = {
    **{name: lambda make=make: _model(make(101)) for name, make in TEXT_ARCHITECTURES.items()},
    **{name: lambda make=make: _model(make()) for name, make in IMAGE_ARCHITECTURES.items()},
    **{
        f"bert {head}": lambda head=head: Bert(replace(encoder_mini(101), head=head, pooling="pooler"))
        for head in (None, "classification", "mlm", "pretraining")
    },
    "lstm, pooled": lambda: Rnn(replace(lstm(101), pooling="attention", num_layers=2)),
    "frozen table": lambda: Rnn(
        RnnConfig(EmbeddingConfig(101, 17, "none", segments=0, token_width=13, frozen=True))
    ),
    "transformer": transformer,
    "transformer, own output": lambda: transformer(tied=False),
    "transformer, one vocabulary": lambda: transformer(shared_vocabulary=True),
    "rnn": recurrent,
    "rnn, additive": lambda: recurrent(attention="additive", cell="lstm", num_layers=2),
    "rnn, dot, own output": lambda: recurrent(attention="dot", tied=False),
    "rnn, one vocabulary": lambda: recurrent(shared_vocabulary=True, attention="multiplicative"),
    "skip-gram": lambda: SkipGram(101, 17),
}


def _model(config):
    return family_of(config).model(config)


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_of_every_model_stands_in_one_box(name):
    with torch.device("meta"):
        model = MODELS[name]()
        found = blocks(model)
    assert sum(b.parameters for b in found) == sum(p.numel() for p in model.parameters())
    for block in found:
        if block.parts:
            assert sum(p.parameters for p in block.parts) * block.repeat == block.parameters
    if name != "skip-gram":
        assert all(block.shape for block in found)
    draw(found, "layers")


def test_a_translator_is_drawn_in_the_order_of_its_data():
    found = blocks(transformer(shared_vocabulary=True))
    names = "embeddings|encoder layer|final norm|target embeddings|decoder layer|final norm|logits"
    assert [block.name for block in found] == names.split("|")
    decoder = found[4]
    assert decoder.repeat == 3
    parts = [part.name for part in decoder.parts if part.name != "norm"]
    assert parts == ["self-attention", "cross-attention", "feed-forward"]
    assert found[3].parameters == 0
    assert found[3].parts[0].about == "shared with the source: table 61 × 14"
    assert (found[-1].parameters, found[-1].shape) == (61, "[N, V]")
    # baselines too
    found = blocks(Rnn(replace(lstm(101), num_labels=7)))
    assert [block.name for block in found] == ["embeddings", "encoder", "pooling", "head"]
    assert [block.shape for block in found] == ["[N, 128]", "[N, 256]", "[B, 256]", "[B, 7]"]
    assert found[1].about == "bidirectional LSTM, 128 → 128"
    convolutions = blocks(TextCnn(textcnn(101)))[1]
    assert [part.about for part in convolutions.parts] == [f"100 filters over {n} tokens" for n in (3, 4, 5)]


def test_what_is_said_of_minilm():
    with torch.device("meta"):
        found = {b.name: b for b in blocks(Bert(minilm(head="classification", num_labels=2)))}
    layer = found["encoder layer"]
    assert (layer.repeat, layer.shape, layer.parameters) == (6, "[N, 384]", 10_646_784)
    assert [p.name for p in layer.parts] == ["self-attention", "norm", "feed-forward", "norm"]
    assert layer.parts[0].about == "12 heads of 32"
    assert found["head"].shape == "[B, 2]"
    assert found["embeddings"].parts[0].about == "table 30,522 × 384"
    # before the norms are first
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
    # blocks survive JSON
    found = blocks(Bert(encoder_mini(11)))
    assert [Block.from_dict(b.to_dict()) for b in found] == found
    # a model without an encoder is listed
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 7), torch.nn.Linear(11, 13))
    found = blocks(model)
    assert [b.about for b in found] == ["convolution 7 × 7, 3 → 5", "linear 11 → 13"]
    assert sum(b.parameters for b in found) == sum(p.numel() for p in model.parameters())
