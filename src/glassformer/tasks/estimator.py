"""Base class of all estimators: settings, training that can be stopped and resumed, and saving.

``fit`` of each task calls ``Estimator._fit``. The methods that tasks implement are at the end of the class.
"""

from __future__ import annotations

import copy
import hashlib
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, dataclass_transform, get_type_hints

import numpy as np
import torch

from glassformer.checkpoints.files import verify_folder, write_folder
from glassformer.checkpoints.native import newest_fingerprint
from glassformer.checkpoints.settings import METADATA_FILE, check_parameters, read_metadata, shorten
from glassformer.config import (
    build,
    legacy_values,
    positional,
    setting,
    settings_of,
    to_json_types,
    to_toml,
    values_in_files,
    with_values_in_files,
)
from glassformer.data.columns import check_no_target_column, guess_input_columns
from glassformer.data.in_memory import (
    MemoryTable,
    as_record,
    as_targets,
    column_count_error,
    open_table,
    take_columns,
)
from glassformer.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    NotForThisModelError,
    OtherOrderWarning,
    UnnamedColumnsWarning,
    with_article,
)
from glassformer.families.pretrained import load_pretrained, save_pretrained
from glassformer.finite import json_text
from glassformer.inputs.inputs import Inputs
from glassformer.nn.int8 import quantized_copy
from glassformer.nn.lora import adapter, merge
from glassformer.report.notebook import NotebookRepr, Records
from glassformer.runtime import (
    choose_device,
    choose_dtype,
    isolated_torch,
    own_generator,
    set_seed,
    torch_uses_own_generator,
    versions,
)
from glassformer.sklearn_base import BaseEstimator, check_is_fitted, with_hints
from glassformer.tasks.card import count_examples, saved_example_counts, write_card
from glassformer.tasks.catalog import recipe_values
from glassformer.train.callbacks import Callback, Checkpoints, KeepEpochs, Progress, run_with
from glassformer.train.config import (
    AUTO_KEYS,
    FitConfig,
    user_stacklevel,
    warn_few_steps,
    warn_unused_settings,
    with_values,
)
from glassformer.train.distributed import Ranks, join, require_single_process
from glassformer.train.freezing import Unfreeze, freeze
from glassformer.train.loop import Stream, choose_start_share, count_steps
from glassformer.train.optim import MixedPrecisionOptimizer
from glassformer.train.state import Training


