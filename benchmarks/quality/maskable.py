"""What ``maskable = true`` costs and gives: the same classifier fine-tuned with and without it.

    .venv/bin/python -m benchmarks.quality.maskable tweet-emotion [--seeds 0 1 2] [--count 200] [--set epochs=3]

For each seed two trainings, one after the other, and on the test split: accuracy; accuracy when a random half of each
text's tokens is masked (the same tokens for both); and on ``--count`` texts, by how much the areas under the insertion
and deletion curves of the default explanation differ, and by how much more than those of random orders. Differences are paired by seed and example, with 95 % bootstrap intervals. Results:
``benchmarks/results/maskable-DATA.json``.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import glassformer as gf
from benchmarks.harness.command import command
from benchmarks.harness.options import SETTINGS
from benchmarks.harness.results import RESULTS
from glassformer.cli.explain import parse_options
from glassformer.data.sources import load_text_dataset
from glassformer.evaluate.compare import accuracy_statistic, bootstrap_means, bootstrap_p, bounds
from glassformer.explain import faithfulness
from glassformer.explain.methods import default_method, explain, make_subject


def half_masked(clf: Any, texts: list[str], seed: int) -> np.ndarray:
    """Predicted labels ``[n]`` of texts, each with a random half of its tokens masked."""
    rng, judge, out = np.random.default_rng(seed), clf.predictor(), []
    for text in texts:
        subject = replace(make_subject(clf, text), predictor=judge)
        keep = np.ones((1, len(subject)), bool)
        hidden = rng.permutation(subject.maskable_indices)
        keep[0, hidden[: len(hidden) // 2]] = False
        out.append(subject.classes[int(subject.logits(keep).argmax())])
    return np.array(out)


def explained(clf: Any, texts: list[str]) -> dict[str, list[float]]:
    """Of the default explanation of each text: insertion less deletion, and how much of it is beyond random orders."""
    judge, method = clf.predictor(), default_method(clf)
    found: dict[str, list[float]] = {"gap": [], "beyond": []}
    for number, text in enumerate(texts):
        subject = replace(make_subject(clf, text), predictor=judge)
        scores = {method: explain(subject, method=method, maps=False).scores}
        figures = faithfulness.compare_with_random(subject, scores, draws=10, seed=number)
        gap, random = (figures[name]["insertion"] - figures[name]["deletion"] for name in (method, "random"))
        found["gap"].append(gap)
        found["beyond"].append(gap - random)
    return found


def one(maskable: bool, seed: int, data: Any, settings: dict[str, Any], count: int) -> dict[str, Any]:
    train, test = data.splits["train"], data.splits["test"]
    started = time.perf_counter()
    clf = gf.TextClassifier("all-minilm-l6-v2", maskable=maskable, seed=seed, **settings)
    clf.fit(list(train.texts), list(train.labels))
    seconds = time.perf_counter() - started
    texts, labels = list(test.texts), np.array(test.labels)
    pick = np.random.default_rng(0).permutation(len(texts))[:count]
    return {
        "seconds": seconds,
        "right": clf.predict(texts) == labels, "right_half": half_masked(clf, texts, seed=0) == labels,
        "method": default_method(clf), **explained(clf, [texts[i] for i in pick]),
    }  # fmt: skip


def difference(pairs: list[dict[bool, dict[str, Any]]], key: str) -> dict[str, Any]:
    """Accuracy of both on the same examples, and what maskable adds, in [-1, 1]."""
    arms = [np.stack([pair[arm][key] for pair in pairs]).astype(np.float32) for arm in (False, True)]
    drawn = bootstrap_means([accuracy_statistic(arm) for arm in arms], arms[0].shape[1])
    return {
        "plain": float(arms[0].mean()), "maskable": float(arms[1].mean()),
        "difference": float(arms[1].mean() - arms[0].mean()), "interval": bounds(drawn[1] - drawn[0]),
        "by_seed": [[float(arm[i].mean()) for arm in arms] for i in range(len(pairs))],
    }  # fmt: skip


def more_faithful(pairs: list[dict[bool, dict[str, Any]]], key: str) -> dict[str, Any]:
    """A figure of explanations with and without maskable, and the paired difference over examples."""
    arms = [np.array([pair[arm][key] for pair in pairs]) for arm in (False, True)]
    paired = (arms[1] - arms[0]).mean(0)
    drawn = paired[np.random.default_rng(0).integers(0, len(paired), (5000, len(paired)))].mean(1)
    means = {name: float(arm.mean()) for name, arm in zip(("plain", "maskable"), arms, strict=True)}
    return means | faithfulness.summary(paired) | {"p": bootstrap_p(drawn)}


@command(
    "classifiers fine-tuned with and without maskable = true",
    ("data", "a named data set or a path"),
    out=lambda options: RESULTS / f"maskable-{Path(options.data).stem}.json",
    seeds=([0, 1, 2], "of training"),
    count=(200, "test texts that are explained"),
    limit=(0, "at most so many examples of each split; 0: all"),
    set=SETTINGS,
)
def main(options: Any) -> dict[str, Any]:
    splits, limit = ["train", "test"], options.limit or None
    data = load_text_dataset(options.data, splits=splits, need_labels=True, limit=limit)
    settings, arms = {"epochs": 3} | parse_options(options.set), (False, True)
    pairs = []
    for seed in options.seeds:
        pairs.append({arm: one(arm, seed, data, settings, options.count) for arm in arms})
        right = [float(pairs[-1][arm][key].mean()) for arm in arms for key in ("right", "right_half")]
        print(f"seed {seed}: accuracy, half masked: plain {right[:2]}, maskable {right[2:]}", flush=True)
    seconds = [float(np.mean([pair[arm]["seconds"] for pair in pairs])) for arm in arms]
    return {
        "data": Path(options.data).name, "model": "all-minilm-l6-v2", "settings": settings, "seeds": options.seeds,
        "train": len(data.splits["train"]), "test": len(data.splits["test"]), "explained": options.count,
        "method": pairs[0][True]["method"], "seconds": {"plain": seconds[0], "maskable": seconds[1]},
        "accuracy": difference(pairs, "right"), "half_masked": difference(pairs, "right_half"),
        "gap": more_faithful(pairs, "gap"), "beyond": more_faithful(pairs, "beyond"),
    }  # fmt: skip
