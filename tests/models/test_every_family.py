"""One suite for every family that is registered: it learns, is saved and loaded, gives packed what it gives padded."""

import copy
import json
from dataclasses import replace
from functools import partial

import pytest
import torch
from tests.shaken import shaken
from torch.nn import functional as F

from glassformer.errors import CheckpointError
from glassformer.families import FAMILIES, IMAGE_ARCHITECTURES, PRETRAINING, TEXT_ARCHITECTURES, family_of
from glassformer.families.pretrained import load_pretrained, read_checkpoint, save_pretrained
from glassformer.packing import Packing

LENGTHS = (5, 1, 7, 3, 7)
PACKING = Packing(LENGTHS)
WIDTH = 11
TARGETS = torch.tensor([0, 1, 2, 1, 0])


@pytest.fixture(params=FAMILIES)
def family(request):
    return FAMILIES[request.param]


def build(family):
    torch.manual_seed(7)
    return shaken(family.model(family.tiny()), 0.05)


def packed(model, **options):
    """Answers to five made-up inputs; pictures are all of one size, and so always packed alike."""
    generator = torch.Generator().manual_seed(5)
    if model.reads == "images":
        return model(torch.rand(5, 3, 8, 8, generator=generator), packed=True, **options)
    return model(torch.randint(0, 31, (PACKING.total,), generator=generator), packing=PACKING, **options)


def padded(model, left):
    generator = torch.Generator().manual_seed(5)
    if model.reads == "images":
        return model(torch.rand(5, 3, 8, 8, generator=generator))
    ids, mask = torch.full((5, WIDTH), 3), torch.zeros(5, WIDTH, dtype=torch.long)
    parts = PACKING.split(torch.randint(0, 31, (PACKING.total,), generator=generator))
    for b, part in enumerate(parts):
        place = slice(WIDTH - len(part), WIDTH) if left else slice(0, len(part))
        ids[b, place], mask[b, place] = part, 1
    return model(ids, mask)


def test_the_key_is_the_model_type(family):
    assert FAMILIES[family.model_type] is family
    assert type(family.tiny()) is family.config
    assert family_of(family.tiny()) is family


def test_it_learns_a_few_examples(family):
    model = build(family).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(60):
        loss = F.cross_entropy(packed(model).logits, TARGETS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.2 * losses[0]
    assert packed(model.eval()).logits.argmax(1).tolist() == TARGETS.tolist()


def test_packed_is_padded(family):
    model = build(family)
    wanted = packed(model)
    for left in (False, True):
        out = padded(model, left)
        torch.testing.assert_close(out.logits, wanted.logits, atol=2e-6, rtol=0)
        assert out.last_hidden_state.ndim == 3


def test_every_parameter_receives_a_gradient(family):
    model = build(family).train()
    packed(model).logits.square().sum().backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None or not bool(p.grad.any())]


def test_bf16_within_its_rounding(family):
    model = build(family)
    if model.is_linear:
        pytest.skip("computes in fp32 always")
    half = copy.deepcopy(model).set_compute_dtype(torch.bfloat16)
    exact, rough = packed(model).logits, packed(half).logits
    assert rough.dtype == torch.float32
    assert float(((rough - exact).norm() / exact.norm()).detach()) < 2**-4
    assert next(half.encoder.parameters()).dtype == torch.bfloat16


def test_a_folder_gives_it_back(family, tmp_path):
    model = build(family)
    save_pretrained(model, tmp_path, label_names=("no", "yes", "perhaps"))
    settings = json.loads((tmp_path / "config.json").read_text())
    assert settings["model_type"] == family.model_type
    assert settings["id2label"] == {"0": "no", "1": "yes", "2": "perhaps"}
    state = torch.random.get_rng_state()
    again = load_pretrained(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), state)  # nothing is drawn only to be overwritten
    assert not again.training
    assert again.config == family.tiny()
    assert torch.equal(packed(again).logits, packed(model).logits)


def test_a_missing_or_foreign_tensor_is_named(family, tmp_path):
    model = build(family)
    save_pretrained(model, tmp_path)
    read = read_checkpoint(tmp_path)
    first = next(iter(read.tensors))
    without = {name: tensor for name, tensor in read.tensors.items() if name != first}
    with pytest.raises(CheckpointError, match=f"missing tensors: {first}"):
        replace(read, tensors=without).build()
    with pytest.raises(CheckpointError, match="unexpected tensors: stranger"):
        replace(read, tensors={**read.tensors, "stranger": torch.zeros(3)}).build()


def test_a_new_head_is_all_that_is_drawn(family, tmp_path):
    if not family.model.has_attention:
        pytest.skip("a baseline is trained whole")
    model = build(family)
    save_pretrained(model, tmp_path)
    torch.manual_seed(11)
    other = load_pretrained(tmp_path, "classification", num_labels=7, dropout=0.25)
    assert other.config.encoder.dropout == other.config.embedding.dropout == 0.25
    assert other.head.out.weight.shape[0] == 7
    assert float(other.head.out.weight.detach().std()) > 0
    assert bool(other.head.out.bias.eq(0).all())
    for name, tensor in model.state_dict().items():
        if name.startswith(("embeddings.", "encoder.")):
            assert torch.equal(other.state_dict()[name], tensor), name
    assert "new (random): classification head" in other.weights_source


def test_the_hub_s_config_comes_back(family):
    if family.hub is None:
        pytest.skip("a layout of our own")
    config = family.tiny()
    again = family.hub.read(family.hub.write(config), "config.json")
    assert (again.embedding, again.encoder) == (config.embedding, config.encoder)


def test_presets_are_configs_of_their_family():
    for name, preset in (TEXT_ARCHITECTURES | PRETRAINING).items():
        owner = [f for f in FAMILIES.values() if name in {**f.presets, **f.pretraining}]
        assert [type(preset(31))] == [f.config for f in owner], name
    small = partial(dict, image_size=(8, 8), patch_size=(4, 4))
    assert {type(preset(**small())) for preset in IMAGE_ARCHITECTURES.values()} == {
        FAMILIES[kind].config for kind in ("vit", "glassformer-hog")
    }
