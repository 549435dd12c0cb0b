"""Gradient x input with modified backward passes.

``stepwise_forward`` repeats the forward pass of the encoder step by step. A method can treat parts of it as
constants or rescale their gradients:

gim             Standard deviations in layer norms are constants. The backward pass of the softmax has a
                higher temperature. The factors of a product share its gradient (Edin et al., 2025).
decomposition   Attention weights, standard deviations in layer norms and ``f(h) / h`` of activations are
                constants. The rest is linear, so gradient x input is the exact contribution of a token to the
                logit, up to the biases (DecompX, Modarressi et al., 2023). Unlike DecompX, it decomposes only
                the logit, in one backward pass, and does not distribute biases over tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.explain.result import Scores
from glassformer.explain.subject import SingleOutputModel, Subject
from glassformer.nn.cheaper import LocalAttention
from glassformer.nn.disentangled import DisentangledAttention
from glassformer.nn.feedforward import ACTIVATIONS, GatedFeedForward
from glassformer.nn.maps import causal_mask
from glassformer.nn.pairs import PairPooling
from glassformer.nn.pooling import (
    AttentionPooling,
    FirstNormPooling,
    MultiHeadPooling,
    Pooler,
    UnitPooling,
    first_rows,
)
from glassformer.nn.positions import expand_bias
from glassformer.packing import Packing


def gim(subject: Subject, target: int, *, temperature: float = 2.0) -> Scores:
    """Gradient x input with Gradient Interaction Modifications (Edin et al., 2025).

    Args:
        temperature: temperature of the softmax in the backward pass. Above 1, saturated attention weights
            also have gradients.
    """
    if not temperature > 0:
        raise InputError(
            f"temperature {temperature} is not above 0", where="gim", fix="Give a number above 0"
        )
    rules = Rules(
        lambda scores: _Softmax.apply(scores, temperature), (0.25, 0.25, 0.5), lambda f, h: f(h), 0.5
    )
    scores, _ = _gradient_x_input(subject, target, rules, lambda m, *states: m.apply_heads(*states).logits)
    return Scores(scores, settings={"temperature": temperature})


def decomposition(subject: Subject, target: int) -> Scores:
    """Exact contributions of the tokens to the logit (DecompX); see the head of this module.

    The scores of all tokens, including special tokens, and ``settings["biases"]`` sum to the logit.
    """
    rules = Rules(lambda scores: scores.softmax(-1).detach(), (1.0, 1.0, 1.0), _linearized, None)
    scores, logit = _gradient_x_input(subject, target, rules, _linear_logits)
    return Scores(scores, settings={"biases": logit - float(scores.sum())})


def can_decompose(model: Any) -> bool:
    """Whether pooling and head of a model are supported by ``decomposition``."""
    if getattr(model, "mlm", None) is not None:
        return False
    return not isinstance(getattr(model, "pooling", None), AttentionPooling | MultiHeadPooling | PairPooling)


@dataclass(frozen=True)
class Rules:
    """How a method changes the backward pass.

    Args:
        weights: attention scores ``[H, T, T]`` -> attention weights.
        qkv_factors: factors of the gradients of queries, keys and values.
        activation: activation ``f`` and its input ``h`` -> ``f(h)``.
        gate: factor of the gradient of both factors of a gated network; None: the gate is a constant.
    """

    weights: Callable[[Tensor], Tensor]
    qkv_factors: tuple[float, float, float]
    activation: Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]
    gate: float | None


def _gradient_x_input(
    subject: Subject, target: int, rules: Rules, compute_logits: Callable[..., Tensor]
) -> tuple[np.ndarray, float]:
    """Scores ``[T]`` in fp64, and the logit.

    Args:
        compute_logits: function of model, last hidden states and packing.
    """
    model: Any = subject.model
    packing = subject.packing()
    rows = subject.embeddings.detach().to(next(model.encoder.parameters()).dtype).clone().requires_grad_()
    with torch.enable_grad():
        states = stepwise_forward(model.encoder, rows, packing, rules)
        logit = compute_logits(model, states, packing)[0, target]
        (gradient,) = torch.autograd.grad(logit, rows)
    return (gradient * rows.detach()).double().sum(1).cpu().numpy(), float(logit.detach())


# --- the forward pass ---------------------------------------------------------------------------------


def stepwise_forward(encoder: Any, x: Tensor, packing: Packing, rules: Rules) -> Tensor:
    """``Encoder.forward`` in evaluation mode, step by step, with the changes of ``rules``."""
    bias = None if encoder.relative is None else encoder.relative(packing.max_length)
    for layer in encoder.steps:
        normed = _layer_norm(layer.norm1, x) if layer.pre_norm else x
        attended = _attention(layer.attention, normed, packing, bias, rules, encoder.config.causal)
        x = x + layer.scale1(attended)
        if layer.pre_norm:
            x = x + layer.scale2(_feed_forward(layer.feed_forward, _layer_norm(layer.norm2, x), rules))
        else:
            x = _layer_norm(layer.norm1, x)
            x = _layer_norm(layer.norm2, x + layer.scale2(_feed_forward(layer.feed_forward, x, rules)))
    return _layer_norm(encoder.final_norm, x)


def _attention(
    attention: Any, x: Tensor, packing: Packing, bias: Tensor | None, rules: Rules, causal: bool = False
) -> Tensor:
    q, k, v = attention.project(x)
    rotated = (*attention.rotate(q, k, packing), v)
    qkv = (_scale_gradient(t, factor) for t, factor in zip(rotated, rules.qkv_factors, strict=True))
    out = []
    for q, k, v in zip(*(t.split(packing.lengths) for t in qkv), strict=True):  # per sequence, [T, H, K]
        if isinstance(attention, DisentangledAttention):
            assert bias is not None, "an encoder with disentangled attention has a distance table"
            scores = attention.scores(q.transpose(0, 1)[None], k.transpose(0, 1)[None], bias)[0]
        else:
            scores = torch.einsum("thk,shk->hts", q, k) * q.shape[-1] ** -0.5
            if bias is not None:
                scores = scores + expand_bias(bias, len(q), len(k))
        if isinstance(attention, LocalAttention):
            positions = torch.arange(len(q), device=q.device)
            is_outside = (positions - positions[:, None]).abs() > attention.window
            scores = scores.masked_fill(is_outside, -torch.inf)
        if causal:
            scores = scores.masked_fill(~causal_mask(len(q), len(k), q.device), -torch.inf)
        out.append(torch.einsum("hts,shk->thk", rules.weights(scores), v))
    return attention.out(torch.cat(out).flatten(1))


def _feed_forward(network: Any, x: Tensor, rules: Rules) -> Tensor:
    if isinstance(network, GatedFeedForward):
        gate, up = network.up(x).chunk(2, -1)
        gate = network.apply_gate(gate)
        if rules.gate is None:
            return network.down(gate.detach() * up)
        return network.down(_scale_gradient(gate, rules.gate) * _scale_gradient(up, rules.gate))
    return network.down(rules.activation(ACTIVATIONS[network.activation], network.up(x)))


def _layer_norm(norm: nn.Module, x: Tensor) -> Tensor:
    """Layer norm with its standard deviation as a constant."""
    if not isinstance(norm, nn.LayerNorm):
        return x
    x = x - x.mean(-1, keepdim=True)
    deviation = (x.square().mean(-1, keepdim=True) + norm.eps).sqrt().detach()
    x = x / deviation * norm.weight
    return x if norm.bias is None else x + norm.bias


def _linear_logits(model: Any, states: Tensor, packing: Packing) -> Tensor:
    """Logits ``[B, C]`` that are linear in the hidden states, up to biases."""
    if isinstance(model, SingleOutputModel):
        return model.select(_linear_logits(model.model, states, packing), packing.first_rows)
    if model.spans is not None:
        if (dense := model.spans.dense) is None:
            return model.spans(states)
        hidden = _linearized(ACTIVATIONS[model.spans.activation], dense(states))
        return model.spans.out(_layer_norm(model.spans.norm, hidden))
    if isinstance(model.pooling, Pooler):
        pooled = _linearized(torch.tanh, model.pooling.dense(first_rows(states, packing)))
        return _linear_head(model.head, pooled)
    if isinstance(model.pooling, FirstNormPooling):
        pooled = _layer_norm(model.pooling.norm, first_rows(states, packing))
        if model.pooling.project is not None:
            pooled = model.pooling.project(pooled)
            pooled = pooled / pooled.norm(dim=1, keepdim=True).detach()
        return _linear_head(model.head, pooled)
    if isinstance(model.pooling, UnitPooling):
        pooled, scaled = model.pooling.pooling(states, packing), model.pooling(states, packing)
        pooled = pooled * (scaled.norm(dim=1) / pooled.norm(dim=1)).detach()[:, None]
        return _linear_head(model.head, pooled)
    return _linear_head(model.head, model.pooling(states, packing))


def _linear_head(head: Any, pooled: Tensor) -> Tensor:
    if head.hidden is None or head.activation == "none":
        return head(pooled)
    hidden = _linearized(ACTIVATIONS[head.activation], head.hidden(pooled))
    return head.out(hidden if head.norm is None else _layer_norm(head.norm, hidden))


# --- the backward pass --------------------------------------------------------------------------------


def _scale_gradient(x: Tensor, factor: float) -> Tensor:
    """``x`` with its gradient scaled by ``factor``."""
    return x if factor == 1 else factor * x + ((1 - factor) * x).detach()


def _linearized(f: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
    """``f(h)`` computed as ``h`` times the constant ``f(h) / h``."""
    slope = torch.where(h == 0, 0.0, f(h) / torch.where(h == 0, 1.0, h))
    return h * slope.detach()


class _Softmax(torch.autograd.Function):
    """Softmax over the last dimension with the gradient of a softmax at another temperature."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, temperature: float) -> Tensor:
        ctx.save_for_backward((scores / temperature).softmax(-1))
        return scores.softmax(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (weights,) = ctx.saved_tensors
        return weights * (grad - (grad * weights).sum(-1, keepdim=True)), None
