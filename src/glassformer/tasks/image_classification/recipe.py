"""What a recipe for pictures can say; see ``recipe.py`` for the idea.

The keys of ``image``, ``model`` and ``train`` are the constructor parameters of ``ImageClassifier``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from glassformer.config import check_ranges
from glassformer.errors import ConfigError
from glassformer.train.config import FitConfig


@dataclass(frozen=True)
class ImageDataConfig:
    """Where the pictures come from and how they are split."""

    source: str = ""  # a named source (cifar10, flowers, hotdog, digits), a table or a folder
    image_column: str | None = None  # found by itself when there is one candidate only
    label_column: str | None = None  # likewise
    validation_size: float | None = None  # share (< 1) or count (>= 1) held out of train; None: none
    test_size: float | None = None  # likewise for a test split, where the source has none
    train_size: int | None = None  # at most this many training pictures, stratified
    limit: int | None = None  # at most this many pictures of every split: a quick look
    split_seed: int = 0  # of every choice of pictures
    hold_out: Literal["rows", "blocks"] = "rows"  # blocks: neighbouring rows stay together
    broken: Literal["refuse", "skip"] = (
        "refuse"  # skip: pictures that cannot be read are left out and counted
    )

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class ImageConfig:
    """From pictures to pixel values. None and empty mean: as the checkpoint or the architecture has it."""

    image_size: int | None = None  # pixels along each side that the model reads
    framing: Literal["squash", "crop"] | None = (
        None  # squash: scaled to that; crop: shorter side to resize, centre cut
    )
    resize: int | None = None  # shorter side before a crop
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] | None = None  # of scaling
    mean: tuple[float, ...] = ()  # of each channel, for pixels from 0 to 1
    std: tuple[float, ...] = ()  # likewise
    channels: int | None = None  # 3, or 1 for grey (from-scratch architectures only)
    augment: Literal["none", "shift", "light", "medium", "strong"] = "none"  # the ladder in data/augment.py
    flip: bool = True  # left and right may change places where pictures are augmented
    mix: Literal["none", "mixup", "cutmix", "both"] = "none"  # pairs of pictures, with soft labels
    mix_share: float = 1.0  # of the batches that are mixed
    mix_alpha: float = 1.0  # of the Beta distribution that says how much of each

    def __post_init__(self) -> None:
        check_ranges(self)
        for name, low, high in (
            ("image_size", 1, 4096), ("resize", 1, 8192), ("mix_share", 0, 1), ("mix_alpha", 0.01, 100),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ConfigError(
                    f"{name} = {value} is out of range", where=name, fix=f"Use a value from {low} to {high}"
                )


@dataclass(frozen=True)
class ImageModelConfig:
    """Which encoder, and what stands on it. None means: as the preset or the checkpoint has it."""

    model: str = "vit-tiny"  # a checkpoint (name, folder, Hub id) or a from-scratch architecture
    revision: str | None = None  # commit of a Hub checkpoint
    pooling: Literal["auto", "first", "mean", "max", "attention", "pooler"] = "auto"  # what the head reads
    head: Literal["auto", "linear", "mlp"] = "auto"  # mlp: Linear, ReLU, Dropout, Linear
    head_hidden: int | None = None  # width of the mlp head; None: d_model
    head_dropout: float = 0.0  # before the last linear layer
    dropout: float | None = None  # on embeddings and on each sub-layer's output
    attention_dropout: float | None = None  # on attention weights (needs the explicit branch)
    stochastic_depth: float = 0.0  # share of the layers skipped in training, growing towards the last
    patch_dropout: float = 0.0  # share of the patches left out of each picture in training
    patch_size: int | None = None  # this and all below: from-scratch architectures only
    stem: int | None = None  # channels of a two-layer convolution stem before the patches; 0: none
    d_model: int | None = None  # width of the rows
    num_layers: int | None = None  # encoder layers
    num_heads: int | None = None  # attention heads of a layer; divides d_model
    d_ff: int | None = None  # hidden units of the feed-forward network
    norm: Literal["pre", "post"] | None = None  # before each sub-layer, or after its residual sum
    activation: Literal["relu", "gelu", "gelu_tanh"] | None = None  # of the feed-forward network
    positions: Literal["learned", "sinusoidal", "none"] | None = None  # sinusoidal: of row and column
    class_token: bool | None = None  # [CLS] before the patches
    final_norm: bool | None = None  # a norm after the last layer
    zero_init: bool | None = None  # residual branches start at 0: the encoder starts as the identity

    def __post_init__(self) -> None:
        check_ranges(self)
        if not 0 <= self.patch_dropout < 1:
            raise ConfigError(f"patch_dropout = {self.patch_dropout} is out of range", where="patch_dropout")


@dataclass(frozen=True)
class ImageEvaluateConfig:
    """What is judged and shown after training."""

    split: str = "test"  # looked at once, at the end
    baselines: bool = True  # logistic regression on small pixels beside it
    bootstrap: int = 1000  # resamples for the 95 % interval
    robustness: bool = False  # judge changed crops, lighting, blur, noise, JPEG and rotation too
    robustness_limit: int = 0  # how many judged pictures are changed, drawn with the seed 0; 0: all
    grid: bool = True  # one picture a class with true and predicted label

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class ImageRecipe:
    """One experiment on pictures, read from top to bottom."""

    name: str = ""  # of the run folder; by default the file's
    task: Literal["image-classification"] = "image-classification"  # which engine runs it
    summary: str = ""  # one line for lists and reports
    expect: str = ""  # score with its spread over seeds, and where it was measured
    data: ImageDataConfig = field(default_factory=ImageDataConfig)
    image: ImageConfig = field(default_factory=ImageConfig)
    model: ImageModelConfig = field(default_factory=ImageModelConfig)
    train: FitConfig = field(default_factory=FitConfig)
    evaluate: ImageEvaluateConfig = field(default_factory=ImageEvaluateConfig)


IMAGE_SECTIONS = {"image": ImageConfig, "model": ImageModelConfig, "train": FitConfig}


def image_parameters() -> dict[str, Any]:
    """Key -> default of everything that concerns one fit, in the order of the sections."""
    return {f.name: f.default for cls in IMAGE_SECTIONS.values() for f in fields(cls)}
