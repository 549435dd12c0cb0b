"""Training on a GPU: it learns, is saved, goes on from where it was stopped, and CUDA graphs change nothing but time."""

import warnings

import numpy as np
import pytest
from tests.classifier.conftest import make_texts as sentences
from tests.image.conftest import quarters
from tests.stopping import StopAt

import glassformer as gf
from glassformer.train.callbacks import Interrupted

SMALL = {
    "model": "encoder-mini",
    "d_model": 16,
    "num_heads": 2,
    "d_ff": 11,
    "max_length": 16,
    "min_count": 1,
    "dropout": 0.0,
    "epochs": 6,
    "lr": 3e-2,
    "batch_size": 8,
    "pooling": "mean",
    "device": "cuda",
}
NOISY = {
    "dropout": 0.2,
    "attention_dropout": 0.1,
    "head_dropout": 0.1,
    "word_dropout": 0.1,
    "average": 0.9,
    "accumulate": 2,
    "checkpoint_every": 1,
    "evaluate_every": 3,
}
PICTURES = {
    "image_size": 8,
    "patch_size": 4,
    "d_model": 16,
    "num_layers": 2,
    "num_heads": 2,
    "d_ff": 23,
    "epochs": 12,
    "lr": 5e-3,
    "batch_size": 16,
    "device": "cuda",
}
SOURCE = ["a man walks", "the dog runs", "two girls play", "a girl runs", "the man plays", "two dogs walk"]
TARGET = [
    "ein Mann geht",
    "der Hund läuft",
    "zwei Mädchen spielen",
    "ein Mädchen läuft",
    "der Mann spielt",
    "zwei Hunde gehen",
]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"attention_dropout": 0.1}, {"optimizer": "muon"}, {"model": "textcnn"}, {"model": "lstm"}],
    ids=["plain", "dropout", "muon", "textcnn", "lstm"],
)
def test_it_learns_and_a_processor_answers_alike(gpu, tmp_path, precision, changes):
    settings = SMALL | {"precision": precision} | changes
    if "model" in changes:
        settings = {
            "model": changes["model"],
            "max_length": 16,
            "min_count": 1,
            "epochs": 6,
            "lr": 1e-2,
            "batch_size": 8,
            "device": "cuda",
            "precision": precision,
        }
    clf = gf.TextClassifier(**settings).fit(*sentences(211))
    texts, labels = sentences(53, seed=1)
    assert next(clf.model_.parameters()).is_cuda
    assert clf.score(texts, labels) >= 0.95
    clf.save(tmp_path / "model")
    here = gf.load(tmp_path / "model").set_params(device="cpu", precision="fp32")
    np.testing.assert_allclose(here.predict_proba(texts), clf.predict_proba(texts), atol=0.05)
    again = gf.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict_proba(texts), clf.predict_proba(texts), atol=1e-2)
    assert next(again.model_.parameters()).is_cuda


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_stopped_training_goes_on_to_the_same_weights(gpu, tmp_path, precision):
    data = sentences(101)

    def make():
        return gf.TextClassifier(**SMALL | NOISY | {"precision": precision})

    whole = make().fit(*data, validation=sentences(29, seed=1))
    with pytest.raises((KeyboardInterrupt, Interrupted)):
        make().fit(*data, validation=sentences(29, seed=1), checkpoints=tmp_path / "c", callbacks=[StopAt(8)])
    clf = make().fit(*data, validation=sentences(29, seed=1), checkpoints=tmp_path / "c", resume=True)
    ours, wanted = clf.model_.state_dict(), whole.model_.state_dict()
    # Sums over rows are added up in no fixed order on a GPU, so near is all that can be asked.
    for name, weight in wanted.items():
        assert (ours[name].float() - weight.float()).abs().max() < 0.05, name


@pytest.mark.parametrize("kind", ["texts", "dropout", "pictures"])
def test_cuda_graphs_change_nothing_but_time(gpu, monkeypatch, kind):
    def fitted(graphs):
        monkeypatch.setenv("GLASSFORMER_GRAPHS", graphs)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # one says that nothing was captured
            if kind == "pictures":
                return gf.ImageClassifier(**PICTURES, precision="bf16").fit(*quarters(64, 3))
            rate = 0.1 if kind == "dropout" else 0.0
            settings = SMALL | {"precision": "bf16", "attention_dropout": rate, "dropout": rate, "lr": 3e-3}
            return gf.TextClassifier(**settings).fit(*sentences(101))

    plain, graphs = fitted("0"), fitted("1")
    losses = [[r["loss"] for r in clf.history_ if r["kind"] == "step"] for clf in (plain, graphs)]
    assert len(losses[0]) == len(losses[1])
    tolerance = 0.5 if kind == "dropout" else 0.1  # other draws, since more rows are drawn for
    assert np.abs(np.subtract(*losses)).mean() < tolerance
    assert losses[1][-1] < 0.9 * losses[1][0]


def test_pictures_are_learned(gpu, tmp_path):
    clf = gf.ImageClassifier(**PICTURES).fit(*quarters(64, 3), validation=quarters(24, 5))
    assert clf.score(*quarters(24, 7)) >= 0.9
    clf.save(tmp_path / "model")
    here = gf.load(tmp_path / "model").set_params(device="cpu", precision="fp32")
    np.testing.assert_allclose(
        here.predict_proba(quarters(24, 7)[0]), clf.predict_proba(quarters(24, 7)[0]), atol=0.05
    )


@pytest.mark.parametrize("kind", ["transformer", "dot", "additive"])
def test_translations_are_learned(gpu, kind):
    sizes = dict(
        d_model=32,
        num_layers=1,
        dropout=0.0,
        vocab_size=300,
        epochs=60,
        lr=1e-2,
        batch_size=3,
        label_smoothing=0.0,
        max_length=24,
        device="cuda",
    )
    own = {"num_heads": 2, "d_ff": 47} if kind == "transformer" else {"model": "rnn", "attention": kind}
    translator = gf.Translator(**sizes, **own).fit(SOURCE, TARGET)
    assert translator.translate(SOURCE, beam=1) == TARGET
    assert translator.translate(SOURCE, beam=3) == TARGET


def test_masked_words_are_learned(gpu):
    places = {"paris": "france", "rome": "italy", "madrid": "spain", "tokyo": "japan", "oslo": "norway"}
    texts = [f"{city} is the capital of {land}." for city, land in places.items()] * 8
    sizes = dict(
        d_model=32,
        num_layers=1,
        num_heads=2,
        d_ff=31,
        vocab_size=200,
        max_length=16,
        max_positions=24,
        epochs=30,
        lr=1e-2,
        batch_tokens=96,
        min_count=1,
        tokenizer="word",
        device="cuda",
    )
    learner = gf.MaskedLM(**sizes).fit(texts, validation=texts[:10])
    assert learner.fill("paris is the [MASK] of france.")[0][0] == "capital"
    assert learner.score(texts) > 0.4


def test_words_are_explained_as_on_a_processor(gpu, tmp_path):
    clf = gf.TextClassifier(**SMALL | {"precision": "fp32"}).fit(*sentences(101))
    clf.save(tmp_path / "model")
    here = gf.load(tmp_path / "model").set_params(device="cpu")
    text = "the film was superb and its story seemed moving"
    for method in ("integrated_gradients", "gradient_x_input", "rollout"):
        ours, wanted = (one.explain(text, method=method) for one in (clf, here))
        np.testing.assert_allclose(ours.scores, wanted.scores, atol=1e-3)
