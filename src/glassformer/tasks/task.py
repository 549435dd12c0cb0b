"""``Task``, and the steps of a run that several tasks share."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from glassformer.checkpoints.files import read_json, replace_text
from glassformer.config import KnownRecipe
from glassformer.data.duplicates import content_digest, copy_keys
from glassformer.data.files import with_recipe_settings
from glassformer.data.findings import DoctorReport, Severity
from glassformer.data.image_sources import NAMED_IMAGES
from glassformer.data.pairs import PAIR_SOURCES, SCORED_SOURCES
from glassformer.data.rejected import skip_message
from glassformer.data.sources import NAMED_SOURCES
from glassformer.data.splits import Splits, grouped_choice, labeled_or_none, stratified_folds
from glassformer.errors import DataChangedError, InputError, NoSuchSplitError, TooFewExamplesError
from glassformer.finite import json_text
from glassformer.targets.target import NO_TARGET, Target
from glassformer.tasks.card import build_card, find_run_folder
from glassformer.train.callbacks import Count, no_progress

Log = Callable[[str], None]
DIGESTS_KEY = "data_sha256"  # key in metrics.json of the digests of the splits
# Name of a split in metrics.json -> field of ``Splits``. The run evaluates the last split at its end.
SPLITS = {"train": "train", "validation": "validation", "judged": "evaluated"}
TRAINING_SAMPLE = 500  # number of training examples that are evaluated, to show overfitting


@dataclass
class RunContext:
    """State of one run. Each step of the run sets the fields that later steps need."""

    task: Task
    recipe: Any
    folder: Path
    log: Log = lambda line: None
    count: Count = no_progress  # shows the progress of an evaluation
    data: Any = None  # the result of ``Task.load``
    estimator: Any = None
    predictions: Any = None  # predictions of the evaluated split, for ``collect_artifacts``
    training_recipe: Any = None  # the recipe of the training, if ``recipe`` was changed to read other data
    drop_unreadable: bool = False  # whether ``evaluate_saved`` leaves out unusable examples

    def held_out_warning(self, noun: str, predictions: str) -> list[str]:
        """A warning as one line if no examples are held out, otherwise no line.

        ``noun`` and ``predictions`` name the examples and the predictions in it.
        """
        if self.data.validation is not None or self.data.evaluated is not None:
            return []
        what = f"no held-out {noun}: nothing will evaluate the {predictions}"
        if len({*copy_keys(self.data.train)}) < 2:
            return [f"{what}; the {noun} are all equal, so none can be held out"]
        return [f"{what}; --set test_size=0.1 holds out a tenth"]

    def reload_data(self, splits: Sequence[str] = ("judged",)) -> Any:
        """Load the data of a finished run again; ``splits`` are those that the caller uses.

        Raises:
            DataError: one of ``splits`` and the training split have changed. If the training split is the
                same, the change is only logged.
        """
        data, source = self.task.load(self.recipe), self.recipe.data.source
        changed = changed_splits(self.folder, data)
        if changed is None:
            if not is_named(source):
                self.log(f"whether {source} has changed since the training is unknown: the run has no digest")
            return data
        changed_used = changed.intersection(splits)
        if changed_used and "train" in changed:
            what = "has changed since the training: a new split may have rows that the model was trained on"
            fix = f"Restore it, or give rows that are new: glassformer evaluate {self.folder} --data FILE"
            raise DataChangedError(what, where=source, fix=fix)
        if changed_used:
            self.log(f"{source} has changed since the training; its training examples are the same")
        return data

    def training_split(self) -> Any:
        """The training split of a finished run; None if it has changed or cannot be loaded."""
        recipe = self.training_recipe or self.recipe  # ``self.recipe`` may have the columns of other data
        if not Path(recipe.data.source).exists():  # a named data set might be downloaded
            return None
        try:
            data = self.task.load(recipe)
        except InputError:
            return None
        return None if "train" in (changed_splits(self.folder, data) or ()) else data.train

    def score_splits(
        self, score: Callable[[Any], tuple[dict[str, Any], Any]], sample: Any, measure: str
    ) -> dict[str, Any]:
        """Metrics of the splits and of a ``sample`` of the training split, for metrics.json.

        ``score`` returns the metrics and predictions of a split. The predictions for the evaluated split
        become ``self.predictions``.
        """
        splits = self.data
        out: dict[str, Any] = {
            "train": score(sample)[0] | {"of": len(splits.train)},
            "validation": None if splits.validation is None else score(splits.validation)[0],
            "test": None,
            "judged": splits.evaluated_split,
            "measure": measure,
            "baselines": {},
            "seconds": {},
        }
        if splits.evaluated is not None and splits.evaluated.labels is not None:
            started = time.perf_counter()
            out["test"], self.predictions = score(splits.evaluated)
            out["seconds"]["inference"] = time.perf_counter() - started
            out["openings"] = {splits.evaluated_split: 1}
        return out

    def evaluate_splits(
        self, evaluate: Callable[..., tuple[dict[str, Any], Any]], measure: str
    ) -> dict[str, Any]:
        """``score_splits`` with a function of estimator, split, number of resamples and progress."""
        train = self.data.train
        sample = train.select(range(min(TRAINING_SAMPLE, len(train))))

        def score(split: Any) -> tuple[dict[str, Any], Any]:
            bootstrap = 0 if split is sample else self.recipe.evaluate.bootstrap
            with self.count("evaluating", len(split)) as progress:
                return evaluate(self.estimator, split, bootstrap, progress)

        return self.score_splits(score, sample, measure)

    def split_to_evaluate(
        self,
        source: str | None,
        load: Callable[..., Any],
        noun: str,
        needed: str = "",
        note: Callable[[Any], str] = lambda dataset: "",
    ) -> Any:
        """Load the split to evaluate, from the data of the run or from another source.

        ``needed`` names the targets that the split must have (empty: none). ``note`` returns more text for
        the logged line about the data set.
        """
        splits = self.reload_data() if source is None else load(self.recipe, source)
        if rejected := splits.dataset.rejected:
            self.log(skip_message(rejected, is_listed=False))
        split, where = splits.evaluated, source or self.recipe.data.source
        if split is None or (needed and split.labels is None):
            what = f"nothing to evaluate: no {needed or 'validation and no test split'}"
            raise NoSuchSplitError(what, where=where)
        self.log(f"{len(split):,} {noun} of {split.origin}{note(splits.dataset)}")
        return split


@dataclass(frozen=True)
class DataPreview:
    """Results of the checks of the data before training."""

    lines: Sequence[str]  # lines to log after the run's folder was created
    rejected: Sequence[Any] = ()  # rows that were skipped
    doctor: Callable[[], DoctorReport] | None = None  # data doctor; called when the estimator is prepared
    severities: Sequence[Severity] = ("warning",)  # severities of the doctor's findings that are logged


def fit(context: RunContext, **options: Any) -> None:
    """Train on the training split and select the best epoch on the validation split."""
    train, val = context.data.train, context.data.validation
    validation = (val.examples, val.labels) if val else None
    context.estimator.fit(train.examples, train.labels, validation=validation, **options)


TINY: dict[str, Any] = {  # settings of a minimal estimator for tests
    "d_model": 14, "num_layers": 1, "num_heads": 2, "d_ff": 11, "batch_size": 3, "epochs": 2,
    "precision": "fp32", "threads": 1, "seed": 3,
}  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A task, such as text classification, as functions that ``run.py`` calls in order.

    ``TASKS`` in ``catalog.py`` lists all tasks. The comment of a field has the arguments and the result of
    its function.
    """

    estimator: type[Any]
    load: Callable[..., Any]  # recipe -> the examples in splits
    preview_data: Callable[[RunContext], DataPreview]  # raises errors for unusable data before training
    evaluate: Callable[[RunContext], dict[str, Any]]  # context -> the task's entries of metrics.json
    # context, source of other data or None -> metrics of a saved model
    evaluate_saved: Callable[[RunContext, str | None], dict[str, Any]]
    # One of ``report.html.KINDS``, or a function that writes report.html: folder of a run, recipe -> path.
    report: str | Callable[[Path, KnownRecipe], Path]
    # A minimal estimator and the arguments of its ``fit``, for the contract tests.
    example_fixture: Callable[[], tuple[Any, tuple]]
    fit: Callable[..., None] = fit  # context, and options of ``Estimator.fit``
    # data, context -> the data without unreadable examples, and messages about them
    drop_unreadable: Callable[[Any, RunContext], tuple[Any, list[str]]] = lambda data, context: (data, [])
    # context -> dict of file names and their JSON contents, for the report
    collect_artifacts: Callable[[RunContext], dict[str, Any]] = lambda context: {}
    # estimator, recipe, splits, targets -> name, probabilities, and optionally predictions
    baselines: Sequence[Callable[..., tuple | None]] = ()
    # estimator, probabilities -> labels and their confidences; None: the task has no labels
    answer: Callable[..., tuple[list, list[float]]] | None = None
    # estimator, inputs -> one JSON record per input; for tasks without labels
    predict_records: Callable[[Any, Sequence[Any]], list[dict[str, Any]]] | None = None
    export: Callable[..., dict[str, Any]] | None = None  # see the function ``export`` below
    # Heads of transformers checkpoints that ``estimator.from_checkpoint`` supports.
    checkpoint_heads: Sequence[str] = ()
    target: Target = NO_TARGET
    read: Callable[..., Any] | None = None  # recipe, source or None -> the data set before it is split
    folds: type[OutOfFold] | None = None  # None: cross-validation is not supported
    # Response over HTTP: labels, numbers, vectors, tags or answers. None: the server does not support it.
    output_kind: str | None = None
    verb: str = "predict"  # the command that predicts with such a model
    packages: Sequence[str] = ("tokenizers", "safetensors")  # metrics.json has their versions

    @property
    def recipe(self) -> type:
        """The class of the task's recipes."""
        return self.estimator.RECIPE

    @property
    def name(self) -> str:
        """The value of ``task`` in recipes."""
        return self.estimator.RECIPE.task

    def render_report(self, folder: Path, known: KnownRecipe) -> Path:
        """Write report.html into the folder of a run."""
        from glassformer.report.html import write_report

        if callable(self.report):
            return self.report(folder, known)
        return write_report(folder, known, self.report)

    def __post_init__(self) -> None:
        """Wrap ``load`` so that it reads files with the encoding and format that the recipe states."""
        object.__setattr__(self, "load", with_recipe_settings(self.load))


