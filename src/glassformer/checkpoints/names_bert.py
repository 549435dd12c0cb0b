"""BERT's tensors under their two names: ours, and the Hub's."""

from __future__ import annotations

import torch
from torch import Tensor

from glassformer.checkpoints.names import NameTable
from glassformer.errors import CheckpointError

BERT = NameTable(
    prefix="bert.",
    encoder={
        "embeddings.tokens": "embeddings.word_embeddings",
        "embeddings.positions": "embeddings.position_embeddings",
        "embeddings.segments": "embeddings.token_type_embeddings",
        "embeddings.norm": "embeddings.LayerNorm",
        "encoder.layers.{i}.attention.out": "encoder.layer.{i}.attention.output.dense",
        "encoder.layers.{i}.norm1": "encoder.layer.{i}.attention.output.LayerNorm",
        "encoder.layers.{i}.feed_forward.up": "encoder.layer.{i}.intermediate.dense",
        "encoder.layers.{i}.feed_forward.down": "encoder.layer.{i}.output.dense",
        "encoder.layers.{i}.norm2": "encoder.layer.{i}.output.LayerNorm",
        "pooling.dense": "pooler.dense",
    },
    fused={
        "encoder.layers.{i}.attention.qkv": (
            "encoder.layer.{i}.attention.self.query",
            "encoder.layer.{i}.attention.self.key",
            "encoder.layer.{i}.attention.self.value",
        )
    },
    heads={
        "head.out": "classifier",
        "mlm.dense": "cls.predictions.transform.dense",
        "mlm.norm": "cls.predictions.transform.LayerNorm",
        "nsp": "cls.seq_relationship",
    },
    whole={"mlm.bias": "cls.predictions.bias"},
    own_heads=("mlm.bias",),
    dropped={
        "embeddings.position_ids": "a constant 0, 1, 2, ...",
        "cls.predictions.decoder.weight": "tied to the token table",
        "cls.predictions.decoder.bias": "the same as cls.predictions.bias",
    },
)


def from_hub(tensors: dict[str, Tensor], where: str) -> dict[str, Tensor]:
    """The Hub's tensors under our names.

    Raises:
        CheckpointError: keys that no table explains, a decoder that is not tied, a missing third of q, k, v.
    """
    out = BERT.from_hub(tensors, where)
    plain = BERT.plain(tensors)
    for key, twin in (
        ("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ):
        if key in plain and twin in plain and not torch.equal(tensors[plain[key]], tensors[plain[twin]]):
            raise CheckpointError(
                f"{plain[key]} differs from {plain[twin]}: untied heads are not supported", where=where
            )
    return out


def to_hub(tensors: dict[str, Tensor], with_prefix: bool) -> dict[str, Tensor]:
    """Our tensors under the Hub's names; ``with_prefix`` puts ``bert.`` before the encoder's."""
    return BERT.to_hub(tensors, with_prefix)
