"""The share of padding that a run tells is that of the attention which it computes."""

from types import SimpleNamespace

import numpy as np
import pytest

from glassformer.nn import kernels
from glassformer.tasks.text_classification import estimator
from glassformer.tasks.text_classification.recipe import TextFitConfig

LENGTHS = np.arange(50, 97)  # unlike, so that groups pad
SETTINGS = TextFitConfig(batch_size=13, precision="fp32", device="cpu")


def model(kind: str = "full", dropout: float = 0.0, heads: int = 2, has_attention: bool = True):
    encoder = SimpleNamespace(attention=kind, attention_dropout=dropout, num_heads=heads, d_model=32)
    return SimpleNamespace(has_attention=has_attention, config=SimpleNamespace(encoder=encoder))


def told(*args, **options):
    shares = estimator.attention_padding(LENGTHS, SETTINGS, model(*args, **options))
    return shares["attention"], shares["attention_evaluation"]


def test_groups_pad_and_kernels_do_not(monkeypatch):
    monkeypatch.setattr(kernels, "supports", lambda q, k, v: False)
    assert min(told()) > 0.0
    asked = []
    monkeypatch.setattr(kernels, "supports", lambda q, k, v: asked.append(q.shape) or True)
    assert told(heads=4) == (0.0, 0.0)
    assert {shape[1:] for shape in asked} == {(4, 8)}
    # dropout of weights takes one sequence after the other
    monkeypatch.setattr(kernels, "supports", lambda q, k, v: False)
    training, judging = told(dropout=0.1)
    assert training == 0.0
    assert judging > 0.0


@pytest.mark.parametrize("other", [{"has_attention": False}, {"kind": "local"}, {"kind": "linear"}])
def test_models_without_full_attention_have_none(other, monkeypatch):
    monkeypatch.setattr(kernels, "supports", lambda q, k, v: False)
    assert told(**other) == (0.0, 0.0)
