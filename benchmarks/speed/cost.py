"""How cost grows: attention and a layer against length, batch and width; prediction against the number of texts.

    .venv/bin/python -m benchmarks.speed.cost attention [--rounds 5] [--tokens 8192]
    .venv/bin/python -m benchmarks.speed.cost encoder
    .venv/bin/python -m benchmarks.speed.cost texts --counts 10000 100000 1000000

``attention`` times full, local (128 places on either side) and linear attention forward and backward, in turn, at equal
numbers of tokens, and whole layers of an encoder; memory is the largest resident size that the forward pass adds, in a
process of its own. ``encoder`` times a training step of a whole encoder with each kind of attention, in processor time. ``texts`` sends that many short texts through ``TextClassifier.predict``, each count in a process of
its own: the time per text and the memory should not grow.
"""

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness.command import command
from benchmarks.harness.processes import peak_mb, reset_peak
from benchmarks.harness.results import RESULTS
from benchmarks.harness.rounds import alone, in_turn
from glassformer.nn import attend, attend_linear, attend_local
from glassformer.nn.encoder import Encoder, EncoderConfig, EncoderLayer
from glassformer.packing import Packing
from glassformer.process import keep_freed_memory
from glassformer.runtime import choose_device, choose_dtype

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
WIDTHS = (192, 384, 768)
BATCHES = (1, 4, 16, 64)
WINDOW = 128
HEADS, HEAD_WIDTH = 12, 32

KINDS: dict[str, Callable[..., Tensor]] = {
    "full": lambda q, k, v, packing: attend(q, k, v, packing),
    "local": lambda q, k, v, packing: attend_local(q, k, v, packing, WINDOW),
    "linear": lambda q, k, v, packing: attend_linear(q, k, v, packing),
}


