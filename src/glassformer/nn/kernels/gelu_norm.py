"""GELU and layer norm in bf16 (``rows.c``): one pass over memory, computed in fp32.

torch needs two passes for the residual sum and its layer norm, and sums the gradients of the norm's weight
and bias in bf16. torch's GELU is slower only in the backward pass (``benchmarks/speed/parts.py``). In fp32
only tanh GELU has a kernel here (``gelu_fp32.c``), because torch's other kernels are as fast
(``benchmarks/speed/kernels_fp32.py``).
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from glassformer.nn import kernels
from glassformer.nn.kernels.jobs import GeluJob, NormJob
from glassformer.runtime import is_exporting

MIN_NUMBERS = 16_384  # number of elements; for smaller tensors our kernels are not faster
ROWS_PER_CHUNK = 128  # rows that a thread computes at a time: ``SHARE`` in rows.c


def can_gelu(x: Tensor, tanh: bool = False) -> bool:
    """Whether ``gelu`` supports ``x``: on a CPU, large enough, bf16 (with ``tanh``: fp32)."""
    return _fits(x, torch.float32 if tanh else torch.bfloat16) and x.numel() % 16 == 0


def gelu(x: Tensor, tanh: bool = False) -> Tensor:
    """``x * Phi(x)``; ``Phi`` is the normal CDF (Hendrycks and Gimpel, 2016).

    Args:
        tanh: use the tanh approximation of ``Phi``.
    """
    return _Gelu.apply(x, tanh)


def can_norm(x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None) -> bool:
    """Whether ``layer_norm`` supports bf16 ``[N, D]`` on this CPU: D a multiple of 16, weight and bias."""
    fits = _fits(x, torch.bfloat16) and x.ndim == 2 and x.shape[1] % 16 == 0
    for scale in (weight, bias):
        fits = fits and scale is not None and scale.dtype == x.dtype and scale.shape == x.shape[1:]
    return fits and (residual is None or (residual.shape == x.shape and residual.dtype == x.dtype))


def layer_norm(x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """The layer norm (Ba et al., 2016) of ``x + residual`` (``x`` if ``residual`` is None), ``[N, D]``."""
    return _Norm.apply(x, residual, weight, bias, eps)


def _fits(x: Tensor, dtype: torch.dtype) -> bool:
    return (
        x.dtype == dtype
        and x.device.type == "cpu"
        and not is_exporting()  # an exported graph must not contain our operators
        and x.numel() >= MIN_NUMBERS
        and kernels.has_dtype(dtype)
    )


def _run(name: str, job: ctypes.Structure) -> None:
    getattr(kernels.library(), name)(ctypes.byref(job), kernels.torch_threads())


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, tanh):
        x = x.contiguous()
        ctx.save_for_backward(x)
        ctx.tanh = tanh
        return gelu_of(x, None, tanh)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return gelu_of(ctx.saved_tensors[0], grad, ctx.tanh), None


def gelu_of(x: Tensor, grad: Tensor | None, tanh: bool = False) -> Tensor:
    """GELU of ``x``; with the gradient ``grad`` of the output, the gradient of ``x`` instead."""
    x, grad = x.contiguous(), None if grad is None else grad.contiguous()
    out = torch.empty_like(x)
    grad_address = None if grad is None else grad.data_ptr()
    job = GeluJob(x.data_ptr(), grad_address, out.data_ptr(), x.numel(), torch.get_num_threads())
    _run("gelu_tanh_fp32" if tanh else "gelu", job)
    return out


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, bias, eps):
        x, weight = x.contiguous(), weight.contiguous()
        out, total, stats = norm_of(x, residual, weight, bias, eps)
        ctx.save_for_backward(x if residual is None else total, stats, weight)
        ctx.has_residual = residual is not None
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, stats, weight = ctx.saved_tensors
        dx, dweight, dbias = norm_gradients(x, stats, weight, grad)
        return dx, dx if ctx.has_residual else None, dweight, dbias, None


def norm_of(
    x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The norm of ``x + residual`` ``[N, D]``, this sum (empty without residual), statistics ``[N, 2]``."""
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    out, stats = torch.empty_like(x), x.new_empty(len(x), 2, dtype=torch.float32)
    total = x.new_empty(0 if residual is None else x.shape)
    job = NormJob(rows=len(x), width=x.shape[1], threads=torch.get_num_threads(), eps=eps)
    job.x, job.weight, job.bias, job.out, job.stats = _addresses(x, weight, bias, out, stats)
    if residual is not None:
        residual = residual.contiguous()
        job.plus, job.sum = _addresses(residual, total)
    _run("layer_norm", job)
    return out, total, stats


def norm_gradients(x: Tensor, stats: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients with respect to ``x`` (the sum before the norm), the weight and the bias."""
    x, stats, weight, grad = (t.contiguous() for t in (x, stats, weight, grad))
    dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    partial = stats.new_empty(-(-len(x) // ROWS_PER_CHUNK), 2, len(weight))
    job = NormJob(rows=len(x), width=x.shape[1], threads=torch.get_num_threads())
    job.x, job.weight, job.stats, job.grad = _addresses(x, weight, stats, grad)
    job.dx, job.dweight, job.dbias, job.partial = _addresses(dx, dweight, dbias, partial)
    _run("layer_norm", job)
    return dx, dweight, dbias


def _addresses(*tensors: Tensor) -> list[int]:
    return [x.data_ptr() for x in tensors]
