"""``Word2Vec``: word vectors by skip-gram.

vectors = gf.Word2Vec(dim=100, window=5).fit(sentences)
vectors.most_similar("paris"); vectors.analogy("king", "man", "woman"); vectors["paris"]

In addition to the files of every run, its runs write ``vectors.txt``.
"""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import numpy as np
import torch

from glassformer.checkpoints.files import read_consistently, read_json, remove_leftovers, replace_text
from glassformer.checkpoints.locks import write_lock
from glassformer.checkpoints.native import check_finished, newest_state
from glassformer.checkpoints.settings import METADATA_FILE, get_section
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.checkpoints.word2vec import read_word2vec_format, write_word2vec_format
from glassformer.config import suggest
from glassformer.data.dataset import SPLITS, MissingSplitError
from glassformer.data.folders import data_folders
from glassformer.data.in_memory import read_rows
from glassformer.data.sentences import Corpus, Sentences, read_corpus
from glassformer.data.sources import load_text_dataset
from glassformer.data.tags import is_sentence
from glassformer.data.text import clean_text
from glassformer.errors import (
    BadValueError,
    CheckpointError,
    ConfigError,
    DataError,
    FolderExistsError,
    InputError,
)
from glassformer.evaluate.vectors import (
    KNOWN_TESTS,
    evaluate_vectors,
    nearest_rows,
    normalize_rows,
    tests_folder,
)
from glassformer.finite import json_text
from glassformer.inputs import sentences
from glassformer.inputs.texts import TINY_TEXTS
from glassformer.models.skipgram import SkipGram
from glassformer.runtime import isolated_torch, own_generator, set_seed, torch_uses_own_generator
from glassformer.tasks.estimator import Estimator, fitted_attribute, read_saved, with_settings
from glassformer.tasks.task import DataPreview, RunContext, Task
from glassformer.tasks.word2vec.recipe import CorpusConfig, JudgeConfig, VectorsRecipe
from glassformer.train.callbacks import Callback, Checkpoints, StopOnSignal, run_with
from glassformer.train.config import VectorsConfig
from glassformer.train.loop import count_steps
from glassformer.train.optim import MixedPrecisionOptimizer
from glassformer.train.state import Training
from glassformer.train.word_vectors import (
    CompiledTraining,
    SkipGramStream,
    WordStream,
    adam_config,
    draw_initial_vectors,
    initial_vectors_of,
    norms,
    run_compiled,
    skipgram_loss,
)

# Name in gensim's Word2Vec and KeyedVectors -> what to write here instead.
GENSIM_NAMES = {
    "wv": "the model itself: vectors['word'], vectors.most_similar('word')",
    "train": "fit(sentences); with checkpoints and resume=True it continues",
    "build_vocab": "fit(sentences)",
    "get_vector": "vectors['word']",
    "distance": "1 - similarity(a, b)",
    "similar_by_word": "most_similar(word)",
    "similar_by_vector": "most_similar(vector)",
    "get_vecattr": "counts_[vectors.number(word)]",
    "index_to_key": "words_",
    "key_to_index": "number(word)",
    "index2word": "words_",
    "vocab": "words_",
    "vectors": "vectors_",
    "syn1neg": "contexts_",
    "evaluate_word_pairs": "judge([file])",
    "evaluate_word_analogies": "judge([file])",
    "get_latest_training_loss": "history_",
}


class UnknownWord(InputError, KeyError):
    """A word has no vector; the message suggests similar words.

    Cause: a typing error, or the word was too rare in the training texts.
    Fix: use one of the suggested words, or train with a lower ``min_count``.
    """

    code = "unknown-word"

    def __str__(self) -> str:  # ``KeyError.__str__`` would add quotation marks
        return str(self.args[0])


