"""Recipe sections that several tasks share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from glassformer.config import LINEAR, SEARCH, Section, TableKeys, section, setting

# --- data -------------------------------------------------------------------------------------------


@section
class SampleSizes(TableKeys):
    """How many examples are used, and how many of them are held out."""

    validation_size: float | None = setting(
        None, "share (< 1) or number (>= 1) of training examples held out for validation; None: none"
    )
    test_size: float | None = setting(
        None,
        "share (< 1) or number (>= 1) of training examples held out for testing, if the source has no "
        "test split; None: none",
    )
    train_size: int | None = setting(None, "maximum number of training examples; class proportions are kept")
    limit: int | None = setting(None, "maximum number of examples of each split, for a quick trial")
    split_seed: int = setting(0, "random seed for splits and for samples of examples")
    copies: Literal["together", "apart"] | None = setting(
        None,
        "together: copies of an example (with the same first text or context) go to the same random "
        "split; apart: copies may go to different splits; None: together in new runs on your own data",
    )


@section
class UnusableRows(Section):
    """What happens to rows that cannot be used."""

    on_bad_row: Literal["refuse", "skip"] = setting(
        "refuse",
        "refuse: an unusable row is an error; skip: unusable rows are left out and listed in rejected.jsonl",
    )


@section
class ImageFiles(Section):
    """The column with the images, and what happens to unreadable images."""

    image_column: str | None = setting(
        None, "column with the images; None: detected if only one column qualifies"
    )
    broken: Literal["refuse", "skip"] = setting(
        "refuse", "refuse: an unreadable image is an error; skip: unreadable images are left out and counted"
    )


@section
class TextColumns(UnusableRows):
    """The columns of texts or pairs of texts."""

    text_column: str | None = setting(
        None, "column with the texts; None: detected if only one column qualifies"
    )
    pair_column: str = setting(
        "auto",
        "column with the second text of each pair; auto: detected by its name or content; none: one "
        "text per row",
    )
    copies: Literal["together", "apart", "sides"] | None = setting(
        None,
        "together: copies of an example go to the same random split; apart: copies may go to "
        "different splits; sides: pairs that share a text also go to the same split; None: together "
        "in new runs on your own data",
    )


@section
class LabeledData(SampleSizes):
    """Examples with one target each, a label or a number."""

    label_column: str | None = setting(
        None, "column with the labels or numbers; None: detected if only one column qualifies"
    )
    hold_out: Literal["rows", "blocks"] = setting(
        "rows",
        "how examples are held out. rows: single rows at random; blocks: neighboring rows stay together",
    )
    drop_duplicates: bool = setting(
        False, "drop duplicates, and training examples that are also in validation or test"
    )


@section
class ClassData(LabeledData):
    """Examples with one label, or with several labels (multi-label)."""

    label_column: str | None = setting(
        None,
        "column with the labels; None: detected; for multi-label data with one 0/1 column per label, "
        "list them with commas: a,b,c",
    )
    label_separator: str | None = setting(
        None, "separator between the labels in one cell of a table, such as | or ;, for multi-label data"
    )
    merge_labels: str | dict[str, Any] = setting(
        "none",
        "spelling: classes that differ only in case or white space are merged; or a table old = new, "
        "in which an empty new label drops the class",
    )


@section
class NumberData(LabeledData):
    """Examples with one number each."""

    target: Literal["number"] = setting("number", "kind of value that the model learns to predict")
    far_numbers: Literal["keep", "skip"] = setting(
        "keep",
        "keep: outliers are used; skip: numbers far from all others are left out of training and "
        "validation, and counted",
    )


# --- inputs -----------------------------------------------------------------------------------------


@section
class NewTokenizer(Section):
    """A tokenizer that is trained on the texts, for models from scratch."""

    lowercase: bool = setting(
        True, "lowercase texts; only for newly trained tokenizers", used_by=SEARCH | LINEAR
    )
    strip_accents: bool = setting(
        False,
        "strip accents; only for newly trained tokenizers; True makes Vietnamese unreadable",
        used_by=SEARCH | LINEAR,
    )
    vocab_size: int = setting(
        30_000, "number of tokens in the vocabulary of a newly trained tokenizer", used_by=LINEAR
    )
    min_count: int = setting(
        2, "minimum number of occurrences for a word to enter a word vocabulary", used_by=LINEAR
    )


@section
class PixelConfig(Section):
    """Preprocessing of images. None or empty: the value of the checkpoint or architecture."""

    image_size: int | None = setting(None, "side length of the model's square input, in pixels")
    framing: Literal["squash", "crop"] | None = setting(
        None,
        "squash: both sides are scaled to image_size; crop: the shorter side is scaled to resize, "
        "then the center is cut out",
    )
    resize: int | None = setting(None, "length of the shorter side before a crop, in pixels")
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] | None = setting(
        None, "interpolation used for scaling"
    )
    mean: tuple[float, ...] = setting((), "mean that is subtracted from each channel, for pixels from 0 to 1")
    std: tuple[float, ...] = setting(
        (), "standard deviation that each channel is divided by, for pixels from 0 to 1"
    )
    channels: int | None = setting(
        None, "number of color channels: 3, or 1 for gray (from-scratch architectures only)"
    )
    image_range: float | None = setting(
        None,
        "pixel value of white in images of more than 8 bits that do not state it, such as 4095; None: 65535",
        used_by=SEARCH,
    )
    augment: Literal["none", "shift", "light", "medium", "strong", "stacked"] = setting(
        "none", "augmentation of the training images, from none to the strongest, stacked"
    )
    flip: bool = setting(True, "augmentation may mirror images horizontally")


# --- model ------------------------------------------------------------------------------------------


@section
class EncoderSizes(Section):
    """The revision of a checkpoint, or the sizes of an encoder that is trained from scratch."""

    revision: str | None = setting(None, "commit of a Hub checkpoint")
    d_model: int | None = setting(None, "hidden size; this and all keys below: from scratch only")
    num_layers: int | None = setting(None, "number of encoder layers")
    num_heads: int | None = setting(None, "attention heads per layer; must divide d_model")
    d_ff: int | None = setting(None, "hidden units of the feed-forward network")


@section
class WordVectors(Section):
    """Initial token embeddings of an encoder."""

    embedding_dim: int | None = setting(
        None, "size of the token embeddings; if it differs from d_model, the encoder projects them"
    )
    vectors: str | None = setting(
        None,
        "initial word vectors. word2vec: trained on the training texts; or a run folder, or a file in "
        "word2vec's format",
    )
    freeze_vectors: bool = setting(False, "freeze the word vectors; special tokens are still trained")


@section
class EncoderConfig(EncoderSizes):
    """An encoder with a head. None: the value of the preset or checkpoint."""

    head_hidden: int | None = setting(None, "hidden units of the mlp head; None: d_model")
    head_dropout: float = setting(0.0, "dropout before the last linear layer")
    head_activation: Literal["relu", "gelu", "none"] = setting(
        "relu", "activation of the mlp head's hidden layer"
    )
    head_input_dropout: float = setting(0.0, "dropout before the mlp head's hidden layer")
    dropout: float | None = setting(None, "dropout on the embeddings and on each sub-layer's output")
    embedding_dropout: float | None = setting(None, "dropout on the embeddings; None: the value of dropout")
    feed_forward_dropout: float | None = setting(
        None, "dropout inside the feed-forward network, after its activation"
    )
    attention_dropout: float | None = setting(
        None, "dropout on the attention weights (uses the eager implementation)"
    )
    stochastic_depth: float = setting(
        0.0, "share of layers skipped in training (stochastic depth), growing towards the last layer"
    )
    norm: Literal["pre", "post"] | None = setting(
        None, "position of the norms. pre: before each sub-layer; post: after its residual sum"
    )
    norm_eps: float | None = setting(None, "epsilon inside the square root of every norm")
    activation: Literal["relu", "gelu", "gelu_tanh"] | None = setting(
        None, "activation of the feed-forward network"
    )
    positions: Literal["learned", "sinusoidal", "none"] | None = setting(
        None, "position embeddings; for patches, sinusoidal encodes row and column"
    )
    final_norm: bool | None = setting(None, "add a norm after the last layer")
    zero_init: bool | None = setting(
        None, "initialize residual branches to 0, so that the encoder starts as the identity"
    )
    attention: Literal["full", "local", "linear"] | None = setting(
        None,
        "local: each token attends to its neighbors only; linear: no softmax; both cost less on long inputs",
    )
    attention_window: int | None = setting(
        None, "for local attention: number of tokens seen on either side; None: 64"
    )
    init_std: float | None = setting(None, "standard deviation of newly initialized linear weights")


@section
class TokenHeadConfig(EncoderSizes, WordVectors):
    """An encoder with a linear head on every token. None: the value of the preset or checkpoint."""

    head_dropout: float = setting(0.0, "dropout before the linear layer")
    dropout: float | None = setting(
        None, "dropout on the embeddings and on each sub-layer's output; None: 0 for checkpoints"
    )
    attention_dropout: float | None = setting(
        None, "dropout on the attention weights (uses the eager implementation)"
    )


# --- evaluation -------------------------------------------------------------------------------------


@section
class EvaluateKeys(Section):
    """Evaluation after training."""

    split: str = setting("test", "split that is evaluated once, at the end")
    baselines: bool = setting(True, "also evaluate simple models and untrained encoders")
    bootstrap: int = setting(1000, "number of bootstrap resamples for the 95 % interval")


@section
class ShownNumbers(EvaluateKeys):
    """Evaluation of regression."""

    shown: int = setting(12, "number of evaluated examples in the report, largest errors first")


@dataclass(frozen=True)
class RecipeKeys:
    """Top-level keys of every recipe.

    Subclasses have ``CARD`` for the model card: the Hub's pipeline tag, and a line of code that predicts.
    Regressors have the tag of classifiers.
    """

    name: str = setting("", "name of the run folder; default: the name of the recipe file")
    task: str = setting("", "task that the recipe trains for")
    summary: str = setting("", "one-line description, shown in lists and reports")
    expect: str = setting("", "expected score with its spread over seeds, and where it was measured")
