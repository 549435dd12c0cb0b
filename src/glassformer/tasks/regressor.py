"""Base class of regressors, with prediction intervals."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from glassformer.checkpoints.settings import shorten
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.data.numbers import check_positive
from glassformer.errors import CheckpointError, ConfigError
from glassformer.sklearn_base import RegressorMixin
from glassformer.targets.multiclass import Classes
from glassformer.targets.regression import (
    COVERAGE,
    HUB_NAMES,
    Numbers,
    absolute_errors,
    bounds_around,
    check_coverage,
    half_width,
)
from glassformer.tasks.classifier import LabeledExamples, Supervised
from glassformer.tasks.estimator import FitState
from glassformer.train.state import Training

ERRORS = "intervals"  # name of the file with the errors on validation examples


class Regressor(RegressorMixin, Supervised):
    """Base class of regressors of raw examples.

    Fitted attributes in addition to ``Supervised``'s:
        errors_: the absolute errors on the validation examples, ascending, ``[m]`` fp64. They determine the
            width of ``predict_interval``. With ``number_scale="log"`` they are differences of logarithms.
            Without validation examples the array is empty.
    """

    TARGETS = "targets"
    kind_: Any = Numbers()
    errors_: np.ndarray = np.zeros(0)

    @classmethod
    def supports(cls, kind: Classes) -> bool:
        return kind.problem_type == Numbers.problem_type

    @classmethod
    def infer_kind(cls, y: Any) -> Classes:
        return Numbers()

    # --- training --------------------------------------------------------------------------------

    def _examples(
        self, fit: FitState, *data: Any
    ) -> tuple[LabeledExamples, tuple[list[Any], np.ndarray] | None]:
        (X, numbers, weights), validation_data = super()._examples(fit, *data)
        self.kind_ = Numbers.fitted(numbers, fit.train.number_scale)
        if validation_data is not None:
            inputs, targets = validation_data
            validation_data = inputs, self.kind_.standardize(targets, "validation targets")
        return LabeledExamples(X, self.kind_.standardize(numbers), weights), validation_data

    def _finish_fit(self, fit: FitState, training: Training) -> None:
        super()._finish_fit(fit, training)
        self.errors_ = np.zeros(0)
        if fit.validation is not None:
            predicted = self.to_probabilities(self._validation_logits(fit))[:, 0]
            self.errors_ = self._errors(predicted, self.kind_.to_numbers(fit.validation[1]))

    def _errors(self, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
        """Absolute errors ``[m]``, ascending, on the scale of the intervals."""
        return np.sort(absolute_errors(self.kind_.scale, predicted, true))

    # --- prediction ------------------------------------------------------------------------------

    def predict(self, X: Sequence[Any]) -> np.ndarray:
        """Predict the number of each example ``[n]``, fp64, in the unit of the training numbers."""
        return self.outputs(X)[:, 0]

    def calibrate(self, X: Sequence[Any], y: Sequence[Any]) -> Self:
        """Compute ``errors_`` on these examples instead of the validation examples of ``fit``.

        Args:
            X, y: examples that the model was not trained on, from the same distribution as future inputs.

        Raises:
            DataError: examples or numbers cannot be used.
        """
        X, numbers = self._check_labeled(X, y, "calibrate")
        if self.kind_.scale == "log":
            check_positive(numbers, "targets")
        self.errors_ = self._errors(self.predict(X), np.asarray(numbers))
        return self

    def interval(self, numbers: np.ndarray, coverage: float = COVERAGE) -> np.ndarray:
        """Lower and upper bounds ``[n, 2]`` around predicted numbers ``[n]``; see ``predict_interval``."""
        return bounds_around(numbers, half_width(self._calibrated(coverage), coverage), self.kind_.scale)

    def predict_interval(self, X: Sequence[Any], coverage: float = COVERAGE) -> np.ndarray:
        """Lower and upper bounds of the numbers, ``[n, 2]`` fp64, by split conformal prediction.

        With ``m`` validation examples, half the width is the ``ceil((m + 1) coverage)``-th smallest of their
        absolute errors. All intervals have the same width. With ``number_scale="log"`` the bounds are the
        prediction divided and multiplied by the same factor.

        On average, at least the share ``coverage`` of examples from the same distribution lies inside. If the
        validation examples also selected the best epoch, the intervals are slightly too narrow. To avoid
        that, call ``calibrate`` with other examples.

        Args:
            coverage: a number between 0 and 1.

        Raises:
            ConfigError: there are no validation examples, or too few for this coverage.
            DataError: an example cannot be used.
        """
        self._calibrated(coverage)  # raises errors before the prediction
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
            DataError: examples or targets cannot be used, or their numbers differ.
        """
        from sklearn.metrics import r2_score

        X, y = self._check_labeled(X, y, "score")
        return float(r2_score(y, self.predict(X), sample_weight=sample_weight))

    # --- files -----------------------------------------------------------------------------------

    def model_to_save(self) -> Any:
        """A copy of the model whose head returns numbers that are not standardized, for other programs.

        With ``number_scale="log"`` the head returns the logarithms of the numbers.
        """
        model, kind = copy.copy(self.model_), self.kind_
        model._modules = dict(model._modules) | {"head": copy.deepcopy(model.head)}
        out = model.head.out
        with torch.no_grad():
            out.weight.mul_(kind.unit)
            out.bias.copy_((out.bias.double() * kind.unit + kind.mean).to(out.bias))
        return model

    def hub_label_names(self) -> tuple[str, ...]:
        return (HUB_NAMES[self.kind_.scale],)

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
        is_valid = errors is not None and errors.dim() == 1 and errors.dtype == torch.float64
        if errors is None or not is_valid or not bool(((errors >= 0) & errors.isfinite()).all()):
            what = "holds no errors of held-out examples"
            raise CheckpointError(what, where=str(folder), fix="Save it again")
        self.errors_ = np.sort(errors.numpy())

    @classmethod
    def restore(cls, folder: Path, about: dict[str, Any]) -> Self:
        """Load a saved regressor, and convert its head back to standardized outputs.

        The conversion is exact: the weights were multiplied by a power of two, and ``glassformer.json`` has
        the bias.
        """
        out = super().restore(folder, about)
        if not cls.supports(out.kind_):
            raise CheckpointError("its targets are not numbers", where=str(folder))
        bias, head = about.get("bias"), out.model_.head.out
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not np.isfinite(bias):
            raise CheckpointError(f"bias = {shorten(bias)} is not a number", where=str(folder))
        with torch.no_grad():
            head.weight.div_(out.kind_.unit)
            head.bias.fill_(bias)
        return out