@with_settings
class Word2Vec(Estimator, VectorsConfig):
    """Word vectors, trained by skip-gram with negative sampling.

    The parameters are the keys of the section ``vectors`` of a recipe; ``recipe.py`` explains them.

    Fitted attributes: ``words_`` (most frequent first), ``counts_``, ``vectors_`` ``[V, D]`` fp32,
    ``contexts_`` (context vectors; None for a file of another program), ``history_`` (the loss), ``norms_``
    (of the vectors, before and after training) and ``train_seconds_``. You can assign new ``vectors_``, but
    queries do not notice changes in place.
    """

    RECIPE, INPUTS, is_example = VectorsRecipe, sentences.Sentences(), staticmethod(is_sentence)
    SAVED_STATE = ("train_seconds",)
    SINGLE_PROCESS_REASON = "word vectors are trained by threads of one process"

    words_: tuple[str, ...] = fitted_attribute()
    counts_: np.ndarray = fitted_attribute()
    vectors_: np.ndarray = fitted_attribute()
    contexts_: np.ndarray | None = fitted_attribute()

    # --- training --------------------------------------------------------------------------------

    def fit(
        self,
        sentences: Sentences | Corpus,
        y: None = None,
        *,
        checkpoints: str | Path | None = None,
        resume: bool = False,
        callbacks: Sequence[Callback] = (),
        tell: Callable[[dict[str, Any]], None] = lambda record: None,
    ) -> Word2Vec:
        """Train on sentences.

        Args:
            sentences: strings, lists of words, the path of a text file with one sentence per line, or a
                ``Corpus`` (``data.sentences.read_corpus``), which may be on disk.
            y: ignored; present for scikit-learn's pipelines.
            checkpoints: folder for checkpoints, saved every ``checkpoint_every`` rounds (sgd) or steps
                (adam), and when Ctrl-C or SIGTERM stops the training.
            resume: continue from the newest complete checkpoint, if there is one.
            callbacks: callbacks of the training loop; only with adam.
            tell: called with each record of the history; only with sgd.

        Raises:
            DataError: there are no sentences, or no word is frequent enough.
            ConfigError: an invalid setting.
            CheckpointError: the checkpoint is of another corpus or of other settings.
            Interrupted: Ctrl-C or SIGTERM stopped a training with ``checkpoints``. The state is saved.
        """
        config: VectorsConfig = self.configs()["vectors"]
        threads = config.threads if config.optimizer == "adam" else 0  # sgd starts its own threads
        with own_generator(), isolated_torch(threads, gradients=True), self._rollback():
            self._train(sentences, checkpoints, resume, callbacks, tell)
        return self

    def _train(self, sentences, checkpoints, resume, callbacks, tell) -> None:
        config: VectorsConfig = self.configs()["vectors"]
        corpus = sentences
        if not isinstance(corpus, Corpus | str | Path | Iterator):
            corpus = self.training_examples(corpus)
        if not isinstance(corpus, Corpus):
            corpus = read_corpus(corpus, min_count=config.min_count, max_words=config.max_words)
        if np.diff(corpus.starts).max(initial=0) < 2:
            fix = "Give sentences of several words"
            if corpus.raw_words > len(corpus.ids):  # settings have left words out
                fix += ", or lower min_count" + (" and raise max_words" if config.max_words else "")
            raise DataError("no two words are in one sentence", where="sentences", fix=fix)
        fingerprint = self._fingerprint(corpus_sha256=corpus.digest())
        if config.threads != 1:  # with several threads, results differ between runs
            del fingerprint["threads"]
        started = time.perf_counter()
        folder = None if checkpoints is None else Path(checkpoints)
        with nullcontext() if folder is None else write_lock(folder):
            if folder is not None:
                remove_leftovers(folder)
            newest = newest_state(folder) if folder is not None else ""
            if newest and not resume:
                raise FolderExistsError("already has checkpoints", where=newest, fix="Use resume=True")
            if config.optimizer == "sgd":
                self._fit_sgd(corpus, config, fingerprint, folder, bool(newest), tell)
            else:
                self._fit_adam(corpus, config, fingerprint, folder, bool(newest), callbacks)
        if config.add_contexts:
            self.vectors_ = self.vectors_ + self.contexts_
        first = norms(draw_initial_vectors(len(corpus.words), config.dim, config.seed, config.optimizer))
        self.words_, self.counts_ = corpus.words, corpus.counts
        self.norms_ = {"before": first, "after": norms(self.vectors_)}
        self.fit_seconds_ = time.perf_counter() - started
        self._index()

    def _fit_sgd(self, corpus, config, fingerprint, folder, resumes, tell) -> None:
        training = CompiledTraining(corpus, config, fingerprint, self._old_defaults())
        if resumes:
            training.load(folder)
        run_compiled(training, folder, tell)
        self.vectors_, self.contexts_ = training.vectors, training.contexts[:, : config.dim].copy()
        self.history_, self.train_seconds_ = training.history, training.seconds

    def _fit_adam(self, corpus, config, fingerprint, folder, resumes, callbacks) -> None:
        train = adam_config(config)
        stream = (WordStream if config.centers == "words" else SkipGramStream)(corpus, config)
        if not stream.examples:
            what = "subsampling leaves no pair of words"
            raise DataError(what, where="sentences", fix="Set subsample = 0, or give more text")
        set_seed(train.seed)
        with torch_uses_own_generator():
            model = SkipGram(len(corpus.words), config.dim)
        first = draw_initial_vectors(len(corpus.words), config.dim, config.seed, config.optimizer)
        model.centres.weight.data.copy_(torch.from_numpy(first))
        optimizer = MixedPrecisionOptimizer(model, train, torch.float32)
        steps = count_steps(stream, train.epochs)
        training = Training(model, optimizer, train, steps, fingerprint, self._old_defaults())
        if folder is not None:
            if resumes:
                training.load(folder)
            callbacks = [Checkpoints(folder, train.checkpoint_every), *callbacks, StopOnSignal(folder)]
        run_with(list(callbacks), training, stream, skipgram_loss, None)
        self.vectors_ = model.centres.weight.detach().numpy().copy()
        self.contexts_ = model.contexts.weight.detach().numpy().copy()
        self.history_, self.train_seconds_ = list(training.history), training.seconds

    def untrained(self) -> Word2Vec:
        """The same words with the initial vectors of the training, which depend only on the seed.

        Raises:
            ConfigError: the vectors are of another program.
        """
        self._check_fitted()
        if "before" not in self.norms_:
            raise ConfigError("the initial vectors are unknown", where="Word2Vec", fix="Train them here")
        params = self.get_params()
        out = Word2Vec(**params)
        vectors = initial_vectors_of(len(self), params["dim"], params["seed"], self.norms_)
        out._set_tables(self.words_, vectors, self.counts_)
        return out

    def judge(
        self, tests: Sequence[str] = ("wordsim353", "simlex999", "google"), folder: str | Path | None = None
    ) -> dict[str, Any]:
        """Evaluate the vectors on standard tests; see ``evaluate.vectors.evaluate_vectors``.

        Args:
            folder: folder with the files of the tests. None: ``word-vectors`` in a data folder
                (``GLASSFORMER_DATA``). The result of a test without a file is None.
        """
        self._check_fitted()
        tests = [tests] if isinstance(tests, str) else tests
        folder = tests_folder(data_folders()) if folder is None else Path(folder)
        return evaluate_vectors(self.words_, self.vectors_, tests, folder)

    # --- queries ---------------------------------------------------------------------------------

    def _index(self) -> None:
        self.numbers_ = {word: i for i, word in enumerate(self.words_)}
        self.units_ = normalize_rows(self.vectors_)
        self._indexed = self.vectors_

    def _check_fitted(self) -> None:
        if not hasattr(self, "vectors_"):
            raise ConfigError("there are no vectors yet", where="Word2Vec", fix="Call fit or load first")
        if getattr(self, "_indexed", None) is not self.vectors_:  # ``vectors_`` was assigned
            self._index()

    def number(self, word: str) -> int:
        """The row of a word in ``vectors_``.

        Raises:
            UnknownWord: the word has no vector. The message suggests similar words.
        """
        self._check_fitted()
        if (row := self._find(word)) is not None:
            return row
        same_word = [w for w in self.words_ if w.casefold() == str(word).casefold()]
        suggestions = same_word or difflib.get_close_matches(str(word), self.words_, n=3, cutoff=0.7)
        fix = f"Did you mean {' or '.join(map(repr, suggestions))}?" if suggestions else "words_ lists them"
        what = f"the word {word!r} is not among the {len(self.words_):,} that have a vector"
        raise UnknownWord(what, where="Word2Vec", fix=fix)

    def __contains__(self, word: object) -> bool:
        self._check_fitted()
        return self._find(word) is not None

    def _find(self, word: object) -> int | None:
        """The row of a word, in any Unicode form: files of other programs may have NFC or NFD."""
        forms = (word, normalize("NFC", word), normalize("NFD", word)) if isinstance(word, str) else ()
        return next((self.numbers_[form] for form in forms if form in self.numbers_), None)

    def __len__(self) -> int:
        self._check_fitted()
        return len(self.words_)

    def __iter__(self) -> Iterator[str]:
        """The words, most frequent first."""
        self._check_fitted()
        return iter(self.words_)

    def __bool__(self) -> bool:
        return hasattr(self, "vectors_")

    def __getitem__(self, word: str | Sequence[str]) -> np.ndarray:
        """A copy of the vector of a word ``[D]``, or of the vectors of several words ``[n, D]``."""
        self._check_fitted()
        if isinstance(word, str):
            return self.vectors_[self.number(word)].copy()
        if not isinstance(word, Iterable):
            fix = "Give a word or several; words_ has them all"
            raise InputError(f"{word!r} is not a word", where="Word2Vec", fix=fix)
        return self.vectors_[[self.number(w) for w in read_rows(word, "Word2Vec", "words")]]

    def similarity(self, first: str, second: str) -> float:
        """The cosine between two words."""
        self._check_fitted()
        return float(self.units_[self.number(first)] @ self.units_[self.number(second)])

    def most_similar(
        self, word: str | Sequence[str] | np.ndarray, count: int = 10, *, negative: Sequence[str] = ()
    ) -> list[tuple[str, float]]:
        """The words with the largest cosine to a word, to the sum of several words, or to a vector ``[D]``.

        Args:
            word: a word, several words (their normalized vectors are added), or a vector.
            negative: words whose normalized vectors are subtracted. Input words are never returned.

        Raises:
            InputError: a word has no vector, or an argument is invalid. A vector must have the right size,
                finite numbers, and not only zeros.
        """
        self._check_fitted()
        words = [word] if isinstance(word, str) else word
        if isinstance(words, Sequence) and len(words) and all(isinstance(w, str) for w in words):
            rows = [self.number(w) for w in words]
            subtracted = [self.number(w) for w in ([negative] if isinstance(negative, str) else negative)]
            if len(rows) == 1 and not subtracted:
                return self._nearest_words(self.vectors_[rows[0]], count, rows)
            query = self.units_[rows].sum(0) - self.units_[subtracted].sum(0)
            return self._nearest_words(query, count, rows + subtracted)
        try:
            query = np.asarray(word, np.float32)
        except (TypeError, ValueError):
            fix = "Give a word, several, or a vector"
            raise InputError("neither words nor a vector", where="most_similar", fix=fix) from None
        if len(negative):
            what = "negative words cannot be combined with a vector"
            raise InputError(what, where="negative", fix="Give words alone")
        if query.shape != self.vectors_.shape[1:]:
            what = f"a vector of shape {query.shape}, expected {self.vectors_.shape[1:]}"
            raise InputError(what, where="most_similar")
        if not np.isfinite(query).all() or not query.any():
            raise InputError("a vector without a direction: all 0, or not finite", where="most_similar")
        return self._nearest_words(query, count, [])

    def analogy(self, a: str, b: str, c: str, count: int = 10) -> list[tuple[str, float]]:
        """Words nearest to ``a - b + c`` (king - man + woman), with cosines, without a, b and c."""
        rows = [self.number(w) for w in (a, b, c)]
        x, y, z = self.units_[rows]
        return self._nearest_words(x - y + z, count, rows)

    def _nearest_words(self, query: np.ndarray, count: int, without: list[int]) -> list[tuple[str, float]]:
        if not isinstance(count, int | np.integer) or count < 1:
            what = f"count = {count!r} is not a number of words"
            raise InputError(what, where="count", fix="Use 1 or more")
        return [(self.words_[i], cosine) for i, cosine in nearest_rows(self.units_, query, count, without)]

    if not TYPE_CHECKING:  # a type checker would accept any attribute

        def __getattr__(self, name: str) -> object:
            hint = f". Here: {GENSIM_NAMES[name]}" if name in GENSIM_NAMES else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    # --- files -----------------------------------------------------------------------------------

    def save_word2vec_format(self, path: str | Path, binary: bool | None = None) -> Path:
        """Write a text or binary file (``.bin``, or ``binary=True``) that other programs can read."""
        self._check_fitted()
        return write_word2vec_format(path, self.words_, self.vectors_, binary)

    def save_run_files(self, folder: Path) -> None:
        """Write the vectors as a text file."""
        self.save_word2vec_format(folder / "vectors.txt")

    def _write_model(self, folder: Path) -> None:
        tensors = {"vectors": torch.from_numpy(self.vectors_)}
        if self.contexts_ is not None:
            tensors["contexts"] = torch.from_numpy(self.contexts_)
        write_tensors(folder, tensors)
        words = {"words": self.words_, "counts": self.counts_.tolist()}
        text = json_text(words, indent=1) + "\n"
        (folder / "words.json").write_text(text, encoding="utf-8")

    def _read_model(self, folder: Path, in_bf16: bool = False) -> None:
        words, counts, vectors, contexts = _read_tables(folder)
        self._set_tables(words, vectors, counts, contexts)

    def write_parts(self, folder: Path) -> dict[str, Any]:
        """Entries of ``glassformer.json``: the norms."""
        return {"norms": self.norms_}

    def read_parts(self, folder: Path, metadata: dict[str, Any]) -> None:
        self.norms_ = get_section(metadata, "norms", str(folder / METADATA_FILE))

    @classmethod
    def load(cls, path: str | Path, binary: bool | None = None, limit: int | None = None) -> Word2Vec:
        """Load a saved folder, a run folder, or a file in word2vec's format, text or binary.

        Args:
            binary: whether a file is binary; None: detected.
            limit: read only the first words of a file, which are usually the most frequent words.

        Raises:
            CheckpointError: the file or folder is missing or damaged, or has another format.
        """
        path = Path(path)
        if not path.is_dir():
            words, vectors = read_word2vec_format(path, binary, limit)
            if len(words) != len(vectors):
                raise CheckpointError(f"{len(words)} words but {len(vectors)} vectors", where="Word2Vec")
            out = cls(dim=vectors.shape[1])
            out._set_tables(words, vectors, np.zeros(len(words), np.int64))
            out.norms_, out.train_seconds_, out.history_ = {"after": norms(vectors)}, 0.0, []
            return out
        if limit is not None:
            what = "limit is not supported for folders"
            raise ConfigError(what, where="limit", fix="Leave it out, or name a file")
        check_finished(path)
        folder = path if (path / "glassformer.json").is_file() else path / "model"
        if not folder.is_dir():
            raise CheckpointError("has no word vectors", where=str(path))
        return read_consistently(folder, lambda: cls._load(folder))

    @classmethod
    def _load(cls, folder: Path) -> Word2Vec:
        fix = "Name a run or saved model of Word2Vec, or a file of word vectors"
        return cls.restore(folder, read_saved(cls, folder, "word vectors", fix))

    def _set_tables(self, words, vectors, counts, contexts=None) -> None:
        self.words_, self.vectors_, self.counts_, self.contexts_ = words, vectors, counts, contexts
        self._index()


