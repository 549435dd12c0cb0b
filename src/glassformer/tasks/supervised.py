"""The steps of a run of a classifier or regressor: load and preview the data, fit, and evaluate.

The classes ``Inputs`` (texts or images) and ``Target`` (labels or numbers) have the parts that differ.
"""

from __future__ import annotations

import math
import shlex
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.config import join_names, suggest, to_json_types
from glassformer.data.checks import ONE_CLASS_FIX
from glassformer.data.columns import AUTO, NONE
from glassformer.data.duplicates import copy_keys
from glassformer.data.findings import DoctorReport
from glassformer.data.label_kinds import other_spellings
from glassformer.data.label_sets import flat_labels
from glassformer.data.numbers import LEARN_CLASSES
from glassformer.data.rejected import SKIP, join_fixes, skip_message
from glassformer.data.repairs import apply_repairs
from glassformer.data.splits import (
    Splits,
    evaluation_splits,
    location_of_labels,
    make_splits,
    stratified_folds,
    stratified_subset,
)
from glassformer.data.tables import READERS, Table, ignore_error, read_table
from glassformer.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    NoSuchColumnError,
    NoSuchSplitError,
    NotForThisModelError,
    OneClassError,
    UnclearColumnError,
)
from glassformer.evaluate.predictions import BASELINES_FILE, write_baselines
from glassformer.finite import json_text
from glassformer.inputs.inputs import Inputs
from glassformer.report.run import read_history
from glassformer.targets.multiclass import Classes, unseen_labels, without_unseen_labels
from glassformer.targets.multilabel import DEFAULT_THRESHOLD, align_columns, one_vs_rest, tune_thresholds
from glassformer.targets.regression import largest_errors
from glassformer.tasks import task as run_steps
from glassformer.tasks.classifier import abstention
from glassformer.tasks.task import (
    OUT_OF_FOLD,
    TINY,
    DataPreview,
    Log,
    OutOfFold,
    RunContext,
    Task,
    export,
    main_metric,
)
from glassformer.train.callbacks import Count, epoch_weights, no_progress, saved_epochs
from glassformer.train.config import ClassifierFitConfig
from glassformer.train.objectives import class_weights

MIN_VALIDATION = 100  # with fewer validation examples, the choice of the best epoch is noisy
CONVERGED_LOSS = 0.01  # below this validation loss, training has converged
MIN_IMPROVEMENT = 0.05  # a larger relative improvement of the loss in the last epoch calls for more epochs
TRAINING_SAMPLE = 1000  # number of training examples that are evaluated, to show overfitting


def supervised_task(
    estimator: type[Any], target: Classes, label_of: Callable[[Any], Any], report: str, **fields: Any
) -> Task:
    """The ``Task`` of an estimator that learns one target per example.

    Args:
        label_of: returns the target of an example of ``INPUTS.example_fixture()``, for the contract tests.
        report: one of ``report.html.KINDS``.
        fields: fields of ``Task`` that differ from the defaults here.
    """
    inputs: Inputs = estimator.INPUTS

    def fixture() -> tuple[Any, tuple]:
        examples = inputs.example_fixture()
        return estimator(**TINY, **inputs.fixture_settings), (examples, [label_of(x) for x in examples])

    defaults: dict[str, Any] = {
        "load": partial(load, inputs, target),
        "preview_data": preview_data,
        "evaluate": evaluate,
        "evaluate_saved": evaluate_saved,
        "drop_unreadable": lambda splits, context: inputs.drop_unreadable(
            splits, context.estimator, context.recipe
        ),
        "output_kind": "labels" if target.predicts_labels else "numbers",
        "packages": inputs.packages,
        "fit": fit,
        "example_fixture": fixture,
        "report": report,
        "answer": labels_and_confidences,
        "folds": LabelsOutOfFold,
        "export": export,
    }
    return Task(estimator=estimator, target=target, **defaults | fields)


def inputs_and_target(task: Task) -> tuple[Inputs, Classes]:
    """The kinds of inputs and of the target of a task."""
    assert isinstance(task.target, Classes)
    return task.estimator.INPUTS, task.target


# --- data -----------------------------------------------------------------------------------------


