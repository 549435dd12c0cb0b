"""What the defaults reach: every kind of model on few, some and many real examples, beside a linear model.

    .venv/bin/python -m benchmarks.quality.defaults [--only textcnn lstm] [--sizes 64 1000] [--seeds 0 1 2]

Rate, epochs, batches and warm-up are left unset. Training examples are drawn from each data set's training split, a
thousand more of it judge (no test set is looked at). What has been measured stands in the result file and is not
measured again; the file is written after each training.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import glassformer as gf
from benchmarks.harness.command import command
from benchmarks.harness.results import RESULTS, environment, kept, write_result
from glassformer.data.image_sources import load_image_dataset
from glassformer.data.sources import load_text_dataset
from glassformer.evaluate.baselines import pixel_logistic, tfidf_logistic

RESULT = RESULTS / "defaults.json"
JUDGED, SIZES, SEEDS = 1_000, (64, 1_000, 5_000), (0, 1, 2)


@dataclass(frozen=True)
class Row:
    """One kind of model on one data set."""

    data: str
    kind: str
    settings: dict[str, Any] = field(default_factory=dict)


MINILM = {"model": "all-minilm-l6-v2"}
ROWS = [
    *(Row(data, "TF-IDF + logistic regression") for data in ("ntc-scv", "imdb")),
    Row("flowers", "logistic regression on 16 x 16 pixels"),
    *(
        Row(data, kind, {"model": kind})
        for kind in ("textcnn", "encoder-mini", "encoder-small", "lstm")
        for data in ("ntc-scv", "imdb")
    ),
    Row("ntc-scv", "textcnn on word vectors", {"model": "textcnn", "vectors": "word2vec"}),
    Row("imdb", "all-minilm-l6-v2, head alone", MINILM | {"train_layers": 0}),
    Row("imdb", "all-minilm-l6-v2", MINILM),
    Row("imdb", "all-minilm-l6-v2, low-rank", MINILM | {"lora_rank": 8}),
    Row("flowers", "vit-tiny", {"model": "vit-tiny", "image_size": 64, "patch_size": 8}),
]


class Examples:
    """A data set's training split: a part of it to judge by, always the same, and the rest to draw from."""

    def __init__(self, name: str):
        self.pictures = name == "flowers"
        if self.pictures:
            split: Any = load_image_dataset(name, splits=["train"]).splits["train"]
            self.X = list(split.images)
        else:
            split = load_text_dataset(name, need_labels=True).splits["train"]
            self.X = list(split.texts)
        self.y = np.array(split.labels)
        order = np.random.default_rng(7).permutation(len(self.X))
        judged = min(JUDGED, len(order) // 5)
        self.judged, self.pool = order[:judged], order[judged:]

    def draw(self, count: int, seed: int) -> np.ndarray:
        """So many to learn from; of a smaller data set all of them."""
        return np.random.default_rng([17, seed]).permutation(self.pool)[:count]

    def take(self, index: np.ndarray) -> tuple[list[Any], np.ndarray]:
        return [self.X[i] for i in index], self.y[index]


def linear(examples: Examples, X: list[Any], y: np.ndarray, judged: list[Any]) -> np.ndarray:
    """The labels that the baseline of every report gives: TF-IDF, or small pixels, under a logistic regression."""
    classes, numbers = np.unique(y, return_inverse=True)
    if examples.pictures:
        return classes[pixel_logistic(X, numbers, judged, num_classes=len(classes))[0].argmax(1)]
    return classes[tfidf_logistic(X, numbers, judged).argmax(1)]


def measure(row: Row, examples: Examples, size: int, seed: int) -> dict[str, Any]:
    X, y = examples.take(examples.draw(size, seed))
    judged, truth = examples.take(examples.judged)
    clocks = time.perf_counter, time.process_time
    chosen, started = {}, [clock() for clock in clocks]
    if row.settings:
        cls = gf.ImageClassifier if examples.pictures else gf.TextClassifier
        model = cls(**row.settings, threads=1, seed=seed).fit(X, y)
        spent = [clock() - begun for clock, begun in zip(clocks, started)]
        chosen, given = dict(model.chosen_), model.predict(judged)
    else:
        given = linear(examples, X, y, judged)
        spent = [clock() - begun for clock, begun in zip(clocks, started)]  # judging too
    seconds, cpu_seconds = (round(value, 1) for value in spent)
    counts = np.unique(truth, return_counts=True)[1]
    return {
        "data": row.data, "kind": row.kind, "asked": size, "examples": len(y), "seed": seed,
        "accuracy": float(np.mean(given == truth)), "judged": len(truth), "chance": float(counts.max() / len(truth)),
        "seconds": seconds, "cpu_seconds": cpu_seconds, "chosen": chosen,
    }  # fmt: skip


def wanted(args: argparse.Namespace, done: list[dict[str, Any]]) -> Iterator[tuple[Row, int, int]]:
    """What has not been measured, the smallest first."""
    have = {(r["data"], r["kind"], r["asked"], r["seed"]) for r in done}
    for size in args.sizes:
        for seed in args.seeds:
            for row in ROWS:
                named = not args.only or any(part in row.kind for part in args.only)
                here = not args.data or row.data in args.data
                if named and here and (row.data, row.kind, size, seed) not in have:
                    yield row, size, seed


@command(
    None,
    packages=("scikit-learn",),
    only=dict(nargs="*", default=[], help="of a kind's name"),
    data=dict(nargs="*", default=[]),
    sizes=dict(nargs="*", type=int, default=SIZES),
    seeds=dict(nargs="*", type=int, default=SEEDS),
)
def main(args: Any) -> None:
    rows: list[dict[str, Any]] = kept(RESULT).get("rows", [])
    sets: dict[str, Examples] = {}
    for row, size, seed in list(wanted(args, rows)):
        if row.data not in sets:
            sets[row.data] = Examples(row.data)
        rows.append(measure(row, sets[row.data], size, seed))
        write_result(RESULT, {"environment": environment("scikit-learn"), "threads": 1, "rows": rows})
        r = rows[-1]
        what = f"{r['data']:8} {r['kind']:38} {r['examples']:6,} seed {seed}"
        print(f"{what}  {r['accuracy']:.3f}  {r['seconds']:7.1f} s  {r['chosen']}", flush=True)
