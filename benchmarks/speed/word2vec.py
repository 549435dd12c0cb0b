"""Word2Vec beside gensim: words per second, seconds from sentences to vectors, and quality over seeds.

    python -m benchmarks.speed.word2vec speed                       interleaved rounds of one epoch each, 2 threads each
    python -m benchmarks.speed.word2vec fit --epochs 1 5            a list of sentences to vectors, set-up included
    python -m benchmarks.speed.word2vec quality --epochs 1 3 5 --seeds 0 1 2 3 4 5 6 7      judged by the same code
    python -m benchmarks.speed.word2vec quality --epochs 1 --seeds 8 9 10 --kinds glassformer    more seeds of one of the two

The corpus is IMDb's 75,000 train and unlabelled reviews in lower case, words only, one review a line. Both count every
word of it. For speed and quality gensim reads it through ``corpus_file``, its fastest way, and setting up (counting,
building the vocabulary) is left out of the speed and stated beside it. For fit each training has a process of its own,
which has imported its package and holds the sentences as lists of words; compiling, counting and numbering are timed.
Results go to ``benchmarks/results/word2vec-*.json``; quality is written record by record, and what is there is not
trained again: ``--again`` does that for glassformer, after a change of its code.
"""

import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.options import parse
from benchmarks.harness.results import RESULTS, environment, kept, result_file, spread, write_result
from benchmarks.harness.rounds import (
    Contender,
    Window,
    alone,
    in_own_process,
    in_turn,
    ratios,
    said,
    take_turns,
)
from glassformer.data.folders import data_folders
from glassformer.data.sentences import read_corpus
from glassformer.evaluate.vectors import evaluate_vectors, tests_folder
from glassformer.tasks.word2vec.estimator import Word2Vec, load_texts
from glassformer.tasks.word2vec.recipe import CorpusConfig
from glassformer.train.word_vectors import CompiledTraining

SETTING = dict(dim=100, window=5, negative=5, min_count=5, subsample=1e-3)
TESTS = ("wordsim353", "simlex999", "google")
KINDS = ("glassformer", "gensim")
MARGIN = 1.0  # points: more than this must not be lost


