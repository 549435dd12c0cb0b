"""LSTM and GRU layers over packed sequences, without computing on padding.

Recurrent kernels need tokens sorted by time: all first tokens, then all second tokens, and so on (torch's
``PackedSequence``). ``time_major`` returns the permutation. With gradients on a CPU, the loops below are
used, because they are faster than torch's loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from glassformer.errors import ConfigError
from glassformer.nn.dropout import torch_dropout
from glassformer.packing import Packing
from glassformer.runtime import is_exporting

# --- loops over time ------------------------------------------------------------------------------
#
# In its backward pass, torch's loop copies the input products of the whole batch at each time step and sums
# the gradient of the recurrent weight step by step. The loops below compute only recurrent products step by
# step. They compute all input products before the loop and the gradient of the weight after it, with the
# equations and weights of ``torch.nn.LSTM`` (Hochreiter and Schmidhuber, 1997) and ``torch.nn.GRU`` (Cho et
# al., 2014).
#
# Rows are tokens, sorted by time: ``batch_sizes[t]`` sequences have a token at time t, the longest first.


Slices = list[tuple[int, int]]  # first row and number of rows of each time step, in the order of computation


def time_slices(batch_sizes: Sequence[int], backwards: bool) -> Slices:
    """First row and number of rows of each time step; ``backwards``: from last to first."""
    starts = [0, *accumulate(batch_sizes)]
    order = list(zip(starts, batch_sizes))
    return order[::-1] if backwards else order


def _check_first_order() -> None:
    """Raise RuntimeError under ``create_graph``: these backward passes are not differentiable."""
    if torch.is_grad_enabled():
        raise RuntimeError("LSTM and GRU have no second derivatives on a CPU; use torch.nn.LSTM or GRU")


class GruScan(torch.autograd.Function):
    """One direction of a GRU layer. With x the input products and p the products of the previous state:

    r, z = sigmoid(x_r + p_r), sigmoid(x_z + p_z);  n = tanh(x_n + r p_n);  h' = (1 - z) n + z h
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, start: Tensor, times: Slices) -> tuple:
        """Input products ``[N, 3 H]`` -> states ``[N, H]`` and final states ``[B, H]``.

        Args:
            weight, bias: recurrent weight ``[3 H, H]`` and bias ``[3 H]``.
            start: initial states ``[B, H]``.
        """
        width = weight.shape[1]
        previous, states, n = (x.new_empty(len(x), width) for _ in range(3))
        products, rz = torch.empty_like(x), x.new_empty(len(x), 2 * width)
        state, weight_t = start.clone(), weight.t()
        for row, count in times:
            rows = slice(row, row + count)
            h = state[:count]
            previous[rows] = h
            p = torch.addmm(bias, h, weight_t, out=products[rows])  # [b, 3 H]
            torch.add(x[rows, : 2 * width], p[:, : 2 * width], out=rz[rows]).sigmoid_()
            torch.addcmul(x[rows, 2 * width :], rz[rows, :width], p[:, 2 * width :], out=n[rows]).tanh_()
            torch.lerp(n[rows], h, rz[rows, width:], out=h)
            states[rows] = h
        ctx.save_for_backward(weight, previous, rz, n, products)
        ctx.times = times
        return states, state

    @staticmethod
    def backward(ctx: Any, grad_states: Tensor, grad_last: Tensor) -> tuple:
        _check_first_order()
        weight, previous, rz, n, products = ctx.saved_tensors
        width = weight.shape[1]
        r, z = rz.split(width, 1)
        # The derivatives of the gates need no loop.
        slope_n = (1 - z).mul_(1 - n * n)
        slope_z = (previous - n).mul_(z).mul_(1 - z)
        slope_r = r.mul(1 - r).mul_(products[:, 2 * width :])
        grad_p = torch.empty_like(products)
        grad_n = torch.empty_like(previous)
        grad_state = grad_last.clone()
        for row, count in reversed(ctx.times):
            rows = slice(row, row + count)
            grad_h = grad_state[:count].add_(grad_states[rows])
            torch.mul(grad_h, slope_n[rows], out=grad_n[rows])
            torch.mul(grad_n[rows], slope_r[rows], out=grad_p[rows, :width])
            torch.mul(grad_h, slope_z[rows], out=grad_p[rows, width : 2 * width])
            torch.mul(grad_n[rows], r[rows], out=grad_p[rows, 2 * width :])
            torch.addmm(grad_h * z[rows], grad_p[rows], weight, out=grad_state[:count])
        grad_weight, grad_bias = grad_p.t() @ previous, grad_p.sum(0)
        grad_x = grad_p
        grad_x[:, 2 * width :] = grad_n
        return grad_x, grad_weight, grad_bias, grad_state, None


