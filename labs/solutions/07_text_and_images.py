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
    """Each row sees itself, and up to ``window`` rows on either side that exist: T (2w + 1) - w (w + 1) pairs for w < T,
    half of T² at about w = (1 - 1/√2) T = 0.29 T.
    """
    return sum(min(i, window) + 1 + min(length - 1 - i, window) for i in range(length))


def both_orders(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, int, int]:
    """(QKᵀ)V and Q(KᵀV) of ``[T, d]``, ``[T, d]``, ``[T, e]``, and the multiplications of either: T²(d + e) and 2Tde."""
    t, d = q.shape
    return (q @ k.T) @ v, q @ (k.T @ v), t * t * (d + v.shape[1]), 2 * t * d * v.shape[1]


def test() -> None:
    assert scores_of(224, 16) == 144 * 197**2
    assert scores_of(224, 8) == 144 * 785**2
    assert local_pairs(6, 5) == 36  # sees all
    q = torch.randn(6, 1, 1)
    seen = sum(int((attend_local(q, q, torch.eye(6)[:, None], Packing((6,)), 2) > 0).sum()) for _ in range(1))
    assert local_pairs(6, 2) == seen == 6 * 5 - 2 * 3
    assert abs(local_pairs(1000, 293) / 1000**2 - 0.5) < 1e-3
    first, second, many, few = both_orders(
        torch.randn(9, 4).double(), torch.randn(9, 4).double(), torch.randn(9, 4).double()
    )
    assert torch.allclose(first, second)
    assert few < many
