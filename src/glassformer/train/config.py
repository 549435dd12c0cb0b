"""Training settings and their automatic defaults."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal

from glassformer.config import EVERY_MODEL, INF, LINEAR, SEARCH, Section, check_ranges, section, setting
from glassformer.errors import (
    BadValueError,
    ConfigError,
    FewStepsWarning,
    HighRateWarning,
    IdleSettingWarning,
)

LORA_TARGETS = ("q", "v")  # as in the paper


def class_weight_error(value: Any) -> BadValueError:
    """The error for an invalid ``class_weight``."""
    fix = "Use 'balanced' or {label: weight}"
    if isinstance(value, str) and get_close_matches(value.casefold(), ["balanced"]):
        fix = "Did you mean 'balanced'? {label: weight} is possible, too"
    return BadValueError(f"{value!r} is not valid", where="class_weight", fix=fix)


@section
class FitConfig(Section):
    """Settings of every fit in the training loop; each task extends them."""

    epochs: int = setting(3, "passes over the training examples")
    lr: float = setting(5e-5, "peak learning rate, reached at the end of the warm-up")
    optimizer: Literal["adamw", "adam", "muon", "adamw-hat"] = setting(
        "adamw",
        "adam: weight decay is part of the gradient; adamw-hat: adam_eps is added before bias correction",
    )
    weight_decay: float = setting(0.01, "weight decay; not applied to biases, norms and position embeddings")
    betas: tuple[float, ...] = setting((0.9, 0.999), "decay rates of Adam's two running means")
    adam_eps: float = setting(
        1e-8, "epsilon of Adam and AdamW, added to the root of the running mean of squares"
    )
    schedule: Literal["linear", "cosine", "constant"] = setting(
        "linear", "learning-rate schedule after the warm-up"
    )
    warmup: float = setting(0.06, "share of all steps in which the learning rate rises")
    layer_decay: float = setting(
        1.0,
        "layer-wise learning-rate decay: layer i uses lr * layer_decay ** (number of layers above it, "
        "including the head)",
    )
    embedding_lr: float = setting(
        1.0, "factor on the learning rate of the token embeddings, not of positions and segments"
    )
    batch_size: int = setting(32, "examples per batch; for texts, 0: limited by batch_tokens only")
    accumulate: int = setting(
        1, "number of batches per optimizer step; the loss equals that of one large batch"
    )
    clip: float = setting(1.0, "maximum norm of the gradient; 0: no clipping")
    train_layers: int | None = setting(
        None,
        "number of last encoder layers that are trained with the head; 0: only the head; None: all layers",
    )
    unfreeze_every: int = setting(
        0,
        "gradual unfreezing: number of epochs after which one more layer from the top is trained; 0: "
        "all from the start",
    )
    lora_rank: int = setting(
        0, "rank of the LoRA updates of lora_targets; the encoder itself stays frozen; 0: no LoRA"
    )
    lora_alpha: float = setting(16.0, "LoRA updates are scaled by lora_alpha / lora_rank")
    lora_targets: str | tuple[str, ...] = setting(
        LORA_TARGETS,
        "linear layers with LoRA updates: q, k, v, o (attention output), up, down (feed-forward), or "
        "all-linear",
    )
    average: float = setting(
        0.0, "decay of the moving average of the weights (EMA), at most 1 - 3 / steps; 0: no averaging"
    )
    validation_fraction: float = setting(
        0.0,
        "share of the training data that fit holds out if no validation set is given",
        used_by=SEARCH | LINEAR,
    )
    early_stopping: int = setting(
        0, "number of evaluations without improvement after which training stops; 0: off"
    )
    monitor: Literal["accuracy", "loss"] = setting(
        "accuracy",
        "metric that selects the best weights; ties are decided by the lower loss",
        used_by=SEARCH | LINEAR,
    )
    keep_best: bool = setting(
        True,
        "keep the best evaluated weights instead of the last (needs a validation set)",
        used_by=SEARCH | LINEAR,
    )
    evaluate_every: int = setting(
        0, "number of steps between evaluations; 0: after each epoch", used_by=LINEAR
    )
    checkpoint_every: int = setting(
        0, "number of steps between checkpoints; 0: after each epoch", used_by=SEARCH | LINEAR
    )
    seed: int = setting(
        0, "random seed of the weights, the order of the examples and dropout", used_by=EVERY_MODEL
    )
    precision: Literal["auto", "fp32", "bf16"] = setting(
        "auto",
        "precision of the computation; auto: bf16 if the hardware supports it",
        used_by=SEARCH | LINEAR,
    )
    device: str = setting(
        "auto",
        "device that computes, such as cpu or cuda; auto: the GPU if there is one",
        used_by=EVERY_MODEL,
    )
    threads: int = setting(0, "number of CPU threads; 0: PyTorch's default", used_by=EVERY_MODEL)
    strategy: Literal["auto", "ddp", "fsdp"] = setting(
        "auto",
        "distributed training under torchrun. ddp: each process holds all weights; fsdp: each holds a "
        "part of them",
        used_by=SEARCH | LINEAR,
    )
    verbose: int = setting(0, "1: show a progress bar; 0: show nothing", used_by=SEARCH | LINEAR)

    def __post_init__(self) -> None:
        if self.lora_targets != LORA_TARGETS:
            from glassformer.nn.lora import select_parts  # imports torch, which --help does not need

            select_parts(self.lora_targets)
        if len(self.betas) != 2:
            raise ConfigError(f"betas must be two numbers, got {self.betas}", where="betas")
        if self.strategy == "fsdp" and self.optimizer == "muon":
            raise ConfigError(
                "muon needs whole matrices, but fsdp gives each process a part",
                where="strategy",
                fix="Use ddp",
            )
        super().__post_init__()


@section
class TokenBatches(Section):
    """Settings of fits on texts: the size of a batch is also limited in tokens."""

    batch_tokens: int = setting(
        8192,
        "maximum number of tokens per batch (there is no padding); the only limit if batch_size is 0",
        used_by=SEARCH | LINEAR,
    )
    length_window: int = setting(
        50,
        "number of batches whose examples are sorted by length together; 0: no sorting",
        used_by=SEARCH | LINEAR,
    )


@section
class SearchLimit(Section):
    """Time limit of the search for the best model (``model = "auto"``)."""

    time_limit: float | None = setting(
        None,
        "for model = auto: seconds after which no further candidate is tried; None: all are tried",
        used_by=SEARCH,
    )


AUTOMATIC = "none: chosen from the model and the number of examples"


@section
class AutoFitConfig(FitConfig):
    """Settings of a fit that chooses epochs, learning rate, warm-up and batch size if they are unset."""

    epochs: int | None = setting(None, f"passes over the training examples; {AUTOMATIC}")
    lr: float | None = setting(None, f"peak learning rate, reached at the end of the warm-up; {AUTOMATIC}")
    warmup: float | None = setting(None, f"share of all steps in which the learning rate rises; {AUTOMATIC}")
    batch_size: int | None = setting(
        None, f"examples per batch; for texts, 0: limited by batch_tokens only; {AUTOMATIC}"
    )


@section
class Maskable(Section):
    """A fit of a model whose explanations can be tested by masking parts of the input."""

    maskable: bool = setting(
        False,
        "train on masked inputs: half of the examples of each step have 0 to 100 % of their tokens "
        "(or patches) masked, so that explanations can be tested fairly by masking",
    )


@section
class SolvedFitConfig(Maskable, AutoFitConfig):
    """A fit that may start from a head fitted on the frozen encoder."""

    head_start: Literal["solved", "random"] = setting(
        "solved",
        "initial weights of the linear head on a checkpoint. solved: a logistic (or ridge) regression "
        "on the frozen encoder's vectors, with regularization chosen by cross-validation; random: "
        "random weights",
        in_file="random",
        used_by=SEARCH,
    )
    start_share: str | float = setting(
        "auto",
        "weight interpolation towards the initial checkpoint (WiSE-FT), 0 to 1; auto: with head_start "
        "= solved the share that does best on the validation examples, otherwise 0",
        in_file=0.0,
        used_by=SEARCH,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.start_share, str) and self.start_share != "auto":
            what = f"start_share = {self.start_share!r} is not a number"
            raise BadValueError(what, where="start_share", fix="Use auto, or a number from 0 to 1")
        if self.maskable and self.train_layers == 0 and not self.unfreeze_every:
            what = "a frozen encoder cannot learn from masked inputs"
            raise ConfigError(what, where="maskable", fix="Leave out train_layers, or maskable")


@section
class ClassifierFitConfig(SolvedFitConfig):
    """Settings of a classifier."""

    calibration: Literal["auto", "none"] = setting(
        "auto",
        "calibration of the probabilities; auto: a temperature is fitted if there are at least 100 "
        "validation examples",
        in_file="none",
        used_by=SEARCH,
    )
    label_smoothing: float = setting(0.0, "share of the target probability that is spread over all classes")
    class_weight: str | dict | None = setting(
        None,
        'weight of each class in the loss: "balanced" or {label: weight}, as in scikit-learn',
        used_by=SEARCH | LINEAR,
    )
    pos_weight: str | float | dict | None = setting(
        None,
        "for multi-label: weight of positive examples in the loss: a number, {label: weight}, "
        '"balanced" (negatives / positives) or "root" (its square root)',
        used_by=SEARCH | LINEAR,
    )
    tune_thresholds: bool = setting(
        True,
        "for multi-label: tune one threshold per label for the best F1 on the validation examples; "
        "False: all are 0.5",
        used_by=EVERY_MODEL,
    )
    monitor: Literal["accuracy", "macro_f1", "loss"] = setting(
        "accuracy",
        "metric that selects the best weights; ties are decided by the lower loss; for multi-label, "
        "accuracy means macro_f1",
        used_by=SEARCH | LINEAR,
    )
    precision: Literal["auto", "fp32", "bf16", "int8"] = setting(  # type: ignore[assignment]  # one more
        "auto",
        "precision of the computation. auto: bf16 if the hardware supports it; int8: like auto in "
        "training, int8 in prediction if enough validation predictions stay the same",
        used_by=SEARCH | LINEAR,
    )
    keep_epochs: bool = setting(
        False, "keep the weights of each epoch and evaluate them once, at the end, without selecting any"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_epochs and self.lora_rank:
            what = "the weights of an epoch cannot include LoRA updates"
            raise ConfigError(what, where="keep_epochs", fix="Leave out keep_epochs or lora_rank")


@section
class NumberFitConfig(SolvedFitConfig):
    """Settings of a regressor. The loss is the squared error of standardized numbers."""

    monitor: Literal["loss", "pearson", "spearman"] = setting(
        "loss",
        "metric that selects the best weights; loss: the squared error, which ranks like R²",
        used_by=SEARCH | LINEAR,
    )
    number_scale: Literal["linear", "log"] = setting(
        "linear",
        "log: train on logarithms, for positive numbers that span orders of magnitude, such as prices",
        used_by=SEARCH | LINEAR,
    )


# Keys that earlier versions wrote into every text recipe. Files with these values are still accepted.
CLASSIFIER_KEYS = {
    "class_weight": (None, "class_weight belongs to classification"),
    "word_dropout": (0.0, "word_dropout belongs to classification"),
}


@section
class VectorsConfig:
    """Settings of word2vec."""

    dim: int = setting(100, "size of the word vectors")
    window: int = setting(
        5,
        "maximum number of words on either side; the half-width is drawn from 1 to window for each "
        "center word",
    )
    negative: int = setting(
        5, "number of negative words drawn for each window (sgd) or each center word (adam)"
    )
    min_count: int = setting(5, "minimum number of occurrences for a word to get a vector")
    max_words: int = setting(0, "maximum number of words, the most frequent ones; 0: no limit")
    subsample: float = setting(
        1e-3, "words more frequent than this share of all words are subsampled; 0: none are"
    )
    exponent: float = setting(0.75, "negatives are drawn in proportion to count ** exponent")
    optimizer: Literal["sgd", "adam"] = setting(
        "sgd", "sgd: fast compiled training; adam: the readable PyTorch model, in batches"
    )
    positives: int = setting(2, "number of context words per center word (adam); sgd uses the whole window")
    centers: Literal["places", "words"] = setting(
        "places",
        "what an epoch iterates over (adam). places: every position of the corpus; words: each word "
        "once, with positives drawn with replacement from all its contexts",
    )
    batch_size: int = setting(256, "center words per batch (adam)")
    lr: float | None = setting(
        None, "initial learning rate; None: 0.025 falling to 0.0001 (sgd), 0.001 (adam)"
    )
    add_contexts: bool = setting(
        False,
        "add the context vector to each word vector, so that words that occur together are also similar",
    )
    epochs: int = setting(5, "passes over the corpus")
    checkpoint_every: int = setting(
        0,
        "number of rounds of about half a million words (sgd) or steps (adam) between checkpoints; 0: "
        "after each epoch",
    )
    seed: int = setting(0, "random seed of the initial vectors, the windows and the negatives")
    threads: int = setting(0, "number of CPU threads; 0: all; 1 makes runs reproducible")

    def __post_init__(self) -> None:
        check_ranges(self, VECTOR_RANGES)
        if self.centers == "words" and (self.optimizer != "adam" or self.subsample):
            key = "optimizer" if self.optimizer != "adam" else "subsample"
            what = "centers = words works with optimizer = adam and without subsampling only"
            raise ConfigError(
                what, where=key, fix="Set optimizer = adam and subsample = 0, or centers = places"
            )


VECTOR_RANGES: dict[str, tuple[float, float]] = {
    "dim": (1, 10_000), "window": (1, 1_000), "negative": (1, 1_000), "min_count": (1, INF),
    "max_words": (0, INF),
    "subsample": (0, 1), "exponent": (-2, 2), "positives": (1, 1_000), "batch_size": (1, INF), "lr": (0, 10),
    "epochs": (1, INF), "checkpoint_every": (0, INF), "seed": (0, INF), "threads": (0, 1_024),
}  # fmt: skip


# --- defaults of learning rate, epochs, batch size and warm-up ------------------------------------
#
# The number of steps matters, not the number of epochs: three epochs over 64 texts in batches of 32 are six
# steps, which hardly change random weights. So the number of steps is chosen first.


AUTO_KEYS = ("lr", "epochs", "batch_size", "warmup")
SOLVED_BATCH = 1024  # batch size if no weights are trained
MIN_STEPS = 36  # fewer steps are too few to learn from
FEW_STEPS_FIXES = {"epochs": "raise epochs", "batch_size": "lower batch_size"}
SHORT_STEPS = 300  # number of steps below which DefaultSettings.short_factor applies
BATCH_SIZES = (32, 16, 8, 4, 2)
MAX_RATE_RATIO = 100  # maximum ratio of the learning rate to the default without a warning
MAX_RATE_FACTOR = 4.0  # see DefaultSettings.for_classes
EPOCH_STEPS = 8  # minimum number of steps per epoch, if a batch size allows it
TOTAL_STEPS = 72  # minimum number of steps in all, if the user sets epochs and a batch size allows it


@dataclass(frozen=True)
class DefaultSettings:
    """Default training settings of one kind of model.

    Args:
        lr: learning rate, for models of width ``width`` if that is not 0.
        steps: number of steps with batches of 32.
        min_epochs, max_epochs: bounds of the number of epochs.
        warmup: share of the steps.
        width, power: the learning rate is divided by ``(d_model / width) ** power``.
        low, high: bounds of the learning rate.
        short_factor: factor of the learning rate if ``epochs`` is set and has fewer than ``SHORT_STEPS``
            steps.
        by_classes: whether steps and learning rate grow with the number of classes (``for_classes``).
    """

    lr: float
    steps: int
    min_epochs: int
    max_epochs: int
    warmup: float = 0.06
    width: int = 0
    power: float = 0.0
    low: float = 0.0
    high: float = 1.0
    short_factor: float = 1.0
    by_classes: bool = False

    def for_classes(self, classes: int) -> DefaultSettings:
        """The settings for this number of classes.

        Steps and learning rate grow with the logarithm, the learning rate at most by ``MAX_RATE_FACTOR``.
        """
        factor = max(math.log2(max(classes, 1)) / 1.5, 1.0) if self.by_classes else 1.0
        return replace(self, lr=self.lr * min(factor, MAX_RATE_FACTOR), steps=round(self.steps * factor))

    def rate(self, d_model: int, steps: float = math.inf) -> float:
        """The learning rate for a model of this width, rounded to two digits."""
        scale = (self.width / d_model) ** self.power if self.width and d_model else 1.0
        factor = self.short_factor if steps < SHORT_STEPS else 1.0
        return float(f"{factor * min(max(self.lr * scale, self.low), self.high):.1e}")


# Measurements: benchmarks/quality/defaults.py, docs/defaults.md.
DEFAULTS: dict[str, DefaultSettings] = {
    "pretrained": DefaultSettings(1e-4, 250, 2, 20, width=384, power=2.0, low=3e-5, high=1e-3),
    "solved": DefaultSettings(1e-4, 250, 2, 20, width=384, power=2.0, low=3e-5, high=1e-3, by_classes=True),
    "adapter": DefaultSettings(5e-4, 700, 3, 20, width=384, power=1.0, low=2e-4, high=2e-3),
    "head": DefaultSettings(1e-2, 1500, 10, 60),
    "solved head": DefaultSettings(1e-2, 1500, 10, 60),
    "encoder": DefaultSettings(1e-3, 1000, 3, 60, width=128, power=1.0, low=1e-4, high=2e-3),
    "recurrent": DefaultSettings(1e-3, 700, 3, 30, short_factor=3.0),
    "convolution": DefaultSettings(1e-3, 700, 3, 30),
}


def auto_values(
    train: ClassifierFitConfig, kind: str, d_model: int, examples: int, classes: int = 0
) -> dict[str, Any]:
    """Values for the settings in ``AUTO_KEYS`` that are unset.

    Args:
        kind: a key of ``DEFAULTS``.
        classes: number of classes; 0 if the model is not a classifier.
    """
    out: dict[str, Any] = {}
    # The head is already fitted. No weights are trained unless the user sets a learning rate or epochs.
    if kind == "solved head" and train.lr is None and train.epochs is None:
        out = {"lr": 0.0, "epochs": 1, "warmup": 0.0}
        out |= {"batch_size": SOLVED_BATCH} if train.batch_size is None else {}
        train = replace(train, **out)
    defaults = DEFAULTS[kind].for_classes(classes)
    batch, epochs = train.batch_size, train.epochs
    if batch is None:
        num_batches = EPOCH_STEPS if epochs is None else math.ceil(TOTAL_STEPS / epochs)
        num_batches *= train.accumulate
        batch = out["batch_size"] = next(
            (size for size in BATCH_SIZES if examples >= num_batches * size), BATCH_SIZES[-1]
        )
    step_examples = (batch or BATCH_SIZES[0]) * train.accumulate  # batch 0: limited by batch_tokens only
    epoch_steps = math.ceil(max(examples, 1) / step_examples)
    if epochs is None:
        epochs_for_steps = math.ceil(
            defaults.steps * min(BATCH_SIZES[0], 2 * step_examples) / max(examples, 1)
        )
        bounded = min(max(epochs_for_steps, defaults.min_epochs), defaults.max_epochs)
        out["epochs"] = max(bounded, math.ceil(MIN_STEPS / epoch_steps))
    if train.lr is None:
        out["lr"] = defaults.rate(d_model, math.inf if epochs is None else epochs * epoch_steps)
    if train.warmup is None:
        out["warmup"] = defaults.warmup
    return {key: out[key] for key in AUTO_KEYS if key in out}


def defaults_key(train: Any, network: Any, from_scratch: bool, solved: bool = False) -> str:
    """The key of ``DEFAULTS`` for a training, from the trained parts of the model and its initial weights."""
    if network.is_linear or (train.train_layers == 0 and not train.unfreeze_every):
        return "solved head" if solved and not train.lora_rank else "head"
    if train.lora_rank:
        return "adapter"
    if from_scratch:
        return network.kind
    return "solved" if solved else "pretrained"


def auto_values_for(
    train: Any, network: Any, from_scratch: bool, examples: int, classes: int = 0, solved: bool = False
) -> dict[str, Any]:
    """``auto_values`` for a network; also warns if the learning rate is far too high."""
    kind = defaults_key(train, network, from_scratch, solved)
    warn_high_rate(train, kind, network.width)
    return auto_values(train, kind, network.width, examples, classes)


def with_values(train: Any, values: Mapping[str, Any]) -> Any:
    """The settings with the chosen ``values``; keys that are not in ``AUTO_KEYS`` are ignored."""
    changes = {key: values[key] for key in AUTO_KEYS if key in values}
    return replace(train, **changes) if changes else train


def user_stacklevel() -> int:
    """The ``stacklevel`` with which a warning in the calling function shows the user's line of code."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "glassformer":
        frame, level = frame.f_back, level + 1
    return level


