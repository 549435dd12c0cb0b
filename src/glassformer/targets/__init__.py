"""Kinds of targets, with their metrics, baselines and comparisons.

``Target`` is the base class. ``Classes``, ``LabelSets`` and ``Numbers`` also check and encode raw targets,
convert the outputs of the head to predictions, and read and write their entries in saved folders. An
estimator has its target as ``kind_``. The target of a finished run follows from its scores (``target_of``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glassformer.checkpoints.settings import shorten
from glassformer.data.label_sets import (
    are_booleans,
    check_not_indicators,
    is_matrix,
    is_multilabel,
    read_matrix,
)
from glassformer.errors import CheckpointError
from glassformer.targets.answer_span import AnswerSpan
from glassformer.targets.multiclass import Classes
from glassformer.targets.multilabel import LabelSets
from glassformer.targets.regression import HUB_NAMES, Numbers
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
    Similarity(),  # after ``Numbers``, whose scores also have correlations
    Classes(),  # the default
)


def target_of(scores: Mapping[str, Any]) -> Target:
    """The kind of target to which the scores in ``metrics.json`` belong."""
    return next((target for target in TARGETS if target.has_scores(scores)), TARGETS[-1])


def target_in(folder: Path) -> Target | None:
    """The kind of target whose predictions are in a run folder; None if they cannot be compared."""
    return next((target for target in TARGETS if target.has_file(folder)), None)


def kind_of_targets(y: Any) -> Classes:
    """The kind of raw targets: multi-label for a matrix or a list of lists or sets, otherwise multi-class."""
    if not is_multilabel(y):
        return Classes(booleans=are_booleans(y))
    if is_matrix(y):
        return LabelSets(True, tuple(read_matrix(y)[1]), booleans=are_booleans(y))
    check_not_indicators(y)
    return LabelSets()


def target_from_metadata(metadata: Mapping[str, Any], where: str) -> Classes:
    """The target of a saved model, from its ``glassformer.json``; raises CheckpointError if unknown."""
    name = metadata.get("targets")
    for kind in TARGETS:
        if isinstance(kind, Classes) and name in kind.saved_names:
            return kind.from_metadata(metadata, where)
    raise CheckpointError(f"targets = {shorten(name)} is not a known kind of target", where=where)


def target_from_hub(settings: Mapping[str, Any], outputs: int) -> Classes:
    """The target of a model, from its ``config.json``; one output means regression, as in transformers."""
    problem = settings.get("problem_type")
    if problem == LabelSets.problem_type:
        return LabelSets()
    if outputs != 1 or problem not in (None, Numbers.problem_type):
        return Classes()
    return Numbers(scale="log" if settings.get("id2label") == {"0": HUB_NAMES["log"]} else "linear")
