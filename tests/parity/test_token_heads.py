"""Heads that answer each token, against ``transformers``' classes: equal logits, folders both ways."""

from __future__ import annotations

import json
import logging

import pytest
import torch

import glassformer as gf
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.families import FAMILIES

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
logging.getLogger("transformers").setLevel(logging.ERROR)

KINDS = [
    name
    for name, family in FAMILIES.items()
    if family.hub and "tokens" in family.hub.classes and name in transformers.CONFIG_MAPPING
]
B, T, LENGTHS = 3, 11, (11, 1, 7)


def peer_of(kind: str, **extra):
    """A small random model of ``transformers``, its config.json written by the family itself."""
    torch.manual_seed(7)
    family = FAMILIES[kind]
    settings = family.hub.write(family.tiny()) | {"initializer_range": 0.2}
    config = transformers.CONFIG_MAPPING[kind](**settings, num_labels=5, **extra)
    config._attn_implementation = "eager"
    model = getattr(transformers, family.hub.classes["tokens"])(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model


def asked(peer) -> tuple[torch.Tensor, torch.Tensor]:
    pad = peer.config.pad_token_id
    mask = (torch.arange(T) < torch.tensor(LENGTHS)[:, None]).long()
    ids = torch.randint(2, 31, (B, T), generator=torch.Generator().manual_seed(3))
    return torch.where(mask.bool(), ids, pad), mask


def test_every_text_family_of_the_hub_has_such_a_class():
    texts = [n for n, f in FAMILIES.items() if f.hub and f.model.reads == "texts"]
    assert {"bert", "roberta", "distilbert"} <= set(KINDS) <= set(texts)
    assert all("tokens" in FAMILIES[name].hub.classes for name in texts)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_theirs_packed_padded_and_by_graph(kind, tmp_path):
    peer = peer_of(kind)
    peer.save_pretrained(tmp_path / "theirs")
    ours = gf.load_pretrained(tmp_path / "theirs")
    assert (ours.config.pooling, ours.config.num_labels, ours.pooling is not None) == ("tokens", 5, True)
    ids, mask = asked(peer)
    real = mask.bool()
    with torch.no_grad():
        theirs = peer(ids, attention_mask=mask).logits[real]
        packed = ours(ids[real], packing=gf.Packing(LENGTHS)).logits
        padded = ours(ids, mask).logits
        rows = [ours.embed(ids[i][real[i]], gf.Packing((n,)))[0] for i, n in enumerate(LENGTHS)]
        graph = ours.answer_padded(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), real)
    assert padded.shape == (B, T, 5)
    for found in (packed, padded[real], graph[real]):
        assert float((found - theirs).abs().max()) <= 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_ours_opens_as_their_class(kind, tmp_path):
    peer = peer_of(kind)
    peer.save_pretrained(tmp_path / "theirs")
    ours = gf.load_pretrained(tmp_path / "theirs")
    gf.save_pretrained(ours, tmp_path / "ours", label_names=("O", "B-x", "I-x", "B-y", "I-y"))
    settings = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert settings["architectures"] == [type(peer).__name__]
    assert not (tmp_path / "ours" / "head.safetensors").exists()
    again = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "ours").eval()
    assert again.config.id2label[1] == "B-x"
    ids, mask = asked(peer)
    with torch.no_grad():
        a, b = (m(ids, attention_mask=mask).logits[mask.bool()] for m in (again, peer))
    assert float((a - b).abs().max()) <= 1e-5
    assert gf.load_pretrained(tmp_path / "ours").config == ours.config


def test_a_pooler_that_nothing_reads_is_left_out(tmp_path):
    """As published files of such models have it, which then look like a classifier of whole texts."""
    peer = peer_of("bert")
    peer.save_pretrained(tmp_path)
    tensors = read_tensors(tmp_path)
    width = peer.config.hidden_size
    tensors |= {
        "bert.pooler.dense.weight": torch.ones(width, width),
        "bert.pooler.dense.bias": torch.ones(width),
    }
    write_tensors(tmp_path, tensors)
    ours = gf.load_pretrained(tmp_path)
    assert ours.config.pooling == "tokens"
    ids, mask = asked(peer)
    with torch.no_grad():
        theirs = peer(ids, attention_mask=mask).logits
        assert float((ours(ids, mask).logits - theirs)[mask.bool()].abs().max()) <= 1e-5


@pytest.mark.parametrize(
    "kind",
    [k for k, f in FAMILIES.items() if f.model.reads == "texts" and not f.hub and f.model.kind != "linear"],
)
def test_packed_and_padded_are_one_in_our_own_families_too(kind, tmp_path):
    from dataclasses import replace

    torch.manual_seed(5)
    family = FAMILIES[kind]
    model = family.model(replace(family.tiny(), pooling="tokens", head_type="linear")).eval()
    ids = torch.randint(2, 31, (19,))
    with torch.no_grad():
        packed = model(ids, packing=gf.Packing(LENGTHS)).logits
        mask = torch.arange(T) < torch.tensor(LENGTHS)[:, None]
        padded = torch.zeros(B, T, dtype=torch.long).masked_scatter(mask, ids)
        through_the_door = model(padded, mask).logits
        rows = [model.embed(padded[i][mask[i]], gf.Packing((n,)))[0] for i, n in enumerate(LENGTHS)]
        graph = model.answer_padded(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), mask)
    assert packed.shape == (19, 3)
    assert float((through_the_door[mask] - packed).abs().max()) <= 1e-5
    assert float((graph[mask] - packed).abs().max()) <= 1e-5
    gf.save_pretrained(model, tmp_path)
    assert gf.load_pretrained(tmp_path).config == model.config
