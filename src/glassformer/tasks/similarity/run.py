"""Runs of an embedder.

In addition to the files of every run, these write ``pairs.csv`` (each evaluated pair with its cosine) and
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
from glassformer.data.splits import Splits, make_splits, without_holding_out
from glassformer.data.spreadsheet import csv_safe
from glassformer.errors import ConfigError, DataError
from glassformer.evaluate.predictions import table_file
from glassformer.inputs.texts import TINY_TEXTS
from glassformer.targets.similarity import Similarity, correlations, retrieval, tfidf_vectors
from glassformer.tasks.build import is_from_scratch
from glassformer.tasks.card import export
from glassformer.tasks.folds import NAME, OutOfFold
from glassformer.tasks.judging import nothing_held_out, read_source, split_to_evaluate
from glassformer.tasks.similarity.estimator import Embedder
from glassformer.tasks.similarity.pairs import Pairs
from glassformer.tasks.similarity.recipe import SimilarityRecipe
from glassformer.tasks.task import TINY, DataPreview, RunContext, Task, report_of

RETRIEVAL = ("found", "reciprocal_rank")  # metrics of pairs without scores
READABLE = 14  # maximum number of words per text in an explained pair
SHOWN_DIGITS = 5


def load(recipe: SimilarityRecipe, source: str | None = None) -> Splits:
    """Load the pairs of a recipe and split them; or load another source, without splitting."""
    dataset = read_source(load_scored_pairs, recipe, source, "first", "second", "score")
    if source is not None:
        return without_holding_out(dataset)
    return make_splits(dataset, recipe.data, recipe.evaluate.split)


def pairs_of(split: ScoredSplit) -> Pairs:
    """A split as ``Pairs``."""
    scores = None if split.scores is None else np.asarray(split.scores, np.float32)
    return Pairs(split.first, split.second, scores)


def given(split: ScoredSplit) -> tuple[list[tuple[str, str]], list[float] | None]:
    """X and y of a split, for ``fit``."""
    return list(zip(split.first, split.second, strict=True)), split.scores


def preview_data(context: RunContext) -> DataPreview:
    """Log lines about the pairs, and the data doctor."""
    splits, dataset = context.data, context.data.dataset
    first, second, score = dataset.columns
    what = f"how alike {first!r} and {second!r} are: {score!r}" if score else "all pairs belong together"
    lines = [f"{dataset.name}: {splits.sizes()} pairs; {what}"]
    lines += nothing_held_out(splits, "pairs", "model")
    parts = splits.parts()
    return DataPreview(lines, dataset.rejected, lambda: examine_scored(dataset.name, parts, dataset.rejected))


def fit(context: RunContext, **options: Any) -> None:
    """Train on the training pairs; the validation pairs select the best epoch."""
    held = context.data.validation
    validation = None if held is None else given(held)
    context.estimator.fit(*given(context.data.train), validation=validation, **options)
    context.estimator.name_columns(*context.data.dataset.columns[:2])


def metrics_of(embedder: Embedder, split: ScoredSplit, resamples: int) -> tuple[dict[str, Any], np.ndarray]:
    """Metrics of a split (correlations with the scores, or retrieval of partners) and its cosines ``[n]``."""
    first, second = map(embedder.directions, (split.first, split.second))
    cosines = (first * second).sum(1)
    if split.scores is None:
        return retrieval(first @ second.T, split.second), cosines
    return correlations(cosines, np.asarray(split.scores, np.float64), resamples), cosines


def evaluate(context: RunContext) -> dict[str, Any]:
    """Metrics of validation and test split and of the baselines; also writes ``pairs.csv``."""
    context.log("evaluating")
    embedder, recipe, splits = context.estimator, context.recipe, context.data
    resamples = recipe.evaluate.bootstrap
    metrics: dict[str, Any] = {}
    out: dict[str, Any] = {
        "judged": splits.judged_name,
        "columns": list(splits.dataset.columns),
        "similarity": metrics,
        "others": {},
        "truncated": {"train": count_truncated(embedder, splits.train)},
        "loss": embedder.loss_,
        "seconds": {},
    }
    for name, split in {"validation": splits.validation, splits.judged_name: splits.judged}.items():
        if split is None:
            continue
        started = time.perf_counter()
        metrics[name], cosines = metrics_of(embedder, split, resamples)
        out["truncated"][name] = count_truncated(embedder, split)
        if name == splits.judged_name:
            out["seconds"]["inference"] = time.perf_counter() - started
            context.answers = cosines
            write_pairs(context.folder / "pairs.csv", split, cosines)
    if splits.judged is not None and recipe.evaluate.baselines:
        out["others"] = baselines(context)
    return out


def baselines(context: RunContext) -> dict[str, Any]:
    """Metrics of the model before training, and of TF-IDF, on the test split."""
    embedder, split, resamples = context.estimator, context.data.judged, context.recipe.evaluate.bootstrap
    out: dict[str, Any] = {}
    if not is_from_scratch(embedder.model):
        started = time.perf_counter()
        out["untouched model"] = metrics_of(type(embedder)(**embedder.get_params()), split, resamples)[0]
        out["untouched model"]["seconds"] = time.perf_counter() - started
    started = time.perf_counter()
    try:
        first, second = tfidf_vectors(pairs_of(context.data.train), pairs_of(split))
    except DataError as error:  # texts without words; only this baseline is missing then
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
    """Number of truncated texts of a split, and of all its texts."""
    return [int(embedder.truncated([*split.first, *split.second]).sum()), 2 * len(split)]


def write_pairs(path: Path, split: ScoredSplit, cosines: np.ndarray) -> None:
    """Write one row per pair; cells are safe to open in a spreadsheet."""
    scores = split.scores if split.scores is not None else [""] * len(split)
    with table_file(path) as writer:
        writer.writerow(["first", "second", "score", "cosine"])
        for a, b, score, cosine in zip(split.first, split.second, scores, cosines.tolist(), strict=True):
            writer.writerow([csv_safe(a), csv_safe(b), score, f"{cosine:.6f}"])


def collect_artifacts(context: RunContext) -> dict[str, Any]:
    """``similarities.json``: explanations of some pairs; half of them are those with the largest errors."""
    split = context.data.judged
    limit = context.recipe.evaluate.maps
    if split is None or not limit or context.answers is None:
        return {}
    rows = chosen_pairs(split, context.answers, limit)
    examples = []
    for row in rows:
        try:
            explanation = context.estimator.explain_similarity(split.first[row], split.second[row])
        except ConfigError as error:  # a model whose cosine is not a sum over tokens
            context.log(f"no pairs are explained: {error.what}")
            return {}
        score = None if split.scores is None else split.scores[row]
        table = np.round(explanation.table, SHOWN_DIGITS).tolist()
        examples.append(explanation.as_dict() | {"table": table, "given": score})
    return {"similarities.json": {"examples": examples}}


def chosen_pairs(split: ScoredSplit, cosines: np.ndarray, limit: int) -> list[int]:
    """Pairs of readable length: those whose rank differs most from their score's, then a range of others."""
    from scipy.stats import rankdata

    words = np.array(
        [max(len(a.split()), len(b.split())) for a, b in zip(split.first, split.second, strict=True)]
    )
    able = np.flatnonzero(words <= max(READABLE, int(words.min())))
    if split.scores is None:
        return able[np.argsort(cosines[able], kind="stable")][:limit].tolist()
    apart = np.abs(rankdata(cosines) - rankdata(split.scores))[able]
    worst = able[np.argsort(-apart, kind="stable")][: (limit + 1) // 2]
    others = able[np.argsort(-cosines[able], kind="stable")]
    others = others[~np.isin(others, worst)]
    places = np.linspace(0, max(len(others) - 1, 0), limit - len(worst)).astype(int) if len(others) else []
    return [*worst.tolist(), *dict.fromkeys(others[places].tolist())]


class CosinesOutOfFold(OutOfFold):
    """Cross-validation of embedders; all pairs with the same first text share a fold.

    For pairs without scores, partners are retrieved within a fold, and metrics are means over all pairs.
    """

    NOUN, ANSWERS, GROUP = "pairs", "cosines.npy", ("pair", "first texts")
    METRICS = ("spearman", "pearson", *RETRIEVAL)

    def fit_arguments(self, split: ScoredSplit) -> tuple[Any, ...]:
        return given(split)

    @property
    def validation(self) -> tuple[Any, ...] | None:
        held = self.splits.validation
        return None if held is None else given(held)

    def evaluate(self, model: Embedder, held: ScoredSplit) -> tuple[int, dict[str, Any], np.ndarray]:
        scores, cosines = metrics_of(model, held, 0)
        return len(held), {key: scores[key] for key in self.METRICS if key in scores}, cosines

    def summary(self, metrics: dict[str, Any]) -> str:
        measure = next(key for key in self.METRICS if key in metrics)
        return f"{measure} {metrics[measure]:.4f}"

    def pooled_metrics(
        self, folder: Path, answers: list[tuple[np.ndarray, Any]], records: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        train, cosines = self.train, np.empty(len(self.train))
        for held, cosines_of_fold in answers:
            cosines[held] = cosines_of_fold
        if train.scores is not None:
            test = correlations(cosines, np.asarray(train.scores, np.float64), self.recipe.evaluate.bootstrap)
        else:
            sizes = [fold["n"] for fold in records]
            means = {key: np.average([fold[key] for fold in records], weights=sizes) for key in RETRIEVAL}
            test = {"pairs": len(train), **{key: float(mean) for key, mean in means.items()}}
        write_pairs(folder / "pairs.csv", train, cosines)
        measure = next(key for key in self.METRICS if key in test)
        about = {"task": self.recipe.task, "measure": measure, "columns": list(self.splits.dataset.columns)}
        return about | {"test": test, "similarity": {NAME: test}}


def evaluate_saved(context: RunContext, source: str | None) -> dict[str, Any]:
    """Metrics of a saved model on its own test split, or on other pairs."""
    split = split_to_evaluate(context, source, load, "pairs")
    return metrics_of(context.estimator, split, context.recipe.evaluate.bootstrap)[0]


def example_fixture() -> tuple[Embedder, tuple]:
    """A minimal estimator and pairs with scores."""
    settings: dict[str, Any] = {**TINY, "min_count": 1, "model": "encoder-mini", "max_length": 16}
    pairs = list(zip(TINY_TEXTS, TINY_TEXTS[1:] + TINY_TEXTS[:1], strict=True))
    return Embedder(**settings), (pairs, [float(i % 3) for i in range(len(pairs))])


TASK = Task(
    name="similarity",
    recipe=SimilarityRecipe,
    estimator=Embedder,
    gives="vectors",
    target=Similarity(),
    load=load,
    preview_data=preview_data,
    fit=fit,
    evaluate=evaluate,
    evaluate_saved=evaluate_saved,
    render_report=report_of("similarity"),
    example_fixture=example_fixture,
    collect_artifacts=collect_artifacts,
    export=export,
    folds=CosinesOutOfFold,
    verb="similar",
    packages=("tokenizers", "safetensors"),
)
