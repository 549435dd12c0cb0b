"""Build tokenizers and text models from settings.

The module also applies the section ``model`` to presets and checkpoints, and initializes token embeddings
with word vectors.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from glassformer.checkpoints.catalog import CATALOG, catalog_names
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.checkpoints.sentences import try_read_sentences
from glassformer.checkpoints.settings import get_section
from glassformer.config import suggest
from glassformer.data.ngrams import Ngrams
from glassformer.data.text import TokenTable, clean_text, word_tokenizer, wordpiece_tokenizer
from glassformer.data.tokenizer_file import count_ids, load_tokenizer
from glassformer.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from glassformer.errors import (
    BadValueError,
    CheckpointError,
    ConfigError,
    NotForThisModelError,
    NoTokenizerError,
    OtherLanguageWarning,
    UnknownModelError,
)
from glassformer.families import IMAGE_ARCHITECTURES, TEXT_ARCHITECTURES, family_of
from glassformer.families.pretrained import (
    Checkpoint,
    checkpoint_max_positions,
    checkpoint_segments,
    read_checkpoint,
    with_dropout,
)
from glassformer.finite import json_text
from glassformer.inputs.start import check_start
from glassformer.models.sentences import EmbeddingSettings, Normalize
from glassformer.nn.encoder import EncoderConfig
from glassformer.nn.positions import Learned
from glassformer.tasks.text_classification.recipe import ModelConfig, TextConfig
from glassformer.tasks.word2vec.estimator import Word2Vec
from glassformer.train.config import user_stacklevel
from glassformer.types import HeadKind

SIZES = ("d_model", "num_layers", "num_heads", "d_ff")
# Names of settings of encoders that are trained from scratch.
LAYERS = (*SIZES, "norm", "activation", "final_norm", "zero_init", "attention", "attention_window")
SHAPE = (*LAYERS, "norm_eps", "positions", "init_std")
DROPOUTS = ("dropout", "attention_dropout", "feed_forward_dropout", "stochastic_depth")


def without_none(values: dict[str, Any]) -> dict[str, Any]:
    """The settings that are not None."""
    return {key: value for key, value in values.items() if value is not None}


def shared_settings(section: Any, other: type) -> dict[str, Any]:
    """The settings of ``section`` whose names the section class ``other`` has too."""
    names = {f.name for f in fields(other)}
    return {key: value for key, value in vars(section).items() if key in names}


def check_unset(model: Any, keys: Sequence[str]) -> None:
    """Raise ConfigError if one of these settings is set: checkpoints do not support them."""
    if key := next((key for key in keys if getattr(model, key) is not None), None):
        what = f"{key} belongs to from-scratch models; {model.model!r} has its own"
        fix = f"Leave {key} out, or use a model from scratch such as encoder-mini or vit-tiny"
        raise NotForThisModelError(what, where="model", fix=fix)


def apply_layer_settings(preset: EncoderConfig, model: Any) -> EncoderConfig:
    """The encoder config of a preset, changed by the settings of the section ``model``."""
    if model.attention_window is not None and model.attention != "local":
        what, fix = "only local attention has a window", "Leave it out, or set attention = local"
        raise NotForThisModelError(what, where="attention_window", fix=fix)
    values = {key: getattr(model, key) for key in (*LAYERS, *DROPOUTS)}
    return replace(preset, **without_none(values | {"eps": model.norm_eps}))


def embedding_dropout(model: Any) -> float | None:
    """Dropout on the embeddings; if it is not set, the dropout of the sub-layers."""
    return model.dropout if model.embedding_dropout is None else model.embedding_dropout


def head_fields(model: Any, num_labels: int) -> dict[str, Any]:
    """The fields of a model's config for a new classification head."""
    keys = ("head_hidden", "head_dropout", "head_activation", "head_input_dropout")
    values = {key: getattr(model, key) for key in keys}
    return {"head": "classification", "num_labels": num_labels} | values


