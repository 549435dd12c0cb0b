"""Prediction methods of ``QuestionAnswerer``: answers with positions, metrics, explanations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from glassformer.data.questions import Question, check_answers, check_questions
from glassformer.data.windows import QuestionRows
from glassformer.errors import InputError
from glassformer.evaluate.predict import predict_tokens
from glassformer.explain.asked import Explains
from glassformer.explain.rows import answer_subject
from glassformer.finite import finite
from glassformer.runtime import computes
from glassformer.sklearn_base import check_is_fitted
from glassformer.targets.answer_span import MEASURE, Candidates, TextAnswer, answer_figures, candidates

CHUNK = 1024  # questions encoded at a time, so that memory use stays constant


def best_answers(
    questions: Sequence[Question], found: Sequence[Candidates], threshold: float | None
) -> list[str]:
    """The text of the best answer to each question; empty: no answer."""
    return [
        "" if own.is_none(threshold) else question.context[own.spans[0][1] : own.spans[0][2]]
        for question, own in zip(questions, found, strict=True)
    ]


def window_shares(logits: np.ndarray, rows: QuestionRows, targets: np.ndarray) -> tuple[float, float]:
    """Mean loss per window in nats, and the share of windows whose start and end are both right.

    Args:
        logits: ``[N, 2]``.
        targets: ``[W, 2]``.
    """
    losses, right = [], []
    for window, (start, stop) in enumerate(zip(rows.table.starts, rows.table.starts[1:], strict=False)):
        own = logits[start:stop].astype(np.float64)
        own = own - own.max(0)
        log_probabilities = own[targets[window], [0, 1]] - np.log(np.exp(own).sum(0))
        losses.append(-log_probabilities.mean())
        right.append(bool((own.argmax(0) == targets[window]).all()))
    return float(np.mean(losses)), float(np.mean(right))


class SpanAnswers(Explains):
    """Prediction, evaluation and explanation of a fitted ``QuestionAnswerer``."""

    EXPLAINED_BY = "integrated_gradients"

    encode: Callable[..., QuestionRows]
    predictor: Callable[[], Any]
    batch_tokens: int
    max_answer_length: int
    length_: int
    threshold_: float | None

    @property
    def budget(self) -> int:
        """Number of tokens per batch in prediction."""
        return max(self.batch_tokens or 8192, self.length_)

    def readable(self, rows: QuestionRows, model: Any) -> QuestionRows:
        """The windows, without token type ids if the model has none."""
        if model.config.embedding.segments > 1 or rows.table.segments is None:
            return rows
        return replace(rows, table=replace(rows.table, segments=None))

    def token_logits(
        self,
        model: Any,
        rows: QuestionRows,
        device: torch.device,
        progress: Callable[[int], None] | None = None,
    ) -> np.ndarray:
        """Start and end logits of each token, ``[N, 2]`` fp32."""
        rows = self.readable(rows, model)
        first = np.diff(rows.owners, prepend=-1) > 0  # progress counts the first window of each question
        count = None if progress is None else lambda index: progress(int(first[index].sum()))
        budget = self.budget
        return predict_tokens(model, rows.table, 2, batch_tokens=budget, device=device, progress=count)

    def best(self, logits: np.ndarray, rows: QuestionRows) -> list[Candidates]:
        """The candidates of each question, from the logits ``[N, 2]`` of its tokens."""
        return candidates(logits, rows, self.max_answer_length)

    @computes
    def outputs(self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None) -> list[Candidates]:
        """The best spans for each question, and the score of no answer."""
        check_is_fitted(self, "model_")
        questions, model = check_questions(X), self.predictor()
        device = next(model.parameters()).device
        out: list[Candidates] = []
        for at in range(0, len(questions), CHUNK):
            rows = self.encode(questions[at : at + CHUNK])
            logits = self.token_logits(model, rows, device, progress)
            out += self.best(finite(logits, "logits"), rows)
        return out

    def predict(self, X: Sequence[Any]) -> list[str]:
        """The answer to each question, as it is written in its context; empty: no answer."""
        questions = check_questions(X)
        return best_answers(questions, self.outputs(questions), self.threshold_)

    def answers(
        self, X: Sequence[Any], n_best: int = 1, found: Sequence[Candidates] | None = None
    ) -> list[list[TextAnswer]]:
        """The best answers to each question, the predicted one first: text, position, score and probability.

        Args:
            n_best: number of answers, from 1 to 20; there may be fewer spans.
            found: the result of ``outputs``, if known.

        Raises:
            InputError: ``n_best`` out of range, or unusable questions.
        """
        if isinstance(n_best, bool) or not isinstance(n_best, int) or not 1 <= n_best <= 20:
            raise InputError(f"n_best = {n_best!r}", where="answers", fix="Give 1 to 20")
        questions = check_questions(X)
        found = self.outputs(questions) if found is None else found
        return [
            own.ranked(question, self.threshold_, n_best)
            for question, own in zip(questions, found, strict=True)
        ]

    def score(self, X: Sequence[Any], y: Sequence[Any]) -> float:
        """SQuAD's F1, from 0 to 1."""
        return self.judge(X, y, bootstrap=0)[MEASURE]

    def judge(
        self, X: Sequence[Any], y: Sequence[Any], *, bootstrap: int = 1000, given: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """All metrics of ``targets.answer_span.answer_figures``; ``given``: predictions, if known."""
        questions = check_questions(X)
        truth = check_answers(y, questions)
        given = self.predict(questions) if given is None else given
        return answer_figures(truth, given, [q.context for q in questions], bootstrap=bootstrap)

    def explain(self, x: Any, *, method: str = "integrated_gradients", **options: Any) -> Any:
        """Explain an answer by scores for the words of question and context.

        Args:
            x: a pair (question, context), or a dict with these keys.
            method: one of ``glassformer.explain.methods``; they explain the sum of start and end logit.
            options: ``target`` ("answer" or "no answer"; None: the predicted one), ``trust``, and options of
                the method.

        Raises:
            InputError: an unusable question, or no such method, option or target.
        """
        check_is_fitted(self, "model_")
        return self._explained(check_questions([x], "question"), None, {**options, "method": method})[0]

    def explain_target(self, question: Question) -> Any:
        """The ``Subject`` of an explanation: the best answer to a question."""
        return answer_subject(self, question)

    def examples_of(self, X: Sequence[Any]) -> list[Question]:
        """Checked questions."""
        return check_questions(X)

    def export_outputs(self) -> Any:
        """The ``export.outputs.Outputs`` that writes and checks these predictions in an export."""
        from glassformer.export.outputs import TextSpans

        return TextSpans(self)
