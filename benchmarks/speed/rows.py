"""GELU, and the layer norm of a sum: torch's passes beside ours, at the sizes of encoders.

    .venv/bin/python -m benchmarks.speed.rows [--rounds 9] [--threads 2]

All in bf16, in turn, for as many rows as 32 IMDb reviews have. *Backward* is the gradient of everything that has one.
The error is the largest of the gradient of the norm's weight, beside the largest number of it in fp64.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.harness.common import RESULTS, environment, spread, write_result
from benchmarks.speed.linear import ROWS, milliseconds
from glassformer.nn import kernels
from glassformer.nn.kernels import rows
from glassformer.process import keep_freed_memory

EPS = 1e-12
Work = Callable[..., Tensor]


def summed_norm(x: Tensor, plus: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x + plus, (x.shape[1],), weight, bias, EPS)


def ours(x: Tensor, plus: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return rows.layer_norm(x, plus, weight, bias, EPS)


def works() -> dict[str, tuple[dict[str, Work], list[Tensor]]]:
    """For each name the ways to compute it, and on what."""
    found: dict[str, tuple[dict[str, Work], list[Tensor]]] = {}
    for model, width in (("MiniLM", 384), ("BERT-base", 768)):
        drawn = [torch.randn(ROWS, 4 * width), torch.randn(ROWS, width), torch.randn(ROWS, width)]
        drawn += [torch.randn(width), torch.randn(width)]
        wide, *norm = (x.bfloat16().requires_grad_() for x in drawn)
        found[f"{model}, GELU"] = {"torch": F.gelu, "glassformer": rows.gelu}, [wide]
        found[f"{model}, sum and layer norm"] = {"torch": summed_norm, "glassformer": ours}, norm
    return found


def measure(ways: dict[str, Work], given: list[Tensor], rounds: int) -> dict[str, Any]:
    upstream = torch.randn(given[0].shape).bfloat16()
    outs = {name: way(*given) for name, way in ways.items()}

    def backward(name: str) -> Any:
        return torch.autograd.grad(outs[name], given, upstream, retain_graph=True)

    def forward(name: str) -> Any:
        with torch.no_grad():
            return ways[name](*given)

    times: dict[str, list[float]] = {
        f"{part}, {name}": [] for part in ("forward", "backward") for name in ways
    }
    for _ in range(rounds + 1):  # the first round warms up
        for name in ways:
            times[f"forward, {name}"].append(milliseconds(lambda: forward(name)))  # noqa: B023
            times[f"backward, {name}"].append(milliseconds(lambda: backward(name)))  # noqa: B023
    times = {key: values[1:] for key, values in times.items()}
    both = [
        (times["forward, torch"][i] + times["backward, torch"][i])
        / (times["forward, glassformer"][i] + times["backward, glassformer"][i])
        for i in range(rounds)
    ]
    result: dict[str, Any] = {
        "milliseconds": {key: spread(values) for key, values in times.items()},
        "glassformer_against_torch": spread(both),
    }
    if len(given) > 1:
        exact = [x.detach().double().requires_grad_() for x in given]
        wanted = torch.autograd.grad(summed_norm(*exact), exact[2], upstream.double())[0]
        result["error"] = {
            name: float(((backward(name)[2].double() - wanted).abs() / wanted.abs().max()).max())
            for name in ways
        }
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=RESULTS / "rows.json")
    options = parser.parse_args(arguments)
    if reason := kernels.why_not():
        print(f"no kernels here: {reason}", file=sys.stderr)
        return 2
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    torch.manual_seed(0)
    result = {"benchmark": "GELU and layer norm", **environment(), "rows": ROWS, "layers": {}}
    for name, (ways, given) in works().items():
        result["layers"][name] = measure(ways, given, options.rounds)
        print(f"{name:35} {result['layers'][name]['glassformer_against_torch']}")
    write_result(options.out, result)
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
