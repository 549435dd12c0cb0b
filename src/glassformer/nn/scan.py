"""LSTM and GRU over packed rows as loops over time, with their gradients written out.

torch's own loop copies the whole batch's input products once a time step when it goes back, and adds up the
gradient of the recurrent weight step by step. Here what belongs to no step is computed for all of them at
once: the input products before the loop, and after the loop back one product for the weight. The equations
are those of ``torch.nn.LSTM`` (Hochreiter and Schmidhuber, 1997) and ``torch.nn.GRU`` (Cho et al., 2014), and
so are the weights.

Rows lie by time: ``batch_sizes[t]`` sequences, the longest first, have a row at time t.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

Slices = list[
    tuple[int, int]
]  # first row and number of rows of each time, in the order in which they are read


def slices_of(batch_sizes: Sequence[int], backwards: bool) -> Slices:
    """Where the rows of each time lie, from the first time to the last or the other way round."""
    starts = [0, *accumulate(batch_sizes)]
    order = list(zip(starts, batch_sizes))
    return order[::-1] if backwards else order


def _only_once() -> None:
    """Raises RuntimeError under ``create_graph``: the gradient is written out, and has none of its own."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "LSTM and GRU have first derivatives only on a processor; use torch.nn.LSTM or GRU"
        )


class GruScan(torch.autograd.Function):
    """One direction of one layer. With x the input products and p the products of the state before:

    r, z = sigmoid(x_r + p_r), sigmoid(x_z + p_z);  n = tanh(x_n + r p_n);  h' = (1 - z) n + z h
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, start: Tensor, times: Slices) -> tuple:
        """Input products ``[N, 3 H]`` -> states ``[N, H]``, and the last one of each sequence ``[B, H]``.

        Args:
            weight, bias: of the state before, ``[3 H, H]`` and ``[3 H]``.
            start: the state before the first row, ``[B, H]``.
        """
        width = weight.shape[1]
        before, states, n = (x.new_empty(len(x), width) for _ in range(3))
        products, rz = torch.empty_like(x), x.new_empty(len(x), 2 * width)
        state, turned = start.clone(), weight.t()
        for row, count in times:
            here = slice(row, row + count)
            h = state[:count]
            before[here] = h
            p = torch.addmm(bias, h, turned, out=products[here])  # [b, 3 H]
            torch.add(x[here, : 2 * width], p[:, : 2 * width], out=rz[here]).sigmoid_()
            torch.addcmul(x[here, 2 * width :], rz[here, :width], p[:, 2 * width :], out=n[here]).tanh_()
            torch.lerp(n[here], h, rz[here, width:], out=h)
            states[here] = h
        ctx.save_for_backward(weight, before, rz, n, products)
        ctx.times = times
        return states, state

    @staticmethod
    def backward(ctx: Any, to_states: Tensor, to_last: Tensor) -> tuple:
        _only_once()
        weight, before, rz, n, products = ctx.saved_tensors
        width = weight.shape[1]
        r, z = rz.split(width, 1)
        # What each gate's slope makes of a gradient needs no loop.
        by_n = (1 - z).mul_(1 - n * n)
        by_z = (before - n).mul_(z).mul_(1 - z)
        by_r = r.mul(1 - r).mul_(products[:, 2 * width :])
        to_p = torch.empty_like(products)
        to_n = torch.empty_like(before)
        back = to_last.clone()
        for row, count in reversed(ctx.times):
            here = slice(row, row + count)
            to_h = back[:count].add_(to_states[here])
            torch.mul(to_h, by_n[here], out=to_n[here])
            torch.mul(to_n[here], by_r[here], out=to_p[here, :width])
            torch.mul(to_h, by_z[here], out=to_p[here, width : 2 * width])
            torch.mul(to_n[here], r[here], out=to_p[here, 2 * width :])
            torch.addmm(to_h * z[here], to_p[here], weight, out=back[:count])
        to_weight, to_bias = to_p.t() @ before, to_p.sum(0)
        to_x = to_p
        to_x[:, 2 * width :] = to_n
        return to_x, to_weight, to_bias, back, None


class LstmScan(torch.autograd.Function):
    """One direction of one layer. With a the sum of the input products and those of the state before:

    i, f, o = sigmoid(a_i), sigmoid(a_f), sigmoid(a_o);  g = tanh(a_g);  c' = f c + i g;  h' = o tanh(c')
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, start: Tensor, cell: Tensor, times: Slices) -> tuple:
        """Input products ``[N, 4 H]``, biases added -> states ``[N, H]``, last ones and cells ``[B, H]``.

        Args:
            weight: of the state before, ``[4 H, H]``.
            start, cell: both before the first row, ``[B, H]``.
        """
        width = weight.shape[1]
        before, cells_before, states, bent = (x.new_empty(len(x), width) for _ in range(4))
        gates = torch.empty_like(x)  # i, f, g and o
        state, cell, turned = start.clone(), cell.clone(), weight.t()
        for row, count in times:
            here = slice(row, row + count)
            h, c, gate = state[:count], cell[:count], gates[here]
            before[here], cells_before[here] = h, c
            torch.addmm(x[here], h, turned, out=gate)
            gate[:, : 2 * width].sigmoid_()
            gate[:, 2 * width : 3 * width].tanh_()
            gate[:, 3 * width :].sigmoid_()
            i, f, g, o = gate.split(width, 1)
            c.mul_(f).addcmul_(i, g)
            torch.tanh(c, out=bent[here])
            torch.mul(o, bent[here], out=states[here])
            state[:count] = states[here]
        ctx.save_for_backward(weight, before, cells_before, gates, bent)
        ctx.times = times
        return states, state, cell

    @staticmethod
    def backward(ctx: Any, to_states: Tensor, to_last: Tensor, to_cell: Tensor) -> tuple:
        _only_once()
        weight, before, cells_before, gates, bent = ctx.saved_tensors
        width = weight.shape[1]
        i, f, g, o = gates.split(width, 1)
        by_c = o * (1 - bent * bent)
        slopes = torch.cat(
            [g * i * (1 - i), cells_before * f * (1 - f), i * (1 - g * g), bent * o * (1 - o)], 1
        )
        to_a = torch.empty_like(gates)
        back, back_cell = to_last.clone(), to_cell.clone()
        for row, count in reversed(ctx.times):
            here = slice(row, row + count)
            to_h = back[:count].add_(to_states[here])
            to_c = back_cell[:count].addcmul_(to_h, by_c[here])
            a = to_a[here]
            torch.mul(
                slopes[here, : 3 * width].unflatten(1, (3, width)),
                to_c[:, None],
                out=a[:, : 3 * width].unflatten(1, (3, width)),
            )
            torch.mul(slopes[here, 3 * width :], to_h, out=a[:, 3 * width :])
            to_c.mul_(f[here])
            torch.mm(a, weight, out=back[:count])
        return to_a, to_a.t() @ before, back, back_cell, None
