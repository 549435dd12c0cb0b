"""TF-IDF features of words and characters, as by scikit-learn's ``TfidfVectorizer``.

    words        1-grams and 2-grams                                         great   not great
    characters   2-grams to 5-grams within words, with spaces at their ends  " gre"   "reat "

Weights of both kinds: (1 + ln(count)) (ln((1 + n) / (1 + document frequency)) + 1), L2-normalized per kind.
The character n-grams of each distinct word are computed once: the counts are (words of each text) @ (n-grams
of each word).
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
MOST = 1_000_000  # maximum number of features, so that a vocabulary file has only some megabytes


FEATURE = np.dtype([("id", np.int32), ("value", np.float32)])  # type of the ids of a table of features


def table_of(rows: Any) -> TokenTable:
    """Convert sparse rows ``[n, W]`` to a table of feature ids with values; no text is truncated.

    A text without features gets the first feature with the value 0, so that no length is 0.
    """
    rows = rows.tocsr()
    rows.sort_indices()
    lengths = np.diff(rows.indptr)
    ids = np.empty(rows.nnz, FEATURE)
    ids["id"], ids["value"] = rows.indices, rows.data
    ids = np.insert(ids, rows.indptr[:-1][lengths == 0], np.zeros((), FEATURE))
    return TokenTable(ids, row_starts(np.maximum(lengths, 1)), None, np.zeros(len(lengths), bool))


def words_of(text: str) -> list[str]:
    """The words of a prepared text, and its pairs of adjacent words."""
    words = WORD.findall(text)
    return words + [f"{a} {b}" for a, b in pairwise(words)]


def pieces_of(word: str) -> list[str]:
    """The character n-grams of a word with a space at either end; a word shorter than n counts once."""
    word = f" {word} "
    pieces: list[str] = []
    for n in LENGTHS:
        pieces += [word[i : i + n] for i in range(max(1, len(word) - n + 1))]
        if n >= len(word):
            break
    return pieces


@dataclass(frozen=True)
class Ngrams:
    """A vectorizer of texts, or of pairs of texts: ``[a, b, a * b, |a - b|]`` of the features of both sides.

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

    def name_of(self, feature: int) -> str:
        """The n-gram of a feature in quotes, after the side of a pair to which it belongs."""
        part, i = divmod(feature, len(self.idf))
        gram = self.words[i] if i < len(self.words) else self.pieces[i - len(self.words)]
        side = ("first: ", "second: ", "both: ", "one only: ")[part] if self.pairs else ""
        return f"{side}{gram!r}"

    # --- learning ---------------------------------------------------------------------------------

    @classmethod
    def fitted(
        cls,
        texts: Sequence[str],
        *,
        min_count: int = 2,
        most: int = MOST,
        lowercase: bool = True,
        strip_accents: bool = False,
        clean: Clean = "none",
    ) -> tuple[Self, Any]:
        """Fit a vectorizer to training texts; also returns their features ``[n, W]`` (sparse, fp64).

        Args:
            min_count: minimum number of texts that have an n-gram.
            most: maximum number of features, the same of words and of characters; the most frequent are kept.
        """
        pairs = are_pairs(texts)
        made = cls((), (), np.zeros(0), lowercase, strip_accents, clean, pairs)
        each = made._sides(texts)
        names, counts, weights = [], [], []
        for found, rows in (_count(map(words_of, each)), _count_pieces(each)):
            documents = np.bincount(rows.indices, minlength=rows.shape[1])
            kept = _frequent(found, documents, min_count, most // (8 if pairs else 2))
            names.append([found[i] for i in kept.tolist()])
            counts.append(rows[:, kept])
            weights.append(np.log((1 + len(each)) / (1 + documents[kept])) + 1)
        if not names[0] and not names[1]:
            what = f"no word and no n-gram of characters is in {min_count} texts or more"
            raise TooFewExamplesError(what, where="texts", fix="Lower min_count, or give more texts")
        made = cls(names[0], names[1], np.concatenate(weights), lowercase, strip_accents, clean, pairs)
        return made, made._joined(made._weighed(counts))

    # --- transforming -----------------------------------------------------------------------------

    def folded(self, text: str) -> str:
        """A cleaned text, lower-cased and without accents, depending on the settings."""
        text = text.lower() if self.lowercase else text
        if self.strip_accents and not text.isascii():
            text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
        return text

    def number_of_words(self, gram: str) -> int | None:
        """The feature number of a word n-gram; None: unknown."""
        return self._word_ids.get(gram)

    def number_of_pieces(self, gram: str) -> int | None:
        """The feature number of a character n-gram; None: unknown."""
        found = self._piece_ids.get(gram)
        return None if found is None else len(self.words) + found

    def rows(self, texts: Sequence[str]) -> Any:
        """The features of texts or pairs, sparse ``[n, W]`` fp64."""
        each = self._sides(texts)
        counts = [_count(map(words_of, each), self._word_ids)[1], _count_pieces(each, self._piece_ids)[1]]
        return self._joined(self._weighed(counts))

    def table(self, texts: Sequence[str]) -> TokenTable:
        """The features as a ``TokenTable``, fp32; see ``table_of``."""
        return table_of(self.rows(texts))

    def _sides(self, texts: Sequence[str]) -> list[str]:
        """Prepared texts; for pairs all first texts, then all second texts."""
        if not self.pairs:
            return [self.folded(clean_text(text, self.clean)) for text in texts]
        sides = [text.sides[side] for side in (0, 1) for text in texts]  # type: ignore[attr-defined]  # checked: pairs
        return [self.folded(clean_text(text, self.clean)) for text in sides]

    def _weighed(self, counts: list[Any]) -> Any:
        """TF-IDF weights of the counts ``[n, ...]`` of words and of characters, concatenated."""
        from scipy.sparse import hstack

        first = counts[0].shape[1]
        parts = []
        for rows, idf in zip(counts, (self.idf[:first], self.idf[first:]), strict=True):
            rows.data = (1 + np.log(rows.data)) * idf[rows.indices]
            squares = np.asarray(rows.multiply(rows).sum(1)).ravel()
            length = np.sqrt(np.where(squares > 0, squares, 1.0))
            rows.data /= np.repeat(length, np.diff(rows.indptr))
            parts.append(rows)
        return hstack(parts, format="csr")

    def _joined(self, rows: Any) -> Any:
        """For pairs, the four parts concatenated."""
        from scipy.sparse import hstack

        if not self.pairs:
            return rows
        half = rows.shape[0] // 2
        a, b = rows[:half], rows[half:]
        return hstack([a, b, a.multiply(b), abs(a - b)], format="csr")


def _count(lists: Iterable[list[str]], known: Mapping[str, int] | None = None) -> tuple[list[str], Any]:
    """Count the n-grams of each list: names (empty if ``known``) and counts, sparse ``[n, W]`` fp64."""
    from scipy.sparse import csr_matrix

    growing: defaultdict[str, int] = defaultdict()
    growing.default_factory = growing.__len__
    ids, ends = array("i"), array("q", [0])
    for grams in lists:
        found = map(growing.__getitem__ if known is None else known.get, grams)
        ids.extend(i for i in found if i is not None)
        ends.append(len(ids))
    width = len(growing if known is None else known)
    rows = csr_matrix((np.ones(len(ids)), np.array(ids), np.array(ends)), (len(ends) - 1, width))
    rows.sum_duplicates()
    return list(growing), rows


def _count_pieces(texts: Sequence[str], known: Mapping[str, int] | None = None) -> tuple[list[str], Any]:
    words, of_texts = _count(text.split() for text in texts)
    names, of_words = _count(map(pieces_of, words), known)
    rows = (of_texts @ of_words).tocsr()
    rows.sort_indices()
    return names, rows


def _frequent(names: list[str], documents: np.ndarray, least: int, most: int) -> np.ndarray:
    """Numbers of the n-grams that are in enough texts, at most ``most``, sorted by name."""
    kept = np.flatnonzero(documents >= least)
    if len(kept) > most:
        order = sorted(kept.tolist(), key=lambda i: (-int(documents[i]), names[i]))
        kept = np.array(order[:most])
    return np.array(sorted(kept.tolist(), key=names.__getitem__), np.int64)
