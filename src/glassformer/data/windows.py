"""Encode questions with contexts, and sentences of words, as token ids with character offsets.

Questions: a long context is split into windows that share ``stride`` tokens. The whole question precedes each
window, as in transformers. ``sides`` marks the tokens of the question (0), of the context (1) and special
tokens:

    ids      [CLS] when was Ada born ? [SEP] Ada was born in Hanoi in 1923 . [SEP]
    sides     -1    0 ...               -1    1 ...                           -1

Words: the logits of a word are those of its first piece. ``first`` has the positions of these pieces:

    words    The   Hague    today
    pieces   the   hag ##ue today
    first    1     2        4            [CLS] is at 0

A sentence that is longer than the model's input is split into overlapping windows of whole words. A word is
predicted in the window in which it is further from the edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from glassformer.data.questions import Answers, Question
from glassformer.data.text import TokenTable, check_room, frame_ids, unknown_id
from glassformer.data.vocabulary import clean_offsets, trim_offsets
from glassformer.errors import DataError

MAX_LENGTH, STRIDE, MAX_QUESTION = 384, 128, 64  # tokens, the defaults of transformers' QA scripts
Pieces = tuple[list[int], list[tuple[int, int]]]  # ids and offsets of the tokens of a text
Window = tuple[list[int], list[int], list[int], list[tuple[int, int]]]  # ids, segments, sides, offsets
NO_ANSWER = 0  # target position of windows without the answer; [CLS] is there


@dataclass(frozen=True)
class QuestionWindows:
    """The W windows of many questions, with N tokens in total."""

    table: TokenTable  # one row per window
    question_of_window: np.ndarray  # int64 [W], ascending
    sides: np.ndarray  # int8 [N]; 0: token of the question, 1: of the context, -1: special token
    offsets: np.ndarray  # int32 [N, 2]; start and end of each token in its text; 0, 0 for special tokens

    @property
    def num_questions(self) -> int:
        """Number of questions."""
        return int(self.question_of_window[-1]) + 1 if len(self.question_of_window) else 0

    def targets(self, answers: Sequence[Answers]) -> np.ndarray:
        """Positions of the first and last token of each window's answer, ``[W, 2]``, counted in the window.

        If a question has several answers, the first is used. Both positions are ``NO_ANSWER`` if the window
        does not contain the whole answer.
        """
        positions = np.full((len(self.table), 2), NO_ANSWER, np.int64)
        for window, question in enumerate(self.question_of_window.tolist()):
            answer = answers[question]
            if not answer.texts:
                continue
            begin, end = answer.starts[0], answer.starts[0] + len(answer.texts[0])
            start, stop = self.table.starts[window : window + 2]
            context_tokens = np.flatnonzero(self.sides[start:stop] == 1)
            token_starts, token_ends = self.offsets[start:stop][context_tokens].T
            if len(context_tokens) == 0:
                continue
            # Characters that the tokenizer drops at the ends of a context belong to the first or last window.
            is_first, is_last = (
                question not in self.question_of_window[k : k + 1] for k in (window - 1, window + 1)
            )
            if (not is_first and token_starts[0] > begin) or (not is_last and token_ends.max() < end):
                continue
            inside = context_tokens[(token_ends > begin) & (token_starts < end) & (token_ends > token_starts)]
            if len(inside):
                positions[window] = inside[0], inside[-1]
        return positions


def concatenate_questions(parts: Sequence[QuestionWindows]) -> QuestionWindows:
    num_before = np.cumsum([0, *(part.num_questions for part in parts[:-1])])
    return QuestionWindows(
        TokenTable.concatenate([part.table for part in parts]),
        np.concatenate([part.question_of_window + n for part, n in zip(parts, num_before, strict=True)]),
        np.concatenate([part.sides for part in parts]),
        np.concatenate([part.offsets for part in parts]),
    )


@dataclass(frozen=True)
class PairFrame:
    """Special tokens before, between and after two texts, and the segments of all five parts."""

    before: list[int]
    between: list[int]
    after: list[int]
    segments: tuple[list[int], int, list[int], int, list[int]]

    @staticmethod
    def of(tokenizer: Tokenizer) -> PairFrame:
        probe = tokenizer.encode("a", "a")
        sides = [-1 if side is None else side for side in probe.sequence_ids]
        if 0 not in sides or 1 not in sides:
            what = "the tokenizer returns no tokens for a letter"
            raise DataError(what, where="tokenizer", fix="Use another tokenizer")
        first, second = sides.index(0), sides.index(1)
        ends = len(sides) - sides[::-1].index(0), len(sides) - sides[::-1].index(1)
        slices = [slice(0, first), slice(ends[0], second), slice(ends[1], len(sides))]
        segments = probe.type_ids
        before, between, after = (probe.ids[tokens] for tokens in slices)
        a, b, c = (segments[tokens] for tokens in slices)
        return PairFrame(before, between, after, (a, segments[first], b, segments[second], c))

    @property
    def num_special(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)

    def build_window(self, question: Pieces, context: Pieces) -> Window:
        """The ids, segments, sides and offsets of a window of ``question`` and a part of its context."""
        a, first, b, second, c = self.segments
        n, m = len(question[0]), len(context[0])
        sizes = len(self.before), n, len(self.between), m, len(self.after)
        return (
            [*self.before, *question[0], *self.between, *context[0], *self.after],
            [*a, *[first] * n, *b, *[second] * m, *c],
            np.repeat([-1, 0, -1, 1, -1], sizes).tolist(),
            [*[(0, 0)] * sizes[0], *question[1], *[(0, 0)] * sizes[2], *context[1], *[(0, 0)] * sizes[4]],
        )


def encode_questions(
    tokenizer: Tokenizer,
    questions: Sequence[Question],
    *,
    max_length: int,
    stride: int = STRIDE,
    max_question: int = MAX_QUESTION,
    segments: bool = True,
    chunk: int = 1024,
) -> QuestionWindows:
    """Encode questions with their contexts as windows.

    Args:
        max_length: maximum number of tokens of a window, including special tokens.
        stride: number of tokens that a window shares with the next, at most half of the room for the context.
        max_question: maximum number of tokens of a question, at most half of the window; a longer question is
            truncated, and its windows are marked in ``truncated``.
        segments: whether the model uses segments to distinguish question and context.

    Raises:
        DataError: ``max_length`` leaves no room for a token of the context.
    """
    frame = PairFrame.of(tokenizer)
    check_room(max_length, frame.num_special, num_texts=2)
    max_question = min(max_question, (max_length - frame.num_special) // 2)
    windows: list[Window] = []
    question_of_window: list[int] = []
    truncated: list[bool] = []
    for begin in range(0, len(questions), chunk):
        batch = questions[begin : begin + chunk]
        encoded_questions = tokenizer.encode_batch([q.question for q in batch], add_special_tokens=False)
        contexts = list(dict.fromkeys(q.context for q in batch))  # SQuAD has several questions per context
        encoded = zip(contexts, tokenizer.encode_batch(contexts, add_special_tokens=False), strict=True)
        pieces = {text: _text_pieces(tokenizer, text, encoding) for text, encoding in encoded}
        for i, (question, encoding) in enumerate(zip(batch, encoded_questions, strict=True), begin):
            question_ids, question_offsets = _text_pieces(tokenizer, question.question, encoding)
            is_truncated = len(question_ids) > max_question
            question_ids, question_offsets = question_ids[:max_question], question_offsets[:max_question]
            room = max_length - frame.num_special - len(question_ids)
            context, context_offsets = pieces[question.context]
            for start in _window_starts(len(context), room, stride):
                stop = start + room
                piece = context[start:stop], context_offsets[start:stop]
                windows.append(frame.build_window((question_ids, question_offsets), piece))
                question_of_window.append(i)
                truncated.append(is_truncated)
    rows, row_segments, sides, offsets = zip(*windows, strict=True) if windows else ((), (), (), ())
    return QuestionWindows(
        TokenTable.of(rows, truncated, row_segments if segments else None),
        np.array(question_of_window, np.int64),
        np.fromiter(chain.from_iterable(sides), np.int8),
        np.array([offset for row in offsets for offset in row], np.int32).reshape(-1, 2),
    )


def _text_pieces(tokenizer: Tokenizer, text: str, encoding: Any) -> Pieces:
    """The token ids and offsets of a text; a text without tokens becomes one unknown token."""
    if encoding.ids:
        return encoding.ids, clean_offsets(text, encoding.offsets)
    unknown = unknown_id(tokenizer)
    if unknown is None:
        what = f"the tokenizer returns no tokens for {text[:40]!r}, and has no unknown token"
        raise DataError(what, where="questions", fix="Remove such questions")
    return [unknown], [(0, len(text))]


def _window_starts(length: int, room: int, stride: int) -> list[int]:
    step = room - min(stride, room // 2)
    return [0, *range(step, length - room + step, step)] if length > room else [0]


OVERLAP_DIVISOR = 4  # a window shares at most a quarter of its tokens with the next window


@dataclass(frozen=True)
class WordWindows:
    """The windows of n sentences with W words, and with N tokens in total."""

    table: TokenTable  # one row per window, with special tokens
    first: np.ndarray  # int64 [W]; position in ``table.ids`` of the first piece of each word
    counts: np.ndarray  # int64 [n]; number of words of each sentence
    words: np.ndarray  # int32 [N]; number of the word of each token in its sentence; -1: special token
    offsets: np.ndarray  # int32 [N, 2]; offsets in the words joined by blanks; 0, 0 for special tokens

    def split(self, rows: np.ndarray) -> list[np.ndarray]:
        """Split an array ``[W, ...]`` with one row per word into one array per sentence."""
        return np.split(rows, np.cumsum(self.counts)[:-1])

    def on_first(self, values: np.ndarray, elsewhere: int) -> np.ndarray:
        """Expand values per word ``[W]`` to tokens ``[N]``: the value is at the word's first piece."""
        out = np.full(len(self.table.ids), elsewhere, np.int64)
        out[self.first] = values
        return out


