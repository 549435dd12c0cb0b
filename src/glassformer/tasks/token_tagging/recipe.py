"""What a recipe of tags can say. Keys of ``text``, ``model``, ``train`` are those of ``TokenTagger``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config import Section, by_place, section, setting
from glassformer.config.tables import TableKeys
from glassformer.train.config import SUITED, FitConfig, TokenBatches


@section
class TaggedConfig(TableKeys):
    """Where the tagged sentences come from and how they are split."""

    source: str = setting(
        "", "a named source (wnut17), or a CoNLL, JSON Lines or Parquet file, or a folder of them"
    )
    words_column: str | None = setting(
        None, "found by itself when there is one candidate only; of CoNLL its number, usually 1"
    )
    tags_column: str | None = setting(None, "likewise; of CoNLL its number, usually -1, the last")
    validation_size: float | None = setting(None, "share (< 1) or count (>= 1) held out of train; None: none")
    test_size: float | None = setting(None, "likewise for a test split, where the source has none")
    train_size: int | None = setting(None, "at most this many training sentences, drawn at random")
    limit: int | None = setting(None, "at most this many sentences of every split: a quick look")
    split_seed: int = setting(0, "of every choice of sentences")
    on_bad_row: Literal["refuse", "skip"] = setting(
        "refuse", "skip: sentences that cannot be used are left out"
    )
    copies: Literal["together", "apart"] | None = setting(
        None, "of one sentence: on one side of a random split; None: together in runs on one's own data"
    )


@section
class TaggerTextConfig(Section):
    """From words to token ids."""

    max_length: int | None = setting(
        None,
        "tokens, special ones included; longer sentences are read in windows; None: the model's, at most 256",
    )
    tokenizer: str = setting(
        "auto", "auto: the checkpoint's own, or word; word, wordpiece: trained here; else a file"
    )
    lowercase: bool = setting(False, "for tokenizers trained here; names are often known by their capitals")
    strip_accents: bool = setting(False, "for tokenizers trained here")
    vocab_size: int = setting(30_000, "for tokenizers trained here")
    min_count: int = setting(2, "a word must be seen this often to enter a word vocabulary")
    scheme: str | tuple[str, ...] = setting(
        "auto",
        "of the tags: BIO, IOB1, BIOES, BILOU or plain, in any spelling; for numbers their names in order, "
        "such as O,B-PER,I-PER; auto: found, where they are spelled as usual",
    )


@section
class TaggerModelConfig(Section):
    """Which encoder, under a linear layer that answers each word. None means: as the preset has it."""

    model: str = by_place(
        default="all-minilm-l6-v2",
        meaning="a checkpoint (name, folder, Hub id) or a from-scratch architecture",
    )
    revision: str | None = setting(None, "commit of a Hub checkpoint")
    head_dropout: float = setting(0.0, "before the linear layer")
    dropout: float | None = setting(
        None, "on embeddings and on each sub-layer's output; None: 0 of a checkpoint"
    )
    attention_dropout: float | None = setting(None, "on attention weights (needs the explicit branch)")
    d_model: int | None = setting(
        None, "width of the rows; this and all below: from-scratch architectures only"
    )
    num_layers: int | None = setting(None, "encoder layers")
    num_heads: int | None = setting(None, "attention heads of a layer; divides d_model")
    d_ff: int | None = setting(None, "hidden units of the feed-forward network")
    bidirectional: bool | None = setting(None, "lstm and gru: read backwards too")
    embedding_dim: int | None = setting(
        None, "numbers a token; where it is not d_model, an encoder projects them"
    )
    vectors: str | None = setting(
        None, "word2vec: trained on the training texts; or a run, or a file in word2vec's format"
    )
    freeze_vectors: bool = setting(False, "word vectors stay as they are; special tokens are trained")


@section
class TaggerFitConfig(TokenBatches, FitConfig):
    """One fit. As in every recipe, but the loss is a mean over words, and these are the defaults."""

    epochs: int | None = setting(None, f"passes over the training sentences; {SUITED}")
    lr: float | None = setting(None, f"the highest rate, reached at the end of the warm-up; {SUITED}")
    warmup: float | None = setting(None, f"share of all steps; {SUITED}")
    batch_size: int | None = setting(None, f"sentences (0: batch_tokens decides); {SUITED}")
    label_smoothing: float = setting(0.0, "share of the target spread over all tags")
    word_dropout: float = setting(0.0, "share of tokens hidden from the model at each step")
    monitor: Literal["entity_f1", "accuracy", "loss"] = setting(
        "entity_f1", "what decides which weights are best; accuracy: of words"
    )


@section
class TaggerEvaluateConfig(Section):
    """What is judged and shown after training."""

    split: str = setting("test", "looked at once, at the end")
    baselines: bool = setting(True, "the most frequent tag of each word beside it")
    bootstrap: int = setting(1000, "resamples for the 95 % interval")
    shown: int = setting(24, "judged sentences whose spans go into the report, those with errors first")
    sentences: tuple[str, ...] = setting((), "texts of one's own, tagged at the end")


@dataclass(frozen=True)
class TaggingRecipe:
    """One experiment, read from top to bottom."""

    # For the model card: the Hub's pipeline tag, and how such a model is asked.
    CARD = ("token-classification", 'print(model.predict(["A text."]))')

    name: str = setting("", "of the run folder; by default the file's")
    task: Literal["token-tagging"] = setting("token-tagging", "which engine runs it")
    summary: str = setting("", "one line for lists and reports")
    expect: str = setting("", "score with its spread over seeds, and where it was measured")
    data: TaggedConfig = field(default_factory=TaggedConfig)
    text: TaggerTextConfig = field(default_factory=TaggerTextConfig)
    model: TaggerModelConfig = field(default_factory=TaggerModelConfig)
    train: TaggerFitConfig = field(default_factory=TaggerFitConfig)
    evaluate: TaggerEvaluateConfig = field(default_factory=TaggerEvaluateConfig)
