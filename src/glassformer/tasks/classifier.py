"""What every classifier here is: scikit-learn's contract around a model, its preprocessing and its labels.

``fit`` hands everything to the one training loop; where texts and pictures differ is at the end of the class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch

from glassformer.checkpoints.names_lora import save_adapter
from glassformer.checkpoints.settings import ABOUT, real
from glassformer.data.checks import check_classes, check_pairs, check_two, check_weights, place, read_labels
from glassformer.data.label_kinds import about_labels, as_known
from glassformer.data.splits import grouped_split
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.evaluate.metrics import ClassificationMeter
from glassformer.evaluate.predict import ahead, softmax
from glassformer.explain.asked import Explains
from glassformer.families import names_of
from glassformer.families.adapters import add_adapter, head_in_hub
from glassformer.families.pretrained import save_pretrained
from glassformer.sklearn_base import ClassifierMixin, check_is_fitted
from glassformer.tasks.estimator import Estimator, Fit
from glassformer.train.callbacks import Callback
from glassformer.train.defaults import chosen, kind_of
from glassformer.train.distributed import Ranks
from glassformer.train.loop import Stream
from glassformer.train.objectives import class_weights

COLDEST, HOTTEST = 1e-3, 1e3  # of a temperature; calibration itself looks at 0.05 to 20
OVER_ONE = 1 + 1e-6  # a threshold that no probability reaches may stand just above 1


class Labeled(NamedTuple):
    """Examples to learn from."""

    X: list[Any]
    targets: np.ndarray  # [n] the number of each one's class
    sample_weight: np.ndarray | None  # [n], of mean 1


class Classifier(Explains, ClassifierMixin, Estimator):
    """A classifier of raw examples.

    Fitted state beside ``Estimator``'s: ``classes_``, ``temperature_``, ``threshold_``, preprocessing's.
    """

    SHARDS = True
    FIGURES = (*Estimator.FIGURES, "temperature", "threshold")
    NOUN: ClassVar[str]  # what the examples are called in messages
    CHUNK: ClassVar[int]  # examples encoded at a time in prediction: memory stays flat however many there are

    classes_: np.ndarray
    # Of a model that others saved: which of its outputs each class was; None: the classes stand as saved.
    class_order_: list[int] | None = None
    class_weight: str | dict | None
    temperature_: float
    threshold_: float | None  # on the second of two classes; None: the most probable class

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
        """Train on examples and their labels (text or int).

        Args:
            validation: (examples, labels) judged after each epoch; the best weights are kept by it.
            sample_weight: ``[n]``, non-negative; scaled to mean 1.
            checkpoints: folder for them, every ``checkpoint_every`` steps; must have none without ``resume``.
            resume: go on from the newest whole checkpoint there, bit for bit; a new run where there is none.

        Raises:
            DataError: empty or missing examples or labels, only one class, a validation label not trained.
            ConfigError: a setting that cannot be.
            CheckpointError: weights that cannot be loaded, or a checkpoint of another run.
        """
        return self._fit((X, y, validation, sample_weight), callbacks, checkpoints, resume)

    def _examples(self, fit: Fit, *data: Any) -> tuple[Labeled, tuple[list[Any], np.ndarray] | None]:
        X, y, validation, sample_weight = data
        examples, labels = check_pairs(X, y, "fit", self.NOUN, "labels", self.check)
        classes = check_classes(labels)
        numbers = {label: number for number, label in enumerate(classes)}
        self.classes_, targets = np.asarray(classes), np.array([numbers[label] for label in labels], np.int64)
        weights = None if sample_weight is None else check_weights(sample_weight, len(examples))
        share = fit.train.validation_fraction
        if validation is None and share > 0:
            groups = self.copies_of(examples) if fit.together else [*map(str, range(len(examples)))]
            kept, out = grouped_split(targets.tolist(), groups, share, fit.train.seed)
            held = [examples[i] for i in out], targets[out]
            examples, targets = [examples[i] for i in kept], targets[kept]
            weights = None if weights is None else weights[kept]
        else:
            held = self._held_out(validation)
        return Labeled(examples, targets, weights), held

    def _held_out(self, validation: Any) -> tuple[list[Any], np.ndarray] | None:
        if validation is None:
            return None
        X, y = check_two(validation, f"{self.NOUN}, labels")
        examples, labels = check_pairs(
            X, y, "validation", f"validation {self.NOUN}", "validation labels", self.check
        )
        return examples, self.targets(labels, "validation labels")

    def _weights(self, examples: Labeled) -> np.ndarray | None:
        """Class weights times sample weights, with mean 1."""
        _, targets, sample_weight = examples
        weights = class_weights(targets, self.classes_.tolist(), self.class_weight)
        if sample_weight is not None:
            weights = sample_weight if weights is None else weights * sample_weight
            weights = (weights / weights.mean()).astype(np.float32)
        return weights

    def _prepare(self, fit: Fit) -> tuple[Any, Any]:
        self._settle(fit)
        self.temperature_, self.threshold_, self.class_order_ = 1.0, None, None
        held = None if fit.held is None else self.evaluation_table(fit.held[0])
        return self._training_table(fit.examples.X), held

    def _choose(self, fit: Fit) -> dict[str, Any]:
        kind = kind_of(fit.train, fit.network, self._is_from_scratch())
        return chosen(fit.train, kind, fit.network.width, len(fit.examples.targets))

    def _loop(self, fit: Fit) -> tuple[Stream, Callable, Callable[[], dict[str, float]] | None]:
        stream, objective = self._stream(fit), self._objective(fit)
        own, logits = fit.held_table, None  # of the held-out examples, those that this process judges
        if own is not None:
            if fit.ranks.size > 1:
                own = self.evaluation_table(fit.ranks.own(fit.held[0]))
            logits = partial(self.table_rows, fit.network, own, "logits", fit.device)
        if not fit.ranks.sharded:
            stream, objective, logits = self._shorten(fit, stream, objective, own, logits)
        return stream, objective, logits and self._judge(logits, fit.held[1], fit.ranks)

    def _judge(
        self, logits: Callable[[], np.ndarray], targets: np.ndarray, ranks: Ranks
    ) -> Callable[[], dict[str, float]]:
        def judge() -> dict[str, float]:
            meter = ClassificationMeter(self.classes_.tolist(), curves=False)
            meter.update(softmax(ranks.gather(logits())[: len(targets)]), targets)
            out = meter.result(bootstrap=0)
            return {"loss": out["log_loss"], "accuracy": out["accuracy"], "macro_f1": out["macro_f1"]}

        return judge

    def targets(self, labels: Sequence[Any], origin: str, rows: Sequence[int] | None = None) -> np.ndarray:
        """Each label's class number ``[n]``, int64; ``origin`` and ``rows`` say where, for messages.

        Raises:
            DataError: a label that was not seen in training.
        """
        numbers = {label: i for i, label in enumerate(self.classes_.tolist())}
        labels = as_known(labels, numbers, spelling=True)
        for i, label in enumerate(labels):
            if label not in numbers:
                known = f"Known: {', '.join(map(str, numbers))}"
                what, fix = about_labels(
                    [*numbers, *labels], f"label {label!r} was not seen in training", known
                )
                raise DataError(what, where=place(origin, i, rows), fix=fix)
        return np.array([numbers[label] for label in labels], np.int64)

    def _arrays(self, fit: Fit) -> list[np.ndarray | None]:
        arrays = [*self._table_arrays(fit.table), fit.examples.targets, fit.examples.sample_weight]
        if fit.held is not None:
            arrays += [*self._table_arrays(fit.held_table), fit.held[1]]
        return arrays

    # --- prediction ------------------------------------------------------------------------------

    def _rows(self, X: Sequence[Any], what: str, progress=None) -> np.ndarray:
        check_is_fitted(self, "model_")
        examples = self.check(X)
        model = self.predictor()
        device = next(model.parameters()).device
        chunks = [examples[i : i + self.CHUNK] for i in range(0, len(examples), self.CHUNK)]
        parts = [
            self.table_rows(model, table, what, device, progress)
            for table in ahead(self.evaluation_table, chunks)
        ]
        return np.concatenate(parts)

    def logits(self, X: Sequence[Any]) -> np.ndarray:
        """What the head gives before temperature and threshold, ``[n, C]``, fp32."""
        return self._rows(X, "logits")

    def predict_proba(self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Probabilities ``[n, C]``, fp64, columns in the order of ``classes_``."""
        return softmax(self._rows(X, "logits", progress), getattr(self, "temperature_", 1.0))

    def predict(self, X: Sequence[Any]) -> np.ndarray:
        """The most probable label of each example ``[n]``."""
        return self.decide(self.predict_proba(X))

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """Labels from probabilities: the largest, or for two classes the saved threshold on the second."""
        if self.threshold_ is not None and len(self.classes_) == 2:
            return self.classes_[(probabilities[:, 1] >= self.threshold_).astype(int)]
        return self.classes_[probabilities.argmax(1)]

    def embed(self, X: Sequence[Any]) -> np.ndarray:
        """What the head reads of each example, ``[n, D]``, fp32."""
        return self._rows(X, "pooled")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.no_validation = True
        return tags

    # --- files -----------------------------------------------------------------------------------

    def _order(self) -> list[int] | None:
        """The rows that the head's have in a file: of another's model its own, so that adapters of it fit.

        A threshold stands on the second class, and goes with the order that it was chosen in.
        """
        return self.class_order_ if self.threshold_ is None else None

    def _write_model(self, folder: Path) -> None:
        names = tuple(map(str, self.classes_.tolist()))
        save_pretrained(self.model_, folder, label_names=names, order=self._order())

    def _about(self) -> dict[str, Any]:
        classes, order = self.classes_.tolist(), self._order()
        if order is not None:
            classes = [classes[order.index(row)] for row in range(len(order))]
        return super()._about() | {"classes": classes}

    @classmethod
    def restore(cls, folder: Path, about: dict[str, Any]) -> Self:
        where = str(folder / ABOUT)
        classes = about.get("classes")
        if not isinstance(classes, list) or not classes:
            raise CheckpointError("'classes' is missing or no list of labels of one kind", where=where)
        classes = read_labels(classes, "classes", where)
        temperature, threshold = real(about, "temperature", where, 1.0), None
        if not COLDEST <= temperature <= HOTTEST:
            what = f"temperature = {temperature:g} is none from {COLDEST:g} to {HOTTEST:g}"
            raise CheckpointError(what, where=where, fix="Calibrate it again")
        if about.get("threshold") is not None:
            threshold = real(about, "threshold", where, 0.5)
            if threshold > OVER_ONE:
                what = f"threshold = {threshold:g} is no probability"
                raise CheckpointError(what, where=where, fix="Choose it again")
        out = super().restore(folder, about | {"temperature": temperature, "threshold": threshold})
        out.classes_ = np.asarray(classes)
        if out.model_.config.num_labels != len(classes):
            what = f"{len(classes)} classes, but the model has {out.model_.config.num_labels} outputs"
            raise CheckpointError(what, where=where)
        if threshold is None:
            out._sort_classes()
        if isinstance(out.class_weight, dict):  # JSON's keys are text
            by_text = {str(label): label for label in classes}
            out.class_weight = {by_text.get(key, key): weight for key, weight in out.class_weight.items()}
        return out

    @torch.no_grad()
    def _sort_classes(self) -> None:
        """The classes of a file in their order, the rows of the head with them."""
        names = self.classes_.tolist()
        order = sorted(range(len(names)), key=lambda i: names[i])
        if order == list(range(len(names))):
            return
        for part in self.model_.head.out.parameters():
            part.copy_(part[order])
        self.classes_, self.class_order_ = np.asarray([names[i] for i in order]), order

    def check_parts(self, folder: Path) -> None:
        if hasattr(self.model_.config.embedding, "vocab_size") != (self.NOUN == "texts"):
            raise CheckpointError(f"holds a model that does not read {self.NOUN}", where=str(folder))

    def save_adapter(self, path: str | Path, *, head: bool = False) -> Path:
        """Write the low-rank updates of a fit with ``lora_rank`` alone, in PEFT's file layout.

        Args:
            head: pooling and head too, for a base of the Hub's class with a head; else the encoder.

        Raises:
            ConfigError: the fit had none, or the Hub's layout has no such head.
        """
        check_is_fitted(self, "model_")
        updates = getattr(self, "adapter_", None)
        if not updates:
            raise ConfigError(
                "there are no low-rank updates", where="save_adapter", fix="Fit with lora_rank = 8"
            )
        config = self.configs()["train"]
        whole = head_in_hub(self.model_) if head else None
        save_adapter(
            Path(path),
            names_of(self.model_.config),
            updates,
            config.lora_rank,
            config.lora_alpha,
            with_prefix=head,
            head=whole,
        )
        return Path(path)

    def load_adapter(self, path: str | Path) -> Self:
        """Add an adapter in PEFT's file layout to the weights: its low-rank updates, and its head if any.

        The model becomes what ``PeftModel.from_pretrained(base, path)`` followed by ``merge_and_unload()``
        gives; save it as usual. Whose base this is, nothing says: load it into the model it was trained on.

        Raises:
            CheckpointError: no such folder, another kind of adapter, or tensors that do not fit the model.
        """
        check_is_fitted(self, "model_")
        add_adapter(self.model_, path, self.class_order_)
        self.weights_source_ = self.model_.weights_source = f"{self.weights_source_}; adapter {path}"
        self._compute_model = None
        return self

    def save_beside(self, folder: Path) -> None:
        """The low-rank updates, where the fit had some."""
        if getattr(self, "adapter_", None):
            self.save_adapter(folder / "adapter")

    # --- what each kind of example does in its own way ---------------------------------------------

    def _is_from_scratch(self) -> bool:
        """Whether the model begins with random weights."""
        raise NotImplementedError

    @staticmethod
    def check(X: Any, origin: str = "X") -> list[Any]:
        """The examples as a list.

        Raises:
            DataError: one that cannot be used; the first is named.
        """
        raise NotImplementedError

    @staticmethod
    def copies_of(examples: Sequence[Any]) -> list[str]:
        """One key for each checked example; copies have the same."""
        raise NotImplementedError

    def _settle(self, fit: Fit) -> None:
        """Settle the preprocessing (a tokenizer, a transform) on ``fit.examples``."""
        raise NotImplementedError

    def encode(self, examples: Sequence[Any]) -> Any:
        """Checked examples as a table, each cut to what the model reads at once."""
        raise NotImplementedError

    def evaluation_table(self, examples: Sequence[Any]) -> Any:
        """Checked examples as prediction reads them."""
        return self.encode(examples)

    def _training_table(self, examples: Sequence[Any]) -> Any:
        """Checked examples as a table for training."""
        return self.encode(examples)

    def _stream(self, fit: Fit) -> Stream:
        raise NotImplementedError

    def _objective(self, fit: Fit) -> Callable:
        raise NotImplementedError

    def _shorten(self, fit: Fit, stream: Any, objective: Any, own: Any, logits: Any) -> tuple:
        """Batches, objective and held-out logits of the same training, less what every epoch would repeat."""
        return stream, objective, logits

    def table_rows(
        self, model: Any, table: Any, what: str, device: torch.device, progress: Callable | None = None
    ) -> np.ndarray:
        """``"logits"`` ``[n, C]`` or ``"pooled"`` ``[n, D]`` of an evaluation table."""
        raise NotImplementedError

    def _table_arrays(self, table: Any) -> list[np.ndarray]:
        """What of a table decides a training's bits."""
        raise NotImplementedError
