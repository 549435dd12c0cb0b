"""What a pre-training recipe can say. Keys of ``text``, ``model``, ``train`` are those of ``MaskedLM``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from glassformer.config import Section, TableKeys, by_place, section, setting
from glassformer.errors import ConfigError
from glassformer.families import SCRATCH
from glassformer.tasks.sections import NewTokenizer, RecipeKeys
from glassformer.train.config import OF_CLASSIFIERS, FitConfig, TokenBatches


@section
class CorpusConfig(TableKeys):
    """Where the texts come from. Labels are not read; a text that also stands in ``exclude`` is left out."""

    source: str = setting(
        "", "a named source (imdb, europe), or a path as for classification, or a .txt with one text per line"
    )
    text_column: str | None = setting(None, "found by itself when there is one candidate only")
    splits: tuple[str, ...] = setting(
        ("train", "unsupervised"), "whose texts are learnt from, where the source has them"
    )
    exclude: tuple[str, ...] = setting(
        ("test", "validation"), "texts that are in these splits are never learnt from"
    )
    validation_size: float = setting(
        1000, "share (< 1) or count (>= 1) held out, to evaluate the masked words on"
    )
    limit: int | None = setting(None, "at most this many texts of every split: a quick look")
    split_seed: int = setting(0, "of every choice of texts")
    on_bad_row: Literal["refuse", "skip"] = setting("refuse", "skip: rows that cannot be used are left out")
    copies: Literal["together", "apart"] | None = setting(
        None, "of one text: on one side of a random split; None: together in new runs on one's own data"
    )


@section
class MaskTextConfig(NewTokenizer):
    """From text to masked token ids."""

    max_length: int = setting(256, "tokens, special ones included; a longer text gives several examples")
    tokenizer: str = setting(
        "wordpiece", "wordpiece | word: learnt here; or a tokenizer.json; auto: the checkpoint's own"
    )
    clean: Literal["none", "html", "words", "syllables"] = setting(
        "none", "html: tags out; words: also all but letters, digits; syllables: underscores too"
    )
    vocab_size: int = setting(16_000, "for tokenizers trained here")
    mask_share: float = setting(0.15, "of the tokens, to be guessed")
    whole_words: bool = setting(False, "all pieces of a word are masked together")
    next_sentence: bool = setting(False, "two segments, and whether the second follows the first in its text")

    def __post_init__(self) -> None:
        if not 0.0 < self.mask_share < 1.0:  # also what is no number
            raise ConfigError(
                f"mask_share = {self.mask_share} is out of range", where="mask_share", fix="Use 0.15"
            )
        super().__post_init__()


@section
class PretrainModelConfig(Section):
    """Which encoder: a new BERT of these sizes, or a checkpoint to go on with."""

    model: str = by_place(
        default=SCRATCH,
        meaning="bert: from scratch, in the sizes below; else a checkpoint (name, folder, Hub id)",
    )
    revision: str | None = setting(None, "commit of a Hub checkpoint")
    d_model: int = setting(256, "width of the rows; this and below: from scratch only")
    num_layers: int = setting(4, "encoder layers")
    num_heads: int = setting(4, "attention heads of a layer; divides d_model")
    d_ff: int = setting(1024, "hidden units of the feed-forward network")
    dropout: float = setting(0.0, "on embeddings and on each sub-layer's output")
    attention_dropout: float = setting(0.0, "on attention weights (needs the explicit branch)")
    max_positions: int = setting(512, "of learned positions")
    neighbours: bool = setting(
        True, "heads begin by looking at the tokens beside them, meant to learn sooner", before=False
    )
    vectors: str | None = setting(
        None,
        "word2vec: the token table begins as word vectors of these texts; or a run, or a file of vectors",
    )


@section
class PretrainFitConfig(TokenBatches, FitConfig):
    """One fit. As in every recipe, but the loss is a mean over masked tokens, and these are the defaults."""

    epochs: int = setting(5, "passes over the texts, masked anew in each")
    lr: float = setting(1e-3, "the highest rate, reached at the end of the warm-up")
    betas: tuple[float, ...] = setting((0.9, 0.98), "decay of the two running means of Adam")
    batch_size: int = setting(0, "sequences; 0: batch_tokens decides")
    monitor: Literal["accuracy", "loss"] = setting("loss", "what decides which weights are best")

    RETIRED: ClassVar = OF_CLASSIFIERS | {
        "label_smoothing": (
            0.0,
            "the masked-word loss has no smoothing: the hidden words are drawn anew in each pass",
        )
    }


@section
class PretrainEvaluateConfig(Section):
    """What is shown after training."""

    sentences: tuple[str, ...] = setting((), "with [MASK] in them: filled at the end")
    top: int = setting(5, "words for each")


@dataclass(frozen=True)
class PretrainRecipe(RecipeKeys):
    """One experiment, read from top to bottom."""

    # For the model card: the Hub's pipeline tag, and how such a model is asked.
    CARD = ("fill-mask", "print(model.fill(text))  # a text with the mask token of model.tokenizer_")

    task: Literal["masked-lm"] = setting("masked-lm", "which engine runs it")
    data: CorpusConfig = field(default_factory=CorpusConfig)
    text: MaskTextConfig = field(default_factory=MaskTextConfig)
    model: PretrainModelConfig = field(default_factory=PretrainModelConfig)
    train: PretrainFitConfig = field(default_factory=PretrainFitConfig)
    evaluate: PretrainEvaluateConfig = field(default_factory=PretrainEvaluateConfig)
