"""Token tags of token classification as targets.

The metrics are those of seqeval: a span is right if its kind, first word and last word are right.
``tests/evaluate/test_tags.py`` compares them with seqeval.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glassformer.data.tagged import TaggedSplit, load_tagged
from glassformer.data.tags import (
    IGNORED_TAG,
    Scheme,
    Span,
    detect_scheme,
    drop_untagged,
    repair_tags,
    tag_kind,
    tagged_positions,
    tags_to_spans,
)
from glassformer.evaluate.compare import Statistic, bootstrap_means, bounds, f1_statistic, ratio_statistic
from glassformer.evaluate.intervals import share_interval
from glassformer.evaluate.metrics import Share
from glassformer.targets.multiclass import LOSS
from glassformer.targets.target import (
    MIN_WRITTEN,
    RunPredictions,
    SeedRuns,
    Target,
    hash_examples,
    read_object,
)

ERRORS = ("missed", "invented", "wrong_kind", "wrong_border")  # see ``span_errors``
MAX_CONFUSIONS = 12  # maximum number of pairs of kinds in ``confusions``
MAIN_METRIC = "entity_f1"
BASELINE = "most frequent tag of each word"
Tags = Sequence[Sequence[str]]  # the tags of the words of each sentence


class TokenTags(Target):
    """One tag per word of a sentence; the metrics are those of the spans that the tags mark."""

    marker_keys: ClassVar[Sequence[str]] = (MAIN_METRIC,)
    metrics: ClassVar[Mapping[str, Share]] = {
        "precision": Share("precision"),
        "recall": Share("recall"),
        MAIN_METRIC: Share("entity F1"),
        "macro_f1": Share("macro-F1"),
        "accuracy": Share("words right"),
        **LOSS,
    }
    main_metrics: ClassVar[Sequence[str]] = (MAIN_METRIC, "accuracy")
    compared: ClassVar[Sequence[str]] = (MAIN_METRIC, "accuracy", "macro_f1")
    fold_table_metrics: ClassVar[Sequence[str]] = (MAIN_METRIC, "accuracy", "log_loss")
    terminal_columns = ("precision", "recall", MAIN_METRIC, "accuracy", f"{MAIN_METRIC}_interval")
    resampled_key: ClassVar[str] = "entities"
    terminal_layout: ClassVar[str] = "tags"
    has_two_decimals: ClassVar[bool] = True
    has_word_labels: ClassVar[bool] = True
    split_units: ClassVar[str] = "sentences"
    file: ClassVar[str] = "predictions.conll"  # word, true tag, predicted tag

    def size_note(self, scores: Mapping[str, Any]) -> str:
        return f", {scores['entities']:,} spans"

    def read_run(self, folder: Path) -> RunPredictions:
        path, metrics = folder / self.file, read_object(folder / "metrics.json")
        truth = load_tagged(path, tags_column="2").splits["train"]
        predicted = load_tagged(path, tags_column="3").splits["train"].tags or []
        tags, scheme = truth.tags or [], metrics.get("scheme") or detect_scheme(truth.tags or [])
        kinds = sorted({tag_kind(tag, scheme) for row in (*tags, *predicted) for tag in row} - {""})
        pairs = zip(*without_ignored(tags, predicted), strict=True)
        right = np.array([sum(a == b for a, b in zip(t, p, strict=True)) for t, p in pairs])
        words = np.array([len(tagged_positions(row)) for row in tags])
        counts = SpanCounts(*span_counts(tags, predicted, scheme, kinds), right, words)
        loss = (metrics.get("test") or {}).get("log_loss")
        # The digest has only sentences and true tags, since runs may predict different kinds.
        digest = hash_examples([[*zip(truth.words, tags, strict=True)]])
        return RunPredictions(self, digest, len(words), None, counts, log_loss=loss)

    def statistics(self, runs: SeedRuns) -> dict[str, Statistic]:
        counts = [run.predicted for run in runs]
        hits, totals = [c.exact for c in counts], [c.true + c.predicted for c in counts]
        all_spans = ([x.sum(1, keepdims=True) for x in values] for values in (hits, totals))
        return {
            MAIN_METRIC: f1_statistic(*all_spans),
            "accuracy": ratio_statistic(np.stack([c.right for c in counts]), counts[0].words),
            "macro_f1": f1_statistic(hits, totals, include_absent=False),
        }


@dataclass(frozen=True)
class SpanCounts:
    """Numbers of spans and words in each of n sentences, and of K kinds of spans."""

    true: np.ndarray  # [n, K] true spans of each kind
    predicted: np.ndarray  # [n, K] predicted spans
    exact: np.ndarray  # [n, K] spans that are both true and predicted
    right: np.ndarray  # [n] words with the right tag
    words: np.ndarray  # [n] all words


def tag_metrics(
    truth: Tags, predicted: Tags, scheme: Scheme, *, bootstrap: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """Metrics of predicted tags. Words with the true tag -100 are ignored.

    Args:
        bootstrap: number of resamples of the sentences for the 95 % interval of the F1; 0: no interval.

    Returns:
        ``n`` (sentences), ``words``, ``accuracy`` (share of words with the right tag), ``precision``,
        ``recall``, ``entity_f1`` (micro averages), ``macro_f1`` (mean over kinds), ``entities`` (true spans),
        ``by_kind`` (precision, recall, f1, support, found), ``errors`` and ``errors_by_kind`` (see
        ``span_errors``), ``confusions`` (true kind, predicted kind, count).
    """
    truth, predicted = without_ignored(truth, predicted)
    true_spans = [tags_to_spans(tags, scheme) for tags in truth]
    predicted_spans = [tags_to_spans(tags, scheme) for tags in predicted]
    words = sum(map(len, truth))
    num_right = sum(a == b for t, p in zip(truth, predicted, strict=True) for a, b in zip(t, p, strict=True))
    num_exact, num_predicted, num_true = Counter(), Counter(), Counter()  # number of spans of each kind
    errors: dict[str, Counter[str]] = {error: Counter() for error in ERRORS}
    confusions: Counter[tuple[str, str]] = Counter()
    counts = np.zeros((len(truth), 3))  # exact, predicted, true spans of each sentence
    for i, (t, p) in enumerate(zip(true_spans, predicted_spans, strict=True)):
        exact = set(t) & set(p)
        counts[i] = len(exact), len(p), len(t)
        num_exact.update(span.kind for span in exact)
        num_predicted.update(span.kind for span in p)
        num_true.update(span.kind for span in t)
        for error, kind, predicted_kind in span_errors(t, p):
            errors[error][kind] += 1
            if predicted_kind:
                confusions[kind, predicted_kind] += 1
    kinds = sorted(num_predicted.keys() | num_true.keys())
    by_kind = {k: _scores(num_exact[k], num_predicted[k], num_true[k]) for k in kinds}
    total = _scores(*map(int, counts.sum(0)))
    return {
        "n": len(truth),
        "words": words,
        "accuracy": num_right / max(words, 1),
        "precision": total["precision"],
        "recall": total["recall"],
        MAIN_METRIC: total["f1"],
        **({f"{MAIN_METRIC}_interval": _interval(total, counts, bootstrap, seed)} if bootstrap else {}),
        "macro_f1": sum(s["f1"] for s in by_kind.values()) / max(len(by_kind), 1),
        "entities": total["support"],
        "by_kind": by_kind,
        "errors": {error: errors[error].total() for error in ERRORS},
        "errors_by_kind": {k: {error: errors[error][k] for error in ERRORS} for k in kinds},
        "confusions": [[a, b, n] for (a, b), n in confusions.most_common(MAX_CONFUSIONS)],
    }


def without_ignored(truth: Tags, predicted: Tags) -> tuple[Tags, Tags]:
    """True and predicted tags of each sentence, without the ignored words."""
    if not any(IGNORED_TAG in tags for tags in truth):
        return truth, predicted
    pairs = [drop_untagged(t, p) for t, p in zip(truth, predicted, strict=True)]
    return [t for t, _ in pairs], [p for _, p in pairs]


def word_log_loss(probabilities: np.ndarray, tags: Sequence[str], classes: Sequence[str]) -> float:
    """Mean negative log likelihood of the true tags in nats, from the probabilities ``[W, C]`` of words.

    Words with the tag -100 are ignored. A tag that is not in ``classes`` has the minimum probability 1e-6.
    """
    column = {tag: i for i, tag in enumerate(classes)}
    likelihoods = [
        float(row[column[tag]]) if tag in column else 0.0
        for row, tag in zip(probabilities, tags, strict=True)
        if tag != IGNORED_TAG
    ]
    return float(-np.log(np.clip(likelihoods, MIN_WRITTEN, 1.0)).mean())


def span_counts(
    truth: Tags, predicted: Tags, scheme: Scheme, kinds: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of true, predicted and correctly predicted spans per sentence and kind: three ``[n, K]``."""
    column = {kind: k for k, kind in enumerate(kinds)}
    truth, predicted = without_ignored(truth, predicted)
    out = np.zeros((3, len(truth), len(kinds)), np.float32)
    for i, (t, p) in enumerate(zip(truth, predicted, strict=True)):
        true_spans, predicted_spans = tags_to_spans(t, scheme), tags_to_spans(p, scheme)
        for j, spans in enumerate((true_spans, predicted_spans, set(true_spans) & set(predicted_spans))):
            for span in spans:
                out[j, i, column[span.kind]] += 1
    return out[0], out[1], out[2]


