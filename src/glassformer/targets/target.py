"""What is asked of every kind of target: its metrics, and how runs are compared by their predictions."""

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

WRITTEN = 1e-6  # the smallest probability that a table can hold: it has six digits


@dataclass(frozen=True)
class Judged:
    """What one run said about the judged examples, as its kind of target compares it."""

    target: Target
    examples: str  # digest of the examples and their truth: equal digests, same examples
    n: int
    truth: Any
    predicted: Any
    classes: tuple[str, ...] = ()
    log_loss: float | None = None
    groups: np.ndarray | None = None  # [n] numbers from 0, where groups of examples are resampled

    @property
    def drawn(self) -> int:
        """How many there are of what is resampled."""
        return self.n if self.groups is None else int(self.groups.max()) + 1


Arm = Sequence[Judged]  # what one arm's seeds gave
Pairs = Sequence[tuple[Judged, Judged]]  # of one seed each: an arm's, and the baseline's
Tested = tuple[str, list[dict[str, Any]], bool]  # a test, its outcomes, whether it is of the measure


class Target:
    """A kind of target. Reports, comparisons and the command line ask it, and know no kind by name."""

    marks: ClassVar[Sequence[str]] = ()  # keys that scores of this kind alone have
    metrics: ClassVar[Mapping[str, Share]]  # key in metrics.json -> the metric, in the order of a table
    leads: ClassVar[Sequence[str]]  # metrics that a table begins with
    compared: ClassVar[Sequence[str]] = ()  # what runs can be compared by
    kept: ClassVar[Sequence[str]] = ()  # metrics of simple models that a comparison keeps beside these
    file: ClassVar[str] = ""  # of a run folder, with its predictions; none: they cannot be compared
    drawn: ClassVar[str] = "examples"  # what is resampled
    in_folds: ClassVar[Sequence[str]] = ()  # metrics of a table of folds; none: all, the leading ones first
    in_terminal: ClassVar[Sequence[str]] = ()  # columns of a run's table; none: see ``narrow``
    examples: ClassVar[str] = "examples"  # what is counted as n
    predictions: ClassVar[str] = "answers"  # what folds give together
    resampled: ClassVar[str] = "n"  # key of how many there are of what an interval rests on
    precise: ClassVar[bool] = False  # shares have two digits, however few examples there are
    wide: ClassVar[bool] = False  # on a terminal a table of folds has the leading metrics alone, and no time
    unranked: ClassVar[tuple[str, str] | None] = None  # what a review of labels cannot rank, and what to do
    uncalibrated: ClassVar[tuple[str, str] | None] = None  # why there is no temperature, and what to do
    measure: ClassVar[str | None] = None  # what a run's lines begin with; None: the recipe's choice
    told_as: ClassVar[str] = "labels"  # whose table and lines a terminal shows: those of tags, answers, ...
    labels_given: ClassVar[bool] = False  # whether predictions are labels
    joint: ClassVar[bool] = False  # whether an example has one class, and a softmax over all logits makes it
    word_labels: ClassVar[bool] = False  # whether each word has a label, with a probability
    held_out_of: ClassVar[str] = ""  # what parts of a table of one's own are held out of; none: its rows

    def gave(self, scores: Mapping[str, Any]) -> bool:
        """Whether these scores are of this kind."""
        return any(key in scores for key in self.marks)

    def leading(self, measure: str, scores: Mapping[str, Any]) -> list[str]:
        """The metrics of a table of such scores, ``measure`` first where it is one of them."""
        return sorted(self.leads, key=lambda key: key != measure)

    def narrow(self, measure: str, scores: Mapping[str, Any]) -> list[str]:
        """The columns of a narrow table: the leading metrics, the first with its interval."""
        first, *others = self.leading(measure, scores)
        return [first, f"{first}_interval", *others]

    def of_folds(self, measure: str) -> Sequence[str]:
        """The metrics of a table of folds."""
        return self.in_folds or [*dict.fromkeys((*self.leading(measure, {}), *self.metrics))]

    def told(self, measure: str) -> Sequence[str]:
        """The metrics that a line on all folds together names."""
        return self.leading(measure, {})[:1]

    def digits(self, n: int) -> int:
        """Decimals of a percentage."""
        return 2 if self.precise else digits_for(n)

    def sized(self, scores: Mapping[str, Any]) -> str:
        """What else there is beside examples, behind how many of these there are."""
        return ""

    # --- comparisons ------------------------------------------------------------------------------

    def wrote(self, folder: Path) -> bool:
        """Whether a run folder holds predictions of this kind."""
        return (folder / self.file).is_file()

    def read_judged(self, folder: Path) -> Judged:
        """The predictions of a run folder that ``wrote`` says has some.

        Raises:
            DataError: they are damaged, or their examples have no truth.
        """
        raise NotImplementedError

    def as_written(self, cells: Sequence[str], classes: tuple[str, ...]) -> Any:
        """Predictions from the cells of a table; None: a table cannot hold such.

        Raises:
            KeyError, ValueError: a cell is none of ``classes``, or no number.
        """
        return None

    def measure_for(self, monitors: set[str]) -> str:
        """What runs are compared by whose best weights these metrics chose."""
        return self.compared[0]

    def statistics(self, own: Arm) -> dict[str, Statistic]:
        """Each of ``compared`` under resampling."""
        raise NotImplementedError

    def interval(self, key: str, own: Arm, mean: float, ends: Sequence[float], resamples: int) -> list[float]:
        """The 95 % interval of an arm's mean over its seeds; ``ends``: the percentiles of resamples."""
        return share_interval(mean, own[0].drawn, np.clip(ends, 0, 1).tolist())

    def tests(self, measure: str, pairs: Pairs, resamples: int) -> Tested:
        """The test of two models with one seed each. Words of sentences and questions on one text are not
        right and wrong by themselves: only the bootstrap tells of them.
        """
        return "mcnemar", [], False


NOTHING = Target()  # of a task that predicts nothing which is scored here


def read_object(path: Path) -> dict[str, Any]:
    """What a JSON file holds; nothing where there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise DataError(f"not valid JSON ({error})", where=str(path)) from None
