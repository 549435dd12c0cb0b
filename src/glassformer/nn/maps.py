"""Attention weights of the sequences of a batch.

The weights of one sequence are ``[H, T, S]``: H heads, T queries, S keys. Without gradients, sequences of
nearly equal length are computed together, and the results are views. A *row* is the vector of one token.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from glassformer.errors import ShapeError
from glassformer.nn.positions import expand_bias
from glassformer.packing import Packing, cached_tensor

# --- groups of sequences of nearly equal length ---------------------------------------------------
#
# Groups turn ragged attention into a few large products. The sequences of a group are padded to the longest
# length of the group, which is rounded up by at most 4 %.


TOLERANCE = 0.06  # a sequence may be shorter than the longest sequence of its group by this share
STEPS = ((192, 8), (96, 4), (48, 2))  # (length, multiple): from this length on, pad to this multiple


@dataclass(frozen=True)
class GroupRows:
    """The queries or the keys of a group of G sequences, padded to the length T (``length``)."""

    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    device: torch.device

    @cached_property
    def length(self) -> int:
        longest = max(self.lengths)
        if min(self.lengths) == longest:
            return longest
        # On a CPU, torch prepares products anew for each new length, so lengths are rounded to few values.
        step = next((step for start, step in STEPS if longest >= start), 1)
        return -(-longest // step) * step

    @cached_property
    def is_uniform(self) -> bool:
        return min(self.lengths) == self.length

    @cached_property
    def block(self) -> slice | None:
        """The rows as one slice, if the sequences are adjacent and equally long; otherwise None."""
        ends = [s + n for s, n in zip(self.starts, self.lengths, strict=True)]
        if not self.is_uniform or ends[:-1] != list(self.starts[1:]):
            return None
        return slice(self.starts[0], ends[-1])

    @cached_tensor
    def token_mask(self) -> Tensor:  # [G, T] boolean
        positions = torch.arange(self.length, device=self.device)
        return positions < torch.tensor(self.lengths, device=self.device)[:, None]

    @cached_tensor
    def rows(self) -> Tensor:  # [G * T] int64; the index of padding is the first row of its sequence
        starts = torch.tensor(self.starts, device=self.device)[:, None]
        positions = torch.arange(self.length, device=self.device)
        return (starts + positions * self.token_mask).flatten()

    @cached_tensor
    def slots(self) -> Tensor:  # indices in [G * T] that are not padding
        return self.token_mask.flatten().nonzero().squeeze(1)

    @cached_tensor
    def targets(self) -> Tensor:  # for each slot, the index of its row in the packed matrix
        return self.rows[self.slots]

    def gather(self, x: Tensor, scale: float = 1.0, zero_padding: bool = False) -> Tensor:
        """Gather the group's rows: ``[N, H, K]`` -> ``[G * H, T, K]``, contiguous."""
        g, t, (h, k) = len(self.lengths), self.length, x.shape[1:]
        rows = x[self.block] if self.block is not None else x.index_select(0, self.rows)
        heads = rows.view(g, t, h, k).transpose(1, 2)
        out = torch.empty(g, h, t, k, dtype=x.dtype, device=x.device)
        if scale == 1.0:
            out.copy_(heads)
        else:
            torch.mul(heads, scale, out=out)
        if zero_padding and not self.is_uniform:
            out.mul_(self.token_mask.view(g, 1, t, 1))
        return out.view(g * h, t, k)

    def scatter(self, x: Tensor, out: Tensor) -> None:
        """Scatter ``x`` ``[G * H, T, K]`` into the group's rows of ``out`` ``[N, H, K]``."""
        g, t, (h, k) = len(self.lengths), self.length, out.shape[1:]
        rows = x.view(g, h, t, k).transpose(1, 2)  # [G, T, H, K]
        if self.block is not None:
            out[self.block].view(g, t, h, k).copy_(rows)
        else:
            out.index_copy_(0, self.targets, rows.reshape(g * t, h, k).index_select(0, self.slots))


