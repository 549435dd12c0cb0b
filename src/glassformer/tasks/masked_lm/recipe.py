"""What a pre-training recipe can say. The keys of ``text``, ``model`` and ``train`` are those of ``MaskedLM``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from glassformer.config import check_ranges
from glassformer.errors import ConfigError
from glassformer.train.config import TrainConfig, refuse_foreign


@dataclass(frozen=True)
class CorpusConfig:
    """Where the texts come from. Labels are not read; a text that also stands in ``exclude`` is left out."""

    source: str = (
        ""  # a named source (imdb, europe), or a path as for classification, or a .txt with a text a line
    )
    text_column: str | None = None  # found by itself when there is one candidate only
    splits: tuple[str, ...] = (
        "train",
        "unsupervised",
    )  # whose texts are learnt from, where the source has them
    exclude: tuple[str, ...] = (
        "test",
        "validation",
    )  # texts that stand in these splits are never learnt from
    validation_size: float = 1000  # share (< 1) or count (>= 1) held out, to judge the masked words on
    limit: int | None = None  # at most this many texts of every split: a quick look
    split_seed: int = 0  # of every choice of texts

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class MaskTextConfig:
    """From text to masked token ids."""

    max_length: int = 256  # tokens, special ones included; a longer text gives several examples
    tokenizer: str = (
        "wordpiece"  # wordpiece | word: learnt here; or a tokenizer.json; auto: the checkpoint's own
    )
    clean: Literal["none", "html", "words", "syllables"] = (
        "none"  # html: tags out; words: also all but letters, digits; syllables: underscores too
    )
    lowercase: bool = True  # for tokenizers trained here
    strip_accents: bool = False  # for tokenizers trained here; True destroys Vietnamese
    vocab_size: int = 16_000  # for tokenizers trained here
    min_count: int = 2  # for tokenizers trained here
    mask_share: float = 0.15  # of the tokens, to be guessed
    whole_words: bool = False  # all pieces of a word are masked together
    next_sentence: bool = False  # two segments, and whether the second follows the first in its text

    def __post_init__(self) -> None:
        if not 0.0 < self.mask_share < 1.0:  # also what is no number
            raise ConfigError(
                f"mask_share = {self.mask_share} is out of range", where="mask_share", fix="Use 0.15"
            )
        check_ranges(self)


@dataclass(frozen=True)
class PretrainModelConfig:
    """Which encoder: a new BERT of these sizes, or a checkpoint to go on with."""

    model: str = "bert"  # bert: from scratch, in the sizes below; else a checkpoint (name, folder, Hub id)
    revision: str | None = None  # commit of a Hub checkpoint
    d_model: int = 256  # width of the rows; this and below: from scratch only
    num_layers: int = 4  # encoder layers
    num_heads: int = 4  # attention heads of a layer; divides d_model
    d_ff: int = 1024  # hidden units of the feed-forward network
    dropout: float = 0.0  # on embeddings and on each sub-layer's output
    attention_dropout: float = 0.0  # on attention weights (needs the explicit branch)
    max_positions: int = 512  # of learned positions
    neighbours: bool = True  # heads begin by looking at the tokens beside them, meant to learn sooner
    vectors: str | None = (
        None  # word2vec: the token table begins as word vectors of these texts; or a run, or a file of vectors
    )

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class PretrainTrainConfig(TrainConfig):
    """One fit. As in every recipe, but the loss is a mean over masked tokens, and these are the defaults."""

    epochs: int = 5  # passes over the texts, masked anew in each
    lr: float = 1e-3  # the highest rate, reached at the end of the warm-up
    betas: tuple[float, ...] = (0.9, 0.98)  # decay of the two running means of Adam
    batch_size: int = 0  # sequences; 0: batch_tokens decides
    monitor: Literal["accuracy", "macro_f1", "loss"] = "loss"  # what decides which weights are best

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_foreign(self)
        if self.label_smoothing:
            fix = "Leave it out: the words that are hidden are drawn anew in each pass"
            raise ConfigError("the masked-word loss has no smoothing", where="label_smoothing", fix=fix)


@dataclass(frozen=True)
class PretrainEvaluateConfig:
    """What is shown after training."""

    sentences: tuple[str, ...] = ()  # with [MASK] in them: filled at the end
    top: int = 5  # words for each

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class PretrainRecipe:
    """One experiment, read from top to bottom."""

    name: str = ""  # of the run folder; by default the file's
    task: Literal["masked-lm"] = "masked-lm"  # which engine runs it
    summary: str = ""  # one line for lists and reports
    expect: str = ""  # score with its spread over seeds, and where it was measured
    data: CorpusConfig = field(default_factory=CorpusConfig)
    text: MaskTextConfig = field(default_factory=MaskTextConfig)
    model: PretrainModelConfig = field(default_factory=PretrainModelConfig)
    train: PretrainTrainConfig = field(default_factory=PretrainTrainConfig)
    evaluate: PretrainEvaluateConfig = field(default_factory=PretrainEvaluateConfig)
