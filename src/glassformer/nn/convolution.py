"""A convolution as self-attention: a head for each place of the kernel (Cordonnier et al., 2020, theorem 1).

A row is a pixel: its colors, and where it stands as (row, column, row^2 + column^2, 1). The head of the
kernel's place d scores the key at p' for a query at p with ``-b |p' - (p + d)|^2``, where b says how sharply
it looks. Multiplied out that is::

    -b |p'|^2 + 2 b p' . (p + d) - b |p + d|^2

whose last term is the same for all keys, so that the softmax drops it; what is left is the product of a query
and a key that are linear in the row. Each head then gives the colors of one neighbor, and the output
projection holds the kernel. Differences from the paper: places stand in the rows and not in a relative
encoding, and what lies outside of the image is a ring of zeros around it, as a convolution's padding is.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.errors import ShapeError
from glassformer.nn.attention import MultiHeadAttention
from glassformer.packing import Packing

PLACE = 4  # numbers that say where a pixel stands


def convolution_as_attention(
    kernel: Tensor,  # [C_out, C_in, kh, kw]
    bias: Tensor | None = None,  # [C_out]
    *,
    sharpness: float = 60.0,
) -> MultiHeadAttention:
    """The attention layer that computes a convolution of stride 1; its rows are those of ``pixel_rows``.

    It has kh * kw heads. The first C_out numbers of a row that leaves it are the convolution's answer.

    Args:
        kernel: with odd sides; what ``torch.nn.functional.conv2d`` takes as its weight.
        sharpness: b above: a pixel beside the wanted one has exp(-b) of its weight. From about 20 on that is
            nothing in fp32.

    Raises:
        ShapeError: a kernel that is no ``[C_out, C_in, kh, kw]`` of odd sides, or a bias of another length.
    """
    _check_kernel(kernel)
    c_out, c_in, height, width = kernel.shape
    if bias is not None and bias.shape != (c_out,):
        what = f"a bias of {tuple(bias.shape)} for {c_out} channels"
        raise ShapeError(what, where="convolution_as_attention")
    heads, d = height * width, row_width(kernel)
    k = d // heads  # of one head
    queries, keys, values = (torch.zeros(heads, k, d) for _ in range(3))  # maps of a row
    out = torch.zeros(d, heads, k)
    row, column, squares, one = range(c_in, c_in + PLACE)
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


def pixel_rows(pictures: Tensor, kernel: Tensor) -> tuple[Tensor, Packing]:
    """``[B, C_in, H, W]`` with a ring of zeros -> rows ``[N, D]`` of pixels, a packed sequence an image.

    The ring is as wide as half of the kernel, so N is B (H + kh - 1) (W + kw - 1).

    Raises:
        ShapeError: a kernel of even sides, or images of other channels than its own.
    """
    _check_kernel(kernel)
    c_in, ring = kernel.shape[1], _ring(kernel)
    if pictures.ndim != 4 or pictures.shape[1] != c_in:
        what = f"images {tuple(pictures.shape)} for a kernel of {c_in} channels"
        raise ShapeError(what, where="pixel_rows", fix=f"Give [B, {c_in}, H, W]")
    padded = F.pad(pictures, (ring[1], ring[1], ring[0], ring[0]))
    b, _, h, w = padded.shape
    down, right = torch.meshgrid(torch.arange(h) - h // 2, torch.arange(w) - w // 2, indexing="ij")
    place = torch.stack([down, right, down**2 + right**2, torch.ones_like(down)]).to(pictures)  # [4, h, w]
    rows = (
        torch.cat([padded, place.expand(b, -1, -1, -1)], 1).flatten(2).transpose(1, 2)
    )  # [B, h w, C_in + 4]
    rows = F.pad(rows.reshape(b * h * w, -1), (0, row_width(kernel) - c_in - PLACE))
    return rows, Packing.uniform(b, h * w)


def convolve_by_attention(
    pictures: Tensor, kernel: Tensor, bias: Tensor | None = None, *, sharpness: float = 60.0
) -> Tensor:
    """``[B, C_in, H, W]`` -> ``[B, C_out, H, W]``: ``conv2d`` that keeps the size, by self-attention.

    Raises:
        ShapeError: as ``convolution_as_attention`` and ``pixel_rows``.
    """
    layer = convolution_as_attention(kernel, bias, sharpness=sharpness)
    rows, packing = pixel_rows(pictures, kernel)
    (b, _, h, w), ring = pictures.shape, _ring(kernel)
    with torch.no_grad():
        out = layer(rows, packing)[:, : len(kernel)].view(b, h + 2 * ring[0], w + 2 * ring[1], -1)
    return out[:, ring[0] : ring[0] + h, ring[1] : ring[1] + w].permute(0, 3, 1, 2)


def row_width(kernel: Tensor) -> int:
    """Numbers of a row: colors, place, and zeros up to a width that the heads divide."""
    c_out, c_in, height, width = kernel.shape
    heads = height * width
    return heads * max(3, c_in, -(-max(c_in + PLACE, c_out) // heads))


def _ring(kernel: Tensor) -> tuple[int, int]:
    return kernel.shape[2] // 2, kernel.shape[3] // 2


def _check_kernel(kernel: Tensor) -> None:
    if kernel.ndim != 4 or not all(side % 2 for side in kernel.shape[2:]):
        what = f"a kernel of {tuple(kernel.shape)} has no middle"
        raise ShapeError(what, where="kernel", fix="Give [C_out, C_in, kh, kw] with odd kh and kw")
