"""The loops of LSTM and GRU over packed rows: values and gradients are torch's."""

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from glassformer.nn import PackedRNN
from glassformer.nn.recurrent import time_major, time_slices
from glassformer.packing import Packing

LENGTHS = Packing((3, 11, 1, 7, 2))


def torchs(rnn: PackedRNN, x: Tensor, state: tuple[Tensor, ...] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The same by torch's own layer over a ``PackedSequence``."""
    order, sizes, longest_first, rank = time_major(LENGTHS)
    start = None if state is None else (state if len(state) == 2 else state[0])
    out, last = rnn.rnn(PackedSequence(x[order], sizes, longest_first, rank), start)
    rows = torch.empty_like(out.data).index_copy(0, order, out.data)
    return rows, last if isinstance(last, tuple) else (last,)


def read(rows: Tensor, last: tuple[Tensor, ...]) -> Tensor:
    """A number that depends on every output in its own way."""
    draw = torch.Generator().manual_seed(1)
    return sum(
        (part * torch.randn(part.shape, generator=draw, dtype=part.dtype)).sum() for part in (rows, *last)
    )  # type: ignore[return-value]


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("begun", [False, True])
def test_values_and_gradients_are_torchs(cell, both, begun):
    torch.manual_seed(0)
    rnn = PackedRNN(cell, 7, 5, 2, both).double()
    x = torch.randn(LENGTHS.total, 7, dtype=torch.double, requires_grad=True)
    state = None
    if begun:
        state = tuple(
            torch.randn(4 if both else 2, LENGTHS.count, 5, dtype=torch.double, requires_grad=True)
            for _ in range(2 if cell == "lstm" else 1)
        )
    leaves = [x, *(state or ()), *rnn.parameters()]
    ours, theirs = rnn(x, LENGTHS, state), torchs(rnn, x, state)
    for a, b in zip((ours[0], *ours[1]), (theirs[0], *theirs[1]), strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)
    gradients = (torch.autograd.grad(read(*found), leaves) for found in (ours, theirs))
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_gradients_by_differences(cell):
    torch.manual_seed(1)
    rnn = PackedRNN(cell, 3, 2, 1, True).double()
    x = torch.randn(LENGTHS.total, 3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda rows: rnn(rows, LENGTHS)[0], x)


def test_what_is_only_read_of_the_last_state_reaches_every_row():
    torch.manual_seed(2)
    rnn, x = PackedRNN("gru", 7, 5), torch.randn(LENGTHS.total, 7, requires_grad=True)
    _, (last,) = rnn(x, LENGTHS)
    (gradient,) = torch.autograd.grad(last[0, 1].sum(), x)
    reached = LENGTHS.split(gradient.abs().sum(1) > 0)
    assert [bool(rows.all()) for rows in reached] == [False, True, False, False, False]
    assert not any(rows.any() for i, rows in enumerate(reached) if i != 1)


def test_dropout_between_layers_is_of_training_only():
    torch.manual_seed(3)
    rnn, x = PackedRNN("lstm", 7, 5, 2, dropout=0.5), torch.randn(LENGTHS.total, 7)
    assert not torch.equal(rnn(x, LENGTHS)[0], rnn(x, LENGTHS)[0])
    rnn.eval()
    assert torch.equal(rnn(x, LENGTHS)[0], rnn(x, LENGTHS)[0])


def test_times_backwards_begin_at_the_end():
    assert time_slices([3, 2, 1], False) == [(0, 3), (3, 2), (5, 1)]
    assert time_slices([3, 2, 1], True) == [(5, 1), (3, 2), (0, 3)]


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_without_gradients_torch_answers_and_second_ones_are_refused(cell):
    torch.manual_seed(4)
    rnn, x = PackedRNN(cell, 7, 5, 2, True), torch.randn(LENGTHS.total, 7, requires_grad=True)
    rows, _ = rnn(x, LENGTHS)
    with torch.no_grad():
        torch.testing.assert_close(rnn(x, LENGTHS)[0], rows, atol=1e-6, rtol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(rnn(x, LENGTHS)[0].float(), rows, atol=0.05, rtol=0.05)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(rows.sum(), x, create_graph=True)
