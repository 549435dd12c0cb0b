"""Where a token stands: sinusoidal and learned position vectors, and relative positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError, ShapeError
from glassformer.packing import Packing


def sinusoidal(length: int, d_model: int, base: float = 10_000.0) -> Tensor:
    """The fixed position vectors of Vaswani et al., 2017, section 3.5.

        PE(p, 2i) = sin(p / base^(2i / d_model))        PE(p, 2i + 1) = cos(p / base^(2i / d_model))

    The wavelengths run geometrically from 2 pi towards ``base`` * 2 pi. PE(p + k) is a linear map of PE(p):
    each pair (sin, cos) turns by the angle k / base^(2i / d_model). An odd ``d_model`` ends on a sine.

    Returns:
        ``[length, d_model]``, fp32, values in [-1, 1].
    """
    if (
        table := torch.empty(length, d_model, dtype=torch.float64)
    ).is_meta:  # a model's outline: nothing to compute
        return table.float()
    places = torch.arange(length, dtype=torch.float64)[:, None]
    rates = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(base) / d_model))
    table[:, 0::2] = torch.sin(places * rates)
    table[:, 1::2] = torch.cos(places * rates[: d_model // 2])
    return table.float()


def shift_matrix(steps: int, d_model: int, base: float = 10_000.0) -> Tensor:
    """The map that moves sinusoidal positions on: ``shift_matrix(k, d) @ PE(p)`` is PE(p + k), for every p.

    Rotations of the pairs (sin, cos), from the addition theorems; ``steps`` may be < 0, ``d_model`` is even.

    Returns:
        ``[d_model, d_model]``, fp32.
    """
    angles = steps * base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    turns = torch.stack([angles.cos(), angles.sin(), -angles.sin(), angles.cos()], 1).view(-1, 2, 2)
    return torch.block_diag(*turns).float()


class SinusoidalPositions(nn.Module):
    """``sinusoidal`` as a module; the table grows with the longest text seen, so no length is too long."""

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
    """One trained vector per place.

    Args:
        offset: the row of the first place; the rows before it stand for none.
        rest, embedding: as ``torch.nn.Embedding`` takes them (``device``, ``dtype`` and so on).

    Raises:
        ShapeError: a sequence longer than the table.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, *rest: Any, offset: int = 0, **embedding: Any
    ):
        super().__init__(num_embeddings, embedding_dim, *rest, **embedding)
        self.offset, self.length = offset, num_embeddings - offset

    def forward(self, packing: Packing) -> Tensor:  # places, not ids  # [N, D]
        if packing.max_length > self.length:
            raise ShapeError(
                f"a sequence of {packing.max_length} tokens, but the model knows {self.length} positions",
                where="positions",
                fix=f"Cut to max_length={self.length}",
            )
        places = packing.positions
        return super().forward(places + self.offset if self.offset else places)

    def places(self) -> Tensor:
        """The vector of each place ``[length, D]``, for padded input."""
        return self.weight[self.offset :] if self.offset else self.weight


# --- rotary positions -----------------------------------------------------------------------------


