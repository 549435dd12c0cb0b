"""Multi-class targets: one class per example.

``Classes`` is also the base class of multi-label and regression targets, which override some methods.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from glassformer.checkpoints.settings import shorten
from glassformer.config import join_names
from glassformer.data.checks import check_classes, check_labels, location
from glassformer.data.doctor_checks import EMPTY_FIX, unlabeled_message
from glassformer.data.label_kinds import (
    explain_label_error,
    find_label_problem,
    match_known_labels,
    other_spellings,
)
from glassformer.data.label_sets import flat_labels
from glassformer.data.rejected import SKIP, RejectedRow
from glassformer.errors import (
    CheckpointError,
    DataError,
    InputError,
    NotForThisModelError,
    OtherSpellingWarning,
    ShapeError,
    UnclearColumnError,
    UnknownLabelError,
)
from glassformer.evaluate.calibrate import (
    class_by_threshold,
    describe,
    fit_temperature,
    tune_class_thresholds,
    tune_threshold,
)
from glassformer.evaluate.compare import (
    Statistic,
    accuracy_statistic,
    mcnemar,
    multilabel_f1_statistic,
    paired_difference,
)
from glassformer.evaluate.intervals import macro_f1_interval, multilabel_f1_interval, share_interval
from glassformer.evaluate.metrics import Plain, Share
from glassformer.evaluate.predict import softmax
from glassformer.evaluate.predictions import HEADER, label_cells, read_predictions, write_table
from glassformer.finite import finite, with_undefined
from glassformer.targets.target import (
    MIN_WRITTEN,
    RunPairs,
    RunPredictions,
    SeedRuns,
    Target,
    TestResult,
    hash_examples,
)
from glassformer.train.config import user_stacklevel
from glassformer.train.objectives import class_weights
from glassformer.train.solved_head import SolvedHead, solve_classes

MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-3, 1e3  # calibration itself searches 0.05 to 20
MAX_THRESHOLD = 1 + 1e-6  # slightly above 1, for a threshold that no probability reaches
MAX_SCORES = 2**25  # maximum number of scores for the curves (128 MiB)
MIN_F1_GAIN = 0.02  # smaller differences in macro-F1 are ignored
TINY = np.finfo(np.float64).eps  # replaces a probability of 0 in the log loss, as in scikit-learn
LOSS = {"log_loss": Plain("log loss", lower=True, form=".4f")}
LABEL_METRICS = {  # metrics of both multi-class and multi-label targets
    "weighted_f1": Share("weighted F1"),
    "roc_auc": Plain("ROC-AUC", form=".4f"),
    "average_precision": Plain("average precision", form=".4f"),
    **LOSS,
}

UNSEEN = "was not seen in training"


def unseen_labels(labels: Sequence[Any], classes: Sequence[Any]) -> dict[int, Any]:
    """The first label of each example that is not in ``classes``, by the index of the example."""
    known_labels = set(classes)
    unseen = ([x for x in flat_labels([row]) if x is not None and x not in known_labels] for row in labels)
    return {i: labels_of_row[0] for i, labels_of_row in enumerate(unseen) if labels_of_row}


def without_unseen_labels(split: Any, label_at: Mapping[int, Any], classes: Sequence[Any]) -> Any:
    """A split without the examples in ``label_at`` (see ``unseen_labels``).

    Raises:
        DataError: no example is left.
    """
    if not label_at:
        return split
    if len(label_at) == len(split):
        given = sorted({str(label) for label in label_at.values()})
        what = f"none of its labels ({join_names(given)}) was seen in training"
        fix = f"Write them as in training ({join_names(list(map(str, classes)))}), "
        fix += "or name the column of labels with label_column"
        raise UnclearColumnError(what, where=split.origin, fix=fix)
    return split.select([i for i in range(len(split)) if i not in label_at])


@dataclass(frozen=True)
class Classes(Target):
    """One class per example: the most probable one of a softmax over the logits.

    Args:
        booleans: the targets are booleans. ``predict`` returns booleans; internally the classes are 0 and 1.
    """

    booleans: bool = field(default=False, kw_only=True)
    predicts_labels: ClassVar[bool] = True
    metrics: ClassVar[Mapping[str, Share]] = {
        "accuracy": Share("accuracy"),
        "macro_f1": Share("macro-F1"),
        **LABEL_METRICS,
    }
    main_metrics: ClassVar[Sequence[str]] = ("accuracy", "macro_f1")
    compared: ClassVar[Sequence[str]] = ("accuracy", "macro_f1")
    metrics_per_fold: ClassVar[tuple[str, ...]] = ("accuracy", "macro_f1", "log_loss")
    file: ClassVar[str] = "predictions.csv"
    problem_type: ClassVar[str | None] = None  # in ``config.json``; None: the default of transformers
    saved_names: ClassVar[Sequence[str | None]] = (None,)  # names in ``glassformer.json``; see ``metadata``
    targets_noun: ClassVar[str] = "labels"  # noun for the targets in messages
    script_name: ClassVar[str] = "classes"  # file in scripts/ with the decision rule of exported folders
    is_multilabel: ClassVar[bool] = False  # each logit is a separate yes-or-no decision
    is_single_label: ClassVar[bool] = True
    # The best linear head on vectors ``[n, D]``.
    solve: ClassVar[Callable[..., SolvedHead]] = staticmethod(solve_classes)
    comparison_kind: ClassVar[str] = "predicts one label per example"

    # --- raw targets ------------------------------------------------------------------------------

    def read(self, y: Any, origin: str = "labels") -> list[Any]:
        """Check the labels, and return them as a list; see ``check_labels``."""
        return list(check_labels(y, origin))

    def classes(self, labels: Sequence[Any], origin: str = "labels") -> list[Any]:
        """The classes, in the order of the logits; raises DataError for fewer than two."""
        return check_classes(labels, origin)

    def encode(
        self, labels: Sequence[Any], classes: Sequence[Any], origin: str, rows: Sequence[int] | None = None
    ) -> np.ndarray:
        """Class numbers ``[n]`` int64; raises DataError for a label that is not in ``classes``."""
        labels = self.normalize(labels, classes)
        check_known(labels, classes, origin, rows)
        numbers = {label: i for i, label in enumerate(classes)}
        return np.array([numbers[label] for label in labels], np.int64)

    def normalize(self, labels: Sequence[Any], classes: Sequence[Any]) -> list[Any]:
        """The labels in the spelling of the classes that they match."""
        return match_known_labels(labels, classes, ignore_spelling=True)

    def stratify_by(self, labels: Sequence[Any], targets: np.ndarray) -> Sequence[Any]:
        """The values by which a random split is stratified."""
        return targets.tolist()

    # --- training ---------------------------------------------------------------------------------

    def weights(self, targets: np.ndarray, classes: list[Any], train: Any) -> np.ndarray | None:
        """One weight per example, with mean 1; None: all are 1."""
        if train.pos_weight is not None:
            what = "pos_weight is for multi-label targets"
            raise NotForThisModelError(what, where="pos_weight", fix="Weight classes with class_weight")
        return class_weights(targets, classes, train.class_weight)

    def criterion(self, targets: np.ndarray, classes: list[Any], train: Any) -> Callable | None:
        """The loss, as a function of logits and targets; None: cross-entropy over classes."""
        return None

    def validation_metrics(self, clf: Any, logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """The validation metrics that are recorded after an epoch."""
        out = self.score(softmax(logits), targets, clf.classes_.tolist(), bootstrap=0, curves=False)
        return {"loss": out["log_loss"], "accuracy": out["accuracy"], "macro_f1": out["macro_f1"]}

    def threshold(self, train: Any, logits: np.ndarray, targets: np.ndarray) -> Any:
        """The ``threshold_`` tuned on the validation examples of a fit; None: no tuning."""
        return None

    # --- predictions ------------------------------------------------------------------------------

    def probabilities(self, logits: np.ndarray, temperature: Any = 1.0) -> np.ndarray:
        """Probabilities ``[n, C]`` fp64; each row sums to 1."""
        return softmax(logits, temperature)

    def tensor_probabilities(self, logits: Tensor, temperature: Any = 1.0) -> Tensor:
        """Probabilities as tensors, in the dtype of the logits."""
        return (logits / temperature).softmax(-1)

    def predicted_index(self, probabilities: np.ndarray, threshold: Any = None) -> np.ndarray:
        """Class numbers ``[n]``, by default of the most probable classes.

        Args:
            threshold: for two classes, the minimum probability of the second class. For more classes
                ``[C]``: the predicted class has the largest ratio of its probability to its threshold.
        """
        if threshold is None:
            return probabilities.argmax(1)
        if np.ndim(threshold):
            return class_by_threshold(probabilities, threshold)
        return (probabilities[:, 1] >= threshold).astype(int)

    def labels(self, predicted: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """The labels ``[n]`` of these class numbers."""
        return classes[predicted]

    def format_prediction(self, predicted: np.ndarray, classes: np.ndarray) -> Any:
        """The return value of ``predict``."""
        return self.to_input_type(self.labels(predicted, classes))

    def to_input_type(self, labels: np.ndarray) -> np.ndarray:
        """Labels ``[n]`` with the type of the training labels; None stays None."""
        if not self.booleans or self.is_multilabel:
            return labels
        if labels.dtype != object:
            return labels.astype(bool)
        return np.array([None if label is None else bool(label) for label in labels], object)

    def confidence(self, probabilities: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        """The confidence ``[n]`` of each prediction: the probability of the predicted label."""
        return probabilities[np.arange(len(predicted)), predicted]

    def explain_target(self, probabilities: np.ndarray, threshold: Any) -> int:
        """Index of the label that is explained by default, from probabilities ``[C]``."""
        return int(self.predicted_index(probabilities[None], threshold)[0])

    def target_name(self, target: int, probabilities: np.ndarray, classes: Sequence[Any]) -> Any:
        """Name of class ``target`` in the explanation of an input with probabilities ``[C]``."""
        return classes[target]

    def score(
        self,
        outputs: ArrayLike,
        targets: ArrayLike,
        classes: Sequence[Any],
        predicted: ArrayLike | None = None,
        *,
        bootstrap: int = 1000,
        seed: int = 0,
        curves: bool = True,
    ) -> dict[str, Any]:
        """The metrics of predictions, ready for JSON; all except log_loss are in [0, 1].

        Args:
            outputs: ``[n, K]`` probabilities, whose rows sum to 1.
            targets: ``[n]`` class indices in [0, K).
            classes: the K >= 2 labels in the order of the columns.
            predicted: ``[n]`` class indices, if there is a threshold; None: the most probable classes.
            bootstrap: number of resamples; 0: no intervals.
            curves: whether to compute ROC-AUC and average precision.

        Returns:
            - n, accuracy, log_loss (nats), weighted_f1 (weighted by support)
            - macro_f1: over the classes that occur in targets or predictions, as in scikit-learn
            - roc_auc, average_precision: for ``positive``, or with more than two classes the one-vs-rest
              mean; None if only one class occurs, without ``curves``, or with more than ``MAX_SCORES``
              scores, and ``undefined`` has the reason
            - positive: the label of the second class; None for more than two classes
            - accuracy_interval: 95 %, percentile bootstrap; for 0 and 1 see ``share_interval``
            - macro_f1_interval: 95 %, see ``intervals``; both intervals are None with ``bootstrap=0``
            - labels, confusion ([true][predicted] counts), per_class (label, precision, recall, f1, support)

        Raises:
            DataError: there is no example.
        """
        from sklearn.metrics import f1_score, precision_recall_fscore_support

        labels, size = plain_labels(classes), len(classes)
        if size < 2 or len(set(labels)) < size:
            raise InputError(f"needs two or more different classes, got {labels}", where="classes")
        p, y, index = _check_scored(outputs, targets, predicted, size)
        n, columns = len(y), [1] if size == 2 else range(size)
        confusion = np.bincount(y * size + index, minlength=size * size).reshape(size, size)
        # A sample per cell of the confusion matrix, weighted by its count, gives the metrics of all examples.
        y_true, y_pred = np.nonzero(confusion)
        cells: dict[str, Any] = {"y_true": y_true, "y_pred": y_pred, "zero_division": 0}
        cells["sample_weight"] = confusion[y_true, y_pred]
        scores = precision_recall_fscore_support(**cells, labels=range(size))
        precision, recall, f1, _ = cast(tuple[np.ndarray, ...], scores)
        intervals = _bootstrap(confusion, bootstrap, seed) if bootstrap else (None, None)
        reason = "all examples have the same label" if curves else "curves were not computed"
        if curves and n * len(columns) > MAX_SCORES:
            curves, reason = False, f"there are more than {MAX_SCORES:,} scores"
        roc_auc, average_precision = _areas(p, y, columns) if curves else (None, None)
        out = {
            "n": n,
            "accuracy": float(np.trace(confusion) / n),
            "accuracy_interval": intervals[0],
            "macro_f1": float(f1_score(**cells, average="macro")),
            "macro_f1_interval": intervals[1],
            "weighted_f1": float(f1_score(**cells, average="weighted")),
            "roc_auc": roc_auc,
            "average_precision": average_precision,
            "positive": labels[1] if size == 2 else None,
            "log_loss": float(-np.log(p[np.arange(n), y].clip(TINY)).mean()),
            "labels": labels,
            "confusion": confusion.tolist(),
            "per_class": [
                {"label": c, "precision": float(a), "recall": float(b), "f1": float(f), "support": int(s)}
                for c, a, b, f, s in zip(labels, precision, recall, f1, confusion.sum(1), strict=True)
            ],
        }
        return with_undefined(out, dict.fromkeys(("roc_auc", "average_precision"), reason))

    # --- calibration ------------------------------------------------------------------------------

    def fit_temperature(self, logits: np.ndarray, targets: np.ndarray) -> Any:
        """The temperature with the lowest smoothed log loss."""
        return fit_temperature(logits, targets)

    def count_errors(self, logits: np.ndarray, targets: np.ndarray) -> Any:
        """The number of wrong predictions without a threshold."""
        return int((logits.argmax(1) != targets).sum())

    def fit_threshold(self, probabilities: np.ndarray, targets: np.ndarray, metric: Any) -> Any:
        """The threshold with the best value of a metric; for more than two classes one per class, ``[C]``."""
        if probabilities.shape[1] != 2:
            return tune_class_thresholds(probabilities, targets, metric)[0]
        return tune_threshold(probabilities[:, 1], targets, metric)[0]

    def describe(self, probabilities: np.ndarray, targets: np.ndarray, resamples: int) -> dict[str, Any]:
        """Calibration error, log loss and calibration curve, ready for JSON."""
        return describe(probabilities, targets, resamples)

    # --- other programs ---------------------------------------------------------------------------

    def export_outputs(self, logits: np.ndarray) -> np.ndarray:
        """The outputs that the exported head should compute, from our logits ``[n, C]``."""
        return logits

    def max_abs_difference(self, a: np.ndarray, b: np.ndarray) -> float:
        """The largest absolute difference between two arrays of outputs of the exported head."""
        return float(np.abs(a - b).max())

    def difference(
        self, predictions: tuple[np.ndarray, np.ndarray, np.ndarray, int], measure: str, resamples: int
    ) -> dict[str, Any] | None:
        """The difference between a model and a baseline, with its interval; None if the metric has none.

        Args:
            predictions: the true classes, both models' predictions, and the number of classes.
        """
        if measure not in Classes.main_metrics:
            return None
        return paired_difference(*predictions, measure=cast(Any, measure), resamples=resamples)

    # --- files ------------------------------------------------------------------------------------

    def metadata(self) -> dict[str, Any]:
        """The target's entries in ``glassformer.json``."""
        return {"truth_values": True} if self.booleans else {}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], where: str) -> Self:
        """The target with these ``metadata``; raises CheckpointError for impossible settings."""
        return cls(booleans=metadata.get("truth_values") is True)

    def script(self, form: str) -> str:
        """Python code of the decision rule in the ``run.py`` of an exported folder.

        The code may use ``line(*cells)`` and the contents of the folder's settings: ``ABOUT``
        (``onnx.json``), or ``CONFIG`` and ``LABELS`` (``config.json``).

        Args:
            form: ``onnx``: the code defines ``decide(probabilities)``, which returns one prediction per row
                ``[B, C]``, and ``print_prediction(prediction)``. ``hf``: it defines
                ``print_predictions(logits)``, which prints all rows.
        """
        name = f"{'hf_' * (form == 'hf')}{self.script_name}.txt"
        return (Path(__file__).parent / "scripts" / name).read_text(encoding="utf-8")

    def export_metadata(self, clf: Any) -> dict[str, Any]:
        """The target's entries in ``onnx.json``."""
        if self.is_multilabel:
            return {"several": True}
        threshold = getattr(clf, "abstain_below_", None)
        return {} if threshold is None else {"abstain_below": threshold}

    def not_exported(self, clf: Any) -> list[str]:
        """The names of the parts of our decision rule that transformers does not apply."""
        temperature, threshold = getattr(clf, "temperature_", 1.0), getattr(clf, "threshold_", None)
        default = 0.5 if self.is_multilabel else None  # threshold of multi-label models, also in transformers
        differs = {
            "temperature": not np.all(np.asarray(temperature) == 1),
            "threshold": threshold is not None and not np.all(np.asarray(threshold) == default),
            "abstention": getattr(clf, "abstain_below_", None) is not None,
        }
        return [name for name, is_set in differs.items() if is_set]

    def read_calibration(self, metadata: Mapping[str, Any], where: str, outputs: int) -> tuple[Any, Any]:
        """Temperature and threshold in a saved folder; raises CheckpointError for impossible values."""
        count, bounds = outputs if self.is_multilabel else 0, (MIN_TEMPERATURE, MAX_TEMPERATURE)
        temperature = _read_calibrated(metadata, "temperature", where, count, bounds)
        by_class = isinstance(metadata.get("threshold"), list) and not self.is_multilabel
        low = TINY if by_class else 0.0  # probabilities are divided by the thresholds of classes
        threshold = _read_calibrated(metadata, "threshold", where, outputs, (low, MAX_THRESHOLD))
        return 1.0 if temperature is None else temperature, threshold

    def sort_classes(self) -> bool:
        """Whether loading a model sorts its classes."""
        return True

    # --- runs -------------------------------------------------------------------------------------

    def prepare_data(self, dataset: Any, train: Any, skip: bool) -> Any:
        """Prepare the data set before it is split; ``skip``: leave out unusable targets, without an error."""
        return dataset

    def training_splits(self, splits: Any, recipe: Any) -> Any:
        """The splits without the examples that the recipe excludes from training."""
        return splits

    def check_unseen(self, splits: Any, leave_out: bool) -> tuple[Any, list[Any]]:
        """Find labels of the other splits that do not occur in the training split.

        Args:
            leave_out: whether to leave out examples with such a label; False: raise an error.

        Returns:
            The splits to evaluate, and a ``RejectedRow`` for each example that was left out.

        Raises:
            DataError: there is such a label (without ``leave_out``), or a split has no other examples.
        """
        training_labels = sorted(set(flat_labels(splits.train.labels)), key=str)
        changed: dict[str, Any] = {}
        rejected: list[RejectedRow] = []
        for name in ("validation", "evaluated"):
            split = getattr(splits, name)
            if split is None or split.labels is None:
                continue
            if name == "evaluated" and split is splits.validation:
                changed[name] = changed["validation"]
                continue
            label_at = unseen_labels(split.labels, training_labels)
            if label_at and not leave_out:
                i, label = next(iter(label_at.items()))
                note, fix = find_label_problem([*(splits.train.labels or []), *split.labels]) or ("", "")
                fix = fix or f"Correct it (known: {join_names(list(map(str, training_labels)))})"
                raise UnknownLabelError(
                    f"label {label!r} {UNSEEN}" + (f"; {note}" if note else ""),
                    where=location(split.origin, i, split.rows),
                    fix=f"{fix}, or leave such rows out with {SKIP}",
                )
            changed[name] = without_unseen_labels(split, label_at, training_labels)
            origin, rows = str(split.origin), split.rows or range(1, len(split) + 1)
            rejected += [RejectedRow(origin, rows[i], f"label {x!r} {UNSEEN}") for i, x in label_at.items()]
        return replace(splits, **changed), rejected

    def training_notes(self, splits: Any, rejected: Sequence[Any]) -> tuple[list[str], str, list[str]]:
        """Notes that are printed before training: above the sizes of the splits, in their line, and below.

        ``rejected`` are the rows that were left out when the data was read.
        """
        named_splits = splits.parts().items()
        unlabeled = [*filter(None, (unlabeled_message(name, split.labels) for name, split in named_splits))]
        return [], "", [*unlabeled, EMPTY_FIX] if unlabeled else []

    def doctor_input(self, dataset: Any) -> Any:
        """The data set for the data doctor's checks of the inputs."""
        return dataset

    def findings(self, splits: Any, train: Any) -> list[Any]:
        """Findings of the data doctor about the targets."""
        return []

    def run_metadata(self, est: Any, splits: Any, train: Any, outputs: np.ndarray | None) -> dict[str, Any]:
        """Entries of metrics.json about the targets.

        Args:
            train: the train section of the recipe.
            outputs: outputs ``[n, C]`` for the validation examples.
        """
        return {"label_names": [str(c) for c in est.classes_.tolist()]}

    def coverage(self, est: Any, outputs: np.ndarray, truth: Any, same_examples: bool) -> dict[str, Any]:
        """For targets with prediction intervals: the share of true targets ``[n]`` inside them.

        Args:
            same_examples: whether the intervals were computed from the errors of the same examples.
        """
        return {}

    def write(
        self,
        path: Path,
        split: Any,
        name: str,
        outputs: np.ndarray,
        classes: Sequence[Any],
        predicted: Sequence[Any],
        confidences: Sequence[float | None],
        est: Any = None,
    ) -> None:
        """Write ``predictions.csv`` of a split with its true targets.

        Args:
            name: name of the split, for the table.
            outputs: ``[n, C]``.
            predicted, confidences: predictions and their confidences, ``[n]``.
            est: the estimator that computed the outputs; None if there were several.
        """
        header, cells = self.table_columns(outputs, classes, confidences, est)
        options = {"labels": split.labels, "rows": split.rows, "split": name}
        write_table(path, header, split.names(), predicted, cells, **options)

    def table_columns(
        self, outputs: np.ndarray, classes: Sequence[Any], confidences: Sequence[float | None], est: Any
    ) -> tuple[Sequence[str], Iterable[Sequence[str]]]:
        """The header of ``predictions.csv``, and the cells of each row after its prediction."""
        return [*HEADER, *(f"p:{c}" for c in classes)], map(label_cells, confidences, outputs)

    # --- comparisons ------------------------------------------------------------------------------

    def read_run(self, folder: Path) -> RunPredictions:
        rows = list(read_predictions(folder / self.file))
        classes = tuple(rows[0].probabilities) if rows else ()
        try:
            truth = self.parse_cells([row.label for row in rows], classes)
        except KeyError:
            truth = np.array(())
        if not len(truth):
            what, fix = "no labeled predictions to compare", "Evaluate on a split that has labels"
            raise DataError(what, where=str(folder / self.file), fix=fix)
        probabilities = np.array([[*row.probabilities.values()] for row in rows])
        likelihoods = self.true_probabilities(probabilities, truth)
        loss = float(-np.log(np.clip(likelihoods, MIN_WRITTEN, 1.0)).mean())
        predicted = self.parse_cells([row.predicted for row in rows], classes)
        digest = hash_examples((row.split, row.row, row.text, row.label) for row in rows)
        return RunPredictions(self, digest, len(rows), truth, predicted, classes, loss)

    def parse_cells(self, cells: Sequence[str], classes: tuple[str, ...]) -> np.ndarray:
        """Class numbers ``[n]`` of a table's cells; raises KeyError for a value not in ``classes``."""
        numbers = {name: i for i, name in enumerate(classes)}
        return np.array([numbers[cell] for cell in cells], np.int64)

    def true_probabilities(self, probabilities: np.ndarray, truth: np.ndarray) -> np.ndarray:
        return probabilities[np.arange(len(truth)), truth]

    def measure_for(self, monitors: set[str]) -> str:
        measures = {monitor if monitor in self.compared else self.compared[0] for monitor in monitors}
        return measures.pop() if len(measures) == 1 else self.compared[0]

    def statistics(self, runs: SeedRuns) -> dict[str, Statistic]:
        accuracy = accuracy_statistic(np.stack([self.is_right(run) for run in runs]))
        macro_f1 = multilabel_f1_statistic(*self.as_sets(runs), include_absent=self.is_multilabel)
        return {"accuracy": accuracy, "macro_f1": macro_f1}

    def as_sets(self, runs: SeedRuns) -> tuple[np.ndarray, np.ndarray]:
        """True labels ``[n, K]`` and the predictions of each seed ``[S, n, K]``, 0 or 1."""
        one_hot = np.eye(len(runs[0].classes), dtype=np.float32)
        return one_hot[runs[0].truth], one_hot[np.stack([a.predicted for a in runs])]

    def is_right(self, run: RunPredictions) -> np.ndarray:
        """Whether each prediction is right ``[n]``."""
        return run.predicted == run.truth

    def interval(
        self, key: str, runs: SeedRuns, mean: float, ends: Sequence[float], resamples: int
    ) -> list[float]:
        """The interval of a metric. For macro-F1 it includes the variation between seeds."""
        if key != "macro_f1":
            return super().interval(key, runs, mean, ends, resamples)
        options = {"include_absent": self.is_multilabel, "resamples": resamples}
        return multilabel_f1_interval(*self.as_sets(runs), **options)

    def tests(self, measure: str, pairs: RunPairs, resamples: int) -> TestResult:
        """McNemar's test, which compares accuracies."""
        results = [asdict(mcnemar(self.is_right(run), self.is_right(base))) for run, base in pairs]
        return "mcnemar", results, measure == "accuracy"