def _read_tables(folder: Path) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray | None]:
    """Words, counts ``[V]``, vectors ``[V, D]``, and context vectors if they were saved."""
    metadata, tensors = read_json(folder / "words.json"), read_tensors(folder)
    where = str(folder / "words.json")
    words, counts = (metadata.get(name) for name in ("words", "counts"))
    if not isinstance(words, list) or not isinstance(counts, list) or len(words) != len(counts):
        what = "'words' and 'counts' are missing, or not lists of the same length"
        raise CheckpointError(what, where=where)
    if not all(isinstance(word, str) for word in words) or len(set(words)) < len(words):
        raise CheckpointError("'words' has an entry that is not a word, or a word twice", where=where)
    if not all(type(n) is int and 0 <= n < 2**63 for n in counts):
        raise CheckpointError("'counts' has an entry that is not a count", where=where)
    for name in {"vectors", *tensors}:
        table = tensors.get(name)
        if (
            table is None
            or name not in ("vectors", "contexts")
            or table.dim() != 2
            or len(table) != len(words)
        ):
            what = f"{name!r} is missing, unknown or not a table of {len(words):,} rows"
            raise CheckpointError(what, where=str(folder))
    vectors = tensors["vectors"].float().numpy()
    contexts = tensors["contexts"].float().numpy() if "contexts" in tensors else None
    for row in np.flatnonzero(~np.isfinite(vectors).all(1))[:1]:
        what = f"the vector of {words[row]!r} contains NaN or infinity"
        raise CheckpointError(what, where=str(folder), fix="Train the vectors again")
    return tuple(words), np.asarray(counts), vectors, contexts