def concatenate_sentences(parts: Sequence[WordWindows]) -> WordWindows:
    ends = np.cumsum([0, *(len(part.table.ids) for part in parts[:-1])])
    return WordWindows(
        TokenTable.concatenate([part.table for part in parts]),
        np.concatenate([part.first + end for part, end in zip(parts, ends, strict=True)]),
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.words for part in parts]),
        np.concatenate([part.offsets for part in parts]),
    )


def encode_words(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], *, max_length: int, chunk: int = 2048
) -> WordWindows:
    """Encode sentences of words, as texts with the words joined by blanks.

    A word without tokens becomes one unknown token.

    Args:
        max_length: maximum number of tokens of a window, including special tokens.

    Raises:
        DataError: ``max_length`` leaves no room for a word, or the tokenizer lacks a needed unknown token.
    """
    before, after = frame_ids(tokenizer)
    check_room(max_length, len(before) + len(after))
    room = max_length - len(before) - len(after)
    windows: list[list[int]] = []
    first_pieces: list[int] = []
    word_numbers: list[int] = []
    offsets: list[tuple[int, int]] = []
    num_tokens = 0  # tokens so far
    for first_sentence in range(0, len(sentences), chunk):
        batch = sentences[first_sentence : first_sentence + chunk]
        encodings = tokenizer.encode_batch(list(map(" ".join, batch)), add_special_tokens=False)
        for words, encoding in zip(batch, encodings, strict=True):
            pieces = _word_pieces(tokenizer, words, encoding)
            for start, stop, predicted in _word_windows(list(map(len, pieces)), room):
                window = [(word, *piece) for word in range(start, stop) for piece in pieces[word]][:room]
                ends = accumulate(map(len, pieces[start:stop]), initial=num_tokens + len(before))
                token_of_word = dict(zip(range(start, stop), ends, strict=False))
                first_pieces += [token_of_word[word] for word in predicted]
                windows.append([*before, *(piece for _, piece, _ in window), *after])
                word_numbers += [*[-1] * len(before), *(word for word, _, _ in window), *[-1] * len(after)]
                token_offsets = (offset for _, _, offset in window)
                offsets += [*[(0, 0)] * len(before), *token_offsets, *[(0, 0)] * len(after)]
                num_tokens += len(windows[-1])
    return WordWindows(
        TokenTable.of(windows),
        np.array(first_pieces, np.int64),
        np.array(list(map(len, sentences)), np.int64),
        np.array(word_numbers, np.int32),
        np.array(offsets, np.int32).reshape(-1, 2),
    )


