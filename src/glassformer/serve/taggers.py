"""A loaded tagger as the server uses it: words, their tags, and the spans that these mark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from glassformer.data.tags import kind_of_tag
from glassformer.data.word_rows import WordRows, joined_rows
from glassformer.errors import InputError
from glassformer.explain.methods import methods_for, notes_of
from glassformer.runtime import choose_dtype
from glassformer.serve.limits import Limits
from glassformer.serve.models import CHARS_PER_TOKEN, EXAMPLES, Item, Served, text_pieces
from glassformer.serve.problems import Problem, of_input, too_many

Sentence = str | Sequence[str]


@dataclass(frozen=True)
class TaggedItem(Item):
    """A sentence: its words, and its windows in ``encoded``."""

    sentence: Sentence = ""
    encoded: WordRows | None = None


class ServedTagger(Served):
    """A tagger under a name; its answers are tags and spans of sentences."""

    gives = "tags"
    neutral = "Ann left Rome on Monday ."

    def __init__(
        self,
        name: str,
        clf: Any,
        limits: Limits,
        *,
        threads: int = 0,
        precision: str = "auto",
        examples: Sequence[str] = (),
    ):
        choose_dtype(precision, torch.device("cpu"))  # a wrong word is refused before anything is served
        self.name, self.clf, self.limits = name, clf, limits
        self.kind, self.labels, self.pairs = "text", clf.classes_.tolist(), False
        self.examples = list(examples)[:EXAMPLES]
        clf.threads, clf.precision = threads, precision

    # --- before the queue ------------------------------------------------------------------------

    def estimate(self, inputs: Sequence[Sentence]) -> int:
        return sum(
            len(x) // CHARS_PER_TOKEN + 2
            if isinstance(x, str)
            else sum(len(w) // CHARS_PER_TOKEN + 1 for w in x)
            for x in inputs
        )

    def least(self, size: int) -> int:
        return min(size // (2 * CHARS_PER_TOKEN), self.limits.characters)

    def check(self, inputs: Sequence[Sentence], what: str) -> None:
        if len(inputs) > self.limits.inputs:
            raise too_many(len(inputs), self.limits.inputs, what)
        for i, x in enumerate(inputs):
            length = len(x) if isinstance(x, str) else sum(map(len, x)) + len(x) - 1
            if length > self.limits.characters:
                most = f"{length:,} characters, {self.limits.characters:,} at most"
                raise Problem(413, most, where=f"{what}[{i}]", fix="Cut it")

    def prepare(self, inputs: Sequence[Sentence], what: str = "inputs") -> list[Item]:
        try:
            words = self.clf.words_of(list(inputs), what)
            encoded = [self.clf.encode([own]) for own in words]
        except InputError as error:
            raise of_input(error) from None
        return [
            TaggedItem((), len(rows.table.ids), sentence=x, encoded=rows)
            for x, rows in zip(inputs, encoded, strict=True)
        ]

    # --- after the queue -------------------------------------------------------------------------

    def compute(self, items: Sequence[Item]) -> Any:
        """Probabilities ``[W_i, C]`` fp64 of each sentence, those of ``predict_proba``."""
        model = self.clf.predictor()
        rows = joined_rows([item.encoded for item in items if isinstance(item, TaggedItem) and item.encoded])
        logits = self.clf.word_logits(model, rows, next(model.parameters()).device)
        return [self.clf.chances(own) for own in rows.split(logits)]

    def together(self, rows: Sequence[np.ndarray]) -> Any:
        return list(rows)  # sentences differ in their words

    def numbers(self, answers: Any) -> list[np.ndarray]:
        return answers

    def warm_up(self) -> None:
        (one,) = self.prepare(["a word " * min(200, self.clf.length_)])
        most = min(self.limits.batch_tokens, self.limits.queue_tokens)
        self.compute([one] * max(1, most // one.tokens))
        self.compute([self._small()])

    def sentences(self, items: Sequence[Item], found: Sequence[np.ndarray]) -> list[dict[str, Any]]:
        """As ``TaggedSentence`` has it."""
        given: list[Any] = [item.sentence for item in items if isinstance(item, TaggedItem)]
        out = []
        for x, tags, spans in zip(given, self.clf.decide(found), self.clf.spans(given, found), strict=True):
            marked = [span.to_dict() for span in spans]
            for span in marked:
                span["label"] = span.pop("kind")
            text = x if isinstance(x, str) else " ".join(x)
            out.append({"text": text, "words": self.clf.words_of([x])[0], "tags": tags, "spans": marked})
        return out

    def explain_word(
        self, given: str, method: str, target: str | None, options: dict[str, Any], word: str | int | None
    ) -> dict[str, Any]:
        """As ``ExplainResponse`` has it, of one word of a text; without one, of the first that is in a span.

        Raises:
            Problem: too long, no such word, tag, layer or head, a method without target.
        """
        for name in options if method != "attention" else ():
            fix = "Leave it out, or use attention"
            raise Problem(422, f"{method} has no option {name!r}", where=name, fix=fix)
        self.check([given], "text")
        tokens = self.prepare([given], "text")[0].tokens
        if tokens > self.limits.explain_tokens:
            most = f"{tokens} tokens, explanations take {self.limits.explain_tokens} at most"
            raise Problem(413, most, where="text", fix="Explain a part of it")
        steps = {"max_steps": 128} if method == "integrated_gradients" else {}
        try:
            e = self.clf.explain(
                given, word=word, method=method, target=target, maps=False, **options, **steps
            )
        except InputError as error:
            raise of_input(error) from None
        pieces, special = text_pieces(e)
        return {
            "model": self.name,
            "label": str(e.label),
            "probability": e.probability,
            "method": method,
            "target": None if e.target is None else str(e.target),
            "pieces": pieces,
            "second": None,
            "special": special,
            "scores": e.scores.astype(float).tolist(),
            "image": None,
            "error": e.error,
            "settings": e.settings,
            "notes": notes_of(e),
        }

    @property
    def methods(self) -> list[str]:
        """Of explanation, the one to begin with first."""
        return methods_for(self.clf.model_)

    def about(self, calibrated: bool) -> dict[str, Any]:
        clf = self.clf
        encoder = getattr(clf.model_.config, "encoder", None)
        dtype = next(clf.predictor().encoder.parameters()).dtype
        return {
            "name": self.name,
            "kind": self.kind,
            "gives": self.gives,
            "labels": self.labels,
            "spans": sorted({kind for tag in self.labels if (kind := kind_of_tag(tag, clf.scheme_))}),
            "examples": self.examples,
            "pairs": False,
            "max_length": clf.length_,
            "size": None,
            "precision": "bf16" if dtype == torch.bfloat16 else "fp32",
            "calibrated": calibrated,
            "temperature": float(clf.temperature_),
            "threshold": None,
            "layers": getattr(encoder, "num_layers", None),
            "heads": getattr(encoder, "num_heads", None),
            "methods": self.methods,
            "channels": None,
        }
