"""Baseline: logistic regression (ridge for numbers) on the embeddings of a frozen encoder.

Fine-tuning has to beat it; it needs one pass over the texts. The two texts of a pair are encoded separately.
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
from glassformer.tasks.auto import ENCODER, Candidate, sides_apart
from glassformer.tasks.auto import frozen as candidate

FROZEN = candidate(ENCODER)
NAME = f"frozen {ENCODER}"
MOST = 10_000  # maximum number of training texts, unless ``auto`` has already encoded all
LENGTH = 128  # maximum length in tokens, unless ``auto`` used another


def fit_frozen(
    est: Any,
    texts: Sequence[Any],
    labels: Sequence[Any],
    weights: np.ndarray | None = None,
    held: tuple[Sequence[Any], Sequence[Any]] | None = None,
) -> tuple[str, Any] | None:
    """Fit the baseline that ``est`` is compared with; ``held`` (texts, labels) chooses thresholds. Returns
    its name and estimator; None if the encoder is not downloaded, or if ``est`` is the same model."""
    if is_frozen(est) or not is_available(ENCODER):
        return None
    name, settings = NAME, {key: getattr(est, key) for key in sorted(obeyed(est.SECTIONS.values(), "frozen"))}
    settings["precision"] = "auto" if est.precision == "int8" else est.precision
    settings["max_length"] = est.max_length if est.tried_ else LENGTH
    if len(texts) > MOST and not est.tried_:  # after ``auto`` the embeddings are in the cache
        strata = list(map(str, labels)) if est.kind_.labels_given else [0] * len(labels)
        rows = stratified_subset(strata, MOST, 0).tolist()
        texts, labels = [texts[i] for i in rows], [labels[i] for i in rows]
        weights = None if weights is None else weights[rows]
        name += f" ({MOST:,} texts)"
    model = type(est)(**settings, **_model(est).settings)
    with without_warnings(category=OtherLanguageWarning):
        return name, model.fit(texts, labels, sample_weight=weights, validation=held)


def left_out(est: Any) -> dict[str, str]:
    """The baseline's name -> why it is missing; empty if it is not, or if ``est`` is the same model."""
    return {} if is_frozen(est) or is_available(ENCODER) else {NAME: "its weights are not at hand"}


def is_frozen(est: Any) -> bool:
    """Whether an estimator is itself the frozen encoder with a new head."""
    if est.tried_:
        return any(tried["model"] == _model(est).name and tried.get("chosen") for tried in est.tried_)
    name = (ENCODER if est.model == AUTO else est.model).lower()
    known = CATALOG[ENCODER]
    same = CATALOG.get(name) == known or name == known.repo.lower()
    alike = est.pairs == "apart" or not est.pairs_
    return same and alike and est.train_layers == 0 and not est.unfreeze_every


def _model(est: Any) -> Candidate:
    """The candidate to compare an estimator with."""
    return sides_apart(FROZEN) if est.pairs_ else FROZEN
