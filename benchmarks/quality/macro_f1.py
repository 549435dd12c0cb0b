"""How often do intervals of macro-F1 hold the truth? Coverage of several kinds on simulated classifiers.

    .venv/bin/python -m benchmarks.quality.macro_f1 [--trials 1000] [--resamples 1000]

Classes of 2, 5, 20 and 200 examples (and other mixtures) have a known chance of each answer, so the macro-F1 over all
examples of their kind is known. Test sets are drawn from them, with the counts of the classes fixed (a stratified split)
or drawn too, and each kind of interval says from one test set where the truth lies. Asked: in 95 % of them.
Also: how often the paired bootstrap finds a difference between two models of equal macro-F1, and the coverage of entity
F1 over resampled sentences. Results: ``benchmarks/results/macro-f1-intervals.json``.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import norm

from benchmarks.harness.command import command
from glassformer.evaluate.compare import (
    bootstrap_means,
    bootstrap_p,
    macro_f1_statistic,
    multilabel_f1_statistic,
)
from glassformer.evaluate.intervals import macro_f1_interval, multilabel_f1_interval

ENDS = (0.025, 0.975)
Kind = Callable[[np.ndarray, np.random.Generator, int], Sequence[float]]
RARE = (2, 5, 20, 200)
FIFTEEN = (1, 1, 1, 2, 2, 3, 1, 2, 1, 1, 20, 25, 22, 30, 15)
# Examples of each class, and the share of each that the model has right.
MIXTURES: dict[str, tuple[Sequence[int], Sequence[float]]] = {
    "2, 5, 20, 200: good": (RARE, (0.9, 0.9, 0.9, 0.97)),
    "2, 5, 20, 200: fair": (RARE, (0.5, 0.6, 0.8, 0.95)),
    "2, 5, 20, 200: poor where rare": (RARE, (0.1, 0.2, 0.6, 0.95)),
    "2, 5, 20, 200: nearly all right": (RARE, (0.97, 0.97, 0.99, 0.995)),
    "ten of 1 to 3, five of 15 to 30: fair": (FIFTEEN, (0.6,) * 10 + (0.85,) * 5),
    "ten of 1 to 3, five of 15 to 30: poor": (FIFTEEN, (0.1,) * 10 + (0.85,) * 5),
    "60 of 3": ((3,) * 60, (0.7,) * 60),
    "20, 200": ((20, 200), (0.7, 0.95)),
    "100, 100, 100": ((100,) * 3, (0.8, 0.7, 0.9)),
    "80, 700, 800": ((80, 700, 800), (0.5, 0.9, 0.9)),
}

COMPARED = ("2, 5, 20, 200: good", "2, 5, 20, 200: fair", "60 of 3", "100, 100, 100")  # two equal models


def chances(counts: Sequence[int], recalls: Sequence[float]) -> np.ndarray:
    """What a class is taken for ``[K, K]``: itself, or another one in proportion to its examples."""
    out = np.tile(np.asarray(counts, float), (len(counts), 1))
    np.fill_diagonal(out, 0)
    out *= (1 - np.asarray(recalls))[:, None] / out.sum(1, keepdims=True)
    return out + np.diag(recalls)


def macro_f1(tables: np.ndarray, kept: np.ndarray | None = None) -> np.ndarray:
    """Of confusion matrices ``[..., K, K]``, over the classes seen or predicted in each, or over ``kept``."""
    given = tables.sum(-1) + tables.sum(-2)
    f1 = 2 * np.diagonal(tables, axis1=-2, axis2=-1) / np.maximum(given, 1e-12)
    counted = given > 0 if kept is None else kept
    return (f1 * counted).sum(-1) / np.maximum(counted.sum(-1), 1)


def over_examples(table: np.ndarray, rng: np.random.Generator, resamples: int) -> np.ndarray:
    n = int(table.sum())
    return rng.multinomial(n, table.ravel() / n, resamples).reshape(resamples, *table.shape)


def within_classes(table: np.ndarray, rng: np.random.Generator, resamples: int) -> np.ndarray:
    rows = [r / max(r.sum(), 1) + (r.sum() == 0) / len(r) for r in table]
    return np.stack([rng.multinomial(r.sum(), p, resamples) for r, p in zip(table, rows)], 1)


def percentile(table: np.ndarray, rng: np.random.Generator, resamples: int) -> Sequence[float]:
    """The percentiles over resampled examples: what was there before."""
    return np.quantile(macro_f1(over_examples(table, rng, resamples)), ENDS)


def stratified(table: np.ndarray, rng: np.random.Generator, resamples: int) -> Sequence[float]:
    """The percentiles over examples that are resampled class by class."""
    seen = table.sum(0) + table.sum(1) > 0
    return np.quantile(macro_f1(within_classes(table, rng, resamples), seen), ENDS)


def basic(table: np.ndarray, rng: np.random.Generator, resamples: int) -> Sequence[float]:
    """The percentiles turned around the figure (Davison and Hinkley, 1997)."""
    low, high = percentile(table, rng, resamples)
    return np.clip([2 * macro_f1(table) - high, 2 * macro_f1(table) - low], 0, 1)


def bca(table: np.ndarray, rng: np.random.Generator, resamples: int) -> Sequence[float]:
    """Bias-corrected and accelerated (Efron, 1987); the jackknife leaves out an example of each cell."""
    drawn, figure = macro_f1(over_examples(table, rng, resamples)), macro_f1(table)
    below = ((drawn < figure).sum() + (drawn == figure).sum() / 2) / resamples
    bias = norm.ppf(np.clip(below, 0.5 / resamples, 1 - 0.5 / resamples))
    true, made = np.nonzero(table)
    without = np.repeat(table[None], len(true), 0).astype(float)
    without[np.arange(len(true)), true, made] -= 1
    times, left = table[true, made], macro_f1(without)
    apart = (left * times).sum() / times.sum() - left
    spread = (times * apart**2).sum()
    bend = (times * apart**3).sum() / (6 * spread**1.5) if spread > 0 else 0.0
    z = bias + norm.ppf(ENDS)
    return np.quantile(drawn, norm.cdf(bias + z / (1 - bend * z)))


def pivoted(table: np.ndarray, rng: np.random.Generator, resamples: int) -> Sequence[float]:
    """A bootstrap from rows with half an example right and half a one wrong added, turned around the figure."""
    seen, size = table.sum(0) + table.sum(1) > 0, len(table)
    extra = np.where(np.eye(size, dtype=bool), 0.5, 0.5 / (size - 1)) * seen * (table.sum(1) > 0)[:, None]
    rates = table + extra
    rates = rates / np.maximum(rates.sum(1, keepdims=True), 1e-12)
    rates[table.sum(1) == 0] = 1 / size
    drawn = np.stack([rng.multinomial(n, p, resamples) for n, p in zip(table.sum(1), rates, strict=True)], 1)
    apart = macro_f1(drawn, seen) - macro_f1(rates * table.sum(1, keepdims=True), seen)
    low, high = np.quantile(apart, ENDS)
    figure = macro_f1(table)
    return np.clip([min(figure - high, figure), max(figure - low, figure)], 0, 1)


def delta(table: np.ndarray, rng: np.random.Generator, resamples: int) -> Sequence[float]:
    """The normal interval of the delta method (Takahashi and others, 2022)."""
    given, hits = table.sum(0) + table.sum(1), np.diag(table)
    slope = np.divide(2 * hits, given**2, out=np.zeros(len(table)), where=given > 0)
    adds = -(slope[:, None] + slope) + np.diag(np.divide(2, given, out=np.zeros(len(table)), where=given > 0))
    half = 1.959964 * np.sqrt((table * adds**2).sum()) / (given > 0).sum()
    return np.clip([macro_f1(table) - half, macro_f1(table) + half], 0, 1)


def ours(table: np.ndarray, rng: np.random.Generator, resamples: int) -> Sequence[float]:
    """Wilson's intervals of the classes put together, as runs have it."""
    return macro_f1_interval(table, resamples=resamples)


