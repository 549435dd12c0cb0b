"""What every classifier here is: scikit-learn's contract around a model, its preprocessing and its labels.

``fit`` hands everything to the one training loop; what texts and pictures do differently is at the end of the class.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from glassformer.checkpoints.names_lora import save_adapter
from glassformer.config import build, to_toml
from glassformer.data.checks import check_classes, check_pairs, check_two, check_weights, place
from glassformer.data.splits import stratified_split
from glassformer.errors import ConfigError, DataError
from glassformer.evaluate.metrics import ClassificationMeter
from glassformer.evaluate.predict import ahead, softmax
from glassformer.explain.asked import Explains
from glassformer.nn.lora import adapter, merge
from glassformer.runtime import choose_device, choose_dtype, own_generators, set_seed, set_threads
from glassformer.sklearn_base import BaseEstimator, ClassifierMixin, check_is_fitted
from glassformer.tasks.build import fingerprint
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.saving import save_classifier
from glassformer.train.callbacks import Callback, Checkpoints, Progress, run_with
from glassformer.train.config import FitConfig
from glassformer.train.distributed import Ranks, join
from glassformer.train.freezing import Unfreeze, freeze
from glassformer.train.loop import Stream, count_steps
from glassformer.train.objectives import class_weights
from glassformer.train.optim import MasterOptimizer
from glassformer.train.state import Training


class Estimator(Explains, ClassifierMixin, BaseEstimator):
    """A classifier of raw examples.

    Fitted state: ``classes_``, ``model_``, ``history_``, ``weights_source_``, ``best_step_``, ``train_seconds_``,
    ``temperature_``, ``threshold_``, and what preprocessing leaves.
    """

    SECTIONS: ClassVar[dict[str, type]]  # of a recipe; their keys are the constructor's parameters
    RECIPE: ClassVar[type]
    NOUN: ClassVar[str]  # what the examples are called in messages

    model_: Any
    classes_: np.ndarray
    class_weight: str | dict | None
    temperature_: float
    threshold_: float | None  # on the second of two classes; None: the most probable class
    threads: int
    device: str
    precision: str

    # --- settings --------------------------------------------------------------------------------

    def _configs(self) -> dict[str, Any]:
        """Section -> its settings, checked."""
        return {
            section: build(cls, {f.name: getattr(self, f.name) for f in fields(cls)}, type(self).__name__)
            for section, cls in self.SECTIONS.items()
        }

    @classmethod
    def from_recipe(cls, recipe: Any, **overrides: Any) -> Self:
        """The classifier that a recipe describes; keyword arguments replace its values."""
        recipe = load_recipe(recipe) if isinstance(recipe, str | Path) else recipe
        if not isinstance(recipe, cls.RECIPE):
            raise ConfigError(
                f"{recipe.name!r} is a recipe of the task {recipe.task!r}",
                where=cls.__name__,
                fix=f"Name one of the task {cls.RECIPE().task!r}",
            )
        values = {
            f.name: getattr(getattr(recipe, section), f.name)
            for section, config in cls.SECTIONS.items()
            for f in fields(config)
        }
        return cls(**(values | overrides))

    def to_recipe(self, name: str = "") -> str:
        """These settings as the TOML text of a recipe (data and evaluation sections at their defaults)."""
        return to_toml(self.RECIPE(name=name, **self._configs()))

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
            checkpoints: folder for checkpoints, every ``checkpoint_every`` steps; without ``resume`` it must have none.
            resume: go on from the newest whole checkpoint there, bit for bit; a new run where there is none.

        Raises:
            DataError: empty or missing examples or labels, one class only, a validation label unseen in training.
            ConfigError: a setting that cannot be.
            CheckpointError: weights that cannot be loaded, or a checkpoint of another run.
        """
        before = {name: value for name, value in vars(self).items() if name.endswith("_")}
        try:
            with own_generators():
                self._fit(X, y, validation, sample_weight, callbacks, checkpoints, resume)
        except BaseException:  # a fit that fails leaves the one before
            for name in [name for name in vars(self) if name.endswith("_") and name not in before]:
                delattr(self, name)
            vars(self).update(before)
            raise
        return self

    def _fit(self, X, y, validation, sample_weight, callbacks, checkpoints, resume) -> None:
        configs = self._configs()
        train: FitConfig = configs["train"]
        device = choose_device(train.device)
        set_threads(train.threads)
        ranks = join(train.strategy, device, train.seed)
        examples, labels = check_pairs(X, y, "fit", self.NOUN, "labels", self._check)
        classes = check_classes(labels)
        numbers = {label: number for number, label in enumerate(classes)}
        self.classes_, targets = np.asarray(classes), np.array([numbers[label] for label in labels], np.int64)
        weights = None if sample_weight is None else check_weights(sample_weight, len(examples))
        if validation is None and train.validation_fraction > 0:
            kept, held = stratified_split(targets.tolist(), train.validation_fraction, train.seed)
            validation = [examples[i] for i in held], self.classes_[targets[held]].tolist()
            examples, targets = [examples[i] for i in kept], targets[kept]
            weights = None if weights is None else weights[kept]
        started = time.perf_counter()
        self._prepare(configs, examples)
        table = self._training_table(examples)
        self.temperature_, self.threshold_ = 1.0, None
        network = self._network(configs, table, device)
        optimizer = MasterOptimizer(network, train, choose_dtype(train.precision, device), ranks)
        stream = self._stream(table, train, device, network)
        training = Training(network, optimizer, train, count_steps(stream, train.epochs))
        held = self._validation(validation)
        training.fingerprint = self._fingerprint(table, targets, weights, held)
        objective = self._objective(targets, self._weights(targets, weights), train)
        own = held if ranks.size == 1 else self._validation(validation, ranks.own)
        logits = own and partial(self._table_rows, network, own[0], "logits", device)
        if not ranks.sharded:
            stream, objective, logits = self._shorten(network, train, stream, objective, own, logits)
        judge = self._judge(logits, held[1], ranks) if held and logits else None
        self._run(training, stream, objective, judge, callbacks, checkpoints, resume)
        weights_now = training.final_weights()
        if ranks.sharded:  # the pieces stay behind
            network = self._network(configs, table, device)
        network.set_compute_dtype(torch.float32)
        network.load_state_dict(optimizer.frozen | weights_now, strict=False)
        self.adapter_ = adapter(network) or None
        merge(network)
        self.model_ = network.eval()
        self.history_ = list(training.history)
        self.best_step_ = training.best_step
        self.train_seconds_ = training.began - started + training.seconds_spent
        self._compute_model = None

    def _network(self, configs: dict[str, Any], table: Any, device: torch.device) -> Any:
        """The model to train, what shall not learn frozen."""
        set_seed(configs["train"].seed)
        network = self._build(configs, len(self.classes_), table).to(device)
        self.weights_source_ = network.weights_source
        freeze(network, configs["train"])
        return network

    def _run(self, training, stream, objective, judge, callbacks, checkpoints, resume) -> None:
        calls = list(callbacks)
        if checkpoints is not None:
            saves = Checkpoints(Path(checkpoints), training.config.checkpoint_every)
            calls.insert(0, saves.begin(training, resume))
        if training.config.unfreeze_every:
            calls.insert(0, Unfreeze(training.config.train_layers, training.config.unfreeze_every))
        if training.config.verbose and training.ranks.leads:
            calls.append(Progress())
        run_with(calls, training, stream, objective, judge)

    def _weights(self, targets: np.ndarray, sample_weight: np.ndarray | None) -> np.ndarray | None:
        """Class weights times sample weights, with mean 1."""
        weights = class_weights(targets, self.classes_.tolist(), self.class_weight)
        if sample_weight is not None:
            weights = sample_weight if weights is None else weights * sample_weight
            weights = (weights / weights.mean()).astype(np.float32)
        return weights

    def _validation(self, validation, own: Callable = list) -> tuple[Any, np.ndarray] | None:
        """The held-out examples as a table, or ``own`` of them, and their classes."""
        if validation is None:
            return None
        X, y = check_two(validation, f"{self.NOUN}, labels")
        examples, labels = check_pairs(
            X, y, "validation", f"validation {self.NOUN}", "validation labels", self._check
        )
        examples, labels = own(examples), own(labels)
        return self._evaluation_table(examples), self._targets(labels, "validation labels")

    def _judge(self, logits: Callable[[], np.ndarray], targets: np.ndarray, ranks: Ranks):
        def judge() -> dict[str, float]:
            meter = ClassificationMeter(self.classes_.tolist())
            meter.update(softmax(ranks.gather(logits())[: len(targets)]), targets)
            out = meter.result(bootstrap=0)
            return {"loss": out["log_loss"], "accuracy": out["accuracy"], "macro_f1": out["macro_f1"]}

        return judge

    def _targets(self, labels: Sequence[Any], origin: str, rows: Sequence[int] | None = None) -> np.ndarray:
        numbers = {label: i for i, label in enumerate(self.classes_.tolist())}
        for i, label in enumerate(labels):
            if label not in numbers:
                raise DataError(
                    f"label {label!r} was not seen in training",
                    where=place(origin, i, rows),
                    fix=f"Known: {', '.join(map(str, numbers))}",
                )
        return np.array([numbers[label] for label in labels], np.int64)

    def _fingerprint(self, table: Any, targets: np.ndarray, weights, held) -> dict[str, Any]:
        """What must agree for a checkpoint to be continued: every setting that changes bits, and the data."""
        arrays = [*self._arrays(table), targets, weights]
        if held is not None:
            arrays += [*self._arrays(held[0]), held[1]]
        return fingerprint(self.get_params(deep=False), arrays)

    # --- prediction ------------------------------------------------------------------------------

    def _predictor(self) -> Any:
        """The model in the number format of prediction, made anew after a fit, a load or other settings."""
        settings = (self.threads, self.device, self.precision)
        made = getattr(self, "_compute_model", None)
        if made is None or made[0] != settings:
            set_threads(self.threads)
            device = choose_device(self.device)
            dtype = choose_dtype(self.precision, device)
            model = self.model_.to(device)
            if dtype != torch.float32:
                model = copy.deepcopy(model).set_compute_dtype(dtype)
            made = self._compute_model = settings, model
        return made[1]

    def _rows(self, X: Sequence[Any], what: str, progress=None) -> np.ndarray:
        check_is_fitted(self, "model_")
        examples = self._check(X)
        model = self._predictor()
        device = next(model.parameters()).device
        size = self._chunk()
        chunks = [examples[i : i + size] for i in range(0, len(examples), size)]
        parts = [
            self._table_rows(model, table, what, device, progress)
            for table in ahead(self._evaluation_table, chunks)
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

    def __getstate__(self):
        state: dict[str, Any] = super().__getstate__().copy()  # type: ignore[union-attr]
        state["_compute_model"] = None
        return state

    # --- files -----------------------------------------------------------------------------------

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write one folder: the Hub's layout, ``glassformer.json`` and a checksummed ``manifest.json``.

        Raises:
            CheckpointError: the folder exists and ``overwrite`` is False, or is not one of ours.
        """
        check_is_fitted(self, "model_")
        return save_classifier(self, path, overwrite)

    def save_adapter(self, path: str | Path) -> Path:
        """Write the low-rank updates of a fit with ``lora_rank`` alone, in PEFT's file layout.

        Raises:
            ConfigError: the fit had none.
        """
        check_is_fitted(self, "model_")
        updates = getattr(self, "adapter_", None)
        if not updates:
            raise ConfigError(
                "there are no low-rank updates", where="save_adapter", fix="Fit with lora_rank = 8"
            )
        config = self._configs()["train"]
        save_adapter(Path(path), type(self.model_).__name__, updates, config.lora_rank, config.lora_alpha)
        return Path(path)

    # --- what each kind of example does in its own way ---------------------------------------------

    @staticmethod
    def _check(X: Any, origin: str = "X") -> list[Any]:
        """The examples as a list, or a DataError that names the first that cannot be used."""
        raise NotImplementedError

    def _prepare(self, configs: dict[str, Any], examples: list[Any]) -> None:
        """Settle the preprocessing (a tokenizer, a transform)."""
        raise NotImplementedError

    def _encode(self, examples: Sequence[Any]) -> Any:
        """Raw examples as a table."""
        raise NotImplementedError

    def _evaluation_table(self, examples: Sequence[Any]) -> Any:
        """Raw examples as prediction reads them."""
        return self._encode(examples)

    def _training_table(self, examples: Sequence[Any]) -> Any:
        """Raw examples as a table for training."""
        return self._encode(examples)

    def _build(self, configs: dict[str, Any], num_labels: int, table: Any) -> Any:
        """The model; ``weights_source`` says where its weights come from."""
        raise NotImplementedError

    def _stream(self, table: Any, train: FitConfig, device: torch.device, model: Any) -> Stream:
        raise NotImplementedError

    def _objective(self, targets: np.ndarray, weights: np.ndarray | None, train: FitConfig) -> Callable:
        raise NotImplementedError

    def _shorten(self, model: Any, train: Any, stream: Any, objective: Any, held: Any, logits: Any) -> tuple:
        """Batches, objective and held-out logits of the same training, without what every epoch would repeat."""
        return stream, objective, logits

    def _table_rows(
        self, model: Any, table: Any, what: str, device: torch.device, progress: Callable | None = None
    ) -> np.ndarray:
        """``"logits"`` ``[n, C]`` or ``"pooled"`` ``[n, D]`` of a table."""
        raise NotImplementedError

    def _arrays(self, table: Any) -> list[np.ndarray]:
        """What of a table decides a training's bits."""
        raise NotImplementedError

    def _chunk(self) -> int:
        """Examples encoded at a time in prediction: memory stays flat however many there are."""
        raise NotImplementedError

    def _write_parts(self, folder: Path) -> dict[str, Any]:
        """Write the preprocessing beside the model; returns what else ``glassformer.json`` must hold."""
        raise NotImplementedError

    def _read_parts(self, folder: Path, about: dict[str, Any]) -> None:
        """The reverse of ``_write_parts``."""
        raise NotImplementedError
