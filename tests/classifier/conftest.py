"""A classifier small enough to be fitted in a blink, and texts that it can learn."""

import random
from collections.abc import Callable

import pytest

from glassformer import TextClassifier

GOOD = ("wonderful", "moving", "superb")
BAD = ("dull", "awful", "clumsy")
FILLERS = ["the", "film", "was", "and", "its", "story", "with", "a", "cast", "that", "seemed", "rather"]
SMALL = {
    "model": "encoder-mini", "d_model": 14, "num_heads": 2, "d_ff": 11, "max_length": 16, "min_count": 1,
    "dropout": 0.0, "epochs": 6, "lr": 3e-2, "batch_size": 8, "precision": "fp32", "pooling": "mean",
}  # fmt: skip


def make_texts(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Sentences of 3 to 13 words with one word that decides."""
    rng = random.Random(seed)
    texts, labels = [], []
    for i in range(count):
        words = rng.choices(FILLERS, k=rng.randint(2, 12))
        words.insert(rng.randint(0, len(words)), rng.choice(GOOD if i % 2 else BAD))
        texts.append(" ".join(words))
        labels.append("pos" if i % 2 else "neg")
    return texts, labels


@pytest.fixture(scope="session")
def data() -> tuple[list[str], list[str]]:
    return make_texts(101)


@pytest.fixture(scope="session")
def held() -> tuple[list[str], list[str]]:
    return make_texts(29, seed=1)


@pytest.fixture(scope="session")
def small() -> Callable[..., TextClassifier]:
    """``small(**parameters)``: unfitted."""
    return lambda **changes: TextClassifier(**(SMALL | changes))


@pytest.fixture(scope="session")
def fitted(small, data) -> TextClassifier:
    """Shared by many tests: none of them may change it."""
    return small().fit(*data)