def load(inputs: Inputs, target: Classes, recipe: Any, source: str | None = None, **columns: Any) -> Splits:
    """Load the examples of a recipe and split them, or load another source without splitting it.

    For another source, ``trained`` in ``columns`` has the names of the text columns in training.
    """
    data, options = recipe.data, dict(columns)
    if source is None:
        options |= {"limit": data.limit, "seed": data.split_seed}
    dataset = inputs.read(recipe, source or data.source, not target.predicts_labels, **options)
    merge = getattr(data, "merge_labels", "none")
    dataset, messages = apply_repairs(dataset, merge, data.drop_duplicates and source is None)
    all_messages = (*getattr(dataset, inputs.messages_field), *messages)
    dataset = replace(dataset, **{inputs.messages_field: all_messages})
    dataset = target.prepare_data(dataset, recipe.train, inputs.skips_unusable(data))
    if source is not None:
        return evaluation_splits(dataset)
    splits = make_splits(dataset, data, recipe.evaluate.split)
    if splits.train.labels is None:
        what = f"no {target.targets_noun} to learn from"
        raise UnclearColumnError(what, where=splits.train.origin, fix="Name label_column")
    return target.training_splits(splits, recipe)


def preview_data(context: RunContext) -> DataPreview:
    """Check and describe the data; raise DataError for a label that does not occur in training."""
    (inputs, target), recipe = inputs_and_target(context.task), context.recipe
    context.data, unknown = target.check_unseen(context.data, inputs.skips_unusable(recipe.data))
    splits, dataset = context.data, context.data.dataset
    inputs.check(recipe, splits.parts(), context.folder)
    lines_before, suffix, below = target.training_notes(splits, dataset.rejected)
    lines = [*dataset.messages, *lines_before, f"{dataset.name}: {splits.sizes()}{suffix}", *below]
    return DataPreview(
        lines, (*dataset.rejected, *unknown), partial(_examine, context), inputs.doctor_severities
    )


def _examine(context: RunContext) -> DoctorReport:
    data, splits, dataset = context.recipe.data, context.data, context.data.dataset
    inputs, target = inputs_and_target(context.task)
    used_splits = splits.parts()
    unused_splits = {name: split for name, split in dataset.splits.items() if name not in used_splits}
    splits_test = data.test_size is not None and "test" not in dataset.splits
    holds_out = data.validation_size is not None or splits_test
    held_out = data.hold_out if holds_out and target.predicts_labels else None
    dataset = target.doctor_input(replace(dataset, splits=used_splits | unused_splits))
    report = inputs.examine(dataset, context.estimator, context.recipe, held_out)
    return replace(report, findings=[*report.findings, *target.findings(splits, context.recipe.train)])


def training_sample(splits: Splits) -> Any:
    """A stratified sample of the training examples, which is evaluated after training."""
    train = splits.train
    return train.select(stratified_subset(train.labels or [], TRAINING_SAMPLE, 0).tolist())


def with_known_labels(clf: Any, split: Any, drop_unreadable: bool) -> tuple[Any, list[str]]:
    """The split without examples whose labels were not seen in training, and notes on the labels.

    The notes name the labels that were left out, and those that the model knows in another spelling.

    Raises:
        DataError: there is such an example and ``drop_unreadable`` is False, or all examples are such.
    """
    kind, classes = clf.kind_, clf.classes_.tolist()
    label_at, notes = {}, []
    if kind.predicts_labels:
        label_at = unseen_labels(kind.normalize(split.labels, classes), classes)
        notes = [*filter(None, [other_spellings(flat_labels(split.labels), classes)])]
    if not kind.predicts_labels or (not drop_unreadable and len(label_at) < len(split)):
        try:
            clf.encode_targets(split.labels, split.origin, split.rows)
        except DataError as error:
            if drop_unreadable or not error.where:
                raise
            fix = join_fixes(error.fix, f"leave such {clf.NOUN} out with {SKIP}")
            raise error.replace(fix=fix) from None
    elif label_at:
        counts = Counter(map(repr, label_at.values()))
        labels = join_names([f"{label} ({count:,})" for label, count in counts.most_common()])
        notes += [f"{clf.NOUN} left out, whose labels were not seen in training: {labels}"]
        split = without_unseen_labels(split, label_at, classes)
    return split, notes


