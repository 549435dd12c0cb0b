"""Base classes of classifiers and regressors of texts and images.

``Supervised`` is for any target, ``Classifier`` for labels and ``Regressor`` for numbers. The methods that
differ between texts and images are at the end of ``Supervised``. This module is long because it has all that
the four estimators of texts and images share.
"""

from __future__ import annotations

import copy
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from glassformer.checkpoints.catalog import AUTO
from glassformer.checkpoints.settings import METADATA_FILE, shorten
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.data.checks import check_pairs, check_saved_labels, check_validation, check_weights
from glassformer.data.columns import check_no_target_side
from glassformer.data.in_memory import as_targets
from glassformer.data.numbers import check_positive
from glassformer.data.splits import grouped_split
from glassformer.errors import (
    BadValueError,
    CheckpointError,
    ConfigError,
    DataError,
    IdleSettingWarning,
    NotForThisModelError,
    UnequalLengthsError,
)
from glassformer.evaluate.calibrate import Metric
from glassformer.evaluate.intervals import share_interval
from glassformer.evaluate.predict import prefetch
from glassformer.explain.mixin import ExplainMixin
from glassformer.families.pretrained import save_pretrained
from glassformer.finite import finite
from glassformer.nn.int8 import has_linear_layers
from glassformer.nn.kernels import int8, level
from glassformer.runtime import choose_device, runs_isolated
from glassformer.sklearn_base import ClassifierMixin, RegressorMixin, check_is_fitted
from glassformer.targets import kind_of_targets, target_from_metadata
from glassformer.targets.multiclass import Classes, warn_of_spelling
from glassformer.targets.regression import (
    COVERAGE,
    HUB_NAMES,
    Numbers,
    absolute_errors,
    bounds_around,
    check_coverage,
    half_width,
)
from glassformer.tasks.adapters import AdapterMixin
from glassformer.tasks.estimator import Estimator, FitState, compute_model, warn_of_order, weights_state
from glassformer.train.callbacks import Callback
from glassformer.train.config import auto_values_for
from glassformer.train.loop import Stream
from glassformer.train.state import Training

NEW_HEAD, SOLVED_HEAD = "new (random): classification head", "new (solved): classification head"
CALIBRATION_EXAMPLES = 100  # minimum number of validation examples for fitting a temperature


class LabeledExamples(NamedTuple):
    """Training examples with encoded targets and sample weights."""

    X: list[Any]
    targets: np.ndarray  # class indices [n]; multi-label: 0 or 1 [n, K]; regression: numbers [n]
    sample_weight: np.ndarray | None  # [n], with mean 1


