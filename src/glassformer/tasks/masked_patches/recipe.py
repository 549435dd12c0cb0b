"""Recipe of masked autoencoding.

The keys of ``image``, ``model`` and ``train`` are parameters of ``MaskedPatches``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config import Section, TableKeys, positional, section, setting
from glassformer.errors import ConfigError
from glassformer.tasks.sections import EncoderSizes, PixelConfig, RecipeKeys
from glassformer.train.config import FitConfig


@section
class ImageCorpusConfig(TableKeys):
    """Source of the images. Labels are ignored."""

    source: str = setting(
        "",
        "a named source (cifar10, flowers, digits), a table, or a folder of images with or without classes",
    )
    also: tuple[str, ...] = setting((), "further sources, whose images are added")
    image_column: str | None = setting(
        None, "column with the images; None: detected if only one column qualifies"
    )
    splits: tuple[str, ...] = setting(
        ("train",), "splits whose images are used for training, if the source has them"
    )
    validation_size: float = setting(
        500, "share (< 1) or number (>= 1) of images held out to evaluate the reconstruction"
    )
    limit: int | None = setting(None, "maximum number of images of each source, for a quick trial")
    split_seed: int = setting(0, "random seed for splits and for samples of images")
    broken: Literal["refuse", "skip"] = setting(
        "refuse", "refuse: an unreadable image is an error; skip: unreadable images are left out and counted"
    )


@section
class PatchImageConfig(PixelConfig):
    """Preprocessing and masking. None or empty: the value of the model."""

    augment: Literal["none", "shift", "light", "medium", "strong", "stacked"] = setting(
        "none", "augmentation before patches are masked; light is what the paper uses"
    )
    mask_share: float = setting(0.75, "share of patches of each image that are masked and reconstructed")

    def __post_init__(self) -> None:
        if not 0.0 < self.mask_share < 1.0:  # also rejects NaN
            what = f"mask_share = {self.mask_share} is out of range"
            raise ConfigError(what, where="mask_share", fix="Use 0.75")
        super().__post_init__()


@section
class PatchModelConfig(EncoderSizes):
    """The encoder to train, and the decoder used only in training. None: the value of the architecture."""

    model: str = positional(
        default="vit-tiny",
        meaning="a from-scratch architecture, or a checkpoint to continue from",
    )
    patch_size: int | None = setting(
        None,
        "side length of a patch in pixels; this and all keys below, up to those of the decoder: from "
        "scratch only",
    )
    positions: Literal["learned", "sinusoidal", "none"] | None = setting(
        None, "position embeddings of the patches; sinusoidal encodes row and column"
    )
    class_token: bool | None = setting(None, "add a [CLS] token before the patches")
    zero_init: bool | None = setting(
        None, "initialize residual branches to 0, so that the encoder starts as the identity"
    )
    decoder_width: int = setting(128, "hidden size of the decoder")
    decoder_layers: int = setting(2, "number of decoder layers")
    decoder_heads: int = setting(4, "attention heads per decoder layer; must divide decoder_width")


@section
class PatchFitConfig(FitConfig):
    """Training; the loss is a mean over masked patches."""

    epochs: int = setting(50, "passes over the images, with new masks in each")
    lr: float = setting(1e-3, "peak learning rate, reached at the end of the warm-up")
    weight_decay: float = setting(0.05, "weight decay; not applied to biases, norms and positions")
    betas: tuple[float, ...] = setting((0.9, 0.95), "decay rates of Adam's two running means")
    schedule: Literal["linear", "cosine", "constant"] = setting(
        "cosine", "learning-rate schedule after the warm-up"
    )
    batch_size: int = setting(128, "images per batch")
    monitor: Literal["accuracy", "loss"] = setting("loss", "metric that selects the best weights")


@section
class PatchEvaluateConfig(Section):
    """Examples for the report."""

    shown: int = setting(
        6, "number of held-out images in the report, each shown original, masked and reconstructed"
    )


@dataclass(frozen=True)
class PatchesRecipe(RecipeKeys):
    """Recipe of masked autoencoding."""

    CARD = ("image-feature-extraction", 'print(model.embed(["picture.png"]).shape)')

    task: Literal["masked-patches"] = setting("masked-patches", "task that the recipe trains for")
    data: ImageCorpusConfig = field(default_factory=ImageCorpusConfig)
    image: PatchImageConfig = field(default_factory=PatchImageConfig)
    model: PatchModelConfig = field(default_factory=PatchModelConfig)
    train: PatchFitConfig = field(default_factory=PatchFitConfig)
    evaluate: PatchEvaluateConfig = field(default_factory=PatchEvaluateConfig)
