"""Recurrent layers over packed rows: no padding is computed on, and no sequence sees another's state.

Recurrent kernels want rows by time: all first tokens, then all second ones ... (torch's ``PackedSequence``).
``time_major`` says how the rows of a packed batch go there and back. Where gradients are wanted on a
processor the loops are those of ``scan.py``; elsewhere torch's, as fast or faster when nothing goes back.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from glassformer.errors import ConfigError
from glassformer.nn.dropout import usual_dropout
from glassformer.nn.scan import GruScan, LstmScan, Slices, slices_of
from glassformer.packing import Packing
from glassformer.runtime import is_exporting

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
        if x.device.type == "cpu" and torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu"):
            sorted_state = None if state is None else tuple(part[:, longest_first] for part in state)
            data, last = self._scan(x[order], batch_sizes.tolist(), sorted_state)
            last = tuple(part[:, rank] for part in last)
        else:
            start = None if state is None else (state if len(state) == 2 else state[0])
            if x.is_cuda:
                self.rnn.flatten_parameters()  # cuDNN would gather them at each call of a copied module
            # cuDNN gives no gradients in evaluation, which explanations ask for.
            own = x.is_cuda and torch.is_grad_enabled() and not self.training
            with torch.backends.cudnn.flags(enabled=False) if own else nullcontext():
                out, last = self.rnn(PackedSequence(x[order], batch_sizes, longest_first, rank), start)
            data, last = out.data, last if isinstance(last, tuple) else (last,)
        return torch.empty_like(data).index_copy(0, order, data), last

    def _scan(self, x: Tensor, batch_sizes: list[int], state: State | None) -> tuple[Tensor, State]:
        """All layers over rows by time ``[N, D]``; ``state``, given and returned, has the longest first."""
        rnn = self.rnn
        directions = 2 if rnn.bidirectional else 1
        times = [slices_of(batch_sizes, backwards) for backwards in (False, True)[:directions]]
        if state is None:
            zeros = x.new_zeros(rnn.num_layers * directions, batch_sizes[0], rnn.hidden_size)
            state = (zeros,) * (2 if rnn.mode == "LSTM" else 1)
        ends = []
        for layer in range(rnn.num_layers):
            if layer:
                x = usual_dropout(x, rnn.dropout, self.training)
            outs = []
            for direction, name in enumerate(("", "_reverse")[:directions]):
                start = tuple(part[layer * directions + direction] for part in state)
                out, *last = self._direction(x, f"l{layer}{name}", start, times[direction])
                outs.append(out)
                ends.append(last)
            x = torch.cat(outs, 1) if directions == 2 else outs[0]
        return x, tuple(torch.stack(parts) for parts in zip(*ends, strict=True))

    def _direction(self, x: Tensor, name: str, start: State, times: Slices) -> tuple[Tensor, ...]:
        """One direction of one layer: ``[N, D]`` -> ``[N, hidden]`` and the last state of each sequence."""
        of_input, of_state, input_bias, state_bias = (
            getattr(self.rnn, f"{kind}_{name}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        if self.rnn.mode == "LSTM":
            products = F.linear(x, of_input, input_bias + state_bias)
            return LstmScan.apply(products, of_state, *start, times)
        return GruScan.apply(F.linear(x, of_input, input_bias), of_state, state_bias, *start, times)

    def padded(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same over padded rows ``[B, T, D]`` with their mask ``[B, T]``, for graphs.

        Returns:
            States ``[B, T, hidden * directions]``, the real ones first; the last hidden state of each
            direction, ``[layers * directions, B, hidden]``; which states are real, ``[B, T]``.
        """
        lengths = mask.sum(1)  # [B]
        real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        if not is_exporting():
            packing = Packing(tuple(lengths.tolist()), x.device)
            rows, (last, *_) = self(x[mask], packing)
            states = rows.new_zeros(*x.shape[:2], rows.shape[1])
            states[real] = rows
            return states, last, real
        # Padding may stand on either side: the real rows go to the front, the others behind them.
        place = torch.where(mask, mask.long().cumsum(1) - 1, lengths[:, None] + (~mask).long().cumsum(1) - 1)
        x = torch.zeros_like(x).scatter(1, place[:, :, None].expand_as(x), x)
        lasts = []
        for layer in range(self.rnn.num_layers):
            x, last = self._drawn(x, lengths.int(), layer)
            lasts.append(last)
        return x, torch.cat(lasts), real

    def _drawn(self, x: Tensor, lengths: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """One layer as ONNX's own operator: torch's has no free length in a graph."""
        rnn = self.rnn
        names = [f"l{layer}{end}" for end in ("", "_reverse")[: 2 if rnn.bidirectional else 1]]
        gates = (0, 3, 1, 2) if rnn.mode == "LSTM" else (1, 0, 2)  # ONNX's order of torch's

        def drawn(kind: str) -> Tensor:
            parts = [getattr(rnn, f"{kind}_{name}").chunk(len(gates)) for name in names]
            return torch.stack([torch.cat([part[g] for g in gates]) for part in parts])

        bias = torch.cat([drawn("bias_ih"), drawn("bias_hh")], 1)
        attrs: dict[str, Any] = {"hidden_size": rnn.hidden_size}
        attrs["direction"] = "bidirectional" if rnn.bidirectional else "forward"
        if rnn.mode == "GRU":
            attrs["linear_before_reset"] = 1  # as torch computes it
        batch, length, directions = x.shape[0], x.shape[1], len(names)
        states, last = torch.onnx.ops.symbolic_multi_out(
            rnn.mode,
            (x.transpose(0, 1), drawn("weight_ih"), drawn("weight_hh"), bias, lengths),
            attrs,
            dtypes=(x.dtype, x.dtype),
            shapes=((length, directions, batch, rnn.hidden_size), (directions, batch, rnn.hidden_size)),
        )  # [T, directions, B, hidden], [directions, B, hidden]
        return states.permute(2, 0, 1, 3).flatten(2), last

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One token of every sequence: ``[R, D]`` -> ``[R, hidden]`` and the new state."""
        out, last = self.rnn(x[None], state if len(state) == 2 else state[0])
        return out[0], last if isinstance(last, tuple) else (last,)
