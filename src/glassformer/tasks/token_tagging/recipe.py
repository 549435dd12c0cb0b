"""Recipe of token classification. The keys of ``text``, ``model`` and ``train`` are parameters of
``TokenTagger``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config import positional, section, setting
from glassformer.tasks.sections import (
    EvaluateKeys,
    NewTokenizer,
    RecipeKeys,
    SampleSizes,
    TokenHeadConfig,
    UnusableRows,
)
from glassformer.train.config import AutoFitConfig, Maskable, TokenBatches


@section
class TaggedDataConfig(UnusableRows, SampleSizes):
    """Source of the tagged sentences, and how they are split."""

    source: str = setting(
        "", "a named source (wnut17), or a CoNLL, JSON Lines or Parquet file, or a folder of them"
    )
    words_column: str | None = setting(
        None,
        "column with the words (for CoNLL its number, usually 1); None: detected if only one column "
        "qualifies",
    )
    tags_column: str | None = setting(
        None,
        "column with the tags (for CoNLL its number, usually -1, the last); None: detected if only "
        "one column qualifies",
    )


@section
class TaggerTextConfig(NewTokenizer):
    """Tokenization of words, and the tagging scheme."""

    max_length: int | None = setting(
        None,
        "maximum number of tokens, special ones included; longer sentences are read in windows; None: "
        "the model's maximum, at most 256",
    )
    tokenizer: str = setting(
        "auto",
        "auto: the tokenizer of the checkpoint, or word if it has none; word, wordpiece: newly "
        "trained; or a tokenizer file",
    )
    lowercase: bool = setting(
        False, "lowercase texts; only for newly trained tokenizers; capitals often help to recognize names"
    )
    scheme: str | tuple[str, ...] = setting(
        "auto",
        "tagging scheme: BIO, IOB1, BIOES, BILOU or plain; for tags that are numbers, their names in "
        "order, such as O,B-PER,I-PER; auto: detected from tags in the standard spelling",
    )


@section
class TaggerModelConfig(TokenHeadConfig):
    """Encoder, with a linear head on every word. None: the value of the preset or checkpoint."""

    model: str = positional(
        default="all-minilm-l6-v2",
        meaning="a checkpoint (name, folder, Hub id) or a from-scratch architecture",
    )
    bidirectional: bool | None = setting(None, "for lstm and gru: also read backwards")


@section
class TaggerFitConfig(TokenBatches, Maskable, AutoFitConfig):
    """Training; the loss is a mean over words."""

    label_smoothing: float = setting(0.0, "share of the target probability that is spread over all tags")
    word_dropout: float = setting(0.0, "share of tokens masked at each training step")
    monitor: Literal["entity_f1", "accuracy", "loss"] = setting(
        "entity_f1", "metric that selects the best weights; accuracy: share of words with the right tag"
    )


@section
class TaggerEvaluateConfig(EvaluateKeys):
    """Evaluation and report after training."""

    baselines: bool = setting(True, "also evaluate the most frequent tag of each word")
    shown: int = setting(
        24, "number of evaluated sentences whose spans are shown in the report, errors first"
    )
    sentences: tuple[str, ...] = setting((), "your own texts, tagged at the end")


@dataclass(frozen=True)
class TaggingRecipe(RecipeKeys):
    """Recipe of token classification."""

    CARD = ("token-classification", 'print(model.predict(["A text."]))')

    task: Literal["token-tagging"] = setting("token-tagging", "task that the recipe trains for")
    data: TaggedDataConfig = field(default_factory=TaggedDataConfig)
    text: TaggerTextConfig = field(default_factory=TaggerTextConfig)
    model: TaggerModelConfig = field(default_factory=TaggerModelConfig)
    train: TaggerFitConfig = field(default_factory=TaggerFitConfig)
    evaluate: TaggerEvaluateConfig = field(default_factory=TaggerEvaluateConfig)
