"""What a recipe of numbers for images can say. Keys of ``image``, ``model``, ``train``: ImageRegressor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config import section, setting
from glassformer.tasks.image_classification.recipe import ImageConfig, ImageModelConfig, ImageRecipe
from glassformer.tasks.sections import ImageFiles, NumberData, RecipeKeys, ShownNumbers
from glassformer.train.config import NumberFitConfig, SearchLimit


@section
class ImageNumberDataConfig(ImageFiles, NumberData):
    """Where the images and their numbers come from and how they are split."""

    source: str = setting("", "a table that holds or names images, or a folder of tables")


@section
class ImageNumberFitConfig(SearchLimit, NumberFitConfig):
    """One fit of images."""


@section
class ImageNumberEvaluateConfig(ShownNumbers):
    """What is judged and shown after training."""

    baselines: bool = setting(
        True, "also evaluate the mean of the training numbers, and ridge regression on downscaled pixels"
    )


@dataclass(frozen=True)
class ImageNumberRecipe(RecipeKeys):
    """One experiment on images, read from top to bottom."""

    # For the model card: the Hub's pipeline tag (that of classes), and how such a model is asked.
    CARD = (ImageRecipe.CARD[0], 'print(model.predict(["picture.png"]))')

    task: Literal["image-regression"] = setting("image-regression", "task that the recipe trains for")
    data: ImageNumberDataConfig = field(default_factory=ImageNumberDataConfig)
    image: ImageConfig = field(default_factory=ImageConfig)
    model: ImageModelConfig = field(default_factory=ImageModelConfig)
    train: ImageNumberFitConfig = field(default_factory=ImageNumberFitConfig)
    evaluate: ImageNumberEvaluateConfig = field(default_factory=ImageNumberEvaluateConfig)
