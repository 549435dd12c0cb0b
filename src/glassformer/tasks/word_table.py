"""Initialize token embeddings with word vectors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from glassformer.data.text import TokenTable
from glassformer.data.tokenizer_file import count_ids
from glassformer.data.vocabulary import SPECIAL_TOKENS
from glassformer.errors import ConfigError, NotForThisModelError
from glassformer.tasks.text_classification.recipe import ModelConfig
from glassformer.tasks.word2vec.estimator import Word2Vec

TRAINED_HERE = "word2vec"
MIN_EPOCHS, MAX_EPOCHS = 10, 200  # for the vectors of a classifier
# Minimum number of words in all epochs together. After fewer words, all vectors have the same direction.
MIN_WORDS = 500_000
MASKED_LM_EPOCHS = 3  # few, because a masked language model has many texts


def read_word_table(
    model: ModelConfig, tokenizer: Tokenizer, table: TokenTable | None, seed: int
) -> Word2Vec | None:
    """The word vectors that ``model.vectors`` names; None if it is not set.

    For ``word2vec``, they are trained on ``table`` with one thread: the same seed gives the same bits.
    """
    if model.vectors is None:
        if model.freeze_vectors:
            what = "there are no vectors to freeze"
            raise ConfigError(what, where="freeze_vectors", fix="Name them with vectors")
        return None
    if model.vectors == TRAINED_HERE:
        if table is None:
            raise ConfigError("word2vec trains on the training texts", where="vectors", fix="Call fit")
        epochs = max(MIN_EPOCHS, min(MAX_EPOCHS, math.ceil(MIN_WORDS / max(len(table.ids), 1))))
        return train_vectors(table, tokenizer, model.embedding_dim or 100, epochs, seed)
    vectors = Word2Vec.load(Path(model.vectors))
    if model.embedding_dim not in (None, vectors.vectors_.shape[1]):
        what = f"embedding_dim is {model.embedding_dim}, the vectors have {vectors.vectors_.shape[1]} numbers"
        raise NotForThisModelError(what, where="embedding_dim", fix="Leave it out")
    return vectors


def train_vectors(table: TokenTable, tokenizer: Tokenizer, dim: int, epochs: int, seed: int) -> Word2Vec:
    """Train skip-gram vectors for the tokens of these texts, without special tokens."""
    names = [tokenizer.id_to_token(i) or "" for i in range(count_ids(tokenizer))]
    special = len(SPECIAL_TOKENS)
    sentences = [[names[i] for i in table[row].tolist() if i >= special] for row in range(len(table))]
    return Word2Vec(dim=dim, min_count=1, epochs=epochs, seed=seed, threads=1).fit(sentences)


def init_token_embeddings(
    network: Any, name: str, tokenizer: Tokenizer, table: TokenTable, seed: int, first: int = 0
) -> None:
    """Initialize token embeddings with word vectors, from column ``first`` on.

    ``name`` is a run, a file, or ``word2vec`` for vectors that are trained on ``table``. The vectors are
    shifted to mean 0 and scaled to the standard deviation of the embeddings. The same embeddings predict the
    masked words, so that words with similar contexts start with similar probabilities.
    """
    weight = network.embeddings.tokens.weight
    max_width = weight.shape[1] - first
    if name == TRAINED_HERE:
        vectors = train_vectors(table, tokenizer, max_width, MASKED_LM_EPOCHS, seed)
    else:
        vectors = Word2Vec.load(Path(name))
    width = vectors.vectors_.shape[1]
    if width > max_width:
        what = f"the word vectors have {width} numbers, the token embeddings have only {max_width}"
        raise ConfigError(what, where="vectors", fix="Take narrower ones, or a larger d_model")
    rows, vector_rows = _match_rows(vectors, tokenizer)
    values = torch.from_numpy(np.ascontiguousarray(vectors.vectors_[vector_rows])).to(weight)
    values -= values.mean(0)
    with torch.no_grad():
        std = float(weight[:, first:].std())
        weight[rows, first : first + width] = values * (std / max(float(values.std()), 1e-12))
    network.weights_source += (
        f"; word vectors: {name} ({len(rows):,} of {tokenizer.get_vocab_size():,} tokens)"
    )


def fill_word_table(network: Any, vectors: Word2Vec, tokenizer: Tokenizer, name: str) -> None:
    """Copy word vectors to the embeddings of their tokens; scale other embeddings to their deviation."""
    rows, vector_rows = _match_rows(vectors, tokenizer)
    weight = network.embeddings.tokens.weight
    values = torch.from_numpy(np.ascontiguousarray(vectors.vectors_[vector_rows]))
    with torch.no_grad():
        weight.mul_(float(values.std()) / max(float(weight.std()), 1e-12))
        if network.embeddings.special is not None:
            network.embeddings.special.weight.copy_(weight[: len(SPECIAL_TOKENS)])
        weight[rows] = values
    share = f"{len(rows):,} of {tokenizer.get_vocab_size():,} tokens"
    state = "frozen" if network.embeddings.config.frozen else "trained further"
    network.weights_source += f"; word vectors: {name} ({share}, {state})"


def _match_rows(vectors: Word2Vec, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """For tokens with a vector, their rows in the token embeddings and in the vectors."""
    # The order of the vocabulary differs between processes, and with it the rounding of sums. Sort it.
    tokens = sorted((row, token) for token, row in tokenizer.get_vocab().items() if token in vectors)
    pairs = [(row, vectors.number(token)) for row, token in tokens]
    if not pairs:
        what = "no word of the vocabulary has a vector"
        fix = "Take vectors of the same language, and the same case and segmentation"
        raise ConfigError(what, where="vectors", fix=fix)
    return [row for row, _ in pairs], [number for _, number in pairs]
