"""Runs of embedders.

In addition to the files of every run, they write ``pairs.csv`` (each evaluated pair with its cosine) and
``similarities.json`` (explanations of some cosines).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.pair_doctor import examine_scored
from glassformer.data.pairs import ScoredSplit, load_scored_pairs
from glassformer.data.splits import Splits, evaluation_splits, make_splits
from glassformer.data.spreadsheet import csv_safe
from glassformer.errors import ConfigError, DataError
from glassformer.evaluate.predictions import table_file
from glassformer.inputs.texts import TINY_TEXTS
from glassformer.targets.similarity import Similarity, correlations, retrieval, tfidf_vectors
from glassformer.tasks.build import is_from_scratch
from glassformer.tasks.card import export
from glassformer.tasks.folds import NAME, FoldPredictions, OutOfFold
from glassformer.tasks.run_steps import read_source, split_to_evaluate, warn_if_nothing_held_out
from glassformer.tasks.similarity.estimator import Embedder
from glassformer.tasks.similarity.pairs import Pairs
from glassformer.tasks.similarity.recipe import SimilarityRecipe
from glassformer.tasks.task import TINY, DataPreview, RunContext, Task, report_renderer

# Metrics of pairs without scores: "found" is recall at 1, see ``retrieval``.
RETRIEVAL = ("found", "reciprocal_rank")
MAX_WORDS = 14  # maximum number of words per text in an explained pair
DIGITS = 5  # of the explanations


def load(recipe: SimilarityRecipe, source: str | None = None) -> Splits:
    """Load the pairs of a recipe and split them, or load another source without splitting it."""
    dataset = read_source(load_scored_pairs, recipe, source, "first", "second", "score")
    if source is not None:
        return evaluation_splits(dataset)
    return make_splits(dataset, recipe.data, recipe.evaluate.split)


def as_pairs(split: ScoredSplit) -> Pairs:
    """Convert a split to ``Pairs``."""
    scores = None if split.scores is None else np.asarray(split.scores, np.float32)
    return Pairs(split.first, split.second, scores)


def fit_arguments(split: ScoredSplit) -> tuple[list[tuple[str, str]], list[float] | None]:
    """X and y of a split, for ``fit``."""
    return list(zip(split.first, split.second, strict=True)), split.scores


def preview_data(context: RunContext) -> DataPreview:
    """Lines to log about the pairs, and the data doctor's report."""
    splits, dataset = context.data, context.data.dataset
    first, second, score = dataset.columns
    what = (
        f"how alike {first!r} and {second!r} are: {score!r}"
        if score
        else "no score column: all pairs are positive"
    )
    lines = [f"{dataset.name}: {splits.sizes()} pairs; {what}"]
    lines += warn_if_nothing_held_out(splits, "pairs", "model")
    parts = splits.parts()
    return DataPreview(lines, dataset.rejected, lambda: examine_scored(dataset.name, parts, dataset.rejected))


def fit(context: RunContext, **options: Any) -> None:
    """Train on the training pairs and select the best epoch on the validation pairs."""
    split = context.data.validation
    validation = None if split is None else fit_arguments(split)
    context.estimator.fit(*fit_arguments(context.data.train), validation=validation, **options)
    context.estimator.name_columns(*context.data.dataset.columns[:2])


def evaluate_split(
    embedder: Embedder, split: ScoredSplit, resamples: int
) -> tuple[dict[str, Any], np.ndarray]:
    """Metrics of a split and the cosines ``[n]`` of its pairs.

    The metrics are correlations with the scores. Without scores, the partner of each text is retrieved.
    """
    first, second = map(embedder.unit_vectors, (split.first, split.second))
    cosines = (first * second).sum(1)
    if split.scores is None:
        return retrieval(first @ second.T, split.second), cosines
    return correlations(cosines, np.asarray(split.scores, np.float64), resamples), cosines


