"""TextClassifier("lstm" | "gru" | "textcnn"), and word vectors as token tables."""

import numpy as np
import pytest
from tests.commands import values

import glassformer as gf
from glassformer.data.corpus import europe_splits, hard_negatives
from glassformer.data.text import encode, word_tokenizer
from glassformer.errors import ConfigError, InputError
from glassformer.tasks import build
from glassformer.tasks.text_classification.recipe import ModelConfig

TEXTS = (
    "a truly fine film|fine , a fine story|what a fine day|a dull film indeed|dull dull story|so dull a day"
)
TEXTS = TEXTS.split("|") * 4
LABELS = ["pos", "pos", "pos", "neg", "neg", "neg"] * 4
SMALL = values(
    "d_model=11 embedding_dim=7 min_count=1 epochs=12 lr=2e-2 batch_size=6 max_length=16 warmup=0.0"
)
NAMES = ("lstm", "gru", "textcnn")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", NAMES)
def test_overfit_save_load(name, precision, tmp_path):
    clf = gf.TextClassifier(name, **SMALL, precision=precision).fit(TEXTS, LABELS)
    assert clf.score(TEXTS, LABELS) == 1.0
    assert clf.weights_source_.startswith(f"random ({name}, from scratch)")
    clf.save(tmp_path / "model")
    again = gf.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(TEXTS), clf.predict_proba(TEXTS))
    assert clf.embed(TEXTS[:2]).shape == (2, {"textcnn": 33}.get(name, 22))
    with pytest.raises(InputError, match=f"'{name}' has no attention to show. Use occlusion, gradient"):
        clf.explain(TEXTS[0], method="attention")
    words = dict(clf.explain(TEXTS[0], method="occlusion").words())
    assert len(words) == len(TEXTS[0].split())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(model="lstm", num_heads=2), "'lstm' has no num_heads"),
        (dict(model="lstm", embedding_dim=7, vectors="FILE"), "embedding_dim is 7, the vectors have 5 num"),
        (dict(model="textcnn", bidirectional=True), "'textcnn' has no bidirectional"),
        (dict(model="textcnn", pooling="mean"), "always uses max pooling"),
        (dict(model="gru", pooling="first"), "first pooling is only for Transformers"),
        (dict(model="lstm", freeze_vectors=True), "no vectors to freeze"),
        (dict(model="encoder-mini", bidirectional=True), "reads both directions"),
        (dict(model="lstm", vectors="nowhere.txt"), "nowhere.txt: no such file"),
    ],
)
def test_settings_that_cannot_be(settings, message, vectors_file):
    if settings.get("vectors") == "FILE":
        settings = settings | {"vectors": str(vectors_file)}
    with pytest.raises(InputError, match=message):
        gf.TextClassifier(**settings, min_count=1).fit(TEXTS, LABELS)


# --- word vectors -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vectors_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("vectors") / "vectors.txt"
    gf.Word2Vec(dim=5, min_count=1, threads=1, epochs=1).fit(TEXTS).save_word2vec_format(path)
    return path


@pytest.mark.parametrize("name", ["lstm", "encoder-mini"])
def test_frozen_vectors_stay_and_special_tokens_learn(name, vectors_file):
    settings = {k: v for k, v in SMALL.items() if k not in ("embedding_dim", "d_model")} | {"epochs": 2}
    clf = gf.TextClassifier(name, **settings, vectors=str(vectors_file), freeze_vectors=True).fit(
        TEXTS, LABELS
    )
    vectors = gf.Word2Vec.load(vectors_file)
    table = clf.model_.embeddings.tokens.weight.detach().numpy()
    for word in vectors.words_:
        assert np.array_equal(table[clf.tokenizer_.token_to_id(word)], vectors[word]), word
    special = clf.model_.embeddings.special.weight.detach().numpy()
    assert not np.array_equal(special[2], table[2])  # [CLS] was trained
    assert "frozen" in clf.weights_source_
    free = gf.TextClassifier(name, **settings, vectors=str(vectors_file)).fit(TEXTS, LABELS)
    moved = free.model_.embeddings.tokens.weight.detach().numpy()
    assert not np.array_equal(moved[free.tokenizer_.token_to_id("fine")], vectors["fine"])


def test_vectors_of_another_language(vectors_file):
    with pytest.raises(ConfigError, match="no word of the vocabulary has a vector"):
        gf.TextClassifier("lstm", vectors=str(vectors_file), min_count=1).fit(["một", "hai"], [0, 1])


@pytest.mark.slow
def test_the_mini_transformer_on_frozen_vectors():
    """Row 8: at least 99 % on sentences it has not seen, and on those whose cities and languages mislead."""
    splits = europe_splits()
    clf = gf.TextClassifier.from_recipe("europe-frozen").fit(
        *splits["train"], validation=splits["validation"]
    )
    assert clf.score(*splits["test"]) >= 0.99
    hard = hard_negatives()
    assert clf.score(hard, ["other"] * len(hard)) >= 0.99
    assert clf.explain("the capital of France is Paris .").maps.shape[:2] == (1, 2)


# --- word vectors that a classifier trains on its own texts ---------------------------------------


@pytest.mark.parametrize(("copies", "epochs"), [(1, 200), (5, 136), (100, 10)])
def test_few_words_are_read_oftener(copies, epochs, monkeypatch):
    texts = ["a warm film", "dull film !", "what a joy"] * copies
    tokenizer = word_tokenizer(texts, min_count=1, vocab_size=97, lowercase=True, strip_accents=False)
    table = encode(tokenizer, texts, max_length=17)
    monkeypatch.setattr(build, "MIN_TRAINING_WORDS", 136 * 5 * len(table.ids) // copies)
    asked = []
    monkeypatch.setattr(build, "train_vectors", lambda *args: asked.append(args[3]))
    build.load_word_vectors(ModelConfig(model="textcnn", vectors="word2vec"), tokenizer, table, 0)
    assert asked == [epochs]


def test_the_vectors_of_few_texts_tell_words_apart():
    rng = np.random.default_rng(3)
    words = [f"w{i}" for i in range(61)]
    texts = [" ".join(rng.choice(words, 43)) for _ in range(31)]
    tokenizer = word_tokenizer(texts, min_count=1, vocab_size=97, lowercase=True, strip_accents=False)
    table = encode(tokenizer, texts, max_length=47)
    config = ModelConfig(model="textcnn", vectors="word2vec", embedding_dim=11)
    found = build.load_word_vectors(config, tokenizer, table, 0)
    assert found is not None
    vectors = found.vectors_
    apart = vectors - vectors.mean(0)
    assert apart.std() > 0.3 * vectors.std()  # all but one direction, after ten epochs
