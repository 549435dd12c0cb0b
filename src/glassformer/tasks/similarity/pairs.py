"""Pairs of texts: checked, drawn from labels, packed in batches, and what a training step minimizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.data.batching import (
    BatchSettings,
    TextBatch,
    evaluation_batches,
    grouped,
    pack_texts,
    training_batches,
)
from glassformer.data.checks import check_texts
from glassformer.data.text import TokenTable
from glassformer.errors import ConfigError, DataError
from glassformer.runtime import send
from glassformer.train.objectives import StepLoss


@dataclass(frozen=True)
class Pairs:
    """Texts that are compared, and how alike they are (None: each belongs to its partner)."""

    first: list[str]
    second: list[str]
    scores: np.ndarray | None = None  # [n] fp32

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: Sequence[int] | np.ndarray) -> Pairs:
        """Some of the pairs."""
        rows = np.asarray(rows, np.int64)
        scores = None if self.scores is None else self.scores[rows]
        return Pairs([self.first[i] for i in rows], [self.second[i] for i in rows], scores)


def check_text_pairs(X: Any, y: Any = None, origin: str = "pairs") -> Pairs:
    """Rows of two texts, and a number for each or none.

    Raises:
        DataError: no pairs, a row that is no pair of texts, or scores that are no finite numbers.
    """
    rows = X.to_numpy().tolist() if hasattr(X, "columns") else list(X)
    if not rows:
        raise DataError("no pairs", where=origin, fix="Give at least two")
    for number, row in enumerate(rows):
        if isinstance(row, str | bytes) or not hasattr(row, "__len__") or len(row) != 2:
            what = "is no pair of texts"
            raise DataError(what, where=f"{origin}, row {number + 1}", fix="Give (text, text) in each row")
    first, second = (
        check_texts([row[side] for row in rows], f"{origin}, {name} texts")
        for side, name in enumerate(("first", "second"))
    )
    if y is None:
        return Pairs(first, second)
    try:
        scores = np.asarray(y, np.float64)
    except (TypeError, ValueError):
        raise DataError("a score is no number", where=origin, fix="Give one number a pair") from None
    if scores.shape != (len(rows),):
        what = f"{len(rows)} pairs, but scores of shape {scores.shape}"
        raise DataError(what, where=origin, fix="Give one number a pair")
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores))[0]) + 1
        raise DataError("the score is missing or infinite", where=f"{origin}, row {row}")
    return Pairs(first, second, scores.astype(np.float32))


def pairs_of_labels(texts: Sequence[str], targets: np.ndarray, per_text: int, seed: int) -> Pairs:
    """For each text ``per_text`` partners of its class (score 1) and as many of others (score 0).

    Raises:
        DataError: one class only.
    """
    if len(np.unique(targets)) < 2:
        raise DataError("all texts have one label", where="labels", fix="Give texts of two classes or more")
    rng, first, second, scores = np.random.default_rng(seed), [], [], []
    for i, target in enumerate(targets.tolist()):
        same = np.flatnonzero((targets == target) & (np.arange(len(targets)) != i))
        for rows, score in ((same, 1.0), (np.flatnonzero(targets != target), 0.0)):
            if len(rows):  # of a class of one text there is no partner
                chosen = rng.choice(rows, per_text).tolist()
                first += [texts[i]] * per_text
                second += [texts[j] for j in chosen]
                scores += [score] * per_text
    return Pairs(first, second, np.array(scores, np.float32))


@dataclass(frozen=True)
class PairStream:
    """The batches of every epoch: first texts of some pairs, then their second ones."""

    table: TokenTable  # 2n texts: the first of all pairs, then the second
    settings: BatchSettings
    accumulate: int
    seed: int
    device: torch.device

    @property
    def examples(self) -> int:
        return len(self.table) // 2

    def steps(self, epoch: int) -> list:
        lengths = self.table.lengths.reshape(2, -1).sum(0)
        return list(grouped(training_batches(lengths, self.settings, self.seed, epoch), self.accumulate))

    def pack(self, index: np.ndarray) -> TextBatch:
        batch = pack_texts(self.table, np.concatenate([index, index + self.examples]), self.device)
        return TextBatch(batch.ids, batch.segments, batch.packing, index)

    def cut(self, index: np.ndarray, rank: int, size: int) -> np.ndarray | None:
        raise ConfigError("the pairs of a batch are compared in one process", where="torchrun")


def vectors_of(model: Any, batch: TextBatch) -> Tensor:
    """One vector of length 1 for each text of a batch, ``[B, E]`` fp32."""
    states = model.encode(batch.ids, batch.packing, segments=batch.segments)  # [N, D]
    return F.normalize(model.sentences.of_states(states, batch.packing), dim=-1)


@dataclass
class PairLoss:
    """How far the cosines of a batch are from what they should be; a sum over its pairs.

    cosine: squared error to the scores. cosent: ``log(1 + sum exp(scale (cos_j - cos_i)))`` over pairs i that
    score above pairs j (Su, 2022). negatives: cross-entropy of each partner among all of the batch
    (Henderson et al., 2017).
    """

    kind: str
    scores: np.ndarray | None  # [n], from 0 to 1
    scale: float

    def __call__(self, model: nn.Module, batch: TextBatch) -> StepLoss:
        first, second = vectors_of(model, batch).chunk(2)  # [P, E] each
        if self.kind == "negatives":
            logits = self.scale * first @ second.T  # [P, P]
            targets = torch.arange(len(first), device=logits.device)
            loss = F.cross_entropy(logits, targets, reduction="sum")
            return StepLoss(loss, (logits.detach().argmax(1) == targets).sum(), len(first))
        cosines = (first * second).sum(1)  # [P]
        assert self.scores is not None  # ``Embedder`` has looked
        wanted = send(torch.from_numpy(self.scores[batch.index]), cosines.device)
        if self.kind == "cosine":
            loss = (cosines - wanted).square().sum()
        else:
            above = wanted[:, None] > wanted[None, :]  # [i, j]: i scores above j
            wrong = self.scale * (cosines[None, :] - cosines[:, None])
            wrong = torch.cat([wrong[above], wrong.new_zeros(1)])
            loss = wrong.logsumexp(0) * len(cosines)
        return StepLoss(loss, torch.zeros((), device=loss.device), len(cosines))


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Correlation of ranks, ties at their mean; 0 where one side is constant."""
    from scipy.stats import rankdata

    return pearson(rankdata(a), rankdata(b))


