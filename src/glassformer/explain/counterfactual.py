"""Counterfactual explanations: the fewest word changes that change the prediction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.data.text_pairs import TextPair
from glassformer.data.vocabulary import MASK
from glassformer.errors import BadValueError, InputError, UnknownLabelError
from glassformer.explain.methods import make_subject
from glassformer.explain.result import word_spans

Edits = dict[int, str]  # index of a word -> replacement; "": the word is deleted


@dataclass(frozen=True)
class Counterfactual:
    """An edited text with another prediction.

    Args:
        text: the edited text.
        changes: (word, replacement) in text order; an empty replacement means that the word was deleted.
        label, probability: prediction for ``text``.
        before: the predicted label of the original text.
    """

    text: str
    changes: list[tuple[str, str]]
    label: Any
    probability: float
    before: Any


def counterfactual(
    clf: Any,
    text: str,
    language_model: Any = None,
    *,
    target: Any = None,
    most: int = 6,
    words: int = 24,
    proposals: int = 8,
    width: int = 4,
) -> Counterfactual | None:
    """Search for the fewest word changes that change the prediction of a text.

    A beam search changes the words whose deletion lowers the probability of the predicted label most. It
    deletes a word, or replaces it by a proposal of the language model. At the end, unnecessary changes are
    reverted one by one (after Ross et al., 2021, who edit spans with T5).

    Args:
        clf: a fitted classifier of single texts that predicts one label per text.
        language_model: a fitted ``MaskedLM``, ideally for similar texts; None: words are only deleted.
        target: the label to reach; None: any other label.
        most: maximum number of changes.
        words: number of words to try.
        proposals: number of replacements to try for each word.
        width: beam width.

    Returns:
        The counterfactual; None if the search found none with at most ``most`` changes.

    Raises:
        InputError: the input is a pair of texts or has no words, or the label is unknown.
    """
    if isinstance(text, TextPair) or clf.kind_.is_multilabel or not clf.kind_.predicts_labels:
        is_pair = isinstance(text, TextPair)
        what = "the input is a pair of texts" if is_pair else "the model predicts several labels or a number"
        fix = "Give one text and a classifier with one label per text"
        raise InputError(what, where="counterfactual", fix=fix)
    if min(most, words, width) < 1 or proposals < 0:
        what = f"most {most}, words {words}, proposals {proposals} or width {width} is below 1"
        raise BadValueError(what, where="counterfactual", fix="Use 1 or more")
    labels = clf.classes_.tolist()
    if target is not None and target not in labels:
        raise UnknownLabelError(f"no label {target!r}", where="target", fix=f"Use one of {labels}")
    subject = make_subject(clf, clf.check_examples([text])[0])
    original, spans = subject.input_fields["text"], word_spans(subject.words, subject.input_fields["offsets"])
    if not spans:
        raise InputError("the text has no words", where="counterfactual", fix="Give a longer text")
    before = clf.predict([text])[0]
    if before == target:
        raise BadValueError(f"the text is already predicted as {target!r}", where="target", fix="Use another")
    before_index = labels.index(before)

    def evaluate(candidates: Sequence[Edits]) -> tuple[np.ndarray, list[bool]]:
        """The score of each edited text ``[M]``, and whether the edited text reaches the target.

        A higher score is closer to the target.
        """
        p = clf.predict_proba([_apply_edits(original, spans, edits) for edits in candidates])
        predicted = clf.decide(p)
        if target is None:
            return -p[:, before_index], (predicted != before).tolist()
        return p[:, labels.index(target)] - p[:, before_index], (predicted == target).tolist()

    editable = [0]
    if len(spans) > 1:
        scores, _ = evaluate([{i: ""} for i in range(len(spans))])
        editable = np.argsort(-scores, kind="stable")[:words].tolist()
    replacements = {i: ["", *_proposals(language_model, original, spans, i, proposals)] for i in editable}
    beam: list[Edits] = [{}]
    for _ in range(most):
        candidates = [
            edits | {i: new} for edits in beam for i in editable if i not in edits for new in replacements[i]
        ]
        # At least one word must remain.
        candidates = [edits for edits in candidates if len(edits) < len(spans) or any(edits.values())]
        if not candidates:
            break
        scores, reached = evaluate(candidates)
        order = np.argsort(-scores, kind="stable").tolist()
        best = next((candidates[i] for i in order if reached[i]), None)
        if best is not None:
            edits = _necessary_edits(best, lambda fewer: evaluate([fewer])[1][0])
            return _result(clf, original, spans, edits, before)
        beam = [candidates[i] for i in order[:width]]
    return None


def _proposals(
    language_model: Any, text: str, spans: Sequence[tuple[int, int]], i: int, count: int
) -> list[str]:
    """Replacements for word i proposed by the language model, the most probable first."""
    if language_model is None or not count:
        return []
    start, stop = spans[i]
    encoded = language_model.tokenizer_.encode(text, add_special_tokens=False)
    num_context = max(language_model.max_length // 2 - 4, 1)  # tokens of context on either side
    starts = [a for a, b in encoded.offsets if b <= start][-num_context:]
    stops = [b for a, b in encoded.offsets if a >= stop][:num_context]
    masked = text[starts[0] if starts else start : start] + MASK + text[stop : stops[-1] if stops else stop]
    words = [word.strip() for word, _ in language_model.fill(masked, top=count + 1)]
    return [word for word in words if word.lower() != text[start:stop].lower()][:count]


def _necessary_edits(edits: Edits, reaches_target: Callable[[Edits], bool]) -> Edits:
    for i in list(edits):
        fewer = {word: new for word, new in edits.items() if word != i}
        if fewer and reaches_target(fewer):
            edits = fewer
    return edits


def _apply_edits(text: str, spans: Sequence[tuple[int, int]], edits: Edits) -> str:
    """The text with the edits applied; the space before a deleted word is deleted too."""
    for i in sorted(edits, reverse=True):
        start, stop = spans[i]
        new = edits[i]
        if not new and start and text[start - 1] == " ":
            start -= 1
        text = text[:start] + new + text[stop:]
    return text


def _result(
    clf: Any, text: str, spans: Sequence[tuple[int, int]], edits: Edits, before: Any
) -> Counterfactual:
    edited = _apply_edits(text, spans, edits)
    p = clf.predict_proba([edited])
    label = clf.decide(p)[0]
    changes = [(text[slice(*spans[i])], edits[i]) for i in sorted(edits)]
    return Counterfactual(edited, changes, label, float(p[0, clf.classes_.tolist().index(label)]), before)