class Supervised(ExplainMixin, AdapterMixin, Estimator, ABC):
    """Base class of classifiers and regressors of texts or images.

    Fitted attributes in addition to ``Estimator``'s: ``classes_``, ``temperature_``, ``threshold_``.
    """

    SHARDS = True
    SAVED_STATE = (*Estimator.SAVED_STATE, "temperature", "threshold")
    CHUNK: ClassVar[int]  # number of examples that prediction encodes at a time, to limit memory

    classes_: np.ndarray
    # Index in the imported file of each class in ``classes_``; None: both have the same order.
    class_order_: list[int] | None = None
    class_weight: str | dict | None
    kind_: Classes = Classes()  # the kind of target, such as multi-class or multi-label
    temperature_: Any  # a number; for calibrated multi-label models one per label, [K]
    # A number for the second of two classes; [C] for more classes; [K] for multi-label. None: no threshold.
    threshold_: Any
    tried_: Sequence[dict[str, Any]] = ()  # with model="auto": one record per candidate

    # --- training --------------------------------------------------------------------------------

    def fit(
        self,
        X: Sequence[Any],
        y: Sequence[Any],
        *,
        validation: tuple[Sequence[Any], Sequence[Any]] | None = None,
        sample_weight: Sequence[float] | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoints: str | Path | None = None,
        resume: bool = False,
    ) -> Self:
        """Train on examples and their labels.

        Args:
            validation: (examples, labels), evaluated after each epoch to select the best weights.
            sample_weight: ``[n]``, non-negative; ``fit`` scales the weights to mean 1.
            checkpoints: folder for checkpoints, saved every ``checkpoint_every`` steps. Without ``resume``,
                it must be empty.
            resume: continue bit-identically from the newest complete checkpoint. Without a checkpoint,
                training starts from the beginning.

        Raises:
            DataError: examples or labels are missing, there is only one class, or the validation data have
                a label that the training data do not have.
            ConfigError: an invalid setting.
            CheckpointError: the weights cannot be loaded, or the checkpoint is of another run.
        """
        return self._fit((X, y, validation, sample_weight), callbacks, checkpoints, resume)

    def _fit(
        self, data: Sequence[Any], callbacks: Sequence[Callback], checkpoints: str | Path | None, resume: bool
    ) -> Self:
        if getattr(self, "model", None) != AUTO:
            return super()._fit(data, callbacks, checkpoints, resume)
        from glassformer.tasks.auto import fit_auto

        with self._rollback():
            return fit_auto(self, data, callbacks, checkpoints, resume)

    def _examples(
        self, fit: FitState, *data: Any
    ) -> tuple[LabeledExamples, tuple[list[Any], np.ndarray] | None]:
        self.tried_ = []
        X, y, validation, sample_weight = data
        warn_of_order(X, y)
        y = as_targets(y, self.TARGETS, self.TARGETS)
        X = self.training_examples(X, y)
        if y is not None:  # ``check_pairs`` raises an error for missing labels
            self.kind_ = self.infer_kind(y)
        noun = self.kind_.targets_noun
        examples, labels = check_pairs(X, y, "fit", self.NOUN, noun, self.check, self.kind_.read)
        self.n_features_in_ = self._num_inputs(examples)
        if self.n_features_in_ > 1:
            check_no_target_side(list(zip(*(x.sides for x in examples), strict=True)), labels, self.NOUN)
        classes = self.kind_.classes(labels)
        self.classes_, targets = np.asarray(classes), self.kind_.encode(labels, classes, noun)
        weights = None if sample_weight is None else check_weights(sample_weight, len(examples))
        fraction = fit.train.validation_fraction
        if validation is None and fraction > 0:
            groups = self.copy_keys(examples) if fit.group_duplicates else [*map(str, range(len(examples)))]
            strata = self.kind_.stratify_by(labels, targets)
            train_i, val_i = grouped_split(
                strata, groups, fraction, fit.train.seed, size_name="validation_fraction"
            )
            validation_data = [examples[i] for i in val_i], targets[val_i]
            examples, targets = [examples[i] for i in train_i], targets[train_i]
            weights = None if weights is None else weights[train_i]
        else:
            validation_data = self._check_validation(validation)
        return LabeledExamples(examples, targets, weights), validation_data

    def check_examples(self, X: Any, origin: str | None = None) -> list[Any]:
        """Check examples and return them as a list. From a table, read the columns that ``fit`` used.

        Raises:
            DataError: an example cannot be used, or the columns are ambiguous.
        """
        return self.check(self.prediction_examples(X, origin), origin or self.NOUN)

    @staticmethod
    def _num_inputs(examples: Sequence[Any]) -> int:
        """Number of inputs per example: 2 for pairs."""
        return 1

    @classmethod
    @abstractmethod
    def supports(cls, kind: Classes) -> bool:
        """Whether this estimator class supports a kind of target."""

    @classmethod
    def infer_kind(cls, y: Any) -> Classes:
        """Detect the kind of target from raw labels."""
        return kind_of_targets(y)

    def _check_validation(self, validation: Any) -> tuple[list[Any], np.ndarray] | None:
        if validation is None:
            return None
        X, y = check_validation(validation, f"{self.NOUN}, labels")
        nouns = f"validation {self.NOUN}", f"validation {self.kind_.targets_noun}"
        examples, labels = check_pairs(X, y, "validation", *nouns, self.check_examples, self.kind_.read)
        self._warn_of_spelling(labels)
        return examples, self.encode_targets(labels, nouns[1])

    def _check_labeled(self, X: Sequence[Any], y: Sequence[Any], where: str) -> tuple[list[Any], list[Any]]:
        """Check the arguments X and y of a method of a fitted estimator."""
        check_is_fitted(self, "model_")
        return check_pairs(
            X, y, where, self.NOUN, self.kind_.targets_noun, self.check_examples, self.kind_.read
        )

    def _warn_of_spelling(self, labels: Sequence[Any]) -> None:
        if self.kind_.predicts_labels:
            warn_of_spelling(labels, self.classes_.tolist())

    def _weights(self, examples: LabeledExamples) -> np.ndarray | None:
        """Class weights times sample weights, with mean 1."""
        _, targets, sample_weight = examples
        weights = self.kind_.weights(targets, self.classes_.tolist(), self.configs()["train"])
        if sample_weight is not None:
            weights = sample_weight if weights is None else weights * sample_weight
            if not weights.any():
                what = "every example has the weight 0 (class weight times sample weight)"
                raise DataError(what, where="fit", fix="Change class_weight or sample_weight")
            weights = (weights / weights.mean()).astype(np.float32)
        return weights

    def _prepare(self, fit: FitState) -> tuple[Any, Any]:
        self._build_preprocessor(fit)
        self.temperature_, self.threshold_, self.class_order_ = 1.0, None, None
        table = self._training_table(fit.examples.X)  # before validation: it also sets how to read pixels
        return table, None if fit.validation is None else self.evaluation_table(fit.validation[0])

    def _network(self, fit: FitState) -> Any:
        """Build the model. With ``head_start="solved"``, a regression initializes its head."""
        network = super()._network(fit)
        fit.solved_head = None
        if fit.train.start_share not in ("auto", 0) and self._is_from_scratch():
            what = f"start_share = {fit.train.start_share} would mix random weights into the model"
            raise ConfigError(what, where="start_share", fix="Leave it out, or name a checkpoint")
        if network.is_linear and fit.train.maskable:
            what = "a linear model has no layers that can learn from masked inputs"
            raise ConfigError(what, where="maskable", fix="Leave it out, or name an encoder")
        if not self._starts_solved(fit, network):
            return network
        precision = "auto" if fit.train.precision == "int8" else fit.train.precision
        model = compute_model(network, precision, fit.device)
        vectors = self._vectors(fit, model).float().cpu().numpy()  # [n, D]
        mean_norm = max(float(np.linalg.norm(vectors, axis=1).mean()), 1e-12)
        head = self.kind_.solve(
            vectors / mean_norm, fit.examples.targets, self._weights(fit.examples), fit.train.seed
        )
        fit.solved_head = head
        with torch.no_grad():
            network.head.out.weight.copy_(torch.from_numpy(head.weight / np.float32(mean_norm)))
            network.head.out.bias.copy_(torch.from_numpy(head.bias))
        self.weights_source_ = network.weights_source = network.weights_source.replace(NEW_HEAD, SOLVED_HEAD)
        return network

    def _starts_solved(self, fit: FitState, network: Any) -> bool:
        """Whether a regression on pre-trained vectors initializes the head, which must be linear."""
        if network.is_linear:
            return True
        if fit.train.head_start != "solved" or self._is_from_scratch() or not hasattr(network, "head"):
            return False
        is_linear = getattr(network.config, "head_type", "linear") == "linear"
        return is_linear and network.has_attention and network.has_features

    def _chooses_share(self, fit: FitState) -> bool:
        train = fit.train
        trains_encoder = not fit.network.is_linear and (train.train_layers != 0 or train.unfreeze_every > 0)
        has_good_start = fit.solved_head is not None and fit.ranks.size == 1 and not train.lora_rank
        return (
            train.start_share == "auto" and trains_encoder and has_good_start and fit.validation is not None
        )

    def _resolve_defaults(self, fit: FitState) -> dict[str, Any]:
        counts = len(fit.examples.targets), len(self.classes_)
        solved = fit.solved_head is not None
        return auto_values_for(fit.train, fit.network, self._is_from_scratch(), *counts, solved)

    def _loop(self, fit: FitState) -> tuple[Stream, Callable, Callable[[], dict[str, float]] | None]:
        stream, objective = self._stream(fit), self._objective(fit)
        table, logits = fit.validation_table, None  # with several processes, each has a part of the table
        if table is not None:
            if fit.ranks.size > 1:
                table = self.evaluation_table(fit.ranks.own_examples(fit.validation[0]))
            logits = partial(self.table_outputs, fit.network, table, "logits", fit.device)
        if not fit.ranks.sharded:
            stream, objective, logits = self._cache_frozen_features(fit, stream, objective, table, logits)
        if logits is None:
            return stream, objective, None
        targets = fit.validation[1]

        def evaluate() -> dict[str, float]:
            return self.kind_.validation_metrics(self, fit.ranks.gather(logits())[: len(targets)], targets)

        return stream, objective, evaluate

    def _finish_fit(self, fit: FitState, training: Training) -> None:
        """Store the weights; fit thresholds (multi-label) or the temperature on the validation examples."""
        super()._finish_fit(fit, training)
        if fit.validation is None:
            return
        kind, targets = self.kind_, fit.validation[1]
        calibrates = kind.is_single_label and getattr(fit.train, "calibration", "none") == "auto"
        if not kind.is_multilabel and not (calibrates and len(targets) >= CALIBRATION_EXAMPLES):
            return
        logits = self._validation_logits(fit, "auto" if self.precision == "int8" else None)
        if kind.is_multilabel:
            self.threshold_ = kind.threshold(fit.train, logits, targets)
        else:
            self.temperature_ = kind.fit_temperature(logits, targets)

    def _validation_logits(self, fit: FitState, precision: str | None = None) -> np.ndarray:
        """The logits of the validation examples, computed as in prediction."""
        model, table = self.predictor(precision), self.evaluation_table(fit.validation[0])
        return finite(self.table_outputs(model, table, "logits", next(model.parameters()).device), "logits")

    def encode_targets(
        self, labels: Sequence[Any], origin: str, rows: Sequence[int] | None = None
    ) -> np.ndarray:
        """Encode labels as class indices ``[n]``, int64; for multi-label as 0 or 1 ``[n, K]``.

        Raises:
            DataError: a label was not seen in training. The message names ``origin`` and the row.
        """
        return self.kind_.encode(labels, self.classes_.tolist(), origin, rows)

    def _arrays(self, fit: FitState) -> list[np.ndarray | None]:
        arrays = [*self._table_arrays(fit.table), fit.examples.targets, fit.examples.sample_weight]
        if fit.validation is not None:
            arrays += [*self._table_arrays(fit.validation_table), fit.validation[1]]
        return arrays

    # --- prediction ------------------------------------------------------------------------------

    @runs_isolated
    def _compute(
        self, X: Sequence[Any], output: str, progress: Callable | None = None, precision: str | None = None
    ) -> np.ndarray:
        """The logits or pooled vectors of examples; see ``table_outputs`` for ``output``."""
        check_is_fitted(self, "model_")
        examples = self.check_examples(X)
        model = self.predictor(precision)
        device = next(model.parameters()).device
        chunks = [examples[i : i + self.CHUNK] for i in range(0, len(examples), self.CHUNK)]
        outputs = [
            self.table_outputs(model, table, output, device, progress)
            for table in prefetch(self.evaluation_table, chunks)
        ]
        return finite(np.concatenate(outputs), "vectors" if output == "pooled" else "logits")

    def logits(self, X: Sequence[Any]) -> np.ndarray:
        """Outputs of the head before temperature and threshold, ``[n, C]``, fp32."""
        return self._compute(X, "logits")

    def outputs(self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Probabilities ``[n, C]`` or, for regression, numbers ``[n, 1]``, fp64."""
        return self.to_probabilities(self._compute(X, "logits", progress))

    def cached_outputs(self, X: Sequence[Any]) -> np.ndarray:
        """Same as ``outputs``, but features of a frozen image encoder are cached on disk, as in training."""
        return self.outputs(X)

    def to_probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Convert logits ``[n, C]`` to probabilities or, for regression, to numbers."""
        return self.kind_.probabilities(logits, getattr(self, "temperature_", 1.0))

    def predicted_index(self, probabilities: np.ndarray) -> np.ndarray:
        """Class indices ``[n]`` for probabilities; without ``threshold_``, the most probable class.

        With two classes, the second is predicted if it reaches the threshold. With more classes, the class
        with the largest ratio of probability to threshold is predicted. For multi-label, the result is a
        boolean ``[n, K]``: whether the probability reaches the label's threshold.
        """
        return self.kind_.predicted_index(probabilities, self.threshold_)

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """The predicted labels ``[n]`` for probabilities; for multi-label, ``LabelSet`` objects."""
        return self.kind_.labels(self.predicted_index(probabilities), self.classes_)

    def embed(self, X: Sequence[Any]) -> np.ndarray:
        """The pooled vector of each example, which is the input of the head, ``[n, D]``, fp32."""
        return self._compute(X, "pooled")

    def transform(self, X: Sequence[Any]) -> np.ndarray:
        """Like ``embed``, for use in scikit-learn's ``Pipeline``."""
        return self.embed(X)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.no_validation = True
        return tags

    # --- files -----------------------------------------------------------------------------------

    def _order(self) -> list[int] | None:
        """The order in which to save the rows of the head; None: the order of ``classes_``.

        Imported models keep their order, so that adapters of the same base model can be loaded. A threshold
        applies to the second of ``classes_``, so models with a threshold have this order.
        """
        return self.class_order_ if self.threshold_ is None else None

    def _write_model(self, folder: Path) -> None:
        names, kind = self.hub_label_names(), self.kind_.problem_type
        save_pretrained(
            self.model_to_save(), folder, label_names=names, order=self._order(), problem_type=kind
        )

    def model_to_save(self) -> Any:
        """The model to save. Regressors save a copy whose head returns numbers in the unit of the targets."""
        return self.model_

    def hub_label_names(self) -> tuple[str, ...]:
        """The names of the outputs in ``id2label`` of ``config.json``."""
        return tuple(map(str, self.classes_.tolist()))

    def _metadata(self) -> dict[str, Any]:
        classes, order = self.classes_.tolist(), self._order()
        if order is not None:
            classes = [classes[order.index(row)] for row in range(len(order))]
        tried = {"tried": list(self.tried_)} if self.tried_ else {}
        return super()._metadata() | {"classes": classes} | self.kind_.metadata() | tried

    @classmethod
    def restore(cls, folder: Path, metadata: dict[str, Any], *, in_bf16: bool = False) -> Self:
        where = str(folder / METADATA_FILE)
        classes = metadata.get("classes")
        if not isinstance(classes, list) or not classes:
            raise CheckpointError("'classes' is missing or not a list of labels of one type", where=where)
        classes = check_saved_labels(classes, "classes", where)
        kind = target_from_metadata(metadata, where)
        temperature, threshold = kind.read_calibration(metadata, where, len(classes))
        metadata = metadata | {"temperature": temperature, "threshold": threshold}
        out = super().restore(folder, metadata, in_bf16=in_bf16)
        out.classes_, out.kind_ = np.asarray(classes), kind
        out.tried_ = tried if isinstance(tried := metadata.get("tried", []), list) else []
        if out.model_.config.num_labels != len(classes):
            what = f"{len(classes)} classes, but the model has {out.model_.config.num_labels} outputs"
            raise CheckpointError(what, where=where)
        if threshold is None and kind.sort_classes():
            out._sort_classes()
        if isinstance(weights := getattr(out, "class_weight", None), dict):  # JSON keys are strings
            labels = {str(label): label for label in classes}
            out.class_weight = {labels.get(key, key): weight for key, weight in weights.items()}
        return out

    @torch.no_grad()
    def _sort_classes(self) -> None:
        """Sort the classes of a loaded model, and reorder the rows of its head accordingly."""
        names = self.classes_.tolist()
        order = sorted(range(len(names)), key=lambda i: names[i])
        if order == list(range(len(names))):
            return
        for parameter in self.model_.head.out.parameters():
            parameter.copy_(parameter[order])
        self.classes_, self.class_order_ = np.asarray([names[i] for i in order]), order

    def check_parts(self, folder: Path) -> None:
        if hasattr(self.model_.config.embedding, "vocab_size") == self.INPUTS.has_images:
            raise CheckpointError(f"contains a model that does not read {self.NOUN}", where=str(folder))

    # --- methods that differ between texts and images ----------------------------------------------

    @abstractmethod
    def export_outputs(self) -> Any:
        """The ``export.outputs.Outputs`` that exports this estimator and checks the export."""

    @abstractmethod
    def _is_from_scratch(self) -> bool:
        """Whether training starts from random weights."""

    @staticmethod
    @abstractmethod
    def check(X: Any, origin: str = "X") -> list[Any]:
        """Check examples and return them as a list.

        Raises:
            DataError: an example cannot be used. The message names the first one.
        """

    @staticmethod
    @abstractmethod
    def copy_keys(examples: Sequence[Any]) -> list[str]:
        """One key per checked example; duplicates have equal keys."""

    @staticmethod
    @abstractmethod
    def count_tokens(examples: Sequence[Any]) -> int:
        """Approximate number of tokens of checked examples in an encoder."""

    @abstractmethod
    def _build_preprocessor(self, fit: FitState) -> None:
        """Fit the preprocessing (a tokenizer, a transform) on ``fit.examples``."""

    @abstractmethod
    def encode(self, examples: Sequence[Any]) -> Any:
        """Encode checked examples as a table of token ids or pixels. Long texts are truncated."""

    def evaluation_table(self, examples: Sequence[Any]) -> Any:
        """Encode checked examples for prediction."""
        return self.encode(examples)

    def _training_table(self, examples: Sequence[Any]) -> Any:
        """Encode checked examples for training."""
        return self.encode(examples)

    @abstractmethod
    def _stream(self, fit: FitState) -> Stream: ...

    @abstractmethod
    def _vectors(self, fit: FitState, model: Any) -> Tensor:
        """Pooled vectors ``[n, D]`` of the training examples, which are cached in the user's cache folder."""

    @abstractmethod
    def _objective(self, fit: FitState) -> Callable: ...

    def _cache_frozen_features(
        self, fit: FitState, stream: Any, objective: Any, table: Any, logits: Any
    ) -> tuple:
        """Return batches, objective and validation logits that compute frozen layers only once."""
        return stream, objective, logits

    @abstractmethod
    def table_outputs(
        self, model: Any, table: Any, output: str, device: torch.device, progress: Callable | None = None
    ) -> np.ndarray:
        """Compute ``"logits"`` ``[n, C]`` or ``"pooled"`` vectors ``[n, D]`` of an evaluation table."""

    @abstractmethod
    def _table_arrays(self, table: Any) -> list[np.ndarray]:
        """The arrays of a table, for the fingerprint of the training data."""


# --- classifiers: thresholds, calibration, abstention and int8 inference ---------------------------


# Values of ``abstain_below`` for which ``calibrate`` reports the accuracy.
ABSTENTION_LEVELS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)