_WORD = re.compile(r"\w+(?:['’]\w+)*")  # also with apostrophes inside: don't
_WORD_OR_MARK = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class Texts:
    """The words of the training texts, and the numbers of texts that were left out."""

    sentences: list[list[str]]  # the words of each text
    excluded: dict[str, int]  # excluded split -> number of texts in both
    rejected: tuple[Any, ...] = ()  # rows that cannot be used
    corpus: Any = None  # the ``Corpus``, which splits long texts and drops texts without words


def load_texts(data: CorpusConfig) -> Texts:
    """Load the texts of a recipe and split them into words.

    Texts that also occur in an excluded split (after cleaning) are left out. Excluded splits that the source
    does not have are ignored.
    """
    excluded_texts = {name: set(_clean(_split_texts(data, name), data)) for name in data.exclude}
    dataset = _read_source(data, limit=data.limit, splits=data.splits)
    texts = _clean([text for split in dataset.splits.values() for text in split.texts], data)
    excluded = {name: sum(text in split for text in texts) for name, split in excluded_texts.items() if split}
    all_excluded = set().union(*excluded_texts.values())
    remaining = [text for text in texts if text not in all_excluded]
    if texts and not remaining:
        what = f"no text is left: each one is also in {' or '.join(excluded)}"
        fix = "Use other splits, or leave none out: --set 'exclude=[]'"
        raise DataError(what, where=data.source, fix=fix)
    words = list(map((_WORD_OR_MARK if data.punctuation else _WORD).findall, remaining))
    if not any(words):
        raise DataError("no text has a word", where=data.source, fix="Give texts of words")
    return Texts(words, excluded, dataset.rejected)


