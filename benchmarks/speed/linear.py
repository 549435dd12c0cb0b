"""The gradient of a linear layer's weight and bias: torch's products beside the kernel, at the sizes of encoders.

    .venv/bin/python -m benchmarks.speed.linear [--rounds 9] [--threads 2]

Both in bf16, in turn, for as many rows as 32 IMDb reviews have; torch's product of the bias is the sum over the rows.
Beside them the layer's other two products, forward and the gradient of its input, which have the same operations.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.harness.results import RESULTS, environment, parse, spread, written
from benchmarks.harness.rounds import in_turn, times_as_long
from glassformer.nn import kernels
from glassformer.process import keep_freed_memory

ROWS = 6784
LAYERS = {  # in, out
    "MiniLM, queries, keys and values": (384, 1152),
    "MiniLM, after attention": (384, 384),
    "MiniLM, feed-forward up": (384, 1536),
    "MiniLM, feed-forward down": (1536, 384),
    "BERT-base, queries, keys and values": (768, 2304),
    "BERT-base, feed-forward up": (768, 3072),
    "BERT-base, feed-forward down": (3072, 768),
}


def measure(inside: int, outside: int, rounds: int) -> dict[str, Any]:
    x, weight = torch.randn(ROWS, inside).bfloat16(), torch.randn(outside, inside).bfloat16()
    grad = torch.randn(ROWS, outside).bfloat16()
    works: dict[str, Callable[[], Any]] = {
        "forward": lambda: torch.nn.functional.linear(x, weight),
        "gradient of the input": lambda: grad @ weight,
        "gradient of weight and bias, torch": lambda: (grad.T @ x, grad.sum(0)),
        "gradient of weight and bias, glassformer": lambda: kernels.weight_gradient(grad, x, bias=True),
    }
    times = in_turn(works, rounds)
    theirs, ours = list(times.values())[2:]
    return {
        "in": inside,
        "out": outside,
        "milliseconds": {name: spread(found) for name, found in times.items()},
        "glassformer_against_torch": times_as_long(theirs, ours),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(
        __doc__, argv=arguments, rounds=9, threads=torch.get_num_threads(), out=RESULTS / "linear.json"
    )
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    reason = kernels.why_not() or (None if kernels.has_amx() else "it wants a processor with AMX")
    if reason:
        print(f"there is no kernel here: {reason}", file=sys.stderr)
        return 2
    facts, layers = environment(), {}
    for name, sides in LAYERS.items():
        layers[name] = measure(*sides, options.rounds)
        ratio = layers[name]["glassformer_against_torch"]
        print(f"{name:40} {ratio['median']:.2f} x ({ratio['min']:.2f} to {ratio['max']:.2f})", flush=True)
    ratios = [layer["glassformer_against_torch"]["median"] for layer in layers.values()]
    result = {"benchmark": "the gradient of a linear layer", **facts, "rows": ROWS, "layers": layers}
    return written(options.out, result | {"median_ratio": round(statistics.median(ratios), 3)})


if __name__ == "__main__":
    sys.exit(main())
