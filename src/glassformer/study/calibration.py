"""Calibrate a finished run (temperature, threshold, abstention), and check int8, on its validation data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.checkpoints.files import read_json, replace_text
from glassformer.checkpoints.locks import writing
from glassformer.config import plain
from glassformer.data.duplicates import copy_keys
from glassformer.data.splits import if_labeled
from glassformer.errors import (
    BadValueError,
    ConfigError,
    DataError,
    GlassformerError,
    NotForThisModelError,
    counted,
)
from glassformer.evaluate.calibrate import (
    FOLDS,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    Metric,
    class_metric,
    cross_validated_metric,
    describe,
    fit_temperature,
)
from glassformer.evaluate.predict import softmax
from glassformer.finite import json_text
from glassformer.runtime import choose_device, choose_dtype
from glassformer.tasks.card import write_card
from glassformer.tasks.catalog import TASKS, check_classifies, known_recipe
from glassformer.tasks.classifier import Classifier, abstaining, abstention, check_abstain, fit_decision
from glassformer.tasks.int8 import describe_int8, int8_obstacle, refuse_int8
from glassformer.tasks.load import load
from glassformer.tasks.run_folder import read_run_recipe, with_bad_rows, with_columns
from glassformer.tasks.run_steps import reload_data
from glassformer.tasks.supervised import load_other_data, with_known_labels
from glassformer.tasks.task import RunContext

Say = Callable[[str], None]


def calibrate_run(
    folder: str | Path,
    data: str | None = None,
    threshold: Metric | None = None,
    *,
    abstain_below: float | None = None,
    bootstrap: int = 1000,
    say: Say = lambda line: None,
    columns: Mapping[str, str] | None = None,
    on_bad_row: str | None = None,
) -> dict[str, Any]:
    """Fit the temperature and optionally a threshold; save the model, calibration.json and the report again.

    Args:
        folder: a run folder.
        data: labeled examples to calibrate on, instead of the run's validation split.
        threshold: the metric that thresholds maximize, one for two classes, otherwise one per class; None:
            predict the most probable class.
        abstain_below: the model gives no label if the label's probability is below this; None: always one.
        columns: names of columns in ``data`` that differ from the run's: key of its recipe -> name.
        on_bad_row: ``skip`` leaves out unusable rows and images of ``data``; ``refuse`` raises an error at
            the first. None: as in the recipe.

    The test split is evaluated, but not used for fitting. Calibrating again gives the same result, since it
    starts from the model's logits.

    Raises:
        ConfigError: no validation data, an invalid ``abstain_below``, or another process writes there.
        DataError: labels that the model does not know, or only one class.
    """
    folder = Path(folder)
    recipe = read_run_recipe(folder)
    target = TASKS[recipe.task].target
    if target.no_calibration:
        what, fix = target.no_calibration
        raise NotForThisModelError(what, where=str(folder), fix=fix)
    check_classifies(recipe, words=True)
    for name, value in {"threshold": threshold, "abstain_below": abstain_below}.items():
        if target.has_word_labels and value is not None:
            what = "tags of words have no threshold"
            raise NotForThisModelError(
                what, where=name, fix="Leave it out: the most probable tag is predicted"
            )
    with writing(folder):
        data_recipe = with_bad_rows(with_columns(recipe, columns or {}), on_bad_row, other=True)
        clf = load(folder)
        other_split = _other(data, data_recipe, clf, say) if data else None
        other_data = data, other_split, on_bad_row == "skip"
        splits = _own_splits(RunContext(TASKS[recipe.task], recipe, folder, say), bool(data))
        return _calibrate(folder, recipe, clf, splits, other_data, threshold, abstain_below, bootstrap, say)


def _own_splits(work: RunContext, has_other_data: bool) -> Any:
    """The run's own splits; None if they have changed or are missing and other data are used."""
    try:
        return reload_data(work, ("validation", "judged"))
    except DataError as error:
        if not has_other_data:
            raise
        consequence = "the run's test split is not evaluated, and overlap with its training data is unknown"
        work.log(f"{error.where} {error.what}: {consequence}")
        return None


