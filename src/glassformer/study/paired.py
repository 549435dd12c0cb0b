"""Figures and paired tests of arms, from what their runs answered: every arm is drawn the same examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from glassformer.config import nearest
from glassformer.errors import ConfigError
from glassformer.evaluate.answers import MEASURE as F1
from glassformer.evaluate.compare import (
    Statistic,
    accuracy_of,
    answer_shares,
    bootstrap_means,
    bootstrap_p,
    bounds,
    holm,
    macro_f1_of,
    macro_f1_of_sets,
    mcnemar,
    share_of,
    span_f1_of,
)
from glassformer.evaluate.intervals import macro_f1_interval_of_sets, share_interval
from glassformer.evaluate.number_compare import LIMITS, MEASURES, number_statistic, permutation
from glassformer.evaluate.tags import MEASURE
from glassformer.study.answers import Answers
from glassformer.study.arms import Job
from glassformer.tasks.labelled import measure_of

Runs = Mapping[str, Mapping[int, tuple[Job, Answers]]]
LEVEL = 0.05  # of significance, after correction


def measures_for(first: Answers) -> tuple[str, ...]:
    """What runs that answer so can be compared by."""
    if first.cosines:
        return ("spearman", "pearson")
    if first.numbers:
        return tuple(MEASURES)
    if first.shares is not None:
        return (F1, "accuracy", "macro_f1")
    return (MEASURE, "accuracy", "macro_f1") if first.spans is not None else ("accuracy", "macro_f1")


def measure_for(first: Answers, recipes: Sequence[Any], asked: str | None = None) -> str:
    """What the arms are compared by: the one that is asked for, else what their recipes choose weights by.

    Raises:
        ConfigError: there is no such measure of these answers.
    """
    able = measures_for(first)
    if asked is not None:
        if asked not in able:
            raise ConfigError(
                f"no measure {asked!r} of these runs", where="measure", fix=nearest(asked, able)
            )
        return asked
    if first.cosines:
        return "spearman"
    if first.numbers:
        chosen = {recipe.train.monitor for recipe in recipes}
        return chosen.pop() if len(chosen) == 1 and chosen <= set(able) else "r2"
    if first.spans is not None or first.shares is not None:
        return MEASURE if first.shares is None else F1
    chosen = {"macro_f1" if first.targets.ndim == 2 else measure_of(recipe) for recipe in recipes}
    return chosen.pop() if len(chosen) == 1 else "accuracy"


def add_tests(
    arms: list[dict[str, Any]],
    runs: Runs,
    baseline: str,
    first: Answers,
    resamples: int,
    measure: str,
    simple: Mapping[str, Answers] | None = None,
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
    each = [_statistics(own, first) for own in answered]
    n, beside = first.drawn, {}
    for key in measures_for(first):
        statistics = [own[key] for own in each]
        drawn = bootstrap_means(statistics, n, resamples=resamples)
        whole = [np.asarray(s(np.ones((1, n), np.float32)), float)[:, 0] for s in statistics]
        for i, arm in enumerate(arms):
            ends = np.clip(bounds(drawn[i]), *LIMITS.get(key, (0, 1))).tolist()
            if key == "macro_f1" and first.spans is None and first.shares is None:
                ends = _macro_f1_interval(answered[i], first, resamples)
            elif key not in MEASURES:
                ends = share_interval(float(whole[i].mean()), n, ends)
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


def _macro_f1_interval(own: Sequence[Answers], first: Answers, resamples: int) -> list[float]:
    """Of one arm's mean over its seeds: as a run's own figures have it, with the seeds' scatter."""
    y, guesses = first.targets, np.stack([a.predicted for a in own])
    if y.ndim == 2:
        return macro_f1_interval_of_sets(y, guesses, resamples=resamples)
    one_hot = np.eye(len(first.classes), dtype=np.float32)
    return macro_f1_interval_of_sets(one_hot[y], one_hot[guesses], every=False, resamples=resamples)


def _correct(
    arms: list[dict[str, Any]], runs: Runs, baseline: str, first: Answers, resamples: int, measure: str
) -> None:
    """The test of each arm beside the baseline, and its p among all of them.

    One seed each: McNemar's test of the two models, which is one of accuracies of labels, and of numbers a
    permutation test. More seeds, another measure, and words of sentences or questions on texts, which are not
    right and wrong by themselves: the bootstrap, with the seeds' scatter.
    """
    theirs, others = runs[baseline], [arm for arm in arms if arm["name"] != baseline]
    for arm in others:
        ours = runs[arm["name"]]
        shared = [s for s in ours if s in theirs]
        pairs = [(s, ours[s][1], theirs[s][1]) for s in shared]
        arm["mcnemar"] = []
        if first.numbers:
            name, key = "permutation", True
            arm[name] = tests = [
                {"seed": s}
                | asdict(permutation(measure, first.targets, a.predicted, b.predicted, resamples=resamples))
                for s, a, b in pairs
            ]
        else:
            alone = first.spans is None and first.shares is None
            name, key = "mcnemar", measure == "accuracy" and alone
            arm[name] = tests = [
                {"seed": s} | asdict(mcnemar(right(a, first), right(b, first)))
                for s, a, b in (pairs if alone else ())
            ]
        single = len(ours) == len(theirs) == len(shared) == 1 and key
        arm["test"] = name if single else "bootstrap"
        arm["p"] = tests[0]["p"] if single else arm[measure]["bootstrap_p"]
    for arm, corrected in zip(others, holm([arm["p"] for arm in others]), strict=True):
        arm["p_holm"] = corrected
        arm["significant"] = corrected < LEVEL


def _statistics(own: Sequence[Answers], first: Answers) -> dict[str, Statistic]:
    """Each measure of one arm, whose seeds gave ``own``, under resampling."""
    y = first.targets
    if first.spans is not None:
        found = [a.spans for a in own if a.spans is not None]
        counts = [s.true for s in found], [s.made for s in found], [s.exact for s in found]
        return {
            MEASURE: span_f1_of(*counts),
            "accuracy": share_of(np.stack([s.right for s in found]), found[0].words),
            "macro_f1": span_f1_of(*counts, macro=True),
        }
    if first.shares is not None:
        assert first.contexts is not None
        found = answer_shares([[a.shares for a in own if a.shares is not None]], first.contexts)
        return {key: statistics[0] for key, statistics in found.items()}
    guesses = np.stack([a.predicted for a in own])  # [S, n], of several labels [S, n, K]
    if first.numbers:
        return {key: number_statistic(key, y, guesses) for key in measures_for(first)}
    macro = macro_f1_of_sets(y, guesses) if y.ndim == 2 else macro_f1_of(y, guesses, len(first.classes))
    return {"accuracy": accuracy_of(np.stack([right(a, first) for a in own])), "macro_f1": macro}


def right(answers: Answers, first: Answers) -> np.ndarray:
    """Whether each answer is right ``[n]``; of several labels, all of them."""
    same = answers.predicted == first.targets
    return same.all(-1) if first.targets.ndim == 2 else same


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
