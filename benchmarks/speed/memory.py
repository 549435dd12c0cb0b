"""The memory that training and prediction take at their peak, beside the peers', and how it grows.

    .venv/bin/python -m benchmarks.speed.memory [--lengths 128 256 512] [--documents 256 2048 8192]

Training: two batches of MiniLM (of 8 reviews as commonly run, else of 32) by the contenders of ``train_imdb.py``, IMDb
reviews with more tokens than the longest length, cut to each of the lengths. Prediction: the contenders of
``inference.py`` answer so many beginnings of reviews, 48 words each. Every figure is of a process of its own: what the system
counts as resident at most while it works (``VmHWM``, set back before), the interpreter, libraries and weights included;
``ready`` is what it had before. Peers choose the faster attention beforehand, on 8 reviews, and freed memory is handed back then.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.results import environment, half, parse, result_file, written
from benchmarks.speed import inference, inference_peers, train_imdb
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.data.sources import load_text_dataset
from glassformer.data.text import encode
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.errors import InputError
from glassformer.runtime import return_freed_memory

SHORT = 48  # words of a review that is predicted
MEGABYTE = 1e6


def resident(field: str) -> float:
    """``VmRSS`` or ``VmHWM`` of this process, in MB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 / MEGABYTE for line in lines if line.startswith(field))


def peak(work: Callable[[], Any]) -> dict[str, float]:
    """MB before the work, and at most while it goes on."""
    return_freed_memory()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # sets the high-water mark back
    ready = resident("VmRSS")
    work()
    return {"ready_mb": round(ready, 1), "peak_mb": round(resident("VmHWM"), 1)}


def trains(key: str, path: Path, reviews: Any, length: int) -> dict[str, Any]:
    """One contender of train_imdb.py over two batches, in this process."""
    logging.disable(logging.WARNING)
    train_imdb.MAX_LENGTH = length
    few = tuple(part[:8] for part in reviews)  # to choose the attention on
    contender = train_imdb.MAKERS[key](path, [reviews, few])
    found = peak(lambda: contender.run(0))
    return {"name": contender.name, "length": length, "setting": contender.setting, **found}


def predicts(key: str, folder: Path, texts: list[str], threads: int) -> dict[str, Any]:
    """One contender of inference.py over so many texts, in this process."""
    few = texts[:64]  # to warm up
    labels = [np.zeros(len(part), int) for part in (texts, few)]
    rounds = inference_peers.Rounds([texts, few], labels, [0, 0])
    contender = inference_peers.make(key, folder, rounds, threads)
    found = peak(lambda: contender.run(0))
    return {"name": contender.name, "documents": len(texts), "setting": contender.setting, **found}


def alone(work: Callable[..., dict[str, Any]], *args: Any) -> dict[str, Any]:
    """What ``work`` finds in a process of its own, said."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        found = process.submit(work, *args).result()
    size = f"{found['length']} tokens" if "length" in found else f"{found['documents']} documents"
    print(f"{found['name']:36} {size:16} {found['peak_mb']:7.0f} MB", flush=True)
    return found


def long_reviews(path: Path, count: int, length: int) -> tuple[list[str], list[int]]:
    """Reviews with more tokens than that, labels in turn."""
    texts = load_text_dataset("imdb", limit=40 * count, splits=["train"]).splits["train"].texts
    lengths = encode(load_tokenizer(path), texts, max_length=length + 1).lengths
    found = [text for text, n in zip(texts, lengths, strict=True) if n > length][:count]
    assert len(found) == count
    return found, [i % 2 for i in range(count)]


def short_reviews(path: Path, count: int) -> list[str]:
    """The beginnings of reviews."""
    texts = load_text_dataset("imdb", limit=count, splits=["test"]).splits["test"].texts[:count]
    return [" ".join(text.split()[:SHORT]) for text in texts]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(
        __doc__,
        argv=arguments,
        lengths=[128, 256, 512],
        documents=[256, 2048, 8192],
        threads=2,
        out=result_file("memory"),
    )
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[name] = str(options.threads)
    facts = environment("transformers", "accelerate", "onnxruntime", "openvino")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            path = resolve_checkpoint(train_imdb.MODEL).path
            reviews = long_reviews(path, 64, max(options.lengths))
            training = [
                alone(
                    trains,
                    key,
                    path,
                    (reviews[0][:16], reviews[1][:16]) if key == "common" else reviews,
                    length,
                )
                for key in train_imdb.MAKERS
                for length in options.lengths
            ]
            gate = inference.train_models(folder, 64, 0)
        except InputError as error:
            print(error, file=sys.stderr)
            return error.exit_code
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            process.submit(inference_peers.export_onnx, folder).result()
        texts = short_reviews(path, max(options.documents))
        keys = [m.__name__ for m in inference_peers.LABELS]
        keys = [key for key in keys if key != "glassformer_int8" or (gate and gate["passed"])]
        prediction = [
            alone(predicts, key, folder, texts[:count], options.threads)
            for key in keys
            for count in options.documents
        ]
    result = {
        "benchmark": "peak memory of training and prediction, MiniLM on IMDb reviews",
        **facts,
        "threads": options.threads,
        "precision": "bf16" if half() else "fp32",
        "words_of_a_document": SHORT,
        "training": training,
        "prediction": prediction,
    }
    return written(options.out, result)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