def fit(context: RunContext, **options: Any) -> None:
    """Train on the training split and select the best epoch on the validation split."""
    val = context.data.validation if context.task.target.predicts_labels else None
    if val and context.estimator.learns_in_steps and (note := small_validation(val, context.recipe.train)):
        context.log(note)
    try:
        run_steps.fit(context, **options)
    except OneClassError as error:
        where = location_of_labels(context.data.dataset, context.data.train.origin)
        raise error.replace(where=where, fix=ONE_CLASS_FIX) from None
    dataset = context.data.dataset  # prediction finds the columns of a data frame by their names
    text = getattr(dataset, "columns", (None, None))[0]
    context.estimator.name_columns(text, getattr(dataset, "pair_column", None))


def small_validation(split: Any, train: Any) -> str:
    """A warning if there are too few validation examples to select the best epoch; otherwise empty."""
    if len(split) >= MIN_VALIDATION or train.monitor == "loss" or not train.keep_best:
        return ""
    if getattr(train, "method", None) == "few-shot" and train.epochs in (None, 1):
        return ""  # with one epoch there is no choice
    rare, count = min(Counter(flat_labels(split.labels)).items(), key=lambda item: item[1])
    advice = "--set monitor=loss is less noisy"
    if train.monitor != ClassifierFitConfig.monitor:  # the user chose the metric
        advice = f"monitor={train.monitor} is less noisy with more (--set validation_size=COUNT)"
    too_few = f"only {len(split)} validation examples ({count} of class {rare!r})"
    return f"the best epoch is selected by {too_few}: {advice}"


# --- evaluation -----------------------------------------------------------------------------------


def evaluate(context: RunContext) -> dict[str, Any]:
    """The contents of metrics.json: metrics of splits and baselines, and facts about the inputs."""
    started = time.perf_counter()
    context.log("evaluating")
    try:
        out = evaluate_splits(context)
    except DataError:  # examples may have become unreadable after training
        context.data, messages = context.task.drop_unreadable(context.data, context)
        if not messages:
            raise
        for line in messages:
            context.log(line)
        out = evaluate_splits(context)
        out["left_out"] = messages
    est, recipe = context.estimator, context.recipe
    out |= inputs_and_target(context.task)[0].run_metadata(est, context.data, recipe)
    if est.tried_:
        out["tried"] = list(est.tried_)
    out["seconds"]["evaluate"] = time.perf_counter() - started
    return out


def evaluate_splits(context: RunContext) -> dict[str, Any]:
    """Metrics of every split and of the baselines; also write ``predictions.csv``."""
    est, recipe, splits, evaluated = context.estimator, context.recipe, context.data, context.data.evaluated
    kind, outputs = est.kind_, {}

    def score(split: Any) -> tuple[dict[str, Any], np.ndarray]:
        scores, outputs[id(split)] = evaluate_split(est, split, recipe, context.count)
        return scores, outputs[id(split)]

    out = context.score_splits(score, training_sample(splits), kind.measure or main_metric(recipe))
    out |= kind.run_metadata(est, splits, recipe.train, outputs.get(id(splits.validation)))
    if kind.predicts_labels and (losses := still_learning(est.history_)) is not None:
        lr = getattr(est, "lr", None) or est.chosen_.get("lr")
        out["still_learning"] = losses | ({"lr": lr} if lr else {})
    if out["test"] is None:
        return out
    same_examples = splits.evaluated_split == "validation"
    out |= kind.coverage(est, context.predictions, evaluated.labels, same_examples)
    if getattr(recipe.train, "keep_epochs", False):
        context.log("evaluating every epoch's weights")
        out["epochs"] = evaluate_epochs(context, lambda: score(evaluated)[0], out["test"])
    if recipe.evaluate.baselines:
        context.log(f"{'baselines' if len(context.task.baselines) > 1 else 'baseline'} on the same split")
        baselines, predicted = context.task.baselines, est.predicted_index(context.predictions)
        options = {"file": context.folder / BASELINES_FILE, "log": context.log}
        out["baselines"] = evaluate_baselines(
            baselines, est, recipe, splits, predicted, out["measure"], **options
        )
    labels = est.decide(context.predictions).tolist()
    confidences = labels_and_confidences(est, context.predictions)[1]
    path, classes, name = context.folder / "predictions.csv", est.classes_.tolist(), splits.evaluated_split
    kind.write(path, evaluated, name, context.predictions, classes, labels, confidences, est)
    return out