@dataclass(frozen=True)
class Group:
    """Queries and keys of the same sequences; ``members`` are the indices of the sequences in the packing."""

    q: GroupRows
    k: GroupRows
    members: tuple[int, ...]

    def gather_q(self, x: Tensor, scale: float, zero_padding: bool = False) -> Tensor:
        return self.q.gather(x, scale, zero_padding)

    def gather_k(self, x: Tensor) -> Tensor:
        return self.k.gather(x)

    def scatter_q(self, x: Tensor, out: Tensor) -> None:
        self.q.scatter(x, out)

    def scatter_k(self, x: Tensor, out: Tensor) -> None:
        self.k.scatter(x, out)

    def has_fully_masked_rows(self, causal: bool) -> bool:
        """Whether a query may attend to no key: with a causal mask and more queries than keys."""
        return causal and any(t > s for t, s in zip(self.q.lengths, self.k.lengths, strict=True))

    def mask_scores(self, scores: Tensor, causal: bool) -> Tensor:
        """Set ``scores`` ``[G * H, T, S]`` to -inf, in place, for padding and (``causal``) for later keys."""
        g, (t, s) = len(self.k.lengths), scores.shape[1:]
        by_head = scores.view(g, -1, t, s)
        if not self.k.is_uniform:
            by_head.masked_fill_(~self.k.token_mask[:, None, None, :], float("-inf"))
        if causal:
            offsets = torch.tensor(self.k.lengths, device=scores.device) - torch.tensor(
                self.q.lengths, device=scores.device
            )
            queries = torch.arange(t, device=scores.device)[:, None] + offsets[:, None, None]  # [G, T, 1]
            is_later = torch.arange(s, device=scores.device) > queries  # [G, T, S]
            by_head.masked_fill_(is_later[:, None], float("-inf"))
        return scores


@lru_cache(maxsize=8)  # all layers use the same groups
def length_groups(q_packing: Packing, kv_packing: Packing) -> tuple[Group, ...]:
    """The sequences sorted by key length, longest first, in groups of nearly equal length."""
    order = sorted(range(kv_packing.count), key=lambda i: (-kv_packing.lengths[i], i))
    if kv_packing.is_uniform and q_packing.is_uniform:
        order = list(range(kv_packing.count))
    groups: list[list[int]] = []
    for i in order:
        longest = kv_packing.lengths[groups[-1][0]] if groups else 0
        if not groups or kv_packing.lengths[i] < longest * (1 - TOLERANCE):
            groups.append([])
        groups[-1].append(i)
    return tuple(Group(_group_rows(q_packing, g), _group_rows(kv_packing, g), tuple(g)) for g in groups)


def _group_rows(packing: Packing, members: list[int]) -> GroupRows:
    return GroupRows(
        tuple(packing.starts[i] for i in members), tuple(packing.lengths[i] for i in members), packing.device
    )


def padding_share(packing: Packing) -> float:
    """The share of padding inside attention, ``1 - sum(T_i) / sum(G * T)``."""
    computed = sum(len(g.k.lengths) * g.k.length for g in length_groups(packing, packing))
    return 1.0 - packing.total / computed


def check_packed(q: Tensor, k: Tensor, v: Tensor, q_packing: Packing, kv_packing: Packing) -> None:
    """Raise ShapeError if the shapes of q, k and v and the packings are incompatible."""
    if q.ndim not in (2, 3) or q.shape[1:] != k.shape[1:] or k.shape[:-1] != v.shape[:-1]:
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        raise ShapeError(f"shapes do not fit: {shapes}", where="attend", fix="Packed: [N, H, K] each")
    if q.shape[0] != q_packing.total or k.shape[0] != kv_packing.total:
        raise ShapeError(
            f"q has {q.shape[0]} tokens and its packing {q_packing.total}, "
            f"k has {k.shape[0]} tokens and its packing {kv_packing.total}",
            where="attend",
        )
    if q_packing.count != kv_packing.count:
        raise ShapeError(
            f"there are {q_packing.count} query sequences, but {kv_packing.count} key sequences",
            where="attend",
        )


# --- weights --------------------------------------------------------------------------------------


NEG_INF = float("-inf")


def causal_mask(rows: int, columns: int, device: torch.device | str = "cpu") -> Tensor:
    """``[T, S]`` boolean, True where key <= query. The last query is at the position of the last key."""
    ones = torch.ones(rows, columns, dtype=torch.bool, device=device)
    return ones.tril(columns - rows)