def _clean(texts: Sequence[str], data: CorpusConfig) -> list[str]:
    # In NFC, because \w does not match combining marks and would split a decomposed "hôm".
    composed = (normalize("NFC", clean_text(text, data.clean)) for text in texts)
    return [text.lower() if data.lowercase else text for text in composed]


def _split_texts(data: CorpusConfig, split: str) -> list[str]:
    """All texts of a split, regardless of ``limit``; empty if the source has no such split."""
    if split not in SPLITS:
        what = f"no split is called {split!r}"
        raise BadValueError(what, where="data.exclude", fix=suggest(split, list(SPLITS)))
    try:
        return _read_source(data, splits=(split,)).splits[split].texts
    except MissingSplitError:
        return []


def _read_source(data: CorpusConfig, **options: Any) -> Any:
    columns: dict[str, Any] = {"text_column": data.text_column, "on_bad_row": data.on_bad_row}
    return load_text_dataset(data.source, labels=False, **columns, **options)


def load(recipe: VectorsRecipe) -> Texts:
    """Check the tests of a recipe, and load its corpus."""
    check_evaluation(recipe.judge)
    texts, settings = load_texts(recipe.data), recipe.vectors
    corpus = read_corpus(texts.sentences, min_count=settings.min_count, max_words=settings.max_words)
    return replace(texts, corpus=corpus)


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
            raise ConfigError(f"no test {test!r}", where=where, fix=suggest(test, KNOWN_TESTS))


