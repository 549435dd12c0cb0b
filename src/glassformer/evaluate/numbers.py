"""How good predicted numbers are, and how far from them the true ones lie (split conformal prediction).

An interval around a new prediction has the half width that a share of held-out examples needed (Papadopoulos
et al., 2002; Vovk et al., 2005): with ``n`` of them the ``ceil((n + 1) c)``-th smallest absolute error. Where
new examples are drawn as the held-out ones were, it holds the true number with at least the share ``c``.
Where logarithms are learned errors are differences of these, so that an interval reaches as many times the
number up as down.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from glassformer.data.numbers import Scale, off_scale, on_scale
from glassformer.errors import ConfigError, DataError, ShapeError
from glassformer.finite import finite, undefined

FIGURES = {
    "r2": "R²",
    "mse": "mean squared error",
    "mae": "mean absolute error",
    "pearson": "Pearson",
    "spearman": "Spearman",
}
COVERAGES = (0.8, 0.9, 0.95)  # that a run looks at
COVERAGE = 0.9  # of an interval where none is named
DRAWN = 100  # resamples at a time


class NumberMeter:
    """Figures of predicted numbers, from batches.

    Args:
        mean, unit: of the targets that it is given: ``target * unit + mean`` is the true number.
        scale: ``log``: it is the logarithm of the true number.
    """

    def __init__(self, mean: float = 0.0, unit: float = 1.0, scale: Scale = "linear"):
        self.mean, self.unit = mean, unit
        self.scale: Scale = scale
        self._seen: list[tuple[np.ndarray, np.ndarray]] = []

    def update(self, answers: ArrayLike, targets: ArrayLike, *, predicted: ArrayLike | None = None) -> None:
        """Count one batch.

        Args:
            answers: [b] or [b, 1], in the numbers' own unit.
            targets: [b], standardized.
            predicted: taken in the place of ``answers`` where it is given.

        Raises:
            ShapeError: the lengths differ.
            NotFiniteError: an answer is NaN or infinite.
        """
        found = np.asarray(answers if predicted is None else predicted, np.float64)
        true = off_scale(np.asarray(targets, np.float64) * self.unit + self.mean, self.scale)
        if found.size != len(true):
            raise ShapeError(f"answers {found.shape} do not fit {len(true)} targets")
        finite(found, "predictions")
        self._seen.append((found.reshape(-1), true))

    def result(self, bootstrap: int = 1000, seed: int = 0) -> dict[str, Any]:
        """The figures so far, ready for JSON.

        Returns:
            n, kind ("numbers"), r2 (1 - squared errors / those of the mean), mse, rmse, mae (in the numbers'
            unit, squared for mse), pearson, spearman, each but rmse with an ``_interval`` (95 %, percentile
            bootstrap over examples; None with ``bootstrap=0``). What is not defined (all true or all
            predicted numbers are the same) is None, and ``undefined`` says why. Of a scale of
            logarithms also ``ratios``, see there.

        Raises:
            DataError: nothing was counted.
        """
        if not sum(len(true) for _, true in self._seen):
            raise DataError("no example to judge", fix="Give a split that is not empty")
        found, true = (np.concatenate(parts) for parts in zip(*self._seen, strict=True))
        out: dict[str, Any] = {"n": len(true), "kind": "numbers", **measured(found, true)}
        out = undefined(out, why_undefined(found, true))
        out["rmse"] = math.sqrt(out["mse"])
        if self.scale == "log":
            out["ratios"] = ratios(found, true)
        bounds = intervals(found, true, bootstrap, seed) if bootstrap else {}
        return out | {f"{key}_interval": bounds.get(key) for key in FIGURES}


def measured(found: np.ndarray, true: np.ndarray) -> dict[str, float | None]:
    """Each of ``FIGURES`` of predicted and true numbers ``[n]``; None where it is not defined."""
    from scipy.stats import pearsonr, spearmanr
    from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

    varied = len(true) > 1 and bool(np.ptp(true))
    both = varied and bool(np.ptp(found))
    return {
        "r2": float(r2_score(true, found)) if varied else None,
        "mse": float(mean_squared_error(true, found)),
        "mae": float(mean_absolute_error(true, found)),
        "pearson": float(cast(Any, pearsonr(true, found))[0]) if both else None,
        "spearman": float(cast(Any, spearmanr(true, found))[0]) if both else None,
    }


def why_undefined(found: np.ndarray, true: np.ndarray) -> dict[str, str]:
    """For each of ``FIGURES`` that may not be defined: why, of these predicted and true numbers."""
    same = "there is one example" if len(true) == 1 else "all true numbers are the same"
    varied = len(true) > 1 and bool(np.ptp(true))
    correlated = "all predicted numbers are the same" if varied else same
    return {"r2": same, "pearson": correlated, "spearman": correlated}


def ratios(found: np.ndarray, true: np.ndarray) -> dict[str, Any]:
    """How predicted and true numbers above 0, ``[n]``, compare as ratios.

    Returns:
        ``r2`` of the logarithms (None: not defined), and ``median_factor``: half of the predictions are at
        most so many times too large or too small; None where a prediction is not above 0. ``undefined``
        says why one is None.
    """
    if not (found > 0).all():
        why = "a prediction is not above 0"
        return undefined({"r2": None, "median_factor": None}, {"r2": why, "median_factor": why})
    a, b = np.log(found), np.log(true)
    out = {"r2": measured(a, b)["r2"], "median_factor": float(np.exp(np.median(np.abs(a - b))))}
    return undefined(out, why_undefined(a, b))


def intervals(
    found: np.ndarray, true: np.ndarray, resamples: int = 1000, seed: int = 0
) -> dict[str, list[float]]:
    """95 % intervals of each of ``FIGURES`` over draws of the examples, with replacement."""
    n, rng = len(true), np.random.default_rng(seed)
    errors, middle = found - true, true - true.mean()  # around 0 a spread of nothing is 0, not rounding
    drawn: dict[str, list[np.ndarray]] = {key: [] for key in FIGURES}
    with np.errstate(invalid="ignore", divide="ignore"):
        for start in range(0, resamples, DRAWN):
            size = min(DRAWN, resamples - start)
            counts = rng.multinomial(n, np.full(n, 1 / n), size).astype(np.float64)  # [r, n]
            mse = counts @ errors**2 / n
            mean = counts @ middle / n
            drawn["mse"].append(mse)
            drawn["mae"].append(counts @ np.abs(errors) / n)
            drawn["r2"].append(1 - mse / (counts @ middle**2 / n - mean**2))
            drawn["pearson"].append(correlation(counts, found[None], true[None]))
            ranks = midranks(found, counts), midranks(true, counts)
            drawn["spearman"].append(correlation(counts, *ranks))
    out = {}
    for key, parts in drawn.items():
        values = np.concatenate(parts)
        values = values[np.isfinite(values)]  # a draw of equal numbers has no correlation
        if len(values):
            out[key] = np.quantile(values, [0.025, 0.975]).astype(float).tolist()
    return out


def correlation(counts: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Pearson of examples that are drawn ``counts`` ``[r, n]`` times each, ``[r]``."""
    n = counts.sum(1, keepdims=True)
    a = a - (counts * a).sum(1, keepdims=True) / n
    b = b - (counts * b).sum(1, keepdims=True) / n
    norm = (counts * a * a).sum(1) * (counts * b * b).sum(1)
    return (counts * a * b).sum(1) / np.sqrt(norm)


