"""Batched inference for texts and images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.data.batching import TextBatch, evaluation_batches, pack_texts
from glassformer.data.image_batching import evaluation_pixels
from glassformer.data.text import Windows
from glassformer.data.transform import ImageTransform, PixelTable
from glassformer.runtime import isolated_torch


def predict_rows(
    model: nn.Module,
    table,
    compute: Callable[[nn.Module, TextBatch], Tensor],
    *,
    batch_tokens: int = 8192,
    device: torch.device | str = "cpu",
    progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """The outputs of a model for each text of a ``TokenTable``, ``[n, ...]`` fp32.

    Args:
        compute: function that computes the outputs ``[B, ...]`` of a batch.
        progress: called after each batch with its number of texts.
    """

    def compute_batch(index: np.ndarray) -> Tensor:
        return compute(model, pack_texts(table, index, device))

    return _in_batches(
        model, evaluation_batches(table.lengths, batch_tokens, device), compute_batch, progress
    )


def _in_batches(
    model: nn.Module,
    batches: Sequence[np.ndarray],
    compute: Callable[[np.ndarray], Tensor],
    progress: Callable[[int], None] | None,
) -> np.ndarray:
    """The outputs ``[n, ...]`` of all examples, fp32; a batch that exceeds the GPU's memory is halved.

    Args:
        compute: function that computes the outputs of the examples with these indices.
    """
    model.eval()
    out: np.ndarray | None = None
    with isolated_torch():
        pending = list(batches[::-1])
        while pending:
            index = pending.pop()
            try:
                outputs = compute(index).float().cpu().numpy()
            except torch.OutOfMemoryError:  # on a GPU: halve all remaining batches
                if len(index) == 1:
                    raise
                halves = (half for batch in [*pending, index] for half in np.array_split(batch, 2)[::-1])
                pending = [half for half in halves if len(half)]
                continue
            if out is None:
                out = np.empty((sum(map(len, batches)), *outputs.shape[1:]), np.float32)
            out[index] = outputs
            if progress is not None:
                progress(len(index))
    assert out is not None, "there is at least one example"
    return out


def predict_tokens(
    model: nn.Module,
    table,
    outputs: int,
    *,
    batch_tokens: int,
    device: torch.device,
    progress: Callable[[np.ndarray], None] | None = None,
) -> np.ndarray:
    """Logits of all tokens of a ``TokenTable``, ``[N, outputs]`` fp32.

    Args:
        progress: called after each batch with the indices of its texts.
    """
    out, starts = np.empty((len(table.ids), outputs), np.float32), table.starts
    model.eval()
    with isolated_torch():
        for index in evaluation_batches(table.lengths, batch_tokens, device):
            batch = pack_texts(table, index, device)
            logits = model(batch.ids, token_type_ids=batch.segments, packing=batch.packing).logits
            tokens = np.concatenate([np.arange(*starts[i : i + 2].tolist()) for i in index.tolist()])
            out[tokens] = logits.float().cpu().numpy()
            if progress is not None:
                progress(index)
    return out


def prefetch(prepare: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """Yield ``prepare(item)`` for each item, while a thread prepares the next item."""
    if len(items) < 2:
        yield from map(prepare, items)
        return
    with ThreadPoolExecutor(1, "prefetch") as thread:
        future = thread.submit(prepare, items[0])
        for item in items[1:]:
            prepared = future.result()
            future = thread.submit(prepare, item)
            yield prepared
        yield future.result()


def predict_images(
    model: nn.Module,
    table: PixelTable,
    transform: ImageTransform,
    output: str | int,
    *,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
    progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Outputs of an image model for a ``PixelTable``, fp32.

    Args:
        output: ``"logits"`` (``[n, C]``), ``"pooled"`` or ``"features"`` (``[n, D]``), or a number L: the
            hidden states of all tokens after the first L layers, ``[n, T, D]``.
    """

    def compute(index: np.ndarray) -> Tensor:
        pixels = evaluation_pixels(table, int(index[0]), len(index), transform, torch.device(device))
        if isinstance(output, int):
            states = model.lower_rows(pixels, output)  # type: ignore[operator]  # as below
            return states.unflatten(0, (len(pixels), -1))
        if output == "features":
            return model.features(pixels)  # type: ignore[operator]  # every image model has this method
        outputs = model(pixels, packed=True)
        return outputs.logits if output == "logits" else outputs.pooler_output

    batches = np.split(np.arange(len(table)), range(batch_size, len(table), batch_size))
    return _in_batches(model, batches, compute, progress)


def predict_windows(
    model: nn.Module,
    windows: Windows,
    compute: Callable[[nn.Module, TextBatch], Tensor],
    *,
    pooling: str = "mean",
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> np.ndarray:
    """The mean or maximum over the windows of each text of the outputs of ``predict_rows``."""
    if windows.text_of_window is None:
        return predict_rows(model, windows.table, compute, progress=progress, **options)
    rows = predict_rows(model, windows.table, compute, **options)  # progress counts texts, not windows
    if progress is not None:
        progress(windows.num_texts)
    return pool_windows(rows, windows.text_of_window, windows.num_texts, pooling)


def pool_windows(rows: np.ndarray, text_of_window: np.ndarray, texts: int, pooling: str) -> np.ndarray:
    """The mean or maximum over the windows of each text, ``[n, ...]``.

    Args:
        rows: [w, ...] outputs for each window.
        text_of_window: [w] index of the text of each window, ascending; every text has a window.
        texts: n.
    """
    starts = np.searchsorted(text_of_window, np.arange(texts))
    if pooling == "max":
        return np.maximum.reduceat(rows, starts)
    counts = np.bincount(text_of_window, minlength=texts).reshape(-1, *[1] * (rows.ndim - 1))
    return (np.add.reduceat(rows, starts) / counts).astype(rows.dtype)


def compute_logits(model: nn.Module, batch: TextBatch) -> Tensor:
    """The logits ``[B, C]`` of a batch."""
    options = {} if batch.values is None else {"values": batch.values}
    return model(batch.ids, token_type_ids=batch.segments, packing=batch.packing, **options).logits


def compute_pooled(model: nn.Module, batch: TextBatch) -> Tensor:
    """The pooled vectors ``[B, D]`` of a batch, which are the input of the head."""
    return model(batch.ids, token_type_ids=batch.segments, packing=batch.packing).pooler_output


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """The softmax of each row, fp64."""
    scaled = logits.astype(np.float64) / temperature
    exp = np.exp(scaled - scaled.max(1, keepdims=True))
    return exp / exp.sum(1, keepdims=True)
