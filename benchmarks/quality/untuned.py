"""Two tables that no default was tuned on: the command line as it is, beside TF-IDF with the same class weights.

    GLASSFORMER_DATA=DIR .venv/bin/python -m benchmarks.quality.untuned [--only ntc textcnn] [--seeds 0 1 2] [--limit 400]

Reviews of restaurants in Vietnamese (NTC-SCV) of which 20 % of one class are kept, and comments in English
(GoEmotions) whose only label is one of the five most frequent. Each training is a command of its own, on one
thread:

    glassformer train --text TABLE --model MODEL --set class_weight=balanced --set monitor=macro_f1

The data set's own validation split judges; its test split is not opened. Where a default stays more than one
point of macro-F1 below TF-IDF, ``CHANGES`` are measured too, with the first seed. What stands in the result
file is not measured again; the file is written after each training.
"""

import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.harness.command import command
from benchmarks.harness.options import count
from benchmarks.harness.results import RESULTS, environment, kept, write_result

RESULT = RESULTS / "untuned.json"
TFIDF = "TF-IDF + logistic regression"
ASKED = ("class_weight=balanced", "monitor=macro_f1")
MODELS = ("textcnn", "encoder-small", "all-minilm-l6-v2")  # the quickest first
SEEDS, SPLITS, SHORT = (0, 1, 2), ("train", "validation"), 0.01
KEPT, CLASSES = 0.2, 5  # of the reviews' second class; of the comments' labels
REVIEWS = ("negative", "positive")
EMOTIONS = (
    "admiration", "amusement", "anger", "annoyance", "approval", "caring", "confusion", "curiosity", "desire",
    "disappointment", "disapproval", "disgust", "embarrassment", "excitement", "fear", "gratitude", "grief", "joy", "love",
    "nervousness", "optimism", "pride", "realization", "relief", "remorse", "sadness", "surprise", "neutral",
)  # fmt: skip
Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Change:
    """What else may help a model where its defaults fall short."""

    model: str
    name: str
    settings: tuple[str, ...]


CHANGES = (
    Change("textcnn", "word vectors of its own texts", ("vectors=word2vec",)),
    Change("encoder-small", "word vectors of its own texts", ("vectors=word2vec",)),
    Change("encoder-small", "dropout 0.3", ("dropout=0.3",)),
    Change("all-minilm-l6-v2", "accents kept", ("strip_accents=false",)),
    Change("all-minilm-l6-v2", "twice the rate, five epochs", ("lr=2e-4", "epochs=5")),
)


def rows_of(name: str, split: str) -> list[dict[str, Any]]:
    """The rows of one split, as its file has them."""
    import pyarrow.parquet as pq

    return pq.read_table(Path(os.environ["GLASSFORMER_DATA"]) / name / f"{split}.parquet").to_pylist()


def reviews() -> dict[str, Pairs]:
    """NTC-SCV with a fifth of the second class, drawn in each split."""
    out, rng = {}, np.random.default_rng(11)
    for split in SPLITS:
        pairs = [(row["text"], REVIEWS[row["label"]]) for row in rows_of("ntc-scv", split)]
        second = [i for i, (_, label) in enumerate(pairs) if label == REVIEWS[1]]
        left = set(rng.permutation(second)[round(KEPT * len(second)) :].tolist())
        out[split] = [pair for i, pair in enumerate(pairs) if i not in left]
    return out


def comments() -> dict[str, Pairs]:
    """GoEmotions: comments with one label, of the five that are most frequent so in the training split."""
    single = {
        split: [(r["text"], EMOTIONS[r["labels"][0]]) for r in rows_of("goemotions", split) if len(r["labels"]) == 1]
        for split in SPLITS
    }  # fmt: skip
    five = {label for label, _ in Counter(label for _, label in single["train"]).most_common(CLASSES)}
    return {split: [pair for pair in pairs if pair[1] in five] for split, pairs in single.items()}


TABLES = {"ntc-scv, 20 % of one class": reviews, "goemotions, five classes": comments}


