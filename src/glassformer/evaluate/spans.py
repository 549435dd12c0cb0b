"""From two logits a token to answers: the best spans, what speaks for none, and how sure each is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from glassformer.data.question_windows import QuestionRows
from glassformer.data.questions import Question

KEPT = 20  # spans of a question, among which probabilities are shared


@dataclass(frozen=True)
class TextAnswer:
    """Characters ``start`` to ``end`` of a context; no answer is the empty text, at 0 and 0.

    ``score`` is the sum of two logits, ``probability`` the share among the best ``KEPT`` spans and no answer.
    """

    text: str
    start: int
    end: int
    score: float
    probability: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Candidates:
    """What a model makes of one question: its best spans, the best first, and the score of no answer."""

    spans: tuple[tuple[float, int, int], ...]  # score, first character, last + 1
    null: float  # of the window in which no answer is least likely; NaN: the model's logits are not finite

    @property
    def lead(self) -> float:
        """How far no answer is before the best span."""
        return self.null - self.spans[0][0] if self.spans else np.inf

    def is_none(self, threshold: float | None) -> bool:
        """Whether no answer is given; a threshold of None: never, where there is any span."""
        return not self.spans or (threshold is not None and self.lead > threshold)

    def ranked(self, question: Question, threshold: float | None, count: int) -> list[TextAnswer]:
        """The answer and the next best ones, ``count`` in all; without a threshold none of them is empty."""
        scores = np.array([*(score for score, _, _ in self.spans), self.null])
        if threshold is None and self.spans:
            scores[-1] = -np.inf
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        made = [
            TextAnswer(question.context[a:b], a, b, score, float(share))
            for (score, a, b), share in zip(self.spans, shares, strict=False)
        ]
        if threshold is None and made:
            return made[:count]
        none = TextAnswer("", 0, 0, self.null, float(shares[-1]))
        if self.is_none(threshold):
            return [none, *made][:count]
        behind = next((i for i, one in enumerate(made) if i and one.score < none.score), len(made))
        return [*made[:behind], none, *made[behind:]][:count]


def candidates(logits: np.ndarray, rows: QuestionRows, max_answer: int, kept: int = KEPT) -> list[Candidates]:
    """The best spans of every question over all its windows; of one span in several, the best score.

    Args:
        logits: ``[N, 2]`` of every token of ``rows``: begin and end.
        max_answer: tokens of an answer at most.
    """
    spans: list[dict[tuple[int, int], float]] = [{} for _ in range(rows.count)]
    null = np.full(rows.count, np.inf)
    starts = rows.table.starts
    for window, owner in enumerate(rows.owners.tolist()):
        own = slice(*starts[window : window + 2].tolist())
        if not np.isfinite(logits[own]).all():
            null[owner] = np.nan
        null[owner] = min(null[owner], float(logits[own][0].sum()))
        at = np.flatnonzero((rows.sides[own] == 1) & (rows.offsets[own][:, 1] > rows.offsets[own][:, 0]))
        places = rows.offsets[own][at]
        for score, first, last in best_spans(logits[own][at], max_answer, kept):
            key = int(places[first, 0]), int(places[last, 1])
            if score > spans[owner].get(key, -np.inf):
                spans[owner][key] = score
    return [
        Candidates(tuple(sorted(((s, a, b) for (a, b), s in own.items()), key=_rank)[:kept]), float(none))
        for own, none in zip(spans, null, strict=True)
    ]


def _rank(span: tuple[float, int, int]) -> tuple[float, int, int]:
    return -span[0], span[1], span[2]


def best_spans(logits: np.ndarray, longest: int, kept: int) -> list[tuple[float, int, int]]:
    """The ``kept`` spans of at most ``longest`` tokens with the highest sum: score, first token, last token.

    Args:
        logits: ``[T, 2]`` of the tokens that an answer may have. All spans are looked at.
    """
    count = len(logits)
    if count == 0:
        return []
    wide = min(longest, count)
    ends = np.concatenate([logits[:, 1], np.full(wide - 1, -np.inf)])
    sums = logits[:, :1] + np.lib.stride_tricks.sliding_window_view(ends, wide)  # [T, wide]
    flat = sums.ravel()
    most = min(kept, flat.size)
    best = np.argpartition(-flat, most - 1)[:most]
    best = best[np.argsort(-flat[best], kind="stable")]
    return [
        (float(flat[i]), int(i) // wide, int(i) // wide + int(i) % wide) for i in best if flat[i] > -np.inf
    ]


def best_threshold(leads: Sequence[float], answered: Sequence[float], unanswered: Sequence[float]) -> float:
    """The threshold of ``Candidates.lead`` with the highest mean figure on validation questions.

    Args:
        leads: of each question.
        answered: its figure (F1, say) where the best span is given.
        unanswered: where none is.

    Returns:
        A number between two leads, the middle of the best interval; finite.
    """
    lead = np.clip(np.asarray(leads, float), -1e6, 1e6)
    order = np.argsort(lead, kind="stable")
    given, left = np.asarray(answered, float)[order], np.asarray(unanswered, float)[order]
    # Of n questions in order, the first k are answered.
    totals = np.concatenate([[0.0], np.cumsum(given)]) + left.sum() - np.concatenate([[0.0], np.cumsum(left)])
    borders = np.concatenate([[lead[order[0]] - 1.0], lead[order], [lead[order[-1]] + 1.0]])
    possible = np.flatnonzero(np.diff(borders) > 0)  # equal leads are answered together
    best = possible[np.flatnonzero(totals[possible] >= totals[possible].max() - 1e-12)]
    middle = best[len(best) // 2]
    return float((borders[middle] + borders[middle + 1]) / 2)
