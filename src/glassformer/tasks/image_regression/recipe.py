"""What a recipe of numbers for pictures can say. Keys of ``image``, ``model``, ``train``: ImageRegressor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config import Section, section, setting
from glassformer.config.tables import TableKeys
from glassformer.tasks.image_classification.recipe import ImageConfig, ImageModelConfig, ImageRecipe
from glassformer.train.config import NumberFitConfig


@section
class ImageNumberDataConfig(TableKeys):
    """Where the pictures and their numbers come from and how they are split."""

    source: str = setting("", "a table that holds or names pictures, or a folder of tables")
    target: Literal["number"] = setting("number", "what is learned of each picture")
    image_column: str | None = setting(None, "found by itself when there is one candidate only")
    label_column: str | None = setting(None, "of the numbers; likewise")
    validation_size: float | None = setting(None, "share (< 1) or count (>= 1) held out of train; None: none")
    test_size: float | None = setting(None, "likewise for a test split, where the source has none")
    train_size: int | None = setting(None, "at most this many training pictures, all numbers in proportion")
    limit: int | None = setting(None, "at most this many pictures of every split: a quick look")
    split_seed: int = setting(0, "of every choice of pictures")
    hold_out: Literal["rows", "blocks"] = setting("rows", "blocks: neighboring rows stay together")
    drop_duplicates: bool = setting(
        False, "leave out repeats, and what of train also stands in validation or test"
    )
    copies: Literal["together", "apart"] | None = setting(
        None, "of one example: on one side of a random split; None: together in new runs on one's own data"
    )
    broken: Literal["refuse", "skip"] = setting(
        "refuse", "skip: pictures that cannot be read are left out and counted"
    )
    far_numbers: Literal["keep", "skip"] = setting(
        "keep", "skip: numbers far from all others are left out of training and validation, and counted"
    )


@section
class ImageNumberEvaluateConfig(Section):
    """What is judged and shown after training."""

    split: str = setting("test", "looked at once, at the end")
    baselines: bool = setting(True, "the mean of the training numbers, and ridge on small pixels, beside it")
    bootstrap: int = setting(1000, "resamples for the 95 % intervals")
    shown: int = setting(12, "judged pictures that go into the report, those furthest off")


@dataclass(frozen=True)
class ImageNumberRecipe:
    """One experiment on pictures, read from top to bottom."""

    # For the model card: the Hub's pipeline tag (that of classes), and how such a model is asked.
    CARD = (ImageRecipe.CARD[0], 'print(model.predict(["picture.png"]))')

    name: str = setting("", "of the run folder; by default the file's")
    task: Literal["image-regression"] = setting("image-regression", "which engine runs it")
    summary: str = setting("", "one line for lists and reports")
    expect: str = setting("", "score with its spread over seeds, and where it was measured")
    data: ImageNumberDataConfig = field(default_factory=ImageNumberDataConfig)
    image: ImageConfig = field(default_factory=ImageConfig)
    model: ImageModelConfig = field(default_factory=ImageModelConfig)
    train: NumberFitConfig = field(default_factory=NumberFitConfig)
    evaluate: ImageNumberEvaluateConfig = field(default_factory=ImageNumberEvaluateConfig)
