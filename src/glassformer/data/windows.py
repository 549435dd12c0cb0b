"""Encode questions with contexts, and sentences of words, as token ids with character offsets.

    [CLS] when was Ada born ? [SEP] Ada was born in Hanoi in 1923 . [SEP]
    sides -1    0 ...            -1  1 ...                           -1

A long context is split into windows that share ``stride`` tokens, each after the whole question, as in
transformers. The special tokens around both texts are those of the tokenizer's post-processor.

    words    The   Hague    today        the logits of a word are those of its first piece
    pieces   the   hag ##ue today
    first    1     2        4            positions in the table's ids, [CLS] at 0

A sentence that is longer than the model's input is split into overlapping windows of whole words; the
prediction for a word comes from the window in which it is further from the edge.
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

LONGEST, STRIDE, MOST_OF_QUESTION = 384, 128, 64  # tokens, the defaults of transformers' QA scripts
Pieces = tuple[list[int], list[tuple[int, int]]]  # ids and offsets of a text's tokens
Window = tuple[list[int], list[int], list[int], list[tuple[int, int]]]  # ids, segments, sides, offsets
NOWHERE = 0  # target position, that of [CLS], of windows without the answer


@dataclass(frozen=True)
class QuestionRows:
    """The windows of many questions, concatenated."""

    table: TokenTable
    owners: np.ndarray  # int64 [W]; the question of each window, ascending
    sides: np.ndarray  # int8 [N]; 0: token of the question, 1: of the context, -1: special token
    offsets: np.ndarray  # int32 [N, 2]; start and end of each token in its text; 0, 0 for special tokens

    @property
    def count(self) -> int:
        """Number of questions."""
        return int(self.owners[-1]) + 1 if len(self.owners) else 0

    def targets(self, answers: Sequence[Answers]) -> np.ndarray:
        """First and last token of the first answer in each window, ``[W, 2]``, counted from the window's
        first token; ``NOWHERE`` for both if the window does not contain the whole answer.
        """
        out = np.full((len(self.table), 2), NOWHERE, np.int64)
        for window, owner in enumerate(self.owners.tolist()):
            own = answers[owner]
            if not own.texts:
                continue
            begin, end = own.starts[0], own.starts[0] + len(own.texts[0])
            start, stop = self.table.starts[window : window + 2]
            at = np.flatnonzero(self.sides[start:stop] == 1)
            firsts, lasts = self.offsets[start:stop][at].T
            if len(at) == 0:
                continue
            # Characters dropped by the tokenizer at the ends of a context belong to the first or last window.
            before = window > 0 and self.owners[window - 1] == owner and firsts[0] > begin
            after = window + 1 < len(self.owners) and self.owners[window + 1] == owner and lasts.max() < end
            if before or after:
                continue
            inside = at[(lasts > begin) & (firsts < end) & (lasts > firsts)]
            if len(inside):
                out[window] = inside[0], inside[-1]
        return out


def joined_questions(parts: Sequence[QuestionRows]) -> QuestionRows:
    """Concatenate several of them."""
    before = np.cumsum([0, *(part.count for part in parts[:-1])])
    return QuestionRows(
        TokenTable.joined([part.table for part in parts]),
        np.concatenate([part.owners + n for part, n in zip(parts, before, strict=True)]),
        np.concatenate([part.sides for part in parts]),
        np.concatenate([part.offsets for part in parts]),
    )


@dataclass(frozen=True)
class Frame:
    """Special tokens before, between and after two texts, and the segments of all five parts."""

    before: list[int]
    between: list[int]
    behind: list[int]
    segments: tuple[list[int], int, list[int], int, list[int]]

    @staticmethod
    def of(tokenizer: Tokenizer) -> Frame:
        probe = tokenizer.encode("a", "a")
        sides = [-1 if side is None else side for side in probe.sequence_ids]
        if 0 not in sides or 1 not in sides:
            what = "the tokenizer returns no tokens for a letter"
            raise DataError(what, where="tokenizer", fix="Use another one")
        first, second = sides.index(0), sides.index(1)
        ends = len(sides) - sides[::-1].index(0), len(sides) - sides[::-1].index(1)
        cuts = [slice(0, first), slice(ends[0], second), slice(ends[1], len(sides))]
        ids, kinds = probe.ids, probe.type_ids
        before, between, behind = (ids[cut] for cut in cuts)
        a, b, c = (kinds[cut] for cut in cuts)
        return Frame(before, between, behind, (a, kinds[first], b, kinds[second], c))

    @property
    def special(self) -> int:
        return len(self.before) + len(self.between) + len(self.behind)

    def around(self, question: Pieces, context: Pieces) -> Window:
        """One window: ids, segments, sides and offsets of all its tokens."""
        a, first, b, second, c = self.segments
        n, m = len(question[0]), len(context[0])
        sizes = len(self.before), n, len(self.between), m, len(self.behind)
        return (
            [*self.before, *question[0], *self.between, *context[0], *self.behind],
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
    max_question: int = MOST_OF_QUESTION,
    segments: bool = True,
    chunk: int = 1024,
) -> QuestionRows:
    """Encode questions with their contexts as windows.

    Args:
        max_length: maximum number of tokens of a window, including special tokens.
        stride: number of tokens that a window shares with the next, at most half of the room for the context.
        max_question: maximum number of tokens of a question, at most half of the window; a longer question is
            truncated, and its windows are marked in ``truncated``.
        segments: whether the model uses segments to distinguish question and context.

    Raises:
        DataError: no room for a token of the context.
    """
    frame = Frame.of(tokenizer)
    check_room(max_length, frame.special, texts=2)
    max_question = min(max_question, (max_length - frame.special) // 2)
    windows: list[Window] = []
    owners: list[int] = []
    truncated: list[bool] = []
    for at in range(0, len(questions), chunk):
        part = questions[at : at + chunk]
        encoded = tokenizer.encode_batch([q.question for q in part], add_special_tokens=False)
        texts = list(dict.fromkeys(q.context for q in part))  # SQuAD has several questions on each
        read = tokenizer.encode_batch(texts, add_special_tokens=False)
        pieces = {text: _pieces(tokenizer, text, found) for text, found in zip(texts, read, strict=True)}
        for i, (question, encoding) in enumerate(zip(part, encoded, strict=True), at):
            ids, places = _pieces(tokenizer, question.question, encoding)
            cut = len(ids) > max_question
            ids, places = ids[:max_question], places[:max_question]
            room = max_length - frame.special - len(ids)
            context, context_places = pieces[question.context]
            for start in _starts(len(context), room, stride):
                stop = start + room
                piece = context[start:stop], context_places[start:stop]
                windows.append(frame.around((ids, places), piece))
                owners.append(i)
                truncated.append(cut)
    rows, kinds, sides, offsets = zip(*windows, strict=True) if windows else ((), (), (), ())
    return QuestionRows(
        TokenTable.of(rows, truncated, kinds if segments else None),
        np.array(owners, np.int64),
        np.fromiter(chain.from_iterable(sides), np.int8),
        np.array([place for row in offsets for place in row], np.int32).reshape(-1, 2),
    )


def _pieces(tokenizer: Tokenizer, text: str, encoding: Any) -> Pieces:
    """Token ids and offsets; a text without tokens becomes one unknown token."""
    if encoding.ids:
        return encoding.ids, clean_offsets(text, encoding.offsets)
    unknown = unknown_id(tokenizer)
    if unknown is None:
        what = f"the tokenizer returns no tokens for {text[:40]!r}, and has no unknown token"
        raise DataError(what, where="questions", fix="Remove such questions")
    return [unknown], [(0, len(text))]


def _starts(length: int, room: int, stride: int) -> list[int]:
    """The start of each window in a context."""
    step = room - min(stride, room // 2)
    return [0, *range(step, length - room + step, step)] if length > room else [0]


OVERLAP = 4  # a window shares at most a quarter of its tokens with the next


@dataclass(frozen=True)
class WordRows:
    """The windows of many sentences, and the token whose logits are those of each word."""

    table: TokenTable  # windows, with special tokens
    first: np.ndarray  # int64 [W]; position in ``table.ids`` of the first piece of each word
    counts: np.ndarray  # int64 [n]; number of words of each sentence
    words: np.ndarray  # int32 [N]; number of the word of each token in its sentence; -1: special token
    offsets: np.ndarray  # int32 [N, 2]; offsets in the words joined by blanks; 0, 0 for special tokens

    def split(self, rows: np.ndarray) -> list[np.ndarray]:
        """Split an array with one row per word, ``[W, ...]``, by sentence."""
        return np.split(rows, np.cumsum(self.counts)[:-1])

    def on_first(self, values: np.ndarray, elsewhere: int) -> np.ndarray:
        """Expand values per word ``[W]`` to tokens ``[N]``: a word's value is at its first piece."""
        out = np.full(len(self.table.ids), elsewhere, np.int64)
        out[self.first] = values
        return out


