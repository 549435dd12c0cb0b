"""Bases of supervised estimators and of classifiers: scikit-learn's interface around a model.

``fit`` runs the shared training loop; the methods in which texts and images differ are at the end.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from glassformer.checkpoints.catalog import AUTO
from glassformer.checkpoints.settings import ABOUT, shown
from glassformer.data.checks import check_pairs, check_two, check_weights, read_labels
from glassformer.data.columns import check_no_target_side
from glassformer.data.in_memory import as_targets
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
from glassformer.runtime import choose_device, computes
from glassformer.sklearn_base import ClassifierMixin, check_is_fitted
from glassformer.targets import kind_of_targets, target_from_metadata
from glassformer.targets.multiclass import Classes, warn_of_spelling
from glassformer.targets.regression import Numbers
from glassformer.tasks.adapters import Adapts
from glassformer.tasks.estimator import Estimator, Fit
from glassformer.tasks.int8 import (
    USUAL,
    check_count,
    compute_model,
    describe_outcome,
    obstacle,
    outcome,
    read_outcome,
    weights_state,
)
from glassformer.tasks.named_columns import warn_of_order
from glassformer.train.callbacks import Callback
from glassformer.train.config import auto_values_for
from glassformer.train.distributed import Ranks
from glassformer.train.loop import Stream
from glassformer.train.state import Training

NEW, SOLVED = "new (random): classification head", "new (solved): classification head"
CALIBRATION_EXAMPLES = 100  # minimum number of validation examples for fitting a temperature


class Labeled(NamedTuple):
    """Training examples with targets and weights."""

    X: list[Any]
    targets: np.ndarray  # [n] class indices, or another encoding: [n, K] for multi-label, numbers
    sample_weight: np.ndarray | None  # [n], with mean 1


class Supervised(ExplainMixin, Adapts, Estimator, ABC):
    """Base of estimators that learn targets from raw examples, for any kind of target.

    Fitted state besides ``Estimator``'s: ``classes_``, ``temperature_``, ``threshold_``, preprocessing.
    """

    SHARDS = True
    SAVED_STATE = (*Estimator.SAVED_STATE, "temperature", "threshold")
    CHUNK: ClassVar[int]  # examples encoded at a time in prediction, so that memory stays constant

    classes_: np.ndarray
    # For imported models: the index of each class in the file's order; None: the order is unchanged.
    class_order_: list[int] | None = None
    class_weight: str | dict | None
    kind_: Classes = Classes()  # kind of target: multi-class, multi-label ...
    temperature_: Any  # a number; for calibrated multi-label models [K]
    # For two classes: threshold of the second; for more [C]; None: the most probable; for multi-label [K].
    threshold_: Any
    tried_: Sequence[dict[str, Any]] = ()  # with model="auto", one record per candidate

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
            sample_weight: ``[n]``, non-negative; scaled to mean 1.
            checkpoints: folder for checkpoints, saved every ``checkpoint_every`` steps; must be empty without
                ``resume``.
            resume: continue bit-identically from the newest complete checkpoint; a new run if there is none.

        Raises:
            DataError: empty or missing examples or labels, only one class, an unknown validation label.
            ConfigError: an invalid setting.
            CheckpointError: weights that cannot be loaded, or a checkpoint of another run.
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

    def _examples(self, fit: Fit, *data: Any) -> tuple[Labeled, tuple[list[Any], np.ndarray] | None]:
        self.tried_ = []
        X, y, validation, sample_weight = data
        warn_of_order(X, y)
        y = as_targets(y, self.TARGETS, self.TARGETS)
        X = self.fit_rows(X, y)
        if y is not None:  # otherwise ``check_pairs`` reports what is missing
            self.kind_ = self.kind_for(y)
        word = self.kind_.word
        examples, labels = check_pairs(X, y, "fit", self.NOUN, word, self.check, self.kind_.read)
        self.n_features_in_ = self._width(examples)
        if self.n_features_in_ > 1:
            check_no_target_side(list(zip(*(x.sides for x in examples), strict=True)), labels, self.NOUN)
        classes = self.kind_.classes(labels)
        self.classes_, targets = np.asarray(classes), self.kind_.encode(labels, classes, word)
        weights = None if sample_weight is None else check_weights(sample_weight, len(examples))
        share = fit.train.validation_fraction
        if validation is None and share > 0:
            groups = self.copies_of(examples) if fit.group_duplicates else [*map(str, range(len(examples)))]
            strata = self.kind_.stratify_by(labels, targets)
            train_i, val_i = grouped_split(strata, groups, share, fit.train.seed)
            validation_data = [examples[i] for i in val_i], targets[val_i]
            examples, targets = [examples[i] for i in train_i], targets[train_i]
            weights = None if weights is None else weights[train_i]
        else:
            validation_data = self._held_out(validation)
        return Labeled(examples, targets, weights), validation_data

    def examples_of(self, X: Any, origin: str | None = None) -> list[Any]:
        """The examples as a checked list; from a table, the columns that ``fit`` used.

        Raises:
            DataError: an unusable example, or ambiguous columns.
        """
        return self.check(self.rows_of(X, origin), origin or self.NOUN)

    @staticmethod
    def _width(examples: Sequence[Any]) -> int:
        """Number of inputs of an example."""
        return 1

    @classmethod
    @abstractmethod
    def learns(cls, kind: Classes) -> bool:
        """Whether this estimator supports targets of that kind."""

    @classmethod
    def kind_for(cls, y: Any) -> Classes:
        """The kind of target of raw labels."""
        return kind_of_targets(y)

    def _held_out(self, validation: Any) -> tuple[list[Any], np.ndarray] | None:
        if validation is None:
            return None
        X, y = check_two(validation, f"{self.NOUN}, labels")
        noun, word = f"validation {self.NOUN}", f"validation {self.kind_.word}"
        examples, labels = check_pairs(X, y, "validation", noun, word, self.examples_of, self.kind_.read)
        self._warn_of_spelling(labels)
        return examples, self.targets(labels, word)

    def _warn_of_spelling(self, labels: Sequence[Any]) -> None:
        if self.kind_.labels_given:
            warn_of_spelling(labels, self.classes_.tolist())

    def _weights(self, examples: Labeled) -> np.ndarray | None:
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

    def _prepare(self, fit: Fit) -> tuple[Any, Any]:
        self._build_preprocessor(fit)
        self.temperature_, self.threshold_, self.class_order_ = 1.0, None, None
        table = self._training_table(fit.examples.X)  # first, because it decides how pixels are read
        return table, None if fit.validation is None else self.evaluation_table(fit.validation[0])

    def _network(self, fit: Fit) -> Any:
        """The model; with ``head_start="solved"`` its head is fitted on the frozen encoder's vectors."""
        network = super()._network(fit)
        fit.solved_head = None
        if fit.train.start_share not in ("auto", 0) and self._is_from_scratch():
            what = f"start_share = {fit.train.start_share} keeps a share of random weights"
            raise ConfigError(what, where="start_share", fix="Leave it out, or name a checkpoint")
        if network.fixed and fit.train.maskable:
            what = "a linear model has no layers that can learn from masked inputs"
            raise ConfigError(what, where="maskable", fix="Leave it out, or name an encoder")
        if not self._starts_solved(fit, network):
            return network
        model = compute_model(network, self._number_format(fit), fit.device)
        vectors = self._vectors(fit, model).float().cpu().numpy()  # [n, D]
        length = max(float(np.linalg.norm(vectors, axis=1).mean()), 1e-12)
        head = self.kind_.solve(
            vectors / length, fit.examples.targets, self._weights(fit.examples), fit.train.seed
        )
        fit.solved_head = head
        with torch.no_grad():
            network.head.out.weight.copy_(torch.from_numpy(head.weight / np.float32(length)))
            network.head.out.bias.copy_(torch.from_numpy(head.bias))
        self.weights_source_ = network.weights_source = network.weights_source.replace(NEW, SOLVED)
        return network

    def _starts_solved(self, fit: Fit, network: Any) -> bool:
        """Whether there is a linear head on pre-trained vectors that can be fitted in advance."""
        if network.fixed:
            return True
        if fit.train.head_start != "solved" or self._is_from_scratch() or not hasattr(network, "head"):
            return False
        linear = getattr(network.config, "head_type", "linear") == "linear"
        return linear and network.has_attention and network.has_features

    def _chooses_share(self, fit: Fit) -> bool:
        train = fit.train
        learns = not fit.network.fixed and (train.train_layers != 0 or train.unfreeze_every > 0)
        one = fit.ranks.size == 1 and not train.lora_rank
        if fit.solved_head is None or fit.validation is None:
            return False
        return train.start_share == "auto" and learns and one

    def _number_format(self, fit: Fit) -> str:
        return "auto" if fit.train.precision == "int8" else fit.train.precision

    def _resolve_defaults(self, fit: Fit) -> dict[str, Any]:
        counts = len(fit.examples.targets), len(self.classes_)
        solved = fit.solved_head is not None
        return auto_values_for(fit.train, fit.network, self._is_from_scratch(), *counts, solved)

    def _loop(self, fit: Fit) -> tuple[Stream, Callable, Callable[[], dict[str, float]] | None]:
        stream, objective = self._stream(fit), self._objective(fit)
        table, logits = fit.validation_table, None  # the validation examples that this process evaluates
        if table is not None:
            if fit.ranks.size > 1:
                table = self.evaluation_table(fit.ranks.own_examples(fit.validation[0]))
            logits = partial(self.table_rows, fit.network, table, "logits", fit.device)
        if not fit.ranks.sharded:
            stream, objective, logits = self._cache_frozen_features(fit, stream, objective, table, logits)
        return stream, objective, logits and self._evaluator(logits, fit.validation[1], fit.ranks)

    def _evaluator(
        self, logits: Callable[[], np.ndarray], targets: np.ndarray, ranks: Ranks
    ) -> Callable[[], dict[str, float]]:
        def evaluate() -> dict[str, float]:
            return self.kind_.validation_metrics(self, ranks.gather(logits())[: len(targets)], targets)

        return evaluate

    def _finish_fit(self, fit: Fit, training: Training) -> None:
        """Store the weights, and tune thresholds (if the target has any) on the outputs of prediction."""
        super()._finish_fit(fit, training)
        multilabel = fit.validation is not None and self.kind_.is_multilabel
        if fit.validation is None or not (multilabel or self._calibrates(fit)):
            return
        model = self.predictor("auto" if self.precision == "int8" else None)
        device = next(model.parameters()).device
        logits = finite(
            self.table_rows(model, self.evaluation_table(fit.validation[0]), "logits", device), "logits"
        )
        if multilabel:
            self.threshold_ = self.kind_.threshold(fit.train, logits, fit.validation[1])
        else:
            self.temperature_ = self.kind_.fit_temperature(logits, fit.validation[1])

    def _calibrates(self, fit: Fit) -> bool:
        """Whether calibration is on and there are enough validation examples for it."""
        calibrates = getattr(fit.train, "calibration", "none") == "auto" and self.kind_.single_label
        return calibrates and len(fit.validation[1]) >= CALIBRATION_EXAMPLES

    def targets(self, labels: Sequence[Any], origin: str, rows: Sequence[int] | None = None) -> np.ndarray:
        """The class index of each label ``[n]``, int64 (for multi-label ``[n, K]``, 0 or 1).

        Raises:
            DataError: a label that was not seen in training; the message has ``origin`` and its row.
        """
        return self.kind_.encode(labels, self.classes_.tolist(), origin, rows)

    def _arrays(self, fit: Fit) -> list[np.ndarray | None]:
        arrays = [*self._table_arrays(fit.table), fit.examples.targets, fit.examples.sample_weight]
        if fit.validation is not None:
            arrays += [*self._table_arrays(fit.validation_table), fit.validation[1]]
        return arrays

    # --- prediction ------------------------------------------------------------------------------

    @computes
    def _rows(self, X: Sequence[Any], what: str, progress=None, precision: str | None = None) -> np.ndarray:
        check_is_fitted(self, "model_")
        examples = self.examples_of(X)
        model = self.predictor(precision)
        device = next(model.parameters()).device
        chunks = [examples[i : i + self.CHUNK] for i in range(0, len(examples), self.CHUNK)]
        parts = [
            self.table_rows(model, table, what, device, progress)
            for table in prefetch(self.evaluation_table, chunks)
        ]
        return finite(np.concatenate(parts), "vectors" if what == "pooled" else "logits")

    def logits(self, X: Sequence[Any]) -> np.ndarray:
        """Outputs of the head before temperature and threshold, ``[n, C]``, fp32."""
        return self._rows(X, "logits")

    def outputs(self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Probabilities ``[n, C]`` or, for regression, numbers ``[n, 1]``, fp64."""
        return self.chances(self._rows(X, "logits", progress))

    def kept_outputs(self, X: Sequence[Any]) -> np.ndarray:
        """Like ``outputs``; for images, the features of a frozen encoder are cached as in training."""
        return self.outputs(X)

    def chances(self, logits: np.ndarray) -> np.ndarray:
        """Convert logits ``[n, C]`` to probabilities with the current temperature, or to numbers."""
        return self.kind_.probabilities(logits, getattr(self, "temperature_", 1.0))

    def predict(self, X: Sequence[Any]) -> Any:
        """The most probable label of each example ``[n]``; for multi-label a 0/1 matrix ``[n, K]`` if
        training had one, otherwise a list of tuples of labels."""
        return self.kind_.format_prediction(self.chosen(self.outputs(X)), self.classes_)

    def chosen(self, probabilities: np.ndarray) -> np.ndarray:
        """Class indices ``[n]`` for probabilities: the most probable class. With a saved threshold: for two
        classes, the second if it reaches the threshold; for more, the class with the largest ratio of
        probability to threshold. For multi-label a boolean ``[n, K]``: labels that reach their thresholds."""
        return self.kind_.predicted_index(probabilities, self.threshold_)

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """Labels ``[n]`` for probabilities, by ``chosen``; for multi-label ``LabelSet`` objects."""
        return self.kind_.labels(self.chosen(probabilities), self.classes_)

    def embed(self, X: Sequence[Any]) -> np.ndarray:
        """Embed each example: the pooled vector that the head reads, ``[n, D]``, fp32."""
        return self._rows(X, "pooled")

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
        """Order of the head's rows in a file: for imported models the original one, so that adapters fit,
        except with a threshold, which applies to the second class."""
        return self.class_order_ if self.threshold_ is None else None

    def _write_model(self, folder: Path) -> None:
        names, kind = self.names_on_hub(), self.kind_.problem_type
        save_pretrained(self.in_own_unit(), folder, label_names=names, order=self._order(), problem_type=kind)

    def in_own_unit(self) -> Any:
        """The model to save: for regression, a copy whose head returns numbers in the target's unit."""
        return self.model_

    def names_on_hub(self) -> tuple[str, ...]:
        """Names of the outputs in ``id2label``."""
        return tuple(map(str, self.classes_.tolist()))

    def _about(self) -> dict[str, Any]:
        classes, order = self.classes_.tolist(), self._order()
        if order is not None:
            classes = [classes[order.index(row)] for row in range(len(order))]
        tried = {"tried": list(self.tried_)} if self.tried_ else {}
        return super()._about() | {"classes": classes} | self.kind_.metadata() | tried

    @classmethod
    def restore(cls, folder: Path, about: dict[str, Any]) -> Self:
        where = str(folder / ABOUT)
        classes = about.get("classes")
        if not isinstance(classes, list) or not classes:
            raise CheckpointError("'classes' is missing or not a list of labels of one type", where=where)
        classes = read_labels(classes, "classes", where)
        kind = target_from_metadata(about, where)
        temperature, threshold = kind.read_calibration(about, where, len(classes))
        out = super().restore(folder, about | {"temperature": temperature, "threshold": threshold})
        out.classes_, out.kind_ = np.asarray(classes), kind
        out.tried_ = tried if isinstance(tried := about.get("tried", []), list) else []
        if out.model_.config.num_labels != len(classes):
            what = f"{len(classes)} classes, but the model has {out.model_.config.num_labels} outputs"
            raise CheckpointError(what, where=where)
        if threshold is None and kind.sort_classes():
            out._sort_classes()
        if isinstance(weights := getattr(out, "class_weight", None), dict):  # JSON keys are strings
            by_text = {str(label): label for label in classes}
            out.class_weight = {by_text.get(key, key): weight for key, weight in weights.items()}
        return out

    @torch.no_grad()
    def _sort_classes(self) -> None:
        """Sort the classes of a loaded model, and reorder the rows of its head accordingly."""
        names = self.classes_.tolist()
        order = sorted(range(len(names)), key=lambda i: names[i])
        if order == list(range(len(names))):
            return
        for part in self.model_.head.out.parameters():
            part.copy_(part[order])
        self.classes_, self.class_order_ = np.asarray([names[i] for i in order]), order

    def check_parts(self, folder: Path) -> None:
        if hasattr(self.model_.config.embedding, "vocab_size") == self.INPUTS.has_images:
            raise CheckpointError(f"holds a model that does not read {self.NOUN}", where=str(folder))

    # --- methods that texts and images implement differently --------------------------------------

    @abstractmethod
    def export_outputs(self) -> Any:
        """The ``export.outputs.Outputs`` that writes and checks these predictions in an export."""

    @abstractmethod
    def _is_from_scratch(self) -> bool:
        """Whether training starts from random weights."""

    @staticmethod
    @abstractmethod
    def check(X: Any, origin: str = "X") -> list[Any]:
        """The examples as a list.

        Raises:
            DataError: an unusable example; the message names the first.
        """

    @staticmethod
    @abstractmethod
    def copies_of(examples: Sequence[Any]) -> list[str]:
        """One key per checked example; copies have the same key."""

    @staticmethod
    @abstractmethod
    def tokens_of(examples: Sequence[Any]) -> int:
        """Approximate number of tokens that an encoder processes for checked examples."""

    @abstractmethod
    def _build_preprocessor(self, fit: Fit) -> None:
        """Fit the preprocessing (a tokenizer, a transform) on ``fit.examples``."""

    @abstractmethod
    def encode(self, examples: Sequence[Any]) -> Any:
        """Encode checked examples as a table of token ids or pixels, truncated to the maximum length."""

    def evaluation_table(self, examples: Sequence[Any]) -> Any:
        """Encode checked examples for prediction."""
        return self.encode(examples)

    def _training_table(self, examples: Sequence[Any]) -> Any:
        """Encode checked examples for training."""
        return self.encode(examples)

    @abstractmethod
    def _stream(self, fit: Fit) -> Stream: ...

    @abstractmethod
    def _vectors(self, fit: Fit, model: Any) -> Tensor:
        """Pooled vectors ``[n, D]`` of the training examples; stored in the user's cache folder."""

    @abstractmethod
    def _objective(self, fit: Fit) -> Callable: ...

    def _cache_frozen_features(self, fit: Fit, stream: Any, objective: Any, table: Any, logits: Any) -> tuple:
        """Replace batches, objective and validation logits by ones that compute frozen layers only once."""
        return stream, objective, logits

    @abstractmethod
    def table_rows(
        self, model: Any, table: Any, what: str, device: torch.device, progress: Callable | None = None
    ) -> np.ndarray:
        """``"logits"`` ``[n, C]`` or ``"pooled"`` vectors ``[n, D]`` of an evaluation table."""

    @abstractmethod
    def _table_arrays(self, table: Any) -> list[np.ndarray]:
        """The arrays of a table that determine the result of training."""


# --- classifiers: thresholds, calibration, abstention and int8 inference ---------------------------


# Probabilities below which a classifier may abstain.
LIMITS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)


