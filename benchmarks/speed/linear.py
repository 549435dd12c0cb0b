"""The gradient of a linear layer's weight and bias: torch's products beside the kernel, at the sizes of encoders.

    .venv/bin/python -m benchmarks.speed.linear [--rounds 9] [--threads 2]

Both in bf16, in turn, for as many rows as 32 IMDb reviews have; torch's product of the bias is the sum over the rows.
Beside them the layer's other two products, forward and the gradient of its input, which have the same operations.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.common import RESULTS, environment, spread, write_result
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


def milliseconds(work: Callable[[], Any]) -> float:
    """Of one call, over a fifth of a second."""
    begin, calls = time.perf_counter(), 0
    while (now := time.perf_counter()) < begin + 0.2:
        work()
        calls += 1
    return 1000 * (now - begin) / max(calls, 1)


def measure(inside: int, outside: int, rounds: int) -> dict[str, Any]:
    x, weight = torch.randn(ROWS, inside).bfloat16(), torch.randn(outside, inside).bfloat16()
    grad = torch.randn(ROWS, outside).bfloat16()
    works: dict[str, Callable[[], Any]] = {
        "forward": lambda: torch.nn.functional.linear(x, weight),
        "gradient of the input": lambda: grad @ weight,
        "gradient of weight and bias, torch": lambda: (grad.T @ x, grad.sum(0)),
        "gradient of weight and bias, glassformer": lambda: kernels.weight_gradient(grad, x, bias=True),
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(milliseconds(work))
    theirs, ours = list(times.values())[2:]
    return {
        "in": inside,
        "out": outside,
        "milliseconds": {name: spread(found) for name, found in times.items()},
        "glassformer_against_torch": spread([a / b for a, b in zip(theirs, ours, strict=True)]),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=RESULTS / "linear.json")
    options = parser.parse_args(arguments)
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
    write_result(options.out, result | {"median_ratio": round(statistics.median(ratios), 3)})
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
