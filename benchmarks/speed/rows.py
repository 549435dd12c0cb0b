"""GELU, and the layer norm of a sum: torch's passes beside ours, at the sizes of encoders.

    .venv/bin/python -m benchmarks.speed.rows [--rounds 9] [--threads 2]

All in bf16, in turn, for as many rows as 32 IMDb reviews have. *Backward* is the gradient of everything that has one.
The error is the largest of the gradient of the norm's weight, beside the largest number of it in fp64.
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
from benchmarks.harness.rounds import in_turn, times_as_long
from benchmarks.speed.linear import ROWS
from glassformer.nn import kernels
from glassformer.nn.kernels import rows
from glassformer.process import keep_freed_memory

EPS = 1e-12
RunContext = Callable[..., Tensor]


def summed_norm(x: Tensor, plus: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x + plus, (x.shape[1],), weight, bias, EPS)


def ours(x: Tensor, plus: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return rows.layer_norm(x, plus, weight, bias, EPS)


def works() -> dict[str, tuple[dict[str, RunContext], list[Tensor]]]:
    """For each name the ways to compute it, and on what."""
    found: dict[str, tuple[dict[str, RunContext], list[Tensor]]] = {}
    for model, width in (("MiniLM", 384), ("BERT-base", 768)):
        drawn = [torch.randn(ROWS, 4 * width), torch.randn(ROWS, width), torch.randn(ROWS, width)]
        drawn += [torch.randn(width), torch.randn(width)]
        wide, *norm = (x.bfloat16().requires_grad_() for x in drawn)
        found[f"{model}, GELU"] = {"torch": F.gelu, "glassformer": rows.gelu}, [wide]
        found[f"{model}, sum and layer norm"] = {"torch": summed_norm, "glassformer": ours}, norm
    return found


def measure(ways: dict[str, RunContext], given: list[Tensor], rounds: int) -> dict[str, Any]:
    upstream = torch.randn(given[0].shape).bfloat16()
    outs = {name: way(*given) for name, way in ways.items()}

    def backward(name: str) -> Any:
        return torch.autograd.grad(outs[name], given, upstream, retain_graph=True)

    def forward(name: str) -> Any:
        with torch.no_grad():
            return ways[name](*given)

    parts = {"forward": forward, "backward": backward}
    works = {f"{part}, {name}": partial(of, name) for name in ways for part, of in parts.items()}
    times = in_turn(works, rounds)
    whole = {
        name: [sum(both) for both in zip(*(times[f"{part}, {name}"] for part in parts))] for name in ways
    }
    result: dict[str, Any] = {
        "milliseconds": {key: spread(values) for key, values in times.items()},
        "glassformer_against_torch": times_as_long(whole["torch"], whole["glassformer"]),
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
    options = parse(
        __doc__, argv=arguments, rounds=9, threads=torch.get_num_threads(), out=RESULTS / "rows.json"
    )
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
    return written(options.out, result)


if __name__ == "__main__":
    sys.exit(main())
