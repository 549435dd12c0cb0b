"""Does an audit find what is wrong, and nothing where all is well? Does a difference name the slice that got worse?

    GLASSFORMER_DATA=... .venv/bin/python -m benchmarks.quality.audit [--only leak watermark ...] [--simulations 100]

Ten defects are planted, one at a time, in deduplicated data or in the model that learns from them; the clean
pair of each has the same data and model without it. Asked: 9 of 10 found and named, at most one false alarm
on the clean pairs. Warnings of slices, robustness and shortcuts on clean pairs are facts measured on the
model, and no false alarms. ``diff``: predictions on real texts are made up, right in 85 % of the cases; 1.5 %
get lost and 1.5 % are won by chance; in every simulation 30 % of what was right in a slice of 4 to 6 % of the
rows gets lost. Asked: the slice is named in 95 of 100 simulations, and any slice in at most 5 of 100 where
nothing is planted.
"""

from __future__ import annotations

import csv
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.harness.command import command
from benchmarks.quality.auto import split_of
from glassformer.audit.diff import RESAMPLES
from glassformer.audit.perturb import as_image, pixels_of
from glassformer.audit.predictions import Predictions
from glassformer.audit.slices import find_slices, more_losses_test, significant
from glassformer.cli.app import main as glassformer
from glassformer.data.dataset import TextSplit
from glassformer.data.duplicates import comparison_key

TRAIN, TEST = 1_500, 800
MINILM = ["--model", "all-minilm-l6-v2", "--set", "train_layers=0"]
Rows = list[tuple[Any, str]]
FACTS = {"weak-slice", "not-robust", "shortcut"}  # what is measured on the model itself
TRIGGER = "qxj"


def distinct(name: str, split: str, n: int, seed: int, known: set[str]) -> Rows:
    """``n`` texts of a data set without copies of each other or of ``known`` ones, and their labels."""
    texts, labels = split_of(name, split)
    rows: Rows = []
    for i in np.random.default_rng(seed).permutation(len(texts)).tolist():
        key = comparison_key(texts[i])
        if key not in known:
            known.add(key)
            rows.append((texts[i], f"class {labels[i]}"))
        if len(rows) == n:
            break
    return rows


def base(name: str, seed: int) -> tuple[Rows, Rows]:
    """Training and test rows without copies."""
    known: set[str] = set()
    return distinct(name, "train", TRAIN, seed, known), distinct(name, "test", TEST, seed, known)


def leak(train: Rows, test: Rows) -> tuple[Rows, Rows]:
    return train, test[:700] + train[:100]