def fit_decision(
    kind: Classes, logits: np.ndarray, targets: np.ndarray, metric: Metric | None, thresholds: Any = None
) -> tuple[Any, Any]:
    """Fit temperature and threshold on the logits ``[n, C]`` of examples that were not used in training.

    The threshold applies to probabilities that were computed with the temperature.

    Args:
        metric: the metric that the threshold maximizes. None: no threshold, or for multi-label models with
            ``thresholds`` the F1 of each label.
        thresholds: the thresholds that ``fit`` tuned.
    """
    temperature, threshold = kind.fit_temperature(logits, targets), None
    if metric is not None or (kind.is_multilabel and thresholds is not None):
        threshold = kind.fit_threshold(kind.probabilities(logits, temperature), targets, metric or "f1")
    return temperature, threshold


def check_abstain(below: float | None, kind: Classes) -> float | None:
    """Return ``abstain_below``; raise ConfigError if it is not a probability, or for multi-label targets."""
    if below is None:
        return None
    if kind.is_multilabel:
        what = "a multi-label model may predict no label at all"
        raise NotForThisModelError(
            what, where="abstain_below", fix="Leave it out: each label has a threshold"
        )
    if not _is_probability(below):
        what = f"{below!r} is not a probability between 0 and 1"
        raise BadValueError(what, where="abstain_below", fix="Give one such as 0.6")
    return float(below)


