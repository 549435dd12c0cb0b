"""Answers without a model, for figures to stand beside: the sentence that shares most with the question, and
the nearest name or number in it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from glassformer.data.questions import Question

SENTENCE, SPAN = "the likeliest sentence (TF-IDF)", "a name or number in that sentence"
_SENTENCES = re.compile(r"[^.!?\n]+(?:[.!?](?=\S)[^.!?\n]+)*[.!?]*")
_WORDS = re.compile(r"\w+")
_NUMBER = re.compile(r"\d[\d.,:]*\d|\d")
_NAME = re.compile(r"[^\W\d_a-z][\w'-]*(?:\s+[^\W\d_a-z][\w'-]*)*")
_OF_NUMBERS = re.compile(r"\b(when|year|how (many|much|old|long|far)|what (date|time|day))\b", re.IGNORECASE)


def words_of(text: str) -> list[str]:
    """Words in lower case."""
    return [word.lower() for word in _WORDS.findall(text)]


def document_frequencies(contexts: Sequence[str]) -> Counter[str]:
    """In how many contexts each word stands; under the empty word, how many contexts there are."""
    seen: Counter[str] = Counter(word for text in set(contexts) for word in set(words_of(text)))
    seen[""] = len(set(contexts))
    return seen


def likeliest_sentence(question: Question, seen: Counter[str]) -> str:
    """The sentence of the context with the highest TF-IDF cosine to the question; of equal ones the first."""

    def weights(text: str) -> dict[str, float]:
        counts = Counter(words_of(text))
        return {word: n * math.log((1 + seen[""]) / (1 + seen[word])) for word, n in counts.items()}

    asked = weights(question.question)
    sentences = [found.group().strip() for found in _SENTENCES.finditer(question.context)]
    best, most = question.context.strip(), -1.0
    for sentence in sentences:
        own = weights(sentence)
        length = math.sqrt(sum(value**2 for value in own.values())) or 1.0
        score = sum(value * own.get(word, 0.0) for word, value in asked.items()) / length
        if sentence and score > most:
            best, most = sentence, score
    return best


def nearest_span(question: Question, sentence: str) -> str:
    """The first number of a sentence where the question asks for one, else its first name that the question
    does not have; the sentence where it has none."""
    asked = set(words_of(question.question))
    kind = _NUMBER if _OF_NUMBERS.search(question.question) else _NAME
    for found in kind.finditer(sentence):
        if not set(words_of(found.group())) & asked:
            return found.group()
    return sentence
