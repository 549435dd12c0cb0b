"""How often does the interval of a calibration error hold the truth? Coverage of three kinds on simulated answers.

    .venv/bin/python -m benchmarks.quality.error_interval [--trials 200] [--resamples 150]

Answers state a probability between 0.5 and 1 and are right with that chance, less a constant: so their true calibration
error, over the same 15 bins, is known. Data sets of several sizes are drawn, and each kind of interval says from one of
them where the truth lies: ``basic`` is the bootstrap's, reflected about the estimate; ``percentile`` its plain quantiles;
``ours`` is ``error_interval``. Asked: in 95 % of them. Results: ``benchmarks/results/error-intervals.json``.
"""

import argparse
from typing import Any

import numpy as np

from benchmarks.harness.command import command
from glassformer.evaluate.calibrate import BINS, error_interval

SIZES = (100, 300, 1000, 3000)
OFFS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)  # by which the stated probability is too high
ENDS = (0.025, 0.975)


def bins_of(stated: np.ndarray) -> np.ndarray:
    return np.clip(np.ceil(stated * BINS).astype(int) - 1, 0, BINS - 1)


def errors(stated: np.ndarray, right: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """The calibration error of each row of ``drawn`` ``[r, n]``, places of examples."""
    gaps, places = (stated - right)[drawn], bins_of(stated)[drawn]
    each = [np.abs(np.bincount(p, g, BINS)).sum() for p, g in zip(places, gaps, strict=True)]
    return np.array(each) / drawn.shape[1]


def stated_by(rng: np.random.Generator, n: int) -> np.ndarray:
    """Probabilities as a classifier of two classes gives them: most are high."""
    return 0.5 + 0.5 * rng.beta(4, 1.5, n)


def coverage(n: int, off: float, options: argparse.Namespace) -> dict[str, Any]:
    """The share of data sets whose interval holds the true error, its mean width, and how often it begins above 0."""
    rng = np.random.default_rng(options.seed)
    many = stated_by(rng, 2_000_000)
    truth = float(np.abs(np.bincount(bins_of(many), np.minimum(off, many), BINS)).sum() / len(many))
    found: dict[str, list[tuple[float, float]]] = {"percentile": [], "basic": [], "ours": []}
    estimates = []
    for trial in range(options.trials):
        stated = stated_by(rng, n)
        right = rng.random(n) < stated - off
        everything = np.arange(n)[None]
        estimates.append(estimate := float(errors(stated, right, everything)[0]))
        low, high = np.quantile(errors(stated, right, rng.integers(0, n, (options.resamples, n))), ENDS)
        found["percentile"].append((low, high))
        found["basic"].append((max(2 * estimate - high, 0.0), max(2 * estimate - low, 0.0)))
        ours = error_interval(stated, right, resamples=options.resamples, seed=trial)
        found["ours"].append((ours[0], ours[1]))
    kinds = {}
    for kind, ends in found.items():
        low, high = np.array(ends).T
        holds = (low <= truth + 1e-12) & (truth <= high)
        shares = {"coverage": holds, "width": high - low, "above_0": low > 0}
        kinds[kind] = {key: float(value.mean()) for key, value in shares.items()}
    return {"n": n, "off": off, "truth": truth, "estimate": float(np.mean(estimates)), "kinds": kinds}


@command(
    "coverage of the calibration error's interval", out="error-intervals", trials=200, resamples=150, seed=0
)
def main(options: Any) -> dict[str, Any]:
    settings = []
    for n in SIZES:
        for off in OFFS:
            settings.append(coverage(n, off, options))
            kinds = settings[-1]["kinds"]
            said = ", ".join(f"{kind} {own['coverage']:.1%}" for kind, own in kinds.items())
            print(f"{n:,} examples, {off:g} too sure: {said}", flush=True)
    worst = {kind: min(own["kinds"][kind]["coverage"] for own in settings) for kind in settings[0]["kinds"]}
    about = {key: getattr(options, key) for key in ("trials", "resamples", "seed")}
    return about | {"settings": settings, "lowest_coverage": worst}
