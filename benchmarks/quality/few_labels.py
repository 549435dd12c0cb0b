"""Row 8 told apart: what do frozen word vectors and positions give where few sentences have labels?

    GLASSFORMER_DATA=... .venv/bin/python -m benchmarks.quality.few_labels [--seeds 0 1 2 ...] [--labels 20 50 100 200]

With 16,000 labelled sentences every arm of row 8 is at 100 %. Here 20 to 200 distinct sentences of the
practical's corpus have labels. The mini-Transformer of ``europe-given`` learns from them, with its 50 numbers
per word

    frozen      Word2Vec's, learned on all training sentences without their labels; they stay
    trained     the same, trained on with the rest
    random      drawn at random with the spread of Word2Vec's, and trained

each with sinusoidal positions and with none. All else is the recipe's; every fit makes the same number of
steps.

*Unseen sentences*: the share right of the distinct sentences of the test part. *Never labelled*: a European
and another country stand in no labelled sentence; the share right of the distinct sentences of the corpus
that name one of the two and no other country, each of the two counting half, so that chance is 50 %. Each
seed draws other sentences, vectors and countries. Intervals are of the mean over seeds (Student's t, 95 %),
differences are paired by seed and corrected for their number (Holm). Every fit is written as soon as it is
there; the same command goes on.
"""

import itertools
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.command import command
from benchmarks.harness.options import count
from benchmarks.harness.results import kept, write_result
from benchmarks.harness.seeds import interval
from glassformer.data.country_corpus import COUNTRIES, EUROPEAN, label_of
from glassformer.data.sources import load_text_dataset
from glassformer.data.text import clean_text, encode, word_tokenizer
from glassformer.evaluate.compare import holm
from glassformer.tasks.build import train_vectors
from glassformer.tasks.catalog import TASKS, load_recipe
from glassformer.tasks.word2vec.estimator import Word2Vec

RECIPE, DIM, PASSES = "europe-given", 50, 30
STEPS, BATCH = 300, 16
ARMS = {  # how the table begins, and whether it stays
    "frozen": ("word2vec", True),
    "trained": ("word2vec", False),
    "random": ("random", False),
}
PLACES = ("sinusoidal", "none")
EUROPE = sorted(EUROPEAN)
OTHERS = sorted(set(COUNTRIES) - EUROPEAN)
UNSEEN, NEVER = "unseen sentences", "never labelled"
COMPARED = [  # what is said, and the two arms
    *((f"{arm}: no positions, sinusoidal", (arm, "none"), (arm, "sinusoidal")) for arm in ARMS),
    ("sinusoidal: frozen, random", ("frozen", "sinusoidal"), ("random", "sinusoidal")),
    ("sinusoidal: trained, frozen", ("trained", "sinusoidal"), ("frozen", "sinusoidal")),
]


def words(text: str) -> set[str]:
    return set(clean_text(text, "trim").lower().split())


class Corpus:
    """The practical's sentences, and what all fits of a seed share."""

    def __init__(self, folder: Path):
        self.folder = folder
        splits = load_text_dataset("countries-given").splits
        self.train = [clean_text(text, "trim") for text in splits["train"].texts]
        self.pool = list(dict.fromkeys(self.train))  # distinct, none of them in the test part
        self.test = list(dict.fromkeys(clean_text(text, "trim") for text in splits["test"].texts))
        held = [clean_text(text, "trim") for text in splits["validation"].texts]
        self.all = list(dict.fromkeys([*self.train, *held, *self.test]))
        self.tokenizer = word_tokenizer(self.train, min_count=1, separator=False)
        self.tokenizer.save(str(folder / "tokenizer.json"))
        self.table = encode(self.tokenizer, self.train, max_length=128)

    def vectors(self, start: str, seed: int) -> Path:
        """A file of word vectors: Word2Vec's of that seed, or random ones with their mean and spread."""
        path = self.folder / f"{start}-{seed}.txt"
        if path.is_file():
            return path
        if start == "word2vec":
            return train_vectors(self.table, self.tokenizer, DIM, PASSES, seed).save_word2vec_format(path)
        learned = Word2Vec.load(self.vectors("word2vec", seed))
        old = learned.vectors_
        drawn = np.random.default_rng(seed).normal(old.mean(), old.std(), old.shape)
        learned.vectors_ = drawn.astype(np.float32)
        return learned.save_word2vec_format(path)

    def drawn(self, labels: int, seed: int, without: set[str]) -> list[str]:
        """Distinct training sentences that name none of some countries, of both classes."""
        pool = [text for text in self.pool if not words(text) & without]
        order = np.random.default_rng([seed, labels]).permutation(len(pool))
        chosen = [pool[i] for i in order[:labels]]
        assert len({label_of(text) for text in chosen}) == 2
        return chosen


