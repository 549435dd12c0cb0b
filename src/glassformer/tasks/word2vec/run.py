"""Runs of word vectors.

In addition to the files of every run, they write ``vectors.txt``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import normalize

from glassformer.checkpoints.files import replace_text
from glassformer.config import nearest
from glassformer.data.dataset import SPLITS, NoSplit
from glassformer.data.folders import data_folders
from glassformer.data.sentences import Corpus, read_corpus
from glassformer.data.sources import load_text_dataset
from glassformer.data.text import clean_text
from glassformer.errors import BadValueError, ConfigError, DataError
from glassformer.evaluate.vectors import KNOWN_TESTS, tests_folder
from glassformer.finite import json_text
from glassformer.inputs.texts import TINY_TEXTS
from glassformer.tasks.task import DataPreview, RunContext, Task, report_renderer
from glassformer.tasks.word2vec.estimator import Word2Vec
from glassformer.tasks.word2vec.recipe import CorpusConfig, JudgeConfig, VectorsRecipe

_WORD = re.compile(r"\w+(?:['’]\w+)*")
_WORD_OR_MARK = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class Texts:
    """The words of the training texts, and the numbers of texts that were left out."""

    sentences: list[list[str]]  # the words of each text
    excluded: dict[str, int]  # excluded split -> texts that it has too
    rejected: tuple[Any, ...] = ()  # rows that cannot be used


def load_texts(data: CorpusConfig) -> Texts:
    """Load the texts of a recipe and split them into words.

    Texts that also occur in an excluded split (after cleaning) are left out. Excluded splits that the source
    does not have are ignored.
    """
    hidden = {split: set(_cleaned(_split_texts(data, split), data)) for split in dict.fromkeys(data.exclude)}
    named = _read_source(data, limit=data.limit, splits=data.splits)
    texts = _cleaned([text for split in named.splits.values() for text in split.texts], data)
    excluded = {split: sum(text in known for text in texts) for split, known in hidden.items() if known}
    all_hidden = set().union(*hidden.values())
    remaining = [text for text in texts if text not in all_hidden]
    if texts and not remaining:
        what = f"no text is left: each one is also in {' or '.join(excluded)}"
        raise DataError(
            what, where=data.source, fix="Take other splits, or leave none out: --set 'exclude=[]'"
        )
    words = list(map((_WORD_OR_MARK if data.punctuation else _WORD).findall, remaining))
    if not any(words):
        raise DataError("no text has a word", where=data.source, fix="Give texts of words")
    return Texts(words, excluded, named.rejected)


def _cleaned(texts: Sequence[str], data: CorpusConfig) -> list[str]:
    # NFC, because \w does not match combining marks and would split a decomposed "hôm".
    composed = (normalize("NFC", clean_text(text, data.clean)) for text in texts)
    return [text.lower() if data.lowercase else text for text in composed]


def _split_texts(data: CorpusConfig, split: str) -> list[str]:
    """All texts of a split, regardless of ``limit``; empty if the source has no such split."""
    if split not in SPLITS:
        what = f"no split is called {split!r}"
        raise BadValueError(what, where="data.exclude", fix=nearest(split, list(SPLITS)))
    try:
        return _read_source(data, splits=(split,)).splits[split].texts
    except NoSplit:
        return []


def _read_source(data: CorpusConfig, **options: Any) -> Any:
    columns: dict[str, Any] = {"text_column": data.text_column, "on_bad_row": data.on_bad_row}
    return load_text_dataset(data.source, labels=False, **columns, **options)


@dataclass(frozen=True)
class RunCorpus:
    """The corpus of a run, and the numbers of its texts."""

    corpus: Corpus
    texts: int  # number of texts; the corpus splits long texts, and drops texts without words
    excluded: dict[str, int]  # see ``Texts``
    rejected: tuple[Any, ...] = ()


def load(recipe: VectorsRecipe) -> RunCorpus:
    """Check the tests of a recipe, and load its corpus."""
    check_evaluation(recipe.judge)
    texts, settings = load_texts(recipe.data), recipe.vectors
    corpus = read_corpus(texts.sentences, min_count=settings.min_count, max_words=settings.max_words)
    return RunCorpus(corpus, len(texts.sentences), texts.excluded, texts.rejected)


def check_evaluation(settings: JudgeConfig) -> None:
    """Check the recipe's tests and analogies before training."""
    check_tests(settings.tests, "judge.tests")
    for question in settings.analogies:
        if len(question.split()) != 3:
            fix = "Write three words: king man woman is king - man + woman"
            raise ConfigError(f"{question!r} is not an analogy", where="judge.analogies", fix=fix)


