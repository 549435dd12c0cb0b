"""What it is worth how a new masked-word model begins: loss against tokens read, for each start.

    .venv/bin/python -m benchmarks.quality.starts [--limit 10000] [--seeds 0 1 2] [--starts random neighbours] [--threads 1]

The recipe imdb-mlm on some of its reviews, one pass: random weights alone; heads that begin by looking at the
neighbours; these with a token table of word vectors, which are trained here first (their seconds are
counted). Kept: the mean loss of every 250,000 tokens read, and how many hidden words of held-out reviews are
guessed right in the end.
"""

import statistics
import time
from typing import Any

from benchmarks.harness.command import command
from benchmarks.harness.results import kept
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.masked_lm.estimator import Corpus, MaskedLM, load_corpus

WINDOW = 250_000  # tokens
STARTS: dict[str, dict[str, Any]] = {
    "random": {"neighbours": False, "vectors": None},
    "neighbours": {"neighbours": True, "vectors": None},
    "neighbours and word vectors": {"neighbours": True, "vectors": "word2vec"},
}


def learn(corpus: Corpus, settings: dict[str, Any]) -> dict[str, Any]:
    """One training: the loss as it goes, and the held-out figures."""
    started = time.perf_counter()
    learner = MaskedLM(**settings).fit(corpus.train, validation=corpus.validation)
    windows: dict[int, list[float]] = {}
    read = 0
    for record in learner.history_:
        if record["kind"] == "step":
            read += record["tokens"]
            windows.setdefault(read // WINDOW, []).append(record["loss"])
    last = [r for r in learner.history_ if r["kind"] == "evaluation"][-1]
    return {
        "tokens": read, "seconds": round(time.perf_counter() - started, 1),
        "losses": [round(statistics.fmean(losses), 4) for losses in windows.values()],
        "loss": last["loss"], "accuracy": last["accuracy"], "masked_tokens": last["masked_tokens"],
    }  # fmt: skip


@command(
    "starts of masked-word models",
    out="starts",
    packages=("torch",),
    recipe="imdb-mlm",
    limit=(10000, "texts of every split"),
    seeds=[0],
    starts=dict(nargs="+", choices=STARTS, default=list(STARTS)),
    threads=1,
)
def main(options: Any) -> None:
    recipe = load_recipe(options.recipe, [f"limit={options.limit}", "validation_size=500"])
    corpus, known = load_corpus(recipe), MaskedLM._get_param_names()
    parts = (recipe.text, recipe.model, recipe.train)
    settings = {key: value for part in parts for key, value in vars(part).items() if key in known}
    settings |= {"epochs": 1, "threads": options.threads, "checkpoint_every": 0}
    about = {"recipe": options.recipe, "limit": options.limit, "window": WINDOW}
    old = kept(options.out)
    starts = old["starts"] if all(old.get(key) == value for key, value in about.items()) else {}
    for seed in options.seeds:
        for name in options.starts:
            found = starts.setdefault(name, {})
            if str(seed) not in found:
                found[str(seed)] = learn(corpus, settings | STARTS[name] | {"seed": seed})
                options.write(about | {"starts": starts})
            run = found[str(seed)]
            print(f"{name}, seed {seed}: loss {run['loss']:.3f}, {run['accuracy']:.1%} right", flush=True)
