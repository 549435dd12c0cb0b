"""What every estimator has, whatever it learns: settings, a fit that can fail, stop and go on, and a folder.

``fit`` of a task hands its data to ``Estimator._fit``, which reads from top to bottom. What a task does in
its own way are the methods at the end of the class.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, TypeVar, dataclass_transform, get_type_hints

import numpy as np
import torch

from glassformer.checkpoints.files import write_folder
from glassformer.checkpoints.native import newest_fingerprint
from glassformer.checkpoints.settings import ABOUT, check_parameters
from glassformer.config import (
    build,
    by_place,
    plain,
    setting,
    settings_of,
    to_toml,
    values_before,
    values_in_files,
    with_values_in_files,
)
from glassformer.errors import ConfigError
from glassformer.families.pretrained import load_pretrained, save_pretrained
from glassformer.finite import json_text
from glassformer.nn.lora import adapter, merge
from glassformer.report.notebook import Records, Shown
from glassformer.runtime import (
    choose_device,
    choose_dtype,
    computing,
    drawing_own,
    own_generators,
    set_seed,
    versions,
)
from glassformer.sklearn_base import BaseEstimator, answering, check_is_fitted
from glassformer.tasks.card import counted, counts_in, write_card
from glassformer.tasks.int8 import compute_model, refuse_int8, weights_state
from glassformer.tasks.named_columns import NamedColumns
from glassformer.tasks.recipe import recipe_values
from glassformer.train.callbacks import Callback, Checkpoints, KeepEpochs, Progress, run_with
from glassformer.train.config import CHOSEN, FitConfig, settled, warn_of_few, warn_of_idle
from glassformer.train.distributed import Ranks, join, refuse_several
from glassformer.train.freezing import Unfreeze, freeze
from glassformer.train.loop import Stream, choose_share, count_steps
from glassformer.train.optim import MasterOptimizer
from glassformer.train.state import Training

T = TypeVar("T")
FORMAT = 1  # of glassformer.json
NOT_DECIDING = {
    "checkpoint_every",
    "verbose",
    "device",
    "strategy",
    "scheme",
}  # settings that change no bit of a result, or do so by the data alone, which are in the fingerprint too


@dataclass
class Fit:
    """One fit on its way: ``Estimator._fit`` fills in field by field and hands it to the task's methods."""

    configs: dict[str, Any]  # section -> its settings
    device: torch.device
    ranks: Ranks
    examples: Any = None  # checked, in the task's own form
    held: Any = None  # likewise what is held out to judge by; None: nothing
    table: Any = None  # the examples as the model reads them
    held_table: Any = None
    network: Any = None
    solved: Any = None  # the ``SolvedHead`` that the network starts from; None: its head is random
    begun: Mapping[str, Any] | None = None  # the fingerprint of the checkpoint that it goes on from
    together: bool = False  # copies of an example stay on one side of what ``validation_fraction`` holds out

    @property
    def train(self) -> Any:
        """The settings of the section ``train``, a ``FitConfig`` or the task's extension of it."""
        return self.configs["train"]


def fitted(*, init: Literal[False] = False) -> Any:
    """What an annotated attribute of an estimator is that ``fit`` sets, and no constructor takes."""
    return field(init=init)


@dataclass_transform(kw_only_default=True, field_specifiers=(by_place, fitted))
def with_settings(cls: type[T]) -> type[T]:
    """An estimator whose constructor takes the keys of the sections that it inherits, retired ones too.

    Raises:
        TypeError: of the constructor, for an unknown name; the nearest known one is said.
    """
    made: Any = cls
    hints = get_type_hints(made.RECIPE)
    made.SECTIONS = {name: hint for name, hint in hints.items() if hint in cls.__mro__}
    for section in made.SECTIONS.values():
        for key, (neutral, why) in getattr(section, "RETIRED", {}).items():
            cls.__annotations__[key] = Any
            setattr(cls, key, setting(neutral, why))
    made = dataclass(kw_only=True, eq=False, repr=False)(cls)
    made.__init__ = answering(made.__init__)
    return made


