"""Pictures under the same methods: patches of an encoder whose answer hangs on one of them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from glassformer.explain import faithfulness, orders
from glassformer.explain.methods import NETWORK_METHODS, explain, explain_input
from glassformer.explain.subject import image_subject
from glassformer.models.backbone import Backbone
from glassformer.nn.encoder import Encoder, EncoderConfig
from glassformer.nn.heads import ClassificationHead
from glassformer.nn.pooling import FirstPooling
from glassformer.packing import Packing
from glassformer.targets.multiclass import Classes


class Patches(nn.Module):
    """Patches of 5 x 4 pixels and a [CLS] row before them."""

    def __init__(self, d):
        super().__init__()
        self.projection = nn.Conv2d(3, d, (5, 4), (5, 4))
        self.cls = nn.Parameter(torch.randn(d))
        self.positions = nn.Parameter(0.3 * torch.randn(1 + 6, d))

    def forward(self, pixels):
        x = self.projection(pixels).flatten(2).transpose(1, 2)  # [B, P, D]
        x = torch.cat([self.cls.expand(len(x), 1, -1), x], 1) + self.positions
        return x.flatten(0, 1), Packing.uniform(len(x), x.shape[1])


class Reader(Backbone):
    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(embedding=SimpleNamespace(patch_size=(5, 4)))
        self.embeddings = Patches(22)
        self.encoder = Encoder(EncoderConfig(22, 3, 2, 31, norm="pre", eps=1e-5, final_norm=True))
        self.pooling = FirstPooling()
        self.head = ClassificationHead(22, 3)


@pytest.fixture(scope="module")
def clf():
    torch.manual_seed(0)
    return SimpleNamespace(
        model_=Reader().eval(),
        classes_=np.array(["cat", "dog", "owl"]),
        temperature_=1.0,
        threshold_=None,
        kind_=Classes(),
        decide=lambda p: np.array(["cat", "dog", "owl"])[p.argmax(1)],
        pixels=lambda x: x,
        transform_=SimpleNamespace(normalize=lambda x: x.float() / 127.5 - 1),
    )


@pytest.fixture(scope="module")
def picture():
    return np.random.default_rng(0).integers(0, 255, (3, 11, 13)).astype(np.uint8)  # 2 x 3 patches and a rest


@pytest.mark.parametrize("method", NETWORK_METHODS)
def test_every_method_scores_the_grid(clf, picture, method):
    e = explain_input(clf, picture, method=method, maps=True)
    assert e.scores.shape == (2, 3)
    assert np.isfinite(e.scores).all()
    assert e.maps.shape == (3, 2, 7, 7)
    assert e.image.shape == (10, 12, 3)
    assert e.label in ("cat", "dog", "owl")
    assert "<svg" in e._repr_html_()


def test_what_is_hidden_is_a_patch_of_the_mean_colour(clf, picture):
    e = explain_input(clf, picture, method="occlusion", target="owl")
    values = clf.transform_.normalize(torch.from_numpy(picture)[None])

    def logit(values):
        with torch.no_grad():
            rows, packing = clf.model_.embeddings(values)
            x = clf.model_.encoder(rows, packing)
            return clf.model_.head(clf.model_.pooling(x, packing))[0, 2].item()

    for i, j in np.ndindex(2, 3):
        changed = values.clone()
        changed[:, :, 5 * i : 5 * i + 5, 4 * j : 4 * j + 4] = 0
        assert e.scores[i, j] == pytest.approx(logit(values) - logit(changed), abs=1e-5)


def test_integrated_gradients_are_complete_and_pictures_judged_like_texts(clf, picture):
    subject = image_subject(clf, picture)
    scores = {m: explain(subject, method=m).scores for m in ("rollout", "occlusion")}
    judged = faithfulness.compare_with_random(subject, scores)
    assert judged.keys() == {"rollout", "occlusion", "random"}
    assert faithfulness.agreement(scores)["rollout"]["rollout"] == pytest.approx(1.0)
    assert np.isfinite(subject.logits(np.eye(7, dtype=bool), "delete")).all()
    for baseline in ("mask", "mean", "zero"):
        e = explain_input(clf, picture, method="integrated_gradients", baseline=baseline)
        assert e.error <= 1e-3
    # orders of patches lie between the best and the worst
    lowest, highest = orders.deletion_bounds(subject, subject.target, by="mean")
    scores = explain(subject, method="occlusion", by="mean").scores
    figures = faithfulness.curves(subject, scores, subject.target, "mean").metrics()
    assert lowest < figures["deletion"] < highest
    assert 0.5 < orders.normalize_metrics(figures, lowest, highest)["deletion"] < 1.05
