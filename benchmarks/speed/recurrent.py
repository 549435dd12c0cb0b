"""LSTM and GRU over texts of unequal length, forwards and back: torch's loop over a packed batch beside ours.

    .venv/bin/python -m benchmarks.speed.recurrent [--rounds 5] [--threads 1]

One bidirectional layer, in fp32, in turn: an LSTM as the recipe ntc-lstm has it, on reviews, and a GRU as the encoder
of multi30k-rnn, on sentences. *Padded* is torch's layer on rows filled up to the longest, without a mask: fast, but its
backward direction begins in the padding, so what it computes is something else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from benchmarks.harness.results import RESULTS, environment, parse, spread, written
from benchmarks.harness.rounds import in_turn, times_as_long
from glassformer.nn import PackedRNN
from glassformer.nn.recurrent import time_major
from glassformer.packing import Packing

# name: cell, width of the input, of the state, number of texts, shortest and longest
WORK = {"LSTM, reviews": ("lstm", 128, 128, 64, 20, 250), "GRU, sentences": ("gru", 256, 128, 130, 9, 22)}


def ways(rnn: PackedRNN, x: torch.Tensor, packing: Packing) -> dict[str, Callable[[], Any]]:
    """Each way to go forwards and back."""
    order, sizes, longest_first, rank = time_major(packing)
    padded = packing.pad(x.detach()).requires_grad_()

    def packed() -> None:
        rnn.rnn(PackedSequence(x[order], sizes, longest_first, rank))[0].data.sum().backward()

    return {
        "torch, packed": packed,
        "torch, padded": lambda: rnn.rnn(padded.transpose(0, 1))[0].sum().backward(),
        "glassformer": lambda: rnn(x, packing)[0].sum().backward(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(__doc__, argv=arguments, rounds=5, threads=1, out=RESULTS / "recurrent.json")
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    result: dict[str, Any] = {"benchmark": "recurrent layers", **environment(), "layers": {}}
    for name, (cell, width, hidden, count, low, high) in WORK.items():
        lengths = torch.randint(low, high + 1, (count,)).tolist()
        packing = Packing(tuple(lengths))
        rnn = PackedRNN(cell, width, hidden, bidirectional=True)  # type: ignore[arg-type]
        contenders = ways(rnn, torch.randn(packing.total, width, requires_grad=True), packing)
        times = in_turn(contenders, options.rounds)
        result["layers"][name] = {
            "texts": count, "tokens": packing.total, "places_when_padded": count * max(lengths),
            "milliseconds": {way: spread(values) for way, values in times.items()},
            "glassformer_against": {
                way: times_as_long(values, times["glassformer"])
                for way, values in times.items() if way != "glassformer"
            },
        }  # fmt: skip
        print(f"{name:16} {result['layers'][name]['glassformer_against']}")
    return written(options.out, result)


if __name__ == "__main__":
    sys.exit(main())
