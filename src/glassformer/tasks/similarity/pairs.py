"""Training data and losses of an embedder.

The data are pairs of texts, with or without scores, or texts with labels. For each text with a label, SetFit
(Tunstall et al., 2022) samples 20 pairs of the same class and 20 pairs of different classes, and encodes both
texts of each pair. Here each text of a batch is encoded once and compared with all other texts of the batch.
Positive and negative pairs have the same total weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.data.batching import (
    BatchSettings,
    TextBatch,
    accumulation_groups,
    evaluation_batches,
    pack_texts,
    training_batches,
)
from glassformer.data.checks import check_texts
from glassformer.data.in_memory import one_column, read_rows
from glassformer.data.splits import grouped_split, random_split
from glassformer.data.text import TokenTable
from glassformer.errors import (
    DataError,
    NotANumberError,
    NotForThisModelError,
    OneClassError,
    TooFewExamplesError,
    UnequalLengthsError,
)
from glassformer.models.sentences import unit_rows
from glassformer.runtime import copy_to_device, isolated_torch
from glassformer.train.objectives import StepLoss


@dataclass(frozen=True)
class Pairs:
    """Pairs of texts, and their similarity scores; without scores, all pairs are positive."""

    first: list[str]
    second: list[str]
    scores: np.ndarray | None = None  # [n] fp32

    def __len__(self) -> int:
        return len(self.first)

    def select(self, rows: Sequence[int] | np.ndarray) -> Pairs:
        """The pairs of these rows."""
        rows = np.asarray(rows, np.int64)
        scores = None if self.scores is None else self.scores[rows]
        return Pairs([self.first[i] for i in rows], [self.second[i] for i in rows], scores)

    @property
    def all_texts(self) -> list[str]:
        """The first texts, then the second texts."""
        return [*self.first, *self.second]

    @property
    def fingerprint_data(self) -> np.ndarray | None:
        """The training targets, for the fingerprint."""
        return self.scores

    @property
    def score_range(self) -> tuple[float, float]:
        """The lowest score, and the difference between the highest and the lowest."""
        return (0.0, 1.0) if self.scores is None else (float(self.scores.min()), float(np.ptp(self.scores)))

    def scaled_scores(self, score_range: tuple[float, float]) -> np.ndarray | None:
        """The scores scaled to 0 to 1, fp32; ``score_range`` is that of the training pairs."""
        lowest, width = score_range
        return None if self.scores is None else ((self.scores - lowest) / width).astype(np.float32)

    def split(self, groups: Sequence[str], fraction: float, seed: int) -> tuple[Pairs, Pairs]:
        """Split into training and validation pairs; pairs of the same group are in the same split."""
        (train_rows,), (validation_rows,) = random_split([[*range(len(self))]], fraction, seed, groups)
        return self.select(train_rows), self.select(validation_rows)

    def choose_loss(self, loss: str) -> str:
        """Check that a loss can be used for these pairs, or choose one for ``auto``."""
        if self.scores is None:
            if loss not in ("auto", "negatives"):
                what = f"{loss} needs scores"
                raise NotForThisModelError(what, where="loss", fix="Give scores, or use negatives")
            if len(self) < 2:
                what = "a single pair has no negatives"
                raise TooFewExamplesError(what, where="pairs", fix="Give more pairs")
            return "negatives"
        if np.ptp(self.scores) == 0:
            raise OneClassError("all scores are equal", where="scores", fix="Give none: fit(pairs)")
        if loss == "negatives":
            fix = "Give the pairs that belong together, without scores"
            raise NotForThisModelError("negatives does not use scores", where="loss", fix=fix)
        if loss != "auto":
            return loss
        return "cosine" if set(np.unique(self.scores).tolist()) == {0.0, 1.0} else "cosent"

    def training(
        self, table: TokenTable, train: Any, device: torch.device, loss: str, skip: int
    ) -> tuple[PairStream, PairLoss]:
        """Batches and objective; ``skip`` is the number of prompt tokens that pooling leaves out."""
        batches = BatchSettings(train.batch_size, train.batch_tokens, train.length_window)
        scores = self.scaled_scores(self.score_range)
        stream = PairStream(table, batches, train.accumulate, train.seed, device)
        return stream, PairLoss(loss, train.scale, scores=scores, skip=skip)


def check_text_pairs(X: Any, y: Any = None, origin: str = "pairs") -> Pairs:
    """Check pairs of texts and their scores, if there are any."""
    rows = read_rows(X, origin, "pairs", max_columns=2)
    if not rows:
        raise TooFewExamplesError("no pairs", where=origin, fix="Give at least two")
    for number, row in enumerate(rows):
        if isinstance(row, str | bytes) or not hasattr(row, "__len__") or len(row) != 2:
            what = "is not a pair of texts"
            raise DataError(what, where=f"{origin}, row {number + 1}", fix="Give (text, text) in each row")
    first, second = (
        check_texts([row[i] for row in rows], f"{origin}, {name} texts")
        for i, name in enumerate(("first", "second"))
    )
    if y is None:
        return Pairs(first, second)
    y = one_column(y, "scores", "numbers")
    try:
        scores = np.asarray(y, np.float64)
    except (TypeError, ValueError):
        what = "a score is not a number"
        raise NotANumberError(what, where=origin, fix="Give one number per pair") from None
    if scores.shape != (len(rows),):
        what = f"{len(rows)} pairs, but scores of shape {scores.shape}"
        raise UnequalLengthsError(what, where=origin, fix="Give one number per pair")
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores))[0]) + 1
        raise NotANumberError("the score is missing or infinite", where=f"{origin}, row {row}")
    return Pairs(first, second, scores.astype(np.float32))


@dataclass(frozen=True)
class PairStream:
    """Batches of pairs; a batch has the first texts of its pairs, then the second texts."""

    table: TokenTable  # 2n texts: the first texts of all pairs, then the second texts
    settings: BatchSettings
    accumulate: int
    seed: int
    device: torch.device

    @property
    def examples(self) -> int:
        return len(self.table) // 2

    def steps(self, epoch: int) -> list:
        lengths = self.table.lengths.reshape(2, -1).sum(0)
        return list(
            accumulation_groups(training_batches(lengths, self.settings, self.seed, epoch), self.accumulate)
        )

    def pack(self, index: np.ndarray) -> TextBatch:
        batch = pack_texts(self.table, np.concatenate([index, index + self.examples]), self.device)
        return TextBatch(batch.ids, batch.segments, batch.packing, index)


def embed_batch(model: Any, batch: TextBatch, skip: int = 0) -> Tensor:
    """Embeddings of length 1, ``[B, E]`` fp32; pooling leaves out the first ``skip`` tokens of each text."""
    token_vectors = model.encode(batch.ids, batch.packing, segments=batch.segments)  # [N, D]
    return unit_rows(model.sentences.pool_states(token_vectors, batch.packing, skip))


@dataclass
class PairLoss:
    """The loss of a batch, summed over pairs, or over texts with labels.

    cosine: squared error between cosines and scores.
    cosent: ``log(1 + sum exp(scale (cos_j - cos_i)))`` over all i, j with score_i > score_j (Su, 2022).
    negatives: cross-entropy of the second text of a pair among all second texts of the batch (Henderson et
    al., 2017).

    Each text with a label is compared with all others. The score is 1 for the same class, otherwise 0.
    """

    kind: str  # cosine, cosent or negatives
    scale: float
    scores: np.ndarray | None = None  # [n], from 0 to 1
    targets: np.ndarray | None = None  # [n] class indices, for texts with labels
    skip: int = 0  # number of prompt tokens that pooling leaves out

    def __call__(self, model: nn.Module, batch: TextBatch) -> StepLoss:
        vectors = embed_batch(model, batch, self.skip)
        if self.targets is not None:
            targets = copy_to_device(torch.from_numpy(self.targets[batch.index]), vectors.device)
            cosines, same_class, weights = all_pairs(vectors, targets)
            loss = 0 * vectors.sum()  # stays 0 if the batch has only one text
            if len(cosines):
                loss = len(vectors) * self.loss_of_cosines(cosines, same_class, weights)
            return StepLoss(loss, torch.zeros((), device=loss.device), len(vectors))
        first, second = vectors.chunk(2)  # [P, E] each
        if self.kind == "negatives":
            logits = self.scale * first @ second.T  # [P, P]
            targets = torch.arange(len(first), device=logits.device)
            loss = F.cross_entropy(logits, targets, reduction="sum")
            return StepLoss(loss, (logits.detach().argmax(1) == targets).sum(), len(first))
        cosines = (first * second).sum(1)  # [P]
        assert self.scores is not None
        scores = copy_to_device(torch.from_numpy(self.scores[batch.index]), cosines.device)
        weights = torch.full_like(cosines, 1 / len(cosines))
        loss = len(cosines) * self.loss_of_cosines(cosines, scores, weights)
        return StepLoss(loss, torch.zeros((), device=loss.device), len(cosines))

    def loss_of_cosines(self, cosines: Tensor, scores: Tensor, weights: Tensor) -> Tensor:
        """Mean loss for cosines ``[P]`` and their scores. The weights sum to 1."""
        if self.kind == "cosine":
            return ((cosines - scores).square() * weights).sum()
        is_higher = scores[:, None] > scores[None, :]  # [i, j]: whether score i is above score j
        differences = self.scale * (cosines[None, :] - cosines[:, None])
        return torch.cat([differences[is_higher], differences.new_zeros(1)]).logsumexp(0)


def all_pairs(vectors: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cosines, scores and weights ``[P]`` of all pairs of vectors ``[B, E]`` of length 1.

    The score is 1 for the same class, otherwise 0. The weights sum to 1. If there are positive and negative
    pairs, the weights of the positive pairs sum to 0.5.
    """
    i, j = torch.triu_indices(len(vectors), len(vectors), 1, device=vectors.device)
    same_class = targets[i] == targets[j]
    counts = torch.stack([(~same_class).sum(), same_class.sum()]).clamp(min=1)
    num_scores = 2 if same_class.any() and not same_class.all() else 1
    return (vectors @ vectors.T)[i, j], same_class.to(vectors), 1 / (num_scores * counts[same_class.long()])


