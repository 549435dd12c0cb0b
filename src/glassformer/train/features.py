"""Training on a frozen encoder: what the head reads is computed once, and kept for the next run.

The features of a text or of an image are one vector, the same in every epoch, as long as nothing below the
head learns or is drawn at random. Where the upper layers learn, the features of an image are the rows that
enter the lowest of these. They lie in the user's cache under the SHA-256 of the weights and of the tokens or
pixels that they were made from.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.checkpoints.files import verify_folder, write_folder
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.data.batching import TextBatch
from glassformer.data.image_batching import Draw, ImageStream
from glassformer.data.text import Windows
from glassformer.data.transform import PixelTable
from glassformer.errors import CheckpointError, GlassformerError
from glassformer.evaluate.predict import pool_windows, predict_pictures, predict_rows
from glassformer.packing import Packing
from glassformer.runtime import cache_folder
from glassformer.train.config import FitConfig
from glassformer.train.freezing import fixed_layers
from glassformer.train.loop import TextStream
from glassformer.train.objectives import Classification, ImageClassification, targets_and_weights

FORMAT = 1  # of a cached matrix; another one is computed anew
MOST_BYTES = 2 << 30  # of all cached features together; the longest unused ones go first
MOST_ROWS = 1 << 29  # bytes of the rows of a table of images that are kept where upper layers learn


def can_be_cached(model: Any, *changes: float) -> bool:
    """Whether an input gives the head the same vector at every step: nothing below it learns or is random.

    Args:
        changes: rates of what changes the input at random; each must be 0.
    """
    if not (model.has_attention and model.has_features):
        return False
    below = model.embeddings, model.encoder
    learns = any(p.requires_grad for part in below for p in part.parameters())
    return not (learns or _is_random(model) or any(changes))


def cached_layers(model: Any, config: FitConfig, images: int, *changes: float) -> int:
    """Behind how many of the lowest layers the rows of so many images are the same at every step, and few
    enough to keep; 0: behind none. The layers above learn."""
    if not model.has_attention or _is_random(model) or any(changes):
        return 0
    size = next(model.encoder.parameters()).element_size()
    if images * model.config.embedding.num_tokens * model.width * size > MOST_ROWS:
        return 0
    layers = fixed_layers(model, config)
    return layers if layers < len(model.encoder.layers) else 0


def _is_random(model: Any) -> bool:
    """Whether anything is left out at random in training, below the head."""
    c = model.config
    e = c.encoder
    rates = (c.embedding.dropout, e.dropout, e.attention_dropout, e.feed_forward_dropout, e.stochastic_depth)
    return any(rates)


def features_of(
    model: Any,
    inputs: Sequence[np.ndarray | None],
    setting: str,
    compute: Callable[[], np.ndarray],
    device: torch.device,
    home: Path | None = None,
) -> Tensor:
    """What ``compute`` gives, ``[n, ...]`` in the model's number format; from the cache if computed before.

    A cached matrix that is damaged is computed anew; a cache that cannot be written is done without.

    Args:
        inputs: arrays that the features are made from, ``setting`` how; another byte, another matrix.
    """
    folder = (home or cache_folder() / "features") / _key(model, inputs, setting)
    with suppress(CheckpointError):
        verify_folder(folder)
        found = read_tensors(folder, "features")["features"]
        with suppress(OSError):
            os.utime(folder)  # used: kept longest
        return found.to(device)
    out = torch.from_numpy(compute()).to(next(model.encoder.parameters()).dtype)

    def write(path: Path) -> None:
        write_tensors(path, {"features": out}, name="features")

    with suppress(GlassformerError, OSError):
        write_folder(folder, write, overwrite=True)
        _prune(folder.parent, MOST_BYTES, folder)
    return out.to(device)


def _read_features(model: Any, batch: TextBatch) -> Tensor:
    return model.features(batch.ids, batch.packing, batch.segments)


def _key(model: nn.Module, inputs: Sequence[np.ndarray | None], setting: str) -> str:
    """SHA-256 of all that decides the features: weights, their format, the way to read them, the inputs."""
    digest = hashlib.sha256()
    c: Any = model.config  # of which the head has no part in the features
    device = next(model.parameters()).device.type
    digest.update(f"{FORMAT} {torch.__version__} {device} {c.embedding} {c.encoder} {setting}".encode())
    for name, x in model.state_dict().items():
        if name.startswith(("embeddings.", "encoder.")):
            digest.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
            digest.update(x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    for array in inputs:
        digest.update(b"none" if array is None else np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _prune(home: Path, most: int, fresh: Path | None = None) -> None:
    """Remove what was not used for longest until no more than ``most`` bytes are left.

    What was just written counts as used last, whatever the clock says: it may have been set back since.
    """
    folders = [path for path in home.iterdir() if path.is_dir() and not path.name.startswith(".")]
    total = 0
    for folder in sorted(folders, key=lambda path: (path != fresh, -path.stat().st_mtime)):
        total += sum(file.stat().st_size for file in folder.iterdir())
        if total > most:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class FeatureBatch:
    """Features ``[B, D]``, or rows of images ``[B, T, D]``; the packing of the inputs they stand for, and
    which examples they are ``[B]``."""

    features: Tensor
    packing: Packing
    index: np.ndarray


@dataclass(frozen=True)
class FeatureStream(TextStream):
    """The batches of a ``TextStream``, with features in the place of tokens."""

    features: Tensor

    def pack(self, index: np.ndarray) -> FeatureBatch:
        lengths = tuple(self.table.lengths[index].tolist())
        return FeatureBatch(self.features[torch.from_numpy(index)], Packing(lengths, self.device), index)


@dataclass(frozen=True)
class PictureFeatureStream(ImageStream):
    """The batches of an ``ImageStream``, with features in the place of pixels."""

    features: Tensor

    def pack(self, index: Draw) -> FeatureBatch:
        packing = Packing.uniform(len(index.index), self.tokens, self.device)
        return FeatureBatch(self.features[torch.from_numpy(index.index)], packing, index.index)


@dataclass
class HeadClassification(Classification):
    """``Classification`` from features: the same loss, pooling and head alone being computed."""

    def inputs(self, batch: FeatureBatch) -> dict[str, Tensor]:
        return {"features": batch.features} | targets_and_weights(self, batch.index, batch.features.device)

    def logits(self, model: nn.Module, given: Mapping[str, Tensor], packing: Packing) -> Tensor:
        return model.classify(given["features"])  # type: ignore[operator]  # every model here has it


@dataclass
class UpperClassification(HeadClassification):
    """``HeadClassification`` from the rows of images ``[B, T, D]`` behind the lowest ``layers``."""

    layers: int = 0

    def logits(self, model: nn.Module, given: Mapping[str, Tensor], packing: Packing) -> Tensor:
        rows = given["features"].flatten(0, 1)
        return model.answer_above(rows, packing, self.layers).logits  # type: ignore[operator]  # as above


def text_features(model: Any, table: Any, batch_tokens: int, device: torch.device) -> Tensor:
    """What the head reads of each text of a ``TokenTable``, ``[n, D]``."""

    def compute() -> np.ndarray:
        return predict_rows(model, table, _read_features, batch_tokens=batch_tokens, device=device)

    setting = f"{model.config.pooling} " + ("apart " if getattr(model.config, "sides", None) else "")
    return features_of(model, (table.ids, table.starts, table.segments), setting, compute, device)


def image_features(
    model: Any, table: PixelTable, transform: Any, batch_size: int, device: torch.device, layers: int = 0
) -> Tensor:
    """What the head reads of each image ``[n, D]``, or the rows behind the lower ``layers`` ``[n, T, D]``."""

    def compute() -> np.ndarray:
        what = layers or "features"
        return predict_pictures(model, table, transform, what, batch_size=batch_size, device=device)

    setting = f"{layers or model.config.pooling} {transform}"
    return features_of(model, (table.pixels,), setting, compute, device)


def on_features(
    model: Any,
    stream: TextStream,
    objective: Classification,
    held: Windows | None,
    batch_tokens: int,
    how: str = "mean",
) -> tuple[FeatureStream, HeadClassification, Callable[[], np.ndarray] | None]:
    """The same training on features: its batches, loss, and logits of held-out texts (None: none).

    ``how``: the logits of a text in several windows are their "mean" or their "max".
    """

    def prepare(table: Any) -> Tensor:
        return text_features(model, table, batch_tokens, stream.device)

    s, o = stream, objective
    train = FeatureStream(s.table, s.settings, s.accumulate, s.seed, s.device, prepare(s.table))
    head = HeadClassification(o.targets, o.weights, o.label_smoothing, criterion=o.criterion)
    if held is None:
        return train, head, None
    judged = prepare(held.table)

    def logits() -> np.ndarray:
        rows = _classify(model, judged)
        return rows if held.owners is None else pool_windows(rows, held.owners, held.texts, how)

    return train, head, logits


def on_picture_features(
    model: Any,
    stream: ImageStream,
    objective: ImageClassification,
    held: PixelTable | None,
    batch_size: int,
    layers: int = 0,
) -> tuple[PictureFeatureStream, HeadClassification, Callable[[], np.ndarray] | None]:
    """As ``on_features``, for images that are not changed at random; ``layers`` 0: the head alone learns."""
    s, o = stream, objective

    def prepare(table: PixelTable) -> Tensor:
        return image_features(model, table, s.transform, batch_size, s.device, layers)

    train = PictureFeatureStream(
        s.table,
        s.transform,
        s.changes,
        s.tokens,
        s.batch_size,
        s.accumulate,
        s.seed,
        s.device,
        prepare(s.table),
    )
    kind = partial(UpperClassification, layers=layers) if layers else HeadClassification
    head = kind(o.targets, o.weights, o.label_smoothing, criterion=o.criterion)
    if held is None:
        return train, head, None
    judged = prepare(held)
    return train, head, lambda: classify_rows(model, judged, layers, batch_size)


@torch.inference_mode()
def _classify(model: Any, features: Tensor) -> np.ndarray:
    """The logits ``[n, C]`` of cached features."""
    model.eval()
    return model.classify(features).float().cpu().numpy()


@torch.inference_mode()
def classify_rows(model: Any, features: Tensor, layers: int, batch_size: int) -> np.ndarray:
    """The logits ``[n, C]`` of features of images, or of their rows ``[n, T, D]`` behind ``layers``."""
    if not layers:
        return _classify(model, features)
    model.eval()
    packings = [Packing.uniform(len(x), x.shape[1], x.device) for x in features.split(batch_size)]
    parts = zip(features.split(batch_size), packings, strict=True)
    out = [model.answer_above(x.flatten(0, 1), packing, layers).logits for x, packing in parts]
    return torch.cat(out).float().cpu().numpy()
