"""Calibration and int8 check of finished runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer import errors
from glassformer.checkpoints.files import read_json, replace_text
from glassformer.checkpoints.locks import write_lock
from glassformer.config import to_json_types
from glassformer.data.duplicates import copy_keys
from glassformer.data.splits import labeled_or_none
from glassformer.evaluate import calibrate
from glassformer.evaluate.predict import softmax
from glassformer.finite import json_text
from glassformer.runtime import choose_device, choose_dtype
from glassformer.tasks.card import write_card
from glassformer.tasks.catalog import TASKS, check_classifies, known_recipe
from glassformer.tasks.classifier import (
    Classifier,
    abstention,
    abstention_levels,
    check_abstain,
    describe_int8,
    fit_decision,
    int8_obstacle,
)
from glassformer.tasks.estimator import check_not_int8
from glassformer.tasks.load import load
from glassformer.tasks.run import read_run_recipe, with_bad_rows, with_columns
from glassformer.tasks.supervised import load_other_data, with_known_labels
from glassformer.tasks.task import RunContext

Log = Callable[[str], None]


def calibrate_run(
    folder: str | Path,
    data: str | None = None,
    threshold: calibrate.Metric | None = None,
    *,
    abstain_below: float | None = None,
    bootstrap: int = 1000,
    log: Log = lambda line: None,
    columns: Mapping[str, str] | None = None,
    on_bad_row: str | None = None,
) -> dict[str, Any]:
    """Calibrate a run: fit the temperature and, optionally, decision thresholds, and set ``abstain_below``.

    The model and the report are saved again, together with calibration.json.

    Args:
        folder: a run folder.
        data: labeled examples to calibrate on, instead of the run's validation split.
        threshold: the metric that the thresholds maximize. Two classes have one threshold, more classes one
            per class. None: predict the most probable class.
        abstain_below: the model predicts no label if the probability is lower; None: it always predicts one.
        columns: columns of ``data`` with other names than in the run: key of its recipe -> name.
        on_bad_row: ``skip`` leaves out unusable rows and images of ``data``; ``refuse`` raises an error for
            them. None: as in the recipe.

    The test split is evaluated, but not used for fitting. A second calibration gives the same result, because
    it also starts from the model's logits.

    Raises:
        ConfigError: no validation data, an invalid ``abstain_below``, or another process writes there.
        DataError: labels that the model does not know, or only one class.
    """
    folder = Path(folder)
    recipe = read_run_recipe(folder)
    target = TASKS[recipe.task].target
    _check_calibrates(target, folder)
    check_classifies(recipe, words=True, where=str(folder))
    for name, value in {"threshold": threshold, "abstain_below": abstain_below}.items():
        if target.has_word_labels and value is not None:
            what = "has no effect on taggers, which predict the most probable tag"
            fix = "Leave it out"
            raise errors.NotForThisModelError(what, where=name, fix=fix)
    with write_lock(folder):
        data_recipe = with_bad_rows(with_columns(recipe, columns or {}), on_bad_row, is_other_data=True)
        clf = load(folder)
        _check_calibrates(getattr(clf, "kind_", target), folder)
        context = RunContext(TASKS[recipe.task], data_recipe, folder, log, estimator=clf)
        other_split = _read_labeled_split(data, context) if data else None
        splits = _run_splits(replace(context, recipe=recipe), bool(data))
        split, name = (other_split, data) if data else (labeled_or_none(splits.validation), "validation")
        if split is None:
            what = "the run has no validation split, and calibration must not use the test split"
            raise errors.BadValueError(what, where=str(folder), fix="Give other labeled examples with --data")
        test_split = labeled_or_none(splits and splits.evaluated)
        if target.has_word_labels:
            out, evaluate, noun = *_calibrate_words(clf, split, name, bootstrap, log), "sentence"
        else:
            split, notes = with_known_labels(clf, split, on_bad_row == "skip")
            for note in notes:
                log(note)
            options = threshold, check_abstain(abstain_below, clf.kind_), bootstrap
            out, evaluate, noun = *_calibrate(folder, clf, split, name, *options, log), "example"
            out["seen"] = _count_overlaps(split, splits, test_split) if data and splits else {}
        if test_split is not None and splits.evaluated_split != "validation":
            log(f"evaluating on {errors.counted(len(test_split), noun)} of {splits.evaluated_split}")
            out["splits"][splits.evaluated_split] = evaluate(test_split)
        _save(clf, folder)
        replace_text(folder / "calibration.json", json_text(out, indent=1) + "\n")
        if (folder / "metrics.json").is_file():
            TASKS[recipe.task].render_report(folder, known_recipe(folder))
        return out


def _save(clf: Any, run: Path) -> None:
    clf.save(run / "model", overwrite=True)
    write_card(run / "model", clf, run)


def _check_calibrates(target: Any, folder: Path) -> None:
    if target.no_calibration:
        what, fix = target.no_calibration
        raise errors.NotForThisModelError(
            what, where=str(folder), fix=fix.replace("RUN", shlex.quote(str(folder)))
        )


def _run_splits(context: RunContext, has_other_data: bool) -> Any:
    """The splits of the run; None if its data have changed or are missing, and other data are used."""
    try:
        return context.reload_data(("validation", "judged"))
    except errors.DataError as error:
        if not has_other_data:
            raise
        consequence = "the run's test split is not evaluated, and overlap with its training data is unknown"
        context.log(f"{error.where} {error.what}: {consequence}")
        return None


# The content of calibration.json, and a function that evaluates another split
Calibrated = tuple[dict[str, Any], Callable[[Any], dict[str, Any]]]


def _calibrate(
    folder: Path, clf: Any, split: Any, name: str, threshold: Any, abstain_below: Any, n: int, log: Log
) -> Calibrated:
    """Calibrate a loaded classifier; ``n`` is the number of resamples for intervals."""
    kind = clf.kind_
    if threshold == "f1" and not kind.is_multilabel and len(clf.classes_) != 2:
        what = f"f1 is defined for two classes, but there are {len(clf.classes_)}"
        raise errors.NotForThisModelError(what, where="threshold", fix="Use macro_f1 or accuracy")
    log(f"calibrating on {len(split):,} {name} examples")
    logits, targets = clf.logits(split.examples), _targets(clf, split)
    trained_thresholds = _trained_thresholds(folder, clf) if kind.is_multilabel else None
    temperature, thresholds = fit_decision(kind, logits, targets, threshold, trained_thresholds)
    cross_validates = thresholds is not None and not kind.is_multilabel
    decisions = (1.0, trained_thresholds), (temperature, thresholds), abstain_below
    p = kind.probabilities(logits, temperature)
    out = _common_entries(clf, temperature, kind.count_errors(logits, targets), name) | {
        "threshold": to_json_types(thresholds),
        "metric": threshold or ("f1" if thresholds is not None else None),
        "abstain_below": abstain_below,
        "unseen": _cross_validated(kind, logits, targets, threshold) if cross_validates else None,
        "splits": {name: _before_and_after(clf, logits, targets, *decisions, n)},
        "abstaining": None if kind.is_multilabel else abstention_levels(kind, p, targets, thresholds),
    }
    clf.temperature_, clf.threshold_, clf.abstain_below_ = temperature, thresholds, abstain_below
    return out, lambda s: _before_and_after(clf, clf.logits(s.examples), _targets(clf, s), *decisions, n)


def _common_entries(clf: Any, temperature: Any, mistakes: Any, name: str) -> dict[str, Any]:
    """The entries of calibration.json for all kinds of models; ``name`` is the calibration split."""
    low, high = calibrate.MIN_TEMPERATURE * 1.01, calibrate.MAX_TEMPERATURE * 0.99
    is_inside = (temperature > low) & (temperature < high)
    return {
        "kind": "calibration",
        "temperature": to_json_types(temperature),
        "threshold": None,
        "metric": None,
        "mistakes": mistakes,
        "at_bound": not np.all(is_inside),
        "chosen_by": name,
        "classes": [str(c) for c in clf.classes_.tolist()],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _trained_thresholds(folder: Path, clf: Any) -> np.ndarray | None:
    """The thresholds ``[K]`` of a multi-label model after training; None: all are 0.5."""
    path = folder / "metrics.json"
    if not path.is_file():
        return clf.threshold_
    thresholds = read_json(path).get("thresholds")
    return thresholds and np.array([thresholds[str(c)] for c in clf.classes_.tolist()])


def _calibrate_words(clf: Any, split: Any, name: str, bootstrap: int, log: Log) -> Calibrated:
    """Calibrate a tagger on the words of sentences; the bootstrap resamples sentences."""
    log(f"calibrating on the words of {len(split):,} {name} sentences")
    words = _Words(clf, split)
    clf.temperature_ = temperature = calibrate.fit_temperature(words.logits, words.targets)
    mistakes = int((words.logits.argmax(1) != words.targets).sum())
    out = _common_entries(clf, temperature, mistakes, name)
    out["splits"] = {name: words.before_and_after(temperature, bootstrap)}
    return out, lambda test: _Words(clf, test).before_and_after(temperature, bootstrap)


class _Words:
    """Logits and tags of the words of a split, except words whose tag did not occur in training."""

    def __init__(self, clf: Any, split: Any):
        logits = clf.logits(split.words)
        targets = clf.class_indices(clf.true_tags(split.tags, split.words, split.origin))
        is_known = targets >= 0
        if not is_known.any():
            raise errors.DataError("no word has a tag that the model knows", where=split.origin)
        self.logits, self.targets = np.concatenate(logits)[is_known], targets[is_known]  # [W, C], [W]
        self.sentences = np.repeat(np.arange(len(logits)), list(map(len, logits)))[is_known]
        metrics = clf.judge(split.words, split.tags, bootstrap=0, answers=clf.decide(logits))
        self.metrics = {key: metrics[key] for key in ("accuracy", "entity_f1")}  # same for all temperatures

    def before_and_after(self, temperature: float, resamples: int) -> dict[str, Any]:
        """The metrics before and after calibration with ``temperature``."""

        def metrics(temperature: float) -> dict[str, Any]:
            p = softmax(self.logits, temperature)
            options: dict[str, Any] = {"resamples": resamples, "groups": self.sentences}
            return calibrate.describe(p, self.targets, **options) | self.metrics

        return {"before": metrics(1.0), "after": metrics(temperature)}


def _cross_validated(
    kind: Any, logits: np.ndarray, targets: np.ndarray, metric: Any
) -> dict[str, Any] | None:
    """The metric without thresholds, and with cross-validated thresholds; None for too few examples.

    The metric on the examples that thresholds were fitted on would be optimistic.
    """
    classes = logits.shape[1]

    def predict(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        temperature, threshold = fit_decision(kind, logits[train], targets[train], metric)
        return kind.predicted_index(kind.probabilities(logits[test], temperature), threshold)

    def score(predicted: np.ndarray) -> float:
        if metric == "f1":
            true_positives = int((predicted & targets).sum())
            return 2 * true_positives / max(int(predicted.sum() + targets.sum()), 1)
        return calibrate.class_metric(predicted, targets, classes, metric)

    after = calibrate.cross_validated_metric(predict, score, targets)
    if after is None:
        return None
    before = score(kind.predicted_index(kind.probabilities(logits)))
    return {"folds": calibrate.FOLDS, "before": before, "after": after}


def _before_and_after(
    clf: Any,
    logits: np.ndarray,
    targets: np.ndarray,
    before: Any,
    after: Any,
    abstain_threshold: float | None,
    n: int,
) -> dict[str, Any]:
    """The metrics of one split before and after calibration.

    Args:
        before, after: temperature and thresholds.
        n: number of resamples for intervals.
    """
    out, kind = {}, clf.kind_
    for name, (temperature, threshold) in (("before", before), ("after", after)):
        p = kind.probabilities(logits, temperature)
        predicted = kind.predicted_index(p, threshold)
        scores = kind.score(p, targets, clf.classes_.tolist(), predicted, bootstrap=n)
        keys = ("accuracy", "accuracy_interval", "macro_f1", "macro_f1_interval", *kind.main_metrics)
        out[name] = kind.describe(p, targets, n) | {k: scores[k] for k in keys if k in scores}
        if abstain_threshold is not None and name == "after":
            out[name]["abstention"] = abstention(kind, p, targets, threshold, abstain_threshold)
    return out


def _count_overlaps(split: Any, splits: Any, test_split: Any) -> dict[str, int]:
    """The number of calibration examples that are copies of training or test examples of the run."""
    keys = copy_keys(split)
    others = {"train": splits.train, splits.evaluated_split: test_split}
    other_keys = {name: set(copy_keys(other)) for name, other in others.items() if other is not None}
    return {name: sum(key in known for key in keys) for name, known in other_keys.items()}


def _targets(clf: Any, split: Any) -> np.ndarray:
    return clf.encode_targets(split.labels, split.origin, split.rows)


def _read_labeled_split(data: str, context: RunContext) -> Any:
    """The labeled examples of other data: the validation split, or the first split if it is missing."""
    splits = load_other_data(context, data)
    for line in getattr(splits.dataset, "messages", ()):
        context.log(line)
    split = labeled_or_none(splits.validation or next(iter(splits.dataset.splits.values())))
    if split is None:
        raise errors.DataError("has no labels", where=data)
    return split


# --- int8 -----------------------------------------------------------------------------------------


def set_precision(folder: str | Path, model: Any, precision: str, log: Log) -> None:
    """Set the precision of a loaded model. For int8, run its check first, unless the model has a result.

    Args:
        folder: the run, or the model folder in it.

    Raises:
        ConfigError: an unknown precision, or int8 for a model without labels or validation examples.
    """
    choose_dtype(precision, torch.device("cpu"))
    if precision == "int8":
        _check_int8(Path(folder), model, log)
    model.precision = precision


def _check_int8(folder: Path, model: Any, log: Log) -> None:
    """Check int8 inference on the run's validation labels, and save the result with the model."""
    if not isinstance(model, Classifier):
        check_not_int8("int8", type(model).__name__)
    if model.int8_ is not None or int8_obstacle(model.model_, choose_device(model.device)) is not None:
        return
    run = folder.resolve().parent if folder.resolve().name == "model" else folder
    if not (run / "config.toml").is_file():
        what = "int8 needs a check on validation labels, but this folder is not a run with a validation split"
        fix = "Call check_int8(X, y) and save() in Python, or use auto"
        raise errors.ConfigError(what, where=str(folder), fix=fix)
    recipe = read_run_recipe(run)
    context = RunContext(TASKS[recipe.task], recipe, run, log)
    validation = labeled_or_none(context.reload_data(["validation"]).validation)
    if validation is None:
        what = "int8 needs a check on validation labels, but this run has no validation split"
        raise errors.ConfigError(
            what, where=str(run), fix="Train with --set validation_size=0.1, or use auto"
        )
    log(f"int8 is checked on {len(validation):,} validation examples, once for this model")
    log(f"int8 is {describe_int8(model.check_int8(validation.examples, validation.labels))}")
    try:
        with write_lock(run):
            _save(model, run)
    except (OSError, errors.GlassformerError) as error:
        log(f"the result of the int8 check could not be saved with the model: {error}")
