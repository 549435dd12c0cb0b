"""Counterfactual explanations: a minimal set of word changes that changes the prediction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.data.text_pairs import TextPair
from glassformer.data.vocabulary import MASK
from glassformer.errors import BadValueError, InputError, UnknownLabelError
from glassformer.explain.methods import subject_of
from glassformer.explain.result import word_spans

Edits = dict[int, str]  # word number -> replacement; "": deleted


@dataclass(frozen=True)
class Counterfactual:
    """An edited text with another prediction.

    Args:
        text: the edited text.
        changes: (word, replacement) in text order; an empty replacement means that the word was deleted.
        label, probability: prediction for ``text``.
        before: predicted label of the original text.
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

    A beam search over the words whose deletion lowers the probability of the predicted label most. Each of
    them may be deleted or replaced by proposals of the language model. Once the prediction changes,
    unnecessary changes are reverted one by one (after Ross et al., 2021, who edit spans with T5).

    Args:
        clf: a fitted classifier of single texts with one label each.
        language_model: a fitted ``MaskedLM``, ideally for similar texts; None: words are only deleted.
        target: the label to reach; None: any other label.
        most: maximum number of changes.
        words: number of words to try.
        proposals: number of replacements to try for each word.
        width: beam width.

    Returns:
        The counterfactual; None if none with at most ``most`` changes was found.

    Raises:
        InputError: a pair of texts, a text without words, a label that the classifier does not know.
    """
    if isinstance(text, TextPair) or clf.kind_.is_multilabel or not clf.kind_.labels_given:
        what = "a pair of texts" if isinstance(text, TextPair) else "several labels or numbers"
        fix = "Give one text and a classifier of one label a text"
        raise InputError(f"{what} cannot be turned", where="counterfactual", fix=fix)
    if min(most, words, width) < 1 or proposals < 0:
        what = f"most {most}, words {words}, proposals {proposals}, width {width}"
        raise BadValueError(what, where="counterfactual", fix="Use 1 or more")
    labels = clf.classes_.tolist()
    if target is not None and target not in labels:
        raise UnknownLabelError(f"no label {target!r}", where="target", fix=f"Use one of {labels}")
    subject = subject_of(clf, clf.examples_of([text])[0])
    shown, spans = subject.shown["text"], word_spans(subject.words, subject.shown["offsets"])
    if not spans:
        raise InputError("the text has no words", where="counterfactual", fix="Give a longer text")
    before = clf.predict([text])[0]
    if before == target:
        raise BadValueError(f"the text is already predicted as {target!r}", where="target", fix="Use another")
    own = labels.index(before)

    def rank(edits: Sequence[Edits]) -> tuple[np.ndarray, list[bool]]:
        """Score of each edited text ``[M]`` (higher is closer to the target), and whether it
        reaches the target.
        """
        p = clf.predict_proba([_edited(shown, spans, one) for one in edits])
        predicted = clf.decide(p)
        if target is None:
            return -p[:, own], (predicted != before).tolist()
        return p[:, labels.index(target)] - p[:, own], (predicted == target).tolist()

    chosen = [0]
    if len(spans) > 1:
        without, _ = rank([{i: ""} for i in range(len(spans))])
        chosen = np.argsort(-without, kind="stable")[:words].tolist()
    options = {i: ["", *_proposals(language_model, shown, spans, i, proposals)] for i in chosen}
    states: list[Edits] = [{}]
    for _ in range(most):
        edits = [one | {i: new} for one in states for i in chosen if i not in one for new in options[i]]
        edits = [
            one for one in edits if len(one) < len(spans) or any(one.values())
        ]  # at least one word is left
        if not edits:
            break
        score, turned = rank(edits)
        order = np.argsort(-score, kind="stable").tolist()
        done = next((edits[i] for i in order if turned[i]), None)
        if done is not None:
            return _result(clf, shown, spans, _needed(done, lambda one: rank([one])[1][0]), before)
        states = [edits[i] for i in order[:width]]
    return None


def _proposals(
    language_model: Any, text: str, spans: Sequence[tuple[int, int]], i: int, count: int
) -> list[str]:
    """Replacements for word i proposed by the language model, the most probable first."""
    if language_model is None or not count:
        return []
    start, stop = spans[i]
    encoded = language_model.tokenizer_.encode(text, add_special_tokens=False)
    half = max(language_model.max_length // 2 - 4, 1)  # tokens of context on either side
    first = [place[0] for place in encoded.offsets if place[1] <= start][-half:]
    last = [place[1] for place in encoded.offsets if place[0] >= stop][:half]
    near = text[first[0] if first else start : start] + MASK + text[stop : last[-1] if last else stop]
    words = [word.strip() for word, _ in language_model.fill(near, top=count + 1)]
    return [word for word in words if word.lower() != text[start:stop].lower()][:count]


def _needed(edits: Edits, turned: Callable[[Edits], bool]) -> Edits:
    """The edits without unnecessary ones."""
    for i in list(edits):
        fewer = {place: new for place, new in edits.items() if place != i}
        if fewer and turned(fewer):
            edits = fewer
    return edits


def _edited(text: str, spans: Sequence[tuple[int, int]], edits: Edits) -> str:
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
    new = _edited(text, spans, edits)
    p = clf.predict_proba([new])
    label = clf.decide(p)[0]
    changes = [(text[slice(*spans[i])], edits[i]) for i in sorted(edits)]
    return Counterfactual(new, changes, label, float(p[0, clf.classes_.tolist().index(label)]), before)
