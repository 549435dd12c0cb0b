"""Activation patching between two inputs.

Patching shows which hidden states and heads cause the different predictions for both inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import InputError, NotForThisModelError
from glassformer.explain.methods import make_subject
from glassformer.explain.subject import Subject
from glassformer.runtime import runs_isolated


@dataclass(frozen=True)
class Patched:
    """The effect of each activation as a share of the difference between two inputs, usually from 0 to 1.

    Args:
        states: ``[L + 1, T]`` effect of the hidden state of one token, before the first and after each layer.
        heads: ``[L, H]`` effect of the output of one head at all tokens.
        tokens: tokens of the clean input; ``[]`` for an image.
        labels: predictions for the clean and for the corrupted input.
        difference: the metric of the clean input minus the metric of the corrupted input; see
            ``patch_subjects``.
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
    return patch_subjects(make_subject(est, clean), make_subject(est, corrupted))


@runs_isolated
def patch_subjects(clean: Subject, corrupted: Subject) -> Patched:
    """Run the model on the corrupted input, with one activation at a time from the clean input.

    The metric is the logit of the clean input's label minus the logit of the corrupted input's label (after
    Meng et al., 2022, and Wang et al., 2023).

    Args:
        clean, corrupted: inputs for the same model, with the same number of tokens or patches and different
            predictions, such as two texts that differ in one word.

    Raises:
        InputError: the numbers of tokens differ, the predictions are the same, or the model is a bi-encoder.
        NotForThisModelError: the model is not a Transformer.
    """
    model: Any = clean.model
    if not getattr(model, "has_attention", True) or not hasattr(model.encoder, "layers"):
        raise NotForThisModelError(
            "the model has no layers of attention", where="patch", fix="Use a Transformer"
        )
    if len(clean.text_lengths) > 1 or len(clean) != len(corrupted):
        what = f"the inputs have {len(clean)} and {len(corrupted)} tokens"
        if len(clean.text_lengths) > 1:
            what = "a bi-encoder, which encodes both texts separately, is not supported"
        fix = "Give two inputs with the same number of tokens, such as texts that differ in one word"
        raise InputError(what, where="patch", fix=fix)
    if clean.target == corrupted.target:
        what = f"both inputs are predicted as {clean.classes[clean.target]!r}"
        raise InputError(what, where="patch", fix="Give two inputs that are predicted differently")
    layers, num_heads = model.encoder.steps, model.encoder.config.num_heads

    def measure(states: Tensor, count: int) -> np.ndarray:
        logits = model.apply_heads(states, clean.packing(count)).logits.double().cpu().numpy()
        return logits[:, clean.target] - logits[:, corrupted.target]

    clean_states, clean_heads = _run(model, clean, num_heads)
    corrupted_states, _ = _run(model, corrupted, num_heads)
    high, low = (
        float(measure(model.encoder.final_norm(states[-1]), 1)[0])
        for states in (clean_states, corrupted_states)
    )
    t = len(clean)
    by_state, by_head = np.zeros((len(layers) + 1, t)), np.zeros((len(layers), num_heads))
    tokens = torch.arange(t)
    for i in range(len(layers) + 1):
        rows = corrupted_states[i].repeat(t, 1, 1)  # [variants, T, D]
        rows[tokens, tokens] = clean_states[i]
        by_state[i] = measure(model.encoder(rows.flatten(0, 1), clean.packing(t), begin=i), t)
    for i, layer in enumerate(layers):
        rows = corrupted_states[i].repeat(num_heads, 1)
        with _heads_replaced(layer.attention.out, clean_heads[i]):
            rows = model.encoder(rows, clean.packing(num_heads), begin=i, end=i + 1)
        by_head[i] = measure(model.encoder(rows, clean.packing(num_heads), begin=i + 1), num_heads)
    scale = high - low
    return Patched(
        (by_state - low) / scale,
        (by_head - low) / scale,
        list(clean.input_fields.get("tokens", [])),
        (clean.classes[clean.target], corrupted.classes[corrupted.target]),
        scale,
    )


def _run(model: Any, subject: Subject, num_heads: int) -> tuple[list[Tensor], list[Tensor]]:
    """The L + 1 hidden states ``[T, D]``, and the outputs of the heads of L layers ``[T, H, D / H]``.

    The latter are inputs of the output projection.
    """
    states, outputs = [subject.embeddings.to(next(model.encoder.parameters()).dtype)], []
    for i, layer in enumerate(model.encoder.steps):
        hook = layer.attention.out.register_forward_pre_hook(
            lambda _, inputs: outputs.append(inputs[0].unflatten(1, (num_heads, -1)))
        )
        try:
            states.append(model.encoder(states[-1], subject.packing(), begin=i, end=i + 1))
        finally:
            hook.remove()
    return states, outputs


@contextmanager
def _heads_replaced(projection: Any, clean: Tensor) -> Iterator[None]:
    """Context in which variant h of H variants gets the clean output of head h."""
    t, num_heads = clean.shape[:2]

    def replace(_: Any, inputs: tuple[Tensor, ...]) -> Tensor:
        patched = inputs[0].view(num_heads, t, num_heads, -1).clone()
        for head in range(num_heads):
            patched[head, :, head] = clean[:, head]
        return patched.view(num_heads * t, -1)

    hook = projection.register_forward_pre_hook(replace)
    try:
        yield
    finally:
        hook.remove()
