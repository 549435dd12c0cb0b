"""Rows of texts, windows and pictures: in the order given, counted, pooled as asked."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from glassformer.data.text import TokenTable, Windows
from glassformer.data.transform import ImageTransform, read_images
from glassformer.evaluate.predict import (
    compute_logits,
    compute_pooled,
    pool_windows,
    predict_images,
    predict_rows,
    predict_windows,
    prefetch,
    softmax,
)

LENGTHS = (5, 1, 11, 3, 7, 2, 13)


class Recorder(nn.Module):
    """Answers with what it was given; dropout would show in training mode."""

    def forward(self, ids, *, token_type_ids, packing):
        sums = torch.stack([part.sum() for part in packing.split(ids)]).double()
        seen = torch.full_like(sums, float(self.training))
        types = torch.stack([part.sum() for part in packing.split(token_type_ids)]).double()
        return SimpleNamespace(
            logits=torch.stack([sums, seen], 1), pooler_output=torch.stack([types, sums], 1)
        )


def table() -> TokenTable:
    ids = np.arange(100, 100 + sum(LENGTHS), dtype=np.int32)
    starts = np.cumsum([0, *LENGTHS])
    return TokenTable(ids, starts, np.arange(len(ids), dtype=np.int8) % 2, np.zeros(len(LENGTHS), bool))


def sums() -> list[float]:
    t = table()
    return [float(t.ids[a:b].sum()) for a, b in zip(t.starts, t.starts[1:], strict=False)]


@pytest.mark.parametrize("batch_tokens", [13, 17, 8192])
def test_rows_of_texts_come_in_their_order(batch_tokens):
    done: list[int] = []
    model = Recorder().train()
    rows = predict_rows(model, table(), compute_logits, batch_tokens=batch_tokens, progress=done.append)
    assert rows.dtype == np.float32
    assert rows.tolist() == [[total, 0.0] for total in sums()]
    assert sum(done) == len(LENGTHS)
    assert len(done) == (1 if batch_tokens == 8192 else len(done)) >= 1
    pooled = predict_rows(model, table(), compute_pooled)
    assert pooled[:, 1].tolist() == sums()
    assert pooled[:, 0].sum() == table().segments.sum()


def test_where_memory_is_too_small_batches_are_halved():
    tried, done = [], []

    def read(model, batch):
        assert torch.is_inference_mode_enabled()  # gradients are not kept
        tried.append(batch.packing.count)
        if batch.packing.count > 2:
            raise torch.OutOfMemoryError("no room")
        return compute_logits(model, batch)

    rows = predict_rows(Recorder(), table(), read, progress=done.append)
    assert rows[:, 0].tolist() == sums()
    assert sum(done) == len(LENGTHS)
    assert tried[:2] == [7, 4]
    assert max(done) == 2

    def never(model, batch):
        raise torch.OutOfMemoryError("no room at all")

    with pytest.raises(torch.OutOfMemoryError, match="no room at all"):
        predict_rows(Recorder(), table(), never)


def test_windows_of_a_text_are_one_row():
    whole, done = Windows(table(), len(LENGTHS)), []
    assert predict_windows(Recorder(), whole, compute_logits, progress=done.append)[:, 0].tolist() == sums()
    assert sum(done) == 7
    owners = np.array([0, 0, 0, 1, 2, 2, 2])
    cut, done = Windows(table(), 3, owners), []
    found = predict_windows(Recorder(), cut, compute_logits, progress=done.append)[:, 0]
    assert done == [3]
    wanted = np.array(sums())
    assert found.tolist() == [
        np.float32(wanted[:3].mean()),
        np.float32(wanted[3]),
        np.float32(wanted[4:].mean()),
    ]
    found = predict_windows(Recorder(), cut, compute_logits, pooling="max", batch_tokens=13)[:, 0]
    assert found.tolist() == [wanted[:3].max(), wanted[3], wanted[4:].max()]
    # pooling keeps axes and format
    rows = np.arange(30, dtype=np.float32).reshape(5, 2, 3)
    owners = np.array([0, 1, 1, 2, 2])
    mean = pool_windows(rows, owners, 3, "mean")
    assert mean.dtype == np.float32
    assert np.array_equal(mean, np.stack([rows[0], rows[1:3].mean(0), rows[3:].mean(0)]))
    assert np.array_equal(pool_windows(rows, owners, 3, "max"), np.stack([rows[0], rows[2], rows[4]]))


class Pixels(nn.Module):
    def forward(self, pixels, packed=False):
        assert packed
        rows = pixels.mean((2, 3))
        return SimpleNamespace(logits=rows, pooler_output=2 * rows + float(self.training))

    def features(self, pixels):
        return 3 * pixels.mean((2, 3))


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_pictures_come_in_their_order(batch_size):
    rng = np.random.default_rng(0)
    transform = ImageTransform((5, 5))
    shots = read_images([rng.integers(0, 256, (5, 5, 3), np.uint8) for _ in range(7)], transform)
    done: list[int] = []
    options = {"batch_size": batch_size, "progress": done.append}
    model = Pixels().train()
    logits = predict_images(model, shots, transform, "logits", **options)
    assert (logits.shape, logits.dtype) == ((7, 3), np.float32)
    one = [predict_images(model, shots, transform, "logits", batch_size=1)[i] for i in range(7)]
    assert np.allclose(logits, one, atol=1e-6)
    assert done == [min(batch_size, 7 - start) for start in range(0, 7, batch_size)]
    assert np.allclose(predict_images(model, shots, transform, "pooled", **options), 2 * logits, atol=1e-6)
    assert np.allclose(predict_images(model, shots, transform, "features", **options), 3 * logits, atol=1e-6)


def test_the_next_is_prepared_while_one_is_used():
    started, used = [threading.Event() for _ in range(5)], []

    def prepare(i: int) -> int:
        started[i].set()
        return 10 * i

    for i, ready in enumerate(prefetch(prepare, range(5))):
        assert ready == 10 * i
        if i < 4:
            assert started[i + 1].wait(20)
        used.append(i)
    assert used == [0, 1, 2, 3, 4]
    assert list(prefetch(prepare, [])) == []
    names = list(prefetch(lambda _: threading.current_thread().name, [1]))
    assert names == [threading.current_thread().name]  # nothing to do meanwhile
    assert all(
        name.startswith("prefetch") for name in prefetch(lambda _: threading.current_thread().name, [1, 2])
    )


def test_softmax_of_large_logits():
    p = softmax(np.array([[1000.0, 1001.0, 999.0], [0.0, 0.0, -1e4]], np.float32))
    assert p.dtype == np.float64
    assert p.sum(1) == pytest.approx([1, 1])
    assert p[0, 1] / p[0, 0] == pytest.approx(np.e)
    assert p[1].tolist() == [0.5, 0.5, 0.0]
    assert softmax(np.array([[0.0, 3.0]]), 3.0)[0, 1] == pytest.approx(np.e / (1 + np.e))