class NamedColumns:
    """Mixin for inputs that are lists of examples, or tables whose columns are selected by name.

    Fitted attributes: ``n_features_in_``, the number of inputs per example (2 for pairs), and
    ``feature_names_in_`` if ``fit`` got a table with column names. Prediction then selects columns by name
    and ignores other columns. A model that was fitted without names selects columns by position.
    """

    INPUTS: ClassVar[Inputs] = Inputs()  # the kind of inputs
    NOUN: ClassVar[str] = Inputs.noun  # name of the examples in messages
    TARGETS: ClassVar[str] = "labels"  # name of the targets in messages
    MAX_COLUMNS: ClassVar[int] = 1  # maximum number of columns of an example

    feature_names_in_: np.ndarray
    n_features_in_: int

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if isinstance(inputs := getattr(cls, "INPUTS", None), Inputs):
            cls.NOUN = inputs.noun

    @property
    def inputs(self) -> Inputs:
        """The kind of inputs that this model reads."""
        return self.INPUTS

    @staticmethod
    def is_example(row: Any) -> bool:
        """Whether a dict, or a list of dicts, is an example and not a row of a table."""
        return False

    def training_examples(self, X: Any, y: Any = None, names: Sequence[str] | None = None) -> Any:
        """The examples of ``X`` for ``fit``, as a list if ``X`` is a table.

        The names of its columns are stored. A column with the values of ``y`` raises an error.

        Args:
            names: the columns to use; None: all columns.
        """
        warn_of_order(X, y)
        vars(self).pop("feature_names_in_", None)
        self.n_features_in_, self._warned_positions = 1, False
        X = list(X) if isinstance(X, Iterator) and not hasattr(X, "read") else X
        table, y = open_table(X, self.NOUN, self.is_example), as_targets(y)
        if table is None:
            return X
        if names is None and (y is not None or self.MAX_COLUMNS > 1) and len(getattr(y, "shape", ())) < 2:
            check_no_target_column(table, y, self.MAX_COLUMNS, self.NOUN, self.TARGETS)
        if names is None and len(table) > self.MAX_COLUMNS:
            raise column_count_error(
                table, self.NOUN, self.NOUN, self.MAX_COLUMNS, guess_input_columns(table, self.MAX_COLUMNS)
            )
        out = take_columns(table, self.NOUN, self.NOUN, self.MAX_COLUMNS, names)
        if table.names is not None:
            self.feature_names_in_ = np.asarray(names or table.names, object)
        self.n_features_in_ = len(names or table)
        return out

    def prediction_examples(self, X: Any, origin: str | None = None, width: int | None = None) -> Any:
        """The examples of ``X`` for prediction, as a list if ``X`` is a table.

        The list has the columns that ``fit`` used, or ``width`` columns.
        """
        X = list(X) if isinstance(X, Iterator) and not hasattr(X, "read") else X
        origin, num_columns = origin or self.NOUN, width or self.columns_per_example()
        names = getattr(self, "feature_names_in_", None)
        if (table := open_table(X, origin, self.is_example)) is None:
            if names is not None and {*names} <= {*(as_record(X) or ())}:
                what = f"one row where a list of {self.NOUN} is expected"
                raise DataError(what, where=origin, fix="Put it into a list")
            return X
        if names is not None and len(names) != num_columns:
            names = None
        if names is None and num_columns > 1 and len(table) == num_columns:
            self._warn_of_positions(table)
        return take_columns(table, origin, self.NOUN, num_columns, None if names is None else names.tolist())

    def name_columns(self, *names: str | None) -> None:
        """Store the names of the columns that the arguments of ``fit`` came from; None is ignored."""
        columns = [name for name in names if name is not None]
        if len(columns) == self.n_features_in_:
            self.feature_names_in_ = np.asarray(columns, object)

    def columns_per_example(self) -> int:
        """Number of columns per example in prediction."""
        return getattr(self, "n_features_in_", self.MAX_COLUMNS)

    def _warn_of_positions(self, table: MemoryTable) -> None:
        """Warn once that columns are selected by position although they have names."""
        if table.names is None or getattr(self, "_warned_positions", False):
            return
        self._warned_positions = True
        names = " and ".join(map(repr, table.names))
        what = f"this model was fitted without column names: {names} are taken in this order"
        fix = "Fit it on a DataFrame to keep its column names, or pass a list of tuples"
        warnings.warn(f"{what}. {fix}", UnnamedColumnsWarning, stacklevel=5)

    def columns_metadata(self) -> dict[str, Any]:
        """The entry ``columns`` of ``glassformer.json``; empty if the model was fitted without names."""
        names = getattr(self, "feature_names_in_", None)
        return {} if names is None else {"columns": names.tolist()}

    def read_columns(self, metadata: Mapping[str, Any], where: str) -> None:
        """Read the column names from ``glassformer.json``; folders of earlier versions have none."""
        names = metadata.get("columns")
        if names is not None:
            is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
            if not is_list or not 1 <= len(names) <= self.MAX_COLUMNS or len(set(names)) < len(names):
                what = f"columns = {shorten(names)} is not a list of up to {self.MAX_COLUMNS} names"
                raise CheckpointError(what, where=where, fix="Save it again")
            self.feature_names_in_ = np.asarray(names, object)
        if (width := len(names or ()) or self.saved_num_inputs(metadata)) is not None:
            self.n_features_in_ = width

    def saved_num_inputs(self, metadata: Mapping[str, Any]) -> int | None:
        """The number of inputs per example according to ``glassformer.json``; None: unknown."""
        return 1


