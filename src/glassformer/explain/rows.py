"""``Subject`` for token classification (one word of a sentence) and question answering (one answer).

Both models have outputs for every token; the output of one word, or of the ends of an answer, is explained.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.data.questions import Question
from glassformer.data.text_pairs import JOINT
from glassformer.data.vocabulary import word_numbers
from glassformer.data.windows import QuestionRows
from glassformer.errors import InputError
from glassformer.explain.subject import (
    RowView,
    Subject,
    logits_of,
    model_of,
    text_operators,
    token_rows,
)
from glassformer.finite import finite
from glassformer.runtime import computes_gradients

CLASSES = ["answer", "no answer"]


# --- one word -------------------------------------------------------------------------------------


def number_of(tagger: Any, words: list[str], word: str | int | None, tags: list[str]) -> int:
    """The index of the word to explain; None: the first tagged word.

    Raises:
        InputError: the word does not exist.
    """
    if word is None:
        return next((i for i, tag in enumerate(tags) if tag != "O"), 0)
    if isinstance(word, str) and word in words:
        return words.index(word)
    if isinstance(word, str) and not re.fullmatch(r"-?[0-9]{1,9}", word):
        raise InputError(f"no word {word!r}", where="explain", fix=f"The words are: {' '.join(words[:20])}")
    number = int(word)
    if not -len(words) <= number < len(words):
        raise InputError(f"no word {number}", where="explain", fix=f"Give 0 to {len(words) - 1}")
    return number % len(words)


@computes_gradients
def word_subject(tagger: Any, words: list[str], word: str | int | None = None) -> Subject:
    """One word of a sentence, in the window that its tag is predicted from; the target is that tag."""
    model = model_of(tagger)
    device = next(model.parameters()).device
    rows = tagger.encode([words])
    tags = tagger.decide([finite(tagger.word_logits(model, rows, device), "logits")])[0]
    number = number_of(tagger, words, word, tags)
    place = int(rows.first[number])
    window = int(np.searchsorted(rows.table.starts, place, side="right")) - 1
    start, stop = (int(i) for i in rows.table.starts[window : window + 2])
    ids, inside, row = rows.table.ids[start:stop], rows.words[start:stop], place - start
    view = RowView(model, [row], stop - start, lambda logits, first: logits[first + row]).eval()
    embedded, baselines = token_rows(tagger, model, ids, inside, None)
    probabilities = tagger.chances(logits_of(view, embedded)[None].float().cpu().numpy())[0]
    classes, label = tagger.classes_.tolist(), tags[number]
    # The predicted tag is not always the most probable one, since invalid tag sequences are repaired.
    target = classes.index(label) if label in classes else int(probabilities.argmax())
    shown = {
        "text": " ".join(words),
        "tokens": [tagger.tokenizer_.id_to_token(int(i)) or "?" for i in ids],
        "offsets": [(int(a), int(b)) for a, b in rows.offsets[start:stop]],
        "word_ids": _counted(inside),
        "label": label,
        "notes": [f"word {number + 1} of {len(words)}, {words[number]!r}: {label}"],
        "name": f"{words[number]} ({label})",
    }
    more = {"temperature": tagger.temperature_, "operators": text_operators(tagger, delete=False)}
    return Subject(view, embedded, baselines, inside, classes, target, probabilities, shown, **more)


def _counted(words: np.ndarray) -> np.ndarray:
    """Word numbers shifted to start at 0, for windows in the middle of a sentence."""
    first = words[words >= 0].min(initial=len(words) + int(words.max(initial=0)))
    return np.where(words >= 0, words - first, -1)


# --- one answer -----------------------------------------------------------------------------------


@computes_gradients
def answer_subject(answerer: Any, question: Question) -> Subject:
    """The best answer to one question, in its window: the sum of its start and end logits versus [CLS]'s."""
    model = model_of(answerer)
    rows = answerer.readable(answerer.encode([question]), model)
    device = next(model.parameters()).device
    logits = finite(answerer.token_logits(model, rows, device), "logits")
    found = answerer.best(logits, rows)[0]
    if not found.spans:
        raise InputError("no token of the context can be answered with", where="explain")
    window, first, last = _place_of(found.spans[0], logits, rows)
    start, stop = (int(i) for i in rows.table.starts[window : window + 2])
    ids, sides, segments = rows.table.ids[start:stop], rows.sides[start:stop], rows.table.segments

    def chosen(logits: Tensor, begin: Tensor) -> Tensor:
        span = logits[begin + first, 0] + logits[begin + last, 1]
        return torch.stack([span, logits[begin].sum(1)], 1)

    view = RowView(model, [first, last], stop - start, chosen).eval()
    names = [answerer.tokenizer_.id_to_token(int(i)) or "?" for i in ids]
    words, offsets = _words(names, rows.offsets[start:stop], sides, len(question.question) + len(JOINT))
    own_segments = None if segments is None else segments[start:stop]
    embedded, baselines = token_rows(answerer, model, ids, sides, own_segments)
    scores = logits_of(view, embedded).double().cpu().numpy()
    shares = np.exp(scores - scores.max())
    (answer,) = found.ranked(question, answerer.threshold_, 1)
    label = answer.text or CLASSES[1]
    several = int((rows.owners == 0).sum())
    notes = [f"the context is read in {several} windows, of which one is explained"] if several > 1 else []
    shown = {
        "text": f"{question.question}{JOINT}{question.context}",
        "tokens": names,
        "offsets": offsets,
        "word_ids": words,
        "sides": sides.astype(int),
        "label": label,
        "notes": notes,
        "name": f"{question.question} ({label})",
    }
    none = int(found.is_none(answerer.threshold_))
    operators = text_operators(answerer, delete=False)
    probabilities = shares / shares.sum()
    return Subject(view, embedded, baselines, words, CLASSES, none, probabilities, shown, operators=operators)


def _place_of(span: tuple[float, int, int], logits: np.ndarray, rows: QuestionRows) -> tuple[int, int, int]:
    """The window that a span was found in, and the span's first and last token in it."""
    score, begin, end = span
    for window, (start, stop) in enumerate(zip(rows.table.starts, rows.table.starts[1:], strict=False)):
        inside, places = rows.sides[start:stop] == 1, rows.offsets[start:stop]
        for first in np.flatnonzero(inside & (places[:, 0] == begin)).tolist():
            for last in np.flatnonzero(inside & (places[:, 1] == end)).tolist():
                if last >= first and np.isclose(logits[start + first, 0] + logits[start + last, 1], score):
                    return window, first, last
    raise AssertionError("every span comes from a window")


def _words(
    names: list[str], places: np.ndarray, sides: np.ndarray, behind: int
) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """The word of each token, counted over question and context, and its offsets in the joined text."""
    words, count = np.full(len(names), -1), 0
    offsets = [(0, 0)] * len(names)
    for side in (0, 1):
        at = np.flatnonzero(sides == side)
        own = word_numbers([names[i] for i in at], places[at].tolist())
        words[at] = np.where(own >= 0, own + count, -1)
        count += int(own.max(initial=-1)) + 1
        for i, (start, stop) in zip(at.tolist(), places[at].tolist(), strict=True):
            if stop > start:
                offsets[i] = (start + side * behind, stop + side * behind)
    return words, offsets
