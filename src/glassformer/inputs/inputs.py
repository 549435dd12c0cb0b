"""What a run asks of every kind of input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from glassformer.data.doctor import Severity
from glassformer.data.findings import DoctorReport


class Inputs:
    """A kind of input. A run of labels or numbers asks it, and knows no kind by name."""

    packages: ClassVar[Sequence[str]]  # that metrics.json states the versions of
    severities: ClassVar[Sequence[Severity]] = ("warning",)  # which of the doctor's findings are said
    notes: ClassVar[str] = "said"  # the field of a ``Dataset`` that takes what a run has to say of it
    fixture_settings: ClassVar[Mapping[str, Any]]  # of a model that is fitted in a blink

    def read(self, recipe: Any, source: str, numbers: bool, **part: Any) -> Any:
        """The ``Dataset`` of a source, in the columns that the recipe names.

        Args:
            numbers: whether targets are numbers.
            part: ``limit`` and ``seed`` of a choice; ``trained``: columns of the training, for other data.

        Raises:
            DataError: no such source, or data that cannot be read.
        """
        raise NotImplementedError

    def skips(self, d: Any) -> bool:
        """Whether the section ``data`` leaves out what cannot be used."""
        raise NotImplementedError

    def check(self, recipe: Any, splits: Mapping[str, Any], folder: Path) -> None:
        """Raises DataError for what a training in ``folder`` could not use."""

    def examine(self, dataset: Any, est: Any, recipe: Any, held_out: Any) -> DoctorReport:
        """The data doctor's report on the splits as they are trained on by a fitted ``est``."""
        raise NotImplementedError

    def drop_unreadable(self, splits: Any, est: Any, recipe: Any) -> tuple[Any, list[str]]:
        """Without what cannot be read, and a sentence on each split that has lost some.

        Raises:
            DataError: a split of which nothing is left.
        """
        return splits, []

    def facts(self, est: Any, splits: Any, recipe: Any) -> dict[str, Any]:
        """What metrics.json says of how the model reads them."""
        return {}

    def example_fixture(self) -> Sequence[Any]:
        """Seven examples."""
        raise NotImplementedError


def options(section: Any, *keys: str) -> dict[str, Any]:
    """Those keys that a section of a recipe has."""
    return {key: getattr(section, key) for key in keys if hasattr(section, key)}
