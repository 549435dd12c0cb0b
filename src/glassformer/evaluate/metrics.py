"""Classification metrics that see one batch at a time.

Sums and counts are kept and divided once, so that unequal batches cannot bias a mean. What is
kept does not grow with the data, the float32 scores that the curves are drawn from aside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from glassformer.errors import DataError, InputError, ShapeError
from glassformer.evaluate.intervals import macro_f1_interval, share_interval
from glassformer.finite import finite, undefined

MEASURES = {"accuracy": "accuracy", "macro_f1": "macro-F1"}  # what a table can be led by, as it is called
OF_SETS = {"macro_f1": "macro-F1", "micro_f1": "micro-F1"}  # likewise, where an example has several labels
OF_SPANS = {"entity_f1": "entity F1", "accuracy": "words right"}  # where words have tags
OF_ANSWERS = {"f1": "F1", "exact_match": "exact match"}  # where questions are answered from texts
CALLED = OF_ANSWERS | OF_SPANS | OF_SETS | MEASURES  # every figure that a table can be led by
MOST_SCORES = 2**25  # examples times classes whose scores are kept for the curves (128 MiB)
SAME = 0.02  # of macro-F1
TINY = np.finfo(np.float64).eps  # a probability of 0 counts as this in the log loss, as in scikit-learn


def measures_of(scores: dict[str, Any]) -> dict[str, str]:
    """The figures that lead a table of these scores, as they are called."""
    if "entity_f1" in scores:
        return OF_SPANS
    if "exact_match" in scores:
        return OF_ANSWERS
    return OF_SETS if scores.get("kind") == "labels" else MEASURES


def no_better_than_one(figures: Mapping[str, Any]) -> str:
    """A sentence where the answers are no better than one label for all: neither right oftener, nor with a
    macro-F1 of more than ``SAME`` above; else empty. Of several labels an example nothing is said.
    """
    if not figures.get("confusion"):  # of several labels an example
        return ""
    counts, n = [sum(row) for row in figures["confusion"]], figures["n"]
    most = max(range(len(counts)), key=counts.__getitem__)
    share, seen = counts[most] / n, sum(count > 0 for count in counts)
    always = 2 * share / (1 + share) / seen  # its macro-F1
    if figures["accuracy"] > share or figures["macro_f1"] > always + SAME:
        return ""
    return f"no better than always answering {figures['labels'][most]!r}, which {share:.1%} are"


class ClassificationMeter:
    """Counts right and wrong answers batch by batch; ``result`` divides.

    Args:
        classes: the K >= 2 labels in the order of the probability columns.
        positive: with two classes, the label whose score draws the ROC curve; the second by default.
        curves: whether scores are kept for ROC-AUC and average precision.

    Raises:
        InputError: fewer than two classes, one named twice, or ``positive`` is none of them.
    """

    def __init__(self, classes: Sequence[Any], positive: Any = None, *, curves: bool = True):
        self.classes = [c.item() if isinstance(c, np.generic) else c for c in classes]
        if len(self.classes) < 2 or len(set(self.classes)) < len(self.classes):
            raise InputError(f"needs two or more different classes, got {self.classes}", where="classes")
        binary = len(self.classes) == 2
        self.positive = self.classes[1] if binary and positive is None else positive
        if self.positive is not None and (not binary or self.positive not in self.classes):
            raise InputError(
                f"{positive!r} is not one of two classes {self.classes}",
                where="positive",
                fix="Leave it out or name one of them",
            )
        self._confusion = np.zeros((len(self.classes), len(self.classes)), np.int64)  # [true, predicted]
        self._loss_sum = 0.0
        self._curves = curves
        self._without = "all examples have the same label" if curves else "curves were not computed"
        self._scores: list[np.ndarray] = []  # log-odds [b, K], or [b, 1] of the positive class
        self._targets: list[np.ndarray] = []

    def update(
        self,
        probabilities: ArrayLike,
        targets: ArrayLike,
        loss_sum: float | None = None,
        predicted: ArrayLike | None = None,
    ) -> None:
        """Count one batch.

        Args:
            probabilities: [b, K], rows sum to 1.
            targets: [b] class indices in [0, K).
            loss_sum: sum of the batch's negative log likelihoods where the caller has it from the
                logits (exact for certain answers); otherwise taken from the probabilities.
            predicted: [b] class indices, where a threshold and not the largest probability decides.

        Raises:
            ShapeError: the shapes do not fit each other or the classes.
            DataError: a target is no class index.
            NotFiniteError: a probability is NaN or infinite.
        """
        p, y = np.asarray(probabilities, np.float64), np.asarray(targets)
        size = len(self.classes)
        if p.ndim != 2 or p.shape[1] != size or y.shape != p.shape[:1]:
            raise ShapeError(f"probabilities {p.shape} and targets {y.shape} do not fit {size} classes")
        finite(p, "probabilities")
        if y.size and (y.min() < 0 or y.max() >= size or np.any(y != y.astype(np.int64))):
            raise DataError(f"targets must be class indices in 0..{size - 1}", where="targets")
        y = y.astype(np.int64)
        chosen = p.argmax(1) if predicted is None else np.asarray(predicted).astype(np.int64)
        if chosen.shape != y.shape or (chosen.size and not 0 <= chosen.min() <= chosen.max() < size):
            raise ShapeError(f"predicted classes {chosen.shape} do not fit targets {y.shape}")
        cells = y * size + chosen
        self._confusion += np.bincount(cells, minlength=size * size).reshape(size, size)
        if loss_sum is None:
            loss_sum = float(-np.log(p[np.arange(len(y)), y].clip(TINY)).sum())
        self._loss_sum += float(loss_sum)
        if self._curves:
            self._keep(p, y)

    def _keep(self, p: np.ndarray, y: np.ndarray) -> None:
        """The scores of a batch; too many of them are none, for the curves need all or nothing."""
        if self.positive is None:
            ours, others = p, 1 - p  # [b, K]
        else:
            column = self.classes.index(self.positive)
            ours, others, y = p[:, [column]], p[:, [1 - column]], np.where(y == column, 0, 1)  # [b, 1]
        if sum(map(np.size, self._scores)) + ours.size > MOST_SCORES:
            self._curves, self._scores, self._targets = False, [], []
            self._without = f"there are more than {MOST_SCORES:,} scores"
            return
        # Log-odds, because float32 probabilities would tie near 1.
        odds = np.log(ours.clip(TINY**2)) - np.log(others.clip(TINY**2))
        self._scores.append(odds.astype(np.float32))
        self._targets.append(y)

    def result(self, bootstrap: int = 1000, seed: int = 0) -> dict[str, Any]:
        """The figures so far, ready for JSON; all shares are in [0, 1].

        Returns:
            n, accuracy, macro_f1 (over the classes seen or predicted, as in scikit-learn), log_loss (nats),
            weighted_f1 (by the classes' examples), roc_auc and average_precision (of ``positive``; with more
            than two classes the mean over the classes, each against all others; None when only one class was
            seen, without ``curves``, or with more than ``MOST_SCORES`` scores; ``undefined`` then says why),
            positive (None with more than two classes), accuracy_interval (95 %, percentile bootstrap; of 0
            and 1 see ``share_interval``), macro_f1_interval (95 %, see ``intervals``; both None with
            ``bootstrap=0``), labels, confusion ([true][predicted] counts) and per_class (label, precision,
            recall, f1, support).

        Raises:
            DataError: nothing was counted.
        """
        from sklearn.metrics import f1_score, precision_recall_fscore_support

        n = int(self._confusion.sum())
        if n == 0:
            raise DataError("no example to judge", fix="Give a split that is not empty")
        # Every formula sees each cell of the confusion matrix once, weighted by its count.
        true, predicted = np.nonzero(self._confusion)
        weight = self._confusion[true, predicted]
        cells: dict[str, Any] = {"y_true": true, "y_pred": predicted, "sample_weight": weight}
        cells["zero_division"] = 0  # what 0/0 counts as
        columns = precision_recall_fscore_support(**cells, labels=range(len(self.classes)))
        precision, recall, f1, _ = cast(tuple[np.ndarray, ...], columns)
        intervals = self._bootstrap(bootstrap, seed) if bootstrap else (None, None)
        roc_auc, average_precision = self._areas()
        found = {
            "n": n,
            "accuracy": float(np.trace(self._confusion) / n),
            "accuracy_interval": intervals[0],
            "macro_f1": float(f1_score(**cells, average="macro")),
            "macro_f1_interval": intervals[1],
            "weighted_f1": float(f1_score(**cells, average="weighted")),
            "roc_auc": roc_auc,
            "average_precision": average_precision,
            "positive": self.positive,
            "log_loss": self._loss_sum / n,
            "labels": self.classes,
            "confusion": self._confusion.tolist(),
            "per_class": [
                {"label": c, "precision": float(a), "recall": float(b), "f1": float(f), "support": int(s)}
                for c, a, b, f, s in zip(
                    self.classes, precision, recall, f1, self._confusion.sum(1), strict=True
                )
            ],
        }
        return undefined(found, dict.fromkeys(("roc_auc", "average_precision"), self._without))

    def _areas(self) -> tuple[float | None, float | None]:
        """ROC-AUC and average precision: of the positive class, or the mean over the classes (each against
        all others) that some examples have and some have not; None where no class is such.
        """
        from sklearn.metrics import average_precision_score, roc_auc_score

        if not self._curves or not self._scores:
            return None, None
        scores, targets = np.concatenate(self._scores), np.concatenate(self._targets)
        pairs = []
        for column in range(scores.shape[1]):
            own = targets == column
            if own.any() and not own.all():
                pairs.append(
                    [area(own, scores[:, column]) for area in (roc_auc_score, average_precision_score)]
                )
        if not pairs:
            return None, None
        roc, precision = np.mean(pairs, axis=0).tolist()
        return roc, precision

    def _bootstrap(self, resamples: int, seed: int) -> tuple[list[float], list[float]]:
        """95 % intervals of accuracy and macro-F1.

        Accuracy depends on the confusion matrix alone, and drawing n examples with replacement is one
        multinomial draw of its cells: the same distribution without touching the examples again.
        """
        n, rng = int(self._confusion.sum()), np.random.default_rng(seed)
        true, predicted = np.nonzero(self._confusion)
        share = self._confusion[true, predicted] / n
        accuracy = [rng.multinomial(n, share)[true == predicted].sum() / n for _ in range(resamples)]
        ends = np.quantile(accuracy, [0.025, 0.975]).tolist()
        ends = share_interval(float(np.trace(self._confusion) / n), n, ends)
        return ends, macro_f1_interval(self._confusion, resamples=resamples, seed=seed)