class Estimator(NamedColumns, Shown, BaseEstimator):
    """Base of every estimator: its parameters are the keys of its recipe's fit sections.

    Fitted state: ``model_``, ``history_``, ``weights_source_``, ``chosen_`` (what settings that were left
    unset became), ``best_step_``, ``train_seconds_``, ``adapter_`` (the low-rank updates of a fit with
    ``lora_rank``), and what the task adds.
    """

    RECIPE: ClassVar[type]
    SECTIONS: ClassVar[dict[str, type]]  # of the recipe, those that it inherits
    FIGURES: ClassVar[tuple[str, ...]] = ("weights_source", "chosen", "best_step", "train_seconds")  # kept
    SHARDS: ClassVar[bool] = False  # whether FSDP may lay its model in pieces
    INNER: ClassVar[tuple[str, ...]] = ()  # of the fitted state, names that do not end in an underscore
    SAVED_AS: ClassVar[str] = ""  # the class's name in saved folders, where it is not its own
    ALONE: ClassVar[str] = ""  # why one process trains it, and stops on signals by itself; "": any number may

    __eq__, __hash__ = object.__eq__, object.__hash__  # not a section's: two estimators are two things

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

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = answering(cls.__init__)  # type: ignore[method-assign]  # names of other tools are answered

    @property
    def learns_in_steps(self) -> bool:
        """Whether a fit takes steps, of which validation data may choose the best; else it is solved."""
        return True

    # --- settings --------------------------------------------------------------------------------

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Parameter -> default, in the order of the recipe's sections."""
        return {k: v for config in cls.SECTIONS.values() for k, v in settings_of(config).items()}

    def __post_init__(self) -> None:
        """Parameters stay as given, as scikit-learn wants it of a constructor: ``configs`` checks them."""

    def set_params(self, **params: Any) -> Self:
        """As scikit-learn's.

        Raises:
            ConfigError: of a fitted estimator, a value that cannot be; nothing is changed then.
        """
        before = self.get_params(deep=False)
        super().set_params(**params)
        try:
            if hasattr(self, "model_"):
                self.configs()
        except ConfigError:
            super().set_params(**before)
            raise
        return self

    def configs(self) -> dict[str, Any]:
        """Section -> its settings, checked.

        Raises:
            ConfigError: a value of the wrong type or out of its range.
        """
        return {
            section: build(cls, {name: getattr(self, name) for name in settings_of(cls)}, type(self).__name__)
            for section, cls in self.SECTIONS.items()
        }

    @classmethod
    def from_recipe(cls, recipe: Any, **overrides: Any) -> Self:
        """The estimator that a recipe (or its name or file) describes; keyword arguments replace its values.

        Raises:
            ConfigError: no such recipe, or one of another task.
        """
        given = isinstance(recipe, str | Path)
        values, where = recipe_values(recipe) if given else (vars(recipe), "")
        task = cls.RECIPE.task  # every recipe has one
        if values["task"] != task:
            raise ConfigError(
                f"{values['name']!r} is a recipe of the task {values['task']!r}",
                where=cls.__name__,
                fix=f"Name one of the task {task!r}",
            )
        if given:
            recipe = build(cls.RECIPE, with_values_in_files(cls.RECIPE, values), where)
        settings: dict[str, Any] = {}
        for section in cls.SECTIONS:
            settings |= vars(getattr(recipe, section))
        return cls(**(settings | overrides))

    def to_recipe(self, name: str = "") -> str:
        """These settings as the TOML text of a recipe (data and evaluation sections at their defaults).

        Of a fitted estimator, what its fit has chosen stands there too.
        """
        configs = self.configs()
        if "train" in configs:  # what was set since then holds
            unset = {key: value for key, value in self.chosen_.items() if getattr(self, key, 0) is None}
            configs["train"] = settled(configs["train"], unset)
        return to_toml(self.RECIPE(name=name, **configs))

    @classmethod
    def from_parts(cls, settings: Mapping[str, Any], model: Any, **state: Any) -> Self:
        """An estimator around a model that others trained; it predicts, and knows nothing of the training.

        Args:
            settings: of the constructor.
            model: a network, as ``load_pretrained`` gives it.
            state: fitted state, names without the underscore at their end.
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
        """Train on ``data``, whatever ``_examples`` takes; a fit that fails leaves the one before."""
        configs = self.configs()
        train: FitConfig = configs["train"]
        device = choose_device(train.device)
        with own_generators(device), computing(train.threads, gradients=True), self._rollback():
            if train.strategy == "fsdp" and not self.SHARDS:
                refuse_several("fsdp lays classifiers in pieces only", "Use --set strategy=ddp")
            fit = Fit(configs, device, join(train.strategy, device, train.seed))
            fit.begun = newest_fingerprint(checkpoints) if resume and checkpoints else None
            fit.together = bool(train.validation_fraction) and (fit.begun is None or "copies" in fit.begun)
            fit.examples, fit.held = self._examples(fit, *data)
            started = time.perf_counter()
            fit.table, fit.held_table = self._prepare(fit)
            fit.network = self._network(fit)
            self.chosen_ = self._choose(fit)
            train = configs["train"] = settled(train, self.chosen_)
            chooses = self._chooses_share(fit)
            if getattr(train, "start_share", 0.0) == "auto" and not chooses:
                train = configs["train"] = replace(train, start_share=0.0)
            optimizer = MasterOptimizer(fit.network, train, choose_dtype(train.precision, device), fit.ranks)
            stream, objective, judge = self._loop(fit)
            training = Training(fit.network, optimizer, train, count_steps(stream, train.epochs))
            split = {"copies": "together"} if fit.together else {}
            training.fingerprint = self._fingerprint(data_sha256=digest(self._arrays(fit)), **split)
            training.before, training.chosen = self._before(), self.chosen_
            training.judge_start = fit.solved is not None
            warn_of_few(training.total_steps, self._given())
            warn_of_idle(train, fit.held is not None, self.chosen_)
            calls = self._callbacks(training, callbacks, checkpoints, resume)
            run_with(calls, training, stream, objective, judge)
            if chooses and judge is not None:
                self.chosen_ = {**self.chosen_, "start_share": choose_share(training, judge)}
            self._keep(fit, training)
            self.train_seconds_ = training.began - started + training.seconds_spent
        return self

    def _chooses_share(self, fit: Fit) -> bool:
        """Whether validation data say how far the weights go back towards their start."""
        return False

    @contextmanager
    def _rollback(self) -> Iterator[None]:
        """Where a fit fails, the fitted state becomes what it was."""

        def fitted() -> dict[str, Any]:
            return {n: value for n, value in vars(self).items() if n.endswith("_") or n in self.INNER}

        before = fitted()
        try:
            yield
        except BaseException:
            for name in fitted():
                delattr(self, name)
            vars(self).update(before)
            raise

    def _network(self, fit: Fit) -> Any:
        """The model to train, what shall not learn frozen."""
        set_seed(fit.train.seed)
        with drawing_own():
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
        """Those given, and those that settings ask for; a training that goes on has its checkpoint loaded."""
        calls, train = list(callbacks), training.config
        if checkpoints is not None:
            calls.insert(0, Checkpoints(Path(checkpoints), train.checkpoint_every).begin(training, resume))
        if getattr(train, "keep_epochs", False):
            calls.insert(0, KeepEpochs(checkpoints))
        if train.unfreeze_every:
            calls.insert(0, Unfreeze(train.train_layers or 0, train.unfreeze_every))
        if train.verbose and training.ranks.leads:
            calls.append(Progress())
        return calls

    def _keep(self, fit: Fit, training: Training) -> None:
        """The fitted state, from a training at its end."""
        weights = training.final_weights()
        network = self._network(fit) if fit.ranks.sharded else fit.network  # the pieces stay behind
        network.set_compute_dtype(torch.float32)
        network.load_state_dict(training.optimizer.frozen | weights, strict=False)
        self.adapter_ = adapter(network) or None
        self.adapter_scale_ = (fit.train.lora_rank, fit.train.lora_alpha)
        merge(network)
        self.model_ = network.eval()
        self.history_ = Records(training.history)
        self.best_step_ = training.best_step
        self.examples_ = counted(fit)
        self._compute_model = None

    def _fingerprint(self, **data: str) -> dict[str, Any]:
        """What must agree for a checkpoint to be continued: every setting that changes bits, and the data."""
        settings = {k: v for k, v in self.get_params(deep=False).items() if k not in NOT_DECIDING}
        return plain({**settings, **self.chosen_, **data})

    def _given(self) -> dict[str, Any]:
        """Of the settings that suit themselves to the data, those that were given."""
        values, defaults = self.get_params(deep=False), self.defaults()
        return {k: values[k] for k in CHOSEN if k in values and defaults[k] is None and values[k] is not None}

    def _before(self) -> dict[str, Any]:
        """Setting -> the value it counts as in a checkpoint made before there was such a setting."""
        return plain({k: v for config in self.SECTIONS.values() for k, v in values_before(config).items()})

    # --- prediction ------------------------------------------------------------------------------

    def _check_fitted(self) -> None:
        check_is_fitted(self, "model_")

    def predictor(self, precision: str | None = None) -> Any:
        """The model in a number format (None: as set), made anew for other weights or settings."""
        self._check_fitted()
        settings = (self.device, precision or self.precision, weights_state(self.model_))
        made = getattr(self, "_compute_model", None)
        if made is None or made[0] != settings:
            device = choose_device(self.device)
            with computing(gradients=True):  # weights of a copy may be changed later
                model = compute_model(self.model_.to(device), precision or self._precision(device), device)
            made = self._compute_model = settings, model
        return made[1]

    def _precision(self, device: torch.device) -> str:
        """What ``precision`` comes to there. Products in int8 are held to labels: ``Classifier`` has them."""
        return refuse_int8(self.precision, type(self).__name__)

    def __getstate__(self):
        return {**super().__getstate__(), "_compute_model": None}  # type: ignore[dict-item]  # a dict here

    # --- files -----------------------------------------------------------------------------------

    @classmethod
    def saved_as(cls) -> str:
        """The name of the class in ``glassformer.json``."""
        return cls.__dict__.get("SAVED_AS") or cls.__name__

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write one folder: weights, preprocessing, ``glassformer.json``, a checksummed ``manifest.json``,
        and a model card, ``README.md``; one that somebody has edited stays.

        Raises:
            CheckpointError: the folder exists and ``overwrite`` is False, or is not one of ours.
            ConfigError: a parameter was set to a value that cannot be.
        """
        self._check_fitted()
        self.configs()

        def write(folder: Path) -> None:
            self._write_model(folder)
            about = {
                "format": FORMAT,
                "kind": self.saved_as(),
                "parameters": self.get_params(deep=False),
                **self._about(),
                "versions": versions(),
                **self.write_parts(folder),
            }
            text = json_text(plain(about), indent=2, ascii=True) + "\n"
            (folder / "glassformer.json").write_text(text, encoding="utf-8")
            write_card(folder, self)

        with computing(gradients=True):
            return write_folder(path, write, overwrite=overwrite)

    def save_beside(self, folder: Path) -> None:
        """Write into a run's folder what other programs read beside the saved model."""

    def _about(self) -> dict[str, Any]:
        """What ``glassformer.json`` says of the fitted state."""
        counts = {"examples": found} if (found := getattr(self, "examples_", {})) else {}
        return {name: getattr(self, f"{name}_") for name in self.FIGURES} | counts | self.about_columns()

    @classmethod
    def restore(cls, folder: Path, about: dict[str, Any]) -> Self:
        """What ``save`` wrote; ``about`` is its ``glassformer.json`` as ``read_about`` gives it.

        Raises:
            CheckpointError: a value that cannot be, or files that do not fit each other.
        """
        names = cls.defaults()
        # JSON has lists only; parameters that hold several values are tuples.
        known = {
            k: tuple(v) if isinstance(v, list) else v for k, v in about["parameters"].items() if k in names
        }
        before = {k: v for config in cls.SECTIONS.values() for k, v in values_in_files(config).items()}
        out = cls(**before | known)
        check_parameters(out.configs, folder)
        out.history_, out.examples_ = Records(), counts_in(about)
        for name in cls.FIGURES:
            setattr(out, f"{name}_", about[name])
        out.read_columns(about, str(folder / ABOUT))
        out._read_model(folder)
        out.read_parts(folder, about)
        out.check_parts(folder)
        return out

    # --- what each task does in its own way --------------------------------------------------------

    def _examples(self, fit: Fit, *data: Any) -> tuple[Any, Any]:
        """What the task's ``fit`` was given, checked: to learn from and to judge by (None: none held out)."""
        raise NotImplementedError

    def _prepare(self, fit: Fit) -> tuple[Any, Any]:
        """Settle the preprocessing, and encode ``fit.examples`` and ``fit.held``."""
        raise NotImplementedError

    def _choose(self, fit: Fit) -> dict[str, Any]:
        """Values for settings of the section ``train`` that were left unset; ``fit.network`` is there."""
        return {}

    def _build(self, fit: Fit) -> Any:
        """The model; ``weights_source`` says where its weights come from. The seed has been set."""
        raise NotImplementedError

    def _loop(self, fit: Fit) -> tuple[Stream, Callable, Callable[[], dict[str, float]] | None]:
        """What the one loop runs: batches, objective, and the figures of what is held out."""
        raise NotImplementedError

    def _arrays(self, fit: Fit) -> list[np.ndarray | None]:
        """All data that decide a training's bits."""
        raise NotImplementedError

    def _write_model(self, folder: Path) -> None:
        save_pretrained(self.model_, folder)

    def _read_model(self, folder: Path) -> None:
        self.model_ = load_pretrained(folder)

    def write_parts(self, folder: Path) -> dict[str, Any]:
        """Write the preprocessing beside the model; returns what else ``glassformer.json`` must hold."""
        raise NotImplementedError

    def read_parts(self, folder: Path, about: dict[str, Any]) -> None:
        """The reverse of ``write_parts``; ``about`` is empty for a folder that others wrote."""
        raise NotImplementedError

    def check_parts(self, folder: Path) -> None:
        """Raises CheckpointError where the preprocessing of a folder gives what its model cannot read."""


def digest(arrays: Iterable[np.ndarray | None]) -> str:
    """SHA-256 of arrays, one after the other."""
    out = hashlib.sha256()
    for array in arrays:
        out.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    return out.hexdigest()
