"""ViT by itself: patches as a convolution, positions, packed = one by one, dropout of patches, bf16, gradients."""

import math
from dataclasses import replace

import pytest
import torch
from tests.shaken import shaken

from glassformer.families.vit import vit, vit_base, vit_large, vit_one, vit_small, vit_tiny
from glassformer.models.image import ImageEncoder as ViT
from glassformer.nn import Trace

SIZE, PATCH, D = (23, 29), (5, 3), 14
BASE = vit(SIZE, PATCH, D, 3, 2, 11, init_std=0.3)
MODELS = {
    "cls": replace(BASE, head="classification", num_labels=3),
    "mean": replace(BASE, head="classification", pooling="mean", num_labels=5, head_type="mlp"),
    "pooler": replace(BASE, head="classification", pooling="pooler"),
    "no head": replace(BASE, pooling=None),
    "sinusoidal": replace(
        BASE,
        head="classification",
        embedding=replace(BASE.embedding, positions="sinusoidal", class_token=False),
    ),
    "no positions": replace(BASE, head="classification", embedding=replace(BASE.embedding, positions="none")),
    "stem": replace(
        BASE, head="classification", embedding=replace(BASE.embedding, patch_size=(8, 4), stem=6)
    ),
    "one": replace(
        vit_one(SIZE, PATCH),
        head="classification",
        num_labels=5,
        embedding=replace(vit_one(SIZE, PATCH).embedding, d_model=D),
        encoder=replace(vit_one().encoder, d_model=D, num_heads=7, d_ff=17),
    ),
}


def build(name):
    torch.manual_seed(19)
    return shaken(ViT(MODELS[name]), 0.1)


@pytest.fixture(params=MODELS)
def model(request):
    return build(request.param)


X = torch.randn(4, 3, *SIZE, generator=torch.Generator().manual_seed(23))


def test_packed_equals_padded_equals_one_by_one(model):
    with torch.no_grad():
        whole = model(X, trace=Trace(attentions=True))
        packed = model(X, packed=True, trace=Trace(hidden_states=[-1]))
        single = [model(x[None]) for x in X]
    tokens = model.config.embedding.num_tokens
    assert whole.last_hidden_state.shape == (4, tokens, D)
    assert whole.trace.attentions[0].shape[2:] == (tokens, tokens)
    close = dict(rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(packed.last_hidden_state, whole.last_hidden_state.flatten(0, 1), **close)
    torch.testing.assert_close(
        torch.cat([s.last_hidden_state for s in single]), whole.last_hidden_state, **close
    )
    if whole.logits is not None:
        torch.testing.assert_close(model(X, packed=True).logits, whole.logits, **close)


def test_pictures_of_several_sizes_in_one_batch(model):
    ragged = [X[0], X[1][:, :17, :13], X[2][:, :, :11]]
    with torch.no_grad():
        out = model(ragged)
        single = [model(x[None]) for x in ragged]
    assert not out.packing.is_uniform
    rows = out.packing.split(out.last_hidden_state)
    for row, one in zip(rows, single, strict=True):
        torch.testing.assert_close(row, one.last_hidden_state[0], rtol=1e-5, atol=1e-5)


def test_patch_dropout_keeps_a_share_and_cls(model):
    c = model.config
    few = ViT(replace(c, embedding=replace(c.embedding, patch_dropout=0.5)))
    few.load_state_dict(model.state_dict())
    torch.manual_seed(3)
    out = few.train()(X, packed=True)
    patches = math.prod(c.embedding.grid)
    assert out.packing.lengths == (max(1, round(patches * 0.5)) + c.embedding.class_token,) * 4
    ragged = few([X[0], X[1][:, :17, :13]])
    assert ragged.packing.lengths[0] == out.packing.lengths[0]
    with torch.no_grad():  # in evaluation everything is read
        torch.testing.assert_close(few.eval()(X).last_hidden_state, model(X).last_hidden_state)


def test_presets_have_their_sizes():
    assert vit_base().embedding.num_tokens == 197
    assert vit_one().embedding.num_tokens == 196
    assert vit_tiny().embedding.num_tokens == 65
    millions = {vit_base: 85.8, vit_small: 21.7, vit_tiny: 1.8, vit_large: 303.3}
    for preset, wanted in millions.items():
        with torch.device("meta"):
            model = ViT(replace(preset(), pooling=None))
        assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(wanted, abs=0.06)
