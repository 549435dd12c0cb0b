"""What a recipe for pictures can say; see ``recipe.py`` for the idea.

The keys of ``image``, ``model`` and ``train`` are the constructor parameters of ``ImageClassifier``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from glassformer.config import Section, by_place, section, setting
from glassformer.config.tables import TableKeys
from glassformer.tasks.recipe import AUTO
from glassformer.train.config import ClassifierFitConfig

# What auto means: the pre-trained encoder where it is at hand, else one from scratch.
ENCODER, FROM_SCRATCH = "dinov2-small", "vit-tiny"


@section
class ImageDataConfig(TableKeys):
    """Where the pictures come from and how they are split."""

    source: str = setting("", "a named source (cifar10, flowers, hotdog, digits), a table or a folder")
    image_column: str | None = setting(None, "found by itself when there is one candidate only")
    label_column: str | None = setting(None, "likewise")
    label_separator: str | None = setting(None, "of several labels in a cell of a table, such as | or ;")
    validation_size: float | None = setting(None, "share (< 1) or count (>= 1) held out of train; None: none")
    test_size: float | None = setting(None, "likewise for a test split, where the source has none")
    train_size: int | None = setting(None, "at most this many training pictures, stratified")
    limit: int | None = setting(None, "at most this many pictures of every split: a quick look")
    split_seed: int = setting(0, "of every choice of pictures")
    hold_out: Literal["rows", "blocks"] = setting("rows", "blocks: neighbouring rows stay together")
    merge_labels: str | dict[str, Any] = setting(
        "none",
        "spelling: classes that differ in case or white space become one; or a table old = new, empty: out",
    )
    drop_duplicates: bool = setting(
        False, "leave out repeats, and what of train also stands in validation or test"
    )
    copies: Literal["together", "apart"] | None = setting(
        None, "of one example: on one side of a random split; None: together in new runs on one's own data"
    )
    broken: Literal["refuse", "skip"] = setting(
        "refuse", "skip: pictures that cannot be read are left out and counted"
    )


@section
class ImageConfig(Section):
    """From pictures to pixel values. None and empty mean: as the checkpoint or the architecture has it."""

    image_size: int | None = setting(None, "pixels along each side that the model reads")
    framing: Literal["squash", "crop"] | None = setting(
        None, "squash: scaled to that; crop: shorter side to resize, centre cut"
    )
    resize: int | None = setting(None, "shorter side before a crop")
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] | None = setting(None, "of scaling")
    mean: tuple[float, ...] = setting((), "of each channel, for pixels from 0 to 1")
    std: tuple[float, ...] = setting((), "likewise")
    channels: int | None = setting(None, "3, or 1 for grey (from-scratch architectures only)")
    image_range: float | None = setting(
        None, "white, in images of more than 8 bits that do not state it, such as 4095; None: of 16 full bits"
    )
    augment: Literal["none", "shift", "light", "medium", "strong", "stacked"] = setting(
        "none", "the ladder in data/augment.py"
    )
    flip: bool = setting(True, "left and right may change places where pictures are augmented")
    mix: Literal["none", "mixup", "cutmix", "both"] = setting("none", "pairs of pictures, with soft labels")
    mix_share: float = setting(1.0, "of the batches that are mixed")
    mix_alpha: float = setting(1.0, "of the Beta distribution that says how much of each")


@section
class ImageModelConfig(Section):
    """Which encoder, and what stands on it. None means: as the preset or the checkpoint has it."""

    model: str = by_place(
        default=AUTO,
        meaning="a checkpoint (name, folder, Hub id), a from-scratch architecture, or auto: "
        "dinov2-small frozen or fine-tuned, which validation chooses; "
        "vit-tiny from scratch where that is not at hand",
        in_file=FROM_SCRATCH,
    )
    revision: str | None = setting(None, "commit of a Hub checkpoint")
    pooling: Literal["auto", "first", "mean", "first-mean", "max", "attention", "pooler"] = setting(
        "auto", "what the head reads; first-mean: [CLS] beside the mean of the patches"
    )
    head: Literal["auto", "linear", "mlp"] = setting("auto", "mlp: Linear, ReLU, Dropout, Linear")
    head_hidden: int | None = setting(None, "width of the mlp head; None: d_model")
    head_dropout: float = setting(0.0, "before the last linear layer")
    head_activation: Literal["relu", "none"] = setting("relu", "of the mlp head's hidden layer")
    head_input_dropout: float = setting(0.0, "before the mlp head's hidden layer")
    dropout: float | None = setting(None, "on embeddings and on each sub-layer's output")
    embedding_dropout: float | None = setting(None, "on embeddings, where it is not dropout's")
    feed_forward_dropout: float | None = setting(
        None, "inside the feed-forward network, after its activation"
    )
    attention_dropout: float | None = setting(None, "on attention weights (needs the explicit branch)")
    stochastic_depth: float = setting(
        0.0, "share of the layers skipped in training, growing towards the last"
    )
    patch_dropout: float = setting(0.0, "share of the patches left out of each picture in training")
    patch_size: int | None = setting(None, "this and all below: from-scratch architectures only")
    stem: int | None = setting(None, "channels of a two-layer convolution stem before the patches; 0: none")
    d_model: int | None = setting(None, "width of the rows")
    num_layers: int | None = setting(None, "encoder layers")
    num_heads: int | None = setting(None, "attention heads of a layer; divides d_model")
    d_ff: int | None = setting(None, "hidden units of the feed-forward network")
    norm: Literal["pre", "post"] | None = setting(None, "before each sub-layer, or after its residual sum")
    norm_eps: float | None = setting(None, "inside the root of every norm")
    activation: Literal["relu", "gelu", "gelu_tanh"] | None = setting(None, "of the feed-forward network")
    positions: Literal["learned", "sinusoidal", "none"] | None = setting(
        None, "sinusoidal: of row and column"
    )
    class_token: bool | None = setting(None, "[CLS] before the patches")
    final_norm: bool | None = setting(None, "a norm after the last layer")
    zero_init: bool | None = setting(None, "residual branches start at 0: the encoder starts as the identity")
    attention: Literal["full", "local", "linear"] | None = setting(
        None, "local: each row sees those near it; linear: no softmax; both cost less on many patches"
    )
    attention_window: int | None = setting(None, "of local attention: places seen on either side; None: 64")
    init_std: float | None = setting(None, "of new linear weights")


@section
class ImageEvaluateConfig(Section):
    """What is judged and shown after training."""

    split: str = setting("test", "looked at once, at the end")
    baselines: bool = setting(True, "logistic regression on small pixels beside it")
    bootstrap: int = setting(1000, "resamples for the 95 % interval")
    robustness: bool = setting(False, "judge changed crops, lighting, blur, noise, JPEG and rotation too")
    robustness_limit: int = setting(0, "how many judged pictures are changed, drawn with the seed 0; 0: all")
    grid: bool = setting(True, "one picture a class with true and predicted label")


@dataclass(frozen=True)
class ImageRecipe:
    """One experiment on pictures, read from top to bottom."""

    # For the model card: the Hub's pipeline tag, and how such a model is asked.
    CARD = ("image-classification", 'print(model.predict(["picture.png"]))')

    name: str = setting("", "of the run folder; by default the file's")
    task: Literal["image-classification"] = setting("image-classification", "which engine runs it")
    summary: str = setting("", "one line for lists and reports")
    expect: str = setting("", "score with its spread over seeds, and where it was measured")
    data: ImageDataConfig = field(default_factory=ImageDataConfig)
    image: ImageConfig = field(default_factory=ImageConfig)
    model: ImageModelConfig = field(default_factory=ImageModelConfig)
    train: ClassifierFitConfig = field(default_factory=ClassifierFitConfig)
    evaluate: ImageEvaluateConfig = field(default_factory=ImageEvaluateConfig)
