"""Differences of trainings that were judged on the same examples over the same seeds."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glassformer.evaluate.compare import holm


def interval(values: Sequence[float]) -> list[float]:
    """Of the mean, 95 %: Student's t over the seeds."""
    from scipy.stats import t

    mean = statistics.fmean(values)
    half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return [mean - half, mean + half]


def resampled(values: Sequence[float] | np.ndarray, draws: int = 2_000) -> dict[str, Any]:
    """The mean of some values, and its 95 % interval by the bootstrap."""
    picked = np.random.default_rng(0).integers(0, len(values), (draws, len(values)))
    low, high = np.quantile(np.asarray(values)[picked].mean(1), (0.025, 0.975))
    return {"mean": float(np.mean(values)), "interval": [float(low), float(high)]}


def paired(apart: np.ndarray) -> dict[str, Any]:
    """A difference in points, its 95 % interval and p, of ``[S, n]`` differences by seed and example.

    The interval is Student's t over the seeds, with the variance of the examples' draw added.
    """
    from scipy.stats import t

    seeds, n = apart.shape
    by_seed = 100 * apart.mean(1)
    examples = 100 * apart.mean(0).std() / n**0.5
    error = max((statistics.variance(by_seed.tolist()) / seeds + examples**2) ** 0.5, 1e-9)
    mean, half = float(by_seed.mean()), float(t.ppf(0.975, seeds - 1)) * error
    return {
        "points": mean, "interval": [mean - half, mean + half], "by_seed": by_seed.tolist(), "n": n,
        "p": float(2 * t.sf(abs(mean) / error, seeds - 1)),
    }  # fmt: skip


def corrected(found: Mapping[str, dict[str, Any]]) -> None:
    """Adds ``p_holm`` to the differences of one question."""
    for one, p in zip(found.values(), holm([f["p"] for f in found.values()]), strict=True):
        one["p_holm"] = p
