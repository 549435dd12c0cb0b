"""Figures and paired tests of arms, from what their runs answered: every arm is drawn the same examples."""

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
LEVEL = 0.05  # of significance, after correction


def measure_for(first: Judged, recipes: Sequence[Any], asked: str | None = None) -> str:
    """What the arms are compared by: the one that is asked for, else what their recipes choose weights by.

    Raises:
        ConfigError: there is no such measure of these answers.
    """
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
    """Add every measure with its interval to the arms, and the tests of ``measure`` against the baseline.

    Args:
        simple: what simple models answered.

    Returns:
        Of each of ``simple`` the ``difference`` of ``measure`` from the baseline, with its interval. They are
        not tested: the correction for several comparisons is for the arms.
    """
    place = next(i for i, arm in enumerate(arms) if arm["name"] == baseline)
    answered = [[a for _, a in runs[arm["name"]].values()] for arm in arms]
    answered += [[a] for a in (simple or {}).values()]
    target, n, beside = first.target, first.drawn, {}
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
            apart = drawn[i] - drawn[place]
            found: dict[str, Any] = {"difference": float(values.mean() - whole[place].mean())}
            found["difference_interval"] = bounds(apart)
            if i < len(arms):
                arms[i][key] |= found | {"bootstrap_p": bootstrap_p(apart)}
            elif key == measure:
                beside[list(simple or {})[i - len(arms)]] = found
    _correct(arms, runs, baseline, first, resamples, measure)
    return beside


def _correct(
    arms: list[dict[str, Any]], runs: Runs, baseline: str, first: Judged, resamples: int, measure: str
) -> None:
    """The test of each arm beside the baseline, and its p among all of them.

    One seed each: the target's own test of two models, where it is one of the measure. More seeds, or another
    measure: the bootstrap, with the seeds' scatter.
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
    """Values of seeds, their mean and how far they scatter; those that are None are left out."""
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
