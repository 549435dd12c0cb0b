"""The same weights over padded input, from ids or pixels to probabilities: the form that a graph can be drawn of.

A packed batch needs the lengths on the host, which a graph does not have. Here the lengths are a mask, attention is
the textbook's branch, and everything else is the model's own modules.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError
from glassformer.models.image import ViT
from glassformer.models.text import Bert
from glassformer.nn.attention import attend
from glassformer.nn.encoder import Encoder, EncoderLayer
from glassformer.nn.patches import cut_patches, sinusoidal_2d
from glassformer.nn.pooling import AttentionPooling, FirstPooling, MaxPooling, MeanPooling, Pooler
from glassformer.nn.positions import LearnedPositions, sinusoidal


class PaddedText(nn.Module):
    """A text classifier over ``[B, T]`` ids and a mask.

    Args:
        model: in evaluation mode, fp32.
        max_length: the longest text that will be given.
        temperature: what logits are divided by before they become probabilities.

    Raises:
        ConfigError: the model is no Transformer.
    """

    def __init__(self, model: Any, max_length: int, temperature: float = 1.0):
        super().__init__()
        if not isinstance(model, Bert) or model.head is None:
            raise ConfigError(
                f"a {type(model).__name__} without attention cannot be exported",
                where="export",
                fix="Export a Transformer with a classification head",
            )
        self.model, self.temperature = model, temperature
        table = model.embeddings.positions
        if table is not None and not isinstance(table, LearnedPositions):
            d = model.config.embedding.d_model
            self.register_buffer("places", sinusoidal(max_length, d), persistent=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and probabilities, ``[B, C]`` each; padding may be on either side."""
        mask = attention_mask.bool()
        x = self._embed(input_ids, attention_mask)
        x = _encode(self.model.encoder, x, mask)
        logits = self.model.head(_pool(self.model.pooling, x, mask))  # type: ignore[misc]
        return logits, (logits / self.temperature).softmax(-1)

    def _embed(self, ids: Tensor, mask: Tensor) -> Tensor:  # [B, T, D], as TextEmbedding does it
        e = self.model.embeddings
        x = e.tokens(ids)
        if e.special is not None:
            own = e.special(torch.where(ids < e.special.num_embeddings, ids, 0))
            x = torch.where((ids < e.special.num_embeddings)[:, :, None], own, x)
        if e.project is not None:
            x = e.project(x)
        x = x * e.config.scale
        if e.config.damp_repeats:
            same = (ids[:, :, None] == ids[:, None, :]) & mask.bool()[:, None, :]  # [B, T, T]
            counts = same.sum(2).clamp(min=1)  # padding has none of its own
            x = x * (counts.float() ** -e.config.damp_repeats)[:, :, None]
        if e.segments is not None:
            x = x + e.segments.weight[0]
        if e.positions is not None:
            place = (mask.long().cumsum(1) - 1).clamp(min=0)  # counts real tokens
            table = e.positions.weight if isinstance(e.positions, LearnedPositions) else self.places
            x = x + table[place]  # type: ignore[index]
        return e.norm(x) if e.norm is not None else x


class PaddedPictures(nn.Module):
    """A picture classifier over ``[B, C, H, W]`` pixels of the size that it was trained on.

    Args:
        model: in evaluation mode, fp32.
        mean, std: of each channel, on a scale from 0 to 1.
        temperature: what logits are divided by before they become probabilities.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, model: ViT, mean: tuple[float, ...], std: tuple[float, ...], temperature: float = 1.0):
        super().__init__()
        self.model, self.temperature = model, temperature
        self.register_buffer("mean", 255.0 * torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", 255.0 * torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """uint8 pixels -> logits and probabilities, ``[B, C]`` each."""
        x = self._embed((pixels.float() - self.mean) / self.std)
        x = _encode(self.model.encoder, x, None)
        logits = self.model.head(_pool(self.model.pooling, x, None))  # type: ignore[misc]
        return logits, (logits / self.temperature).softmax(-1)

    def _embed(self, values: Tensor) -> Tensor:  # [B, T, D], as PatchEmbedding does it
        e, c = self.model.embeddings, self.model.config.embedding
        if e.stem is not None:
            (gh, gw), (p, q) = c.grid, c.patch_size
            values = e.stem(values[:, :, : gh * p, : gw * q])
        x = e.projection(cut_patches(values, e.patch))
        if e.positions is not None:
            x = x + e.positions[int(c.class_token) :]
        elif c.positions != "none":
            x = x + sinusoidal_2d(c.grid, c.d_model)
        if e.cls is None:
            return x
        first = e.cls if e.positions is None else e.cls + e.positions[0]
        return torch.cat([first.expand(x.shape[0], 1, -1), x], dim=1)


def _encode(encoder: Encoder, x: Tensor, mask: Tensor | None) -> Tensor:
    for layer in encoder.layers:
        x = _layer(layer, x, mask)  # type: ignore[arg-type]
    return encoder.final_norm(x)


def _layer(layer: EncoderLayer, x: Tensor, mask: Tensor | None) -> Tensor:
    """``[B, T, D]`` -> ``[B, T, D]``"""
    if layer.pre_norm:
        x = x + _attend(layer, layer.norm1(x), mask)
        return x + layer.feed_forward(layer.norm2(x))
    x = layer.norm1(x + _attend(layer, x, mask))
    return layer.norm2(x + layer.feed_forward(x))


def _attend(layer: EncoderLayer, x: Tensor, mask: Tensor | None) -> Tensor:
    attention = layer.attention
    b, t = x.shape[0], x.shape[1]
    q, k, v = (
        attention.qkv(x).view(b, t, 3, *attention.heads).permute(2, 0, 3, 1, 4).unbind(0)
    )  # [B, H, T, K]
    out = attend(q, k, v, mask=mask)
    return attention.out(out.transpose(1, 2).reshape(b, t, attention.d_model))


def _pool(pooling: Any, x: Tensor, mask: Tensor | None) -> Tensor:
    """``[B, T, D]`` -> ``[B, D]``, as the packed poolings do it; the first row is the first real one."""
    if isinstance(pooling, FirstPooling | Pooler):
        first = x[:, 0] if mask is None else x[torch.arange(x.shape[0]), mask.long().argmax(1)]
        return torch.tanh(pooling.dense(first)) if isinstance(pooling, Pooler) else first
    real = x.new_ones(x.shape[0], x.shape[1], 1) if mask is None else mask[:, :, None].to(x.dtype)
    if isinstance(pooling, MeanPooling):
        return (x * real).sum(1) / real.sum(1)
    if isinstance(pooling, MaxPooling):
        return torch.where(real > 0, x, torch.finfo(x.dtype).min).amax(1)
    if isinstance(pooling, AttentionPooling):
        scores = torch.where(real > 0, pooling.score(x), torch.finfo(x.dtype).min)
        return (scores.softmax(1) * x).sum(1)
    raise ConfigError(f"{type(pooling).__name__} cannot be exported", where="export")