def warn_of_spelling(labels: Sequence[Any], classes: Sequence[Any]) -> None:
    """Warn of labels that match a class but are spelled differently than in training."""
    warn_spelling_message(other_spellings(flat_labels(labels), classes))


def warn_spelling_message(message: str) -> None:
    """Warn with a message of ``other_spellings``, unless it is empty."""
    if message:
        fix = "they count as these classes, but as wrong in scikit-learn's metrics: write them as in training"
        warnings.warn(f"{message}; {fix}", OtherSpellingWarning, stacklevel=user_stacklevel())


def check_known(
    labels: Sequence[Any], classes: Sequence[Any], origin: str, rows: Sequence[int] | None = None
) -> None:
    """Raise DataError for a label (or one in a set) that is not in ``classes``."""
    known_labels = set(classes)
    for i, labels_of_example in enumerate(labels):
        for label in flat_labels([labels_of_example]):
            if label not in known_labels:
                fix = f"Known: {', '.join(map(str, classes))}"
                all_labels = [*classes, *flat_labels(labels)]
                what, fix = explain_label_error(all_labels, f"label {label!r} {UNSEEN}", fix)
                raise UnknownLabelError(what, where=location(origin, i, rows), fix=fix)


def _read_calibrated(
    metadata: Mapping[str, Any], key: str, where: str, n: int, bounds: tuple[float, float]
) -> Any:
    """The number in a saved folder, or an array if it is a list of ``n`` numbers; None if it is missing."""
    value, fix = metadata.get(key), "Calibrate it again"
    if value is None:
        return None
    is_list = isinstance(value, list) and bool(n)
    if is_list and len(value) != n:
        raise CheckpointError(f"{len(value)} numbers under {key!r} for {n} outputs", where=where, fix=fix)
    for x in value if is_list else [value]:
        if isinstance(x, bool) or not isinstance(x, int | float) or not bounds[0] <= x <= bounds[1]:
            low, high = (f"{round(bound, 5):g}" for bound in bounds)
            what = f"{key} = {shorten(x)} is not between {low} and {high}"
            raise CheckpointError(what, where=where, fix=fix)
    return np.array(value, np.float64) if is_list else value


