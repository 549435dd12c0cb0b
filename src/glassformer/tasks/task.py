"""``Task`` and ``RunContext``, the state of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import replace_text
from glassformer.config import KnownRecipe
from glassformer.data.doctor import DoctorReport, Severity
from glassformer.data.files import with_recipe_settings
from glassformer.finite import json_text
from glassformer.targets.target import NO_TARGET, Target
from glassformer.train.callbacks import Count, no_progress

Log = Callable[[str], None]


@dataclass
class RunContext:
    """State of one run. Each stage sets the fields that later stages need."""

    task: Task
    recipe: Any
    folder: Path
    log: Log = lambda line: None
    count: Count = no_progress  # progress of an evaluation
    data: Any = None  # the result of ``Task.load``
    estimator: Any = None
    predictions: Any = None  # predictions of the evaluated split, for ``collect_artifacts``
    trained: Any = None  # the run's own recipe, if ``recipe`` was changed to read other data
    drop_unreadable: bool = False  # whether ``evaluate_saved`` leaves out unusable examples


@dataclass(frozen=True)
class DataPreview:
    """Results of the checks of the data before training."""

    lines: Sequence[str]  # logged when the run's folder exists
    rejected: Sequence[Any] = ()  # rows that were skipped
    doctor: Callable[[], DoctorReport] | None = None  # called once the estimator is prepared
    severities: Sequence[Severity] = ("warning",)  # of the doctor's findings that are logged


TINY = {
    "d_model": 14, "num_layers": 1, "num_heads": 2, "d_ff": 11, "batch_size": 3, "epochs": 2,
    "precision": "fp32", "threads": 1, "seed": 3,
}  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A kind of training, such as text classification, as functions that ``run.py`` calls in order.

    ``TASKS`` in ``catalog.py`` lists all tasks.

    The comment of a field describes what its function takes and returns.
    """

    estimator: type[Any]
    # recipe -> the examples in splits. Raises errors that would otherwise occur later.
    load: Callable[..., Any]
    preview_data: Callable[[RunContext], DataPreview]  # raises errors for data that cannot be used
    fit: Callable[..., None]  # context, options of ``Estimator.fit``
    evaluate: Callable[[RunContext], dict[str, Any]]  # context -> the task's entries of metrics.json
    # context, other data or None -> metrics of a saved model
    evaluate_saved: Callable[[RunContext, str | None], dict[str, Any]]
    render_report: Callable[[Path, KnownRecipe], Path]  # folder of a run, recipe -> report.html
    # A minimal estimator and the arguments of its ``fit``, for the contract tests.
    example_fixture: Callable[[], tuple[Any, tuple]]
    # data, context -> the data without unreadable examples, and messages about them
    drop_unreadable: Callable[[Any, RunContext], tuple[Any, list[str]]] = lambda data, context: (data, [])
    # context -> name of a file for the report -> its JSON
    collect_artifacts: Callable[[RunContext], dict[str, Any]] = lambda context: {}
    # estimator, recipe, splits, targets -> name, probabilities, and optionally predictions
    baselines: Sequence[Callable[..., tuple | None]] = ()
    # estimator, probabilities -> labels and their probabilities; None: the task has no labels
    answer: Callable[..., tuple[list, list[float]]] | None = None
    # estimator, inputs -> one JSON record per input; for tasks without labels
    predict_records: Callable[[Any, Sequence[Any]], list[dict[str, Any]]] | None = None
    export: Callable[..., dict[str, Any]] | None = None  # as ``card.export``
    opens: Sequence[str] = ()  # heads of transformers checkpoints that ``estimator.from_checkpoint`` supports
    target: Target = NO_TARGET
    read: Callable[..., Any] | None = None  # recipe, source or None -> the data set before it is split
    folds: type[Any] | None = None  # a subclass of ``OutOfFold``; None: cross-validation is not supported
    gives: str | None = None  # labels, numbers, vectors, tags or answers, over HTTP; None: not supported
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

    def __post_init__(self) -> None:
        """Wrap ``load``, so that it reads files in the recipe's encoding."""
        object.__setattr__(self, "load", with_recipe_settings(self.load))


def report_renderer(kind: str) -> Callable[[Path, KnownRecipe], Path]:
    """A function for ``Task.render_report``; ``kind`` is one of ``report.html.KINDS``."""

    def render_report(folder: Path, known: KnownRecipe) -> Path:
        from glassformer.report.html import write_report

        return write_report(folder, known, kind)

    return render_report


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file of a run folder atomically."""
    replace_text(path, json_text(value, indent=1) + "\n")
