"""The kernels as torch operators, ``torch.ops.glassformer``, for ``torch.compile`` and ``torch.export``.

Their shapes and gradients are registered here, so a compiled graph calls each kernel as one operator. Outside
of a graph the kernels are called directly: an operator written in Python has more overhead, and its first
call imports torch's compiler. Sequence lengths are part of the graph: another packing needs another graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from glassformer.nn import kernels
from glassformer.nn.kernels import gelu_norm, int8
from glassformer.packing import Packing
from glassformer.runtime import is_compiling


@torch.library.custom_op("glassformer::attention", mutates_args=(), device_types="cpu")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_lengths: Sequence[int],
    k_lengths: Sequence[int],
    causal: bool,
    scale: float,
    bias: Tensor | None = None,
    window: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention over packed queries, keys and values; returns what ``kernels.attention`` returns."""
    packings = Packing(tuple(q_lengths)), Packing(tuple(k_lengths))
    return kernels.attention(q, k, v, *packings, causal, scale, bias, window)


@attention.register_fake
def _(q, k, v, q_lengths, k_lengths, causal, scale, bias=None, window=None):
    return q.new_empty(q.shape), q.new_empty(*q.shape[:2], 2, dtype=torch.float32)


@torch.library.custom_op("glassformer::attention_backward", mutates_args=(), device_types="cpu")
def attention_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    stats: Tensor,
    grad: Tensor,
    q_lengths: Sequence[int],
    k_lengths: Sequence[int],
    causal: bool,
    scale: float,
    bias: Tensor | None = None,
    window: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of queries, keys, values and bias; without a bias, its gradient is empty."""
    packings = Packing(tuple(q_lengths)), Packing(tuple(k_lengths))
    settings = *packings, causal, scale, bias, window
    dq, dk, dv, dbias = kernels.attention_backward(q, k, v, out, stats, grad, *settings)
    return dq, dk, dv, q.new_empty(0) if dbias is None else dbias


@attention_backward.register_fake
def _(q, k, v, out, stats, grad, q_lengths, k_lengths, causal, scale, bias=None, window=None):
    dbias = q.new_empty(0) if bias is None else torch.empty_like(bias)
    return *(x.new_empty(x.shape) for x in (q, k, v)), dbias


def _save_attention(ctx, inputs, output):
    q, k, v, *ctx.settings, bias, ctx.window = inputs
    ctx.save_for_backward(q, k, v, *output, bias)


def _attention_gradients(ctx, grad, _):
    *saved_tensors, bias = ctx.saved_tensors
    *dqkv, dbias = attention_backward(*saved_tensors, grad, *ctx.settings, bias, ctx.window)
    return *dqkv, None, None, None, None, None if bias is None else dbias, None


attention.register_autograd(_attention_gradients, setup_context=_save_attention)


def packed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_packing: Packing,
    kv_packing: Packing,
    causal: bool,
    scale: float,
    bias: Tensor | None = None,
    window: int | None = None,
) -> Tensor:
    """softmax(Q K^T * scale + B) V ``[N, H, K]``; calls the operator if compiling, else the kernel.

    ``bias`` and ``window``: see ``kernels.attention``.
    """
    if is_compiling():
        lengths = list(q_packing.lengths), list(kv_packing.lengths)
        return attention(q, k, v, *lengths, causal, scale, bias, window)[0]
    return kernels.KernelAttention.apply(q, k, v, q_packing, kv_packing, causal, scale, bias, window)


@torch.library.custom_op("glassformer::disentangled", mutates_args=(), device_types="cpu")
def disentangled(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_lengths: Sequence[int],
    k_lengths: Sequence[int],
    scale: float,
    keys: Tensor | None,
    queries: Tensor | None,
    rows: Tensor,
) -> tuple[Tensor, Tensor]:
    """Disentangled attention over packed sequences; returns what ``kernels.disentangled`` returns."""
    packings = Packing(tuple(q_lengths)), Packing(tuple(k_lengths))
    return kernels.disentangled(q, k, v, *packings, scale, keys, queries, rows)


@disentangled.register_fake
def _(q, k, v, q_lengths, k_lengths, scale, keys, queries, rows):
    return q.new_empty(q.shape), q.new_empty(*q.shape[:2], 2, dtype=torch.float32)


@torch.library.custom_op("glassformer::disentangled_backward", mutates_args=(), device_types="cpu")
def disentangled_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    stats: Tensor,
    grad: Tensor,
    q_lengths: Sequence[int],
    k_lengths: Sequence[int],
    scale: float,
    keys: Tensor | None,
    queries: Tensor | None,
    rows: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v, ``keys`` and ``queries``; empty for tensors that are None."""
    packings = Packing(tuple(q_lengths)), Packing(tuple(k_lengths))
    settings = *packings, scale, keys, queries, rows
    gradients = kernels.disentangled_backward(q, k, v, out, stats, grad, *settings)
    dq, dk, dv, dkeys, dqueries = (q.new_empty(0) if g is None else g for g in gradients)
    # The outputs of an operator must not share memory.
    return dq.contiguous(), dk.contiguous(), dv.contiguous(), dkeys, dqueries


