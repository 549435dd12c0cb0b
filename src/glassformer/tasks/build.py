"""How a text classifier is put together from its settings: tokenizer, model, and the folder they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from glassformer.checkpoints.catalog import CATALOG, names_reading
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.checkpoints.sentences import sentences_of
from glassformer.config import nearest
from glassformer.data.ngrams import Ngrams
from glassformer.data.text import TokenTable, clean_text, word_tokenizer, wordpiece_tokenizer
from glassformer.data.tokenizer_file import id_count, load_tokenizer
from glassformer.data.vocabulary import Vocabulary
from glassformer.errors import (
    BadValueError,
    CheckpointError,
    ConfigError,
    NotForThisModelError,
    UnknownModelError,
)
from glassformer.families import IMAGE_ARCHITECTURES, TEXT_ARCHITECTURES, family_of
from glassformer.families.pretrained import Checkpoint, read_checkpoint, segments_of, with_dropout
from glassformer.finite import json_text
from glassformer.inputs.start import check_start
from glassformer.models.sentences import Normalize, Sentences
from glassformer.nn.positions import Learned
from glassformer.tasks.layers import given, layers_over
from glassformer.tasks.text_classification.recipe import ModelConfig, TextConfig
from glassformer.tasks.word_table import fill_word_table, read_word_table
from glassformer.types import HeadKind

# Of sentence-transformers, as pooling is called here; and where its vectors are normalized.
POOLED = {"mean": "mean", "cls": "first", "max": "max"}
POOLED_UNIT = POOLED | {"mean": "unit-mean", "cls": "unit-first"}
SMALLEST = 31  # words of a vocabulary, to look at an architecture
SHAPE_KEYS = (
    "d_model",
    "num_layers",
    "num_heads",
    "d_ff",
    "norm",
    "norm_eps",
    "activation",
    "positions",
    "final_norm",
    "embedding_norm",
    "damp_repeats",
    "zero_init",
    "attention",
    "attention_window",
    "init_std",
    "embedding_std",
    "bidirectional",
    "embedding_dim",
    "vectors",
)


def is_from_scratch(model: str) -> bool:
    """Whether the name means an architecture (random weights) rather than a checkpoint."""
    return model in TEXT_ARCHITECTURES


def is_linear(model: str) -> bool:
    """Whether the name means a linear model of n-grams, which has no tokens and no layers."""
    return (
        isinstance(model, str)
        and is_from_scratch(model)
        and family_of(TEXT_ARCHITECTURES[model](SMALLEST)).model.kind == "linear"
    )


def check_name(model: str) -> None:
    """Raises ConfigError, with the nearest name, for a model that is no architecture, path or Hub id."""
    if model in (*IMAGE_ARCHITECTURES, *names_reading("images")):
        what = f"{model!r} reads images, and this is a model of texts"
        raise NotForThisModelError(what, where="model", fix="Use it with ImageClassifier")
    known = [*TEXT_ARCHITECTURES, *names_reading("texts")]
    if model not in (*known, *CATALOG) and "/" not in model and not Path(model).expanduser().exists():
        raise UnknownModelError(f"no model {model!r}", where="model", fix=nearest(model, known))


def build_tokenizer(text: TextConfig, model: ModelConfig, texts: Sequence[str]) -> Tokenizer:
    """The checkpoint's own tokenizer, one from a file, or one trained on ``texts``, cleaned here.

    Raises:
        ConfigError: ``tokenizer`` is neither kind nor file, or a checkpoint is paired with a new vocabulary.
        CheckpointError: the checkpoint has no tokenizer.
    """
    check_name(model.model)
    kinds = {"word": word_tokenizer, "wordpiece": wordpiece_tokenizer}
    scratch = is_from_scratch(model.model)
    if not scratch:
        check_start(model.model, "texts")
    kind = ("word" if scratch else "checkpoint") if text.tokenizer == "auto" else text.tokenizer
    if kind == "checkpoint":
        return load_tokenizer(resolve_checkpoint(model.model, model.revision).path)
    if kind in kinds:
        if not scratch:
            raise ConfigError(
                f"the weights of {model.model!r} belong to its own vocabulary",
                where="tokenizer",
                fix="Use tokenizer = auto, or a from-scratch model",
            )
        return kinds[kind](
            [clean_text(t, text.clean) for t in texts],  # as they will be at use
            min_count=text.min_count,
            vocab_size=text.vocab_size,
            lowercase=text.lowercase,
            strip_accents=text.strip_accents,
            add_special_tokens=text.add_special_tokens,
            separator=text.separator,
        )
    if not Path(kind).exists():
        raise BadValueError(
            f"{kind!r} is not a tokenizer", where="tokenizer", fix=nearest(kind, ["auto", *kinds])
        )
    return load_tokenizer(kind)


def tells_segments(model: ModelConfig) -> bool:
    """Whether the model that these settings build for pairs of texts tells the first from the second."""
    if not is_from_scratch(model.model):
        return segments_of(model.model, model.revision) > 1
    preset = TEXT_ARCHITECTURES[model.model](SMALLEST)
    return preset.embedding.segments > 1 or _gains_segments(preset)


def _gains_segments(preset: Any) -> bool:
    """Whether an architecture of ours, which has no segments, gets two where its inputs are pairs."""
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
    """The encoder with its new head; ``weights_source`` says where the weights come from.

    Args:
        table, seed: the training texts and the seed of word vectors that are trained on them.
        pairs: the inputs are pairs of texts: an encoder of ours tells their sides apart.
        head: ``spans`` says where an answer begins and ends; of a checkpoint that has one, it is kept.
        solved: the head will start from a regression: ``pooling = auto`` is what a checkpoint's
            ``modules.json`` says.

    Raises:
        ConfigError: an unknown name, a key that such a model does not have, too long a ``max_length``.
    """
    if is_from_scratch(model.model):
        vectors = read_word_table(model, tokenizer, table, seed)
        if vectors is not None:
            model = replace(model, embedding_dim=vectors.vectors_.shape[1])
        size = id_count(tokenizer)
        preset = TEXT_ARCHITECTURES[model.model](size)
        family = family_of(preset)
        apart = pairs and model.pairs == "apart"
        if apart and family.configure is not None:
            raise _no_transformer(model.model, "pairs = apart")
        if pairs and not apart and _gains_segments(preset):
            preset = replace(preset, embedding=replace(preset.embedding, segments=2))
        if family.configure is None:
            config = _scratch_config(preset, model, num_labels, text.max_length)
            config = replace(config, sides="apart") if apart else config
            built: Any = family.model(_under(config, head))
        elif head == "spans":
            raise _no_transformer(model.model)
        else:
            built = family.model(family.configure(preset, model, num_labels))
        built.weights_source = f"random ({model.model}, from scratch)"
        if vectors is not None:
            fill_word_table(built, vectors, tokenizer, model.vectors or "")
        return built
    if set_keys := [key for key in SHAPE_KEYS if getattr(model, key) is not None]:
        raise NotForThisModelError(
            f"{set_keys[0]} belongs to from-scratch models; {model.model!r} has its own", where="model"
        )
    return _tuned(model, text, tokenizer, num_labels, head, solved, pairs and model.pairs == "apart")


def _under(config: Any, head: HeadKind) -> Any:
    """The config with that head; one that reads every row has no pooling."""
    return replace(config, head=head, pooling=None) if head == "spans" else config


def _no_transformer(model: str, asked: str = "") -> ConfigError:
    """``asked``: the setting that wants one."""
    fix = "Use an encoder, such as encoder-mini or all-minilm-l6-v2"
    what = (
        f"{asked} needs a Transformer, and {model!r} is none" if asked else f"{model!r} is not a Transformer"
    )
    return NotForThisModelError(what, where="model", fix=fix)


def _tuned(
    model: ModelConfig,
    text: TextConfig,
    tokenizer: Tokenizer,
    num_labels: int,
    head: HeadKind,
    own: bool = False,
    apart: bool = False,
) -> Any:
    """A checkpoint's encoder, built once with its final settings, under a new head."""
    checkpoint = read_checkpoint(model.model, model.revision)
    if checkpoint.family.model.reads != "texts":
        raise NotForThisModelError(
            f"{model.model!r} is not an encoder of texts", where="model", fix="Use ImageClassifier"
        )
    checkpoint = fitting(checkpoint, tokenizer, model.model)
    base = checkpoint.config
    if model.freeze_vectors and not base.embedding.frozen:
        what = f"the word vectors of {model.model!r} were trained with it"
        raise NotForThisModelError(what, where="freeze_vectors", fix="Leave it out")
    if checkpoint.family.configure is not None and (head == "spans" or apart):
        raise _no_transformer(model.model)
    if checkpoint.family.configure is not None:
        return _tuned_baseline(checkpoint, model, num_labels)
    limit = base.embedding.max_positions
    if text.max_length > limit:
        raise ConfigError(
            f"max_length {text.max_length} is more than the model's {limit} positions",
            where="max_length",
            fix=f"Use {limit} or less",
        )
    has_pooler = base.pooling == "pooler"
    pooling = model.pooling
    if pooling == "auto":
        pooling = own_pooling(checkpoint) if own or apart else usual_pooling(base)
        if apart:  # a pooler has learned to read pairs; vectors of sides are normalized where they meet
            pooling = "mean" if pooling == "pooler" else pooling.removeprefix("unit-")
    new = [f"{pooling} pooling"] if pooling == "attention" or (pooling == "pooler" and not has_pooler) else []
    config = with_dropout(  # none unless asked for
        base,
        model.dropout or 0.0,
        model.attention_dropout or 0.0,
        model.embedding_dropout,
        model.feed_forward_dropout,
    )
    final = _under(
        replace(
            config,
            encoder=replace(config.encoder, stochastic_depth=model.stochastic_depth),
            head="classification",
            pooling=pooling,
            num_labels=num_labels,
            head_type=model.head,
            head_hidden=model.head_hidden,
            head_dropout=model.head_dropout,
            head_activation=model.head_activation,
            head_input_dropout=model.head_input_dropout,
            head_norm=model.head == "mlp" and getattr(checkpoint.family.hub, "own_head", None) is not None,
            sides="apart" if apart else None,
        ),
        head,
    )
    built = checkpoint.build(final, new_head=True)
    built.weights_source = checkpoint.weights_source
    if head == "classification" or checkpoint.head != head:
        built.weights_source += f"; new (random): {', '.join([*new, f'{head} head'])}"
    return built