def _is_probability(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1


def abstention(
    kind: Classes, probabilities: np.ndarray, targets: np.ndarray, threshold: Any, below: float
) -> dict[str, Any]:
    """The effect of abstaining below a probability, for JSON.

    Returns:
        ``below``, ``n``, ``answered`` (number of examples that get a label), and the ``accuracy`` of these
        examples with its 95 % ``accuracy_interval``, which are None if no example gets a label.
    """
    predicted = kind.predicted_index(probabilities, threshold)
    is_confident = kind.confidence(probabilities, predicted) >= below
    n, num_correct = int(is_confident.sum()), int((predicted == targets)[is_confident].sum())
    out: dict[str, Any] = {"below": below, "n": len(targets), "answered": n}
    if n == 0:
        return out | {"accuracy": None, "accuracy_interval": None}
    return out | {"accuracy": num_correct / n, "accuracy_interval": share_interval(num_correct / n, n)}


def abstention_levels(
    kind: Classes, probabilities: np.ndarray, targets: np.ndarray, threshold: Any
) -> list[dict[str, Any]]:
    """``abstention`` at each of ``ABSTENTION_LEVELS`` at which some example gets a label.

    Of the levels at which all examples get a label, only the highest is returned.
    """
    records = [abstention(kind, probabilities, targets, threshold, below) for below in ABSTENTION_LEVELS]
    without_effect = sum(record["answered"] == len(targets) for record in records)
    return [record for record in records[max(without_effect - 1, 0) :] if record["answered"]]


class Classifier(ClassifierMixin, Supervised):
    """Base class of classifiers of raw examples.

    Fitted attributes in addition to ``Supervised``'s:
        abstain_below_: ``predict`` returns None if the probability of the label is below this value.
            None: the classifier never abstains.
        int8_: the result of ``check_int8``; None if it was not called.
    """

    SAVED_STATE = (*Supervised.SAVED_STATE, "abstain_below", "int8")

    abstain_below_: float | None = None
    int8_: dict[str, Any] | None = None
    _int8_weights: tuple[int, int] | None = None  # the ``weights_state`` when ``int8_`` was measured

    @classmethod
    def supports(cls, kind: Classes) -> bool:
        return kind.problem_type != Numbers.problem_type

    def _examples(self, fit: FitState, *data: Any) -> Any:
        examples, validation_data = super()._examples(fit, *data)
        if self.precision == "int8":
            check_int8_count(0 if validation_data is None else len(validation_data[0]))
        return examples, validation_data

    def _prepare(self, fit: Any) -> tuple[Any, Any]:
        self.abstain_below_ = self.int8_ = None
        return super()._prepare(fit)

    def _finish_fit(self, fit: FitState, training: Any) -> None:
        super()._finish_fit(fit, training)
        self.check_int8_after_fit(fit)

    # --- int8 inference --------------------------------------------------------------------------

    def check_int8(self, X: Sequence[Any], y: Sequence[Any]) -> dict[str, Any]:
        """Check whether ``precision="int8"`` may be used, on examples that the model was not trained on.

        Args:
            X, y: at least 200 examples and their labels, from the same distribution as future inputs.

        Returns:
            The record that becomes ``int8_`` and is saved: ``n``, ``agree`` (the share of labels that are
            equal to those in fp32), ``accuracy``, ``accuracy_int8``, ``level`` and ``passed``. The check
            passes if at least 99.5 % of the labels agree and the accuracies differ by at most 0.2 points.

        Raises:
            ConfigError: too few examples, or the machine or model does not support int8 inference.
            DataError: examples cannot be used, or labels were not seen in training.
        """
        examples, labels = self._check_labeled(X, y, "check_int8")
        if reason := int8_obstacle(self.model_, choose_device(self.device)):
            what = f"int8 is off: {reason}"
            raise NotForThisModelError(what, where="precision", fix="Use auto, fp32 or bf16")
        self._warn_of_spelling(labels)
        return self._measure_int8(examples, self.encode_targets(labels, self.kind_.targets_noun))

    def check_int8_after_fit(self, fit: FitState) -> None:
        """After a fit with ``precision="int8"``, check int8 on the validation examples."""
        if self.precision != "int8" or fit.validation is None:
            return
        if int8_obstacle(self.model_, choose_device(self.device)) is None:
            self._measure_int8(*fit.validation)

    def _measure_int8(self, examples: Sequence[Any], targets: np.ndarray) -> dict[str, Any]:
        check_int8_count(len(examples))

        def predicted(precision: str) -> np.ndarray:
            logits = self._compute(examples, "logits", precision=precision)
            return self.predicted_index(self.to_probabilities(logits))

        self.int8_ = compare_with_int8(predicted("fp32"), predicted("int8"), targets)
        self._compute_model = None
        self._int8_weights = weights_state(self.model_)
        return self.int8_

    def _forget_stale_int8(self) -> None:
        """Reset ``int8_`` if the weights were changed in place since the check."""
        current, checked = weights_state(self.model_), self._int8_weights
        if checked is not None and checked[0] == current[0] and checked != current:
            self.int8_ = None
        self._int8_weights = current

    def _metadata(self) -> dict[str, Any]:
        self._forget_stale_int8()
        return super()._metadata()

    def _precision(self, device: torch.device) -> str:
        """The precision for prediction: int8 only if its check passed, otherwise auto with a warning.

        Raises:
            ConfigError: the check was not run.
        """
        if self.precision != "int8":
            return self.precision
        self._forget_stale_int8()
        reason, result = int8_obstacle(self.model_, device), self.int8_
        if reason is None and result is None:
            what = "int8 has not been checked on this model's validation labels yet"
            fix = "Call check_int8(X, y) with examples that the model was not trained on, then save"
            raise ConfigError(what, where="precision", fix=fix)
        if reason is None and result is not None and result["passed"]:
            return "int8"
        state = f"off: {reason}" if reason or result is None else describe_int8(result)
        warnings.warn(f"int8 is {state}; {FALLBACK}", IdleSettingWarning, stacklevel=2)
        return "auto"

    def calibrate(
        self,
        X: Sequence[Any],
        y: Sequence[Any],
        *,
        threshold: Metric | None = None,
        abstain_below: float | None = None,
    ) -> Self:
        """Fit temperature and threshold on examples that the model was not trained on.

        Args:
            X, y: examples and their labels, from the same distribution as future inputs.
            threshold: the metric that ``threshold_`` maximizes: ``accuracy``, ``macro_f1``, or for two
                classes the ``f1`` of the second. None: no threshold, except for multi-label models.
            abstain_below: a value between 0 and 1. ``predict`` returns None if the probability of the label
                is below it.

        Raises:
            ConfigError: ``abstain_below`` is not between 0 and 1.
            DataError: examples cannot be used, or labels were not seen in training.
            InputError: the metric is unknown.
        """
        check_is_fitted(self, "model_")
        below = check_abstain(abstain_below, self.kind_)
        examples, labels = self._check_labeled(X, y, "calibrate")
        self._warn_of_spelling(labels)
        logits, targets = self.logits(examples), self.encode_targets(labels, self.kind_.targets_noun)
        fitted = fit_decision(self.kind_, logits, targets, threshold, self.threshold_)
        (self.temperature_, self.threshold_), self.abstain_below_ = fitted, below
        self.int8_ = self._compute_model = None  # the int8 check used the old threshold
        return self

    def abstains(self, probabilities: np.ndarray) -> np.ndarray:
        """Boolean ``[n]``: whether the probability of the label is below ``abstain_below_``."""
        if self.abstain_below_ is None:
            return np.zeros(len(probabilities), bool)
        return self.kind_.confidence(probabilities, self.predicted_index(probabilities)) < self.abstain_below_

    def decide_or_abstain(self, probabilities: np.ndarray) -> np.ndarray:
        """The labels ``[n]`` from ``decide``, with None where the classifier abstains."""
        labels, abstained = self.decide(probabilities), self.abstains(probabilities)
        if abstained.any():
            labels = labels.astype(object)
            labels[abstained] = None
        return labels

    def predict(self, X: Sequence[Any]) -> Any:
        """Predict the label of each example, with ``threshold_`` if it is set.

        Multi-label: a 0/1 matrix ``[n, K]`` if training had one, otherwise a list of tuples of labels.
        With ``abstain_below_``: an object array with None where the classifier abstains.
        """
        probabilities = self.outputs(X)
        if self.abstain_below_ is None:
            return self.kind_.format_prediction(self.predicted_index(probabilities), self.classes_)
        return self.kind_.to_input_type(self.decide_or_abstain(probabilities))

    def predict_proba(self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Probabilities ``[n, C]``, fp64, columns in the order of ``classes_``."""
        return self.outputs(X, progress=progress)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; for multi-label, the share of examples with all labels right. Abstention is ignored.

        A label in ``y`` that was not seen in training counts as wrong. A label that differs only in spelling
        counts as the known label, with an ``OtherSpellingWarning``.

        Raises:
            DataError: examples or labels cannot be used, or their numbers differ.
        """
        examples, labels = self._check_labeled(X, y, "score")
        truth = self.kind_.normalize(labels, self.classes_.tolist())
        self._warn_of_spelling(labels)
        return accuracy(self.decide(self.outputs(examples)).tolist(), truth, sample_weight)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    # --- files -----------------------------------------------------------------------------------

    @classmethod
    def restore(cls, folder: Path, metadata: dict[str, Any], *, in_bf16: bool = False) -> Self:
        below = metadata.get("abstain_below")
        if below is not None and not _is_probability(below):
            what = f"abstain_below = {shorten(below)} is not a probability"
            raise CheckpointError(what, where=str(folder), fix="Calibrate the model again")
        metadata = {"abstain_below": None, "int8": None} | metadata
        metadata["int8"] = read_int8_result(metadata["int8"], str(folder))
        return super().restore(folder, metadata, in_bf16=in_bf16)


def accuracy(predictions: Sequence[Any], truth: Sequence[Any], weights: Any = None) -> float:
    """The weighted share of correct predictions.

    Raises:
        DataError: the numbers of predictions, labels and weights differ, or all weights are 0.
    """
    if len(predictions) != len(truth):
        what = f"{len(predictions)} predictions, {len(truth)} labels"
        raise UnequalLengthsError(what, where="score", fix="Give one label for each example")
    correct = [a == b for a, b in zip(predictions, truth, strict=True)]
    weights = None if weights is None else check_weights(weights, len(correct))
    return float(np.average(correct, weights=weights))


# --- int8 inference, and its check on validation labels --------------------------------------------
#
# The check passes if the fp32 and the int8 model predict the same label for at least 99.5 % of the validation
# examples, and their accuracies differ by at most 0.2 points. The result is saved with the model. If the
# check does not pass, prediction uses the default precision.


MIN_AGREEMENT = 0.995  # minimum share of examples with the same label
MAX_DIFFERENCE = 0.002  # maximum difference of the accuracies
MIN_EXAMPLES = 200  # with fewer examples, a single different label is more than 0.5 %
METRICS = ("agree", "accuracy", "accuracy_int8")
FALLBACK = "prediction computes as with precision=auto"


def int8_obstacle(model: Any, device: torch.device) -> str | None:
    """Why int8 is not possible for this model and device; None if it is possible."""
    if device.type != "cpu":
        return "it is for the CPU"
    if not has_linear_layers(model):
        return "the model has no linear layers of a Transformer"
    return int8.why_not()


def check_int8_count(count: int) -> None:
    """Raise ConfigError if there are too few held-out examples for the check."""
    if count < MIN_EXAMPLES:
        what = (
            f"int8 is checked on validation labels: it needs at least {MIN_EXAMPLES}, and there are {count}"
        )
        raise ConfigError(what, where="precision", fix="Hold more examples out, or use auto")


def compare_with_int8(fp32: np.ndarray, int8: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
    """Compare the class indices ``[n]`` or ``[n, K]`` of the fp32 model, the int8 model and the truth.

    Returns:
        The record for JSON: ``n``, ``agree``, ``accuracy``, ``accuracy_int8`` (shares of examples), ``level``
        (instruction set) and ``passed``.
    """
    fp32, int8, targets = (x.reshape(len(targets), -1) for x in (fp32, int8, targets))
    shares = [float((a == b).all(1).mean()) for a, b in ((fp32, int8), (fp32, targets), (int8, targets))]
    metrics = dict(zip(METRICS, shares, strict=True))
    difference = abs(metrics["accuracy"] - metrics["accuracy_int8"])
    passed = metrics["agree"] >= MIN_AGREEMENT - 1e-12 and difference <= MAX_DIFFERENCE + 1e-12
    instructions = level()
    title = "" if instructions is None else instructions.title
    return {"n": len(targets), **metrics, "level": title, "passed": passed}


def describe_int8(result: Mapping[str, Any]) -> str:
    """The result of the check in words, with its numbers."""
    metrics = (
        f"{100 * result['agree']:.2f} % of {result['n']:,} validation labels are the same as in fp32, "
        f"accuracy {100 * result['accuracy_int8']:.2f} % instead of {100 * result['accuracy']:.2f} %"
    )
    percent, points = 100 * MIN_AGREEMENT, 100 * MAX_DIFFERENCE
    limits = f"(required: {percent:.1f} %, and a difference of at most {points:.1f} points)"
    return f"on with precision=int8: {metrics}" if result["passed"] else f"off: {metrics} {limits}"


def read_int8_result(result: Any, where: str) -> dict[str, Any] | None:
    """Validate the result of the check in a file; None if the check was not run."""
    if result is None:
        return None
    numbers = [result.get(name) for name in METRICS] if isinstance(result, dict) else [None]
    shares = all(isinstance(x, int | float) and math.isfinite(x) and 0 <= x <= 1 for x in numbers)
    valid_counts = isinstance(result, dict) and isinstance(result.get("n"), int) and result["n"] >= 1
    if not (shares and valid_counts and isinstance(result.get("passed"), bool)):
        what = "'int8' is not a valid result of the int8 check"
        raise CheckpointError(what, where=where, fix="Remove this key")
    return result


ERRORS_FILE = "intervals"  # name of the file with the errors on validation examples


class Regressor(RegressorMixin, Supervised):
    """Base class of regressors of raw examples.

    Fitted attributes in addition to ``Supervised``'s:
        errors_: the absolute errors on the validation examples, ascending, ``[m]`` fp64, which determine the
            width of intervals. With ``number_scale="log"`` they are differences of logarithms. The array is
            empty without validation examples.
    """

    TARGETS = "targets"
    kind_: Any = Numbers()
    errors_: np.ndarray = np.zeros(0)

    @classmethod
    def supports(cls, kind: Classes) -> bool:
        return kind.problem_type == Numbers.problem_type

    @classmethod
    def infer_kind(cls, y: Any) -> Classes:
        return Numbers()

    # --- training --------------------------------------------------------------------------------

    def _examples(
        self, fit: FitState, *data: Any
    ) -> tuple[LabeledExamples, tuple[list[Any], np.ndarray] | None]:
        (X, numbers, weights), validation_data = super()._examples(fit, *data)
        self.kind_ = Numbers.from_numbers(numbers, fit.train.number_scale)
        if validation_data is not None:
            inputs, targets = validation_data
            validation_data = inputs, self.kind_.standardize(targets, "validation targets")
        return LabeledExamples(X, self.kind_.standardize(numbers), weights), validation_data

    def _finish_fit(self, fit: FitState, training: Training) -> None:
        super()._finish_fit(fit, training)
        self.errors_ = np.zeros(0)
        if fit.validation is not None:
            predicted = self.to_probabilities(self._validation_logits(fit))[:, 0]
            self.errors_ = self._errors(predicted, self.kind_.to_numbers(fit.validation[1]))

    def _errors(self, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
        """Absolute errors ``[m]``, ascending, on the scale of the target."""
        return np.sort(absolute_errors(self.kind_.scale, predicted, true))

    # --- prediction ------------------------------------------------------------------------------

    def predict(self, X: Sequence[Any]) -> np.ndarray:
        """Predict the number of each example ``[n]``, fp64, in the unit of the training numbers."""
        return self.outputs(X)[:, 0]

    def calibrate(self, X: Sequence[Any], y: Sequence[Any]) -> Self:
        """Compute ``errors_``, the basis of intervals, on these examples instead of those of ``fit``.

        Args:
            X, y: examples that the model was not trained on, from the same distribution as future inputs.

        Raises:
            DataError: examples or numbers cannot be used.
        """
        X, numbers = self._check_labeled(X, y, "calibrate")
        if self.kind_.scale == "log":
            check_positive(numbers, "targets")
        self.errors_ = self._errors(self.predict(X), np.asarray(numbers))
        return self

    def interval(self, numbers: np.ndarray, coverage: float = COVERAGE) -> np.ndarray:
        """Lower and upper bounds ``[n, 2]`` around predicted numbers ``[n]``; see ``predict_interval``."""
        return bounds_around(numbers, half_width(self._check_errors(coverage), coverage), self.kind_.scale)

    def predict_interval(self, X: Sequence[Any], coverage: float = COVERAGE) -> np.ndarray:
        """Lower and upper bounds of the numbers, ``[n, 2]`` fp64, by split conformal prediction.

        With ``m`` validation examples, half the width is the ``ceil((m + 1) coverage)``-th smallest of their
        absolute errors. All intervals have the same width. With ``number_scale="log"`` the bounds are the
        prediction divided and multiplied by the same factor.

        On average, the intervals contain at least the share ``coverage`` of the true numbers of examples from
        the same distribution. If the validation examples also selected the best epoch, the intervals are
        slightly too narrow. To avoid that, call ``calibrate`` with other examples.

        Args:
            coverage: a number between 0 and 1.

        Raises:
            ConfigError: there are no validation examples, or too few for this coverage.
            DataError: an example cannot be used.
        """
        half_width(self._check_errors(coverage), coverage)  # raises errors before the prediction
        return self.interval(self.predict(X), coverage)

    def _check_errors(self, coverage: float) -> np.ndarray:
        """Return ``errors_``; raise ConfigError if there are none."""
        check_coverage(coverage)
        if not len(self.errors_):
            what = "no examples were held out, so the errors of this model are unknown"
            fix = "Fit with validation=(X, y) or validation_fraction=0.1, or call calibrate(X, y)"
            raise ConfigError(what, where="coverage", fix=fix)
        return self.errors_

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The coefficient of determination, R².

        Raises:
            DataError: examples or targets cannot be used, or their numbers differ.
        """
        from sklearn.metrics import r2_score

        X, y = self._check_labeled(X, y, "score")
        return float(r2_score(y, self.predict(X), sample_weight=sample_weight))

    # --- files -----------------------------------------------------------------------------------

    def model_to_save(self) -> Any:
        """A copy of the model whose head returns numbers in the unit of the targets, for other programs.

        With ``number_scale="log"`` the head returns the logarithms of the numbers.
        """
        model, kind = copy.copy(self.model_), self.kind_
        model._modules = dict(model._modules) | {"head": copy.deepcopy(model.head)}
        out = model.head.out
        with torch.no_grad():
            out.weight.mul_(kind.unit)
            out.bias.copy_((out.bias.double() * kind.unit + kind.mean).to(out.bias))
        return model

    def hub_label_names(self) -> tuple[str, ...]:
        return (HUB_NAMES[self.kind_.scale],)

    def _metadata(self) -> dict[str, Any]:
        return super()._metadata() | {"bias": float(self.model_.head.out.bias.detach()[0])}

    def write_parts(self, folder: Path) -> dict[str, Any]:
        write_tensors(folder, {"errors": torch.from_numpy(np.array(self.errors_))}, name=ERRORS_FILE)
        return super().write_parts(folder)

    def read_parts(self, folder: Path, metadata: dict[str, Any]) -> None:
        super().read_parts(folder, metadata)
        if not metadata:  # a folder of another library
            return
        errors = read_tensors(folder, ERRORS_FILE).get("errors")
        is_valid = errors is not None and errors.dim() == 1 and errors.dtype == torch.float64
        if errors is None or not is_valid or not bool(((errors >= 0) & errors.isfinite()).all()):
            what = "contains no errors of held-out examples"
            raise CheckpointError(what, where=str(folder), fix="Save it again")
        self.errors_ = np.sort(errors.numpy())

    @classmethod
    def restore(cls, folder: Path, metadata: dict[str, Any], *, in_bf16: bool = False) -> Self:
        """Load a saved regressor, and convert its head back to standardized outputs.

        The conversion is exact: the weights were multiplied by a power of two, and ``glassformer.json`` has
        the bias.
        """
        out = super().restore(folder, metadata, in_bf16=in_bf16)
        if not cls.supports(out.kind_):
            raise CheckpointError("its targets are not numbers", where=str(folder))
        bias, head = metadata.get("bias"), out.model_.head.out
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not np.isfinite(bias):
            raise CheckpointError(f"bias = {shorten(bias)} is not a number", where=str(folder))
        with torch.no_grad():
            head.weight.div_(out.kind_.unit)
            head.bias.fill_(bias)
        return out
