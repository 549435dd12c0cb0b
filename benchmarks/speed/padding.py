"""How much of what Hugging Face's Trainer computes is padding: counted, not timed.

    .venv/bin/python -m benchmarks.speed.padding [--seeds 5]

Who groups by length finds fewer reviews alike in a window of some hundred than in an epoch of twenty
thousand. The share of padding in batches of 32, reviews cut to 256 tokens, for three ways to draw a window,
and an epoch in the first:

- *grouped*: reviews as they come, batched by transformers' ``LengthGroupedSampler``;
- *sorted*: reviews as they come, sorted by length within 50 batches (``hf_trainer.PlainLoop``);
- *whole batches*: whole batches of those that 50 sorted together give (``hf_trainer.batches_alike``), as the
benchmarks do.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.harness.command import command
from benchmarks.harness.options import count
from benchmarks.harness.results import spread
from benchmarks.speed.hf_trainer import POOL, batches_alike
from benchmarks.speed.train_imdb import BATCH, MAX_LENGTH, MODEL, load_rounds
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.data.text import encode
from glassformer.data.tokenizer_file import load_tokenizer

WINDOWS = (96, 128, 256, 384)
EPOCH = 21_000


def padding(lengths: np.ndarray, batches: Sequence[Sequence[int]]) -> float:
    """The share of padding in those batches, each padded to its longest row. ``lengths [N]`` in tokens."""
    computed = sum(len(batch) * int(lengths[list(batch)].max()) for batch in batches)
    return 1 - sum(int(lengths[list(batch)].sum()) for batch in batches) / computed


def grouped(lengths: np.ndarray, seed: int) -> list[list[int]]:
    """Batches as transformers' own grouping draws them."""
    from transformers.trainer_pt_utils import LengthGroupedSampler

    generator = torch.Generator().manual_seed(seed)
    order = list(LengthGroupedSampler(BATCH, lengths=lengths.tolist(), generator=generator))
    return [order[i : i + BATCH] for i in range(0, len(order), BATCH)]


def windows(lengths: np.ndarray, rows: int, seed: int) -> dict[str, float]:
    """Padding of the three ways in one window of so many rows; ``lengths`` of at least 50 batches, in random order."""
    few = lengths[:rows]
    pool = lengths[: POOL * BATCH]
    return {
        "grouped": padding(few, grouped(few, seed)),
        "sorted": padding(few, batches_alike(few, BATCH, seed)),
        "whole batches": padding(pool, batches_alike(pool, BATCH, seed)[: rows // BATCH]),
    }


@command(
    "padding in batches of IMDb reviews",
    out="padding",
    packages=("transformers",),
    seeds=dict(type=count, default=20, help="draws of each window, of other reviews"),
)
def main(options: Any) -> dict[str, Any]:
    texts = load_rounds(0, EPOCH, seed=0)[0][0]
    tokenizer = load_tokenizer(resolve_checkpoint(MODEL).path)
    lengths = np.asarray(encode(tokenizer, texts, max_length=MAX_LENGTH).lengths)
    rows = []
    for size in WINDOWS:
        drawn = [np.random.default_rng(seed).permutation(lengths) for seed in range(options.seeds)]
        draws = [windows(part, size, seed) for seed, part in enumerate(drawn)]
        rows.append({"reviews": size} | {way: spread([draw[way] for draw in draws]) for way in draws[0]})
        print(rows[-1])
    epochs = [padding(lengths, grouped(lengths, seed)) for seed in range(options.seeds)]
    return {
        "batch": BATCH,
        "max_length": MAX_LENGTH,
        "seeds": options.seeds,
        "windows": rows,
        "epoch": {"reviews": len(lengths), "grouped": spread(epochs)},
    }
