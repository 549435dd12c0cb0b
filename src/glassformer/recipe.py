"""What a recipe can say: one frozen dataclass a section, every key with its default and meaning.

The keys of ``text``, ``model`` and ``train`` are the constructor parameters of
``TextClassifier``; no key stands in two sections, so ``--set lr=1e-4`` is never ambiguous.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from glassformer.config import apply_overrides, build, nearest, read_toml
from glassformer.errors import ConfigError

RECIPES = Path(__file__).parent / "recipes"
STUDIES = "study"  # the folder in it that holds comparisons of recipes, read by study/grid.py


@dataclass(frozen=True)
class DataConfig:
    """Where the examples come from and how they are split."""

    source: str = ""  # a named source (imdb, europe) or a path to a file or folder
    text_column: str | None = None  # found by itself when there is one candidate only
    label_column: str | None = None  # likewise
    validation_size: float | None = None  # share (< 1) or count (>= 1) held out of train; None: none
    test_size: float | None = None  # likewise for a test split, where the source has none
    train_size: int | None = None  # at most this many training examples, stratified
    limit: int | None = None  # at most this many examples of every split: a quick look
    split_seed: int = 0  # of every choice of examples
    hold_out: Literal["rows", "blocks"] = "rows"  # blocks: neighbouring rows stay together
    on_bad_row: Literal["refuse", "skip"] = "refuse"  # skip: rows that cannot be used go to rejected.jsonl

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class TextConfig:
    """From text to token ids."""

    max_length: int = 256  # tokens, special ones included; longer texts are cut and counted
    tokenizer: str = "auto"  # auto: the checkpoint's own, else word | word | wordpiece | a tokenizer.json
    clean: Literal["none", "html", "words", "syllables"] = (
        "none"  # tags out; letters, digits only; no underscores
    )
    lowercase: bool = True  # for tokenizers trained here
    strip_accents: bool = False  # for tokenizers trained here; True destroys Vietnamese
    vocab_size: int = 30_000  # for tokenizers trained here
    min_count: int = 2  # a word must be seen this often to enter a word vocabulary
    add_special_tokens: bool = True  # [CLS] ... [SEP] around each text
    long_texts: Literal["cut", "mean", "max"] = "cut"  # in prediction; mean, max: over the logits of windows
    window_stride: int | None = None  # tokens from window to window; None: half a window

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class ModelConfig:
    """Which encoder, and what stands on it. None means: as the preset or the checkpoint has it."""

    model: str = "all-minilm-l6-v2"  # a checkpoint (name, folder, Hub id) or a from-scratch architecture
    revision: str | None = None  # commit of a Hub checkpoint
    pooling: Literal["auto", "first", "mean", "max", "attention", "pooler"] = "auto"  # what the head reads
    head: Literal["linear", "mlp"] = "linear"  # mlp: Linear, ReLU, Dropout, Linear
    head_hidden: int | None = None  # width of the mlp head; None: d_model
    head_dropout: float = 0.0  # before the last linear layer
    dropout: float | None = None  # on embeddings and on each sub-layer's output
    attention_dropout: float | None = None  # on attention weights (needs the explicit branch)
    stochastic_depth: float = 0.0  # share of the layers skipped in training, growing towards the last
    d_model: int | None = None  # width of the rows; this and all below: from-scratch architectures only
    num_layers: int | None = None  # encoder layers
    num_heads: int | None = None  # attention heads of a layer; divides d_model
    d_ff: int | None = None  # hidden units of the feed-forward network
    norm: Literal["pre", "post"] | None = None  # before each sub-layer, or after its residual sum
    activation: Literal["relu", "gelu", "gelu_tanh"] | None = None  # of the feed-forward network
    positions: Literal["learned", "sinusoidal", "none"] | None = None  # what says where a token stands
    final_norm: bool | None = None  # a norm after the last layer
    embedding_norm: bool | None = None  # a norm after the embeddings
    damp_repeats: float | None = (
        None  # a token that stands k times in its text is scaled by k ** -damp_repeats
    )
    zero_init: bool | None = None  # residual branches start at 0: the encoder starts as the identity
    embedding_std: float | None = None  # of new token embeddings
    bidirectional: bool | None = None  # lstm and gru: read backwards too
    embedding_dim: int | None = None  # numbers a token; where it is not d_model, an encoder projects them
    vectors: str | None = (
        None  # word2vec: trained on the training texts; or a run, or a file in word2vec's format
    )
    freeze_vectors: bool = False  # word vectors stay as they are; special tokens are trained

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class FitConfig:
    """One fit, of texts or of pictures."""

    epochs: int = 3  # passes over the training examples
    lr: float = 5e-5  # the highest rate, reached at the end of the warm-up
    optimizer: Literal["adamw", "adam", "muon"] = "adamw"  # adam: decay goes through the gradient
    weight_decay: float = 0.01  # not on biases, norms and embeddings of position
    betas: tuple[float, ...] = (0.9, 0.999)  # decay of the two running means of Adam
    schedule: Literal["linear", "cosine", "constant"] = "linear"  # after the warm-up
    warmup: float = 0.06  # share of all steps
    layer_decay: float = 1.0  # learning rate of layer i is lr * layer_decay ** (layers above it)
    embedding_lr: float = 1.0  # factor on the learning rate of embeddings, not of positions and segments
    batch_size: int = 32  # sequences (of texts, 0: batch_tokens decides)
    accumulate: int = 1  # batches per optimiser step; the loss stays that of one large batch
    clip: float = 1.0  # norm of the gradient; 0: none
    label_smoothing: float = 0.0  # share of the target spread over all classes
    class_weight: str | dict | None = None  # "balanced" or {label: weight}, as in scikit-learn
    train_layers: int | None = (
        None  # head and the last so many encoder layers learn; 0: the head alone; None: all
    )
    unfreeze_every: int = (
        0  # epochs after which one more layer from the top begins to learn; 0: all from the start
    )
    lora_rank: int = 0  # of low-rank updates of queries and values, the encoder staying as it is; 0: none
    lora_alpha: float = 16.0  # the updates are scaled by lora_alpha / lora_rank
    average: float = 0.0  # decay of the running mean of the weights (EMA), at most 1 - 3 / steps; 0: none
    validation_fraction: float = 0.0  # held out of fit's data when no validation set is given
    early_stopping: int = 0  # evaluations without improvement before the end; 0: off
    monitor: Literal["accuracy", "macro_f1", "loss"] = "accuracy"  # what decides which weights are best
    keep_best: bool = True  # end with the best evaluated weights (needs a validation set)
    evaluate_every: int = 0  # steps, and at the end; 0: after each epoch
    checkpoint_every: int = 0  # steps; 0: after each epoch
    seed: int = 0  # of the weights, the order of the examples and dropout
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto: bf16 where the hardware multiplies in it
    device: str = "auto"  # auto: the GPU where there is one
    threads: int = 0  # 0: as torch has it
    strategy: Literal["auto", "ddp", "fsdp"] = (
        "auto"  # under torchrun; fsdp: each process keeps a part of the weights
    )
    verbose: int = 0  # 1: a progress bar

    def __post_init__(self) -> None:
        if len(self.betas) != 2:
            raise ConfigError(f"betas are two numbers, got {self.betas}", where="betas")
        if self.strategy == "fsdp" and self.optimizer == "muon":
            raise ConfigError(
                "muon needs whole matrices, and fsdp gives each process a part",
                where="strategy",
                fix="Use ddp",
            )
        check_ranges(self)


@dataclass(frozen=True)
class TrainConfig(FitConfig):
    """One fit of texts."""

    batch_tokens: int = 8192  # real tokens at most; with batch_size 0 the only limit
    length_window: int = 50  # batches among which lengths are sorted; 0: lengths are not looked at
    word_dropout: float = 0.0  # share of tokens hidden from the model at each step


@dataclass(frozen=True)
class EvaluateConfig:
    """What is judged and shown after training."""

    split: str = "test"  # looked at once, at the end
    baselines: bool = True  # TF-IDF + logistic regression and a mean bag of embeddings beside it
    bootstrap: int = 1000  # resamples for the 95 % interval
    maps: int = 4  # examples whose attention map goes into the report
    sentences: tuple[str, ...] = ()  # texts of one's own, classified at the end

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class Recipe:
    """One experiment, read from top to bottom."""

    name: str = ""  # of the run folder; by default the file's
    task: Literal["text-classification"] = "text-classification"  # which engine runs it
    summary: str = ""  # one line for lists and reports
    expect: str = ""  # score with its spread over seeds, and where it was measured
    data: DataConfig = field(default_factory=DataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)


INF = float("inf")
BELOW_1 = 1.0 - 1e-9
MOST = 2**53  # of any whole number: beyond it neither a size nor a count that a computer can hold
MAX_SEED = 2**32 - 1  # of numpy and scikit-learn
RANGES: dict[str, tuple[float, float]] = {
    "max_length": (3, INF), "max_positions": (1, INF), "vocab_size": (6, INF), "min_count": (0, INF),
    "window_stride": (1, INF),
    "head_hidden": (1, INF), "head_dropout": (0, BELOW_1), "dropout": (0, BELOW_1),
    "attention_dropout": (0, BELOW_1), "stochastic_depth": (0, BELOW_1),
    "d_model": (1, INF), "num_layers": (1, INF), "num_heads": (1, INF), "d_ff": (1, INF), "embedding_std": (0, 1e3),
    "damp_repeats": (0, 1),
    "embedding_dim": (1, INF),
    "epochs": (1, INF), "lr": (0, 1e3), "weight_decay": (0, 1e3), "warmup": (0, 1), "layer_decay": (0, 1),
    "embedding_lr": (0, 1e6), "batch_size": (0, INF), "batch_tokens": (0, INF), "length_window": (0, INF),
    "accumulate": (1, INF), "clip": (0, 1e9), "label_smoothing": (0, BELOW_1), "word_dropout": (0, BELOW_1),
    "train_layers": (0, INF), "unfreeze_every": (0, INF), "lora_rank": (0, INF), "lora_alpha": (0, 1e6),
    "average": (0, BELOW_1), "validation_fraction": (0, BELOW_1), "early_stopping": (0, INF),
    "evaluate_every": (0, INF), "checkpoint_every": (0, INF), "seed": (0, MAX_SEED), "threads": (0, 1_024),
    "verbose": (0, INF), "split_seed": (0, MAX_SEED), "bootstrap": (0, INF), "maps": (0, INF),
    "validation_size": (0, INF), "test_size": (0, INF), "train_size": (1, INF), "limit": (1, INF),
    "robustness_limit": (0, INF), "betas": (0, BELOW_1),
    "patch_size": (1, INF), "stem": (0, INF), "beam": (1, 256), "length_penalty": (-10, 10), "top": (1, INF),
}  # fmt: skip


def check_ranges(config: Any) -> None:
    """Raises ConfigError for a number outside its range; the key is named."""
    each: list[tuple[str, Any]] = []  # of a list of numbers every one has the range
    for f in fields(config):
        value = getattr(config, f.name)
        each += [(f.name, v) for v in (value if isinstance(value, tuple) else (value,))]
    for name, value in each:
        low, high = RANGES.get(name, (-INF, INF))
        if isinstance(value, int) and high == INF and value > MOST:
            high = MOST
        if isinstance(value, int | float) and not (low <= value <= high and abs(value) < INF):
            bound = f"of at least {low:g}" if high == INF else f"from {low:g} to {high:.10g}"
            raise ConfigError(f"{name} = {value} is out of range", where=name, fix=f"Use a value {bound}")


FIT_SECTIONS = {"text": TextConfig, "model": ModelConfig, "train": TrainConfig}


def fit_parameters() -> dict[str, Any]:
    """Key -> default of everything that concerns one fit, in the order of the sections."""
    return {f.name: f.default for cls in FIT_SECTIONS.values() for f in fields(cls)}


def recipe_names() -> dict[str, Path]:
    """Name -> file of every recipe that ships with the package."""
    return {path.stem: path for path in sorted(RECIPES.rglob("*.toml")) if path.parent.name != STUDIES}


def study_names() -> dict[str, Path]:
    """Name -> file of every study that ships with the package."""
    return {path.stem: path for path in sorted((RECIPES / STUDIES).glob("*.toml"))}


def recipe_classes() -> dict[str, type]:
    """Task -> the dataclass that holds its recipes. Each task has sections of its own."""
    from glassformer.recipe_image import ImageRecipe
    from glassformer.recipe_pretraining import PretrainRecipe
    from glassformer.recipe_translation import TranslationRecipe
    from glassformer.recipe_vectors import VectorsRecipe

    return {
        "text-classification": Recipe,
        "image-classification": ImageRecipe,
        "word2vec": VectorsRecipe,
        "translation": TranslationRecipe,
        "masked-lm": PretrainRecipe,
    }


def build_recipe(values: Mapping[str, Any], where: str, overrides: Sequence[str] = ()) -> Any:
    """A recipe from what a TOML file holds, of the class that its ``task`` names.

    Raises:
        ConfigError: an unknown task or key (the nearest is named), or a value of the wrong type.
    """
    classes = recipe_classes()
    task = values.get("task", "text-classification")
    if not isinstance(task, str) or task not in classes:
        raise ConfigError(f"no task {task!r}", where=f"{where}.task", fix=nearest(str(task), list(classes)))
    cls = classes[task]
    return build(cls, apply_overrides(dict(values), overrides, cls), where)


def load_recipe(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Any:
    """A recipe by its name or from a TOML file, with ``KEY=VALUE`` overrides laid over it.

    Raises:
        ConfigError: no such recipe (the nearest is named), unknown key, wrong type.
    """
    known = recipe_names()
    path = Path(name_or_path)
    if str(name_or_path) in known:
        path = known[str(name_or_path)]
    elif path.suffix != ".toml":
        raise ConfigError(f"no recipe {str(name_or_path)!r}", fix=nearest(str(name_or_path), list(known)))
    return build_recipe({"name": path.stem} | read_toml(path), path.name, overrides)
