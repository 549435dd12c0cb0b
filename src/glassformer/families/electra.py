"""ELECTRA (Clark et al., 2020): BERT's layers over narrower embeddings, without pooler, under other heads.

The discriminator is what is fine-tuned; the head that says of each token whether it was replaced is
left out. The generator is a masked-word model whose head is as narrow as the token table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from glassformer.checkpoints.settings import number
from glassformer.families import bert
from glassformer.families.family import Family, HubLayout
from glassformer.models.text import TextEncoder, TextEncoderConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.encoder import EncoderConfig

KIND = "electra"
REPLACED = "of the head that finds replaced tokens"
NAMES = replace(
    bert.NAMES,
    prefix="electra.",
    encoder={ours: name for ours, name in bert.NAMES.encoder.items() if "pooling" not in ours}
    | {"embeddings.widen": "embeddings_project"},
    heads={
        "head.hidden": "classifier.dense",
        "head.out": "classifier.out_proj",
        "mlm.dense": "generator_predictions.dense",
        "mlm.norm": "generator_predictions.LayerNorm",
        "spans.out": "qa_outputs",
    },
    whole={"mlm.bias": "generator_lm_head.bias"},
    own_heads=("mlm.bias",),
    dropped={
        "embeddings.position_ids": "a constant 0, 1, 2, ...",
        "generator_lm_head.weight": "tied to the token table",
        "discriminator_predictions.dense.weight": REPLACED,
        "discriminator_predictions.dense.bias": REPLACED,
        "discriminator_predictions.dense_prediction.weight": REPLACED,
        "discriminator_predictions.dense_prediction.bias": REPLACED,
    },
    tied={"generator_lm_head.weight": "embeddings.word_embeddings.weight"},
)
# A classifier of tokens is one layer, which has the name of the whole of the other.
OF_TOKENS = replace(NAMES, heads={**NAMES.heads, "head.out": "classifier"})


def from_hub(
    tensors: dict[str, Tensor], where: str, config: TextEncoderConfig | None = None
) -> dict[str, Tensor]:
    """The Hub's tensors under our names.

    Raises:
        CheckpointError: keys that no table explains, a decoder that is not tied, a missing third of q, k, v.
    """
    return (OF_TOKENS if "classifier.weight" in tensors else NAMES).from_hub(tensors, where)


def to_hub(tensors: dict[str, Tensor], with_prefix: bool, config: TextEncoderConfig) -> dict[str, Tensor]:
    """Our tensors under the Hub's names; ``with_prefix`` puts ``electra.`` before the encoder's."""
    return (OF_TOKENS if config.pooling == "tokens" else NAMES).to_hub(tensors, with_prefix)


def read(settings: dict[str, Any], where: str) -> TextEncoderConfig:
    """ELECTRA's ``config.json`` as our config; what its ``summary_`` keys say is of no head that is read.

    Raises:
        CheckpointError: what BERT's raises.
    """
    config = bert.read(settings, where)
    width = number(settings, "embedding_size", where, 128)
    embedding = replace(config.embedding, width=None if width == config.encoder.d_model else width)
    return replace(config, embedding=embedding, pooling=None, words_activation="gelu", model_type=KIND)


def expresses(config: TextEncoderConfig) -> bool:
    """Whether the Hub's ELECTRA layout can express this encoder."""
    as_bert = replace(
        config,
        embedding=replace(config.embedding, width=None),
        words_activation=None,
        model_type=None,
    )
    return config.model_type == KIND and config.words_activation == "gelu" and bert.expresses(as_bert)


def write(config: TextEncoderConfig) -> dict[str, Any]:
    width = config.embedding.width or config.encoder.d_model
    return bert.write(config) | {"model_type": KIND, "embedding_size": width}


# --- presets: plain functions with every number visible -------------------------------------------


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
    """ELECTRA-small: L12 H256 A4, embeddings of 128 numbers, 14 M parameters."""
    embedding = EmbeddingConfig(
        vocab_size, d_model, "learned", max_positions, 2, dropout=dropout, width=width
    )
    encoder = EncoderConfig(
        d_model, num_layers, num_heads, d_ff, "post", "gelu", 1e-12, dropout, attention_dropout=dropout
    )
    pooling = options.pop("pooling", None)
    return TextEncoderConfig(
        embedding, encoder, pooling=pooling, words_activation="gelu", model_type=KIND, **options
    )


def _tiny() -> TextEncoderConfig:
    head: dict[str, Any] = {"pooling": "first", "head": "classification", "head_type": "mlp"}
    return electra(31, 12, 2, 3, 17, 19, width=7, num_labels=3, head_activation="gelu", **head)


ELECTRA = Family(
    KIND,
    TextEncoder,
    TextEncoderConfig,
    _tiny,
    HubLayout(
        read,
        write,
        expresses,
        NAMES,
        from_hub,
        to_hub,
        classes={
            None: "ElectraModel",
            "classification": "ElectraForSequenceClassification",
            "tokens": "ElectraForTokenClassification",
            "mlm": "ElectraForMaskedLM",
            "spans": "ElectraForQuestionAnswering",
        },
        pooling="first",
        head_type="mlp",
        head_activation="gelu",
    ),
    examples=("google/electra-small-discriminator", "google/electra-base-discriminator"),
)
