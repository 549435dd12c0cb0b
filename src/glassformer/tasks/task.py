"""What a task is: the parts that ``run.py`` calls in order, and the state of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import replace_text
from glassformer.config import KnownRecipe
from glassformer.data.doctor import DoctorReport, Severity
from glassformer.data.files import as_recipes_say
from glassformer.finite import json_text
from glassformer.targets.target import NOTHING, Target
from glassformer.train.callbacks import Count, uncounted

Log = Callable[[str], None]


@dataclass
class RunContext:
    """State of one run. Each stage fills in what the next ones need."""

    task: Task
    recipe: Any
    folder: Path
    log: Log = lambda line: None
    count: Count = uncounted  # progress of an evaluation
    data: Any = None  # what ``load`` gave
    estimator: Any = None
    answers: Any = None  # predictions of the evaluated split, for ``collect_artifacts``
    trained: Any = None  # the run's own recipe, where other data are read with a changed one
    drop_unreadable: bool = False  # in ``evaluate_saved``


@dataclass(frozen=True)
class DataPreview:
    """What is known of the data before training."""

    lines: Sequence[str]  # logged once the run's folder is there
    rejected: Sequence[Any] = ()  # rows that were skipped
    doctor: Callable[[], DoctorReport] | None = None  # called once the estimator is prepared
    severities: Sequence[Severity] = ("warning",)  # of the doctor's findings that are logged


TINY = {
    "d_model": 14, "num_layers": 1, "num_heads": 2, "d_ff": 11, "batch_size": 3, "epochs": 2,
    "precision": "fp32", "threads": 1, "seed": 3,
}  # fmt: skip


@dataclass(frozen=True)
class Task:
    """One kind of training. ``TASKS`` in ``catalog.py`` is the one list of them.

    Attributes:
        name: as a recipe's ``task`` says it.
        estimator: an ``Estimator``.
        load: (recipe) -> the examples, split as it says; raises what would fail later.
        preview_data: raises what the data show to be wrong.
        fit: ``(context, **options)`` calls the estimator's ``fit`` with the data.
        evaluate: what metrics.json says beyond what it says of every run.
        evaluate_saved: (context, other data or None) -> metrics of a saved model.
        render_report: (folder, recipe) -> report.html from the files of a run.
        example_fixture: a minimal estimator and the arguments of its ``fit``, for the contract tests.
        drop_unreadable: (data, context) -> the data without what cannot be read, and a sentence for each
            split that has lost some.
        collect_artifacts: file name -> JSON for the report: maps, images, examples.
        baselines: (estimator, recipe, splits, targets) -> name, probabilities, perhaps predictions.
        answer: (estimator, probabilities) -> labels and their probabilities.
        predict_records: (estimator, texts) -> what is found in each, for JSON; for tasks without labels.
        export: ``(estimator, form, folder, samples, **options)`` -> the facts of the export.
        opens: heads of other people's checkpoints that ``estimator.opened`` makes use of.
        target: the kind of what is predicted.
        read: (recipe, source or None) -> the data set before it is split.
        folds: an ``OutOfFold``; None: no cross-validation.
        gives: labels, numbers, vectors, tags or answers, over HTTP; None: it is not served.
        verb: the command that asks such a model.
        packages: metrics.json states their versions.
    """

    name: str
    recipe: type
    estimator: type[Any]
    load: Callable[..., Any]
    preview_data: Callable[[RunContext], DataPreview]
    fit: Callable[..., None]
    evaluate: Callable[[RunContext], dict[str, Any]]
    evaluate_saved: Callable[[RunContext, str | None], dict[str, Any]]
    render_report: Callable[[Path, KnownRecipe], Path]
    example_fixture: Callable[[], tuple[Any, tuple]]
    drop_unreadable: Callable[[Any, RunContext], tuple[Any, list[str]]] = lambda data, context: (data, [])
    collect_artifacts: Callable[[RunContext], dict[str, Any]] = lambda context: {}
    baselines: Sequence[Callable[..., tuple | None]] = ()
    answer: Callable[..., tuple[list, list[float]]] | None = None
    predict_records: Callable[[Any, Sequence[Any]], list[dict[str, Any]]] | None = None
    export: Callable[..., dict[str, Any]] | None = None
    opens: Sequence[str] = ()
    target: Target = NOTHING
    read: Callable[..., Any] | None = None
    folds: type[Any] | None = None
    gives: str | None = None
    verb: str = "predict"
    packages: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Whoever loads a recipe's data obeys the encoding that it names."""
        object.__setattr__(self, "load", as_recipes_say(self.load))


def report_of(kind: str) -> Callable[[Path, KnownRecipe], Path]:
    """A task's ``page``: the report of a kind of prediction, one of ``report.html.KINDS``."""

    def render_report(folder: Path, known: KnownRecipe) -> Path:
        from glassformer.report.html import write_report

        return write_report(folder, known, kind)

    return render_report


def write_json(path: Path, value: Any) -> None:
    """Write a file of a run folder as ``replacing`` does."""
    replace_text(path, json_text(value, indent=1) + "\n")
