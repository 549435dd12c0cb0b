"""Sliding-window attention: each row sees its neighbors only: the cost grows with the length, not its square.

    softmax over |i - j| <= w          Beltagy et al., 2020 (Longformer), without its global tokens

Time and memory are O(N w) instead of O(T^2) a sequence. Differences from the paper: no dilation, the same
window in every head.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.errors import ConfigError, ShapeError
from glassformer.nn.maps import NOWHERE
from glassformer.packing import Packing


def attend_local(
    q: Tensor,  # [N, H, K]
    k: Tensor,  # [N, H, K]
    v: Tensor,  # [N, H, V]
    packing: Packing,
    window: int,
    causal: bool = False,
    *,
    scale: float | None = None,
) -> Tensor:
    """Attention of each row to the rows of its own sequence that are at most ``window`` places away.

    Args:
        window: places seen on either side; from the longest sequence on this is full attention.
        causal: the places behind a row are not seen.
        scale: what the scores are multiplied by; None: ``1 / sqrt(K)``.

    Returns:
        ``[N, H, V]``.

    Raises:
        ConfigError: a window below 1.
        ShapeError: sizes that do not fit.
    """
    check_window(window, "attend_local")
    check_rows(q, k, v, packing, "attend_local")
    factor = float(q.shape[-1] ** -0.5) if scale is None else scale
    n, w = packing.total, min(window, packing.max_length)
    blocks = -(-n // w)
    # The whole packed matrix is cut into blocks of w rows, whatever sequences they hold. A block sees itself
    # and the blocks beside it; the mask then leaves each row its own sequence and its own window.
    q_b = _pad(q * factor, 0, blocks * w - n).view(blocks, w, *q.shape[1:]).transpose(1, 2)  # [M, H, w, K]
    k_b = _beside(k, w, blocks)  # [M, H, 3w, K]
    v_b = _beside(v, w, blocks)
    bias = q.new_zeros(blocks, 1, w, 3 * w)
    bias.masked_fill_(~_allowed(packing, w, blocks, causal)[:, None], NOWHERE)
    if q.dtype == torch.float32 or q.is_cuda:
        out = F.scaled_dot_product_attention(q_b, k_b, v_b, attn_mask=bias, scale=1.0)  # [M, H, w, V]
    else:  # on a CPU the gradient of torch's fused kernel takes three times as long in bf16
        out = (q_b @ k_b.transpose(2, 3)).add_(bias).softmax(-1) @ v_b
    return out.transpose(1, 2).reshape(blocks * w, *v.shape[1:])[:n]


def _beside(x: Tensor, w: int, blocks: int) -> Tensor:
    """``[N, H, K]`` -> ``[M, H, 3w, K]``: each block of w rows between the blocks before and after it."""
    padded = _pad(x, w, (blocks + 1) * w - len(x))  # a block of zeros at either end
    return padded.unfold(0, 3 * w, w).permute(0, 1, 3, 2).contiguous()


def _pad(x: Tensor, before: int, after: int) -> Tensor:
    return F.pad(x, (0, 0, 0, 0, before, after))


def _allowed(packing: Packing, w: int, blocks: int, causal: bool) -> Tensor:
    """``[M, w, 3w]``, True where the row of a block may see that place around it.

    Rows after the last token stand for a sequence of their own, so that they see themselves and not nothing.
    """
    after = (blocks + 1) * w - packing.total
    sequence = F.pad(packing.sequence_ids, (w, after), value=-1)
    beside = sequence.unfold(0, 3 * w, w)  # [M, 3w]
    own = beside[:, w : 2 * w]  # [M, w]
    places = torch.arange(3 * w, device=packing.device) - w  # relative to the block's first row
    distance = places - torch.arange(w, device=packing.device)[:, None]  # [w, 3w]
    near = (distance <= 0) & (distance >= -w) if causal else distance.abs() <= w
    return (own[:, :, None] == beside[:, None, :]) & near


def check_window(window: int, where: str) -> int:
    """The same; ConfigError for a window that sees nothing."""
    if window < 1:
        raise ConfigError(f"a window of {window} sees nothing", where=where, fix="Use 1 or more")
    return window


def check_rows(q: Tensor, k: Tensor, v: Tensor, packing: Packing, where: str) -> None:
    """Raises ShapeError unless these are the packed rows of one self-attention."""
    if q.ndim != 3 or q.shape != k.shape or k.shape[:2] != v.shape[:2] or v.ndim != 3:
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        raise ShapeError(f"shapes do not fit: {shapes}", where=where, fix="Packed: [N, H, K] each")
    if len(q) != packing.total:
        raise ShapeError(f"{len(q)} rows for a packing of {packing.total}", where=where)
