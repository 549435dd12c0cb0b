"""Settings that recipes of several tasks share: a task's ``recipe.py`` extends them with its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from glassformer.config import (
    LINEAR,
    SEARCH,
    Section,
    TableKeys,
    section,
    setting,
)

# --- data -------------------------------------------------------------------------------------------


@section
class DrawnData(TableKeys):
    """How many examples there are, and which of them are held out."""

    validation_size: float | None = setting(None, "share (< 1) or count (>= 1) held out of train; None: none")
    test_size: float | None = setting(None, "likewise for a test split, where the source has none")
    train_size: int | None = setting(None, "at most this many training examples, all classes in proportion")
    limit: int | None = setting(None, "at most this many examples of every split: a quick look")
    split_seed: int = setting(0, "of every choice of examples")
    copies: Literal["together", "apart"] | None = setting(
        None,
        "of one example, first text or context: on one side of a random split; None: together in new runs on "
        "one's own data",
    )


@section
class TextRows(Section):
    """What becomes of rows that cannot be used."""

    on_bad_row: Literal["refuse", "skip"] = setting(
        "refuse", "skip: rows that cannot be used go to rejected.jsonl"
    )


@section
class ImageFiles(Section):
    """Which column has the images, and what becomes of those that cannot be read."""

    image_column: str | None = setting(None, "found by itself when there is one candidate only")
    broken: Literal["refuse", "skip"] = setting(
        "refuse", "skip: images that cannot be read are left out and counted"
    )


@section
class TextColumns(TextRows):
    """Which columns have the texts, of pairs both."""

    text_column: str | None = setting(None, "found by itself when there is one candidate only")
    pair_column: str = setting(
        "auto", "of the second text of pairs; auto: found by its name or content; none: one text a row"
    )
    copies: Literal["together", "apart", "sides"] | None = setting(
        None,
        "of one example: on one side of a random split; sides: pairs that share a text too; None: together "
        "in new runs on one's own data",
    )


@section
class LabeledData(DrawnData):
    """Examples with a label or a number each."""

    label_column: str | None = setting(None, "of labels or numbers; found by itself, likewise")
    hold_out: Literal["rows", "blocks"] = setting("rows", "blocks: neighboring rows stay together")
    drop_duplicates: bool = setting(
        False, "leave out repeats, and what of train is also in validation or test"
    )


@section
class ClassData(LabeledData):
    """Examples with one label or several."""

    label_column: str | None = setting(
        None, "found by itself; several of 0 and 1, one for each label, with commas between them: a,b,c"
    )
    label_separator: str | None = setting(None, "of several labels in a cell of a table, such as | or ;")
    merge_labels: str | dict[str, Any] = setting(
        "none",
        "spelling: classes that differ in case or white space become one; or a table old = new, empty: out",
    )


@section
class NumberData(LabeledData):
    """Examples with a number each."""

    target: Literal["number"] = setting("number", "what is learned of each example")
    far_numbers: Literal["keep", "skip"] = setting(
        "keep", "skip: numbers far from all others are left out of training and validation, and counted"
    )


# --- inputs -----------------------------------------------------------------------------------------


@section
class NewTokenizer(Section):
    """A tokenizer that is trained on the texts, where the checkpoint has none."""

    lowercase: bool = setting(True, "for tokenizers trained here", obeyed=SEARCH | LINEAR)
    strip_accents: bool = setting(
        False, "for tokenizers trained here; True destroys Vietnamese", obeyed=SEARCH | LINEAR
    )
    vocab_size: int = setting(30_000, "for tokenizers trained here", obeyed=LINEAR)
    min_count: int = setting(2, "a word must be seen this often to enter a word vocabulary", obeyed=LINEAR)


@section
class PixelConfig(Section):
    """From images to pixel values. None and empty mean: as the checkpoint or the architecture has it."""

    image_size: int | None = setting(None, "pixels along each side that the model reads")
    framing: Literal["squash", "crop"] | None = setting(
        None, "squash: scaled to that; crop: shorter side to resize, center cut"
    )
    resize: int | None = setting(None, "shorter side before a crop")
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] | None = setting(None, "of scaling")
    mean: tuple[float, ...] = setting((), "of each channel, for pixels from 0 to 1")
    std: tuple[float, ...] = setting((), "likewise")
    channels: int | None = setting(None, "3, or 1 for gray (from-scratch architectures only)")
    image_range: float | None = setting(
        None,
        "white, in images of more than 8 bits that do not state it, such as 4095; None: of 16 full bits",
        obeyed=SEARCH,
    )
    augment: Literal["none", "shift", "light", "medium", "strong", "stacked"] = setting(
        "none", "the ladder in data/augment.py"
    )
    flip: bool = setting(True, "left and right may change places where images are augmented")


# --- model ------------------------------------------------------------------------------------------


@section
class EncoderSizes(Section):
    """A checkpoint's revision, or the sizes of an encoder that is trained from scratch."""

    revision: str | None = setting(None, "commit of a Hub checkpoint")
    d_model: int | None = setting(None, "width of the rows; this and all below: from scratch only")
    num_layers: int | None = setting(None, "encoder layers")
    num_heads: int | None = setting(None, "attention heads of a layer; divides d_model")
    d_ff: int | None = setting(None, "hidden units of the feed-forward network")


