"""``model="tfidf"``: scikit-learn's features and solution as a model that is saved, loaded and asked like any other."""

import json
import warnings

import numpy as np
import pytest
from scipy.sparse import hstack
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC
from tests.commands import values

import glassformer as gf
from glassformer.checkpoints.ngrams import read_ngrams, write_ngrams
from glassformer.data.ngrams import Ngrams, character_ngrams, word_ngrams
from glassformer.data.text_pairs import TextPair
from glassformer.errors import CheckpointError, ConfigError, DataError, IdleSettingWarning, InputError
from glassformer.train.callbacks import Callback

WORDS = {
    "sea": ["the", "wave", "and", "the", "tide", "of", "a", "cold", "sea", "salt", "sand", "gull"],
    "wood": ["the", "oak", "and", "the", "fern", "of", "a", "green", "wood", "moss", "owl", "bark"],
    "town": ["the", "tram", "and", "the", "bell", "of", "a", "loud", "town", "brick", "lamp", "shop"],
}


def made(count: int, classes: int = 3, seed: int = 5) -> tuple[list[str], list[str]]:
    """Texts of seven words, five of them of their own class."""
    rng = np.random.default_rng(seed)
    names = list(WORDS)[:classes]
    texts, labels = [], []
    for i in range(count):
        own = names[i % classes]
        other = names[(i + 1) % classes]
        drawn = [*rng.choice(WORDS[own], 5), *rng.choice(WORDS[other], 2)]
        texts.append(" ".join(drawn).capitalize() + ("!" if i % 2 else "."))
        labels.append(own)
    return texts, labels


TEXTS, LABELS = made(61)
UNSEEN, TRUTH = made(31, seed=11)
ODD = "ÉTÉ naïve Straße ΑΣ İstanbul|don't  stop—at all|x|  two\tlines\nhere |Übung übung|1 22 333".split("|")


def vectorizers(min_df: int, **options) -> list[TfidfVectorizer]:
    """scikit-learn's own, as a user would set them."""
    options |= {"sublinear_tf": True, "min_df": min_df}
    words = TfidfVectorizer(token_pattern=r"(?u)\b\w+\b", ngram_range=(1, 2), **options)
    return [words, TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), **options)]


def transformed(both, texts, method="transform"):
    return hstack([getattr(one, method)(texts) for one in both]).tocsr()


@pytest.fixture(scope="module")
def clf():
    return gf.TextClassifier("tfidf", min_count=1).fit(TEXTS, LABELS)


STRIPPED = {"strip_accents": True}, {"strip_accents": "unicode"}


@pytest.mark.parametrize(
    ("ours", "theirs"), [({}, {}), ({"lowercase": False}, {"lowercase": False}), STRIPPED]
)
@pytest.mark.parametrize("least", [1, 2])
def test_features_are_those_of_scikit_learn(ours, theirs, least):
    texts, unseen = [*TEXTS, *ODD], [*UNSEEN, *reversed(ODD), "Unbekannt?"]
    ngrams, rows = Ngrams.fitted(texts, min_count=least, **ours)
    both = vectorizers(least, **theirs)
    np.testing.assert_allclose(
        rows.toarray(), transformed(both, texts, "fit_transform").toarray(), atol=1e-12
    )
    names = [one.get_feature_names_out().tolist() for one in both]
    assert [list(ngrams.words), list(ngrams.pieces)] == names
    np.testing.assert_allclose(ngrams.rows(unseen).toarray(), transformed(both, unseen).toarray(), atol=1e-12)


def test_ngrams_of_one_word_and_of_many():
    assert word_ngrams("a b, c") == ["a", "b", "c", "a b", "b c"]
    assert character_ngrams("ab") == [" a", "ab", "b ", " ab", "ab ", " ab "]
    assert character_ngrams("a") == [" a", "a ", " a "]
    ngrams, rows = Ngrams.fitted(TEXTS, min_count=1, max_features=14)
    assert rows.shape == (61, 14)
    assert {"the", "a", "of", "and"} <= set(ngrams.words)
    with pytest.raises(DataError, match="is in 7 texts or more"):
        Ngrams.fitted(["aa", "bb", "cc"], min_count=7)


def test_pairs_have_both_sides_their_product_and_their_difference():
    pairs = [TextPair(a, b) for a, b in zip(TEXTS[:13], UNSEEN[:13], strict=True)]
    ngrams, rows = Ngrams.fitted(pairs, min_count=1)
    both = [*TEXTS[:13], *UNSEEN[:13]]
    single = Ngrams.fitted(both, min_count=1)[1].toarray()
    a, b = single[:13], single[13:]
    np.testing.assert_allclose(rows.toarray(), np.hstack([a, b, a * b, abs(a - b)]), atol=1e-12)
    assert ngrams.width == 4 * len(ngrams.idf)


