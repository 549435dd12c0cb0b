"""One recipe of word vectors, from sentences to figures, in one run folder.

config.toml  history.jsonl  checkpoints/  model/  vectors.txt  metrics.json  report.html
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unicodedata import normalize

from glassformer.checkpoints.files import replace_text
from glassformer.config import nearest
from glassformer.data.dataset import SPLITS, NoSplit
from glassformer.data.sentences import read_corpus
from glassformer.data.sources import data_folders, load_text_dataset
from glassformer.data.text import clean_text
from glassformer.errors import ConfigError, DataError
from glassformer.evaluate.vectors import KNOWN_TESTS, tests_folder
from glassformer.report.vectors import write_vectors_report
from glassformer.runtime import machine_facts, peak_memory_mb, versions
from glassformer.tasks.run_folder import Run, Say, alone, begin, read_run_recipe, write_json
from glassformer.tasks.word2vec.estimator import Word2Vec
from glassformer.tasks.word2vec.recipe import CorpusConfig, JudgeConfig, VectorsRecipe
from glassformer.train.callbacks import Callback, HistoryFile

_WORD = re.compile(r"\w+(?:['’]\w+)*")
_MARK = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class Texts:
    """What vectors are learnt from, and what was left out."""

    sentences: list[list[str]]  # the words of every text
    excluded: dict[str, int]  # split -> texts left out because they stand in it too


def load_sentences(data: CorpusConfig) -> list[list[str]]:
    """The words of every text, as the recipe wants them; errors as in ``load_texts``."""
    return load_texts(data).sentences


def load_texts(data: CorpusConfig) -> Texts:
    """The words of every text that does not stand in an excluded split, and how many do.

    Two texts are the same when nothing differs once they are cleaned as the recipe says. An excluded split that the
    source has not leaves nothing out.

    Raises:
        ConfigError: ``exclude`` names something that is no split.
        DataError: no such source, a split that it has not, or no text is left.
    """
    hidden = {split: set(_cleaned(_split_texts(data, split), data)) for split in dict.fromkeys(data.exclude)}
    named = load_text_dataset(data.source, text_column=data.text_column, limit=data.limit, splits=data.splits)
    texts = _cleaned([text for split in named.splits.values() for text in split.texts], data)
    excluded = {split: sum(text in there for text in texts) for split, there in hidden.items() if there}
    never = set().union(*hidden.values())
    kept = [text for text in texts if text not in never]
    if texts and not kept:
        what = f"no text is left: each one also stands in {' or '.join(excluded)}"
        raise DataError(
            what, where=data.source, fix="Take other splits, or leave none out: --set 'exclude=[]'"
        )
    found = list(map((_MARK if data.punctuation else _WORD).findall, kept))
    if not any(found):
        raise DataError("no text holds a word", where=data.source, fix="Give texts of words")
    return Texts(found, excluded)


def _cleaned(texts: Sequence[str], data: CorpusConfig) -> list[str]:
    # Composed, for a mark that stands by itself is no letter: "hôm" would fall apart.
    composed = (normalize("NFC", clean_text(text, data.clean)) for text in texts)
    return [text.lower() if data.lowercase else text for text in composed]


def _split_texts(data: CorpusConfig, split: str) -> list[str]:
    """All texts of a split, whatever ``limit`` says; none where the source has no such split."""
    if split not in SPLITS:
        raise ConfigError(
            f"no split is called {split!r}", where="data.exclude", fix=nearest(split, list(SPLITS))
        )
    try:
        named = load_text_dataset(data.source, text_column=data.text_column, splits=(split,))
    except NoSplit:
        return []
    return named.splits[split].texts


@alone
def run_vectors(
    recipe: VectorsRecipe,
    folder: str | Path,
    *,
    resume: bool = False,
    say: Say = lambda line: None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Run a recipe of word vectors in ``folder``; options and errors as in ``experiment.run_recipe``."""
    folder, started = Path(folder), time.perf_counter()
    check_judge(recipe.judge)
    texts = load_texts(recipe.data)
    corpus = read_corpus(
        texts.sentences, min_count=recipe.vectors.min_count, max_words=recipe.vectors.max_words
    )
    setup = time.perf_counter() - started
    begin(folder, recipe)
    say(
        f"{len(corpus):,} texts, {corpus.raw_words:,} words, {len(corpus.words):,} different ones with a vector"
    )
    for split, n in texts.excluded.items():
        say(f"{n:,} texts also stand in {split} and were left out")
    vectors = Word2Vec(**vars(recipe.vectors))
    history = folder / "history.jsonl"
    checkpoints = folder / "checkpoints"
    told = 0

    def tell(record: dict[str, Any]) -> None:
        nonlocal told
        if 10 * record["step"] // record["of"] > told:
            told = 10 * record["step"] // record["of"]
            say(
                f"epoch {record['epoch'] + 1}  loss {record['loss']:.4f}  {record['step']}/{record['of']} rounds"
            )

    adam = recipe.vectors.optimizer == "adam"
    calls = [HistoryFile(history), *callbacks] if adam else ()
    vectors.fit(corpus, checkpoints=checkpoints, resume=resume, callbacks=calls, tell=tell)
    replace_text(history, "".join(json.dumps(record) + "\n" for record in vectors.history_))
    vectors.save(folder / "model", overwrite=True)
    vectors.save_word2vec_format(folder / "vectors.txt")
    say("judging")
    asked = [*recipe.judge.neighbours, *(word for q in recipe.judge.analogies for word in q.split())]
    if unknown := [word for word in dict.fromkeys(asked) if word not in vectors]:
        say(f"left out, for they have no vector: {', '.join(unknown)}")
    metrics = judge(vectors, recipe) | {
        "texts": len(corpus), "excluded": texts.excluded, "words": corpus.raw_words, "vocabulary": len(corpus.words),
        "seconds": {"setup": setup, "train": vectors.train_seconds_, "total": time.perf_counter() - started},
        "words_per_second": recipe.vectors.epochs * corpus.raw_words / max(vectors.train_seconds_, 1e-9),
        "loss": [[r["step"], r["loss"]] for r in vectors.history_ if r["kind"] == "step"],
        "seed": recipe.vectors.seed, "machine": machine_facts(), "versions": versions("numba"),
        "peak_memory_mb": peak_memory_mb(), "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip
    write_json(folder / "metrics.json", metrics)
    return Run(folder, metrics, write_vectors_report(folder, recipe.name, metrics, vectors.history_))


def check_judge(wanted: JudgeConfig) -> None:
    """What is to be judged is looked at before the training, not after it.

    Raises:
        ConfigError: a test that is neither known nor a file, or an analogy that is not three words.
    """
    for test in wanted.tests:
        if test not in KNOWN_TESTS and not Path(test).is_file():
            raise ConfigError(f"no test {test!r}", where="judge.tests", fix=nearest(test, KNOWN_TESTS))
    for question in wanted.analogies:
        if len(question.split()) != 3:
            fix = "Write three words: king man woman is king - man + woman"
            raise ConfigError(f"{question!r} is no analogy", where="judge.analogies", fix=fix)


def judge(vectors: Word2Vec, recipe: VectorsRecipe) -> dict[str, Any]:
    """The recipe's tests, neighbours, analogies and the norms."""
    known = [word for word in recipe.judge.neighbours if word in vectors]
    asked = [question.split() for question in recipe.judge.analogies]
    asked = [words for words in asked if len(words) == 3 and all(w in vectors for w in words)]
    return {
        "tests": vectors.judge(recipe.judge.tests, tests_folder(data_folders())),
        "neighbours": {word: vectors.most_similar(word, 8) for word in known},
        "analogies": {" ".join(words): vectors.analogy(words[0], words[1], words[2], 3) for words in asked},
        "norms": vectors.norms_,
    }


def evaluate_vectors(folder: Path, data: str | None = None, say: Say = lambda line: None) -> dict[str, Any]:
    """Judge the saved vectors of a run again, by the recipe's tests or by another (``data``: a name or a file)."""
    recipe = read_run_recipe(Path(folder))
    if data and data not in KNOWN_TESTS and not Path(data).is_file():
        raise ConfigError(f"no test {data!r}", where="--data", fix=nearest(data, KNOWN_TESTS))
    vectors = Word2Vec.load(folder)
    say(f"{len(vectors):,} words")
    return vectors.judge([data] if data else recipe.judge.tests, tests_folder(data_folders()))