def write_corpus(path: Path, reviews: int | None) -> int:
    """One review a line; returns the number of words."""
    limit = None if reviews is None else max(1, reviews // 2)
    corpus = CorpusConfig(source="imdb", splits=("train", "unsupervised"), limit=limit)
    sentences = load_texts(corpus).sentences
    path.write_text("".join(" ".join(s) + "\n" for s in sentences), encoding="utf-8")
    return sum(map(len, sentences))


def gensim_model(seed: int, workers: int, epochs: int, corpus: Path | list[list[str]] | None = None) -> Any:
    """gensim's, trained where a file or sentences are given."""
    from gensim.models import Word2Vec as Theirs

    given = {"corpus_file": str(corpus)} if isinstance(corpus, Path) else {"sentences": corpus}
    return Theirs(
        **given, vector_size=SETTING["dim"], window=SETTING["window"], negative=SETTING["negative"],
        min_count=SETTING["min_count"], sample=SETTING["subsample"], sg=1, workers=workers, epochs=epochs, seed=seed,
    )  # fmt: skip


def make_ours(file: str, threads: int) -> Contender:
    started = time.perf_counter()
    corpus = read_corpus(file, min_count=SETTING["min_count"])
    setup = time.perf_counter() - started

    def run(turn: int) -> Window:
        config = Word2Vec(**SETTING, epochs=1, seed=max(turn, 0), threads=threads).configs()["vectors"]
        training = CompiledTraining(corpus, config, {}, {})
        training.compile_loops()
        started = time.perf_counter()
        loss = [record["loss"] for record in training.run()][-1]
        return Window(len(corpus), corpus.raw_words, time.perf_counter() - started, loss)

    setting = {**SETTING, "threads": threads, "setup_seconds": setup}
    return Contender(f"glassformer, {threads} thread{'s' * (threads > 1)}", setting, run)


def make_gensim(file: str, workers: int) -> Contender:
    started = time.perf_counter()
    model = gensim_model(0, workers, 1)
    model.build_vocab(corpus_file=file)
    setup = time.perf_counter() - started

    def run(turn: int) -> Window:
        started = time.perf_counter()
        lines, words = model.corpus_count, model.corpus_total_words
        model.train(corpus_file=file, total_examples=lines, total_words=words, epochs=1)
        return Window(lines, words, time.perf_counter() - started, 0.0)

    setting = {**SETTING, "workers": workers, "setup_seconds": setup}
    return Contender(f"gensim, {workers} worker{'s' * (workers > 1)}", setting, run)


def speed(file: Path, rounds: int, threads: int, name: str) -> None:
    ours, theirs = (in_own_process(make, str(file), threads) for make in (make_ours, make_gensim))
    take_turns([ours, theirs], rounds)
    result = {
        "environment": environment("gensim", "numba"), "words": ours.windows[0].tokens,
        "contenders": [ours.summary(), theirs.summary()], "ratio": ratios(ours, theirs),
    }  # fmt: skip
    write_result(RESULTS / f"{name}.json", result)
    print(f"glassformer: {said(result['ratio'])} gensim")


def fit_once(kind: str, file: str, epochs: int, threads: int, seed: int) -> float:
    """Seconds that one of the two takes from lists of words to vectors, in this process."""
    sentences = [line.split() for line in Path(file).read_text(encoding="utf-8").splitlines()]
    if kind == "glassformer":
        started = time.perf_counter()
        Word2Vec(**SETTING, epochs=epochs, seed=seed, threads=threads).fit(sentences)
    else:
        gensim_model(seed, threads, epochs)  # imports it
        started = time.perf_counter()
        gensim_model(seed, threads, epochs, sentences)
    return time.perf_counter() - started


def fit(file: Path, rounds: int, threads: int, epochs: list[int], name: str) -> None:
    path = RESULTS / f"{name}.json"
    setting = SETTING | {"threads": threads}
    result: dict[str, Any] = {"environment": environment("gensim", "numba"), "setting": setting, "epochs": {}}
    for n in epochs:
        turn = itertools.count()

        def once(kind: str, n: int = n, turn: Iterator[int] = turn) -> float:
            taken = alone(fit_once, kind, str(file), n, threads, next(turn) // len(KINDS))
            print(f"{n} epochs: {kind} {taken:.1f} s", flush=True)
            return round(taken, 3)

        seconds = in_turn(dict(zip(KINDS, KINDS, strict=True)), rounds, once, warm_up=False)
        each = [theirs / ours for ours, theirs in zip(*(seconds[kind] for kind in KINDS))]
        result["epochs"][str(n)] = {"seconds": seconds, "ratio": spread(each)}
        write_result(path, result)
        print(f"{n} epochs: gensim takes {result['epochs'][str(n)]['ratio']} times as long")


def figures(words: Any, vectors: np.ndarray) -> dict[str, float]:
    """Every test in points of 100."""
    found = evaluate_vectors(words, vectors, TESTS, tests_folder(data_folders()))
    return {name: 100.0 * one["spearman" if "spearman" in one else "accuracy"] for name, one in found.items()}


def quality(
    file: Path,
    seeds: list[int],
    threads: int,
    epochs: list[int],
    name: str,
    again: bool = False,
    kinds: Sequence[str] = KINDS,
) -> None:
    path = RESULTS / f"{name}.json"
    result = kept(path) or {"epochs": {}}
    result |= {"environment": environment("gensim", "numba"), "setting": SETTING | {"threads": threads}}
    machine = result["environment"]["machine"]["cpu"]
    corpus = read_corpus(file, min_count=SETTING["min_count"])
    for n in epochs:
        part = result["epochs"].setdefault(str(n), {"seeds": {}})
        if again and "glassformer" in kinds:
            for done in part["seeds"].values():
                done.pop("glassformer", None)
        for seed in seeds:
            done = part["seeds"].setdefault(str(seed), {})
            for kind in (kind for kind in kinds if kind not in done):
                started = time.perf_counter()
                if kind == "glassformer":
                    ours = Word2Vec(**SETTING, epochs=n, seed=seed, threads=threads).fit(corpus)
                    words, vectors = ours.words_, ours.vectors_
                else:
                    theirs = gensim_model(seed, threads, n, file)
                    words, vectors = theirs.wv.index_to_key, theirs.wv.vectors
                seconds = time.perf_counter() - started
                done[kind] = figures(words, vectors) | {"seconds": seconds, "machine": machine}
                part["difference"] = {test: interval(part["seeds"], test) for test in TESTS}
                write_result(path, result)
                print(n, "epochs, seed", seed, kind, done[kind], flush=True)
        for test, d in part.get("difference", {}).items():
            if d:
                found = f"{d['mean']:.2f} ({d['low']:.2f} to {d['high']:.2f}) points"
                print(f"{n} epochs, {test}: glassformer - gensim = {found}")


def interval(seeds: dict[str, Any], test: str) -> dict[str, float]:
    """Mean difference over seeds with its 95 % interval (Welch: no pairs); empty with fewer than two seeds."""
    from scipy.stats import t

    both = [[s[kind][test] for s in seeds.values() if kind in s] for kind in KINDS]
    if min(map(len, both)) < 2:
        return {}
    mean = statistics.fmean(both[0]) - statistics.fmean(both[1])
    parts = [statistics.variance(values) / len(values) for values in both]
    spread = sum(parts)
    freedom = spread**2 / sum(p**2 / (len(v) - 1) for p, v in zip(parts, both)) if spread else 1.0
    half = float(t.ppf(0.975, freedom)) * spread**0.5
    return {"mean": mean, "low": mean - half, "high": mean + half, "excludes_loss": mean - half > -MARGIN}


def main() -> None:
    given = parse(
        __doc__,
        ("what", dict(choices=("speed", "fit", "quality"))),
        reviews=(int, "about so many reviews only: a quick look, named apart"),
        rounds=5,
        threads=2,
        epochs=([1, 3, 5], "of fit and quality"),
        seeds=[*range(8)],
        kinds=dict(choices=KINDS, nargs="+", default=KINDS, help="quality: whose vectors"),
        again=(False, "quality: train glassformer anew"),
    )
    name = f"word2vec-{given.what}"
    if given.what != "quality":  # vectors are as good on every processor
        name = result_file(name).stem
    name += f"-{given.reviews}" if given.reviews else ""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "corpus.txt"
        words = write_corpus(file, given.reviews)
        print(f"{words:,} words", flush=True)
        if given.what == "speed":
            speed(file, given.rounds, given.threads, name)
        elif given.what == "fit":
            fit(file, given.rounds, given.threads, given.epochs, name)
        else:
            quality(file, given.seeds, given.threads, given.epochs, name, given.again, given.kinds)


if __name__ == "__main__":
    main()
