"""Every family on a GPU against itself on a processor, and against ``transformers`` on the same GPU."""

import copy
from dataclasses import replace

import pytest
import torch
from tests.shaken import shaken
from torch.nn import functional as F

from glassformer.families import FAMILIES
from glassformer.families.pretrained import save_pretrained
from glassformer.models.seq2seq import TransformerSeq2Seq, transformer
from glassformer.models.seq2seq_rnn import RecurrentConfig, RecurrentSeq2Seq
from glassformer.nn import Trace
from glassformer.packing import Packing

LENGTHS = (5, 1, 7, 3, 7)
TARGETS = torch.tensor([0, 1, 2, 1, 0])
S, T = (5, 1, 11, 7), (3, 7, 2, 7)
TRANSLATORS = {
    "transformer": lambda: TransformerSeq2Seq(transformer(31, 29, 16, 2, 2, 23, 0.0)),
    **{
        name: lambda name=name: RecurrentSeq2Seq(RecurrentConfig(31, 29, 14, attention=name, dropout=0.0))
        for name in ("none", "dot", "multiplicative", "additive")
    },
}
THEIRS = [name for name, family in FAMILIES.items() if family.hub and "classification" in family.hub.classes]


def built(family, **changes):
    torch.manual_seed(7)
    return shaken(family.model(replace(family.tiny(), **changes)), 0.05)


def answers(model, device="cpu", **options):
    generator = torch.Generator().manual_seed(5)
    if model.reads == "images":
        return model(torch.rand(5, 3, 8, 8, generator=generator).to(device), packed=True, **options)
    ids = torch.randint(0, 31, (sum(LENGTHS),), generator=generator).to(device)
    return model(ids, packing=Packing(LENGTHS, torch.device(device)), **options)


def loss_and_gradients(model, device):
    loss = F.cross_entropy(answers(model, device).logits.float(), TARGETS.to(device))
    loss.backward()
    return float(loss.detach()), {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_and_gradients_are_those_of_a_processor(gpu, name):
    here = built(FAMILIES[name])
    there = copy.deepcopy(here).to(gpu)
    wanted, gradients = loss_and_gradients(here, "cpu")
    found, ours = loss_and_gradients(there, "cuda")
    assert found == pytest.approx(wanted, abs=1e-4)
    torch.testing.assert_close(answers(there, gpu).logits.cpu(), answers(here).logits, rtol=1e-3, atol=1e-4)
    for parameter, gradient in gradients.items():
        assert (gradient is None) == (ours[parameter] is None), parameter
        if gradient is not None:
            assert (ours[parameter].cpu() - gradient).abs().max() < 2e-3, parameter


@pytest.mark.parametrize("name", FAMILIES)
def test_bf16_is_near_and_packed_is_padded(gpu, name):
    exact = built(FAMILIES[name]).to(gpu)
    half = copy.deepcopy(exact)
    half.set_compute_dtype(torch.bfloat16)
    with torch.no_grad():
        wanted, found = answers(exact, gpu).logits, answers(half, gpu).logits.float()
        assert (found - wanted).abs().max() < 0.1 * wanted.abs().max() + 0.05
        if exact.reads == "images":
            return
        packing = Packing(LENGTHS, gpu)
        ids = torch.randint(0, 31, (packing.total,), generator=torch.Generator().manual_seed(5)).to(gpu)
        padded = exact(packing.pad(ids), packing.mask().long()).logits
        torch.testing.assert_close(padded, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", THEIRS)
def test_logits_are_those_of_transformers_on_the_same_gpu(gpu, name, tmp_path):
    transformers = pytest.importorskip("transformers")
    ours = built(FAMILIES[name])
    save_pretrained(ours, tmp_path / "model")
    peer = getattr(transformers, FAMILIES[name].hub.classes["classification"])
    theirs = peer.from_pretrained(tmp_path / "model").eval().to(gpu)
    ours = ours.to(gpu)
    with torch.no_grad():
        if ours.reads == "images":
            pixels = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(5)).to(gpu)
            found, wanted = ours(pixels).logits, theirs(pixels).logits
        else:
            packing = Packing(LENGTHS, gpu)
            ids = packing.pad(torch.randint(5, 31, (packing.total,)).to(gpu), 1)
            mask = packing.mask().long()
            found, wanted = ours(ids, mask).logits, theirs(ids, attention_mask=mask).logits
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["bert", "vit"])
def test_attention_maps_are_those_of_a_processor(gpu, name):
    here = built(FAMILIES[name])
    there = copy.deepcopy(here).to(gpu)
    with torch.no_grad():
        wanted = answers(here, trace=Trace(attentions=[0])).trace.attentions[0]
        found = answers(there, gpu, trace=Trace(attentions=[0])).trace.attentions[0]
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_translators_are_those_of_a_processor(gpu, name):
    torch.manual_seed(11)
    here = TRANSLATORS[name]()
    there = copy.deepcopy(here).to(gpu)
    ids = [torch.randint(5, 29, (sum(n),), generator=torch.Generator().manual_seed(sum(n))) for n in (S, T)]
    found = []
    for model, device in ((here, torch.device("cpu")), (there, gpu)):
        source, target = Packing(S, device), Packing(T, device)
        logits = model(*(x.to(device) for x in ids), source_packing=source, target_packing=target).logits
        F.cross_entropy(logits, ids[1].to(device)).backward()
        gradients = [p.grad for p in model.parameters()]
        assert all(g is not None for g in gradients)
        found.append((logits.detach(), *gradients))
    for wanted, ours in zip(*found, strict=True):
        assert (ours.cpu() - wanted).abs().max() < 2e-3
    half = copy.deepcopy(there)
    half.set_compute_dtype(torch.bfloat16)
    logits = half(*(x.to(gpu) for x in ids), source_packing=source, target_packing=target).logits
    assert (logits.float() - found[1][0]).abs().max() < 0.1 * found[1][0].abs().max() + 0.05
