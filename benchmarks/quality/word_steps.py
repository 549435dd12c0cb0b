"""Row 7 over its steps: how many analogies are solved as the practical's training goes on, and by what reading.

    GLASSFORMER_DATA=... .venv/bin/python -m benchmarks.quality.word_steps [--seeds 0 1 2] [--steps 25600]

The recipe ``countries-word2vec-given`` on the practical's corpus, with its window of 5 words and with 2. Its
step meets each of the 85 words once. After 100, 200, 400 ... steps the vectors are judged twice: a word's
center vector alone, and the sum of its center and context vectors. Every training is written when it has
ended; the same command goes on.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.harness.command import command
from benchmarks.harness.options import count
from benchmarks.harness.results import kept, write_result
from glassformer.evaluate.vectors import country_corpus_questions, evaluate_analogies, normalize_rows
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.word2vec.estimator import Word2Vec, load
from glassformer.train.callbacks import Callback

RECIPE, FIRST = "countries-word2vec-given", 100
WINDOWS = (5, 2)
READINGS = ("center vectors", "center + context")
FACTS = ("country : capital", "country : currency")


def marks(steps: int) -> list[int]:
    """100, 200, 400 ... up to ``steps``."""
    found = [FIRST]
    while 2 * found[-1] <= steps:
        found.append(2 * found[-1])
    return found


class Judged(Callback):
    """The analogies that are solved after some of the steps."""

    def __init__(self, words: Sequence[str], at: Sequence[int]):
        self.numbers = {word: i for i, word in enumerate(words)}
        self.at, self.points = set(at), []

    def step(self, training: Any, info: Any) -> None:
        if training.step not in self.at:
            return
        tables = training.model.centres, training.model.contexts
        centers, contexts = (table.weight.detach().numpy().copy() for table in tables)
        point = {"step": training.step, "loss": info.loss}
        for name, vectors in zip(READINGS, (centers, centers + contexts)):
            unit, questions = normalize_rows(vectors), country_corpus_questions()
            point[name] = evaluate_analogies(self.numbers, unit, questions)
        self.points.append(point)


def trained(window: int, seed: int, steps: int) -> dict[str, Any]:
    """One training, judged after some of its steps."""
    changes = [f"window={window}", f"seed={seed}", f"epochs={steps}", "threads=1"]
    recipe = load_recipe(RECIPE, changes)
    corpus = load(recipe).corpus
    judged, model = Judged(corpus.words, marks(steps)), Word2Vec.from_recipe(recipe)
    model.fit(corpus, callbacks=[judged])
    about = {"window": window, "seed": seed, "points": judged.points}
    return about | {"train_seconds": round(model.train_seconds_, 1)}


def share(point: dict[str, Any], reading: str, sections: Sequence[str] | None = None) -> float:
    """Solved analogies of one point, of all of them or of some sections."""
    found = point[reading]["sections"]
    chosen = [found[name] for name in sections or found]
    return sum(s["correct"] for s in chosen) / sum(s["known"] for s in chosen)


def cell(values: Sequence[float]) -> str:
    low, high = f"{min(values):.1%}", f"{max(values):.1%}"
    spread = f" ({low[:-1]} to {high[:-1]})" if low != high else ""
    return f"{statistics.fmean(values):.1%}{spread}"


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The table over the steps, the curve, and the sentences that may be said."""
    steps = [point["step"] for point in runs[0]["points"]]

    def at(window: int, i: int, get: Callable[[dict[str, Any]], float]) -> list[float]:
        return [get(run["points"][i]) for run in runs if run["window"] == window]

    def values(window: int, reading: str, i: int, sections: Sequence[str] | None = None) -> list[float]:
        return at(window, i, lambda point: share(point, reading, sections))

    arms = [(window, reading) for window in WINDOWS for reading in READINGS]
    rows = []
    for i, step in enumerate(steps):
        loss = statistics.fmean(at(WINDOWS[0], i, lambda point: point["loss"]))
        rows.append([f"{step:,}", f"{loss:.2f}", *(cell(values(w, r, i)) for w, r in arms)])
    table = {
        "title": "Analogies solved after so many steps: mean and range over seeds",
        "columns": ["Steps", "Loss", *(f"window {w}, {r}" for w, r in arms)],
        "rows": rows,
    }
    means: dict[str, dict[str, list[float]]] = {}
    for window, r in arms:
        curve = [statistics.fmean(values(window, r, i)) for i in range(len(steps))]
        means.setdefault(f"window {window}", {})[r.replace(" vectors", "")] = curve
    given = means[f"window {WINDOWS[0]}"]["center"]
    best = max(range(len(steps)), key=given.__getitem__)
    last = len(steps) - 1
    facts = [cell(values(WINDOWS[1], r, last, FACTS)) for r in READINGS]
    verdict = (
        f"As given, by center vectors with a window of {WINDOWS[0]}, {given[0]:.1%} of the analogies are solved after {steps[0]} steps, "
        f"{given[best]:.1%} after {steps[best]:,}, the highest of the curve, and {given[last]:.1%} after {steps[last]:,}. "
        f"With a window of {WINDOWS[1]}, after as many, the capitals and currencies are at {facts[0]} by center vectors "
        f"and at {facts[1]} by the sum of both vectors. "
        "Skip-gram teaches a center vector to score the *context* vector of its neighbors: that Paris stands beside France is "
        "written between the two tables, and a look at one of them alone misses it."
    )
    return {
        "tables": [table],
        "verdict": verdict,
        "curve": {"panels": means, "ends": [f"{steps[0]:,}", f"{steps[last]:,} steps, each point doubles"]},
    }


@command("word steps", out="word-steps", seeds=[0, 1, 2], steps=dict(type=count, default=25600))
def main(options: Any) -> None:
    head = {"title": "Over the steps", "recipe": RECIPE, "steps": options.steps, "seeds": options.seeds}
    old = kept(options.out)
    runs = old.get("runs", []) if old.get("steps") == options.steps else []
    runs = [run for run in runs if run["seed"] in options.seeds]
    for seed in options.seeds:
        for window in WINDOWS:
            if any((run["window"], run["seed"]) == (window, seed) for run in runs):
                continue
            runs.append(trained(window, seed, options.steps))
            if {run["window"] for run in runs} == set(WINDOWS):
                options.write({**head, **summary(runs), "runs": runs})
            print(window, seed, share(runs[-1]["points"][-1], READINGS[0]), flush=True)
    if runs == old.get("runs"):  # nothing was measured: day and machine stay, the words may be others
        write_result(options.out, {**old, **summary(runs)})