def evaluate(context: RunContext) -> dict[str, Any]:
    """Metrics of the validation and test split and of the baselines; also write ``pairs.csv``."""
    context.log("evaluating")
    embedder, recipe, splits = context.estimator, context.recipe, context.data
    resamples = recipe.evaluate.bootstrap
    metrics: dict[str, Any] = {}
    out: dict[str, Any] = {
        "judged": splits.evaluated_split,
        "columns": list(splits.dataset.columns),
        "similarity": metrics,
        "others": {},  # metrics of the baselines
        "truncated": {"train": count_truncated(embedder, splits.train)},
        "loss": embedder.loss_,
        "seconds": {},
    }
    for name, split in {"validation": splits.validation, splits.evaluated_split: splits.evaluated}.items():
        if split is None:
            continue
        started = time.perf_counter()
        metrics[name], cosines = evaluate_split(embedder, split, resamples)
        out["truncated"][name] = count_truncated(embedder, split)
        if name == splits.evaluated_split:
            out["seconds"]["inference"] = time.perf_counter() - started
            context.predictions = cosines
            write_pairs(context.folder / "pairs.csv", split, cosines)
    if splits.evaluated is not None and recipe.evaluate.baselines:
        out["others"] = baselines(context)
    return out


def baselines(context: RunContext) -> dict[str, Any]:
    """Metrics of the model before training, and of TF-IDF, on the test split."""
    embedder, split, resamples = context.estimator, context.data.evaluated, context.recipe.evaluate.bootstrap
    out: dict[str, Any] = {}
    if not is_from_scratch(embedder.model):
        started = time.perf_counter()
        out["untouched model"] = evaluate_split(type(embedder)(**embedder.get_params()), split, resamples)[0]
        out["untouched model"]["seconds"] = time.perf_counter() - started
    started = time.perf_counter()
    try:
        first, second = tfidf_vectors(as_pairs(context.data.train), as_pairs(split))
    except DataError as error:  # the texts have no words: leave this baseline out
        context.log(f"left out: {error}")
        return out
    if split.scores is None:
        out["TF-IDF cosine"] = retrieval(np.asarray(first @ second.T.toarray()), split.second)
    else:
        cosines = np.asarray(first.multiply(second).sum(1)).ravel()
        out["TF-IDF cosine"] = correlations(cosines, np.asarray(split.scores), resamples)
    out["TF-IDF cosine"]["seconds"] = time.perf_counter() - started
    return out


def count_truncated(embedder: Embedder, split: ScoredSplit) -> list[int]:
    """Number of truncated texts, and number of all texts of a split."""
    return [int(embedder.truncated([*split.first, *split.second]).sum()), 2 * len(split)]


def write_pairs(path: Path, split: ScoredSplit, cosines: np.ndarray) -> None:
    """Write one row per pair; cells are safe to open in a spreadsheet."""
    scores = split.scores if split.scores is not None else [""] * len(split)
    with table_file(path) as writer:
        writer.writerow(["first", "second", "score", "cosine"])
        for a, b, score, cosine in zip(split.first, split.second, scores, cosines.tolist(), strict=True):
            writer.writerow([csv_safe(a), csv_safe(b), score, f"{cosine:.6f}"])


def collect_artifacts(context: RunContext) -> dict[str, Any]:
    """``similarities.json``: explanations of some pairs, half of them with the largest errors."""
    split = context.data.evaluated
    num_explanations = context.recipe.evaluate.maps
    if split is None or not num_explanations or context.predictions is None:
        return {}
    examples = []
    for row in choose_pairs(split, context.predictions, num_explanations):
        try:
            explanation = context.estimator.explain_similarity(split.first[row], split.second[row])
        except ConfigError as error:  # the cosine of this model is not a sum over tokens
            context.log(f"no pairs are explained: {error.what}")
            return {}
        score = None if split.scores is None else split.scores[row]
        table = np.round(explanation.table, DIGITS).tolist()
        examples.append(explanation.as_dict() | {"table": table, "given": score})
    return {"similarities.json": {"examples": examples}}


