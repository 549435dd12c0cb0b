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


@pytest.fixture(scope="session")
def tiny_mean():
    return TextClassifier(**(TINY | {"pooling": "mean"})).fit(TEXTS, LABELS)
