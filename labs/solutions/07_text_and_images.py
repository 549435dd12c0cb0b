"""Solutions of lab 7."""

import torch
from torch import Tensor

from glassformer.nn import attend_local
from glassformer.packing import Packing


def scores_of(size: int, patch: int, heads: int = 12, layers: int = 12) -> int:
    """One [CLS] and (size / patch)² patches, each against each."""
    tokens = 1 + (size // patch) ** 2
    return layers * heads * tokens**2


def local_pairs(length: int, window: int) -> int:
    """Each row sees itself, and up to ``window`` rows on either side that exist."""
    return sum(min(i, window) + 1 + min(length - 1 - i, window) for i in range(length))


def both_orders(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, int, int]:
    """(QKᵀ)V and Q(KᵀV) of ``[T, K]``, ``[T, K]``, ``[T, V]``, and the multiplications of either: T²(K+V) and 2TKV."""
    t, d = q.shape
    return (q @ k.T) @ v, q @ (k.T @ v), t * t * (d + v.shape[1]), 2 * t * d * v.shape[1]


def test() -> None:
    assert scores_of(224, 16) == 144 * 197**2
    assert scores_of(224, 8) == 144 * 785**2
    assert local_pairs(6, 5) == 36  # sees all
    q = torch.randn(6, 1, 1)
    seen = sum(int((attend_local(q, q, torch.eye(6)[:, None], Packing((6,)), 2) > 0).sum()) for _ in range(1))
    assert local_pairs(6, 2) == seen
    first, second, many, few = both_orders(
        torch.randn(9, 4).double(), torch.randn(9, 4).double(), torch.randn(9, 4).double()
    )
    assert torch.allclose(first, second)
    assert few < many