def evaluate_split(
    clf: Any, split: Any, recipe: Any, count: Count = no_progress
) -> tuple[dict[str, Any], np.ndarray]:
    """Metrics of a split, and the probabilities ``[n, C]`` of its examples."""
    with count("evaluating", len(split)) as progress:
        probabilities = clf.outputs(split.examples, progress=progress)
    metrics = score_probabilities(clf, split, probabilities, recipe, clf.predicted_index(probabilities))
    if probabilities.ndim == 2 and probabilities.shape[1] > 1 and not clf.kind_.is_multilabel:
        metrics["confidence"] = float(probabilities.max(1).mean())  # mean probability of the predicted class
    if (below := getattr(clf, "abstain_below_", None)) is not None:
        targets = clf.encode_targets(split.labels or [], split.origin, split.rows)
        metrics["abstention"] = abstention(clf.kind_, probabilities, targets, clf.threshold_, below)
    return metrics, probabilities


def score_probabilities(
    clf: Any, split: Any, probabilities: np.ndarray, recipe: Any, predicted: np.ndarray | None = None
) -> dict[str, Any]:
    """Metrics of a split from probabilities ``[n, C]``; by default the most probable class is predicted."""
    targets, classes = clf.encode_targets(split.labels or [], split.origin, split.rows), clf.classes_.tolist()
    return clf.kind_.score(probabilities, targets, classes, predicted, bootstrap=recipe.evaluate.bootstrap)


def baseline_weights(clf: Any, targets: np.ndarray) -> np.ndarray | None:
    """The class weight of each training example ``[n]``, as for the classifier; None: all are 1."""
    if clf.kind_.is_multilabel:
        return None
    return class_weights(targets, clf.classes_.tolist(), clf.class_weight)


