"""The tokens of one text as an explanation shows them: where each stands, and which word it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glassformer.data.text import clean_text
from glassformer.data.text_pairs import JOINT, TextPair, cleaned_sides, sides_kept
from glassformer.data.vocabulary import places_in, word_ids


@dataclass(frozen=True)
class Tokens:
    """T tokens of one text, cut exactly as in training."""

    text: str  # what the tokenizer saw, after cleaning
    names: list[str]
    offsets: list[tuple[int, int]]  # places in ``text``; (0, 0) for special tokens
    ids: list[int]
    words: np.ndarray  # [T] int: the word of each token, counted from 0; -1 for special tokens
    sides: np.ndarray | None = None  # [T] of a pair: 0 its first text, 1 its second, -1 special tokens
    segments: np.ndarray | None = None  # [T] int, as the model reads them; None: it tells none apart

    def __len__(self) -> int:
        return len(self.ids)


def tokens_of(clf, text: str) -> Tokens:
    """Tokens of a text, or of a pair, under a classifier's own cleaning, tokenizer and length limit."""
    if isinstance(text, TextPair):
        return _tokens_of_pair(clf, text)
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
    offsets = places_in(shown, (encoding.offsets[i] for i in kept))
    return Tokens(shown, names, offsets, ids, word_ids(encoding, kept, shown))


def _tokens_of_pair(clf, pair: TextPair) -> Tokens:
    """Both texts, a line each, and where each token stands in that."""
    first, second = cleaned_sides(pair, clf.clean)
    encoding = clf.tokenizer_.encode(first, second, add_special_tokens=clf.add_special_tokens)
    table = clf.encode([pair])
    ids, shown, behind = table[0].tolist(), f"{first}{JOINT}{second}", len(first) + len(JOINT)
    sides = np.array([-1 if side is None else side for side in encoding.sequence_ids], int)
    kept = _rows_kept(sides, clf.max_length)
    if ids != [encoding.ids[i] for i in kept]:  # no known word on either side: one unknown token
        names, alone = [clf.tokenizer_.id_to_token(ids[0])], np.zeros(1, int)
        return Tokens(shown, names, [(0, len(shown))], ids, alone, alone, table.segments)
    places = dict(zip(kept, range(len(kept)), strict=True))  # in the whole encoding -> among those kept
    words, offsets, count = np.full(len(ids), -1), [(0, 0)] * len(ids), 0
    for side, text in enumerate((first, second)):
        rows = [i for i in kept if sides[i] == side]
        own = word_ids(encoding, rows, text)
        words[[places[i] for i in rows]] = np.where(own >= 0, own + count, -1)
        count += int(own.max(initial=-1)) + 1
        for i, (start, stop) in zip(rows, places_in(text, (encoding.offsets[i] for i in rows)), strict=True):
            offsets[places[i]] = (start + side * behind, stop + side * behind) if stop > start else (0, 0)
    names = [encoding.tokens[i] for i in kept]
    return Tokens(shown, names, offsets, ids, words, sides[kept], table.segments)


def _rows_kept(sides: np.ndarray, max_length: int) -> list[int]:
    """The tokens of a pair that are read, in order: all special ones, and of each side the first."""
    counts = [int((sides == side).sum()) for side in (0, 1)]
    room = sides_kept(counts[0], counts[1], max_length - int((sides < 0).sum()))
    seen, kept = [0, 0], []
    for i, side in enumerate(sides.tolist()):
        if side < 0 or seen[side] < room[side]:
            kept.append(i)
        if side >= 0:
            seen[side] += 1
    return kept


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
