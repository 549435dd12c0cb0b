"""What changes the weights of a fitted model: adapters in PEFT's layout, loaded and saved, and pruning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from glassformer.checkpoints.names_lora import save_adapter
from glassformer.errors import ConfigError
from glassformer.families import names_of
from glassformer.families.pretrained import add_adapter, head_in_hub
from glassformer.runtime import computing
from glassformer.sklearn_base import check_is_fitted

# What was measured of one set of weights -> what it is of others.
OF_WEIGHTS = {
    "int8_": None,
    "temperature_": 1.0,
    "threshold_": None,
    "abstain_below_": None,
    "errors_": np.zeros(0),
}


def forget_measures(est: Any) -> None:
    """Reset what was measured of other weights; ``calibrate`` measures it again."""
    est._compute_model = None
    for name, value in OF_WEIGHTS.items():
        if hasattr(est, name):
            setattr(est, name, value)


class Adapts:
    """Adapters and pruning, for an estimator with ``model_`` and ``class_order_``."""

    model_: Any
    class_order_: list[int] | None
    weights_source_: str
    configs: Any  # the method of ``Estimator``
    examples_of: Any

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
        now = self.configs()["train"]  # may differ from those of the fit, which pickles of before do not have
        rank, alpha = getattr(self, "adapter_scale_", None) or (now.lora_rank, now.lora_alpha)
        whole = head_in_hub(self.model_) if head else None
        save_adapter(
            Path(path),
            names_of(self.model_.config),
            updates,
            rank,
            alpha,
            with_prefix=head,
            head=whole,
        )
        return Path(path)

    def load_adapter(self, path: str | Path) -> Self:
        """Add an adapter in PEFT's file layout to the weights: its low-rank updates, and its head if any.

        The model becomes what ``PeftModel.from_pretrained(base, path)`` followed by ``merge_and_unload()``
        gives; save it as usual. Whose base this is, nothing says: load it into the model it was trained on.
        What was measured of the weights before (temperature, thresholds, a regressor's errors) is forgotten:
        ``calibrate`` measures it again.

        Raises:
            CheckpointError: no such folder, another kind of adapter, or tensors that do not fit the model.
        """
        check_is_fitted(self, "model_")
        with computing(gradients=True):
            add_adapter(self.model_, path, self.class_order_)
        self.weights_source_ = self.model_.weights_source = f"{self.weights_source_}; adapter {path}"
        forget_measures(self)
        return self

    def prune(self, X: Sequence[Any], *, share: float = 0.3) -> Self:
        """A smaller, faster copy without the feed-forward units that its predictions use least.

        Every layer loses the same share of its units, so the copy is a model of the usual kind: save it,
        export it, open it in transformers, train it further. Temperature and thresholds, and a regressor's
        intervals, are those of an uncalibrated model: ``calibrate`` measures them again.

        Args:
            X: 100 or more inputs as those that will be asked about; labels are not needed.
            share: of the units that go, between 0 and 1; the count that stays is a multiple of 16.

        Raises:
            InputError: a share that cannot be, inputs that cannot be used, or a model without such units.
        """
        from glassformer.tasks.pruning import prune

        check_is_fitted(self, "model_")
        return prune(self, self.examples_of(X), share)

    def save_beside(self, folder: Path) -> None:
        """The low-rank updates, where the fit had some."""
        if getattr(self, "adapter_", None):
            self.save_adapter(folder / "adapter")
