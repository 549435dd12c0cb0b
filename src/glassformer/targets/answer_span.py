"""Answer spans as targets: exact match and F1 as in SQuAD, errors by kind, the best spans of logits.

As in SQuAD (Rajpurkar et al., 2016, 2018), case, punctuation, articles and white space are ignored; F1
counts words; with several true answers, the most similar one counts; for an unanswerable question only "no
answer" is right. ``tests/evaluate`` compares the metrics with torchmetrics.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import string
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glassformer.data.answered import AnsweredSplit
from glassformer.data.questions import Answers, Question
from glassformer.data.windows import QuestionRows
from glassformer.errors import DataError
from glassformer.evaluate.compare import Statistic, ratio_of
from glassformer.evaluate.intervals import share_interval
from glassformer.evaluate.metrics import Share
from glassformer.targets.target import Arm, RunPredictions, Target

MEASURE = "f1"
METRICS = ("exact_match", MEASURE)
# No answer to an answerable question; an answer to an unanswerable question; a true answer with more words; a
# part of a true answer; another span that shares words with a true answer; a span that shares none.
ERRORS = ("missed", "invented", "too_long", "too_short", "overlapping", "elsewhere")
NUM_SPANS = 20  # best spans of a question; their probabilities and that of "no answer" sum to 1
SENTENCE, SPAN = "the likeliest sentence (TF-IDF)", "a name or number in that sentence"
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SENTENCES = re.compile(r"[^.!?\n]+(?:[.!?](?=\S)[^.!?\n]+)*[.!?]*")
_WORDS = re.compile(r"\w+")
_NUMBER = re.compile(r"\d[\d.,:]*\d|\d")
_NAME = re.compile(r"[^\W\d_a-z][\w'-]*(?:\s+[^\W\d_a-z][\w'-]*)*")
_ASKS_NUMBER = re.compile(r"\b(when|year|how (many|much|old|long|far)|what (date|time|day))\b", re.IGNORECASE)


class AnswerSpan(Target):
    """The span of a text that answers a question, or no answer."""

    marks: ClassVar[Sequence[str]] = ("exact_match",)
    metrics: ClassVar[Mapping[str, Share]] = {"exact_match": Share("exact match"), MEASURE: Share("F1")}
    main_metrics: ClassVar[Sequence[str]] = (MEASURE, "exact_match")
    compared: ClassVar[Sequence[str]] = (MEASURE, "accuracy", "macro_f1")
    in_folds: ClassVar[Sequence[str]] = METRICS
    in_terminal: ClassVar[Sequence[str]] = tuple(
        key for name in METRICS for key in (name, f"{name}_interval")
    )
    examples: ClassVar[str] = "questions"
    resampled: ClassVar[str] = "contexts"
    terminal_layout: ClassVar[str] = "answers"
    precise: ClassVar[bool] = True
    extra_metrics: ClassVar[Sequence[str]] = ("exact_match",)
    file: ClassVar[str] = "predictions.jsonl"
    no_review: ClassVar[tuple[str, str] | None] = (
        "answers from texts",
        "Look at predictions.jsonl, which has each prediction with the true answers",
    )
    no_calibration: ClassVar[tuple[str, str] | None] = (
        "answers from texts have no temperature; the threshold for no answer was tuned on validation data",
        "Evaluate it on other questions: glassformer evaluate RUN FILE",
    )
    split_units: ClassVar[str] = "questions, by their texts"
    unit_name: ClassVar[str] = "texts with their questions"

    def summary_metrics(self, measure: str) -> Sequence[str]:
        return METRICS

    def size_note(self, scores: Mapping[str, Any]) -> str:
        return f" on {scores['contexts']:,} texts"

    def read_run(self, folder: Path) -> RunPredictions:
        path, digest, shares = folder / self.file, hashlib.sha256(), []
        contexts: dict[str, int] = {}
        numbers: list[int] = []
        if not (text := path.read_text(encoding="utf-8").rstrip("\n")):
            raise DataError("no answers to compare", where=str(path), fix="Evaluate on a split with answers")
        for line in text.split("\n"):  # not splitlines, since a text may have U+2028
            try:
                row = json.loads(line)
                shares.append((float(row["exact_match"]), float(row["f1"])))
                identity = (row["question"], row["context"], row["answers"])
            except (ValueError, KeyError, TypeError) as error:
                what = f"a line that is not an answer ({type(error).__name__} {error})"
                raise DataError(what, where=str(path), fix="Evaluate the run again") from None
            digest.update(repr(identity).encode("utf-8", "backslashreplace"))
            numbers.append(contexts.setdefault(str(row["context"]), len(contexts)))
        scores = np.array(shares)  # [n, 2] exact match and F1
        return RunPredictions(self, digest.hexdigest(), len(scores), None, scores, groups=np.array(numbers))

    def statistics(self, runs: Arm) -> dict[str, Statistic]:
        assert runs[0].groups is not None
        texts = runs[0].groups  # texts are resampled, since the questions on one text are not independent
        sizes = np.bincount(texts)
        exact, f1 = (ratio_of([np.bincount(texts, a.predicted[:, k]) for a in runs], sizes) for k in range(2))
        return {MEASURE: f1, "accuracy": exact, "macro_f1": f1}


def normalize(text: str) -> str:
    """Normalize an answer: without case, punctuation, articles and double spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(text: str, truth: Sequence[str]) -> float:
    """1 if the text is one of the true answers (or empty, if there are none), otherwise 0."""
    answer = normalize(text)
    return float(any(answer == normalize(other) for other in truth) if truth else answer == "")


