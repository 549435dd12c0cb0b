"""Prediction methods of ``TokenTagger``: tags, spans with positions, metrics, explanations."""

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

CHUNK = 4096  # sentences encoded at a time, so that memory use stays constant


@dataclass(frozen=True)
class TaggedSpan:
    """A tagged span: words ``first`` to ``last`` (exclusive), characters ``start`` to ``end`` (exclusive).

    ``probability`` is that of the least probable word, summed over all tags of this kind (B-, I-, ...).
    """

    text: str
    kind: str
    start: int
    end: int
    first: int
    last: int
    probability: float

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


def word_places(sentence: Any, whole: Collection[str] | None = None) -> list[tuple[int, int]]:
    """Character positions of each word in a text, or in a list of words joined with spaces.

    Args:
        whole: how a text is split into words, see ``places_of_words``.
    """
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
        tags: predicted tags ``[W]``.
        probabilities: ``[W, C]``, columns in the order of ``classes``.
        whole: how a text is split into words, see ``places_of_words``.
    """
    text = sentence if isinstance(sentence, str) else " ".join(sentence)
    places = word_places(sentence, whole)
    kinds = np.array([kind_of_tag(tag, scheme) for tag in classes])
    out = []
    for kind, first, last in spans_of(tags, scheme):
        start, end = places[first][0], places[last - 1][1]
        probability = float(probabilities[first:last, kinds == kind].sum(1).min())
        out.append(TaggedSpan(text[start:end], kind, start, end, first, last, min(probability, 1.0)))
    return out


class TagAnswers(Explains):
    """Prediction, evaluation and explanation of a fitted ``TokenTagger``."""

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
        """Sentences as lists of words. A text is split at white space; punctuation at the borders of a word
        becomes a separate word, except in words that had it in training.

        Raises:
            DataError: no sentences, or an unusable one.
        """
        return check_words(self.rows_of(X, origin), origin, whole=self._whole())

    def _whole(self) -> frozenset[str] | None:
        return None if self.whole_words_ is None else frozenset(self.whole_words_)

    @property
    def budget(self) -> int:
        """Number of tokens per batch in prediction."""
        return max(self.batch_tokens or 8192, self.length_)

    def word_logits(
        self, model: Any, rows: WordRows, device: torch.device, progress: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Logits of each word, ``[W, C]`` fp32."""
        count = None if progress is None else lambda index: progress(len(index))
        outputs, budget = len(self.classes_), self.budget
        logits = predict_tokens(
            model, rows.table, outputs, batch_tokens=budget, device=device, progress=count
        )
        return logits[rows.first]

    @computes
    def logits(self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None) -> list[np.ndarray]:
        """Logits of each sentence's words, ``[W_i, C]`` fp32 each."""
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
        """Probabilities of each sentence's words, ``[W_i, C]`` fp64, columns in the order of ``classes_``."""
        return [self.chances(rows) for rows in self.logits(X, progress=progress)]

    def chances(self, logits: np.ndarray) -> np.ndarray:
        """Convert logits ``[W, C]`` to probabilities with the current temperature."""
        return softmax(logits, self.temperature_)

    def predict(self, X: Sequence[Any]) -> list[list[str]]:
        """The most probable tag of each word; malformed sequences of tags are repaired."""
        return self.decide(self.predict_proba(X))

    def decide(self, rows: Sequence[np.ndarray]) -> list[list[str]]:
        """Tags from the logits or probabilities ``[W_i, C]`` of each sentence."""
        return self._repaired([self.classes_[own.argmax(1)].tolist() for own in rows])

    def spans(
        self, X: Sequence[Any], probabilities: Sequence[np.ndarray] | None = None
    ) -> list[list[TaggedSpan]]:
        """The spans of each sentence: text, kind, position in characters and words, and probability.

        Args:
            X: lists of words, or texts; character positions are in the text, or in the words joined with
                spaces.
            probabilities: of these sentences, if known.
        """
        X = read_rows(self.rows_of(X), "sentences", "sentences", whole=is_sentence)
        found = self.predict_proba(X) if probabilities is None else probabilities
        classes, tags, whole = self.classes_.tolist(), self.decide(found), self._whole()
        return [
            tagged_spans(x if isinstance(x, str) else list(x), own, rows, classes, self.scheme_, whole)
            for x, own, rows in zip(X, tags, found, strict=True)
        ]

    def score(self, X: Sequence[Any], y: Sequence[Any]) -> float:
        """Entity F1 as in seqeval; accuracy for plain tags without "O". Tags in another spelling or scheme
        count as the spans that they mean, with an ``OtherSpellingWarning``."""
        words, known = check_words(self.rows_of(X)), {*self.classes_.tolist()}
        pairs = zip(check_tags(y, words), self.true_tags(y, words), strict=True)
        other = [(a, b) for own in pairs for a, b in zip(*own, strict=True) if a not in known]
        warn_of(said_as([a for a, _ in other], [b for _, b in other]))
        metrics = self.judge(X, y, bootstrap=0)
        plain = self.scheme_ == "plain" and OUTSIDE not in self.classes_
        return metrics["accuracy" if plain else MEASURE]

    def judge(
        self, X: Sequence[Any], y: Sequence[Any], *, bootstrap: int = 1000, answers: Sequence | None = None
    ) -> dict[str, Any]:
        """All metrics of ``targets.token_tags.tag_figures``; ``answers``: predicted tags, if known."""
        words = check_words(self.rows_of(X))
        truth = self.true_tags(y, words)
        return tag_figures(truth, answers or self.predict(words), self.scheme_, bootstrap=bootstrap)

    def true_tags(self, y: Any, words: Sequence[Sequence[str]], origin: str = "tags") -> list[list[str]]:
        """Convert true tags to this tagger's scheme, and repair malformed ones.

        Raises:
            DataError: missing tags, or tags that this tagger does not know.
        """
        tags = read_like(
            check_tags(y, words, origin), self.scheme, self.scheme_, self.classes_.tolist(), origin
        )
        return self._repaired(tags)

    def explain(
        self, x: Any, *, word: str | int | None = None, method: str = "occlusion", **options: Any
    ) -> Any:
        """Explain the tag of a word by scores for the tokens of its sentence.

        Args:
            x: a list of words, or a text.
            word: the word or its index; None: the first word with a tag other than "O", or else the first.
            method: one of ``glassformer.explain.methods``.
            options: ``target`` (a tag; None: the predicted one), ``trust``, and options of the method.

        Raises:
            InputError: an unusable sentence, or no such word, method, option or tag.
        """
        check_is_fitted(self, "model_")
        options.update(word=word, method=method)
        return self._explained(self.words_of([x], "sentence"), None, options)[0]

    def explain_target(self, words: list[str], word: str | int | None = None) -> Any:
        """The ``Subject`` of an explanation: the tag of one word."""
        return word_subject(self, words, word)

    def examples_of(self, X: Sequence[Any]) -> list[list[str]]:
        """Checked sentences."""
        return self.words_of(X)

    def export_outputs(self) -> Any:
        """The ``export.outputs.Outputs`` that writes and checks these predictions in an export."""
        from glassformer.export.outputs import WordTags

        return WordTags(self)

    def _repaired(self, tags: Sequence[Sequence[str]]) -> list[list[str]]:
        return [repaired(own, self.scheme_) for own in tags]
