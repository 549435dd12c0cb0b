"""Baseline classifiers of texts and images, and their features.

Reports compare every model with these baselines on the same split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike

from glassformer.data.splits import stratified_subset
from glassformer.data.text import TokenTable
from glassformer.data.text_pairs import TextPair, are_pairs
from glassformer.errors import OneClassError, ShapeError, TooFewExamplesError
from glassformer.process import one_thread, without_warnings
from glassformer.runtime import isolated_torch

# --- TF-IDF features ------------------------------------------------------------------------------


def fit_vectorizer(vectorizer: Any, train: Sequence[Any]) -> Any:
    """Fit a vectorizer, and return the features of the training texts, sparse ``[n, W]``."""
    try:
        return vectorizer.fit_transform(train)
    except ValueError as error:  # "empty vocabulary"
        raise TooFewExamplesError(f"there are no words ({error})", where="TF-IDF baseline") from None


class PairVectorizer:
    """Vectorizer of text pairs; a pair with features a and b has ``[a, b, a * b, |a - b|]``.

    Args:
        vectorizer: a vectorizer of texts from scikit-learn; it is fitted on all texts of the pairs.
    """

    def __init__(self, vectorizer: Any):
        self.vectorizer = vectorizer

    def fit_transform(self, pairs: Sequence[TextPair]) -> Any:
        """Fit on the training pairs, and return their features, sparse ``[n, 4 W]``."""
        self.vectorizer.fit([text for pair in pairs for text in pair.sides])
        return self.transform(pairs)

    def transform(self, pairs: Sequence[TextPair]) -> Any:
        """The features of pairs, sparse ``[n, 4 W]``."""
        from scipy.sparse import hstack

        a, b = (self.vectorizer.transform([pair.sides[side] for pair in pairs]) for side in (0, 1))
        return hstack([a, b, a.multiply(b), abs(a - b)], format="csr")


def word_features(train: Sequence[Any], *other_texts: Sequence[Any]) -> list[Any]:
    """TF-IDF features of words and word bigrams, sparse fp32, one matrix per list of texts or pairs."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer: Any = TfidfVectorizer(
        token_pattern=r"(?u)\b\w+\b",  # include words of one letter
        ngram_range=(1, 2),
        sublinear_tf=True,
        dtype=cast(Any, np.float32),
        min_df=2 if len(train) >= 1000 else 1,
    )
    if are_pairs(train):
        vectorizer = PairVectorizer(vectorizer)
    features = fit_vectorizer(vectorizer, train)
    return [features, *(vectorizer.transform(texts) if len(texts) else features[:0] for texts in other_texts)]


def pixels(images: Sequence[Any], side: int = 16, image_range: Any = "full") -> np.ndarray:
    """The pixels of images scaled to ``side`` x ``side``, from 0 to 1, ``[n, channels * side**2]``.

    Args:
        image_range: pixel value of white in images of more than 8 bits; see ``ImageTransform``.
    """
    from glassformer.data.transform import ImageTransform, read_images

    table = read_images(images, ImageTransform((side, side), image_range=image_range))
    return table.pixels.reshape(len(images), -1).astype(np.float32) / 255


def pixel_features(
    train: Sequence[Any], *other_images: Sequence[Any], image_range: Any = "full"
) -> list[Any]:
    """The ``pixels`` of each list of images, standardized by mean and deviation of the training images.

    For ``image_range`` see ``pixels``.
    """
    from sklearn.preprocessing import StandardScaler

    rows = [pixels(images, image_range=image_range) for images in (train, *other_images)]
    scaler = StandardScaler().fit(rows[0])
    return [scaler.transform(x) for x in rows]


# --- models ---------------------------------------------------------------------------------------