def warn_of_order(X: Any, y: Any) -> None:
    """Warn if X and y are pandas objects with the same index in different orders."""
    a, b = getattr(X, "index", None), getattr(y, "index", None)
    if a is None or b is None or callable(a) or callable(b) or len(a) != len(b) or a.equals(b):
        return
    if {*a} == {*b}:
        what = "X and y have the same index in a different order; rows are matched by position"
        fix = "to match rows by index, pass y.loc[X.index]"
        warnings.warn(f"{what}; {fix}", OtherOrderWarning, stacklevel=user_stacklevel())


T = TypeVar("T")
FORMAT = 1  # format version of glassformer.json
# Settings that do not affect the result, or only through the data, whose digest is in the fingerprint.
NOT_FINGERPRINTED = {"checkpoint_every", "verbose", "device", "strategy", "scheme"}


@dataclass
class FitState:
    """State of a running fit, which ``Estimator._fit`` passes to the methods of the task."""

    configs: dict[str, Any]  # section -> settings
    device: torch.device
    ranks: Ranks
    examples: Any = None  # checked training examples; their type depends on the task
    validation: Any = None  # validation examples; None: no validation
    table: Any = None  # the encoded training examples
    validation_table: Any = None
    network: Any = None
    solved_head: Any = None  # the ``SolvedHead`` that initializes the head; None: a random head
    resumed: Mapping[str, Any] | None = None  # fingerprint of the checkpoint from which the fit resumes
    group_duplicates: bool = False  # whether ``validation_fraction`` keeps duplicates in the same split

    @classmethod
    def of(cls, est: Any, data: Sequence[Any]) -> FitState:
        """The state of a fit that does not call ``Estimator._fit``, with the checked examples of ``data``."""
        configs, device = est.configs(), choose_device(est.device)
        fit = cls(configs, device, join(est.strategy, device, est.seed))
        fit.group_duplicates = bool(est.validation_fraction)
        fit.examples, fit.validation = est._examples(fit, *data)
        return fit

    @property
    def train(self) -> Any:
        """The settings of the section ``train``, a ``FitConfig`` or a subclass."""
        return self.configs["train"]


def fitted_attribute(*, init: Literal[False] = False) -> Any:
    """Declares an annotated attribute that ``fit`` sets; it is not a constructor parameter."""
    return field(init=init)


@dataclass_transform(kw_only_default=True, field_specifiers=(positional, fitted_attribute))
def with_settings(cls: type[T]) -> type[T]:
    """A decorator: the constructor takes the keys of all inherited sections, including deprecated keys.

    For an unknown name, the constructor raises a TypeError that suggests the most similar name.
    """
    out: Any = cls
    hints = get_type_hints(out.RECIPE)
    out.SECTIONS = {name: hint for name, hint in hints.items() if hint in cls.__mro__}
    for section in out.SECTIONS.values():
        for key, (neutral, reason) in getattr(section, "RETIRED", {}).items():
            cls.__annotations__[key] = Any
            setattr(cls, key, setting(neutral, reason))
    out = dataclass(kw_only=True, eq=False, repr=False)(cls)
    out.__init__ = with_hints(out.__init__)
    return out


