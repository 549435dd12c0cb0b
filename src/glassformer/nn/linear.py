"""The linear layer of the encoder: torch's own, with a faster gradient of the weight where there is one."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from glassformer.nn import kernels
from glassformer.nn.kernels import ops


class Linear(nn.Linear):
    """``x W^T + b``, exactly as ``torch.nn.Linear``.

    On processors with AMX the gradient of ``W`` and ``b`` comes from a kernel of ours
    (``kernels/linear.c``): torch's product for it, which sums over the rows, takes much longer there than
    the layer's other two.
    """

    def forward(self, x: Tensor) -> Tensor:  # [N, in] -> [N, out]
        if torch.is_grad_enabled() and self.weight.requires_grad and kernels.gives_gradient(x, self.weight):
            return _Linear.apply(x, self.weight, self.bias)
        return F.linear(x, self.weight, self.bias)

    def part(self, x: Tensor, begin: int, end: int) -> Tensor:  # [N, in] -> [N, end - begin]
        """Columns ``begin`` to ``end`` of the result alone."""
        return F.linear(x, self.weight[begin:end], None if self.bias is None else self.bias[begin:end])


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        dx = grad @ weight if ctx.needs_input_grad[0] else None
        if torch.compiler.is_compiling():
            weight_gradient, bias_gradient = ops.weight_gradient(grad, x)
            return dx, weight_gradient, bias_gradient if ctx.needs_input_grad[2] else None
        return dx, *kernels.weight_gradient(grad, x, bias=ctx.needs_input_grad[2])