def word_f1(text: str, truth: Sequence[str]) -> float:
    """The highest word F1 with a true answer."""
    return max((_f1(text, other) for other in truth), default=float(normalize(text) == ""))


def _f1(text: str, truth: str) -> float:
    answer, other = normalize(text).split(), normalize(truth).split()
    if not answer or not other:
        return float(answer == other)
    common = (Counter(answer) & Counter(other)).total()
    return 2 * common / (len(answer) + len(other)) if common else 0.0


def error_of(text: str, truth: Sequence[str]) -> str:
    """One of ``ERRORS``; empty if the answer is right."""
    if exact_match(text, truth):
        return ""
    if not truth:
        return "invented"
    answer = normalize(text)
    if not answer:
        return "missed"
    padded = [f" {normalize(true)} " for true in truth]
    if any(true in f" {answer} " for true in padded if true.strip()):
        return "too_long"
    if any(f" {answer} " in true for true in padded):
        return "too_short"
    return "overlapping" if word_f1(text, truth) else "elsewhere"


def answer_metrics(
    truth: Sequence[Answers],
    predicted: Sequence[str],
    contexts: Sequence[str],
    *,
    bootstrap: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Metrics of predicted answers, from 0 to 1.

    Args:
        predicted: predicted answers; empty: no answer.
        contexts: context of each question; questions on one context are resampled together.
        bootstrap: number of resamples of contexts for the 95 % intervals; 0: no intervals.

    Returns:
        ``n`` (questions), ``contexts`` (their number), ``exact_match``, ``f1``, their ``_interval`` keys,
        ``answerable`` and ``unanswerable`` (``n`` and both metrics, if there are unanswerable questions), and
        ``errors`` (see ``ERRORS``).
    """
    scores = np.array([scores_of(text, true) for text, true in zip(predicted, truth, strict=True)])  # [n, 2]
    answerable = np.array([bool(true.texts) for true in truth])
    numbers = {context: i for i, context in enumerate(sorted(set(contexts)))}
    groups = np.array([numbers[context] for context in contexts], np.int64)
    errors = Counter(error_of(text, true.texts) for text, true in zip(predicted, truth, strict=True))
    out: dict[str, Any] = {"n": len(truth), "contexts": int(groups.max(initial=-1)) + 1}
    out |= dict(zip(METRICS, scores.mean(0).tolist(), strict=True))
    if bootstrap:
        ends = _intervals(scores, groups, bootstrap, seed)
        out |= {f"{name}_interval": true for name, true in zip(METRICS, ends, strict=True)}
    for name, mask in (("answerable", answerable), ("unanswerable", ~answerable)):
        if mask.any() and not answerable.all():
            means = scores[mask].mean(0).tolist()
            out[name] = {"n": int(mask.sum()), **dict(zip(METRICS, means, strict=True))}
    return out | {"errors": {error: errors[error] for error in ERRORS}}


def scores_of(text: str, truth: Answers) -> tuple[float, float]:
    """Exact match and F1 of one answer."""
    return exact_match(text, truth.texts), word_f1(text, truth.texts)


def _intervals(scores: np.ndarray, groups: np.ndarray, draws: int, seed: int) -> list[list[float]]:
    """95 % intervals of both means by resampling groups."""
    count = int(groups.max()) + 1
    sums = np.stack([np.bincount(groups, scores[:, k], count) for k in range(2)], 1)  # [G, 2]
    sizes = np.bincount(groups, minlength=count)
    rng = np.random.default_rng(seed)
    resampled = np.empty((draws, 2))
    for i in range(draws):
        chosen = rng.integers(0, count, count)
        resampled[i] = sums[chosen].sum(0) / sizes[chosen].sum()
    ends = np.quantile(resampled, [0.025, 0.975], axis=0).T.tolist()
    return [share_interval(share, count, bounds) for share, bounds in zip(scores.mean(0), ends, strict=True)]


# --- from logits to answers -----------------------------------------------------------------------
# Two logits per token (start and end) give the best spans, the score of no answer, and probabilities.


@dataclass(frozen=True)
class TextAnswer:
    """Characters ``start`` to ``end`` of a context; no answer is the empty text, from 0 to 0.

    ``score`` is the sum of two logits; ``probability`` is normalized over ``NUM_SPANS`` spans and no answer.
    """

    text: str
    start: int
    end: int
    score: float
    probability: float

    def to_dict(self) -> dict[str, Any]:
        """The fields as a dict, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Candidates:
    """The best spans for one question, sorted by score, and the score of no answer."""

    spans: tuple[tuple[float, int, int], ...]  # score, first character, last character + 1
    null: float  # score of no answer, the minimum over windows; NaN: the logits are not finite

    @property
    def lead(self) -> float:
        """The score of no answer minus that of the best span."""
        return self.null - self.spans[0][0] if self.spans else np.inf

    def is_none(self, threshold: float | None) -> bool:
        """Whether "no answer" is predicted; with a threshold of None only if there is no span."""
        return not self.spans or (threshold is not None and self.lead > threshold)

    def ranked(self, question: Question, threshold: float | None, count: int) -> list[TextAnswer]:
        """The ``count`` best answers; without a threshold, "no answer" only if there is no span."""
        scores = np.array([*(score for score, _, _ in self.spans), self.null])
        if threshold is None and self.spans:
            scores[-1] = -np.inf
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        answers = [
            TextAnswer(question.context[a:b], a, b, score, float(share))
            for (score, a, b), share in zip(self.spans, shares, strict=False)
        ]
        if threshold is None and answers:
            return answers[:count]
        none = TextAnswer("", 0, 0, self.null, float(shares[-1]))
        if self.is_none(threshold):
            return [none, *answers][:count]
        index = next((i for i, answer in enumerate(answers) if i and answer.score < none.score), len(answers))
        return [*answers[:index], none, *answers[index:]][:count]


def candidates(logits: np.ndarray, rows: QuestionRows, max_answer: int) -> list[Candidates]:
    """The best spans of each question over all its windows, of at most ``max_answer`` tokens, from the logits
    ``[N, 2]`` of all tokens; a span in several windows has its best score."""
    spans: list[dict[tuple[int, int], float]] = [{} for _ in range(rows.count)]
    null = np.full(rows.count, np.inf)
    starts = rows.table.starts
    for window, owner in enumerate(rows.owners.tolist()):
        part = slice(*starts[window : window + 2].tolist())
        if not np.isfinite(logits[part]).all():
            null[owner] = np.nan
        null[owner] = min(null[owner], float(logits[part][0].sum()))
        offsets = rows.offsets[part]
        inside = np.flatnonzero((rows.sides[part] == 1) & (offsets[:, 1] > offsets[:, 0]))
        for score, first, last in best_spans(logits[part][inside], max_answer, NUM_SPANS):
            key = int(offsets[inside[first], 0]), int(offsets[inside[last], 1])
            if score > spans[owner].get(key, -np.inf):
                spans[owner][key] = score
    return [
        Candidates(tuple(sorted(((s, a, b) for (a, b), s in d.items()), key=_rank)[:NUM_SPANS]), float(none))
        for d, none in zip(spans, null, strict=True)
    ]


def _rank(span: tuple[float, int, int]) -> tuple[float, int, int]:
    return -span[0], span[1], span[2]


def best_spans(logits: np.ndarray, longest: int, count: int) -> list[tuple[float, int, int]]:
    """The ``count`` best spans of at most ``longest`` tokens, from logits ``[T, 2]``: score, first, last."""
    if not len(logits):
        return []
    wide = min(longest, len(logits))
    ends = np.concatenate([logits[:, 1], np.full(wide - 1, -np.inf)])
    sums = logits[:, :1] + np.lib.stride_tricks.sliding_window_view(ends, wide)  # [T, wide]
    flat = sums.ravel()
    most = min(count, flat.size)
    best = np.argpartition(-flat, most - 1)[:most]
    best = best[np.argsort(-flat[best], kind="stable")]
    return [
        (float(flat[i]), int(i) // wide, int(i) // wide + int(i) % wide) for i in best if flat[i] > -np.inf
    ]


def best_threshold(leads: Sequence[float], answered: Sequence[float], unanswered: Sequence[float]) -> float:
    """The threshold of ``Candidates.lead`` with the highest mean metric, in the middle of the best interval,
    from the lead of each validation question and its metric (such as F1) if it is answered, and if it is not.
    """
    lead = np.clip(np.asarray(leads, float), -1e6, 1e6)
    order = np.argsort(lead, kind="stable")
    yes, no = (np.asarray(answered, float)[order], np.asarray(unanswered, float)[order])
    # Sorted by lead, the first k of n questions are answered.
    totals = np.concatenate([[0.0], np.cumsum(yes)]) + no.sum() - np.concatenate([[0.0], np.cumsum(no)])
    borders = np.concatenate([[lead[order[0]] - 1.0], lead[order], [lead[order[-1]] + 1.0]])
    possible = np.flatnonzero(np.diff(borders) > 0)  # equal leads are answered together
    best = possible[np.flatnonzero(totals[possible] >= totals[possible].max() - 1e-12)]
    middle = best[len(best) // 2]
    return float((borders[middle] + borders[middle + 1]) / 2)


# --- baselines ------------------------------------------------------------------------------------


def words_of(text: str) -> list[str]:
    """The words of a text in lower case."""
    return [word.lower() for word in _WORDS.findall(text)]


def document_frequencies(contexts: Sequence[str]) -> Counter[str]:
    """The number of contexts with each word; the empty word has the number of contexts."""
    seen: Counter[str] = Counter(word for text in set(contexts) for word in set(words_of(text)))
    seen[""] = len(set(contexts))
    return seen


def likeliest_sentence(question: Question, df: Counter[str]) -> str:
    """The first sentence of the context with the highest TF-IDF cosine to the question."""

    def weights(text: str) -> dict[str, float]:
        counts = Counter(words_of(text))
        return {word: n * math.log((1 + df[""]) / (1 + df[word])) for word, n in counts.items()}

    query = weights(question.question)
    sentences = [match.group().strip() for match in _SENTENCES.finditer(question.context)]
    best, top = question.context.strip(), -1.0
    for sentence in sentences:
        tfidf = weights(sentence)
        length = math.sqrt(sum(value**2 for value in tfidf.values())) or 1.0
        score = sum(value * tfidf.get(word, 0.0) for word, value in query.items()) / length
        if sentence and score > top:
            best, top = sentence, score
    return best


def nearest_span(question: Question, sentence: str) -> str:
    """The first number of a sentence if the question asks for a number, otherwise its first name that is not
    in the question; the whole sentence if it has neither."""
    query_words = set(words_of(question.question))
    kind = _NUMBER if _ASKS_NUMBER.search(question.question) else _NAME
    for match in kind.finditer(sentence):
        if not set(words_of(match.group())) & query_words:
            return match.group()
    return sentence


def baselines(train: AnsweredSplit, split: AnsweredSplit, bootstrap: int) -> dict[str, Any]:
    """Metrics of answers without a model: the most similar sentence, and a name or number in it."""
    out, frequencies = {}, document_frequencies(train.texts)
    for name in (SENTENCE, SPAN):
        started = time.perf_counter()
        texts = [likeliest_sentence(question, frequencies) for question in split.questions]
        if name == SPAN:
            texts = [nearest_span(q, sentence) for q, sentence in zip(split.questions, texts, strict=True)]
        metrics = answer_metrics(split.answers or [], texts, split.texts, bootstrap=bootstrap)
        out[name] = metrics | {"seconds": time.perf_counter() - started}
    return out
