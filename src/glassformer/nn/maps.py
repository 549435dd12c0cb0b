"""Attention's weights: the softmax with its masks, and the maps of many sequences at once.

A map is what one wants to look at, ``[H, T, S]`` of one sequence. Where nothing is to be differentiated,
sequences of nearly equal length are computed together (``groups.py``), and views of theirs come back.
"""

from __future__ import annotations

import torch
from torch import Tensor

from glassformer.nn.groups import Group, groups_of
from glassformer.nn.relative import spread
from glassformer.packing import Packing

NOWHERE = float("-inf")


def causal_mask(rows: int, columns: int, device: torch.device | str = "cpu") -> Tensor:
    """``[T, S]`` boolean, True where column <= row; if there are more columns, the rows are the last ones."""
    places = torch.ones(rows, columns, dtype=torch.bool, device=device)
    return places.tril(columns - rows)


def masked_softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """softmax over the last axis among allowed places; a row that allows nothing is all 0."""
    if allowed is None:
        return scores.softmax(-1)
    weights = scores.masked_fill(~allowed, NOWHERE).softmax(-1)
    return weights.masked_fill(~allowed.any(-1, keepdim=True), 0.0)


def attention_weights(
    q: Tensor,  # [N, H, K]
    k: Tensor,  # [M, H, K]
    q_packing: Packing,
    kv_packing: Packing,
    causal: bool = False,
    *,
    scale: float | None = None,
    bias: Tensor | None = None,  # [H, 2 L - 1], by distance
) -> tuple[Tensor, ...]:
    """softmax(Q K^T * scale + B) of every sequence: a tuple of ``[H, T_i, S_i]`` whose rows sum to 1."""
    factor: float = float(q.shape[-1] ** -0.5) if scale is None else scale
    wanted = q.requires_grad or k.requires_grad or (bias is not None and bias.requires_grad)
    if torch.is_grad_enabled() and wanted:
        return textbook_weights(q, k, q_packing, kv_packing, causal, factor, bias)
    return _grouped_maps(q, k, q_packing, kv_packing, causal, factor, bias)[0]


def add_relative(scores: Tensor, bias: Tensor | None) -> Tensor:
    """``[G * H, T, S]`` with the bias ``[H, 2 L - 1]`` of each distance added, in place."""
    if bias is not None:
        by_head = scores.view(-1, len(bias), *scores.shape[1:])  # [G, H, T, S]
        by_head += spread(bias, *scores.shape[1:])
    return scores


def first_row_weights(
    q: Tensor, k: Tensor, kv_packing: Packing, scale: float | None = None, bias: Tensor | None = None
) -> tuple[Tensor, ...]:
    """The weights of the first query of a sequence (``q`` ``[B, H, K]``): a tuple of ``[H, 1, S_i]``.

    One product with each key and a softmax over the padded scores, which are small: no keys are gathered.
    """
    factor: float = float(q.shape[-1] ** -0.5) if scale is None else scale
    scores = (k * q[kv_packing.sequence_ids]).sum(-1, dtype=torch.float32) * factor  # [M, H]
    if bias is not None:
        scores = scores + bias.T[bias.shape[1] // 2 + kv_packing.positions]  # from the first place on
    weights = kv_packing.pad(scores, NOWHERE).softmax(1).to(q.dtype)  # [B, S, H]
    return tuple(w[:n].T[:, None] for w, n in zip(weights.unbind(0), kv_packing.lengths, strict=True))


def textbook_weights(
    q: Tensor,
    k: Tensor,
    q_packing: Packing,
    kv_packing: Packing,
    causal: bool,
    scale: float,
    bias: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """The same, one sequence after the other and differentiable."""
    weights = []
    for q_i, k_i in zip(q_packing.split(q), kv_packing.split(k), strict=True):
        scores = scale * (q_i.transpose(0, 1) @ k_i.permute(1, 2, 0))  # [H, T, S]
        if bias is not None:
            scores = scores + spread(bias, *scores.shape[1:]).to(scores.dtype)
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
    """The output ``[N, H, K]`` and the maps that it was made with. Nothing here can be differentiated."""
    maps, by_group = _grouped_maps(q, k, q_packing, kv_packing, causal, scale, bias)
    out = q.new_empty(*q.shape[:2], v.shape[2])
    for group, weights in by_group:
        group.put_q(torch.bmm(weights, group.take_k(v)), out)
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
    for group in groups_of(q_packing, kv_packing):
        weights = group_weights(q, k, group, causal, scale, bias)
        by_group.append((group, weights))
        g, (t, s) = len(group.members), weights.shape[1:]
        by_head = weights.view(g, -1, t, s)  # [G, H, T, S]
        for place, i in enumerate(group.members):
            maps[i] = by_head[place, :, : group.q.lengths[place], : group.k.lengths[place]]
    return tuple(maps), by_group


def group_weights(
    q: Tensor, k: Tensor, group: Group, causal: bool, scale: float, bias: Tensor | None = None
) -> Tensor:
    """The weights of one group of sequences, ``[G * H, T, S]``, 0 on padded keys."""
    scores = torch.bmm(group.take_q(q, scale), group.take_k(k).transpose(1, 2))
    weights = group.bias(add_relative(scores, bias), causal).softmax(-1)
    return weights.nan_to_num_(0.0) if group.leaves_rows_blind(causal) else weights
