"""How accurate is zero-shot classification by the names of the classes, with a sentence encoder?

    GLASSFORMER_DATA=... .venv/bin/python -m benchmarks.quality.zero_shot [--tested 500]

``ZeroShotClassifier("all-minilm-l6-v2", names)`` on random test texts, beside chance and the most
frequent class. AG News is a part of its test rows (5,600 for training, 2,000 for test): not comparable with published figures.
"""

from typing import Any

import numpy as np
from pyarrow.parquet import read_table

import glassformer as gf
from benchmarks.harness.command import command
from benchmarks.quality.few_shot_heads import figures
from glassformer.data.folders import find_folder
from glassformer.evaluate.intervals import share_interval

NAMES = {  # in the order of the labels
    "ag-news-7600": ("world", "sports", "business", "technology"),
    "tweet-emotion": ("anger", "joy", "optimism", "sadness"),
}


def sample(name: str, count: int) -> tuple[list[str], np.ndarray]:
    """Random test texts and their class numbers."""
    table = read_table(find_folder(name) / "test.parquet", columns=["text", "label"])
    rows = np.random.default_rng(0).permutation(len(table))[:count]
    return table["text"].take(rows).to_pylist(), table["label"].take(rows).to_numpy()


@command("zero-shot", out="zero-shot", tested=500, threads=1)
def main(options: Any) -> dict[str, Any]:
    records = []
    for name, names in NAMES.items():
        texts, truth = sample(name, options.tested)
        found = figures(gf.ZeroShotClassifier("all-minilm-l6-v2", names).predict_proba(texts), truth)
        record = {"data": name, "names": names, "n": len(truth), **found}
        record["accuracy_interval"] = share_interval(found["accuracy"], len(truth))
        record["most_frequent"] = float(np.bincount(truth).max() / len(truth))
        records.append(record | {"chance": 1 / len(names)})
        print(record)
    return {"records": records}
