"""Labels flipped on purpose: how many of them does the label review find?

    .venv/bin/python -m benchmarks.quality.label_noise ntc-textcnn --folds 3 [--flips 500] [--set limit=2000]

Flips the labels of so many training examples, cross-validates the recipe on them, reviews, and counts the flipped
ones among the first suggestions. The training part alone is used: no fold has a validation set, so each ends with
its last weights. The folds go on where they were stopped. Writes ``benchmarks/results/label-noise-NAME.json``.
"""

import csv
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.harness.command import command
from benchmarks.harness.options import SETTINGS
from benchmarks.harness.results import RESULTS
from glassformer.errors import ConfigError
from glassformer.study.folds import cross_validate
from glassformer.study.review import review
from glassformer.tasks.catalog import TASKS, load_recipe
from glassformer.tasks.text_classification.recipe import Recipe
from glassformer.train.callbacks import Progress

FIRST = (100, 500, 1000)  # suggestions that a person might look at


def write_flipped(recipe: Recipe, path: Path, flips: int, seed: int) -> set[int]:
    """The recipe's training texts as a CSV file, some of their labels turned round; the rows of those.

    Where the file is there with other examples or flips, folds beside it would be of both: a ConfigError.
    """
    train = TASKS[recipe.task].load(recipe).train
    labels = list(train.labels or [])
    classes = sorted(set(labels), key=str)
    if not 1 <= flips <= len(labels) or len(classes) < 2:
        what = f"{flips} flips of {len(labels)} examples in {len(classes)} classes"
        raise ConfigError(what, where="--flips", fix="Give from 1 to as many as there are examples")
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(labels), flips, replace=False)
    for i in chosen:
        labels[i] = rng.choice([c for c in classes if c != labels[i]]).item()
    draft = path.with_suffix(".tmp")
    with open(draft, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(zip(train.texts, labels))
    if path.exists() and path.read_bytes() != draft.read_bytes():
        draft.unlink()
        what = "holds other examples or other flips"
        raise ConfigError(what, where=str(path), fix="Remove its folder, or give another --runs")
    os.replace(draft, path)
    return set((chosen + 2).tolist())  # row 1 is the header


def found_among(rows: Sequence[int], flipped: set[int]) -> dict[str, dict[str, float]]:
    """First k suggestions (most doubtful first) -> how many were flipped, also as shares of k and of all flips."""
    out = {}
    for k in FIRST:
        hits = sum(row in flipped for row in rows[:k])
        out[str(k)] = {
            "flipped": hits, "share_of_suggestions": hits / max(len(rows[:k]), 1),
            "share_of_flips": hits / len(flipped),
        }  # fmt: skip
    return out


def measure(recipe: Recipe, folder: Path, flips: int, folds: int, seed: int, say: Callable) -> dict[str, Any]:
    """Flip, cross-validate, review, count."""
    if recipe.task != "text-classification":
        what = f"{recipe.task} has no labels of texts"
        raise ConfigError(what, where=recipe.name, fix="Name a recipe that has")
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "flipped.csv"
    flipped = write_flipped(recipe, data, flips, seed)
    whole = dict.fromkeys(("validation_size", "test_size", "train_size", "limit"))
    columns = {"text_column": "text", "label_column": "label"}
    own = replace(recipe, data=replace(recipe.data, source=str(data.resolve()), **columns, **whole))
    metrics = cross_validate(own, folder / "folds", folds, log=say, callbacks=[Progress()])
    found = review(folder / "folds", top=max(FIRST))
    with open(folder / "folds" / "review.csv", encoding="utf-8", newline="") as file:
        rows = [int(row["row"]) for row in csv.DictReader(file)]
    return {
        "folds": folds, "examples": found["n"], "flipped": len(flipped),
        "found_among_first": found_among(rows, flipped), "suspicious": found["suspicious"],
        "estimated_noise": found["noise"], "out_of_fold_accuracy": metrics["test"]["accuracy"],
        "weights_source": metrics["weights_source"], "seconds": metrics["seconds"],
    }  # fmt: skip


@command(
    "labels flipped on purpose",
    "recipe",
    out=lambda options: RESULTS / f"label-noise-{load_recipe(options.recipe).name}.json",
    packages=("scikit-learn",),
    flips=500,
    folds=5,
    seed=(0, "of the flips; the recipe has its own"),
    runs=Path("runs"),
    overrides=SETTINGS,
)
def main(options: Any) -> dict[str, Any]:
    recipe = load_recipe(options.recipe, options.overrides)
    folder = options.runs / f"label-noise-{recipe.name}"
    found = measure(recipe, folder, options.flips, options.folds, options.seed, Console(stderr=True).print)
    about = {"recipe": recipe.name, "overrides": options.overrides}
    return about | {"seed": options.seed, "recipe_seed": recipe.train.seed, **found}
