"""What pruning costs and gives, and how many words a counterfactual changes.

    .venv/bin/python -m benchmarks.quality.inside runs/tweet-emotion --data tweet-emotion [--texts 200] [--rounds 5]

Pruning 30 % of the feed-forward units by 500 training texts (no training afterwards): accuracy on the test split beside the
whole model's, paired; seconds to predict it, in turn, ``--rounds`` times. Counterfactuals (words left out) of ``--texts`` test texts that are predicted right: how many have one, whether
its text is predicted otherwise, and how many words it changes beside a greedy way: leave out words in the order of their
occlusion scores until the prediction changes. Results: ``benchmarks/results/inside-NAME.json``.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.command import command
from benchmarks.harness.options import count
from benchmarks.harness.results import RESULTS
from glassformer.data.sources import load_text_dataset
from glassformer.evaluate.compare import accuracy_statistic, bootstrap_means, bounds
from glassformer.evaluate.intervals import share_interval
from glassformer.explain.counterfactual import counterfactual
from glassformer.explain.faithfulness import summary
from glassformer.explain.methods import explain_input
from glassformer.tasks.load import load

MOST = 6  # words that may change


def pruned(clf: Any, train: list[str], test: list[str], labels: np.ndarray, rounds: int) -> dict[str, Any]:
    small = clf.prune(train[:500], share=0.3)
    arms = {"whole": clf, "pruned": small}
    right = {name: (arm.predict(test) == labels)[None] for name, arm in arms.items()}
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, arm in arms.items():
            started = time.perf_counter()
            arm.predict(test)
            seconds[name].append(time.perf_counter() - started)
    drawn = bootstrap_means([accuracy_statistic(r.astype(np.float32)) for r in right.values()], len(test))
    ratios = [whole / less for whole, less in zip(*seconds.values(), strict=True)]
    sizes = {name: sum(p.numel() for p in arm.model_.parameters()) for name, arm in arms.items()}
    accuracy = {name: float(r.mean()) for name, r in right.items()}
    return {
        "parameters": sizes, "accuracy": accuracy, "difference": accuracy["pruned"] - accuracy["whole"],
        "interval": bounds(drawn[1] - drawn[0]), "seconds": seconds, "faster": float(np.median(ratios)),
        "faster_range": [min(ratios), max(ratios)],
    }  # fmt: skip


def greedy(clf: Any, text: str) -> int | None:
    """How many words a greedy way leaves out until the prediction changes; None: more than ``MOST``."""
    scored = explain_input(clf, text, method="occlusion", unit="word").words()
    words, before = [word for word, _ in scored], clf.predict([text])[0]
    order = sorted(range(len(words)), key=lambda i: -scored[i][1])
    for changes in range(1, min(MOST, len(words) - 1) + 1):
        rest = [word for i, word in enumerate(words) if i not in order[:changes]]
        if clf.predict([" ".join(rest)])[0] != before:
            return changes
    return None


def turned(clf: Any, texts: list[str]) -> dict[str, Any]:
    valid, ours, theirs = [], [], []
    for text in texts:
        found, simple = counterfactual(clf, text, most=MOST), greedy(clf, text)
        valid.append(found is not None and clf.predict([found.text])[0] != found.before)
        ours.append(len(found.changes) if found else MOST + 1)
        theirs.append(simple or MOST + 1)
    share = float(np.mean(valid))
    return {
        "texts": len(texts), "valid": share, "interval": share_interval(share, len(texts)),
        "greedy_valid": float(np.mean(np.array(theirs) <= MOST)), "words": float(np.mean(ours)),
        "greedy_words": float(np.mean(theirs)), "fewer": summary(np.array(theirs) - np.array(ours)),
    }  # fmt: skip


@command(
    "pruning and counterfactuals",
    "run",
    out=lambda options: RESULTS / f"inside-{Path(options.run).name}.json",
    data=str,
    texts=(200, "of counterfactuals"),
    rounds=dict(type=count, default=5, help="of prediction, in turn"),
)
def main(options: Any) -> dict[str, Any]:
    clf = load(options.run)
    splits = load_text_dataset(options.data, splits=["train", "test"], need_labels=True).splits
    test, labels = list(splits["test"].texts), np.array(splits["test"].labels)
    right = np.flatnonzero(clf.predict(test) == labels)
    chosen = [test[i] for i in np.random.default_rng(0).permutation(right)[: options.texts]]
    return {
        "run": Path(options.run).name, "data": Path(options.data).stem, "test": len(test),
        "pruned": pruned(clf, list(splits["train"].texts), test, labels, options.rounds),
        "counterfactuals": turned(clf, chosen),
    }  # fmt: skip
