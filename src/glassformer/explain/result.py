"""Results of explanations: scores of tokens or patches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glassformer.data.text import clean_text
from glassformer.data.text_pairs import SEPARATOR, TextPair, clean_pair, truncated_lengths
from glassformer.data.vocabulary import clean_offsets, word_ids, wordpiece_word_ids

# --- tokens ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tokens:
    """The T tokens of one text, truncated as in training."""

    text: str  # input of the tokenizer: the cleaned text
    names: list[str]
    offsets: list[tuple[int, int]]  # character offsets in ``text``; (0, 0) for special tokens
    ids: list[int]
    words: np.ndarray  # [T] int: the word of each token, counted from 0; -1 for special tokens
    sides: np.ndarray | None = None  # [T] for pairs: 0 first text, 1 second text, -1 special tokens
    segments: np.ndarray | None = None  # [T] int, token types; None: the model has none

    def __len__(self) -> int:
        return len(self.ids)


def tokenize(clf, text: str) -> Tokens:
    """The tokens of a text or pair, with the cleaning, tokenizer and length limit of an estimator."""
    if isinstance(text, TextPair):
        return _tokenize_pair(clf, text)
    cleaned = clean_text(text, clf.clean)
    encoding = clf.tokenizer_.encode(cleaned, add_special_tokens=clf.add_special_tokens)
    ids = clf.encode([text])[0].tolist()
    indices = list(range(len(encoding.ids)))
    if len(ids) < len(indices):  # truncation keeps the final special token
        tail = sum(1 for m in reversed(encoding.special_tokens_mask) if m) - encoding.special_tokens_mask[0]
        tail = max(0, min(tail, 1))
        indices = indices[: len(ids) - tail] + indices[len(indices) - tail :]
    if not indices:  # a text without a known word counts as one unknown token
        name = clf.tokenizer_.id_to_token(ids[0])
        return Tokens(cleaned, [name], [(0, len(cleaned))], ids, np.zeros(1, int))
    names = [encoding.tokens[i] for i in indices]
    offsets = clean_offsets(cleaned, (encoding.offsets[i] for i in indices))
    return Tokens(cleaned, names, offsets, ids, word_ids(encoding, indices, cleaned))


def _tokenize_pair(clf, pair: TextPair) -> Tokens:
    """The tokens of a pair; offsets are in both texts joined by ``SEPARATOR``."""
    first, second = clean_pair(pair, clf.clean)
    encoding = clf.tokenizer_.encode(first, second, add_special_tokens=clf.add_special_tokens)
    table = clf.encode([pair])
    ids, joined, second_start = table[0].tolist(), f"{first}{SEPARATOR}{second}", len(first) + len(SEPARATOR)
    sides = np.array([-1 if side is None else side for side in encoding.sequence_ids], int)
    indices = _truncated_indices(sides, clf.max_length)
    if ids != [encoding.ids[i] for i in indices]:  # no known word in both texts: one unknown token
        names, zero = [clf.tokenizer_.id_to_token(ids[0])], np.zeros(1, int)
        return Tokens(joined, names, [(0, len(joined))], ids, zero, zero, table.segments)
    words, offsets, num_words = np.full(len(ids), -1), [(0, 0)] * len(ids), 0
    for side, text in enumerate((first, second)):
        positions = [position for position, i in enumerate(indices) if sides[i] == side]
        text_indices = [indices[position] for position in positions]
        side_words = word_ids(encoding, text_indices, text)
        words[positions] = np.where(side_words >= 0, side_words + num_words, -1)
        num_words += int(side_words.max(initial=-1)) + 1
        side_offsets = clean_offsets(text, (encoding.offsets[i] for i in text_indices))
        for position, (start, stop) in zip(positions, side_offsets, strict=True):
            if stop > start:
                offsets[position] = (start + side * second_start, stop + side * second_start)
    names = [encoding.tokens[i] for i in indices]
    return Tokens(joined, names, offsets, ids, words, sides[indices], table.segments)


def _truncated_indices(sides: np.ndarray, max_length: int) -> list[int]:
    """Indices of the tokens of a pair that remain after truncation."""
    counts = [int((sides == side).sum()) for side in (0, 1)]
    limits = truncated_lengths(counts[0], counts[1], max_length - int((sides < 0).sum()))
    keep = sides < 0
    for side, limit in enumerate(limits):
        keep[np.flatnonzero(sides == side)[:limit]] = True
    return np.flatnonzero(keep).tolist()


def word_spans(words: np.ndarray, offsets: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The character offsets of each word, in order."""
    spans: list[tuple[int, int]] = []
    for word, (start, stop) in zip(words.tolist(), offsets, strict=True):
        if word == len(spans):
            spans.append((start, stop))
        elif word >= 0:
            spans[word] = (min(spans[word][0], start), max(spans[word][1], stop))
    return spans


