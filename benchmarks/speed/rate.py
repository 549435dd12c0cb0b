"""How much of the machine's matrix-product rate training and prediction reach, and what the rest goes into.

    .venv/bin/python -m benchmarks.speed.rate [--model all-minilm-l6-v2] [--rounds 7] [--threads 2]

A training step (32 IMDb reviews, at most 256 tokens) and a forward pass of 8,192 tokens are timed in turn
with products of the model's own feed-forward shape and of large square matrices in the same precision,
whichever is faster: the rate that the machine has for such work. Counted are the products that the result
needs, of real tokens only: linear layers by torch's flop counter, attention as 4 d sum(length^2) a layer (in
the last one 4 d sum(length), where [CLS] alone is read), twice that backward. What a kernel computes anew in
its backward pass does not count.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.harness.command import command
from benchmarks.harness.results import result_file, spread
from benchmarks.speed.train_imdb import MAX_LENGTH, MODEL, random_bert_base
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.data.batching import BatchSettings, evaluation_batches, pack_texts
from glassformer.data.sources import load_text_dataset
from glassformer.data.text import TokenTable, encode
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.nn import kernels, linear
from glassformer.process import keep_freed_memory
from glassformer.runtime import choose_dtype
from glassformer.tasks.build import build_model
from glassformer.tasks.text_classification.recipe import ModelConfig, TextConfig, TextFitConfig
from glassformer.train.loop import TextStream
from glassformer.train.objectives import Classification
from glassformer.train.optim import MixedPrecisionOptimizer

CPU = torch.device("cpu")
# What an operation's time is booked as; names are searched in this order.
PARTS = {
    "matrix products": "aten::mm aten::addmm aten::bmm aten::baddbmm _Linear _linear_pointwise",
    "attention": "Attention scaled_dot_product",
    "GELU": "gelu _Gelu",
    "layer norm": "layer_norm _Norm",
    "optimiser": "adamw linalg_vector_norm lerp _foreach",
    "embeddings": "embedding index gather scatter sort unique",
    "copies, sums, additions": "copy_ cat sum add mul fill_ zero_",
}


def machine_rate(shapes: Sequence[tuple[int, int, int]], dtype: torch.dtype) -> dict[str, float]:
    """TFLOP/s of ``linear`` in that precision for each ``(rows, in, out)``, the median over a second."""
    rates = {}
    for rows, inside, outside in shapes:
        x, weight = torch.randn(rows, inside).to(dtype), torch.randn(outside, inside).to(dtype)
        found = []
        with torch.inference_mode():
            end = time.perf_counter() + 1.0
            while (begin := time.perf_counter()) < end:
                torch.nn.functional.linear(x, weight)
                found.append(2 * rows * inside * outside / (time.perf_counter() - begin) / 1e12)
        rates[f"{rows} x {inside} x {outside}"] = float(np.median(found))
    return rates


class Work:
    """Batches of real reviews, and one way to compute each of them."""

    def __init__(self, name: str, batches: list[Any], compute: Callable, model: Any, backward: bool):
        self.name, self.batches, self.compute = name, batches, compute
        self.tokens = sum(b.packing.total for b in batches)
        config = model.encoder.config
        squares = sum(int((np.array(b.packing.lengths) ** 2).sum()) for b in batches)
        last = self.tokens if model.reads_first_rows_only else squares
        pairs = squares * (config.num_layers - 1) + last  # of a query and a key, over all layers
        self.attention = 4 * config.d_model * pairs * (3 if backward else 1)
        self.linear = 0.0
        self.shares: list[float] = []
        self.seconds: list[float] = []

    def count(self) -> None:
        # the counter knows `mm` and its like only: what a kernel or oneDNN does by itself is done so for this once
        with (
            patch.object(kernels, "has_gradient", return_value=False),
            patch.object(linear, "_adds_bias", return_value=False),
            FlopCounterMode(display=False) as counter,
        ):
            self.once()
        counts = counter.get_flop_counts()["Global"]
        self.linear = float(sum(n for op, n in counts.items() if "mm" in str(op)))

    def once(self) -> float:
        begin = time.perf_counter()
        for batch in self.batches:
            self.compute(batch)
        return time.perf_counter() - begin

    def turn(self, rate: float) -> None:
        seconds = self.once()
        self.seconds.append(seconds)
        self.shares.append((self.linear + self.attention) / seconds / 1e12 / rate)

    def parts(self) -> dict[str, float]:
        """Share of the time in each kind of operation; ``between`` is what no operation of torch took."""
        with profile(activities=[ProfilerActivity.CPU]) as found:
            seconds = self.once()
        other = "other operations"
        times = dict.fromkeys([*PARTS, other], 0.0)
        for event in found.key_averages():
            kinds = (k for k, names in PARTS.items() if any(n in event.key for n in names.split()))
            times[next(kinds, other)] += event.self_cpu_time_total / 1e6
        times["between"] = max(seconds - sum(times.values()), 0.0)
        return {kind: round(t / sum(times.values()), 4) for kind, t in times.items()}

    def summary(self) -> dict[str, Any]:
        return {
            "work": self.name,
            "batches": len(self.batches),
            "tokens": self.tokens,
            "tflop_linear": round(self.linear / 1e12, 4),
            "tflop_attention": round(self.attention / 1e12, 4),
            "seconds": spread(self.seconds),
            "share_of_rate": spread(self.shares),
            "time_in": self.parts(),
        }


def training(model: Any, table: TokenTable, dtype: torch.dtype, steps: int) -> Work:
    settings = TextFitConfig(epochs=1, lr=5e-5, batch_size=32, warmup=0.06, seed=0)
    optimizer = MixedPrecisionOptimizer(model, settings, dtype)
    objective = Classification(np.arange(len(table)) % 2)
    stream = TextStream(table, BatchSettings(32, 0, settings.length_window), 1, 0, CPU)
    batches = [stream.pack(micro) for step in stream.steps(0)[:steps] for micro in step]

    def step(batch: Any) -> None:
        model.train()
        (objective(model, batch).loss / 32).backward()
        optimizer.update(settings.lr, optimizer.gradient_norm())

    return Work("training step", batches, step, model, backward=True)


def prediction(model: Any, table: TokenTable, batches: int) -> Work:
    index = evaluation_batches(table.lengths, 8192)[:batches]

    def forward(batch: Any) -> None:
        model.eval()
        with torch.inference_mode():
            model(batch.ids, packing=batch.packing)

    packed = [pack_texts(table, i) for i in index]
    return Work("prediction, tokens to logits", packed, forward, model, backward=False)


@command(
    "share of the machine's rate of products",
    out=lambda options: result_file(f"rate{'' if options.model == MODEL else '-' + options.model}"),
    model=dict(choices=(MODEL, "bert-base"), default=MODEL),
    rounds=7,
    batches=(4, "batches in a window"),
    threads=torch.get_num_threads(),
)
def main(options: Any) -> dict[str, Any]:
    keep_freed_memory()
    dtype, limit = choose_dtype("auto", CPU), 64 * options.batches
    with tempfile.TemporaryDirectory() as folder:
        path = resolve_checkpoint(MODEL).path
        texts = load_text_dataset("imdb", limit=limit, splits=["train"]).splits["train"].texts
        if options.model != MODEL:
            path = random_bert_base(Path(folder), path)
        tokenizer = load_tokenizer(path)
        table = encode(tokenizer, texts, max_length=MAX_LENGTH)
        config, text = ModelConfig(model=str(path)), TextConfig(max_length=MAX_LENGTH)
        models = [build_model(config, text, tokenizer, 2) for _ in range(2)]
    models[1].set_compute_dtype(dtype)
    steps = options.batches
    works = [training(models[0], table, dtype, steps), prediction(models[1], table, steps)]
    width, inner = models[0].encoder.config.d_model, models[0].encoder.config.d_ff
    shapes = [(8192, width, inner), (8192, inner, width), (4096, 4096, 4096)]
    for work in works:
        work.once()
        work.count()
    rates = []
    for turn in range(options.rounds):
        rates.append(machine_rate(shapes, dtype))
        best = max(rates[-1].values())
        for work in works:
            work.turn(best)
            print(f"round {turn + 1}  {work.name:30} {work.shares[-1]:.1%} of {best:.3f} TFLOP/s")
    return {
        "max_length": MAX_LENGTH,
        "model": options.model,
        "precision": str(dtype).removeprefix("torch."),
        "machine_tflops": {shape: spread([r[shape] for r in rates]) for shape in rates[0]},
        "works": [work.summary() for work in works],
    }