def encode_table(network: Any, table: TokenTable, device: torch.device, skip: int = 0) -> np.ndarray:
    """Embeddings ``[n, E]`` of length 1 of all texts of a table; see ``embed_batch``."""
    out: list[Any] = [None] * len(table)
    with isolated_torch():
        for index in evaluation_batches(table.lengths, device=device):
            vectors = embed_batch(network, pack_texts(table, index, device), skip).cpu().numpy()
            for row, vector in zip(index.tolist(), vectors, strict=True):
                out[row] = vector
    return np.stack(out)


MAX_ATTEMPTS = 20  # maximum number of random validation splits until one has two classes
VALIDATION_PAIRS = 5  # number of positive pairs, and of negative pairs, per validation text


@dataclass(frozen=True)
class LabeledTexts:
    """Texts and their class indices."""

    texts: list[str]
    targets: np.ndarray  # [n]

    def __len__(self) -> int:
        return len(self.texts)

    def select(self, rows: Sequence[int] | np.ndarray) -> LabeledTexts:
        """The texts of these rows."""
        rows = np.asarray(rows, np.int64)
        return LabeledTexts([self.texts[i] for i in rows], self.targets[rows])

    @property
    def all_texts(self) -> list[str]:
        """All texts."""
        return self.texts

    @property
    def fingerprint_data(self) -> np.ndarray:
        """The training targets, for the fingerprint."""
        return self.targets

    score_range = (0.0, 1.0)  # see ``Pairs.score_range``; the score of the same class is 1

    def split(self, groups: Sequence[str], fraction: float, seed: int) -> tuple[LabeledTexts, LabeledTexts]:
        """Training and validation texts; see ``split_labels``."""
        train_rows, validation_rows = split_labels(self.targets, groups, fraction, seed)
        return self.select(train_rows), self.select(validation_rows)

    def check_classes(self) -> None:
        """Raise DataError if there is only one class, or only one text per class."""
        counts = np.unique(self.targets, return_counts=True)[1]
        _require_two_classes(len(counts))
        if counts.max() < 2:
            what = "each text has a label of its own"
            raise TooFewExamplesError(what, where="labels", fix="Give two texts or more of a class")

    def choose_loss(self, loss: str) -> str:
        """Check that a loss can be used for texts with labels, or choose one for ``auto``."""
        if loss == "negatives":
            fix = "Use cosine or cosent, or give pairs that belong together"
            raise NotForThisModelError("negatives needs pairs, not texts with labels", where="loss", fix=fix)
        return "cosine" if loss == "auto" else loss

    def training(
        self, table: TokenTable, train: Any, device: torch.device, loss: str, skip: int
    ) -> tuple[LabelStream, PairLoss]:
        """Batches and objective; ``skip`` is the number of prompt tokens that pooling leaves out."""
        settings = train.batch_size or len(self), train.pairs_per_text, train.accumulate, train.seed
        stream = LabelStream(table, self.targets, *settings, device)
        return stream, PairLoss(loss, train.scale, targets=self.targets, skip=skip)


