"""What the verbs say of numbers: a finished regressor, its figures, and predictions with their intervals."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glassformer.cli.answers import Answers
from glassformer.cli.output import emit, excerpt, one_line, say, show
from glassformer.cli.rows import Layout, Row, others_of
from glassformer.errors import ConfigError

USUAL = 0.9  # coverage of the intervals that are shown


def chosen_by(far: dict[str, Any]) -> str:
    """That the epoch hangs on validation numbers far from all others, and the way out."""
    some, one = ", ".join(f"{value:.10g}" for value in far["first"]), far["count"] == 1
    epoch = "the epoch" if far["best_epoch"] is None else f"epoch {far['best_epoch']}"
    by = "a validation number" if one else f"{far['count']:,} validation numbers"
    share = f"{far['share_of_loss']:.0%} of the validation loss"
    fix = f"correct {'it' if one else 'them'}, or train again with --set far_numbers=skip"
    if far.get("wide"):
        fix = "the numbers span orders of magnitude, of which --set number_scale=log learns the logarithm"
    return f"{epoch} was chosen by {by} far from all others ({some}), {share}: {fix}"


def said_of_intervals(levels: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A line for each coverage: how many numbers lie in their intervals, and how wide these are."""
    for level in levels:
        asked = f"{level['asked']:.0%} intervals"
        if level["covered"] is None:
            yield f"{asked}: take {level['needed']} validation examples or more"
        else:
            width = f"width {level['width']:.4g}"
            if "factor" in level:
                width = f"from 1/{level['factor']:.3g} to {level['factor']:.3g} times the predicted one"
            yield f"{asked}: {level['covered']:.1%} of the true numbers inside, {width}"


def in_ratios(scores: dict[str, Any]) -> str:
    """Where logarithms are learned, how far off predictions are as ratios; else empty."""
    found = scores.get("ratios") or {}
    if (factor := found.get("median_factor")) is None:
        return ""
    said = f"half of the predictions are within a factor of {factor:.3g}"
    return f"{said}; R² of the logarithms: {found['r2']:.4g}" if found["r2"] is not None else said


def show_number_figures(title: str, scores: dict[str, Any]) -> None:
    """Every metric of one regressor, with its interval."""
    from glassformer.report.metrics import METRICS, value_table

    show(title, value_table(scores, [*METRICS["numbers"]], 2))
    if line := in_ratios(scores):
        say(line)
    for line in said_of_intervals(scores.get("intervals") or []):
        say(line)


def answers_of(clf: Any, out: Path | None, layout: Layout, json: bool, coverage: float | None) -> Answers:
    """Answers of a model on their way out, labels or numbers.

    Raises:
        ConfigError: ``coverage`` for a model that gives labels, or one that its examples cannot tell.
    """
    if hasattr(clf, "interval"):
        return NumberAnswers(clf, out, layout, json, coverage)
    if coverage is not None:
        what = f"belongs to regressors, and this is a {type(clf).__name__}"
        raise ConfigError(what, where="--coverage", fix="Leave it out")
    return Answers(clf, out, layout, json)


class NumberAnswers(Answers):
    """Numbers with their intervals; without these where too few examples were held out."""

    BEHIND = ("predicted", "low", "high")

    def __init__(
        self, clf: Any, out: Path | None, layout: Layout, json: bool = False, coverage: float | None = None
    ):
        from glassformer.evaluate.numbers import examples_needed

        super().__init__(clf, out, layout, json)
        self.coverage = USUAL if coverage is None else coverage
        if coverage is not None:
            clf.interval([1.0], coverage)  # says what is missing
        self.able = len(clf.errors_) >= examples_needed(self.coverage)

    def _bounds(self, numbers: Sequence[float]) -> Iterator[list[float] | None]:
        """The interval of each number; None: too few examples were held out."""
        if not self.able:
            return iter([None] * len(numbers))
        return iter(self.clf.interval(numbers, self.coverage).tolist())

    @contextmanager
    def written(self) -> Iterator[None]:
        from glassformer.data.text_pairs import SECOND_CELL
        from glassformer.evaluate.predictions import NUMBER_HEADER, numbers_file

        if self.out is None:
            yield
            return
        if self.kept is not None:
            with self._own_table() as self._write:
                yield
            return
        second = (SECOND_CELL,) if self.layout.pairs else ()
        self._taken = (*NUMBER_HEADER, "error", "file", *second)
        errors = ["error"] if self.layout.errors else []
        with numbers_file(
            self.out, [*second, *others_of([], self._taken, self.layout), *errors]
        ) as self._write:
            yield

    def _behind(self, labels: Sequence[Any], shares: Sequence[float]) -> Iterator[Sequence[Any]]:
        for number, inside in zip(labels, self._bounds(labels), strict=True):
            yield [repr(float(number)), *(["", ""] if inside is None else map(repr, inside))]

    def _to_file(
        self, write: Callable[..., None], rows: Sequence[Row], labels: Any, shares: Sequence[float], p: Any
    ) -> None:
        import numpy as np

        from glassformer.data.text_pairs import SECOND_CELL, TextPair, second_of

        numbers = iter(labels)
        predicted = [None if row.error is not None else next(numbers) for row in rows]
        middle = np.array([np.nan if x is None else x for x in predicted])
        bounds = self.clf.interval(middle, self.coverage) if self.able else None
        others = others_of(rows, self._taken, self.layout)
        if self.layout.pairs:
            second = [second_of(row.text) if isinstance(row.text, TextPair) else "" for row in rows]
            others = {SECOND_CELL: second} | others
        if self.layout.errors:
            others["error"] = [row.error or "" for row in rows]
        texts = [row.text for row in rows]
        write(texts, predicted, bounds=bounds, rows=[row.row for row in rows], others=others)

    def _show(self, rows: Sequence[Row], labels: Sequence[Any], shares: Sequence[float]) -> None:
        numbers, bounds = iter(labels), self._bounds(labels)
        for row in rows:
            text = excerpt(row.text) if sys.stdout.isatty() else one_line(row.text)
            if row.error is not None:
                emit("\t\t" + text)
                continue
            number, ends = next(numbers), next(bounds)
            shown = self.clf.kind_.shown
            inside = "" if ends is None else f"{shown(ends[0])} to {shown(ends[1])}"
            emit(f"{shown(number)}\t{inside}\t{text}")

    def _keep(self, rows: Sequence[Row], labels: Sequence[Any], shares: Sequence[float], p: Any) -> None:
        numbers, bounds = iter(labels), self._bounds(labels)
        for row in rows:
            number, inside = (None, None) if row.error is not None else (next(numbers), next(bounds))
            found = {"number": number, "interval": inside, "error": row.error}
            self.found.append({"text": row.text, "file": row.file or None, "row": row.row, **found})

    def to_dict(self) -> dict[str, Any]:
        found = super().to_dict()
        found.pop("classes", None)
        return found | {"coverage": self.coverage if self.able else None}

    def notes(self) -> Iterator[str]:
        from glassformer.evaluate.numbers import examples_needed

        yield from super().notes()
        if not self.able:
            held, needed = len(self.clf.errors_), examples_needed(self.coverage)
            yield f"no intervals: {held} examples were held out, and {self.coverage:.0%} takes {needed}"
