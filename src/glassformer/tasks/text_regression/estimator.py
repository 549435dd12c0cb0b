"""``TextRegressor``: a number for a text, or for a pair of texts, and an interval around it.

All but its targets is as in ``TextClassifier``.
"""

from __future__ import annotations

from glassformer.tasks.regressor import Regressor
from glassformer.tasks.text_classification.estimator import TextModel
from glassformer.tasks.text_classification.recipe import ModelConfig, TextConfig
from glassformer.tasks.text_regression.recipe import TextNumberFitConfig, TextNumberRecipe


class TextRegressor(Regressor, TextModel):
    """A Transformer that gives texts, or pairs of texts, numbers.

    A pair is a tuple of two texts, and the model reads both at once: ``fit([(first, second), ...], y)``.

    The parameters are the keys of a recipe's ``text``, ``model`` and ``train`` sections; its file says what
    each means. Numbers are standardized for training; answers have the unit of ``y``. ``score`` is R².
    Fitted state: that of ``TextModel`` and of ``Regressor``.
    """

    RECIPE = TextNumberRecipe
    SECTIONS = {"text": TextConfig, "model": ModelConfig, "train": TextNumberFitConfig}  # noqa: RUF012

    def __init__(
        self,
        model: str = "auto",
        *,
        max_length: int = 256,
        tokenizer: str = "auto",
        clean: str = "none",
        lowercase: bool = True,
        strip_accents: bool = False,
        vocab_size: int = 30_000,
        min_count: int = 2,
        add_special_tokens: bool = True,
        separator: bool = True,
        long_texts: str = "cut",
        window_stride: int | None = None,
        revision: str | None = None,
        pooling: str = "auto",
        head: str = "linear",
        head_hidden: int | None = None,
        head_dropout: float = 0.0,
        head_activation: str = "relu",
        head_input_dropout: float = 0.0,
        dropout: float | None = None,
        embedding_dropout: float | None = None,
        feed_forward_dropout: float | None = None,
        attention_dropout: float | None = None,
        stochastic_depth: float = 0.0,
        d_model: int | None = None,
        num_layers: int | None = None,
        num_heads: int | None = None,
        d_ff: int | None = None,
        norm: str | None = None,
        norm_eps: float | None = None,
        activation: str | None = None,
        positions: str | None = None,
        final_norm: bool | None = None,
        embedding_norm: bool | None = None,
        damp_repeats: float | None = None,
        zero_init: bool | None = None,
        attention: str | None = None,
        attention_window: int | None = None,
        init_std: float | None = None,
        embedding_std: float | None = None,
        bidirectional: bool | None = None,
        embedding_dim: int | None = None,
        vectors: str | None = None,
        freeze_vectors: bool = False,
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
        time_limit: float | None = None,
        keep_best: bool = True,
        evaluate_every: int = 0,
        checkpoint_every: int = 0,
        seed: int = 0,
        precision: str = "auto",
        device: str = "auto",
        threads: int = 0,
        strategy: str = "auto",
        verbose: int = 0,
        batch_tokens: int = 8192,
        length_window: int = 50,
        word_dropout: float = 0.0,
    ):
        self._store(locals())
