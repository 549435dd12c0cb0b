"""Base class of the kinds of targets: metrics, and comparisons of runs by their predictions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glassformer.errors import DataError
from glassformer.evaluate.compare import Statistic
from glassformer.evaluate.intervals import share_interval
from glassformer.evaluate.metrics import Share, digits_for

MIN_WRITTEN = 1e-6  # the smallest probability in a table, which has six digits


@dataclass(frozen=True)
class RunPredictions:
    """The predictions of one run for the evaluated examples, in the form that its target compares."""

    target: Target
    examples: str  # digest of the examples and their true targets; equal only for the same examples
    n: int
    truth: Any
    predicted: Any
    classes: tuple[str, ...] = ()
    log_loss: float | None = None
    groups: np.ndarray | None = None  # [n] group numbers from 0; None: examples are resampled separately

    @property
    def num_units(self) -> int:
        """Number of examples or groups that are resampled."""
        return self.n if self.groups is None else int(self.groups.max()) + 1


Arm = Sequence[RunPredictions]  # the predictions of one model with several seeds
Pair = tuple[RunPredictions, RunPredictions]  # of a model and of the baseline, with the same seed
Pairs = Sequence[Pair]
TestResult = tuple[str, list[dict[str, Any]], bool]  # name, results, whether the test is of the measure


class Target:
    """A kind of target. Reports, comparisons and the command line use it and do not depend on the kind."""

    marks: ClassVar[Sequence[str]] = ()  # keys that only scores of this kind have
    metrics: ClassVar[Mapping[str, Share]]  # key in metrics.json -> metric, in the order of tables
    main_metrics: ClassVar[Sequence[str]]  # the first metrics of a table
    compared: ClassVar[Sequence[str]] = ()  # metrics by which runs can be compared
    extra_metrics: ClassVar[Sequence[str]] = ()  # further metrics of simple models that a comparison stores
    file: ClassVar[str] = ""  # file of the predictions in a run folder; empty: they cannot be compared
    unit_name: ClassVar[str] = "examples"  # name of the resampled units
    in_folds: ClassVar[Sequence[str]] = ()  # metrics of a table of folds; empty: all, the leading ones first
    in_terminal: ClassVar[Sequence[str]] = ()  # columns of a run's table in a terminal; empty: see ``narrow``
    examples: ClassVar[str] = "examples"  # name of the examples
    predictions: ClassVar[str] = "answers"  # name of the predictions of all folds together
    resampled: ClassVar[str] = "n"  # key of the number of resampled units in the scores
    precise: ClassVar[bool] = False  # percentages always have two decimals
    wide: ClassVar[bool] = False  # in a terminal, a table of folds has only the leading metrics and no time
    no_review: ClassVar[tuple[str, str] | None] = None  # why labels cannot be reviewed, and a fix
    no_calibration: ClassVar[tuple[str, str] | None] = None  # why there is no temperature, and a fix
    measure: ClassVar[str | None] = None  # main metric of a run; None: the recipe's choice
    terminal_layout: ClassVar[str] = "labels"  # of tables and lines: that of labels, tags, answers, ...
    labels_given: ClassVar[bool] = False  # whether predictions are labels
    single_label: ClassVar[bool] = False  # whether an example has one class, by a softmax over all logits
    word_labels: ClassVar[bool] = False  # whether each word has a label, with a probability
    split_units: ClassVar[str] = ""  # units that a split of a table consists of; empty: rows

    def has_scores(self, scores: Mapping[str, Any]) -> bool:
        """Whether these scores belong to this kind."""
        return any(key in scores for key in self.marks)

    def leading(self, measure: str, scores: Mapping[str, Any]) -> list[str]:
        """The leading metrics of a table of such scores; ``measure`` is first if it is one of them."""
        return sorted(self.main_metrics, key=lambda key: key != measure)

    def narrow(self, measure: str, scores: Mapping[str, Any]) -> list[str]:
        """The columns of a narrow table: the leading metrics, the first with its interval."""
        first, *others = self.leading(measure, scores)
        return [first, f"{first}_interval", *others]

    def of_folds(self, measure: str) -> Sequence[str]:
        """The metrics of a table of folds."""
        return self.in_folds or [*dict.fromkeys((*self.leading(measure, {}), *self.metrics))]

    def summary_metrics(self, measure: str) -> Sequence[str]:
        """The metrics in a line about all folds."""
        return self.leading(measure, {})[:1]

    def digits(self, n: int) -> int:
        """Number of decimals of a percentage."""
        return 2 if self.precise else digits_for(n)

    def size_note(self, scores: Mapping[str, Any]) -> str:
        """An addition to the number of examples in messages, such as the number of spans."""
        return ""

    # --- comparisons ------------------------------------------------------------------------------

    def has_file(self, folder: Path) -> bool:
        """Whether a run folder holds predictions of this kind."""
        return (folder / self.file).is_file()

    def read_run(self, folder: Path) -> RunPredictions:
        """Read the predictions of a run folder (see ``has_file``).

        Raises:
            DataError: they are damaged, or their examples have no true targets.
        """
        raise NotImplementedError

    def parse_cells(self, cells: Sequence[str], classes: tuple[str, ...]) -> Any:
        """Parse predictions from the cells of a table; None: predictions of this kind are not in tables.

        Raises:
            KeyError, ValueError: a cell is not one of ``classes``, or not a number.
        """
        return None

    def measure_for(self, monitors: set[str]) -> str:
        """The metric by which to compare runs that selected their best weights by these metrics."""
        return self.compared[0]

    def statistics(self, arm: Arm) -> dict[str, Statistic]:
        """Metric -> its statistic for resampling, for all metrics in ``compared``."""
        raise NotImplementedError

    def interval(self, key: str, arm: Arm, mean: float, ends: Sequence[float], resamples: int) -> list[float]:
        """The 95 % interval of the mean over the seeds; ``ends``: the percentiles of the resamples."""
        return share_interval(mean, arm[0].num_units, np.clip(ends, 0, 1).tolist())

    def tests(self, measure: str, pairs: Pairs, resamples: int) -> TestResult:
        """Paired tests of two models, one per seed. By default there is none: for words of a sentence and for
        questions on one text, which are not independent, only the bootstrap is valid.
        """
        return "mcnemar", [], False


NOTHING = Target()  # for tasks without scored predictions


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if the file does not exist."""
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise DataError(f"not valid JSON ({error})", where=str(path)) from None
