"""What ``fit`` does with validation data, early stopping, checkpoints and bad input."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from glassformer import TextClassifier
from glassformer.errors import CheckpointError, DataError
from glassformer.recipe import fit_parameters
from glassformer.train.callbacks import Callback

NOISY = {"dropout": 0.2, "attention_dropout": 0.1, "head_dropout": 0.1, "word_dropout": 0.1, "average": 0.9,
         "label_smoothing": 0.1, "class_weight": "balanced", "accumulate": 2, "checkpoint_every": 1,
         "evaluate_every": 3, "early_stopping": 4, "monitor": "loss"}  # fmt: skip


def without_clock(history):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in history]


def same(a, b):
    ours, theirs = a.model_.state_dict(), b.model_.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


class StopAt(Callback):
    """As a kill would: nothing is saved that was not saved before."""

    def __init__(self, step):
        self.at = step

    def step(self, training, info):
        if info.step == self.at:
            raise KeyboardInterrupt


def judged(clf):
    return [r for r in clf.history_ if r["kind"] == "evaluation"]


def test_every_setting_of_a_fit_has_an_effect_on_it(small, data):
    """A setting that is stored and then forgotten would train the same weights."""
    base = {"epochs": 2, "max_length": 12, "batch_tokens": 64}
    plain = small(**base).fit(*data, validation=data)
    changes = {
        "max_length": 5, "tokenizer": "wordpiece", "clean": "words", "lowercase": False, "vocab_size": 9,
        "min_count": 25,
        "add_special_tokens": False, "pooling": "first", "head": "mlp", "head_dropout": 0.3, "dropout": 0.3,
        "attention_dropout": 0.3, "d_model": 22, "num_layers": 2, "num_heads": 7, "d_ff": 13, "norm": "post",
        "activation": "relu", "positions": "learned", "final_norm": False, "embedding_norm": True, "zero_init": True,
        "embedding_std": 0.1, "epochs": 3, "lr": 1e-3, "optimizer": "adam", "weight_decay": 0.5, "betas": (0.5, 0.9),
        "schedule": "cosine", "warmup": 0.5, "layer_decay": 0.5, "embedding_lr": 5.0, "batch_size": 7,
        "batch_tokens": 40, "length_window": 0, "accumulate": 2, "clip": 0.1, "label_smoothing": 0.3,
        "class_weight": {"pos": 3.0}, "word_dropout": 0.3, "average": 0.9, "seed": 1, "precision": "bf16",
    }  # fmt: skip
    texts = [text.replace("the", "The,") for text in data[0]]  # so that cleaning and case matter
    plain_of_texts = small(**base).fit(texts, data[1])
    without_effect = []
    for name, value in changes.items():
        of_texts = name in ("clean", "lowercase", "tokenizer")
        clf = small(**base | {name: value}).fit(
            texts if of_texts else data[0], data[1], validation=None if of_texts else data
        )
        if same(clf, plain_of_texts if of_texts else plain):
            without_effect.append(name)
    assert not without_effect
    assert same(
        small(**base, num_layers=3, stochastic_depth=0.0).fit(*data), small(**base, num_layers=3).fit(*data)
    )
    assert not same(
        small(**base, num_layers=3, stochastic_depth=0.5).fit(*data), small(**base, num_layers=3).fit(*data)
    )
    assert small(**base, head="mlp", head_hidden=5).fit(*data).model_.head.hidden.out_features == 5
    covered = set(changes) | {"stochastic_depth", "head_hidden"}
    elsewhere = {
        "model", "revision", "strip_accents", "validation_fraction", "early_stopping", "monitor", "keep_best",
        "evaluate_every", "checkpoint_every", "device", "threads", "verbose",
    }  # fmt: skip
    assert covered | elsewhere == set(fit_parameters())


def test_strip_accents(small):
    texts, y = ["phim tệ quá", "phim te qua"] * 6, [0, 1] * 6
    assert small(strip_accents=False).fit(texts, y).score(texts, y) == 1.0
    assert small(strip_accents=True).fit(texts, y).score(texts, y) == 0.5


# --- validation -----------------------------------------------------------------------------------


def test_history_and_the_best_weights(small, data, held):
    clf = small(epochs=5).fit(*data, validation=held)
    steps = [r for r in clf.history_ if r["kind"] == "step"]
    assert len(steps) == 5 * 13
    records = judged(clf)
    assert [r["step"] for r in records] == [13, 26, 39, 52, 65]
    best = max(r["accuracy"] for r in records)
    first_best = next(r for r in records if r["accuracy"] == best)
    assert clf.best_step_ == first_best["step"]
    assert clf.score(*held) == pytest.approx(best)  # the weights are those of that evaluation
    proba = clf.predict_proba(held[0])
    truth = [clf.classes_.tolist().index(label) for label in held[1]]
    assert -np.log(proba[range(29), truth]).mean() == pytest.approx(first_best["loss"], abs=1e-5)


def test_the_last_weights_without_keep_best(small, data, held):
    last = small(epochs=3, keep_best=False).fit(*data, validation=held)
    assert same(last, small(epochs=3).fit(*data))
    assert last.score(*held) == pytest.approx(judged(last)[-1]["accuracy"])


def test_validation_does_not_change_training(small, data, held):
    clf = small(epochs=3, dropout=0.3, keep_best=False, evaluate_every=1).fit(*data, validation=held)
    assert same(clf, small(epochs=3, dropout=0.3, keep_best=False).fit(*data))


def test_early_stopping_stops(small, data):
    wrong = [{"pos": "neg", "neg": "pos"}[label] for label in data[1]]  # learning makes it worse
    clf = small(epochs=30, early_stopping=2, monitor="loss").fit(*data, validation=(data[0], wrong))
    records = judged(clf)
    assert 3 <= len(records) < 30
    losses = [r["loss"] for r in records]
    assert min(losses) == losses[-3]
    assert clf.best_step_ == records[-3]["step"]


def test_validation_fraction_holds_out_a_stratified_part(small, data):
    seen = []

    class Look(Callback):
        def start(self, training):
            seen.append(training)

    clf = small(epochs=2, validation_fraction=0.2, seed=3).fit(*data, callbacks=[Look()])
    assert len(judged(clf)) == 2
    assert "accuracy" in judged(clf)[0]
    steps = [r for r in clf.history_ if r["kind"] == "step" and r["epoch"] == 0]
    assert len(steps) == 11  # ceil(81 / 8)
    assert seen[0].total_steps == 22
    assert same(clf, small(epochs=2, validation_fraction=0.2, seed=3).fit(*data))
    given = small(epochs=2, validation_fraction=0.2, seed=3).fit(*data, validation=(data[0][:9], data[1][:9]))
    assert len([r for r in given.history_ if r["kind"] == "step" and r["epoch"] == 0]) == 13


def test_monitor(small, data, held):
    """Each figure that may be monitored decides by itself, and the loss decides downwards."""
    for monitor, best in (("accuracy", max), ("macro_f1", max), ("loss", min)):
        clf = small(epochs=6, monitor=monitor, lr=5e-2).fit(*data, validation=held)
        records = judged(clf)
        value = best(r[monitor] for r in records)
        assert clf.best_step_ == next(r["step"] for r in records if r[monitor] == value)


@pytest.mark.parametrize(
    ("validation", "said"),
    [
        (
            (["a film"], ["meh"]),
            r"validation labels, item 0: label 'meh' was not seen in training.*Known: neg, pos",
        ),
        ((["a film", ""], ["pos", "neg"]), r"validation texts\[1\]: the text is empty"),
        ((["a film"], [float("nan")]), r"validation labels\[0\]: the label is missing"),
        (([], []), "validation texts: no texts"),
    ],
)
def test_validation_data_that_cannot_be(small, data, validation, said):
    with pytest.raises(DataError, match=said):
        small().fit(*data, validation=validation)


@pytest.mark.xfail(reason="judged with the shorter of the two, or an error inside numpy")
@pytest.mark.parametrize("labels", [["pos"], ["pos", "neg", "pos"]])
def test_validation_data_of_two_lengths(small, data, labels):
    with pytest.raises(DataError, match=f"2 texts but {len(labels)} labels"):
        small().fit(*data, validation=(["a film", "the film"], labels))


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "labels", "said"),
    [
        (["a", "b"], ["x"], "2 texts but 1 labels"),
        (["a", "b"], ["x", "x"], r"one class only \('x'\).*at least two classes"),
        ([], [], "no texts"),
        (["a", "  "], ["x", "y"], r"texts\[1\]: the text is empty"),
        (["a", None], ["x", "y"], r"texts\[1\]: the text is missing"),
        (["a", 3], ["x", "y"], r"texts\[1\]: the text is not a string but int"),
        (["a", "b"], ["x", None], r"labels\[1\]: the label is missing"),
        (["a", "b"], [1, float("nan")], r"labels\[1\]: the label is missing"),
        (["a", "b"], [1.5, 2.0], r"labels\[0\]: label 1.5 is a fraction"),
        (["a", "b"], ["x", 3], r"labels\[1\]: label 3 is a number where the first is text"),
        ("a text", ["x"], "one string where a list of texts is wanted"),
        (["a", "b"], None, "requires y to be passed"),
    ],
)
def test_training_data_that_cannot_be(small, texts, labels, said):
    with pytest.raises(DataError, match=said):
        small().fit(texts, labels)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "embed"])
def test_prediction_input_that_cannot_be(fitted, method):
    for texts, said in (([], "no texts"), ("a text", "Put it into a list"), (["a", ""], r"texts\[1\]")):
        with pytest.raises(DataError, match=said):
            getattr(fitted, method)(texts)


def test_long_texts_are_cut_and_counted(small, data):
    clf = small(max_length=8).fit(*data)
    lengths = [len(text.split()) + 2 for text in data[0]]
    assert clf.truncated_ == sum(n > 8 for n in lengths) > 0
    long = "superb " + "film " * 500
    np.testing.assert_allclose(
        clf.predict_proba([long]), clf.predict_proba(["superb film film film film film"])
    )


def test_unknown_words_have_an_answer(fitted):
    proba = fitted.predict_proba(["zyzzyva qwerty", "…", "🙂"])
    np.testing.assert_allclose(proba.sum(1), 1.0)
    np.testing.assert_allclose(proba[1], proba[2], atol=1e-6)


def test_where_the_weights_come_from(fitted):
    assert fitted.weights_source_ == "random (encoder-mini, from scratch)"


def test_the_threshold_decides_between_two_classes(small, data):
    clf = small().fit(*data)
    proba = clf.predict_proba(data[0])[:, 1]
    clf.threshold_ = float(np.median(proba))
    assert (clf.predict(data[0]) == np.where(proba >= clf.threshold_, "pos", "neg")).all()
    assert 45 <= (clf.predict(data[0]) == "pos").sum() <= 56
    clf.threshold_, clf.temperature_ = None, 5.0
    logits = np.log(proba / (1 - proba))
    np.testing.assert_allclose(clf.predict_proba(data[0])[:, 1], 1 / (1 + np.exp(-logits / 5)), rtol=1e-5)


# --- checkpoints ----------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_resume_gives_the_same_bits(small, data, held, tmp_path, precision):
    """Killed again and again, at any step: inside an epoch, at its end, after an evaluation."""

    def make():
        return small(precision=precision, **NOISY)

    whole = make().fit(*data, validation=held)
    steps = [r["step"] for r in whole.history_ if r["kind"] == "step"]
    assert len(steps) > 20
    folder = tmp_path / "checkpoints"
    for stop in (1, 2, 3, 7, 8, 15, 20):
        with pytest.raises(KeyboardInterrupt):
            make().fit(*data, validation=held, checkpoints=folder, resume=True, callbacks=[StopAt(stop)])
    clf = make().fit(*data, validation=held, checkpoints=folder, resume=True)
    assert without_clock(clf.history_) == without_clock(whole.history_)
    assert same(clf, whole)
    assert clf.best_step_ == whole.best_step_
    again = make().fit(*data, validation=held, checkpoints=folder, resume=True)  # nothing is left to do
    assert same(again, whole)


def test_without_resume_a_fit_starts_anew(small, data, tmp_path):
    folder = tmp_path / "checkpoints"
    small(epochs=1, seed=1).fit(*data, checkpoints=folder)
    clf = small(epochs=1).fit(*data, checkpoints=folder)
    assert same(clf, small(epochs=1).fit(*data))


def refusal(clf, folder, texts, labels, **options):
    with pytest.raises(CheckpointError) as caught:
        clf.fit(texts, labels, checkpoints=folder, resume=True, **options)
    return str(caught.value)


@pytest.fixture(scope="module")
def begun(small, data, held, tmp_path_factory):
    """A run that was stopped after step 5."""
    folder = tmp_path_factory.mktemp("begun")
    with pytest.raises(KeyboardInterrupt):
        small(epochs=3, checkpoint_every=5).fit(
            *data, validation=held, checkpoints=folder, callbacks=[StopAt(6)]
        )
    return SimpleNamespace(
        folder=folder, make=lambda **changes: small(**{"epochs": 3, "checkpoint_every": 5} | changes)
    )


OTHER = {
    "max_length": 12, "tokenizer": "wordpiece", "clean": "words", "lowercase": False, "strip_accents": True,
    "vocab_size": 20_000, "min_count": 2, "add_special_tokens": False, "pooling": "max", "head": "mlp",
    "head_hidden": 5, "head_dropout": 0.1, "dropout": 0.1, "attention_dropout": 0.1, "stochastic_depth": 0.1,
    "d_model": 22, "num_layers": 2, "num_heads": 7, "d_ff": 13, "norm": "post", "activation": "relu",
    "positions": "learned", "final_norm": False, "embedding_norm": True, "zero_init": True, "embedding_std": 0.1,
    "epochs": 4, "lr": 1e-3, "optimizer": "adam", "weight_decay": 0.5, "betas": (0.5, 0.9), "schedule": "cosine",
    "warmup": 0.5, "layer_decay": 0.5, "embedding_lr": 5.0, "batch_size": 7, "batch_tokens": 40, "length_window": 0,
    "accumulate": 2, "clip": 0.1, "label_smoothing": 0.3, "class_weight": "balanced", "word_dropout": 0.3,
    "average": 0.9, "early_stopping": 3, "monitor": "loss", "keep_best": False, "evaluate_every": 3, "seed": 1,
    "precision": "bf16", "model": "encoder-small",
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_resume_refuses_another_setting_and_names_it(begun, data, held, name):
    """Where the ids differ too, the first difference in the alphabet is named, and that is ``data_sha256``."""
    said = refusal(begun.make(**{name: OTHER[name]}), begun.folder, *data, validation=held)
    assert f"was made with {name} = " in said or (
        name > "data_sha256" and "was made with data_sha256 = " in said
    )
    assert "step-00000005" in said


@pytest.mark.parametrize("changes", [{"checkpoint_every": 1}, {"verbose": 0}, {"device": "cpu"}])
def test_resume_takes_settings_that_change_no_bit(begun, data, held, changes, tmp_path):
    whole = begun.make().fit(*data, validation=held)
    clf = begun.make(**changes)
    folder = tmp_path / "copy"
    shutil.copytree(begun.folder, folder)
    clf.fit(*data, validation=held, checkpoints=folder, resume=True)
    assert same(clf, whole)


def other_texts(texts, labels):
    return [texts[0] + " film", *texts[1:]], labels


def other_order(texts, labels):
    return texts[::-1], labels[::-1]


def other_labels(texts, labels):
    return texts, [labels[1], labels[0], *labels[2:]]


def fewer(texts, labels):
    return texts[:-1], labels[:-1]


@pytest.mark.parametrize("change", [other_texts, other_order, other_labels, fewer])
def test_resume_refuses_other_data(begun, data, held, change):
    assert "data_sha256" in refusal(begun.make(), begun.folder, *change(*data), validation=held)


@pytest.mark.xfail(reason="not part of the fingerprint: goes on, to other weights")
@pytest.mark.parametrize("kind", ["other validation", "no validation", "sample weights"])
def test_resume_refuses_other_validation_data_and_weights(begun, data, held, kind, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(begun.folder, folder)
    options = {
        "other validation": {"validation": (held[0], held[1][::-1])},
        "no validation": {},
        "sample weights": {"validation": held, "sample_weight": np.linspace(0.1, 2, 101)},
    }[kind]
    assert "was made with" in refusal(begun.make(), folder, *data, **options)


def test_resume_of_nothing_starts_anew(small, data, tmp_path):
    clf = small(epochs=1).fit(*data, checkpoints=tmp_path / "none", resume=True)
    assert same(clf, small(epochs=1).fit(*data))


def test_resume_where_every_checkpoint_is_damaged(small, data, tmp_path):
    small(epochs=1).fit(*data, checkpoints=tmp_path / "c")
    for file in (tmp_path / "c").rglob("state.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
    assert "none of 1 checkpoints is complete" in refusal(small(epochs=1), tmp_path / "c", *data)


def test_progress_on_request_only(small, data, capfd):
    small(epochs=1, verbose=1).fit(*data)
    out, err = capfd.readouterr()
    assert out == ""
    assert "loss" in err


def test_unusable_model_names(small, data):
    assert isinstance(small(), TextClassifier)
    for name in ("no/such folder", ""):
        with pytest.raises(CheckpointError, match="neither a known checkpoint"):
            TextClassifier(name).fit(*data)