def with_new_head(base: Any, model: Any, pooling: str, **fields: Any) -> tuple[Any, list[str]]:
    """The config of a checkpoint with a new head, and the names of its other new modules.

    Dropout is off by default. ``fields`` are further fields of the config.
    """
    rates = model.dropout or 0.0, model.attention_dropout or 0.0
    config = with_dropout(base, *rates, model.embedding_dropout, model.feed_forward_dropout)
    encoder = replace(config.encoder, stochastic_depth=model.stochastic_depth)
    is_new = pooling == "attention" or (pooling == "pooler" and base.pooling != "pooler")
    return replace(config, encoder=encoder, pooling=pooling, **fields), [f"{pooling} pooling"] * is_new


# Pooling mode of sentence-transformers -> our pooling, without and with normalization of the vectors.
POOLED = {"mean": "mean", "cls": "first", "max": "max"}
POOLED_UNIT = POOLED | {"mean": "unit-mean", "cls": "unit-first"}
MIN_VOCABULARY = 31  # any vocabulary size, for a config that is only inspected
SHAPE_KEYS = (
    *SHAPE,
    *("embedding_norm", "damp_repeats", "embedding_std", "bidirectional", "embedding_dim", "vectors"),
)


def is_from_scratch(model: str) -> bool:
    """Whether a name is that of an architecture with random weights, not of a checkpoint."""
    return model in TEXT_ARCHITECTURES


def is_linear(model: str) -> bool:
    """Whether a name is that of a linear model on n-grams, which has neither tokens nor layers."""
    return (
        isinstance(model, str)
        and is_from_scratch(model)
        and family_of(TEXT_ARCHITECTURES[model](MIN_VOCABULARY)).model.kind == "linear"
    )


def check_name(model: str) -> None:
    """Raise ConfigError unless ``model`` is an architecture, path or Hub id of a model of texts."""
    if model in (*IMAGE_ARCHITECTURES, *catalog_names("images")):
        what = f"{model!r} reads images, and this is a model of texts"
        raise NotForThisModelError(what, where="model", fix="Use it with ImageClassifier")
    names = [*TEXT_ARCHITECTURES, *catalog_names("texts")]
    if model not in (*names, *CATALOG) and "/" not in model and not Path(model).expanduser().exists():
        raise UnknownModelError(f"no model {model!r}", where="model", fix=suggest(model, names))


def build_tokenizer(text: TextConfig, model: ModelConfig, texts: Sequence[str]) -> Tokenizer:
    """Load the tokenizer of the checkpoint or of a file, or train one on ``texts`` after cleaning them."""
    check_name(model.model)
    kinds = {"word": word_tokenizer, "wordpiece": wordpiece_tokenizer}
    scratch = is_from_scratch(model.model)
    if not scratch:
        check_start(model.model, "texts")
    kind = ("word" if scratch else "checkpoint") if text.tokenizer == "auto" else text.tokenizer
    if kind == "checkpoint":
        try:
            return load_tokenizer(resolve_checkpoint(model.model, model.revision).path)
        except NoTokenizerError:
            _text_checkpoint(model)  # raises a clearer error for a model of images
            raise
    if kind in kinds:
        if not scratch:
            what = f"the weights of {model.model!r} belong to its own vocabulary"
            raise ConfigError(what, where="tokenizer", fix="Use tokenizer = auto, or a from-scratch model")
        return kinds[kind](
            [clean_text(t, text.clean) for t in texts],
            min_count=text.min_count,
            vocab_size=text.vocab_size,
            lowercase=text.lowercase,
            strip_accents=text.strip_accents,
            add_special_tokens=text.add_special_tokens,
            separator=text.separator,
        )
    if not Path(kind).exists():
        what = f"{kind!r} is not a tokenizer"
        raise BadValueError(what, where="tokenizer", fix=suggest(kind, ["auto", *kinds]))
    return load_tokenizer(kind)


def as_classifier_sections(
    configs: Mapping[str, Any], longest: int, pooling: Any
) -> tuple[TextConfig, ModelConfig]:
    """The settings of another task's fit as sections ``text`` and ``model`` of ``TextClassifier``.

    If ``max_length`` is None, it is set to the number of positions of the model, at most ``longest``.
    """
    text, model = shared_settings(configs["text"], TextConfig), configs["model"]
    if text["max_length"] is None:
        limit = (
            None if is_from_scratch(model.model) else checkpoint_max_positions(model.model, model.revision)
        )
        text["max_length"] = min(longest, limit or longest)
    return TextConfig(**text), ModelConfig(**vars(model), pooling=pooling)