def span_errors(truth: Sequence[Span], predicted: Sequence[Span]) -> list[tuple[str, str, str]]:
    """The errors in the predicted spans of a sentence, as (error, kind of the span, predicted kind).

    A true span without an exact match is ``wrong_border`` if a predicted span of its kind overlaps it. It is
    ``wrong_kind`` if only spans of other kinds overlap it, and the first of them is the predicted kind.
    Otherwise it is ``missed``. A predicted span that overlaps no true span is ``invented``. The predicted
    kind is empty except for ``wrong_kind``.
    """
    exact = set(truth) & set(predicted)
    out = []
    for span in truth:
        if span in exact:
            continue
        overlapping = [p for p in predicted if p not in exact and p.start < span.end and span.start < p.end]
        if any(p.kind == span.kind for p in overlapping):
            out.append(("wrong_border", span.kind, ""))
        elif overlapping:
            out.append(("wrong_kind", span.kind, overlapping[0].kind))
        else:
            out.append(("missed", span.kind, ""))
    for span in predicted:
        if not any(t.start < span.end and span.start < t.end for t in truth):
            out.append(("invented", span.kind, ""))
    return out


def _scores(right: int, predicted: int, true: int) -> dict[str, Any]:
    precision, recall = right / predicted if predicted else 0.0, right / true if true else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return {"precision": precision, "recall": recall, "f1": f1, "support": true, "found": predicted}


def _interval(total: dict[str, Any], counts: np.ndarray, resamples: int, seed: int) -> list[float]:
    """95 % interval of the F1, by bootstrap over the sentences' numbers of spans, see ``tag_metrics``."""
    f1 = f1_statistic(counts[None, :, :1], counts[None, :, 1:].sum(2, keepdims=True))
    ends = bounds(bootstrap_means([f1], len(counts), resamples=resamples, seed=seed)[0])
    return share_interval(total["f1"], total["support"], ends)


def frequent_tags(train: TaggedSplit, split: TaggedSplit, scheme: Scheme) -> list[list[str]]:
    """Baseline that predicts the most frequent training tag of each word; for unknown words, of all words."""
    tally: dict[str, Counter[str]] = defaultdict(Counter)
    for words, tags in zip(train.words, train.tags or (), strict=True):
        for word, tag in zip(words, repair_tags(tags, scheme), strict=True):
            if tag != IGNORED_TAG:
                tally[word][tag] += 1
    default = Counter(tag for counts in tally.values() for tag in counts.elements()).most_common(1)[0][0]
    best = {word: counts.most_common(1)[0][0] for word, counts in tally.items()}
    return [repair_tags([best.get(word, default) for word in words], scheme) for words in split.words]
