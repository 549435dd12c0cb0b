"""What attention maps cost: a plain forward pass, the [CLS] rows of all layers, all maps; and Hugging Face's.

    .venv/bin/python -m benchmarks.speed.maps [--rounds 7] [--reviews 128] [--threads 2]

MiniLM on IMDb reviews cut to 256 tokens, in length-sorted batches, tokenized beforehand, all in one process and in
turn. Hugging Face's model runs with ``attn_implementation="eager"`` and ``output_attentions=True``, in our number
format and in fp32; its batches are padded to their longest review. The largest difference between its maps and ours,
both in fp32, is reported.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import glassformer as gf
from benchmarks.harness.command import command
from benchmarks.harness.results import result_file
from benchmarks.harness.rounds import Contender, Window, ratios, said, take_turns
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.data.batching import TextBatch, evaluation_batches, pack_texts
from glassformer.data.sources import load_text_dataset
from glassformer.data.text import encode
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.process import keep_freed_memory
from glassformer.runtime import choose_device, choose_dtype

MODEL = "all-minilm-l6-v2"
MAX_LENGTH = 256
BATCH_TOKENS = 4096


def load_batches(path: Path, reviews: int, seed: int) -> list[TextBatch]:
    split = load_text_dataset("imdb", limit=reviews, seed=seed, splits=["test"]).splits["test"]
    table = encode(load_tokenizer(path), split.texts, max_length=MAX_LENGTH)
    return [pack_texts(table, index) for index in evaluation_batches(table.lengths, BATCH_TOKENS)]


def contender(name: str, dtype: torch.dtype, batches: list[Any], tokens: int, forward: Callable) -> Contender:
    def run(turn: int) -> Window:
        begin, reviews = time.perf_counter(), 0
        with torch.inference_mode():
            for batch in batches:
                reviews += len(forward(batch).pooler_output)
        return Window(reviews, tokens, time.perf_counter() - begin, 0.0)

    return Contender(name, {"precision": str(dtype).removeprefix("torch.")}, run)


def padded(batch: TextBatch) -> dict[str, torch.Tensor]:
    ids = batch.packing.pad(batch.ids[:, None]).squeeze(2)
    return {"input_ids": ids, "attention_mask": batch.packing.mask().long()}


def hugging_face(path: Path, dtype: torch.dtype) -> Any:
    from transformers import AutoModel

    return AutoModel.from_pretrained(path, attn_implementation="eager", dtype=dtype).eval()


def largest_difference(ours: Any, theirs: Any, batches: Iterable[TextBatch]) -> float:
    """Between all maps of the two models in fp32."""
    worst = 0.0
    with torch.inference_mode():
        for batch in batches:
            maps = ours(batch.ids, packing=batch.packing, trace=gf.Trace(attentions=True)).trace.attentions
            wanted = theirs(**padded(batch), output_attentions=True).attentions
            for layer, tensor in zip(maps, wanted, strict=True):
                for b, one in enumerate(layer):
                    t = one.shape[-1]
                    worst = max(worst, float((one - tensor[b, :, :t, :t]).abs().max()))
    return worst


@command(
    "attention maps of MiniLM on IMDb reviews",
    out=lambda options: result_file("maps"),
    packages=("transformers",),
    rounds=7,
    reviews=128,
    threads=torch.get_num_threads(),
    seed=0,
)
def main(options: Any) -> dict[str, Any]:
    keep_freed_memory()  # for all contenders alike
    path = resolve_checkpoint(MODEL).path
    batches = load_batches(path, options.reviews, options.seed)
    model = gf.load_pretrained(path).eval()
    difference = largest_difference(model, hugging_face(path, torch.float32), batches[:1])
    dtype = choose_dtype("auto", choose_device("cpu"))
    model.set_compute_dtype(dtype)
    tokens = sum(batch.packing.total for batch in batches)
    traces = {
        "glassformer, plain": None,
        "glassformer, [CLS] rows of all layers": gf.Trace(attentions=True, rows="first"),
        "glassformer, all maps": gf.Trace(attentions=True),
    }
    plain, first, full = (
        contender(name, dtype, batches, tokens, lambda b, t=trace: model(b.ids, packing=b.packing, trace=t))
        for name, trace in traces.items()
    )
    others, rectangles = [], [padded(batch) for batch in batches]
    for precision in {dtype, torch.float32}:
        name = f"HF eager, all maps, {str(precision).removeprefix('torch.')}"
        maps = partial(hugging_face(path, precision), output_attentions=True)
        others.append(contender(name, precision, rectangles, tokens, lambda b, maps=maps: maps(**b)))
    contenders = [plain, first, full, *others]
    take_turns(contenders, options.rounds)
    against_plain = {c.name: ratios(plain, c) for c in (first, full)}
    against_maps = {c.name: ratios(full, c) for c in others}
    for name, ratio in (against_plain | against_maps).items():
        print(f"{name}: {said(ratio)} of {'the plain time' if name in against_plain else 'all our maps'}")
    return {
        "reviews": options.reviews,
        "batch_tokens": BATCH_TOKENS,
        "max_length": MAX_LENGTH,
        "largest_difference_fp32": float(np.float32(difference)),
        "contenders": [c.summary() for c in contenders],
        "time_against_plain": against_plain,
        "all_maps_against": against_maps,
    }
