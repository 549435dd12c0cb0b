"""Answer spans of question answering as targets.

The metrics are those of SQuAD (Rajpurkar et al., 2016, 2018). They ignore case, punctuation, articles and
white space. F1 counts words. With several true answers, the most similar one counts. For an unanswerable
question only "no answer" is right. ``tests/evaluate`` compares the metrics with torchmetrics.
"""

from __future__ import annotations

import json
import math
import re
import string
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from glassformer.data.answered import QASplit
from glassformer.data.questions import Answers, Question
from glassformer.data.windows import QuestionWindows
from glassformer.errors import DataError
from glassformer.evaluate.compare import Statistic, bootstrap_means, bounds, ratio_statistic
from glassformer.evaluate.intervals import share_interval
from glassformer.evaluate.metrics import Share
from glassformer.targets.target import RunPredictions, SeedRuns, Target, hash_examples

MAIN_METRIC = "f1"
METRICS = ("exact_match", MAIN_METRIC)
ERRORS = (
    "missed",  # no answer to an answerable question
    "invented",  # an answer to an unanswerable question
    "too_long",  # a true answer and more words
    "too_short",  # a part of a true answer
    "overlapping",  # another span that shares words with a true answer
    "elsewhere",  # a span without words of a true answer
)
NUM_SPANS = 20  # only so many best spans of a question get a probability
SENTENCE, SPAN = "the likeliest sentence (TF-IDF)", "a name or number in that sentence"  # two baselines
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SENTENCES = re.compile(r"[^.!?\n]+(?:[.!?](?=\S)[^.!?\n]+)*[.!?]*")  # the "." of "3.5" ends no sentence
_WORDS = re.compile(r"\w+")
_NUMBER = re.compile(r"\d[\d.,:]*\d|\d")  # 7, 1,234.5 or 12:30
_NAME = re.compile(r"[^\W\d_a-z][\w'-]*(?:\s+[^\W\d_a-z][\w'-]*)*")  # capitalized words: Ada Lovelace
_ASKS_NUMBER = re.compile(r"\b(when|year|how (many|much|old|long|far)|what (date|time|day))\b", re.IGNORECASE)


