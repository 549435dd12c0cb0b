"""TF-IDF features of words and characters.

The features are those of scikit-learn's ``TfidfVectorizer``.

    words        1-grams and 2-grams                                         great   not great
    characters   2-grams to 5-grams within words, with spaces at their ends  " gre"   "reat "

The weight of a feature in one of n texts is (1 + ln(count)) (ln((1 + n) / (1 + document frequency)) + 1). In
each text, the weights of the words and those of the characters are L2-normalized separately. The character
n-grams of each distinct word are computed once: counts = (words of each text) @ (n-grams of each word).
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import numpy as np

from glassformer.data.text import Clean, TokenTable, clean_text, row_starts
from glassformer.data.text_pairs import are_pairs
from glassformer.errors import TooFewExamplesError

WORD = re.compile(r"\w+")
LENGTHS = range(2, 6)  # lengths of character n-grams
MAX_FEATURES = 1_000_000  # limits a vocabulary file to some megabytes
FEATURE = np.dtype([("id", np.int32), ("value", np.float32)])  # type of ``ids`` in a table of features


def table_of(rows: Any) -> TokenTable:
    """Convert a sparse matrix ``[n, W]`` of n texts to a table of feature ids with their values.

    A text without features gets the first feature with the value 0, so that no length is 0.
    """
    rows = rows.tocsr()
    rows.sort_indices()
    lengths = np.diff(rows.indptr)
    ids = np.empty(rows.nnz, FEATURE)
    ids["id"], ids["value"] = rows.indices, rows.data
    ids = np.insert(ids, rows.indptr[:-1][lengths == 0], np.zeros((), FEATURE))
    return TokenTable(ids, row_starts(np.maximum(lengths, 1)), None, np.zeros(len(lengths), bool))


def word_ngrams(text: str) -> list[str]:
    """The words of a preprocessed text, and its pairs of adjacent words."""
    words = WORD.findall(text)
    return words + [f"{a} {b}" for a, b in pairwise(words)]


def character_ngrams(word: str) -> list[str]:
    """The character n-grams of a word with a space at either end; a shorter word is one n-gram."""
    word = f" {word} "
    ngrams: list[str] = []
    for n in LENGTHS:
        ngrams += [word[i : i + n] for i in range(max(1, len(word) - n + 1))]
        if n >= len(word):
            break
    return ngrams


@dataclass(frozen=True)
class Ngrams:
    """A TF-IDF vectorizer of texts or pairs; a pair with features a and b has ``[a, b, a * b, |a - b|]``.

    Args:
        words, pieces: n-grams of words and of characters, in the order of the features.
        idf: ``[len(words) + len(pieces)]`` fp64, their inverse document frequencies.
        lowercase, strip_accents, clean: preprocessing of the texts.
        pairs: whether the inputs are pairs.
    """

    words: Sequence[str]
    pieces: Sequence[str]
    idf: np.ndarray
    lowercase: bool = True
    strip_accents: bool = False
    clean: Clean = "none"
    pairs: bool = False
    _word_ids: Mapping[str, int] = field(init=False, repr=False, compare=False)
    _piece_ids: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_word_ids", {gram: i for i, gram in enumerate(self.words)})
        object.__setattr__(self, "_piece_ids", {gram: i for i, gram in enumerate(self.pieces)})

    @property
    def width(self) -> int:
        """Number of features W."""
        return len(self.idf) * (4 if self.pairs else 1)

    def feature_name(self, feature: int) -> str:
        """The n-gram of a feature in quotes; for pairs with a prefix, such as ``first: 'great'``."""
        part, i = divmod(feature, len(self.idf))
        gram = self.words[i] if i < len(self.words) else self.pieces[i - len(self.words)]
        prefix = ("first: ", "second: ", "both: ", "one only: ")[part] if self.pairs else ""
        return f"{prefix}{gram!r}"

    # --- fitting ----------------------------------------------------------------------------------

    @classmethod
    def fitted(
        cls,
        texts: Sequence[str],
        *,
        min_count: int = 2,
        max_features: int = MAX_FEATURES,
        lowercase: bool = True,
        strip_accents: bool = False,
        clean: Clean = "none",
    ) -> tuple[Self, Any]:
        """Fit a vectorizer to training texts; also return their features ``[n, W]`` (sparse, fp64).

        Args:
            min_count: minimum number of texts that have an n-gram.
            max_features: maximum number of features, half of words and half of characters; the most frequent
                features are used.
        """
        pairs = are_pairs(texts)
        vectorizer = cls((), (), np.zeros(0), lowercase, strip_accents, clean, pairs)
        prepared = vectorizer._preprocess(texts)
        names, counts, weights = [], [], []
        for ngrams, rows in (_count(map(word_ngrams, prepared)), _count_characters(prepared)):
            documents = np.bincount(rows.indices, minlength=rows.shape[1])
            frequent = _most_frequent(ngrams, documents, min_count, max_features // (8 if pairs else 2))
            names.append([ngrams[i] for i in frequent.tolist()])
            counts.append(rows[:, frequent])
            weights.append(np.log((1 + len(prepared)) / (1 + documents[frequent])) + 1)
        if not names[0] and not names[1]:
            what = f"no word and no n-gram of characters is in {min_count} texts or more"
            raise TooFewExamplesError(what, where="texts", fix="Lower min_count, or give more texts")
        vectorizer = cls(names[0], names[1], np.concatenate(weights), lowercase, strip_accents, clean, pairs)
        return vectorizer, vectorizer._combine_pairs(vectorizer._tfidf(counts))

    # --- transforming -----------------------------------------------------------------------------

    def normalize_text(self, text: str) -> str:
        """Lower-case a cleaned text and strip its accents, depending on the settings."""
        text = text.lower() if self.lowercase else text
        if self.strip_accents and not text.isascii():
            text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
        return text

    def word_feature(self, gram: str) -> int | None:
        """The feature number of a word n-gram; None: unknown."""
        return self._word_ids.get(gram)

    def character_feature(self, gram: str) -> int | None:
        """The feature number of a character n-gram; None: unknown."""
        number = self._piece_ids.get(gram)
        return None if number is None else len(self.words) + number

    def rows(self, texts: Sequence[str]) -> Any:
        """The features of texts or pairs, sparse ``[n, W]`` fp64."""
        prepared = self._preprocess(texts)
        words = _count(map(word_ngrams, prepared), self._word_ids)[1]
        return self._combine_pairs(self._tfidf([words, _count_characters(prepared, self._piece_ids)[1]]))

    def table(self, texts: Sequence[str]) -> TokenTable:
        """The features as a ``TokenTable``, fp32; see ``table_of``."""
        return table_of(self.rows(texts))

    def _preprocess(self, texts: Sequence[str]) -> list[str]:
        """Preprocessed texts; for pairs all first texts, then all second texts."""
        if self.pairs:
            texts = [text.sides[side] for side in (0, 1) for text in texts]  # type: ignore[attr-defined]  # checked: pairs
        return [self.normalize_text(clean_text(text, self.clean)) for text in texts]

    def _tfidf(self, counts: list[Any]) -> Any:
        """TF-IDF weights ``[n, W]`` from the counts of words and of characters; changes ``counts``."""
        from scipy.sparse import hstack

        first = counts[0].shape[1]
        parts = []
        for rows, idf in zip(counts, (self.idf[:first], self.idf[first:]), strict=True):
            rows.data = (1 + np.log(rows.data)) * idf[rows.indices]
            squares = np.asarray(rows.multiply(rows).sum(1)).ravel()
            norms = np.sqrt(np.where(squares > 0, squares, 1.0))
            rows.data /= np.repeat(norms, np.diff(rows.indptr))
            parts.append(rows)
        return hstack(parts, format="csr")

    def _combine_pairs(self, rows: Any) -> Any:
        """For pairs, ``[a, b, a * b, |a - b|]`` of all first and all second texts; otherwise unchanged."""
        from scipy.sparse import hstack

        if not self.pairs:
            return rows
        half = rows.shape[0] // 2
        a, b = rows[:half], rows[half:]
        return hstack([a, b, a.multiply(b), abs(a - b)], format="csr")


def _count(lists: Iterable[list[str]], known: Mapping[str, int] | None = None) -> tuple[list[str], Any]:
    """The distinct n-grams (empty if ``known``), and their counts in each list, sparse ``[n, W]`` fp64."""
    from scipy.sparse import csr_matrix

    vocabulary: defaultdict[str, int] = defaultdict()
    vocabulary.default_factory = vocabulary.__len__
    ids, ends = array("i"), array("q", [0])
    for ngrams in lists:
        numbers = map(vocabulary.__getitem__ if known is None else known.get, ngrams)
        ids.extend(i for i in numbers if i is not None)
        ends.append(len(ids))
    width = len(vocabulary if known is None else known)
    rows = csr_matrix((np.ones(len(ids)), np.array(ids), np.array(ends)), (len(ends) - 1, width))
    rows.sum_duplicates()
    return list(vocabulary), rows


def _count_characters(texts: Sequence[str], known: Mapping[str, int] | None = None) -> tuple[list[str], Any]:
    """Like ``_count``, for the character n-grams of texts."""
    words, word_counts = _count(text.split() for text in texts)
    names, ngram_counts = _count(map(character_ngrams, words), known)
    rows = (word_counts @ ngram_counts).tocsr()
    rows.sort_indices()
    return names, rows


def _most_frequent(names: list[str], documents: np.ndarray, min_count: int, max_ngrams: int) -> np.ndarray:
    """Indices of the most frequent n-grams that are in at least ``min_count`` texts, sorted by name."""
    selected = np.flatnonzero(documents >= min_count).tolist()
    if len(selected) > max_ngrams:
        selected = sorted(selected, key=lambda i: (-int(documents[i]), names[i]))[:max_ngrams]
    return np.array(sorted(selected, key=names.__getitem__), np.int64)
