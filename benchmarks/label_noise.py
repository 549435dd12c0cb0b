"""Labels flipped on purpose: how many of them does the label review find?

    .venv/bin/python benchmarks/label_noise.py imdb-encoder-small-best --flips 500 [--folds 5] [--set limit=2000]

Flips the labels of so many training examples, cross-validates the recipe on them, reviews, and counts the flipped
ones among the first suggestions. The folds go on where they were stopped. Writes
``benchmarks/results/label-noise-NAME.json``.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
from common import RESULTS, write_result
from rich.console import Console

from glassformer.recipe import load_recipe
from glassformer.study.experiment import load_splits
from glassformer.study.folds import cross_validate
from glassformer.study.review import review
from glassformer.train.callbacks import Progress

FIRST = 1000  # suggestions that a person might look at


def write_flipped(recipe, path: Path, flips: int, seed: int) -> set[int]:
    """The recipe's training texts as a CSV file, some of their labels turned round; the rows of those."""
    train = load_splits(recipe).train
    labels = list(train.labels or [])
    classes = sorted(set(labels), key=str)
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(labels), flips, replace=False)
    for i in chosen:
        labels[i] = rng.choice([c for c in classes if c != labels[i]]).item()
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(zip(train.texts, labels))
    return set((chosen + 2).tolist())  # row 1 is the header


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe")
    parser.add_argument("--flips", type=int, default=500)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--set", dest="overrides", nargs="*", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    console = Console(stderr=True)
    recipe = load_recipe(args.recipe, args.overrides)
    folder = args.runs / f"label-noise-{args.recipe}"
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "flipped.csv"
    flipped = write_flipped(recipe, data, args.flips, args.seed)
    own = replace(
        recipe.data,
        source=str(data.resolve()),
        validation_size=None,
        test_size=None,
        train_size=None,
        limit=None,
    )
    recipe = replace(recipe, data=own)
    metrics = cross_validate(recipe, folder / "folds", args.folds, say=console.print, callbacks=[Progress()])
    found = review(folder / "folds", top=FIRST)
    with open(folder / "folds" / "review.csv", encoding="utf-8", newline="") as file:
        rows = [int(row["row"]) for row in csv.DictReader(file)]
    hits = [row in flipped for row in rows]
    at = {k: sum(hits[:k]) for k in (100, args.flips, FIRST)}
    summary = {
        "recipe": args.recipe, "overrides": args.overrides, "folds": args.folds, "examples": found["n"],
        "flipped": args.flips, "found_among_first": at, "share_found": at[FIRST] / args.flips,
        "suspicious": found["suspicious"], "estimated_noise": found["noise"],
        "out_of_fold_accuracy": metrics["test"]["accuracy"], "seconds": metrics["seconds"],
    }  # fmt: skip
    write_result(RESULTS / f"label-noise-{args.recipe}.json", summary)
    console.print(summary)


if __name__ == "__main__":
    main()
