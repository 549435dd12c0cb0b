"""What a model predicts, one file a kind: its metrics and their tables, its baselines, what comparisons take.

``Target`` has what is asked of every kind; ``Classes``, ``LabelSets`` and ``Numbers`` also say how raw
targets are checked and numbered, what the head's outputs mean, and what a saved folder and the Hub call them.
Whoever holds an estimator asks its ``kind_``, whoever reads a run asks what ``target_of`` gives for its
scores, and nobody knows a kind by name; which one it is, is settled here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glassformer.checkpoints.settings import shown
from glassformer.data.label_sets import are_truths, holds_sets, is_matrix, read_matrix, refuse_indicators
from glassformer.errors import CheckpointError
from glassformer.targets.answer_span import AnswerSpan
from glassformer.targets.multiclass import Classes
from glassformer.targets.multilabel import LabelSets
from glassformer.targets.regression import ON_HUB, Numbers
from glassformer.targets.similarity import Similarity
from glassformer.targets.target import Target
from glassformer.targets.target_text import TargetText
from glassformer.targets.token_tags import TokenTags

TARGETS: tuple[Target, ...] = (
    LabelSets(),
    TokenTags(),
    AnswerSpan(),
    Numbers(),
    TargetText(),
    Similarity(),  # behind numbers, whose scores have correlations too
    Classes(),  # what else there is
)


def target_of(scores: Mapping[str, Any]) -> Target:
    """The kind of target that scores, as ``metrics.json`` has them, are of."""
    return next((target for target in TARGETS if target.gave(scores)), TARGETS[-1])


def target_in(folder: Path) -> Target | None:
    """The kind of target whose predictions a run folder holds; None: none that runs can be compared by."""
    return next((target for target in TARGETS if target.wrote(folder)), None)


def kind_of_targets(y: Any) -> Classes:
    """The kind of raw targets: several labels for a matrix or a list of lists or sets; else one class."""
    if not holds_sets(y):
        return Classes(truth=are_truths(y))
    if is_matrix(y):
        return LabelSets(True, tuple(read_matrix(y)[1]), truth=are_truths(y))
    refuse_indicators(y)
    return LabelSets()


def kind_saved(about: Mapping[str, Any], where: str) -> Classes:
    """The kind that a saved folder names; raises CheckpointError for one that is not known."""
    name = about.get("targets")
    kinds = (kind for kind in TARGETS if isinstance(kind, Classes) and name in kind.saved_names)
    if (kind := next(kinds, None)) is None:
        raise CheckpointError(f"targets = {shown(name)} is of no kind that is known here", where=where)
    return kind.saved(about, where)


def kind_on_hub(settings: Mapping[str, Any], outputs: int) -> Classes:
    """The kind that the ``config.json`` of a model with such a head names; one output alone is a number, as
    ``transformers`` has it."""
    problem = settings.get("problem_type")
    if problem == LabelSets.problem_type:
        return LabelSets()
    if outputs != 1 or problem not in (None, Numbers.problem_type):
        return Classes()
    return Numbers(scale="log" if settings.get("id2label") == {"0": ON_HUB["log"]} else "linear")
