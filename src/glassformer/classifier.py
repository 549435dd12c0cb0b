"""``TextClassifier``: preprocessing, model, head and labels as one object that takes raw text.

It follows scikit-learn's contract (``fit``, ``predict``, ``clone``, ``GridSearchCV`` ...), saves as one folder
that ``transformers`` opens, and can be looked into with ``explain``.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from glassformer.checkpoints.native import list_states
from glassformer.config import build, to_toml
from glassformer.data.batching import BatchSettings
from glassformer.data.checks import check_classes, check_pairs, check_texts, check_weights, place
from glassformer.data.splits import stratified_split
from glassformer.data.text import TokenTable, encode
from glassformer.errors import CheckpointError, DataError
from glassformer.evaluate.metrics import ClassificationMeter
from glassformer.evaluate.predict import ahead, predict_rows, read_logits, read_pooled, softmax
from glassformer.models.bert import Bert
from glassformer.pipeline import build_model, build_tokenizer
from glassformer.recipe import (
    FIT_SECTIONS,
    ModelConfig,
    Recipe,
    TextConfig,
    TrainConfig,
    fit_parameters,
    load_recipe,
)
from glassformer.runtime import choose_device, choose_dtype, own_generators, set_seed, set_threads
from glassformer.saving import save_classifier
from glassformer.train.callbacks import Callback, Checkpoints, Progress, run_with
from glassformer.train.features import can_be_cached, freeze_encoder, on_features
from glassformer.train.loop import TextStream, count_steps
from glassformer.train.objectives import Classification, class_weights
from glassformer.train.optim import MasterOptimizer
from glassformer.train.state import Training

CHUNK = 16_384  # texts tokenised at a time in prediction: memory stays flat however many there are


class TextClassifier(ClassifierMixin, BaseEstimator):
    """A Transformer that classifies texts.

    The parameters are the keys of a recipe's ``text``, ``model`` and ``train`` sections; ``glassformer.recipe``
    says what each means. Fitted state: ``classes_``, ``model_``, ``tokenizer_``, ``history_``,
    ``weights_source_``, ``truncated_`` (training texts that were cut), ``train_seconds_``.
    """

    # Set by the loop in __init__; named here for readers and type checkers.
    max_length: int
    add_special_tokens: bool
    batch_tokens: int
    threads: int
    device: str
    precision: str
    clean: str
    class_weight: str | dict | None

    def __init__(
        self,
        model: str = "all-minilm-l6-v2",
        *,
        max_length: int = 256,
        tokenizer: str = "auto",
        clean: str = "none",
        lowercase: bool = True,
        strip_accents: bool = False,
        vocab_size: int = 30_000,
        min_count: int = 2,
        add_special_tokens: bool = True,
        revision: str | None = None,
        pooling: str = "auto",
        head: str = "linear",
        head_hidden: int | None = None,
        head_dropout: float = 0.0,
        dropout: float | None = None,
        attention_dropout: float | None = None,
        stochastic_depth: float = 0.0,
        d_model: int | None = None,
        num_layers: int | None = None,
        num_heads: int | None = None,
        d_ff: int | None = None,
        norm: str | None = None,
        activation: str | None = None,
        positions: str | None = None,
        final_norm: bool | None = None,
        embedding_norm: bool | None = None,
        zero_init: bool | None = None,
        embedding_std: float | None = None,
        epochs: int = 3,
        lr: float = 5e-5,
        optimizer: str = "adamw",
        weight_decay: float = 0.01,
        betas: tuple[float, ...] = (0.9, 0.999),
        schedule: str = "linear",
        warmup: float = 0.06,
        layer_decay: float = 1.0,
        embedding_lr: float = 1.0,
        batch_size: int = 32,
        batch_tokens: int = 8192,
        length_window: int = 50,
        accumulate: int = 1,
        clip: float = 1.0,
        label_smoothing: float = 0.0,
        class_weight: str | dict | None = None,
        word_dropout: float = 0.0,
        train_layers: int | None = None,
        average: float = 0.0,
        validation_fraction: float = 0.0,
        early_stopping: int = 0,
        monitor: str = "accuracy",
        keep_best: bool = True,
        evaluate_every: int = 0,
        checkpoint_every: int = 0,
        seed: int = 0,
        precision: str = "auto",
        device: str = "auto",
        threads: int = 0,
        verbose: int = 0,
    ):
        values = locals()
        for name in fit_parameters():
            setattr(self, name, values[name])

    # --- settings --------------------------------------------------------------------------------

    def _configs(self) -> tuple[TextConfig, ModelConfig, TrainConfig]:
        sections = []
        for cls in FIT_SECTIONS.values():
            values = {f.name: getattr(self, f.name) for f in fields(cls)}
            sections.append(build(cls, values, "TextClassifier"))
        return tuple(sections)  # type: ignore[return-value]

    @classmethod
    def from_recipe(cls, recipe: str | Path | Recipe, **overrides: Any) -> TextClassifier:
        """The classifier that a recipe describes; keyword arguments replace its values."""
        recipe = load_recipe(recipe) if isinstance(recipe, str | Path) else recipe
        values = {
            f.name: getattr(getattr(recipe, section), f.name)
            for section, config in FIT_SECTIONS.items()
            for f in fields(config)
        }
        return cls(**(values | overrides))

    def to_recipe(self, name: str = "") -> str:
        """These settings as the TOML text of a recipe (data and evaluation sections at their defaults)."""
        text, model, train = self._configs()
        return to_toml(Recipe(name=name, text=text, model=model, train=train))

    # --- training --------------------------------------------------------------------------------

    def fit(
        self,
        X: Sequence[str],
        y: Sequence[Any],
        *,
        validation: tuple[Sequence[str], Sequence[Any]] | None = None,
        sample_weight: Sequence[float] | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoints: str | Path | None = None,
        resume: bool = False,
    ) -> TextClassifier:
        """Train on texts and their labels (text or int).

        Args:
            validation: (texts, labels) judged after each epoch; the best weights are kept by it.
            sample_weight: ``[n]``, non-negative; scaled to mean 1.
            checkpoints: folder for checkpoints, every ``checkpoint_every`` steps; without ``resume`` it must have none.
            resume: go on from the newest whole checkpoint there, bit for bit; a new run where there is none.

        Raises:
            DataError: empty or missing texts or labels, one class only, a validation label unseen in training.
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
        text, model, train = self._configs()
        device = choose_device(train.device)
        set_threads(train.threads)
        texts, labels = check_pairs(X, y, "fit", "texts", "labels")
        check_classes(labels)
        self.classes_, targets = np.unique(np.asarray(labels), return_inverse=True)
        weights = None if sample_weight is None else check_weights(sample_weight, len(texts))
        if validation is None and train.validation_fraction > 0:
            kept, held = stratified_split(targets.tolist(), train.validation_fraction, train.seed)
            validation = [texts[i] for i in held], self.classes_[targets[held]].tolist()
            texts, targets = [texts[i] for i in kept], targets[kept]
            weights = None if weights is None else weights[kept]
        started = time.perf_counter()
        self.tokenizer_ = build_tokenizer(text, model, texts)
        table = self._encode(texts)
        self.truncated_ = int(table.truncated.sum())
        set_seed(train.seed)
        network = build_model(model, text, self.tokenizer_, len(self.classes_)).to(device)
        self.weights_source_ = network.weights_source
        self.temperature_, self.threshold_ = 1.0, None
        if train.train_layers == 0:
            freeze_encoder(network)
        dtype = choose_dtype(train.precision, device)
        optimizer = MasterOptimizer(network, train, dtype)
        settings = BatchSettings(train.batch_size, train.batch_tokens, train.length_window)
        stream = TextStream(table, settings, train.accumulate, train.seed, device)
        training = Training(network, optimizer, train, count_steps(stream, train.epochs))
        held = self._validation(validation)
        training.fingerprint = self._fingerprint(table, targets, weights, held)
        objective = self._objective(targets, weights, train)
        logits = held and partial(
            predict_rows, network, held[0], read_logits, batch_tokens=self._budget(), device=device
        )
        if can_be_cached(network, train):
            stream, objective, logits = on_features(network, stream, objective, held, self._budget())
        judge = self._judge(logits, held[1]) if held and logits else None
        self._run(training, stream, objective, judge, callbacks, checkpoints, resume)
        weights_now = training.final_weights()
        network.set_compute_dtype(torch.float32)
        network.load_state_dict(optimizer.frozen | weights_now, strict=False)
        network.requires_grad_(True)
        self.model_ = network.eval()
        self.history_, self.best_step_ = training.history, training.best_step
        self.train_seconds_ = time.perf_counter() - started
        self._compute_model = None

    def _run(self, training, stream, objective, judge, callbacks, checkpoints, resume) -> None:
        calls = list(callbacks)
        if checkpoints is not None:
            folder = Path(checkpoints)
            if states := list_states(folder):
                if not resume:
                    raise CheckpointError("has checkpoints", where=str(states[-1][1]), fix="Use resume=True")
                training.load(folder)
            calls.insert(0, Checkpoints(folder, training.config.checkpoint_every))
        if training.config.verbose:
            calls.append(Progress())
        run_with(calls, training, stream, objective, judge)

    def _objective(
        self, targets: np.ndarray, sample_weight: np.ndarray | None, train: TrainConfig
    ) -> Classification:
        weights = class_weights(targets, self.classes_.tolist(), train.class_weight)
        if sample_weight is not None:
            weights = sample_weight if weights is None else weights * sample_weight
            weights = (weights / weights.mean()).astype(np.float32)
        hide = None
        if train.word_dropout:
            ids = (self.tokenizer_.token_to_id(token) for token in ("[MASK]", "[UNK]"))
            hide = (train.word_dropout, next(i for i in ids if i is not None))
        return Classification(targets, weights, train.label_smoothing, hide, self.add_special_tokens)

    def _validation(self, validation) -> tuple[TokenTable, np.ndarray] | None:
        if validation is None:
            return None
        texts, labels = check_pairs(
            validation[0], validation[1], "validation", "validation texts", "validation labels"
        )
        return self._encode(texts), self._targets(labels, "validation labels")

    def _judge(self, logits: Callable[[], np.ndarray], targets: np.ndarray):
        def judge() -> dict[str, float]:
            meter = ClassificationMeter(self.classes_.tolist())
            meter.update(softmax(logits()), targets)
            result = meter.result(bootstrap=0)
            names = {"loss": "log_loss", "accuracy": "accuracy", "macro_f1": "macro_f1"}
            return {ours: result[name] for ours, name in names.items()}

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

    def _fingerprint(self, table: TokenTable, targets: np.ndarray, weights, held) -> dict[str, Any]:
        """What must agree for a checkpoint to be continued: every setting that changes bits, and the data."""
        arrays = [table.ids, table.starts, targets, weights]
        if held is not None:
            arrays += [held[0].ids, held[0].starts, held[1]]
        digest = sha256()
        for array in arrays:
            digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
        ignored = {"checkpoint_every", "verbose", "device"}
        settings = {k: v for k, v in self.get_params(deep=False).items() if k not in ignored}
        return json.loads(json.dumps({**settings, "data_sha256": digest.hexdigest()}, default=str))

    # --- prediction ------------------------------------------------------------------------------

    def _encode(self, texts: Sequence[str]) -> TokenTable:
        return encode(
            self.tokenizer_, texts, max_length=self.max_length, clean=self.clean,  # type: ignore[arg-type]
            add_special_tokens=self.add_special_tokens,
        )  # fmt: skip

    def _budget(self) -> int:
        return max(self.batch_tokens, self.max_length) or 8192

    def _predictor(self) -> Bert:
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

    def _rows(self, X: Sequence[str], read, progress=None) -> np.ndarray:
        check_is_fitted(self, "model_")
        texts = check_texts(X)
        model = self._predictor()
        device = next(model.parameters()).device
        chunks = [texts[i : i + CHUNK] for i in range(0, len(texts), CHUNK)]
        parts = [
            predict_rows(model, table, read, batch_tokens=self._budget(), device=device, progress=progress)
            for table in ahead(self._encode, chunks)
        ]
        return np.concatenate(parts)

    def predict_proba(self, X: Sequence[str], *, progress=None) -> np.ndarray:
        """Probabilities ``[n, C]``, fp64, columns in the order of ``classes_``."""
        return softmax(self._rows(X, read_logits, progress), getattr(self, "temperature_", 1.0))

    def predict(self, X: Sequence[str]) -> np.ndarray:
        """The most probable label of each text ``[n]``."""
        return self.decide(self.predict_proba(X))

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """Labels from probabilities: the largest, or for two classes the saved threshold on the second."""
        if self.threshold_ is not None and len(self.classes_) == 2:
            return self.classes_[(probabilities[:, 1] >= self.threshold_).astype(int)]
        return self.classes_[probabilities.argmax(1)]

    def embed(self, X: Sequence[str]) -> np.ndarray:
        """What the head reads of each text, ``[n, D]``, fp32."""
        return self._rows(X, read_pooled)

    def explain(self, X: str, *, method: str = "attention", target: Any = None):
        """Where the model looks in one text; see ``glassformer.explain``."""
        from glassformer.explain.attention import explain_text

        check_is_fitted(self, "model_")
        return explain_text(self, check_texts([X])[0], method=method, target=target)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
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