def midranks(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The rank of each value among those drawn, ties at their mean, ``[r, n]``."""
    _, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(group[order]) > 0])
    each = np.add.reduceat(counts[:, order], starts, axis=1)  # [r, distinct]
    return (each.cumsum(1) - (each - 1) / 2)[:, group]


# --- intervals ------------------------------------------------------------------------------------


def check_coverage(coverage: float) -> float:
    """Raises ConfigError for what is no share between 0 and 1."""
    if isinstance(coverage, bool) or not isinstance(coverage, int | float) or not 0 < coverage < 1:
        what = f"coverage = {coverage!r} is no share"
        raise ConfigError(what, where="coverage", fix="Give one between 0 and 1, such as 0.9")
    return float(coverage)


def examples_needed(coverage: float) -> int:
    """The fewest held-out examples of which intervals with that coverage can be told."""
    n = max(1, math.floor(check_coverage(coverage) / (1 - coverage)) - 1)
    while rank_of(n, coverage) > n:
        n += 1
    return n


def rank_of(n: int, coverage: float) -> int:
    """``ceil((n + 1) coverage)``; what is whole but for the last bits of a float stays whole."""
    return math.ceil(round((n + 1) * coverage, 9))


def half_width(errors: ArrayLike, coverage: float = COVERAGE) -> float:
    """How far an interval reaches on either side.

    Args:
        errors: [n] absolute errors of examples that the model has not learned from.

    Raises:
        ConfigError: no share, or too few errors for it: the interval would have no end.
    """
    sizes = np.sort(np.asarray(errors, np.float64))
    rank = rank_of(len(sizes), check_coverage(coverage))
    if rank > len(sizes):
        what = f"{len(sizes)} held-out examples tell no interval that covers {coverage:.4g}"
        fix = f"Calibrate on {examples_needed(coverage)} or more, or ask for a smaller coverage"
        raise ConfigError(what, where="coverage", fix=fix)
    return float(sizes[rank - 1])


def errors_on(scale: Scale, found: ArrayLike, true: ArrayLike) -> np.ndarray:
    """Absolute errors ``[n]`` of predicted numbers on the scale that they are learned on."""
    return np.abs(on_scale(found, scale) - on_scale(true, scale))


def bounds_around(numbers: ArrayLike, half: float, scale: Scale = "linear") -> np.ndarray:
    """Lower and upper bounds ``[n, 2]`` that reach ``half`` to either side on that scale."""
    middle = on_scale(numbers, scale)
    return off_scale(np.stack([middle - half, middle + half], 1), scale)


def coverage_figures(
    errors: ArrayLike,
    found: ArrayLike,
    true: ArrayLike,
    levels: tuple[float, ...] = COVERAGES,
    scale: Scale = "linear",
) -> list[dict[str, Any]]:
    """Of each coverage: the share of judged numbers in their intervals, and how wide these are, for JSON.

    Args:
        errors: as ``half_width`` has them.
        found, true: [m] of the judged examples.
        scale: of the errors.

    Returns:
        ``asked``, ``covered`` and ``width``; both None where there are too few errors (``needed`` says how
        many it takes). Of a scale of logarithms widths differ: ``width`` is their median, and ``factor`` says
        how many times the number an interval reaches up and down.
    """
    misses = errors_on(scale, found, true)
    out = []
    for level in levels:
        record: dict[str, Any] = {"asked": level, "covered": None, "width": None}
        if len(np.asarray(errors)) >= (needed := examples_needed(level)):
            half = half_width(errors, level)
            record |= {"covered": float((misses <= half).mean()), "width": 2 * half}
            if scale == "log":
                ends = bounds_around(found, half, scale)
                record |= {"width": float(np.median(ends[:, 1] - ends[:, 0])), "factor": math.exp(half)}
        else:
            record["needed"] = needed
        out.append(record)
    return out
