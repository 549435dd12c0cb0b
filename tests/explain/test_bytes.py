"""A classifier whose tokenizer is a byte-level BPE: explanations speak of words, and hide whole ones."""

import pytest

from glassformer import TextClassifier
from glassformer.data.text import bpe_tokenizer
from glassformer.errors import ConfigError
from glassformer.explain.render import page
from glassformer.explain.result import tokenize

TEXTS = ["a wonderful film", "a dull film", "it was not dull", "wonderful , it was not"] * 4
LABELS = ["pos", "neg"] * 8
TINY = {"model": "encoder-mini", "d_model": 22, "num_heads": 2, "d_ff": 31, "num_layers": 2, "dropout": 0.0,
        "epochs": 2, "lr": 1e-2, "batch_size": 5, "precision": "fp32"}  # fmt: skip


@pytest.fixture(scope="module")
def clf(tmp_path_factory):
    file = tmp_path_factory.mktemp("bytes") / "tokenizer.json"
    bpe_tokenizer(TEXTS, vocab_size=263).save(str(file))
    return TextClassifier(**(TINY | {"tokenizer": str(file), "max_length": 61})).fit(TEXTS, LABELS)


def test_words_not_bytes(clf):
    tokens = tokenize(clf, "a wonderful, dull film")
    assert len(tokens) > 10  # pieces
    assert tokens.words.max() == 4
    for method in ("attention", "occlusion", "gradient_x_input"):
        e = clf.explain("a wonderful, dull film", method=method)
        assert [word for word, _ in e.words()] == ["a", "wonderful", ",", "dull", "film"]
    assert page([e]).count("wonderful") >= 1
    assert len(e.tokens) > 10


def test_words_cannot_be_hidden_behind_nothing(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=60, show_progress=False))
    tokenizer.save(str(tmp_path / "bare.json"))
    settings = TINY | {"tokenizer": str(tmp_path / "bare.json"), "add_special_tokens": False}
    with pytest.raises(ConfigError, match="neither a mask nor an unknown token"):
        TextClassifier(**(settings | {"word_dropout": 0.1})).fit(TEXTS, LABELS)
    assert TextClassifier(**settings).fit(TEXTS, LABELS).predict(["a dull film"]).shape == (1,)
