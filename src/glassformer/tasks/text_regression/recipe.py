"""What a recipe of numbers for texts can say. Keys of ``text``, ``model``, ``train``: ``TextRegressor``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config import Section, section, setting
from glassformer.config.tables import TableKeys
from glassformer.tasks.text_classification.recipe import ModelConfig, Recipe, TextConfig
from glassformer.train.config import NumberFitConfig, TokenBatches


@section
class NumberDataConfig(TableKeys):
    """Where the texts and their numbers come from and how they are split."""

    source: str = setting("", "a named source (stsb) or a path to a table or a folder of tables")
    target: Literal["number"] = setting("number", "what is learned of each text")
    text_column: str | None = setting(None, "found by itself when there is one candidate only")
    label_column: str | None = setting(None, "of the numbers; likewise")
    pair_column: str = setting(
        "auto", "of the second text of pairs; auto: found by its name or content; none: one text a row"
    )
    validation_size: float | None = setting(None, "share (< 1) or count (>= 1) held out of train; None: none")
    test_size: float | None = setting(None, "likewise for a test split, where the source has none")
    train_size: int | None = setting(None, "at most this many training examples, all numbers in proportion")
    limit: int | None = setting(None, "at most this many examples of every split: a quick look")
    split_seed: int = setting(0, "of every choice of examples")
    hold_out: Literal["rows", "blocks"] = setting("rows", "blocks: neighboring rows stay together")
    drop_duplicates: bool = setting(
        False, "leave out repeats, and what of train also stands in validation or test"
    )
    copies: Literal["together", "apart", "sides"] | None = setting(
        None,
        "of one example: on one side of a random split; sides: pairs that share a text too; None: together "
        "in new runs on one's own data",
    )
    on_bad_row: Literal["refuse", "skip"] = setting(
        "refuse", "skip: rows that cannot be used go to rejected.jsonl"
    )
    far_numbers: Literal["keep", "skip"] = setting(
        "keep", "skip: numbers far from all others are left out of training and validation, and counted"
    )
    number_format: Literal["plain", "amount", "point", "comma"] = setting(
        "plain",
        "amount: '€74' and '1.234,50' too; point, comma: what stands before the decimals, as '1,234' needs",
    )


@section
class TextNumberFitConfig(TokenBatches, NumberFitConfig):
    """One fit of texts."""

    time_limit: float | None = setting(
        None, "seconds after which model = auto begins no further candidate; None: it tries all"
    )
    word_dropout: float = setting(0.0, "share of tokens hidden from the model at each step")


@section
class NumberEvaluateConfig(Section):
    """What is judged and shown after training."""

    split: str = setting("test", "looked at once, at the end")
    baselines: bool = setting(
        True, "the mean of the training numbers, and ridge on TF-IDF and on a frozen encoder, beside it"
    )
    bootstrap: int = setting(1000, "resamples for the 95 % intervals")
    shown: int = setting(12, "judged examples that go into the report, those furthest off")


@dataclass(frozen=True)
class TextNumberRecipe:
    """One experiment, read from top to bottom."""

    # For the model card: the Hub's pipeline tag (that of classes), and how such a model is asked.
    CARD = (Recipe.CARD[0], 'print(model.predict(["A text."]), model.predict_interval(["A text."]))')

    name: str = setting("", "of the run folder; by default the file's")
    task: Literal["text-regression"] = setting("text-regression", "which engine runs it")
    summary: str = setting("", "one line for lists and reports")
    expect: str = setting("", "score with its spread over seeds, and where it was measured")
    data: NumberDataConfig = field(default_factory=NumberDataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TextNumberFitConfig = field(default_factory=TextNumberFitConfig)
    evaluate: NumberEvaluateConfig = field(default_factory=NumberEvaluateConfig)