def tfidf_logistic(
    train_texts: Sequence[str],
    y: ArrayLike,
    test_texts: Sequence[str],
    *,
    num_classes: int | None = None,
    Cs: Sequence[float] = (1.0, 4.0, 16.0, 64.0),
    seed: int = 0,
    sample_weight: ArrayLike | None = None,
    measure: Literal["accuracy", "macro_f1"] = "accuracy",
) -> np.ndarray:
    """Logistic regression on TF-IDF features (``word_features``) of texts or text pairs.

    Args:
        y: [n] class indices in [0, K).
        num_classes: K; by default one more than the largest index in ``y``.
        Cs: candidates for C, the inverse regularization strength. The candidate with the best ``measure`` on
            a held-out fifth of the training texts is used to fit on all training texts.
        sample_weight: [n] weights of the training texts; None: all equal.

    Returns:
        [m, K] probabilities of the test texts, float64.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score
    from sklearn.model_selection import StratifiedShuffleSplit

    y, num_classes = _check_labels(len(train_texts), y, num_classes)
    weights = None if sample_weight is None else np.asarray(sample_weight, np.float64)
    train, test = word_features(train_texts, test_texts)

    def fit(rows: np.ndarray | slice, C: float) -> LogisticRegression:
        # With a tolerance of 1e-3 the accuracy is up to five points lower.
        model = LogisticRegression(C=C, max_iter=2000, tol=1e-5)
        with without_warnings(r"sklearn\."):  # about classes with few examples
            return model.fit(train[rows], y[rows], None if weights is None else weights[rows])

    def score(model: LogisticRegression, rows: np.ndarray) -> float:
        predicted = model.predict(train[rows])
        if measure == "macro_f1":
            return float(f1_score(y[rows], predicted, average="macro"))
        return float(np.mean(predicted == y[rows]))

    best = Cs[len(Cs) // 2]
    with one_thread():  # the steps are short: several threads take 25 times as long
        if len(y) >= 10 * num_classes and np.bincount(y)[np.unique(y)].min() >= 2:
            # The vocabulary includes words of the held-out texts; this uses no labels.
            splitter = StratifiedShuffleSplit(1, test_size=0.2, random_state=seed)
            train_rows, val_rows = next(splitter.split(np.zeros(len(y)), y))
            best = max(Cs, key=lambda C: score(fit(train_rows, C), val_rows))
        model = fit(slice(None), best)
    probabilities = np.zeros((len(test_texts), num_classes))
    if len(test_texts):
        probabilities[:, model.classes_] = model.predict_proba(test)
    return probabilities


MIN_STEPS = 100  # minimum number of training steps of the bag of embeddings


def bag_of_embeddings(
    train: TokenTable,
    y: ArrayLike,
    test: TokenTable,
    *,
    vocab_size: int,
    num_classes: int | None = None,
    epochs: int | None = None,
    dim: int = 64,
    lr: float = 1e-2,
    batch_size: int = 64,
    seed: int = 0,
    sample_weight: ArrayLike | None = None,
) -> np.ndarray:
    """Train a linear layer on the mean of a text's token embeddings from scratch, and predict test texts.

    Args:
        train: n texts as token ids, none of them empty.
        y: [n] class indices in [0, K).
        num_classes: K; by default one more than the largest index in ``y``.
        epochs: number of epochs; None: enough for ``MIN_STEPS`` steps.
        lr: initial learning rate, which decreases linearly to 0.
        sample_weight: [n] weights of the training texts; None: all equal.

    Returns:
        [m, K] probabilities of the test texts, float64.
    """
    (ids, starts), (test_ids, test_starts) = _ids_and_starts(train), _ids_and_starts(test)
    y, num_classes = _check_labels(len(starts) - 1, y, num_classes)
    targets = torch.from_numpy(y)
    weights = None if sample_weight is None else torch.from_numpy(np.asarray(sample_weight, np.float32))
    rng = torch.Generator().manual_seed(seed)
    table = (0.1 * torch.randn(vocab_size, dim, generator=rng)).requires_grad_()
    weight = (dim**-0.5 * torch.randn(num_classes, dim, generator=rng)).requires_grad_()
    bias = torch.zeros(num_classes, requires_grad=True)
    optimizer = torch.optim.Adam([table, weight, bias], lr=lr)
    epoch_steps = -(-len(y) // batch_size)
    epochs = epochs or -(-MIN_STEPS // epoch_steps)
    steps = epochs * epoch_steps
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1e-3, total_iters=steps)

    def logits(ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:  # [N], [b] -> [b, K]
        return F.linear(F.embedding_bag(ids, table, offsets, mode="mean"), weight, bias)

    def train_one_epoch() -> None:
        for batch in torch.randperm(len(y), generator=rng).split(batch_size):
            texts = [ids[starts[i] : starts[i + 1]] for i in batch.tolist()]
            offsets = torch.tensor([0, *(len(text) for text in texts[:-1])]).cumsum(0)
            outputs = logits(torch.cat(texts), offsets)
            if weights is None:
                loss = F.cross_entropy(outputs, targets[batch])
            else:
                loss = (F.cross_entropy(outputs, targets[batch], reduction="none") * weights[batch]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()

    with isolated_torch(1, gradients=True):  # the steps are short: several threads are up to 20 times slower
        for _ in range(epochs):
            train_one_epoch()
        with torch.no_grad():
            return logits(test_ids, test_starts[:-1]).double().softmax(1).numpy()


def _check_labels(n: int, y: ArrayLike, num_classes: int | None) -> tuple[np.ndarray, int]:
    y = np.asarray(y).astype(np.int64)
    if y.shape != (n,):
        raise ShapeError(f"{n} texts, but labels of shape {y.shape}")
    if len(np.unique(y)) < 2:
        raise OneClassError("a classifier needs two classes or more", where="baseline")
    return y, max(int(y.max()) + 1, num_classes or 0)


def _ids_and_starts(texts: TokenTable) -> tuple[torch.Tensor, torch.Tensor]:
    """The concatenated ids [N] and the start of each text [n + 1], both int64."""
    return torch.from_numpy(texts.ids.astype(np.int64)), torch.from_numpy(texts.starts.astype(np.int64))


def pixel_logistic(
    train: Sequence[Any],
    targets: np.ndarray,
    test: Sequence[Any],
    *,
    num_classes: int,
    side: int = 16,
    max_images: int = 10_000,
    sample_weight: np.ndarray | None = None,
    image_range: Any = "full",
) -> tuple[np.ndarray, str]:
    """Logistic regression on the pixels of images scaled to ``side`` x ``side``.

    Args:
        targets: ``[n]`` class indices of the training images.
        max_images: maximum number of training images; a stratified subset is used if there are more.
        sample_weight: ``[n]`` weights of the training images; None: all equal.
        image_range: see ``pixels``.

    Returns:
        Probabilities ``[m, C]`` of the test images, and the name of the baseline.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    name = f"logistic regression on {side} x {side} pixels"
    if len(train) > max_images:
        name += f" ({max_images:,} images)"
        subset = stratified_subset(targets.tolist(), max_images, 0)
        train, targets = [train[i] for i in subset.tolist()], targets[subset]
        sample_weight = None if sample_weight is None else sample_weight[subset]
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=100))
    with without_warnings(r"sklearn\."), one_thread():
        model.fit(pixels(train, side, image_range), targets, logisticregression__sample_weight=sample_weight)
    out = np.zeros((len(test), num_classes))
    out[:, model.classes_] = model.predict_proba(pixels(test, side, image_range))
    return out, name
