"""Similarities of two texts as targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glassformer.data.spreadsheet import csv_dicts
from glassformer.errors import DataError
from glassformer.evaluate.baselines import fit_vectorizer
from glassformer.evaluate.compare import bootstrap_means, bounds
from glassformer.evaluate.metrics import Plain, Share
from glassformer.targets.permutation import number_statistic
from glassformer.targets.regression import NumericTarget
from glassformer.targets.target import RunPredictions, hash_examples


class Similarity(NumericTarget):
    """One cosine similarity per pair of texts; only the ranking of the pairs counts."""

    marker_keys: ClassVar[Sequence[str]] = ("pairs", "spearman")
    metrics: ClassVar[Mapping[str, Share]] = {
        "spearman": Plain("Spearman", form=".4f", bounds=".3f", limits=(-1.0, 1.0)),
        "pearson": Plain("Pearson", form=".4f", bounds=".3f", limits=(-1.0, 1.0)),
        "found": Plain("Partner is the nearest", "found", form=".4f"),
        "reciprocal_rank": Plain("Mean of 1 / its rank", "1 / rank", form=".4f"),
    }
    compared: ClassVar[Sequence[str]] = ("spearman", "pearson")
    fold_table_metrics: ClassVar[Sequence[str]] = tuple(metrics)
    examples = predictions = "pairs"
    terminal_layout: ClassVar[str] = "similarity"
    file: ClassVar[str] = "pairs.csv"
    no_review = "cosines of pairs", "Look at pairs.csv, which has the cosine and the score of each pair"

    def read_run(self, folder: Path) -> RunPredictions:
        """Read the score and the cosine of each evaluated pair."""
        path, examples, scores, cosines = folder / self.file, [], [], []
        with path.open(encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv_dicts(file), 2):
                examples.append((row.get("first"), row.get("second"), row.get("score")))
                try:
                    scores.append(float(row["score"]) if row["score"] else None)
                    cosines.append(float(row["cosine"]))
                except (KeyError, TypeError, ValueError):
                    what, fix = "a score or cosine is not a number", "Evaluate the run again"
                    raise DataError(what, where=f"{path}, row {number}", fix=fix) from None
        if not scores or None in scores:
            what, fix = ("the pairs have no scores", "Evaluate on pairs that have scores")
            raise DataError(what, where=str(path), fix=fix)
        truth, predicted = np.array(scores), np.array(cosines)
        return RunPredictions(self, hash_examples(examples), len(truth), truth, predicted)


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's rank correlation, with mean ranks for ties; 0 if ``a`` or ``b`` is constant."""
    from scipy.stats import rankdata

    return pearson(rankdata(a), rankdata(b))


def pearson(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's correlation; 0 if ``a`` or ``b`` is constant."""
    a, b = (np.asarray(x, np.float64) - np.mean(x, dtype=np.float64) for x in (a, b))
    norm = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / norm if norm > 0 else 0.0


def ranks_of_partners(cosines: np.ndarray, second: Sequence[str]) -> np.ndarray:
    """The rank ``[n]``, from 1, of each first text's partner among all second texts; ties have the mean rank.

    Args:
        cosines: cosines of all first with all second texts, ``[n, n]``.
        second: ``[n]`` second texts; a copy of the partner counts as the partner.
    """
    _, text_ids = np.unique(np.array(list(second), object), return_inverse=True)
    ranks = np.empty(len(text_ids))
    for i, row in enumerate(cosines):
        others = row[text_ids != text_ids[i]]
        higher = len(others) if np.isnan(row[i]) else (others > row[i]).sum()
        ranks[i] = 1 + higher + (others == row[i]).sum() / 2
    return ranks


def retrieval_metrics(cosines: np.ndarray, second: Sequence[str]) -> dict[str, Any]:
    """Retrieval metrics of positive pairs; see ``ranks_of_partners`` for the arguments.

    ``found`` is the share of partners with rank 1 and no tie, ``reciprocal_rank`` the mean reciprocal rank.
    """
    ranks = ranks_of_partners(cosines, second)
    share, mean = float((ranks == 1).mean()), float((1 / ranks).mean())
    return {"pairs": len(cosines), "found": share, "reciprocal_rank": mean}


def validation_metrics(
    first: np.ndarray, second: np.ndarray, scores: np.ndarray | None, texts: Sequence[str]
) -> dict[str, float]:
    """Validation metrics of the vectors ``[n, D]``, of length 1, of the first and the second texts.

    Args:
        scores: ``[n]``, from 0 to 1; None: all pairs are positive.
        texts: the second texts.

    Returns:
        ``loss`` and ``score``. The score is Spearman's correlation, or ``found`` if there are no scores.
    """
    cosines = (first * second).sum(1)
    if scores is None:
        return {
            "loss": float(1 - cosines.mean()),
            "score": retrieval_metrics(first @ second.T, texts)["found"],
        }
    return {"loss": float(np.square(cosines - scores).mean()), "score": spearman(cosines, scores)}


def correlations(cosines: np.ndarray, scores: np.ndarray, resamples: int = 1000) -> dict[str, Any]:
    """Spearman's and Pearson's correlation, with 95 % intervals by bootstrap over the pairs."""
    out: dict[str, Any] = {"pairs": len(scores)}
    for name, measure in (("spearman", spearman), ("pearson", pearson)):
        out[name] = measure(cosines, scores)
        if resamples:
            statistic = number_statistic(name, scores, cosines[None])
            resampled = bootstrap_means([statistic], len(scores), resamples=resamples)[0]
            out[f"{name}_interval"] = bounds(resampled)
    return out


def tfidf_vectors(train: Any, pairs: Any) -> tuple[Any, Any]:
    """L2-normalized TF-IDF vectors of the first and second texts of pairs, sparse ``[n, W]``.

    The vocabulary and the weights come from the training pairs ``train``.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(sublinear_tf=True)
    fit_vectorizer(words, [*train.first, *train.second])
    return words.transform(pairs.first), words.transform(pairs.second)
