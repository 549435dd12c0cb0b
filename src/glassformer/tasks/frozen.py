"""A simple model: regression on the vectors of a frozen encoder.

What fine-tuning has to beat: one pass over the texts, and a head that is solved. Of pairs each side is read
by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.checkpoints.catalog import AUTO, CATALOG
from glassformer.checkpoints.hub import is_available
from glassformer.config import obeyed
from glassformer.data.splits import stratified_subset
from glassformer.errors import OtherLanguageWarning
from glassformer.process import without_warnings
from glassformer.tasks.auto import ENCODER, Candidate, apart
from glassformer.tasks.auto import frozen as candidate

FROZEN = candidate(ENCODER)
NAME = f"frozen {ENCODER}"
MOST = 10_000  # training texts, unless ``auto`` has read them all
LENGTH = 128  # tokens at which texts are cut, unless ``auto`` has cut them elsewhere


def fit_frozen(
    est: Any,
    texts: Sequence[Any],
    labels: Sequence[Any],
    weights: np.ndarray | None = None,
    held: tuple[Sequence[Any], Sequence[Any]] | None = None,
) -> tuple[str, Any] | None:
    """A regression on the encoder's vectors, to compare a text classifier or regressor with.

    Args:
        est: the estimator that is compared, fitted.
        weights: ``[n]``, of the training texts; None: all count the same.
        held: texts and labels that choose thresholds, as they choose the estimator's.

    Returns:
        The model's name and the fitted estimator; None: the weights are not at hand, or ``est`` is this
        very model.
    """
    if is_frozen(est) or not is_available(ENCODER):
        return None
    name, settings = NAME, {key: getattr(est, key) for key in sorted(obeyed(est.SECTIONS.values(), "frozen"))}
    settings["precision"] = "auto" if est.precision == "int8" else est.precision
    settings["max_length"] = est.max_length if est.tried_ else LENGTH
    if len(texts) > MOST and not est.tried_:  # else the vectors are still in the cache
        strata = list(map(str, labels)) if est.kind_.labels_given else [0] * len(labels)
        rows = stratified_subset(strata, MOST, 0).tolist()
        texts, labels = [texts[i] for i in rows], [labels[i] for i in rows]
        weights = None if weights is None else weights[rows]
        name += f" ({MOST:,} texts)"
    model = type(est)(**settings, **_model(est).settings)
    with without_warnings(category=OtherLanguageWarning):
        return name, model.fit(texts, labels, sample_weight=weights, validation=held)


def left_out(est: Any) -> dict[str, str]:
    """The name of the model and why it is not there; empty: it is, or ``est`` is this very model."""
    return {} if is_frozen(est) or is_available(ENCODER) else {NAME: "its weights are not at hand"}


def is_frozen(est: Any) -> bool:
    """Whether an estimator is this very model: the encoder as it came, with a head."""
    if est.tried_:
        return any(tried["model"] == _model(est).name and tried.get("chosen") for tried in est.tried_)
    name = (ENCODER if est.model == AUTO else est.model).lower()
    known = CATALOG[ENCODER]
    same = CATALOG.get(name) == known or name == known.repo.lower()
    alike = est.pairs == "apart" or not est.pairs_
    return same and alike and est.train_layers == 0 and not est.unfreeze_every


def _model(est: Any) -> Candidate:
    """The one that an estimator is compared with."""
    return apart(FROZEN) if est.pairs_ else FROZEN
