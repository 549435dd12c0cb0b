"""A classifier goes on from any saved model of ours with a body for it, under a new head; others say what to do."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.commands import values

import glassformer as gf
from glassformer.errors import CheckpointError, ConfigError
from glassformer.inputs.start import check_start
from glassformer.tasks.catalog import TASKS

TEXTS = ["a warm film", "dull film", "funny and warm", "endless and dull", "warm wise", "a dull story"] * 3
TWO, THREE = ["good", "bad"] * 9, [7, 11, 13] * 6
PICTURES = [np.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=np.uint8) for i in range(6)]
TINY = {"d_model": 12, "num_layers": 2, "num_heads": 3, "d_ff": 17}
SHARED = {"epochs": 1, "precision": "fp32"}
TEXT = {"min_count": 1, "max_length": 13, **SHARED}
SQUARES = {"model": "vit-tiny", "image_size": 8, "patch_size": 4, **TINY, **SHARED}

PLAIN = {"d_model": 7, "embedding_dim": 5, **TEXT}
VECTORS = {"vectors": "word2vec", "freeze_vectors": True}
ADAPTED = {"lora_rank": 2, "lora_targets": "all-linear", **TINY, **TEXT}
KINDS = {
    "lstm": lambda: gf.TextClassifier("lstm", num_layers=2, **PLAIN),
    "gru": lambda: gf.TextClassifier("gru", pooling="attention", **PLAIN),
    "frozen vectors": lambda: gf.TextClassifier("lstm", **VECTORS, **PLAIN),
    "textcnn": lambda: gf.TextClassifier("textcnn", head="mlp", head_hidden=3, **PLAIN),
    "own encoder": lambda: gf.TextClassifier("encoder-mini", **TINY, **TEXT),
    "with LoRA": lambda: gf.TextClassifier("encoder-small", **ADAPTED),
    "masked words": lambda: gf.MaskedLM(max_positions=13, **TINY, **TEXT),
    "pictures": lambda: gf.ImageClassifier(**SQUARES),
    "own pictures": lambda: gf.ImageClassifier(class_token=False, pooling="mean", norm="post", **SQUARES),
    "translator": lambda: gf.Translator(**(TINY | {"epochs": 1, "min_count": 1})),
    "vectors": lambda: gf.Word2Vec(min_count=1, epochs=1, dim=5),
}
OF_TEXTS = ["lstm", "gru", "frozen vectors", "textcnn", "own encoder", "with LoRA", "masked words"]
HOUSE = Path(__file__).parents[1] / "house" / "saved" / "0.1.0" / "runs"
OF_PICTURES = ["pictures", "own pictures"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Name -> the folder of such a model, made when it is first asked for."""
    home = tmp_path_factory.mktemp("saved")

    def folder(name: str) -> Path:
        path = home / name.replace(" ", "-")
        if not path.exists():
            estimator = KINDS[name]()
            if name in OF_PICTURES:
                estimator.fit(PICTURES, [0, 1] * 3)
            elif isinstance(estimator, gf.TextClassifier):
                estimator.fit(TEXTS, TWO)
            elif isinstance(estimator, gf.Translator):
                estimator.fit(TEXTS, [f"{text} ." for text in TEXTS])
            else:
                estimator.fit(TEXTS)
            estimator.save(path)
        return path

    return folder


def data_of(name: str):
    return (PICTURES, [7, 11, 13] * 2) if name in OF_PICTURES else (TEXTS, THREE)


def classifier(name: str, folder: Path, **settings):
    if name in OF_PICTURES:
        return gf.ImageClassifier(str(folder), **(SHARED | settings))
    return gf.TextClassifier(str(folder), **({"max_length": 13} | SHARED | settings))


@pytest.mark.filterwarnings("ignore::glassformer.errors.IdleSettingWarning")  # the weights at the start
@pytest.mark.parametrize("name", OF_TEXTS + OF_PICTURES)
def test_a_fit_goes_on_from_a_saved_model_and_from_its_run(saved, tmp_path, name):
    folder, (X, y) = saved(name), data_of(name)
    still = classifier(name, folder, lr=0.0).fit(X, y)
    assert re.search(r"new \((random|solved)\)", still.weights_source_)
    assert "classification head" in still.weights_source_
    before = gf.load(folder).model_.state_dict()
    parts = ("embeddings.", "encoder.")
    body = {key: w for key, w in still.model_.state_dict().items() if key.startswith(parts)}
    assert body
    for key, weight in body.items():
        torch.testing.assert_close(weight, before[key], rtol=0, atol=0)
    assert still.model_.config.num_labels == 3
    run = tmp_path / "run"
    shutil.copytree(folder, run / "model")
    (run / "config.toml").write_text("")
    clf = classifier(name, run, lr=0.01, batch_size=len(X), seed=3).fit(X, y)
    assert len([row for row in clf.history_ if row["kind"] == "step"]) == 1
    moved = clf.model_.state_dict()
    assert any((moved[key] - weight).abs().max() > 0 for key, weight in body.items())
    found = clf.predict_proba(X)
    assert found.shape == (len(X), 3)
    clf.save(tmp_path / "again")
    np.testing.assert_array_equal(gf.load(tmp_path / "again").predict_proba(X), found)
    thrice = classifier(name, tmp_path / "again", seed=3).fit(X, y)  # and on from there
    assert np.isfinite(thrice.predict_proba(X)).all()
    same = classifier(name, folder, lr=0.01, batch_size=len(X), seed=3).fit(X, y)
    np.testing.assert_array_equal(same.predict_proba(X), found)