def has_segments(model: ModelConfig) -> bool:
    """Whether the model has segment embeddings (token type ids) when it reads pairs of texts."""
    if not is_from_scratch(model.model):
        return checkpoint_segments(model.model, model.revision) > 1
    preset = TEXT_ARCHITECTURES[model.model](MIN_VOCABULARY)
    return preset.embedding.segments > 1 or _gains_segments(preset)


def _gains_segments(preset: Any) -> bool:
    """Whether a from-scratch architecture without segment embeddings gets two for pairs."""
    family = family_of(preset)
    return family.hub is None and family.configure is None and not preset.embedding.segments


def build_model(
    model: ModelConfig,
    text: TextConfig,
    tokenizer: Tokenizer,
    num_labels: int,
    table: TokenTable | None = None,
    seed: int = 0,
    pairs: bool = False,
    head: HeadKind = "classification",
    solved: bool = False,
) -> Any:
    """Build an encoder with a new head. Its ``weights_source`` says where the weights are from.

    Args:
        table, seed: the training texts and the seed, for training word vectors.
        pairs: whether inputs are pairs of texts. A from-scratch encoder then gets segment embeddings.
        head: ``spans`` predicts start and end of an answer; a checkpoint's own head of this type is kept.
        solved: whether a regression fits the head before training. ``pooling = auto`` then means the pooling
            of the checkpoint's ``modules.json``.
    """
    if is_from_scratch(model.model):
        vectors = load_word_vectors(model, tokenizer, table, seed)
        if vectors is not None:
            model = replace(model, embedding_dim=vectors.vectors_.shape[1])
        size = count_ids(tokenizer)
        preset = TEXT_ARCHITECTURES[model.model](size)
        family = family_of(preset)
        is_bi_encoder = pairs and model.pairs == "apart"
        if is_bi_encoder and family.configure is not None:
            raise _no_transformer(model.model, "pairs = apart")
        if pairs and not is_bi_encoder and _gains_segments(preset):
            preset = replace(preset, embedding=replace(preset.embedding, segments=2))
        if family.configure is None:
            config = _scratch_config(preset, model, num_labels, text.max_length)
            config = replace(config, sides="apart") if is_bi_encoder else config
            built: Any = family.model(_with_head(config, head))
        elif head == "spans":
            raise _no_transformer(model.model)
        else:
            built = family.model(family.configure(preset, model, num_labels))
        built.weights_source = f"random ({model.model}, from scratch)"
        if vectors is not None:
            copy_word_vectors(built, vectors, tokenizer, model.vectors or "")
        return built
    check_unset(model, SHAPE_KEYS)
    return _from_checkpoint(
        model, text, tokenizer, num_labels, head, solved, pairs and model.pairs == "apart"
    )


def _with_head(config: Any, head: HeadKind) -> Any:
    """The config with this head; without pooling if the head reads every token."""
    return replace(config, head=head, pooling=None) if head == "spans" else config


def _no_transformer(model: str, setting: str = "") -> ConfigError:
    """The error for a model that is not a Transformer, which ``setting`` requires."""
    fix = "Use an encoder, such as encoder-mini or all-minilm-l6-v2"
    what = f"{model!r} is not a Transformer"
    if setting:
        what = f"{setting} needs a Transformer, which {model!r} is not"
    return NotForThisModelError(what, where="model", fix=fix)


def _text_checkpoint(model: ModelConfig) -> Checkpoint:
    checkpoint = read_checkpoint(model.model, model.revision)
    if checkpoint.family.model.reads != "texts":
        what = f"{model.model!r} is not an encoder of texts"
        raise NotForThisModelError(what, where="model", fix="Use ImageClassifier")
    return checkpoint


