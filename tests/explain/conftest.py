"""A tiny classifier of prime sizes, trained for a moment."""

import functools

import pytest

from glassformer import TextClassifier
from glassformer.explain.subject import run_rows
from glassformer.packing import Packing

TEXTS = ["a wonderful film", "a dull film", "it was not dull", "wonderful , it was not"] * 4
LABELS = ["pos", "neg"] * 8
TINY = {"model": "encoder-mini", "d_model": 22, "num_heads": 2, "d_ff": 31, "num_layers": 3, "dropout": 0.0,
        "max_length": 13, "min_count": 1, "epochs": 6, "lr": 1e-2, "batch_size": 5, "precision": "fp32",
        "embedding_norm": True, "norm": "post"}  # fmt: skip


# Models without attention: each way of reading what the encoder leaves.
PLAIN = {
    "textcnn": {"model": "textcnn", "d_model": 7, "embedding_dim": 5},
    "lstm": {"model": "lstm", "d_model": 7, "embedding_dim": 5, "num_layers": 2},
    "gru, attention pooling": {"model": "gru", "d_model": 5, "embedding_dim": 3, "pooling": "attention"},
}


@functools.cache
def fitted(kind: str) -> TextClassifier:
    """A classifier that reads the "first" token, the "mean" of all, or one of ``PLAIN``."""
    common = ("max_length", "min_count", "epochs", "lr", "batch_size", "precision", "dropout")
    own = {key: TINY[key] for key in common} | PLAIN[kind] if kind in PLAIN else TINY | {"pooling": kind}
    return TextClassifier(**own).fit(TEXTS, LABELS)


@pytest.fixture(scope="session")
def tiny():
    return fitted("first")


@pytest.fixture(scope="session", params=[*PLAIN])
def plain(request):
    """A fitted classifier without attention."""
    return fitted(request.param)


def forward_of(subject):
    """captum's view: ``[B, T, D]`` -> logits ``[B, C]``."""
    return lambda rows: (
        run_rows(subject.model, rows.flatten(0, 1), Packing.uniform(len(rows), rows.shape[1])).logits
    )
