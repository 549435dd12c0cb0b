"""Which branch of ``attend`` is the fastest where: forward and backward, in turn, median of the rounds.

    .venv/bin/python -m benchmarks.speed.attention [--rounds 7] [--dtype bf16]

``choose_branch`` in nn/attention.py follows these figures. "padded" is the peer: torch's own fused attention
on a padded batch with a mask, as other libraries call it.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.harness.results import RESULTS, environment, parse, written
from benchmarks.harness.rounds import in_turn
from glassformer.nn import kernels
from glassformer.nn.attention import attend
from glassformer.nn.maps import groups_of, padding_share
from glassformer.packing import Packing
from glassformer.process import keep_freed_memory

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def cases() -> dict[str, tuple[Sequence[int], int, int]]:
    """Name -> lengths of the sequences, heads, width of a head."""
    rng = random.Random(0)
    return {
        "64 pictures of 64 patches": ([64] * 64, 12, 64),
        "32 short reviews, length-sorted": ([rng.randint(100, 110) for _ in range(32)], 12, 32),
        "32 reviews of 208, length-sorted": ([rng.randint(203, 208) for _ in range(32)], 12, 32),
        "32 reviews, lengths at random": ([rng.randint(40, 256) for _ in range(32)], 12, 32),
        "8 reviews of 512": ([512] * 8, 12, 64),
        "2 documents of 1,024": ([1024] * 2, 12, 64),
    }


def padded(q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> Tensor:
    """Packed rows through torch's attention on a padded batch; the padding itself is timed too."""
    heads = [packing.pad(x).transpose(1, 2) for x in (q, k, v)]  # [B, H, T, K]
    mask = None if packing.is_uniform else packing.mask()[:, None, None]
    out = F.scaled_dot_product_attention(*heads, attn_mask=mask)
    return out.transpose(1, 2).flatten(0, 1)[packing.padded_rows]


def contenders(packing: Packing, q: Tensor) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    branches = ("explicit", "grouped", "fused", *(["kernel"] if kernels.supports(q, q, q) else []))
    ours = {b: lambda q, k, v, b=b: attend(q, k, v, packing, branch=b) for b in branches}
    return {**ours, "padded": lambda q, k, v: padded(q, k, v, packing)}


def milliseconds(run: Callable, inputs: Sequence[Tensor], gradient: Tensor) -> float:
    started = time.perf_counter()
    torch.autograd.grad(run(*inputs), inputs, gradient)
    return 1e3 * (time.perf_counter() - started)


def measure(lengths: Sequence[int], heads: int, width: int, dtype: torch.dtype, rounds: int) -> dict:
    packing = Packing(tuple(lengths))
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(4, packing.total, heads, width, generator=generator).to(dtype)
    inputs, gradient = [draws[i].clone().requires_grad_() for i in range(3)], draws[3]
    runs = contenders(packing, inputs[0])
    times = in_turn(runs, rounds, lambda run: round(milliseconds(run, inputs, gradient), 2))
    return {
        "tokens": packing.total,
        "groups": len(groups_of(packing, packing)),
        "padding_in_groups": round(padding_share(packing), 4),
        "median_ms": {name: round(statistics.median(spent), 2) for name, spent in times.items()},
        "all_ms": times,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(
        __doc__,
        argv=arguments,
        rounds=7,
        dtype=dict(choices=DTYPES, default="bf16"),
        out=RESULTS / "attention.json",
    )
    keep_freed_memory()  # for all branches alike, as in training
    facts, results = environment(), {}
    for name, (lengths, heads, width) in cases().items():
        result = measure(lengths, heads, width, DTYPES[options.dtype], options.rounds)
        results[name] = {"heads": heads, "head_width": width, **result}
        figures = "  ".join(f"{branch} {ms:7.1f}" for branch, ms in result["median_ms"].items())
        print(f"{name:34} ms: {figures}", flush=True)
    written(
        options.out,
        {"benchmark": "attention, forward and backward", **facts, "dtype": options.dtype, "cases": results},
    )


if __name__ == "__main__":
    main()