def own_pooling(checkpoint: Checkpoint) -> Any:
    """The pooling of a folder's ``modules.json``, where a classifier has it; else the usual one."""
    found = sentences_of(checkpoint.folder, checkpoint.config.encoder.d_model)
    own = pooling_by(found) if isinstance(found, Sentences) else None
    return own or usual_pooling(checkpoint.config)


def pooling_by(how: Sentences) -> str | None:
    """What a classifier's head reads, as the checkpoint makes its sentence vectors; None: nothing has it."""
    names = POOLED_UNIT if any(isinstance(step, Normalize) for step in how.after) else POOLED
    return names.get(how.pool.modes[0]) if len(how.pool.modes) == 1 else None


def usual_pooling(base: Any) -> Any:
    """What a new head on a checkpoint of that config reads where nothing is said: its pooler, or the mean."""
    return "pooler" if base.pooling == "pooler" else "mean"


def _tuned_baseline(checkpoint: Checkpoint, model: ModelConfig, num_labels: int) -> Any:
    """A recurrent or convolutional classifier's body under a new head; unset settings are the checkpoint's.

    Raises:
        ConfigError: a key that this kind of model does not have.
    """
    base, configure = checkpoint.config, checkpoint.family.configure
    assert configure is not None  # of families that are no Transformers
    config = configure(base, model, num_labels)
    config = replace(config, embedding=replace(config.embedding, frozen=base.embedding.frozen))
    built = checkpoint.build(config, new_head=True)
    pooling = getattr(config, "pooling", None)
    new = [f"{pooling} pooling"] if pooling == "attention" != base.pooling else []
    built.weights_source = (
        f"{checkpoint.weights_source}; new (random): {', '.join([*new, 'classification head'])}"
    )
    return built


