"""What a recipe can say: one dataclass a section, every key with its default and meaning.

The keys of ``text``, ``model`` and ``train`` are the constructor parameters of
``TextClassifier``; no key stands in two sections, so ``--set lr=1e-4`` is never ambiguous.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.checkpoints.catalog import AUTO
from glassformer.config import (
    EVERY_MODEL,
    SEARCH,
    by_place,
    section,
    setting,
)
from glassformer.tasks.sections import (
    ClassData,
    EncoderConfig,
    EvaluateKeys,
    NewTokenizer,
    RecipeKeys,
    TextColumns,
    WordVectors,
)
from glassformer.train.config import ClassifierFitConfig, SearchLimit, TokenBatches


@section
class DataConfig(TextColumns, ClassData):
    """Where the examples come from and how they are split."""

    source: str = setting("", "a named source (imdb, europe) or a path to a file or folder")


@section
class TextConfig(NewTokenizer):
    """From text to token ids."""

    max_length: int = setting(
        256, "tokens, special ones included; longer texts are cut and counted", obeyed=SEARCH
    )
    tokenizer: str = setting(
        "auto", "auto: the checkpoint's own, else word | word | wordpiece | a tokenizer.json"
    )
    clean: Literal["none", "html", "words", "syllables", "trim"] = setting(
        "none",
        "tags out; letters, digits only; no underscores; no marks at the ends of words",
        obeyed=EVERY_MODEL,
    )
    add_special_tokens: bool = setting(True, "[CLS] ... [SEP] around each text")
    separator: bool = setting(
        True, "for tokenizers trained here; False: [CLS] before a text, no [SEP] behind it"
    )
    long_texts: Literal["cut", "mean", "max"] = setting(
        "cut", "in prediction; mean, max: over the logits of windows"
    )
    window_stride: int | None = setting(None, "tokens from window to window; None: half a window")


@section
class ModelConfig(EncoderConfig, WordVectors):
    """Which encoder, and what stands on it. None means: as the preset or the checkpoint has it."""

    model: str = by_place(
        default=AUTO,
        meaning="a checkpoint (name, folder, Hub id), a from-scratch architecture, tfidf (a linear model), "
        "or auto: the best of tfidf, all-minilm-l6-v2 frozen and fine-tuned, which validation chooses",
        in_file="all-minilm-l6-v2",
        obeyed=SEARCH,
    )
    pooling: Literal["auto", "first", "mean", "max", "attention", "pooler", "unit-first", "unit-mean"] = (
        setting("auto", "what the head reads; unit: vectors of one length, by their direction alone")
    )
    pairs: Literal["joined", "apart"] = setting(
        "joined",
        "how pairs of texts are read; joined: as one text; apart: each side by itself, and their vectors "
        "meet in the head",
    )
    head: Literal["linear", "mlp"] = setting("linear", "mlp: Linear, ReLU, Dropout, Linear")
    embedding_norm: bool | None = setting(None, "a norm after the embeddings")
    damp_repeats: float | None = setting(
        None, "a token that stands k times in its text is scaled by k ** -damp_repeats"
    )
    embedding_std: float | None = setting(None, "of new token embeddings")
    bidirectional: bool | None = setting(None, "lstm and gru: read backwards too")


@section
class TextFitConfig(SearchLimit, TokenBatches, ClassifierFitConfig):
    """One fit of texts."""

    method: Literal["fine-tune", "few-shot"] = setting(
        "fine-tune",
        "few-shot: the encoder of a checkpoint learns from comparisons of a few texts a class, then the head",
    )
    word_dropout: float = setting(0.0, "share of tokens hidden from the model at each step")


@section
class EvaluateConfig(EvaluateKeys):
    """What is judged and shown after training."""

    baselines: bool = setting(True, "TF-IDF, a mean bag of embeddings and a frozen encoder beside it")
    maps: int = setting(4, "examples whose attention map goes into the report")
    sentences: tuple[str, ...] = setting((), "texts of one's own, classified at the end")
    sentences_file: str | None = setting(
        None, "more of them, a line each: a file, or its path below a data folder; left out where it is not"
    )


@dataclass(frozen=True)
class Recipe(RecipeKeys):
    """One experiment, read from top to bottom."""

    # For the model card: the Hub's pipeline tag, and how such a model is asked.
    CARD = ("text-classification", 'print(model.predict(["A text."]))')

    task: Literal["text-classification"] = setting("text-classification", "which engine runs it")
    data: DataConfig = field(default_factory=DataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TextFitConfig = field(default_factory=TextFitConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
