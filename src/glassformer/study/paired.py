"""Metrics and paired tests of a study's variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glassformer.config import nearest
from glassformer.errors import BadValueError
from glassformer.evaluate.compare import bootstrap_means, bootstrap_p, bounds, holm
from glassformer.study.arms import Job
from glassformer.targets.target import RunPredictions

Runs = Mapping[str, Mapping[int, tuple[Job, RunPredictions]]]
LEVEL = 0.05  # significance level, for corrected p-values


def measure_for(first: RunPredictions, recipes: Sequence[Any], requested: str | None = None) -> str:
    """The metric to compare variants by: ``requested``, or the one that selects weights in the recipes."""
    metrics = first.target.compared
    if requested is None:
        return first.target.measure_for({recipe.train.monitor for recipe in recipes})
    if requested not in metrics:
        raise BadValueError(
            f"no measure {requested!r} of these runs", where="measure", fix=nearest(requested, metrics)
        )
    return requested


def add_tests(
    arms: list[dict[str, Any]],
    runs: Runs,
    baseline: str,
    first: RunPredictions,
    resamples: int,
    measure: str,
    simple_models: Mapping[str, RunPredictions] | None = None,
) -> dict[str, dict[str, Any]]:
    """Add all metrics with intervals to the variants, and tests of ``measure`` against the baseline variant.

    The bootstrap draws the same examples for every variant.

    Returns:
        For each simple model the ``difference`` of ``measure`` from the baseline variant, with its interval.
        Simple models are not tested, since the correction for multiple comparisons is for the variants.
    """
    baseline_index = next(i for i, arm in enumerate(arms) if arm["name"] == baseline)
    predictions = [[run for _, run in runs[arm["name"]].values()] for arm in arms]
    predictions += [[run] for run in (simple_models or {}).values()]
    target, n, differences = first.target, first.num_units, {}
    all_statistics = [target.statistics(model) for model in predictions]
    for key in target.compared:
        statistics = [model[key] for model in all_statistics]
        resampled_means = bootstrap_means(statistics, n, resamples=resamples)
        means = [np.asarray(s(np.ones((1, n), np.float32)), float)[:, 0] for s in statistics]
        for i, arm in enumerate(arms):
            mean = float(means[i].mean())
            interval = target.interval(key, predictions[i], mean, bounds(resampled_means[i]), resamples)
            arm[key] = summary_statistics(means[i].tolist()) | {"interval": interval}
        for i, values in enumerate(means):
            if i == baseline_index:
                continue
            resampled = resampled_means[i] - resampled_means[baseline_index]
            entry: dict[str, Any] = {"difference": float(values.mean() - means[baseline_index].mean())}
            entry["difference_interval"] = bounds(resampled)
            if i < len(arms):
                arms[i][key] |= entry | {"bootstrap_p": bootstrap_p(resampled)}
            elif key == measure:
                differences[list(simple_models or {})[i - len(arms)]] = entry
    _add_corrected_tests(arms, runs, baseline, first, resamples, measure)
    return differences


def _add_corrected_tests(
    arms: list[dict[str, Any]], runs: Runs, baseline: str, first: RunPredictions, resamples: int, measure: str
) -> None:
    """Test each variant against the baseline, and correct the p-values for multiple comparisons (Holm).

    With one seed per variant, the test is that of the target (such as McNemar's), if it has one for the
    metric. Otherwise it is the bootstrap, which includes the variation between seeds.
    """
    baseline_runs, compared = runs[baseline], [arm for arm in arms if arm["name"] != baseline]
    for arm in compared:
        arm_runs = runs[arm["name"]]
        shared_seeds = [s for s in arm_runs if s in baseline_runs]
        pairs = [(arm_runs[s][1], baseline_runs[s][1]) for s in shared_seeds]
        name, results, is_of_measure = first.target.tests(measure, pairs, resamples)
        tests = [{"seed": seed} | test for seed, test in zip(shared_seeds, results, strict=bool(results))]
        arm |= {"mcnemar": [], name: tests}
        uses_test = len(arm_runs) == len(baseline_runs) == len(shared_seeds) == 1 and is_of_measure
        arm["test"] = name if uses_test else "bootstrap"
        arm["p"] = tests[0]["p"] if uses_test else arm[measure]["bootstrap_p"]
    for arm, corrected in zip(compared, holm([arm["p"] for arm in compared]), strict=True):
        arm["p_holm"] = corrected
        arm["significant"] = corrected < LEVEL


def summary_statistics(values: Sequence[float | None]) -> dict[str, Any]:
    """The values over seeds without None, and their mean, standard deviation, minimum and maximum."""
    present = [v for v in values if v is not None]
    if not present:
        return {"values": [], "mean": None, "sd": None, "min": None, "max": None}
    return {
        "values": present,
        "mean": float(np.mean(present)),
        "sd": float(np.std(present, ddof=1)) if len(present) > 1 else None,
        "min": float(np.min(present)),
        "max": float(np.max(present)),
    }