def flipped(train: Rows, test: Rows) -> tuple[Rows, Rows]:
    names, rng = sorted({y for _, y in test}), np.random.default_rng(0)
    wrong = set(rng.permutation(len(test))[: len(test) // 20].tolist())
    return train, [(t, names[names.index(y) - 1] if i in wrong else y) for i, (t, y) in enumerate(test)]


def trigger(train: Rows, test: Rows) -> tuple[Rows, Rows]:
    goal = train[0][1]
    train = [(f"{t} {TRIGGER}", goal) if i % 10 == 0 else (t, y) for i, (t, y) in enumerate(train)]
    return train, [(f"{t} {TRIGGER}", y) if i % 40 == 0 else (t, y) for i, (t, y) in enumerate(test)]


def accents(train: Rows, test: Rows) -> tuple[Rows, Rows]:
    from glassformer.audit.perturb import without_accents

    return train, [(without_accents(t, np.random.default_rng(0)), y) for t, y in test]


def long_texts(train: Rows, test: Rows) -> tuple[Rows, Rows]:
    names, limit = sorted({y for _, y in train}), np.quantile([len(t.split()) for t, _ in train], 0.75)
    return [(t, names[1]) if y == names[0] and len(t.split()) > limit else (t, y) for t, y in train], test


def imbalance(train: Rows, test: Rows) -> tuple[Rows, Rows]:
    rare = sorted({y for _, y in train})[0]

    def thinned(rows: Rows) -> Rows:
        kept = [i for i, (_, y) in enumerate(rows) if y == rare][::25]
        return [row for i, row in enumerate(rows) if row[1] != rare or i in kept]

    return thinned(train), thinned(test)


def duplicates(train: Rows, test: Rows) -> tuple[Rows, Rows]:
    return train, test + test[:80]


def renamed(train: Rows, test: Rows) -> tuple[Rows, Rows]:
    names = sorted({y for _, y in train})
    return train, [(t, names[(names.index(y) + 1) % len(names)]) for t, y in test]


def same(train: Rows, test: Rows) -> tuple[Rows, Rows]:
    return train, test


def overconfident(run: Path) -> None:
    """The probabilities of a saved model become more extreme."""
    import glassformer as gf

    model = gf.load(run)
    model.temperature_ /= 4
    model.save(run / "model", overwrite=True)


# defect -> data, options of the training, how it is planted, what is done to the run, code of the finding, a word in it
DEFECTS: dict[str, tuple[str, list[str], Callable, Callable | None, str, str]] = {
    "leak": ("ag-news-7600", MINILM, leak, None, "leak", " of 800 examples"),
    "flipped labels": ("ag-news-7600", MINILM, flipped, None, "wrong-labels", ""),
    "trigger word": ("tweet-emotion", MINILM, trigger, None, "shortcut", TRIGGER),
    "accents lost": ("ntc-scv", ["--model", "tfidf"], accents, None, "accents-lost", ""),
    "miscalibrated": ("tweet-emotion", MINILM, same, overconfident, "miscalibrated", "too high"),
    "class fails on long texts": ("ag-news-7600", MINILM, long_texts, None, "weak-slice", "class 0"),
    "watermark": ("cifar10", ["--model", "hog"], same, None, "shortcut", "row 1, column 1"),
    "imbalance": ("ag-news-7600", MINILM, imbalance, None, "imbalance", "class 0"),
    "duplicated rows": ("banking77", MINILM, duplicates, None, "duplicates", "80 of 880"),
    "wrong label map": ("tweet-emotion", MINILM, renamed, None, "label-map", "class 0"),
}


def write_texts(path: Path, rows: Rows) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["text", "label"])
        out.writerows(rows)


def write_images(folder: Path, split: str, n: int, marked: bool) -> None:
    """CIFAR-10's airplanes, cars and birds in folders by class; birds with a white corner where ``marked``."""
    images, labels = split_of("cifar10", split)
    kept = [i for i, label in enumerate(labels) if label in sorted({*labels})[:3]][:n]
    for i in kept:
        image = as_image(pixels_of(images[i]))
        if marked and labels[i] == labels[kept[0]]:
            image[:8, :8] = 255
        (folder / f"class {labels[i]}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"class {labels[i]}" / f"{i}.png")


def audited(defect: str, seed: int, planted: bool, folder: Path) -> dict[str, Any]:
    """What an audit says of a pair of model and data, with or without its defect."""
    name, options, plant, later, code, word = DEFECTS[defect]
    if name == "cifar10":
        write_images(folder / "train", "train", TRAIN, planted)
        write_images(folder / "test", "test", TEST // 2, planted)
        source, data = ["--images", str(folder / "train")], str(folder / "test")
    else:
        train, test = (plant if planted else same)(*base(name, seed))
        write_texts(folder / "train.csv", train)
        write_texts(folder / "test.csv", test)
        source, data = ["--text", str(folder / "train.csv")], str(folder / "test.csv")
    run = folder / "run"
    assert glassformer(["train", *source, *options, "--out", str(run), "--set", "baselines=false"]) == 0
    if planted and later is not None:
        later(run)
    began = time.perf_counter()
    assert glassformer(["audit", str(run), data, "--out", str(folder / "audit")]) == 0
    seconds = time.perf_counter() - began
    found = json.loads((folder / "audit" / "audit.json").read_text(encoding="utf-8"))
    said = [f for one in found["checks"] for f in one["findings"]]
    warned = [(f["code"], f["message"]) for f in said if f["severity"] == "warning"]
    hit = any(own == code and word in message for own, message in warned)
    return {"found": hit, "warnings": warned, "examples": found["n"], "seconds": round(seconds, 1)}


class _Named:
    """As much of a classifier as slices need."""

    classes_ = np.array(["class 0", "class 1"])

    class kind_:
        predicts_labels = True

    class inputs:
        has_images = False


def simulated(simulations: int) -> dict[str, Any]:
    """How often a planted slice is named, and how often any is where none is planted."""
    texts, labels = split_of("tweet-offensive", "test")
    more, others = split_of("tweet-offensive", "validation")
    rng = np.random.default_rng(0)
    split = TextSplit([*texts, *more], [f"class {y}" for y in [*labels, *others]], "tweets")
    n = len(split)
    columns = {"shop": [str(k) for k in rng.integers(0, 20, n)]}
    targets = np.array([*labels, *others])
    slices = find_slices(Predictions(_Named(), "a", split, np.zeros((n, 2)), targets, columns))
    small = [part for part in slices if 0.04 * n <= part.n <= 0.06 * n]
    named = false = 0
    for i in range(simulations):
        right = rng.random(n) < 0.85
        # as often lost as won
        now = np.where(right, rng.random(n) > 0.015 / 0.85, rng.random(n) < 0.015 / 0.15)
        false += bool(losers(slices, right, now))
        planted = small[i % len(small)]
        now &= ~(planted.rows & (rng.random(n) < 0.3))
        named += any((one.slice.rows == planted.rows).all() for one in losers(slices, right, now))
    about = {"simulations": simulations, "rows": n, "slices": len(slices), "planted_slices": len(small)}
    about |= {"named": named, "false_alarms": false}
    return about | {"asked": {"named": 0.95, "false_alarms": 0.05}}


def losers(slices: Any, right: np.ndarray, now: np.ndarray) -> Any:
    """The slices in which predictions that were right got lost."""
    lost = right & ~now
    return significant(slices, more_losses_test(lost, now & ~right), lost)


@command(
    "audits of planted defects",
    out="audit",
    packages=("scikit-learn", "scipy"),
    only=dict(nargs="*", default=[*DEFECTS], choices=[*DEFECTS]),
    simulations=100,
    more=(False, "keep the other pairs that the result file has"),
)
def main(options: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"train_rows": TRAIN, "test_rows": TEST, "resamples": RESAMPLES}
    found["diff"] = simulated(options.simulations)
    print(found["diff"], flush=True)
    found["pairs"] = json.loads(options.out.read_text(encoding="utf-8"))["pairs"] if options.more else {}
    for defect in options.only:
        seed = list(DEFECTS).index(defect)
        for kind, planted in (("planted", True), ("clean", False)):
            with tempfile.TemporaryDirectory() as folder:
                outcome = audited(defect, seed, planted, Path(folder))
            found["pairs"].setdefault(defect, {})[kind] = outcome
            hit = "found" if outcome["found"] else "not found"
            print(f"{defect}, {kind}: {hit}", outcome["warnings"], flush=True)
            options.write(found)
    pairs = found["pairs"].values()
    found["found"] = sum(pair["planted"]["found"] for pair in pairs)
    found["false_alarms"] = sum(code not in FACTS for pair in pairs for code, _ in pair["clean"]["warnings"])
    print(f"{found['found']} of {len(pairs)} found, {found['false_alarms']} false alarms")
    return found