def fitted_decision(
    kind: Classes, logits: np.ndarray, targets: np.ndarray, metric: Metric | None, thresholds: Any = None
) -> tuple[Any, Any]:
    """Fit temperature and threshold on the logits ``[n, C]`` of examples that were not trained on. The
    threshold applies to the probabilities after the temperature.

    Args:
        metric: what the threshold maximizes; None: no threshold, except multi-label with ``thresholds``.
        thresholds: the thresholds that ``fit`` chose.
    """
    temperature, threshold = kind.fit_temperature(logits, targets), None
    if metric is not None or (kind.is_multilabel and thresholds is not None):
        threshold = kind.fit_threshold(kind.probabilities(logits, temperature), targets, metric or "f1")
    return temperature, threshold


def check_abstain(below: float | None, kind: Classes) -> float | None:
    """Validate ``abstain_below``: ConfigError if it is not a probability, or for multi-label targets."""
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
    """Effect of abstaining below a probability, for JSON.

    Returns:
        ``below``, ``n``, ``answered`` (number of examples that get a label), their ``accuracy`` and its 95 %
        ``accuracy_interval``; both None if no example gets a label.
    """
    predicted = kind.predicted_index(probabilities, threshold)
    confident = kind.confidence(probabilities, predicted) >= below
    n, right = int(confident.sum()), int((predicted == targets)[confident].sum())
    out: dict[str, Any] = {"below": below, "n": len(targets), "answered": n}
    interval = share_interval(right / n, n) if n else None
    return out | {"accuracy": right / n if n else None, "accuracy_interval": interval}


