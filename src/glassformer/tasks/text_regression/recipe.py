"""Recipe of regression on texts. The keys of ``text``, ``model`` and ``train`` are parameters of
``TextRegressor``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config import section, setting
from glassformer.tasks.sections import NumberData, RecipeKeys, ShownNumbers, TextColumns
from glassformer.tasks.text_classification.recipe import ModelConfig, Recipe, TextConfig
from glassformer.train.config import NumberFitConfig, SearchLimit, TokenBatches


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

    # For the model card: the Hub's pipeline tag (that of classification), and a line of code that predicts.
    CARD = (Recipe.CARD[0], 'print(model.predict(["A text."]), model.predict_interval(["A text."]))')

    task: Literal["text-regression"] = setting("text-regression", "task that the recipe trains for")
    data: NumberDataConfig = field(default_factory=NumberDataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TextNumberFitConfig = field(default_factory=TextNumberFitConfig)
    evaluate: NumberEvaluateConfig = field(default_factory=NumberEvaluateConfig)
