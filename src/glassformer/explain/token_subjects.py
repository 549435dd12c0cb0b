"""``Subject`` of taggers and of question answering."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.data.questions import Question
from glassformer.data.text_pairs import SEPARATOR
from glassformer.data.vocabulary import wordpiece_word_ids
from glassformer.data.windows import QuestionWindows
from glassformer.errors import InputError
from glassformer.explain.subject import (
    SingleOutputModel,
    Subject,
    compute_logits,
    differentiable_model,
    embed_tokens,
    masking_operators,
)
from glassformer.finite import finite
from glassformer.runtime import runs_isolated_with_gradients

CLASSES = ["answer", "no answer"]


# --- one word -------------------------------------------------------------------------------------


def word_index(words: list[str], word: str | int | None, tags: list[str]) -> int:
    """The index of the word to explain; None: the first tagged word."""
    if word is None:
        return next((i for i, tag in enumerate(tags) if tag != "O"), 0)
    if isinstance(word, str) and word in words:
        return words.index(word)
    if isinstance(word, str) and not re.fullmatch(r"-?[0-9]{1,9}", word):
        raise InputError(f"no word {word!r}", where="explain", fix=f"The words are: {' '.join(words[:20])}")
    index = int(word)
    if not -len(words) <= index < len(words):
        raise InputError(f"no word {index}", where="explain", fix=f"Give 0 to {len(words) - 1}")
    return index % len(words)


@runs_isolated_with_gradients
def word_subject(tagger: Any, words: list[str], word: str | int | None = None) -> Subject:
    """The ``Subject`` of one word of a sentence, in the window of its prediction; the target is its tag."""
    model = differentiable_model(tagger)
    device = next(model.parameters()).device
    encoded = tagger.encode([words])
    tags = tagger.decide([finite(tagger.word_logits(model, encoded, device), "logits")])[0]
    index = word_index(words, word, tags)
    first_token = int(encoded.first[index])
    window = int(np.searchsorted(encoded.table.starts, first_token, side="right")) - 1
    start, stop = (int(i) for i in encoded.table.starts[window : window + 2])
    ids, token_words = encoded.table.ids[start:stop], encoded.words[start:stop]
    position = first_token - start
    output_model = SingleOutputModel(
        model, [position], stop - start, lambda logits, first: logits[first + position]
    ).eval()
    embeddings, baselines = embed_tokens(tagger, model, ids, token_words, None)
    probabilities = tagger.to_probabilities(
        compute_logits(output_model, embeddings)[None].float().cpu().numpy()
    )[0]
    classes, label = tagger.classes_.tolist(), tags[index]
    # The predicted tag is not always the most probable one, because invalid tag sequences are repaired.
    target = classes.index(label) if label in classes else int(probabilities.argmax())
    input_fields = {
        "text": " ".join(words),
        "tokens": [tagger.tokenizer_.id_to_token(int(i)) or "?" for i in ids],
        "offsets": [(int(a), int(b)) for a, b in encoded.offsets[start:stop]],
        "word_ids": _from_zero(token_words),
        "label": label,
        "notes": [f"word {index + 1} of {len(words)}, {words[index]!r}: {label}"],
        "name": f"{words[index]} ({label})",
    }
    options = {"temperature": tagger.temperature_, "operators": masking_operators(tagger, delete=False)}
    return Subject(
        output_model,
        embeddings,
        baselines,
        token_words,
        classes,
        target,
        probabilities,
        input_fields,
        **options,
    )


def _from_zero(words: np.ndarray) -> np.ndarray:
    """Word indices shifted to start at 0, for windows in the middle of a sentence."""
    first = words[words >= 0].min(initial=len(words) + int(words.max(initial=0)))
    return np.where(words >= 0, words - first, -1)


# --- one answer -----------------------------------------------------------------------------------


@runs_isolated_with_gradients
def answer_subject(answerer: Any, question: Question) -> Subject:
    """The ``Subject`` of the best answer to a question, in its window.

    The logit of the class "answer" is the start logit plus the end logit of the answer. The logit of "no
    answer" is the sum of both logits of [CLS].
    """
    model = differentiable_model(answerer)
    rows = answerer.drop_unused_segments(answerer.encode([question]), model)
    device = next(model.parameters()).device
    logits = finite(answerer.token_logits(model, rows, device), "logits")
    candidates = answerer.span_candidates(logits, rows)[0]
    if not candidates.spans:
        raise InputError("no token of the context can be part of an answer", where="explain")
    window, first, last = _find_span(candidates.spans[0], logits, rows)
    start, stop = (int(i) for i in rows.table.starts[window : window + 2])
    ids, sides, segments = rows.table.ids[start:stop], rows.sides[start:stop], rows.table.segments

    def select(logits: Tensor, begin: Tensor) -> Tensor:
        span = logits[begin + first, 0] + logits[begin + last, 1]
        return torch.stack([span, logits[begin].sum(1)], 1)

    output_model = SingleOutputModel(model, [first, last], stop - start, select).eval()
    names = [answerer.tokenizer_.id_to_token(int(i)) or "?" for i in ids]
    words, offsets = _word_indices(
        names, rows.offsets[start:stop], sides, len(question.question) + len(SEPARATOR)
    )
    window_segments = None if segments is None else segments[start:stop]
    embeddings, baselines = embed_tokens(answerer, model, ids, sides, window_segments)
    scores = compute_logits(output_model, embeddings).double().cpu().numpy()
    softmax = np.exp(scores - scores.max())
    softmax /= softmax.sum()
    (answer,) = candidates.best_answers(question, answerer.threshold_, 1)
    label = answer.text or CLASSES[1]
    windows = int((rows.question_of_window == 0).sum())
    notes = [f"the context is read in {windows} windows, of which one is explained"] if windows > 1 else []
    input_fields = {
        "text": f"{question.question}{SEPARATOR}{question.context}",
        "tokens": names,
        "offsets": offsets,
        "word_ids": words,
        "sides": sides.astype(int),
        "label": label,
        "notes": notes,
        "name": f"{question.question} ({label})",
    }
    target = int(candidates.predicts_no_answer(answerer.threshold_))
    operators = masking_operators(answerer, delete=False)
    return Subject(
        output_model,
        embeddings,
        baselines,
        words,
        CLASSES,
        target,
        softmax,
        input_fields,
        operators=operators,
    )


def _find_span(
    span: tuple[float, int, int], logits: np.ndarray, rows: QuestionWindows
) -> tuple[int, int, int]:
    """The window of a span, and the indices of its first and last token in the window."""
    score, begin, end = span
    for window, (start, stop) in enumerate(zip(rows.table.starts, rows.table.starts[1:], strict=False)):
        in_context, offsets = rows.sides[start:stop] == 1, rows.offsets[start:stop]
        for first in np.flatnonzero(in_context & (offsets[:, 0] == begin)).tolist():
            for last in np.flatnonzero(in_context & (offsets[:, 1] == end)).tolist():
                if last >= first and np.isclose(logits[start + first, 0] + logits[start + last, 1], score):
                    return window, first, last
    raise AssertionError("every span comes from a window")


def _word_indices(
    names: list[str], side_offsets: np.ndarray, sides: np.ndarray, context_start: int
) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """For each token, the index of its word in question and context, and its offsets in the joined text."""
    words, count = np.full(len(names), -1), 0
    offsets = [(0, 0)] * len(names)
    for side in (0, 1):
        at = np.flatnonzero(sides == side)
        numbers = wordpiece_word_ids([names[i] for i in at], side_offsets[at].tolist())
        words[at] = np.where(numbers >= 0, numbers + count, -1)
        count += int(numbers.max(initial=-1)) + 1
        for i, (start, stop) in zip(at.tolist(), side_offsets[at].tolist(), strict=True):
            if stop > start:
                offsets[i] = (start + side * context_start, stop + side * context_start)
    return words, offsets
