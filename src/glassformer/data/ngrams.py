"""TF-IDF features of words and characters, as scikit-learn's ``TfidfVectorizer`` makes them.

    words        one and two words beside each other      great   not great
    characters   two to five inside a word, its ends included as spaces      " gre"   "reat "

Each of both: 1 + ln(count), times ln((1 + n) / (1 + texts that have it)) + 1, brought to length 1.
The n-grams of a word are looked up once, however often it occurs: the counts of characters are
(words of each text) @ (n-grams of each word).
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

from glassformer.data.text import Clean, TokenTable, clean_text, starts_of
from glassformer.data.text_pairs import are_pairs
from glassformer.errors import TooFewExamplesError

WORD = re.compile(r"\w+")
LENGTHS = range(2, 6)  # of n-grams of characters
MOST = 1_000_000  # features, so that a vocabulary stays a file of some megabytes


FEATURE = np.dtype([("id", np.int32), ("value", np.float32)])  # what a table of features holds as ids


def table_of(rows: Any) -> TokenTable:
    """Sparse rows ``[n, W]`` as a table, whose ids are features with their values; no text is ever cut.

    A text without features has the first one, with the value 0: no length is 0.
    """
    rows = rows.tocsr()
    rows.sort_indices()
    lengths = np.diff(rows.indptr)
    ids = np.empty(rows.nnz, FEATURE)
    ids["id"], ids["value"] = rows.indices, rows.data
    ids = np.insert(ids, rows.indptr[:-1][lengths == 0], np.zeros((), FEATURE))
    return TokenTable(ids, starts_of(np.maximum(lengths, 1)), None, np.zeros(len(lengths), bool))


def words_of(text: str) -> list[str]:
    """A prepared text's words, and each two that follow each other."""
    words = WORD.findall(text)
    return words + [f"{a} {b}" for a, b in pairwise(words)]


def pieces_of(word: str) -> list[str]:
    """The n-grams of the characters of a word between spaces; one that is shorter than that counts once."""
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
        words, pieces: n-grams of words and of characters; the place of each is its number.
        idf: ``[len(words) + len(pieces)]`` fp64, their weights.
        lowercase, strip_accents, clean: what is done to texts before.
        pairs: whether it reads pairs.
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
        """W, the number of features."""
        return len(self.idf) * (4 if self.pairs else 1)

    def name_of(self, feature: int) -> str:
        """An n-gram in quotes, and which side of a pair it is of."""
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
        """The n-grams of training texts, and the features ``[n, W]`` of these (sparse, fp64).

        Args:
            min_count: texts that an n-gram must stand in.
            most: features at most, of words and of characters the most frequent alike.

        Raises:
            DataError: no n-gram is frequent enough.
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

    # --- using ------------------------------------------------------------------------------------

    def folded(self, text: str) -> str:
        """A cleaned text as its n-grams are taken: without case, without accents."""
        text = text.lower() if self.lowercase else text
        if self.strip_accents and not text.isascii():
            text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
        return text

    def number_of_words(self, gram: str) -> int | None:
        """The number of an n-gram of words; None: not known."""
        return self._word_ids.get(gram)

    def number_of_pieces(self, gram: str) -> int | None:
        """The number of an n-gram of characters; None: not known."""
        found = self._piece_ids.get(gram)
        return None if found is None else len(self.words) + found

    def rows(self, texts: Sequence[str]) -> Any:
        """The features of texts or pairs, sparse ``[n, W]`` fp64."""
        each = self._sides(texts)
        counts = [_count(map(words_of, each), self._word_ids)[1], _count_pieces(each, self._piece_ids)[1]]
        return self._joined(self._weighed(counts))

    def table(self, texts: Sequence[str]) -> TokenTable:
        """The same as a model reads them, fp32; see ``table_of``."""
        return table_of(self.rows(texts))

    def _sides(self, texts: Sequence[str]) -> list[str]:
        """Prepared texts; of pairs all first ones, then all second ones."""
        if not self.pairs:
            return [self.folded(clean_text(text, self.clean)) for text in texts]
        sides = [text.sides[side] for side in (0, 1) for text in texts]  # type: ignore[attr-defined]  # checked: pairs
        return [self.folded(clean_text(text, self.clean)) for text in sides]

    def _weighed(self, counts: list[Any]) -> Any:
        """Counts ``[n, ...]`` of words and of characters as weights, side by side."""
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
        """Of pairs the four parts side by side."""
        from scipy.sparse import hstack

        if not self.pairs:
            return rows
        half = rows.shape[0] // 2
        a, b = rows[:half], rows[half:]
        return hstack([a, b, a.multiply(b), abs(a - b)], format="csr")


def _count(lists: Iterable[list[str]], known: Mapping[str, int] | None = None) -> tuple[list[str], Any]:
    """How often each n-gram stands in each list, sparse ``[n, W]`` fp64; names where all are learned."""
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
    """The numbers of those n-grams that stand in enough texts, by name; of too many the most frequent."""
    kept = np.flatnonzero(documents >= least)
    if len(kept) > most:
        order = sorted(kept.tolist(), key=lambda i: (-int(documents[i]), names[i]))
        kept = np.array(order[:most])
    return np.array(sorted(kept.tolist(), key=names.__getitem__), np.int64)