def fit(corpus: Corpus, arm: str, places: str, texts: Sequence[str], seed: int) -> Any:
    start, stays = ARMS[arm]
    steps = -(-len(texts) // BATCH)
    changes = {
        "tokenizer": corpus.folder / "tokenizer.json", "vectors": corpus.vectors(start, seed),
        "freeze_vectors": str(stays).lower(), "positions": places, "batch_size": BATCH,
        "epochs": -(-STEPS // steps), "seed": seed, "threads": 1,
    }  # fmt: skip
    recipe = load_recipe(RECIPE, [f"{key}={value}" for key, value in changes.items()])
    model = TASKS[recipe.task].estimator.from_recipe(recipe)
    return model.fit(list(texts), [label_of(text) for text in texts])


def right(model: Any, texts: Sequence[str]) -> float:
    """The share of texts whose label is named."""
    return float(np.mean(model.predict(list(texts)) == np.array([label_of(text) for text in texts])))


def judged(corpus: Corpus, question: str, arm: str, places: str, labels: int, seed: int) -> dict[str, Any]:
    """One fit and what is asked of it."""
    if question == UNSEEN:
        model = fit(corpus, arm, places, corpus.drawn(labels, seed, set()), seed)
        return {"right": right(model, corpus.test), "n": len(corpus.test)}
    pair = {EUROPE[seed % len(EUROPE)], OTHERS[seed % len(OTHERS)]}
    model = fit(corpus, arm, places, corpus.drawn(labels, seed, pair), seed)
    found = {}
    for name in sorted(pair):
        texts = [text for text in corpus.all if words(text) & set(COUNTRIES) == {name}]
        found[name] = {"right": right(model, texts), "n": len(texts)}
    shares, counts = ([f[key] for f in found.values()] for key in ("right", "n"))
    return {"right": statistics.fmean(shares), "n": sum(counts), "countries": found}


def cell(values: Sequence[float]) -> str:
    low, high = (min(max(x, 0.0), 1.0) for x in interval(values))
    return f"{statistics.fmean(values):.1%} ({100 * low:.1f} to {100 * high:.1f})"


def apart(a: Sequence[float], b: Sequence[float]) -> str:
    """How far a lies above b, in points, with the interval of the difference paired by seed."""
    gaps = [100 * (x - y) for x, y in zip(a, b, strict=True)]
    low, high = interval(gaps)
    return f"{statistics.fmean(gaps):+.1f} ({low:+.1f} to {high:+.1f})"


def chance(a: Sequence[float], b: Sequence[float]) -> float:
    """The p-value of Student's paired t; 1 where no seed differs."""
    from scipy.stats import ttest_rel

    return 1.0 if list(a) == list(b) else float(ttest_rel(a, b).pvalue)


def summary(fits: Sequence[dict[str, Any]], labels: Sequence[int], seeds: Sequence[int]) -> dict[str, Any]:
    """Tables and the sentences that may be said."""
    reached = {(f["question"], f["arm"], f["positions"], f["labels"], f["seed"]): f["right"] for f in fits}
    heads = [f"{n} labels" for n in labels]

    def values(question: str, arm: str, places: str, n: int) -> list[float]:
        return [reached[question, arm, places, n, seed] for seed in seeds]

    tables = []
    for question in (UNSEEN, NEVER):
        arms = itertools.product(ARMS, PLACES)
        rows = [[*arm, *(cell(values(question, *arm, n)) for n in labels)] for arm in arms]
        title = f"{question.capitalize()}, share right (95 % interval over seeds)"
        tables.append({"title": title, "columns": ["Vectors", "Positions", *heads], "rows": rows})
    pairs = {
        (name, n): (values(UNSEEN, *a, n), values(UNSEEN, *b, n)) for name, a, b in COMPARED for n in labels
    }
    corrected = dict(zip(pairs, holm([chance(*pair) for pair in pairs.values()])))
    told = {key: apart(*pair) for key, pair in pairs.items()}
    stars = {key: text + "*" * (corrected[key] < 0.05) for key, text in told.items()}
    title = "how far the first lies above the second in points, * where p < 0.05 after Holm's correction"
    rows = [[name, *(stars[name, n] for n in labels)] for name, _, _ in COMPARED]
    columns = ["First and second", *heads]
    tables.append({"title": f"{UNSEEN.capitalize()}, {title}", "columns": columns, "rows": rows})
    sure = [f"{name} with {n}: {told[name, n]} points" for name, n in pairs if corrected[name, n] < 0.05]
    alone = sum(interval([x - y for x, y in zip(a, b)])[0] > 0 for a, b in pairs.values())
    left = f"these are left after Holm's correction: {'; '.join(sure)}."
    none = (
        f"none is left after Holm's correction; {alone} have an interval above 0 by themselves, "
        f"which {len(seeds)} seeds cannot confirm."
    )
    most = labels[-1]
    frozen, random = (cell(values(NEVER, arm, "sinusoidal", most)) for arm in ("frozen", "random"))
    verdict = (
        f"Of {len(pairs)} differences between arms on unseen sentences {left if sure else none} "
        f"Of countries that no labelled sentence names, {most} labels give {frozen} right by "
        f"frozen vectors and {random} by random ones, where 50 % is chance."
    )
    return {"tables": tables, "verdict": verdict}


@command(
    "few labels",
    out="few-labels",
    seeds=list(range(5)),
    labels=dict(type=count, nargs="+", default=[20, 50, 100, 200]),
)
def main(options: Any) -> None:
    draft = options.out.with_suffix(".partial.json")
    fits = kept(draft if draft.is_file() else options.out).get("fits", [])
    keys = ("seed", "question", "labels", "arm", "positions")
    done = {tuple(f[key] for key in keys) for f in fits}
    head = {"title": "Few labels", "recipe": RECIPE, "steps": STEPS, "batch": BATCH}
    head |= {"seeds": options.seeds, "labels": options.labels}
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(Path(folder))
        head |= {"pool": len(corpus.pool), "test": len(corpus.test)}
        for key in itertools.product(options.seeds, (UNSEEN, NEVER), options.labels, ARMS, PLACES):
            if key in done:
                continue
            seed, question, labels, arm, places = key
            started = time.process_time()
            found = judged(corpus, question, arm, places, labels, seed)
            spent = {"cpu_seconds": round(time.process_time() - started, 2)}
            fits.append(dict(zip(keys, key, strict=True)) | found | spent)
            write_result(draft, {**options.facts, **head, "fits": fits})
            print(*key, f"{found['right']:.1%}", flush=True)
    wanted = [f for f in fits if f["seed"] in options.seeds and f["labels"] in options.labels]
    options.write({**head, **summary(wanted, options.labels, options.seeds), "fits": wanted})
    draft.unlink(missing_ok=True)
