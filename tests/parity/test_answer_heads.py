"""Heads that mark begin and end of an answer: our folders in ``transformers``' classes, and theirs here."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from glassformer.errors import CheckpointError
from glassformer.families import FAMILIES
from glassformer.families.pretrained import load_pretrained, save_pretrained

ABLE = [name for name, family in FAMILIES.items() if family.hub and "spans" in family.hub.classes]


def made(name: str):
    family = FAMILIES[name]
    torch.manual_seed(7)
    config = replace(family.tiny(), head="spans", pooling=None)
    return family.model(config).eval()


@pytest.mark.parametrize("name", ABLE)
def test_logits_are_those_of_the_hubs_class_both_ways(name, tmp_path):
    transformers = pytest.importorskip("transformers")
    ours = made(name)
    save_pretrained(ours, tmp_path / "ours")
    peer = getattr(transformers, FAMILIES[name].hub.classes["spans"])
    theirs, info = peer.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = torch.randint(5, 31, (2, 13))
    with torch.no_grad():
        found, wanted = ours(ids).logits, theirs.eval()(ids)
    assert found.shape == (2, 13, 2)
    assert (found[..., 0] - wanted.start_logits).abs().max() <= 1e-5
    assert (found[..., 1] - wanted.end_logits).abs().max() <= 1e-5
    theirs.save_pretrained(tmp_path / "theirs")
    again = load_pretrained(tmp_path / "theirs")
    assert again.config.head == "spans"
    with torch.no_grad():
        assert (again(ids).logits - found).abs().max() <= 1e-5


def test_the_families_that_have_one_and_auto_opens_them(tmp_path):
    transformers = pytest.importorskip("transformers")
    assert ABLE == ["bert", "roberta", "xlm-roberta", "camembert", "distilbert", "mpnet"]
    save_pretrained(made("bert"), tmp_path / "bert")
    peer = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path / "bert")
    assert type(peer).__name__ == "BertForQuestionAnswering"


def test_padding_and_company_change_nothing():
    model = made("bert")
    ids = torch.randint(5, 31, (2, 11))
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    with torch.no_grad():
        both = model(ids, attention_mask=mask).logits
        alone = model(ids[1:, :7]).logits
    assert (both[1, :7] - alone[0]).abs().max() < 1e-5


def test_every_parameter_has_a_gradient_and_bf16_is_near():
    model = made("bert").train()
    ids = torch.randint(5, 31, (2, 11))
    kinds = torch.tensor([[0] * 5 + [1] * 6] * 2)
    before = model.eval()(ids, token_type_ids=kinds).logits.detach()
    model(ids, token_type_ids=kinds).logits.square().sum().backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    assert without == []
    after = model.set_compute_dtype(torch.bfloat16)(ids, token_type_ids=kinds).logits
    assert after.dtype == torch.float32
    assert (after - before).abs().max() < 0.05


def test_an_encoder_of_ours_keeps_its_head_without_a_pooling(tmp_path):
    ours = made("bert")
    save_pretrained(ours, tmp_path / "a")
    assert load_pretrained(tmp_path / "a").pooling is None
    weights = load_pretrained(tmp_path / "a", "classification", num_labels=3)
    assert weights.head.out.weight.shape[0] == 3
    assert "new (random)" in weights.weights_source
    (tmp_path / "a" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError):
        load_pretrained(tmp_path / "a")