def joined_rows(parts: Sequence[WordRows]) -> WordRows:
    """Concatenate several of them."""
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
    """Encode sentences of words, as texts with the words joined by blanks.

    A word without tokens becomes one unknown token.

    Args:
        max_length: maximum number of tokens of a window, including special tokens.

    Raises:
        DataError: no room besides the special tokens, or a word has no tokens and there is no unknown token.
    """
    before, behind = frame_ids(tokenizer)
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


Piece = tuple[int, tuple[int, int]]  # id, offsets


def _pieces_of(tokenizer: Tokenizer, words: Sequence[str], encoding: Any) -> list[list[Piece]]:
    """The pieces of each word; pieces of blanks belong to the previous word."""
    offsets = trim_offsets(" ".join(words), encoding.offsets)
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
                what = f"the tokenizer returns no tokens for the word {words[i]!r}, and has no unknown token"
                raise DataError(what, where="words", fix="Remove such words")
            own[i] = [(unknown, (int(begins[i]), int(begins[i]) + len(words[i])))]
    return own


def _windows(lengths: list[int], room: int) -> list[tuple[int, int, range]]:
    """For each window of a sentence: first word, last word + 1, and the words whose predictions it gives."""
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
        following, shared = stop, 0  # first word of the next window
        while following - 1 > start and shared + lengths[following - 1] <= room // OVERLAP:
            following -= 1
            shared += lengths[following]
        start = following
    out, begin = [], 0
    for i, (start, stop) in enumerate(spans):
        end = (spans[i + 1][0] + stop) // 2 if i + 1 < len(spans) else stop
        out.append((start, stop, range(begin, end)))
        begin = end
    return out
