"""How an embedder is put together from its settings: tokenizer, encoder, and how rows become one vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tokenizers import Tokenizer

from glassformer.errors import ConfigError, InputError, NotForThisModelError
from glassformer.families.pretrained import load_pretrained, read_checkpoint
from glassformer.models.sentences import Normalize, Pool, Sentences, token_limit
from glassformer.models.text import TextEncoder
from glassformer.tasks.build import build_model, build_tokenizer, fitting, is_from_scratch
from glassformer.tasks.similarity.recipe import EmbedderModelConfig, EmbedderTextConfig
from glassformer.tasks.text_classification.recipe import ModelConfig, TextConfig

LONGEST = 256  # tokens, where neither settings nor checkpoint say how many
SHAPE = ("d_model", "num_layers", "num_heads", "d_ff")


def open_tokenizer(text: EmbedderTextConfig, model: EmbedderModelConfig, texts: Sequence[str]) -> Tokenizer:
    """The checkpoint's own, or one learned from the texts; errors as in ``build_tokenizer``."""
    keys = ("tokenizer", "clean", "lowercase", "vocab_size", "min_count")
    settings = {key: getattr(text, key) for key in keys}
    return build_tokenizer(
        TextConfig(**settings), ModelConfig(model=model.model, revision=model.revision), texts
    )


def sentences_for(model: EmbedderModelConfig, max_length: int | None) -> Sentences:
    """How rows become one vector: as the checkpoint says, or as the settings do, and of how many tokens.

    Raises:
        CheckpointError: a checkpoint whose own way cannot be read.
    """
    known = embedding = None
    if not is_from_scratch(model.model):
        opened = load_pretrained(model.model, revision=model.revision)
        embedding = getattr(getattr(opened, "config", None), "embedding", None)
        found = getattr(opened, "sentences", None)
        known = found if isinstance(found, Sentences) else None
        if isinstance(found, InputError):
            raise found
    if known is None or model.pooling != "auto":
        pool = Pool(("mean" if model.pooling == "auto" else model.pooling,))
        known = Sentences(pool, (Normalize(),), known.max_length if known else LONGEST)
    length = known.max_length
    if embedding is not None and embedding.positions == "learned":  # a short one is not read past its end
        length = token_limit(embedding, length)
    return replace(known, max_length=max_length or length or LONGEST)


def build_encoder(
    model: EmbedderModelConfig, how: Sentences, tokenizer: Tokenizer, max_length: int | None
) -> TextEncoder:
    """The encoder without a head, ``how`` on it.

    Raises:
        ConfigError: a model that is none of texts, sizes of a checkpoint, or too many tokens.
        CheckpointError: weights that cannot be loaded.
    """
    shape = {key: getattr(model, key) for key in SHAPE}
    built: Any
    pooling = "mean"
    if is_from_scratch(model.model):
        wide = ModelConfig(model=model.model, dropout=model.dropout or None, **shape)
        built = build_model(wide, TextConfig(max_length=how.max_length or LONGEST), tokenizer, 2)
    else:
        if given := [key for key, value in shape.items() if value is not None]:
            what = f"{given[0]} belongs to from-scratch models; {model.model!r} has its own"
            raise NotForThisModelError(what, where="model")
        checkpoint = fitting(read_checkpoint(model.model, model.revision), tokenizer, model.model)
        built = load_pretrained(checkpoint, dropout=model.dropout, attention_dropout=0.0)
        if checkpoint.family.hub is not None:
            pooling = None  # ``how`` pools: what is saved is a plain folder of the Hub, for others to go on
    if not isinstance(built, TextEncoder):
        raise NotForThisModelError(
            f"{model.model!r} is not an encoder of texts", where="model", fix="Use a Transformer"
        )
    limit = token_limit(built.config.embedding, None)
    if max_length and max_length > limit:
        what = f"max_length {max_length} is more than the model's {limit} positions"
        raise ConfigError(what, where="max_length", fix=f"Use {limit} or less")
    built = built.with_head(head=None, pooling=pooling)
    built.sentences = how
    return built
