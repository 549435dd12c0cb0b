"""ViT (Dosovitskiy et al., 2021): a picture is a sentence of patches; THE encoder, pooling and head follow.

Read it from top to bottom: the config, the forward pass, the presets. The differences from the paper's code
are in layout only: rows are packed, patches are cut and multiplied instead of convolved, and queries, keys and
values come from one product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError
from glassformer.models.output import ModelOutput
from glassformer.models.pooled import PooledHead
from glassformer.nn.encoder import Encoder, EncoderConfig
from glassformer.nn.heads import ClassificationHead
from glassformer.nn.patches import PatchConfig, PatchEmbedding, Pictures
from glassformer.nn.pooling import make_pooling
from glassformer.nn.trace import Trace, TraceRecord
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

    def __post_init__(self) -> None:
        if self.embedding.d_model != self.encoder.d_model:
            raise ConfigError(
                f"patch width {self.embedding.d_model} and encoder width {self.encoder.d_model} differ"
            )
        if self.head not in (None, "classification"):
            raise ConfigError(f"a ViT has no {self.head} head", where="head", fix="Use classification")
        if self.head == "classification" and self.pooling is None:
            raise ConfigError("a classification head needs a pooling", where="head")


class ViT(PooledHead, nn.Module):
    """A picture encoder with an optional pooling and head."""

    def __init__(self, config: ViTConfig):
        super().__init__()
        c = self.config = config
        d = c.encoder.d_model
        self.embeddings = PatchEmbedding(c.embedding)
        self.encoder = Encoder(c.encoder)
        self.pooling = make_pooling(c.pooling, d) if c.pooling else None
        self.head = None
        if c.head == "classification":
            self.head = ClassificationHead(d, c.num_labels, c.head_type, c.head_hidden, c.head_dropout)  # type: ignore[arg-type]
        self.weights_source = "random"
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
        record = TraceRecord(trace, self.config.encoder.num_layers) if trace is not None else None
        x, packing = self.embeddings(pixel_values)  # [N, D]
        few = packed and self._reads_first_rows_only and not (record and record.needs_all_rows)
        x = self.encoder(x, packing, rows=packing.first_rows if few else None, trace=record)  # [N or B, D]
        out = ModelOutput(packing, states=None if few else x, trace=record)
        if self.pooling is not None:
            out.pooler_output = self.pooling(x, packing)  # [B, D]
        if self.head is not None:
            out.logits = self.head(out.pooler_output)  # [B, C]
        return out if packed or not isinstance(pixel_values, Tensor) else _unpack(out)

    def features(self, pixel_values: Pictures) -> Tensor:
        """Of normalised pictures ``[B, C, H, W]``, ``[B, D]``: see ``remains``."""
        return self.remains(*self.embeddings(pixel_values))

    def set_compute_dtype(self, dtype: torch.dtype) -> ViT:
        """Compute patches and encoder in ``dtype``; positions, [CLS], pooling and head stay in fp32."""
        self.encoder.to(dtype)
        self.embeddings.projection.to(dtype)
        if self.embeddings.stem is not None:
            self.embeddings.stem.to(dtype)
        self.embeddings.compute_dtype = dtype
        return self

    def init_weights(self) -> None:
        """Normal weights, zero biases; convolutions as He et al. (2015); ``zero_init`` branches start at 0."""
        c = self.config
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=c.init_std)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
        # The patch product sees few inputs: a wide start keeps what it makes of them beside the positions.
        nn.init.normal_(self.embeddings.projection.weight, std=self.embeddings.projection.in_features**-0.5)
        for table in (self.embeddings.positions, self.embeddings.cls):
            if table is not None:
                nn.init.normal_(table, std=c.embedding.position_std)
        if c.encoder.zero_init:
            for layer in self.encoder.layers:
                nn.init.zeros_(layer.attention.out.weight)  # type: ignore[union-attr]
                nn.init.zeros_(layer.feed_forward.down.weight)  # type: ignore[union-attr]

    def with_head(self, **changes) -> ViT:
        """The same patches and encoder under another pooling or head; what is new is freshly initialised."""
        other = ViT(replace(self.config, **changes))
        kept = {k: v for k, v in self.state_dict().items() if k.startswith(("embeddings.", "encoder."))}
        other.load_state_dict(kept, strict=False)
        if (
            self.pooling is not None
            and other.pooling is not None
            and other.config.pooling == self.config.pooling
        ):
            other.pooling.load_state_dict(self.pooling.state_dict())
        other.weights_source = self.weights_source
        return other

    def at_size(self, image_size: tuple[int, ...]) -> ViT:
        """The same weights for pictures of another size: learned positions are interpolated once and for all."""
        from glassformer.nn.patches import interpolate_positions

        c = self.config
        other = ViT(replace(c, embedding=replace(c.embedding, image_size=tuple(image_size))))
        state = self.state_dict()
        if self.embeddings.positions is not None:
            first = int(c.embedding.class_token)
            table = state["embeddings.positions"]
            grid = interpolate_positions(table[first:], c.embedding.grid, other.config.embedding.grid)
            state["embeddings.positions"] = torch.cat([table[:first], grid])
        other.load_state_dict(state)
        other.weights_source = self.weights_source
        return other


def _unpack(out: ModelOutput) -> ModelOutput:
    """Packed rows as ``[B, T, D]``: the pictures of a tensor all have the same number of tokens."""

    def spread(rows: Tensor) -> Tensor:
        return rows.view(out.packing.count, -1, rows.shape[1])

    if out.states is not None:
        out.states = spread(out.states)
    if out.trace is not None:
        out.trace = out.trace.mapped(torch.stack, spread)  # maps: tuple of [H, T, T] -> [B, H, T, T]
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
