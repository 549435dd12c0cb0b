"""Recipes of text classification and regression.

The keys of ``text``, ``model`` and ``train`` are the constructor parameters of ``TextClassifier`` and
``TextRegressor``. Each key is in only one section, so that ``--set lr=1e-4`` is not ambiguous.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.checkpoints.catalog import AUTO
from glassformer.config import EVERY_MODEL, SEARCH, positional, section, setting
from glassformer.tasks.sections import (
    ClassData,
    EncoderConfig,
    EvaluateKeys,
    NewTokenizer,
    NumberData,
    RecipeKeys,
    ShownNumbers,
    TextColumns,
    WordVectors,
)
from glassformer.train.config import ClassifierFitConfig, NumberFitConfig, SearchLimit, TokenBatches


@section
class DataConfig(TextColumns, ClassData):
    """Source of the examples, and how they are split."""

    source: str = setting("", "a named source (imdb, europe) or a path to a file or folder")


@section
class TextConfig(NewTokenizer):
    """Tokenization of the texts."""

    max_length: int = setting(
        256,
        "maximum number of tokens, special ones included; longer texts are truncated and counted",
        used_by=SEARCH,
    )
    tokenizer: str = setting(
        "auto",
        "auto: the tokenizer of the checkpoint, or word if it has none; word, wordpiece: newly "
        "trained; or a tokenizer.json file",
    )
    clean: Literal["none", "html", "words", "syllables", "trim"] = setting(
        "none",
        "cleaning of the texts. html: removes tags; words: also keeps only letters and digits; "
        "syllables: removes underscores; trim: removes punctuation at the ends of words",
        used_by=EVERY_MODEL,
    )
    add_special_tokens: bool = setting(True, "add [CLS] and [SEP] around each text")
    separator: bool = setting(
        True, "for newly trained tokenizers: add [SEP] after each text; False: only [CLS] before it"
    )
    long_texts: Literal["cut", "mean", "max"] = setting(
        "cut",
        "how prediction reads texts longer than max_length. cut: only their beginning; mean, max: in "
        "windows, whose logits are combined",
    )
    window_stride: int | None = setting(
        None, "number of tokens from one window to the next; None: half a window"
    )


@section
class ModelConfig(EncoderConfig, WordVectors):
    """Encoder and head. None: the value of the preset or checkpoint."""

    model: str = positional(
        default=AUTO,
        meaning="a checkpoint (name, folder, Hub id), a from-scratch architecture, tfidf (a linear model), "
        "or auto: the best of tfidf, all-minilm-l6-v2 frozen and fine-tuned, which validation chooses",
        in_file="all-minilm-l6-v2",
        used_by=SEARCH,
    )
    pooling: Literal["auto", "first", "mean", "max", "attention", "pooler", "unit-first", "unit-mean"] = (
        setting("auto", "vector that the head reads; unit: vectors are scaled to length 1")
    )
    pairs: Literal["joined", "apart"] = setting(
        "joined",
        "how pairs of texts are encoded. joined: as one sequence (cross-encoder); apart: each text by "
        "itself, and the head compares their vectors (bi-encoder)",
    )
    head: Literal["linear", "mlp"] = setting(
        "linear", "layers of the head; mlp: Linear, ReLU, Dropout, Linear"
    )
    embedding_norm: bool | None = setting(None, "add a norm after the embeddings")
    damp_repeats: float | None = setting(
        None, "scale a token that occurs k times in its text by k ** -damp_repeats"
    )
    embedding_std: float | None = setting(None, "standard deviation of newly initialized token embeddings")
    bidirectional: bool | None = setting(None, "for lstm and gru: also read backwards")


@section
class TextFitConfig(SearchLimit, TokenBatches, ClassifierFitConfig):
    """Training on texts."""

    method: Literal["fine-tune", "few-shot"] = setting(
        "fine-tune",
        "few-shot: for a few texts per class; trains the encoder of a checkpoint on pairs of texts, "
        "then the head (as SetFit)",
    )
    word_dropout: float = setting(0.0, "share of tokens masked at each training step")


@section
class EvaluateConfig(EvaluateKeys):
    """Evaluation and report after training."""

    baselines: bool = setting(True, "also evaluate TF-IDF, averaged word embeddings and a frozen encoder")
    maps: int = setting(4, "number of examples whose attention map is shown in the report")
    sentences: tuple[str, ...] = setting((), "your own texts, classified at the end")
    sentences_file: str | None = setting(
        None, "file with more such texts, one per line; may be a path below a data folder; ignored if missing"
    )


@dataclass(frozen=True)
class Recipe(RecipeKeys):
    """Recipe of text classification."""

    CARD = ("text-classification", 'print(model.predict(["A text."]))')

    task: Literal["text-classification"] = setting("text-classification", "task that the recipe trains for")
    data: DataConfig = field(default_factory=DataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TextFitConfig = field(default_factory=TextFitConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)


# --- regression ------------------------------------------------------------------------------------


@section
class NumberDataConfig(TextColumns, NumberData):
    """Source of the texts and numbers, and how they are split."""

    source: str = setting("", "a named source (stsb) or a path to a table or a folder of tables")
    number_format: Literal["plain", "amount", "point", "comma"] = setting(
        "plain",
        "plain: 1234.5; amount: also '€74' and '1.234,50'; point, comma: the decimal separator, "
        "needed for ambiguous numbers such as '1,234'",
    )


@section
class TextNumberFitConfig(SearchLimit, TokenBatches, NumberFitConfig):
    """Training on texts."""

    word_dropout: float = setting(0.0, "share of tokens masked at each training step")


@section
class NumberEvaluateConfig(ShownNumbers):
    """Evaluation and report after training."""

    baselines: bool = setting(
        True,
        "also evaluate the mean of the training numbers, and ridge regression on TF-IDF and on a "
        "frozen encoder",
    )


@dataclass(frozen=True)
class TextNumberRecipe(RecipeKeys):
    """Recipe of regression on texts."""

    CARD = (Recipe.CARD[0], 'print(model.predict(["A text."]), model.predict_interval(["A text."]))')

    task: Literal["text-regression"] = setting("text-regression", "task that the recipe trains for")
    data: NumberDataConfig = field(default_factory=NumberDataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TextNumberFitConfig = field(default_factory=TextNumberFitConfig)
    evaluate: NumberEvaluateConfig = field(default_factory=NumberEvaluateConfig)
