"""Sinusoidal, learned, rotary and relative positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError, ShapeError
from glassformer.nn.linear import uses_chunks
from glassformer.packing import Packing


def sinusoidal(length: int, d_model: int, base: float = 10_000.0) -> Tensor:
    """The fixed position vectors of Vaswani et al., 2017, section 3.5.

        PE(p, 2i) = sin(p / base^(2i / d_model))        PE(p, 2i + 1) = cos(p / base^(2i / d_model))

    The wavelengths run geometrically from 2 pi to about ``base`` * 2 pi. PE(p + k) is a linear map of PE(p):
    each pair (sin, cos) rotates by the angle k / base^(2i / d_model). If ``d_model`` is odd, the last feature
    is a sine.

    Returns:
        ``[length, d_model]``, fp32, values in [-1, 1].
    """
    table = torch.empty(length, d_model, dtype=torch.float64)
    if table.is_meta:  # a model built on the meta device
        return table.float()
    positions = torch.arange(length, dtype=torch.float64)[:, None]
    rates = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(base) / d_model))
    table[:, 0::2] = torch.sin(positions * rates)
    table[:, 1::2] = torch.cos(positions * rates[: d_model // 2])
    return table.float()


def shift_matrix(steps: int, d_model: int, base: float = 10_000.0) -> Tensor:
    """The matrix that shifts sinusoidal positions: ``shift_matrix(k, d) @ PE(p)`` is PE(p + k) for every p.

    It rotates the pairs (sin, cos). ``steps`` may be negative; ``d_model`` is even.

    Returns:
        ``[d_model, d_model]``, fp32.
    """
    angles = steps * base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    rotations = torch.stack([angles.cos(), angles.sin(), -angles.sin(), angles.cos()], 1).view(-1, 2, 2)
    return torch.block_diag(*rotations).float()


class SinusoidalPositions(nn.Module):
    """``sinusoidal`` as a module. The length is unlimited: the table grows with the longest sequence."""

    table: Tensor

    def __init__(self, d_model: int, length: int = 512):
        super().__init__()
        self.register_buffer("table", sinusoidal(length, d_model), persistent=False)

    def forward(self, packing: Packing) -> Tensor:  # [N, D]
        if packing.max_length > len(self.table):
            length = max(packing.max_length, 2 * len(self.table))
            self.table = sinusoidal(length, self.table.shape[1]).to(self.table)
        return self.table[packing.positions]


class LearnedPositions(nn.Embedding):
    """One trained vector per position.

    Args:
        offset: table row of the first position; earlier rows are unused.
        args, kwargs: other arguments of ``torch.nn.Embedding`` (``device``, ``dtype`` and so on).
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, *args: Any, offset: int = 0, **kwargs: Any):
        super().__init__(num_embeddings, embedding_dim, *args, **kwargs)
        self.offset, self.length = offset, num_embeddings - offset

    def forward(self, packing: Packing) -> Tensor:  # [N, D]
        if packing.max_length > self.length:
            raise ShapeError(
                f"a sequence has {packing.max_length} tokens, but the model has {self.length} positions",
                where="positions",
                fix=f"Cut to max_length={self.length}",
            )
        positions = packing.positions
        return super().forward(positions + self.offset if self.offset else positions)

    def vectors(self) -> Tensor:
        """The vectors of all positions ``[length, D]``."""
        return self.weight[self.offset :] if self.offset else self.weight


# --- rotary positions -----------------------------------------------------------------------------

ROTATED_ROWS = 512  # number of tokens that prediction rotates at a time, so that they fit into a cache


