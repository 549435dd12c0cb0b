"""A masked-word model that begins with word vectors in its token table."""

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.data.masking import chunk_texts
from glassformer.data.text import SPECIAL_TOKENS, word_tokenizer
from glassformer.errors import CheckpointError, ConfigError
from glassformer.families.bert import bert
from glassformer.models.text import TextEncoder as Bert
from glassformer.models.text import init_local_attention
from glassformer.tasks.build import init_token_embeddings

TEXTS = ["the king and the queen of france", "paris is the capital of france", "rome is in italy"] * 11
SIZES = dict(d_model=28, num_layers=1, num_heads=2, d_ff=31, max_length=23, max_positions=23, vocab_size=97)
QUICK = dict(epochs=1, threads=1, batch_tokens=211, tokenizer="word", min_count=1)


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer(TEXTS, vocab_size=97, min_count=1)


def new(tokenizer) -> Bert:
    torch.manual_seed(3)
    return Bert(bert(tokenizer.get_vocab_size(), 28, 1, 2, 31, 23, 0.0, head="mlm", pooling=None))


def own_vectors(tmp_path, dim: int):
    path = tmp_path / "own.txt"
    words = ["king", "queen", "paris", "absent"]
    rows = [f"{w} " + " ".join(str((i + 1) * (j + 2) % 7) for j in range(dim)) for i, w in enumerate(words)]
    path.write_text("\n".join([f"{len(words)} {dim}", *rows]) + "\n", encoding="utf-8")
    return path


def test_rows_of_known_words_are_the_vectors_moved_and_scaled(tokenizer, tmp_path):
    path = own_vectors(tmp_path, 5)
    model, same = new(tokenizer), new(tokenizer)
    first = init_local_attention(model)
    assert first == init_local_attention(same) > 0
    before = same.embeddings.tokens.weight.detach()
    spread = float(before[:, first:].std())
    table = chunk_texts(tokenizer, TEXTS, 21, "none")
    init_token_embeddings(model, str(path), tokenizer, table, 0, first)
    after = model.embeddings.tokens.weight.detach()
    given = gf.Word2Vec.load(path)
    known = [w for w in given.words_ if w != "absent"]
    vectors = np.stack([given[w] for w in known])
    vectors = vectors - vectors.mean(0)
    rows = [tokenizer.token_to_id(w) for w in known]
    np.testing.assert_allclose(
        after[rows, first : first + 5], vectors * spread / vectors.std(ddof=1), rtol=1e-5, atol=1e-7
    )
    assert torch.equal(after[rows, first + 5 :], before[rows, first + 5 :])  # no vector is so wide
    assert torch.equal(after[:, :first], before[:, :first])  # the waves' columns stay 0
    others = [i for i in range(tokenizer.get_vocab_size()) if i not in rows]
    assert torch.equal(after[others], before[others])
    assert f"word vectors: {path} (3 of {tokenizer.get_vocab_size()} tokens)" in model.weights_source
    assert model.mlm is not None  # the same table answers: no second one has to be filled


def test_vectors_of_the_texts_themselves_fill_what_is_left(tokenizer):
    table = chunk_texts(tokenizer, TEXTS, 21, "none")
    one, two = new(tokenizer), new(tokenizer)
    for model in (one, two):
        init_token_embeddings(model, "word2vec", tokenizer, table, 5)
    weight = one.embeddings.tokens.weight.detach()
    assert torch.equal(weight, two.embeddings.tokens.weight)  # one thread: the same bits
    special = len(SPECIAL_TOKENS)
    assert torch.equal(weight[:special], new(tokenizer).embeddings.tokens.weight[:special])
    assert not torch.equal(weight[special:], new(tokenizer).embeddings.tokens.weight[special:])
    assert float(weight[special:].mean(0).abs().max()) < 1e-6  # around 0
    other = new(tokenizer)
    init_token_embeddings(other, "word2vec", tokenizer, table, 6)
    assert not torch.equal(weight, other.embeddings.tokens.weight)


def test_the_model_begins_with_them_and_comes_back_from_disk(tmp_path):
    settings = SIZES | QUICK | {"vectors": "word2vec", "lr": 1e-9, "weight_decay": 0.0}
    learner = gf.MaskedLM(**settings).fit(TEXTS)
    assert "word vectors: word2vec (" in learner.weights_source_
    plain = gf.MaskedLM(**(settings | {"vectors": None})).fit(TEXTS)
    a, b = (m.model_.embeddings.tokens.weight.detach().float() for m in (learner, plain))
    assert float((a - b).abs().max()) > 1e-3
    learner.save(tmp_path / "model")
    again = gf.load(tmp_path / "model")
    assert again.vectors == "word2vec"
    assert again.judge(TEXTS[:5]) == learner.judge(TEXTS[:5])


def test_vectors_that_do_not_fit_are_refused(tmp_path):
    model = gf.MaskedLM(**(SIZES | QUICK)).fit(TEXTS)
    model.save(tmp_path / "model")
    with pytest.raises(ConfigError, match="a checkpoint has its own token embeddings"):
        gf.MaskedLM(str(tmp_path / "model"), vectors="word2vec", tokenizer="auto", max_length=23).fit(TEXTS)
    (tmp_path / "strange.txt").write_text("1 2\nzzz 1 2\n", encoding="utf-8")
    for path, error, said in (
        (tmp_path / "none.txt", CheckpointError, "no such file"),
        (tmp_path / "strange.txt", ConfigError, "no word of the vocabulary has a vector"),
        (own_vectors(tmp_path, 29), ConfigError, "have 29 numbers, the token embeddings have only 2"),
    ):
        with pytest.raises(error, match=said):
            gf.MaskedLM(**(SIZES | QUICK | {"vectors": str(path)})).fit(TEXTS)