def _require_two_classes(num_classes: int) -> None:
    if num_classes < 2:
        what = "all texts have one label"
        raise OneClassError(what, where="labels", fix="Give texts of two classes or more")


def split_labels(
    targets: np.ndarray, groups: Sequence[str], fraction: float, seed: int
) -> tuple[Sequence[int], Sequence[int]]:
    """Indices of training and validation texts. Texts of the same group go to the same split.

    Training has all classes, and validation at least two. The split is stratified if the classes are large
    enough, otherwise random.
    """
    with suppress(DataError):
        train_rows, validation_rows = grouped_split(targets.tolist(), groups, fraction, seed)
        return train_rows.tolist(), validation_rows.tolist()
    for attempt in range(MAX_ATTEMPTS):
        (train_rows,), (val_rows,) = random_split([[*range(len(targets))]], fraction, seed + attempt, groups)
        for missing in sorted({*targets[val_rows].tolist()} - {*targets[train_rows].tolist()}):
            group = groups[next(i for i in val_rows if targets[i] == missing)]
            val_rows = [i for i in val_rows if groups[i] != group]
        if len(np.unique(targets[val_rows])) > 1:
            return sorted({*range(len(targets))} - {*val_rows}), val_rows
    what = "too few texts: validation needs two classes, and each of them needs a training text"
    raise TooFewExamplesError(
        what, where="validation_fraction", fix="Give more texts of each class, or a larger share"
    )


