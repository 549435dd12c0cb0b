"""Runs of token classification.

In addition to the files of every run, they write ``predictions.conll`` (word, true tag, predicted tag) and
``spans.json``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import replace_text
from glassformer.data.checks import place
from glassformer.data.duplicates import copy_keys
from glassformer.data.splits import Splits, evaluation_splits, make_splits, stratified_folds
from glassformer.data.tag_doctor import examine_tagged
from glassformer.data.tagged import TaggedDataset, TaggedSplit, format_conll, load_tagged
from glassformer.data.tags import (
    Scheme,
    Span,
    check_words,
    read_tags,
    repair_tags,
    tag_classes,
    tag_kind,
    tagged_positions,
    tags_to_spans,
)
from glassformer.errors import OneClassError, TooFewExamplesError
from glassformer.inputs.texts import TINY_TEXTS
from glassformer.targets.token_tags import (
    BASELINE,
    MEASURE,
    TokenTags,
    frequent_tags,
    span_errors,
    tag_metrics,
    word_log_loss,
)
from glassformer.tasks.card import export
from glassformer.tasks.folds import FoldPredictions, OutOfFold
from glassformer.tasks.run_steps import (
    evaluate_splits,
    fit,
    read_source,
    split_to_evaluate,
    warn_if_nothing_held_out,
)
from glassformer.tasks.task import TINY, DataPreview, RunContext, Task, report_renderer
from glassformer.tasks.token_tagging.estimator import TokenTagger
from glassformer.tasks.token_tagging.recipe import TaggingRecipe


def read(recipe: TaggingRecipe, source: str | None = None) -> TaggedDataset:
    """Read all sentences of a recipe, or of another source."""
    return read_source(load_tagged, recipe, source, "words_column", "tags_column")


def load(recipe: TaggingRecipe, source: str | None = None) -> Splits:
    """Load the sentences of a recipe and split them, or load another source without splitting it."""
    dataset = read(recipe, source)
    if source is not None:
        return evaluation_splits(dataset)
    return make_splits(with_tags_read(dataset, recipe.text.scheme), recipe.data, recipe.evaluate.split)


def with_tags_read(dataset: TaggedDataset, scheme: str | Sequence[str]) -> TaggedDataset:
    """The data set with its tags converted by ``read_tags``."""
    tagged = {name: split for name, split in dataset.splits.items() if split.tags is not None}
    reading = read_tags(
        [tags for split in tagged.values() for tags in split.tags or ()], scheme, dataset.name
    )
    converted = iter(reading.tags)
    splits = {name: replace(s, tags=[next(converted) for _ in s.words]) for name, s in tagged.items()}
    message = (reading.message,) if reading.message else ()
    return replace(dataset, splits=dataset.splits | splits, messages=(*dataset.messages, *message))


def preview_data(context: RunContext) -> DataPreview:
    """Log lines about the sentences, and about kinds of spans that do not occur in training."""
    splits, settings = context.data, context.recipe.evaluate
    if settings.sentences:
        check_words(list(settings.sentences), "evaluate.sentences")
    setting = context.recipe.text.scheme
    scheme = read_tags(splits.train.tags or (), setting).scheme
    training_kinds = _kinds(splits.train, scheme)
    lines = [*splits.dataset.messages, f"{splits.dataset.name}: {splits.sizes()} sentences, tags in {scheme}"]
    lines += warn_if_nothing_held_out(splits, "sentences", "tags")
    for split in {id(s): s for s in (splits.validation, splits.evaluated) if s is not None}.values():
        if unseen := sorted(_kinds(split, scheme) - training_kinds):
            lines.append(f"{split.origin} has kinds that training does not show: {', '.join(unseen)}")
    dataset = replace(splits.dataset, splits=splits.parts())
    return DataPreview(lines, splits.dataset.rejected, lambda: examine_tagged(dataset, setting))


def _kinds(split: TaggedSplit, scheme: Scheme) -> set[str]:
    return {tag_kind(tag, scheme) for tags in split.tags or () for tag in tags} - {""}


def evaluate(context: RunContext) -> dict[str, Any]:
    """Metrics of the splits and of the baseline; also write the predictions."""
    started = time.perf_counter()
    context.log("evaluating")
    tagger, recipe, splits = context.estimator, context.recipe, context.data
    out, evaluated = evaluate_splits(context, _evaluate_split, MEASURE), splits.evaluated
    out |= {"scheme": tagger.scheme_, "repaired": tagger.repaired_, "label_names": tagger.classes_.tolist()}
    if out["test"] is not None:
        if recipe.evaluate.baselines:
            context.log("baseline on the same split")
            out["baselines"] = {BASELINE: _baseline(context, evaluated)}
        predicted = tagger.decide(context.predictions)
        text = format_conll(evaluated.words, evaluated.tags, predicted)
        replace_text(context.folder / "predictions.conll", text)
    if recipe.evaluate.sentences:
        texts = list(recipe.evaluate.sentences)
        out["sentences"] = [
            {"text": text, "spans": [span.to_dict() for span in spans]}
            for text, spans in zip(texts, tagger.spans(texts), strict=True)
        ]
    out["seconds"]["evaluate"] = time.perf_counter() - started
    return out


def _evaluate_split(
    tagger: TokenTagger, split: TaggedSplit, bootstrap: int, progress: Any = None
) -> tuple[dict[str, Any], list[np.ndarray]]:
    probabilities, tags = tagger.predict_proba(split.words, progress=progress), split.tags or []
    metrics = tagger.judge(split.words, tags, bootstrap=bootstrap, answers=tagger.decide(probabilities))
    truth = [tag for row_tags in tagger.true_tags(tags, split.words, split.origin) for tag in row_tags]
    loss = word_log_loss(np.concatenate(probabilities), truth, tagger.classes_.tolist())
    return metrics | {"log_loss": loss}, probabilities


def _baseline(context: RunContext, split: TaggedSplit) -> dict[str, Any]:
    started, tagger, train = time.perf_counter(), context.estimator, context.data.train
    guess = frequent_tags(train, split, tagger.scheme_)
    metrics = tagger.judge(
        split.words, split.tags or [], bootstrap=context.recipe.evaluate.bootstrap, answers=guess
    )
    return metrics | {"seconds": time.perf_counter() - started}


class TagsOutOfFold(OutOfFold):
    """Cross-validation of taggers. The predictions of a fold are probabilities ``[W, C]``."""

    NOUN, METRICS = "sentences", (MEASURE, "precision", "recall", "accuracy", "log_loss")
    target, measure = TokenTags(), MEASURE
    scheme: Scheme

    def __init__(self, recipe: TaggingRecipe, splits: Splits, estimator: Any):
        super().__init__(recipe, splits, estimator)
        tags = self.train.tags or []
        self.scheme = read_tags(tags, recipe.text.scheme).scheme
        self.truth = [repair_tags(row_tags, self.scheme) for row_tags in tags]
        self.classes = tag_classes(self.truth, self.scheme)
        if len(self.classes) < 2:
            raise OneClassError(f"every word has the tag {self.classes[0]!r}", where=self.train.origin)

    def assign(self, folds: int) -> np.ndarray:
        """The fold of each sentence, stratified by whether it has spans, if there are enough sentences."""
        d, train = self.recipe.data, self.train
        groups = copy_keys(train) if d.copies == "together" else None
        kinds = ["spans" if tags_to_spans(row_tags, self.scheme) else "none" for row_tags in train.tags or []]
        firsts = dict(zip(groups or range(len(kinds)), kinds, strict=True))
        if len(firsts) < folds:
            what = f"{len(firsts)} different sentences for {folds} folds"
            raise TooFewExamplesError(what, where=train.origin, fix="Use fewer folds, or give more sentences")
        if min(Counter(firsts.values()).values()) < folds:
            kinds = ["sentence"] * len(kinds)
        return stratified_folds(kinds, folds, d.split_seed, groups)

    def evaluate(self, model: TokenTagger, split: TaggedSplit) -> tuple[int, dict[str, Any], np.ndarray]:
        probabilities, model_classes = model.predict_proba(split.words), model.classes_.tolist()
        columns = [(i, self.classes.index(tag)) for i, tag in enumerate(model_classes) if tag in self.classes]
        p = np.concatenate(probabilities)
        all_tags = np.zeros((len(p), len(self.classes)))  # 0 for tags that the model does not know
        all_tags[:, [j for _, j in columns]] = p[:, [i for i, _ in columns]]
        truth = [repair_tags(tags, self.scheme) for tags in split.tags or []]
        scores = tag_metrics(truth, model.decide(probabilities), self.scheme, bootstrap=0)
        metrics = {key: scores[key] for key in self.METRICS if key in scores}
        metrics["log_loss"] = word_log_loss(all_tags, [tag for tags in truth for tag in tags], self.classes)
        return scores["n"], metrics, all_tags.astype(np.float32)

    def per_example(self, predictions: np.ndarray, rows: np.ndarray) -> list[np.ndarray] | None:
        counts = [len(self.train.words[i]) for i in rows.tolist()]
        return np.split(predictions, np.cumsum(counts)[:-1]) if sum(counts) == len(predictions) else None

    def pooled_metrics(
        self, folder: Path, predictions: FoldPredictions, records: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        predicted: list[list[str]] = [[] for _ in self.truth]
        for indices, rows in predictions:
            for i, row in zip(indices.tolist(), rows, strict=True):
                predicted[i] = repair_tags([self.classes[c] for c in row.argmax(1).tolist()], self.scheme)
        replace_text(folder / "predictions.conll", format_conll(self.train.words, self.truth, predicted))
        test = tag_metrics(self.truth, predicted, self.scheme, bootstrap=self.recipe.evaluate.bootstrap)
        out = {"task": self.recipe.task, "measure": MEASURE, "scheme": self.scheme}
        return out | {"test": test, "label_names": self.classes}


def evaluate_saved(context: RunContext, source: str | None) -> dict[str, Any]:
    """Metrics of a saved tagger on its own test split, or on other data."""
    split = split_to_evaluate(context, source, load, "sentences", "tagged split")
    scheme = context.estimator.scheme_
    true = context.estimator.true_tags(split.tags, split.words, split.origin)
    known_kinds = {tag_kind(tag, scheme) for tag in context.estimator.classes_.tolist()}
    if unknown := sorted(_kinds(replace(split, tags=true), scheme) - known_kinds):
        context.log(f"kinds of spans that the model does not know: {', '.join(unknown)}")
    with context.count("evaluating", len(split)) as progress:
        return _evaluate_split(context.estimator, split, context.recipe.evaluate.bootstrap, progress)[0]


def predict_records(tagger: TokenTagger, X: Sequence[Any]) -> list[dict[str, Any]]:
    """One record per text or list of words: its words, tags and spans."""
    probabilities = tagger.predict_proba(X)
    words, tags, spans = tagger.words_of(X), tagger.decide(probabilities), tagger.spans(X, probabilities)
    return [
        {
            "text": x if isinstance(x, str) else " ".join(x),
            "words": row_words,
            "tags": row_tags,
            "spans": [span.to_dict() for span in row_spans],
        }
        for x, row_words, row_tags, row_spans in zip(X, words, tags, spans, strict=True)
    ]


def collect_artifacts(context: RunContext) -> dict[str, Any]:
    """``spans.json``: evaluated sentences with true and predicted spans, errors first."""
    split, tagger = context.data.evaluated, context.estimator
    if split is None or context.predictions is None:
        return {}
    spans = tagger.spans(split.words, context.predictions)
    order = sorted(range(len(split)), key=lambda i: -_error(split, spans, i, tagger.scheme_))
    examples = []
    for i in order[: context.recipe.evaluate.shown]:
        truth = tags_to_spans(split.tags[i], tagger.scheme_)
        predicted = _counted_spans(spans[i], split.tags[i])
        examples.append(
            {
                "where": place(split.origin, i, split.rows),
                "words": split.words[i],
                "true": [list(span) for span in truth],
                "predicted": [[*span, round(p, 4)] for span, p in predicted.items()],
                "errors": [list(error) for error in span_errors(truth, [*predicted])],
            }
        )
    return {"spans.json": {"examples": examples}}


def _counted_spans(spans: list, tags: Sequence[str]) -> dict[Span, float]:
    """Predicted spans -> probabilities, without words with the true tag -100."""
    is_counted = tagged_positions(tags)
    out = {}
    for span in spans:
        if inside := [i for i in is_counted if span.first <= i < span.last]:
            out[Span(span.kind, inside[0], inside[-1] + 1)] = span.probability
    return out


def _error(split: TaggedSplit, spans: list, i: int, scheme: Scheme) -> float:
    """The error of a sentence: the number of missed spans, plus the probabilities of wrong spans."""
    truth = {*tags_to_spans((split.tags or [])[i], scheme)}
    predicted = _counted_spans(spans[i], (split.tags or [])[i])
    return sum(p for span, p in predicted.items() if span not in truth) + len(truth - predicted.keys())


def example_fixture() -> tuple[TokenTagger, tuple]:
    """A minimal estimator, and sentences in which animals are tagged."""
    settings: dict[str, Any] = {**TINY, "max_length": 16, "min_count": 1}
    words = [text.split() for text in TINY_TEXTS]
    tags = [["B-animal" if word in ("dog", "cat") else "O" for word in sentence] for sentence in words]
    return TokenTagger("encoder-mini", **settings), (words, tags)


TASK = Task(
    estimator=TokenTagger,
    gives="tags",
    load=load,
    preview_data=preview_data,
    fit=fit,
    evaluate=evaluate,
    evaluate_saved=evaluate_saved,
    render_report=report_renderer("tags"),
    example_fixture=example_fixture,
    collect_artifacts=collect_artifacts,
    predict_records=predict_records,
    target=TokenTags(),
    read=read,
    folds=TagsOutOfFold,
    export=export,
)