def export(
    clf: Any, form: str, folder: Path, samples: list[Any], *, run: str | Path | None = None, **options: Any
) -> dict[str, Any]:
    """Export an estimator, check the export on ``samples``, and return the results of the check.

    ``form`` is ``hf``, with a model card about ``run``, or ``onnx``, with the ``options`` of ``export_onnx``.
    """
    from glassformer.export.hf_folder import export_hf
    from glassformer.export.onnx_folder import export_onnx

    if form == "hf":
        run_folder = None if run is None else find_run_folder(run)
        return export_hf(clf, folder, samples, partial(build_card, clf, run_folder))
    return export_onnx(clf, folder, samples, **options)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file of a run folder atomically."""
    replace_text(path, json_text(value, indent=1) + "\n")


def is_named(source: str) -> bool:
    """Whether a source is the name of a known data set, which has fixed splits."""
    return source in {*NAMED_SOURCES, *NAMED_IMAGES, *PAIR_SOURCES, *SCORED_SOURCES}


def split_digests(data: Any) -> dict[str, str]:
    """The SHA-256 of the examples and targets of each split of a run."""
    splits = {name: getattr(data, field, None) for name, field in SPLITS.items()}
    return {name: content_digest(split) for name, split in splits.items() if split is not None}


def changed_splits(folder: Path, data: Any) -> set[str] | None:
    """The names of the splits that have changed since the run; None if the run stored no digests."""
    file = folder / "metrics.json"
    saved = read_json(file).get(DIGESTS_KEY) if file.is_file() else None
    if not isinstance(saved, dict):
        return None
    current = split_digests(data)
    return {name for name in {*saved, *current} if saved.get(name) != current.get(name)}


def check_resumed(folder: Path, data: Any, source: str) -> None:
    """Raise DataError if the training data have changed since the run began."""
    if "train" in (changed_splits(folder, data) or ()):
        fix = "Restore it, or train into another folder: --out FOLDER"
        raise DataChangedError("has changed since the training", where=source, fix=fix)


def read_source(load_dataset: Callable[..., Any], recipe: Any, source: str | None, *columns: str) -> Any:
    """Load the data set of a recipe, or another source; ``columns`` are keys of ``data`` for columns."""
    data = recipe.data
    options = {key: getattr(data, key) for key in (*columns, "on_bad_row")}
    if source is None:
        options |= {"limit": data.limit, "seed": data.split_seed}
    return load_dataset(data.source if source is None else source, **options)


def named_splits(dataset: Any, data: Any, source: str) -> dict[str, Any]:
    """The splits that the section ``data`` of a recipe names; raise DataError if the source has none."""
    if not (by_name := {name: dataset.splits[name] for name in data.splits if name in dataset.splits}):
        what, fix = f"none of the splits {', '.join(data.splits)}", f"There are: {', '.join(dataset.splits)}"
        raise NoSuchSplitError(what, where=source, fix=fix)
    return by_name


def sample_items(items: list[Any], data: Any) -> list[Any]:
    """A random sample of at most ``data.limit`` items, in their original order."""
    if data.limit is None or data.limit >= len(items):
        return items
    rows = np.random.default_rng(data.split_seed).choice(len(items), data.limit, replace=False)
    return [items[i] for i in np.sort(rows).tolist()]


def split_rows(n: int, noun: str, data: Any, keys: Sequence[str] | None) -> tuple[list[int], list[int]]:
    """Indices of training and validation examples; examples with equal ``keys`` are in the same split.

    ``data`` is the section of the recipe, and ``noun`` names the ``n`` examples in an error.
    """
    size = data.validation_size
    num_held_out = round(size * n) if size < 1 else min(round(size), n // 5)
    if not 0 < num_held_out < n:
        what = f"{size:g} of {n} {noun} cannot be held out"
        raise TooFewExamplesError(what, where=data.source, fix="Change validation_size")
    if keys is None:
        validation_rows = np.sort(np.random.default_rng(data.split_seed).permutation(n)[:num_held_out])
    else:
        validation_rows = grouped_choice(keys, num_held_out, data.split_seed, size_name="validation_size")
    return np.setdiff1d(np.arange(n), validation_rows).tolist(), validation_rows.tolist()


def main_metric(recipe: Any) -> Literal["accuracy", "macro_f1"]:
    """The main metric of a classification run: macro F1 if ``monitor`` is macro F1, otherwise accuracy."""
    monitor = getattr(getattr(recipe, "train", None), "monitor", None)
    return "macro_f1" if monitor == "macro_f1" else "accuracy"


# --- cross-validation; ``study.folds`` trains the folds ---------------------------------------------


OUT_OF_FOLD = "out-of-fold"  # name of the split in metrics and predictions


class OutOfFold(ABC):
    """Cross-validation of a recipe: assigns examples to folds, evaluates a fold, and pools predictions."""

    NOUN: ClassVar[str] = "examples"
    PREDICTIONS_FILE: ClassVar[str] = "probabilities.npy"  # file of the predictions of a fold: .npy or .json
    METRICS: tuple[str, ...]  # metrics that are reported per fold and summarized over the folds
    PACKAGES: ClassVar[tuple[str, ...]] = ("tokenizers", "safetensors")  # metrics.json has their versions
    target: Target
    measure: str = ""  # the metric in the log line of a fold
    EXAMPLE: ClassVar[str]  # noun for one example
    GROUPS: ClassVar[str]  # plural noun for the groups of examples that share a fold, for messages

    def __init__(self, recipe: Any, splits: Splits, estimator: Any):
        self.recipe, self.splits, self.estimator, self.train = recipe, splits, estimator, splits.train

    def assign(self, folds: int) -> np.ndarray:
        """The fold of each training example ``[n]``. Examples of the same group share a fold."""
        groups = copy_keys(self.train)
        if (count := len(set(groups))) < folds:
            what = f"{count} different {self.GROUPS} for {folds} folds"
            raise TooFewExamplesError(
                what, where=self.train.origin, fix="Use fewer folds, or give more texts"
            )
        return stratified_folds([self.EXAMPLE] * len(self.train), folds, self.recipe.data.split_seed, groups)

    def fit_arguments(self, split: Any) -> tuple[Any, ...]:
        """The arguments X and y of ``fit`` for a split."""
        return split.examples, split.labels

    @property
    def validation(self) -> tuple[Any, ...] | None:
        """X and y of the validation split, which selects the best epoch of every fold, or None."""
        split = labeled_or_none(self.splits.validation)
        return None if split is None else self.fit_arguments(split)

    @abstractmethod
    def evaluate(self, model: Any, split: Any) -> tuple[int, dict[str, Any], Any]:
        """Number of scored predictions, their metrics, and the predictions (an array, or a list for JSON)."""

    def per_example(self, predictions: Any, rows: np.ndarray) -> Any:
        """The stored predictions of a fold, one per example in ``rows``; None if their numbers differ."""
        return predictions if len(predictions) == len(rows) else None

    def summary(self, metrics: dict[str, Any]) -> str:
        """The text about a fold in the log."""
        return f"{self.target.metrics[self.measure].name} {(metrics[self.measure] or 0.0):.4f}"

    @abstractmethod
    def pooled_metrics(
        self, folder: Path, predictions: list[Any], fold: np.ndarray, records: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """Write the predictions of all folds to one file, and return their entries of metrics.json.

        Args:
            predictions: one per training example; example ``i`` was predicted in the fold ``fold[i]``.
            records: the metrics of each fold.
        """
