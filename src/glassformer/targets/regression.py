"""Regression targets: one number per example, with prediction intervals.

Numbers are standardized for training, on a log scale after taking logarithms. Predictions are converted back.

Intervals come from split conformal prediction (Papadopoulos et al., 2002; Vovk et al., 2005). The half width
of an interval with coverage ``c`` is the ``ceil((n + 1) c)``-th smallest absolute error of ``n`` held-out
examples. If new examples come from the same distribution, the interval contains the true number with
probability at least ``c``. On a log scale, errors are differences of logarithms, and an interval reaches from
the prediction divided by a factor to the prediction times this factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from glassformer.checkpoints.settings import shorten
from glassformer.data.duplicates import copy_keys
from glassformer.data.numbers import (
    MAX_LOGARITHM,
    MAX_NUMBER,
    Scale,
    are_outliers,
    check_numbers,
    check_positive,
    drop_nonpositive,
    drop_outliers,
    from_scale,
    number_findings,
    skipped_amounts_message,
    to_scale,
    wide_range,
)
from glassformer.data.text_pairs import TextPair, are_pairs
from glassformer.errors import (
    BadValueError,
    CheckpointError,
    ConfigError,
    DataError,
    NotForThisModelError,
    OneClassError,
    ShapeError,
)
from glassformer.evaluate.baselines import pixel_features, word_features
from glassformer.evaluate.compare import Statistic
from glassformer.evaluate.metrics import Plain, Share
from glassformer.evaluate.predictions import (
    NUMBER_HEADER,
    has_numbers,
    number_cells,
    read_numbers,
)
from glassformer.finite import finite, with_undefined
from glassformer.process import one_thread
from glassformer.targets.multiclass import Classes
from glassformer.targets.permutation import number_metric, number_statistic, permutation
from glassformer.targets.target import RunPairs, RunPredictions, SeedRuns, Target, TestResult, hash_examples
from glassformer.train.objectives import SquaredError
from glassformer.train.solved_head import SolvedHead, solve_numbers

OUTPUT = "number"  # name of the only output, in place of class names
SCALE_NAMES: dict[str, Scale] = {"number": "linear", "log-number": "log"}  # names in a saved folder
HUB_NAMES: dict[Scale, str] = {  # names of the output in transformers; for logarithms our own
    "linear": "LABEL_0",
    "log": "log(number)",
}

COVERAGES = (0.8, 0.9, 0.95)  # coverages that a run evaluates
COVERAGE = 0.9  # default coverage of an interval
RESAMPLES_PER_BATCH = 100  # number of bootstrap resamples that are computed at a time
RIDGE_PENALTIES = (0.1, 1.0, 10.0)  # tried for the TF-IDF baseline
PIXEL_RIDGE_PENALTIES = (10.0, 100.0, 1000.0)
MAX_POINTS = 2000  # maximum number of points in the plots of the report


class NumericTarget(Target):
    """Base class of targets that are numbers. A permutation test compares two models."""

    def leading_metrics(self, measure: str, scores: Mapping[str, Any]) -> list[str]:
        """``measure``, and another metric that these scores contain."""
        others = [key for key in ("pearson", "mae", "spearman") if key != measure and key in scores]
        return [measure, *others[:1]]

    def statistics(self, runs: SeedRuns) -> dict[str, Statistic]:
        predicted = np.stack([run.predicted for run in runs])
        return {key: number_statistic(key, runs[0].truth, predicted) for key in self.compared}

    def interval(
        self, key: str, runs: SeedRuns, mean: float, ends: Sequence[float], resamples: int
    ) -> list[float]:
        return np.clip(ends, *self.metrics[key].limits).tolist()

    def tests(self, measure: str, pairs: RunPairs, resamples: int) -> TestResult:
        compared = ((run.truth, run.predicted, base.predicted) for run, base in pairs)
        results = [permutation(measure, *arrays, resamples=resamples) for arrays in compared]
        return "permutation", results, True


@dataclass(frozen=True)
class Numbers(NumericTarget, Classes):
    """One number per example. The network learns ``(number - mean) / unit``.

    Args:
        mean: mean of the training numbers.
        unit: power of two nearest to their standard deviation; dividing by it is exact.
        scale: ``log``: the network learns the natural logarithms of the numbers, which must be above 0.
    """

    mean: float = 0.0
    unit: float = 1.0
    scale: Scale = "linear"
    comparison_kind: ClassVar[str] = "predicts a number per example"
    no_calibration: ClassVar[tuple[str, str]] = (
        "a regressor has no probabilities to calibrate",
        "Its prediction intervals: glassformer predict RUN FILE --coverage 0.9 (in Python predict_interval; "
        "calibrate(X, y) measures them on other examples)",
    )
    marker_keys: ClassVar[Sequence[str]] = ("r2",)
    metrics: ClassVar[Mapping[str, Share]] = {
        "r2": Plain("R²", form=".4g", limits=(-math.inf, 1.0)),
        "mse": Plain("mean squared error", "MSE", lower=True, form=".4g", limits=(0.0, math.inf)),
        "mae": Plain("mean absolute error", "MAE", lower=True, form=".4g", limits=(0.0, math.inf)),
        "pearson": Plain("Pearson", form=".4g", limits=(-1.0, 1.0)),
        "spearman": Plain("Spearman", form=".4g", limits=(-1.0, 1.0)),
    }
    main_metrics: ClassVar[Sequence[str]] = ("r2", "mae")
    compared: ClassVar[Sequence[str]] = ("r2", "pearson", "spearman", "mae")
    terminal_columns: ClassVar[Sequence[str]] = tuple(metrics)
    fold_table_metrics: ClassVar[Sequence[str]] = tuple(metrics)
    is_wide: ClassVar[bool] = True
    problem_type: ClassVar[str | None] = "regression"
    script_name: ClassVar[str] = "numbers"
    saved_names: ClassVar[Sequence[str | None]] = tuple(SCALE_NAMES)
    targets_noun: ClassVar[str] = "targets"
    measure: ClassVar[str | None] = "r2"
    metrics_per_fold: ClassVar[tuple[str, ...]] = tuple(metrics)
    terminal_layout: ClassVar[str] = "numbers"
    is_single_label: ClassVar[bool] = False
    solve: ClassVar[Callable[..., SolvedHead]] = staticmethod(solve_numbers)
    predicts_labels: ClassVar[bool] = False

    @classmethod
    def from_numbers(cls, numbers: np.ndarray, scale: Scale = "linear") -> Self:
        """The target with the mean and unit of these training numbers.

        Raises:
            DataError: all numbers are the same, or one has no logarithm.
        """
        original = numbers
        if scale == "log":
            check_positive(numbers.tolist(), "targets")
            numbers = to_scale(numbers, scale)
        spread = float(numbers.std()) if len(numbers) else 0.0
        if not spread > 1e-12 * max(1e-100, float(np.abs(numbers).max(initial=0.0))):
            what = f"all numbers are {original[0]:g}" if len(numbers) else "no numbers"
            fix = "A regressor needs examples of at least two numbers"
            if len(numbers) and original.min() < original.max():
                what = f"{original.min():.17g} to {original.max():.17g} differ by too little for their size"
                fix = "Subtract a constant, or measure them in another unit"
            raise OneClassError(what, where="targets", fix=fix)
        return cls(float(numbers.mean()), 2.0 ** round(math.log2(spread)), scale)

    # --- raw targets ------------------------------------------------------------------------------

    def read(self, y: Any, origin: str = "targets") -> list[Any]:
        return check_numbers(y, origin)

    def classes(self, labels: Sequence[Any], origin: str = "targets") -> list[Any]:
        return [OUTPUT]

    def encode(
        self, labels: Sequence[Any], classes: Sequence[Any], origin: str, rows: Sequence[int] | None = None
    ) -> np.ndarray:
        """Standardized numbers ``[n]`` fp64."""
        return self.standardize(check_numbers(labels, origin, rows), origin, rows)

    def standardize(
        self, numbers: Sequence[float], origin: str = "targets", rows: Sequence[int] | None = None
    ) -> np.ndarray:
        """Standardized targets of numbers ``[n]``, fp64; raises DataError if one has no logarithm."""
        if self.scale == "log":
            check_positive(numbers, origin, rows)
        return (to_scale(numbers, self.scale) - self.mean) / self.unit

    def to_numbers(self, standardized: Any) -> np.ndarray:
        """The inverse of ``standardize``."""
        return from_scale(np.asarray(standardized, np.float64) * self.unit + self.mean, self.scale)

    def stratify_by(self, labels: Sequence[Any], targets: np.ndarray) -> Sequence[Any]:
        return [float(x) for x in targets]  # splits stratify floats by rank

    # --- training ---------------------------------------------------------------------------------

    def weights(self, targets: np.ndarray, classes: list[Any], train: Any) -> np.ndarray | None:
        return None

    def criterion(self, targets: np.ndarray, classes: list[Any], train: Any) -> Callable | None:
        return SquaredError()

    def validation_metrics(self, clf: Any, logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """Validation metrics after an epoch; undefined values are 0.

        ``loss`` is the standardized squared error; ``mae`` is in the unit of the numbers.
        """
        metrics = regression_metrics(np.asarray(logits[:, 0], np.float64), targets)
        loss, mae = metrics["mse"] or 0.0, (metrics["mae"] or 0.0) * self.unit
        if self.scale == "log":
            metrics = regression_metrics(self.to_numbers(logits[:, 0]), self.to_numbers(targets))
            mae = metrics["mae"] or 0.0
        others = {key: metrics[key] or 0.0 for key in ("r2", "pearson", "spearman")}
        return {"loss": loss, "mae": mae, **others}

    # --- predictions ------------------------------------------------------------------------------

    def probabilities(self, logits: np.ndarray, temperature: Any = 1.0) -> np.ndarray:
        """Predicted numbers ``[n, 1]`` fp64, in the unit of the targets."""
        return self.to_numbers(logits)

    def tensor_probabilities(self, logits: Tensor, temperature: Any = 1.0) -> Tensor:
        """Predicted numbers ``[n, 1]``; fp64, since fp32 cannot represent a spread of 1 around 10,000,000."""
        numbers = logits.double() * self.unit + self.mean
        return numbers.clamp(-MAX_LOGARITHM, MAX_LOGARITHM).exp() if self.scale == "log" else numbers

    def predicted_index(self, probabilities: np.ndarray, threshold: Any = None) -> np.ndarray:
        """The numbers ``[n]``."""
        return np.asarray(probabilities)[:, 0]

    def labels(self, predicted: np.ndarray, classes: np.ndarray) -> np.ndarray:
        return predicted

    def confidence(self, probabilities: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        """NaN ``[n]``: predicted numbers have intervals, not probabilities."""
        return np.full(len(predicted), np.nan)

    def explain_target(self, probabilities: np.ndarray, threshold: Any) -> int:
        return 0

    def target_name(self, target: int, probabilities: np.ndarray, classes: Sequence[Any]) -> Any:
        return self.format_number(float(probabilities[0]))

    def format_number(self, number: float) -> str:
        """A number as text, with enough digits for a millionth of a standard deviation."""
        spread = self.unit * (abs(number) if self.scale == "log" else 1.0)
        digits_before = math.log10(abs(number) / spread) if number and spread else 0.0
        return f"{number:.{min(6 + max(0, math.ceil(digits_before)), 17)}g}"

    def score(
        self,
        outputs: ArrayLike,
        targets: ArrayLike,
        classes: Sequence[Any] = (OUTPUT,),
        predicted: ArrayLike | None = None,
        *,
        bootstrap: int = 1000,
        seed: int = 0,
        curves: bool = True,
    ) -> dict[str, Any]:
        """The metrics of predictions, ready for JSON.

        Args:
            outputs: predicted numbers ``[n]`` or ``[n, 1]``.
            targets: standardized true numbers ``[n]``.
            predicted: evaluated instead of ``outputs`` if given.

        Returns:
            n, kind ("numbers"), r2, mse, rmse, mae, pearson and spearman. Each metric except rmse has an
            ``_interval`` (95 %, percentile bootstrap over examples; None with ``bootstrap=0``). If all true
            or all predicted numbers are the same, undefined metrics are None, and ``undefined`` has the
            reason. On a log scale there is also ``ratios``, see ``ratio_metrics``.

        Raises:
            DataError: there is no example.
        """
        numbers = np.asarray(outputs if predicted is None else predicted, np.float64)
        true = self.to_numbers(targets)
        if numbers.size != len(true):
            raise ShapeError(f"predictions {numbers.shape} do not match {len(true)} targets")
        if not len(true):
            raise DataError("no example to evaluate", fix="Give a split that is not empty")
        numbers = finite(numbers.reshape(-1), "predictions")
        out: dict[str, Any] = {"n": len(true), "kind": "numbers", **regression_metrics(numbers, true)}
        out = with_undefined(out, undefined_reasons(numbers, true))
        out["rmse"] = math.sqrt(out["mse"])
        if self.scale == "log":
            out["ratios"] = ratio_metrics(numbers, true)
        bounds = bootstrap_intervals(numbers, true, bootstrap, seed) if bootstrap else {}
        valid = {key for key in self.metrics if out[key] is not None}
        return out | {f"{key}_interval": bounds.get(key) if key in valid else None for key in self.metrics}

    # --- calibration ------------------------------------------------------------------------------

    def fit_temperature(self, logits: np.ndarray, targets: np.ndarray) -> Any:
        raise NotForThisModelError(self.no_calibration[0], where="calibrate", fix=self.no_calibration[1])

    def fit_threshold(self, probabilities: np.ndarray, targets: np.ndarray, metric: Any) -> Any:
        raise NotForThisModelError("numbers have no threshold", where="threshold", fix="Leave it out")

    # --- other programs ---------------------------------------------------------------------------

    def export_outputs(self, logits: np.ndarray) -> np.ndarray:
        """The outputs that the exported head should have: numbers, or their logarithms."""
        return np.asarray(logits, np.float64) * self.unit + self.mean

    def max_abs_difference(self, a: np.ndarray, b: np.ndarray) -> float:
        """Largest difference, in standard deviations of the training numbers or of their logarithms."""
        return float(np.abs(a - b).max() / self.unit)

    # --- files ------------------------------------------------------------------------------------

    def metadata(self) -> dict[str, Any]:
        name = next(name for name, scale in SCALE_NAMES.items() if scale == self.scale)
        return {"targets": name, "mean": self.mean, "unit": self.unit}

    def export_metadata(self, clf: Any) -> dict[str, Any]:
        """The target's entries in ``onnx.json``, with the size of the 90 % interval, or None if unknown."""
        has_interval = len(clf.errors_) >= examples_needed(COVERAGE)
        half = half_width(clf.errors_, COVERAGE) if has_interval else None
        metadata = {"number": True, "coverage": COVERAGE}
        if self.scale == "log":
            factor = None if half is None else math.exp(min(half, MAX_LOGARITHM))
            return metadata | {"half_width": None, "factor": factor}
        return metadata | {"half_width": half}

    def not_exported(self, clf: Any) -> list[str]:
        return []

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], where: str) -> Self:
        mean, unit = metadata.get("mean", 0.0), metadata.get("unit", 1.0)
        for name, value in (("mean", mean), ("unit", unit)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_NUMBER:
                raise CheckpointError(f"{name} = {shorten(value)} is not a number", where=where)
        if unit <= 0 or math.frexp(unit)[0] != 0.5:
            raise CheckpointError(f"unit = {shorten(unit)} is not a power of two", where=where)
        return cls(float(mean), float(unit), SCALE_NAMES[metadata.get("targets", "number")])

    def read_calibration(self, metadata: Mapping[str, Any], where: str, outputs: int) -> tuple[Any, Any]:
        return 1.0, None

    def sort_classes(self) -> bool:
        return False

    # --- runs -------------------------------------------------------------------------------------

    def prepare_data(self, dataset: Any, train: Any, skip: bool) -> Any:
        return drop_nonpositive(dataset, skip) if train.number_scale == "log" else dataset

    def training_splits(self, splits: Any, recipe: Any) -> Any:
        skip = getattr(recipe.data, "far_numbers", "keep") == "skip"
        return drop_outliers(splits, recipe.train.number_scale) if skip else splits

    def check_unseen(self, splits: Any, leave_out: bool) -> tuple[Any, list[Any]]:
        return splits, []

    def training_notes(self, splits: Any, rejected: Sequence[Any]) -> tuple[list[str], str, list[str]]:
        note = skipped_amounts_message(row.reason for row in rejected)
        count, needed = len(splits.validation or ()), examples_needed(COVERAGE)
        too_few = []
        if not count:
            what = "no validation examples: predictions will have no intervals"
            too_few = [f"{what}; --set validation_size=0.1 holds some out"]
        elif count < needed:
            what = f"{count} validation examples are too few for intervals of {COVERAGE:.0%}"
            too_few = [f"{what}: {needed} are needed"]
        return [note] if note else [], ", numbers", too_few

    def doctor_input(self, dataset: Any) -> Any:
        """The data set without labels, because the checks of labels would treat numbers as classes."""
        splits = {name: replace(split, labels=None) for name, split in dataset.splits.items()}
        return replace(dataset, splits=splits)

    def findings(self, splits: Any, train: Any) -> list[Any]:
        labeled = {name: split for name, split in splits.parts().items() if split.labels}
        numbers = {name: split.labels for name, split in labeled.items()}
        keys = {name: copy_keys(split) for name, split in labeled.items()}
        return list(number_findings(numbers, keys, train.number_scale))

    def run_metadata(self, est: Any, splits: Any, train: Any, outputs: np.ndarray | None) -> dict[str, Any]:
        metadata = {"mean": self.mean, "unit": self.unit, "scale": self.scale, "held_out": len(est.errors_)}
        if outputs is not None and (outliers := self._outlier_selection(est, splits, train, outputs[:, 0])):
            metadata["far"] = outliers
        return {"numbers": metadata, "intervals": []}

    def _outlier_selection(
        self, est: Any, splits: Any, train: Any, outputs: np.ndarray
    ) -> dict[str, Any] | None:
        """Validation outliers that cause most of the validation loss that selected the best epoch.

        Args:
            outputs: predictions ``[n]``.

        Returns:
            The number of outliers, the first ones, their share of the loss, the best epoch, and whether the
            training numbers span orders of magnitude (then outliers may be correct). None without outliers.
        """
        if train.monitor != "loss" or not train.keep_best:
            return None
        true, train_y = (np.asarray(s.labels, np.float64) for s in (splits.validation, splits.train))
        is_outlier = are_outliers(true, train_y, self.scale)
        errors = absolute_errors(self.scale, outputs, true) ** 2
        share = float(errors[is_outlier].sum() / errors.sum()) if is_outlier.any() else 0.0
        if share <= 0.5:
            return None
        evaluations = [r for r in est.history_ if r["kind"] == "evaluation"]
        epochs = [r["epoch"] + 1 for r in evaluations if r["step"] == est.best_step_]
        return {
            "count": int(is_outlier.sum()),
            "first": [float(x) for x in true[is_outlier][:3]],
            "share_of_loss": share,
            "best_epoch": epochs[0] if epochs else None,
            "wide": self.scale == "linear" and wide_range(train_y) is not None,
        }

    def coverage(self, est: Any, outputs: np.ndarray, truth: Any, same_examples: bool) -> dict[str, Any]:
        if same_examples:
            return {"intervals": []}
        return {"intervals": coverage_metrics(est.errors_, outputs[:, 0], truth, scale=self.scale)}

    def table_columns(
        self, outputs: np.ndarray, classes: Sequence[Any], confidences: Sequence[float | None], est: Any
    ) -> tuple[Sequence[str], Iterable[Sequence[str]]]:
        bounds = None if est is None else bounds_of(est, outputs[:, 0])
        return NUMBER_HEADER, map(number_cells, [None] * len(outputs) if bounds is None else bounds)

    # --- tables -----------------------------------------------------------------------------------

    def narrow_columns(self, measure: str, scores: Mapping[str, Any]) -> list[str]:
        return ["r2", "r2_interval", "mae"]

    # --- comparisons ------------------------------------------------------------------------------

    def has_file(self, folder: Path) -> bool:
        return super().has_file(folder) and has_numbers(folder / self.file)

    def read_run(self, folder: Path) -> RunPredictions:
        rows = list(read_numbers(folder / self.file))
        true, predicted = [row.label for row in rows], [row.predicted for row in rows]
        if not rows or None in true or None in predicted:
            what, fix = "no true numbers to compare", "Evaluate on a split that has numbers"
            raise DataError(what, where=str(folder / self.file), fix=fix)
        digest = hash_examples((row.split, row.row, row.text, row.label) for row in rows)
        return RunPredictions(self, digest, len(rows), np.array(true), np.array(predicted))

    def parse_cells(self, cells: Sequence[str], classes: tuple[str, ...]) -> Any:
        return np.array(cells, np.float64)


# --- baselines ------------------------------------------------------------------------------------


def ridge(
    features: Sequence[Any], numbers: np.ndarray, *, penalties: Sequence[float] = RIDGE_PENALTIES
) -> np.ndarray:
    """Predictions ``[m]`` of a ridge regression.

    It is fitted on all training examples, with the penalty that had the lowest squared error on a held-out
    fifth.

    Args:
        features: features ``[n, F]`` of the training examples, then those ``[m, F]`` of the examples to
            predict; sparse or dense.
        numbers: ``[n]`` training targets.
    """
    from sklearn.linear_model import Ridge

    train, to_predict = features
    numbers_64 = np.asarray(numbers, np.float64)
    middle, unit = float(numbers_64.mean()), float(numbers_64.std()) or 1.0
    y = (numbers_64 - middle) / unit  # features are fp32, in which large numbers overflow

    def predict(rows: Any, y: np.ndarray, rows_to_predict: Any, penalty: float) -> np.ndarray:
        return np.asarray(Ridge(alpha=penalty, random_state=0).fit(rows, y).predict(rows_to_predict))

    with one_thread():
        best = penalties[len(penalties) // 2]
        if len(y) >= 25 and len(penalties) > 1:
            order = np.random.default_rng(0).permutation(len(y))
            val_rows, train_rows = np.sort(order[: len(y) // 5]), np.sort(order[len(y) // 5 :])

            def error(penalty: float) -> float:
                predicted = predict(train[train_rows], y[train_rows], train[val_rows], penalty)
                return float(np.square(predicted - y[val_rows]).mean())

            best = min(penalties, key=error)
        return middle + unit * predict(train, y, to_predict, best).astype(np.float64)


def mean_number(est: Any, recipe: Any, splits: Any, targets: np.ndarray) -> tuple[str, np.ndarray]:
    """Baseline that predicts the mean of the training numbers for every evaluated example, ``[m, 1]``."""
    mean = np.asarray(splits.train.labels, np.float64).mean()
    return "mean of the training numbers", np.full((len(splits.evaluated), 1), mean)


def as_baseline(model: Callable[..., tuple[str, np.ndarray] | None]) -> Callable[..., tuple | None]:
    """Turn a simple model into a baseline of a run; it learns on the scale of the run's targets.

    Args:
        model: (estimator, training examples, their numbers, examples to predict) -> name and predictions
            ``[m]``, or None if the model does not apply.
    """

    def baseline(est: Any, recipe: Any, splits: Any, targets: np.ndarray) -> tuple[str, np.ndarray] | None:
        scale, train = est.kind_.scale, splits.train
        result = model(est, train.examples, to_scale(train.labels, scale), splits.evaluated.examples)
        return None if result is None else (result[0], from_scale(result[1], scale)[:, None])

    return baseline


def tfidf_ridge(
    est: Any, train: Sequence[Any], numbers: np.ndarray, to_predict: Sequence[Any]
) -> tuple[str, np.ndarray]:
    """Ridge regression on TF-IDF features; see ``as_baseline``."""
    suffix = " of both sides" if are_pairs(train) else ""
    return f"TF-IDF{suffix} + ridge", ridge(word_features(train, to_predict), numbers)


def pixel_ridge(
    est: Any, train: Sequence[Any], numbers: np.ndarray, to_predict: Sequence[Any]
) -> tuple[str, np.ndarray]:
    """Ridge regression on 16 x 16 pixels; see ``as_baseline``."""
    features = pixel_features(train, to_predict, image_range=est.transform_.image_range)
    return "ridge on 16 x 16 pixels", ridge(features, numbers, penalties=PIXEL_RIDGE_PENALTIES)


# --- reports --------------------------------------------------------------------------------------


def largest_errors(est: Any, split: Any, outputs: np.ndarray, limit: int) -> dict[str, Any]:
    """True and predicted numbers of a split for a plot, and its ``limit`` largest errors, ready for JSON.

    ``outputs``: predictions ``[n]``.
    """
    true, kind = np.asarray(split.labels, np.float64), est.kind_
    plotted = np.sort(np.random.default_rng(0).permutation(len(true))[:MAX_POINTS])
    order = np.argsort(-absolute_errors(kind.scale, outputs, true), kind="stable")[:limit]
    names, bounds = split.names(), bounds_of(est, outputs)
    errors = [
        {
            "text": list(name.sides) if isinstance(name := names[i], TextPair) else name,
            "true": float(true[i]),
            "predicted": float(outputs[i]),
            "low": None if bounds is None else float(bounds[i, 0]),
            "high": None if bounds is None else float(bounds[i, 1]),
        }
        for i in order.tolist()
    ]
    entry = kind.export_metadata(est)
    return {
        "points": {
            "true": true[plotted].tolist(),
            "predicted": outputs[plotted].tolist(),
            "scale": kind.scale,
        },
        **{key: entry[key] for key in ("half_width", "factor") if key in entry},
        "furthest": errors,
    }


# --- metrics --------------------------------------------------------------------------------------


def regression_metrics(predicted: np.ndarray, true: np.ndarray) -> dict[str, float | None]:
    """The metrics ``Numbers.metrics`` of predicted and true numbers ``[n]``; None if undefined."""
    from scipy.stats import pearsonr, spearmanr
    from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

    true_varies = len(true) > 1 and bool(np.ptp(true))
    both_vary = true_varies and bool(np.ptp(predicted))
    return {
        "r2": float(r2_score(true, predicted)) if true_varies else None,
        "mse": float(mean_squared_error(true, predicted)),
        "mae": float(mean_absolute_error(true, predicted)),
        "pearson": float(cast(Any, pearsonr(true, predicted))[0]) if both_vary else None,
        "spearman": float(cast(Any, spearmanr(true, predicted))[0]) if both_vary else None,
    }


def undefined_reasons(predicted: np.ndarray, true: np.ndarray) -> dict[str, str]:
    """Why r2 and the correlations are undefined for these numbers, if they are."""
    constant = "there is one example" if len(true) == 1 else "all true numbers are the same"
    true_varies = len(true) > 1 and bool(np.ptp(true))
    correlated = "all predicted numbers are the same" if true_varies else constant
    return {"r2": constant, "pearson": correlated, "spearman": correlated}


def ratio_metrics(predicted: np.ndarray, true: np.ndarray) -> dict[str, Any]:
    """Metrics of the ratios of predicted and true numbers ``[n]`` above 0.

    Returns:
        ``r2`` of the logarithms, and ``median_factor``: half of the predictions are off by at most this
        factor. If a value is None, ``undefined`` has the reason.
    """
    if not (predicted > 0).all():
        reason = "a prediction is not above 0"
        return with_undefined({"r2": None, "median_factor": None}, {"r2": reason, "median_factor": reason})
    a, b = np.log(predicted), np.log(true)
    out = {"r2": regression_metrics(a, b)["r2"], "median_factor": float(np.exp(np.median(np.abs(a - b))))}
    return with_undefined(out, undefined_reasons(a, b))


def bootstrap_intervals(
    predicted: np.ndarray, true: np.ndarray, resamples: int = 1000, seed: int = 0
) -> dict[str, list[float]]:
    """95 % intervals of each of ``Numbers.metrics``, by bootstrap over the examples."""
    n, rng = len(true), np.random.default_rng(seed)
    resampled: dict[str, list[np.ndarray]] = {key: [] for key in Numbers.metrics}
    for start in range(0, resamples, RESAMPLES_PER_BATCH):
        counts = rng.multinomial(n, np.full(n, 1 / n), min(RESAMPLES_PER_BATCH, resamples - start)).astype(
            np.float64
        )
        for key, batches in resampled.items():
            batches.append(number_metric(key, true, predicted, counts))
    out = {}
    for key, batches in resampled.items():
        values = np.concatenate(batches)
        values = values[np.isfinite(values)]  # the correlation of equal numbers is NaN
        if len(values):
            out[key] = np.quantile(values, [0.025, 0.975]).astype(float).tolist()
    return out


# --- intervals ------------------------------------------------------------------------------------


def check_coverage(coverage: float) -> float:
    """Return ``coverage``; raise ConfigError unless it is between 0 and 1."""
    if isinstance(coverage, bool) or not isinstance(coverage, int | float) or not 0 < coverage < 1:
        what = f"coverage = {coverage!r} is not between 0 and 1"
        raise BadValueError(what, where="coverage", fix="Use a number such as 0.9")
    return float(coverage)


def examples_needed(coverage: float) -> int:
    """The minimum number of held-out examples for intervals with this coverage."""
    n = max(1, math.floor(check_coverage(coverage) / (1 - coverage)) - 1)
    while conformal_rank(n, coverage) > n:
        n += 1
    return n


def conformal_rank(n: int, coverage: float) -> int:
    """``ceil((n + 1) * coverage)``, without the effect of rounding errors."""
    return math.ceil(round((n + 1) * coverage, 9))


def half_width(errors: ArrayLike, coverage: float = COVERAGE) -> float:
    """Half width of an interval, from absolute errors ``[n]`` of examples that were not used for training.

    Raises:
        ConfigError: there are too few examples for this coverage, so the interval would be infinite.
    """
    sizes = np.sort(np.asarray(errors, np.float64))
    rank = conformal_rank(len(sizes), check_coverage(coverage))
    if rank > len(sizes):
        what = f"{len(sizes)} held-out examples are too few for an interval with coverage {coverage:.4g}"
        needed, largest = examples_needed(coverage), math.floor(100 * len(sizes) / (len(sizes) + 1)) / 100
        fix = f"Use {largest:g} or less, or hold out {needed} or more in training: "
        fix += f"--set validation_size={needed} (in Python: calibrate(X, y))"
        raise ConfigError(what, where="coverage", fix=fix)
    return float(sizes[rank - 1])


def absolute_errors(scale: Scale, predicted: ArrayLike, true: ArrayLike) -> np.ndarray:
    """Absolute errors ``[n]`` of predicted numbers, on the scale of the targets."""
    return np.abs(to_scale(predicted, scale) - to_scale(true, scale))


def bounds_of(est: Any, numbers: np.ndarray, coverage: float = COVERAGE) -> np.ndarray | None:
    """Intervals ``[n, 2]`` of a model's predictions ``[n]``; None if too few examples were held out."""
    return est.interval(numbers, coverage) if len(est.errors_) >= examples_needed(coverage) else None


def bounds_around(numbers: ArrayLike, half: float, scale: Scale = "linear") -> np.ndarray:
    """Lower and upper bounds ``[n, 2]``: the numbers minus and plus ``half`` on this scale."""
    middle = to_scale(numbers, scale)
    return from_scale(np.stack([middle - half, middle + half], 1), scale)


def coverage_metrics(
    errors: ArrayLike,
    predicted: ArrayLike,
    true: ArrayLike,
    levels: tuple[float, ...] = COVERAGES,
    scale: Scale = "linear",
) -> list[dict[str, Any]]:
    """Measured coverage of intervals for each level, ready for JSON.

    Args:
        errors: absolute errors of held-out examples, from which the intervals are computed.
        predicted, true: ``[m]`` numbers of the evaluated examples.

    Returns:
        One record per level: ``asked`` (the level), ``covered`` (the share of true numbers inside their
        intervals) and ``width`` (on a log scale the median, and ``factor``). With too few errors, ``covered``
        and ``width`` are None, and ``needed`` is the required number of errors.
    """
    evaluated_errors = absolute_errors(scale, predicted, true)
    out = []
    for level in levels:
        record: dict[str, Any] = {"asked": level, "covered": None, "width": None}
        if len(np.asarray(errors)) >= (needed := examples_needed(level)):
            half = half_width(errors, level)
            record |= {"covered": float((evaluated_errors <= half).mean()), "width": 2 * half}
            if scale == "log":
                ends = bounds_around(predicted, half, scale)
                record |= {"width": float(np.median(ends[:, 1] - ends[:, 0])), "factor": math.exp(half)}
        else:
            record["needed"] = needed
        out.append(record)
    return out
