"""What a fit can be told: the settings of every fit, and what texts, classifiers and word vectors add."""

from __future__ import annotations

from typing import Literal

from glassformer.config import INF, Section, check_ranges, section, setting
from glassformer.errors import ConfigError

LORA_TARGETS = ("q", "v")  # as in the paper


@section
class FitConfig(Section):
    """What every fit in the one loop can be told; a task's own settings extend it."""

    epochs: int = setting(3, "passes over the training examples")
    lr: float = setting(5e-5, "the highest rate, reached at the end of the warm-up")
    optimizer: Literal["adamw", "adam", "muon", "adamw-hat"] = setting(
        "adamw",
        "adam: decay goes through the gradient; adamw-hat: adam_eps counts before bias correction",
    )
    weight_decay: float = setting(0.01, "not on biases, norms and embeddings of position")
    betas: tuple[float, ...] = setting((0.9, 0.999), "decay of the two running means of Adam")
    adam_eps: float = setting(1e-8, "added to the root of the running mean of squares, in Adam and AdamW")
    schedule: Literal["linear", "cosine", "constant"] = setting("linear", "after the warm-up")
    warmup: float = setting(0.06, "share of all steps")
    layer_decay: float = setting(
        1.0, "learning rate of layer i is lr * layer_decay ** (layers above it, the head one of them)"
    )
    embedding_lr: float = setting(
        1.0, "factor on the learning rate of embeddings, not of positions and segments"
    )
    batch_size: int = setting(32, "sequences (of texts, 0: batch_tokens decides)")
    accumulate: int = setting(1, "batches per optimiser step; the loss stays that of one large batch")
    clip: float = setting(1.0, "norm of the gradient; 0: none")
    train_layers: int | None = setting(
        None, "head and the last so many encoder layers learn; 0: the head alone; None: all"
    )
    unfreeze_every: int = setting(
        0, "epochs after which one more layer from the top begins to learn; 0: all from the start"
    )
    lora_rank: int = setting(
        0, "of low-rank updates of the lora_targets, the encoder staying as it is; 0: none"
    )
    lora_alpha: float = setting(16.0, "the updates are scaled by lora_alpha / lora_rank")
    lora_targets: str | tuple[str, ...] = setting(
        LORA_TARGETS,
        "which have updates: q, k, v, o (the attention's output), up, down (feed-forward), or all-linear",
    )
    average: float = setting(
        0.0, "decay of the running mean of the weights (EMA), at most 1 - 3 / steps; 0: none"
    )
    validation_fraction: float = setting(0.0, "held out of fit's data when no validation set is given")
    early_stopping: int = setting(0, "evaluations without improvement before the end; 0: off")
    monitor: Literal["accuracy", "loss"] = setting(
        "accuracy", "what decides which weights are best; of equal ones the lower loss does"
    )
    keep_best: bool = setting(True, "end with the best evaluated weights (needs a validation set)")
    evaluate_every: int = setting(0, "steps, and at the end; 0: after each epoch")
    checkpoint_every: int = setting(0, "steps; 0: after each epoch")
    seed: int = setting(0, "of the weights, the order of the examples and dropout")
    precision: Literal["auto", "fp32", "bf16"] = setting(
        "auto", "auto: bf16 where the hardware multiplies in it"
    )
    device: str = setting("auto", "auto: the GPU where there is one")
    threads: int = setting(0, "0: as torch has it")
    strategy: Literal["auto", "ddp", "fsdp"] = setting(
        "auto", "under torchrun; fsdp: each process keeps a part of the weights"
    )
    verbose: int = setting(0, "1: a progress bar")

    def __post_init__(self) -> None:
        if self.lora_targets != LORA_TARGETS:
            from glassformer.nn.lora import parts_of  # imports torch, which the command's help does without

            parts_of(self.lora_targets)
        if len(self.betas) != 2:
            raise ConfigError(f"betas are two numbers, got {self.betas}", where="betas")
        if self.strategy == "fsdp" and self.optimizer == "muon":
            raise ConfigError(
                "muon needs whole matrices, and fsdp gives each process a part",
                where="strategy",
                fix="Use ddp",
            )
        super().__post_init__()


@section
class TokenBatches(Section):
    """What fits of texts add: a batch is bounded by its tokens too."""

    batch_tokens: int = setting(8192, "real tokens at most; with batch_size 0 the only limit")
    length_window: int = setting(50, "batches among which lengths are sorted; 0: lengths are not looked at")


SUITED = "none: what suits the model and the number of examples"


@section
class SuitedFitConfig(FitConfig):
    """A fit whose length and rate suit the model and the number of examples, where they are not set."""

    epochs: int | None = setting(None, f"passes over the training examples; {SUITED}")
    lr: float | None = setting(None, f"the highest rate, reached at the end of the warm-up; {SUITED}")
    warmup: float | None = setting(None, f"share of all steps; {SUITED}")
    batch_size: int | None = setting(None, f"examples (of texts, 0: batch_tokens decides); {SUITED}")