def _from_checkpoint(
    model: ModelConfig,
    text: TextConfig,
    tokenizer: Tokenizer,
    num_labels: int,
    head: HeadKind,
    use_own_pooling: bool = False,
    is_bi_encoder: bool = False,
) -> Any:
    checkpoint = cover_vocabulary(_text_checkpoint(model), tokenizer, model.model)
    base = checkpoint.config
    if model.freeze_vectors and not base.embedding.frozen:
        what = f"the word vectors of {model.model!r} were trained with it"
        raise NotForThisModelError(what, where="freeze_vectors", fix="Leave it out")
    if checkpoint.family.configure is not None and (head == "spans" or is_bi_encoder):
        raise _no_transformer(model.model)
    if checkpoint.family.configure is not None:
        return _baseline_from_checkpoint(checkpoint, model, num_labels)
    limit = base.embedding.max_positions
    if text.max_length > limit:
        what = f"{text.max_length} is more than the model's {limit} positions"
        raise ConfigError(what, where="max_length", fix=f"Use {limit} or less")
    pooling = model.pooling
    if pooling == "auto":
        use_own_pooling = use_own_pooling or is_bi_encoder
        pooling = checkpoint_pooling(checkpoint) if use_own_pooling else default_pooling(base)
        if is_bi_encoder:  # poolers were trained on pairs of texts, and ``nn/pairs.py`` normalizes vectors
            pooling = "mean" if pooling == "pooler" else pooling.removeprefix("unit-")
    head_norm = model.head == "mlp" and getattr(checkpoint.family.hub, "head_settings", None) is not None
    fields = head_fields(model, num_labels) | {"head_type": model.head, "head_norm": head_norm}
    config, new = with_new_head(base, model, pooling, sides="apart" if is_bi_encoder else None, **fields)
    built = checkpoint.build(_with_head(config, head), new_head=True)
    built.weights_source = checkpoint.weights_source
    if head == "classification" or checkpoint.head != head:
        built.weights_source += f"; new (random): {', '.join([*new, f'{head} head'])}"
    return built


def checkpoint_pooling(checkpoint: Checkpoint) -> Any:
    """The pooling of the checkpoint's ``modules.json`` if classifiers support it, otherwise the default."""
    sentences = try_read_sentences(checkpoint.folder, checkpoint.config.encoder.d_model)
    pooling = matching_pooling(sentences) if isinstance(sentences, EmbeddingSettings) else None
    return pooling or default_pooling(checkpoint.config)


def matching_pooling(sentences: EmbeddingSettings) -> str | None:
    """The classifier's pooling that equals the pooling of a checkpoint; None if there is none."""
    names = POOLED_UNIT if any(isinstance(step, Normalize) for step in sentences.after) else POOLED
    return names.get(sentences.pool.modes[0]) if len(sentences.pool.modes) == 1 else None


def default_pooling(base: Any) -> Any:
    """The default pooling for a new head on a checkpoint: its pooler if it has one, otherwise the mean."""
    return "pooler" if base.pooling == "pooler" else "mean"


def _baseline_from_checkpoint(checkpoint: Checkpoint, model: ModelConfig, num_labels: int) -> Any:
    """The recurrent or convolutional encoder of a checkpoint with a new head."""
    base, configure = checkpoint.config, checkpoint.family.configure
    assert configure is not None  # the caller handles Transformers, which have no ``configure``
    config = configure(base, model, num_labels)
    config = replace(config, embedding=replace(config.embedding, frozen=base.embedding.frozen))
    built = checkpoint.build(config, new_head=True)
    pooling = getattr(config, "pooling", None)
    new = [f"{pooling} pooling"] if pooling == "attention" != base.pooling else []
    built.weights_source = (
        f"{checkpoint.weights_source}; new (random): {', '.join([*new, 'classification head'])}"
    )
    return built


def cover_vocabulary(checkpoint: Checkpoint, tokenizer: Tokenizer, where: str) -> Checkpoint:
    """The checkpoint with an embedding for every id of its tokenizer.

    Tokens that occur only inside BPE merges may have ids beyond the embedding table
    (``first_intermediate_id``). They get copies of the embedding of the unknown token.
    """
    num_rows, vocabulary = checkpoint.config.embedding.vocab_size, Vocabulary.of(tokenizer)
    _check_padding(vocabulary, checkpoint)
    count, unknown = count_ids(tokenizer), vocabulary.unk
    if count > num_rows == vocabulary.first_intermediate_id(tokenizer) and unknown is not None:
        return checkpoint.with_new_tokens(count, unknown)
    check_embedding_table(tokenizer, checkpoint.config, where)
    return checkpoint


