"""Queries of word vectors: vector of a word, nearest words, analogies; hints for gensim's names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING
from unicodedata import normalize

import numpy as np

from glassformer.data.in_memory import read_rows
from glassformer.errors import ConfigError, InputError
from glassformer.evaluate.vectors import nearest_rows, unit_rows

# Names of gensim's Word2Vec and KeyedVectors -> what to write instead.
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
    """A word without a vector; the message has the nearest that have one.

    Cause: a typing error, or the word was too rare in the training texts.
    Fix: take one of the words that the message names, or train with a lower ``min_count``.
    """

    code = "unknown-word"

    def __str__(self) -> str:  # KeyError's would put it in quotation marks
        return str(self.args[0])


class LookUps:
    """Queries of trained vectors. Assigning ``vectors_`` updates them; changing it in place does not."""

    words_: tuple[str, ...]
    vectors_: np.ndarray
    _indexed: np.ndarray

    def _index(self) -> None:
        self.numbers_ = {word: i for i, word in enumerate(self.words_)}
        self.units_ = unit_rows(self.vectors_)
        self._indexed = self.vectors_

    def _check_fitted(self) -> None:
        if not hasattr(self, "vectors_"):
            raise ConfigError("there are no vectors yet", where="Word2Vec", fix="Call fit or load first")
        if getattr(self, "_indexed", None) is not self.vectors_:  # ``vectors_`` was assigned
            self._index()

    def number(self, word: str) -> int:
        """The row of a word in ``vectors_``.

        Raises:
            UnknownWord: it has none; the message suggests similar words.
        """
        self._check_fitted()
        if (found := self._find(word)) is not None:
            return found
        same = [w for w in self.words_ if w.casefold() == str(word).casefold()]
        near = same or difflib.get_close_matches(str(word), self.words_, n=3, cutoff=0.7)
        fix = f"Did you mean {' or '.join(map(repr, near))}?" if near else "words_ lists them"
        what = f"the word {word!r} is not among the {len(self.words_):,} that have a vector"
        raise UnknownWord(what, where="Word2Vec", fix=fix)

    def __contains__(self, word: object) -> bool:
        self._check_fitted()
        return self._find(word) is not None

    def _find(self, word: object) -> int | None:
        """A word's row, whatever its Unicode form (NFC or NFD): our words are NFC, a file's may be either."""
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
        """The vector of a word ``[D]``, or of several ``[n, D]``; a copy."""
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
        """The words with the largest cosine to a word, to the sum of several, or to a vector ``[D]``.

        Args:
            word: a word, several words (their normalized vectors are added), or a vector.
            negative: words whose vectors are subtracted. Input words are never returned.

        Raises:
            InputError: a word without a vector, an invalid argument, or a vector of another size, with only
                zeros, or not finite.
        """
        self._check_fitted()
        given = [word] if isinstance(word, str) else word
        if isinstance(given, Sequence) and len(given) and all(isinstance(w, str) for w in given):
            rows = [self.number(w) for w in given]
            away = [self.number(w) for w in ([negative] if isinstance(negative, str) else negative)]
            if len(rows) == 1 and not away:
                return self._near(self.vectors_[rows[0]], count, rows)
            return self._near(self.units_[rows].sum(0) - self.units_[away].sum(0), count, rows + away)
        try:
            query = np.asarray(word, np.float32)
        except (TypeError, ValueError):
            fix = "Give a word, several, or a vector"
            raise InputError("neither words nor a vector", where="most_similar", fix=fix) from None
        if len(negative):
            raise InputError("a vector and words to take away", where="negative", fix="Give words alone")
        if query.shape != self.vectors_.shape[1:]:
            raise InputError(
                f"a vector of shape {query.shape}, expected {self.vectors_.shape[1:]}", where="most_similar"
            )
        if not np.isfinite(query).all() or not query.any():
            raise InputError("a vector without a direction: all 0, or not finite", where="most_similar")
        return self._near(query, count, [])

    def analogy(self, a: str, b: str, c: str, count: int = 10) -> list[tuple[str, float]]:
        """Words nearest to ``a - b + c`` (king - man + woman) with cosines; a, b and c are never returned."""
        rows = [self.number(w) for w in (a, b, c)]
        x, y, z = self.units_[rows]
        return self._near(x - y + z, count, rows)

    def _near(self, query: np.ndarray, count: int, without: list[int]) -> list[tuple[str, float]]:
        if not isinstance(count, int | np.integer) or count < 1:
            raise InputError(f"{count!r} words are asked for", where="count", fix="Ask for 1 or more")
        return [(self.words_[i], cosine) for i, cosine in nearest_rows(self.units_, query, count, without)]

    if not TYPE_CHECKING:  # a type checker would accept any attribute

        def __getattr__(self, name: str) -> object:
            hint = f". Here: {GENSIM_NAMES[name]}" if name in GENSIM_NAMES else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")
