"""Why one answer is given: the methods of ``explain`` applied to the sum of two logits of one window."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.data.question_windows import QuestionRows
from glassformer.data.questions import Question
from glassformer.data.text_pairs import JOINT
from glassformer.data.vocabulary import Vocabulary, word_numbers
from glassformer.errors import InputError
from glassformer.explain.faithfulness import trust as trust_in
from glassformer.explain.methods import check_attention, check_method, explain, target_number
from glassformer.explain.render import Explanation
from glassformer.explain.subject import Subject, model_of
from glassformer.finite import finite
from glassformer.models.backbone import ModelOutput
from glassformer.nn.trace import Trace
from glassformer.packing import Packing
from glassformer.runtime import computes_gradients

CLASSES = ["answer", "no answer"]


class TwoRows(nn.Module):
    """What reads the rows of an answer's first and last token."""

    def __init__(self, first: int, last: int):
        super().__init__()
        self.row = [first, last]


class SpanView(nn.Module):
    """An answerer's model that answers one span: begin's logit at ``first`` plus end's at ``last``, and the
    same of [CLS], in every sequence, which all have their full length.
    """

    def __init__(self, model: Any, first: int, last: int, length: int):
        super().__init__()
        self.model, self.pooling, self.length = model, TwoRows(first, last), length
        self.has_attention = True

    @property
    def encoder(self) -> Any:
        return self.model.encoder

    @property
    def config(self) -> Any:
        return self.model.config

    def run_rows(self, x: Tensor, packing: Packing, trace: Trace | None = None) -> ModelOutput:
        """Embedded rows ``[N, D]`` -> ``[B, 2]``: the span's score, and that of no answer.

        Raises:
            InputError: tokens were left out, so that the rows may be others'.
        """
        if set(packing.lengths) != {self.length}:
            what = "a span whose text lacks tokens has no place in it"
            raise InputError(what, where="explain", fix="Hide tokens with by=mask, not by=delete")
        out = self.model.run_rows(x, packing, trace)
        (first, last), begin = self.pooling.row, packing.first_rows
        logits = out.logits
        span = logits[begin + first, 0] + logits[begin + last, 1]
        out.logits = torch.stack([span, logits[begin].sum(1)], 1)
        return out


@computes_gradients
def explain_answer(
    answerer: Any,
    question: Question,
    *,
    method: str = "integrated_gradients",
    target: Any = None,
    trust: bool = False,
    **options: Any,
) -> Explanation:
    """See ``TextAnswerer.explain``; of several windows, the one with the best span."""
    check_method(method, target, options)
    check_attention(answerer, method)
    subject = answer_subject(answerer, question)
    made = explain(subject, method=method, target=target, **options)
    if trust:
        made.trust = trust_in(subject, made.scores, target=target_number(subject, target))
        made.notes.append(made.trust["verdict"])
    return made


@computes_gradients
def answer_subject(answerer: Any, question: Question) -> Subject:
    """One question as the methods see it. Baselines as of ``explain.subject.text_subject``."""
    model = model_of(answerer)
    device = next(model.parameters()).device
    rows = answerer.readable(answerer.encode([question]), model)
    logits = finite(answerer.token_logits(model, rows, device), "logits")
    found = answerer.best(logits, rows)[0]
    if not found.spans:
        raise InputError("no token of the context can be answered with", where="explain")
    window, first, last = _place_of(found.spans[0], logits, rows)
    start, stop = (int(i) for i in rows.table.starts[window : window + 2])
    ids = torch.from_numpy(rows.table.ids[start:stop].astype(np.int64)).to(device)
    segments = rows.table.segments
    kinds = None if segments is None else torch.from_numpy(segments[start:stop].astype(np.int64)).to(device)
    packing = Packing.uniform(1, stop - start, device)
    sides = rows.sides[start:stop]
    special = torch.from_numpy(sides < 0).to(device)
    view = SpanView(model, first, last, stop - start).eval()

    def embed(these: Tensor) -> Tensor:
        with torch.no_grad():
            return model.embed(these, packing, kinds)[0].float()  # [T, D]

    embedded, known = embed(ids), Vocabulary.of(answerer.tokenizer_)
    hiding = {"mask": known.unk if known.mask is None else known.mask, "unknown": known.unk, "pad": known.pad}
    baselines: dict[str, Any] = {
        name: lambda token=token: embed(torch.where(special, ids, token))
        for name, token in hiding.items()
        if token is not None
    }
    baselines["zero"] = lambda: torch.where(special[:, None], embedded, 0.0)
    with torch.inference_mode():
        out = view.run_rows(embedded.to(next(model.encoder.parameters()).dtype), packing)
    assert out.logits is not None
    scores = out.logits.double().cpu().numpy()[0]
    none = found.is_none(answerer.threshold_)
    (answer,) = found.ranked(question, answerer.threshold_, 1)
    names = [answerer.tokenizer_.id_to_token(int(i)) or "?" for i in ids]
    words, offsets = _words(names, rows.offsets[start:stop], sides, len(question.question) + len(JOINT))
    shares = np.exp(scores - scores.max())
    label = answer.text or CLASSES[1]
    several = int((rows.owners == 0).sum())
    notes = [f"the context is read in {several} windows, of which one is explained"] if several > 1 else []
    shown = {
        "text": f"{question.question}{JOINT}{question.context}",
        "tokens": names,
        "offsets": offsets,
        "word_ids": words,
        "sides": sides.astype(int),
        "label": label,
        "notes": notes,
        "name": f"{question.question} ({label})",
    }
    chances = shares / shares.sum()
    return Subject(view, embedded, baselines, words, CLASSES, int(none), chances, shown=shown)


def _place_of(span: tuple[float, int, int], logits: np.ndarray, rows: QuestionRows) -> tuple[int, int, int]:
    """The window in which a span has its score, and its first and last token in it."""
    score, begin, end = span
    for window, (start, stop) in enumerate(zip(rows.table.starts, rows.table.starts[1:], strict=False)):
        inside, places = rows.sides[start:stop] == 1, rows.offsets[start:stop]
        for first in np.flatnonzero(inside & (places[:, 0] == begin)).tolist():
            for last in np.flatnonzero(inside & (places[:, 1] == end)).tolist():
                if last >= first and np.isclose(logits[start + first, 0] + logits[start + last, 1], score):
                    return window, first, last
    raise AssertionError("a span has its score in some window")


def _words(
    names: list[str], places: np.ndarray, sides: np.ndarray, behind: int
) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """The word of each token, counted over question and context, and its place in both, a line each."""
    words, count = np.full(len(names), -1), 0
    offsets = [(0, 0)] * len(names)
    for side in (0, 1):
        at = np.flatnonzero(sides == side)
        own = word_numbers([names[i] for i in at], places[at].tolist())
        words[at] = np.where(own >= 0, own + count, -1)
        count += int(own.max(initial=-1)) + 1
        for i, (start, stop) in zip(at.tolist(), places[at].tolist(), strict=True):
            if stop > start:
                offsets[i] = (start + side * behind, stop + side * behind)
    return words, offsets