def _calibrate(
    folder: Path,
    recipe: Any,
    clf: Any,
    splits: Any,
    other_data: tuple[str | None, Any, bool],
    threshold: Metric | None,
    abstain_below: float | None,
    bootstrap: int,
    say: Say,
) -> dict[str, Any]:
    data, other_split, skip_unknown = other_data
    chosen_by, name = (other_split, data) if data else (if_labeled(splits.validation), "validation")
    if chosen_by is None:
        what = "this run has no validation split, and calibration must not use the test split"
        raise BadValueError(what, where=str(folder), fix="Give other labeled examples with --data")
    if TASKS[recipe.task].target.has_word_labels:
        return _calibrate_words(folder, recipe, clf, splits, (chosen_by, name), bootstrap, say)
    kind = clf.kind_
    abstain_threshold = check_abstain(abstain_below, kind)
    if threshold == "f1" and not kind.is_multilabel and len(clf.classes_) != 2:
        what = f"f1 is defined for two classes, and there are {len(clf.classes_)}"
        raise NotForThisModelError(what, where="threshold", fix="Use macro_f1 or accuracy")
    chosen_by, unknown = with_known_labels(clf, chosen_by, skip_unknown)
    if unknown:
        say(unknown)
    say(f"calibrating on {len(chosen_by):,} {name} examples")
    logits, targets = clf.logits(chosen_by.examples), _targets(clf, chosen_by)
    trained_thresholds = _trained_thresholds(folder, clf) if kind.is_multilabel else None
    temperature, thresholds = fit_decision(kind, logits, targets, threshold, trained_thresholds)
    out = _outcome(clf, temperature, kind.error_mask(logits, targets), name) | {
        "threshold": plain(thresholds),
        "metric": threshold or ("f1" if thresholds is not None else None),
        "abstain_below": abstain_threshold,
        "unseen": None
        if thresholds is None or kind.is_multilabel
        else _cross_validated(kind, logits, targets, threshold),
    }
    decisions = (1.0, trained_thresholds), (temperature, thresholds), abstain_threshold
    out["splits"] = {name: _before_and_after(clf, logits, targets, *decisions, bootstrap)}
    p = kind.probabilities(logits, temperature)
    out["abstaining"] = None if kind.is_multilabel else abstaining(kind, p, targets, thresholds)
    judged_split = if_labeled(splits and splits.judged)
    out["seen"] = _count_overlaps(chosen_by, splits, judged_split) if data and splits else {}
    if judged_split is not None and splits.judged_name != "validation":
        say(f"evaluating on {counted(len(judged_split), 'example')} of {splits.judged_name}")
        test_outputs = clf.logits(judged_split.examples), _targets(clf, judged_split)
        out["splits"][splits.judged_name] = _before_and_after(clf, *test_outputs, *decisions, bootstrap)
    clf.threshold_, clf.abstain_below_ = thresholds, abstain_threshold
    return _saved(folder, recipe, clf, temperature, out)