def check_tests(tests: Sequence[str], where: str) -> None:
    """Raise ConfigError for a test that is neither known nor a file."""
    for test in tests:
        if test not in KNOWN_TESTS and not Path(test).is_file():
            raise ConfigError(f"no test {test!r}", where=where, fix=nearest(test, KNOWN_TESTS))


def preview_data(context: RunContext) -> DataPreview:
    """Log lines about the corpus."""
    corpus, words = context.data.corpus, f"{len(context.data.corpus.words):,} different ones with a vector"
    lines = [f"{context.data.texts:,} texts, {corpus.raw_words:,} words, {words}"]
    for split, n in context.data.excluded.items():
        lines.append(f"texts that are also in {split}, left out: {n:,}")
    return DataPreview(lines, context.data.rejected)


def fit(context: RunContext, **options: Any) -> None:
    """Train the vectors, with a log line after each tenth; then write ``history.jsonl``."""
    tenths = 0

    def log_tenth(record: dict[str, Any]) -> None:
        nonlocal tenths
        step, of = record["step"], record["of"]
        if 10 * step // of > tenths:
            tenths = 10 * step // of
            context.log(f"epoch {record['epoch'] + 1}  loss {record['loss']:.4f}  {step}/{of} rounds")

    context.estimator.fit(context.data.corpus, tell=log_tenth, **options)
    lines = (json_text(record, ascii=True) + "\n" for record in context.estimator.history_)
    replace_text(context.folder / "history.jsonl", "".join(lines))


def evaluate(context: RunContext) -> dict[str, Any]:
    """Results of the recipe's tests, nearest neighbors, analogies, norms, and training speed."""
    context.log("evaluating")
    vectors, corpus, settings = context.estimator, context.data.corpus, context.recipe.judge
    questions = [question.split() for question in settings.analogies]
    all_words = [*settings.neighbours, *(word for words in questions for word in words)]
    if unknown := [word for word in dict.fromkeys(all_words) if word not in vectors]:
        context.log(f"left out, because they have no vector: {', '.join(unknown)}")
    known = [word for word in settings.neighbours if word in vectors]
    analogies = [words for words in questions if all(word in vectors for word in words)]
    seconds = max(vectors.train_seconds_, 1e-9)
    return {
        "tests": vectors.judge(settings.tests, tests_folder(data_folders())),
        "neighbours": {word: vectors.most_similar(word, 8) for word in known},
        "analogies": {" ".join(words): vectors.analogy(*words, 3) for words in analogies},
        "norms": vectors.norms_,
        "texts": context.data.texts,
        "excluded": context.data.excluded,
        "words": corpus.raw_words,
        "vocabulary": len(corpus.words),
        "words_per_second": context.recipe.vectors.epochs * corpus.raw_words / seconds,
        "loss": [[r["step"], r["loss"]] for r in vectors.history_ if r["kind"] == "step"],
    }


def evaluate_saved(context: RunContext, source: str | None) -> dict[str, Any]:
    """Evaluate saved vectors on the recipe's tests, or on another test (a name or a file)."""
    check_tests([source] if source else [], "--data")
    context.log(f"{len(context.estimator):,} words")
    tests = [source] if source else context.recipe.judge.tests
    return context.estimator.judge(tests, tests_folder(data_folders()))


def example_fixture() -> tuple[Word2Vec, tuple]:
    """A minimal estimator and a few texts."""
    return Word2Vec(dim=7, min_count=1, epochs=2, threads=1, seed=3), (list(TINY_TEXTS),)


TASK = Task(
    estimator=Word2Vec,
    load=load,
    preview_data=preview_data,
    fit=fit,
    evaluate=evaluate,
    evaluate_saved=evaluate_saved,
    render_report=report_renderer("vectors"),
    example_fixture=example_fixture,
    verb="vectors",
    packages=("numba",),
)