Piece = tuple[int, tuple[int, int]]  # id, offsets


def _word_pieces(tokenizer: Tokenizer, words: Sequence[str], encoding: Any) -> list[list[Piece]]:
    """The pieces of each word; pieces of blanks belong to the previous word."""
    offsets = trim_offsets(" ".join(words), encoding.offsets)
    word_starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
    pieces: list[list[Piece]] = [[] for _ in words]
    word = -1
    for piece, (start, stop) in zip(encoding.ids, offsets, strict=True):
        if stop > start:
            word = max(word, int(np.searchsorted(word_starts, start, side="right")) - 1)
            pieces[word].append((piece, (start, stop)))
        elif word >= 0:
            pieces[word].append((piece, (stop, stop)))
    for i, word_pieces in enumerate(pieces):
        if not word_pieces:
            unknown = unknown_id(tokenizer)
            if unknown is None:
                what = f"the tokenizer returns no tokens for the word {words[i]!r}, and has no unknown token"
                raise DataError(what, where="words", fix="Remove such words")
            pieces[i] = [(unknown, (int(word_starts[i]), int(word_starts[i]) + len(words[i])))]
    return pieces


def _word_windows(lengths: list[int], room: int) -> list[tuple[int, int, range]]:
    """For each window of a sentence: first word, last word + 1, and the words that are predicted in it."""
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
        next_start, shared = stop, 0  # first word of the next window
        while next_start - 1 > start and shared + lengths[next_start - 1] <= room // OVERLAP_DIVISOR:
            next_start -= 1
            shared += lengths[next_start]
        start = next_start
    windows, begin = [], 0
    for i, (start, stop) in enumerate(spans):
        end = (spans[i + 1][0] + stop) // 2 if i + 1 < len(spans) else stop
        windows.append((start, stop, range(begin, end)))
        begin = end
    return windows
