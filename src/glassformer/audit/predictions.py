"""Predictions of a model for labeled examples."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from glassformer import errors
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.config import join_names
from glassformer.data.checks import location
from glassformer.data.tables import READERS, ignore_error, read_table
from glassformer.tasks.catalog import build_recipe, task_of_estimator
from glassformer.tasks.classifier import Supervised
from glassformer.tasks.load import load
from glassformer.tasks.run import read_run_recipe, with_bad_rows, with_columns
from glassformer.tasks.similarity.estimator import Embedder
from glassformer.tasks.supervised import column_as_text, load_other_data, with_known_labels
from glassformer.tasks.task import Log, RunContext, is_named
from glassformer.train.callbacks import Count, no_progress

WORST_SHARE = 0.2  # for regression: this share of the predictions, with the largest errors, counts as wrong


@dataclass(frozen=True)
class Predictions:
    """A model's outputs for labeled examples.

    Attributes:
        name: the model's name, as given by the user.
        split: the examples with their labels.
        outputs: probabilities ``[n, C]``, or predicted numbers ``[n, 1]``.
        targets: class indices ``[n]``, label sets ``[n, K]`` of 0 and 1, or numbers ``[n]``.
        columns: columns of the table that are neither inputs nor labels: name -> text of each example.
        train: the training examples; None: the model is not a run, or its data are not available.
    """

    clf: Any
    name: str
    split: Any
    outputs: np.ndarray
    targets: np.ndarray
    columns: Mapping[str, list[str]]
    train: Any = None

    def __len__(self) -> int:
        return len(self.split)

    @property
    def predicts_numbers(self) -> bool:
        return not self.clf.kind_.predicts_labels

    @property
    def has_images(self) -> bool:
        return self.clf.inputs.has_images

    @cached_property
    def predicted(self) -> np.ndarray:
        """The predicted class indices ``[n]``, label sets ``[n, K]``, or numbers ``[n]``."""
        return self.outputs[:, 0] if self.predicts_numbers else self.clf.predicted_index(self.outputs)

    @cached_property
    def scores(self) -> np.ndarray:
        """The score of each prediction ``[n]``; higher is better.

        It is 1 or 0 for a correct or wrong label, the Jaccard index for label sets, and the negative
        absolute error for numbers.
        """
        if self.predicts_numbers:
            return -np.abs(self.predicted - np.asarray(self.targets, float))
        if self.targets.ndim == 1:
            return (self.predicted == self.targets).astype(float)
        is_true = self.targets > 0
        intersection, union = (self.predicted & is_true).sum(1), (self.predicted | is_true).sum(1)
        return np.where(union > 0, intersection / np.maximum(union, 1), 1.0)

    @cached_property
    def wrong(self) -> np.ndarray:
        """Whether each prediction is wrong, ``[n]``; for numbers, the 20 % with the largest errors."""
        if self.predicts_numbers:
            return self.scores < np.quantile(self.scores, WORST_SHARE)
        return self.scores < 1

    def label_names(self, predicted: np.ndarray) -> list[str]:
        """Predictions as label names or formatted numbers."""
        kind = self.clf.kind_
        if self.predicts_numbers:
            return [f"{x:.6g}" for x in predicted.tolist()]
        return [str(x) for x in kind.labels(predicted, self.clf.classes_)]

    def where(self, i: int) -> str:
        """The file and the row of example ``i``, such as "reviews.csv, row 3"."""
        return location(self.split.origin, i, self.split.rows)


def predict_all(
    models: Sequence[str | Path],
    data: str | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_row: str | None = None,
    log: Log = lambda line: None,
    count: Count = no_progress,
) -> list[Predictions]:
    """The predictions of several models on the same examples; see ``predict`` for the arguments.

    Raises:
        InputError: see ``predict``; or the models read different inputs or predict different kinds of labels.
    """
    contexts = [_open(model, data, columns or {}, on_bad_row, log, count) for model in models]
    for describe, fix in (
        (_inputs_read, "Name two models that read the same kind of input"),
        (_kind_predicted, "Name two models that predict the same kind of label"),
    ):
        kinds = [describe(context.estimator) for context in contexts]
        if len({*kinds}) > 1:
            what = " and ".join(f"{model} {kind}" for model, kind in zip(models, kinds, strict=True))
            raise errors.WrongInputError(what, where="diff", fix=fix)
    labels = [context.estimator.classes_ for context in contexts if context.estimator.kind_.predicts_labels]
    if labels and not set(labels[0].tolist()).intersection(*(classes.tolist() for classes in labels[1:])):
        what = " and ".join(
            f"{model} predicts {join_names(list(map(str, classes)))}"
            for model, classes in zip(models, labels, strict=True)
        )
        raise errors.WrongInputError(what, where="diff", fix="Name two models that predict the same labels")
    return [_predict(model, data, context) for model, context in zip(models, contexts, strict=True)]


def _inputs_read(clf: Any) -> str:
    of_pairs = getattr(clf, "pairs_", False)
    return "reads images" if clf.INPUTS.has_images else "reads pairs of texts" if of_pairs else "reads texts"


def _kind_predicted(clf: Any) -> str:
    return clf.kind_.comparison_kind


def predict(
    model: str | Path,
    data: str | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_row: str | None = None,
    log: Log = lambda line: None,
    count: Count = no_progress,
) -> Predictions:
    """Predict labeled examples with a model.

    Args:
        model: a run, a saved model, a folder of ``transformers``, or a classifier's name on the Hub.
        data: a data set's name, a table or a folder; None: the split that the run was evaluated on.
        columns: recipe key -> column of ``data``, for columns with other names than in training.
        on_bad_row: ``skip`` skips unusable rows; None: an unusable row is an error.

    Raises:
        InputError: an unknown model, a model that predicts neither labels nor numbers, or unusable data.
    """
    return _predict(model, data, _open(model, data, columns or {}, on_bad_row, log, count))


def _open(
    model: str | Path,
    data: str | None,
    columns: Mapping[str, str],
    on_bad_row: str | None,
    log: Log,
    count: Count,
) -> RunContext:
    try:
        folder = Path(model) if Path(model).is_dir() else resolve_checkpoint(model).path
    except errors.NoSuchModelError as error:
        fix = "Name a folder that 'glassformer train' wrote, or a classifier of the Hub (org/name)"
        raise error.replace(what="no such run folder", where=str(model), fix=fix) from None
    return _context(model, folder, data, columns, on_bad_row, log, count)


def _predict(model: str | Path, data: str | None, context: RunContext) -> Predictions:
    clf, folder, log = context.estimator, context.folder, context.log
    splits = context.reload_data() if data is None else load_other_data(context, data)
    notes = []
    if context.drop_unreadable:
        splits, notes = context.task.drop_unreadable(replace(splits, train=None, validation=None), context)
    split = splits.evaluated
    if split is None or split.labels is None:
        where = data or context.recipe.data.source
        raise errors.NoSuchSplitError(
            "no labeled examples", where=where, fix="Name the column: --label-column NAME"
        )
    split, label_notes = with_known_labels(clf, split, context.drop_unreadable)
    for line in [*getattr(splits.dataset, "messages", ()), *notes, *label_notes]:
        log(line)
    with context.count(f"predicting with {model}", len(split)) as progress:
        outputs = clf.outputs(split.examples, progress=progress)
    targets = clf.encode_targets(split.labels, split.origin, split.rows)
    train = _training(context) if (folder / "config.toml").is_file() else None
    used_columns = {
        *(getattr(splits.dataset, "columns", None) or ()),
        getattr(splits.dataset, "pair_column", None),
    }
    return Predictions(clf, str(model), split, outputs, targets, _other_columns(split, used_columns), train)


def _context(
    model: str | Path,
    folder: Path,
    data: str | None,
    columns: Mapping[str, str],
    on_bad_row: str | None,
    log: Log,
    count: Count,
) -> RunContext:
    clf = load(folder)
    task = task_of_estimator(type(clf))
    if task is None or not isinstance(clf, Supervised):
        message = f"contains {errors.with_article(type(clf).__name__)}, "
        message += "but this command is for classifiers and regressors"
        fix = f"Its metrics: glassformer evaluate {shlex.quote(str(model))}"
        if isinstance(clf, Embedder):
            fix = f"Train one on it: glassformer train --text FILE --model {shlex.quote(str(model))}"
        raise errors.NotForThisModelError(message, where=str(model), fix=fix)
    if (folder / "config.toml").is_file():
        trained = read_run_recipe(folder)
    elif data is None:
        message, fix = "is a saved model without a run, so it has no data", "Name labeled data: --data FILE"
        raise errors.ConfigError(message, where=str(folder), fix=fix)
    else:
        trained = build_recipe({"task": task.name, "data": {"source": data}}, "data")
    recipe = with_bad_rows(with_columns(trained, columns), on_bad_row, is_other_data=data is not None)
    context = RunContext(task, recipe, folder, log, count, estimator=clf, training_recipe=trained)
    context.drop_unreadable = on_bad_row == "skip"
    return context


def _training(context: RunContext) -> Any:
    """The training examples of a run; None if they have changed or are not available."""
    if is_named(context.training_recipe.data.source):
        with suppress(errors.InputError):
            return replace(context, recipe=context.training_recipe).reload_data(("train",)).train
    return context.training_split()


def _other_columns(split: Any, used: set[str | None]) -> dict[str, list[str]]:
    """The columns of the split's table that are neither inputs nor labels: name -> texts."""
    path = Path(str(split.origin))
    if split.rows is None or path.suffix.lower() not in READERS or not path.is_file():
        return {}
    table = read_table(path, ignore_error)
    columns = {}
    for name in table.names:
        if name not in used and name is not None:
            values = column_as_text(table, name)
            columns[name] = [values.get(row, "") for row in split.rows]
    return columns


@dataclass(frozen=True)
class Metric:
    """A metric that is ``sign`` times the mean of ``Predictions.scores``."""

    name: str
    sign: int = 1  # -1: lower values are better

    def value(self, scores: np.ndarray) -> float:
        """The value of the metric for examples with these scores."""
        return self.sign * float(scores.mean())


def score_metric(predicted: Predictions) -> Metric:
    if predicted.predicts_numbers:
        return Metric("mean absolute error", -1)
    return Metric("accuracy" if predicted.targets.ndim == 1 else "labels in common")
