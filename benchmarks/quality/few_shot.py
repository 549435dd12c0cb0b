"""Few examples a class: texts compared with each other, SetFit's procedure, fine-tuning, and a head alone.

    GLASSFORMER_DATA=... .venv/bin/python -m benchmarks.quality.few_shot [--data imdb goemotions] [--examples 8 16 64]
        [--draws 10] [--most-draws 5] [--precision auto] [--out benchmarks/results/few-shot.json]

IMDb (reviews cut to 128 tokens, 2,000 test reviews) and GoEmotions' five most frequent emotions but neutral
among comments with one label. Every method has the same encoder (all-MiniLM-L6-v2), the same drawn examples,
one thread and the same precision (``auto``: bf16 where the processor has it, SetFit's by its trainer's
``bf16`` and autocast):

    glassformer   gf.Embedder().fit(texts, labels), every setting at its default
    SetFit        pairs as the paper draws them (R = 20 of one class and 20 of two for each text), cosine loss,
                  one epoch in batches of 16 at 2e-5 by sentence-transformers' trainer, then a logistic regression
    fine-tuning   gf.TextClassifier, every setting at its default
    linear probe  a logistic regression of the untouched vectors

Each (data, examples, draw, method) is written as soon as it is there; the same command goes on. Times are of
the fit alone, wall clock and of the processor; shares of time are of methods on one kind of processor.
"""

import itertools
import json
import os
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness.command import command
from benchmarks.harness.results import kept
from benchmarks.harness.seeds import resampled

MODEL, MAX_LENGTH, TESTED = "all-minilm-l6-v2", 128, 2000
PAIRS, BATCH, RATE, WARMUP = 20, 16, 2e-5, 0.1  # of SetFit: Tunstall et al. (2022), section 4.2 and its code
RESAMPLES = 10_000
OURS = "glassformer"


def imdb(seed: int = 0) -> tuple[list[str], list[Any], list[str], list[Any]]:
    """Training texts and labels, and those of the test."""
    from glassformer.data.sources import load_text_dataset
    from glassformer.data.text import clean_text

    splits = load_text_dataset("imdb", splits=("train", "test")).splits
    train, test = splits["train"], splits["test"]
    held = np.sort(np.random.default_rng(seed).choice(len(test), TESTED, replace=False)).tolist()
    chosen = test.select(held)
    clean = [[clean_text(text, "html") for text in part.texts] for part in (train, chosen)]
    return clean[0], list(train.labels or ()), clean[1], list(chosen.labels or ())


def goemotions() -> tuple[list[str], list[Any], list[str], list[Any]]:
    """Comments with one emotion, of the five most frequent but neutral; the test split whole."""
    import pyarrow.parquet as pq

    from glassformer.data.folders import data_folders

    folder = next(root / "goemotions" for root in data_folders() if (root / "goemotions").is_dir())
    whole = {split: pq.read_table(folder / f"{split}.parquet").to_pylist() for split in ("train", "test")}
    rows = {split: [row for row in found if len(row["labels"]) == 1] for split, found in whole.items()}
    neutral = 27  # the last of the 28 classes, in the order of the publication
    counts = Counter(row["labels"][0] for row in rows["train"] if row["labels"][0] != neutral)
    kept = {label for label, _ in counts.most_common(5)}
    parts: list[Any] = []
    for split in ("train", "test"):
        there = [row for row in rows[split] if row["labels"][0] in kept]
        parts += [[row["text"] for row in there], [row["labels"][0] for row in there]]
    return parts[0], parts[1], parts[2], parts[3]


DATA = {"imdb": imdb, "goemotions": goemotions}


def drawn(texts: list[str], labels: list[Any], each: int, draw: int) -> tuple[list[str], list[Any]]:
    """``each`` examples of every class."""
    rng, rows = np.random.default_rng([draw, each]), []
    for label in sorted(set(labels)):
        rows += rng.choice(np.flatnonzero(np.asarray(labels) == label), each, replace=False).tolist()
    return [texts[i] for i in rows], [labels[i] for i in rows]