@disentangled_backward.register_fake
def _(q, k, v, out, stats, grad, q_lengths, k_lengths, scale, keys, queries, rows):
    shapes = (q.new_empty(0) if x is None else x.new_empty(x.shape) for x in (q, k, v, keys, queries))
    return tuple(shapes)


def _save_disentangled(ctx, inputs, output):
    q, k, v, *ctx.settings, keys, queries, rows = inputs
    ctx.save_for_backward(q, k, v, *output, keys, queries, rows)


def _disentangled_gradients(ctx, grad, _):
    *saved_tensors, keys, queries, rows = ctx.saved_tensors
    gradients = disentangled_backward(*saved_tensors, grad, *ctx.settings, keys, queries, rows)
    *dqkv, dkeys, dqueries = gradients
    distances = None if keys is None else dkeys, None if queries is None else dqueries
    return *dqkv, None, None, None, *distances, None


disentangled.register_autograd(_disentangled_gradients, setup_context=_save_disentangled)


def packed_disentangled(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_packing: Packing,
    kv_packing: Packing,
    scale: float,
    keys: Tensor | None,
    queries: Tensor | None,
    rows: Tensor,
) -> Tensor:
    """Disentangled attention ``[N, H, K]``; calls the operator if compiling, else the kernel.

    See ``kernels.disentangled``.
    """
    if is_compiling():
        lengths = list(q_packing.lengths), list(kv_packing.lengths)
        return disentangled(q, k, v, *lengths, scale, keys, queries, rows)[0]
    return kernels.KernelDisentangled.apply(q, k, v, q_packing, kv_packing, scale, keys, queries, rows)


@torch.library.custom_op("glassformer::gelu", mutates_args=(), device_types="cpu")
def gelu(x: Tensor) -> Tensor:
    """``x * Phi(x)`` for a contiguous tensor."""
    return gelu_norm.gelu_of(x, None)


@torch.library.custom_op("glassformer::gelu_backward", mutates_args=(), device_types="cpu")
def gelu_backward(x: Tensor, grad: Tensor) -> Tensor:
    """The gradient of ``gelu``."""
    return gelu_norm.gelu_of(x, grad)


@gelu.register_fake
def _(x):
    return x.new_empty(x.shape)


@gelu_backward.register_fake
def _(x, grad):
    return x.new_empty(x.shape)


gelu.register_autograd(
    lambda ctx, grad: gelu_backward(*ctx.saved_tensors, grad),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@torch.library.custom_op("glassformer::layer_norm", mutates_args=(), device_types="cpu")
def layer_norm(
    x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The norm of ``x + residual`` ``[N, D]``, this sum (empty without residual), statistics ``[N, 2]``."""
    return gelu_norm.norm_of(x, residual, weight, bias, eps)


@layer_norm.register_fake
def _(x, residual, weight, bias, eps):
    total = x.new_empty(0 if residual is None else x.shape)
    return x.new_empty(x.shape), total, x.new_empty(len(x), 2, dtype=torch.float32)


@torch.library.custom_op("glassformer::layer_norm_backward", mutates_args=(), device_types="cpu")
def layer_norm_backward(
    x: Tensor, stats: Tensor, weight: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients with respect to ``x`` (the sum before the norm), the weight and the bias."""
    return gelu_norm.norm_gradients(x, stats, weight, grad)


@layer_norm_backward.register_fake
def _(x, stats, weight, grad):
    return x.new_empty(x.shape), weight.new_empty(weight.shape), weight.new_empty(weight.shape)


def _save_norm(ctx, inputs, output):
    x, residual, weight, _, _ = inputs
    _, total, stats = output
    ctx.has_residual = residual is not None
    ctx.save_for_backward(total if ctx.has_residual else x, stats, weight)


def _norm_gradients(ctx, grad, *_):
    x, stats, weight = ctx.saved_tensors
    dx, dweight, dbias = layer_norm_backward(x, stats, weight, grad)
    return dx, dx if ctx.has_residual else None, dweight, dbias, None


layer_norm.register_autograd(_norm_gradients, setup_context=_save_norm)


@torch.library.custom_op("glassformer::weight_gradient", mutates_args=(), device_types="cpu")
def weight_gradient(grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of a linear layer's weight ``[out, in]`` and bias ``[out]``."""
    weight, bias = kernels.weight_gradient(grad, x, bias=True)
    assert bias is not None
    return weight, bias


@weight_gradient.register_fake
def _(grad, x):
    return grad.new_empty(grad.shape[1], x.shape[1]), grad.new_empty(grad.shape[1])


@torch.library.custom_op("glassformer::int8_linear", mutates_args=(), device_types="cpu")
def int8_linear(
    x: Tensor,
    weight: Tensor,
    start: Tensor,
    scale: Tensor,
    bias: Tensor,
    inputs: int,
    columns: int,
    activation: str,
) -> Tensor:
    """``f(x W^T + b)`` ``[N, columns]`` with a packed weight, without a gradient."""
    return int8.linear(x, int8.Packed(weight, start, scale, bias, inputs, columns), activation)


@int8_linear.register_fake
def _(x, weight, start, scale, bias, inputs, columns, activation):
    return x.new_empty(len(x), columns)
