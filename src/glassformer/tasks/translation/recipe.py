"""What a translation recipe can say. Keys of ``text``, ``model``, ``train`` are those of ``Translator``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from glassformer.config import Section, by_place, section, setting
from glassformer.errors import NotForThisModelError
from glassformer.tasks.sections import DrawnData, RecipeKeys, TextRows
from glassformer.train.config import OF_CLASSIFIERS, FitConfig, TokenBatches

OTHER_MODEL = {  # model -> keys that belong to the other one
    "transformer": ("attention", "cell"),
    "rnn": ("num_heads", "d_ff", "norm", "norm_eps", "embedding_dropout", "activation"),
}


@section
class PairDataConfig(TextRows, DrawnData):
    """Where the pairs come from and how they are split."""

    source: str = setting(
        "", "a named source (multi30k), a table of two columns, or the stem of two plain files"
    )
    source_column: str | None = setting(
        None, "the column (or file ending) of the texts; None: found by usual names"
    )
    target_column: str | None = setting(None, "of their translations")


@section
class PairTextConfig(Section):
    """From text to token ids, on either side."""

    max_length: int = setting(
        128, "tokens of a side, special ones included; longer training texts are cut and counted"
    )
    tokenizer: Literal["bpe", "wordpiece", "word"] = setting(
        "bpe", "learnt here; only bpe gives back every character"
    )
    shared_vocabulary: bool = setting(True, "one vocabulary and one token table for both languages")
    lowercase: bool = setting(False, "the translations are then lower-case too")
    vocab_size: int = setting(8_000, "of each vocabulary")
    min_count: int = setting(2, "a pair of pieces (or a word) seen less often does not enter")


@section
class Seq2SeqModelConfig(Section):
    """Which encoder and decoder."""

    model: Literal["transformer", "rnn"] = by_place(
        default="transformer",
        meaning="the architecture; its weights start at random",
    )
    attention: Literal["none", "dot", "multiplicative", "additive"] = setting(
        "dot", "rnn only; none: a thought vector"
    )
    cell: Literal["gru", "lstm"] = setting("gru", "rnn only")
    d_model: int = setting(256, "width")
    num_layers: int = setting(3, "of the encoder, and of the decoder")
    num_heads: int = setting(4, "transformer only")
    d_ff: int = setting(1024, "transformer only")
    dropout: float = setting(0.3, "on embeddings and on each sub-layer's output")
    embedding_dropout: float | None = setting(
        None, "on embeddings, where it is not dropout's; transformer only"
    )
    norm: Literal["pre", "post"] = setting("pre", "transformer only")
    norm_eps: float = setting(1e-5, "inside the root of every norm; transformer only")
    activation: Literal["relu", "gelu", "gelu_tanh"] = setting("relu", "transformer only")
    tied: bool = setting(True, "the output layer is the target's token table")

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in OTHER_MODEL[self.model]:
            if getattr(self, key) != type(self).__dataclass_fields__[key].default:
                raise NotForThisModelError(f"{self.model!r} has no {key}", where=key, fix="Leave it out")


@section
class TranslationFitConfig(TokenBatches, FitConfig):
    """One fit. As in every recipe, but a sequence is weighted by its tokens, and these are the defaults."""

    epochs: int = setting(30, "passes over the training pairs")
    lr: float = setting(1e-3, "the highest rate, reached at the end of the warm-up")
    betas: tuple[float, ...] = setting((0.9, 0.98), "decay of the two running means of Adam")
    batch_size: int = setting(0, "pairs; 0: batch_tokens decides")
    batch_tokens: int = setting(4096, "tokens of both sides at most")
    label_smoothing: float = setting(0.1, "share of the target spread over the vocabulary")

    RETIRED: ClassVar = OF_CLASSIFIERS


@section
class TranslationEvaluateConfig(Section):
    """What is judged and shown after training."""

    split: str = setting("test", "looked at once, at the end")
    beam: int = setting(5, "hypotheses; greedy search is evaluated beside it")
    length_penalty: float = setting(1.0, "the score is log-probability / length ** this")
    maps: int = setting(4, "sentences whose alignment goes into the report")
    sentences: tuple[str, ...] = setting((), "texts of one's own, translated at the end")


@dataclass(frozen=True)
class TranslationRecipe(RecipeKeys):
    """One experiment, read from top to bottom."""

    # For the model card: the Hub's pipeline tag, and how such a model is asked.
    CARD = ("translation", 'print(model.translate(["A text."]))')

    task: Literal["translation"] = setting("translation", "which engine runs it")
    data: PairDataConfig = field(default_factory=PairDataConfig)
    text: PairTextConfig = field(default_factory=PairTextConfig)
    model: Seq2SeqModelConfig = field(default_factory=Seq2SeqModelConfig)
    train: TranslationFitConfig = field(default_factory=TranslationFitConfig)
    evaluate: TranslationEvaluateConfig = field(default_factory=TranslationEvaluateConfig)
