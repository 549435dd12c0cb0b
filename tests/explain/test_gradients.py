"""Gradient methods: against captum, against each other, and on a model that is linear."""

import captum.attr
import numpy as np
import pytest
import torch

from glassformer import TextClassifier
from glassformer.errors import InputError
from glassformer.explain.methods import NETWORK_METHODS, explain, methods_for
from glassformer.explain.render import page
from glassformer.explain.subject import Subject, attention_maps, text_subject
from glassformer.models.backbone import Backbone
from glassformer.packing import Packing

from .conftest import LABELS, PLAIN, TEXTS, TINY, fitted, forward_of

TEXT = "it was wonderful , not a dull film"


@pytest.fixture(params=["first", "mean"])
def subject(request):
    return text_subject(fitted(request.param), TEXT)


@pytest.fixture(params=["first", "mean", *PLAIN])
def any_subject(request):
    return text_subject(fitted(request.param), TEXT)


@pytest.mark.parametrize("target", ["neg", "pos"])
def test_gradients_equal_captum_s(any_subject, target):
    subject, number = any_subject, any_subject.classes.index(target)
    options = {"steps": 37, "max_steps": 37, "target": target}
    for baseline in ("mask", "zero"):
        ours = explain(subject, method="integrated_gradients", baseline=baseline, **options)
        theirs = captum.attr.IntegratedGradients(forward_of(subject)).attribute(
            subject.embeddings[None], subject.baseline(baseline)[None], target=number, n_steps=37
        )
        np.testing.assert_allclose(ours.scores, theirs[0].sum(-1).detach().numpy(), atol=1e-5)
        assert ours.target == target
    ours = explain(subject, method="gradient_x_input", target=target)
    rows = subject.embeddings[None].clone().requires_grad_()
    theirs = captum.attr.InputXGradient(forward_of(subject)).attribute(rows, target=number)
    np.testing.assert_allclose(ours.scores, theirs[0].sum(-1).detach().numpy(), atol=1e-5)


def test_a_model_without_attention_says_what_explains_it(plain, tmp_path):
    assert methods_for(plain.model_) == ["occlusion", "gradient_x_input", "integrated_gradients", "shapley"]
    for method in ("attention", "rollout", "attention_gradient"):
        with pytest.raises(InputError) as caught:
            plain.explain(TEXT, method=method)
        assert "has no attention to show" in str(caught.value)
        assert caught.value.fix == "Use occlusion, gradient_x_input, integrated_gradients or shapley"
    e = plain.explain(TEXT, method="occlusion", trust=True, maps=True)
    assert e.maps is None
    assert e.trust is not None
    assert "wonderful" in page([e])
    assert dict(e.words()) == pytest.approx(dict(plain.explain(TEXT, method="occlusion").words()))


def test_steps_grow_until_the_scores_are_complete(subject):
    e = explain(subject, method="integrated_gradients", steps=1, tolerance=1e-4)
    logits = subject.logits(np.array([[True] * len(subject), [False] * len(subject)]))[:, subject.target]
    assert e.error <= 1e-4
    assert e.settings["converged"]
    assert e.settings["steps"] > 1
    assert e.scores.sum() == pytest.approx(logits[0] - logits[1], rel=1e-3, abs=1e-6)
    fixed = subject.words < 0
    np.testing.assert_allclose(e.scores[fixed], 0.0, atol=1e-12)  # the baseline keeps [CLS] and [SEP]
    e = explain(subject, method="integrated_gradients", steps=1, max_steps=1, tolerance=0.0)
    assert e.error > 0
    assert e.settings["converged"] is False
    assert e.settings["steps"] == 1


class LinearModel(Backbone):
    """Logit 1 is w . sum of rows: every gradient method must give w . x_t."""

    def __init__(self, w):
        super().__init__()
        self.w = w
        self.encoder = torch.nn.Linear(3, 3)  # only its number format is asked for
        self.encoder.forward = lambda x, packing, **_: x  # type: ignore[method-assign]
        self.pooling = lambda x, packing: packing.pad(x).sum(1)
        self.head = lambda pooled: torch.stack([0 * pooled[:, 0], pooled @ self.w], 1)


