"""A loaded answerer as the server uses it: questions, and the spans of their contexts that answer them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from glassformer.data.question_windows import QuestionRows, joined_questions
from glassformer.data.questions import Question, check_questions
from glassformer.errors import InputError
from glassformer.evaluate.spans import Candidates
from glassformer.explain.methods import methods_for, notes_of
from glassformer.runtime import choose_dtype
from glassformer.serve.limits import Limits
from glassformer.serve.models import CHARS_PER_TOKEN, Item, Served, second_piece, text_pieces
from glassformer.serve.problems import Problem, of_input, too_many

Pair = Sequence[str]


@dataclass(frozen=True)
class AskedItem(Item):
    """A question: its windows in ``encoded``."""

    question: Question | None = None
    encoded: QuestionRows | None = None


class ServedAnswerer(Served):
    """An answerer under a name; its answers are spans of contexts."""

    gives = "answers"
    neutral = ("Where was Ada born?", "Ada was born in Hanoi in 1923.")

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
        self.kind, self.labels, self.pairs, self.examples = "text", ["answer", "no answer"], True, []
        clf.threads, clf.precision = threads, precision

    # --- before the queue ------------------------------------------------------------------------

    def estimate(self, inputs: Sequence[Pair]) -> int:
        return sum(2 * (len(question) + len(context)) // CHARS_PER_TOKEN + 4 for question, context in inputs)

    def least(self, size: int) -> int:
        return min(size // (2 * CHARS_PER_TOKEN), self.limits.characters)

    def check(self, inputs: Sequence[Pair], what: str) -> None:
        if len(inputs) > self.limits.inputs:
            raise too_many(len(inputs), self.limits.inputs, what)
        for i, pair in enumerate(inputs):
            if (length := sum(map(len, pair))) > self.limits.characters:
                most = f"{length:,} characters, {self.limits.characters:,} at most"
                raise Problem(413, most, where=f"{what}[{i}]", fix="Cut it")

    def prepare(self, inputs: Sequence[Pair], what: str = "questions") -> list[Item]:
        try:
            questions = check_questions([tuple(pair) for pair in inputs], what)
            encoded = [self.clf.encode([question]) for question in questions]
        except InputError as error:
            raise of_input(error) from None
        return [
            AskedItem((), len(rows.table.ids), bool(rows.table.truncated.any()), question=q, encoded=rows)
            for q, rows in zip(questions, encoded, strict=True)
        ]

    def _example(self, text: str) -> Any:
        return text, text

    # --- after the queue -------------------------------------------------------------------------

    def compute(self, items: Sequence[Item]) -> Any:
        """The candidates of each question, those of ``outputs``."""
        model = self.clf.predictor()
        parts = [item.encoded for item in items if isinstance(item, AskedItem) and item.encoded is not None]
        rows = joined_questions(parts)
        logits = self.clf.token_logits(model, rows, next(model.parameters()).device)
        return self.clf.best(logits, rows)

    def together(self, rows: Sequence[Candidates]) -> Any:
        return list(rows)

    def numbers(self, answers: Sequence[Candidates]) -> list[np.ndarray]:
        return [np.array([own.null, *(score for score, _, _ in own.spans)]) for own in answers]

    def warm_up(self) -> None:
        (one,) = self.prepare([("a word", "a word " * min(200, self.clf.length_))])
        most = min(self.limits.batch_tokens, self.limits.queue_tokens)
        self.compute([one] * max(1, most // one.tokens))
        self.compute([self._small()])

    def answered(
        self, items: Sequence[Item], found: Sequence[Candidates], count: int
    ) -> list[dict[str, Any]]:
        """As ``Answered`` has it."""
        questions: list[Any] = [item.question for item in items if isinstance(item, AskedItem)]
        out = []
        for item, ranked in zip(items, self.clf.answers(questions, count, found), strict=True):
            best, *others = (
                {"answer": own.text, "start": own.start, "end": own.end, "probability": own.probability}
                for own in ranked
            )
            out.append({**best, "others": others, "truncated": item.truncated})
        return out

    def explain(self, given: Any, method: str, target: str | None, options: dict[str, Any]) -> dict[str, Any]:
        """As ``ExplainResponse`` has it, of a question and its context.

        Raises:
            Problem: too long, no such target, layer or head, a method without target.
        """
        for name in options if method != "attention" else ():
            fix = "Leave it out, or use attention"
            raise Problem(422, f"{method} has no option {name!r}", where=name, fix=fix)
        pair = given.sides
        self.check([pair], "text")
        tokens = self.prepare([pair], "text")[0].tokens
        if tokens > self.limits.explain_tokens:
            most = f"{tokens} tokens, explanations take {self.limits.explain_tokens} at most"
            raise Problem(413, most, where="text_pair", fix="Explain a part of it")
        steps = {"max_steps": 128} if method == "integrated_gradients" else {}
        try:
            e = self.clf.explain(pair, method=method, target=target, maps=False, **options, **steps)
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
            "second": second_piece(e),
            "special": special,
            "scores": [],
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
            "examples": self.examples,
            "pairs": True,
            "max_length": clf.length_,
            "size": None,
            "precision": "bf16" if dtype == torch.bfloat16 else "fp32",
            "calibrated": calibrated,
            "temperature": 1.0,
            "threshold": None,
            "no_answer_threshold": clf.threshold_,
            "layers": getattr(encoder, "num_layers", None),
            "heads": getattr(encoder, "num_heads", None),
            "methods": self.methods,
            "channels": None,
        }
