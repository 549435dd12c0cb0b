"""What the estimators for sequences share: settings from recipe sections, a fit that can be resumed, a fast copy."""

from __future__ import annotations

import copy
import hashlib
import inspect
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from glassformer.checkpoints.settings import check_parameters
from glassformer.config import build, plain, to_toml
from glassformer.errors import ConfigError
from glassformer.runtime import choose_device, choose_dtype, own_generators, set_threads
from glassformer.sklearn_base import BaseEstimator, check_is_fitted
from glassformer.tasks.catalog import load_recipe
from glassformer.train.callbacks import Callback, Checkpoints, Progress, run_with
from glassformer.train.config import TrainConfig
from glassformer.train.distributed import join, refuse_several
from glassformer.train.loop import Stream, count_steps
from glassformer.train.optim import MasterOptimizer
from glassformer.train.state import Training

NOT_SETTINGS = {"checkpoint_every", "verbose", "device", "strategy"}  # change no bit of the result


def section_defaults(sections: Mapping[str, type]) -> dict[str, Any]:
    """Key -> default of every key of these sections, in their order."""
    return {f.name: f.default for cls in sections.values() for f in fields(cls)}


class SequenceEstimator(BaseEstimator):
    """Base of ``Translator`` and ``MaskedLM``: their parameters are the keys of their recipe's fit sections."""

    TASK: ClassVar[str]
    RECIPE: ClassVar[type]
    SECTIONS: ClassVar[dict[str, type]]

    threads: int
    device: str
    precision: str

    def _take(self, values: Mapping[str, Any]) -> None:
        """Store every parameter unchanged, as scikit-learn wants it."""
        for name in section_defaults(self.SECTIONS):
            setattr(self, name, values[name])

    def _configs(self) -> list[Any]:
        """One checked dataclass a section.

        Raises:
            ConfigError: a value of the wrong type or out of its range.
        """
        return [
            build(cls, {f.name: getattr(self, f.name) for f in fields(cls)}, type(self).__name__)
            for cls in self.SECTIONS.values()
        ]

    @classmethod
    def from_recipe(cls, recipe: Any, **overrides: Any):
        """The estimator that a recipe (or its name or file) describes; keyword arguments replace its values.

        Raises:
            ConfigError: no such recipe, or one of another task.
        """
        recipe = load_recipe(recipe) if isinstance(recipe, str | Path) else recipe
        if recipe.task != cls.TASK:
            raise ConfigError(
                f"{recipe.name!r} is a recipe of the task {recipe.task!r}", where=cls.__name__,
                fix=f"Name one of the task {cls.TASK!r}",
            )  # fmt: skip
        values = {
            f.name: getattr(getattr(recipe, section), f.name)
            for section, config in cls.SECTIONS.items()
            for f in fields(config)
        }
        return cls(**(values | overrides))

    def to_recipe(self, name: str = "") -> str:
        """These settings as the TOML text of a recipe (data and evaluation sections at their defaults)."""
        return to_toml(self.RECIPE(name=name, **dict(zip(self.SECTIONS, self._configs(), strict=True))))

    # --- training --------------------------------------------------------------------------------

    def _fit_safely(self, fit, *arguments: Any):
        """Run ``fit``; one that fails leaves the fitted state as it was before."""
        before = {name: value for name, value in vars(self).items() if name.endswith("_")}
        try:
            with own_generators():
                fit(*arguments)
        except BaseException:
            for name in [name for name in vars(self) if name.endswith("_") and name not in before]:
                delattr(self, name)
            vars(self).update(before)
            raise
        return self

    def _train(
        self,
        network: torch.nn.Module,
        stream: Stream,
        objective,
        judge,
        train: TrainConfig,
        arrays: Sequence[np.ndarray | None],
        callbacks: Sequence[Callback],
        checkpoints: str | Path | None,
        resume: bool,
    ) -> None:
        """Train ``network`` to its end and keep it in ``model_``; ``arrays`` are the data, for the fingerprint."""
        started = time.perf_counter()
        self.weights_source_ = network.weights_source  # type: ignore[assignment]
        device = choose_device(train.device)
        dtype = choose_dtype(train.precision, device)
        if train.strategy == "fsdp" or getattr(stream, "next_sentence", False):
            refuse_several(
                "fsdp and next-sentence prediction need one process here", "Use --set strategy=ddp"
            )
        ranks = join("ddp", device, train.seed)
        optimizer = MasterOptimizer(network, train, dtype, ranks)
        training = Training(network, optimizer, train, count_steps(stream, train.epochs))
        training.fingerprint = self._fingerprint(arrays)
        calls = list(callbacks)
        if checkpoints is not None:
            calls.insert(0, Checkpoints(Path(checkpoints), train.checkpoint_every).begin(training, resume))
        if train.verbose and ranks.leads:
            calls.append(Progress())
        run_with(calls, training, stream, objective, judge)
        weights = training.final_weights()
        network.set_compute_dtype(torch.float32)  # type: ignore[operator]
        network.load_state_dict(weights, strict=False)
        self.model_: Any = network.eval()
        self.history_ = list(training.history)
        self.best_step_ = training.best_step
        self.train_seconds_ = training.began - started + training.seconds_spent
        self._compute_model = None

    def _fingerprint(self, arrays: Sequence[np.ndarray | None]) -> dict[str, Any]:
        """What must agree for a checkpoint to be continued: every setting that changes bits, and the data."""
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
        settings = {k: v for k, v in self.get_params(deep=False).items() if k not in NOT_SETTINGS}
        return plain({**settings, "data_sha256": digest.hexdigest()})

    # --- prediction ------------------------------------------------------------------------------

    def _predictor(self) -> Any:
        """The model in the number format of prediction, made once after each fit or load."""
        check_is_fitted(self, "model_")
        model = getattr(self, "_compute_model", None)
        if model is None:
            set_threads(self.threads)
            device = choose_device(self.device)
            dtype = choose_dtype(self.precision, device)
            model = self.model_.to(device)
            if dtype != torch.float32:
                model = copy.deepcopy(model).set_compute_dtype(dtype)
            self._compute_model = model.eval()
        return model

    def __getstate__(self):
        state: dict[str, Any] = super().__getstate__().copy()  # type: ignore[union-attr]
        state["_compute_model"] = None
        return state

    # --- files -----------------------------------------------------------------------------------

    def _about(self) -> dict[str, Any]:
        """What ``glassformer.json`` says of a fitted estimator."""
        return {
            "kind": type(self).__name__,
            "parameters": plain(self.get_params(deep=False)),
            "weights_source": self.weights_source_,
            "best_step": self.best_step_,
            "train_seconds": self.train_seconds_,
        }

    @classmethod
    def _from_about(cls, about: dict[str, Any], folder: Path):
        """An estimator with the settings and figures that ``_about`` wrote, as ``read_about`` gives them."""
        known = {k: v for k, v in about["parameters"].items() if k in inspect.signature(cls).parameters}
        if isinstance(betas := known.get("betas"), list):  # JSON has no tuples
            known["betas"] = tuple(betas)
        out = cls(**known)
        check_parameters(out._configs, folder)
        out.weights_source_ = about["weights_source"]
        out.best_step_, out.train_seconds_ = about["best_step"], about["train_seconds"]
        out.history_ = []
        return out