def _check_padding(vocabulary: Vocabulary, checkpoint: Checkpoint) -> None:
    """Raise CheckpointError if position ids start after ``pad_token_id``, but this is not the padding token.

    RoBERTa counts positions over tokens other than ``pad_token_id``. If this id is not the tokenizer's
    padding, the model was trained with other position ids.
    """
    positions = getattr(checkpoint.config.embedding, "positions", None)
    if not isinstance(positions, Learned) or positions.offset == 0:
        return
    pad = positions.offset - 1
    other_ids = (vocabulary.cls, vocabulary.sep, vocabulary.unk, vocabulary.mask)
    if pad in other_ids or vocabulary.pad not in (None, pad):
        tokenizer_pad = "none" if vocabulary.pad is None else vocabulary.pad
        what = f"pad_token_id = {pad}, but the id of the tokenizer's padding token is {tokenizer_pad}"
        fix = "Use the tokenizer that belongs to these weights"
        raise CheckpointError(what, where=f"{checkpoint.folder}/config.json", fix=fix)


def hub_labels(settings: dict[str, Any], count: int, where: str, partial: bool = False) -> list[Any]:
    """The names of the outputs in ``config.json``; without ``id2label``, LABEL_0, LABEL_1 and so on.

    Raises:
        CheckpointError: a name is missing (unless ``partial``), or two outputs have the same name.
    """
    id2label = get_section(settings, "id2label", where) if settings.get("id2label") else {}
    names = [id2label.get(str(i), f"LABEL_{i}" if partial or not id2label else None) for i in range(count)]
    is_complete = partial or len(id2label) in (0, count)
    if not is_complete or not all(isinstance(name, str) for name in names) or len(set(names)) < count:
        raise CheckpointError(f"'id2label' does not name each of the {count} outputs once", where=where)
    return names


def check_embedding_table(tokenizer: Tokenizer, config: Any, where: str) -> None:
    """Raise CheckpointError if the tokenizer has ids beyond the model's embedding table."""
    rows = config.embedding.vocab_size
    if (count := count_ids(tokenizer)) > rows:
        what = f"the tokenizer knows {count:,} tokens, the model {rows:,}"
        raise CheckpointError(what, where=where, fix="Use the tokenizer that belongs to these weights")


def check_features(ngrams: Any, model: Any, folder: Path) -> None:
    """Raise CheckpointError if the n-gram features of a folder do not match the weights of its model."""
    width = ngrams.width if isinstance(ngrams, Ngrams) else 0
    if getattr(model, "kind", "") != "linear" or width != model.width:
        what = f"has {width:,} n-gram features, which do not match the weights of the model"
        raise CheckpointError(what, where=str(folder), fix="Save it again or take another copy")


def _scratch_config(config: Any, model: ModelConfig, num_labels: int, max_length: int) -> Any:
    """The config of a preset, changed by the settings of the recipe; None keeps the value of the preset."""
    if model.bidirectional is not None:
        raise ConfigError("an encoder reads both directions", where="bidirectional", fix="Leave it out")
    embedding = {
        "d_model": model.d_model,
        "positions": model.positions,
        "norm": model.embedding_norm,
        "dropout": embedding_dropout(model),
        "token_width": model.embedding_dim,
        "frozen": model.freeze_vectors,
        "damp_repeats": model.damp_repeats,
        "eps": model.norm_eps,
    }
    pooling = (config.pooling or "mean") if model.pooling == "auto" else model.pooling
    positions = config.embedding.positions
    if isinstance(positions, Learned) and model.positions is None:  # its length overrides max_positions
        embedding["positions"] = replace(positions, length=max_length)
    return replace(
        config,
        embedding=replace(config.embedding, max_positions=max_length, **without_none(embedding)),
        encoder=apply_layer_settings(config.encoder, model),
        pooling=pooling,
        head_type=model.head,
        **head_fields(model, num_labels),
        **without_none({"embedding_std": model.embedding_std, "init_std": model.init_std}),
    )


