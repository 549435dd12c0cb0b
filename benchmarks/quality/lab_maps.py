"""How attention looks at texts and at pictures in trained models, for lab 7: IMDb and CIFAR-10, five seeds each.

    GLASSFORMER_DATA=... .venv/bin/python -m benchmarks.quality.lab_maps [--seeds 0 1 2 3 4] [--minutes 28]
        [--runs runs/lab-maps] [--out benchmarks/results/lab-maps.json]

The models are those of lab_questions.py: an encoder of 4,000 reviews and a ViT of 2,000 pictures. Each is looked into on 100
held-out inputs of one length: reviews cut to 128 tokens, pictures of 64 patches and [CLS]. The interval of a figure is
Student's t over the seeds. The same command goes on where it was stopped.
"""

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import glassformer as gf
from benchmarks.harness.command import Budget, command
from benchmarks.harness.options import MINUTES
from benchmarks.harness.seeds import interval
from benchmarks.quality.lab_fits import (
    LEARNED_PICTURES,
    LEARNED_REVIEWS,
    TEXT,
    VIT,
    decoded,
    fitted,
    parts,
    review_parts,
    reviews,
)
from glassformer.explain.heads import attention_statistics
from glassformer.explain.methods import make_subject

INPUTS = 100  # that each model is looked into on


def of_text(seed: int) -> dict[str, float]:
    """One encoder's accuracy and habits on reviews of ``max_length`` tokens."""
    (texts, y), (rows, judged) = reviews(), review_parts(seed, LEARNED_REVIEWS)
    clf = gf.TextClassifier(**TEXT, keep_best=False, seed=seed, threads=1)
    clf.fit([texts[i] for i in rows], y[rows].tolist())
    right = np.asarray(clf.predict([texts[i] for i in judged])) == y[judged]
    found = []
    for i in judged:
        subject = make_subject(clf, texts[i])
        found += [subject] if len(subject) == TEXT["max_length"] else []
        if len(found) == INPUTS:
            break
    return {"accuracy": float(right.mean()), **attention_statistics(found)}


def of_pictures(seed: int) -> dict[str, float]:
    """One ViT's accuracy and habits."""
    rows, judged = parts(seed, LEARNED_PICTURES)
    clf = gf.ImageClassifier(**VIT, keep_best=False, seed=seed, threads=1)
    right = fitted(clf, rows, judged)
    subjects = [make_subject(clf, decoded(i)) for i in judged[:INPUTS]]
    return {"accuracy": float(right.mean()), **attention_statistics(subjects)}


KINDS: dict[str, Callable[[int], dict[str, float]]] = {"text": of_text, "pictures": of_pictures}


def summed_up(by_seed: list[dict[str, float]]) -> dict[str, Any]:
    """Mean, 95 % interval over the seeds and every seed's value, of each figure."""
    found = {}
    for name in by_seed[0]:
        values = [one[name] for one in by_seed]
        found[name] = {"mean": statistics.fmean(values), "interval": interval(values), "by_seed": values}
    return found


@command("lab maps", out="lab-maps", seeds=list(range(5)), minutes=MINUTES, runs=Path("runs/lab-maps"))
def main(options: Any) -> dict[str, Any]:
    options.runs.mkdir(parents=True, exist_ok=True)
    budget, missing = Budget(options.minutes), 0
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for seed in options.seeds:
        for kind, look in KINDS.items():
            path = options.runs / f"{kind}-seed{seed}.json"
            if not path.is_file():
                if budget.spent():
                    missing += 1
                    continue
                with budget.piece():
                    path.write_text(json.dumps(look(seed)) + "\n", encoding="utf-8")
            found[kind].append(json.loads(path.read_text(encoding="utf-8")))
            each = ", ".join(f"{k} {v:.3f}" for k, v in found[kind][-1].items())
            print(f"{kind}, seed {seed}: {each}", flush=True)
    if min(map(len, found.values())) < 2:
        raise SystemExit("fewer than two seeds: nothing is written")
    print(f"{missing} trainings are left")
    kinds = {kind: summed_up(by_seed) for kind, by_seed in found.items()}
    title = "How attention looks at texts and pictures"
    return {"title": title, "inputs": INPUTS, "seeds": options.seeds, "kinds": kinds}
