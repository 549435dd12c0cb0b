"""Recipe of masked language modeling. The keys of ``text``, ``model`` and ``train`` are parameters of
``MaskedLM``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from glassformer.config import Section, TableKeys, positional, section, setting
from glassformer.errors import ConfigError
from glassformer.families import SCRATCH
from glassformer.tasks.sections import NewTokenizer, RecipeKeys
from glassformer.train.config import CLASSIFIER_KEYS, FitConfig, TokenBatches


@section
class CorpusConfig(TableKeys):
    """Source of the texts. Labels are ignored; texts that also occur in ``exclude`` are left out."""

    source: str = setting(
        "", "a named source (imdb, europe), or a path as for classification, or a .txt with one text per line"
    )
    text_column: str | None = setting(
        None, "column with the texts; None: detected if only one column qualifies"
    )
    splits: tuple[str, ...] = setting(
        ("train", "unsupervised"), "splits whose texts are used for training, if the source has them"
    )
    exclude: tuple[str, ...] = setting(
        ("test", "validation"), "splits whose texts are never used for training"
    )
    validation_size: float = setting(
        1000, "share (< 1) or number (>= 1) of texts held out to evaluate the predictions of masked words"
    )
    limit: int | None = setting(None, "maximum number of texts of each split, for a quick trial")
    split_seed: int = setting(0, "random seed for splits and for samples of texts")
    on_bad_row: Literal["refuse", "skip"] = setting(
        "refuse", "refuse: an unusable row is an error; skip: unusable rows are left out"
    )
    copies: Literal["together", "apart"] | None = setting(
        None,
        "together: copies of a text go to the same random split; apart: copies may go to different "
        "splits; None: together in new runs on your own data",
    )


@section
class MaskTextConfig(NewTokenizer):
    """Tokenization and masking."""

    max_length: int = setting(
        256, "maximum number of tokens, special ones included; longer texts are split into several examples"
    )
    tokenizer: str = setting(
        "wordpiece",
        "wordpiece, word: trained on these texts; or a tokenizer.json file; auto: the tokenizer of "
        "the checkpoint",
    )
    clean: Literal["none", "html", "words", "syllables"] = setting(
        "none",
        "cleaning of the texts. html: removes tags; words: also keeps only letters and digits; "
        "syllables: also removes underscores",
    )
    vocab_size: int = setting(16_000, "number of tokens in the vocabulary of a newly trained tokenizer")
    mask_share: float = setting(0.15, "share of tokens that are masked and predicted")
    whole_words: bool = setting(False, "mask all tokens of a word together")
    next_sentence: bool = setting(
        False, "also train next-sentence prediction: whether the second of two segments follows the first"
    )

    def __post_init__(self) -> None:
        if not 0.0 < self.mask_share < 1.0:  # also rejects NaN
            what = f"mask_share = {self.mask_share} is out of range"
            raise ConfigError(what, where="mask_share", fix="Use 0.15")
        super().__post_init__()


@section
class PretrainModelConfig(Section):
    """The encoder: a new BERT of these sizes, or a checkpoint to continue from."""

    model: str = positional(
        default=SCRATCH,
        meaning="bert: from scratch, in the sizes below; else a checkpoint (name, folder, Hub id)",
    )
    revision: str | None = setting(None, "commit of a Hub checkpoint")
    d_model: int = setting(256, "hidden size; this and all keys below: from scratch only")
    num_layers: int = setting(4, "number of encoder layers")
    num_heads: int = setting(4, "attention heads per layer; must divide d_model")
    d_ff: int = setting(1024, "hidden units of the feed-forward network")
    dropout: float = setting(0.0, "dropout on the embeddings and on each sub-layer's output")
    attention_dropout: float = setting(
        0.0, "dropout on the attention weights (uses the eager implementation)"
    )
    max_positions: int = setting(512, "number of learned position embeddings")
    neighbours: bool = setting(
        True,
        "initialize attention heads so that they attend to neighboring tokens, meant to speed up training",
        before=False,
    )
    vectors: str | None = setting(
        None,
        "initial token embeddings. word2vec: word vectors trained on these texts; or a run folder, or "
        "a file of vectors",
    )


@section
class PretrainFitConfig(TokenBatches, FitConfig):
    """Training; the loss is a mean over masked tokens."""

    epochs: int = setting(5, "passes over the texts, with new masks in each")
    lr: float = setting(1e-3, "peak learning rate, reached at the end of the warm-up")
    betas: tuple[float, ...] = setting((0.9, 0.98), "decay rates of Adam's two running means")
    batch_size: int = setting(0, "sequences per batch; 0: limited by batch_tokens only")
    monitor: Literal["accuracy", "loss"] = setting("loss", "metric that selects the best weights")

    RETIRED: ClassVar = CLASSIFIER_KEYS | {
        "label_smoothing": (
            0.0,
            "the masked-word loss has no smoothing: the masked words change in each pass",
        )
    }


@section
class PretrainEvaluateConfig(Section):
    """Examples for the report."""

    sentences: tuple[str, ...] = setting((), "texts with [MASK], which the model fills in at the end")
    top: int = setting(5, "number of predicted words per [MASK]")


@dataclass(frozen=True)
class PretrainRecipe(RecipeKeys):
    """Recipe of masked language modeling."""

    CARD = ("fill-mask", "print(model.fill(text))  # a text with the mask token of model.tokenizer_")

    task: Literal["masked-lm"] = setting("masked-lm", "task that the recipe trains for")
    data: CorpusConfig = field(default_factory=CorpusConfig)
    text: MaskTextConfig = field(default_factory=MaskTextConfig)
    model: PretrainModelConfig = field(default_factory=PretrainModelConfig)
    train: PretrainFitConfig = field(default_factory=PretrainFitConfig)
    evaluate: PretrainEvaluateConfig = field(default_factory=PretrainEvaluateConfig)
