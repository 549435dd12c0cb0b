"""Would a blend of `tfidf` and the frozen encoder be ahead of the better of the two?

    .venv/bin/python -m benchmarks.quality.blend [--data banking77 tweet-irony imdb] [--rows 100 1000] [--draws 2]

On training rows alone, of the sets on which rules of `auto` are chosen: both learn from a draw, 1,000 other rows judge.
A blend is the mean of both models' probabilities, with the weight of the encoder that does best on these very rows, which
flatters it. ``benchmarks/results/blend.json`` has the accuracies of both and of each blend.
"""

from typing import Any

import numpy as np

import glassformer as gf
from benchmarks.harness.command import command
from benchmarks.quality.auto import ENCODER, drawn, split_of

JUDGED = 1_000
WEIGHTS = (0.0, 0.3, 0.5, 0.7, 1.0)  # of the encoder


def accuracies(data: str, rows: str, draw: int) -> list[float]:
    """The accuracy of each of ``WEIGHTS`` on rows that neither model has learned from."""
    X, y = split_of(data, "train")
    labels = np.array([f"label {k}" for k in y])
    learned = drawn(y, rows, draw)
    others = np.random.default_rng(draw).permutation(np.setdiff1d(np.arange(len(y)), learned))[:JUDGED]
    given = [X[i] for i in learned], labels[learned].tolist()
    judged = [X[i] for i in others]
    linear = gf.TextClassifier("tfidf", threads=1, verbose=0).fit(*given)
    settings: dict[str, Any] = {"train_layers": 0, "head_start": "solved", "max_length": 128}
    frozen = gf.TextClassifier(ENCODER, threads=1, verbose=0, **settings).fit(*given)
    a, b = (model.predict_proba(judged) for model in (linear, frozen))
    truth = labels[others]
    return [float((linear.classes_[((1 - w) * a + w * b).argmax(1)] == truth).mean()) for w in WEIGHTS]


@command("blends", out="blend", data=["banking77", "tweet-irony", "imdb"], rows=["100", "1000"], draws=2)
def main(options: Any) -> dict[str, Any]:
    cells = []
    for data in options.data:
        for rows in options.rows:
            found = [accuracies(data, rows, draw) for draw in range(options.draws)]
            mean = np.mean(found, 0)
            ahead = float(mean[1:-1].max() - max(mean[0], mean[-1]))
            cells.append({"data": data, "rows": rows, "accuracies": found, "blend_ahead": ahead})
            each = ", ".join(f"{w} {x:.3f}" for w, x in zip(WEIGHTS, mean, strict=True))
            print(f"{data}, {rows} rows: {each}", flush=True)
    return {"weights_of_the_encoder": WEIGHTS, "judged": JUDGED, "cells": cells}
