"""Word2Vec beside gensim: words per second, and quality over seeds.

    python benchmarks/word2vec.py speed                       interleaved rounds of one epoch each, 2 threads each
    python benchmarks/word2vec.py quality --seeds 0 1 2 3 4   both trained to the end, judged by the same code

The corpus is IMDb's 75,000 train and unlabelled reviews in lower case, words only, one review a line. gensim reads it
through ``corpus_file``, its fastest way. Both count every word of the corpus; setting up (counting, building the
vocabulary) is left out of the speed and stated beside it. Results go to ``benchmarks/results/word2vec-*.json``;
quality is kept seed by seed, so that it can be continued.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, Contender, Window, environment, in_own_process, ratios, take_turns, write_result

from glassformer.data.sentences import read_corpus
from glassformer.data.sources import data_folders
from glassformer.evaluate.vectors import judge_vectors, tests_folder
from glassformer.tasks.word2vec.estimator import Word2Vec
from glassformer.tasks.word2vec.recipe import CorpusConfig
from glassformer.tasks.word2vec.run import load_sentences
from glassformer.train.word_vectors import FastTraining

SETTING = dict(dim=100, window=5, negative=5, min_count=5, subsample=1e-3)
TESTS = ("wordsim353", "simlex999", "google")
MARGIN = 2.0  # points: more than this must not be lost


def write_corpus(path: Path, reviews: int | None) -> int:
    """One review a line; returns the number of words."""
    limit = None if reviews is None else max(1, reviews // 2)
    sentences = load_sentences(CorpusConfig("imdb", ("train", "unsupervised"), limit=limit))
    path.write_text("".join(" ".join(s) + "\n" for s in sentences), encoding="utf-8")
    return sum(map(len, sentences))


def gensim_model(seed: int, workers: int, epochs: int) -> Any:
    from gensim.models import Word2Vec as Theirs

    return Theirs(
        vector_size=SETTING["dim"], window=SETTING["window"], negative=SETTING["negative"],
        min_count=SETTING["min_count"], sample=SETTING["subsample"], sg=1, workers=workers, epochs=epochs, seed=seed,
    )  # fmt: skip


# --- speed ------------------------------------------------------------------------------------


def make_ours(file: str, threads: int) -> Contender:
    started = time.perf_counter()
    corpus = read_corpus(file, min_count=SETTING["min_count"])
    setup = time.perf_counter() - started

    def run(turn: int) -> Window:
        config = Word2Vec(**SETTING, epochs=1, seed=max(turn, 0), threads=threads).configs()["vectors"]
        training = FastTraining(corpus, config, {})
        training.compile()
        started = time.perf_counter()
        loss = [record["loss"] for record in training.run()][-1]
        return Window(len(corpus), corpus.raw_words, time.perf_counter() - started, loss)

    return Contender(
        f"glassformer, {threads} threads", {**SETTING, "threads": threads, "setup_seconds": setup}, run
    )


def make_gensim(file: str, workers: int) -> Contender:
    started = time.perf_counter()
    model = gensim_model(0, workers, 1)
    model.build_vocab(corpus_file=file)
    setup = time.perf_counter() - started

    def run(turn: int) -> Window:
        started = time.perf_counter()
        model.train(
            corpus_file=file,
            total_examples=model.corpus_count,
            total_words=model.corpus_total_words,
            epochs=1,
        )
        seconds = time.perf_counter() - started
        return Window(model.corpus_count, model.corpus_total_words, seconds, 0.0)

    return Contender(
        f"gensim, {workers} workers", {**SETTING, "workers": workers, "setup_seconds": setup}, run
    )


def speed(file: Path, rounds: int, threads: int, name: str) -> None:
    ours, theirs = (
        in_own_process(make_ours, str(file), threads),
        in_own_process(make_gensim, str(file), threads),
    )
    take_turns([ours, theirs], rounds)
    result = {
        "environment": environment("gensim", "numba"), "words": ours.windows[0].tokens,
        "contenders": [ours.summary(), theirs.summary()], "ratio": ratios(ours, theirs),
    }  # fmt: skip
    write_result(RESULTS / f"{name}.json", result)
    print(
        f"glassformer is {result['ratio']['median']} x gensim ({result['ratio']['min']} to {result['ratio']['max']})"
    )


# --- quality ----------------------------------------------------------------------------------


def figures(words: Any, vectors: np.ndarray) -> dict[str, float]:
    """Every test in points of 100."""
    found = judge_vectors(words, vectors, TESTS, tests_folder(data_folders()))
    return {
        name: 100.0 * (result["spearman"] if "spearman" in result else result["accuracy"])
        for name, result in found.items()
    }


def quality(file: Path, seeds: list[int], threads: int, epochs: int, name: str) -> None:
    path = RESULTS / f"{name}.json"
    result = json.loads(path.read_text()) if path.exists() else {"seeds": {}}
    result |= {
        "environment": environment("gensim", "numba"),
        "setting": SETTING | {"epochs": epochs, "threads": threads},
    }
    corpus = read_corpus(file, min_count=SETTING["min_count"])
    for seed in seeds:
        done = result["seeds"].setdefault(str(seed), {})
        if "glassformer" not in done:
            started = time.perf_counter()
            ours = Word2Vec(**SETTING, epochs=epochs, seed=seed, threads=threads).fit(corpus)
            done["glassformer"] = figures(ours.words_, ours.vectors_) | {
                "seconds": time.perf_counter() - started
            }
            write_result(path, result)
            print(seed, "glassformer", done["glassformer"], flush=True)
        if "gensim" not in done:
            started = time.perf_counter()
            theirs = gensim_model(seed, threads, epochs)
            theirs.build_vocab(corpus_file=str(file))
            theirs.train(
                corpus_file=str(file), total_examples=theirs.corpus_count, total_words=theirs.corpus_total_words,
                epochs=epochs,
            )  # fmt: skip
            done["gensim"] = figures(theirs.wv.index_to_key, theirs.wv.vectors)
            done["gensim"]["seconds"] = time.perf_counter() - started
            write_result(path, result)
            print(seed, "gensim", done["gensim"], flush=True)
    result["difference"] = {test: interval(result["seeds"], test) for test in TESTS}
    write_result(path, result)
    for test, d in result["difference"].items():
        print(f"{test}: glassformer - gensim = {d['mean']:.2f} ({d['low']:.2f} to {d['high']:.2f}) points")


def interval(seeds: dict[str, Any], test: str) -> dict[str, float]:
    """Mean difference over seeds with its 95 % interval (Welch: the seeds of the two are not pairs)."""
    from scipy.stats import t

    both = [[s[kind][test] for s in seeds.values() if kind in s] for kind in ("glassformer", "gensim")]
    mean = statistics.fmean(both[0]) - statistics.fmean(both[1])
    if min(map(len, both)) < 2:
        return {"mean": mean, "low": float("-inf"), "high": float("inf")}
    parts = [statistics.variance(values) / len(values) for values in both]
    spread = sum(parts)
    freedom = (
        spread**2 / sum(p**2 / (len(v) - 1) for p, v in zip(parts, both, strict=True)) if spread else 1.0
    )
    half = float(t.ppf(0.975, freedom)) * spread**0.5
    return {"mean": mean, "low": mean - half, "high": mean + half, "excludes_loss": mean - half > -MARGIN}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("speed", "quality"))
    parser.add_argument("--reviews", type=int, help="about so many reviews only: a quick look, named apart")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    given = parser.parse_args()
    name = f"word2vec-{given.what}" + (f"-{given.reviews}" if given.reviews else "")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "corpus.txt"
        words = write_corpus(file, given.reviews)
        print(f"{words:,} words", flush=True)
        if given.what == "speed":
            speed(file, given.rounds, given.threads, name)
        else:
            quality(file, given.seeds, given.threads, given.epochs, name)


if __name__ == "__main__":
    main()
