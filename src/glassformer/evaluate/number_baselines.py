"""Simple models of numbers: ridge regression on counted words or on small pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.data.text_pairs import are_pairs
from glassformer.evaluate.baselines import BothSides, counted
from glassformer.evaluate.label_baselines import pixel_features, word_features
from glassformer.process import one_thread

STRENGTHS = (0.1, 1.0, 10.0)  # of the penalty on counted words
OF_PIXELS = (10.0, 100.0, 1000.0)


def ridge(
    features: Sequence[Any],
    numbers: np.ndarray,
    *,
    strengths: Sequence[float] = STRENGTHS,
    weights: np.ndarray | None = None,
    seed: int = 0,
) -> np.ndarray:
    """Ridge regression.

    Args:
        features: of the training examples ``[n, F]`` and of those to answer ``[m, F]``; sparse or dense.
        numbers: [n].
        strengths: penalties, of which the one with the lowest squared error on a held-out fifth is taken,
            and fitted again on all examples.
        weights: [n] of the training examples; None: all 1.
        seed: of the held-out fifth.

    Returns:
        ``[m]`` numbers.
    """
    from sklearn.linear_model import Ridge

    train, judged = features
    given = np.asarray(numbers, np.float64)
    middle, unit = float(given.mean()), float(given.std()) or 1.0
    y = (given - middle) / unit  # features are fp32, in which large numbers overflow

    def answer(rows: Any, y: np.ndarray, w: Any, others: Any, strength: float) -> np.ndarray:
        model = Ridge(alpha=strength, solver="auto", random_state=seed)
        return np.asarray(model.fit(rows, y, sample_weight=w).predict(others))

    with one_thread():
        best = strengths[len(strengths) // 2]
        if len(y) >= 25 and len(strengths) > 1:
            order = np.random.default_rng(seed).permutation(len(y))
            held, rest = np.sort(order[: len(y) // 5]), np.sort(order[len(y) // 5 :])
            w = None if weights is None else weights[rest]

            def error(strength: float) -> float:
                found = answer(train[rest], y[rest], w, train[held], strength)
                return float(np.square(found - y[held]).mean())

            best = min(strengths, key=error)
        return middle + unit * answer(train, y, weights, judged, best).astype(np.float64)


def tfidf_ridge(train: Sequence[str], numbers: np.ndarray, judged: Sequence[str]) -> tuple[str, np.ndarray]:
    """Ridge regression on TF-IDF weights of words and word pairs, of both sides of a pair.

    Returns:
        Its name, and numbers ``[m]``.
    """
    if not are_pairs(train):
        return "TF-IDF + ridge", ridge(word_features(train, judged), numbers)
    from sklearn.feature_extraction.text import TfidfVectorizer

    least = 2 if len(train) >= 1000 else 1
    words = TfidfVectorizer(token_pattern=r"(?u)\b\w+\b", ngram_range=(1, 2), sublinear_tf=True, min_df=least)
    both = BothSides(words)
    features = [counted(both, train), both.transform(judged)]  # type: ignore[arg-type]  # pairs
    return "TF-IDF of both sides + ridge", ridge(features, numbers)


def pixel_ridge(
    train: Sequence[Any], numbers: np.ndarray, judged: Sequence[Any], image_range: Any = "full"
) -> tuple[str, np.ndarray]:
    """Ridge regression on 16 x 16 pixels: its name, and numbers ``[m]``."""
    return "ridge on 16 x 16 pixels", ridge(
        pixel_features(train, judged, image_range=image_range), numbers, strengths=OF_PIXELS
    )