@pytest.mark.filterwarnings("ignore::glassformer.errors.IdleSettingWarning")  # the weights at the start
def test_what_stands_on_a_body_may_change(saved):
    gru = classifier("gru", saved("gru")).fit(TEXTS, THREE)
    assert gru.model_.config.pooling == "attention"  # as it was
    kept = gf.load(saved("gru")).model_.state_dict()["pooling.score.weight"]
    still = classifier("gru", saved("gru"), lr=0.0).fit(TEXTS, THREE)
    assert torch.equal(still.model_.state_dict()["pooling.score.weight"], kept)
    mean = classifier("gru", saved("gru"), pooling="mean", head="mlp", head_hidden=5).fit(TEXTS, THREE)
    assert mean.model_.head.hidden.out_features == 5
    attention = classifier("lstm", saved("lstm"), pooling="attention", dropout=0.5).fit(TEXTS, THREE)
    assert "new (random): attention pooling, classification head" in attention.weights_source_
    assert attention.model_.config.dropout == 0.5
    own = classifier("own pictures", saved("own pictures")).fit(*data_of("own pictures"))
    assert own.model_.config.pooling == "mean"  # it has no [CLS]
    assert gf.load_pretrained(saved("frozen vectors")).config.embedding.frozen
    frozen = classifier("frozen vectors", saved("frozen vectors"), lr=0.1).fit(TEXTS, THREE)
    tables = (clf.model_.embeddings.tokens.weight for clf in (frozen, gf.load(saved("frozen vectors"))))
    assert torch.equal(*tables)


@pytest.mark.parametrize(
    ("name", "setting", "said"),
    [
        ("lstm", "d_model=5", "d_model belongs to from-scratch models"),
        ("lstm", "attention_dropout=0.1", "has no attention_dropout"),
        ("lstm", "pooling=pooler", "pooler pooling is only for Transformers"),
        ("lstm", "freeze_vectors=True", "freeze_vectors: the word vectors of .* were trained with it"),
        ("lstm", "train_layers=0", "train_layers: this model has no encoder layers to freeze"),
        ("lstm", "lora_rank=2", "lora_rank: this model has no encoder layers to update"),
        ("textcnn", "pooling=mean", "always uses max pooling"),
        ("own encoder", "max_length=17", "max_length: 17 is more than the model's 13 positions"),
        ("lstm", "tokenizer=word", "belong to its own vocabulary"),
    ],
)
def test_settings_that_a_body_does_not_have(saved, name, setting, said):
    with pytest.raises(ConfigError, match=said):
        classifier(name, saved(name), **values(setting)).fit(TEXTS, THREE)


@pytest.mark.parametrize("kind", [gf.TextClassifier, gf.ImageClassifier])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("translator", "a Translator has no encoder for a classifier. Start from a classifier"),
        ("vectors", r"a Word2Vec has no .*TextClassifier\('lstm', vectors=FOLDER\)"),
    ],
)
def test_models_without_a_body_for_a_classifier(saved, tmp_path, kind, name, said):
    data = (TEXTS, THREE) if kind is gf.TextClassifier else (PICTURES, [0, 1] * 3)
    shutil.copytree(saved(name), tmp_path / "run" / "model")
    for folder in (saved(name), tmp_path / "run"):
        with pytest.raises(ConfigError, match=said):
            kind(str(folder), **SHARED).fit(*data)


def test_texts_and_pictures_are_not_mistaken_for_each_other(saved, tmp_path):
    for name in ("lstm", "masked words"):
        with pytest.raises(
            ConfigError, match=r"reads texts, not images. Continue with TextClassifier\(folder\)"
        ):
            gf.ImageClassifier(str(saved(name))).fit(PICTURES, [0, 1] * 3)
    with pytest.raises(
        ConfigError, match=r"reads images, not texts. Continue with ImageClassifier\(folder\)"
    ):
        gf.TextClassifier(str(saved("pictures"))).fit(TEXTS, TWO)
    broken = tmp_path / "broken"
    shutil.copytree(saved("lstm"), broken)
    (broken / "glassformer.json").write_text('{"kind": "Oracle"}')
    check_start(str(broken), "texts")  # whoever saved it, its body is known
    (broken / "config.json").write_text('{"model_type": "glassformer-oracle"}')
    with pytest.raises(ConfigError, match="an Oracle has no encoder for a classifier"):
        gf.TextClassifier(str(broken)).fit(TEXTS, TWO)
    (broken / "glassformer.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"glassformer\.json: is not a JSON object"):
        gf.TextClassifier(str(broken)).fit(TEXTS, TWO)


@pytest.mark.parametrize("name", TASKS)
def test_the_folder_of_any_task_says_what_its_body_reads(name, tmp_path):
    estimator, data = TASKS[name].example_fixture()
    estimator.fit(*data).save(tmp_path / "model")
    known(tmp_path, getattr(getattr(estimator, "model_", None), "reads", None))


@pytest.mark.parametrize(
    ("run", "reads"),
    [
        *((run, "texts") for run in ("text", "lora", "lstm", "textcnn", "masked")),
        *((run, None) for run in ("translation", "transformer", "vectors")),
        ("pictures", "images"),
    ],
)
def test_folders_of_earlier_versions_do_too(run, reads):
    known(HOUSE / run, reads)


def known(folder, reads):
    for wanted in ("texts", "images"):
        if reads == wanted:
            assert check_start(str(folder), wanted) is None
        else:
            said = f"the model reads {reads}" if reads else "has no encoder for a classifier"
            with pytest.raises(ConfigError, match=said):
                check_start(str(folder), wanted)


def test_the_vectors_advice_works(saved):
    clf = gf.TextClassifier("lstm", vectors=str(saved("vectors")), d_model=7, **TEXT).fit(TEXTS, TWO)
    assert clf.model_.config.embedding.d_model == 5