class Estimator(NamedColumns, NotebookRepr, BaseEstimator):
    """Base class of every estimator. Its parameters are the keys of the sections of its recipe.

    Fitted attributes: ``model_``, ``history_``, ``weights_source_``, ``chosen_`` (the values that ``fit``
    chose for unset settings), ``best_step_``, ``train_seconds_``, ``adapter_`` (the LoRA updates of a fit
    with ``lora_rank``), and attributes of the task.
    """

    RECIPE: ClassVar[type]
    SECTIONS: ClassVar[dict[str, type]]  # name -> class of each section of the recipe that it inherits
    SAVED_STATE: ClassVar[tuple[str, ...]] = ("weights_source", "chosen", "best_step", "train_seconds")
    SHARDS: ClassVar[bool] = False  # whether FSDP may shard the model
    INNER: ClassVar[tuple[str, ...]] = ()  # fitted attributes whose names do not end in an underscore
    SAVED_AS: ClassVar[str] = ""  # name of the class in saved folders; empty: its Python name
    SINGLE_PROCESS_REASON: ClassVar[str] = ""  # why only one process can train this class; empty: any number

    __eq__, __hash__ = object.__eq__, object.__hash__  # sections compare by value, estimators by identity

    model_: Any
    history_: list[dict[str, Any]]
    weights_source_: str
    chosen_: Mapping[str, Any] = MappingProxyType({})
    best_step_: int
    examples_: Mapping[str, int]
    train_seconds_: float
    threads: int
    device: str
    precision: str
    _in_bf16: Any = None  # see ``keep_bf16``

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = with_hints(cls.__init__)  # type: ignore[method-assign]  # suggests similar names

    @property
    def learns_in_steps(self) -> bool:
        """Whether training has several epochs, of which validation data can select the best."""
        return True

    # --- settings --------------------------------------------------------------------------------

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Map parameters to their defaults, in the order of the recipe's sections."""
        return {k: v for config in cls.SECTIONS.values() for k, v in settings_of(config).items()}

    def __post_init__(self) -> None:
        """Disable the checks of sections: scikit-learn requires that constructors check nothing."""

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as in scikit-learn.

        Raises:
            ConfigError: a value is invalid and the estimator is fitted. No parameter is changed then.
        """
        previous = self.get_params(deep=False)
        super().set_params(**params)
        try:
            if self.has_model:
                self.configs()
        except ConfigError:
            super().set_params(**previous)
            raise
        return self

    def configs(self) -> dict[str, Any]:
        """Map section names to sections with checked settings.

        Raises:
            ConfigError: a value has the wrong type or is out of range.
        """
        return {
            section: build(cls, {name: getattr(self, name) for name in settings_of(cls)}, type(self).__name__)
            for section, cls in self.SECTIONS.items()
        }

    @classmethod
    def from_recipe(cls, recipe: Any, **overrides: Any) -> Self:
        """Create the estimator of a recipe, which is an object, a name or a file.

        Keyword arguments override values of the recipe.

        Raises:
            ConfigError: there is no such recipe, or it is of another task.
        """
        is_name = isinstance(recipe, str | Path)
        values, where = recipe_values(recipe) if is_name else (vars(recipe), "")
        task = cls.RECIPE.task
        if values["task"] != task:
            what = f"{values['name']!r} is a recipe of the task {values['task']!r}"
            raise ConfigError(what, where=cls.__name__, fix=f"Name one of the task {task!r}")
        if is_name:
            recipe = build(cls.RECIPE, with_values_in_files(cls.RECIPE, values), where)
        settings: dict[str, Any] = {}
        for section in cls.SECTIONS:
            settings |= vars(getattr(recipe, section))
        return cls(**(settings | overrides))

    def to_recipe(self, name: str = "") -> str:
        """The settings as the TOML text of a recipe; the sections data and evaluate have their defaults.

        A fitted estimator includes the values that ``fit`` chose.
        """
        configs = self.configs()
        if "train" in configs:  # settings that were changed after the fit take precedence
            unset = {key: value for key, value in self.chosen_.items() if getattr(self, key, 0) is None}
            configs["train"] = with_values(configs["train"], unset)
        return to_toml(self.RECIPE(name=name, **configs))

    @classmethod
    def from_parts(cls, settings: Mapping[str, Any], model: Any, **state: Any) -> Self:
        """An estimator with a model that was trained elsewhere. It can predict but has no training history.

        Args:
            settings: constructor parameters.
            model: a network, as returned by ``load_pretrained``.
            state: fitted attributes, by their names without the trailing underscore.
        """
        return cls(**settings)._with_parts(model, **state)

    def _with_parts(self, model: Any, **state: Any) -> Self:
        vars(self).update({f"{name}_": value for name, value in state.items()})
        self.model_, self.weights_source_ = model, model.weights_source
        self.history_, self.chosen_, self.best_step_, self.train_seconds_ = [], {}, 0, 0.0
        return self

    # --- training --------------------------------------------------------------------------------

    def _fit(
        self, data: Sequence[Any], callbacks: Sequence[Callback], checkpoints: str | Path | None, resume: bool
    ) -> Self:
        """Train on ``data``, the arguments of ``_examples``. An error restores the previous state."""
        configs = self.configs()
        train: FitConfig = configs["train"]
        device = choose_device(train.device)
        with own_generator(device), isolated_torch(train.threads, gradients=True), self._rollback():
            if train.strategy == "fsdp" and not self.SHARDS:
                require_single_process("fsdp can only shard classifiers", "Use --set strategy=ddp")
            fit = FitState(configs, device, join(train.strategy, device, train.seed))
            fit.resumed = newest_fingerprint(checkpoints) if resume and checkpoints else None
            groups_duplicates = fit.resumed is None or "copies" in fit.resumed
            fit.group_duplicates = bool(train.validation_fraction) and groups_duplicates
            fit.examples, fit.validation = self._examples(fit, *data)
            started = time.perf_counter()
            fit.table, fit.validation_table = self._prepare(fit)
            fit.network = self._network(fit)
            self.chosen_ = self._resolve_defaults(fit)
            train = configs["train"] = with_values(train, self.chosen_)
            chooses_share = self._chooses_share(fit)
            if getattr(train, "start_share", 0.0) == "auto" and not chooses_share:
                train = configs["train"] = replace(train, start_share=0.0)
            optimizer = MixedPrecisionOptimizer(
                fit.network, train, choose_dtype(train.precision, device), fit.ranks
            )
            stream, objective, evaluate = self._loop(fit)
            training = Training(fit.network, optimizer, train, count_steps(stream, train.epochs))
            split = {"copies": "together"} if fit.group_duplicates else {}
            training.fingerprint = self._fingerprint(data_sha256=digest(self._arrays(fit)), **split)
            training.old_defaults, training.chosen = self._old_defaults(), self.chosen_
            training.evaluate_start = fit.solved_head is not None
            warn_few_steps(training.total_steps, self._explicit_settings())
            warn_unused_settings(train, fit.validation is not None, self.chosen_)
            all_callbacks = self._callbacks(training, callbacks, checkpoints, resume)
            run_with(all_callbacks, training, stream, objective, evaluate)
            if chooses_share and evaluate is not None:
                self.chosen_ = {**self.chosen_, "start_share": choose_start_share(training, evaluate)}
            self._finish_fit(fit, training)
            self.train_seconds_ = training.start_time - started + training.seconds_spent
        return self

    def _chooses_share(self, fit: FitState) -> bool:
        """Whether the share of the initial weights in the final weights is chosen on validation data."""
        return False

    @contextmanager
    def _rollback(self) -> Iterator[None]:
        """A context that restores the previous fitted attributes if its block raises an error."""

        def fitted_attributes() -> dict[str, Any]:
            return {n: value for n, value in vars(self).items() if n.endswith("_") or n in self.INNER}

        previous = fitted_attributes()
        try:
            yield
        except BaseException:
            for name in fitted_attributes():
                delattr(self, name)
            vars(self).update(previous)
            raise

    def _network(self, fit: FitState) -> Any:
        """Build the model to train, and freeze layers as the settings say."""
        set_seed(fit.train.seed)
        with torch_uses_own_generator():
            network = self._build(fit).to(fit.device)
            freeze(network, fit.train)
        self.weights_source_ = network.weights_source
        return network

    def _callbacks(
        self,
        training: Training,
        callbacks: Sequence[Callback],
        checkpoints: str | Path | None,
        resume: bool,
    ) -> list[Callback]:
        """The user's callbacks and those of the settings. With ``resume``, the checkpoint is loaded, too."""
        out, train = list(callbacks), training.config
        if checkpoints is not None:
            out.insert(0, Checkpoints(Path(checkpoints), train.checkpoint_every).begin(training, resume))
        if getattr(train, "keep_epochs", False):
            out.insert(0, KeepEpochs(checkpoints))
        if train.unfreeze_every:
            out.insert(0, Unfreeze(train.train_layers or 0, train.unfreeze_every))
        if train.verbose and training.ranks.is_main:
            out.append(Progress())
        return out

    def _finish_fit(self, fit: FitState, training: Training) -> None:
        """Store the final weights and the history."""
        weights = training.final_weights()
        network = self._network(fit) if fit.ranks.sharded else fit.network  # rebuild a sharded model whole
        network.set_compute_dtype(torch.float32)
        network.load_state_dict(training.optimizer.frozen | weights, strict=False)
        self.adapter_ = adapter(network) or None
        self.adapter_scale_ = (fit.train.lora_rank, fit.train.lora_alpha)
        merge(network)
        self.model_, self._in_bf16 = network.eval(), None
        self.history_ = Records(training.history)
        self.best_step_ = training.best_step
        self.examples_ = count_examples(fit)
        self._compute_model = None

    def _fingerprint(self, **data: str) -> dict[str, Any]:
        """Settings and data that affect the result; only checkpoints with an equal fingerprint can resume."""
        settings = {k: v for k, v in self.get_params(deep=False).items() if k not in NOT_FINGERPRINTED}
        return to_json_types({**settings, **self.chosen_, **data})

    def _explicit_settings(self) -> dict[str, Any]:
        """The values that the user set for settings that are otherwise chosen from the data."""
        values, defaults = self.get_params(deep=False), self.defaults()
        automatic = [k for k in AUTO_KEYS if k in values and defaults[k] is None]
        return {k: values[k] for k in automatic if values[k] is not None}

    def _old_defaults(self) -> dict[str, Any]:
        """Map newer settings to the values that older checkpoints without them imply."""
        configs = self.SECTIONS.values()
        return to_json_types({k: v for config in configs for k, v in legacy_values(config).items()})

    # --- the model ---------------------------------------------------------------------------------

    def keep_bf16(self) -> Self:
        """Keep a model that was loaded in bf16 only in bf16, until something needs ``model_`` in fp32.

        Predictions use the bf16 weights. The first access of ``model_``, for example by ``save`` or an
        explanation, reads the file again in fp32.
        """
        if hasattr(vars(self).get("model_"), "in_fp32"):
            self._in_bf16 = vars(self).pop("model_")
        return self

    if not TYPE_CHECKING:  # a type checker would accept any attribute

        def __getattr__(self, name: str) -> Any:
            in_bf16 = self._in_bf16
            if name == "model_" and in_bf16 is not None:
                vars(self).setdefault("model_", in_bf16.in_fp32())
                self._in_bf16 = None
            if name != "model_" or name not in vars(self):
                what = f"{type(self).__name__!r} object has no attribute {name!r}"
                raise AttributeError(what, name=name, obj=self)
            return vars(self)["model_"]  # another thread may have read it

    @property
    def has_model(self) -> bool:
        """Whether ``model_`` is set, or can be read."""
        return "model_" in vars(self) or self._in_bf16 is not None

    @property
    def any_model(self) -> Any:
        """``model_``, or the bf16 model of ``keep_bf16``, which has the same config."""
        return self.model_ if "model_" in vars(self) or self._in_bf16 is None else self._in_bf16

    # --- prediction ------------------------------------------------------------------------------

    def _check_fitted(self) -> None:
        check_is_fitted(self, "model_")

    def predictor(self, precision: str | None = None) -> Any:
        """The model in this precision (None: the setting), cached until weights or settings change."""
        self._check_fitted()
        device = choose_device(self.device)
        precision_key = precision or self.precision
        in_bf16 = self._in_bf16
        if in_bf16 is not None and "model_" not in vars(self) and predicts_in_bf16(precision_key, device):
            return in_bf16.to(device)
        settings = (self.device, precision_key, weights_state(self.model_))
        cached = getattr(self, "_compute_model", None)
        if cached is None or cached[0] != settings:
            with isolated_torch(gradients=True):  # not in inference mode: later code may change the weights
                model = compute_model(self.model_.to(device), precision or self._precision(device), device)
            cached = self._compute_model = settings, model
        return cached[1]

    def _precision(self, device: torch.device) -> str:
        """The precision to use on a device. Only classifiers support int8."""
        return check_not_int8(self.precision, type(self).__name__)

    def __getstate__(self):
        if self._in_bf16 is not None:
            self.model_  # noqa: B018  # reads the file in fp32
        return {**super().__getstate__(), "_compute_model": None}  # type: ignore[dict-item]  # a dict here

    # --- files -----------------------------------------------------------------------------------

    @classmethod
    def saved_as(cls) -> str:
        """The name of this class in ``glassformer.json``."""
        return cls.__dict__.get("SAVED_AS") or cls.__name__

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Save the model, its preprocessing and a model card (``README.md``) to a folder.

        ``manifest.json`` has the checksums of all files. A model card that was edited is not replaced.

        Raises:
            CheckpointError: the folder exists and ``overwrite`` is False, or it is not a saved model.
            ConfigError: a parameter has an invalid value.
        """
        self._check_fitted()
        self.configs()

        def write(folder: Path) -> None:
            self._write_model(folder)
            metadata = {
                "format": FORMAT,
                "kind": self.saved_as(),
                "parameters": self.get_params(deep=False),
                **self._metadata(),
                "versions": versions(),
                **self.write_parts(folder),
            }
            text = json_text(to_json_types(metadata), indent=2, ascii=True) + "\n"
            (folder / "glassformer.json").write_text(text, encoding="utf-8")
            write_card(folder, self)

        with isolated_torch(gradients=True):
            return write_folder(path, write, overwrite=overwrite)

    def save_run_files(self, folder: Path) -> None:
        """Write files for other programs into the folder of a run."""

    def _metadata(self) -> dict[str, Any]:
        """The fitted attributes in ``glassformer.json``."""
        state = {name: getattr(self, f"{name}_") for name in self.SAVED_STATE}
        if examples := getattr(self, "examples_", {}):
            state["examples"] = examples
        return state | self.columns_metadata()

    @classmethod
    def restore(cls, folder: Path, metadata: dict[str, Any], *, in_bf16: bool = False) -> Self:
        """Load a saved estimator; ``metadata`` is the content of ``glassformer.json``.

        Args:
            in_bf16: whether ``_read_model`` may read the encoder's weights in bf16; see ``keep_bf16``.

        Raises:
            CheckpointError: a value is invalid, or the files do not match each other.
        """
        names = cls.defaults()
        # Parameters with several values are tuples, which JSON stores as lists.
        parameters = {
            k: tuple(v) if isinstance(v, list) else v for k, v in metadata["parameters"].items() if k in names
        }
        file_defaults = {k: v for config in cls.SECTIONS.values() for k, v in values_in_files(config).items()}
        out = cls(**file_defaults | parameters)
        check_parameters(out.configs, folder)
        out.history_, out.examples_ = Records(), saved_example_counts(metadata)
        for name in cls.SAVED_STATE:
            setattr(out, f"{name}_", metadata[name])
        out.read_columns(metadata, str(folder / METADATA_FILE))
        out._read_model(folder, in_bf16)
        out.read_parts(folder, metadata)
        out.check_parts(folder)
        return out

    # --- methods that tasks implement ---------------------------------------------------------------

    def _examples(self, fit: FitState, *data: Any) -> tuple[Any, Any]:
        """Check the arguments of ``fit``; return training and validation examples (None: no validation)."""
        raise NotImplementedError

    def _prepare(self, fit: FitState) -> tuple[Any, Any]:
        """Fit the preprocessing, and return the encoded ``fit.examples`` and ``fit.validation``."""
        raise NotImplementedError

    def _resolve_defaults(self, fit: FitState) -> dict[str, Any]:
        """Choose values for unset settings of the section ``train``."""
        return {}

    def _build(self, fit: FitState) -> Any:
        """Build the model. Its ``weights_source`` says where the weights are from."""
        raise NotImplementedError

    def _loop(self, fit: FitState) -> tuple[Stream, Callable, Callable[[], dict[str, float]] | None]:
        """The batches, the objective, and a function that computes validation metrics, or None."""
        raise NotImplementedError

    def _arrays(self, fit: FitState) -> list[np.ndarray | None]:
        """All data that affect the result of training, for the fingerprint."""
        raise NotImplementedError

    def _write_model(self, folder: Path) -> None:
        save_pretrained(self.model_, folder)

    def _read_model(self, folder: Path, in_bf16: bool = False) -> None:
        self.model_ = load_pretrained(folder, precision="bf16" if in_bf16 else "fp32")

    def write_parts(self, folder: Path) -> dict[str, Any]:
        """Write the preprocessing into the model's folder; return entries for ``glassformer.json``."""
        raise NotImplementedError

    def read_parts(self, folder: Path, metadata: dict[str, Any]) -> None:
        """Read what ``write_parts`` wrote; ``metadata`` is empty for the folder of another library."""
        raise NotImplementedError

    def check_parts(self, folder: Path) -> None:
        """Raise CheckpointError if the preprocessing of a folder does not match its model."""


