"""What a recipe can say: one dataclass a section, every key with its default and meaning.

The keys of ``text``, ``model`` and ``train`` are the constructor parameters of
``TextClassifier``; no key stands in two sections, so ``--set lr=1e-4`` is never ambiguous.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from glassformer.config import Section, by_place, section, setting
from glassformer.config.tables import TableKeys
from glassformer.tasks.recipe import AUTO
from glassformer.train.config import ClassifierFitConfig, TokenBatches


@section
class DataConfig(TableKeys):
    """Where the examples come from and how they are split."""

    source: str = setting("", "a named source (imdb, europe) or a path to a file or folder")
    text_column: str | None = setting(None, "found by itself when there is one candidate only")
    label_column: str | None = setting(
        None, "likewise; several of 0 and 1, one for each label, with commas between them: a,b,c"
    )
    label_separator: str | None = setting(None, "of several labels in a cell of a table, such as | or ;")
    pair_column: str = setting(
        "auto", "of the second text of pairs; auto: found by its name or content; none: one text a row"
    )
    validation_size: float | None = setting(None, "share (< 1) or count (>= 1) held out of train; None: none")
    test_size: float | None = setting(None, "likewise for a test split, where the source has none")
    train_size: int | None = setting(None, "at most this many training examples, stratified")
    limit: int | None = setting(None, "at most this many examples of every split: a quick look")
    split_seed: int = setting(0, "of every choice of examples")
    hold_out: Literal["rows", "blocks"] = setting("rows", "blocks: neighbouring rows stay together")
    merge_labels: str | dict[str, Any] = setting(
        "none",
        "spelling: classes that differ in case or white space become one; or a table old = new, empty: out",
    )
    drop_duplicates: bool = setting(
        False, "leave out repeats, and what of train also stands in validation or test"
    )
    copies: Literal["together", "apart", "sides"] | None = setting(
        None,
        "of one example: on one side of a random split; sides: pairs that share a text too; None: together "
        "in new runs on one's own data",
    )
    on_bad_row: Literal["refuse", "skip"] = setting(
        "refuse", "skip: rows that cannot be used go to rejected.jsonl"
    )


@section
class TextConfig(Section):
    """From text to token ids."""

    max_length: int = setting(256, "tokens, special ones included; longer texts are cut and counted")
    tokenizer: str = setting(
        "auto", "auto: the checkpoint's own, else word | word | wordpiece | a tokenizer.json"
    )
    clean: Literal["none", "html", "words", "syllables", "trim"] = setting(
        "none", "tags out; letters, digits only; no underscores; no marks at the ends of words"
    )
    lowercase: bool = setting(True, "for tokenizers trained here")
    strip_accents: bool = setting(False, "for tokenizers trained here; True destroys Vietnamese")
    vocab_size: int = setting(30_000, "for tokenizers trained here")
    min_count: int = setting(2, "a word must be seen this often to enter a word vocabulary")
    add_special_tokens: bool = setting(True, "[CLS] ... [SEP] around each text")
    separator: bool = setting(
        True, "for tokenizers trained here; False: [CLS] before a text, no [SEP] behind it"
    )
    long_texts: Literal["cut", "mean", "max"] = setting(
        "cut", "in prediction; mean, max: over the logits of windows"
    )
    window_stride: int | None = setting(None, "tokens from window to window; None: half a window")


@section
class ModelConfig(Section):
    """Which encoder, and what stands on it. None means: as the preset or the checkpoint has it."""

    model: str = by_place(
        default=AUTO,
        meaning="a checkpoint (name, folder, Hub id), a from-scratch architecture, tfidf (a linear model), "
        "or auto: the best of tfidf, all-minilm-l6-v2 frozen and fine-tuned, which validation chooses",
        in_file="all-minilm-l6-v2",
    )
    revision: str | None = setting(None, "commit of a Hub checkpoint")
    pooling: Literal["auto", "first", "mean", "max", "attention", "pooler"] = setting(
        "auto", "what the head reads"
    )
    head: Literal["linear", "mlp"] = setting("linear", "mlp: Linear, ReLU, Dropout, Linear")
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
    d_model: int | None = setting(
        None, "width of the rows; this and all below: from-scratch architectures only"
    )
    num_layers: int | None = setting(None, "encoder layers")
    num_heads: int | None = setting(None, "attention heads of a layer; divides d_model")
    d_ff: int | None = setting(None, "hidden units of the feed-forward network")
    norm: Literal["pre", "post"] | None = setting(None, "before each sub-layer, or after its residual sum")
    norm_eps: float | None = setting(None, "inside the root of every norm")
    activation: Literal["relu", "gelu", "gelu_tanh"] | None = setting(None, "of the feed-forward network")
    positions: Literal["learned", "sinusoidal", "none"] | None = setting(
        None, "what says where a token stands"
    )
    final_norm: bool | None = setting(None, "a norm after the last layer")
    embedding_norm: bool | None = setting(None, "a norm after the embeddings")
    damp_repeats: float | None = setting(
        None, "a token that stands k times in its text is scaled by k ** -damp_repeats"
    )
    zero_init: bool | None = setting(None, "residual branches start at 0: the encoder starts as the identity")
    attention: Literal["full", "local", "linear"] | None = setting(
        None, "local: each row sees those near it; linear: no softmax; both cost less on long texts"
    )
    attention_window: int | None = setting(None, "of local attention: places seen on either side; None: 64")
    init_std: float | None = setting(None, "of new linear weights")
    embedding_std: float | None = setting(None, "of new token embeddings")
    bidirectional: bool | None = setting(None, "lstm and gru: read backwards too")
    embedding_dim: int | None = setting(
        None, "numbers a token; where it is not d_model, an encoder projects them"
    )
    vectors: str | None = setting(
        None, "word2vec: trained on the training texts; or a run, or a file in word2vec's format"
    )
    freeze_vectors: bool = setting(False, "word vectors stay as they are; special tokens are trained")


@section
class TextFitConfig(TokenBatches, ClassifierFitConfig):
    """One fit of texts."""

    method: Literal["fine-tune", "few-shot"] = setting(
        "fine-tune",
        "few-shot: the encoder of a checkpoint learns from comparisons of a few texts a class, then the head",
    )
    time_limit: float | None = setting(
        None, "seconds after which model = auto begins no further candidate; None: it tries all"
    )
    word_dropout: float = setting(0.0, "share of tokens hidden from the model at each step")


@section
class EvaluateConfig(Section):
    """What is judged and shown after training."""

    split: str = setting("test", "looked at once, at the end")
    baselines: bool = setting(True, "TF-IDF, a mean bag of embeddings and a frozen encoder beside it")
    bootstrap: int = setting(1000, "resamples for the 95 % interval")
    maps: int = setting(4, "examples whose attention map goes into the report")
    sentences: tuple[str, ...] = setting((), "texts of one's own, classified at the end")
    sentences_file: str | None = setting(
        None, "more of them, a line each: a file, or its path below a data folder; left out where it is not"
    )


@dataclass(frozen=True)
class Recipe:
    """One experiment, read from top to bottom."""

    # For the model card: the Hub's pipeline tag, and how such a model is asked.
    CARD = ("text-classification", 'print(model.predict(["A text."]))')

    name: str = setting("", "of the run folder; by default the file's")
    task: Literal["text-classification"] = setting("text-classification", "which engine runs it")
    summary: str = setting("", "one line for lists and reports")
    expect: str = setting("", "score with its spread over seeds, and where it was measured")
    data: DataConfig = field(default_factory=DataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TextFitConfig = field(default_factory=TextFitConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
