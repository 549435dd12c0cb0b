"""Local and linear self-attention, with a cost that is linear in the sequence length.

The modules have the same parameters as ``MultiHeadAttention`` but compute another function: a model must be
trained with the kind of attention that it uses for prediction.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.config import suggest
from glassformer.errors import ConfigError, ShapeError
from glassformer.nn import kernels
from glassformer.nn.attention import LONG_INPUT, MultiHeadAttention
from glassformer.nn.kernels import ops
from glassformer.nn.linear import in_chunks, uses_chunks
from glassformer.nn.maps import NEG_INF, masked_softmax
from glassformer.nn.trace import LayerRecord
from glassformer.packing import Packing

# --- sliding-window attention ---------------------------------------------------------------------
#
#     softmax over |i - j| <= w          Beltagy et al., 2020 (Longformer), without its global tokens
#
# Time and memory are O(N w) for N tokens in all; full attention takes O(T^2) per sequence of T tokens.
# Differences from the paper: no dilation, and the same window in every head. A *row* is the vector of a
# token.

LocalBranch = Literal["auto", "kernel", "blocks"]
LOCAL_BRANCHES = get_args(LocalBranch)


def attend_local(
    q: Tensor,  # [N, H, K]
    k: Tensor,  # [N, H, K]
    v: Tensor,  # [N, H, V]
    packing: Packing,
    window: int,
    causal: bool = False,
    *,
    scale: float | None = None,
    branch: LocalBranch = "auto",
) -> Tensor:
    """Attention of each token to the tokens of its sequence that are at most ``window`` positions away.

    Args:
        window: positions on either side; a window as long as the longest sequence gives full attention.
        causal: each token attends only to its own position and to earlier positions.
        scale: factor of the scores; None: ``1 / sqrt(K)``.
        branch: "kernel" (the kernel in C, see ``nn/kernels``), "blocks" (torch's operators), or "auto": the
            kernel if it supports the input.

    Returns:
        ``[N, H, V]``.

    Raises:
        ConfigError: the window is below 1, the branch is unknown, or no kernel supports this input.
        ShapeError: the shapes are incompatible.
    """
    check_window(window, "attend_local")
    check_rows(q, k, v, packing, "attend_local")
    if branch not in LOCAL_BRANCHES:
        what = f"unknown branch {branch!r}"
        raise ConfigError(what, where="attend_local", fix=suggest(branch, LOCAL_BRANCHES))
    factor = float(q.shape[-1] ** -0.5) if scale is None else scale
    has_kernel = kernels.supports(q, k, v)
    if branch == "kernel" and not has_kernel:
        needs = "it needs fp32 or bf16 on a CPU and a head size that is a multiple of 16"
        reason = kernels.why_not() or needs
        raise ConfigError(f"no kernel for this call: {reason}", where="attend_local", fix="Use branch=auto")
    if has_kernel and branch != "blocks":
        return ops.packed_attention(q, k, v, packing, packing, causal, factor, window=window)
    n, w = packing.total, min(window, packing.max_length)
    blocks = -(-n // w)
    # The packed matrix is split into M blocks of w rows, regardless of sequence boundaries. A block attends
    # to itself and both neighbor blocks. The mask restricts each row to its own sequence and window.
    q_b = _pad(q * factor, 0, blocks * w - n).view(blocks, w, *q.shape[1:]).transpose(1, 2)  # [M, H, w, K]
    k_b = _with_neighbors(k, w, blocks)  # [M, H, 3w, K]
    v_b = _with_neighbors(v, w, blocks)
    bias = q.new_zeros(blocks, 1, w, 3 * w)
    bias.masked_fill_(~_allowed(packing, w, blocks, causal)[:, None], NEG_INF)
    if q.dtype == torch.float32 or q.is_cuda:
        out = F.scaled_dot_product_attention(q_b, k_b, v_b, attn_mask=bias, scale=1.0)  # [M, H, w, V]
    else:  # in bf16 on a CPU, the backward pass of torch's fused kernel takes three times as long
        out = (q_b @ k_b.transpose(2, 3)).add_(bias).softmax(-1) @ v_b
    return out.transpose(1, 2).reshape(blocks * w, *v.shape[1:])[:n]


def _with_neighbors(x: Tensor, w: int, blocks: int) -> Tensor:
    """Each block of w rows with the blocks before and after it: ``[N, H, K]`` -> ``[M, H, 3w, K]``."""
    padded = _pad(x, w, (blocks + 1) * w - len(x))  # a block of zeros at either end
    return padded.unfold(0, 3 * w, w).permute(0, 1, 3, 2).contiguous()


def _pad(x: Tensor, front: int, back: int) -> Tensor:
    return F.pad(x, (0, 0, 0, 0, front, back))


def _allowed(packing: Packing, w: int, blocks: int, causal: bool) -> Tensor:
    """``[M, w, 3w]`` mask, True where a row of the block may attend.

    The padding after the last token counts as one sequence, so no row is fully masked.
    """
    padding = (blocks + 1) * w - packing.total
    sequence = F.pad(packing.sequence_ids, (w, padding), value=-1)
    key_sequences = sequence.unfold(0, 3 * w, w)  # [M, 3w]
    query_sequences = key_sequences[:, w : 2 * w]  # [M, w]
    positions = torch.arange(3 * w, device=packing.device) - w  # relative to the block's first row
    distance = positions - torch.arange(w, device=packing.device)[:, None]  # [w, 3w]
    in_window = (distance <= 0) & (distance >= -w) if causal else distance.abs() <= w
    return (query_sequences[:, :, None] == key_sequences[:, None, :]) & in_window


def check_window(window: int, where: str) -> int:
    """Return ``window``; raise ConfigError if it is below 1."""
    if window < 1:
        raise ConfigError(f"the window must be at least 1, got {window}", where=where, fix="Use 1 or more")
    return window


def check_rows(q: Tensor, k: Tensor, v: Tensor, packing: Packing, where: str) -> None:
    """Raise ShapeError unless the shapes are those of packed self-attention."""
    if q.ndim != 3 or q.shape != k.shape or k.shape[:2] != v.shape[:2] or v.ndim != 3:
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        raise ShapeError(f"shapes do not fit: {shapes}", where=where, fix="Packed: [N, H, K] each")
    if len(q) != packing.total:
        raise ShapeError(f"q has {len(q)} tokens, but the packing has {packing.total}", where=where)


# --- linear attention -----------------------------------------------------------------------------
#
# A product of feature maps replaces the softmax, so the attention matrix is never computed.
#
#     V'_i = phi(Q_i)^T sum_j phi(K_j) V_j^T / phi(Q_i)^T sum_j phi(K_j),   phi(x) = elu(x) + 1
#
# Katharopoulos et al., 2020, equations 5 to 7; causal: equations 8 to 12, sums over j <= i. Time is O(T K V)
# per sequence and head. As in the paper there is no 1 / sqrt(K).


CHUNK = 128  # number of tokens of a causal sequence that are computed at a time


def attend_linear(
    q: Tensor,  # [N, H, K]
    k: Tensor,  # [N, H, K]
    v: Tensor,  # [N, H, V]
    packing: Packing,
    causal: bool = False,
) -> Tensor:
    """Linear attention inside each sequence: ``[N, H, V]``, summed in fp32.

    Raises:
        ShapeError: the shapes are incompatible.
    """
    check_rows(q, k, v, packing, "attend_linear")
    ones = v.new_ones(*v.shape[:2], 1)  # with a last column of ones, phi(K) V^T contains the sum of phi(K)
    rows = (_features(q), _features(k), torch.cat([v, ones], 2).float())
    attend_one = _causal if causal else (lambda q, k, v: q @ (k.transpose(1, 2) @ v))
    outs = [
        attend_one(*(x.transpose(0, 1) for x in (q_i, k_i, v_i)))  # [H, T, V + 1]
        for q_i, k_i, v_i in zip(*(packing.split(x) for x in rows), strict=True)
    ]
    out = torch.cat(outs, 1).transpose(0, 1)  # [N, H, V + 1]
    return (out[..., :-1] / out[..., -1:]).to(v.dtype)


def _features(x: Tensor) -> Tensor:
    """phi, which is positive, so the attention weights are positive too."""
    return F.elu(x.float()) + 1.0


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention, chunk by chunk: a sum over earlier chunks plus a masked product inside the chunk."""
    past_sum = q.new_zeros(q.shape[0], q.shape[2], v.shape[2])  # [H, K, V]
    outs = []
    for q_c, k_c, v_c in zip(*(x.split(CHUNK, 1) for x in (q, k, v)), strict=True):
        chunk_scores = (q_c @ k_c.transpose(1, 2)).tril()
        outs.append(q_c @ past_sum + chunk_scores @ v_c)
        past_sum = past_sum + k_c.transpose(1, 2) @ v_c
    return torch.cat(outs, 1)


# --- modules --------------------------------------------------------------------------------------


class CheaperAttention(MultiHeadAttention):
    """Base class of local and linear self-attention.

    The attention weights need quadratic time and memory. They are computed only for a trace or padded input.
    """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing, causal: bool) -> Tensor:
        """The attention output: 3 x ``[N, H, K]`` -> ``[N, H, K]``."""
        raise NotImplementedError

    def weights(self, q: Tensor, k: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Attention weights: 2 x ``[..., T, K]`` -> ``[..., T, T]``; rows sum to 1. ``allowed`` is a mask."""
        raise NotImplementedError

    def forward(
        self,
        x: Tensor,  # [N, D]
        packing: Packing,
        memory: Tensor | None = None,
        memory_packing: Packing | None = None,
        causal: bool = False,
        *,
        rows: Tensor | None = None,
        record: LayerRecord | None = None,
    ) -> Tensor:
        """Like ``MultiHeadAttention.forward``, but only for self-attention.

        Raises:
            ConfigError: ``memory`` is set, or both ``rows`` and ``causal``.
        """
        if memory is not None:
            raise ConfigError("does not support cross-attention", where=type(self).__name__)
        if causal and rows is not None:
            raise ConfigError("rows and causal cannot be combined", where=type(self).__name__)
        if record is None and uses_chunks(x, LONG_INPUT):
            out = self.by_heads(x, packing, lambda q, k, v: self.attend(q, k, v, packing, causal))
            return in_chunks(self.out, out if rows is None else out[rows], in_place=True)
        q, k, v = self.project(x)
        q, k = self.rotate(q, k, packing, in_place=record is None)
        if record is not None:
            record.weights = self._maps(q, k, packing, causal, rows, record.rows == "first")
        out = self.attend(q, k, v, packing, causal).flatten(1)
        return in_chunks(self.out, out if rows is None else out[rows], in_place=True)

    def _maps(
        self, q: Tensor, k: Tensor, packing: Packing, causal: bool, rows: Tensor | None, first_row_only: bool
    ) -> tuple[Tensor, ...]:
        """The weights of each sequence, ``[H, T_i, T_i]``, or only of one query, ``[H, 1, T_i]``."""
        maps = []
        for i, (q_i, k_i) in enumerate(zip(packing.split(q), packing.split(k), strict=True)):
            mask = torch.ones(len(q_i), len(q_i), dtype=torch.bool, device=q.device).tril()
            map_i = self.weights(q_i.transpose(0, 1), k_i.transpose(0, 1), mask if causal else None)
            row = int(rows[i]) - packing.starts[i] if rows is not None else 0
            maps.append(map_i[:, row : row + 1] if first_row_only or rows is not None else map_i)
        return tuple(maps)

    def padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Self-attention over padded ``[B, T, D]``; ``mask`` ``[B, T]`` is True at contiguous real tokens."""
        b, t = x.shape[0], x.shape[1]
        q, k, v = self.project_padded(x)
        out = self.weights(q, k, None if mask is None else mask[:, None, None]) @ v
        return self.out(out.transpose(1, 2).reshape(b, t, self.d_model))


class LocalAttention(CheaperAttention):
    """Sliding-window self-attention (Beltagy et al., 2020, without global tokens).

    Args:
        d_model, num_heads: as for ``MultiHeadAttention``.
        window: number of positions on either side that a token attends to.
        options: ``bias``, ``rotary`` and ``rotary_factor``, as for ``MultiHeadAttention``.

    Raises:
        ConfigError: ``num_heads`` does not divide ``d_model``, or the window is below 1.
    """

    def __init__(self, d_model: int, num_heads: int, window: int, **options: Any):
        super().__init__(d_model, num_heads, **options)
        self.window = check_window(window, "LocalAttention")

    def attend(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing, causal: bool) -> Tensor:
        return attend_local(q, k, v, packing, self.window, causal)

    def weights(self, q: Tensor, k: Tensor, allowed: Tensor | None = None) -> Tensor:
        positions = torch.arange(q.shape[-2], device=q.device)
        in_window = (positions - positions[:, None]).abs() <= self.window  # [T, T]
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return masked_softmax(scores, in_window if allowed is None else in_window & allowed)


class LinearAttention(CheaperAttention):
    """Linear self-attention: feature maps instead of the softmax (Katharopoulos et al., 2020)."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing, causal: bool) -> Tensor:
        return attend_linear(q, k, v, packing, causal)

    def weights(self, q: Tensor, k: Tensor, allowed: Tensor | None = None) -> Tensor:
        scores = (F.elu(q.float()) + 1.0) @ (F.elu(k.float()) + 1.0).transpose(-1, -2)
        scores = scores if allowed is None else scores * allowed
        return (scores / scores.sum(-1, keepdim=True).clamp(min=1e-30)).to(q.dtype)
