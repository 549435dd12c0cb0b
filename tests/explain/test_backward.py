"""GIM and the decomposition: the forward pass spelled out, exact parts of the logit, gradients by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from glassformer import TextClassifier
from glassformer.errors import InputError
from glassformer.explain import backward
from glassformer.explain.backward import Rules, stepwise_forward
from glassformer.explain.methods import explain, methods_for
from glassformer.explain.subject import run_rows, text_subject
from glassformer.families import FAMILIES
from glassformer.packing import Packing

from .conftest import LABELS, TEXTS, TINY, fitted

TEXT = "it was wonderful , not a dull film"
PLAIN_RULES = Rules(lambda scores: scores.softmax(-1), (1.0, 1.0, 1.0), lambda f, h: f(h), 1.0)
HEADS = {
    "post-norm": {},
    "pre-norm, max": {"norm": "pre", "pooling": "max"},
    "pooler": {"pooling": "pooler"},
    "unit-mean": {"pooling": "unit-mean"},
    "hidden layer, gelu": {"pooling": "first", "head": "mlp", "head_hidden": 5, "head_activation": "gelu"},
    "hidden layer": {"pooling": "first", "head": "mlp", "head_hidden": 5},
}
WITH_ATTENTION = [name for name, family in FAMILIES.items() if hasattr(family.tiny(), "encoder")]


@pytest.fixture(scope="module", params=HEADS)
def subject(request):
    return text_subject(TextClassifier(**TINY | HEADS[request.param]).fit(TEXTS, LABELS), TEXT)


def total(parts, slopes):
    return sum(float((p.detach() * s).sum()) for p, s in zip(parts, slopes, strict=True) if s is not None)


@pytest.mark.parametrize("name", [*WITH_ATTENTION, "causal"])
def test_the_pass_spelled_out_has_the_encoder_s_values(name):
    family = FAMILIES["glassformer-text" if name == "causal" else name]
    config = family.tiny()
    if name == "causal":
        config = replace(config, encoder=replace(config.encoder, causal=True))
    model = family.model(config).eval()
    packing = Packing((5, 3, 1))
    x = torch.randn(9, model.width, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        found, wanted = stepwise_forward(model.encoder, x, packing, PLAIN_RULES), model.encoder(x, packing)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("target", ["neg", "pos"])
def test_parts_of_rows_and_biases_are_the_logit(subject, target, monkeypatch):
    """The biases' part from their own gradient, not as what is left."""
    number = subject.classes.index(target)
    model = subject.model.double()
    exact = replace(subject, embeddings=subject.embeddings.double())
    biases = [p for name, p in model.named_parameters() if name.endswith("bias") and "embeddings" not in name]
    for p in biases:
        p.requires_grad_(True)
    grad = torch.autograd.grad
    found = []

    def with_biases(logit, rows):
        slopes = grad(logit, [rows, *biases], allow_unused=True)
        found.append(total(biases, slopes[1:]))
        return slopes[:1]

    monkeypatch.setattr(torch.autograd, "grad", with_biases)
    e = explain(exact, method="decomposition", target=target)
    monkeypatch.undo()
    with torch.no_grad():
        logit = float(run_rows(model, exact.embeddings, exact.packing()).logits[0, number])
    assert e.settings["biases"] == pytest.approx(found[0], abs=1e-6)  # means are summed in fp32
    assert e.scores.sum() + found[0] == pytest.approx(logit, abs=1e-6)
    model.float()


