"""Word vectors that a classifier trains on its own texts."""

import numpy as np
import pytest

from glassformer import TextClassifier
from glassformer.data.text import encode, word_tokenizer
from glassformer.errors import ConfigError
from glassformer.tasks import build
from glassformer.tasks.text_classification.recipe import ModelConfig


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


def test_vectors_of_a_checkpoint_that_were_trained_are_not_frozen(tmp_path):
    tiny = {"max_length": 7, "min_count": 1, "epochs": 1, "precision": "fp32"}
    data = ["a warm film", "dull film !"] * 5, ["good", "bad"] * 5
    shape = {"d_model": 6, "num_layers": 1, "num_heads": 2, "d_ff": 11}
    TextClassifier("encoder-mini", **tiny, **shape).fit(*data).save(tmp_path / "model")
    with pytest.raises(ConfigError, match=r"freeze_vectors: the word vectors of .* were trained with it"):
        TextClassifier(str(tmp_path / "model"), freeze_vectors=True, **tiny).fit(*data)


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
