"""What a recipe of masked patches can say. Keys of ``image``, ``model``, ``train``: ``MaskedPatches``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config import Section, TableKeys, by_place, section, setting
from glassformer.errors import ConfigError
from glassformer.tasks.sections import EncoderSizes, PixelConfig, RecipeKeys
from glassformer.train.config import FitConfig


@section
class PicturesConfig(TableKeys):
    """Where the images come from. Labels are not read."""

    source: str = setting(
        "",
        "a named source (cifar10, flowers, digits), a table, or a folder of images with or without classes",
    )
    also: tuple[str, ...] = setting((), "more sources, whose images are added")
    image_column: str | None = setting(None, "found by itself when there is one candidate only")
    splits: tuple[str, ...] = setting(("train",), "whose images are learned from, where the source has them")
    validation_size: float = setting(500, "share (< 1) or count (>= 1) held out, to evaluate the painting on")
    limit: int | None = setting(None, "at most this many images of every source: a quick look")
    split_seed: int = setting(0, "of every choice of images")
    broken: Literal["refuse", "skip"] = setting(
        "refuse", "skip: images that cannot be read are left out and counted"
    )


@section
class PatchImageConfig(PixelConfig):
    """From images to patches, seen and hidden. None and empty mean: as the model has it."""

    augment: Literal["none", "shift", "light", "medium", "strong", "stacked"] = setting(
        "none", "how images are changed before they are hidden; light is what the paper uses"
    )
    mask_share: float = setting(0.75, "of the patches of each image, hidden and to be painted")

    def __post_init__(self) -> None:
        if not 0.0 < self.mask_share < 1.0:  # also what is no number
            what = f"mask_share = {self.mask_share} is out of range"
            raise ConfigError(what, where="mask_share", fix="Use 0.75")
        super().__post_init__()


@section
class PatchModelConfig(EncoderSizes):
    """Which encoder learns, and the decoder that is thrown away. None means: as the architecture has it."""

    model: str = by_place(
        default="vit-tiny",
        meaning="a from-scratch architecture, or a checkpoint to continue from",
    )
    patch_size: int | None = setting(None, "this and all below, up to the decoder's: from scratch only")
    positions: Literal["learned", "sinusoidal", "none"] | None = setting(
        None, "sinusoidal: of row and column"
    )
    class_token: bool | None = setting(None, "[CLS] before the patches")
    zero_init: bool | None = setting(None, "residual branches start at 0: the encoder starts as the identity")
    decoder_width: int = setting(128, "of the decoder's rows")
    decoder_layers: int = setting(2, "of the decoder")
    decoder_heads: int = setting(4, "of a layer of it; divides decoder_width")


@section
class PatchFitConfig(FitConfig):
    """One fit; the loss is a mean over hidden patches."""

    epochs: int = setting(50, "passes over the images, hidden anew in each")
    lr: float = setting(1e-3, "the highest rate, reached at the end of the warm-up")
    weight_decay: float = setting(0.05, "not on biases, norms and positions")
    betas: tuple[float, ...] = setting((0.9, 0.95), "decay of the two running means of Adam")
    schedule: Literal["linear", "cosine", "constant"] = setting("cosine", "after the warm-up")
    batch_size: int = setting(128, "images")
    monitor: Literal["accuracy", "loss"] = setting("loss", "what decides which weights are best")


@section
class PatchEvaluateConfig(Section):
    """What is shown after training."""

    shown: int = setting(6, "held-out images: as they are, with their patches hidden, and painted")


@dataclass(frozen=True)
class PatchesRecipe(RecipeKeys):
    """One experiment, read from top to bottom."""

    # For the model card: the Hub's pipeline tag, and how such a model is asked.
    CARD = ("image-feature-extraction", 'print(model.embed(["picture.png"]).shape)')

    task: Literal["masked-patches"] = setting("masked-patches", "which engine runs it")
    data: PicturesConfig = field(default_factory=PicturesConfig)
    image: PatchImageConfig = field(default_factory=PatchImageConfig)
    model: PatchModelConfig = field(default_factory=PatchModelConfig)
    train: PatchFitConfig = field(default_factory=PatchFitConfig)
    evaluate: PatchEvaluateConfig = field(default_factory=PatchEvaluateConfig)