def test_it_answers_as_scikit_learn_s_pipeline(clf):
    assert clf.classes_.tolist() == sorted(WORDS)
    both = vectorizers(1)
    features = transformed(both, TEXTS, "fit_transform")
    svm = LinearSVC(C=clf.chosen_["C"], random_state=0).fit(features, LABELS)
    margins, ours = svm.decision_function(transformed(both, UNSEEN)), clf.logits(UNSEEN)
    scale = (ours * margins).sum() / (margins * margins).sum()  # one over the temperature
    if "SVM" in clf.weights_source_:
        np.testing.assert_allclose(ours, scale * margins, atol=2e-3 * scale)
    assert scale > 0
    assert clf.score(UNSEEN, TRUTH) > 0.9
    assert clf.predict(UNSEEN).tolist() == svm.classes_[margins.argmax(1)].tolist()


KINDS = ("two classes", "three classes", "several labels", "pairs", "numbers", "log numbers")


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_to_the_same_bits_and_a_folder_gives_it_back(kind, tmp_path):
    estimator, X, y = example(kind)
    fitted, other = (clone(estimator).fit(X, y) for _ in range(2))
    assert kind == "log numbers" or fitted.score(X, y) > 0.85
    np.testing.assert_array_equal(other.outputs(X), fitted.outputs(X))
    again = gf.load(fitted.save(tmp_path / "model"))
    assert type(again) is type(fitted)
    np.testing.assert_array_equal(again.outputs(X), fitted.outputs(X))
    assert again.chosen_ == fitted.chosen_
    assert not list((tmp_path / "model").glob("*.pkl"))
    names = {file.name for file in (tmp_path / "model").iterdir()}
    assert {"config.json", "model.safetensors", "ngrams.json", "idf.safetensors", "manifest.json"} <= names
    if kind == "several labels":
        np.testing.assert_array_equal(again.threshold_, fitted.threshold_)
    if "numbers" in kind:
        np.testing.assert_array_equal(again.predict_interval(X, 0.5), fitted.predict_interval(X, 0.5))


def example(kind: str):
    """An estimator, its examples and their targets."""
    estimator, X, y = gf.TextClassifier("tfidf"), TEXTS, LABELS
    if kind == "two classes":
        X, y = made(61, 2)
    elif kind == "several labels":
        y = [{label} | ({"loud"} if "!" in text else set()) for text, label in zip(X, y, strict=True)]
    elif kind == "pairs":
        others = [TEXTS[(i + (3 if i % 2 else 1)) % len(TEXTS)] for i in range(len(TEXTS))]
        X = list(zip(TEXTS, others, strict=True))
        y = ["same" if LABELS[i] == LABELS[TEXTS.index(o)] else "other" for i, o in enumerate(others)]
    elif "numbers" in kind:
        estimator = gf.TextRegressor("tfidf", number_scale="log" if kind.startswith("log") else "linear")
        y = [10.0 ** (1 + list(WORDS).index(label)) + len(text) for text, label in zip(X, y, strict=True)]
    return estimator, X, y


def test_numbers_have_intervals_and_classes_a_history():
    estimator, X, y = example("numbers")
    bounds = estimator.fit(X, y).predict_interval(X)
    assert ((bounds[:, 0] <= y) & (y <= bounds[:, 1])).mean() > 0.85
    held = gf.TextRegressor("tfidf").fit(X[:40], y[:40], validation=(X[40:], y[40:]))
    assert len(held.errors_) == 21
    clf = gf.TextClassifier("tfidf").fit(TEXTS, LABELS, validation=(UNSEEN, TRUTH))
    record = clf.history_[-1]
    assert record["kind"] == "evaluation"
    assert record["accuracy"] == pytest.approx(clf.score(UNSEEN, TRUTH))
    assert clf.examples_ == {"train": 61, "validation": 31}
    held = gf.TextClassifier("tfidf", validation_fraction=0.2).fit(TEXTS, LABELS)
    assert held.examples_["validation"] == pytest.approx(12, abs=2)
    assert 0 < clf.cross_validated_["accuracy"] <= 1