def fitting(checkpoint: Checkpoint, tokenizer: Tokenizer, where: str) -> Checkpoint:
    """The checkpoint with a row for every id of its tokenizer.

    Pieces that only stand on the way to others have ids behind the table (``Vocabulary.steps``), and are
    unknown to it.

    Raises:
        CheckpointError: the tokenizer has other ids beyond the table, or another padding token than the one
            behind whose row the positions begin.
    """
    rows, known = checkpoint.config.embedding.vocab_size, Vocabulary.of(tokenizer)
    _check_padding(known, checkpoint)
    if id_count(tokenizer) > rows == known.steps(tokenizer) and known.unk is not None:
        return checkpoint.grown(id_count(tokenizer), known.unk)
    check_table(tokenizer, checkpoint.config, where)
    return checkpoint


def _check_padding(known: Vocabulary, checkpoint: Checkpoint) -> None:
    """Raises CheckpointError where positions begin behind the row of a token that does not pad.

    Such a model gave each place its row by counting the tokens that are not that one, so that those of a text
    would have had other rows there than here.
    """
    places = getattr(checkpoint.config.embedding, "positions", None)
    if not isinstance(places, Learned) or places.offset == 0:
        return
    pad = places.offset - 1
    if pad in (known.cls, known.sep, known.unk, known.mask) or known.pad not in (None, pad):
        own = "none" if known.pad is None else known.pad
        what = f"pad_token_id = {pad}, but the id of the tokenizer's padding token is {own}"
        fix = "Use the tokenizer that belongs to these weights"
        raise CheckpointError(what, where=f"{checkpoint.folder}/config.json", fix=fix)