def save_tokenizer(
    tokenizer: Tokenizer,
    folder: Path,
    max_length: int,
    segments: int = 2,
    pairs: bool = False,
) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``, which ``transformers.AutoTokenizer`` opens.

    Args:
        segments: number of token types of the model. If it is below two, inputs have no ``token_type_ids``.
        pairs: whether the model reads pairs of texts. The file then always lists ``model_input_names``.
    """
    names = ["input_ids", *(["token_type_ids"] if segments > 1 else []), "attention_mask"]
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": int(max_length),  # a grid search may pass a NumPy integer
        **{f"{kind}_token": token for kind, token in Vocabulary.of(tokenizer).tokens.items()},
        **({} if segments > 1 and not pairs else {"model_input_names": names}),
    }
    (folder / "tokenizer_config.json").write_text(
        json_text(settings, indent=2, ascii=True) + "\n", encoding="utf-8"
    )


# --- texts in another language --------------------------------------------------------------------
#
# In BERT's English vocabulary, English texts have 1.0 to 1.2 tokens per word, French texts 1.5, Vietnamese
# texts 1.9 and German texts 2.0.


ENGLISH_MODELS = (
    "all-minilm-l6-v2",
    "all-mpnet-base-v2",
    "bert-base-uncased",
    "bert-large-uncased",
    "distilbert-base-uncased",
)
WORD = re.compile(r"[^\W\d_]+")  # letters only
MAX_WORDS, MIN_WORDS = 5_000, 200  # maximum and minimum number of words to tokenize
MAX_TOKENS_PER_WORD = 1.4  # with more, texts are not English


def tokens_per_word(tokenizer: Any, texts: Sequence[str]) -> float | None:
    """Mean number of tokens per word over the first words of the texts; None if there are too few words."""
    words = [*islice((word for text in texts for word in WORD.findall(text)), MAX_WORDS)]
    if len(words) < MIN_WORDS:
        return None
    encodings = tokenizer.encode_batch(words, add_special_tokens=False)
    return sum(len(encoding.ids) for encoding in encodings) / len(words)


def foreign_tokens_per_word(model: str, tokenizer: Any, texts: Sequence[str]) -> float | None:
    """Tokens per word if a known English encoder reads texts in another language, otherwise None."""
    if CATALOG.get(str(model).lower()) not in [CATALOG[name] for name in ENGLISH_MODELS]:
        return None
    mean = tokens_per_word(tokenizer, texts)
    return mean if mean is not None and mean > MAX_TOKENS_PER_WORD else None


def warn_of_language(model: str, tokenizer: Any, texts: Sequence[str]) -> None:
    """Warn if a known English encoder is used for texts in another language."""
    if (mean := foreign_tokens_per_word(model, tokenizer, texts)) is not None:
        what = f"{model} was trained on English, and splits a word of these texts into {mean:.1f} tokens"
        fix = "a multilingual encoder may be better: model=xlm-roberta-base, from the Hub"
        warnings.warn(f"{what} (an English word into 1.1): {fix}", OtherLanguageWarning, user_stacklevel())


TRAINED_HERE = "word2vec"  # value of ``vectors``: train word vectors on the training texts
MIN_EPOCHS, MAX_EPOCHS = 10, 200  # epochs of word vectors for a classifier
# Minimum number of words in all epochs together. With fewer words, all vectors have the same direction.
MIN_TRAINING_WORDS = 500_000
MASKED_LM_EPOCHS = 3  # few, because a masked language model has many texts


def load_word_vectors(
    model: ModelConfig, tokenizer: Tokenizer, table: TokenTable | None, seed: int
) -> Word2Vec | None:
    """The word vectors that ``model.vectors`` names; None if it is not set.

    For ``word2vec``, they are trained on ``table``, with one thread: the same seed gives the same bits.
    """
    if model.vectors is None:
        if model.freeze_vectors:
            what = "there are no vectors to freeze"
            raise ConfigError(what, where="freeze_vectors", fix="Name them with vectors")
        return None
    if model.vectors == TRAINED_HERE:
        if table is None:
            raise ConfigError("word2vec trains on the training texts", where="vectors", fix="Call fit")
        epochs = max(MIN_EPOCHS, min(MAX_EPOCHS, math.ceil(MIN_TRAINING_WORDS / max(len(table.ids), 1))))
        return train_vectors(table, tokenizer, model.embedding_dim or 100, epochs, seed)
    vectors = Word2Vec.load(Path(model.vectors))
    if model.embedding_dim not in (None, vectors.vectors_.shape[1]):
        what = f"embedding_dim is {model.embedding_dim}, the vectors have {vectors.vectors_.shape[1]} numbers"
        raise NotForThisModelError(what, where="embedding_dim", fix="Leave it out")
    return vectors


def train_vectors(table: TokenTable, tokenizer: Tokenizer, dim: int, epochs: int, seed: int) -> Word2Vec:
    """Train skip-gram vectors for the tokens of these texts, without special tokens."""
    names = [tokenizer.id_to_token(i) or "" for i in range(count_ids(tokenizer))]
    special = len(SPECIAL_TOKENS)
    sentences = [[names[i] for i in table[row].tolist() if i >= special] for row in range(len(table))]
    return Word2Vec(dim=dim, min_count=1, epochs=epochs, seed=seed, threads=1).fit(sentences)


def init_token_embeddings(
    network: Any, name: str, tokenizer: Tokenizer, table: TokenTable, seed: int, first: int = 0
) -> None:
    """Initialize token embeddings with word vectors, from column ``first`` on.

    ``name`` is a run, a file, or ``word2vec`` for vectors that are trained on ``table``. The vectors are
    shifted to mean 0 and scaled to the standard deviation of the embeddings. The output layer has the same
    embeddings, so that words with similar contexts start with similar probabilities.
    """
    weight = network.embeddings.tokens.weight
    max_width = weight.shape[1] - first
    if name == TRAINED_HERE:
        vectors = train_vectors(table, tokenizer, max_width, MASKED_LM_EPOCHS, seed)
    else:
        vectors = Word2Vec.load(Path(name))
    width = vectors.vectors_.shape[1]
    if width > max_width:
        what = f"the word vectors have {width} numbers, the token embeddings have only {max_width}"
        raise ConfigError(what, where="vectors", fix="Use narrower vectors, or a larger d_model")
    rows, vector_rows = _match_rows(vectors, tokenizer)
    values = torch.from_numpy(np.ascontiguousarray(vectors.vectors_[vector_rows])).to(weight)
    values -= values.mean(0)
    with torch.no_grad():
        std = float(weight[:, first:].std())
        weight[rows, first : first + width] = values * (std / max(float(values.std()), 1e-12))
    network.weights_source += (
        f"; word vectors: {name} ({len(rows):,} of {tokenizer.get_vocab_size():,} tokens)"
    )


def copy_word_vectors(network: Any, vectors: Word2Vec, tokenizer: Tokenizer, name: str) -> None:
    """Copy word vectors to the embeddings of their tokens; scale other embeddings to their deviation."""
    rows, vector_rows = _match_rows(vectors, tokenizer)
    weight = network.embeddings.tokens.weight
    values = torch.from_numpy(np.ascontiguousarray(vectors.vectors_[vector_rows]))
    with torch.no_grad():
        weight.mul_(float(values.std()) / max(float(weight.std()), 1e-12))
        if network.embeddings.special is not None:
            network.embeddings.special.weight.copy_(weight[: len(SPECIAL_TOKENS)])
        weight[rows] = values
    share = f"{len(rows):,} of {tokenizer.get_vocab_size():,} tokens"
    state = "frozen" if network.embeddings.config.frozen else "trained further"
    network.weights_source += f"; word vectors: {name} ({share}, {state})"


def _match_rows(vectors: Word2Vec, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """For tokens with a vector, their rows in the token embeddings and in the vectors."""
    # Sorted, because the order of the vocabulary differs between processes and affects the rounding of sums.
    tokens = sorted((row, token) for token, row in tokenizer.get_vocab().items() if token in vectors)
    pairs = [(row, vectors.number(token)) for row, token in tokens]
    if not pairs:
        what = "no word of the vocabulary has a vector"
        fix = "Use vectors of the same language, and the same case and segmentation"
        raise ConfigError(what, where="vectors", fix=fix)
    return [row for row, _ in pairs], [number for _, number in pairs]