class LstmScan(torch.autograd.Function):
    """One direction of an LSTM layer. With a the sum of input products and products of the previous state:

    i, f, o = sigmoid(a_i), sigmoid(a_f), sigmoid(a_o);  g = tanh(a_g);  c' = f c + i g;  h' = o tanh(c')
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, start: Tensor, cell: Tensor, times: Slices) -> tuple:
        """Input products with biases ``[N, 4 H]`` -> states ``[N, H]``, final states and cells ``[B, H]``.

        Args:
            weight: recurrent weight ``[4 H, H]``.
            start, cell: initial states and cells ``[B, H]``.
        """
        width = weight.shape[1]
        previous, previous_cells, states, tanh_cell = (x.new_empty(len(x), width) for _ in range(4))
        gates = torch.empty_like(x)  # i, f, g and o
        state, cell, weight_t = start.clone(), cell.clone(), weight.t()
        for row, count in times:
            rows = slice(row, row + count)
            h, c, gate = state[:count], cell[:count], gates[rows]
            previous[rows], previous_cells[rows] = h, c
            torch.addmm(x[rows], h, weight_t, out=gate)
            gate[:, : 2 * width].sigmoid_()
            gate[:, 2 * width : 3 * width].tanh_()
            gate[:, 3 * width :].sigmoid_()
            i, f, g, o = gate.split(width, 1)
            c.mul_(f).addcmul_(i, g)
            torch.tanh(c, out=tanh_cell[rows])
            torch.mul(o, tanh_cell[rows], out=states[rows])
            state[:count] = states[rows]
        ctx.save_for_backward(weight, previous, previous_cells, gates, tanh_cell)
        ctx.times = times
        return states, state, cell

    @staticmethod
    def backward(ctx: Any, grad_states: Tensor, grad_last: Tensor, grad_cell: Tensor) -> tuple:
        _check_first_order()
        weight, previous, previous_cells, gates, tanh_cell = ctx.saved_tensors
        width = weight.shape[1]
        i, f, g, o = gates.split(width, 1)
        slope_c = o * (1 - tanh_cell * tanh_cell)
        slopes = torch.cat(
            [g * i * (1 - i), previous_cells * f * (1 - f), i * (1 - g * g), tanh_cell * o * (1 - o)], 1
        )
        grad_a = torch.empty_like(gates)
        grad_state, grad_cells = grad_last.clone(), grad_cell.clone()
        for row, count in reversed(ctx.times):
            rows = slice(row, row + count)
            grad_h = grad_state[:count].add_(grad_states[rows])
            grad_c = grad_cells[:count].addcmul_(grad_h, slope_c[rows])
            a = grad_a[rows]
            torch.mul(
                slopes[rows, : 3 * width].unflatten(1, (3, width)),
                grad_c[:, None],
                out=a[:, : 3 * width].unflatten(1, (3, width)),
            )
            torch.mul(slopes[rows, 3 * width :], grad_h, out=a[:, 3 * width :])
            grad_c.mul_(f[rows])
            torch.mm(a, weight, out=grad_state[:count])
        return grad_a, grad_a.t() @ previous, grad_state, grad_cells, None


# --- layers ---------------------------------------------------------------------------------------


Cell = Literal["lstm", "gru"]
State = tuple[Tensor, ...]  # GRU: (h,), LSTM: (h, c); each [layers, B, D]


@lru_cache(maxsize=8)
def time_major(packing: Packing) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``order`` [N], ``batch_sizes`` [T], ``longest_first`` [B] and its inverse [B].

    ``rows[order]`` is the batch sorted by time; ``batch_sizes[t]`` sequences have a token at time t.
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
    """An LSTM or a GRU over packed sequences.

    Raises:
        ConfigError: the cell is unknown.
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
            raise ConfigError(f"unknown recurrent cell {cell!r}", where="cell", fix="Use lstm or gru")
        rnn_class = nn.LSTM if cell == "lstm" else nn.GRU
        self.rnn = rnn_class(
            input_size,
            hidden_size,
            num_layers,
            bidirectional=bidirectional,
            dropout=dropout if num_layers > 1 else 0.0,  # between layers, as in torch
        )

    def forward(self, x: Tensor, packing: Packing, state: State | None = None) -> tuple[Tensor, State]:
        """``[N, D]`` -> hidden states ``[N, hidden * directions]`` and the final state.

        Args:
            state: initial state, tensors ``[layers * directions, B, hidden]``; None: zeros.
        """
        order, batch_sizes, longest_first, rank = time_major(packing)
        if x.device.type == "cpu" and torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu"):
            sorted_state = None if state is None else tuple(part[:, longest_first] for part in state)
            data, last = self._scan(x[order], batch_sizes.tolist(), sorted_state)
            last = tuple(part[:, rank] for part in last)
        else:
            start = None if state is None else (state if len(state) == 2 else state[0])
            if x.is_cuda:
                self.rnn.flatten_parameters()  # otherwise cuDNN copies the weights at each call
            # cuDNN has no gradients in evaluation mode, which explanations need.
            avoid_cudnn = x.is_cuda and torch.is_grad_enabled() and not self.training
            with torch.backends.cudnn.flags(enabled=False) if avoid_cudnn else nullcontext():
                out, last = self.rnn(PackedSequence(x[order], batch_sizes, longest_first, rank), start)
            data, last = out.data, last if isinstance(last, tuple) else (last,)
        return torch.empty_like(data).index_copy(0, order, data), last

    def _scan(self, x: Tensor, batch_sizes: list[int], state: State | None) -> tuple[Tensor, State]:
        """All layers over rows sorted by time ``[N, D]``; states have the longest sequence first."""
        rnn = self.rnn
        directions = 2 if rnn.bidirectional else 1
        times = [time_slices(batch_sizes, backwards) for backwards in (False, True)[:directions]]
        if state is None:
            zeros = x.new_zeros(rnn.num_layers * directions, batch_sizes[0], rnn.hidden_size)
            state = (zeros,) * (2 if rnn.mode == "LSTM" else 1)
        final_states = []
        for layer in range(rnn.num_layers):
            if layer:
                x = torch_dropout(x, rnn.dropout, self.training)
            outs = []
            for direction, name in enumerate(("", "_reverse")[:directions]):
                start = tuple(part[layer * directions + direction] for part in state)
                out, *last = self._direction(x, f"l{layer}{name}", start, times[direction])
                outs.append(out)
                final_states.append(last)
            x = torch.cat(outs, 1) if directions == 2 else outs[0]
        return x, tuple(torch.stack(parts) for parts in zip(*final_states, strict=True))

    def _direction(self, x: Tensor, name: str, start: State, times: Slices) -> tuple[Tensor, ...]:
        """One direction of one layer: ``[N, D]`` -> ``[N, hidden]`` and the final state."""
        input_weight, state_weight, input_bias, state_bias = (
            getattr(self.rnn, f"{kind}_{name}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        if self.rnn.mode == "LSTM":
            products = F.linear(x, input_weight, input_bias + state_bias)
            return LstmScan.apply(products, state_weight, *start, times)
        products = F.linear(x, input_weight, input_bias)
        return GruScan.apply(products, state_weight, state_bias, *start, times)

    def padded(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Like ``forward``, for padded ``[B, T, D]`` with a mask ``[B, T]``, for exported graphs.

        Returns:
            States ``[B, T, hidden * directions]``, with padding moved to the end; final hidden states
            ``[layers * directions, B, hidden]``; the mask of the returned states, ``[B, T]``.
        """
        lengths = mask.sum(1)  # [B]
        token_mask = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        if not is_exporting():
            packing = Packing(tuple(lengths.tolist()), x.device)
            rows, (last, *_) = self(x[mask], packing)
            states = rows.new_zeros(*x.shape[:2], rows.shape[1])
            states[token_mask] = rows
            return states, last, token_mask
        # Padding may be on either side; it is moved to the end.
        index = torch.where(mask, mask.long().cumsum(1) - 1, lengths[:, None] + (~mask).long().cumsum(1) - 1)
        x = torch.zeros_like(x).scatter(1, index[:, :, None].expand_as(x), x)
        final_states = []
        for layer in range(self.rnn.num_layers):
            x, last = self._onnx_layer(x, lengths.int(), layer)
            final_states.append(last)
        return x, torch.cat(final_states), token_mask

    def _onnx_layer(self, x: Tensor, lengths: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """One layer as an ONNX operator, because torch's own export fixes the sequence length."""
        rnn = self.rnn
        names = [f"l{layer}{end}" for end in ("", "_reverse")[: 2 if rnn.bidirectional else 1]]
        gates = (0, 3, 1, 2) if rnn.mode == "LSTM" else (1, 0, 2)  # torch's gates in ONNX's order

        def stacked(kind: str) -> Tensor:
            parts = [getattr(rnn, f"{kind}_{name}").chunk(len(gates)) for name in names]
            return torch.stack([torch.cat([part[g] for g in gates]) for part in parts])

        bias = torch.cat([stacked("bias_ih"), stacked("bias_hh")], 1)
        attrs: dict[str, Any] = {"hidden_size": rnn.hidden_size}
        attrs["direction"] = "bidirectional" if rnn.bidirectional else "forward"
        if rnn.mode == "GRU":
            attrs["linear_before_reset"] = 1  # as in torch
        batch, length, directions = x.shape[0], x.shape[1], len(names)
        states, last = torch.onnx.ops.symbolic_multi_out(
            rnn.mode,
            (x.transpose(0, 1), stacked("weight_ih"), stacked("weight_hh"), bias, lengths),
            attrs,
            dtypes=(x.dtype, x.dtype),
            shapes=((length, directions, batch, rnn.hidden_size), (directions, batch, rnn.hidden_size)),
        )  # [T, directions, B, hidden], [directions, B, hidden]
        return states.permute(2, 0, 1, 3).flatten(2), last

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Compute one time step: ``[R, D]`` -> ``[R, hidden]`` and the new state."""
        out, last = self.rnn(x[None], state if len(state) == 2 else state[0])
        return out[0], last if isinstance(last, tuple) else (last,)
