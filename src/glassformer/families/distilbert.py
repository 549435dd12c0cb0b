"""DistilBERT (Sanh et al., 2019): BERT without segments and pooler, with its own tensor names and
settings.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from glassformer.checkpoints.layout import activation
from glassformer.checkpoints.names import NameTable
from glassformer.checkpoints.settings import number, real, shown
from glassformer.errors import CheckpointError, UnsupportedModelError
from glassformer.families.family import text_family
from glassformer.models.text import TextEncoderConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.encoder import EncoderConfig
from glassformer.nn.positions import sinusoidal

EPS = 1e-12  # of all layer norms; config.json has no key for it
NAMES = NameTable(
    prefix="distilbert.",
    encoder={
        "embeddings.tokens": "embeddings.word_embeddings",
        "embeddings.positions": "embeddings.position_embeddings",
        "embeddings.norm": "embeddings.LayerNorm",
        "encoder.layers.{i}.attention.out": "transformer.layer.{i}.attention.out_lin",
        "encoder.layers.{i}.norm1": "transformer.layer.{i}.sa_layer_norm",
        "encoder.layers.{i}.feed_forward.up": "transformer.layer.{i}.ffn.lin1",
        "encoder.layers.{i}.feed_forward.down": "transformer.layer.{i}.ffn.lin2",
        "encoder.layers.{i}.norm2": "transformer.layer.{i}.output_layer_norm",
    },
    fused={
        "encoder.layers.{i}.attention.qkv": (
            "transformer.layer.{i}.attention.q_lin",
            "transformer.layer.{i}.attention.k_lin",
            "transformer.layer.{i}.attention.v_lin",
        )
    },
    heads={
        "head.hidden": "pre_classifier",
        "head.out": "classifier",
        "mlm.dense": "vocab_transform",
        "mlm.norm": "vocab_layer_norm",
        "spans.out": "qa_outputs",
    },
    whole={"mlm.bias": "vocab_projector.bias"},
    own_heads=("mlm.bias",),
    dropped={
        "embeddings.position_ids": "a constant 0, 1, 2, ...",
        "vocab_projector.weight": "tied to the token embeddings",
    },
    tied={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
)
POSITIONS, THEIR_POSITIONS = "embeddings.positions.weight", "embeddings.position_embeddings.weight"
TOLERANCE = 2e-3  # of sinusoidal positions, which a file may store in half precision


def from_hub(tensors: dict[str, Tensor], where: str, config: TextEncoderConfig) -> dict[str, Tensor]:
    """Convert the Hub's tensors to ours, without sinusoidal positions, which are computed here.

    Raises:
        CheckpointError: unknown or missing tensors, an output layer that is not tied to the embeddings, or
            positions that are not sinusoidal although ``config.json`` says so.
    """
    out = NAMES.from_hub(tensors, where)
    rows, width = config.embedding.max_positions, config.embedding.d_model
    if config.embedding.positions == "sinusoidal" and (table := out.pop(POSITIONS, None)) is not None:
        near = (
            table.shape == (rows, width) and (table.float() - sinusoidal(rows, width)).abs().max() < TOLERANCE
        )
        if not near:
            what = "sinusoidal_pos_embds = True, but its position_embeddings are not sines and cosines"
            raise UnsupportedModelError(what, where=where, fix="Set it to false in config.json")
    return out


def to_hub(tensors: dict[str, Tensor], with_prefix: bool, config: TextEncoderConfig) -> dict[str, Tensor]:
    """Convert our tensors to the Hub's, with sinusoidal positions if the config has them."""
    out = NAMES.to_hub(tensors, with_prefix)
    if config.embedding.positions == "sinusoidal":
        table = sinusoidal(config.embedding.max_positions, config.embedding.d_model)
        out[(NAMES.prefix if with_prefix else "") + THEIR_POSITIONS] = table
    return out


# --- config.json ------------------------------------------------------------------------------------