def sum_by_word(scores: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Sums of the token scores ``[T]`` by word ``[W]``, without special tokens."""
    in_word = words >= 0
    return np.bincount(
        words[in_word], np.asarray(scores, np.float64)[in_word], minlength=int(words.max()) + 1
    )


# --- results --------------------------------------------------------------------------------------


# Method -> how to interpret its scores.
ABOUT = {
    "attention": "How much attention each token gets in one layer, from the positions that the head reads. "
    "It shows where information was read, not why the model made this prediction.",
    "rollout": "Attention followed through all layers. It shows where information could have come from, not "
    "why the model made this prediction.",
    "gradient_x_input": "The first-order contribution of each token to the logit of the explained label.",
    "integrated_gradients": "The contribution of each token to the logit, compared with the baseline. The "
    "scores sum to the difference between the two logits, up to the reported error.",
    "attention_gradient": "Attention followed through all layers, counted only where it raises the logit of "
    "the explained label.",
    "gim": "The first-order contribution of each token to the logit of the explained label. The gradient is "
    "not weakened by tokens that can replace each other.",
    "decomposition": "The contribution of each token to the logit, with attention weights and other factors "
    "as constants. The scores of all tokens and the biases sum to the logit.",
    "shapley": "The mean contribution of each token to the logit of the explained label, over random orders "
    "of showing tokens. The scores sum to the difference from an input with every token masked.",
    "weights": "The contributions of the words and character n-grams in the text, each shared equally among "
    "its characters. The scores of all tokens and the bias sum to the logit.",
    "occlusion": "How much the logit of the explained label falls when the token is masked.",
}


@dataclass
class Scores:
    """The return value of an attribution method."""

    scores: np.ndarray  # [T]
    maps: np.ndarray | None = None  # [L, H, T, T] attention weights
    reads: np.ndarray | None = None  # [T], the share of each output token in the pooled vector
    error: float | None = None  # integrated gradients: relative error of completeness
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class Result:
    """Scores for the tokens of one text, or for the patches of one image.

    ``text`` is the cleaned text, empty for images. ``offsets`` are character offsets, (0, 0) for special
    tokens. Scores of attention methods are non-negative. Scores of other methods are positive if they support
    the target and negative if they oppose it, in units of its logit except for ``attention_gradient`` and
    ``gim``.
    """

    text: str
    tokens: list[str]
    offsets: list[tuple[int, int]]
    scores: np.ndarray  # [T], or [gh, gw] on the patch grid
    label: Any  # the prediction
    probability: float  # probability of the prediction
    method: str
    target: Any = None  # the explained label; None for attention and rollout
    maps: np.ndarray | None = None  # [L, H, T, T] attention weights
    error: float | None = None  # integrated gradients: relative error of completeness
    settings: dict[str, Any] = field(default_factory=dict)
    image: np.ndarray | None = None  # [height, width, 3] uint8, the input of the model
    reads: np.ndarray | None = None  # [T], the share of each output token in the pooled vector
    notes: list[str] = field(default_factory=list)
    name: str = ""  # file name of the input
    trust: dict[str, Any] | None = None  # result of ``faithfulness.check_faithfulness``, if requested
    word_ids: np.ndarray | None = None  # [T], the word of each token, -1 for special tokens
    sides: np.ndarray | None = None  # [T] for pairs: 0 first text, 1 second text, -1 special tokens
    target_probability: float | None = None  # probability of ``target``
    number: bool = False  # regression: ``label`` and ``probability`` are the predicted number
    cross: dict[str, Any] | None = None  # result of ``cross``, if requested

    @property
    def of_target(self) -> float | None:
        """The probability of the target if it is not the predicted label; else None."""
        differs = self.target is not None and str(self.target) != str(self.label) and not self.number
        return self.target_probability if differs else None

    @property
    def numbers(self) -> np.ndarray:
        """The word of each token ``[T]``, inferred from tokens and offsets if unknown."""
        return wordpiece_word_ids(self.tokens, self.offsets) if self.word_ids is None else self.word_ids

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """The tokens with the highest scores; patches are named by row and column."""
        flat = self.scores.ravel()
        names = (
            self.tokens
            if self.scores.ndim == 1
            else [f"({i}, {j})" for i, j in np.ndindex(self.scores.shape)]
        )
        return [(names[i], float(flat[i])) for i in np.argsort(-flat, kind="stable")[:count]]

    def words(self) -> list[tuple[str, float]]:
        """The words of the text with the sums of their tokens' scores, without special tokens."""
        numbers = self.numbers
        if numbers.max(initial=-1) < 0:
            return []
        spans = word_spans(numbers, self.offsets)
        scores = sum_by_word(self.scores, numbers)
        return [(self.text[a:b], float(s)) for (a, b), s in zip(spans, scores, strict=True)]

    def words_of(self, side: int) -> list[tuple[str, float]]:
        """Like ``words``, for one text of a pair: 0 is the first text, 1 the second."""
        if self.sides is None:
            return self.words() if side == 0 else []
        side_words = {int(w) for w, s in zip(self.numbers, self.sides, strict=True) if s == side and w >= 0}
        return [word for number, word in enumerate(self.words()) if number in side_words]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without maps and image."""
        values = {
            "text": self.text,
            "tokens": self.tokens,
            "offsets": [list(o) for o in self.offsets],
            "scores": np.round(self.scores.astype(np.float64), 6).tolist(),
            "label": str(self.label),
            "probability": self.probability,
            "method": self.method,
            "target": None if self.target is None else str(self.target),
            "target_probability": self.target_probability,
            "error": self.error,
            "settings": self.settings,
            "notes": self.notes,
            "name": self.name,
            "trust": self.trust,
        }
        if self.sides is not None:
            values["sides"] = self.sides.tolist()
        if self.cross is not None:
            values["cross"] = self.cross
        return values