def one_vs_rest_baseline(
    clf: Any, splits: Splits, targets: np.ndarray, featurize: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Multi-label baseline: probabilities and predictions ``[m, K]`` of one logistic regression per label.

    Thresholds are tuned on the validation split if the classifier's thresholds are.
    """
    train, validation, evaluated = splits.train, splits.validation, splits.evaluated
    assert evaluated is not None
    if validation is not None and (validation.labels is None or clf.threshold_ is None):
        validation = None
    others = [evaluated] if validation is None else [evaluated, validation]
    features = featurize(train.examples, *(split.examples for split in others))
    probabilities, *on_validation = one_vs_rest(features, targets)
    thresholds = DEFAULT_THRESHOLD
    if validation is not None:
        truth = clf.encode_targets(validation.labels, validation.origin, validation.rows)
        thresholds = tune_thresholds(on_validation[0], truth)
    return probabilities, probabilities >= thresholds


def evaluate_baselines(
    baselines: Any,
    clf: Any,
    recipe: Any,
    splits: Splits,
    predicted: np.ndarray,
    measure: str,
    file: Path | None = None,
    log: Log = lambda line: None,
) -> dict[str, Any]:
    """Metrics of the baselines, trained and evaluated on the same splits as the classifier.

    Args:
        predicted: the classifier's predictions; ``difference`` in the result compares both.
        measure: the metric of this comparison.
        file: where to write the predictions of the baselines; None: nowhere.
    """
    evaluated = splits.evaluated
    assert evaluated is not None
    targets = clf.encode_targets(splits.train.labels or [], splits.train.origin)
    truth = clf.encode_targets(evaluated.labels or [], evaluated.origin, evaluated.rows)
    out: dict[str, Any] = {}
    predictions: dict[str, list[Any]] = {}
    for baseline in baselines:
        started = time.perf_counter()
        try:
            result = baseline(clf, recipe, splits, targets)
        except DataError as error:  # for example texts without words; leave only this baseline out
            log(f"left out: {error}")
            continue
        if result is None:  # the baseline does not apply, or is the same model as the classifier
            continue
        name, probabilities, *decisions = result
        metrics = score_probabilities(clf, evaluated, probabilities, recipe, *decisions)
        out[name] = metrics | {"seconds": time.perf_counter() - started}
        log(f"baseline {name}: {out[name]['seconds']:.1f} s")
        indices = decisions[0] if decisions else clf.kind_.predicted_index(probabilities)
        labels = clf.kind_.labels(indices, clf.classes_).tolist()
        predictions[name] = list(map(str, labels)) if clf.kind_.predicts_labels else labels
        compared, resamples = (truth, predicted, indices, len(clf.classes_)), recipe.evaluate.bootstrap
        if resamples and (difference := clf.kind_.difference(compared, measure, resamples)) is not None:
            out[name]["difference"] = difference
        if getattr(clf, "class_weight", None) is not None:
            out[name]["class_weight"] = clf.class_weight
    if file is not None:
        write_baselines(file, predictions)
    return out


def still_learning(history: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The validation losses before and after the last epoch if training ended too soon, otherwise None.

    This is the case if the last epoch lowered the loss by at least the share ``MIN_IMPROVEMENT``.
    """
    evaluations = [r for r in history if r.get("kind") == "evaluation" and r.get("loss") is not None]
    losses = [float(record["loss"]) for record in evaluations]
    if len(losses) < 2 or losses[-2] < CONVERGED_LOSS:
        return None
    if losses[-1] > min(losses) or losses[-1] > (1 - MIN_IMPROVEMENT) * losses[-2]:
        return None
    return {"epochs": evaluations[-1]["epoch"] + 1, "before": losses[-2], "after": losses[-1]}


def predict_sentences(clf: Any, sentences: list[Any]) -> list[dict[str, Any]]:
    """Predicted label and probability for each of a recipe's example sentences."""
    labels, confidences = labels_and_confidences(clf, clf.predict_proba(sentences))
    return [
        {"text": text, "label": "" if label is None else str(label), "probability": confidence}
        for text, label, confidence in zip(sentences, labels, confidences, strict=True)
    ]


def load_other_data(context: RunContext, source: str) -> Any:
    """Load other data for the model of a run, from the columns that training used, if they exist.

    Raises:
        DataError: the data cannot be used; its fix is for users of a trained model.
    """
    recipe, options = context.recipe, dict[str, Any]()
    if hasattr(recipe.data, "pair_column"):
        options["trained"] = getattr(context.estimator, "feature_names_in_", ())
        if context.estimator.pairs_ is False and recipe.data.pair_column == AUTO:
            recipe = replace(recipe, data=replace(recipe.data, pair_column=NONE))
    try:
        return context.task.load(recipe, source, **options)
    except (NoSuchColumnError, UnclearColumnError) as error:  # data without labels: the user may want predict
        if error.what.startswith("there is no column of images"):
            fix = (
                "This model reads images: name their column with image_column, or name a run of a text model"
            )
            raise error.replace(fix=fix) from None
        if not error.what.startswith(("there is no column 'label'", "no column contains numbers")):
            raise
        fix = str(error.fix).replace(f", {LEARN_CLASSES}", "").replace("numbers, name", "numbers, or name")
        command = f"glassformer predict {shlex.quote(str(context.folder))} {shlex.quote(str(source))}"
        raise error.replace(fix=f"{fix}. To predict without labels: {command}") from None


def _reload_splits(context: RunContext, source: str | None) -> Any:
    if source is None:
        return context.reload_data()
    return load_other_data(context, source)


def _labeled_split(context: RunContext, splits: Any, source: str | None) -> tuple[Any, list[str]]:
    """The split to evaluate, as returned by ``with_known_labels``."""
    split = splits.evaluated
    if split is None or split.labels is None:
        where = source or context.recipe.data.source
        raise NoSuchSplitError("nothing to evaluate: no labeled split", where=where)
    return with_known_labels(context.estimator, split, context.drop_unreadable)


def evaluate_saved(context: RunContext, source: str | None) -> dict[str, Any]:
    """Metrics of a saved estimator on its test split or on other data; also set ``context.data``."""
    clf = context.estimator
    splits = _reload_splits(context, source)
    messages = []
    if context.drop_unreadable:
        splits, messages = context.task.drop_unreadable(replace(splits, train=None, validation=None), context)
    if source is not None:
        messages += getattr(splits.dataset, "messages", ())
    if (source is not None or context.drop_unreadable) and (
        rejected := getattr(splits.dataset, "rejected", ())
    ):
        messages += [skip_message(rejected, is_listed=False)]
    split, label_notes = _labeled_split(context, splits, source)
    splits = replace(splits, evaluated=split)
    messages += label_notes
    left_out = [line for line in messages if "left out" in line]
    for line in messages:
        context.log(line)
    context.log(f"{len(split):,} {clf.NOUN} of {split.origin}")
    num_seen = None if source is None else seen_in_training(context, split)
    if num_seen:
        note = f"{num_seen:,} of {len(split):,} {clf.NOUN}, or copies of them, were in training"
        context.log(f"{note}: metrics on other {clf.NOUN} will be lower")
    try:
        metrics, context.predictions = evaluate_split(clf, split, context.recipe, context.count)
    except DataError as error:
        if context.drop_unreadable or not error.where:
            raise
        fix = join_fixes(error.fix, f"leave such {clf.NOUN} out with {SKIP}")
        raise error.replace(fix=fix) from None
    context.data = splits
    if clf.inputs.can_be_cut and (count := int(clf.truncated(split.examples).sum())):
        what = f"{count:,} of {len(split):,} texts are longer than {clf.max_length} tokens"
        context.log(f"{what} and were cut there")
    metrics |= {} if source is None else {"seen_in_training": num_seen}
    same_examples = source is None and splits.evaluated_split == "validation"
    metrics |= clf.kind_.coverage(clf, context.predictions, split.labels, same_examples)
    return metrics | ({"left_out": left_out} if left_out else {})


def seen_in_training(context: RunContext, split: Any) -> int | None:
    """Number of examples that equal or duplicate a training example; None: unknown."""
    if (train := context.training_split()) is None:
        return None
    training_keys = set(copy_keys(train))
    return sum(key in training_keys for key in copy_keys(split))


def evaluate_every_epoch(context: RunContext, source: str | None) -> list[dict[str, Any]]:
    """Metrics of the evaluated split, or of other data, for the weights of each epoch."""
    split, notes = _labeled_split(context, _reload_splits(context, source), source)
    for line in (*notes, f"{len(split):,} {context.estimator.NOUN} of {split.origin}"):
        context.log(line)
    return evaluate_epochs(
        context, lambda: evaluate_split(context.estimator, split, context.recipe, context.count)[0]
    )


def collect_numbers(context: RunContext) -> dict[str, Any]:
    """``numbers.json`` for the report: predicted and true numbers of the test split, and largest errors."""
    split, outputs = context.data.evaluated, context.predictions
    if split is None or outputs is None:
        return {}
    count = context.recipe.evaluate.shown
    return {"numbers.json": largest_errors(context.estimator, split, outputs[:, 0], count)}


def labels_and_confidences(clf: Any, probabilities: np.ndarray) -> tuple[list[Any], list[float]]:
    """Labels (None where the classifier abstains) and their confidences, from probabilities ``[n, C]``.

    For multi-label, the labels are label sets.
    """
    labels = getattr(clf, "decide_or_abstain", clf.decide)(probabilities).tolist()
    return labels, clf.kind_.confidence(probabilities, clf.predicted_index(probabilities)).tolist()


# --- cross-validation ----------------------------------------------------------------------------


class LabelsOutOfFold(OutOfFold):
    """Cross-validation of classifiers (also multi-label) and regressors."""

    PACKAGES = ("scikit-learn",)

    def __init__(self, recipe: Any, splits: Splits, estimator: Any):
        super().__init__(recipe, splits, estimator)
        train = self.train
        self.kind = self.target = estimator.infer_kind(train.labels)
        self.classes = list(self.kind.classes(train.labels, location_of_labels(splits.dataset, train.origin)))
        self.targets = self.kind.encode(train.labels, self.classes, train.origin, train.rows)
        self.measure, self.METRICS = self.kind.measure or main_metric(recipe), self.kind.metrics_per_fold

    def assign(self, folds: int) -> np.ndarray:
        """The fold of each training example ``[n]``, stratified by class."""
        data, train, groups = self.recipe.data, self.train, self.train.names()
        if data.copies in ("together", "sides"):
            groups = copy_keys(train, data.copies == "sides")
        origin = location_of_labels(self.splits.dataset, train.origin)
        blocks = data.hold_out == "blocks"
        return stratified_folds(train.labels, folds, data.split_seed, groups, blocks, origin=origin)

    def evaluate(self, model: Any, split: Any) -> tuple[int, dict[str, Any], np.ndarray]:
        kind, model_classes, threshold = model.kind_, model.classes_.tolist(), model.threshold_
        classes, p = self.classes, model.cached_outputs(split.examples)
        if model_classes != classes:  # the model does not know a rare label that occurs only in this fold
            if kind.is_multilabel:
                thresholds = kind.thresholds(threshold, model_classes)[None]
                threshold = align_columns(thresholds, model_classes, classes, 1.0)[0]
            p = align_columns(p, model_classes, classes, 0.0)
        targets = kind.encode(split.labels, classes, split.origin)
        scores = kind.score(p, targets, classes, kind.predicted_index(p, threshold), bootstrap=0)
        metrics = {key: scores[key] for key in self.METRICS if key in scores}
        if kind.is_multilabel:
            metrics["threshold"] = to_json_types(threshold)
        return scores["n"], metrics, p

    def pooled_metrics(
        self, folder: Path, predictions: list[Any], fold: np.ndarray, records: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        kind, classes, train = self.kind, np.asarray(self.classes), self.train
        out, indices = np.array(predictions, np.float64), np.empty(self.targets.shape, self.targets.dtype)
        for number, record in enumerate(records):
            indices[fold == number] = kind.predicted_index(out[fold == number], record.get("threshold"))
        resamples = self.recipe.evaluate.bootstrap
        scores = kind.score(out, self.targets, self.classes, indices, bootstrap=resamples)
        metrics = {"test": scores, "measure": self.measure}
        metrics |= {"label_names": [str(c) for c in self.classes]}
        predicted = kind.labels(indices.astype(bool) if kind.is_multilabel else indices, classes).tolist()
        confidences = kind.confidence(out, indices).tolist()
        path = folder / "predictions.csv"
        kind.write(path, train, OUT_OF_FOLD, out, self.classes, predicted, confidences)
        return metrics if kind.predicts_labels else metrics | {"numbers": {"held_out": 0}, "intervals": []}


# --- the weights of each epoch --------------------------------------------------------------------


def evaluate_epochs(
    context: RunContext, evaluate: Callable[[], dict[str, Any]], final: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Metrics of a split for the saved weights of each epoch, computed by ``evaluate``.

    ``final`` are the metrics of the final model, which are reused for the epoch with equal weights.
    """
    clf, folder = context.estimator, context.folder / "checkpoints" / "epochs"
    epochs = saved_epochs(folder)
    if not epochs:
        has_option = hasattr(context.recipe.train, "keep_epochs")
        fix = "Train with --set keep_epochs=true" if has_option else "Leave --every-epoch out"
        raise ConfigError("the weights of the epochs were not saved", where=str(folder), fix=fix)
    final_weights = {name: tensor.clone() for name, tensor in clf.model_.state_dict().items()}
    losses, out = _batch_losses(context.folder / "history.jsonl"), []
    try:
        for epoch, path in epochs:
            step, weights = epoch_weights(path)
            _load_weights(clf, weights, path)
            is_final = final is not None and all(
                torch.equal(final_weights[name], w) for name, w in weights.items()
            )
            metrics = final if is_final and final is not None else evaluate()
            keys = ("n", "accuracy", "accuracy_interval", "macro_f1", "log_loss")
            record = {"epoch": epoch, "step": step, "batch_loss": losses.get(epoch)}
            out.append(record | {key: metrics[key] for key in keys})
    finally:
        clf.model_.load_state_dict(final_weights)
        clf._compute_model = None
    return out


def _load_weights(clf: Any, weights: Mapping[str, torch.Tensor], path: Path) -> None:
    state = clf.model_.state_dict()
    for name, tensor in weights.items():
        if name not in state or state[name].shape != tensor.shape:
            raise CheckpointError(f"{name} does not match the model", where=str(path), fix="Train again")
    clf.model_.load_state_dict(state | dict(weights))
    clf._compute_model = None  # the cached copy has the old weights


def _batch_losses(history: Path) -> dict[int, float]:
    """Map each epoch (from 1) to the mean loss over its steps."""
    by_epoch: dict[int, list[float]] = {}
    for record in read_history(history):
        if record["kind"] == "step":
            by_epoch.setdefault(record["epoch"] + 1, []).append(record["loss"])
    return {epoch: sum(losses) / len(losses) for epoch, losses in by_epoch.items()}


# --- metrics per value of a column, such as shop, language or month -------------------------------


MAX_GROUPS = 30  # maximum number of values with their own metrics; the other values form one group
MAX_RARE_GROUPS = 5  # with at most so many values, rare values are allowed
BY_OPTION = "--by"
BY_FIX = "Name a column whose values repeat; put numbers and dates into classes in the table first"


def check_column(context: RunContext, source: str | None, column: str) -> None:
    """Check the option ``--by`` before the evaluation; raise ConfigError if the column cannot be used."""
    if not hasattr(getattr(context.estimator, "kind_", None), "score"):
        what = f"{context.recipe.task} is not evaluated by a column"
        raise NotForThisModelError(
            what, where=BY_OPTION, fix="Leave it out; classifiers and regressors have it"
        )
    path = Path(source or str(getattr(context.recipe.data, "source", "")))
    if path.suffix.lower() in READERS and path.is_file():
        _check_repeats(column, list(_column(path, column).values()))


def slices(context: RunContext, column: str) -> dict[str, Any]:
    """Metrics of the evaluated split for each value of a column of its table, the most frequent first.

    Values beyond the 30 most frequent form a last group with ``value`` None; ``values`` is their number.
    """
    split, predictions, clf = context.data.evaluated, context.predictions, context.estimator
    path = Path(str(split.origin))
    if split.rows is None or path.suffix.lower() not in READERS or not path.is_file():
        what, fix = f"{split.origin} is not a single table with other columns", "Give one table by --data"
        raise ConfigError(what, where=BY_OPTION, fix=fix)
    value_of_row = _column(path, column)
    values = [value_of_row.get(row, "") for row in split.rows]
    counts = sorted(Counter(values).items(), key=lambda item: (-item[1], item[0]))
    counts_shown, num_others = dict(counts[:MAX_GROUPS]), len(counts) - MAX_GROUPS

    def group(entries: dict[str, Any], mask: np.ndarray) -> dict[str, Any]:
        part, outputs = split.select(np.flatnonzero(mask).tolist()), predictions[mask]
        return entries | score_probabilities(clf, part, outputs, context.recipe, clf.predicted_index(outputs))

    groups = [group({"value": value}, np.array([v == value for v in values])) for value in counts_shown]
    if num_others > 0:
        is_other = np.array([v not in counts_shown for v in values])
        groups.append(group({"value": None, "values": num_others}, is_other))
    return {"column": column, "groups": groups}


def _column(path: Path, column: str) -> dict[int, str]:
    """Map row numbers to the column's values as text; raise ConfigError for an unknown column."""
    table = read_table(path, ignore_error)
    if column not in table.names:
        what = f"{path} has no column {column!r}"
        raise ConfigError(what, where=BY_OPTION, fix=suggest(column, table.names))
    return column_as_text(table, column)


def column_as_text(table: Table, column: str) -> dict[int, str]:
    """Map row numbers to the column's values as text, which is empty for missing values."""
    names = table.class_names.get(column)
    return {row: _cell_text(value, names) for row, value in zip(table.rows, table.read(column), strict=True)}


def _cell_text(value: Any, names: Sequence[str] | None) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return value.strip()
    if names and isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json_text(value, default=str)


def _check_repeats(column: str, values: Sequence[str]) -> None:
    """Raise ConfigError if most values occur only once, or most rows have a rare value."""
    counts = Counter(values)
    num_unique = sum(n == 1 for n in counts.values())
    covered = sum(n for _, n in counts.most_common(MAX_GROUPS))
    if len(counts) > MAX_RARE_GROUPS and (2 * num_unique > len(counts) or 2 * covered < len(values)):
        what = (
            f"{column} has {len(counts):,} values in {len(values):,} rows: too few rows per value to evaluate"
        )
        raise ConfigError(what, where=BY_OPTION, fix=BY_FIX)
