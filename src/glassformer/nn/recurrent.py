"""Recurrent layers over packed rows: no padding is computed on, and no sequence sees another's state.

torch's recurrent kernels want rows by time: all first tokens, then all second ones ... (``PackedSequence``).
``time_major`` says how the rows of a packed batch go there and back.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from glassformer.errors import ConfigError
from glassformer.packing import Packing

Cell = Literal["lstm", "gru"]
State = tuple[Tensor, ...]  # (h,) of a GRU, (h, c) of an LSTM; each [layers, B, D]


@lru_cache(maxsize=8)
def time_major(packing: Packing) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``order`` [N], ``batch_sizes`` [T], ``longest_first`` [B] and its inverse [B].

    ``rows[order]`` is the batch by time; ``batch_sizes[t]`` sequences have a token at time t.
    """
    with torch.inference_mode(False):
        lengths = packing.length_tensor
        longest_first = torch.argsort(lengths, descending=True, stable=True)
        rank = torch.argsort(longest_first)
        order = torch.argsort(packing.positions * packing.count + rank[packing.sequence_ids])
        times = torch.arange(packing.max_length, device=lengths.device)
        batch_sizes = (lengths[None, :] > times[:, None]).sum(1).cpu()
        return order, batch_sizes, longest_first, rank


class PackedRNN(nn.Module):
    """An LSTM or a GRU over packed rows.

    Raises:
        ConfigError: a cell that is neither.
    """

    def __init__(
        self,
        cell: Cell,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        if cell not in ("lstm", "gru"):
            raise ConfigError(f"no recurrent cell {cell!r}", where="cell", fix="Use lstm or gru")
        kind = nn.LSTM if cell == "lstm" else nn.GRU
        self.rnn = kind(
            input_size,
            hidden_size,
            num_layers,
            bidirectional=bidirectional,
            dropout=dropout if num_layers > 1 else 0.0,  # between layers, as torch has it
        )

    def forward(self, x: Tensor, packing: Packing, state: State | None = None) -> tuple[Tensor, State]:
        """``[N, D]`` -> the states of all rows ``[N, hidden * directions]``, and the last ones.

        Args:
            state: where each sequence starts, ``[layers * directions, B, hidden]`` each; None: at 0.
        """
        order, batch_sizes, longest_first, rank = time_major(packing)
        by_time = PackedSequence(x[order], batch_sizes, longest_first, rank)
        start = None if state is None else (state if len(state) == 2 else state[0])
        out, last = self.rnn(by_time, start)
        rows = torch.empty_like(out.data).index_copy(0, order, out.data)
        return rows, last if isinstance(last, tuple) else (last,)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One token of every sequence: ``[R, D]`` -> ``[R, hidden]`` and the new state."""
        out, last = self.rnn(x[None], state if len(state) == 2 else state[0])
        return out[0], last if isinstance(last, tuple) else (last,)
