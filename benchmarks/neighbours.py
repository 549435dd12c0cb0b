"""What it is worth that a new masked-word model begins by looking at the neighbours: loss against tokens read.

    .venv/bin/python benchmarks/neighbours.py [--limit 3000] [--seeds 0 1 2] [--threads 1]

The recipe imdb-mlm on some of its reviews, one pass, with ``neighbours`` and with random weights alone, else alike and
with the same seeds: the mean loss of every 100,000 tokens read, and how many hidden words of held-out reviews are
guessed right in the end. Figures go to ``benchmarks/results/neighbours.json``.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import RESULTS, environment, write_result

from glassformer.masked_lm import MaskedLM
from glassformer.recipe import load_recipe
from glassformer.study.pretraining import Corpus, load_corpus

WINDOW = 100_000  # tokens


def learn(corpus: Corpus, settings: dict[str, Any]) -> dict[str, Any]:
    """One training: the loss as it goes, and the held-out figures."""
    learner = MaskedLM(**settings).fit(corpus.train, validation=corpus.validation)
    windows: dict[int, list[float]] = {}
    read = 0
    for record in learner.history_:
        if record["kind"] == "step":
            read += record["tokens"]
            windows.setdefault(read // WINDOW, []).append(record["loss"])
    last = [r for r in learner.history_ if r["kind"] == "evaluation"][-1]
    return {
        "tokens": read, "seconds": round(learner.train_seconds_, 1), "window": WINDOW,
        "losses": [round(statistics.fmean(losses), 4) for losses in windows.values()],
        "loss": last["loss"], "accuracy": last["accuracy"],
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", default="imdb-mlm")
    parser.add_argument("--limit", type=int, default=3000, help="texts of every split")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS / "neighbours.json")
    given = parser.parse_args(arguments)
    recipe = load_recipe(given.recipe, [f"limit={given.limit}", "validation_size=200"])
    corpus = load_corpus(recipe)
    known = MaskedLM._get_param_names()
    settings = {
        key: value
        for part in (recipe.text, recipe.model, recipe.train)
        for key, value in vars(part).items()
        if key in known
    }
    settings |= {"epochs": 1, "threads": given.threads, "checkpoint_every": 0}
    arms: dict[str, dict[str, Any]] = {"neighbours": {}, "random": {}}
    for seed in given.seeds:
        for name, found in arms.items():
            run = learn(corpus, settings | {"seed": seed, "neighbours": name == "neighbours"})
            found[str(seed)] = run
            print(f"{name}, seed {seed}: loss {run['loss']:.3f}, {run['accuracy']:.1%} right", flush=True)
    means = {
        name: {key: statistics.fmean(run[key] for run in found.values()) for key in ("loss", "accuracy")}
        for name, found in arms.items()
    }
    result = {
        "recipe": given.recipe, "limit": given.limit, "arms": arms, "means": means, **environment("torch"),
    }  # fmt: skip
    write_result(given.out, result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
