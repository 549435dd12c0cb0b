"""ONNX exports beside their models: 8 builds, 1,000 inputs each, labels and logits; and what int8 costs.

The builds differ in all that the graph is drawn anew for: poolings, positions, norms, heads, frozen words, patches,
stem. They are fitted to few examples, so that their logits lie apart. ``--model RUN`` adds a trained run of its own.
"""

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import glassformer as gf
from benchmarks.harness.command import command
from benchmarks.harness.results import kept
from glassformer.data.sources import load_text_dataset
from glassformer.export.onnx_folder import export_onnx
from glassformer.export.outputs import samples_of

SIZES: dict[str, Any] = dict(d_model=64, num_heads=4, num_layers=2, d_ff=96, epochs=1, lr=2e-3)
SMALL = SIZES | {"max_length": 96}
MINILM: dict[str, Any] = dict(model="all-minilm-l6-v2", max_length=96, epochs=1)
NARROW = dict(vectors="word2vec", embedding_dim=24, freeze_vectors=True, pooling="max")
FIRST = dict(add_special_tokens=False, clean="words", pooling="first")
TEXTS: dict[str, dict[str, Any]] = {
    "MiniLM, pooler": MINILM,
    "MiniLM, mean, MLP head": MINILM | dict(pooling="mean", head="mlp"),
    "pre-norm, sinusoidal, [CLS]": SMALL | dict(model="encoder-mini"),
    "post-norm, learned, attention pooling": SMALL | dict(model="encoder-base", pooling="attention"),
    "post-norm, sinusoidal, first word": SMALL | FIRST | dict(model="encoder-small"),
    "frozen narrow word vectors, max": SMALL | NARROW | dict(model="encoder-mini"),
}
SEEN = SIZES | dict(image_size=32, patch_size=8)
PICTURES: dict[str, dict[str, Any]] = {
    "ViT, [CLS]": SEEN,
    "ViT, stem, mean, no [CLS]": SEEN
    | dict(stem=8, pooling="mean", class_token=False, positions="sinusoidal"),
}


def build(name: str, threads: int, texts: Sequence[str], labels: Sequence[Any]) -> Any:
    """The fitted classifier of that name."""
    if name in TEXTS:
        return gf.TextClassifier(**TEXTS[name], threads=threads).fit(texts, labels)
    pixels = np.random.default_rng(0).integers(0, 256, (64, 32, 32, 3), np.uint8)
    return gf.ImageClassifier("vit-tiny", **PICTURES[name], threads=threads).fit(pixels, ["a", "b"] * 32)


@command(
    "ONNX exports",
    out="export",
    packages=("onnx", "onnxscript", "onnxruntime"),
    inputs=1000,
    threads=torch.get_num_threads(),
    model=(Path, "also this run, on examples of its own, with int8"),
    only=dict(nargs="+", choices=[*TEXTS, *PICTURES], help="these builds"),
)
def main(options: Any) -> None:
    split = load_text_dataset("imdb", limit=256, seed=0, splits=["train"]).splits["train"]
    models: dict[str, Any] = kept(options.out).get("models", {})
    names = options.only or ([] if options.model else [*TEXTS, *PICTURES])
    jobs: list[tuple[str, Path | None]] = [(name, None) for name in names]
    jobs += [(options.model.name, options.model)] if options.model else []
    for name, run in jobs:
        clf = gf.load(run) if run else build(name, options.threads, split.texts, split.labels or [])
        samples, labels = samples_of(clf, run or "nowhere", options.inputs)
        if run is None and clf.NOUN == "texts":  # half of them real reviews
            samples[: len(split.texts)] = split.texts[: len(samples)]
        with tempfile.TemporaryDirectory() as scratch:
            begun = time.perf_counter()
            found = export_onnx(clf, Path(scratch) / "onnx", samples, labels=labels, int8=run is not None)
            models[name] = found | {"seconds": round(time.perf_counter() - begun, 1)}
        print(name, json.dumps(models[name]), flush=True)
        options.write({"models": models})
