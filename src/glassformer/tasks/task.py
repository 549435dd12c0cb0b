"""What a task is: the parts that ``run.py`` puts in order, and what goes from one part to the next."""

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
from glassformer.inputs.inputs import Inputs
from glassformer.targets.target import NOTHING, Target
from glassformer.train.callbacks import Count, uncounted

Say = Callable[[str], None]


@dataclass
class Work:
    """A recipe on its way through the parts of its task: each stage fills in what the next ones need."""

    task: Task
    recipe: Any
    folder: Path
    say: Say = lambda line: None
    count: Count = uncounted  # how those who watch the training watch the judging
    data: Any = None  # what ``load`` gave
    estimator: Any = None
    answers: Any = None  # what ``judge`` found on the judged split, for ``show``
    trained: Any = None  # the recipe of the run, where other data are read by a changed one
    leave_out: bool = False  # what cannot be read is left out of what is judged again, not refused


@dataclass(frozen=True)
class Look:
    """The data before a training."""

    lines: Sequence[str]  # said once the run's folder is there
    rejected: Sequence[Any] = ()  # rows that were left out
    doctor: Callable[[], DoctorReport] | None = None  # called when the estimator knows how it reads them
    speak: Sequence[Severity] = ("warning",)  # which of the doctor's findings are said


TINY = {
    "d_model": 14, "num_layers": 1, "num_heads": 2, "d_ff": 11, "batch_size": 3, "epochs": 2,
    "precision": "fp32", "threads": 1, "seed": 3,
}  # fmt: skip


@dataclass(frozen=True)
class Task:
    """One kind of training. ``TASKS`` in ``catalog.py`` is the one list of them."""

    name: str  # as a recipe's ``task`` says it
    recipe: type
    estimator: type[Any]  # an ``Estimator``
    load: Callable[..., Any]  # (recipe) -> the examples, split as it says; refused is what would fail later
    look: Callable[[Work], Look]  # refuses what the data show to be wrong
    fit: Callable[
        ..., None
    ]  # (work, **options of every fit): the data, as this estimator's ``fit`` takes them
    judge: Callable[[Work], dict[str, Any]]  # what metrics.json says beside what it says of every run
    again: Callable[
        [Work, str | None], dict[str, Any]
    ]  # figures of a saved model on its own split or other data
    page: Callable[[Path, KnownRecipe], Path]  # report.html from the files of a run
    tiny: Callable[
        [], tuple[Any, tuple]
    ]  # an estimator that is fitted in a blink, and what its ``fit`` takes
    leave_out: Callable[[Any, Work], tuple[Any, list[str]]] = lambda data, work: (
        data,
        [],
    )  # the loaded data, less what cannot be read, and a sentence on each split that has lost some
    show: Callable[[Work], dict[str, Any]] = lambda work: {}  # file -> its JSON, for the page: maps, pictures
    baselines: Sequence[
        Callable[..., tuple | None]
    ] = ()  # (estimator, recipe, splits, targets) -> name, probabilities, perhaps answers
    answer: Callable[..., tuple[list, list[float]]] | None = (
        None  # (estimator, probabilities) -> labels, their shares
    )
    tell: Callable[[Any, Sequence[Any]], list[dict[str, Any]]] | None = (
        None  # (estimator, texts) -> of each what is found in it, for JSON; of what gives no labels
    )
    export: Callable[..., dict[str, Any]] | None = None  # (estimator, form, folder, samples, **options)
    opens: Sequence[str] = ()  # heads of other people's checkpoints that ``estimator.opened`` makes use of
    inputs: Inputs | None = None  # the kind of what is read, of a task that asks it
    target: Target = NOTHING  # the kind of what is predicted
    read: Callable[..., Any] | None = None  # (recipe, source or None) -> the data set, before it is split
    folds: type[Any] | None = None  # an ``OutOfFold``; None: it is not cross-validated
    gives: str | None = None  # labels, numbers, vectors, tags or answers, over HTTP; None: it is not served
    verb: str = "predict"  # of the command line, which asks such a model
    packages: Sequence[str] = ()  # that metrics.json states the versions of

    def __post_init__(self) -> None:
        """Whoever loads a recipe's data obeys the encoding that it names."""
        object.__setattr__(self, "load", as_recipes_say(self.load))


def page_of(kind: str) -> Callable[[Path, KnownRecipe], Path]:
    """A task's ``page``: the report of a kind of prediction, one of ``report.html.KINDS``."""

    def page(folder: Path, known: KnownRecipe) -> Path:
        from glassformer.report.html import write_report

        return write_report(folder, known, kind)

    return page


def write_json(path: Path, value: Any) -> None:
    """Write a file of a run folder as ``replacing`` does."""
    replace_text(path, json_text(value, indent=1) + "\n")
