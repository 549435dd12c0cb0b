"""Base class of regressors: predicted numbers, and split conformal prediction intervals."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from glassformer.checkpoints.settings import shown
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.data.checks import check_pairs
from glassformer.data.numbers import check_positive
from glassformer.errors import CheckpointError, ConfigError
from glassformer.finite import finite
from glassformer.sklearn_base import RegressorMixin, check_is_fitted
from glassformer.targets.multiclass import Classes
from glassformer.targets.regression import (
    COVERAGE,
    ON_HUB,
    Numbers,
    bounds_around,
    check_coverage,
    errors_on,
    half_width,
)
from glassformer.tasks.classifier import Labeled, Supervised
from glassformer.tasks.estimator import Fit
from glassformer.train.state import Training

ERRORS = "intervals"  # name of the file with the errors on validation examples


class Regressor(RegressorMixin, Supervised):
    """Base class of regressors of raw examples.

    Fitted attributes in addition to ``Supervised``'s: ``errors_``, the absolute errors on the validation
    examples, ascending ``[m]`` fp64, which determine ``predict_interval``; empty without validation examples.
    With ``number_scale="log"`` they are differences of logarithms.
    """

    TARGETS = "targets"
    kind_: Any = Numbers()
    errors_: np.ndarray = np.zeros(0)

    @classmethod
    def learns(cls, kind: Classes) -> bool:
        return kind.problem_type == Numbers.problem_type

    @classmethod
    def kind_for(cls, y: Any) -> Classes:
        return Numbers()

    # --- training --------------------------------------------------------------------------------

    def _examples(self, fit: Fit, *data: Any) -> tuple[Labeled, tuple[list[Any], np.ndarray] | None]:
        (X, numbers, weights), validation_data = super()._examples(fit, *data)
        self.kind_ = Numbers.fitted(numbers, fit.train.number_scale)
        if validation_data is not None:
            inputs, targets = validation_data
            validation_data = inputs, self.kind_.standardize(targets, "validation targets")
        return Labeled(X, self.kind_.standardize(numbers), weights), validation_data

    def _finish_fit(self, fit: Fit, training: Training) -> None:
        super()._finish_fit(fit, training)
        self.errors_ = np.zeros(0)
        if fit.validation is not None:
            X, targets = fit.validation
            model = self.predictor()
            device = next(model.parameters()).device
            logits = self.table_rows(model, self.evaluation_table(X), "logits", device)
            predicted = self.chances(finite(logits, "logits"))[:, 0]
            self.errors_ = self._errors(predicted, self.kind_.to_numbers(targets))

    def _errors(self, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
        """Absolute errors ``[m]``, ascending, on the scale of the intervals."""
        return np.sort(errors_on(self.kind_.scale, predicted, true))

    # --- prediction ------------------------------------------------------------------------------

    def predict(self, X: Sequence[Any]) -> np.ndarray:
        """Predict the number of each example ``[n]``, fp64, in the unit of the training numbers."""
        return self.outputs(X)[:, 0]

    def calibrate(self, X: Sequence[Any], y: Sequence[Any]) -> Self:
        """Compute ``errors_`` on other examples than the validation examples of ``fit``.

        Args:
            X, y: examples that the model was not trained on, from the same distribution as future inputs.

        Raises:
            DataError: unusable examples or numbers.
        """
        check_is_fitted(self, "model_")
        X, numbers = check_pairs(X, y, "calibrate", self.NOUN, "targets", self.examples_of, self.kind_.read)
        if self.kind_.scale == "log":
            check_positive(numbers, "targets")
        self.errors_ = self._errors(self.predict(X), np.asarray(numbers))
        return self

    def interval(self, numbers: np.ndarray, coverage: float = COVERAGE) -> np.ndarray:
        """Lower and upper bounds ``[n, 2]`` around predicted numbers ``[n]``; see ``predict_interval``."""
        return bounds_around(numbers, half_width(self._calibrated(coverage), coverage), self.kind_.scale)

    def predict_interval(self, X: Sequence[Any], coverage: float = COVERAGE) -> np.ndarray:
        """Lower and upper bounds of each example's number ``[n, 2]`` fp64, by split conformal prediction.

        With ``m`` validation examples, half the width is the ``ceil((m + 1) coverage)``-th smallest of their
        absolute errors. For examples from the same distribution, at least the share ``coverage`` lies inside,
        on average over such samples. Validation examples that also selected the best epoch make intervals
        slightly too narrow; call ``calibrate`` with others. All intervals have the same width; with
        ``number_scale="log"`` they extend by the same factor up and down.

        Args:
            coverage: between 0 and 1.

        Raises:
            ConfigError: no validation examples, or too few for that coverage.
            DataError: an unusable example.
        """
        self._calibrated(coverage)  # raise errors before the prediction
        half_width(self.errors_, coverage)
        return self.interval(self.predict(X), coverage)

    def _calibrated(self, coverage: float) -> np.ndarray:
        check_coverage(coverage)
        if not len(self.errors_):
            what = "no examples were held out, so that nothing is known of this model's errors"
            fix = "Fit with validation=(X, y) or validation_fraction=0.1, or call calibrate(X, y)"
            raise ConfigError(what, where="coverage", fix=fix)
        return self.errors_

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The coefficient of determination, R².

        Raises:
            DataError: unusable examples or numbers, or different numbers of examples and targets.
        """
        from sklearn.metrics import r2_score

        check_is_fitted(self, "model_")
        X, y = check_pairs(X, y, "score", self.NOUN, "targets", self.examples_of, self.kind_.read)
        return float(r2_score(y, self.predict(X), sample_weight=sample_weight))

    # --- files -----------------------------------------------------------------------------------

    def in_own_unit(self) -> Any:
        """A copy of the model whose head returns the number itself (or its logarithm, with
        ``number_scale="log"``) instead of the standardized one, for other programs."""
        model, kind = copy.copy(self.model_), self.kind_
        model._modules = dict(model._modules) | {"head": copy.deepcopy(model.head)}
        out = model.head.out
        with torch.no_grad():
            out.weight.mul_(kind.unit)
            out.bias.copy_((out.bias.double() * kind.unit + kind.mean).to(out.bias))
        return model

    def names_on_hub(self) -> tuple[str, ...]:
        return (ON_HUB[self.kind_.scale],)

    def _about(self) -> dict[str, Any]:
        return super()._about() | {"bias": float(self.model_.head.out.bias.detach()[0])}

    def write_parts(self, folder: Path) -> dict[str, Any]:
        write_tensors(folder, {"errors": torch.from_numpy(np.array(self.errors_))}, name=ERRORS)
        return super().write_parts(folder)

    def read_parts(self, folder: Path, about: dict[str, Any]) -> None:
        super().read_parts(folder, about)
        if not about:  # a folder of another library
            return
        errors = read_tensors(folder, ERRORS).get("errors")
        fits = errors is not None and errors.dim() == 1 and errors.dtype == torch.float64
        if errors is None or not fits or not bool(((errors >= 0) & errors.isfinite()).all()):
            raise CheckpointError(
                "holds no errors of held-out examples", where=str(folder), fix="Save it again"
            )
        self.errors_ = np.sort(errors.numpy())

    @classmethod
    def restore(cls, folder: Path, about: dict[str, Any]) -> Self:
        """As in ``Supervised``; the head is converted back to standardized outputs without loss: weights were
        scaled by a power of two, and ``glassformer.json`` has the bias."""
        out = super().restore(folder, about)
        if not cls.learns(out.kind_):
            raise CheckpointError("its targets are not numbers", where=str(folder))
        bias, head = about.get("bias"), out.model_.head.out
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not np.isfinite(bias):
            raise CheckpointError(f"bias = {shown(bias)} is not a number", where=str(folder))
        with torch.no_grad():
            head.weight.div_(out.kind_.unit)
            head.bias.fill_(bias)
        return out
