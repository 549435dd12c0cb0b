"""The memory that training and prediction take at their peak, beside the peers', and how it grows.

    .venv/bin/python -m benchmarks.speed.memory [--lengths 128 256 512] [--documents 256 2048 8192]

Training: two batches of MiniLM (of 8 reviews as commonly run, else of 32) by the contenders of
``train_imdb.py``, long IMDb reviews cut to each of the lengths. Prediction: the contenders of
``inference.py`` answer so many beginnings of reviews, 48 words each. Every figure is of a process of its own:
the most that is resident while it works (``VmHWM``), the interpreter, libraries and weights included;
``ready`` is what it had before. Peers choose the faster attention beforehand.
"""

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.command import command
from benchmarks.harness.processes import peak_mb, reset_peak
from benchmarks.harness.results import half, result_file
from benchmarks.harness.rounds import alone, use_threads
from benchmarks.speed import inference, inference_peers, train_imdb
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.data.sources import load_text_dataset
from glassformer.data.text import encode
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.runtime import return_freed_memory

SHORT = 48  # words of a review that is predicted


def peak(work: Callable[[], Any]) -> dict[str, float]:
    """MB before the work, and at most while it goes on."""
    return_freed_memory()
    ready = reset_peak()
    work()
    return {"ready_mb": round(ready, 1), "peak_mb": round(peak_mb(), 1)}


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


def measured(work: Callable[..., dict[str, Any]], *args: Any) -> dict[str, Any]:
    """What ``work`` finds in a process of its own, said."""
    found = alone(work, *args)
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


@command(
    "peak memory of training and prediction, MiniLM on IMDb reviews",
    out=lambda options: result_file("memory"),
    packages=("transformers", "accelerate", "onnxruntime", "openvino"),
    lengths=[128, 256, 512],
    documents=[256, 2048, 8192],
    threads=2,
)
def main(options: Any) -> dict[str, Any]:
    use_threads(options.threads)
    with tempfile.TemporaryDirectory() as temporary:
        folder, path = Path(temporary), resolve_checkpoint(train_imdb.MODEL).path
        reviews = long_reviews(path, 64, max(options.lengths))
        few = tuple(part[:16] for part in reviews)
        training = [
            measured(trains, key, path, few if key == "common" else reviews, length)
            for key in train_imdb.MAKERS
            for length in options.lengths
        ]
        gate = inference.train_models(folder, 64, 0)
        alone(inference_peers.export_onnx, folder)
        texts = short_reviews(path, max(options.documents))
        prediction = [
            measured(predicts, key, folder, texts[:count], options.threads)
            for key in inference_peers.LABELS
            if key != "glassformer_int8" or (gate and gate["passed"])
            for count in options.documents
        ]
    return {
        "precision": "bf16" if half() else "fp32",
        "words_of_a_document": SHORT,
        "training": training,
        "prediction": prediction,
    }