@section
class SolvedFitConfig(SuitedFitConfig):
    """A fit that may start from a solved head."""

    head_start: Literal["solved", "random"] = setting(
        "solved",
        "where the linear head of a checkpoint starts; solved: a regression on the frozen encoder's vectors, "
        "pooled as the checkpoint says; cross-validation chooses its strength",
        in_file="random",
    )
    start_share: str | float = setting(
        "auto",
        "share of the weights that a checkpoint's training began with in those that are judged and kept; "
        "auto: after a solved start, what does best on the validation examples, else 0",
        in_file=0.0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.start_share, str) and self.start_share != "auto":
            what = f"start_share = {self.start_share!r} is no share"
            raise ConfigError(what, where="start_share", fix="auto, or a number")


@section
class ClassifierFitConfig(SolvedFitConfig):
    """One fit of a classifier."""

    calibration: Literal["auto", "none"] = setting(
        "auto",
        "auto: a temperature is fitted on the validation examples, where there are 100 or more",
        in_file="none",
    )
    label_smoothing: float = setting(0.0, "share of the target spread over all classes")
    class_weight: str | dict | None = setting(None, '"balanced" or {label: weight}, as in scikit-learn')
    pos_weight: str | float | dict | None = setting(
        None,
        'several labels: what a yes counts: a number, {label: weight}, "balanced" (no : yes), "root" of it',
    )
    tune_thresholds: bool = setting(
        True, "several labels: one a label, for the best F1 on the validation examples; else all at 0.5"
    )
    monitor: Literal["accuracy", "macro_f1", "loss"] = setting(
        "accuracy",
        "what decides which weights are best; of equal ones the lower loss does; with several labels an "
        "example, accuracy is macro_f1",
    )
    precision: Literal["auto", "fp32", "bf16", "int8"] = setting(  # type: ignore[assignment]  # one more
        "auto",
        "auto: bf16 where the hardware multiplies in it; int8: as auto in training, products of 8 bits in "
        "prediction if validation labels stay",
    )
    keep_epochs: bool = setting(
        False, "the weights of each epoch are kept, and judged once at the end: nothing is chosen by them"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_epochs and self.lora_rank:
            what = "low-rank updates become part of the weights at the end, those of an epoch do not"
            raise ConfigError(what, where="keep_epochs", fix="Leave out keep_epochs or lora_rank")


@section
class NumberFitConfig(SolvedFitConfig):
    """One fit of a regressor. The loss is the squared error of standardized numbers."""

    monitor: Literal["loss", "pearson", "spearman"] = setting(
        "loss", "what decides which weights are best; loss: the squared error, as R² does"
    )
    number_scale: Literal["linear", "log"] = setting(
        "linear", "log: learns logarithms, for numbers above 0 that span orders of magnitude, such as prices"
    )


# Keys that every recipe of texts once had: files and calls that have them at these values go on being read.
OF_CLASSIFIERS = {
    "class_weight": (None, "class_weight belongs to classification"),
    "word_dropout": (0.0, "word_dropout belongs to classification"),
}


@section
class VectorsConfig:
    """One fit."""

    dim: int = setting(100, "numbers a word")
    window: int = setting(
        5, "words on either side at most; the half-width is drawn from 1 ... window for each centre"
    )
    negative: int = setting(5, "words drawn at random for each window (sgd) or each centre (adam)")
    min_count: int = setting(5, "a word seen less often has no vector")
    max_words: int = setting(0, "words at most, the most frequent ones; 0: no limit")
    subsample: float = setting(1e-3, "frequent words above this share are thinned out; 0: none are")
    exponent: float = setting(0.75, "negatives are drawn in proportion to count ** exponent")
    optimizer: Literal["sgd", "adam"] = setting(
        "sgd", "sgd: compiled, for work; adam: the readable model, in batches"
    )
    positives: int = setting(2, "of each centre, with adam; sgd takes the whole window")
    centers: Literal["places", "words"] = setting(
        "places",
        "with adam; words: an epoch meets each word once, positives drawn with replacement from all contexts",
    )
    batch_size: int = setting(256, "centres, with adam")
    lr: float | None = setting(None, "at the start; None: 0.025 falling to 0.0001 (sgd), 0.001 (adam)")
    add_contexts: bool = setting(
        False, "a word's vector is the sum of its two: what stands together is alike too"
    )
    epochs: int = setting(5, "passes over the corpus")
    checkpoint_every: int = setting(
        0, "rounds of about half a million words (sgd) or steps (adam); 0: after each epoch"
    )
    seed: int = setting(0, "of the first vectors, the windows and the negatives")
    threads: int = setting(0, "0: all; 1 gives the same vectors each time")

    def __post_init__(self) -> None:
        check_ranges(self, VECTOR_RANGES)
        if self.centers == "words" and (self.optimizer != "adam" or self.subsample):
            key = "optimizer" if self.optimizer != "adam" else "subsample"
            what = "where an epoch meets each word once, the compiled loops and subsampling have no part"
            raise ConfigError(
                what, where=key, fix="Set optimizer = adam and subsample = 0, or centers = places"
            )


VECTOR_RANGES: dict[str, tuple[float, float]] = {
    "dim": (1, 10_000), "window": (1, 1_000), "negative": (1, 1_000), "min_count": (1, INF),
    "max_words": (0, INF),
    "subsample": (0, 1), "exponent": (-2, 2), "positives": (1, 1_000), "batch_size": (1, INF), "lr": (0, 10),
    "epochs": (1, INF), "checkpoint_every": (0, INF), "seed": (0, INF), "threads": (0, 1_024),
}  # fmt: skip