Predict = Callable[[list[str]], np.ndarray]
Made = tuple[Predict, dict[str, float]]


def timed(fit: Callable[[], Predict]) -> Made:
    """The fitted model, and what it cost."""
    wall, cpu = time.perf_counter(), time.process_time()
    predict = fit()
    return predict, {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


def opened(precision: str, **settings: Any) -> Any:
    """An embedder whose checkpoint is read before the clock runs, as the others' is."""
    import glassformer as gf

    model = gf.Embedder(MODEL, max_length=MAX_LENGTH, threads=1, precision=precision, **settings)
    model.similarity("a", "b")
    return model


def glassformer(texts: list[str], labels: list[Any], draw: int, precision: str) -> Made:
    model = opened(precision, seed=draw)
    return timed(lambda: model.fit(texts, labels).predict)


def linear_probe(texts: list[str], labels: list[Any], draw: int, precision: str) -> Made:
    model = opened(precision, train_layers=0)
    return timed(lambda: model.fit(texts, labels).predict)


def fine_tuning(texts: list[str], labels: list[Any], draw: int, precision: str) -> Made:
    import glassformer as gf

    model = gf.TextClassifier(MODEL, max_length=MAX_LENGTH, seed=draw, threads=1, precision=precision)
    return timed(lambda: model.fit(texts, labels).predict)


def setfit(texts: list[str], labels: list[Any], draw: int, precision: str) -> Made:
    import torch
    from datasets import Dataset, disable_progress_bars
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from sklearn.linear_model import LogisticRegression

    from glassformer.checkpoints.hub import resolve_checkpoint
    from glassformer.tasks.similarity.pairs import pairs_of_labels

    disable_progress_bars()
    model = SentenceTransformer(str(resolve_checkpoint(MODEL).path), device="cpu")
    model.max_seq_length = MAX_LENGTH
    targets = np.unique(labels, return_inverse=True)[1]
    half = precision == "bf16"

    def vectors(texts: list[str]) -> np.ndarray:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            return model.encode(texts, show_progress_bar=False, convert_to_tensor=True).float().numpy()

    def fit() -> Predict:
        pairs = pairs_of_labels(texts, targets, PAIRS, draw)
        columns = {"sentence1": pairs.first, "sentence2": pairs.second}
        columns["label"] = np.asarray(pairs.scores).tolist()
        with tempfile.TemporaryDirectory() as folder:
            arguments = Arguments(
                output_dir=folder, num_train_epochs=1, per_device_train_batch_size=BATCH, learning_rate=RATE,
                warmup_steps=WARMUP, seed=draw, use_cpu=True, bf16=half, save_strategy="no",
                logging_strategy="no", report_to="none", disable_tqdm=True, dataloader_pin_memory=False,
            )  # fmt: skip
            SentenceTransformerTrainer(
                model=model, args=arguments, train_dataset=Dataset.from_dict(columns),
                loss=losses.CosineSimilarityLoss(model),
            ).train()  # fmt: skip
        head = LogisticRegression(max_iter=1000).fit(vectors(texts), labels)
        return lambda others: head.predict(vectors(others))

    return timed(fit)


METHODS = {OURS: glassformer, "SetFit": setfit, "fine-tuning": fine_tuning, "linear probe": linear_probe}


def summarized(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each data set and number of examples: every method's mean, and ours beside each other one."""
    out = []
    out = []
    for data, each in dict.fromkeys((r["data"], r["examples"]) for r in records):
        there = [r for r in records if (r["data"], r["examples"]) == (data, each)]
        methods = {}
        for name in METHODS:
            if mine := [r for r in there if r["method"] == name]:
                keys = ("accuracy", "macro_f1", "cpu_seconds")
                means = {key: float(np.mean([r[key] for r in mine])) for key in keys}
                spread = np.std([r["accuracy"] for r in mine], ddof=1) if len(mine) > 1 else None
                methods[name] = {
                    "draws": len(mine),
                    "accuracy": round(means["accuracy"], 4),
                    "stdev": None if spread is None else round(float(spread), 4),
                    "macro_f1": round(means["macro_f1"], 4),
                    "cpu_seconds": round(means["cpu_seconds"], 2),
                }
        others = {name: beside(there, name) for name in methods if name != OURS}
        out.append({"data": data, "examples": each, "methods": methods, "ours_less": others})
    return out


def beside(records: list[dict[str, Any]], other: str) -> dict[str, Any] | None:
    """Ours less another method on the same draws: the mean difference, its interval, and the ratio of times."""
    by = {(r["method"], r["draw"]): r for r in records}
    draws = sorted({r["draw"] for r in records if (OURS, r["draw"]) in by and (other, r["draw"]) in by})
    if not draws:
        return None
    apart = np.array([by[OURS, d]["accuracy"] - by[other, d]["accuracy"] for d in draws])
    ratio = np.array([by[OURS, d]["cpu_seconds"] / by[other, d]["cpu_seconds"] for d in draws])
    found = resampled(apart, RESAMPLES)
    return {
        "draws": len(draws),
        "accuracy": round(found["mean"], 4),
        "interval": [round(v, 4) for v in found["interval"]] if len(apart) > 1 else None,
        "time": {"median": round(float(np.median(ratio)), 3), "max": round(float(ratio.max()), 3)},
    }


@command(
    "few examples a class",
    out="few-shot",
    packages=("sentence-transformers", "transformers"),
    data=dict(nargs="+", default=list(DATA), choices=list(DATA)),
    examples=[8, 16, 64],
    methods=dict(nargs="+", default=list(METHODS), choices=list(METHODS)),
    draws=10,
    most_draws=(5, "of 64 examples a class and more"),
    precision=dict(default="auto", choices=["auto", "bf16", "fp32"]),
)
def main(options: Any) -> None:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.simplefilter("ignore")
    import torch
    from sklearn.metrics import accuracy_score, f1_score

    from glassformer.runtime import choose_dtype

    torch.set_num_threads(1)
    half = choose_dtype(options.precision, torch.device("cpu")) == torch.bfloat16
    result: dict[str, Any] = {"precision": "bf16" if half else "fp32", "records": []}
    if old := kept(options.out):
        for record in old["records"]:
            record.setdefault("processor", old["machine"]["cpu"])
        if old["precision"] != result["precision"]:
            options.error(f"{options.out} holds figures in {old['precision']}: name another --out")
        result = {key: old[key] for key in ("precision", "records", "tested")}
    records = result["records"]
    keys, loaded = ("draw", "data", "examples", "method"), {}
    done = {tuple(r[key] for key in keys) for r in records}
    for key in itertools.product(range(options.draws), options.data, options.examples, options.methods):
        draw, data, each, name = key
        if key in done or (each >= 64 and draw >= options.most_draws):
            continue
        if data not in loaded:
            loaded[data] = DATA[data]()
        texts, labels, tests, wanted = loaded[data]
        predict, cost = METHODS[name](*drawn(texts, labels, each, draw), draw, result["precision"])
        answers = np.asarray(predict(tests))
        records.append({
            **dict(zip(keys, key, strict=True)),
            "accuracy": float(accuracy_score(wanted, answers)),
            "macro_f1": float(f1_score(wanted, answers, average="macro")),
            **{what: round(value, 2) for what, value in cost.items()},
            "processor": options.facts["machine"]["cpu"],
        })  # fmt: skip
        result["tested"] = {k: len(v[2]) for k, v in loaded.items()} | result.get("tested", {})
        options.write({"model": MODEL, "max_length": MAX_LENGTH, **result, "summary": summarized(records)})
        print(json.dumps(records[-1]), flush=True)