def warn_few_steps(steps: int, user_settings: Mapping[str, Any]) -> None:
    """Warn if the settings of the user lead to fewer than ``MIN_STEPS`` steps."""
    set_keys = {key: fix for key, fix in FEW_STEPS_FIXES.items() if key in user_settings}
    if steps >= MIN_STEPS or not set_keys:
        return
    values = ", ".join(f"{key} = {user_settings[key]}" for key in set_keys)
    what = f"{steps} optimizer {'step is' if steps == 1 else 'steps are'} too few to learn from ({values})"
    fix = " or ".join(set_keys.values())
    warnings.warn(f"{what}; {fix}, or leave it unset", FewStepsWarning, stacklevel=user_stacklevel())


def warn_high_rate(train: Any, kind: str, d_model: int) -> None:
    """Warn if the learning rate is more than ``MAX_RATE_RATIO`` times the default."""
    default = DEFAULTS[kind].rate(d_model)
    if train.lr is not None and train.lr > MAX_RATE_RATIO * default:
        what = f"lr = {train.lr:g} is {train.lr / default:,.0f} times the usual {default:g} of such a model"
        fix = f"the training may end in nan; use about {default:g}, or leave lr unset"
        warnings.warn(f"{what}: {fix}", HighRateWarning, stacklevel=user_stacklevel())


def warn_unused_settings(train: Any, has_validation: bool, chosen: Mapping[str, Any]) -> None:
    """Warn of a learning rate of 0 (unless ``chosen``) and of early stopping without validation examples."""
    if train.lr == 0 and "lr" not in chosen:
        what = "lr = 0 changes no weight; raise it, or leave it unset"
        warnings.warn(what, IdleSettingWarning, stacklevel=user_stacklevel())
    if train.early_stopping and not has_validation:
        what = f"early_stopping = {train.early_stopping} stops nothing without validation data"
        fix = "give validation, or set validation_fraction = 0.1"
        warnings.warn(f"{what}; {fix}", IdleSettingWarning, stacklevel=user_stacklevel())
