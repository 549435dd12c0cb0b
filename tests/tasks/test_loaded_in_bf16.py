"""``load(path, precision="bf16")``: the same predictions, and fp32 weights only where something needs them."""

import pickle

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.errors import BadValueError, CheckpointError
from glassformer.families.bert import bert
from glassformer.models.text import TextEncoder
from glassformer.nn.int8 import precision_of
from glassformer.tasks.build import save_tokenizer
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.load import load_for_predictions

TEXTS = ["a good film", "a bad film", "good", "bad and long and boring", "fine", "dull"] * 4


ENCODERS = [name for name in TASKS if name not in ("word2vec", "translation", "masked-patches")]


@pytest.fixture(scope="module", params=ENCODERS)
def saved(request, tmp_path_factory):
    estimator, data = TASKS[request.param].example_fixture()
    folder = tmp_path_factory.mktemp("saved") / "model"
    estimator.fit(*data).save(folder)
    return folder


def same_weights(first, second) -> bool:
    a, b = first.state_dict(), second.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_it_keeps_bf16_until_the_weights_are_needed(saved):
    full, light = gf.load(saved), gf.load(saved, precision="bf16")
    assert light.precision == "bf16"
    assert light.has_model
    if not hasattr(full.model_, "encoder") or not full.model_.has_attention:
        return
    assert "model_" not in vars(light)
    assert precision_of(light.predictor()) == "bf16"
    assert light.predictor() is light.any_model
    expected, found = full.set_params(precision="bf16").predictor(), light.predictor()
    assert same_weights(expected, found)
    assert "model_" not in vars(light)
    assert same_weights(full.model_, light.model_)  # read again, in fp32
    assert same_weights(expected, light.predictor())
    assert light.any_model is light.model_


def test_it_saves_what_it_was_saved_with(saved, tmp_path):
    full, light = gf.load(saved), gf.load(saved, precision="bf16")
    full.set_params(precision="bf16").save(tmp_path / "full")
    light.save(tmp_path / "light")
    for name in ("glassformer.json", "config.json", "model.safetensors"):
        assert (tmp_path / "light" / name).read_bytes() == (tmp_path / "full" / name).read_bytes()
    # it is pickled with fp32 weights
    full, light = gf.load(saved), pickle.loads(pickle.dumps(gf.load(saved, precision="bf16")))
    assert same_weights(full.model_, light.model_)


LABELS = ["b", "a"] * (len(TEXTS) // 2)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """Two folders of classifiers: ours, and the Hub's, with classes in another order."""
    folder = tmp_path_factory.mktemp("classifier")
    sizes = {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 32, "min_count": 1, "max_length": 19}
    clf = gf.TextClassifier("encoder-mini", epochs=1, **sizes).fit(TEXTS, LABELS)
    clf.save(folder / "ours")
    size = clf.tokenizer_.get_vocab_size()
    config = bert(size, 12, 2, 3, 17, 19, head="classification", num_labels=2, init_std=0.3)
    gf.save_pretrained(TextEncoder(config), folder / "theirs", label_names=("b", "a"))
    save_tokenizer(clf.tokenizer_, folder / "theirs", 19)
    return folder


@pytest.mark.parametrize("name", ["ours", "theirs"])
def test_predictions_are_equal(classifier, name):
    full, light = gf.load(classifier / name), gf.load(classifier / name, precision="bf16")
    full.set_params(precision="bf16")
    np.testing.assert_array_equal(full.predict_proba(TEXTS), light.predict_proba(TEXTS))
    np.testing.assert_array_equal(full.embed(TEXTS), light.embed(TEXTS))
    assert light.truncated(TEXTS).any() == full.truncated(TEXTS).any()
    assert "model_" not in vars(light)
    expected = full.explain("a good film", method="gradient_x_input").scores
    np.testing.assert_array_equal(light.explain("a good film", method="gradient_x_input").scores, expected)
    assert same_weights(full.model_, light.model_)  # also the order of the classes


def test_another_precision_reads_the_weights_in_fp32(classifier):
    light = gf.load(classifier / "ours", precision="bf16").set_params(precision="fp32")
    full = gf.load(classifier / "ours", precision="fp32")
    assert "model_" in vars(full)
    np.testing.assert_array_equal(full.predict_proba(TEXTS), light.predict_proba(TEXTS))
    with pytest.raises(BadValueError, match="is not a precision"):
        gf.load(classifier / "ours", precision="bf17")
    # a new fit replaces it
    light = gf.load(classifier / "ours", precision="bf16")
    light.fit(TEXTS, LABELS)
    assert light.any_model is light.model_


def test_weights_that_another_program_wrote_to_are_not_read(classifier, tmp_path):
    light = gf.load(classifier / "theirs", precision="bf16")
    file = classifier / "theirs" / "model.safetensors"
    content = file.read_bytes()
    with open(file, "r+b") as opened:  # in place, not by renaming
        opened.write(content)
        opened.truncate(len(content) - 8)
    try:
        with pytest.raises(CheckpointError, match="was changed after it was opened"):
            light.model_  # noqa: B018
        assert len(light.predict(TEXTS)) == len(TEXTS)
    finally:
        file.write_bytes(content)


def test_commands_read_bf16_where_the_model_predicts_in_bf16(classifier, monkeypatch):
    monkeypatch.setattr("glassformer.runtime.cpu_flags", lambda: frozenset({"avx512_bf16"}))
    assert "model_" not in vars(load_for_predictions(classifier / "ours"))
    assert "model_" in vars(load_for_predictions(classifier / "ours", "fp32"))
    monkeypatch.setattr("glassformer.runtime.cpu_flags", frozenset)
    assert "model_" in vars(load_for_predictions(classifier / "ours"))
    assert "model_" in vars(gf.load(classifier / "ours"))


@pytest.mark.parametrize("pooling", ["auto", "cls"])
def test_an_embedder_of_a_checkpoint_in_bf16(classifier, pooling):
    folder, options = str(classifier / "theirs"), {"pooling": pooling, "max_length": 19}
    light, full = (gf.Embedder(folder, precision="bf16", **options) for _ in range(2))
    full.open(in_bf16=False)
    np.testing.assert_array_equal(light.encode(TEXTS), full.encode(TEXTS))
    assert light.max_tokens() == full.max_tokens()
    assert "model_" not in vars(light)
    assert "model_" in vars(full)
    assert light.weights_digest() == full.weights_digest()
    assert same_weights(full.model_, light.model_)


def test_an_adapter_is_added_before_rounding(classifier, tmp_path):
    clf = gf.TextClassifier(str(classifier / "theirs"), epochs=1, lora_rank=2, max_length=19).fit(
        TEXTS, LABELS
    )
    clf.save_adapter(tmp_path / "adapter", head=False)
    options = {"head": "classification", "num_labels": 2, "adapter": tmp_path / "adapter"}
    torch.manual_seed(0)
    full = gf.load_pretrained(classifier / "theirs", **options)
    light = gf.load_pretrained(classifier / "theirs", precision="bf16", **options)
    assert same_weights(full.set_compute_dtype(torch.bfloat16), light)
