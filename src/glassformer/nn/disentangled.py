"""Disentangled self-attention, with content and distance scores (He et al., 2021: DeBERTa, versions 2 and 3).

    A[t, s] = (q_t k_s + q_t K_r[d] + Q_r[d] k_s) / sqrt(3 K),   d = bucket(t - s)

``q_t`` and ``k_s`` are the query of token t and the key of token s. ``Q_r`` and ``K_r`` are projections of a
table with one vector per bucket of distances, which all layers share. A short distance has its own bucket;
longer distances share buckets of logarithmic width. A score depends on both tokens and their distance, which
the branches of ``attend`` do not support. Differences from the paper, as in version 2: the projections of the
content may also project the distances, and the table has a norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError
from glassformer.nn import kernels
from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.dropout import Dropout
from glassformer.nn.dropout import dropout as drop
from glassformer.nn.kernels import ops
from glassformer.nn.linear import Linear
from glassformer.nn.maps import length_groups, masked_softmax
from glassformer.nn.trace import LayerRecord
from glassformer.packing import Packing
from glassformer.runtime import is_compiling


@dataclass(frozen=True)
class Disentangled:
    """Config of disentangled attention.

    Args:
        buckets: number of buckets for each direction; 0: one bucket for each distance up to ``furthest``.
        furthest: this distance and all longer distances share the last bucket.
        by_query: whether queries are scored against distances ("c2p").
        by_key: whether keys are scored against distances ("p2c").
        shared: whether the projections of the content also project the distances; False: separate layers do.
        norm: whether the table of distances has a layer norm.
    """

    buckets: int = 256
    furthest: int = 512
    by_query: bool = True
    by_key: bool = True
    shared: bool = True
    norm: bool = True

    def __post_init__(self) -> None:
        if self.furthest < 1 or self.buckets < 0 or self.buckets % 2 or self.furthest < self.buckets // 2 + 2:
            what = f"{self.buckets} buckets do not suit distances up to {self.furthest}"
            fix = "Use an even number of buckets, and distances up to at least half that number plus 2"
            raise ConfigError(what, where="disentangled", fix=fix)

    @property
    def span(self) -> int:
        """S, the number of buckets for each direction; the table has 2 S rows."""
        return self.buckets or self.furthest

    @property
    def num_terms(self) -> int:
        """Number of terms in a score; the score is divided by the square root of this number."""
        return 1 + self.by_query + self.by_key

    def rows_by_distance(self, length: int, device: torch.device) -> Tensor:
        """``[2 T - 1]``: the row of the table for each distance from ``1 - T`` to ``T - 1``, ascending."""
        distances = torch.arange(1 - length, length, device=device)
        buckets = distances if not self.buckets else self._bucket(distances)
        return (buckets + self.span).clamp(0, 2 * self.span - 1)

    def rows(self, length: int, device: torch.device) -> Tensor:
        """``[T, T]``: the row of the table for query t and key s."""
        positions = torch.arange(length, device=device)
        rows = self.rows_by_distance(length, device)
        return rows[positions[:, None] - positions + length - 1]

    def _bucket(self, distances: Tensor) -> Tensor:
        """Buckets of distances, in fp32 as published; half of the buckets have logarithmic widths."""
        half = self.buckets // 2
        size = torch.where(distances.abs() < half, half - 1, distances.abs())
        steps = torch.log(size / half) / torch.log(torch.tensor((self.furthest - 1) / half)) * (half - 1)
        log_buckets = (torch.ceil(steps) + half) * torch.sign(distances)
        return torch.where(size <= half, distances.to(log_buckets.dtype), log_buckets).long()


def used_rows(config: Disentangled, length: int, device: torch.device) -> tuple[slice, Tensor]:
    """The rows of the table that ``length`` tokens need, and ``rows_by_distance`` relative to them."""
    if is_compiling():  # a compiled graph cannot read the values of its tensors
        return slice(0, 2 * config.span), config.rows_by_distance(length, device)
    return _used_rows(config, length, device)


@lru_cache(maxsize=8)  # all layers use the same rows
def _used_rows(config: Disentangled, length: int, device: torch.device) -> tuple[slice, Tensor]:
    with torch.inference_mode(False), torch.no_grad():
        rows = config.rows_by_distance(length, device)
        first, last = int(rows[0]), int(rows[-1])
        return slice(first, last + 1), rows - first


class WeightCache:
    """Cache of a computation on weights, valid until a weight changes; copies and pickles are empty.

    Like autograd, it detects changes by the version of a tensor, which counts operations in place. Fused
    optimizers do not increase the version. So modules clear their cache when training begins and in every
    pass with gradients.
    """

    def __init__(self):
        self.clear()

    def clear(self) -> None:
        self.result: Any = None
        self.source: Any = None
        self.weights: list[tuple[Tensor, int]] = []

    def __reduce__(self):
        return WeightCache, ()

    def get(self, source: Any, modules: Iterable[nn.Module], compute: Callable[[], Any]) -> Any:
        """The result of ``compute()``, which reads the weights of ``modules`` and the constant ``source``.

        The cache is not used with gradients, in a compiled graph, and for weights without a version.
        """
        weights = [p for module in modules for p in module.parameters()]
        if torch.is_grad_enabled() or is_compiling() or any(p.is_inference() for p in weights):
            self.clear()
            return compute()
        # The cached tensors share the memory of the weights, so other weights cannot have these addresses.
        cached = [(p.data_ptr(), version) for p, version in self.weights]
        if source is not self.source or cached != [(p.data_ptr(), p._version) for p in weights]:
            self.result, self.source = compute(), source
            self.weights = [(p.detach(), p._version) for p in weights]
        return self.result


class DistanceTable(nn.Module):
    """The vectors of all distances, ``[2 S, D]``, one table for all layers."""

    def __init__(self, config: Disentangled, d_model: int, eps: float):
        super().__init__()
        self.table = nn.Embedding(2 * config.span, d_model)
        self.norm = nn.LayerNorm(d_model, eps=eps) if config.norm else nn.Identity()
        self.cache = WeightCache()

    def forward(self, length: int) -> Tensor:
        """``[2 S, D]`` for every length."""
        return self.cache.get(None, [self], lambda: self.norm(self.table.weight))

    def train(self, mode: bool = True):
        if mode:
            self.cache.clear()
        return super().train(mode)


class DisentangledAttention(MultiHeadAttention):
    """Disentangled self-attention; the table of distances is the argument ``bias`` ``[2 S, D]``.

    Args:
        d_model, num_heads, dropout: as for ``MultiHeadAttention``.
        config: which scores are added.
        table_dropout: dropout rate of the table of distances, in training.
    """

    def __init__(
        self, d_model: int, num_heads: int, dropout: float, config: Disentangled, table_dropout: float
    ):
        super().__init__(d_model, num_heads, dropout)
        self.config = config
        self.table_dropout = Dropout(table_dropout)
        is_separate = not config.shared
        self.distance_keys = Linear(d_model, d_model) if is_separate and config.by_query else None
        self.distance_queries = Linear(d_model, d_model) if is_separate and config.by_key else None
        self.cache = WeightCache()

    def train(self, mode: bool = True):
        if mode:
            self.cache.clear()
        return super().train(mode)

    @property
    def scale(self) -> float:
        """Factor of the scores."""
        return 1.0 / math.sqrt(self.heads[1] * self.config.num_terms)

    def distances(self, table: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Keys and queries of the distances ``[2 S, H, K]``; None: scores do not use them."""
        table, d, shape = self.table_dropout(table), self.d_model, (-1, *self.heads)
        if self.config.shared and self.config.by_query and self.config.by_key:
            q, k = self.qkv.part(table, 0, 2 * d).view(-1, 2, *self.heads).unbind(1)
            return k, q
        k = q = None
        if self.config.by_query:
            keys = self.distance_keys
            k = self.qkv.part(table, d, 2 * d) if keys is None else keys(table)
        if self.config.by_key:
            queries = self.distance_queries
            q = self.qkv.part(table, 0, d) if queries is None else queries(table)
        return None if k is None else k.view(shape), None if q is None else q.view(shape)

    def scores(self, q: Tensor, k: Tensor, table: Tensor) -> Tensor:
        """Scores of padded queries and keys: 2 x ``[G, H, T, K]`` -> ``[G, H, T, T]``."""
        return self._scores(q, k, self.distances(table.to(q.dtype)))

    def _scores(self, q: Tensor, k: Tensor, distances: tuple[Tensor | None, Tensor | None]) -> Tensor:
        keys, queries = distances
        rows = self.config.rows(q.shape[-2], q.device).expand(*q.shape[:-2], -1, -1)  # [G, H, T, T]
        scores = q @ k.transpose(-2, -1)
        if keys is not None:
            scores = scores + (q @ keys.permute(1, 2, 0)).gather(-1, rows)
        if queries is not None:
            by_key = (k @ queries.permute(1, 2, 0)).gather(-1, rows.transpose(-2, -1))  # [G, H, S, T]
            scores = scores + by_key.transpose(-2, -1)
        return scores / math.sqrt(q.shape[-1] * self.config.num_terms)

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
        bias: Tensor | None = None,
    ) -> Tensor:
        """Like ``MultiHeadAttention.forward``, but only for self-attention.

        ``rows`` save computation only if they are ``packing.first_rows``.
        """
        if memory is not None or causal or bias is None:
            what = "requires a table of distances, and supports neither cross-attention nor a causal mask"
            raise ConfigError(what, where=type(self).__name__)
        p = self.dropout if self.training else 0.0
        if torch.is_grad_enabled():
            self.cache.clear()
        heads = x.view(-1, *self.heads)  # queries, keys and values have this shape
        if record is None and p == 0.0 and kernels.supports(heads, heads, heads):
            first = rows if rows is packing.first_rows else None  # the kernel supports only these rows
            out = self._by_kernel(*self.project(x, None, first), packing, bias).flatten(1)
            return self.out(out if rows is None or rows is first else out[rows])
        q, k, v = self.project(x)
        if record is None:
            out = self._grouped(q, k, v, packing, bias, p)
        else:
            out, maps = self._one_by_one(q, k, v, packing, bias, p)
            if rows is not None or record.rows == "first":
                selected = packing.first_rows if rows is None else rows
                positions = [int(row) - start for row, start in zip(selected, packing.starts, strict=True)]
                maps = [m[:, i : i + 1] for m, i in zip(maps, positions, strict=True)]
            record.weights = tuple(maps)
        out = out.flatten(1)
        return self.out(out if rows is None else out[rows])

    def _by_kernel(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing, table: Tensor) -> Tensor:
        """The attention output of the kernel in C: ``[N, H, K]``, or ``[B, H, K]`` of first tokens."""
        table_slice, rows = used_rows(self.config, packing.max_length, q.device)
        if torch.is_grad_enabled() or self.training:
            keys, queries = self.distances(table[table_slice].to(q.dtype))
        else:
            layers = [m for m in (self.qkv, self.distance_keys, self.distance_queries) if m is not None]
            all_distances = self.cache.get(table, layers, lambda: self.distances(table.to(q.dtype)))
            keys, queries = (None if x is None else x[table_slice] for x in all_distances)
        q_packing = packing if len(q) == len(k) else packing.one_row_each
        return ops.packed_disentangled(q, k, v, q_packing, packing, self.scale, keys, queries, rows)

    def _grouped(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing, table: Tensor, p: float) -> Tensor:
        """The attention output ``[N, H, K]``, computed in groups of sequences of nearly equal length."""
        outs, targets, distances = [], [], self.distances(table.to(q.dtype))
        for group in length_groups(packing, packing):
            keys, shape = group.k, (len(group.members), group.k.length, *self.heads)
            q_g, k_g, v_g = (t[keys.rows].view(shape).transpose(1, 2) for t in (q, k, v))  # [G, H, T, K]
            allowed = None if keys.is_uniform else keys.token_mask[:, None, None]
            weights = masked_softmax(self._scores(q_g, k_g, distances), allowed)
            out = (drop(weights, p, True) @ v_g).transpose(1, 2).flatten(0, 1)  # [G * T, H, K]
            outs.append(out[keys.slots])
            targets.append(keys.targets)
        return torch.cat(outs)[torch.cat(targets).argsort()]

    def _one_by_one(
        self, q: Tensor, k: Tensor, v: Tensor, packing: Packing, table: Tensor, p: float
    ) -> tuple[Tensor, list[Tensor]]:
        """The attention output, and the differentiable weights of each sequence, ``[H, T_i, T_i]``."""
        outs, maps, distances = [], [], self.distances(table.to(q.dtype))
        for qkv in zip(*(packing.split(t) for t in (q, k, v)), strict=True):
            q_i, k_i, v_i = (t.transpose(0, 1) for t in qkv)  # [H, T, K]
            maps.append(self._scores(q_i, k_i, distances).softmax(-1))
            outs.append((drop(maps[-1], p, True) @ v_i).transpose(0, 1))
        return torch.cat(outs), maps

    def padded(self, x: Tensor, mask: Tensor | None, bias: Tensor | None = None) -> Tensor:
        """Self-attention over padded ``[B, T, D]``.

        ``mask`` ``[B, T]`` is True at real tokens, which are contiguous.
        """
        assert bias is not None, "the encoder has a table"
        q, k, v = self.project_padded(x)
        weights = masked_softmax(self.scores(q, k, bias), None if mask is None else mask[:, None, None])
        return self.out((weights @ v).transpose(1, 2).reshape(*x.shape[:2], self.d_model))