def test_a_linear_model_on_paper():
    rows = torch.tensor([[1.0, 2, 3], [0, -1, 4], [2, 0, -5], [0.5, 1, 1], [7, 0, 1]])
    w = torch.tensor([2.0, -3, 1])
    shown = {"text": "", "tokens": list("abcde"), "offsets": [(0, 0)] * 5, "label": "yes"}
    model = LinearModel(w), rows, {"mask": lambda: torch.zeros(5, 3)}
    subject = Subject(*model, np.arange(5), ["no", "yes"], 1, np.array([0.5, 0.5]), shown)
    expected = (rows @ w).numpy()
    for method in ("gradient_x_input", "integrated_gradients", "occlusion"):
        np.testing.assert_allclose(explain(subject, method=method).scores, expected, atol=1e-5)
    assert explain(subject, method="integrated_gradients").error < 1e-6


def test_attention_gradient_of_one_layer_by_finite_differences(tiny):
    """dy/dA by nudging one weight at a time, in a copy of the model cut to one layer."""
    import copy
    from dataclasses import replace

    model = copy.deepcopy(tiny.model_).double()
    model.encoder.layers = model.encoder.layers[:1]
    model.encoder.config = replace(model.encoder.config, num_layers=1)
    subject = text_subject(tiny, "a dull film")
    subject = Subject(**{**vars(subject), "model": model, "embeddings": subject.embeddings.double()})
    maps, reads = attention_maps(subject)
    layer, t = model.encoder.layers[0], len(subject)
    x = subject.embeddings
    with torch.no_grad():
        v = layer.attention.qkv(x).view(t, 3, 2, 11)[:, 2]  # [T, H, K]

    def logit(weights):  # [H, T, T]
        with torch.no_grad():
            mixed = torch.einsum("hts,shk->thk", weights, v).flatten(1)
            y = layer.norm1(x + layer.attention.out(mixed))
            y = model.encoder.final_norm(layer.norm2(y + layer.feed_forward(y)))
            return model.head(model.pooling(y, Packing((t,))))[0, subject.target].item()

    weights = torch.from_numpy(maps[0]).double()
    slopes = torch.zeros_like(weights)
    for i in np.ndindex(*weights.shape):
        nudge = torch.zeros_like(weights)
        nudge[i] = 1e-5
        slopes[i] = (logit(weights + nudge) - logit(weights - nudge)) / 2e-5
    expected = reads @ (weights * slopes).clamp(min=0).mean(0).numpy()
    e = explain(subject, method="attention_gradient")
    np.testing.assert_allclose(e.scores, expected, atol=1e-6)
    np.testing.assert_allclose(e.maps, maps, atol=1e-6)


def test_frozen_weights_are_no_obstacle(tiny):
    before = {name: p.requires_grad for name, p in tiny.model_.named_parameters()}
    try:
        expected = {
            m: tiny.explain(TEXT, method=m).scores for m in ("attention_gradient", "gradient_x_input")
        }
        for p in tiny.model_.parameters():
            p.requires_grad_(False)
        for method, scores in expected.items():
            np.testing.assert_array_equal(tiny.explain(TEXT, method=method).scores, scores)
    finally:
        for name, p in tiny.model_.named_parameters():
            p.requires_grad_(before[name])
    assert all(p.grad is None for p in tiny.model_.parameters())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"baseline": "blank"}, "unknown baseline 'blank'"),
        ({"steps": 0}, "0 steps"),
        ({"step": 3}, "'steps'"),
    ],
)
def test_options_that_cannot_be(tiny, options, said):
    with pytest.raises(InputError, match=said):
        tiny.explain(TEXT, method="integrated_gradients", **options)


@pytest.mark.parametrize("kind", ["local", "linear"])
def test_maps_that_no_answer_went_through_have_no_gradient(kind):
    settings = TINY | {"num_layers": 1, "epochs": 1, "attention": kind}
    clf = TextClassifier(**settings | ({"attention_window": 2} if kind == "local" else {})).fit(TEXTS, LABELS)
    # Windows are masks of scores, which go the way step by step.
    no_way = ("attention_gradient", *(("gim", "decomposition") if kind == "linear" else ()))
    assert {*methods_for(clf.model_)} == {*NETWORK_METHODS} - {*no_way}
    for method in methods_for(clf.model_):
        assert len(clf.explain(TEXT, method=method).scores)
    with pytest.raises(InputError, match=f"has {kind} attention, whose maps no gradient reaches"):
        clf.explain(TEXT, method="attention_gradient")
