"""Sentences of words as token ids that remember where each word begins.

    words    The   Hague    today        one row of the head's answers for each: that of its first piece
    pieces   the   hag ##ue today
    first    1     2        4            places in the table's ids, [CLS] at 0

A sentence that is longer than the model reads is cut into windows of whole words that overlap; a word is
answered by the window in which it stands further from the edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from glassformer.data.text import TokenTable, check_room, frame_of, unknown_id
from glassformer.data.vocabulary import trimmed
from glassformer.errors import DataError

OVERLAP = 4  # a window shares a quarter of its tokens, or a little less, with the next


@dataclass(frozen=True)
class WordRows:
    """The windows of many sentences, and where their words are answered."""

    table: TokenTable  # of windows, special tokens around each
    first: np.ndarray  # int64 [W]; the place in ``table.ids`` of each word's first piece
    counts: np.ndarray  # int64 [n]; words of each sentence
    words: np.ndarray  # int32 [N]; the word of each token, counted in its sentence; -1: a special token
    offsets: np.ndarray  # int32 [N, 2]; its place in the words joined by blanks; 0, 0: nowhere

    def split(self, rows: np.ndarray) -> list[np.ndarray]:
        """What is given for each word ``[W, ...]``, sentence by sentence."""
        return np.split(rows, np.cumsum(self.counts)[:-1])

    def on_first(self, values: np.ndarray, elsewhere: int) -> np.ndarray:
        """A number for every token ``[N]``: that of the word at its first piece, another one elsewhere."""
        out = np.full(len(self.table.ids), elsewhere, np.int64)
        out[self.first] = values
        return out


def joined_rows(parts: Sequence[WordRows]) -> WordRows:
    """Several as one, in their order."""
    ends = np.cumsum([0, *(len(part.table.ids) for part in parts[:-1])])
    return WordRows(
        TokenTable.joined([part.table for part in parts]),
        np.concatenate([part.first + end for part, end in zip(parts, ends, strict=True)]),
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.words for part in parts]),
        np.concatenate([part.offsets for part in parts]),
    )


def encode_words(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], *, max_length: int, chunk: int = 2048
) -> WordRows:
    """The words of each sentence, with a blank between them, as the tokenizer reads such a text.

    A word of which the tokenizer leaves nothing is one unknown token.

    Args:
        max_length: tokens of a window at most, special ones included.

    Raises:
        DataError: no room beside the special tokens, or nothing is left of a word and there is no unknown
            token.
    """
    before, behind = frame_of(tokenizer)
    check_room(max_length, len(before) + len(behind))
    room = max_length - len(before) - len(behind)
    windows: list[list[int]] = []
    first: list[int] = []
    numbers: list[int] = []
    offsets: list[tuple[int, int]] = []
    end = 0  # tokens so far
    for at in range(0, len(sentences), chunk):
        part = sentences[at : at + chunk]
        encodings = tokenizer.encode_batch(list(map(" ".join, part)), add_special_tokens=False)
        for words, encoding in zip(part, encodings, strict=True):
            own = _pieces_of(tokenizer, words, encoding)
            for start, stop, answered in _windows(list(map(len, own)), room):
                chosen = [(word, *piece) for word in range(start, stop) for piece in own[word]][:room]
                begins = accumulate(map(len, own[start:stop]), initial=end + len(before))
                places = dict(zip(range(start, stop), begins, strict=False))
                first += [places[word] for word in answered]
                windows.append([*before, *(piece for _, piece, _ in chosen), *behind])
                numbers += [*[-1] * len(before), *(word for word, _, _ in chosen), *[-1] * len(behind)]
                offsets += [*[(0, 0)] * len(before), *(at for _, _, at in chosen), *[(0, 0)] * len(behind)]
                end += len(windows[-1])
    counts = np.array(list(map(len, sentences)), np.int64)
    places = np.array(offsets, np.int32).reshape(-1, 2)
    return WordRows(
        TokenTable.of(windows), np.array(first, np.int64), counts, np.array(numbers, np.int32), places
    )


Piece = tuple[int, tuple[int, int]]  # its id, its place in the text


def _pieces_of(tokenizer: Tokenizer, words: Sequence[str], encoding: Any) -> list[list[Piece]]:
    """The pieces of each word; those of blanks go to the word before, so that a word begins with its own."""
    offsets = trimmed(" ".join(words), encoding.offsets)
    begins = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
    own: list[list[Piece]] = [[] for _ in words]
    word = -1
    for piece, (start, stop) in zip(encoding.ids, offsets, strict=True):
        if stop > start:
            word = max(word, int(np.searchsorted(begins, start, side="right")) - 1)
            own[word].append((piece, (start, stop)))
        elif word >= 0:
            own[word].append((piece, (stop, stop)))
    for i, part in enumerate(own):
        if not part:
            unknown = unknown_id(tokenizer)
            if unknown is None:
                what = f"the tokenizer leaves nothing of the word {words[i]!r}, and has no unknown token"
                raise DataError(what, where="words", fix="Remove such words")
            own[i] = [(unknown, (int(begins[i]), int(begins[i]) + len(words[i])))]
    return own


def _windows(lengths: list[int], room: int) -> list[tuple[int, int, range]]:
    """First word, last word + 1 and the words that are answered, of each window of a sentence."""
    if sum(lengths) <= room:
        return [(0, len(lengths), range(len(lengths)))]
    spans: list[tuple[int, int]] = []
    start = 0
    while True:
        stop, tokens = start, 0
        while stop < len(lengths) and (stop == start or tokens + lengths[stop] <= room):
            tokens += lengths[stop]
            stop += 1
        spans.append((start, stop))
        if stop == len(lengths):
            break
        again, shared = stop, 0  # where the next one begins
        while again - 1 > start and shared + lengths[again - 1] <= room // OVERLAP:
            again -= 1
            shared += lengths[again]
        start = again
    out, begin = [], 0
    for i, (start, stop) in enumerate(spans):
        end = (spans[i + 1][0] + stop) // 2 if i + 1 < len(spans) else stop
        out.append((start, stop, range(begin, end)))
        begin = end
    return out
