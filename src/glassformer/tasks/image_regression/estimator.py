"""``ImageRegressor``: a number for a picture, and an interval around it.

All but its targets is as in ``ImageClassifier``.
"""

from __future__ import annotations

from glassformer.tasks.image_classification.estimator import ImageModel
from glassformer.tasks.image_classification.recipe import ImageConfig, ImageModelConfig
from glassformer.tasks.image_regression.recipe import ImageNumberRecipe
from glassformer.tasks.regressor import Regressor
from glassformer.train.config import NumberFitConfig


class ImageRegressor(Regressor, ImageModel):
    """A Transformer that predicts numbers from images: PIL images, paths, bytes, open files, uint8 arrays
    ``[H, W, C]`` or tensors ``[C, H, W]``.

    The parameters are the keys of a recipe's ``image``, ``model`` and ``train`` sections; its file says what
    each means. Numbers are standardized for training; answers have the unit of ``y``. ``score`` is R².
    Fitted state: that of ``ImageModel`` and of ``Regressor``.
    """

    RECIPE = ImageNumberRecipe
    SECTIONS = {"image": ImageConfig, "model": ImageModelConfig, "train": NumberFitConfig}  # noqa: RUF012

    def __init__(
        self,
        model: str = "auto",
        *,
        image_size: int | None = None,
        framing: str | None = None,
        resize: int | None = None,
        interpolation: str | None = None,
        mean: tuple[float, ...] = (),
        std: tuple[float, ...] = (),
        channels: int | None = None,
        image_range: float | None = None,
        augment: str = "none",
        flip: bool = True,
        mix: str = "none",
        mix_share: float = 1.0,
        mix_alpha: float = 1.0,
        revision: str | None = None,
        pooling: str = "auto",
        head: str = "auto",
        head_hidden: int | None = None,
        head_dropout: float = 0.0,
        head_activation: str = "relu",
        head_input_dropout: float = 0.0,
        dropout: float | None = None,
        embedding_dropout: float | None = None,
        feed_forward_dropout: float | None = None,
        attention_dropout: float | None = None,
        stochastic_depth: float = 0.0,
        patch_dropout: float = 0.0,
        patch_size: int | None = None,
        stem: int | None = None,
        d_model: int | None = None,
        num_layers: int | None = None,
        num_heads: int | None = None,
        d_ff: int | None = None,
        norm: str | None = None,
        norm_eps: float | None = None,
        activation: str | None = None,
        positions: str | None = None,
        class_token: bool | None = None,
        final_norm: bool | None = None,
        zero_init: bool | None = None,
        attention: str | None = None,
        attention_window: int | None = None,
        init_std: float | None = None,
        epochs: int | None = None,
        lr: float | None = None,
        optimizer: str = "adamw",
        weight_decay: float = 0.01,
        betas: tuple[float, ...] = (0.9, 0.999),
        adam_eps: float = 1e-8,
        schedule: str = "linear",
        warmup: float | None = None,
        layer_decay: float = 1.0,
        embedding_lr: float = 1.0,
        batch_size: int | None = None,
        accumulate: int = 1,
        clip: float = 1.0,
        train_layers: int | None = None,
        unfreeze_every: int = 0,
        lora_rank: int = 0,
        lora_alpha: float = 16.0,
        lora_targets: str | tuple[str, ...] = ("q", "v"),
        average: float = 0.0,
        validation_fraction: float = 0.0,
        early_stopping: int = 0,
        monitor: str = "loss",
        head_start: str = "solved",
        start_share: str | float = "auto",
        number_scale: str = "linear",
        keep_best: bool = True,
        evaluate_every: int = 0,
        checkpoint_every: int = 0,
        seed: int = 0,
        precision: str = "auto",
        device: str = "auto",
        threads: int = 0,
        strategy: str = "auto",
        verbose: int = 0,
    ):
        self._store(locals())
