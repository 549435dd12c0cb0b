"""One recipe of word vectors, from sentences to figures, in one run folder.

config.toml  history.jsonl  checkpoints/  model/  vectors.txt  metrics.json  report.html
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from glassformer.config import read_toml, to_dict, to_toml
from glassformer.data.sentences import read_corpus
from glassformer.data.sources import data_folders, load_text_dataset
from glassformer.data.text import clean_text
from glassformer.errors import ConfigError, DataError
from glassformer.evaluate.vectors import tests_folder
from glassformer.recipe import build_recipe
from glassformer.recipe_vectors import CorpusConfig, VectorsRecipe
from glassformer.report.vectors import write_vectors_report
from glassformer.runtime import machine_facts, peak_memory_mb, versions
from glassformer.study.run_folder import Run
from glassformer.train.callbacks import Callback, HistoryFile, StopOnSignal
from glassformer.vectors import Word2Vec

Say = Callable[[str], None]
_WORD = re.compile(r"\w+(?:['’]\w+)*")
_MARK = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


def load_sentences(data: CorpusConfig) -> list[list[str]]:
    """The words of every text, as the recipe wants them.

    Raises:
        DataError: no such source, or a split that it has not.
    """
    path = Path(data.source)
    if path.suffix == ".txt" and path.is_file():
        from glassformer.data.tables import read_utf8

        texts = [line for line in read_utf8(path).splitlines() if line.strip()][: data.limit]
    else:
        named = load_text_dataset(
            data.source, text_column=data.text_column, limit=data.limit, splits=data.splits
        )
        texts = [text for split in named.splits.values() for text in split.texts]
    find = (_MARK if data.punctuation else _WORD).findall
    cleaned = (clean_text(text, data.clean) for text in texts)
    found = [find(text.lower() if data.lowercase else text) for text in cleaned]
    if not any(found):
        raise DataError("no text holds a word", where=data.source)
    return found


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
    _check_folder(folder, recipe, resume)
    sentences = load_sentences(recipe.data)
    corpus = read_corpus(sentences, min_count=recipe.vectors.min_count, max_words=recipe.vectors.max_words)
    setup = time.perf_counter() - started
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(to_toml(recipe), encoding="utf-8")
    say(
        f"{len(corpus):,} texts, {corpus.raw_words:,} words, {len(corpus.words):,} different ones with a vector"
    )
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
    calls = [HistoryFile(history), *callbacks, StopOnSignal(checkpoints)] if adam else ()
    vectors.fit(corpus, checkpoints=checkpoints, resume=resume, callbacks=calls, tell=tell)
    _write(history, "".join(json.dumps(record) + "\n" for record in vectors.history_))
    vectors.save(folder / "model", overwrite=True)
    vectors.save_word2vec_format(folder / "vectors.txt")
    say("judging")
    metrics = judge(vectors, recipe) | {
        "texts": len(corpus), "words": corpus.raw_words, "vocabulary": len(corpus.words),
        "seconds": {"setup": setup, "train": vectors.train_seconds_, "total": time.perf_counter() - started},
        "words_per_second": recipe.vectors.epochs * corpus.raw_words / max(vectors.train_seconds_, 1e-9),
        "loss": [[r["step"], r["loss"]] for r in vectors.history_ if r["kind"] == "step"],
        "seed": recipe.vectors.seed, "machine": machine_facts(), "versions": versions("numba"),
        "peak_memory_mb": peak_memory_mb(), "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip
    _write(folder / "metrics.json", json.dumps(metrics, indent=1, ensure_ascii=False) + "\n")
    return Run(folder, metrics, write_vectors_report(folder, recipe.name, metrics, vectors.history_))


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
    recipe = build_recipe(read_toml(Path(folder) / "config.toml"), str(Path(folder) / "config.toml"))
    vectors = Word2Vec.load(folder)
    say(f"{len(vectors):,} words")
    return vectors.judge([data] if data else recipe.judge.tests, tests_folder(data_folders()))


def _check_folder(folder: Path, recipe: VectorsRecipe, resume: bool) -> None:
    config = folder / "config.toml"
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not resume)):
        fix = "Go on with --resume, or choose another --out"
        raise ConfigError("the output folder exists", where=str(folder), fix=fix)
    if config.is_file() and to_dict(build_recipe(read_toml(config), str(config))) != to_dict(recipe):
        fix = "Resume with the same recipe and --set values"
        raise ConfigError("holds a run of another recipe", where=str(config), fix=fix)


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.tmp")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
