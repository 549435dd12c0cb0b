"""Int8 linear layers for prediction, with one scale per weight column and one per input row.

The scale of a row is its largest absolute value divided by 127. It is computed for each input, so calibration
is not needed and an output does not depend on other rows. Integer sums are exact and identical at every
instruction-set level (AVX2, AVX-512 VNNI and so on).
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.errors import ShapeError
from glassformer.nn import kernels
from glassformer.nn.kernels.jobs import Int8Job

INT8_MAX = 127
SMALLEST_SCALE = 1e-37  # minimum divisor, for rows of zeros
PANEL = 16  # number of columns that are stored together: ``PANEL`` in linear_int8.c
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh")  # the indices are those in linear_int8.c
MAX_IN_FEATURES = 65_536  # sums over more inputs may overflow 32 bits


class Packed(NamedTuple):
    """A quantized weight ``[columns, inputs]`` (out and in features), in the layout of the level's kernel."""

    weight: Tensor  # [columns / 16, inputs / group, 16, group] int8, zero-padded
    start: Tensor  # [columns] int32, initial accumulators, which correct for unsigned inputs
    scale: Tensor  # [columns] fp32
    bias: Tensor  # [columns] fp32; ``start``, ``scale`` and ``bias`` are padded to a multiple of 16
    inputs: int
    columns: int

    def columns_between(self, begin: int, end: int) -> Packed | None:
        """A view of some columns; None if ``begin`` is not the start of a panel."""
        if begin % PANEL:
            return None
        first, last = begin // PANEL, -(-end // PANEL)
        start, scale, bias = (x[begin : last * PANEL] for x in (self.start, self.scale, self.bias))
        return Packed(self.weight[first:last], start, scale, bias, self.inputs, end - begin)


def why_not() -> str | None:
    """The reason why int8 is not used on this machine, or None if it is."""
    if (reason := kernels.why_not()) is not None:
        return reason
    level = kernels.level()
    assert level is not None
    if level.name == "amx":
        return "bf16 with AMX is faster"
    return None if level.int8 else f"{level.title} without VNNI is no faster in int8 than in fp32"


def compute_dtype() -> torch.dtype:
    """The dtype of inputs and outputs: bf16 if the level has bf16 kernels, else fp32."""
    return torch.bfloat16 if kernels.has_dtype(torch.bfloat16) else torch.float32


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize ``weight`` ``[columns, inputs]`` to int8, -127 to 127, with scales ``[columns]``."""
    weight = weight.detach().float()
    scale = weight.abs().amax(1) / INT8_MAX
    levels = (weight / scale.clamp_min(SMALLEST_SCALE)[:, None]).round()
    return levels.clamp(-INT8_MAX, INT8_MAX).to(torch.int8), scale


def pack(weight: Tensor, bias: Tensor | None) -> Packed:
    """Quantize and lay out the weight ``[columns, inputs]`` and bias of a layer. Requires the C kernels."""
    q_weight, scale = quantize(weight)
    columns, inputs = q_weight.shape
    level = kernels.level()
    has_vnni = level is not None and level.name != "avx2"
    group = 4 if has_vnni else 2  # number of inputs that one instruction multiplies and adds
    column_padding = -columns % PANEL
    padded = F.pad(q_weight, (0, -inputs % 4, 0, column_padding))
    tiled = padded.view(-1, PANEL, padded.shape[1] // group, group)
    if has_vnni:  # inputs are shifted by 128, because VNNI multiplies unsigned with signed bytes
        start = -128 * q_weight.sum(1, dtype=torch.int32)
    else:
        start = q_weight.new_zeros(columns, dtype=torch.int32)
    bias = scale.new_zeros(columns) if bias is None else bias.detach().float()
    start, scale, bias = (F.pad(x, (0, column_padding)) for x in (start, scale, bias))
    return Packed(tiled.transpose(1, 2).contiguous(), start, scale, bias, inputs, columns)


def linear(x: Tensor, packed: Packed, activation: str = "none") -> Tensor:
    """``f(x W^T + b)`` ``[N, columns]`` for ``x`` ``[N, inputs]`` in fp32 or ``compute_dtype``."""
    if x.ndim != 2 or x.shape[1] != packed.inputs:
        raise ShapeError(f"expected input of shape [N, {packed.inputs}], got {list(x.shape)}", where="int8")
    if x.dtype not in (torch.float32, compute_dtype()):
        raise TypeError(f"int8 layers take float32 or {compute_dtype()}, not {x.dtype}")
    if x.stride(1) != 1:
        x = x.contiguous()
    out = x.new_empty(len(x), packed.columns)
    job = Int8Job(rows=len(x), inputs=packed.inputs, columns=packed.columns, threads=torch.get_num_threads())
    job.x, job.out, job.x_stride, job.out_stride = x.data_ptr(), out.data_ptr(), x.stride(0), out.stride(0)
    job.weight, job.start = packed.weight.data_ptr(), packed.start.data_ptr()
    job.scale, job.bias = packed.scale.data_ptr(), packed.bias.data_ptr()
    job.half = x.dtype == torch.bfloat16  # else fp32
    job.activation = ACTIVATIONS.index(activation)
    if kernels.library().linear_int8(ctypes.byref(job), kernels.torch_threads()):
        raise MemoryError("could not allocate the int8 input buffer")
    return out