def rotary(length: int, width: int, base: float, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles ``p / base^(2i / width)`` (Su et al., 2021), each ``[length, width]``.

    Numbers i and i + width / 2 of a row share an angle, as in ``transformers``; the paper pairs neighbors.
    """
    rates = 1.0 / base ** (torch.arange(0, width, 2, dtype=torch.float32, device=device) / width)
    angles = torch.arange(length, dtype=torch.float32, device=device)[:, None] * rates
    angles = torch.cat([angles, angles], 1)
    return angles.cos(), angles.sin()


@lru_cache(maxsize=8)
def _rotary_table(length: int, width: int, base: float, device: torch.device) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False), torch.no_grad():
        return rotary(length, width, base, device)


def turned(x: Tensor, places: Tensor, longest: int, base: float) -> Tensor:
    """Queries or keys ``[N, H, K]``, each pair of their numbers turned by the angle of its place ``[N]``.

    The score of two turned rows depends on the distance of their places alone. Computed in fp32.

    Args:
        longest: above every place.
    """
    length = 1 << max(longest - 1, 1).bit_length()  # few tables serve all lengths
    cosines, sines = _rotary_table(length, x.shape[-1], base, x.device)
    return _turn(x, cosines[places][:, None], sines[places][:, None])


def turned_padded(x: Tensor, base: float) -> Tensor:
    """The same of ``[B, H, T, K]``, whose places are 0 to T - 1; for graphs."""
    cosines, sines = rotary(x.shape[-2], x.shape[-1], base, x.device)
    return _turn(x, cosines, sines)


def _turn(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    wide = x.float()
    first, second = wide.chunk(2, -1)
    return (wide * cosines + torch.cat([-second, first], -1) * sines).to(x.dtype)


@dataclass(frozen=True)
class Learned:
    """Trained positions for ``length`` tokens, which begin at row ``offset`` of their table.

    Raises:
        ConfigError: no room for a token, or a row before the first.
    """

    length: int = 512
    offset: int = 0

    def __post_init__(self) -> None:
        if self.length < 1 or self.offset < 0:
            what = f"positions for {self.length} tokens from row {self.offset} on"
            raise ConfigError(what, where="positions", fix="Use a length from 1 and an offset from 0 on")

    def build(self, d_model: int) -> LearnedPositions:
        return LearnedPositions(self.length + self.offset, d_model, offset=self.offset)


@dataclass(frozen=True)
class Sinusoidal:
    """Fixed positions for texts of any length."""

    def build(self, d_model: int) -> SinusoidalPositions:
        return SinusoidalPositions(d_model)


# --- relative positions ---------------------------------------------------------------------------
#
# A learned number for each distance and head, added to the scores of attention.
#
#     softmax(Q K^T / sqrt(d_k) + B) V,  B[t, s] = table[bucket(s - t)]   Raffel et al., 2020 (T5), sect. 2.1
#
# Short distances have a bucket each; longer ones share buckets that widen with their logarithm. The bias of
# a head depends on the distance alone, so it is handed on as one row ``[2 L - 1]``: the distances from
# ``-(L - 1)`` to ``L - 1``. Distances count from the first token of each sequence: packing changes none.


def bucket_starts(buckets: int, furthest: int) -> tuple[int, ...]:
    """The least distance of each bucket of one direction but the first: half are exact, half logarithmic.

    Args:
        buckets: of both directions together, a multiple of 4.
        furthest: from this distance on all share the last bucket.
    """
    half = buckets // 2
    exact = half // 2
    ratio = furthest / exact
    # The small number keeps whole results whole: 8 * 16 ** 0.25 is 16.000000000000004 in binary.
    wide = (math.ceil(exact * ratio ** (k / (half - exact)) - 1e-6) for k in range(1, half - exact))
    return (*range(1, exact + 1), *wide)


class RelativeBias(nn.Embedding):
    """The table ``[buckets, H]``: a number for each bucket and head. It stays in fp32 in every precision.

    Args:
        buckets: a multiple of 4; half of them for keys before the query.
        furthest: see ``bucket_starts``.
        rest, embedding: as ``torch.nn.Embedding`` takes them (``device``, ``dtype`` and so on).

    Raises:
        ConfigError: another number of buckets, or a distance that the exact buckets reach already.
    """

    def __init__(self, buckets: int, num_heads: int, furthest: int = 128, *rest: Any, **embedding: Any):
        if buckets < 4 or buckets % 4 or furthest <= buckets // 4:
            what = f"{buckets} buckets for distances up to {furthest}"
            raise ConfigError(what, where="relative_buckets", fix="Use a multiple of 4, such as 32 for 128")
        super().__init__(buckets, num_heads, *rest, **embedding)
        self.starts = bucket_starts(buckets, furthest)

    def forward(self, length: int) -> Tensor:
        """``[H, 2 * length - 1]``, for ``attend``: distances ``-(length - 1)`` to ``length - 1``."""
        distances = torch.arange(1 - length, length, device=self.weight.device)
        starts = torch.tensor(self.starts, device=distances.device)
        bucket = (distances.abs()[:, None] >= starts).sum(1)  # whole numbers only: exact on every machine
        bucket = bucket + (distances > 0) * (self.num_embeddings // 2)
        return super().forward(bucket).T

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What ``.to`` calls: the table moves to other devices, and never to a narrower format."""

        def moved(x: Tensor) -> Tensor:
            out = fn(x)
            return out if out.dtype.itemsize >= x.dtype.itemsize else x.to(out.device)

        return super()._apply(moved, recurse)


def check_bias(
    bias: Tensor, heads: int, q_packing: Packing, kv_packing: Packing, causal: bool, scale: float
) -> None:
    """Raises ShapeError or ConfigError where a bias by distance does not fit what it is to be added to."""
    longest = max(q_packing.max_length, kv_packing.max_length)
    if bias.ndim != 2 or len(bias) != heads or bias.shape[1] % 2 == 0 or bias.shape[1] < 2 * longest - 1:
        what = f"a bias {tuple(bias.shape)} for {heads} heads and {longest} places"
        raise ShapeError(
            what, where="attend", fix=f"Use [{heads}, {2 * longest - 1}], a number each distance"
        )
    if causal and q_packing.lengths != kv_packing.lengths:
        what = "a causal bias with more keys than queries, whose distances are not known"
        raise ConfigError(what, where="attend", fix="Use causal=False, or as many queries as keys")
    if scale == 0:
        raise ConfigError("a bias on scores that the scale makes 0", where="attend", fix="Use another scale")


def spread(by_distance: Tensor, rows: int, columns: int) -> Tensor:
    """``[H, 2 L - 1]`` -> the bias ``[H, T, S]`` of query t and key s, counted from their sequence's first.

    Places beyond L, which are padding, repeat the furthest distance.
    """
    return by_distance[:, places(by_distance, rows, columns)]


def places(by_distance: Tensor, rows: int, columns: int) -> Tensor:
    """``[T, S]`` int64: where in ``by_distance`` the bias of query t and key s stands."""
    furthest = by_distance.shape[1] // 2
    keys = torch.arange(columns, device=by_distance.device)
    queries = torch.arange(rows, device=by_distance.device)
    return (keys - queries[:, None]).clamp(-furthest, furthest) + furthest
