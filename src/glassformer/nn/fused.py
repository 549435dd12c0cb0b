"""Attention by torch's own fused kernels: on padded rows, on one sequence at a time, or on packed rows.

A GPU starts a kernel in about the time that one of these needs for a whole batch, so there a batch is one
call: of the kernel for packed rows where it takes them, else of the one for padded rows.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.nn.maps import NOWHERE, causal_mask
from glassformer.nn.relative import spread
from glassformer.packing import Packing

WIDEST = 256  # head of the kernel for packed rows


def has_varlen(q: Tensor, v: Tensor, q_packing: Packing, kv_packing: Packing, causal: bool) -> bool:
    """Whether the kernel for packed rows takes these.

    Its causal mask is ours where there are as many queries as keys.
    """
    width = q.shape[-1]
    fits = q.dtype in (torch.bfloat16, torch.float16) and width % 8 == 0 and v.shape[-1] == width <= WIDEST
    return fits and (not causal or q_packing is kv_packing) and has_flash(q.device)


@cache
def has_flash(device: torch.device) -> bool:
    """Whether the GPU is one that the kernel was written for: Ampere (compute capability 8.0) or later."""
    return torch.cuda.get_device_capability(device) >= (8, 0)


def one_by_one(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_packing: Packing,
    kv_packing: Packing,
    causal: bool,
    scale: float,
    bias: Tensor | None = None,
) -> Tensor:
    """A sequence at a time: memory grows with the length, not its square; with a bias, with its square."""
    outs = []
    for q_i, k_i, v_i in zip(q_packing.split(q), kv_packing.split(k), kv_packing.split(v), strict=True):
        heads = (x.transpose(0, 1)[None] for x in (q_i, k_i, v_i))  # [1, H, T, K]
        mask = causal_mask(len(q_i), len(k_i), q.device) if causal and len(q_i) != len(k_i) else None
        if bias is not None:
            mask = spread(bias, len(q_i), len(k_i)).to(q.dtype)  # [H, T, S], added to the scores
            if causal:
                mask = mask.masked_fill(~causal_mask(len(q_i), len(k_i), q.device), NOWHERE)
        out = F.scaled_dot_product_attention(
            *heads, attn_mask=mask, is_causal=causal and mask is None, scale=scale
        )
        outs.append(out[0].transpose(0, 1))
    return torch.cat(outs)


def padded(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_packing: Packing,
    kv_packing: Packing,
    causal: bool,
    scale: float,
    dropout: float,
    bias: Tensor | None = None,
) -> Tensor:
    """One call for all sequences, padded to the longest for the length of this call alone."""
    count, longest = q_packing.count, q_packing.max_length
    heads = (
        packing.pad(x).transpose(1, 2)  # [B, H, T, K]
        for x, packing in ((q, q_packing), (k, kv_packing), (v, kv_packing))
    )
    mask = None
    if causal or not kv_packing.is_uniform:  # without one, memory does not grow with the square of the length
        mask = kv_packing.mask()[:, None, None]  # [B, 1, 1, S]
        if causal:
            mask = mask & _causal(q_packing, kv_packing)[:, None]  # [B, 1, T, S]
        mask = mask.expand(count, 1, longest, kv_packing.max_length)
    if bias is not None:
        more = spread(bias, longest, kv_packing.max_length).to(q.dtype)  # [H, T, S]
        mask = more if mask is None else torch.where(mask, more, NOWHERE)  # [B, H, T, S]
    out = F.scaled_dot_product_attention(*heads, attn_mask=mask, dropout_p=dropout, scale=scale)
    return out.transpose(1, 2).flatten(0, 1)[q_packing.padded_rows]  # [N, H, K]


def _causal(q_packing: Packing, kv_packing: Packing) -> Tensor:
    """``[B, T, S]``: the last query of a sequence stands at its last key, as in ``maps.causal_mask``."""
    ahead = kv_packing.length_tensor - q_packing.length_tensor  # [B]
    rows = torch.arange(q_packing.max_length, device=q_packing.device)
    columns = torch.arange(kv_packing.max_length, device=q_packing.device)
    return columns <= (rows + ahead[:, None])[:, :, None]


def varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_packing: Packing,
    kv_packing: Packing,
    causal: bool,
    scale: float,
    dropout: float,
) -> Tensor:
    """The kernel for packed rows (CUDA, half precision): no padding and no groups."""
    places = q_packing.cu_seqlens, kv_packing.cu_seqlens, q_packing.max_length, kv_packing.max_length
    if causal or dropout:
        # What ``varlen_attn`` calls; it passes neither of the two in all versions from 2.11 to 2.13.
        rows = (_in_rows(x) for x in (q, k, v))
        return torch.ops.aten._flash_attention_forward(*rows, *places, dropout, causal, False, scale=scale)[0]
    from torch.nn.attention.varlen import varlen_attn

    # Keywords differ between torch 2.11 and 2.13; the positional part and the default scale do not,
    # so another scale is folded into q.
    folded = q * (scale * q.shape[-1] ** 0.5) if scale != q.shape[-1] ** -0.5 else q
    out = varlen_attn(_in_rows(folded), _in_rows(k), _in_rows(v), *places)
    assert isinstance(out, Tensor)  # a tuple only when more was asked for
    return out


def _in_rows(x: Tensor) -> Tensor:
    """The kernel steps over whatever lies between the rows, and between the heads, but not inside a head."""
    return x if x.stride(-1) == 1 else x.contiguous()
