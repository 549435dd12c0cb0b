"""Which temperature do few mistakes allow? Ways to choose one, tried where the best one is known.

    .venv/bin/python -m benchmarks.quality.temperature [--draws 400] [--seed 0]

Logits are drawn whose softmax is the true chance of each class, then multiplied by a factor: the temperature
to find. A second world adds mistakes that no logit tells. A validation part of n examples chooses, and all of
the world judges: log loss beyond that of the best temperature, how much surer than right the answers are, and
how often the end of the range is chosen. Ways: ``likeliest`` has the lowest log loss (Guo et al., 2017),
``smoothed`` counts one mistake more that was not made (Platt, 1999), ``bound`` goes below 1 only as far as
the log loss tells from chance, ``one`` keeps 1; ``..., if mistakes`` keeps 1 where no answer was wrong.
"""

import itertools
from typing import Any

import numpy as np
import torch

from benchmarks.harness.command import command
from glassformer.evaluate.calibrate import MAX_TEMPERATURE, MIN_TEMPERATURE, smoothing

TEMPERATURES = np.exp(np.linspace(np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE), 300))
ONE = int(np.abs(np.log(TEMPERATURES)).argmin())
TOLD = 2.706  # twice a difference of summed log losses that chance alone makes in 5 % of draws, one-sided
WORLD = 10_007  # examples that judge
SIZES = (41, 121, 499, 1999)  # examples that choose
FACTORS = (0.3, 0.6, 1.0, 2.0)  # of the logits: below 1 the model is less sure than it may be
# Classes, spread of the true logits, how far one class stands out, share of labels given wrongly.
WORLDS = (
    (2, 2.0, 0.0, 0.0),
    (2, 0.7, 4.0, 0.0),
    (2, 0.7, 7.0, 0.0),
    (5, 4.0, 0.0, 0.0),
    (5, 0.7, 5.0, 0.0),
    (5, 0.7, 8.0, 0.0),
    (2, 0.7, 7.0, 0.01),
    (5, 0.7, 8.0, 0.01),
)


World = tuple[np.ndarray, np.ndarray]


def world(classes: int, spread: float, apart: float, noise: float, rng: np.random.Generator) -> World:
    """True logits ``[n, K]`` and labels ``[n]``."""
    logits = rng.normal(0, spread, (WORLD, classes))
    logits[np.arange(WORLD), rng.integers(0, classes, WORLD)] += apart
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    labels = (p.cumsum(1) > rng.random((WORLD, 1))).argmax(1)
    wrong = rng.random(WORLD) < noise
    labels[wrong] = (labels[wrong] + rng.integers(1, classes, wrong.sum())) % classes
    return logits, labels


def losses(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log loss at each temperature ``[n, T]``, that of the other classes on average, and the stated probability."""
    n, classes = logits.shape
    own, others, stated = (np.empty((n, len(TEMPERATURES)), np.float32) for _ in range(3))
    for k, t in enumerate(TEMPERATURES):
        z = logits / t
        z -= z.max(1, keepdims=True)
        z -= np.log(np.exp(z).sum(1, keepdims=True))
        own[:, k] = -z[np.arange(n), labels]
        others[:, k] = (-z.sum(1) - own[:, k]) / (classes - 1)
        stated[:, k] = np.exp(z.max(1))
    return own, others, stated


def chosen(own: np.ndarray, others: np.ndarray, mistakes: int) -> dict[str, int]:
    """The place of each way's temperature, by the losses ``[n, T]`` of the examples that choose."""
    n, curve = len(own), own.mean(0, dtype=np.float64)
    extra = smoothing(n)
    smoothed = int(((1 - extra) * curve + extra * others.mean(0, dtype=np.float64)).argmin())
    best = bound = int(curve.argmin())
    if best < ONE:  # of the temperatures from here to 1 that chance explains as well, the one nearest to 1
        bound += int(np.flatnonzero(2 * n * (curve[best : ONE + 1] - curve[best]) <= TOLD).max())
    ways = {"likeliest": best, "smoothed": smoothed, "bound": bound, "one": ONE}
    return ways | {f"{name}, if mistakes": ways[name] if mistakes else ONE for name in ways if name != "one"}


def measure(draws: int, seed: int) -> list[dict[str, Any]]:
    """A row for each world, factor, size and way."""
    rng, rows = np.random.default_rng(seed), []
    for classes, spread, apart, noise in WORLDS:
        logits, labels = world(classes, spread, apart, noise, rng)
        right = logits.argmax(1) == labels
        for factor in FACTORS:
            own, others, stated = losses(factor * logits, labels)
            whole, sure = own.mean(0, dtype=np.float64), stated.mean(0, dtype=np.float64) - right.mean()
            for n in SIZES:
                places: dict[str, list[int]] = {}
                clean = 0
                for _ in range(draws):
                    i = rng.integers(0, WORLD, n)
                    mistakes = int((~right[i]).sum())
                    clean += mistakes == 0
                    for name, place in chosen(own[i], others[i], mistakes).items():
                        places.setdefault(name, []).append(place)
                about = dict(zip(("classes", "spread", "apart", "noise"), (classes, spread, apart, noise)))
                about |= {"factor": factor, "n": n, "accuracy": float(right.mean())}
                about["no_mistake"] = clean / draws
                about["best"] = float(TEMPERATURES[whole.argmin()])
                for name, at in places.items():
                    beyond, ends = whole[at] - whole.min(), np.isin(at, (0, len(TEMPERATURES) - 1))
                    found = {"beyond": beyond.mean(), "beyond_95": np.quantile(beyond, 0.95)}
                    found |= {"too_sure_95": np.quantile(sure[at], 0.95), "at_end": ends.mean()}
                    rows.append(about | {"way": name} | {key: float(value) for key, value in found.items()})
        print(f"{classes} classes, spread {spread:g}, apart {apart:g}, noise {noise:g}", flush=True)
    return rows


def summed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means of the ways over worlds and factors, for each size; ``worst`` of all worlds."""
    out = []
    for n, way in itertools.product(SIZES, dict.fromkeys(row["way"] for row in rows)):
        own = [row for row in rows if row["n"] == n and row["way"] == way]
        found: dict[str, Any] = {"n": n, "way": way}
        for key in ("beyond", "beyond_95", "at_end"):
            found[key] = float(np.mean([row[key] for row in own]))
        for key in ("beyond", "beyond_95", "too_sure_95"):
            found[f"worst_{key}"] = max(row[key] for row in own)
        out.append(found)
    return out


@command(
    "ways to choose a temperature",
    out="temperature",
    draws=(400, "validation parts of each size"),
    seed=0,
    threads=torch.get_num_threads(),
)
def main(options: Any) -> dict[str, Any]:
    rows = measure(options.draws, options.seed)
    means = summed(rows)
    for row in means:
        print(
            f"n {row['n']:5} {row['way']:24} beyond {row['beyond']:.4f} (95 % {row['beyond_95']:.4f}, worst "
            f"{row['worst_beyond_95']:.3f}), too sure at most {row['worst_too_sure_95']:.4f}, at an end {row['at_end']:.1%}"
        )
    return {"draws": options.draws, "seed": options.seed, "world": WORLD, "means": means, "rows": rows}
