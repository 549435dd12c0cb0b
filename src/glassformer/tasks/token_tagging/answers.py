"""What a tagger says of sentences: tags, spans with their places and how sure they are, figures, and why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from glassformer.data.in_memory import read_rows
from glassformer.data.label_kinds import said_as
from glassformer.data.tags import (
    OUTSIDE,
    Scheme,
    check_tags,
    check_words,
    is_sentence,
    kind_of_tag,
    places_of_words,
    read_like,
    repaired,
    spans_of,
)
from glassformer.data.windows import WordRows
from glassformer.evaluate.predict import predict_tokens, softmax
from glassformer.explain.asked import Explains
from glassformer.explain.rows import word_subject
from glassformer.finite import finite
from glassformer.runtime import computes
from glassformer.sklearn_base import check_is_fitted
from glassformer.targets.multiclass import warn_of
from glassformer.targets.token_tags import MEASURE, tag_figures

CHUNK = 4096  # sentences encoded at a time: memory stays flat however many there are


@dataclass(frozen=True)
class TaggedSpan:
    """Words ``first`` to ``last`` (exclusive) of a sentence, characters ``start`` to ``end`` of its text.

    ``probability`` is that of the least sure word: what the model gives to all tags of this kind together.
    """

    text: str
    kind: str
    start: int
    end: int
    first: int
    last: int
    probability: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def word_places(sentence: Any, whole: Collection[str] | None = None) -> list[tuple[int, int]]:
    """Where each word stands in a text, split as ``whole`` says, or in words with blanks between them."""
    if isinstance(sentence, str):
        return places_of_words(sentence, whole)
    ends = np.cumsum([len(word) + 1 for word in sentence]) - 1
    return [(int(end) - len(word), int(end)) for word, end in zip(sentence, ends, strict=True)]


def tagged_spans(
    sentence: Any,
    tags: Sequence[str],
    probabilities: np.ndarray,
    classes: Sequence[str],
    scheme: Scheme,
    whole: Collection[str] | None = None,
) -> list[TaggedSpan]:
    """The spans of one sentence.

    Args:
        sentence: a text, or a list of words.
        tags: ``[W]`` as they were decided.
        probabilities: ``[W, C]`` of the tags in the order of ``classes``.
        whole: how a text is split into words, see ``places_of_words``.
    """
    text = sentence if isinstance(sentence, str) else " ".join(sentence)
    places = word_places(sentence, whole)
    kinds = np.array([kind_of_tag(tag, scheme) for tag in classes])
    out = []
    for kind, first, last in spans_of(tags, scheme):
        start, end = places[first][0], places[last - 1][1]
        sure = float(probabilities[first:last, kinds == kind].sum(1).min())
        out.append(TaggedSpan(text[start:end], kind, start, end, first, last, min(sure, 1.0)))
    return out


class TagAnswers(Explains):
    """What can be asked of a fitted tagger."""

    EXPLAINED_BY, EXPLAINED_OF = "occlusion", ("word",)

    encode: Callable[..., WordRows]
    rows_of: Callable[..., Any]
    predictor: Callable[[], Any]
    batch_tokens: int
    classes_: np.ndarray
    scheme: str | tuple[str, ...]
    scheme_: Scheme
    length_: int
    temperature_: float
    whole_words_: list[str] | None

    def words_of(self, X: Any, origin: str = "sentences") -> list[list[str]]:
        """Sentences as lists of words; a text is split as the words of training were: at white space, and
        punctuation at a word's borders is a word of its own unless training had it otherwise.

        Raises:
            DataError: nothing, or a sentence that cannot be used.
        """
        return check_words(self.rows_of(X, origin), origin, whole=self._whole())

    def _whole(self) -> frozenset[str] | None:
        return None if self.whole_words_ is None else frozenset(self.whole_words_)

    @property
    def budget(self) -> int:
        """Tokens computed at once in prediction."""
        return max(self.batch_tokens or 8192, self.length_)

    def word_logits(
        self, model: Any, rows: WordRows, device: torch.device, progress: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """What the head gives for each word, ``[W, C]`` fp32."""
        told = None if progress is None else lambda index: progress(len(index))
        outputs, budget = len(self.classes_), self.budget
        found = predict_tokens(model, rows.table, outputs, batch_tokens=budget, device=device, progress=told)
        return found[rows.first]

    @computes
    def logits(self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None) -> list[np.ndarray]:
        """What the head gives for the words of each sentence, ``[W_i, C]`` fp32 each."""
        check_is_fitted(self, "model_")
        words, model = self.words_of(X), self.predictor()
        device = next(model.parameters()).device
        out: list[np.ndarray] = []
        for at in range(0, len(words), CHUNK):
            rows = self.encode(words[at : at + CHUNK])
            out += rows.split(finite(self.word_logits(model, rows, device, progress), "logits"))
        return out

    def predict_proba(
        self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None
    ) -> list[np.ndarray]:
        """Probabilities of the tags of each sentence's words, ``[W_i, C]`` fp64, as ``classes_``."""
        return [self.chances(rows) for rows in self.logits(X, progress=progress)]

    def chances(self, logits: np.ndarray) -> np.ndarray:
        """Logits ``[W, C]`` as probabilities, by the temperature as it is now."""
        return softmax(logits, self.temperature_)

    def predict(self, X: Sequence[Any]) -> list[list[str]]:
        """The most probable tag of each word; well-formed, whatever the model says of neighbors."""
        return self.decide(self.predict_proba(X))

    def decide(self, rows: Sequence[np.ndarray]) -> list[list[str]]:
        """Tags from the logits or probabilities ``[W_i, C]`` of each sentence."""
        return self._mended([self.classes_[own.argmax(1)].tolist() for own in rows])

    def spans(
        self, X: Sequence[Any], probabilities: Sequence[np.ndarray] | None = None
    ) -> list[list[TaggedSpan]]:
        """The spans of each sentence: text, kind, place in characters and in words, and how sure each is.

        Args:
            X: lists of words, or texts; characters count in the text, or in the words with blanks between.
            probabilities: of these sentences, where they are known.
        """
        X = read_rows(self.rows_of(X), "sentences", "sentences", whole=is_sentence)
        found = self.predict_proba(X) if probabilities is None else probabilities
        classes, tags, whole = self.classes_.tolist(), self.decide(found), self._whole()
        return [
            tagged_spans(x if isinstance(x, str) else list(x), own, rows, classes, self.scheme_, whole)
            for x, own, rows in zip(X, tags, found, strict=True)
        ]

    def score(self, X: Sequence[Any], y: Sequence[Any]) -> float:
        """Entity F1 as seqeval counts it; of plain tags that leave no word outside, accuracy. Tags in another
        spelling or scheme count as the spans that they mean, with an ``OtherSpellingWarning``."""
        words, known = check_words(self.rows_of(X)), {*self.classes_.tolist()}
        pairs = zip(check_tags(y, words), self.true_tags(y, words), strict=True)
        other = [(a, b) for own in pairs for a, b in zip(*own, strict=True) if a not in known]
        warn_of(said_as([a for a, _ in other], [b for _, b in other]))
        figures = self.judge(X, y, bootstrap=0)
        plain = self.scheme_ == "plain" and OUTSIDE not in self.classes_
        return figures["accuracy" if plain else MEASURE]

    def judge(
        self, X: Sequence[Any], y: Sequence[Any], *, bootstrap: int = 1000, answers: Sequence | None = None
    ) -> dict[str, Any]:
        """All figures of ``targets.token_tags.tag_figures``; ``answers``: tags that were predicted before."""
        words = check_words(self.rows_of(X))
        truth = self.true_tags(y, words)
        return tag_figures(truth, answers or self.predict(words), self.scheme_, bootstrap=bootstrap)

    def true_tags(self, y: Any, words: Sequence[Sequence[str]], origin: str = "tags") -> list[list[str]]:
        """The given tags of checked words as this tagger has them: in its scheme, well-formed.

        Raises:
            DataError: missing tags, or tags that cannot be those of this tagger.
        """
        tags = read_like(
            check_tags(y, words, origin), self.scheme, self.scheme_, self.classes_.tolist(), origin
        )
        return self._mended(tags)

    def explain(
        self, x: Any, *, word: str | int | None = None, method: str = "occlusion", **options: Any
    ) -> Any:
        """Why a word has its tag: scores for the tokens of its sentence, as explanations of classifiers are.

        Args:
            x: a list of words, or a text.
            word: the word or its number from 0; None: the first one that is not outside, else the first.
            method: one of ``glassformer.explain.methods``.
            options: ``target`` (a tag; None: the predicted one), ``trust``, and those of the method.

        Raises:
            InputError: a sentence that cannot be used, or no such word, method, option or tag.
        """
        check_is_fitted(self, "model_")
        options.update(word=word, method=method)
        return self._explained(self.words_of([x], "sentence"), None, options)[0]

    def explain_target(self, words: list[str], word: str | int | None = None) -> Any:
        """What is explained: the tag of one word, as the ``Subject`` of an explanation."""
        return word_subject(self, words, word)

    def examples_of(self, X: Sequence[Any]) -> list[list[str]]:
        """Checked sentences."""
        return self.words_of(X)

    def export_outputs(self) -> Any:
        """What an export writes and checks of this kind of prediction: an ``Outputs`` of ``export``."""
        from glassformer.export.outputs import WordTags

        return WordTags(self)

    def _mended(self, tags: Sequence[Sequence[str]]) -> list[list[str]]:
        return [repaired(own, self.scheme_) for own in tags]