def abstaining(
    kind: Classes, probabilities: np.ndarray, targets: np.ndarray, threshold: Any
) -> list[dict[str, Any]]:
    """``abstention`` at each of ``LIMITS``, without those that abstain from all examples. Of the limits that
    abstain from none, only the highest."""
    records = [abstention(kind, probabilities, targets, threshold, below) for below in LIMITS]
    without_effect = sum(record["answered"] == len(targets) for record in records)
    return [record for record in records[max(without_effect - 1, 0) :] if record["answered"]]


class Classifier(ClassifierMixin, Supervised):
    """Base class of classifiers of raw examples.

    Fitted attributes in addition to ``Supervised``'s: ``abstain_below_``: ``predict`` returns None if the
    label's probability is below it; None: always a label. ``int8_``: the result of ``check_int8``; None: not
    measured.
    """

    SAVED_STATE = (*Supervised.SAVED_STATE, "abstain_below", "int8")

    abstain_below_: float | None = None
    int8_: dict[str, Any] | None = None
    _int8_of: tuple[int, int] | None = None  # the ``weights_state`` when ``int8_`` was measured

    @classmethod
    def learns(cls, kind: Classes) -> bool:
        return kind.problem_type != Numbers.problem_type

    def _examples(self, fit: Fit, *data: Any) -> Any:
        examples, validation_data = super()._examples(fit, *data)
        if self.precision == "int8":
            check_count(0 if validation_data is None else len(validation_data[0]))
        return examples, validation_data

    def _prepare(self, fit: Any) -> tuple[Any, Any]:
        self.abstain_below_ = self.int8_ = None
        return super()._prepare(fit)

    def _finish_fit(self, fit: Fit, training: Any) -> None:
        super()._finish_fit(fit, training)
        self.check_int8_after_fit(fit)

    # --- products in int8 ------------------------------------------------------------------------

    def check_int8(self, X: Sequence[Any], y: Sequence[Any]) -> dict[str, Any]:
        """Check whether ``precision="int8"`` may be used, on examples that the model was not trained on.

        Args:
            X, y: at least 200 examples and their labels, from the same distribution as future inputs.

        Returns:
            The record that becomes ``int8_`` and is saved: ``n``, ``agree`` (share of labels equal to those
            in fp32), ``accuracy`` and ``accuracy_int8``, ``level``, and ``passed``: at least 99.5 % agree,
            and the accuracies differ by at most 0.2 points.

        Raises:
            ConfigError: too few examples, or a machine or model without int8 inference.
            DataError: unusable examples, or labels that were not seen in training.
        """
        check_is_fitted(self, "model_")
        word = self.kind_.word
        examples, labels = check_pairs(X, y, "check_int8", self.NOUN, word, self.examples_of, self.kind_.read)
        if reason := obstacle(self.model_, choose_device(self.device)):
            raise NotForThisModelError(
                f"int8 is off: {reason}", where="precision", fix="Use auto, fp32 or bf16"
            )
        self._warn_of_spelling(labels)
        return self._measure_int8(examples, self.targets(labels, word))

    def check_int8_after_fit(self, fit: Fit) -> None:
        """After a fit with ``precision="int8"``: check int8 on the validation examples."""
        if self.precision != "int8" or fit.validation is None:
            return
        if obstacle(self.model_, choose_device(self.device)) is None:
            self._measure_int8(*fit.validation)

    def _measure_int8(self, examples: Sequence[Any], targets: np.ndarray) -> dict[str, Any]:
        check_count(len(examples))
        fp32, int8 = (
            self.chosen(self.chances(self._rows(examples, "logits", precision=precision)))
            for precision in ("fp32", "int8")
        )
        self.int8_, self._compute_model = outcome(fp32, int8, targets), None
        self._int8_of = weights_state(self.model_)
        return self.int8_

    def _forget_stale_int8(self) -> None:
        """Reset ``int8_`` if the weights have changed since it was measured; a loaded model keeps it."""
        now, of = weights_state(self.model_), self._int8_of
        if of is not None and of[0] == now[0] and of != now:
            self.int8_ = None
        self._int8_of = now

    def _about(self) -> dict[str, Any]:
        self._forget_stale_int8()
        return super()._about()

    def _precision(self, device: torch.device) -> str:
        """The precision to predict with: int8 only if its check passed; otherwise a warning says why not.

        Raises:
            ConfigError: the check was not run.
        """
        if self.precision != "int8":
            return self.precision
        self._forget_stale_int8()
        reason, result = obstacle(self.model_, device), self.int8_
        if reason is None and result is None:
            raise ConfigError(
                "int8 has not been checked on this model's validation labels yet",
                where="precision",
                fix="Call check_int8(X, y) with examples that the model was not trained on, then save",
            )
        if reason is None and result is not None and result["passed"]:
            return "int8"
        state = f"off: {reason}" if reason or result is None else describe_outcome(result)
        warnings.warn(f"int8 is {state}; {USUAL}", IdleSettingWarning, stacklevel=2)
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
                classes ``f1`` of the second. None: predict the most probable label; multi-label models keep
                one threshold per label.
            abstain_below: between 0 and 1; ``predict`` returns None if the label's probability is below it.

        Raises:
            ConfigError: an invalid ``abstain_below``.
            DataError: unusable examples, or labels that were not seen in training.
            InputError: an unknown metric.
        """
        check_is_fitted(self, "model_")
        below, word = check_abstain(abstain_below, self.kind_), self.kind_.word
        examples, labels = check_pairs(X, y, "calibrate", self.NOUN, word, self.examples_of, self.kind_.read)
        self._warn_of_spelling(labels)
        logits, targets = self.logits(examples), self.targets(labels, word)
        fitted = fitted_decision(self.kind_, logits, targets, threshold, self.threshold_)
        (self.temperature_, self.threshold_), self.abstain_below_ = fitted, below
        self.int8_ = self._compute_model = None  # it was measured with the old threshold
        return self

    def abstains(self, probabilities: np.ndarray) -> np.ndarray:
        """Boolean ``[n]``: whether the label's probability is below ``abstain_below_``."""
        if self.abstain_below_ is None:
            return np.zeros(len(probabilities), bool)
        return self.kind_.confidence(probabilities, self.chosen(probabilities)) < self.abstain_below_

    def answers(self, probabilities: np.ndarray) -> np.ndarray:
        """The labels ``[n]`` as ``decide`` returns them, None where the classifier abstains."""
        labels, abstained = self.decide(probabilities), self.abstains(probabilities)
        if abstained.any():
            labels = labels.astype(object)
            labels[abstained] = None
        return labels

    def predict(self, X: Sequence[Any]) -> Any:
        """Predict the label of each example, using ``threshold_`` if there is one.

        For multi-label a 0/1 matrix ``[n, K]`` if training had one, otherwise a list of tuples of labels.
        With ``abstain_below_``, an object array with None where the classifier abstains.
        """
        if self.abstain_below_ is None:
            return super().predict(X)
        return self.kind_.to_input_type(self.answers(self.outputs(X)))

    def predict_proba(self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Probabilities ``[n, C]``, fp64, columns in the order of ``classes_``."""
        return self.outputs(X, progress=progress)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; for multi-label, the share of examples with all labels right. Abstention is ignored.

        A label in ``y`` that was not seen in training counts as wrong. One in another spelling counts as the
        label it means, with an ``OtherSpellingWarning``.

        Raises:
            DataError: unusable examples or labels, or different numbers of examples and labels.
        """
        check_is_fitted(self, "model_")
        kind = self.kind_
        examples, labels = check_pairs(X, y, "score", self.NOUN, kind.word, self.examples_of, kind.read)
        truth = kind.normalize(labels, self.classes_.tolist())
        self._warn_of_spelling(labels)
        return accuracy(self.decide(self.outputs(examples)).tolist(), truth, sample_weight)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    # --- files -----------------------------------------------------------------------------------

    @classmethod
    def restore(cls, folder: Path, about: dict[str, Any]) -> Self:
        below = about.get("abstain_below")
        if below is not None and not _is_probability(below):
            what = f"abstain_below = {shown(below)} is not a probability"
            raise CheckpointError(what, where=str(folder), fix="Choose it again")
        about = {"abstain_below": None, "int8": None} | about
        return super().restore(folder, about | {"int8": read_outcome(about["int8"], str(folder))})


def accuracy(predictions: Sequence[Any], truth: Sequence[Any], weights: Any = None) -> float:
    """The weighted share of predictions that are right.

    Raises:
        DataError: different numbers of predictions, labels or weights, or weights that are all 0.
    """
    if len(predictions) != len(truth):
        raise UnequalLengthsError(
            f"{len(predictions)} predictions, {len(truth)} labels",
            where="score",
            fix="Give one label for each example",
        )
    right = [a == b for a, b in zip(predictions, truth, strict=True)]
    return float(np.average(right, weights=None if weights is None else check_weights(weights, len(right))))
