"""ELECTRA (Clark et al., 2020): BERT with narrower embeddings, without pooler, with other heads.

The discriminator is the model to fine-tune. Its head for replaced-token detection is not read. The generator
is a masked language model whose head is as wide as the embeddings (``words_activation`` is its activation).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from glassformer.checkpoints.settings import get_size
from glassformer.families import bert
from glassformer.families.family import text_family
from glassformer.models.text import TextEncoderConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.encoder import EncoderConfig

KIND = "electra"
REPLACED = "head for replaced-token detection"
NAMES = replace(
    bert.NAMES,
    prefix="electra.",
    encoder={name: hub_name for name, hub_name in bert.NAMES.encoder.items() if "pooling" not in name}
    | {"embeddings.widen": "embeddings_project"},
    heads={
        "head.hidden": "classifier.dense",
        "head.out": "classifier.out_proj",
        "mlm.dense": "generator_predictions.dense",
        "mlm.norm": "generator_predictions.LayerNorm",
        "spans.out": "qa_outputs",
    },
    full_names={"mlm.bias": "generator_lm_head.bias"},
    head_parameters=("mlm.bias",),
    ignored={
        "embeddings.position_ids": "a constant 0, 1, 2, ...",
        "generator_lm_head.weight": "tied to the token embeddings",
        "discriminator_predictions.dense.weight": REPLACED,
        "discriminator_predictions.dense.bias": REPLACED,
        "discriminator_predictions.dense_prediction.weight": REPLACED,
        "discriminator_predictions.dense_prediction.bias": REPLACED,
    },
    tied={"generator_lm_head.weight": "embeddings.word_embeddings.weight"},
)
# ELECTRA's token classifier is one layer, ``classifier.weight``; its text classifier has two layers,
# ``classifier.dense`` and ``classifier.out_proj``.
TOKEN_NAMES = replace(NAMES, heads={**NAMES.heads, "head.out": "classifier"})


def from_hub(
    tensors: dict[str, Tensor], where: str, config: TextEncoderConfig | None = None
) -> dict[str, Tensor]:
    """Convert the Hub's tensors to ours."""
    return (TOKEN_NAMES if "classifier.weight" in tensors else NAMES).from_hub(tensors, where)


def to_hub(tensors: dict[str, Tensor], with_prefix: bool, config: TextEncoderConfig) -> dict[str, Tensor]:
    """Convert our tensors to the Hub's; ``with_prefix``: encoder names start with ``electra.``."""
    return (TOKEN_NAMES if config.pooling == "tokens" else NAMES).to_hub(tensors, with_prefix)


def read(settings: dict[str, Any], where: str) -> TextEncoderConfig:
    """Our config from ELECTRA's ``config.json``; the ``summary_`` keys belong to an unsupported head."""
    config = bert.read(settings, where)
    width = get_size(settings, "embedding_size", where, 128)
    embedding = replace(config.embedding, width=None if width == config.encoder.d_model else width)
    return replace(config, embedding=embedding, pooling=None, words_activation="gelu", model_type=KIND)


def write(config: TextEncoderConfig) -> dict[str, Any]:
    width = config.embedding.width or config.encoder.d_model
    return bert.write(config) | {"model_type": KIND, "embedding_size": width}


# --- presets --------------------------------------------------------------------------------------


def electra(
    vocab_size: int = 30_522,
    d_model: int = 256,
    num_layers: int = 12,
    num_heads: int = 4,
    d_ff: int = 1024,
    max_positions: int = 512,
    dropout: float = 0.1,
    width: int | None = 128,
    **options,
) -> TextEncoderConfig:
    """ELECTRA-small: L12 H256 A4, embeddings of width 128, 14 M parameters."""
    embedding = EmbeddingConfig(
        vocab_size,
        d_model,
        positions="learned",
        max_positions=max_positions,
        segments=2,
        dropout=dropout,
        width=width,
    )
    encoder = EncoderConfig(
        d_model,
        num_layers,
        num_heads,
        d_ff,
        norm="post",
        activation="gelu",
        eps=1e-12,
        dropout=dropout,
        attention_dropout=dropout,
    )
    pooling = options.pop("pooling", None)
    return TextEncoderConfig(
        embedding, encoder, pooling=pooling, words_activation="gelu", model_type=KIND, **options
    )


ELECTRA = text_family(
    KIND,
    "Electra",
    electra,
    read,
    write,
    NAMES,
    from_hub=from_hub,
    to_hub=to_hub,
    pooling="first",
    head_type="mlp",
    head_activation="gelu",
    tiny_options={"width": 7},
    examples=("google/electra-small-discriminator", "google/electra-base-discriminator"),
)
