"""Word vectors as the token table of a classifier: trained here on its texts, or from a file or run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from glassformer.data.text import SPECIAL_TOKENS, TokenTable
from glassformer.errors import ConfigError
from glassformer.recipe import ModelConfig
from glassformer.vectors import Word2Vec

TRAINED_HERE = "word2vec"
EPOCHS = 10


def read_word_table(
    model: ModelConfig, tokenizer: Tokenizer, table: TokenTable | None, seed: int
) -> Word2Vec | None:
    """The vectors that ``model.vectors`` names; None where it names none.

    Args:
        table: the training texts, on which ``vectors = "word2vec"`` trains. One thread, so that the same seed gives
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
        size = tokenizer.get_vocab_size()
        names = [tokenizer.id_to_token(i) or "" for i in range(size)]
        special = len(SPECIAL_TOKENS)
        sentences = [[names[i] for i in table[row].tolist() if i >= special] for row in range(len(table))]
        dim = model.embedding_dim or 100
        return Word2Vec(dim=dim, min_count=1, epochs=EPOCHS, seed=seed, threads=1).fit(sentences)
    vectors = Word2Vec.load(Path(model.vectors))
    if model.embedding_dim not in (None, vectors.vectors_.shape[1]):
        what = f"embedding_dim is {model.embedding_dim}, the vectors have {vectors.vectors_.shape[1]} numbers"
        raise ConfigError(what, where="embedding_dim", fix="Leave it out")
    return vectors


def fill_word_table(network: Any, vectors: Word2Vec, tokenizer: Tokenizer, name: str) -> None:
    """Put the vectors into the rows of the tokens that have one; the others keep theirs, scaled alike.

    Raises:
        ConfigError: no token has a vector.
    """
    rows, found = [], []
    for token, row in tokenizer.get_vocab().items():
        if token in vectors:
            rows.append(row)
            found.append(vectors.number(token))
    if not rows:
        raise ConfigError(
            "no word of the vocabulary has a vector", where="vectors",
            fix="Take vectors of the same language, and the same case and segmentation",
        )  # fmt: skip
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
