"""Dropout and stochastic depth, with random bits that cost next to nothing on a CPU.

``torch.nn.functional.dropout`` draws one float per element from a generator that uses one core. Here one
64-bit draw gives four 16-bit lots, so the probability is rounded to a multiple of 1/65536. The bits come
from the generator of the fit, or else torch's own: its state is all that an exact resume needs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.errors import ConfigError
from glassformer.packing import Packing
from glassformer.runtime import generator_on, is_compiling

BITS = {
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}


def keep_mask(shape: tuple[int, ...], p: float, device: torch.device) -> Tensor:
    """A boolean tensor, True with probability ``1 - p`` (rounded to 1/65536)."""
    if device.type != "cpu" or is_compiling():  # a graph has no random integers
        return torch.rand(shape, device=device) >= p
    count = math.prod(shape)
    draws = torch.empty((count + 3) // 4, dtype=torch.int64)
    draws.random_(-(2**63), None, generator=generator_on(device))
    lots = draws.view(torch.int16)[:count]  # uniform on [-32768, 32767]
    # In place torch compares many at a time; into a boolean tensor it does so one by one.
    kept = lots.ge_(min(round(p * 65536), 65535) - 32768)
    return kept.to(torch.int8).view(torch.bool).view(shape)


def zeroed(x: Tensor, keep: Tensor) -> Tensor:
    """``x`` where ``keep`` holds, else 0.

    On a CPU by its bits: torch makes numbers of booleans one by one, and that took longer than all the rest.
    What is dropped there is 0 even where it was not finite.
    """
    if not _has_bits(x):
        return x * keep
    bits = keep.view(torch.int8).neg().to(BITS[x.dtype])  # none or all of them
    return bits.bitwise_and_(x.view(bits.dtype)).view(x.dtype)


def _has_bits(x: Tensor) -> bool:
    """Whether its numbers lie in memory as they are: no negated view, no tensor of a torch.func batch."""
    batches = torch._C._functorch  # type: ignore[attr-defined]  # it is there; the second is what ``is_grads_batched`` of torch.autograd.grad makes
    if batches.is_batchedtensor(x) or batches.is_legacy_batchedtensor(x):
        return False
    return x.device.type == "cpu" and x.dtype in BITS and x.layout == torch.strided and not x.is_neg()


class _DropElements(torch.autograd.Function):
    """x * keep * scale, remembering one byte per element."""

    @staticmethod
    def forward(ctx, x: Tensor, keep: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        ctx.save_for_backward(keep)
        return zeroed(x, keep).mul_(scale)

    @staticmethod
    def backward(ctx, grad: Tensor):
        (keep,) = ctx.saved_tensors
        return _DropElements.apply(grad, keep, ctx.scale), None, None


def check_rate(name: str, p: float) -> None:
    """Raises ConfigError when ``p`` is outside [0, 1)."""
    if not 0.0 <= p < 1.0:
        raise ConfigError(f"{name} must lie in [0, 1), got {p}")


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero each element with probability ``p`` and scale the rest by 1/(1-p) (Srivastava et al., 2014).

    In a graph of ``torch.compile`` it is torch's, and draws other bits than without one.
    """
    if p == 0.0 or not training:
        return x
    if x.is_cuda or is_compiling():
        return F.dropout(x, p, True)  # one kernel there
    return _DropElements.apply(x, keep_mask(x.shape, p, x.device), 1.0 / (1.0 - p))


def usual_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """``torch.nn.functional.dropout``, bit for bit, which takes no generator."""
    own = generator_on(x.device)
    if own is None or p == 0.0 or not training:
        return F.dropout(x, p, training)
    return x * torch.empty_like(x).bernoulli_(1.0 - p, generator=own).div_(1.0 - p)


class Dropout(nn.Module):
    """``dropout`` as a module.

    Raises:
        ConfigError: ``p`` outside [0, 1).
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
        branch: ``[N, D]``, what would be added to the residual stream.
    """
    if p == 0.0 or not training:
        return branch
    keep = keep_mask((packing.count,), p, branch.device).to(branch.dtype) / (1.0 - p)  # [B]
    return branch * keep[packing.sequence_ids, None]
