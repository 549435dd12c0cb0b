"""Prediction with products in int8, and the gate before it: held-out labels decide whether it is used.

    labels of the fp32 model and of the int8 model agree on at least 99.5 % of the validation examples,
    and their accuracies differ by at most 0.2 points

The outcome is kept with the model. Where it is not passed, prediction goes on in the usual format.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from glassformer.errors import CheckpointError, ConfigError, NotForThisModelError, with_article
from glassformer.nn.int8 import in_int8, multiplies
from glassformer.nn.kernels import int8, level
from glassformer.runtime import choose_dtype

AGREE = 0.995  # of the labels, at least
APART = 0.002  # between the accuracies, at most
FEWEST = 200  # examples: among fewer one label is more than the gate allows
FIGURES = ("agree", "accuracy", "accuracy_int8")
USUAL = "prediction computes as with precision=auto"


def weights_state(model: Any) -> tuple[int, int]:
    """What is another where a model, or one of its weights in place, was changed (but through ``.data``)."""
    # tensors made in inference mode count no changes
    return id(model), sum(0 if p.is_inference() else p._version for p in model.parameters())


def compute_model(model: Any, precision: str, device: torch.device) -> Any:
    """A model on ``device``, in evaluation mode and the format of ``precision``; unless fp32, a copy."""
    if precision == "int8":
        return in_int8(model).eval()
    dtype = choose_dtype(precision, device)
    if dtype != torch.float32:
        model = copy.deepcopy(model).set_compute_dtype(dtype)
    return model.eval()


def refuse_int8(precision: str, kind: str) -> str:
    """The same; ConfigError for int8, where ``kind`` is no classifier."""
    if precision == "int8":
        what = f"int8 is checked on validation labels, which {with_article(kind)} does not have"
        raise NotForThisModelError(what, where="precision", fix="Use auto, fp32 or bf16")
    return precision


def obstacle(model: Any, device: torch.device) -> str | None:
    """Why a model is not computed in int8 there, whatever its labels; None where it can be."""
    if device.type != "cpu":
        return "it is for the CPU"
    if not multiplies(model):
        return "the model has no linear layers of a Transformer"
    return int8.why_not()


def check_count(count: int) -> None:
    """Raises ConfigError where so many held-out examples decide nothing."""
    if count < FEWEST:
        what = f"int8 is checked on validation labels: it needs at least {FEWEST}, and there are {count}"
        raise ConfigError(what, where="precision", fix="Hold more examples out, or use auto")


def outcome(full: np.ndarray, small: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
    """What the gate says of the answers in fp32 and in int8, and the true ones: class numbers ``[n]``, or of
    several labels ``[n, K]``, where an example counts as one answer.

    Returns:
        ``n``, ``agree``, ``accuracy``, ``accuracy_int8`` (shares), ``level`` and ``passed``, for JSON.
    """
    full, small, targets = (x.reshape(len(targets), -1) for x in (full, small, targets))
    share = [float((a == b).all(1).mean()) for a, b in ((full, small), (full, targets), (small, targets))]
    found = dict(zip(FIGURES, share, strict=True))
    apart = abs(found["accuracy"] - found["accuracy_int8"])
    passed = found["agree"] >= AGREE - 1e-12 and apart <= APART + 1e-12
    own = level()
    return {"n": len(targets), **found, "level": "" if own is None else own.title, "passed": passed}


def told(found: Mapping[str, Any]) -> str:
    """The outcome in words, with its figures."""
    figures = (
        f"{100 * found['agree']:.2f} % of {found['n']:,} validation labels as in fp32, accuracy "
        f"{100 * found['accuracy_int8']:.2f} % against {100 * found['accuracy']:.2f} %"
    )
    asked = f"(asked: {100 * AGREE:.1f} %, and {100 * APART:.1f} points at most between them)"
    return f"on with precision=int8: {figures}" if found["passed"] else f"off: {figures} {asked}"


def read_outcome(found: Any, where: str) -> dict[str, Any] | None:
    """The outcome in a file, checked; None where none was measured.

    Raises:
        CheckpointError: what no measurement gives.
    """
    if found is None:
        return None
    numbers = [found.get(name) for name in FIGURES] if isinstance(found, dict) else [None]
    shares = all(isinstance(x, int | float) and math.isfinite(x) and 0 <= x <= 1 for x in numbers)
    whole = isinstance(found, dict) and isinstance(found.get("n"), int) and found["n"] >= 1
    if not (shares and whole and isinstance(found.get("passed"), bool)):
        raise CheckpointError(
            "'int8' is not an outcome of its gate", where=where, fix="Take the key out of it"
        )
    return found
