"""Metrics and paired tests of a study's arms; the bootstrap draws the same examples for every arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glassformer.config import nearest
from glassformer.errors import BadValueError
from glassformer.evaluate.compare import bootstrap_means, bootstrap_p, bounds, holm
from glassformer.study.arms import Job
from glassformer.targets.target import Judged

Runs = Mapping[str, Mapping[int, tuple[Job, Judged]]]
LEVEL = 0.05  # significance level, for corrected p-values


def measure_for(first: Judged, recipes: Sequence[Any], asked: str | None = None) -> str:
    """The metric to compare arms by: ``asked``, or else the one that selects weights in their recipes."""
    able = first.target.compared
    if asked is None:
        return first.target.measure_for({recipe.train.monitor for recipe in recipes})
    if asked not in able:
        raise BadValueError(f"no measure {asked!r} of these runs", where="measure", fix=nearest(asked, able))
    return asked


def add_tests(
    arms: list[dict[str, Any]],
    runs: Runs,
    baseline: str,
    first: Judged,
    resamples: int,
    measure: str,
    simple: Mapping[str, Judged] | None = None,
) -> dict[str, dict[str, Any]]:
    """Add all metrics with intervals to the arms, and tests of ``measure`` against the baseline arm.

    Args:
        simple: predictions of simple models.

    Returns:
        For each of ``simple`` the ``difference`` of ``measure`` from the baseline arm, with its interval.
        They are not tested, since the correction for multiple comparisons is for the arms.
    """
    place = next(i for i, arm in enumerate(arms) if arm["name"] == baseline)
    answered = [[a for _, a in runs[arm["name"]].values()] for arm in arms]
    answered += [[a] for a in (simple or {}).values()]
    target, n, differences = first.target, first.drawn, {}
    each = [target.statistics(own) for own in answered]
    for key in target.compared:
        statistics = [own[key] for own in each]
        drawn = bootstrap_means(statistics, n, resamples=resamples)
        whole = [np.asarray(s(np.ones((1, n), np.float32)), float)[:, 0] for s in statistics]
        for i, arm in enumerate(arms):
            mean = float(whole[i].mean())
            ends = target.interval(key, answered[i], mean, bounds(drawn[i]), resamples)
            arm[key] = spread(whole[i].tolist()) | {"interval": ends}
        for i, values in enumerate(whole):
            if i == place:
                continue
            resampled = drawn[i] - drawn[place]
            found: dict[str, Any] = {"difference": float(values.mean() - whole[place].mean())}
            found["difference_interval"] = bounds(resampled)
            if i < len(arms):
                arms[i][key] |= found | {"bootstrap_p": bootstrap_p(resampled)}
            elif key == measure:
                differences[list(simple or {})[i - len(arms)]] = found
    _correct(arms, runs, baseline, first, resamples, measure)
    return differences


def _correct(
    arms: list[dict[str, Any]], runs: Runs, baseline: str, first: Judged, resamples: int, measure: str
) -> None:
    """Test each arm against the baseline, and correct the p-values for multiple comparisons (Holm).

    With one seed per arm, the test is the target's own for two models (such as McNemar's) if there is one for
    the metric; otherwise the bootstrap, which includes the scatter over seeds.
    """
    theirs, others = runs[baseline], [arm for arm in arms if arm["name"] != baseline]
    for arm in others:
        ours = runs[arm["name"]]
        shared = [s for s in ours if s in theirs]
        pairs = [(ours[s][1], theirs[s][1]) for s in shared]
        name, found, decides = first.target.tests(measure, pairs, resamples)
        tests = [{"seed": seed} | test for seed, test in zip(shared, found, strict=bool(found))]
        arm |= {"mcnemar": [], name: tests}
        single = len(ours) == len(theirs) == len(shared) == 1 and decides
        arm["test"] = name if single else "bootstrap"
        arm["p"] = tests[0]["p"] if single else arm[measure]["bootstrap_p"]
    for arm, corrected in zip(others, holm([arm["p"] for arm in others]), strict=True):
        arm["p_holm"] = corrected
        arm["significant"] = corrected < LEVEL


def spread(values: Sequence[float | None]) -> dict[str, Any]:
    """The values over seeds without None, with mean, standard deviation, minimum and maximum."""
    known = [v for v in values if v is not None]
    if not known:
        return {"values": [], "mean": None, "sd": None, "min": None, "max": None}
    return {
        "values": known,
        "mean": float(np.mean(known)),
        "sd": float(np.std(known, ddof=1)) if len(known) > 1 else None,
        "min": float(np.min(known)),
        "max": float(np.max(known)),
    }
