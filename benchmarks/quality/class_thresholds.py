"""What a threshold a class is worth: macro-F1 of small classifiers on GoEmotions' texts of one label.

    .venv/bin/python -m benchmarks.quality.class_thresholds [--seeds 0 1 2] [--epochs 3]

A small convolutional network learns the training texts that have one label (all 28, and the five most frequent but
neutral); validation chooses temperature and thresholds for macro-F1, and the test split none of them. Nothing here was tuned.
Results: ``benchmarks/results/class-thresholds.json``.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import glassformer as gf
from benchmarks.harness.common import RESULTS, environment, write_result
from glassformer.data.sources import load_text_dataset
from glassformer.evaluate.calibrate import describe, figure_of

MOST = 5  # emotions of the smaller task
NEUTRAL = "neutral"


def alone(dataset: Any, labels: set[str] | None) -> dict[str, tuple[list[str], list[str]]]:
    """Texts with one label, of those named; split -> texts, labels."""
    out = {}
    for name, split in dataset.splits.items():
        rows = [(t, own[0]) for t, own in zip(split.texts, split.labels, strict=True) if len(own) == 1]
        rows = [(t, label) for t, label in rows if labels is None or label in labels]
        texts, own = zip(*rows, strict=True)
        out[name] = list(texts), list(own)
    return out


def figures(clf: Any, texts: list[str], labels: list[str]) -> dict[str, float]:
    """Macro-F1, accuracy, calibration error and log loss as the classifier decides now."""
    p, y = clf.predict_proba(texts), clf.targets(labels, "labels")
    chosen, told = clf.chosen(p), describe(p, y, resamples=2)
    shares = {key: figure_of(chosen, y, len(clf.classes_), key) for key in ("macro_f1", "accuracy")}
    return shares | {"ece": told["ece"], "log_loss": told["log_loss"]}


def one(data: dict[str, tuple[list[str], list[str]]], seed: int, epochs: int) -> dict[str, Any]:
    """One training, before and after its calibration."""
    started = time.perf_counter()
    clf = gf.TextClassifier("textcnn", epochs=epochs, seed=seed, threads=1, max_length=64)
    clf.fit(*data["train"], validation=data["validation"])
    judged = ("validation", "test")
    out: dict[str, Any] = {"seed": seed, "before": {name: figures(clf, *data[name]) for name in judged}}
    clf.calibrate(*data["validation"])
    out["temperature"] = {name: figures(clf, *data[name]) for name in judged}
    clf.calibrate(*data["validation"], threshold="macro_f1")
    out["after"] = {name: figures(clf, *data[name]) for name in judged}
    return out | {"seconds": time.perf_counter() - started}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", default="goemotions")
    parser.add_argument("--out", type=Path, default=RESULTS / "class-thresholds.json")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    dataset = load_text_dataset(args.data)
    counts = Counter(label for own in dataset.splits["train"].labels for label in own if len(own) == 1)
    frequent = [label for label, _ in counts.most_common() if label != NEUTRAL][:MOST]
    tasks = {"28 classes": None, "five classes": set(frequent)}
    found: dict[str, Any] = {"environment": environment("scikit-learn"), "source": args.data}
    found |= {"five": frequent, "epochs": args.epochs, "tasks": {}}
    for name, labels in tasks.items():
        data = alone(dataset, labels)
        runs = [one(data, seed, args.epochs) for seed in args.seeds]
        gains = [run["after"]["test"]["macro_f1"] - run["before"]["test"]["macro_f1"] for run in runs]
        found["tasks"][name] = {
            "examples": {split: len(texts) for split, (texts, _) in data.items()},
            "runs": runs,
            "test_macro_f1_gain": {"mean": float(np.mean(gains)), "min": min(gains), "max": max(gains)},
        }
        print(name, found["tasks"][name]["test_macro_f1_gain"], flush=True)
    write_result(args.out, found)


if __name__ == "__main__":
    main()
