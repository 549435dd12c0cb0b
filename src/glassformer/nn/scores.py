"""Attention scores of RNN models.

dot               q . k / sqrt(K)                   Vaswani et al., 2017; unscaled in Luong et al., 2015
multiplicative    q W k^T                           Luong et al., 2015 ("general")
additive          v^T tanh(W1 q + W2 k)             Bahdanau et al., 2015
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glassformer.config import suggest
from glassformer.errors import ConfigError, ShapeError
from glassformer.nn.attention import masked_softmax
from glassformer.nn.trace import LayerRecord
from glassformer.packing import Packing


class DotScore(nn.Module):
    """Scaled dot product ``q . k / sqrt(K)``."""

    def __init__(self, q_dim: int, k_dim: int):
        super().__init__()
        if q_dim != k_dim:
            raise ShapeError(
                f"queries have {q_dim} features, but keys {k_dim}",
                where="DotScore",
                fix="Use the multiplicative scorer",
            )

    def forward(self, q: Tensor, k: Tensor) -> Tensor:  # [B, T, K], [B, S, K] -> [B, T, S]
        return q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5


class MultiplicativeScore(nn.Module):
    """Bilinear score ``q W k``; queries and keys may differ in width."""

    def __init__(self, q_dim: int, k_dim: int):
        super().__init__()
        self.weight = nn.Linear(q_dim, k_dim, bias=False)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:  # [B, T, Kq], [B, S, Kk] -> [B, T, S]
        return self.weight(q) @ k.transpose(-2, -1)


class AdditiveScore(nn.Module):
    """``v^T tanh(W1 q + W2 k)``, a network with one hidden layer.

    Args:
        hidden: width of the hidden layer; None: ``k_dim``. Memory grows with T * S * hidden.
    """

    def __init__(self, q_dim: int, k_dim: int, hidden: int | None = None):
        super().__init__()
        self.query = nn.Linear(q_dim, hidden or k_dim)
        self.key = nn.Linear(k_dim, hidden or k_dim, bias=False)
        self.vector = nn.Linear(hidden or k_dim, 1, bias=False)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:  # [B, T, Kq], [B, S, Kk] -> [B, T, S]
        sums = self.query(q)[..., :, None, :] + self.key(k)[..., None, :, :]  # [B, T, S, hidden]
        return self.vector(torch.tanh(sums)).squeeze(-1)


SCORERS: dict[str, type[nn.Module]] = {
    "dot": DotScore,
    "multiplicative": MultiplicativeScore,
    "additive": AdditiveScore,
}


class ScoredAttention(nn.Module):
    """Single-head attention with one of ``SCORERS``; the encoder's hidden states are keys and values."""

    def __init__(self, scorer: str, q_dim: int, k_dim: int):
        super().__init__()
        if scorer not in SCORERS:
            fix = suggest(scorer, list(SCORERS))
            raise ConfigError(f"unknown scorer {scorer!r}", where="attention", fix=fix)
        self.score = SCORERS[scorer](q_dim, k_dim)

    def padded(self, q: Tensor, memory: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Context ``[B, T, Kk]`` and weights ``[B, T, S]``.

        Args:
            q: ``[B, T, Kq]``.
            memory: ``[B, S, Kk]``.
            mask: ``[B, S]``, True at real tokens.
        """
        weights = masked_softmax(self.score(q, memory), mask[:, None, :].expand(-1, q.shape[1], -1))
        return weights @ memory, weights

    def forward(
        self,
        q: Tensor,
        memory: Tensor,
        q_packing: Packing,
        memory_packing: Packing,
        record: LayerRecord | None = None,
    ) -> Tensor:
        """Attend from packed queries ``[N, Kq]`` to packed ``memory`` ``[M, Kk]``: ``[N, Kk]``.

        Args:
            record: receives the weights, one ``[1, T_i, S_i]`` per sequence.
        """
        context, weights = self.padded(
            q_packing.pad(q), memory_packing.pad(memory), memory_packing.mask()
        )  # [B, T, Kk], [B, T, S]
        if record is not None:
            sizes = zip(weights, q_packing.lengths, memory_packing.lengths, strict=True)
            record.weights = tuple(w[None, :t, :s] for w, t, s in sizes)
        return context.flatten(0, 1)[q_packing.padded_rows]