def test_weights_of_examples_and_classes_count():
    texts = ["red blue"] * 20 + ["red green"] * 20
    labels = ["a", "b"] * 20
    toward_a = gf.TextClassifier("tfidf").fit(texts, labels, sample_weight=[3.0, 1.0] * 20)
    toward_b = gf.TextClassifier("tfidf", class_weight={"a": 1.0, "b": 3.0}).fit(texts, labels)
    assert toward_a.predict(["red blue"]).tolist() == ["a"]
    assert toward_b.predict(["red blue"]).tolist() == ["b"]


def test_a_text_without_a_known_ngram_is_answered_by_the_bias(clf):
    bias = clf.model_.head.out.bias.detach().numpy()
    np.testing.assert_allclose(clf.logits(["ЖЖЖ", "ЩЩ ЮЮ"]), np.stack([bias, bias]), atol=1e-6)
    texts = [*UNSEEN, "ЖЖЖ"]
    np.testing.assert_allclose(clf.logits(texts), np.concatenate([clf.logits([t]) for t in texts]), atol=1e-6)


LACKING = """lora_rank=4 train_layers=1 d_model=64 pooling=mean head=mlp vectors=word2vec word_dropout=0.1
    label_smoothing=0.1 tokenizer=wordpiece long_texts=mean keep_epochs=True precision=int8 method=few-shot"""


@pytest.mark.parametrize("setting", LACKING.split())
def test_what_a_linear_model_has_not_is_one_line(setting):
    with pytest.raises(ConfigError, match="few-shot" if "few" in setting else setting.split("=")[0]) as error:
        gf.TextClassifier("tfidf", **values(setting)).fit(TEXTS, LABELS)
    assert "\n" not in str(error.value)


def test_settings_of_steps_are_said_to_do_nothing():
    with pytest.warns(IdleSettingWarning, match="lr, epochs have no effect|epochs, lr have no effect"):
        clf = gf.TextClassifier("tfidf", epochs=3, lr=1e-3).fit(TEXTS, LABELS)
    assert clf.score(TEXTS, LABELS) == 1.0
    # two examples per class bring no warning of scikit-learn
    texts = [f"word{i} again {j}" for i in range(31) for j in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf = gf.TextClassifier("tfidf", verbose=0).fit(texts, [f"class {i // 2}" for i in range(62)])
    assert clf.score(texts, [f"class {i // 2}" for i in range(62)]) > 0.9


@pytest.mark.filterwarnings("error::glassformer.errors.IdleSettingWarning")
def test_a_recipe_that_names_it_alone_is_warned_of_nothing(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text('[model]\nmodel = "tfidf"\n')
    clf = gf.TextClassifier.from_recipe(file)
    assert clf.head_start == "random"  # what a file without the key means
    assert clf.fit(TEXTS, LABELS).score(TEXTS, LABELS) == 1.0


def test_what_a_linear_model_does_not_do_names_another(clf):
    with pytest.raises(ConfigError, match="all-minilm-l6-v2"):
        clf.embed(TEXTS)
    with pytest.raises(DataError, match="reads one text"):
        clf.predict([("a", "b")])
    for method in "attention rollout attention_gradient gradient_x_input integrated_gradients".split():
        with pytest.raises(InputError, match=r"needs layers, but 'tfidf' is a linear model\. Use weights or"):
            clf.explain(TEXTS[0], method=method)


# --- damaged folders ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": "x"}, "not a list of texts"),
        ({"characters": [1]}, "not a list of texts"),
        ({"lowercase": 1}, "lowercase = 1 is not true or false"),
        ({"clean": "soap"}, "clean = 'soap' is not known"),
        ({"format": 2}, "has the format 2, not 1"),
        ({"words": ["one"]}, "no weight for each"),
    ],
)
def test_damaged_ngrams_are_named(change, message, tmp_path):
    ngrams, _ = Ngrams.fitted(TEXTS)
    write_ngrams(ngrams, tmp_path)
    about = json.loads((tmp_path / "ngrams.json").read_text())
    (tmp_path / "ngrams.json").write_text(json.dumps(about | change))
    with pytest.raises(CheckpointError, match=message):
        read_ngrams(tmp_path)


def test_ngrams_that_are_not_the_model_s_are_an_error(tmp_path):
    one, two = (gf.TextClassifier("tfidf").fit(texts, LABELS) for texts in (TEXTS, [t[:12] for t in TEXTS]))
    one.tokenizer_ = two.tokenizer_
    one.save(tmp_path / "model")
    with pytest.raises(CheckpointError, match="which do not match the weights"):
        gf.load(tmp_path / "model")
    # a failed fit leaves the one before
    clf = gf.TextClassifier("tfidf").fit(TEXTS, LABELS)
    before = clf.logits(UNSEEN)
    clf.min_count = 99
    with pytest.raises(DataError, match="99 texts"):
        clf.fit(TEXTS, LABELS)
    np.testing.assert_array_equal(clf.logits(UNSEEN), before)