def read(settings: dict[str, Any], where: str) -> TextEncoderConfig:
    """Our config from DistilBERT's ``config.json``.

    Raises:
        CheckpointError: a missing key, an unsupported activation, or an invalid value.
    """
    fixed = settings.get("sinusoidal_pos_embds", False)
    if not isinstance(fixed, bool):
        raise CheckpointError(f"sinusoidal_pos_embds = {shown(fixed)} is not a truth value", where=where)
    d, dropout = number(settings, "dim", where), real(settings, "dropout", where, 0.1, 1)
    return TextEncoderConfig(
        EmbeddingConfig(
            number(settings, "vocab_size", where),
            d,
            "sinusoidal" if fixed else "learned",
            number(settings, "max_position_embeddings", where, 512),
            segments=0,
            eps=EPS,
            dropout=dropout,
        ),
        EncoderConfig(
            d,
            number(settings, "n_layers", where),
            number(settings, "n_heads", where),
            number(settings, "hidden_dim", where),
            "post",
            activation(settings, where, "activation"),  # type: ignore[arg-type]  # checked
            EPS,
            dropout,
            attention_dropout=real(settings, "attention_dropout", where, 0.1, 1),
        ),
        pooling=None,
        head_dropout=real(settings, "seq_classif_dropout", where, 0.2, 1),
        init_std=real(settings, "initializer_range", where, 0.02),
    )


def is_representable(config: TextEncoderConfig) -> bool:
    """Whether this encoder can be saved as DistilBERT."""
    e, c = config.embedding, config.encoder
    return (
        e.positions in ("learned", "sinusoidal")
        and e.segments == 0
        and e.norm
        and e.eps == c.eps == EPS
        and c.norm == "post"
        and c.is_plain
        and not c.final_norm
        and c.activation in ("gelu", "relu")
        and (e.token_width, e.width) == (None, None)
        and not e.frozen
        and not e.damp_repeats
        and e.scale == 1
        and config.words_activation in (None, c.activation)
    )


def write(config: TextEncoderConfig) -> dict[str, Any]:
    e, c = config.embedding, config.encoder
    return {
        "model_type": "distilbert",
        "vocab_size": e.vocab_size,
        "dim": c.d_model,
        "n_layers": c.num_layers,
        "n_heads": c.num_heads,
        "hidden_dim": c.d_ff,
        "activation": c.activation,
        "dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "seq_classif_dropout": config.head_dropout,
        "max_position_embeddings": e.max_positions,
        "sinusoidal_pos_embds": e.positions == "sinusoidal",
        "initializer_range": config.init_std,
        "pad_token_id": 0,
        "torch_dtype": "float32",
    }


# --- presets --------------------------------------------------------------------------------------


def distilbert(
    vocab_size: int = 30_522,
    d_model: int = 768,
    num_layers: int = 6,
    num_heads: int = 12,
    d_ff: int = 3072,
    max_positions: int = 512,
    dropout: float = 0.1,
    **options,
) -> TextEncoderConfig:
    """DistilBERT: L6 H768 A12, 66 M parameters."""
    return TextEncoderConfig(
        EmbeddingConfig(vocab_size, d_model, "learned", max_positions, segments=0, eps=EPS, dropout=dropout),
        EncoderConfig(
            d_model, num_layers, num_heads, d_ff, "post", "gelu", EPS, dropout, attention_dropout=dropout
        ),
        pooling=options.pop("pooling", None),
        **options,
    )


DISTILBERT = text_family(
    "distilbert",
    "DistilBert",
    distilbert,
    read,
    write,
    is_representable,
    NAMES,
    from_hub=from_hub,
    to_hub=to_hub,
    pooling="first",
    head_type="mlp",
    examples=(
        "distilbert/distilbert-base-uncased",
        "distilbert/distilbert-base-uncased-finetuned-sst-2-english",
    ),
)
