"""Build an embedder's tokenizer, encoder and pooling from its settings."""

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

LONGEST = 256  # default maximum number of tokens, if the checkpoint has none
SHAPE = ("d_model", "num_layers", "num_heads", "d_ff")


def open_tokenizer(text: EmbedderTextConfig, model: EmbedderModelConfig, texts: Sequence[str]) -> Tokenizer:
    """The checkpoint's tokenizer, or one trained on the texts; errors as in ``build_tokenizer``."""
    keys = ("tokenizer", "clean", "lowercase", "vocab_size", "min_count")
    settings = {key: getattr(text, key) for key in keys}
    return build_tokenizer(
        TextConfig(**settings), ModelConfig(model=model.model, revision=model.revision), texts
    )


def sentences_for(model: EmbedderModelConfig, max_length: int | None) -> Sentences:
    """Pooling, normalization and maximum length, from the settings or else the checkpoint's modules.json.

    Raises:
        CheckpointError: the checkpoint's modules.json is not supported.
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
    if embedding is not None and embedding.positions == "learned":  # at most as many as there are positions
        length = token_limit(embedding, length)
    return replace(known, max_length=max_length or length or LONGEST)


def build_encoder(
    model: EmbedderModelConfig, how: Sentences, tokenizer: Tokenizer, max_length: int | None
) -> TextEncoder:
    """The encoder without a head, with ``how`` as its ``sentences``.

    Raises:
        ConfigError: not a text model, sizes for a checkpoint, or too many tokens.
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
            pooling = None  # ``how`` pools, so that a saved folder is a plain encoder for transformers
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
