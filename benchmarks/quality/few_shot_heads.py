"""Are few-shot heads surer where cross-validation over their own few examples chooses, and are they right to be?

    GLASSFORMER_DATA=... .venv/bin/python -m benchmarks.quality.few_shot_heads [--draws 5] [--tested 400]
        [--vectors FOLDER] [--out benchmarks/results/few-shot-heads.json]

``Embedder.fit(texts, labels)`` on the draws of ``few_shot.py``; behind its vectors the logistic regression as it is
(C = 1), with C from 1, 4, 16, 64 chosen by the log loss of cross-validation over the examples (eight folds), and with
C = 1 and a temperature chosen so. Vectors of a draw that lie in ``--vectors`` are not computed again.
"""

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.command import command
from benchmarks.quality.few_shot import DATA, drawn, opened
from glassformer.evaluate.predict import softmax

CHOICES, BINS = (1.0, 4.0, 16.0, 64.0), 15


def vectors_of(file: Path, data: tuple, each: int, draw: int, tested: int) -> Any:
    """Vectors and labels of the examples (``a``, ``y``) and of some test texts (``b``, ``t``)."""
    if not file.is_file():
        texts, labels, tests, wanted = data
        kept = np.random.default_rng(0).permutation(len(tests))[:tested]
        given, own = drawn(texts, labels, each, draw)
        model = opened("auto", seed=draw).fit(given, own)
        parts = {"a": model.embed(given), "b": model.embed([tests[i] for i in kept])}
        file.parent.mkdir(parents=True, exist_ok=True)
        truth = np.array([wanted[i] for i in kept]).astype(str)
        np.savez(file, y=np.array(own).astype(str), t=truth, **parts)
    return np.load(file)


def loss(logits: np.ndarray, targets: np.ndarray, temperature: float = 1.0) -> float:
    shares = softmax(logits, temperature)[np.arange(len(targets)), targets]
    return float(-np.log(np.maximum(shares, 1e-12)).mean())


def figures(shares: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Accuracy, log loss, calibration error in 15 bins, and the mean probability of the likeliest class."""
    sure, right = shares.max(1), shares.argmax(1) == targets
    part = np.minimum((sure * BINS).astype(int), BINS - 1)
    inside = [part == k for k in set(part.tolist())]
    error = sum(abs(sure[own].mean() - right[own].mean()) * own.mean() for own in inside)
    lost = loss(np.log(np.maximum(shares, 1e-12)), targets)
    found = {"accuracy": right.mean(), "log_loss": lost, "calibration_error": error}
    found |= {"confidence": sure.mean()}
    return {name: round(float(value), 4) for name, value in found.items()}


def compared(vectors: Any) -> dict[str, Any]:
    """The three heads on one draw."""
    from scipy.optimize import minimize_scalar
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    from glassformer.train.solved_head import unit

    examples, tests = unit(vectors["a"]), unit(vectors["b"])
    classes, targets = np.unique(vectors["y"], return_inverse=True)
    truth = np.searchsorted(classes, vectors["t"])

    def logits(C: float, learned: np.ndarray, others: np.ndarray) -> np.ndarray:
        head = LogisticRegression(C=C, max_iter=1000).fit(examples[learned], targets[learned])
        found = head.decision_function(others)
        return np.stack([0 * found, found], 1) if found.ndim == 1 else found

    folds = [*StratifiedKFold(8, shuffle=True, random_state=0).split(examples, targets)]
    held: dict[float, np.ndarray] = {C: np.zeros((len(targets), len(classes))) for C in CHOICES}
    for C in CHOICES:
        for learned, out in folds:
            held[C][out] = logits(C, learned, examples[out])
    best = min(CHOICES, key=lambda C: loss(held[C], targets))
    fitted = minimize_scalar(lambda x: loss(held[1.0], targets, np.exp(x)), bounds=(-4, 3), method="bounded")
    whole, temperature = np.arange(len(targets)), float(np.exp(fitted.x))
    plain = logits(1.0, whole, tests)
    told = {"as it is": plain, "C chosen": logits(best, whole, tests)}
    told |= {"temperature chosen": plain / temperature}
    heads = {name: figures(softmax(found), truth) for name, found in told.items()}
    return {"tested": len(truth), "C": best, "temperature": round(temperature, 4), "heads": heads}


def summarized(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the draws of each data set and number of examples."""
    out = []
    for data, each in dict.fromkeys((r["data"], r["examples"]) for r in records):
        mine = [r["heads"] for r in records if (r["data"], r["examples"]) == (data, each)]
        means: dict[str, dict[str, float]] = {head: {} for head in mine[0]}
        for head, found in means.items():
            found |= {name: round(float(np.mean([m[head][name] for m in mine])), 4) for name in mine[0][head]}
        out.append({"data": data, "examples": each, "draws": len(mine), "heads": means})
    return out


@command(
    "few-shot heads",
    out="few-shot-heads",
    draws=5,
    tested=400,
    vectors=Path("few-shot-vectors"),
    known=(False, "only draws whose vectors lie there"),
)
def main(options: Any) -> dict[str, Any]:
    records, loaded = [], {}
    for data, each, draw in itertools.product(DATA, (8, 16), range(options.draws)):
        file = options.vectors / f"{data}-{each}-{draw}.npz"
        if not file.is_file() and options.known:
            continue
        if not file.is_file() and data not in loaded:
            loaded[data] = DATA[data]()
        found = compared(vectors_of(file, loaded.get(data, ()), each, draw, options.tested))
        records.append({"data": data, "examples": each, "draw": draw, **found})
    return {"records": records, "summary": summarized(records)}