# --- explanations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_and_the_bias_add_up_to_the_logit(kind):
    estimator, X, y = example(kind)
    fitted = estimator.fit(X, y)
    for x in X[:5]:
        logits = fitted.logits([x])[0]
        if "numbers" in kind:
            logits = fitted.kind_.unit * logits + fitted.kind_.mean
        for k, label in enumerate(fitted.classes_.tolist()):
            e = fitted.explain(x, method="weights", **({} if "numbers" in kind else {"target": label}))
            assert e.scores.sum() + e.settings["bias"] == pytest.approx(logits[k], rel=1e-5, abs=1e-5)
            assert e.settings["logit"] == pytest.approx(logits[k], rel=1e-5, abs=1e-5)
        if "numbers" in kind:
            number = np.exp(e.settings["logit"]) if "log" in kind else e.settings["logit"]
            assert number == pytest.approx(fitted.predict([x])[0], rel=1e-4)


@pytest.mark.parametrize("options", [{}, {"lowercase": False}, {"strip_accents": True}, {"clean": "html"}])
def test_they_add_up_in_every_script(options):
    clf = gf.TextClassifier("tfidf", min_count=1, **options).fit(
        [*TEXTS, *ODD], [*LABELS, *LABELS[: len(ODD)]]
    )
    for text in [*ODD, "ﬁne İi<b>Σ</b> e\u0301té\u200b x\u00a0y 你好，世界 한국어", "\u0301", "unseen ЖЖЖ"]:
        e = clf.explain(text)
        assert e.method == "weights"
        assert e.scores.sum() + e.settings["bias"] == pytest.approx(clf.logits([text])[0].max(), abs=1e-5)
        assert [e.text[a:b] for a, b in e.offsets] == e.tokens
        assert "".join(e.tokens) == "".join(e.text.split())


def test_a_word_has_the_weight_of_its_ngrams(clf):
    e = clf.explain("salt wave of the tram", target="sea")
    words = dict(e.words())
    assert list(words) == ["salt", "wave", "of", "the", "tram"]
    assert min(words["salt"], words["wave"]) > 0 > words["tram"]
    assert "'wave'" in e.notes[-1] or "'salt'" in e.notes[-1]
    assert e.to_dict()["settings"]["bias"] == pytest.approx(clf.model_.head.out.bias[0].item())
    # to hide a word is to leave it out
    e = clf.explain("salt wave tram", method="occlusion", target="sea")
    whole, without = clf.logits(["salt wave tram", "salt  tram"])[:, 0]
    assert e.scores[1] == pytest.approx(whole - without, abs=1e-5)
    e = clf.explain(TEXTS[0], trust=True)
    assert e.trust["figures"]["comprehensiveness"] > e.trust["random"]["figures"]["comprehensiveness"]


def test_the_sides_of_a_pair_are_told_apart():
    estimator, X, y = example("pairs")
    clf = estimator.fit(X, y)
    e = clf.explain(X[0])
    assert [word for word, _ in e.words_of(0)] == [w.strip(".!") for w in X[0][0].split()] + [X[0][0][-1]]
    assert len(e.words_of(0)) + len(e.words_of(1)) == len(e.tokens)
    with pytest.raises(InputError, match="all-minilm-l6-v2"):
        clf.explain(X[0], cross=True)
    # weights of a network are an error
    tiny = {"d_model": 14, "num_heads": 2, "d_ff": 11, "num_layers": 1, "max_length": 16, "epochs": 1}
    clf = gf.TextClassifier("encoder-mini", **tiny).fit(TEXTS, LABELS)
    with pytest.raises(InputError, match="only for linear models of texts"):
        clf.explain(TEXTS[0], method="weights")
    assert clf.explain(TEXTS[0]).method == "decomposition"


def test_the_time_of_a_fit_includes_that_of_the_checks_before_it():
    def start(training) -> None:  # checks the data for a minute, which does not count as the time of a step
        training.start_time += 60

    doctor = Callback()
    doctor.start = start
    assert gf.TextClassifier("tfidf").fit(TEXTS, LABELS, callbacks=[doctor]).train_seconds_ > 0