def check_table(tokenizer: Tokenizer, config: Any, where: str) -> None:
    """Raises CheckpointError where the tokenizer has ids beyond the embedding table of a model's config."""
    rows = config.embedding.vocab_size
    if (count := id_count(tokenizer)) > rows:
        what = f"the tokenizer knows {count:,} tokens, the model {rows:,}"
        raise CheckpointError(what, where=where, fix="Use the tokenizer that belongs to these weights")


def check_features(ngrams: Any, model: Any, folder: Path) -> None:
    """Raises CheckpointError where a folder's n-grams are not what its linear model has weights of."""
    known = ngrams.width if isinstance(ngrams, Ngrams) else 0
    if getattr(model, "kind", "") != "linear" or known != model.width:
        what = f"has {known:,} features of n-grams, and the model has weights of others"
        raise CheckpointError(what, where=str(folder), fix="Save it again or take another copy")


def _scratch_config(config: Any, model: ModelConfig, num_labels: int, max_length: int) -> Any:
    """A preset with the settings laid over it; None leaves the preset's number."""
    if model.bidirectional is not None:
        raise ConfigError("an encoder always sees both sides", where="bidirectional", fix="Leave it out")
    embedding = {
        "d_model": model.d_model,
        "positions": model.positions,
        "norm": model.embedding_norm,
        "dropout": model.dropout if model.embedding_dropout is None else model.embedding_dropout,
        "token_width": model.embedding_dim,
        "frozen": model.freeze_vectors,
        "damp_repeats": model.damp_repeats,
        "eps": model.norm_eps,
    }
    pooling = (config.pooling or "mean") if model.pooling == "auto" else model.pooling
    places = config.embedding.positions
    if isinstance(places, Learned) and model.positions is None:  # whose length goes before max_positions
        embedding["positions"] = replace(places, length=max_length)
    return replace(
        config,
        embedding=replace(config.embedding, max_positions=max_length, **given(embedding)),
        encoder=layers_over(config.encoder, model),
        head="classification",
        num_labels=num_labels,
        pooling=pooling,
        head_type=model.head,
        head_hidden=model.head_hidden,
        head_dropout=model.head_dropout,
        head_activation=model.head_activation,
        head_input_dropout=model.head_input_dropout,
        **given({"embedding_std": model.embedding_std, "init_std": model.init_std}),
    )


def save_tokenizer(
    tokenizer: Tokenizer,
    folder: Path,
    max_length: int,
    clean_up: dict[str, Any] | None = None,
    segments: int = 2,
    pairs: bool = False,
) -> None:
    """``tokenizer.json`` and the small file that lets ``transformers.AutoTokenizer`` open it.

    Args:
        segments: kinds that the model tells apart; with one or none it is given no ``token_type_ids``.
        pairs: it reads pairs of texts, and those of ``segments`` are named.
    """
    names = ["input_ids", *(["token_type_ids"] if segments > 1 else []), "attention_mask"]
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": int(max_length),  # a number of numpy from a grid is none of JSON's
        **{f"{kind}_token": token for kind, token in Vocabulary.of(tokenizer).tokens.items()},
        **({} if segments > 1 and not pairs else {"model_input_names": names}),
        **(clean_up or {}),
    }
    (folder / "tokenizer_config.json").write_text(
        json_text(settings, indent=2, ascii=True) + "\n", encoding="utf-8"
    )