def pairs_of_labels(texts: Sequence[str], targets: np.ndarray, per_text: int, seed: int) -> Pairs:
    """Sample ``per_text`` pairs of the same class (score 1) and of different classes (score 0) per text."""
    _require_two_classes(len(np.unique(targets)))
    rng, first, second, scores = np.random.default_rng(seed), [], [], []
    for i, target in enumerate(targets.tolist()):
        same_class = np.flatnonzero((targets == target) & (np.arange(len(targets)) != i))
        for rows, score in ((same_class, 1.0), (np.flatnonzero(targets != target), 0.0)):
            if len(rows):  # a class may have only one text
                partners = rng.choice(rows, per_text).tolist()
                first += [texts[i]] * per_text
                second += [texts[j] for j in partners]
                scores += [score] * per_text
    return Pairs(first, second, np.array(scores, np.float32))


@dataclass(frozen=True)
class LabelStream:
    """Batches of texts with labels. An epoch has ``passes`` passes; a batch has several texts per class."""

    table: TokenTable
    targets: np.ndarray  # [n]
    batch_size: int
    passes: int
    accumulate: int
    seed: int
    device: torch.device

    @property
    def examples(self) -> int:
        return len(self.table) * self.passes

    def steps(self, epoch: int) -> list:
        batches = [batch for number in range(self.passes) for batch in self._pass(epoch, number)]
        return list(accumulation_groups(batches, self.accumulate))

    def _pass(self, epoch: int, number: int) -> list[np.ndarray]:
        """Batches of nearly equal size, in which texts of the same class form groups."""
        rng = np.random.default_rng([self.seed, epoch, number])
        classes = np.unique(self.targets)
        size = max(2, self.batch_size // len(classes))
        groups = []
        for target in classes:
            rows = rng.permutation(np.flatnonzero(self.targets == target))
            class_groups = np.array_split(rows, math.ceil(len(rows) / size))
            groups += [(position, rng.random(), group) for position, group in enumerate(class_groups)]
        groups.sort(key=lambda group: group[:2])  # groups of all classes alternate
        order = np.concatenate([group for *_, group in groups])
        return np.array_split(order, math.ceil(len(order) / self.batch_size))

    def pack(self, index: np.ndarray) -> TextBatch:
        batch = pack_texts(self.table, index, self.device)
        return TextBatch(batch.ids, batch.segments, batch.packing, index)