def choose_pairs(split: ScoredSplit, cosines: np.ndarray, limit: int) -> list[int]:
    """Choose short pairs to explain: half by the largest errors, and others over the range of cosines."""
    from scipy.stats import rankdata

    words = np.array(
        [max(len(a.split()), len(b.split())) for a, b in zip(split.first, split.second, strict=True)]
    )
    short = np.flatnonzero(words <= max(MAX_WORDS, int(words.min())))
    if split.scores is None:
        return short[np.argsort(cosines[short], kind="stable")][:limit].tolist()
    errors = np.abs(rankdata(cosines) - rankdata(split.scores))[short]
    worst = short[np.argsort(-errors, kind="stable")][: (limit + 1) // 2]
    others = short[np.argsort(-cosines[short], kind="stable")]
    others = others[~np.isin(others, worst)]
    if not len(others):
        return worst.tolist()
    spread = np.linspace(0, len(others) - 1, limit - len(worst)).astype(int)
    return [*worst.tolist(), *dict.fromkeys(others[spread].tolist())]


class CosinesOutOfFold(OutOfFold):
    """Cross-validation of embedders. All pairs with the same first text share a fold.

    Without scores, the partners are retrieved within a fold, and the metrics are means over all pairs.
    """

    NOUN, PREDICTIONS_FILE = "pairs", "cosines.npy"
    EXAMPLE, GROUPS = "pair", "first texts"
    METRICS = ("spearman", "pearson", *RETRIEVAL)

    def fit_arguments(self, split: ScoredSplit) -> tuple[Any, ...]:
        return fit_arguments(split)

    @property
    def validation(self) -> tuple[Any, ...] | None:
        split = self.splits.validation
        return None if split is None else fit_arguments(split)

    def evaluate(self, model: Embedder, split: ScoredSplit) -> tuple[int, dict[str, Any], np.ndarray]:
        scores, cosines = evaluate_split(model, split, 0)
        return len(split), {key: scores[key] for key in self.METRICS if key in scores}, cosines

    def summary(self, metrics: dict[str, Any]) -> str:
        measure = next(key for key in self.METRICS if key in metrics)
        return f"{measure} {metrics[measure]:.4f}"

    def pooled_metrics(
        self, folder: Path, predictions: FoldPredictions, records: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        train, cosines = self.train, np.empty(len(self.train))
        for rows, cosines_of_fold in predictions:
            cosines[rows] = cosines_of_fold
        if train.scores is not None:
            test = correlations(cosines, np.asarray(train.scores, np.float64), self.recipe.evaluate.bootstrap)
        else:
            sizes = [fold["n"] for fold in records]
            means = {key: np.average([fold[key] for fold in records], weights=sizes) for key in RETRIEVAL}
            test = {"pairs": len(train), **{key: float(mean) for key, mean in means.items()}}
        write_pairs(folder / "pairs.csv", train, cosines)
        measure = next(key for key in self.METRICS if key in test)
        columns = list(self.splits.dataset.columns)
        out = {"task": self.recipe.task, "measure": measure, "columns": columns}
        return out | {"test": test, "similarity": {NAME: test}}


def evaluate_saved(context: RunContext, source: str | None) -> dict[str, Any]:
    """Metrics of a saved model on its own test split, or on other pairs."""
    split = split_to_evaluate(context, source, load, "pairs")
    return evaluate_split(context.estimator, split, context.recipe.evaluate.bootstrap)[0]


def example_fixture() -> tuple[Embedder, tuple]:
    """A minimal estimator, and pairs with scores."""
    settings: dict[str, Any] = {**TINY, "min_count": 1, "model": "encoder-mini", "max_length": 16}
    pairs = list(zip(TINY_TEXTS, TINY_TEXTS[1:] + TINY_TEXTS[:1], strict=True))
    return Embedder(**settings), (pairs, [float(i % 3) for i in range(len(pairs))])


TASK = Task(
    estimator=Embedder,
    gives="vectors",
    target=Similarity(),
    load=load,
    preview_data=preview_data,
    fit=fit,
    evaluate=evaluate,
    evaluate_saved=evaluate_saved,
    render_report=report_renderer("similarity"),
    example_fixture=example_fixture,
    collect_artifacts=collect_artifacts,
    export=export,
    folds=CosinesOutOfFold,
    verb="similar",
)
