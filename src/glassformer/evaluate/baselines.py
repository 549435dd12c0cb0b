"""Simple models that every accuracy table carries, and what they see of texts and images.

A Transformer that loses to one of them on the same split is not trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, cast, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike

from glassformer.data.splits import stratified_subset
from glassformer.data.text_pairs import TextPair, are_pairs
from glassformer.errors import OneClassError, ShapeError, TooFewExamplesError
from glassformer.process import one_thread, without_warnings
from glassformer.runtime import computing

# --- counted words of pairs -----------------------------------------------------------------------
#
# Of each side, of what both share and of what one alone has.


def counted(vectorizer: Any, train: Sequence[Any]) -> Any:
    """``[n, W]`` sparse: what a vectorizer makes of its training texts, once it has learned their words.

    Raises:
        DataError: there is no word in them.
    """
    try:
        return vectorizer.fit_transform(train)
    except ValueError as error:  # "empty vocabulary"
        raise TooFewExamplesError(f"no words to count ({error})", where="TF-IDF baseline") from None


class BothSides:
    """A vectorizer of texts as one of pairs: ``[a, b, a * b, |a - b|]``, the words counted over both sides.

    Args:
        vectorizer: of texts, scikit-learn's.
    """

    def __init__(self, vectorizer: Any):
        self.vectorizer = vectorizer

    def fit_transform(self, pairs: Sequence[TextPair]) -> Any:
        """``[n, 4 W]`` sparse, of the training pairs."""
        self.vectorizer.fit([text for pair in pairs for text in pair.sides])
        return self.transform(pairs)

    def transform(self, pairs: Sequence[TextPair]) -> Any:
        """``[n, 4 W]`` sparse."""
        from scipy.sparse import hstack

        a, b = (self.vectorizer.transform([pair.sides[side] for pair in pairs]) for side in (0, 1))
        return hstack([a, b, a.multiply(b), abs(a - b)], format="csr")


def word_features(train: Sequence[Any], *others: Sequence[Any]) -> list[Any]:
    """TF-IDF weights of words and word pairs, of pairs of texts those of both sides; sparse, fp32.

    Raises:
        DataError: no word at all in the training texts.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer: Any = TfidfVectorizer(
        token_pattern=r"(?u)\b\w+\b",  # one-letter words count too
        ngram_range=(1, 2),
        sublinear_tf=True,
        dtype=cast(Any, np.float32),
        min_df=2 if len(train) >= 1000 else 1,
    )
    if are_pairs(train):
        vectorizer = BothSides(vectorizer)
    learned = counted(vectorizer, train)
    return [learned, *(vectorizer.transform(texts) if len(texts) else learned[:0] for texts in others)]


def pixels(pictures: Sequence[Any], side: int = 16, image_range: Any = "full") -> np.ndarray:
    """Images of 16 x 16 pixels from 0 to 1, ``[n, channels * 256]``; ``image_range``: as in
    ``open_picture``."""
    from glassformer.data.transform import ImageTransform, read_pictures

    table = read_pictures(pictures, ImageTransform((side, side), image_range=image_range))
    return table.pixels.reshape(len(pictures), -1).astype(np.float32) / 255