def preview_data(context: RunContext) -> DataPreview:
    corpus, words = context.data.corpus, f"{len(context.data.corpus.words):,} different ones with a vector"
    lines = [f"{len(context.data.sentences):,} texts, {corpus.raw_words:,} words, {words}"]
    for split, n in context.data.excluded.items():
        lines.append(f"texts that are also in {split}, left out: {n:,}")
    return DataPreview(lines, context.data.rejected)


def fit(context: RunContext, **options: Any) -> None:
    """Train the vectors, log a line after each tenth of the training, and write ``history.jsonl``."""
    tenths = 0

    def log_tenth(record: dict[str, Any]) -> None:
        nonlocal tenths
        step, total = record["step"], record["of"]
        if 10 * step // total > tenths:
            tenths = 10 * step // total
            context.log(f"epoch {record['epoch'] + 1}  loss {record['loss']:.4f}  {step}/{total} rounds")

    context.estimator.fit(context.data.corpus, tell=log_tenth, **options)
    lines = (json_text(record, ascii=True) + "\n" for record in context.estimator.history_)
    replace_text(context.folder / "history.jsonl", "".join(lines))


def evaluate(context: RunContext) -> dict[str, Any]:
    """Results of the recipe's tests, nearest neighbors and analogies; also norms and training speed."""
    context.log("evaluating")
    vectors, corpus, settings = context.estimator, context.data.corpus, context.recipe.judge
    questions = [question.split() for question in settings.analogies]
    all_words = [*settings.neighbours, *(word for words in questions for word in words)]
    if unknown := [word for word in dict.fromkeys(all_words) if word not in vectors]:
        context.log(f"left out, because they have no vector: {', '.join(unknown)}")
    query_words = [word for word in settings.neighbours if word in vectors]
    analogies = [words for words in questions if all(word in vectors for word in words)]
    seconds = max(vectors.train_seconds_, 1e-9)
    return {
        "tests": vectors.judge(settings.tests, tests_folder(data_folders())),
        "neighbours": {word: vectors.most_similar(word, 8) for word in query_words},
        "analogies": {" ".join(words): vectors.analogy(*words, 3) for words in analogies},
        "norms": vectors.norms_,
        "texts": len(context.data.sentences),
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
    return Word2Vec(dim=7, min_count=1, epochs=2, threads=1, seed=3), (list(TINY_TEXTS),)


TASK = Task(
    estimator=Word2Vec,
    load=load,
    preview_data=preview_data,
    fit=fit,
    evaluate=evaluate,
    evaluate_saved=evaluate_saved,
    report="vectors",
    example_fixture=example_fixture,
    verb="vectors",
    packages=("numba",),
)
