"""The kernels in fp32 beside torch's own way, one by one and in an encoder of MiniLM's size, at limited levels.

    taskset -c 1 .venv/bin/python -m benchmarks.speed.kernels_fp32 [--levels avx2 avx512f] [--rounds 5]

Each level has a process of its own, in which switches keep torch, its products and the kernels to its
instructions (``harness/limited.py``); ``torch`` says what torch made of it. On a newer processor that is not
the older one: clock and caches are not limited. Both ways take turns in one process; a time is the process's
own (user and system) on one thread, so that other work on the machine counts less. Lengths are drawn like
those of IMDb's reviews cut to 256 tokens and packed as in training, from a window sorted by length.
"""

import json
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness.command import command
from benchmarks.harness.limited import LIMITS, about, at_levels, begin_here
from benchmarks.harness.results import spread
from benchmarks.harness.rounds import in_turn, process_milliseconds, times_as_long
from glassformer.nn.attention import attend
from glassformer.nn.encoder import Encoder, EncoderConfig
from glassformer.nn.feedforward import gelu_tanh
from glassformer.nn.kernels import loading
from glassformer.packing import Packing

SIZES = EncoderConfig(384, 6, 12, 1536)
TEXTS = 4  # of a batch
Work = Callable[[], Any]


def batches(seed: int) -> list[Packing]:
    """Three batches out of a sorted window of 512 reviews: short, middling and long ones."""
    rng = random.Random(seed)
    lengths = sorted(min(256, max(12, round(rng.lognormvariate(5.42, 0.6)))) for _ in range(512))
    return [Packing(tuple(lengths[at : at + TEXTS])) for at in (96, 224, 352)]


def both_ways(work: Callable[..., Tensor], *shapes: tuple[int, ...]) -> Work:
    """Forward and backward of ``work`` on numbers drawn for it."""
    given = [torch.randn(shape).requires_grad_() for shape in shapes]
    upstream = torch.randn_like(work(*given))
    return lambda: torch.autograd.grad(work(*given), given, upstream)


def parts(packings: Sequence[Packing]) -> dict[str, Work]:
    """What there are kernels for, forward and backward; ``attend`` and the others take them where they may."""
    rows = sum(packing.total for packing in packings)

    def attention(packing: Packing, heads: int, dim: int) -> Work:
        return both_ways(lambda qkv: attend(*qkv.unbind(1), packing), (packing.total, 3, heads, dim))

    reviews = [attention(packing, SIZES.num_heads, SIZES.d_model // SIZES.num_heads) for packing in packings]
    return {
        "attention, reviews (12 heads of 32)": lambda: [work() for work in reviews],
        "attention, 2 texts of 512 (12 heads of 64)": attention(Packing.uniform(2, 512), 12, 64),
        "GELU with tanh": both_ways(gelu_tanh, (rows, SIZES.d_ff)),
    }


def wholes(packings: Sequence[Packing]) -> dict[str, Work]:
    """A step over each batch (forward, backward, AdamW) and their prediction, from embedded rows to [CLS] rows."""
    encoder = Encoder(SIZES)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-5, fused=True)
    given = [torch.randn(packing.total, SIZES.d_model) for packing in packings]

    def train() -> None:
        for x, packing in zip(given, packings, strict=True):
            encoder(x, packing, rows=packing.first_rows).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    def predict() -> None:
        with torch.inference_mode():
            for x, packing in zip(given, packings, strict=True):
                encoder(x, packing, rows=packing.first_rows)

    return {"training step": train, "prediction": predict}


def compare(work: Work, rounds: int, least: float) -> dict[str, Any]:
    """Milliseconds of the process's time without and with the kernels, in turn, and their ratio in each round."""
    with_kernels, without = loading._loaded[:], ["left out for a comparison"]

    def once(kernels: list[Any]) -> float:
        loading._loaded[:] = kernels
        return process_milliseconds(work, least)

    times = in_turn({"torch": without, "glassformer": with_kernels}, rounds, once)
    loading._loaded[:] = with_kernels
    return {
        "milliseconds": {name: spread(spent) for name, spent in times.items()},
        "glassformer_against_torch": times_as_long(times["torch"], times["glassformer"]),
    }


def measure(rounds: int, seed: int, least: float) -> dict[str, Any]:
    """At the level that this process is kept to."""
    result, packings = begin_here(), batches(seed)
    torch.manual_seed(seed)
    for kind, works in (("alone", parts(packings)), ("whole", wholes(packings))):
        result[kind] = {}
        for name, work in works.items():
            result[kind][name] = compare(work, rounds, least if kind == "alone" else 0.0)
            print(f"{name:45} {result[kind][name]['glassformer_against_torch']}", file=sys.stderr, flush=True)
    return result | {"tokens": [packing.total for packing in packings]}


@command(
    "kernels in fp32",
    out="kernels-fp32",
    levels=dict(nargs="+", choices=LIMITS, default=list(LIMITS)),
    rounds=5,
    seed=0,
    least=(0.1, "seconds that a part is repeated for"),
    here=(False, "at the level that the environment says, to stdout"),
)
def main(options: Any) -> dict[str, Any] | None:
    if options.here:
        print(json.dumps(measure(options.rounds, options.seed, options.least)))
        return None
    settings = {key: getattr(options, key) for key in ("rounds", "seed", "least")}
    result = about(options.rounds, options.seed) | {"limited_by_switches": True, "levels": {}}
    for name, found in at_levels("benchmarks.speed.kernels_fp32", options.levels, LIMITS, settings):
        result["levels"][name] = found
        options.write(result)
    return result
