"""ViT (Dosovitskiy et al., 2021): a picture is a sentence of patches; THE encoder, pooling and head follow.

Read it from top to bottom: the config, the forward pass, the presets. The differences from the paper's code
are in layout only: rows are packed, patches are cut and multiplied instead of convolved, and queries, keys and
values come from one product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.models.backbone import Backbone
from glassformer.models.output import ModelOutput
from glassformer.nn.encoder import Encoder, EncoderConfig
from glassformer.nn.heads import ClassificationHead
from glassformer.nn.patches import PatchConfig, PatchEmbedding, Pictures, interpolate_positions
from glassformer.nn.pooling import make_pooling
from glassformer.nn.trace import Trace
from glassformer.types import HeadKind, PoolingKind


@dataclass(frozen=True)
class ViTConfig:
    """Patches, encoder, and what stands on them."""

    embedding: PatchConfig
    encoder: EncoderConfig
    pooling: PoolingKind | None = "first"  # None: no pooled vector
    head: HeadKind | None = None  # "classification" or none
    num_labels: int = 2
    head_type: str = "linear"
    head_hidden: int | None = None
    head_dropout: float = 0.0
    init_std: float = 0.02
    embedding_std: ClassVar[None] = None  # patches are a product, not a table

    def __post_init__(self) -> None:
        if self.embedding.d_model != self.encoder.d_model:
            raise ConfigError(
                f"patch width {self.embedding.d_model} and encoder width {self.encoder.d_model} differ"
            )
        if self.head not in (None, "classification"):
            raise ConfigError(f"a ViT has no {self.head} head", where="head", fix="Use classification")
        if self.head == "classification" and self.pooling is None:
            raise ConfigError("a classification head needs a pooling", where="head")


class ViT(Backbone):
    """A picture encoder with an optional pooling and head."""

    def __init__(self, config: ViTConfig):
        super().__init__()
        c = self.config = config
        d = c.encoder.d_model
        self.embeddings = PatchEmbedding(c.embedding)
        self.encoder = Encoder(c.encoder)
        self.pooling = make_pooling(c.pooling, d) if c.pooling else None
        if c.head == "classification":
            self.head = ClassificationHead(d, c.num_labels, c.head_type, c.head_hidden, c.head_dropout)
        self.init_weights()

    def forward(
        self, pixel_values: Pictures, *, packed: bool = False, trace: Trace | None = None
    ) -> ModelOutput:
        """Normalised pictures ``[B, C, H, W]``, or a list of ``[C, H_i, W_i]`` of several sizes.

        Args:
            packed: leave token-wise results as packed rows ``[N, D]``, and compute only what the head reads.
                A list of pictures is always answered so, since its sequences differ in length.
            trace: what to record on the way; nothing else is kept.

        A picture of another size than the config's is read with interpolated positions.

        Raises:
            ShapeError: other channels or dimensions than the model's, or a picture smaller than a patch.
        """
        x, packing = self.embed(pixel_values)  # [N, D]
        out = self.run_rows(x, packing, trace, every_row=not packed)
        if packed or not isinstance(pixel_values, Tensor):
            return out
        return out.unpacked((packing.count, packing.max_length))

    def at_size(self, image_size: tuple[int, ...]) -> ViT:
        """The same weights for pictures of another size: learned positions are interpolated once and for all."""
        c = self.config
        other = ViT(replace(c, embedding=replace(c.embedding, image_size=tuple(image_size))))
        other.load_state_dict(resized(self.state_dict(), c.embedding, other.config.embedding))
        other.weights_source = self.weights_source
        return other


def resized(state: Mapping[str, Tensor], old: PatchConfig, new: PatchConfig) -> dict[str, Tensor]:
    """Tensors of one picture size for another: the table of learned positions is read on the new grid."""
    out = dict(state)
    if old.image_size != new.image_size and "embeddings.positions" in out:
        first, table = int(old.class_token), out["embeddings.positions"]
        grid = interpolate_positions(table[first:], old.grid, new.grid)
        out["embeddings.positions"] = torch.cat([table[:first], grid])
    return out


# --- presets: plain functions with every number visible -------------------------------------------


def vit(
    image_size: tuple[int, ...] = (224, 224),
    patch_size: tuple[int, ...] = (16, 16),
    d_model: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    d_ff: int = 3072,
    channels: int = 3,
    dropout: float = 0.0,
    **options,
) -> ViTConfig:
    """ViT-B/16: L12 H768 A12, 86 M parameters."""
    return ViTConfig(
        PatchConfig(d_model, image_size, patch_size, channels, "learned", dropout=dropout),
        EncoderConfig(d_model, num_layers, num_heads, d_ff, "pre", "gelu", 1e-12, dropout, final_norm=True),
        **options,
    )


def vit_base(image_size: tuple[int, ...] = (224, 224), patch_size: tuple[int, ...] = (16, 16)) -> ViTConfig:
    """ViT-B: L12 H768 A12, 86 M parameters at patch 16."""
    return vit(image_size, patch_size)


def vit_large(image_size: tuple[int, ...] = (224, 224), patch_size: tuple[int, ...] = (16, 16)) -> ViTConfig:
    """ViT-L: L24 H1024 A16, 304 M parameters at patch 16."""
    return vit(image_size, patch_size, 1024, 24, 16, 4096)


def vit_small(image_size: tuple[int, ...] = (224, 224), patch_size: tuple[int, ...] = (16, 16)) -> ViTConfig:
    """DeiT-S (Touvron et al., 2021): L12 H384 A6, 22 M parameters at patch 16."""
    return vit(image_size, patch_size, 384, 12, 6, 1536)


def vit_tiny(image_size: tuple[int, ...] = (32, 32), patch_size: tuple[int, ...] = (4, 4)) -> ViTConfig:
    """For pictures of about 32 pixels: L6 H192 A3, MLP ratio 2, 1.8 M parameters, 65 tokens.

    The usual 0.02 suits widths of about 768: narrow layers would begin close to silent, and patches would not know
    where they lie until late. Both start wider here.
    """
    config = vit(image_size, patch_size, 192, 6, 3, 384, init_std=0.08)
    return replace(config, embedding=replace(config.embedding, position_std=0.5))


def vit_one(image_size: tuple[int, ...] = (224, 224), patch_size: tuple[int, ...] = (16, 16)) -> ViTConfig:
    """One encoder layer without [CLS] that reads patch 0, as the exercise class has it: 512 wide, bias-free patches,
    positions drawn from 512^-0.5 N(0, 1), 196 tokens at 224 pixels. The head on it is Linear -> 20 -> classes.
    """
    d = 512
    return ViTConfig(
        PatchConfig(
            d,
            image_size,
            patch_size,
            positions="learned",
            class_token=False,
            bias=False,
            position_std=d**-0.5,
        ),
        EncoderConfig(d, 1, 8, 2048, "post", "relu", 1e-6, dropout=0.1),
        pooling="first",
        head_type="mlp",
        head_hidden=20,
    )
