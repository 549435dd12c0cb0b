"""What ``fit`` does with validation data, early stopping and bad input."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests.stopping import same

from glassformer import TextClassifier
from glassformer.data.splits import stratified_split
from glassformer.errors import CheckpointError, DataError
from glassformer.train.callbacks import Callback


def judged(clf):
    return [r for r in clf.history_ if r["kind"] == "evaluation"]


# Settings whose effect other tests show, such as tests/tasks/test_auto.py and test_solved_head.py.
ELSEWHERE = """
    model revision strip_accents validation_fraction early_stopping monitor keep_best evaluate_every device
    checkpoint_every keep_epochs time_limit head_start start_share calibration threads verbose unfreeze_every
    lora_alpha lora_targets long_texts window_stride vectors freeze_vectors embedding_dim attention_window
    bidirectional strategy method pairs
"""


def test_every_setting_of_a_fit_has_an_effect_on_it(small, data):
    """A setting that is stored and then forgotten would train the same weights."""
    data = data[0][:43], data[1][:43]
    base = {"epochs": 2, "max_length": 12, "batch_tokens": 64}
    plain = small(**base).fit(*data, validation=data)
    changes = {
        "max_length": 5, "tokenizer": "wordpiece", "clean": "words", "lowercase": False, "vocab_size": 9,
        "min_count": 11,
        "add_special_tokens": False, "pooling": "first", "head": "mlp", "head_dropout": 0.3, "dropout": 0.3,
        "attention_dropout": 0.3, "d_model": 22, "num_layers": 2, "num_heads": 7, "d_ff": 13, "norm": "post",
        "activation": "relu", "positions": "learned", "final_norm": False, "embedding_norm": True, "zero_init": True,
        "embedding_std": 0.1, "damp_repeats": 0.5,
        "epochs": 3, "lr": 1e-3, "optimizer": "adam", "weight_decay": 0.5, "betas": (0.5, 0.9),
        "schedule": "cosine", "warmup": 0.5, "layer_decay": 0.5, "embedding_lr": 5.0, "batch_size": 7,
        "batch_tokens": 40, "length_window": 0, "accumulate": 2, "clip": 0.1, "label_smoothing": 0.3,
        "class_weight": {"pos": 3.0}, "word_dropout": 0.3, "average": 0.9, "seed": 1, "precision": "bf16",
        "train_layers": 0, "lora_rank": 2, "adam_eps": 1e-2, "embedding_dropout": 0.3, "feed_forward_dropout": 0.3,
        "norm_eps": 0.1, "separator": False, "attention": "linear", "init_std": 0.3, "maskable": True,
    }  # fmt: skip
    texts = [text.replace("the", "The,", 1) for text in data[0]]  # so that cleaning and case matter
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
    hidden = small(**base, head="mlp").fit(*data)
    assert not same(small(**base, head="mlp", head_activation="none").fit(*data), hidden)
    assert not same(small(**base, head="mlp", head_input_dropout=0.3).fit(*data), hidden)
    sets = [[label] for label in data[1]]
    of_sets = small(**base).fit(data[0], sets, validation=(data[0], sets))
    assert not same(small(**base, pos_weight=3.0).fit(data[0], sets, validation=(data[0], sets)), of_sets)
    untuned = small(**base, tune_thresholds=False).fit(data[0], sets, validation=(data[0], sets))
    assert of_sets.threshold_ is not None
    assert untuned.threshold_ is None
    covered = set(changes) | {"pos_weight", "tune_thresholds"}
    covered |= {"stochastic_depth", "head_hidden", "head_activation", "head_input_dropout"}
    assert covered | set(ELSEWHERE.split()) == set(TextClassifier.defaults())


def test_some_settings_of_a_fit(small, data):
    texts, y = ["phim tệ quá", "phim te qua"] * 6, [0, 1] * 6
    assert small(strip_accents=False).fit(texts, y).score(texts, y) == 1.0
    assert small(strip_accents=True).fit(texts, y).score(texts, y) == 0.5
    weights = [float(label != data[1][0]) for label in data[1]]
    with pytest.raises(DataError, match=r"every example has the weight 0 .class weight times sample weight"):
        small(class_weight=dict.fromkeys({*data[1]} - {data[1][0]}, 0.0)).fit(*data, sample_weight=weights)
    assert isinstance(small(), TextClassifier)
    for name in ("no/such folder", ""):
        with pytest.raises(CheckpointError, match="neither a known checkpoint"):
            TextClassifier(name).fit(*data)
    clf = small(vectors="word2vec", embedding_dim=8, freeze_vectors=True, train_layers=1, epochs=1).fit(*data)
    learnt = {name for name, p in clf.model_.named_parameters() if p.requires_grad}
    assert "embeddings.tokens.weight" not in learnt
    assert any(name.startswith("encoder.layers.") for name in learnt)


# --- validation -----------------------------------------------------------------------------------


def test_history_and_the_best_weights(small, data, held):
    """What else decides about weights is in tests/train/test_loop.py."""
    clf = small(epochs=5).fit(*data, validation=held)
    steps = [r for r in clf.history_ if r["kind"] == "step"]
    assert len(steps) == 5 * 13
    records = judged(clf)
    assert [r["step"] for r in records] == [13, 26, 39, 52, 65]
    best = max(r["accuracy"] for r in records)
    kept = min((r for r in records if r["accuracy"] == best), key=lambda r: r["loss"])
    assert clf.best_step_ == kept["step"]
    assert clf.score(*held) == pytest.approx(best)  # the weights are those of that evaluation
    proba = clf.predict_proba(held[0])
    truth = [clf.classes_.tolist().index(label) for label in held[1]]
    assert -np.log(proba[range(29), truth]).mean() == pytest.approx(kept["loss"], abs=1e-5)


def test_validation_fraction_holds_out_a_stratified_part(small, data):
    seen = []

    class DataPreview(Callback):
        def start(self, training):
            seen.append(training)

    clf = small(epochs=2, validation_fraction=0.2, seed=3).fit(*data, callbacks=[DataPreview()])
    assert len(judged(clf)) == 2
    assert "accuracy" in judged(clf)[0]
    steps = [r for r in clf.history_ if r["kind"] == "step" and r["epoch"] == 0]
    assert len(steps) == 11  # ceil(81 / 8)
    assert seen[0].total_steps == 22
    assert same(clf, small(epochs=2, validation_fraction=0.2, seed=3).fit(*data))
    given = small(epochs=2, validation_fraction=0.2, seed=3).fit(*data, validation=(data[0][:9], data[1][:9]))
    assert len([r for r in given.history_ if r["kind"] == "step" and r["epoch"] == 0]) == 13


def test_validation_fraction_is_a_split_made_by_hand(small, data):
    """Texts, labels and weights go the same way."""
    texts, labels = np.array(data[0]), np.array(data[1])
    weights = np.random.default_rng(1).random(101)
    kept, held = stratified_split(data[1], 0.2, seed=3)
    clf = small(epochs=2, validation_fraction=0.2, seed=3).fit(*data, sample_weight=weights)
    wanted = small(epochs=2, seed=3).fit(
        texts[kept], labels[kept], validation=(texts[held], labels[held]), sample_weight=weights[kept]
    )
    assert [r["accuracy"] for r in judged(clf)] == [r["accuracy"] for r in judged(wanted)]
    np.testing.assert_allclose(clf.predict_proba(data[0]), wanted.predict_proba(data[0]), atol=1e-4)


@pytest.mark.parametrize(
    ("validation", "said"),
    [
        (
            (["a film"], ["meh"]),
            r"validation labels.*0.*label 'meh' was not seen in training.*Known: neg, pos",
        ),
        ((["a film", ""], ["pos", "neg"]), r"validation texts\[1\]: the text is empty"),
        ((["a film"], [float("nan")]), r"validation labels\[0\]: the label is missing"),
        (([], []), "validation texts: there are no texts"),
        ((["a film", "the film"], ["pos"]), "2 texts but 1 label"),
    ],
)
def test_validation_data_that_cannot_be(small, data, validation, said):
    with pytest.raises(DataError, match=said):
        small().fit(*data, validation=validation)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "labels", "said"),
    [
        (["a", "b"], ["x"], "2 texts but 1 label"),
        (["a", "b"], ["x", "x"], r"one class only \('x'\).*two classes: check the second argument of fit"),
        ([], [], "no texts"),
        (["a", "  "], ["x", "y"], r"texts\[1\]: the text is empty"),
        (["a", None], ["x", "y"], r"texts\[1\]: the text is missing"),
        (["a", "b"], ["x", None], r"labels\[1\]: the label is missing"),
        (["a", "b"], [1.5, 2.0], r"labels\[0\]: label 1.5 is a fraction"),
        ("a text", ["x"], "one string where a list of texts is expected"),
        (["a", "b"], None, "requires y to be passed"),
    ],
)
def test_training_data_that_cannot_be(small, texts, labels, said):
    """More of what texts and labels cannot be is in tests/data."""
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


def test_progress_on_request_only(small, data, capfd):
    small(epochs=1, verbose=1).fit(*data)
    out, err = capfd.readouterr()
    assert out == ""
    assert "loss" in err


@pytest.mark.parametrize("clean", ["none", "html", "words", "syllables"])
@pytest.mark.parametrize("tokenizer", ["word", "wordpiece"])
def test_the_vocabulary_is_of_the_texts_as_they_are_read(small, tokenizer, clean):
    texts = ["I don't like it, it's bad<br />really &amp; truly", "nhà_hàng rất ngon", "good, good food"] * 3
    clf = small(tokenizer=tokenizer, clean=clean, epochs=1, max_length=64, vocab_size=500)
    clf.fit(texts, ["a", "b", "b"] * 3)
    assert clf.tokenizer_.token_to_id("[UNK]") not in clf.encode(texts).ids.tolist()
    if clean in ("html", "words"):
        assert not {"br", "<", "amp"} & set(clf.tokenizer_.get_vocab())


def test_what_idle_processes_judge_does_not_count(fitted, monkeypatch):
    gather = lambda rows: np.concatenate([rows, rows[:1], rows[:1]])  # noqa: E731
    ranks = SimpleNamespace(size=1, sharded=True, gather=gather)
    fit = SimpleNamespace(validation_table=object(), ranks=ranks, network=None, device=None)
    fit.validation = None, np.array([0, 1])
    for name, value in (("_stream", None), ("_objective", None), ("table_outputs", np.eye(2))):
        monkeypatch.setattr(fitted, name, lambda *args, value=value: value)
    *_, evaluate = fitted._loop(fit)
    assert evaluate()["accuracy"] == 1.0
