"""Base class of targets: their metrics, and comparisons of runs by their predictions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glassformer.errors import DataError
from glassformer.evaluate.compare import Statistic
from glassformer.evaluate.intervals import share_interval
from glassformer.evaluate.metrics import Share, digits_for

MIN_WRITTEN = 1e-6  # smallest probability above 0 in a table; tables have six digits


@dataclass(frozen=True)
class RunPredictions:
    """The predictions of one run for the evaluated examples."""

    target: Target
    examples: str  # hash of the examples and their true targets; compared runs must have the same
    n: int  # number of examples
    truth: Any  # true targets; their type depends on ``target``
    predicted: Any
    classes: tuple[str, ...] = ()
    log_loss: float | None = None
    groups: np.ndarray | None = None  # [n] group numbers from 0; None: examples are resampled separately

    @property
    def num_units(self) -> int:
        """The number of examples, or of groups, that the bootstrap resamples."""
        return self.n if self.groups is None else int(self.groups.max()) + 1


SeedRuns = Sequence[RunPredictions]  # runs of one model with several seeds
# For each seed: the run of a model, and the run of the baseline.
RunPairs = Sequence[tuple[RunPredictions, RunPredictions]]
# Name of the test, its result per seed, and whether it tests the chosen metric.
TestResult = tuple[str, list[dict[str, Any]], bool]


class Target:
    """Base class of targets, and the only interface that reports, comparisons and the command line use."""

    marker_keys: ClassVar[Sequence[str]] = ()  # keys that only the scores of this target have
    metrics: ClassVar[Mapping[str, Share]]  # key in metrics.json -> metric, in the order of tables
    main_metrics: ClassVar[Sequence[str]]  # metrics that tables show first
    compared: ClassVar[Sequence[str]] = ()  # metrics by which runs can be compared
    extra_metrics: ClassVar[Sequence[str]] = ()  # metrics of baselines that a comparison also stores
    file: ClassVar[str] = ""  # name of the file with predictions in a run folder; empty: there is none
    unit_name: ClassVar[str] = "examples"  # what the bootstrap resamples, for messages
    fold_table_metrics: ClassVar[Sequence[str]] = ()  # metrics of a table of folds; empty: all
    terminal_columns: ClassVar[Sequence[str]] = ()  # columns in a terminal; empty: ``narrow_columns``
    examples: ClassVar[str] = "examples"  # plural noun for the examples
    predictions: ClassVar[str] = "answers"  # plural noun for the predictions of a cross-validation
    resampled_key: ClassVar[str] = "n"  # key in the scores: number of units that the bootstrap resamples
    has_two_decimals: ClassVar[bool] = False  # whether percentages always have two decimals
    is_wide: ClassVar[bool] = False  # whether tables of folds in a terminal show only the main metrics
    no_review: ClassVar[tuple[str, str] | None] = None  # why labels cannot be reviewed, and a fix
    no_calibration: ClassVar[tuple[str, str] | None] = None  # why calibration is impossible, and a fix
    measure: ClassVar[str | None] = None  # main metric of a run; None: the recipe's choice
    terminal_layout: ClassVar[str] = "labels"  # layout in a terminal: labels, numbers, tags, answers, ...
    predicts_labels: ClassVar[bool] = False
    is_single_label: ClassVar[bool] = False  # one class per example, from a softmax over all logits
    comparison_kind: ClassVar[str] = ""  # what a run predicts, as a clause for messages; see ``Classes``
    has_word_labels: ClassVar[bool] = False  # whether each word has a label with a probability
    split_units: ClassVar[str] = ""  # noun for the units of a split; empty: rows

    def has_scores(self, scores: Mapping[str, Any]) -> bool:
        """Whether these scores are of this target."""
        return any(key in scores for key in self.marker_keys)

    def leading_metrics(self, measure: str, scores: Mapping[str, Any]) -> list[str]:
        """The first metrics of a table of these scores, starting with ``measure`` if it is a main metric."""
        return sorted(self.main_metrics, key=lambda key: key != measure)

    def narrow_columns(self, measure: str, scores: Mapping[str, Any]) -> list[str]:
        """The columns of a narrow table: the first metrics, and the interval of the first one."""
        first, *others = self.leading_metrics(measure, scores)
        return [first, f"{first}_interval", *others]

    def fold_table_columns(self, measure: str) -> Sequence[str]:
        """The metrics of a table of folds: by default all, starting with the leading metrics."""
        leading = self.leading_metrics(measure, {})
        return self.fold_table_metrics or [*dict.fromkeys((*leading, *self.metrics))]

    def summary_metrics(self, measure: str) -> Sequence[str]:
        """The metrics in the summary line of all folds."""
        return self.leading_metrics(measure, {})[:1]

    def digits(self, n: int) -> int:
        """Number of decimals of percentages of ``n`` examples."""
        return 2 if self.has_two_decimals else digits_for(n)

    def size_note(self, scores: Mapping[str, Any]) -> str:
        """Text that follows the number of examples in messages, such as the number of spans."""
        return ""

    # --- comparisons ------------------------------------------------------------------------------

    def has_file(self, folder: Path) -> bool:
        """Whether a run folder has predictions of this target."""
        return (folder / self.file).is_file()

    def read_run(self, folder: Path) -> RunPredictions:
        """Read the predictions of a run folder (see ``has_file``).

        Raises:
            DataError: the predictions are damaged, or their examples have no true targets.
        """
        raise NotImplementedError

    def parse_cells(self, cells: Sequence[str], classes: tuple[str, ...]) -> Any:
        """Parse predictions from the cells of a table; None for targets whose predictions are not in tables.

        Raises:
            KeyError, ValueError: a cell is not one of ``classes``, or not a number.
        """
        return None

    def measure_for(self, monitors: set[str]) -> str:
        """The metric for comparing runs whose best weights were selected by the metrics ``monitors``."""
        return self.compared[0]

    def statistics(self, runs: SeedRuns) -> dict[str, Statistic]:
        """For each metric in ``compared``, the function that computes it for bootstrap resamples."""
        raise NotImplementedError

    def interval(
        self, key: str, runs: SeedRuns, mean: float, ends: Sequence[float], resamples: int
    ) -> list[float]:
        """The 95 % interval of the mean over the seeds, from ``ends``, the percentiles of the resamples."""
        return share_interval(mean, runs[0].num_units, np.clip(ends, 0, 1).tolist())

    def tests(self, measure: str, pairs: RunPairs, resamples: int) -> TestResult:
        """Paired tests of two models, one test per seed; by default none.

        The words of a sentence, or the questions about one text, are not independent, so only the bootstrap
        is valid for them.
        """
        return "mcnemar", [], False


NO_TARGET = Target()  # for tasks without scored predictions


def hash_examples(examples: Iterable[Any]) -> str:
    """A hash of examples, each with its true target."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(example).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if the file does not exist."""
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise DataError(f"not valid JSON ({error})", where=str(path)) from None
