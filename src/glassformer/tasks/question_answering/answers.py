"""What an answerer says of questions: answers with their places and how sure they are, figures, and why."""

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

CHUNK = 1024  # questions encoded at a time: memory stays flat however many there are


def spread_answers(
    questions: Sequence[Question], found: Sequence[Candidates], threshold: float | None
) -> list[str]:
    """The text that each question is answered with; empty: none."""
    return [
        "" if own.is_none(threshold) else question.context[own.spans[0][1] : own.spans[0][2]]
        for question, own in zip(questions, found, strict=True)
    ]


def window_shares(logits: np.ndarray, rows: QuestionRows, targets: np.ndarray) -> tuple[float, float]:
    """Mean loss of the windows in nats, and the share of them whose begin and end are both right.

    Args:
        logits: ``[N, 2]``.
        targets: ``[W, 2]``.
    """
    losses, right = [], []
    for window, (start, stop) in enumerate(zip(rows.table.starts, rows.table.starts[1:], strict=False)):
        own = logits[start:stop].astype(np.float64)
        own = own - own.max(0)
        chance = own[targets[window], [0, 1]] - np.log(np.exp(own).sum(0))
        losses.append(-chance.mean())
        right.append(bool((own.argmax(0) == targets[window]).all()))
    return float(np.mean(losses)), float(np.mean(right))


class SpanAnswers(Explains):
    """What can be asked of a fitted answerer."""

    EXPLAINED_BY = "integrated_gradients"

    encode: Callable[..., QuestionRows]
    predictor: Callable[[], Any]
    batch_tokens: int
    max_answer_length: int
    length_: int
    threshold_: float | None

    @property
    def budget(self) -> int:
        """Tokens computed at once in prediction."""
        return max(self.batch_tokens or 8192, self.length_)

    def readable(self, rows: QuestionRows, model: Any) -> QuestionRows:
        """The windows for a model that may tell no segments apart."""
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
        """What the head gives for each token, ``[N, 2]`` fp32: begin, end."""
        rows = self.readable(rows, model)
        first = np.diff(rows.owners, prepend=-1) > 0  # of each question its first window is counted
        told = None if progress is None else lambda index: progress(int(first[index].sum()))
        budget = self.budget
        return predict_tokens(model, rows.table, 2, batch_tokens=budget, device=device, progress=told)

    def best(self, logits: np.ndarray, rows: QuestionRows) -> list[Candidates]:
        """The candidates of each question, from the logits ``[N, 2]`` of its tokens."""
        return candidates(logits, rows, self.max_answer_length)

    @computes
    def outputs(self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None) -> list[Candidates]:
        """The best spans of each question, and the score of no answer."""
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
        """The answer to each question as it stands in its context; empty: none."""
        questions = check_questions(X)
        return spread_answers(questions, self.outputs(questions), self.threshold_)

    def answers(
        self, X: Sequence[Any], n_best: int = 1, found: Sequence[Candidates] | None = None
    ) -> list[list[TextAnswer]]:
        """The best answers to each question, the given one first: text, place, score and probability.

        Args:
            n_best: how many, from 1 to 20; fewer where there are fewer spans.
            found: what ``outputs`` gave, where it is known.

        Raises:
            InputError: a number out of its range, or questions that cannot be used.
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
        """F1 of words, as SQuAD counts it, from 0 to 1."""
        return self.judge(X, y, bootstrap=0)[MEASURE]

    def judge(
        self, X: Sequence[Any], y: Sequence[Any], *, bootstrap: int = 1000, given: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """All figures of ``targets.answer_span.answer_figures``; ``given``: known answers."""
        questions = check_questions(X)
        truth = check_answers(y, questions)
        given = self.predict(questions) if given is None else given
        return answer_figures(truth, given, [q.context for q in questions], bootstrap=bootstrap)

    def explain(self, x: Any, *, method: str = "integrated_gradients", **options: Any) -> Any:
        """Why this answer: scores for the words of question and context, as explanations of classifiers are.

        Args:
            x: a pair (question, context), or a dict with these keys.
            method: one of ``glassformer.explain.methods``; what they explain is the sum of the two logits.
            options: ``target`` ("answer" or "no answer"; None: what is given), ``trust``, and those of the
                method.

        Raises:
            InputError: a question that cannot be used, or no such method, option or target.
        """
        check_is_fitted(self, "model_")
        return self._explained(check_questions([x], "question"), None, {**options, "method": method})[0]

    def explain_target(self, question: Question) -> Any:
        """What is explained: the best answer to a question, as the ``Subject`` of an explanation."""
        return answer_subject(self, question)

    def examples_of(self, X: Sequence[Any]) -> list[Question]:
        """Checked questions."""
        return check_questions(X)

    def export_outputs(self) -> Any:
        """What an export writes and checks of this kind of prediction: an ``Outputs`` of ``export``."""
        from glassformer.export.outputs import TextSpans

        return TextSpans(self)