def rotary(
    length: int, width: int, base: float, factor: float = 1.0, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:
    """Cosines and sines ``[length, width]`` of the angles ``p / (factor base^(2i / width))``.

    Features i and i + width / 2 share an angle, as in ``transformers``; the paper (Su et al., 2021) pairs
    neighbors.
    """
    rates = 1.0 / base ** (torch.arange(0, width, 2, dtype=torch.float32, device=device) / width) / factor
    angles = torch.arange(length, dtype=torch.float32, device=device)[:, None] * rates
    angles = torch.cat([angles, angles], 1)
    return angles.cos(), angles.sin()


@lru_cache(maxsize=8)
def _rotary_table(
    length: int, width: int, base: float, factor: float, device: torch.device
) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False), torch.no_grad():
        return rotary(length, width, base, factor, device)


def apply_rotary(
    x: Tensor, positions: Tensor, longest: int, base: float, factor: float = 1.0, *, in_place: bool = False
) -> Tensor:
    """Rotate queries or keys ``[N, H, K]`` by the angles of their ``positions`` ``[N]``, in fp32.

    The score of a rotated query and a rotated key depends only on the distance of their positions.

    Args:
        longest: an exclusive upper bound of ``positions``.
        base, factor: see ``rotary``; positions are divided by the factor.
        in_place: whether the result may replace ``x``, which saves memory for long inputs in prediction.
    """
    # Lengths are rounded up, so that few tables are cached.
    length = 1 << max(longest - 1, 1).bit_length() if longest <= 4096 else -(-longest // 4096) * 4096
    cosines, sines = _rotary_table(length, x.shape[-1], base, factor, x.device)
    if not in_place or not uses_chunks(x, ROTATED_ROWS):
        return _rotate(x, cosines[positions][:, None], sines[positions][:, None])
    for part, pos in zip(x.split(ROTATED_ROWS), positions.split(ROTATED_ROWS), strict=True):
        part.copy_(_rotate(part, cosines[pos][:, None], sines[pos][:, None]))
    return x


def apply_rotary_padded(x: Tensor, base: float, factor: float = 1.0) -> Tensor:
    """Like ``apply_rotary``, for padded ``[B, H, T, K]`` with the positions 0 to T - 1."""
    cosines, sines = rotary(x.shape[-2], x.shape[-1], base, factor, x.device)
    return _rotate(x, cosines, sines)


def _rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    fp32 = x.float()
    first, second = fp32.chunk(2, -1)
    return (fp32 * cosines + torch.cat([-second, first], -1) * sines).to(x.dtype)


@dataclass(frozen=True)
class Learned:
    """Config of learned positions for ``length`` tokens; the first one is row ``offset`` of the table."""

    length: int = 512
    offset: int = 0

    def __post_init__(self) -> None:
        if self.length < 1 or self.offset < 0:
            what = f"learned positions cannot have length {self.length} and offset {self.offset}"
            raise ConfigError(what, where="positions", fix="Use length >= 1 and offset >= 0")

    def build(self, d_model: int) -> LearnedPositions:
        return LearnedPositions(self.length + self.offset, d_model, offset=self.offset)


@dataclass(frozen=True)
class Sinusoidal:
    """Config of sinusoidal positions, which have no maximum length."""

    def build(self, d_model: int) -> SinusoidalPositions:
        return SinusoidalPositions(d_model)


# --- relative positions ---------------------------------------------------------------------------
#
# A learned number for each distance and head, added to the attention scores.
#
#     softmax(Q K^T / sqrt(d_k) + B) V,  B[t, s] = table[bucket(s - t)]   Raffel et al., 2020 (T5), sect. 2.1
#
# Each short distance has its own bucket, and longer distances share buckets of logarithmic width. The bias of
# a head depends only on the distance, so it is stored as one row ``[2 L - 1]`` for the distances ``-(L - 1)``
# to ``L - 1``.


def bucket_bounds(buckets: int, furthest: int) -> tuple[int, ...]:
    """The smallest distance in each bucket of one direction, without the first bucket (distance 0).

    Half of the buckets have one distance each, half have logarithmic widths.

    Args:
        buckets: number of buckets of both directions, a multiple of 4.
        furthest: this distance and all longer distances share the last bucket.
    """
    half = buckets // 2
    num_single = half // 2  # buckets of one distance
    num_log = half - num_single  # buckets of logarithmic width
    ratio = furthest / num_single
    # 1e-6 keeps integers exact: 8 * 16 ** 0.25 is 16.000000000000004 in floating point.
    log_bounds = (math.ceil(num_single * ratio ** (k / num_log) - 1e-6) for k in range(1, num_log))
    return (*range(1, num_single + 1), *log_bounds)


class RelativeBias(nn.Embedding):
    """T5's relative position bias: a table ``[buckets, H]``, which stays in fp32 in every precision.

    Args:
        buckets: a multiple of 4; half of the buckets are for keys before the query.
        furthest: see ``bucket_bounds``.
        args, kwargs: other arguments of ``torch.nn.Embedding`` (``device``, ``dtype`` and so on).
    """

    def __init__(self, buckets: int, num_heads: int, furthest: int = 128, *args: Any, **kwargs: Any):
        if buckets < 4 or buckets % 4 or furthest <= buckets // 4:
            what = f"{buckets} buckets do not suit distances up to {furthest}"
            raise ConfigError(what, where="relative_buckets", fix="Use a multiple of 4, such as 32 for 128")
        super().__init__(buckets, num_heads, *args, **kwargs)
        self.starts = bucket_bounds(buckets, furthest)

    def forward(self, length: int) -> Tensor:
        """The bias ``[H, 2 * length - 1]`` for the distances ``-(length - 1)`` to ``length - 1``."""
        distances = torch.arange(1 - length, length, device=self.weight.device)
        starts = torch.tensor(self.starts, device=distances.device)
        bucket = (distances.abs()[:, None] >= starts).sum(1)  # integers only: exact on every machine
        bucket = bucket + (distances > 0) * (self.num_embeddings // 2)
        return super().forward(bucket).T

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Let ``.to`` move the table to another device, but not to a smaller dtype."""

        def move(x: Tensor) -> Tensor:
            out = fn(x)
            return out if out.dtype.itemsize >= x.dtype.itemsize else x.to(out.device)

        return super()._apply(move, recurse)


def check_bias(
    bias: Tensor, heads: int, q_packing: Packing, kv_packing: Packing, causal: bool, scale: float
) -> None:
    """Raise ShapeError or ConfigError if a relative bias and this attention are incompatible."""
    longest = max(q_packing.max_length, kv_packing.max_length)
    if bias.ndim != 2 or len(bias) != heads or bias.shape[1] % 2 == 0 or bias.shape[1] < 2 * longest - 1:
        what = f"the bias has shape {tuple(bias.shape)}, but there are {heads} heads and {longest} positions"
        raise ShapeError(
            what, where="attend", fix=f"Use [{heads}, {2 * longest - 1}], one number per distance"
        )
    if causal and q_packing.lengths != kv_packing.lengths:
        what = "a causal bias needs as many queries as keys"
        raise ConfigError(what, where="attend", fix="Use causal=False, or as many queries as keys")
    if scale == 0:
        raise ConfigError("a bias requires a scale other than 0", where="attend", fix="Use another scale")


def expand_bias(by_distance: Tensor, rows: int, columns: int) -> Tensor:
    """The bias of each query and key: ``[H, 2 L - 1]`` -> ``[H, T, S]``.

    Positions beyond L, which are padding, use the largest distance.
    """
    return by_distance[:, distance_index(by_distance, rows, columns)]


def distance_index(by_distance: Tensor, rows: int, columns: int) -> Tensor:
    """``[T, S]`` int64: the column of ``by_distance`` for query t and key s."""
    furthest = by_distance.shape[1] // 2
    keys = torch.arange(columns, device=by_distance.device)
    queries = torch.arange(rows, device=by_distance.device)
    return (keys - queries[:, None]).clamp(-furthest, furthest) + furthest