def pixel_features(train: Sequence[Any], *others: Sequence[Any], image_range: Any = "full") -> list[Any]:
    """``pixels``, standardized by the training images."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(first := pixels(train, image_range=image_range))
    return [scaler.transform(first), *(scaler.transform(pixels(x, image_range=image_range)) for x in others)]


# --- models ---------------------------------------------------------------------------------------


def tfidf_logistic(
    train_texts: Sequence[str],
    y: ArrayLike,
    test_texts: Sequence[str],
    *,
    num_classes: int | None = None,
    strengths: Sequence[float] = (1.0, 4.0, 16.0, 64.0),
    seed: int = 0,
    sample_weight: ArrayLike | None = None,
    measure: Literal["accuracy", "macro_f1"] = "accuracy",
) -> np.ndarray:
    """Logistic regression on TF-IDF weights of words and word pairs; of pairs of texts, those of both sides.

    Args:
        train_texts: [n].
        y: [n] class indices in [0, K).
        test_texts: [m].
        num_classes: K; by default one more than the largest index in ``y``.
        strengths: inverse regularisations C, of which the one with the best ``measure`` on a held-out
            fifth of the training texts is taken, and the model fitted again on all of them.
        seed: of the held-out fifth.
        sample_weight: [n], of the training texts; None: all count the same.
        measure: what chooses the strength.

    Returns:
        [m, K] probabilities, float64.

    Raises:
        ShapeError: texts and labels differ in number.
        DataError: fewer than two classes, or no word at all in the training texts.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score
    from sklearn.model_selection import StratifiedShuffleSplit

    y, num_classes = _check(len(train_texts), y, num_classes)
    weights = None if sample_weight is None else np.asarray(sample_weight, np.float64)
    train, judged = word_features(train_texts, test_texts)

    def fit(rows: np.ndarray | slice, strength: float) -> LogisticRegression:
        # A tolerance of 1e-3 stopped after ten steps and cost up to five points of accuracy.
        model = LogisticRegression(C=strength, max_iter=2000, tol=1e-5)
        with without_warnings(r"sklearn\."):  # on few examples a class
            return model.fit(train[rows], y[rows], None if weights is None else weights[rows])

    def score(model: LogisticRegression, rows: np.ndarray) -> float:
        said = model.predict(train[rows])
        macro = measure == "macro_f1"
        return float(f1_score(y[rows], said, average="macro") if macro else np.mean(said == y[rows]))

    best = strengths[len(strengths) // 2]
    with one_thread():  # its steps are short: threads that wait for each other took 25 times as long
        if len(y) >= 10 * num_classes and np.bincount(y)[np.unique(y)].min() >= 2:
            # The vocabulary and its document counts saw the held-out texts too; labels they did not.
            halves = StratifiedShuffleSplit(1, test_size=0.2, random_state=seed).split(np.zeros(len(y)), y)
            rest, held = next(halves)
            best = max(strengths, key=lambda c: score(fit(rest, c), held))
        model = fit(slice(None), best)
    probabilities = np.zeros((len(test_texts), num_classes))
    if len(test_texts):
        probabilities[:, model.classes_] = model.predict_proba(judged)
    return probabilities


FEWEST_STEPS = 100  # of the bag of embeddings


@runtime_checkable
class Ragged(Protocol):
    """Token ids of many texts end to end: text i is ``ids[starts[i]:starts[i + 1]]``."""

    @property
    def ids(self) -> np.ndarray: ...  # [N]
    @property
    def starts(self) -> np.ndarray: ...  # [n + 1]


def bag_of_embeddings(
    train: Ragged | Sequence[ArrayLike],
    y: ArrayLike,
    test: Ragged | Sequence[ArrayLike],
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
    """A linear layer on the mean of a text's token embeddings, trained from scratch with Adam.

    Args:
        train: n texts as token ids, a ``TokenTable`` or a list of id arrays; no text is empty.
        y: [n] class indices in [0, K).
        test: m texts likewise.
        vocab_size: number of embeddings.
        num_classes: K; by default one more than the largest index in ``y``.
        epochs, lr, batch_size: of the training; the rate falls linearly to 0. Unset epochs are
            as many as 100 steps take: one of large data, more of a small table, whose epoch is a few steps.
        dim: width of the embeddings.
        seed: of the initial weights and the order of the texts. torch's global generator is left alone.
        sample_weight: [n], of the training texts; None: all count the same.

    Returns:
        [m, K] probabilities, float64.

    Raises:
        ShapeError: texts and labels differ in number.
        DataError: fewer than two classes.
    """
    (ids, starts), (test_ids, test_starts) = _ragged(train), _ragged(test)
    y, num_classes = _check(len(starts) - 1, y, num_classes)
    targets = torch.from_numpy(y)
    weights = None if sample_weight is None else torch.from_numpy(np.asarray(sample_weight, np.float32))
    rng = torch.Generator().manual_seed(seed)
    table = (0.1 * torch.randn(vocab_size, dim, generator=rng)).requires_grad_()
    weight = (dim**-0.5 * torch.randn(num_classes, dim, generator=rng)).requires_grad_()
    bias = torch.zeros(num_classes, requires_grad=True)
    optimizer = torch.optim.Adam([table, weight, bias], lr=lr)
    an_epoch = -(-len(y) // batch_size)
    epochs = epochs or -(-FEWEST_STEPS // an_epoch)
    steps = epochs * an_epoch
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1e-3, total_iters=steps)

    def logits(ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:  # [N], [b] -> [b, K]
        return F.linear(F.embedding_bag(ids, table, offsets, mode="mean"), weight, bias)

    def train_one_epoch() -> None:
        for batch in torch.randperm(len(y), generator=rng).split(batch_size):
            spans = [ids[starts[i] : starts[i + 1]] for i in batch.tolist()]
            offsets = torch.tensor([0, *(len(s) for s in spans[:-1])]).cumsum(0)
            said = logits(torch.cat(spans), offsets)
            if weights is None:
                loss = F.cross_entropy(said, targets[batch])
            else:
                loss = (F.cross_entropy(said, targets[batch], reduction="none") * weights[batch]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()

    with computing(1, gradients=True):  # steps of a millisecond: more threads were up to 20 times slower
        for _ in range(epochs):
            train_one_epoch()
        with torch.no_grad():
            return logits(test_ids, test_starts[:-1]).double().softmax(1).numpy()


def _check(n: int, y: ArrayLike, num_classes: int | None) -> tuple[np.ndarray, int]:
    y = np.asarray(y).astype(np.int64)
    if y.shape != (n,):
        raise ShapeError(f"{n} texts and labels {y.shape} do not fit")
    if len(np.unique(y)) < 2:
        raise OneClassError("a classifier needs two classes or more", where="baseline")
    return y, max(int(y.max()) + 1, num_classes or 0)


def _ragged(texts: Ragged | Sequence[ArrayLike]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids end to end [N] and where each text starts [n + 1], both int64."""
    if isinstance(texts, Ragged):
        ids, starts = np.asarray(texts.ids), np.asarray(texts.starts)
    else:
        arrays = [np.asarray(t) for t in texts]
        ids = np.concatenate(arrays) if arrays else np.empty(0)
        starts = np.cumsum([0, *(len(a) for a in arrays)])
    return torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(starts.astype(np.int64))


def pixel_logistic(
    train: Sequence[Any],
    targets: np.ndarray,
    judged: Sequence[Any],
    *,
    num_classes: int,
    side: int = 16,
    most: int = 10_000,
    sample_weight: np.ndarray | None = None,
    image_range: Any = "full",
) -> tuple[np.ndarray, str]:
    """Logistic regression on images of 16 x 16 pixels: what colors and coarse shapes alone can tell.

    Args:
        train, judged: images of any kind.
        targets: ``[n]`` class numbers of the training images.
        most: training images that are used, classes in proportion (a folder's come class by class); the
            name says so where there are more.
        sample_weight: ``[n]``, of the training images; None: all count the same.
        image_range: as in ``open_picture``.

    Returns:
        Probabilities ``[m, C]`` and the baseline's name.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    name = f"logistic regression on {side} x {side} pixels"
    if len(train) > most:
        name += f" ({most:,} images)"
        chosen = stratified_subset(targets.tolist(), most, 0)
        train, targets = [train[i] for i in chosen.tolist()], targets[chosen]
        sample_weight = None if sample_weight is None else sample_weight[chosen]
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=100))
    with without_warnings(r"sklearn\."), one_thread():
        model.fit(pixels(train, side, image_range), targets, logisticregression__sample_weight=sample_weight)
    out = np.zeros((len(judged), num_classes))
    out[:, model.classes_] = model.predict_proba(pixels(judged, side, image_range))
    return out, name
