"""Linear layer and layer norm with faster kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from glassformer.nn import kernels
from glassformer.nn.kernels import gelu_norm, ops
from glassformer.runtime import is_compiling, is_exporting


class Linear(nn.Linear):
    """``x W^T + b``, exactly like ``torch.nn.Linear``.

    On CPUs with AMX, our kernel (``kernels/linear.c``) computes the gradients of ``W`` and ``b``. There,
    torch's product for the gradient of ``W`` takes much longer than the other two products of the layer.
    """

    def forward(self, x: Tensor) -> Tensor:  # [N, in] -> [N, out]
        if torch.is_grad_enabled() and self.weight.requires_grad and kernels.has_gradient(x, self.weight):
            return _Linear.apply(x, self.weight, self.bias)
        return product(x, self.weight, self.bias)

    def part(self, x: Tensor, begin: int, end: int) -> Tensor:  # [N, in] -> [N, end - begin]
        """The columns ``begin`` to ``end`` of the output."""
        return product(x, self.weight[begin:end], None if self.bias is None else self.bias[begin:end])


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x W^T + b``, bit for bit like ``torch.nn.functional.linear``.

    torch copies the bias into every row of the output and adds the product. In bf16 the copy takes half as
    long as the product. oneDNN computes the product in both cases and can add the bias in registers, but
    without a gradient.
    """
    if bias is None or not _adds_bias(x, weight, bias):
        return F.linear(x, weight, bias)
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _adds_bias(*tensors: Tensor) -> bool:
    needs_grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return (
        not needs_grad
        and all(tensor.dtype == torch.bfloat16 and tensor.device.type == "cpu" for tensor in tensors)
        and not is_compiling()
        and not is_exporting()
        and kernels.has_dtype(torch.bfloat16)
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # private: may be missing in other versions
    )


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        dx = grad @ weight if ctx.needs_input_grad[0] else None
        if is_compiling():
            weight_gradient, bias_gradient = ops.weight_gradient(grad, x)
            return dx, weight_gradient, bias_gradient if ctx.needs_input_grad[2] else None
        return dx, *kernels.weight_gradient(grad, x, bias=ctx.needs_input_grad[2])


ROWS = 2048  # number of rows per chunk in prediction


def uses_chunks(x: Tensor, rows: int = ROWS) -> bool:
    """Whether ``in_chunks`` splits ``x``: in prediction on a CPU, if ``x`` has more than ``rows`` rows."""
    return len(x) > rows and x.device.type == "cpu" and not torch.is_grad_enabled() and not is_compiling()


def in_chunks(function: Callable[[Tensor], Tensor], x: Tensor, *, in_place: bool = False) -> Tensor:
    """``function(x)`` for ``[N, D]``, in chunks if N is large: temporary tensors take less memory.

    Args:
        function: a function that maps each row independently.
        in_place: whether the result, which must have the shape of ``x``, may replace ``x``.
    """
    if not uses_chunks(x):
        return function(x)
    out = x if in_place else None
    for first in range(0, len(x), ROWS):
        part = function(x[first : first + ROWS])
        out = part.new_empty(len(x), *part.shape[1:]) if out is None else out
        out[first : first + ROWS] = part
    assert out is not None
    return out


def split_qkv(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Views of queries, keys and values: ``[N, 3, H, K]`` -> 3 x ``[N, H, K]``.

    The kernels write their gradients in the memory layout of these views, so the backward pass copies
    nothing.
    """
    use_views = (
        torch.is_grad_enabled() and x.requires_grad and x.device.type == "cpu" and kernels.has_dtype(x.dtype)
    )
    q, k, v = _SplitQKV.apply(x) if use_views and not is_compiling() else x.unbind(1)
    return q, k, v


class _SplitQKV(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.unbind(1)

    @staticmethod
    def backward(ctx, dq, dk, dv):
        row, width = dq.stride(0), dq.shape[1:].numel()
        addresses = [dq.data_ptr() + i * width * dq.element_size() for i in range(3)]
        are_views_of_one = (
            not torch.is_grad_enabled()  # double backward needs separate tensors
            and row == 3 * width
            and dq.stride() == dk.stride() == dv.stride()
            and dq.stride()[1:] == (dq.shape[2], 1)
            and [dq.data_ptr(), dk.data_ptr(), dv.data_ptr()] == addresses
        )
        if not are_views_of_one:
            return torch.stack((dq, dk, dv), dim=1)
        return dq.as_strided((len(dq), 3, *dq.shape[1:]), (row, width, *dq.stride()[1:]))


# --- layer norm -----------------------------------------------------------------------------------


class LayerNorm(nn.LayerNorm):
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` (Ba et al., 2016), like ``torch.nn.LayerNorm``.

    ``residual`` is added to ``x`` first, as in a post-norm layer.
    """

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:  # [N, D] -> [N, D]
        if gelu_norm.can_norm(x, residual, self.weight, self.bias):
            if is_compiling():
                return ops.layer_norm(x, residual, self.weight, self.bias, self.eps)[0]
            return gelu_norm.layer_norm(x, residual, self.weight, self.bias, self.eps)
        return super().forward(x if residual is None else x + residual)
