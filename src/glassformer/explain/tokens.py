"""The tokens of one text as an explanation shows them: where each stands, and which word it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glassformer.data.text import clean_text
from glassformer.data.vocabulary import trimmed, word_ids


@dataclass(frozen=True)
class Tokens:
    """T tokens of one text, cut exactly as in training."""

    text: str  # what the tokenizer saw, after cleaning
    names: list[str]
    offsets: list[tuple[int, int]]  # places in ``text``; (0, 0) for special tokens
    ids: list[int]
    words: np.ndarray  # [T] int: the word of each token, counted from 0; -1 for special tokens

    def __len__(self) -> int:
        return len(self.ids)


def tokens_of(clf, text: str) -> Tokens:
    """Tokens of a text under a classifier's own cleaning, tokenizer and length limit."""
    shown = clean_text(text, clf.clean)
    encoding = clf.tokenizer_.encode(shown, add_special_tokens=clf.add_special_tokens)
    ids = clf.encode([text])[0].tolist()
    kept = list(range(len(encoding.ids)))
    if len(ids) < len(kept):  # the closing special token stays, the middle is cut
        tail = sum(1 for m in reversed(encoding.special_tokens_mask) if m) - encoding.special_tokens_mask[0]
        tail = max(0, min(tail, 1))
        kept = kept[: len(ids) - tail] + kept[len(kept) - tail :]
    if not kept:  # a text without a known word counts as one unknown token
        name = clf.tokenizer_.id_to_token(ids[0])
        return Tokens(shown, [name], [(0, len(shown))], ids, np.zeros(1, int))
    names = [encoding.tokens[i] for i in kept]
    offsets = trimmed(shown, (encoding.offsets[i] for i in kept))
    return Tokens(shown, names, offsets, ids, word_ids(encoding, kept))


def word_spans(words: np.ndarray, offsets: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Where each word lies in the text, in order."""
    spans: list[tuple[int, int]] = []
    for word, (start, stop) in zip(words.tolist(), offsets, strict=True):
        if word == len(spans):
            spans.append((start, stop))
        elif word >= 0:
            spans[word] = (min(spans[word][0], start), max(spans[word][1], stop))
    return spans


def per_word(scores: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Scores of tokens ``[T]`` added up to scores of words ``[W]``; special tokens are left out."""
    chosen = words >= 0
    return np.bincount(words[chosen], np.asarray(scores, np.float64)[chosen], minlength=int(words.max()) + 1)
