"""Simple models of several labels an example: one logistic regression a label, on counted words or pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from glassformer.evaluate.baselines import counted
from glassformer.process import one_thread

STRENGTHS = (1.0, 4.0, 16.0)


def word_features(train: Sequence[str], *others: Sequence[str]) -> list[Any]:
    """TF-IDF weights of words and word pairs, as the one-class baseline has them; sparse, fp32.

    Raises:
        DataError: no word at all in the training texts.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(
        token_pattern=r"(?u)\b\w+\b",
        ngram_range=(1, 2),
        sublinear_tf=True,
        dtype=cast(Any, np.float32),
        min_df=2 if len(train) >= 1000 else 1,
    )
    return [counted(vectorizer, train), *map(vectorizer.transform, others)]


def pixel_features(
    train: Sequence[Any], *others: Sequence[Any], side: int = 16, image_range: Any = "full"
) -> list[Any]:
    """Pictures of 16 x 16 pixels, standardized by the training pictures, ``[n, channels * 256]``.

    Args:
        image_range: as in ``open_picture``.
    """
    from sklearn.preprocessing import StandardScaler

    from glassformer.data.transform import ImageTransform, read_pictures

    def flat(pictures: Sequence[Any]) -> np.ndarray:
        table = read_pictures(pictures, ImageTransform((side, side), image_range=image_range))
        return table.pixels.reshape(len(pictures), -1).astype(np.float32) / 255

    scaler = StandardScaler().fit(first := flat(train))
    return [scaler.transform(rows) for rows in (first, *map(flat, others))]


def one_vs_rest(
    features: Sequence[Any], targets: np.ndarray, *, strengths: Sequence[float] = STRENGTHS, seed: int = 0
) -> list[np.ndarray]:
    """A logistic regression for each label.

    Args:
        features: of the training examples ``[n, F]``, then of those to answer; sparse or dense.
        targets: [n, K], 0 or 1.
        strengths: inverse regularisations, of which the one with the best mean average precision on a
            held-out fifth is taken for all labels, and fitted again on all examples.
        seed: of the held-out fifth.

    Returns:
        Of each of the others the probabilities ``[m, K]``.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import average_precision_score

    train, *others = features
    y = np.asarray(targets).astype(int)

    def answer(rows: Any, y: np.ndarray, judged: Sequence[Any], strength: float) -> list[np.ndarray]:
        columns = []
        for has in y.T:
            if has.all() or not has.any():
                columns.append([np.full(x.shape[0], float(has[0])) for x in judged])
                continue
            model = LogisticRegression(C=strength, solver="liblinear", tol=1e-3, max_iter=200).fit(rows, has)
            columns.append([model.predict_proba(x)[:, 1] for x in judged])
        return [np.stack(parts, 1) for parts in zip(*columns, strict=True)]

    with one_thread():
        best = strengths[len(strengths) // 2]
        if len(y) >= 100 and len(strengths) > 1:
            order = np.random.default_rng(seed).permutation(len(y))
            held, rest = np.sort(order[: len(y) // 5]), np.sort(order[len(y) // 5 :])
            some = y[held].any(0)

            def worth(strength: float) -> float:
                (p,) = answer(train[rest], y[rest], [train[held]], strength)
                if not some.any():
                    return 0.0
                return float(average_precision_score(y[held][:, some], p[:, some], average="macro"))

            best = max(strengths, key=worth)
        return answer(train, y, others, best)


def judged_with(
    featurize: Callable[..., list[Any]], examples: Any, targets: np.ndarray, judged: Any, held: Any, tune: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities ``[m, K]`` of the judged examples and what is given ``[m, K]`` bool.

    Args:
        featurize: ``word_features`` or ``pixel_features``.
        examples, targets: of training.
        held: (examples, targets) that choose the thresholds, as they choose the classifier's; None: one half.
        tune: probabilities and targets -> thresholds ``[K]``.
    """
    others = [judged] if held is None else [judged, held[0]]
    p, *chosen_by = one_vs_rest(featurize(examples, *others), targets)
    cut = 0.5 if held is None else tune(chosen_by[0], held[1])
    return p, p >= cut
