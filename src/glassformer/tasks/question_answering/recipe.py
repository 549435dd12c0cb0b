"""Recipe of question answering. The keys of ``text``, ``model`` and ``train`` are parameters of
``QuestionAnswerer``."""

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
from glassformer.train.config import AutoFitConfig, TokenBatches


@section
class QuestionDataConfig(UnusableRows, SampleSizes):
    """Source of the questions, and how they are split."""

    source: str = setting(
        "", "a named source (facts), or SQuAD's JSON, a JSON Lines, Parquet or CSV file, or a folder of them"
    )
    question_column: str | None = setting(
        None, "column with the questions; None: detected by its usual names"
    )
    context_column: str | None = setting(None, "column with the contexts; None: detected by its usual names")
    answer_column: str | None = setting(
        None,
        "column with the answers: texts with character offsets, or one text per cell; None: detected "
        "by its usual names",
    )


@section
class AnswererTextConfig(NewTokenizer):
    """Tokenization of questions and contexts."""

    max_length: int | None = setting(
        None,
        "maximum number of tokens of a window, question and special ones included; None: the model's "
        "maximum, at most 384",
    )
    doc_stride: int = setting(128, "number of tokens that two neighboring windows of a long context share")
    max_question: int = setting(64, "maximum number of tokens of a question; longer ones are truncated")
    max_answer_length: int = setting(30, "maximum number of tokens of an answer")
    tokenizer: str = setting(
        "auto",
        "auto: the tokenizer of the checkpoint, or word if it has none; word, wordpiece: newly "
        "trained; or a tokenizer file",
    )


@section
class AnswererModelConfig(TokenHeadConfig):
    """Encoder, with a linear head for start and end. None: the value of the preset or checkpoint."""

    model: str = positional(
        default="all-minilm-l6-v2",
        meaning="a checkpoint (name, folder, Hub id) or a from-scratch encoder",
    )


@section
class AnswererFitConfig(TokenBatches, AutoFitConfig):
    """Training; an example is a window."""

    monitor: Literal["f1", "exact_match", "loss"] = setting("f1", "metric that selects the best weights")


@section
class AnswererEvaluateConfig(EvaluateKeys):
    """Evaluation and report after training."""

    baselines: bool = setting(
        True, "also evaluate two simple methods: the most likely sentence, and a name in it"
    )
    shown: int = setting(24, "number of evaluated questions in the report, errors first")
    questions: tuple[str, ...] = setting(
        (), "your own questions, each as 'question | context', answered at the end"
    )


@dataclass(frozen=True)
class QuestionAnsweringRecipe(RecipeKeys):
    """Recipe of question answering."""

    CARD = ("question-answering", 'print(model.predict([("A question?", "A text with its answer.")]))')

    task: Literal["question-answering"] = setting("question-answering", "task that the recipe trains for")
    data: QuestionDataConfig = field(default_factory=QuestionDataConfig)
    text: AnswererTextConfig = field(default_factory=AnswererTextConfig)
    model: AnswererModelConfig = field(default_factory=AnswererModelConfig)
    train: AnswererFitConfig = field(default_factory=AnswererFitConfig)
    evaluate: AnswererEvaluateConfig = field(default_factory=AnswererEvaluateConfig)
