"""Word vectors as the token table of a model: trained here on its texts, or from a file or run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from glassformer.data.text import TokenTable
from glassformer.data.tokenizer_file import id_count
from glassformer.data.vocabulary import SPECIAL_TOKENS
from glassformer.errors import ConfigError, NotForThisModelError
from glassformer.tasks.text_classification.recipe import ModelConfig
from glassformer.tasks.word2vec.estimator import Word2Vec

TRAINED_HERE = "word2vec"
EPOCHS = 10  # of vectors for a classifier, at least
WORDS = (
    500_000  # read in all: of fewer, all vectors are still one direction, and words are told apart by nothing
)
MOST = 200  # epochs
PASSES = 3  # of vectors that a masked-word model begins with, whose texts are many


def read_word_table(
    model: ModelConfig, tokenizer: Tokenizer, table: TokenTable | None, seed: int
) -> Word2Vec | None:
    """The vectors that ``model.vectors`` names; None where it names none.

    Args:
        table: the training texts, on which ``vectors = "word2vec"`` trains. One thread: one seed gives
            the same bits.

    Raises:
        ConfigError: ``freeze_vectors`` without vectors, or vectors of another width than ``embedding_dim``.
        CheckpointError: no such vectors, or another format.
    """
    if model.vectors is None:
        if model.freeze_vectors:
            raise ConfigError(
                "there are no vectors to freeze", where="freeze_vectors", fix="Name them with vectors"
            )
        return None
    if model.vectors == TRAINED_HERE:
        if table is None:
            raise ConfigError("word2vec trains on the training texts", where="vectors", fix="Call fit")
        epochs = max(EPOCHS, min(MOST, math.ceil(WORDS / max(len(table.ids), 1))))
        return train_vectors(table, tokenizer, model.embedding_dim or 100, epochs, seed)
    vectors = Word2Vec.load(Path(model.vectors))
    if model.embedding_dim not in (None, vectors.vectors_.shape[1]):
        what = f"embedding_dim is {model.embedding_dim}, the vectors have {vectors.vectors_.shape[1]} numbers"
        raise NotForThisModelError(what, where="embedding_dim", fix="Leave it out")
    return vectors


def train_vectors(table: TokenTable, tokenizer: Tokenizer, dim: int, epochs: int, seed: int) -> Word2Vec:
    """Skip-gram vectors of the tokens of these texts, special ones apart."""
    names = [tokenizer.id_to_token(i) or "" for i in range(id_count(tokenizer))]
    special = len(SPECIAL_TOKENS)
    sentences = [[names[i] for i in table[row].tolist() if i >= special] for row in range(len(table))]
    return Word2Vec(dim=dim, min_count=1, epochs=epochs, seed=seed, threads=1).fit(sentences)


def begin_with_vectors(
    network: Any, name: str, tokenizer: Tokenizer, table: TokenTable, seed: int, first: int = 0
) -> None:
    """Begin a token table as word vectors: moved to mean 0, scaled to the table's spread, free to learn on.

    A masked word is guessed by the same table, so words that stand in the same places answer for each other
    from the first step on.

    Args:
        name: ``word2vec`` (trained here on ``table``, one thread), a run, or a file of vectors.
        first: the column at which the vectors begin; those before it are kept for others.

    Raises:
        ConfigError: no token has a vector, or the vectors are wider than there is room.
        CheckpointError: no such vectors, or another format.
    """
    weight = network.embeddings.tokens.weight
    room = weight.shape[1] - first
    if name == TRAINED_HERE:
        vectors = train_vectors(table, tokenizer, room, PASSES, seed)
    else:
        vectors = Word2Vec.load(Path(name))
    width = vectors.vectors_.shape[1]
    if width > room:
        raise ConfigError(
            f"vectors of {width} numbers, where a token has room for {room}",
            where="vectors",
            fix="Take narrower ones, or a larger d_model",
        )
    rows, found = _shared(vectors, tokenizer)
    given = torch.from_numpy(np.ascontiguousarray(vectors.vectors_[found])).to(weight)
    given -= given.mean(0)
    with torch.no_grad():
        spread = float(weight[:, first:].std())
        weight[rows, first : first + width] = given * (spread / max(float(given.std()), 1e-12))
    network.weights_source += (
        f"; word vectors: {name} ({len(rows):,} of {tokenizer.get_vocab_size():,} tokens)"
    )


def fill_word_table(network: Any, vectors: Word2Vec, tokenizer: Tokenizer, name: str) -> None:
    """Put the vectors into the rows of the tokens that have one; the others keep theirs, scaled alike.

    Raises:
        ConfigError: no token has a vector.
    """
    rows, found = _shared(vectors, tokenizer)
    weight = network.embeddings.tokens.weight
    given = torch.from_numpy(np.ascontiguousarray(vectors.vectors_[found]))
    with torch.no_grad():
        weight.mul_(float(given.std()) / max(float(weight.std()), 1e-12))
        if network.embeddings.special is not None:
            network.embeddings.special.weight.copy_(weight[: len(SPECIAL_TOKENS)])
        weight[rows] = given
    share = f"{len(rows):,} of {tokenizer.get_vocab_size():,} tokens"
    state = "frozen" if network.embeddings.config.frozen else "trained further"
    network.weights_source += f"; word vectors: {name} ({share}, {state})"


def _shared(vectors: Word2Vec, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The tokens that have a vector, as rows of the token table and of the vectors.

    Raises:
        ConfigError: there is none.
    """
    # By row: the vocabulary's order differs each time, and with it the last bit of a sum over the rows.
    known = sorted((row, token) for token, row in tokenizer.get_vocab().items() if token in vectors)
    pairs = [(row, vectors.number(token)) for row, token in known]
    if not pairs:
        raise ConfigError(
            "no word of the vocabulary has a vector",
            where="vectors",
            fix="Take vectors of the same language, and the same case and segmentation",
        )
    return [row for row, _ in pairs], [number for _, number in pairs]
