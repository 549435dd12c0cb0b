"""Heads of one number: folders of transformers are opened, and ours are opened by it, in the numbers' own unit."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertTokenizerFast
from transformers import BertForSequenceClassification as Theirs

import glassformer as gf
from glassformer.errors import CheckpointError
from glassformer.export.hf_folder import export_hf

TEXTS = ["the dog runs", "a cat", "the cat sees a dog", "rain"]
NUMBERS = [3.5, -1.25, 6.0, 0.5]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "runs", "a", "cat", "sees", "rain"]


def written(folder, outputs=1, **problem):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=22,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=31,
        max_position_embeddings=19,
        num_labels=outputs,
        initializer_range=0.5,
        **problem,
    )
    Theirs(config).eval().save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def asked(folder):
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    batch = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        return model, model(**batch).logits[:, 0].numpy()


@pytest.mark.parametrize("problem", [{}, {"problem_type": "regression"}])
def test_theirs_are_answered_as_by_them(tmp_path, problem):
    folder = written(tmp_path / "theirs", **problem)
    est = gf.load(folder).set_params(precision="fp32")
    assert type(est) is gf.TextRegressor
    wanted = asked(folder)[1]
    np.testing.assert_allclose(est.predict(TEXTS), wanted, atol=1e-5)
    est.save(tmp_path / "ours")
    again = gf.load(tmp_path / "ours")
    np.testing.assert_array_equal(again.predict(TEXTS), est.predict(TEXTS))
    np.testing.assert_allclose(asked(tmp_path / "ours")[1], wanted, atol=1e-5)


def test_several_numbers_an_example_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="regression"):
        gf.load(written(tmp_path / "theirs", 3, problem_type="regression"))


@pytest.mark.parametrize("how", ["saved", "exported"])
def test_ours_open_as_theirs_in_the_unit_of_the_targets(tmp_path, how):
    folder, base = tmp_path / how, written(tmp_path / "theirs")
    est = gf.TextRegressor(str(base), max_length=19, epochs=3, precision="fp32", pooling="pooler", seed=1)
    est.fit(TEXTS * 3, NUMBERS * 3)
    assert est.kind_.mean == pytest.approx(np.mean(NUMBERS))
    assert est.kind_.unit == 2.0  # the standard deviation is 2.8
    if how == "saved":
        est.save(folder)
    else:
        assert export_hf(est, folder, TEXTS)["whole"]
    assert json.loads((folder / "config.json").read_text())["problem_type"] == "regression"
    model, found = asked(folder)
    assert model.config.num_labels == 1
    np.testing.assert_allclose(est.predict(TEXTS), found, atol=1e-5)
    np.testing.assert_allclose(gf.load(folder).set_params(precision="fp32").predict(TEXTS), found, atol=1e-5)
    batch = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    loss = model(**batch, labels=torch.tensor(NUMBERS)).loss.item()
    assert loss == pytest.approx(float(np.square(found - NUMBERS).mean()), rel=1e-5)
