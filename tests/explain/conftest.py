"""A tiny classifier of prime sizes, trained for a moment."""

from __future__ import annotations

import pytest

from glassformer import TextClassifier

TEXTS = ["a wonderful film", "a dull film", "it was not dull", "wonderful , it was not"] * 4
LABELS = ["pos", "neg"] * 8
TINY = {"model": "encoder-mini", "d_model": 22, "num_heads": 2, "d_ff": 31, "num_layers": 3, "dropout": 0.0,
        "max_length": 13, "min_count": 1, "epochs": 6, "lr": 1e-2, "batch_size": 5, "precision": "fp32",
        "embedding_norm": True, "norm": "post"}  # fmt: skip


@pytest.fixture(scope="session")
def tiny():
    return TextClassifier(**TINY).fit(TEXTS, LABELS)


# Models without attention: each way of reading what the encoder leaves.
PLAIN = {
    "textcnn": {"model": "textcnn", "d_model": 7, "embedding_dim": 5},
    "lstm": {"model": "lstm", "d_model": 7, "embedding_dim": 5, "num_layers": 2},
    "gru, attention pooling": {"model": "gru", "d_model": 5, "embedding_dim": 3, "pooling": "attention"},
}


@pytest.fixture(scope="session", params=[*PLAIN])
def plain(request):
    """A fitted classifier without attention."""
    common = {
        key: TINY[key] for key in ("max_length", "min_count", "epochs", "lr", "batch_size", "precision")
    }
    return TextClassifier(**common, **PLAIN[request.param], dropout=0.0).fit(TEXTS, LABELS)


@pytest.fixture(scope="session")
def tiny_mean():
    return TextClassifier(**(TINY | {"pooling": "mean"})).fit(TEXTS, LABELS)
