"""Recipe of translation. The keys of ``text``, ``model`` and ``train`` are parameters of ``Translator``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from glassformer.config import Section, positional, section, setting
from glassformer.errors import NotForThisModelError
from glassformer.tasks.sections import RecipeKeys, SampleSizes, UnusableRows
from glassformer.train.config import CLASSIFIER_KEYS, FitConfig, TokenBatches

OTHER_MODEL = {  # model -> keys that only the other model has
    "transformer": ("attention", "cell"),
    "rnn": ("num_heads", "d_ff", "norm", "norm_eps", "embedding_dropout", "activation"),
}


@section
class PairDataConfig(UnusableRows, SampleSizes):
    """Source of the pairs, and how they are split."""

    source: str = setting(
        "", "a named source (multi30k), a table of two columns, or the stem of two plain files"
    )
    source_column: str | None = setting(
        None, "column (or file extension) of the source texts; None: detected by its usual names"
    )
    target_column: str | None = setting(
        None, "column (or file extension) of their translations; None: detected by its usual names"
    )


@section
class PairTextConfig(Section):
    """Tokenization of both languages."""

    max_length: int = setting(
        128,
        "maximum number of tokens of source and of target, special ones included; longer training "
        "texts are truncated and counted",
    )
    tokenizer: Literal["bpe", "wordpiece", "word"] = setting(
        "bpe", "kind of tokenizer, newly trained; only bpe reproduces every character"
    )
    shared_vocabulary: bool = setting(
        True, "share one vocabulary and one embedding table between both languages"
    )
    lowercase: bool = setting(False, "lowercase both languages; the translations are then lowercase too")
    vocab_size: int = setting(8_000, "number of tokens in each vocabulary")
    min_count: int = setting(
        2, "minimum number of occurrences for a merged pair of pieces (or a word) to enter the vocabulary"
    )


@section
class Seq2SeqModelConfig(Section):
    """Encoder and decoder."""

    model: Literal["transformer", "rnn"] = positional(
        default="transformer",
        meaning="the architecture; its weights start at random",
    )
    attention: Literal["none", "dot", "multiplicative", "additive"] = setting(
        "dot", "attention of the decoder; rnn only; none: the decoder reads only the encoder's last state"
    )
    cell: Literal["gru", "lstm"] = setting("gru", "recurrent cell; rnn only")
    d_model: int = setting(256, "hidden size")
    num_layers: int = setting(3, "number of layers of the encoder, and of the decoder")
    num_heads: int = setting(4, "attention heads per layer; transformer only")
    d_ff: int = setting(1024, "hidden units of the feed-forward network; transformer only")
    dropout: float = setting(0.3, "dropout on the embeddings and on each sub-layer's output")
    embedding_dropout: float | None = setting(
        None, "dropout on the embeddings; None: the value of dropout; transformer only"
    )
    norm: Literal["pre", "post"] = setting(
        "pre",
        "position of the norms. pre: before each sub-layer; post: after its residual sum; transformer only",
    )
    norm_eps: float = setting(1e-5, "epsilon inside the square root of every norm; transformer only")
    activation: Literal["relu", "gelu", "gelu_tanh"] = setting(
        "relu", "activation of the feed-forward network; transformer only"
    )
    tied: bool = setting(True, "tie the output layer to the embeddings of the target language")

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in OTHER_MODEL[self.model]:
            if getattr(self, key) != type(self).__dataclass_fields__[key].default:
                raise NotForThisModelError(f"{self.model!r} has no {key}", where=key, fix="Leave it out")


@section
class TranslationFitConfig(TokenBatches, FitConfig):
    """Training; the loss is a mean over target tokens."""

    epochs: int = setting(30, "passes over the training pairs")
    lr: float = setting(1e-3, "peak learning rate, reached at the end of the warm-up")
    betas: tuple[float, ...] = setting((0.9, 0.98), "decay rates of Adam's two running means")
    batch_size: int = setting(0, "pairs per batch; 0: limited by batch_tokens only")
    batch_tokens: int = setting(4096, "maximum number of tokens per batch, source and target together")
    label_smoothing: float = setting(
        0.1, "share of the target probability that is spread over the vocabulary"
    )

    RETIRED: ClassVar = CLASSIFIER_KEYS


@section
class TranslationEvaluateConfig(Section):
    """Evaluation and report after training."""

    split: str = setting("test", "split that is evaluated once, at the end")
    beam: int = setting(5, "beam width; greedy search is also evaluated")
    length_penalty: float = setting(
        1.0, "exponent in the score of a hypothesis: log-probability / length ** length_penalty"
    )
    maps: int = setting(4, "number of sentences whose alignment is shown in the report")
    sentences: tuple[str, ...] = setting((), "your own texts, translated at the end")


@dataclass(frozen=True)
class TranslationRecipe(RecipeKeys):
    """Recipe of translation."""

    CARD = ("translation", 'print(model.translate(["A text."]))')

    task: Literal["translation"] = setting("translation", "task that the recipe trains for")
    data: PairDataConfig = field(default_factory=PairDataConfig)
    text: PairTextConfig = field(default_factory=PairTextConfig)
    model: Seq2SeqModelConfig = field(default_factory=Seq2SeqModelConfig)
    train: TranslationFitConfig = field(default_factory=TranslationFitConfig)
    evaluate: TranslationEvaluateConfig = field(default_factory=TranslationEvaluateConfig)
