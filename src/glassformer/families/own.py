"""Encoders that no Hugging Face format can represent, and small presets for training from scratch."""

from __future__ import annotations

from glassformer.families.family import Family
from glassformer.models.image import ImageEncoder, ImageEncoderConfig
from glassformer.models.text import TextEncoder, TextEncoderConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.encoder import EncoderConfig
from glassformer.nn.patches import PatchConfig


def encoder_small(vocab_size: int) -> TextEncoderConfig:
    """A small post-norm encoder: d 128, 4 heads, 2 layers, d_ff 256, dropout 0.1, first-token pooling."""
    return TextEncoderConfig(
        EmbeddingConfig(vocab_size, d_model=128, positions="sinusoidal", segments=0, norm=False, dropout=0.1),
        EncoderConfig(
            d_model=128,
            num_layers=2,
            num_heads=4,
            d_ff=256,
            norm="post",
            activation="relu",
            eps=1e-5,
            dropout=0.1,
        ),
        pooling="first",
        init_std=0.05,
        embedding_std=1.0,
    )


def encoder_base(vocab_size: int) -> TextEncoderConfig:
    """Four post-norm layers of BERT's width: d 768, 12 heads, d_ff 3072, dropout 0.1."""
    return TextEncoderConfig(
        EmbeddingConfig(
            vocab_size, d_model=768, positions="learned", segments=0, norm=True, eps=1e-5, dropout=0.1
        ),
        EncoderConfig(
            d_model=768,
            num_layers=4,
            num_heads=12,
            d_ff=3072,
            norm="post",
            activation="gelu",
            eps=1e-5,
            dropout=0.1,
        ),
        pooling="first",
    )


def encoder_mini(vocab_size: int) -> TextEncoderConfig:
    """One pre-norm layer, d 64, 2 heads, GELU, MLP ratio 2, dropout 0.1, sinusoidal, final norm, [CLS]."""
    return TextEncoderConfig(
        EmbeddingConfig(vocab_size, d_model=64, positions="sinusoidal", segments=0, norm=False, dropout=0.1),
        EncoderConfig(
            d_model=64,
            num_layers=1,
            num_heads=2,
            d_ff=128,
            norm="pre",
            activation="gelu",
            eps=1e-5,
            dropout=0.1,
            final_norm=True,
        ),
        pooling="first",
        embedding_std=0.5,
    )


def _tiny_text() -> TextEncoderConfig:
    return TextEncoderConfig(
        EmbeddingConfig(vocab_size=31, d_model=12, positions="sinusoidal", segments=0, norm=False),
        EncoderConfig(
            d_model=12,
            num_layers=2,
            num_heads=3,
            d_ff=17,
            norm="pre",
            activation="relu",
            eps=1e-5,
            final_norm=True,
        ),
        pooling="mean",
        head="classification",
        num_labels=3,
        init_std=0.1,
    )


def _tiny_image() -> ImageEncoderConfig:
    return ImageEncoderConfig(
        PatchConfig(12, (8, 8), (4, 4), class_token=False),
        EncoderConfig(
            d_model=12, num_layers=2, num_heads=3, d_ff=17, norm="post", activation="relu", eps=1e-5
        ),
        pooling="mean",
        head="classification",
        num_labels=3,
        init_std=0.1,
    )


OWN_TEXT = Family(
    "glassformer-text",
    TextEncoder,
    TextEncoderConfig,
    _tiny_text,
    presets={"encoder-mini": encoder_mini, "encoder-small": encoder_small, "encoder-base": encoder_base},
)
OWN_IMAGE = Family("glassformer-image", ImageEncoder, ImageEncoderConfig, _tiny_image)
