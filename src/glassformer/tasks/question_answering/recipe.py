"""What a recipe of answers can say. Keys of ``text``, ``model``, ``train`` are those of ``TextAnswerer``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config import Section, by_place, section, setting
from glassformer.config.tables import TableKeys
from glassformer.train.config import SUITED, FitConfig, TokenBatches


@section
class AnsweredConfig(TableKeys):
    """Where the questions come from and how they are split."""

    source: str = setting(
        "", "a named source (facts), or SQuAD's JSON, a JSON Lines, Parquet or CSV file, or a folder of them"
    )
    question_column: str | None = setting(None, "of a table; None: found by its usual names")
    context_column: str | None = setting(None, "likewise")
    answer_column: str | None = setting(None, "likewise; answers with their places, or one text a cell")
    validation_size: float | None = setting(None, "share (< 1) or count (>= 1) held out of train; None: none")
    test_size: float | None = setting(None, "likewise for a test split, where the source has none")
    train_size: int | None = setting(None, "at most this many training questions, drawn at random")
    limit: int | None = setting(None, "at most this many questions of every split: a quick look")
    split_seed: int = setting(0, "of every choice of questions")
    on_bad_row: Literal["refuse", "skip"] = setting(
        "refuse", "skip: questions that cannot be used are left out"
    )
    copies: Literal["together", "apart"] | None = setting(
        None, "of one context: on one side of a random split; None: together in runs on one's own data"
    )


@section
class AnswererTextConfig(Section):
    """From a question and its context to token ids."""

    max_length: int | None = setting(
        None,
        "tokens of a window, question and special ones included; None: the model's, at most 384",
    )
    doc_stride: int = setting(128, "tokens that a window of a long context shares with the next")
    max_question: int = setting(64, "tokens of a question; the rest is cut")
    max_answer_length: int = setting(30, "tokens of an answer at most")
    tokenizer: str = setting(
        "auto", "auto: the checkpoint's own, or word; word, wordpiece: trained here; else a file"
    )
    lowercase: bool = setting(True, "for tokenizers trained here")
    strip_accents: bool = setting(False, "for tokenizers trained here")
    vocab_size: int = setting(30_000, "for tokenizers trained here")
    min_count: int = setting(2, "a word must be seen this often to enter a word vocabulary")


@section
class AnswererModelConfig(Section):
    """Which encoder, under a linear layer that marks begin and end. None means: as the preset has it."""

    model: str = by_place(
        default="all-minilm-l6-v2",
        meaning="a checkpoint (name, folder, Hub id) or a from-scratch encoder",
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
    embedding_dim: int | None = setting(
        None, "numbers a token; where it is not d_model, an encoder projects them"
    )
    vectors: str | None = setting(
        None, "word2vec: trained on the training texts; or a run, or a file in word2vec's format"
    )
    freeze_vectors: bool = setting(False, "word vectors stay as they are; special tokens are trained")


@section
class AnswererFitConfig(TokenBatches, FitConfig):
    """One fit. As in every recipe, but an example is a window, and these are the defaults."""

    epochs: int | None = setting(None, f"passes over the training windows; {SUITED}")
    lr: float | None = setting(None, f"the highest rate, reached at the end of the warm-up; {SUITED}")
    warmup: float | None = setting(None, f"share of all steps; {SUITED}")
    batch_size: int | None = setting(None, f"windows (0: batch_tokens decides); {SUITED}")
    monitor: Literal["f1", "exact_match", "loss"] = setting("f1", "what decides which weights are best")


@section
class AnswererEvaluateConfig(Section):
    """What is judged and shown after training."""

    split: str = setting("test", "looked at once, at the end")
    baselines: bool = setting(True, "judge two simple ways too: the likeliest sentence, and a name in it")
    bootstrap: int = setting(1000, "resamples of contexts for the 95 % intervals")
    shown: int = setting(24, "judged questions that go into the report, those with errors first")
    questions: tuple[str, ...] = setting(
        (), "of one's own: question, ' | ' and context in one text; answered at the end"
    )


@dataclass(frozen=True)
class AnsweringRecipe:
    """One experiment, read from top to bottom."""

    # For the model card: the Hub's pipeline tag, and how such a model is asked.
    CARD = ("question-answering", 'print(model.predict([("A question?", "A text with its answer.")]))')

    name: str = setting("", "of the run folder; by default the file's")
    task: Literal["question-answering"] = setting("question-answering", "which engine runs it")
    summary: str = setting("", "one line for lists and reports")
    expect: str = setting("", "score with its spread over seeds, and where it was measured")
    data: AnsweredConfig = field(default_factory=AnsweredConfig)
    text: AnswererTextConfig = field(default_factory=AnswererTextConfig)
    model: AnswererModelConfig = field(default_factory=AnswererModelConfig)
    train: AnswererFitConfig = field(default_factory=AnswererFitConfig)
    evaluate: AnswererEvaluateConfig = field(default_factory=AnswererEvaluateConfig)
