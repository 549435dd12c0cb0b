"""What a recipe can say: one frozen dataclass a section, every key with its default and meaning.

The keys of ``text``, ``model`` and ``train`` are the constructor parameters of
``TextClassifier``; no key stands in two sections, so ``--set lr=1e-4`` is never ambiguous.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from glassformer.config import check_ranges
from glassformer.train.config import TrainConfig


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


FIT_SECTIONS = {"text": TextConfig, "model": ModelConfig, "train": TrainConfig}


def fit_parameters() -> dict[str, Any]:
    """Key -> default of everything that concerns one fit, in the order of the sections."""
    return {f.name: f.default for cls in FIT_SECTIONS.values() for f in fields(cls)}
