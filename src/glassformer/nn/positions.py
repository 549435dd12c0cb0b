"""Where a token stands: sinusoidal and learned position vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

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
