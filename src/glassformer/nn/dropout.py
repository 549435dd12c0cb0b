"""Dropout and stochastic depth with cheap random numbers on a CPU.

``torch.nn.functional.dropout`` draws one float per element, on one core. Here one 64-bit draw gives four
16-bit random numbers, so the probability is rounded to a multiple of 1/65536. The numbers come from the
generator of the fit, or from torch's generator outside of a fit.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.errors import ConfigError
from glassformer.packing import Packing
from glassformer.runtime import generator_on, is_compiling

BITS = {  # dtype -> integer type of the same size
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}


def keep_mask(shape: tuple[int, ...], p: float, device: torch.device) -> Tensor:
    """A boolean tensor, True with probability ``1 - p`` (rounded to 1/65536)."""
    if device.type != "cpu" or is_compiling():  # compiled graphs have no random integers
        return torch.rand(shape, device=device) >= p
    count = math.prod(shape)
    draws = torch.empty((count + 3) // 4, dtype=torch.int64)
    draws.random_(-(2**63), None, generator=generator_on(device))
    numbers = draws.view(torch.int16)[:count]  # uniform on [-32768, 32767]
    # In place, torch's comparison is vectorized; with a boolean output it is not.
    keep = numbers.ge_(min(round(p * 65536), 65535) - 32768)
    return keep.to(torch.int8).view(torch.bool).view(shape)


def zero_dropped(x: Tensor, keep: Tensor) -> Tensor:
    """``x`` where ``keep`` is True, else 0.

    On a CPU this uses bit operations, because torch's conversion of booleans to numbers is slow. There, a
    dropped value becomes 0 even if it is not finite.
    """
    if not _has_plain_memory(x):
        return x * keep
    bits = keep.view(torch.int8).neg().to(BITS[x.dtype])  # all 0 or all 1
    return bits.bitwise_and_(x.view(bits.dtype)).view(x.dtype)


def _has_plain_memory(x: Tensor) -> bool:
    """Whether the memory of ``x`` contains its values: not for negated views and batches of torch.func."""
    functorch = torch._C._functorch  # type: ignore[attr-defined]  # exists, but has no type stub
    # Legacy batched tensors come from ``torch.autograd.grad(is_grads_batched=True)``.
    if functorch.is_batchedtensor(x) or functorch.is_legacy_batchedtensor(x):
        return False
    return x.device.type == "cpu" and x.dtype in BITS and x.layout == torch.strided and not x.is_neg()


class _DropElements(torch.autograd.Function):
    """``x * keep * scale``; stores one byte per element for the backward pass."""

    @staticmethod
    def forward(ctx, x: Tensor, keep: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        ctx.save_for_backward(keep)
        return zero_dropped(x, keep).mul_(scale)

    @staticmethod
    def backward(ctx, grad: Tensor):
        (keep,) = ctx.saved_tensors
        return _DropElements.apply(grad, keep, ctx.scale), None, None


def check_rate(name: str, p: float) -> None:
    """Raise ConfigError if ``p`` is outside [0, 1)."""
    if not 0.0 <= p < 1.0:
        raise ConfigError(f"{name} must be in [0, 1), got {p}")


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero each element with probability ``p`` and scale the rest by 1/(1-p) (Srivastava et al., 2014).

    Under ``torch.compile`` and on a GPU this is torch's own dropout, which draws other random numbers.
    """
    if p == 0.0 or not training:
        return x
    if x.is_cuda or is_compiling():
        return F.dropout(x, p, True)  # a single kernel
    return _DropElements.apply(x, keep_mask(x.shape, p, x.device), 1.0 / (1.0 - p))


def torch_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """``torch.nn.functional.dropout``, bit for bit, but with the generator of the fit."""
    generator = generator_on(x.device)
    if generator is None or p == 0.0 or not training:
        return F.dropout(x, p, training)
    return x * torch.empty_like(x).bernoulli_(1.0 - p, generator=generator).div_(1.0 - p)


class Dropout(nn.Module):
    """``dropout`` as a module.

    Raises:
        ConfigError: ``p`` is outside [0, 1).
    """

    def __init__(self, p: float = 0.0):
        super().__init__()
        check_rate("dropout", p)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def stochastic_depth(branch: Tensor, packing: Packing, p: float, training: bool) -> Tensor:
    """Drop a residual branch for whole sequences with probability ``p`` (Huang et al., 2016).

    Args:
        branch: ``[N, D]``, the output of the branch before it is added.
    """
    if p == 0.0 or not training:
        return branch
    keep = keep_mask((packing.count,), p, branch.device).to(branch.dtype) / (1.0 - p)  # [B]
    return branch * keep[packing.sequence_ids, None]
