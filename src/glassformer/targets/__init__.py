"""What an estimator's targets are: one class an example, several labels, or a number.

A kind says how raw targets are checked and numbered, what the head's outputs mean, what they are judged by,
and what a saved folder and the Hub call it (``Classes`` has the methods). Whoever holds an estimator asks its
``kind_``, and knows no kind by name; which one it is, is settled here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from glassformer.checkpoints.settings import shown
from glassformer.data.label_sets import are_truths, holds_sets, is_matrix, read_matrix
from glassformer.errors import CheckpointError
from glassformer.targets.multiclass import Classes
from glassformer.targets.multilabel import LabelSets
from glassformer.targets.regression import ON_HUB, SAVED, Numbers


def kind_of_targets(y: Any) -> Classes:
    """The kind of raw targets: several labels for a matrix or a list of lists or sets; else one class."""
    if not holds_sets(y):
        return Classes(truth=are_truths(y))
    return LabelSets(True, tuple(read_matrix(y)[1]), truth=are_truths(y)) if is_matrix(y) else LabelSets()


def kind_saved(about: Mapping[str, Any], where: str) -> Classes:
    """The kind that a saved folder names; raises CheckpointError for one that is not known."""
    known: dict[Any, Classes] = {None: Classes(), "label-sets": LabelSets(), "label-matrix": LabelSets(True)}
    name = about.get("targets")
    if isinstance(name, str) and name in SAVED:
        return Numbers.saved(about, where)
    if not isinstance(name, str | None) or name not in known:
        raise CheckpointError(f"targets = {shown(name)} is of no kind that is known here", where=where)
    return replace(known[name], truth=about.get("truth_values") is True)


def kind_on_hub(settings: Mapping[str, Any], outputs: int) -> Classes:
    """The kind that the ``config.json`` of a model with such a head names; one output alone is a number, as
    ``transformers`` has it."""
    problem = settings.get("problem_type")
    if problem == LabelSets.problem_type:
        return LabelSets()
    if outputs != 1 or problem not in (None, Numbers.problem_type):
        return Classes()
    return Numbers(scale="log" if settings.get("id2label") == {"0": ON_HUB["log"]} else "linear")
