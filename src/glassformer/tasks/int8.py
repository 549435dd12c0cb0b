"""Int8 inference, and its check on validation labels.

The check passes if the labels of the fp32 and the int8 model agree on at least 99.5 % of the validation
examples, and their accuracies differ by at most 0.2 points. The result is saved with the model. If the check
does not pass, prediction uses the default precision.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from glassformer.errors import CheckpointError, ConfigError, NotForThisModelError, with_article
from glassformer.nn.int8 import has_linear_layers, quantized_copy
from glassformer.nn.kernels import int8, level
from glassformer.runtime import choose_dtype

MIN_AGREEMENT = 0.995  # minimum share of equal labels
MAX_DIFFERENCE = 0.002  # maximum difference of the accuracies
MIN_EXAMPLES = 200  # with fewer examples, a single label is more than 0.5 %
METRICS = ("agree", "accuracy", "accuracy_int8")
FALLBACK = "prediction computes as with precision=auto"


def weights_state(model: Any) -> tuple[int, int]:
    """A key that changes if the model is replaced or a weight changes in place (except by ``.data``)."""
    # Tensors from inference mode have no version counter.
    return id(model), sum(0 if p.is_inference() else p._version for p in model.parameters())


def compute_model(model: Any, precision: str, device: torch.device) -> Any:
    """The model in evaluation mode, in the dtype of ``precision``; a copy unless that is fp32."""
    if precision == "int8":
        return quantized_copy(model).eval()
    dtype = choose_dtype(precision, device)
    if dtype != torch.float32:
        # The copy shares what stays in fp32, and never holds a second copy of the rest in fp32.
        shared = {id(p): torch.nn.Parameter(p.detach(), p.requires_grad) for p in model.parameters()}
        model = copy.deepcopy(model, shared).set_compute_dtype(dtype)
    return model.eval()


def refuse_int8(precision: str, kind: str) -> str:
    """Return ``precision``; raise ConfigError for int8, which only classifiers support."""
    if precision == "int8":
        what = f"int8 is checked on validation labels, which {with_article(kind)} does not have"
        raise NotForThisModelError(what, where="precision", fix="Use auto, fp32 or bf16")
    return precision


def int8_obstacle(model: Any, device: torch.device) -> str | None:
    """Why int8 is not possible for this model and device; None: it is possible."""
    if device.type != "cpu":
        return "it is for the CPU"
    if not has_linear_layers(model):
        return "the model has no linear layers of a Transformer"
    return int8.why_not()


def check_count(count: int) -> None:
    """Raise ConfigError if there are too few held-out examples for the check."""
    if count < MIN_EXAMPLES:
        what = (
            f"int8 is checked on validation labels: it needs at least {MIN_EXAMPLES}, and there are {count}"
        )
        raise ConfigError(what, where="precision", fix="Hold more examples out, or use auto")


def compare_with_int8(full: np.ndarray, small: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
    """Compare class indices ``[n]`` (multi-label ``[n, K]``) of the fp32 model, the int8 model and the truth.

    Returns:
        The record for JSON: ``n``, ``agree``, ``accuracy``, ``accuracy_int8`` (shares of examples), ``level``
        (instruction set) and ``passed``.
    """
    full, small, targets = (x.reshape(len(targets), -1) for x in (full, small, targets))
    shares = [float((a == b).all(1).mean()) for a, b in ((full, small), (full, targets), (small, targets))]
    metrics = dict(zip(METRICS, shares, strict=True))
    difference = abs(metrics["accuracy"] - metrics["accuracy_int8"])
    passed = metrics["agree"] >= MIN_AGREEMENT - 1e-12 and difference <= MAX_DIFFERENCE + 1e-12
    current = level()
    return {"n": len(targets), **metrics, "level": "" if current is None else current.title, "passed": passed}


def describe_int8(result: Mapping[str, Any]) -> str:
    """The result of the check in words, with its numbers."""
    metrics = (
        f"{100 * result['agree']:.2f} % of {result['n']:,} validation labels as in fp32, accuracy "
        f"{100 * result['accuracy_int8']:.2f} % against {100 * result['accuracy']:.2f} %"
    )
    limits = (
        f"(asked: {100 * MIN_AGREEMENT:.1f} %, and {100 * MAX_DIFFERENCE:.1f} points at most between them)"
    )
    return f"on with precision=int8: {metrics}" if result["passed"] else f"off: {metrics} {limits}"


def read_int8_result(result: Any, where: str) -> dict[str, Any] | None:
    """Validate the result of the check from a file; None if it was not measured."""
    if result is None:
        return None
    numbers = [result.get(name) for name in METRICS] if isinstance(result, dict) else [None]
    shares = all(isinstance(x, int | float) and math.isfinite(x) and 0 <= x <= 1 for x in numbers)
    valid_counts = isinstance(result, dict) and isinstance(result.get("n"), int) and result["n"] >= 1
    if not (shares and valid_counts and isinstance(result.get("passed"), bool)):
        what = "'int8' is not a valid result of the int8 check"
        raise CheckpointError(what, where=where, fix="Remove this key")
    return result
