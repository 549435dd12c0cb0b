"""Recipe of regression on images. The keys of ``image``, ``model`` and ``train`` are parameters of
``ImageRegressor``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config import section, setting
from glassformer.tasks.image_classification.recipe import ImageConfig, ImageModelConfig, ImageRecipe
from glassformer.tasks.sections import ImageFiles, NumberData, RecipeKeys, ShownNumbers
from glassformer.train.config import NumberFitConfig, SearchLimit


@section
class ImageNumberDataConfig(ImageFiles, NumberData):
    """Source of the images and numbers, and how they are split."""

    source: str = setting("", "a table that holds or names images, or a folder of tables")


@section
class ImageNumberFitConfig(SearchLimit, NumberFitConfig):
    """Training on images."""


@section
class ImageNumberEvaluateConfig(ShownNumbers):
    """Evaluation and report after training."""

    baselines: bool = setting(
        True, "also evaluate the mean of the training numbers, and ridge regression on downscaled pixels"
    )


@dataclass(frozen=True)
class ImageNumberRecipe(RecipeKeys):
    """Recipe of regression on images."""

    # For the model card: the Hub's pipeline tag (that of classification), and a line of code that predicts.
    CARD = (ImageRecipe.CARD[0], 'print(model.predict(["picture.png"]))')

    task: Literal["image-regression"] = setting("image-regression", "task that the recipe trains for")
    data: ImageNumberDataConfig = field(default_factory=ImageNumberDataConfig)
    image: ImageConfig = field(default_factory=ImageConfig)
    model: ImageModelConfig = field(default_factory=ImageModelConfig)
    train: ImageNumberFitConfig = field(default_factory=ImageNumberFitConfig)
    evaluate: ImageNumberEvaluateConfig = field(default_factory=ImageNumberEvaluateConfig)
