"""Attention weights, attention rollout and gradient-weighted attention."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from glassformer.errors import BadValueError, InputError, counted
from glassformer.explain.result import Scores
from glassformer.explain.subject import Subject, attention_maps, join_maps, pooling_weights, run_rows
from glassformer.nn.trace import Trace

Fusion = Literal["mean", "max", "min"]


def attention(subject: Subject, *, layer: int = -1, head: int | None = None) -> Scores:
    """Attention weights of one layer, from the positions that the model pools for its head.

    Args:
        layer: layer number; negative numbers count from the end.
        head: head number; None: the mean over heads.
    """
    maps, reads = attention_maps(subject)
    layer = _check_index(layer, len(maps), "layer")
    weights = maps[layer].mean(0) if head is None else maps[layer, _check_index(head, maps.shape[1], "head")]
    return Scores(reads @ weights, maps, reads, settings={"layer": layer, "head": head})


def attention_rollout(
    subject: Subject, *, residual: float = 0.5, fusion: Fusion = "mean", discard: float = 0.0
) -> Scores:
    """Attention rollout (Abnar and Zuidema, 2020), from the positions that the model pools for its head."""
    maps, reads = attention_maps(subject)
    flow = rollout(maps, residual=residual, fusion=fusion, discard=discard)
    settings = {"residual": residual, "fusion": fusion, "discard": discard}
    return Scores(reads @ flow, maps, reads, settings=settings)


def rollout(
    maps: np.ndarray, *, residual: float = 0.5, fusion: Fusion = "mean", discard: float = 0.0
) -> np.ndarray:
    """The share of each input token in each output token: attention weights ``[L, H, T, T]`` -> ``[T, T]``.

    The result is the product over layers of ``(1 - residual) A + residual I``, where A fuses the heads.

    Args:
        residual: share of the residual connection, in [0, 1]; 0.5 in the paper.
        fusion: how heads are fused: mean (as in the paper), max or min. After max and min, each row is
            normalized to sum 1.
        discard: share of the weights of each fused map, the smallest ones, that are set to 0, in [0, 1).
    """
    if not 0 <= residual <= 1:
        raise BadValueError(f"residual {residual} is not in [0, 1]", where="rollout")
    if not 0 <= discard < 1:
        raise BadValueError(f"discard {discard} is not in [0, 1)", where="rollout")
    if fusion not in ("mean", "max", "min"):
        raise BadValueError(f"unknown fusion {fusion!r}", where="rollout", fix="Use mean, max or min")
    eye = np.eye(maps.shape[-1])
    flow = eye
    for layer in maps.astype(np.float64):  # [H, T, T]
        fused = getattr(layer, fusion)(0)
        if discard:
            fused = np.where(fused < np.quantile(fused, discard), 0.0, fused)
        if discard or fusion != "mean":
            total = fused.sum(-1, keepdims=True)
            fused = np.where(total > 0, fused / np.where(total > 0, total, 1.0), eye)  # rows of 0: identity
        flow = ((1 - residual) * fused + residual * eye) @ flow
    return flow


def attention_gradient(subject: Subject, target: int) -> Scores:
    """Rollout of attention weighted by its gradient (Chefer, Gur and Wolf, 2021, for self-attention).

    ``R <- R + mean_h (dy/dA * A)^+ R`` for each layer, starting with R = I. The identity is subtracted at the
    end.
    """
    rows = (
        subject.embeddings.detach().clone().requires_grad_()
    )  # gradients exist even if all weights are frozen
    with torch.enable_grad():
        out = run_rows(subject.model, rows, subject.packing(), Trace(attentions=True))
        assert out.trace is not None
        assert out.logits is not None
        weights = [weights for layer in out.trace.attentions for weights in layer]  # [H, T_i, T_i]
        gradients = torch.autograd.grad(out.logits[0, target], weights)
    eye = np.eye(len(subject))
    relevance = eye
    texts = len(subject.text_lengths)
    layers = [slice(i, i + texts) for i in range(0, len(weights), texts)]
    weights, gradients = ([join_maps(maps[i]) for i in layers] for maps in (weights, gradients))
    for weight, gradient in zip(weights, gradients, strict=True):  # [H, T, T]
        weighted = (weight.detach() * gradient).clamp(min=0).mean(0).double().cpu().numpy()
        relevance = relevance + weighted @ relevance
    with torch.no_grad():
        reads = pooling_weights(subject.model.pooling, out, len(subject))
    maps = np.stack([weight.detach().float().cpu().numpy() for weight in weights])
    return Scores(reads @ (relevance - eye), maps, reads)


def _check_index(index: int, count: int, what: str) -> int:
    """The index counted from 0; negative indices count from the end."""
    if not -count <= index < count:
        fix = f"Use {what}=0" if count == 1 else f"Use {what}=0 to {count - 1}, or -1 for the last"
        raise InputError(f"no {what} {index}: the model has {counted(count, what)}", where="explain", fix=fix)
    return index % count
