"""Training on cached features of a frozen encoder.

If nothing below the head is trained or random, the pooled vector of an example is the same in every epoch. So
the vectors are computed once. If upper layers are trained, the features of an image are the input of the
lowest trained layer. Features are stored in the user's cache folder, in a subfolder named by the SHA-256 of
weights and inputs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.checkpoints.files import verify_folder, write_folder
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.data.batching import TextBatch
from glassformer.data.image_batching import BatchSpec, ImageStream
from glassformer.data.text import Windows
from glassformer.data.transform import PixelTable
from glassformer.errors import CheckpointError, GlassformerError
from glassformer.evaluate.predict import pool_windows, predict_images, predict_rows
from glassformer.packing import Packing
from glassformer.runtime import cache_folder
from glassformer.train.config import FitConfig
from glassformer.train.freezing import num_frozen_layers
from glassformer.train.loop import TextStream
from glassformer.train.objectives import Classification, targets_and_weights

FORMAT = 1  # version of cached features; other versions are recomputed
MAX_CACHE_BYTES = 2 << 30  # 2 GiB; then the least recently used features are removed
MAX_TOKEN_BYTES = 1 << 29  # 512 MiB, maximum size of the features of a data set if upper layers are trained


def can_be_cached(model: Any, *changes: float) -> bool:
    """Whether the input of the head is the same at every step.

    Nothing below the head may be trained or random, and all rates in ``changes`` must be 0.
    """
    if not (model.has_attention and model.has_features):
        return False
    parts = model.embeddings, model.encoder
    is_trained = any(p.requires_grad for part in parts for p in part.parameters())
    return not (is_trained or _is_random(model) or any(changes))


def cached_layers(model: Any, config: FitConfig, images: int, *changes: float) -> int:
    """The number of lowest frozen layers whose output for ``images`` images can be cached; 0: no caching."""
    if not model.has_attention or _is_random(model) or any(changes):
        return 0
    size = next(model.encoder.parameters()).element_size()
    if images * model.config.embedding.num_tokens * model.width * size > MAX_TOKEN_BYTES:
        return 0
    layers = num_frozen_layers(model, config)
    return layers if layers < len(model.encoder.layers) else 0


def _is_random(model: Any) -> bool:
    c = model.config
    e = c.encoder
    rates = (c.embedding.dropout, e.dropout, e.attention_dropout, e.feed_forward_dropout, e.stochastic_depth)
    return any(rates)


def cached_features(
    model: Any,
    inputs: Sequence[np.ndarray | None],
    setting: str,
    compute: Callable[[], np.ndarray],
    device: torch.device,
) -> Tensor:
    """The result of ``compute`` ``[n, ...]`` in the model's dtype, from the cache if possible.

    The cache key is a hash of the weights, ``inputs`` and ``setting``. Damaged features are recomputed. If
    the cache folder is not writable, nothing is cached.
    """
    folder = cache_folder() / "features" / _key(model, inputs, setting)
    with suppress(CheckpointError):
        verify_folder(folder)
        features = read_tensors(folder, "features")["features"]
        with suppress(OSError):
            os.utime(folder)  # marks the features as recently used
        return features.to(device)
    out = torch.from_numpy(compute()).to(next(model.encoder.parameters()).dtype)

    def write(path: Path) -> None:
        write_tensors(path, {"features": out}, name="features")

    with suppress(GlassformerError, OSError):
        write_folder(folder, write, overwrite=True)
        _prune(folder.parent, MAX_CACHE_BYTES, folder)
    return out.to(device)


def _key(model: nn.Module, inputs: Sequence[np.ndarray | None], setting: str) -> str:
    """SHA-256 of everything that determines the features: weights, settings, inputs."""
    digest = hashlib.sha256()
    c: Any = model.config
    device = next(model.parameters()).device.type
    digest.update(f"{FORMAT} {torch.__version__} {device} {c.embedding} {c.encoder} {setting}".encode())
    for name, x in model.state_dict().items():
        if name.startswith(("embeddings.", "encoder.")):
            digest.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
            digest.update(x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    for array in inputs:
        digest.update(b"none" if array is None else np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _prune(home: Path, max_bytes: int, newest: Path | None = None) -> None:
    """Remove the least recently used features until at most ``max_bytes`` bytes are left.

    ``newest`` counts as the most recently used, even if the clock of the file system is wrong.
    """
    folders = [path for path in home.iterdir() if path.is_dir() and not path.name.startswith(".")]
    total = 0
    for folder in sorted(folders, key=lambda path: (path != newest, -path.stat().st_mtime)):
        total += sum(file.stat().st_size for file in folder.iterdir())
        if total > max_bytes:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class FeatureBatch:
    """The features of a batch."""

    features: Tensor  # [B, D], or [B, T, D] if upper layers are trained
    packing: Packing  # of the original inputs
    index: np.ndarray  # [B] indices of the examples


@dataclass(frozen=True)
class FeatureStream(TextStream):
    """The batches of a ``TextStream``, with features instead of tokens."""

    features: Tensor

    def pack(self, index: np.ndarray) -> FeatureBatch:
        lengths = tuple(self.table.lengths[index].tolist())
        return FeatureBatch(self.features[torch.from_numpy(index)], Packing(lengths, self.device), index)


@dataclass(frozen=True)
class ImageFeatureStream(ImageStream):
    """The batches of an ``ImageStream``, with features instead of pixels."""

    features: Tensor

    def pack(self, index: BatchSpec) -> FeatureBatch:
        rows = index.index if index.rows is None else index.index[index.rows]
        packing = Packing.uniform(len(rows), self.tokens, self.device)
        return FeatureBatch(self.features[torch.from_numpy(rows)], packing, rows)


@dataclass
class HeadClassification(Classification):
    """``Classification`` on features: only pooling and head are computed."""

    def inputs(self, batch: FeatureBatch) -> dict[str, Tensor]:
        return {"features": batch.features} | targets_and_weights(self, batch.index, batch.features.device)

    def logits(self, model: nn.Module, tensors: Mapping[str, Tensor], packing: Packing) -> Tensor:
        return model.classify(tensors["features"])  # type: ignore[operator]  # every model here has it


@dataclass
class UpperClassification(HeadClassification):
    """``HeadClassification`` for images, on outputs ``[B, T, D]`` of the lowest ``layers`` layers."""

    layers: int = 0

    def logits(self, model: nn.Module, tensors: Mapping[str, Tensor], packing: Packing) -> Tensor:
        x = tensors["features"].flatten(0, 1)  # [N, D]
        return model.apply_above(x, packing, self.layers).logits  # type: ignore[operator]  # every encoder has it


def text_features(model: Any, table: Any, batch_tokens: int, device: torch.device) -> Tensor:
    """The input of the head for each text of a ``TokenTable``, ``[n, D]``."""

    def read(model: Any, batch: TextBatch) -> Tensor:
        return model.features(batch.ids, batch.packing, batch.segments)

    setting = f"{model.config.pooling} " + ("apart " if getattr(model.config, "sides", None) else "")
    compute = partial(predict_rows, model, table, read, batch_tokens=batch_tokens, device=device)
    return cached_features(model, (table.ids, table.starts, table.segments), setting, compute, device)


def image_features(
    model: Any, table: PixelTable, transform: Any, batch_size: int, device: torch.device, layers: int = 0
) -> Tensor:
    """The input of the head for each image ``[n, D]``, or with ``layers`` their output ``[n, T, D]``."""
    what = layers or "features"
    compute = partial(predict_images, model, table, transform, what, batch_size=batch_size, device=device)
    setting = f"{layers or model.config.pooling} {transform}"
    return cached_features(model, (table.pixels,), setting, compute, device)


def feature_training(
    stream: TextStream | ImageStream,
    objective: Classification,
    features_of: Callable[[Any], Tensor],
    classify: Callable[[Tensor], np.ndarray],
    validation: Windows | PixelTable | None,
    layers: int = 0,
    how: str = "mean",
) -> tuple[FeatureStream | ImageFeatureStream, HeadClassification, Callable[[], np.ndarray] | None]:
    """Training on features: batches, objective, and a function that returns the validation logits.

    Args:
        features_of: computes the features of a table.
        classify: computes the logits of features.
        validation: the validation examples; None: no validation.
        layers: number of frozen layers below the features of images; 0: only the head is trained.
        how: how the logits of a text's windows are combined, "mean" or "max".
    """
    kind = ImageFeatureStream if isinstance(stream, ImageStream) else FeatureStream
    settings = {field.name: getattr(stream, field.name) for field in fields(stream)}
    train = kind(**settings, features=features_of(stream.table))
    o, head_kind = objective, partial(UpperClassification, layers=layers) if layers else HeadClassification
    head = head_kind(o.targets, o.weights, o.label_smoothing, criterion=o.criterion)
    if validation is None:
        return train, head, None
    if not isinstance(validation, Windows):
        return train, head, partial(classify, features_of(validation))
    features, text_of_window = features_of(validation.table), validation.text_of_window

    def logits() -> np.ndarray:
        rows = classify(features)
        return (
            rows if text_of_window is None else pool_windows(rows, text_of_window, validation.num_texts, how)
        )

    return train, head, logits


@torch.inference_mode()
def classify_rows(model: Any, features: Tensor, layers: int = 0, batch_size: int = 0) -> np.ndarray:
    """Logits ``[n, C]`` of features; with ``layers``, of outputs ``[n, T, D]`` of the lowest ``layers``."""
    model.eval()
    if not layers:
        return model.classify(features).float().cpu().numpy()
    packings = [Packing.uniform(len(x), x.shape[1], x.device) for x in features.split(batch_size)]
    parts = zip(features.split(batch_size), packings, strict=True)
    out = [model.apply_above(x.flatten(0, 1), packing, layers).logits for x, packing in parts]
    return torch.cat(out).float().cpu().numpy()
