"""Self-attention whose cost grows with the length and not with its square: local and linear.

The modules have the parameters of ``MultiHeadAttention`` under the same names and compute another function of
them, so a model is trained with the kind that it is used with. The functions come first, with their papers;
then the projections, and the maps that explanations and graphs ask for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.errors import ConfigError, ShapeError
from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.maps import NOWHERE, masked_softmax
from glassformer.nn.trace import LayerRecord
from glassformer.packing import Packing

# --- sliding-window attention ---------------------------------------------------------------------
#
#     softmax over |i - j| <= w          Beltagy et al., 2020 (Longformer), without its global tokens
#
# Time and memory are O(N w) instead of O(T^2) a sequence. Differences from the paper: no dilation, the same
# window in every head.


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


# --- linear attention -----------------------------------------------------------------------------
#
# A product of feature maps in the place of the softmax, so that no map is ever computed.
#
#     V'_i = phi(Q_i)^T sum_j phi(K_j) V_j^T / phi(Q_i)^T sum_j phi(K_j),   phi(x) = elu(x) + 1
#
# Katharopoulos et al., 2020, equations 5 to 7; causal: equations 8 to 12, sums over j <= i. Time is O(T K
# V) a sequence and head. There is no 1 / sqrt(K): the paper has none. It is another function than softmax
# attention, with other weights: a model must be trained with it.


CHUNK = 128  # rows of a causal sequence computed at a time


def attend_linear(
    q: Tensor,  # [N, H, K]
    k: Tensor,  # [N, H, K]
    v: Tensor,  # [N, H, V]
    packing: Packing,
    causal: bool = False,
) -> Tensor:
    """Linear attention inside each sequence, ``[N, H, V]``; sums are made in fp32.

    Raises:
        ShapeError: sizes that do not fit.
    """
    check_rows(q, k, v, packing, "attend_linear")
    ones = v.new_ones(*v.shape[:2], 1)  # a last column of ones sums phi(K) along with phi(K) V^T
    rows = (_features(q), _features(k), torch.cat([v, ones], 2).float())
    one = _causal if causal else _everywhere
    outs = [
        one(*(x.transpose(0, 1) for x in (q_i, k_i, v_i)))  # [H, T, V + 1]
        for q_i, k_i, v_i in zip(*(packing.split(x) for x in rows), strict=True)
    ]
    out = torch.cat(outs, 1).transpose(0, 1)  # [N, H, V + 1]
    return (out[..., :-1] / out[..., -1:]).to(v.dtype)


def _features(x: Tensor) -> Tensor:
    """phi: positive, so that the weights are."""
    return F.elu(x.float()) + 1.0


def _everywhere(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q @ (k.transpose(1, 2) @ v)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A chunk at a time: what came before as one sum, what is inside the chunk as a masked product."""
    before = q.new_zeros(q.shape[0], q.shape[2], v.shape[2])  # [H, K, V]
    outs = []
    for q_c, k_c, v_c in zip(*(x.split(CHUNK, 1) for x in (q, k, v)), strict=True):
        inside = (q_c @ k_c.transpose(1, 2)).tril()
        outs.append(q_c @ before + inside @ v_c)
        before = before + k_c.transpose(1, 2) @ v_c
    return torch.cat(outs, 1)


# --- modules --------------------------------------------------------------------------------------


class CheaperAttention(MultiHeadAttention):
    """Self-attention of a cheaper kind; a subclass says how rows attend and what their map is.

    Its map is quadratic again: it is made only where a trace or a graph over padded input asks for it.
    """

    def attended(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing, causal: bool) -> Tensor:
        """3 x ``[N, H, K]`` -> ``[N, H, K]``."""
        raise NotImplementedError

    def weights(self, q: Tensor, k: Tensor, allowed: Tensor | None = None) -> Tensor:
        """2 x ``[..., T, K]`` -> ``[..., T, T]``, rows that sum to 1; ``allowed`` True: may look."""
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
        """As ``MultiHeadAttention``'s, without ``memory``.

        Raises:
            ConfigError: with ``memory``, or rows and causal together.
        """
        if memory is not None:
            raise ConfigError("attends to its own rows only", where=type(self).__name__)
        if causal and rows is not None:
            raise ConfigError("rows and causal do not go together", where=type(self).__name__)
        q, k, v = self.project(x)
        q, k = self.placed(q, k, packing)
        if record is not None:
            record.weights = self._maps(q, k, packing, causal, rows, record.rows == "first")
        out = self.attended(q, k, v, packing, causal).flatten(1)
        return self.out(out if rows is None else out[rows])

    def _maps(
        self, q: Tensor, k: Tensor, packing: Packing, causal: bool, rows: Tensor | None, first: bool
    ) -> tuple[Tensor, ...]:
        """A ``[H, T_i, T_i]`` each, or the one row of it that is wanted: ``[H, 1, T_i]``."""
        found = []
        for i, (q_i, k_i) in enumerate(zip(packing.split(q), packing.split(k), strict=True)):
            order = torch.ones(len(q_i), len(q_i), dtype=torch.bool, device=q.device).tril()
            map_i = self.weights(q_i.transpose(0, 1), k_i.transpose(0, 1), order if causal else None)
            at = int(rows[i]) - packing.starts[i] if rows is not None else 0
            found.append(map_i[:, at : at + 1] if first or rows is not None else map_i)
        return tuple(found)

    def padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The same over ``[B, T, D]``, by its map; ``mask`` ``[B, T]`` True at one stretch of real tokens."""
        b, t = x.shape[0], x.shape[1]
        q, k, v = self.project_padded(x)
        out = self.weights(q, k, None if mask is None else mask[:, None, None]) @ v
        return self.out(out.transpose(1, 2).reshape(b, t, self.d_model))


class LocalAttention(CheaperAttention):
    """Each row sees at most ``window`` places on either side (Beltagy et al., 2020, without global tokens).

    Args:
        d_model, num_heads: as of ``MultiHeadAttention``.
        window: places; from the longest sequence on this is full attention.
        options: ``bias`` and ``rotary`` as of ``MultiHeadAttention``.

    Raises:
        ConfigError: ``num_heads`` does not divide ``d_model``, or a window below 1.
    """

    def __init__(self, d_model: int, num_heads: int, window: int, **options: Any):
        super().__init__(d_model, num_heads, **options)
        self.window = check_window(window, "LocalAttention")

    def attended(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing, causal: bool) -> Tensor:
        return attend_local(q, k, v, packing, self.window, causal)

    def weights(self, q: Tensor, k: Tensor, allowed: Tensor | None = None) -> Tensor:
        places = torch.arange(q.shape[-2], device=q.device)
        near = (places - places[:, None]).abs() <= self.window  # [T, T]
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return masked_softmax(scores, near if allowed is None else near & allowed)


class LinearAttention(CheaperAttention):
    """A product of feature maps in the place of the softmax (Katharopoulos et al., 2020)."""

    def attended(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing, causal: bool) -> Tensor:
        return attend_linear(q, k, v, packing, causal)

    def weights(self, q: Tensor, k: Tensor, allowed: Tensor | None = None) -> Tensor:
        alike = (F.elu(q.float()) + 1.0) @ (F.elu(k.float()) + 1.0).transpose(-1, -2)
        alike = alike if allowed is None else alike * allowed
        return (alike / alike.sum(-1, keepdim=True).clamp(min=1e-30)).to(q.dtype)
