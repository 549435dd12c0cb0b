"""Activation patching: which hidden states and heads cause the different predictions for two inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import InputError, NotForThisModelError
from glassformer.explain.methods import subject_of
from glassformer.explain.subject import Subject
from glassformer.runtime import computes


@dataclass(frozen=True)
class Patched:
    """The effect of each part as a share of the difference between two inputs, usually from 0 to 1.

    Args:
        states: ``[L + 1, T]`` effect of the state of one token before the first and after each layer.
        heads: ``[L, H]`` effect of the output of one head at all tokens.
        tokens: tokens of the clean input; ``[]`` for an image.
        labels: predictions for the clean and for the corrupted input.
        difference: difference between the inputs of the logit difference of both labels.
    """

    states: np.ndarray
    heads: np.ndarray
    tokens: list[str]
    labels: tuple[Any, Any]
    difference: float


def patch(est: Any, clean: Any, corrupted: Any) -> Patched:
    """Activation patching between two inputs of a fitted classifier; see ``patch_subjects``.

    Args:
        clean, corrupted: two texts with the same number of tokens, or two images, as for ``explain``.
    """
    return patch_subjects(subject_of(est, clean), subject_of(est, corrupted))


@computes
def patch_subjects(clean: Subject, corrupted: Subject) -> Patched:
    """Run the model on the corrupted input, with one activation at a time replaced by the clean input's.

    The metric is the logit of the clean input's label minus that of the corrupted input's (after Meng et al.,
    2022, and Wang et al., 2023).

    Args:
        clean, corrupted: inputs for the same model, with the same number of tokens or patches and different
            predictions, such as two texts that differ in one word.

    Raises:
        InputError: different numbers of tokens, the same prediction, or pairs for a bi-encoder.
        NotForThisModelError: the model is not a Transformer.
    """
    model: Any = clean.model
    if not getattr(model, "has_attention", True) or not hasattr(model.encoder, "layers"):
        raise NotForThisModelError(
            "the model has no layers of attention", where="patch", fix="Use a Transformer"
        )
    if len(clean.parts) > 1 or len(clean) != len(corrupted):
        what = f"the inputs have {len(clean)} and {len(corrupted)} tokens"
        what = "texts that are read apart" if len(clean.parts) > 1 else what
        raise InputError(
            what, where="patch", fix="Give two inputs of as many tokens, such as texts that differ in a word"
        )
    if clean.target == corrupted.target:
        what = f"both inputs are predicted as {clean.classes[clean.target]!r}"
        raise InputError(what, where="patch", fix="Give two inputs that are predicted differently")
    layers, heads = model.encoder.steps, model.encoder.config.num_heads

    def measure(states: Tensor, count: int) -> np.ndarray:
        logits = model.apply_heads(states, clean.packing(count)).logits.double().cpu().numpy()
        return logits[:, clean.target] - logits[:, corrupted.target]

    own, mixed = _run(model, clean, heads), _run(model, corrupted, heads)
    high, low = (float(measure(model.encoder.final_norm(run.states[-1]), 1)[0]) for run in (own, mixed))
    t = len(clean)
    states, of_heads = np.zeros((len(layers) + 1, t)), np.zeros((len(layers), heads))
    every = torch.arange(t)
    for number in range(len(layers) + 1):
        rows = mixed.states[number].repeat(t, 1, 1)  # [variants, T, D]
        rows[every, every] = own.states[number]
        states[number] = measure(model.encoder(rows.flatten(0, 1), clean.packing(t), begin=number), t)
    for number, layer in enumerate(layers):
        rows = mixed.states[number].repeat(heads, 1)
        with _heads_replaced(layer.attention.out, own.heads[number]):
            rows = model.encoder(rows, clean.packing(heads), begin=number, end=number + 1)
        patched = model.encoder(rows, clean.packing(heads), begin=number + 1)
        of_heads[number] = measure(patched, heads)
    scale = high - low
    return Patched(
        (states - low) / scale,
        (of_heads - low) / scale,
        list(clean.shown.get("tokens", [])),
        (clean.classes[clean.target], corrupted.classes[corrupted.target]),
        scale,
    )


@dataclass(frozen=True)
class _Computation:
    states: list[Tensor]  # L + 1 of [T, D]
    heads: list[Tensor]  # L of [T, H, D / H], before the output projection


def _run(model: Any, subject: Subject, heads: int) -> _Computation:
    """The hidden states and head outputs of all layers for one input."""
    states, outputs = [subject.rows.to(next(model.encoder.parameters()).dtype)], []
    for number, layer in enumerate(model.encoder.steps):
        hook = layer.attention.out.register_forward_pre_hook(
            lambda _, given: outputs.append(given[0].unflatten(1, (heads, -1)))
        )
        try:
            states.append(model.encoder(states[-1], subject.packing(), begin=number, end=number + 1))
        finally:
            hook.remove()
    return _Computation(states, outputs)


@contextmanager
def _heads_replaced(projection: Any, clean: Tensor) -> Iterator[None]:
    """Context in which variant h of H variants has the clean output of head h."""
    t, heads = clean.shape[:2]

    def replace(_: Any, given: tuple[Tensor, ...]) -> Tensor:
        mixed = given[0].view(heads, t, heads, -1).clone()
        for head in range(heads):
            mixed[head, :, head] = clean[:, head]
        return mixed.view(heads * t, -1)

    hook = projection.register_forward_pre_hook(replace)
    try:
        yield
    finally:
        hook.remove()
