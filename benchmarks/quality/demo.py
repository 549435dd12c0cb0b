"""The demo's messages to a shop: accuracy of the default and of simple models on several draws of 8 messages per intent.

    .venv/bin/python -m benchmarks.quality.demo [--draws 10]

Each draw learns from 48 messages and is tested on the other 348, with one thread. ``ours`` is ``gf.TextClassifier()`` without a setting.
The result file is written after each draw; the same command goes on.
"""

import time
from typing import Any

import numpy as np

from benchmarks.harness.command import command
from benchmarks.harness.results import RESULTS, environment, kept, write_result
from benchmarks.quality.auto import METHODS
from glassformer.data.corpus import messages

RESULT = RESULTS / "demo.json"
SHOWN = ("ours", "svc", "tfidf", "embeddings")


@command(None, draws=(10, "how often the training messages are drawn"))
def main(args: Any) -> None:
    done = kept(RESULT).get("draws", [])
    for draw in range(len(done), args.draws):
        splits = messages(seed=draw).splits
        train, test, record = splits["train"], splits["test"], {}
        for name in SHOWN:
            began = time.perf_counter()
            predict, more = METHODS[name](train.texts, train.labels, draw)
            record[name] = {"seconds": round(time.perf_counter() - began, 1)}
            right = np.asarray(predict(test.texts)) == np.asarray(test.labels)
            record[name] |= {"accuracy": round(float(right.mean()), 5), "n": len(right)}
            record[name] |= {"tried": more["tried"]} if "tried" in more else {}
        done.append(record)
        write_result(RESULT, {"draws": done, "environment": environment("scikit-learn")})
        each = ", ".join(f"{name} {record[name]['accuracy']:.3f}" for name in SHOWN)
        print(f"draw {draw}: {each}", flush=True)
