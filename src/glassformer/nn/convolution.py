"""A convolution as self-attention, with one head per kernel position (Cordonnier et al., 2020, theorem 1).

The tokens are pixels. The vector of a pixel consists of its colors and its position (row, column, row^2 +
column^2, 1). The head for kernel position d gives the key at p' and the query at p this score, where b is
the sharpness::

    -b |p' - (p + d)|^2

This equals::

    -b |p'|^2 + 2 b p' . (p + d) - b |p + d|^2

The last term is the same for all keys and cancels in the softmax. The other terms are the product of a query
and a key that are linear in the vectors. So each head selects the colors of one neighbor pixel, and the
output projection contains the kernel. Differences from the paper: positions are part of the vectors instead
of a relative encoding, and the image is padded with zeros, like the input of a convolution.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.errors import ShapeError
from glassformer.nn.attention import MultiHeadAttention
from glassformer.packing import Packing

POSITION_WIDTH = 4  # how many numbers encode the position of a pixel


def convolution_as_attention(
    kernel: Tensor,  # [C_out, C_in, kh, kw]
    bias: Tensor | None = None,  # [C_out]
    *,
    sharpness: float = 60.0,
) -> MultiHeadAttention:
    """The attention layer that computes a convolution of stride 1 from the vectors of ``pixel_rows``.

    It has kh * kw heads. The first C_out features of its output are the output of the convolution.

    Args:
        kernel: weight of a ``torch.nn.functional.conv2d`` with odd kh and kw.
        sharpness: b in the formula above. A neighbor of the selected pixel gets exp(-b) of its weight, which
            is negligible in fp32 for b of 20 or more.
    """
    _check_kernel(kernel)
    c_out, c_in, height, width = kernel.shape
    if bias is not None and bias.shape != (c_out,):
        what = f"the bias has shape {tuple(bias.shape)}, but there are {c_out} output channels"
        raise ShapeError(what, where="convolution_as_attention")
    heads, d = height * width, row_width(kernel)
    k = d // heads  # width of one head
    queries, keys, values = (torch.zeros(heads, k, d) for _ in range(3))  # projection matrices
    out = torch.zeros(d, heads, k)
    row, column, squares, one = range(c_in, c_in + POSITION_WIDTH)
    sharp = sharpness * k**0.5  # the layer divides by the root of K
    for head in range(heads):
        down, right = head // width - height // 2, head % width - width // 2
        queries[head, 0, [row, one]] = torch.tensor([2.0, 2.0 * down]) * sharp  # 2 (row + down)
        queries[head, 1, [column, one]] = torch.tensor([2.0, 2.0 * right]) * sharp
        queries[head, 2, one] = -sharp
        keys[head, [0, 1, 2], [row, column, squares]] = 1.0
        values[head, range(c_in), range(c_in)] = 1.0
        out[:c_out, head, :c_in] = kernel[:, :, head // width, head % width]
    layer = MultiHeadAttention(d, heads)
    with torch.no_grad():
        layer.qkv.weight.copy_(torch.cat([m.reshape(d, d) for m in (queries, keys, values)]))
        layer.out.weight.copy_(out.reshape(d, d))
        layer.qkv.bias.zero_()
        layer.out.bias.zero_()
        if bias is not None:
            layer.out.bias[:c_out] = bias
    return layer


def pixel_rows(images: Tensor, kernel: Tensor) -> tuple[Tensor, Packing]:
    """Vectors ``[N, D]`` of the pixels of zero-padded images ``[B, C_in, H, W]``, one sequence per image.

    The padding is half as wide as the kernel, so N is B (H + kh - 1) (W + kw - 1).
    """
    _check_kernel(kernel)
    c_in, padding = kernel.shape[1], _padding(kernel)
    if images.ndim != 4 or images.shape[1] != c_in:
        what = f"images have shape {tuple(images.shape)}, but the kernel has {c_in} channels"
        raise ShapeError(what, where="pixel_rows", fix=f"Give [B, {c_in}, H, W]")
    padded = F.pad(images, (padding[1], padding[1], padding[0], padding[0]))
    b, _, h, w = padded.shape
    down, right = torch.meshgrid(torch.arange(h) - h // 2, torch.arange(w) - w // 2, indexing="ij")
    positions = torch.stack([down, right, down**2 + right**2, torch.ones_like(down)]).to(images)  # [4, h, w]
    features = torch.cat([padded, positions.expand(b, -1, -1, -1)], 1)  # [B, C_in + 4, h, w]
    rows = features.flatten(2).transpose(1, 2)
    rows = F.pad(rows.reshape(b * h * w, -1), (0, row_width(kernel) - c_in - POSITION_WIDTH))
    return rows, Packing.uniform(b, h * w)


def convolve_by_attention(
    images: Tensor, kernel: Tensor, bias: Tensor | None = None, *, sharpness: float = 60.0
) -> Tensor:
    """``conv2d`` with "same" padding, by self-attention: ``[B, C_in, H, W]`` -> ``[B, C_out, H, W]``."""
    layer = convolution_as_attention(kernel, bias, sharpness=sharpness)
    rows, packing = pixel_rows(images, kernel)
    (b, _, h, w), padding = images.shape, _padding(kernel)
    with torch.no_grad():
        out = layer(rows, packing)[:, : len(kernel)].view(b, h + 2 * padding[0], w + 2 * padding[1], -1)
    return out[:, padding[0] : padding[0] + h, padding[1] : padding[1] + w].permute(0, 3, 1, 2)


def row_width(kernel: Tensor) -> int:
    """D, the width of a pixel's vector: colors, position, zeros up to a multiple of the number of heads."""
    c_out, c_in, height, width = kernel.shape
    heads = height * width
    return heads * max(3, c_in, -(-max(c_in + POSITION_WIDTH, c_out) // heads))


def _padding(kernel: Tensor) -> tuple[int, int]:
    return kernel.shape[2] // 2, kernel.shape[3] // 2


def _check_kernel(kernel: Tensor) -> None:
    if kernel.ndim != 4 or not all(side % 2 for side in kernel.shape[2:]):
        what = f"a kernel of shape {tuple(kernel.shape)} has no center"
        raise ShapeError(what, where="kernel", fix="Give [C_out, C_in, kh, kw] with odd kh and kw")
