"""What a recipe of tags can say. Keys of ``text``, ``model``, ``train`` are those of ``TokenTagger``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config import by_place, section, setting
from glassformer.tasks.sections import (
    DrawnData,
    EvaluateKeys,
    NewTokenizer,
    RecipeKeys,
    TextRows,
    TokenHeadConfig,
)
from glassformer.train.config import Maskable, SuitedFitConfig, TokenBatches


@section
class TaggedConfig(TextRows, DrawnData):
    """Where the tagged sentences come from and how they are split."""

    source: str = setting(
        "", "a named source (wnut17), or a CoNLL, JSON Lines or Parquet file, or a folder of them"
    )
    words_column: str | None = setting(
        None, "found by itself when there is one candidate only; of CoNLL its number, usually 1"
    )
    tags_column: str | None = setting(None, "likewise; of CoNLL its number, usually -1, the last")


@section
class TaggerTextConfig(NewTokenizer):
    """From words to token ids."""

    max_length: int | None = setting(
        None,
        "tokens, special ones included; longer sentences are read in windows; None: the model's, at most 256",
    )
    tokenizer: str = setting(
        "auto", "auto: the checkpoint's own, or word; word, wordpiece: trained here; else a file"
    )
    lowercase: bool = setting(False, "for tokenizers trained here; names are often known by their capitals")
    scheme: str | tuple[str, ...] = setting(
        "auto",
        "of the tags: BIO, IOB1, BIOES, BILOU or plain, in any spelling; for numbers their names in order, "
        "such as O,B-PER,I-PER; auto: found, where they are spelled as usual",
    )


@section
class TaggerModelConfig(TokenHeadConfig):
    """Which encoder, under a linear layer that answers each word. None means: as the preset has it."""

    model: str = by_place(
        default="all-minilm-l6-v2",
        meaning="a checkpoint (name, folder, Hub id) or a from-scratch architecture",
    )
    bidirectional: bool | None = setting(None, "lstm and gru: read backwards too")


@section
class TaggerFitConfig(TokenBatches, Maskable, SuitedFitConfig):
    """One fit. As in every recipe, but the loss is a mean over words, and these are the defaults."""

    label_smoothing: float = setting(0.0, "share of the target spread over all tags")
    word_dropout: float = setting(0.0, "share of tokens hidden from the model at each step")
    monitor: Literal["entity_f1", "accuracy", "loss"] = setting(
        "entity_f1", "what decides which weights are best; accuracy: of words"
    )


@section
class TaggerEvaluateConfig(EvaluateKeys):
    """What is judged and shown after training."""

    baselines: bool = setting(True, "the most frequent tag of each word beside it")
    shown: int = setting(24, "evaluated sentences whose spans go into the report, those with errors first")
    sentences: tuple[str, ...] = setting((), "texts of one's own, tagged at the end")


@dataclass(frozen=True)
class TaggingRecipe(RecipeKeys):
    """One experiment, read from top to bottom."""

    # For the model card: the Hub's pipeline tag, and how such a model is asked.
    CARD = ("token-classification", 'print(model.predict(["A text."]))')

    task: Literal["token-tagging"] = setting("token-tagging", "which engine runs it")
    data: TaggedConfig = field(default_factory=TaggedConfig)
    text: TaggerTextConfig = field(default_factory=TaggerTextConfig)
    model: TaggerModelConfig = field(default_factory=TaggerModelConfig)
    train: TaggerFitConfig = field(default_factory=TaggerFitConfig)
    evaluate: TaggerEvaluateConfig = field(default_factory=TaggerEvaluateConfig)
