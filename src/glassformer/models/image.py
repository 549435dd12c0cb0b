"""Image encoder (ViT; Dosovitskiy et al., 2021).

All families of vision Transformers (``families/``) use this model and differ only in their configs. The
patches of a batch are packed: images of different sizes need no padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.models.backbone import Backbone, ModelOutput
from glassformer.nn.encoder import Encoder, EncoderConfig
from glassformer.nn.heads import make_head
from glassformer.nn.patches import Images, PatchConfig, PatchEmbedding, interpolate_positions
from glassformer.nn.pooling import make_pooling, pooled_width
from glassformer.nn.trace import Trace
from glassformer.types import HeadKind, PoolingKind


@dataclass(frozen=True)
class ImageEncoderConfig:
    """Config of patch embeddings, encoder, pooling and head."""

    embedding: PatchConfig
    encoder: EncoderConfig
    pooling: PoolingKind | None = "first"  # None: no pooled vector
    head: HeadKind | None = None  # "classification" or none
    num_labels: int = 2
    head_type: str = "linear"
    head_hidden: int | None = None
    head_dropout: float = 0.0
    head_activation: str = "relu"  # activation of the hidden layer of an mlp head; or "gelu", "none"
    head_input_dropout: float = 0.0  # dropout before the hidden layer
    init_std: float = 0.02
    projection: int | None = None  # output features of first-norm pooling (CLIP); None: no projection
    embedding_std: ClassVar[None] = None  # images have no token embeddings

    def __post_init__(self) -> None:
        if self.embedding.d_model != self.encoder.d_model:
            raise ConfigError(
                f"patch width {self.embedding.d_model} and encoder width {self.encoder.d_model} differ"
            )
        if self.pooling != "first-norm":  # only this pooling has a projection
            object.__setattr__(self, "projection", None)
        if self.head not in (None, "classification"):
            raise ConfigError(
                f"image encoders have no {self.head} head", where="head", fix="Use classification"
            )
        if self.head == "classification" and self.pooling is None:
            raise ConfigError("a classification head needs a pooling", where="head")
        if self.pooling == "first-mean" and not self.embedding.class_token:
            what = "first-mean pooling needs a class token, but the model has none"
            raise ConfigError(what, where="pooling", fix="Use mean")
        if self.pooling == "first-two" and self.embedding.num_prefix < 2:
            what = "first-two pooling needs a class token and a register"
            raise ConfigError(what, where="pooling", fix="Use first or mean")

    def default_pooling(self, head: str | None) -> PoolingKind | None:
        """The default pooling for a new head: the hidden state of the first token, [CLS]."""
        return "first"


class ImageEncoder(Backbone):
    """An image encoder with an optional pooling and head."""

    reads = "images"

    def __init__(self, config: ImageEncoderConfig):
        super().__init__()
        c = self.config = config
        d = c.encoder.d_model
        self.embeddings = PatchEmbedding(c.embedding)
        self.encoder = Encoder(c.encoder)
        if c.pooling:
            sizes: Any = {"encoder": c.encoder, "projection": c.projection}
            self.pooling = make_pooling(c.pooling, d, skip=c.embedding.num_prefix, **sizes)
        if c.head == "classification":
            self.head = make_head(c, c.projection or pooled_width(c.pooling, d))
        self.init_weights()

    def forward(
        self, pixel_values: Images, *, packed: bool = False, trace: Trace | None = None
    ) -> ModelOutput:
        """The forward pass for normalized images ``[B, C, H, W]``, or a list of ``[C, H_i, W_i]``.

        For images of another size than the config's, learned positions are interpolated.

        Args:
            packed: return packed hidden states ``[N, D]``, and compute only those that the head reads.
                Results for a list of images are always packed.
            trace: attention weights and hidden states to record.

        Raises:
            ShapeError: the number of channels or dimensions is wrong, or an image is smaller than a patch.
        """
        x, packing = self.embed(pixel_values)  # [N, D]
        out = self.run_rows(x, packing, trace, every_row=not packed)
        if packed or not isinstance(pixel_values, Tensor):
            return out
        return out.to_padded((packing.count, packing.max_length))

    def at_size(self, image_size: tuple[int, ...]) -> ImageEncoder:
        """A copy for images of another size, with interpolated positions."""
        c = self.config
        other = ImageEncoder(replace(c, embedding=replace(c.embedding, image_size=tuple(image_size))))
        other.load_state_dict(other.convert_state(c, self.state_dict()))
        other.weights_source = self.weights_source
        return other

    def convert_state(self, config: ImageEncoderConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of a model for another image size, with positions interpolated to this grid."""
        out, old, new = dict(state), config.embedding, self.config.embedding
        if old.image_size != new.image_size and "embeddings.positions" in out:
            first, table = old.num_prefix_positions, out["embeddings.positions"]
            grid = interpolate_positions(table[first:], old.grid, new.grid, new.antialias)
            out["embeddings.positions"] = torch.cat([table[:first], grid])
        return out