# --- metrics --------------------------------------------------------------------------------------


def plain_labels(classes: Sequence[Any]) -> list[Any]:
    """The classes as Python objects."""
    return [c.item() if isinstance(c, np.generic) else c for c in classes]


def no_better_than_majority(metrics: Mapping[str, Any]) -> str:
    """A message if the model is not better than always predicting the most frequent label, or "".

    A model is better if its accuracy is higher, or its macro-F1 is higher by more than ``MIN_F1_GAIN``. For
    multi-label models there is no message.
    """
    if not metrics.get("confusion"):  # multi-label
        return ""
    counts, n = [sum(row) for row in metrics["confusion"]], metrics["n"]
    majority = max(range(len(counts)), key=counts.__getitem__)
    share, num_classes = counts[majority] / n, sum(count > 0 for count in counts)
    majority_f1 = 2 * share / (1 + share) / num_classes  # macro-F1 of the majority class
    if metrics["accuracy"] > share or metrics["macro_f1"] > majority_f1 + MIN_F1_GAIN:
        return ""
    return f"no better than always predicting {metrics['labels'][majority]!r}, the label of {share:.1%}"


def _check_scored(
    probabilities: ArrayLike, targets: ArrayLike, predicted: ArrayLike | None, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities ``[n, size]``, true and predicted class numbers ``[n]``, checked."""
    p, y = np.asarray(probabilities, np.float64), np.asarray(targets)
    if p.ndim != 2 or p.shape[1] != size or y.shape != p.shape[:1]:
        raise ShapeError(f"probabilities {p.shape} and targets {y.shape} do not match {size} classes")
    if not len(y):
        raise DataError("no example to evaluate", fix="Give a split that is not empty")
    finite(p, "probabilities")
    if y.min() < 0 or y.max() >= size or np.any(y != y.astype(np.int64)):
        raise DataError(f"targets must be class indices in 0..{size - 1}", where="targets")
    index = p.argmax(1) if predicted is None else np.asarray(predicted).astype(np.int64)
    if index.shape != y.shape or not 0 <= index.min() <= index.max() < size:
        raise ShapeError(f"predicted classes {index.shape} do not match targets {y.shape}")
    return p, y.astype(np.int64), index


def _areas(p: np.ndarray, y: np.ndarray, columns: Sequence[int]) -> tuple[float | None, float | None]:
    """Mean ROC-AUC and mean average precision over ``columns``, each class versus the rest.

    Classes that all examples have, or none, are left out. Without other classes, both are None.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    complements = p[:, ::-1] if p.shape[1] == 2 else 1 - p
    # Log-odds, because float32 probabilities would tie near 1.
    scores = (np.log(p.clip(TINY**2)) - np.log(complements.clip(TINY**2))).astype(np.float32)
    areas = [
        (roc_auc_score(is_class, scores[:, k]), average_precision_score(is_class, scores[:, k]))
        for k in columns
        if (is_class := y == k).any() and not is_class.all()
    ]
    roc, precision = np.mean(areas, axis=0).tolist() if areas else (None, None)
    return roc, precision


def _bootstrap(confusion: np.ndarray, resamples: int, seed: int) -> tuple[list[float], list[float]]:
    """95 % intervals of accuracy and macro-F1, from multinomial samples of the confusion matrix."""
    n, rng = int(confusion.sum()), np.random.default_rng(seed)
    true, predicted = np.nonzero(confusion)
    share = confusion[true, predicted] / n
    accuracy = [rng.multinomial(n, share)[true == predicted].sum() / n for _ in range(resamples)]
    ends = np.quantile(accuracy, [0.025, 0.975]).tolist()
    ends = share_interval(float(np.trace(confusion) / n), n, ends)
    return ends, macro_f1_interval(confusion, resamples=resamples, seed=seed)