@pytest.mark.parametrize("name", [*WITH_ATTENTION, "with a projection"])
def test_every_family_s_logit_is_shared_out_whole(name):
    """Rows and biases, each by its own gradient: gates, scales and relative positions leave nothing over."""
    family = FAMILIES["clip" if name == "with a projection" else name]
    config = family.tiny()
    if name == "with a projection":
        config = replace(config, pooling="first-norm", projection=5)
    torch.manual_seed(5)
    model = family.model(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    rows = torch.randn(7, model.width, requires_grad=True)
    rules = Rules(lambda scores: scores.softmax(-1).detach(), (1.0, 1.0, 1.0), backward._linearized, None)
    states = stepwise_forward(model.encoder, rows, Packing((7,)), rules)
    logit = backward._linear_logits(model, states, Packing((7,)))[0, 1]
    wanted = float(run_rows(model, rows, Packing((7,))).logits[0, 1].detach())
    biases = [p for key, p in model.named_parameters() if key.endswith("bias") and "embeddings" not in key]
    parts = [rows, *biases]
    slopes = torch.autograd.grad(logit, parts, allow_unused=True)
    assert total(parts, slopes) == pytest.approx(wanted, abs=1e-4)


def test_parts_are_those_of_a_decomposition_that_runs_forwards():
    """Every state as a sum over tokens and biases ``[T, T + 1, D]``, step by step (DecompX, section 3)."""
    subject = text_subject(fitted("first"), TEXT)
    model, t = subject.model.double(), len(subject)
    x = subject.embeddings.double()
    parts = torch.zeros(t, t + 1, x.shape[1], dtype=torch.float64)
    parts[range(t), range(t)] = x

    def linear(parts, module):
        out = parts @ module.weight.T
        out[:, -1] += module.bias
        return out

    def normed(parts, norm):
        whole = parts.sum(1)
        deviation = (whole.var(-1, correction=0) + norm.eps).sqrt()[:, None, None]
        out = (parts - parts.mean(-1, keepdim=True)) / deviation * norm.weight
        out[:, -1] += norm.bias
        return out

    with torch.no_grad():
        for layer in model.encoder.layers:
            q, k, v = linear(parts, layer.attention.qkv).chunk(3, -1)
            heads = [z.sum(1).view(t, 2, 11) for z in (q, k)]
            weights = (torch.einsum("thk,shk->hts", *heads) / 11**0.5).softmax(-1)
            mixed = torch.einsum("hts,sphk->tphk", weights, v.reshape(t, t + 1, 2, 11)).flatten(2)
            parts = normed(parts + linear(mixed, layer.attention.out), layer.norm1)
            h = linear(parts, layer.feed_forward.up)
            whole = h.sum(1, keepdim=True)
            fed = linear(h * (torch.nn.functional.gelu(whole) / whole), layer.feed_forward.down)
            parts = normed(parts + fed, layer.norm2)
        parts = normed(parts, model.encoder.final_norm)
        logits = linear(parts[:1], model.head.out)[0]  # [T + 1, C]
    e = explain(replace(subject, embeddings=x), method="decomposition")
    np.testing.assert_allclose(e.scores, logits[:-1, subject.target], atol=1e-9)
    assert e.settings["biases"] == pytest.approx(float(logits[-1, subject.target]), abs=1e-9)
    model.float()


def test_gim_s_softmax_goes_back_at_its_temperature():
    scores = torch.tensor([[1.0, -2.0, 3.0], [0.0, 7.0, 0.5]], dtype=torch.float64, requires_grad=True)
    upstream = torch.tensor([[0.3, -1.0, 2.0], [1.0, 1.0, -4.0]], dtype=torch.float64)
    out = backward._Softmax.apply(scores, 2.0)
    np.testing.assert_allclose(out.detach(), torch.softmax(scores, 1).detach())
    (found,) = torch.autograd.grad(out, scores, upstream)
    half = np.exp(scores.detach().numpy() / 2)
    half /= half.sum(1, keepdims=True)
    g = upstream.numpy()
    np.testing.assert_allclose(found, half * (g - (g * half).sum(1, keepdims=True)))


def test_factors_share_their_gradient():
    """Through the values alone a half comes back, through queries and keys a quarter each."""
    subject = text_subject(fitted("mean"), TEXT)
    rows, packing = subject.embeddings.detach().clone().requires_grad_(), subject.packing()

    def slopes(shares):
        rules = replace(PLAIN_RULES, qkv_factors=shares)
        x = backward._attention(subject.model.encoder.layers[0].attention, rows, packing, None, rules)
        return torch.autograd.grad(x.square().sum(), rows)[0]

    q, k, v = (slopes(tuple(float(i == j) for j in range(3))) for i in range(3))
    torch.testing.assert_close(slopes((0.25, 0.25, 0.5)), q / 4 + k / 4 + v / 2)
    torch.testing.assert_close(slopes((1.0, 1.0, 1.0)), q + k + v)


def test_without_norms_plain_rules_are_gradient_x_input():
    clf = TextClassifier(**TINY | {"norm": "pre", "pooling": "mean", "epochs": 1}).fit(TEXTS, LABELS)
    for layer in clf.model_.encoder.layers:
        layer.norm1 = layer.norm2 = torch.nn.Identity()
    clf.model_.encoder.final_norm = torch.nn.Identity()
    subject = text_subject(clf, TEXT)
    answer = lambda model, *states: model.apply_heads(*states).logits  # noqa: E731
    found, _ = backward._gradient_x_input(subject, subject.target, PLAIN_RULES, answer)
    np.testing.assert_allclose(found, explain(subject, method="gradient_x_input").scores, atol=1e-6)


def test_a_temperature_and_models_that_do_not_go(plain):
    with pytest.raises(InputError, match="temperature 0"):
        fitted("mean").explain(TEXT, method="gim", temperature=0.0)
    for method in ("gim", "decomposition"):
        assert method not in methods_for(plain.model_)
        with pytest.raises(InputError, match="has no attention"):
            plain.explain(TEXT, method=method)
    attentive = TextClassifier(**TINY | {"pooling": "attention", "epochs": 1}).fit(TEXTS, LABELS)
    assert len(attentive.explain(TEXT, method="gim").scores)
    with pytest.raises(InputError, match="does not add up over tokens"):
        attentive.explain(TEXT, method="decomposition")