def _outcome(clf: Any, temperature: Any, mistakes: Any, name: str) -> dict[str, Any]:
    """The entries of calibration.json for all kinds of models; ``name``: the split calibrated on."""
    return {
        "kind": "calibration",
        "temperature": plain(temperature),
        "threshold": None,
        "metric": None,
        "mistakes": mistakes,
        "at_bound": not np.all(
            (temperature > MIN_TEMPERATURE * 1.01) & (temperature < MAX_TEMPERATURE * 0.99)
        ),
        "chosen_by": name,
        "classes": [str(c) for c in clf.classes_.tolist()],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _trained_thresholds(folder: Path, clf: Any) -> np.ndarray | None:
    """The thresholds ``[K]`` that the fit of a multi-label model chose, before any calibration; None: 0.5."""
    path = folder / "metrics.json"
    if not path.is_file():
        return clf.threshold_
    thresholds = read_json(path).get("thresholds")
    return thresholds and np.array([thresholds[str(c)] for c in clf.classes_.tolist()])


def _saved(folder: Path, recipe: Any, clf: Any, temperature: Any, out: dict[str, Any]) -> dict[str, Any]:
    """Save the model with its temperature, calibration.json and the report; returns ``out``."""
    clf.temperature_ = temperature
    clf.save(folder / "model", overwrite=True)
    write_card(folder / "model", clf, folder)
    replace_text(folder / "calibration.json", json_text(out, indent=1) + "\n")
    if (folder / "metrics.json").is_file():
        TASKS[recipe.task].render_report(folder, known_recipe(folder))
    return out


def _calibrate_words(
    folder: Path,
    recipe: Any,
    clf: Any,
    splits: Any,
    split_and_name: tuple[Any, str],
    bootstrap: int,
    say: Say,
) -> dict[str, Any]:
    """Fit a tagger's temperature on the words of validation sentences; the bootstrap resamples sentences."""
    chosen_by, name = split_and_name
    say(f"calibrating on the words of {len(chosen_by):,} {name} sentences")
    words = _Words(clf, chosen_by)
    temperature = fit_temperature(words.logits[words.is_known], words.targets[words.is_known])
    mistakes = int((words.logits.argmax(1) != words.targets)[words.is_known].sum())
    out = _outcome(clf, temperature, mistakes, name) | {
        "splits": {name: words.before_and_after(temperature, bootstrap)}
    }
    test_split = if_labeled(splits and splits.judged)
    if test_split is not None and splits.judged_name != "validation":
        say(f"evaluating on {counted(len(test_split), 'sentence')} of {splits.judged_name}")
        out["splits"][splits.judged_name] = _Words(clf, test_split).before_and_after(temperature, bootstrap)
    return _saved(folder, recipe, clf, temperature, out)


class _Words:
    """Logits and tags of the words of a split."""

    def __init__(self, clf: Any, split: Any):
        self.clf, self.split = clf, split
        logits = clf.logits(split.words)
        self.logits = np.concatenate(logits)  # [W, C]
        self.targets = clf.class_indices(clf.true_tags(split.tags, split.words, split.origin))  # [W]
        self.is_known = self.targets >= 0  # a tag that was not seen in training is left out
        self.sentences = np.repeat(np.arange(len(logits)), list(map(len, logits)))
        if not self.is_known.any():
            raise DataError("no word has a tag that the model knows", where=split.origin)
        metrics = clf.judge(split.words, split.tags, bootstrap=0, answers=clf.decide(logits))
        self.metrics = {key: metrics[key] for key in ("accuracy", "entity_f1")}  # same for all temperatures

    def before_and_after(self, temperature: float, resamples: int) -> dict[str, Any]:
        """Metrics before and after calibration."""
        z, y, groups = self.logits[self.is_known], self.targets[self.is_known], self.sentences[self.is_known]
        return {
            stage: describe(softmax(z, t), y, resamples=resamples, groups=groups) | self.metrics
            for stage, t in (("before", 1.0), ("after", temperature))
        }


def _cross_validated(
    kind: Any, logits: np.ndarray, targets: np.ndarray, metric: Any
) -> dict[str, Any] | None:
    """The metric with cross-validated thresholds, since it is optimistic on the examples that thresholds were
    fitted on. ``before``: without thresholds. None: too few examples.
    """
    classes = logits.shape[1]

    def predict(fitted: np.ndarray, held_out: np.ndarray) -> np.ndarray:
        temperature, limit = fit_decision(kind, logits[fitted], targets[fitted], metric)
        return kind.predicted_index(kind.probabilities(logits[held_out], temperature), limit)

    def score(predicted: np.ndarray) -> float:
        if metric == "f1":
            hits = int((predicted & targets).sum())
            return 2 * hits / max(int(predicted.sum() + targets.sum()), 1)
        return class_metric(predicted, targets, classes, metric)

    cross_validated = cross_validated_metric(predict, score, targets)
    most_probable = kind.predicted_index(kind.probabilities(logits))
    return (
        None
        if cross_validated is None
        else {"folds": FOLDS, "before": score(most_probable), "after": cross_validated}
    )


def _before_and_after(
    clf: Any,
    logits: np.ndarray,
    targets: np.ndarray,
    before: Any,
    after: Any,
    abstain_threshold: float | None,
    n: int,
) -> dict[str, Any]:
    """Metrics of one split before and after calibration; ``n``: number of resamples."""
    out, kind = {}, clf.kind_
    for name, (temperature, threshold) in (("before", before), ("after", after)):
        p = kind.probabilities(logits, temperature)
        meter = kind.meter(clf.classes_.tolist())
        meter.update(p, targets, predicted=kind.predicted_index(p, threshold))
        scores = meter.result(bootstrap=n)
        keys = ("accuracy", "accuracy_interval", "macro_f1", "macro_f1_interval", *kind.main_metrics)
        out[name] = kind.describe(p, targets, n) | {k: scores[k] for k in keys if k in scores}
        if abstain_threshold is not None and name == "after":
            out[name]["abstention"] = abstention(kind, p, targets, threshold, abstain_threshold)
    return out


def _count_overlaps(chosen_by: Any, splits: Any, test_split: Any) -> dict[str, int]:
    """Number of calibration examples that are, or are copies of, training or test examples of the run."""
    groups = copy_keys(chosen_by)
    parts = {"train": splits.train, splits.judged_name: test_split}
    keys = {name: set(copy_keys(part)) for name, part in parts.items() if part is not None}
    return {name: sum(key in training_groups for key in groups) for name, training_groups in keys.items()}


def _targets(clf: Any, split: Any) -> np.ndarray:
    return clf.targets(split.labels, split.origin, split.rows)


def _other(data: str, recipe: Any, clf: Any, say: Say) -> Any:
    """The labeled examples of other data: the validation split, or else the first split."""
    splits = load_other_data(TASKS[recipe.task], recipe, clf, data)
    for line in getattr(splits.dataset, "messages", ()):
        say(line)
    split = if_labeled(splits.validation or next(iter(splits.dataset.splits.values())))
    if split is None:
        raise DataError("has no labels", where=data)
    return split


# --- int8 -----------------------------------------------------------------------------------------
#
# Check int8 inference once on a finished run's validation labels, and save the result with the model.


def set_precision(folder: str | Path, model: Any, precision: str, say: Callable[[str], None]) -> None:
    """Set the precision of a loaded model; for int8, run its check if that was not done.

    Args:
        folder: the run, or the model folder in it.

    Raises:
        ConfigError: an unknown precision, or int8 for a model without labels or validation examples.
    """
    choose_dtype(precision, torch.device("cpu"))
    if precision == "int8":
        _check_int8(Path(folder), model, say)
    model.precision = precision


def _check_int8(folder: Path, model: Any, say: Callable[[str], None]) -> None:
    if not isinstance(model, Classifier):
        refuse_int8("int8", type(model).__name__)
    if model.int8_ is not None or int8_obstacle(model.model_, choose_device(model.device)) is not None:
        return
    run = folder.resolve().parent if folder.resolve().name == "model" else folder
    if not (run / "config.toml").is_file():
        what = "int8 is checked on validation labels, and this folder is not a run with a validation split"
        fix = "Call check_int8(X, y) in Python and save, or use auto"
        raise ConfigError(what, where=str(folder), fix=fix)
    recipe = read_run_recipe(run)
    work = RunContext(TASKS[recipe.task], recipe, run, say)
    validation = if_labeled(reload_data(work, ["validation"]).validation)
    if validation is None:
        what = "int8 is checked on validation labels, and this run has no validation split"
        raise ConfigError(what, where=str(run), fix="Train with --set validation_size=0.1, or use auto")
    say(f"int8 is checked on {len(validation):,} validation examples, once for this model")
    say(f"int8 is {describe_int8(model.check_int8(validation.examples, validation.labels))}")
    try:
        with writing(run):
            model.save(run / "model", overwrite=True)
            write_card(run / "model", model, run)
    except (OSError, GlassformerError) as error:
        say(f"the result of the int8 check could not be saved with the model: {error}")