@section
class WordVectors(Section):
    """The table of words that an encoder begins with."""

    embedding_dim: int | None = setting(
        None, "numbers a token; where it is not d_model, an encoder projects them"
    )
    vectors: str | None = setting(
        None, "word2vec: trained on the training texts; or a run, or a file in word2vec's format"
    )
    freeze_vectors: bool = setting(False, "word vectors stay as they are; special tokens are trained")


@section
class EncoderConfig(EncoderSizes):
    """An encoder whose every part may be set, under a head. None: as the preset or the checkpoint has it."""

    head_hidden: int | None = setting(None, "width of the mlp head; None: d_model")
    head_dropout: float = setting(0.0, "before the last linear layer")
    head_activation: Literal["relu", "gelu", "none"] = setting("relu", "of the mlp head's hidden layer")
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
    norm: Literal["pre", "post"] | None = setting(None, "before each sub-layer, or after its residual sum")
    norm_eps: float | None = setting(None, "inside the root of every norm")
    activation: Literal["relu", "gelu", "gelu_tanh"] | None = setting(None, "of the feed-forward network")
    positions: Literal["learned", "sinusoidal", "none"] | None = setting(
        None, "what says where a token stands; of patches sinusoidal: of row and column"
    )
    final_norm: bool | None = setting(None, "a norm after the last layer")
    zero_init: bool | None = setting(None, "residual branches start at 0: the encoder starts as the identity")
    attention: Literal["full", "local", "linear"] | None = setting(
        None, "local: each row sees those near it; linear: no softmax; both cost less on long inputs"
    )
    attention_window: int | None = setting(None, "of local attention: places seen on either side; None: 64")
    init_std: float | None = setting(None, "of new linear weights")


@section
class TokenHeadConfig(EncoderSizes, WordVectors):
    """An encoder under a linear layer over its tokens. None: as the preset or the checkpoint has it."""

    head_dropout: float = setting(0.0, "before the linear layer")
    dropout: float | None = setting(
        None, "on embeddings and on each sub-layer's output; None: 0 of a checkpoint"
    )
    attention_dropout: float | None = setting(None, "on attention weights (needs the explicit branch)")


# --- judging ----------------------------------------------------------------------------------------


@section
class EvaluateKeys(Section):
    """What is judged after training."""

    split: str = setting("test", "looked at once, at the end")
    baselines: bool = setting(True, "simple models and untrained encoders beside it")
    bootstrap: int = setting(1000, "resamples for the 95 % interval")


@section
class ShownNumbers(EvaluateKeys):
    """What is judged and shown of predicted numbers."""

    shown: int = setting(12, "evaluated examples that go into the report, those furthest off")


@dataclass(frozen=True)
class RecipeKeys:
    """What every recipe begins with."""

    name: str = setting("", "of the run folder; by default the file's")
    task: str = setting("", "which engine runs it")
    summary: str = setting("", "one line for lists and reports")
    expect: str = setting("", "score with its spread over seeds, and where it was measured")
