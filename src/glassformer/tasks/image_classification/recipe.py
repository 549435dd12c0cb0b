"""Recipes of image classification and regression.

The keys of ``image``, ``model`` and ``train`` are the constructor parameters of ``ImageClassifier`` and
``ImageRegressor``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.checkpoints.catalog import AUTO, IMAGE_SCRATCH
from glassformer.config import SEARCH, positional, section, setting
from glassformer.tasks.sections import (
    ClassData,
    EncoderConfig,
    EvaluateKeys,
    ImageFiles,
    NumberData,
    PixelConfig,
    RecipeKeys,
    ShownNumbers,
)
from glassformer.train.config import ClassifierFitConfig, NumberFitConfig, SearchLimit


@section
class ImageDataConfig(ImageFiles, ClassData):
    """Source of the images, and how they are split."""

    source: str = setting("", "a named source (cifar10, flowers, hotdog, digits), a table or a folder")


@section
class ImageConfig(PixelConfig):
    """Preprocessing and augmentation of images. None: the value of the checkpoint or architecture."""

    mix: Literal["none", "mixup", "cutmix", "both"] = setting(
        "none", "augmentation that mixes pairs of images and their labels"
    )
    mix_share: float = setting(1.0, "probability of mixing a batch, 0 to 1")
    mix_alpha: float = setting(1.0, "parameter of the Beta distribution of the mixing ratio")


@section
class ImageModelConfig(EncoderConfig):
    """Encoder and head. None: the value of the preset or checkpoint."""

    model: str = positional(
        default=AUTO,
        meaning="a checkpoint (name, folder, Hub id), a from-scratch architecture, hog (a linear model), "
        "or auto: the better of hog and dinov2-small (vit-tiny from scratch if dinov2-small is not "
        "available)",
        in_file=IMAGE_SCRATCH,
        used_by=SEARCH,
    )
    pooling: Literal["auto", "first", "mean", "first-mean", "max", "attention", "pooler"] = setting(
        "auto", "vector that the head reads; first-mean: [CLS] concatenated with the mean of the patches"
    )
    head: Literal["auto", "linear", "mlp"] = setting(
        "auto", "layers of the head; mlp: Linear, ReLU, Dropout, Linear"
    )
    patch_dropout: float = setting(0.0, "share of patches dropped from each image in training")
    patch_size: int | None = setting(
        None, "side length of a patch in pixels; this and all keys below: from-scratch architectures only"
    )
    stem: int | None = setting(
        None, "channels of a two-layer convolution stem before the patches; 0: no stem"
    )
    class_token: bool | None = setting(None, "add a [CLS] token before the patches")


@section
class ImageFitConfig(SearchLimit, ClassifierFitConfig):
    """Training on images."""


@section
class ImageEvaluateConfig(EvaluateKeys):
    """Evaluation and report after training."""

    baselines: bool = setting(True, "also evaluate logistic regression on downscaled pixels")
    robustness: bool = setting(
        False, "also evaluate on perturbed images: crops, lighting, blur, noise, JPEG, rotation"
    )
    robustness_limit: int = setting(0, "number of evaluated images to perturb, sampled with seed 0; 0: all")
    grid: bool = setting(True, "write a grid of images, one per class, with true and predicted labels")


@dataclass(frozen=True)
class ImageRecipe(RecipeKeys):
    """Recipe of image classification."""

    CARD = ("image-classification", 'print(model.predict(["picture.png"]))')

    task: Literal["image-classification"] = setting("image-classification", "task that the recipe trains for")
    data: ImageDataConfig = field(default_factory=ImageDataConfig)
    image: ImageConfig = field(default_factory=ImageConfig)
    model: ImageModelConfig = field(default_factory=ImageModelConfig)
    train: ImageFitConfig = field(default_factory=ImageFitConfig)
    evaluate: ImageEvaluateConfig = field(default_factory=ImageEvaluateConfig)


# --- regression ------------------------------------------------------------------------------------


@section
class ImageNumberDataConfig(ImageFiles, NumberData):
    """Source of the images and numbers, and how they are split."""

    source: str = setting("", "a table with images or image paths, or a folder of tables")


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

    CARD = (ImageRecipe.CARD[0], 'print(model.predict(["picture.png"]))')

    task: Literal["image-regression"] = setting("image-regression", "task that the recipe trains for")
    data: ImageNumberDataConfig = field(default_factory=ImageNumberDataConfig)
    image: ImageConfig = field(default_factory=ImageConfig)
    model: ImageModelConfig = field(default_factory=ImageModelConfig)
    train: ImageNumberFitConfig = field(default_factory=ImageNumberFitConfig)
    evaluate: ImageNumberEvaluateConfig = field(default_factory=ImageNumberEvaluateConfig)
