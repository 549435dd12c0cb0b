"""ONNX exports beside their models: 8 builds, 1,000 inputs each, labels and logits; and what int8 costs.

The builds differ in all that the graph is drawn anew for: poolings, positions, norms, heads, frozen words, patches,
stem. They are fitted to few examples, so that their logits lie apart. ``--model RUN`` adds a trained run of its own.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import glassformer as gf
from benchmarks.harness.results import RESULTS, environment, kept, parse, write_result
from glassformer.data.sources import load_text_dataset
from glassformer.export.onnx_folder import export_onnx
from glassformer.export.outputs import samples_of

SMALL = dict(d_model=64, num_heads=4, num_layers=2, d_ff=96, max_length=96, epochs=1, lr=2e-3)
TEXTS: dict[str, dict[str, Any]] = {
    "MiniLM, pooler": dict(model="all-minilm-l6-v2", max_length=96, epochs=1),
    "MiniLM, mean, MLP head": dict(
        model="all-minilm-l6-v2", max_length=96, epochs=1, pooling="mean", head="mlp"
    ),
    "pre-norm, sinusoidal, [CLS]": dict(model="encoder-mini", **SMALL),
    "post-norm, learned, attention pooling": dict(model="encoder-base", pooling="attention", **SMALL),
    "post-norm, sinusoidal, first word": dict(
        model="encoder-small", add_special_tokens=False, clean="words", pooling="first", **SMALL
    ),
    "frozen narrow word vectors, max": dict(
        model="encoder-mini",
        vectors="word2vec",
        embedding_dim=24,
        freeze_vectors=True,
        pooling="max",
        **SMALL,
    ),
}
SEEN = dict(image_size=32, patch_size=8, d_model=64, num_heads=4, num_layers=2, d_ff=96, epochs=1, lr=2e-3)
PICTURES: dict[str, dict[str, Any]] = {
    "ViT, [CLS]": dict(**SEEN),
    "ViT, stem, mean, no [CLS]": dict(
        stem=8, pooling="mean", class_token=False, positions="sinusoidal", **SEEN
    ),
}


def build(name: str, threads: int, texts: Sequence[str], labels: Sequence[Any]) -> Any:
    """The fitted classifier of that name."""
    if name in TEXTS:
        return gf.TextClassifier(**TEXTS[name], threads=threads).fit(texts, labels)
    pixels = np.random.default_rng(0).integers(0, 256, (64, 32, 32, 3), np.uint8)
    return gf.ImageClassifier("vit-tiny", **PICTURES[name], threads=threads).fit(pixels, ["a", "b"] * 32)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(
        __doc__,
        argv=arguments,
        inputs=1000,
        threads=torch.get_num_threads(),
        model=(Path, "also this run, on examples of its own, with int8"),
        only=dict(nargs="+", choices=[*TEXTS, *PICTURES], help="these builds"),
        out=RESULTS / "export.json",
    )
    torch.set_num_threads(options.threads)
    facts = environment("onnx", "onnxscript", "onnxruntime")
    split = load_text_dataset("imdb", limit=256, seed=0, splits=["train"]).splits["train"]
    old = kept(options.out)
    models: dict[str, Any] = old.get("models", {})
    jobs = (
        [(name, None) for name in options.only or [*TEXTS, *PICTURES]]
        if not options.model or options.only
        else []
    )
    jobs += [(options.model.name, options.model)] if options.model else []
    for name, run in jobs:
        clf = gf.load(run) if run else build(name, options.threads, split.texts, split.labels or [])
        samples, labels = samples_of(clf, run or "nowhere", options.inputs)
        if run is None and clf.NOUN == "texts":  # half of them real reviews
            samples[: len(split.texts)] = split.texts[: len(samples)]
        with tempfile.TemporaryDirectory() as scratch:
            begun = time.perf_counter()
            found = export_onnx(clf, Path(scratch) / "onnx", samples, labels=labels, int8=run is not None)
            found["seconds"] = round(time.perf_counter() - begun, 1)
        models[name] = found
        print(name, json.dumps(found), flush=True)
        write_result(
            options.out, {"benchmark": "ONNX exports", **facts, "threads": options.threads, "models": models}
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
