"""Do intervals hold what they promise? Coverage of conformal intervals on the STS Benchmark.

    .venv/bin/python -m benchmarks.quality.conformal [--halves 20] [--epochs 8] [--train-layers 0]

One regressor of pairs (MiniLM, by default only its head trained) learns from the training pairs alone. Validation and
test pairs together are
cut in two at random, again and again: one half calibrates, of the other the share inside its intervals is counted.
The official splits, whose pairs come from other sources each, stand apart: validation calibrates, test is covered.
Asked: 90 % intervals cover 90 % +- 1.5. Results: ``benchmarks/results/conformal-stsb.json``.
"""

import argparse
import time
from typing import Any

import numpy as np
import torch

from benchmarks.harness.command import command
from glassformer import TextRegressor
from glassformer.data.pairs import ScoredSplit, load_scored_pairs
from glassformer.targets.regression import coverage_metrics, regression_metrics

LEVELS = (0.8, 0.9, 0.95)
ASKED, MARGIN = 0.9, 0.015


def pairs_of(split: ScoredSplit) -> tuple[list[tuple[str, str]], np.ndarray]:
    """Pairs and their scores ``[n]``."""
    return list(zip(split.first, split.second, strict=True)), np.asarray(split.scores, np.float64)


def random_halves(found: np.ndarray, true: np.ndarray, halves: int, seed: int) -> dict[str, Any]:
    """Of each level the coverage of every draw, their mean, standard deviation, range, and the mean width."""
    rng, errors = np.random.default_rng(seed), np.abs(found - true)
    drawn: dict[float, list[dict[str, Any]]] = {level: [] for level in LEVELS}
    for _ in range(halves):
        order = rng.permutation(len(true))
        calibrate, judge = order[: len(true) // 2], order[len(true) // 2 :]
        for figures in coverage_metrics(errors[calibrate], found[judge], true[judge], LEVELS):
            drawn[figures["asked"]].append(figures)
    out = {}
    for level, draws in drawn.items():
        shares = np.array([draw["covered"] for draw in draws])
        out[f"{level:g}"] = {
            "mean": float(shares.mean()),
            "sd": float(shares.std(ddof=1)) if halves > 1 else 0.0,
            "min": float(shares.min()),
            "max": float(shares.max()),
            "width": float(np.mean([draw["width"] for draw in draws])),
            "draws": shares.tolist(),
        }
    return out


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Train once, predict validation and test once, and count."""
    data = load_scored_pairs("stsb", limit=options.limit)
    given = ("epochs", "train_layers", "threads", "seed", *(["model"] if options.model else []))
    settings: dict[str, Any] = {key: getattr(options, key) for key in given}
    settings |= {"pooling": "mean", "max_length": 128}
    regressor = TextRegressor(**settings)
    started = time.perf_counter()
    regressor.fit(*pairs_of(data.splits["train"]))
    seconds = time.perf_counter() - started
    answers = {}
    for name in ("validation", "test"):
        pairs, true = pairs_of(data.splits[name])
        answers[name] = regressor.predict(pairs), true
    (known, known_true), (asked, asked_true) = answers["validation"], answers["test"]
    both, both_true = np.concatenate([known, asked]), np.concatenate([known_true, asked_true])
    return {
        "settings": settings | {"weights": regressor.weights_source_, "chosen": dict(regressor.chosen_)},
        "pairs": {name: len(split) for name, split in data.splits.items()},
        "seconds": {"train": seconds},
        "figures": {name: regression_metrics(*pair) for name, pair in answers.items()},
        "halves": options.halves,
        "random_halves": random_halves(both, both_true, options.halves, options.seed),
        "official_splits": coverage_metrics(np.abs(known - known_true), asked, asked_true, LEVELS),
        "asked": {"coverage": ASKED, "within": MARGIN},
    }


@command(
    "coverage of conformal intervals",
    out="conformal-stsb",
    packages=("scikit-learn", "scipy"),
    halves=20,
    epochs=8,
    train_layers=0,
    model=(str, "instead of MiniLM"),
    limit=(int, "pairs of each split: a quick look"),
    seed=0,
    threads=torch.get_num_threads(),
)
def main(options: Any) -> dict[str, Any]:
    found = measure(options)
    for level, told in found["random_halves"].items():
        spread = f"{told['min']:.1%} to {told['max']:.1%}"
        print(f"{level}: {told['mean']:.2%} covered on average ({spread}), width {told['width']:.3g}")
    for told in found["official_splits"]:
        print(f"{told['asked']:g}: official splits {told['covered']:.2%}, width {told['width']:.3g}")
    return found
