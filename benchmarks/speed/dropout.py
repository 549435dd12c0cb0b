"""Dropout on a processor: by the bits of the numbers, by booleans as factors, and torch's own.

    .venv/bin/python -m benchmarks.speed.dropout [--rounds 7] [--threads 1]

In turn, on a layer's rows of 32 IMDb reviews and on the attention weights of one sequence, forward (random numbers
included) and backward. The first two drop the same elements, and the kept ones are equal to the bit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.harness.results import RESULTS, environment, parse, spread, written
from benchmarks.harness.rounds import in_turn, milliseconds, times_as_long
from benchmarks.speed.linear import ROWS
from glassformer.nn import dropout
from glassformer.nn.dropout import keep_mask
from glassformer.process import keep_freed_memory

RATE = 0.1
PLACES = {"a layer's rows": (ROWS, 384), "attention weights of 237 tokens": (12, 237, 237)}
FORMATS = {"bf16": torch.bfloat16, "fp32": torch.float32}


class Factors(torch.autograd.Function):
    """``x * keep * scale``, where torch makes numbers of the booleans."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        keep = keep_mask(x.shape, RATE, x.device)
        ctx.save_for_backward(keep)
        return (x * keep).mul_(1.0 / (1.0 - RATE))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return (grad * ctx.saved_tensors[0]).mul_(1.0 / (1.0 - RATE))


WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "bits": lambda x: dropout(x, RATE, True),
    "factors": Factors.apply,
    "torch": lambda x: F.dropout(x, RATE, True),
}


def measure(shape: tuple[int, ...], dtype: torch.dtype, rounds: int) -> dict[str, Any]:
    """Milliseconds of forward and backward together, and how many times as long the others take."""
    x, upstream = torch.randn(shape).to(dtype).requires_grad_(), torch.randn(shape).to(dtype)

    def both(name: str) -> Tensor:
        return torch.autograd.grad(WAYS[name](x), x, upstream)[0]

    times = in_turn({name: partial(both, name) for name in WAYS}, rounds, milliseconds)
    against = {name: times_as_long(times[name], times["bits"]) for name in ("factors", "torch")}
    return {"milliseconds": {name: spread(values) for name, values in times.items()}, "bits_against": against}


def equal_to_the_bit(shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether bits and factors make the same numbers, where zeros of both signs are the same."""
    x, state = torch.randn(shape).to(dtype), torch.get_rng_state()
    bits = WAYS["bits"](x)
    torch.set_rng_state(state)
    return torch.equal(bits, WAYS["factors"](x))


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(__doc__, argv=arguments, rounds=7, threads=1, out=RESULTS / "dropout.json")
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    torch.manual_seed(0)
    result = {"benchmark": "dropout", **environment(), "threads": options.threads, "rate": RATE, "places": {}}
    for place, shape in PLACES.items():
        for name, dtype in FORMATS.items():
            found = {"shape": shape, "equal": equal_to_the_bit(shape, dtype)}
            found |= measure(shape, dtype, options.rounds)
            result["places"][f"{place}, {name}"] = found
            print(f"{place}, {name}: {found['bits_against']}")
    return written(options.out, result)


if __name__ == "__main__":
    sys.exit(main())