def pearson(a: np.ndarray, b: np.ndarray) -> float:
    """Correlation; 0 where one side is constant."""
    a, b = (np.asarray(x, np.float64) - np.mean(x, dtype=np.float64) for x in (a, b))
    norm = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / norm if norm > 0 else 0.0


def correlations(
    cosines: np.ndarray, scores: np.ndarray, resamples: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """Spearman and Pearson, each with the 95 % interval of the bootstrap over pairs."""
    rng, out = np.random.default_rng(seed), {"pairs": len(scores)}
    rows = [rng.integers(0, len(scores), len(scores)) for _ in range(resamples)]
    for name, measure in (("spearman", spearman), ("pearson", pearson)):
        out[name] = measure(cosines, scores)
        if rows:
            drawn = [measure(cosines[r], scores[r]) for r in rows]
            out[f"{name}_interval"] = [float(v) for v in np.quantile(drawn, (0.025, 0.975))]
    return out


def tfidf_cosines(train: Pairs, pairs: Pairs) -> np.ndarray:
    """The cosine of each pair's TF-IDF vectors, weighed on the training texts: a baseline, ``[n]``."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    counted = TfidfVectorizer(sublinear_tf=True).fit([*train.first, *train.second])
    first, second = counted.transform(pairs.first), counted.transform(pairs.second)
    return np.asarray(first.multiply(second).sum(1)).ravel()  # type: ignore[union-attr]  # a sparse matrix


def chosen_loss(loss: str, pairs: Pairs) -> str:
    """The loss that suits the pairs, or the one that was asked for."""
    if pairs.scores is None:
        if loss not in ("auto", "negatives"):
            raise ConfigError(f"{loss} needs scores", where="loss", fix="Give scores, or use negatives")
        return "negatives"
    if np.ptp(pairs.scores) == 0:
        raise DataError("all scores are equal", where="scores", fix="Give none: fit(pairs)")
    if loss == "negatives":
        fix = "Give the pairs that belong together, without scores"
        raise ConfigError("negatives knows no scores", where="loss", fix=fix)
    if loss != "auto":
        return loss
    return "cosine" if set(np.unique(pairs.scores).tolist()) == {0.0, 1.0} else "cosent"


def encode_table(network: Any, table: TokenTable, device: torch.device) -> np.ndarray:
    """Vectors of length 1 of all texts of a table."""
    out: list[Any] = [None] * len(table)
    with torch.inference_mode():
        for index in evaluation_batches(table.lengths):
            vectors = vectors_of(network, pack_texts(table, index, device)).cpu().numpy()
            for row, vector in zip(index.tolist(), vectors, strict=True):
                out[row] = vector
    return np.stack(out)