class AnswerSpan(Target):
    """The span of a text that answers a question, or no answer."""

    marker_keys: ClassVar[Sequence[str]] = ("exact_match",)
    metrics: ClassVar[Mapping[str, Share]] = {"exact_match": Share("exact match"), MAIN_METRIC: Share("F1")}
    main_metrics: ClassVar[Sequence[str]] = (MAIN_METRIC, "exact_match")
    compared: ClassVar[Sequence[str]] = (MAIN_METRIC, "accuracy", "macro_f1")
    fold_table_metrics: ClassVar[Sequence[str]] = METRICS
    terminal_columns = tuple(key for name in METRICS for key in (name, f"{name}_interval"))
    examples: ClassVar[str] = "questions"
    resampled_key: ClassVar[str] = "contexts"
    terminal_layout: ClassVar[str] = "answers"
    has_two_decimals: ClassVar[bool] = True
    extra_metrics: ClassVar[Sequence[str]] = ("exact_match",)
    file: ClassVar[str] = "predictions.jsonl"
    no_review = (
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
        path, scores, examples = folder / self.file, [], []
        if not (text := path.read_text(encoding="utf-8").rstrip("\n")):
            raise DataError("no answers to compare", where=str(path), fix="Evaluate on a split with answers")
        for line in text.split("\n"):  # not splitlines, since a text may have U+2028
            try:
                row = json.loads(line)
                scores.append((float(row["exact_match"]), float(row["f1"])))
                examples.append((row["question"], row["context"], row["answers"]))
            except (ValueError, KeyError, TypeError) as error:
                what = f"a line that is not an answer ({type(error).__name__} {error})"
                raise DataError(what, where=str(path), fix="Evaluate the run again") from None
        contexts = [str(context) for _, context, _ in examples]
        predicted = np.array(scores)  # [n, 2] exact match and F1
        groups = _context_numbers(contexts, dict.fromkeys(contexts))
        return RunPredictions(self, hash_examples(examples), len(scores), None, predicted, groups=groups)

    def statistics(self, runs: SeedRuns) -> dict[str, Statistic]:
        assert runs[0].groups is not None
        # Texts are resampled, since the questions on one text are not independent.
        exact, f1 = _means(runs[0].groups, *(run.predicted for run in runs))
        return {MAIN_METRIC: f1, "accuracy": exact, "macro_f1": f1}


def normalize(text: str) -> str:
    """An answer without case, punctuation, articles and repeated spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(text: str, truth: Sequence[str]) -> float:
    """1 if the text is one of the true answers (or empty, if there are none), otherwise 0."""
    answer = normalize(text)
    return float(any(answer == normalize(true) for true in truth) if truth else answer == "")


def word_f1(text: str, truth: Sequence[str]) -> float:
    """The highest word F1 of the text with one of the true answers."""
    return max((_f1(text, true) for true in truth), default=float(normalize(text) == ""))


def _f1(text: str, true: str) -> float:
    predicted_words, true_words = normalize(text).split(), normalize(true).split()
    if not predicted_words or not true_words:
        return float(predicted_words == true_words)
    common = (Counter(predicted_words) & Counter(true_words)).total()
    return 2 * common / (len(predicted_words) + len(true_words))


def error_kind(text: str, truth: Sequence[str]) -> str:
    """The error in an answer, one of ``ERRORS``; empty if the answer is right."""
    if exact_match(text, truth):
        return ""
    if not truth:
        return "invented"
    answer = normalize(text)
    if not answer:
        return "missed"
    padded = [f" {normalize(true)} " for true in truth]  # so that only whole words match
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
        predicted: predicted answers; an empty text means no answer.
        contexts: context of each question; questions about one context are resampled together.
        bootstrap: number of resamples of contexts for the 95 % intervals; 0: no intervals.

    Returns:
        ``n`` (questions), ``contexts`` (their number), ``exact_match``, ``f1``, their ``_interval`` keys, and
        ``errors`` (the number of each of ``ERRORS``). If there are unanswerable questions, also
        ``answerable`` and ``unanswerable`` with their ``n`` and both metrics.
    """
    scores = np.array([*map(answer_scores, predicted, truth)])  # [n, 2]
    answerable = np.array([bool(true.texts) for true in truth])
    groups = _context_numbers(contexts, sorted(set(contexts)))
    errors = Counter(error_kind(text, true.texts) for text, true in zip(predicted, truth, strict=True))
    out: dict[str, Any] = {"n": len(truth), "contexts": int(groups.max(initial=-1)) + 1}
    out |= dict(zip(METRICS, scores.mean(0).tolist(), strict=True))
    if bootstrap:
        intervals = _intervals(scores, groups, bootstrap, seed)
        out |= {f"{name}_interval": bounds for name, bounds in zip(METRICS, intervals, strict=True)}
    for name, mask in (("answerable", answerable), ("unanswerable", ~answerable)):
        if mask.any() and not answerable.all():
            means = scores[mask].mean(0).tolist()
            out[name] = {"n": int(mask.sum()), **dict(zip(METRICS, means, strict=True))}
    return out | {"errors": {error: errors[error] for error in ERRORS}}


def _context_numbers(contexts: Sequence[str], distinct: Iterable[str]) -> np.ndarray:
    """The number of each question's context among the ``distinct`` contexts, from 0."""
    numbers = {context: i for i, context in enumerate(distinct)}
    return np.array([numbers[context] for context in contexts], np.int64)


def answer_scores(text: str, truth: Answers) -> tuple[float, float]:
    return exact_match(text, truth.texts), word_f1(text, truth.texts)


def _intervals(scores: np.ndarray, groups: np.ndarray, resamples: int, seed: int) -> list[list[float]]:
    """95 % intervals of mean exact match and mean F1, by resampling groups."""
    statistics, count = _means(groups, scores), int(groups.max()) + 1
    ends = map(bounds, bootstrap_means(statistics, count, resamples=resamples, seed=seed))
    return [share_interval(share, count, pair) for share, pair in zip(scores.mean(0), ends, strict=True)]


def _means(groups: np.ndarray, *seeds: np.ndarray) -> list[Statistic]:
    """Mean exact match and F1 under resampling of groups, from the scores ``[n, 2]`` of each seed."""
    sizes = np.bincount(groups)
    return [ratio_statistic([np.bincount(groups, s[:, k]) for s in seeds], sizes) for k in range(2)]


# --- from logits to answers -----------------------------------------------------------------------
# Each token has two logits, one for the start and one for the end of the answer.


@dataclass(frozen=True)
class TextAnswer:
    """An answer: the characters ``start`` to ``end`` of a context.

    "No answer" is the empty text, from 0 to 0. ``score`` is the sum of the logits of start and end. The
    probabilities of the ``NUM_SPANS`` best spans and of no answer sum to 1.
    """

    text: str
    start: int
    end: int
    score: float
    probability: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class SpanCandidate(NamedTuple):
    """A span of a context, with the sum of the logits of its start and end."""

    score: float
    start: int  # first character
    end: int  # last character + 1


@dataclass(frozen=True)
class Candidates:
    """The best spans for one question, sorted by score, and the score of no answer."""

    spans: tuple[SpanCandidate, ...]
    null: float  # score of no answer, the minimum over windows; NaN if a logit is not finite

    @property
    def null_margin(self) -> float:
        """The score of no answer minus the score of the best span."""
        return self.null - self.spans[0].score if self.spans else np.inf

    def predicts_no_answer(self, threshold: float | None) -> bool:
        """Whether "no answer" is predicted; without a threshold, only if there is no span."""
        return not self.spans or (threshold is not None and self.null_margin > threshold)

    def best_answers(self, question: Question, threshold: float | None, count: int) -> list[TextAnswer]:
        """The ``count`` best answers; without a threshold, "no answer" only if there is no span."""
        scores = np.array([*(score for score, _, _ in self.spans), self.null])
        if threshold is None and self.spans:
            scores[-1] = -np.inf
        probabilities = np.exp(scores - scores.max())
        probabilities /= probabilities.sum()
        answers = [
            TextAnswer(question.context[a:b], a, b, score, float(p))
            for (score, a, b), p in zip(self.spans, probabilities, strict=False)
        ]
        if threshold is None and answers:
            return answers[:count]
        no_answer = TextAnswer("", 0, 0, self.null, float(probabilities[-1]))
        if self.predicts_no_answer(threshold):
            return [no_answer, *answers][:count]
        # "No answer" is ranked by its score, but never the first, because an answer is predicted.
        rank = next((i for i, a in enumerate(answers) if i and a.score < no_answer.score), len(answers))
        return [*answers[:rank], no_answer, *answers[rank:]][:count]


def candidates(logits: np.ndarray, rows: QuestionWindows, max_answer: int) -> list[Candidates]:
    """The best spans of each question over all its windows.

    The score of a span is its highest score in any window.

    Args:
        logits: ``[N, 2]`` of all tokens of all windows.
        max_answer: maximum number of tokens of a span.
    """
    spans: list[dict[tuple[int, int], float]] = [{} for _ in range(rows.num_questions)]
    null = np.full(rows.num_questions, np.inf)
    starts = rows.table.starts
    for window, question in enumerate(rows.question_of_window.tolist()):
        tokens = slice(*starts[window : window + 2].tolist())
        if not np.isfinite(logits[tokens]).all():
            null[question] = np.nan
        null[question] = min(null[question], float(logits[tokens][0].sum()))  # of [CLS]
        offsets = rows.offsets[tokens]
        # Tokens of the context; a few tokens have no characters.
        in_context = np.flatnonzero((rows.sides[tokens] == 1) & (offsets[:, 1] > offsets[:, 0]))
        for score, first, last in best_spans(logits[tokens][in_context], max_answer, NUM_SPANS):
            key = int(offsets[in_context[first], 0]), int(offsets[in_context[last], 1])
            if score > spans[question].get(key, -np.inf):
                spans[question][key] = score
    out: list[Candidates] = []
    for score_of_span, no_answer in zip(spans, null.tolist(), strict=True):
        ranked = sorted((-score, start, end) for (start, end), score in score_of_span.items())[:NUM_SPANS]
        best = tuple(SpanCandidate(-negative, start, end) for negative, start, end in ranked)
        out.append(Candidates(best, no_answer))
    return out


def best_spans(logits: np.ndarray, max_tokens: int, count: int) -> list[tuple[float, int, int]]:
    """The ``count`` best spans of at most ``max_tokens`` tokens, as (score, first token, last token).

    ``logits``: ``[T, 2]``.
    """
    if not len(logits):
        return []
    width = min(max_tokens, len(logits))
    ends = np.concatenate([logits[:, 1], np.full(width - 1, -np.inf)])
    # sums[i, j] is the score of the span from token i to token i + j.
    sums = logits[:, :1] + np.lib.stride_tricks.sliding_window_view(ends, width)  # [T, width]
    flat = sums.ravel()
    count = min(count, flat.size)
    best = np.argpartition(-flat, count - 1)[:count]
    best = best[np.argsort(-flat[best], kind="stable")].tolist()
    return [(float(flat[i]), i // width, i // width + i % width) for i in best if flat[i] > -np.inf]


def best_threshold(margins: Sequence[float], answered: Sequence[float], unanswered: Sequence[float]) -> float:
    """The threshold of ``Candidates.null_margin`` with the highest mean metric.

    If an interval of thresholds is equally good, it is the middle of the interval.

    Args:
        margins: the ``null_margin`` of each validation question.
        answered, unanswered: the metric of each question (such as F1) if the question is answered, and if it
            is not.
    """
    margin = np.clip(np.asarray(margins, float), -1e6, 1e6)
    order = np.argsort(margin, kind="stable")
    yes, no = (np.asarray(answered, float)[order], np.asarray(unanswered, float)[order])
    # Sorted by margin, the first k of n questions are answered.
    totals = np.concatenate([[0.0], np.cumsum(yes)]) + no.sum() - np.concatenate([[0.0], np.cumsum(no)])
    borders = np.concatenate([[margin[order[0]] - 1.0], margin[order], [margin[order[-1]] + 1.0]])
    possible = np.flatnonzero(np.diff(borders) > 0)  # questions with equal margins are answered together
    best = possible[np.flatnonzero(totals[possible] >= totals[possible].max() - 1e-12)]
    middle = best[len(best) // 2]
    return float((borders[middle] + borders[middle + 1]) / 2)


# --- baselines ------------------------------------------------------------------------------------


def lower_words(text: str) -> list[str]:
    """The words of a text in lower case."""
    return [word.lower() for word in _WORDS.findall(text)]


def document_frequencies(contexts: Sequence[str]) -> Counter[str]:
    """The number of contexts with each word; the value of "" is the number of all contexts."""
    texts = set(contexts)
    frequencies = Counter(word for text in texts for word in set(lower_words(text)))
    frequencies[""] = len(texts)
    return frequencies


def likeliest_sentence(question: Question, df: Counter[str]) -> str:
    """The first sentence of the context with the highest TF-IDF cosine to the question."""

    def weights(text: str) -> dict[str, float]:
        counts = Counter(lower_words(text))
        return {word: n * math.log((1 + df[""]) / (1 + df[word])) for word, n in counts.items()}

    query = weights(question.question)

    def similarity(sentence: str) -> float:
        tfidf = weights(sentence)
        length = math.sqrt(sum(value**2 for value in tfidf.values())) or 1.0
        return sum(value * tfidf.get(word, 0.0) for word, value in query.items()) / length

    sentences = [match.group().strip() for match in _SENTENCES.finditer(question.context)]
    return max(filter(None, sentences), key=similarity, default=question.context.strip())


def name_or_number(question: Question, sentence: str) -> str:
    """The first number in a sentence if the question asks for a number, otherwise the first name.

    Words of the question do not count. If nothing is found, it is the whole sentence.
    """
    query_words = set(lower_words(question.question))
    pattern = _NUMBER if _ASKS_NUMBER.search(question.question) else _NAME
    for match in pattern.finditer(sentence):
        if not set(lower_words(match.group())) & query_words:
            return match.group()
    return sentence


def baselines(train: QASplit, split: QASplit, bootstrap: int) -> dict[str, Any]:
    """Metrics of two baselines: the most similar sentence, and a name or number in it."""
    out, frequencies = {}, document_frequencies(train.texts)
    for name in (SENTENCE, SPAN):
        started = time.perf_counter()
        texts = [likeliest_sentence(question, frequencies) for question in split.questions]
        if name == SPAN:
            texts = [name_or_number(q, sentence) for q, sentence in zip(split.questions, texts, strict=True)]
        metrics = answer_metrics(split.answers or [], texts, split.texts, bootstrap=bootstrap)
        out[name] = metrics | {"seconds": time.perf_counter() - started}
    return out
