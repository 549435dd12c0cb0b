"""The kernels in fp32 beside torch's own way, one by one and in an encoder of MiniLM's size, at limited levels.

    taskset -c 1 .venv/bin/python -m benchmarks.speed.kernels_fp32 [--levels avx2 avx512f] [--rounds 5]

Each level has a process of its own, in which switches keep torch (ATEN_CPU_CAPABILITY), its products (MKL_ENABLE_INSTRUCTIONS,
ONEDNN_MAX_CPU_ISA) and the kernels (GLASSFORMER_KERNELS) to its instructions; ``torch`` says in the file what torch made of
it. On a newer processor that is not the older one: clock and caches are not limited.

Both ways take turns, with and without the kernels in one process; a time is the process's own (user and system) on one
thread, so that other work on the machine counts less. Lengths are drawn like those of IMDb's reviews cut to 256 tokens
and packed as in training, from a window sorted by length.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness.results import RESULTS, environment, parse, spread, write_result
from benchmarks.harness.rounds import times_as_long
from glassformer.nn.attention import attend
from glassformer.nn.encoder import Encoder, EncoderConfig
from glassformer.nn.feedforward import gelu_tanh
from glassformer.nn.kernels import loading
from glassformer.packing import Packing
from glassformer.process import keep_freed_memory

# What keeps torch and its libraries to a level. oneDNN's name for AVX512 without VNNI is that of its first processors.
LIMITS = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512f": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
    },
}
SIZES = EncoderConfig(384, 6, 12, 1536)
TEXTS = 4  # of a batch
RunContext = Callable[[], Any]


def batches(seed: int) -> list[Packing]:
    """Three batches out of a sorted window of 512 reviews: short, middling and long ones."""
    rng = random.Random(seed)
    lengths = sorted(min(256, max(12, round(rng.lognormvariate(5.42, 0.6)))) for _ in range(512))
    return [Packing(tuple(lengths[at : at + TEXTS])) for at in (96, 224, 352)]


def both_ways(work: Callable[..., Tensor], *shapes: tuple[int, ...]) -> RunContext:
    """Forward and backward of ``work`` on numbers drawn for it."""
    given = [torch.randn(shape).requires_grad_() for shape in shapes]
    upstream = torch.randn_like(work(*given))
    return lambda: torch.autograd.grad(work(*given), given, upstream)


def parts(packings: Sequence[Packing]) -> dict[str, RunContext]:
    """What there are kernels for, forward and backward; ``attend`` and the others take them where they may."""
    rows = sum(packing.total for packing in packings)
    long = Packing.uniform(2, 512)

    def attention(packing: Packing, heads: int, dim: int) -> RunContext:
        def work(qkv: Tensor) -> Tensor:
            return attend(*qkv.unbind(1), packing)

        return both_ways(work, (packing.total, 3, heads, dim))

    reviews = [attention(packing, SIZES.num_heads, SIZES.d_model // SIZES.num_heads) for packing in packings]
    return {
        "attention, reviews (12 heads of 32)": lambda: [work() for work in reviews],
        "attention, 2 texts of 512 (12 heads of 64)": attention(long, 12, 64),
        "GELU with tanh": both_ways(gelu_tanh, (rows, SIZES.d_ff)),
    }


def wholes(packings: Sequence[Packing]) -> dict[str, RunContext]:
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


def compare(work: RunContext, rounds: int, least: float) -> dict[str, Any]:
    """Milliseconds of the process's time without and with the kernels, in turn, and their ratio in each round."""
    with_kernels, without = loading._loaded[:], ["left out for a comparison"]
    times: dict[str, list[float]] = {"torch": [], "glassformer": []}
    for turn in range(-1, rounds):  # the first round warms up
        order = list(times) if turn % 2 else list(times)[::-1]
        for name in order:
            loading._loaded[:] = with_kernels if name == "glassformer" else without
            begin, calls = time.process_time(), 0
            while not calls or time.process_time() < begin + (least if turn >= 0 else 0):
                work()
                calls += 1
            if turn >= 0:
                times[name].append(1000 * (time.process_time() - begin) / calls)
    loading._loaded[:] = with_kernels
    return {
        "milliseconds": {name: spread(spent) for name, spent in times.items()},
        "glassformer_against_torch": times_as_long(times["torch"], times["glassformer"]),
    }


def measure(rounds: int, seed: int, least: float) -> dict[str, Any]:
    """At the level that this process is kept to."""
    torch.set_num_threads(1)
    keep_freed_memory()
    torch.manual_seed(seed)
    found = loading.loaded()
    assert isinstance(found, loading.Loaded), found
    packings = batches(seed)
    result: dict[str, Any] = {"level": found.level.title, "torch": torch.backends.cpu.get_cpu_capability()}
    for kind, works in (("alone", parts(packings)), ("whole", wholes(packings))):
        result[kind] = {}
        for name, work in works.items():
            result[kind][name] = compare(work, rounds, least if kind == "alone" else 0.0)
            print(f"{name:45} {result[kind][name]['glassformer_against_torch']}", file=sys.stderr, flush=True)
    return result | {"tokens": [packing.total for packing in packings]}


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(
        __doc__,
        argv=arguments,
        levels=dict(nargs="+", choices=LIMITS, default=list(LIMITS)),
        rounds=5,
        seed=0,
        least=(0.1, "seconds that a part is repeated for"),
        here=(False, "at the level that the environment says, to stdout"),
        out=RESULTS / "kernels-fp32.json",
    )
    if options.here:
        print(json.dumps(measure(options.rounds, options.seed, options.least)))
        return 0
    names = [level.name for level in loading.LEVELS if loading.cpu_flags() >= level.flags]
    if missing := [name for name in options.levels if name not in names]:
        print(f"the processor has no {', '.join(missing)}", file=sys.stderr)
        return 2
    facts, levels = environment(), {}
    for name in options.levels:
        print(f"-- {name}", flush=True)
        command = [
            sys.executable,
            "-m",
            "benchmarks.speed.kernels_fp32",
            "--here",
            "--rounds",
            str(options.rounds),
        ]
        command += ["--seed", str(options.seed), "--least", str(options.least)]
        env = os.environ | LIMITS[name] | {loading.SWITCH: name, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
        levels[name] = json.loads(done.stdout.splitlines()[-1]) | {"switches": LIMITS[name]}
        settings = {"threads": 1, "seed": options.seed, "rounds": options.rounds, "clock": "process time"}
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        settings |= {"cores": cores, "limited_by_switches": True}
        write_result(options.out, {"benchmark": "kernels in fp32", **facts, **settings, "levels": levels})
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