def read_saved(cls: type, folder: Path, what: str, fix: str = "Open it with glassformer.load") -> Any:
    """Verify a folder that ``cls`` saved, and read its ``glassformer.json``; ``what`` names the class."""
    verify_folder(folder)
    metadata = read_metadata(folder, FORMAT)
    if metadata["kind"] != cls.__name__:
        other = with_article(shorten(metadata["kind"]).strip("'"))
        raise CheckpointError(f"contains {other}, not {what}", where=str(folder), fix=fix)
    return metadata


def digest(arrays: Iterable[np.ndarray | None]) -> str:
    """SHA-256 of a sequence of arrays."""
    out = hashlib.sha256()
    for array in arrays:
        out.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    return out.hexdigest()


# --- the model in the precision of prediction ------------------------------------------------------


def weights_state(model: Any) -> tuple[int, int]:
    """A key that changes if the model is replaced or a weight changes in place (except by ``.data``)."""
    # Tensors from inference mode have no version counter.
    return id(model), sum(0 if p.is_inference() else p._version for p in model.parameters())


def predicts_in_bf16(precision: str, device: torch.device) -> bool:
    """Whether predictions with this precision are in bf16, without int8 layers."""
    return precision != "int8" and choose_dtype(precision, device) == torch.bfloat16


def compute_model(model: Any, precision: str, device: torch.device) -> Any:
    """The model in evaluation mode, in the dtype of ``precision``; a copy unless that is fp32."""
    if precision == "int8":
        return quantized_copy(model).eval()
    dtype = choose_dtype(precision, device)
    if dtype != torch.float32:
        # The copy shares the fp32 data, so that there is never a second copy of the model in fp32.
        shared = {id(p): torch.nn.Parameter(p.detach(), p.requires_grad) for p in model.parameters()}
        model = copy.deepcopy(model, shared).set_compute_dtype(dtype)
    return model.eval()


def check_not_int8(precision: str, class_name: str) -> str:
    """Return ``precision``; raise ConfigError for int8, which only classifiers support."""
    if precision == "int8":
        what = f"int8 is checked on validation labels, which {with_article(class_name)} does not have"
        raise NotForThisModelError(what, where="precision", fix="Use auto, fp32 or bf16")
    return precision
