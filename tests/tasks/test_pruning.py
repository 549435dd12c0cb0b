"""Pruned models: what is unused goes first, the rest answers as before, and folders open elsewhere."""

import copy

import numpy as np
import pytest
import torch
from tests.commands import values

import glassformer as gf
from glassformer.errors import BadValueError, InputError, NotForThisModelError
from glassformer.nn.feedforward import GatedFeedForward
from glassformer.tasks.adapters import _keep_units, unit_importance
from glassformer.tasks.load import load

TEXTS = ["a wonderful film", "a dull film", "it was not dull", "wonderful , it was not"] * 4
LABELS = ["pos", "neg", "pos", "neg"] * 4
SIZES = {"d_model": 22, "num_heads": 2, "d_ff": 37, "num_layers": 3}
FIT = {"max_length": 13, "min_count": 1, "epochs": 3, "lr": 1e-2, "batch_size": 5, "precision": "fp32"}


@pytest.fixture(scope="module")
def clf():
    return gf.TextClassifier(model="encoder-mini", **SIZES, **FIT).fit(TEXTS, LABELS)


def without(clf, units):
    """The same classifier, in which these units give nothing."""
    made = copy.copy(clf)
    made.model_, made._compute_model = copy.deepcopy(clf.model_), None
    with torch.no_grad():
        for layer in made.model_.encoder.layers:
            layer.feed_forward.down.weight[:, units] = 0
    return made


def test_units_that_give_nothing_go_first_and_nothing_changes(clf):
    unused = np.random.default_rng(0).permutation(37)[:21]
    clf = without(clf, unused)
    importance = unit_importance(clf, TEXTS[:3])
    assert importance.shape == (3, 37)
    assert (importance[:, unused] == 0).all()
    pruned = clf.prune(TEXTS[:3], share=21 / 37)
    assert pruned.model_.config.encoder.d_ff == 16
    np.testing.assert_allclose(pruned.logits(TEXTS), clf.logits(TEXTS), atol=1e-5)
    assert clf.model_.config.encoder.d_ff == 37  # the one it was made from stays


def test_of_a_gated_network_both_halves_lose_a_unit():
    network, x = GatedFeedForward(5, 11), torch.randn(3, 5)
    with torch.no_grad():
        network.down.weight[:, [0, 4, 5, 10]] = 0
        whole = network(x)
        _keep_units(network, torch.tensor([1, 2, 3, 6, 7, 8, 9]))
        torch.testing.assert_close(network(x), whole)
    assert network.up.weight.shape == (14, 5)


def test_importance_is_the_first_order_of_what_is_lost(clf):
    importance = unit_importance(clf, TEXTS[:1])[-1]
    index = clf.explain(TEXTS[0], method="occlusion").target
    number = clf.classes_.tolist().index(index)
    whole, step = float(clf.logits(TEXTS[:1])[0, number]), 1e-2
    for unit in (2, 19, 36):
        made = copy.copy(clf)
        made.model_, made._compute_model = copy.deepcopy(clf.model_), None
        with torch.no_grad():
            made.model_.encoder.layers[-1].feed_forward.down.weight[:, unit] *= 1 - step
        lost = abs(whole - float(made.logits(TEXTS[:1])[0, number])) / step
        assert lost == pytest.approx(float(importance[unit]), rel=0.05, abs=1e-4)


def test_a_pruned_model_is_saved_loaded_trained_on_and_explained(clf, tmp_path):
    pruned = clf.prune(TEXTS, share=0.5)
    assert pruned.temperature_ == 1.0
    pruned.save(tmp_path / "small")
    again = load(tmp_path / "small")
    np.testing.assert_array_equal(again.logits(TEXTS), pruned.logits(TEXTS))
    assert again.explain(TEXTS[0], method="gim").label in clf.classes_
    assert sum(p.numel() for p in again.model_.parameters()) < sum(p.numel() for p in clf.model_.parameters())
    # images and numbers too
    images = np.random.default_rng(0).integers(0, 255, (6, 16, 16, 3)).astype(np.uint8)
    sizes = {"d_model": 22, "num_heads": 2, "d_ff": 37, "num_layers": 2}
    clf = gf.ImageClassifier(model="vit-tiny", image_size=16, patch_size=8, epochs=1, **sizes)
    pruned = clf.fit(images, ["a", "b"] * 3).prune(images[:2], share=0.5)
    assert pruned.model_.config.encoder.d_ff == 16
    assert len(pruned.predict(images)) == 6
    numbers = gf.TextRegressor(model="encoder-mini", **SIZES, **FIT).fit(TEXTS, np.arange(16.0))
    assert np.isfinite(numbers.prune(TEXTS[:3]).predict(TEXTS)).all()


def test_transformers_opens_a_pruned_model(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = "vocab_size=31 hidden_size=22 num_hidden_layers=2 num_attention_heads=2 intermediate_size=37"
    config = transformers.BertConfig(**values(sizes), max_position_embeddings=17)
    torch.manual_seed(0)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({*" ".join(TEXTS).split()})]
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    clf = gf.TextClassifier(model=str(tmp_path / "bert"), max_length=13, epochs=1, precision="fp32")
    pruned = clf.fit(TEXTS, LABELS).prune(TEXTS, share=0.4)
    pruned.save(tmp_path / "hub")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hub").eval()
    assert theirs.config.intermediate_size == 16
    ids = torch.tensor([pruned.tokenizer_.encode(TEXTS[0]).ids])
    with torch.no_grad():
        logits = theirs(ids).logits.numpy()
    np.testing.assert_allclose(pruned.logits(TEXTS[:1]), logits, atol=1e-5)


def test_what_cannot_be_pruned(clf):
    for share in (0, 1, -0.1, 1.5):
        with pytest.raises(BadValueError, match=r"prune: share is .*, not between 0 and 1"):
            clf.prune(TEXTS, share=share)
    with pytest.raises(NotForThisModelError, match="'tfidf' has no feed-forward units"):
        gf.TextClassifier(model="tfidf").fit(TEXTS, LABELS).prune(TEXTS)
    with pytest.raises(InputError):
        clf.prune([])