KINDS: dict[str, Kind] = {
    "percentile": percentile,
    "stratified": stratified,
    "basic": basic,
    "BCa": bca,
    "smoothed, pivoted": pivoted,
    "delta method": delta,
    "Wilson, put together": ours,
}


def judged(bounds: Sequence[Sequence[float]], truth: float, figures: Sequence[float]) -> dict[str, float]:
    """Shares of intervals that hold the truth, lie below it or above it, and hold the figure; the mean width."""
    low, high = np.array(bounds, float).T
    inside = (low <= np.array(figures) + 1e-9) & (high >= np.array(figures) - 1e-9)
    shares = dict(covered=(low <= truth) & (truth <= high), too_low=high < truth, too_high=low > truth)
    shares |= dict(holds_figure=inside, width=high - low)
    return {name: float(values.mean()) for name, values in shares.items()}


def coverage(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each mixture and way of drawing, with each kind of interval."""
    rows = []
    for name, (counts, recalls) in MIXTURES.items():
        rates, n = chances(counts, recalls), sum(counts)
        truth = float(macro_f1(rates * np.array(counts)[:, None]))
        for design in ("fixed", "drawn"):
            rng = np.random.default_rng(options.seed)
            tables = []
            for _ in range(options.trials):
                own = counts if design == "fixed" else rng.multinomial(n, np.array(counts) / n)
                tables.append(np.stack([rng.multinomial(k, row) for k, row in zip(own, rates, strict=True)]))
            figures, found = [float(macro_f1(table)) for table in tables], {}
            for kind, bounds_of in KINDS.items():
                started = time.perf_counter()
                bounds = [bounds_of(table, rng, options.resamples) for table in tables]
                took = 1000 * (time.perf_counter() - started) / len(tables)
                found[kind] = judged(bounds, truth, figures) | {"milliseconds": round(took, 2)}
            about = {"mixture": name, "counts": design, "truth": truth, "mean": float(np.mean(figures))}
            rows.append(about | {"kinds": found})
            cells = ", ".join(f"{kind} {told['covered']:.1%}" for kind, told in found.items())
            print(f"{name}, counts {design}: {cells}", flush=True)
    return rows


def several_labels(options: argparse.Namespace) -> dict[str, Any]:
    """The same of four labels that 2, 5, 20 and 200 of 227 examples have, each on its own."""
    rng, n = np.random.default_rng(options.seed), sum(RARE)
    share, right = np.array(RARE) / n, np.array([0.5, 0.6, 0.8, 0.95])
    stray = np.array([0.01, 0.01, 0.02, 0.3])
    truth = float(np.mean(2 * share * right / (share + share * right + (1 - share) * stray)))
    bounds: dict[str, list[Any]] = {"percentile": [], "Wilson, put together": []}
    figures = []
    for _ in range(options.trials):
        y = rng.random((n, 4)) < share
        made = np.where(y, rng.random(y.shape) < right, rng.random(y.shape) < stray)
        statistic = multilabel_f1_statistic(y, made[None], include_absent=False)
        seen = np.maximum((y.sum(0) + made.sum(0)), 1)
        figures.append(float((2 * (y & made).sum(0) / seen).mean()))
        drawn = statistic(rng.multinomial(n, np.full(n, 1 / n), options.resamples).astype(np.float32))[0]
        bounds["percentile"].append(np.quantile(drawn, ENDS))
        own = multilabel_f1_interval(y, made[None], resamples=options.resamples)
        bounds["Wilson, put together"].append(own)
    return {"truth": truth, "kinds": {kind: judged(own, truth, figures) for kind, own in bounds.items()}}


def spans(options: argparse.Namespace) -> dict[str, Any]:
    """Entity F1 over resampled sentences: 61 sentences with about one span each, of which four fifths are found."""
    rng, sentences, truth = np.random.default_rng(options.seed), 61, 2 * 0.8 / (1 + 0.8 + 0.2)
    bounds, figures = [], []
    for _ in range(options.trials):
        wanted = rng.poisson(1.0, sentences)
        hits, extra = rng.binomial(wanted, 0.8), rng.poisson(0.2, sentences)
        counts = np.stack([hits, hits + extra, wanted], 1)
        drawn = rng.multinomial(sentences, np.full(sentences, 1 / sentences), options.resamples) @ counts
        bounds.append(np.quantile(2 * drawn[:, 0] / np.maximum(drawn[:, 1] + drawn[:, 2], 1), ENDS))
        total = counts.sum(0)
        figures.append(float(2 * total[0] / (total[1] + total[2])))
    return {"truth": truth, "sentences": sentences} | judged(bounds, truth, figures)


def false_alarms(options: argparse.Namespace) -> dict[str, float]:
    """How often two models with the same chances are told apart at 5 %, by macro-F1."""
    out = {}
    for name in COMPARED:
        counts, recalls = MIXTURES[name]
        rates, rng, alarms = chances(counts, recalls), np.random.default_rng(options.seed), 0
        trials = min(options.trials, 400)
        y = np.repeat(np.arange(len(counts)), counts)
        steps = rates.cumsum(1)[y]
        for trial in range(trials):
            first, second = ((rng.random((len(y), 1)) > steps).sum(1).clip(max=len(counts) - 1) for _ in "ab")
            arms = [macro_f1_statistic(y, own[None], len(counts)) for own in (first, second)]
            drawn = bootstrap_means(arms, len(y), resamples=options.resamples, seed=trial)
            alarms += bootstrap_p(drawn[0] - drawn[1]) < 0.05
        out[name] = alarms / trials
        print(f"{name}: two equal models told apart in {alarms / trials:.1%}", flush=True)
    return out


about = {"trials": 1000, "resamples": 1000, "seed": 0}


@command("coverage of intervals of macro-F1", out="macro-f1-intervals", packages=("scipy",), **about)
def main(options: Any) -> dict[str, Any]:
    return {
        "settings": {key: getattr(options, key) for key in about},
        "asked": 0.95,
        "coverage": coverage(options),
        "several_labels": several_labels(options),
        "entity_f1": spans(options),
        "false_alarms": false_alarms(options),
    }