def masked_softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over the last axis where ``allowed`` is True; 0 elsewhere and for queries without any key."""
    if allowed is None:
        return scores.softmax(-1)
    weights = scores.masked_fill(~allowed, NEG_INF).softmax(-1)
    return weights.masked_fill(~allowed.any(-1, keepdim=True), 0.0)


def attention_weights(
    q: Tensor,  # [N, H, K]
    k: Tensor,  # [M, H, K]
    q_packing: Packing,
    kv_packing: Packing,
    causal: bool = False,
    *,
    scale: float | None = None,
    bias: Tensor | None = None,  # [H, 2 L - 1], see ``attend``
) -> tuple[Tensor, ...]:
    """softmax(Q K^T * scale + B) per sequence: a tuple of ``[H, T_i, S_i]`` whose rows sum to 1."""
    factor: float = float(q.shape[-1] ** -0.5) if scale is None else scale
    needs_grad = q.requires_grad or k.requires_grad or (bias is not None and bias.requires_grad)
    if torch.is_grad_enabled() and needs_grad:
        return explicit_weights(q, k, q_packing, kv_packing, causal, factor, bias)
    return _grouped_maps(q, k, q_packing, kv_packing, causal, factor, bias)[0]


def add_relative_bias(scores: Tensor, bias: Tensor | None) -> Tensor:
    """Add the bias ``[H, 2 L - 1]`` to ``scores`` ``[G * H, T, S]`` in place."""
    if bias is not None:
        by_head = scores.view(-1, len(bias), *scores.shape[1:])  # [G, H, T, S]
        by_head += expand_bias(bias, *scores.shape[1:])
    return scores


def first_row_weights(
    q: Tensor, k: Tensor, kv_packing: Packing, scale: float | None = None, bias: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Attention weights of the first query of each sequence, ``q`` ``[B, H, K]``: a tuple of ``[H, 1, S_i]``.

    Only the small scores are padded; keys are not copied.
    """
    factor: float = float(q.shape[-1] ** -0.5) if scale is None else scale
    scores = (k * q[kv_packing.sequence_ids]).sum(-1, dtype=torch.float32) * factor  # [M, H]
    if bias is not None:
        scores = scores + bias.T[bias.shape[1] // 2 + kv_packing.positions]  # the query is at position 0
    weights = kv_packing.pad(scores, NEG_INF).softmax(1).to(q.dtype)  # [B, S, H]
    return tuple(w[:n].T[:, None] for w, n in zip(weights.unbind(0), kv_packing.lengths, strict=True))


def explicit_weights(
    q: Tensor,
    k: Tensor,
    q_packing: Packing,
    kv_packing: Packing,
    causal: bool,
    scale: float,
    bias: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Like ``attention_weights``, but differentiable and computed one sequence after the other."""
    weights = []
    for q_i, k_i in zip(q_packing.split(q), kv_packing.split(k), strict=True):
        scores = scale * (q_i.transpose(0, 1) @ k_i.permute(1, 2, 0))  # [H, T, S]
        if bias is not None:
            scores = scores + expand_bias(bias, *scores.shape[1:]).to(scores.dtype)
        allowed = causal_mask(scores.shape[-2], scores.shape[-1], scores.device) if causal else None
        weights.append(masked_softmax(scores, allowed))
    return tuple(weights)


def attend_with_maps(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_packing: Packing,
    kv_packing: Packing,
    causal: bool,
    scale: float,
    bias: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The attention output ``[N, H, K]`` and the weights of each sequence, without gradients."""
    maps, by_group = _grouped_maps(q, k, q_packing, kv_packing, causal, scale, bias)
    out = q.new_empty(*q.shape[:2], v.shape[2])
    for group, weights in by_group:
        group.scatter_q(torch.bmm(weights, group.gather_k(v)), out)
    return out, maps


def _grouped_maps(
    q: Tensor,
    k: Tensor,
    q_packing: Packing,
    kv_packing: Packing,
    causal: bool,
    scale: float,
    bias: Tensor | None,
) -> tuple[tuple[Tensor, ...], list[tuple[Group, Tensor]]]:
    maps: list[Tensor] = [q] * q_packing.count
    by_group = []
    for group in length_groups(q_packing, kv_packing):
        weights = group_weights(q, k, group, causal, scale, bias)
        by_group.append((group, weights))
        g, (t, s) = len(group.members), weights.shape[1:]
        by_head = weights.view(g, -1, t, s)  # [G, H, T, S]
        for position, i in enumerate(group.members):
            maps[i] = by_head[position, :, : group.q.lengths[position], : group.k.lengths[position]]
    return tuple(maps), by_group


def group_weights(
    q: Tensor, k: Tensor, group: Group, causal: bool, scale: float, bias: Tensor | None = None
) -> Tensor:
    """The weights of one group of sequences, ``[G * H, T, S]``, 0 on padded keys."""
    scores = torch.bmm(group.gather_q(q, scale), group.gather_k(k).transpose(1, 2))
    weights = group.mask_scores(add_relative_bias(scores, bias), causal).softmax(-1)
    return weights.nan_to_num_(0.0) if group.has_fully_masked_rows(causal) else weights