def attention_inputs(length: int, tokens: int, dtype: torch.dtype) -> tuple[list[Tensor], Packing]:
    packing = Packing.uniform(max(1, tokens // length), length)
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(3, packing.total, HEADS, HEAD_WIDTH, generator=generator).to(dtype)
    return [x.clone().requires_grad_() for x in draws], packing


def timed(
    runs: dict[str, Callable[[], Any]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, dict[str, float]]:
    """Milliseconds of each, in turn; the first turn warms up."""

    def once(run: Callable[[], Any]) -> float:
        begin = clock()
        run()
        return 1e3 * (clock() - begin)

    found, kinds = in_turn(runs, rounds, once), {"median_ms": statistics.median, "min_ms": min, "max_ms": max}
    return {name: {key: round(of(t), 2) for key, of in kinds.items()} for name, t in found.items()}


def attention_by_length(tokens: int, rounds: int, dtype: torch.dtype) -> dict[str, Any]:
    """Forward and backward of each kind, always with the same number of tokens in ever longer texts."""
    results = {}
    for length in LENGTHS:
        inputs, packing = attention_inputs(length, tokens, dtype)

        def step(kind: str, inputs: list[Tensor] = inputs, packing: Packing = packing) -> None:
            out = KINDS[kind](*inputs, packing)
            torch.autograd.grad(out.sum(), inputs)

        found = timed({kind: lambda kind=kind: step(kind) for kind in KINDS}, rounds)
        for kind in KINDS:
            found[kind]["added_mb"] = alone(added_memory, kind, length, tokens, dtype)
        results[str(length)] = found
        say(f"length {length}", found)
    return results


def added_memory(kind: str, length: int, tokens: int, dtype: torch.dtype) -> float:
    """MB that forward and backward add to the largest resident size."""
    small, packing = attention_inputs(32, 64, dtype)
    torch.autograd.grad(KINDS[kind](*small, packing).sum(), small)  # what libraries take once
    inputs, packing = attention_inputs(length, tokens, dtype)
    before = reset_peak()
    torch.autograd.grad(KINDS[kind](*inputs, packing).sum(), inputs)
    return round(peak_mb() - before, 1)


def layers(rounds: int, dtype: torch.dtype) -> dict[str, Any]:
    """A forward pass of one encoder layer against length at one width, against width, and against the batch."""
    cases = {f"length {n}": (n, 4096 // n, 384) for n in LENGTHS}
    cases |= {f"width {w}": (256, 16, w) for w in WIDTHS}
    cases |= {f"batch {b}": (256, b, 384) for b in BATCHES}
    results = {}
    results = {}
    for name, (length, batch, width) in cases.items():
        layer = EncoderLayer(EncoderConfig(width, 1, width // HEAD_WIDTH, 4 * width)).to(dtype).eval()
        packing = Packing.uniform(batch, length)
        x = torch.randn(packing.total, width).to(dtype)

        def forward(layer: EncoderLayer = layer, x: Tensor = x, packing: Packing = packing) -> Tensor:
            with torch.inference_mode():
                return layer(x, packing)

        about = {"length": length, "batch": batch, "width": width}
        results[name] = about | timed({"layer": forward}, rounds)["layer"]
        say(name, {"layer": results[name]})
    return results


ENCODERS: dict[str, dict[str, Any]] = {
    "full": {},
    "local, 32": {"attention": "local", "attention_window": 32},
    "local, 128": {"attention": "local", "attention_window": 128},
    "linear": {"attention": "linear"},
}
ENCODER = EncoderConfig(384, 2, HEADS, 1536, "pre", "gelu", 1e-5, final_norm=True)


def encoders_by_length(tokens: int, rounds: int, dtype: torch.dtype) -> dict[str, Any]:
    """Processor time of an encoder, forward and backward, with each attention, at equal numbers of tokens."""
    results = {}
    for length in LENGTHS:
        packing = Packing.uniform(max(1, tokens // length), length)
        x = torch.randn(packing.total, ENCODER.d_model, generator=torch.Generator().manual_seed(0)).to(dtype)
        stacks = {name: Encoder(replace(ENCODER, **kind)).to(dtype) for name, kind in ENCODERS.items()}

        def step(name: str, x: Tensor = x, packing: Packing = packing, stacks: Any = stacks) -> None:
            stacks[name].zero_grad()
            stacks[name](x, packing).sum().backward()

        works = {name: lambda name=name: step(name) for name in stacks}
        results[str(length)] = timed(works, rounds, time.process_time)
        say(f"length {length}", results[str(length)])
    return results


def predict_texts(count: int, threads: int) -> dict[str, float]:
    """Seconds and the largest resident size of ``predict`` on so many short texts."""
    from glassformer.tasks.text_classification.estimator import TextClassifier

    words = ("a", "film", "that", "never", "finds", "its", "way", "brilliant", "dull", "and", "then", "some")
    texts = [" ".join(words[(i * k + i // 12) % 12] for k in range(1, 5 + i % 9)) for i in range(count)]
    small = {"max_length": 16, "min_count": 1, "epochs": 1, "lr": 0.0, "d_model": 64}
    clf = TextClassifier("encoder-small", **small, threads=threads)
    clf.fit(texts[:64], [i % 2 for i in range(64)])
    clf.predict(texts[:64])
    before, begin = reset_peak(), time.perf_counter()
    labels = clf.predict(texts)
    seconds = time.perf_counter() - begin
    assert len(labels) == count
    return {
        "texts": count,
        "seconds": round(seconds, 2),
        "texts_per_second": round(count / seconds, 1),
        "added_mb": round(peak_mb() - before, 1),
        "texts_mb": round(sum(sys.getsizeof(text) for text in texts) / 1e6, 1),
    }


def say(name: str, found: dict[str, dict[str, float]]) -> None:
    parts = [f"{kind} {f['median_ms']:8.1f} ms" for kind, f in found.items()]
    parts += [f"{kind} {f['added_mb']:6.0f} MB" for kind, f in found.items() if "added_mb" in f]
    print(f"{name:14} " + "   ".join(parts), flush=True)


def texts(options: Any, dtype: torch.dtype) -> dict[str, Any]:
    rows = []
    for count in options.counts:
        rows.append(alone(predict_texts, count, options.threads))
        print(rows[-1], flush=True)
    return {"benchmark": "prediction of many short texts", "rows": rows}


def encoder(options: Any, dtype: torch.dtype) -> dict[str, Any]:
    found = encoders_by_length(options.tokens, options.rounds, dtype)
    about = vars(ENCODER) | {"benchmark": "cost of an encoder by the kind of its attention"}
    return about | {"tokens": options.tokens, "clock": "processor time", "forward_backward": found}


def attention(options: Any, dtype: torch.dtype) -> dict[str, Any]:
    return {
        "tokens": options.tokens,
        "window": WINDOW,
        "heads": HEADS,
        "head_width": HEAD_WIDTH,
        "attention_forward_backward": attention_by_length(options.tokens, options.rounds, dtype),
        "layer_forward": layers(options.rounds, dtype),
    }


WHAT = {"attention": attention, "encoder": encoder, "texts": texts}


@command(
    "cost of attention and of an encoder layer",
    ("what", dict(choices=WHAT)),
    out=lambda options: RESULTS / f"cost-{options.what}.json",
    rounds=5,
    tokens=(8192, "tokens of each attention measured"),
    counts=[10000, 100000, 1000000],
    threads=torch.get_num_threads(),
)
def main(options: Any) -> dict[str, Any]:
    if options.what != "texts":
        keep_freed_memory()
    dtype = choose_dtype("auto", choose_device("cpu"))
    return {"dtype": str(dtype).removeprefix("torch."), **WHAT[options.what](options, dtype)}