def write_tables(splits: dict[str, Pairs], folder: Path, limit: int | None) -> None:
    """``train.csv``, and what judges as ``test.csv``: with ``limit`` so many rows of each, drawn."""
    folder.mkdir(parents=True)
    for split, name in zip(SPLITS, ("train", "test"), strict=True):
        pairs = splits[split]
        if limit:
            pairs = [pairs[i] for i in np.random.default_rng(3).permutation(len(pairs))[:limit]]
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *pairs])


def training(data: Path, model: str, seed: int, out: Path, settings: tuple[str, ...] = ()) -> list[str]:
    """What a user types, on one thread."""
    said = [part for value in (*ASKED, *settings, "threads=1") for part in ("--set", value)]
    train = [sys.executable, "-m", "glassformer", "train", "--text", str(data), "--model", model]
    return [*train, "--seed", str(seed), *said, "--out", str(out)]


def measure(data: Path, name: str, model: str, seed: int, change: Change | None, work: Path) -> dict:
    """One training by the command line: the figures that its run's ``metrics.json`` has."""
    folder, before = work / "run", resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(folder, ignore_errors=True)
    asked = training(data, model, seed, folder, change.settings if change else ())
    done = subprocess.run(asked, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(asked)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    ours, simple = found[found["judged"]], found["baselines"][TFIDF]
    return {
        "data": name, "model": model, "change": change.name if change else "", "seed": seed,
        "settings": [*ASKED, *(change.settings if change else ())], "judged": ours["n"],
        "classes": {c["label"]: c["support"] for c in ours["per_class"]},
        **{key: ours[key] for key in ("macro_f1", "macro_f1_interval", "accuracy")},
        "tfidf": {key: simple[key] for key in ("macro_f1", "macro_f1_interval", "accuracy")},
        "chosen": found["chosen"], "best_step": found["best_step"], "train_seconds": round(found["seconds"]["train"], 1),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
    }  # fmt: skip


def short(rows: list[dict[str, Any]], name: str, model: str) -> bool:
    """Whether a model's defaults stay more than a point of macro-F1 below TF-IDF, in the mean of its seeds."""
    own = [r for r in rows if (r["data"], r["model"], r["change"]) == (name, model, "")]
    return bool(own) and fmean(r["macro_f1"] - r["tfidf"]["macro_f1"] for r in own) < -SHORT


def wanted(args: Any, rows: list[dict[str, Any]]) -> Iterator[tuple[str, str, int, Change | None]]:

    def missing(name: str, model: str, seed: int, change: str) -> bool:
        have = {(r["data"], r["model"], r["seed"], r["change"]) for r in rows}
        named = not args.only or any(part in f"{name} {model}" for part in args.only)
        return named and (name, model, seed, change) not in have

    for seed in args.seeds:
        for model in MODELS:
            for name in TABLES:
                if missing(name, model, seed, ""):
                    yield name, model, seed, None
    for change in CHANGES:
        for name in TABLES:
            if short(rows, name, change.model) and missing(name, change.model, args.seeds[0], change.name):
                yield name, change.model, args.seeds[0], change


@command(
    None,
    out="untuned",
    only=dict(nargs="*", default=[], help="of a table's or a model's name"),
    seeds=dict(nargs="*", type=int, default=SEEDS),
    limit=dict(type=count, help="so many texts of each split, for a try: give --out too"),
)
def main(args: Any) -> None:
    if "GLASSFORMER_DATA" not in os.environ:
        args.error("GLASSFORMER_DATA names no folder of data sets")
    if args.limit and args.out == RESULT:
        args.error("--limit is for a try: give --out FILE")
    rows: list[dict[str, Any]] = kept(args.out).get("rows", [])
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        for number, make in enumerate(TABLES.values()):
            write_tables(make(), work / str(number), args.limit)
        for name, model, seed, change in wanted(args, rows):
            rows.append(measure(work / str(list(TABLES).index(name)), name, model, seed, change, work))
            result = environment("scikit-learn") | {"threads": 1, "seeds": sorted({r["seed"] for r in rows})}
            write_result(args.out, result | {"limit": args.limit, "rows": rows})
            r = rows[-1]
            what = f"{name:28} {model:18} {r['change']:30} seed {seed}"
            beside = f"macro-F1 {r['macro_f1']:.3f}, TF-IDF {r['tfidf']['macro_f1']:.3f}"
            print(f"{what}  {beside}  {r['train_seconds']:7.1f} s", flush=True)
