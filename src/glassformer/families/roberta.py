"""RoBERTa (Liu et al., 2019), XLM-RoBERTa (Conneau et al., 2020) and CamemBERT (Martin et al., 2020).

Encoder and ``config.json`` are the same as BERT's, except that positions start at ``pad_token_id + 1``. The
classification head is dense, tanh, linear. The masked-language-modeling head has other tensor names.
Difference from ``transformers``: a padding token inside a text has a position like any other token.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from glassformer.checkpoints.names import NameTable
from glassformer.checkpoints.settings import shorten
from glassformer.errors import CheckpointError
from glassformer.families import bert
from glassformer.families.family import Family, text_family
from glassformer.models.text import TextEncoderConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.encoder import EncoderConfig
from glassformer.nn.positions import Learned

PAD = 1  # id of the padding token; positions start at PAD + 1
NAMES = NameTable(
    prefix="roberta.",
    encoder=bert.NAMES.encoder,
    fused=bert.NAMES.fused,
    heads={
        "head.out": "classifier.out_proj",
        "mlm.dense": "lm_head.dense",
        "mlm.norm": "lm_head.layer_norm",
        "spans.out": "qa_outputs",
    },
    full_names={"mlm.bias": "lm_head.bias"},
    head_parameters=("mlm.bias",),
    ignored={
        "embeddings.position_ids": "a constant 0, 1, 2, ...",
        "lm_head.decoder.weight": "tied to the token embeddings",
        "lm_head.decoder.bias": "the same as lm_head.bias",
    },
    tied={
        "lm_head.decoder.weight": "embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
)
# The classification head contains a pooler. If a file also has the encoder's pooler, that pooler is unused.
HEAD_POOLER, POOLER = "classifier.dense.", "pooler.dense."


def _token_classifier_names(names: NameTable) -> NameTable:
    """The tensor names of a token classifier, whose head is a single linear layer."""
    return replace(names, heads={**names.heads, "head.out": "classifier"})


def from_hub(
    tensors: dict[str, Tensor],
    where: str,
    config: TextEncoderConfig | None = None,
    names: NameTable = NAMES,
) -> dict[str, Tensor]:
    """Convert the Hub's tensors to ours."""
    if any(key.startswith(HEAD_POOLER) for key in tensors):
        unused = (f"{names.prefix}{POOLER}", POOLER)
        tensors = {k.replace(HEAD_POOLER, POOLER): v for k, v in tensors.items() if not k.startswith(unused)}
    names = _token_classifier_names(names) if "classifier.weight" in tensors else names
    return names.from_hub(tensors, where)


def to_hub(
    tensors: dict[str, Tensor], with_prefix: bool, config: TextEncoderConfig, names: NameTable = NAMES
) -> dict[str, Tensor]:
    """Convert our tensors to the Hub's; ``with_prefix``: encoder names start with ``roberta.``."""
    table = _token_classifier_names(names) if config.pooling == "tokens" else names
    out = table.to_hub(tensors, with_prefix)
    if config.head != "classification":
        return out
    return {key.replace(f"{names.prefix}{POOLER}", HEAD_POOLER): tensor for key, tensor in out.items()}


def read(settings: dict[str, Any], where: str, model_type: str | None = None) -> TextEncoderConfig:
    """Our config from ``config.json``."""
    config = bert.read(settings, where)
    rows, pad = config.embedding.max_positions, settings.get("pad_token_id", PAD)
    if not isinstance(pad, int) or isinstance(pad, bool) or not 0 <= pad < rows - 1:
        what = (
            f"pad_token_id = {shorten(pad)} leaves no room in {rows} rows of positions, which start after it"
        )
        fix = f"Set it to the id of the tokenizer's padding token, {PAD} in the published vocabularies"
        raise CheckpointError(what, where=where, fix=fix)
    positions = Learned(rows - pad - 1, offset=pad + 1)
    return replace(
        config,
        embedding=replace(config.embedding, positions=positions),
        drop_before_pooler=True,
        words_activation="gelu",
        model_type=model_type,
    )


def write(config: TextEncoderConfig) -> dict[str, Any]:
    offset = getattr(config.embedding.positions, "offset", 0)
    return bert.write(config) | {
        "model_type": config.model_type or "roberta",
        "max_position_embeddings": config.embedding.max_positions + offset,
        "pad_token_id": offset - 1,
    }


# --- presets --------------------------------------------------------------------------------------


def roberta(
    vocab_size: int = 50_265,
    d_model: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    d_ff: int = 3072,
    max_positions: int = 512,
    dropout: float = 0.1,
    **options,
) -> TextEncoderConfig:
    """RoBERTa-base: L12 H768 A12, 125 M parameters."""
    return TextEncoderConfig(
        EmbeddingConfig(
            vocab_size,
            d_model,
            positions=Learned(max_positions, PAD + 1),
            segments=1,
            eps=1e-5,
            dropout=dropout,
        ),
        EncoderConfig(
            d_model,
            num_layers,
            num_heads,
            d_ff,
            norm="post",
            activation="gelu",
            eps=1e-5,
            dropout=dropout,
            attention_dropout=dropout,
        ),
        drop_before_pooler=True,
        words_activation="gelu",
        **options,
    )


def _family(kind: str, class_prefix: str, model_type: str | None, *examples: str) -> Family:
    """A ``Family`` with RoBERTa's layout; ``model_type``: see ``TextEncoderConfig``."""
    return text_family(
        kind,
        class_prefix,
        roberta,
        partial(read, model_type=model_type),
        write,
        NAMES,
        from_hub=from_hub,
        to_hub=to_hub,
        tiny_options={"model_type": model_type},
        examples=examples,
    )


ROBERTA = _family(
    "roberta",
    "Roberta",
    None,
    "FacebookAI/roberta-base",
    "FacebookAI/roberta-large",
    "distilbert/distilroberta-base",
    "sentence-transformers/all-distilroberta-v1",
    "vinai/phobert-base",
)
XLM_ROBERTA = _family("xlm-roberta", "XLMRoberta", "xlm-roberta", "FacebookAI/xlm-roberta-base")
CAMEMBERT = _family("camembert", "Camembert", "camembert", "almanach/camembert-base")
