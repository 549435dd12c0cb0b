"""LSTM, GRU, TextCNN, TF-IDF and HOG: layouts of our own, because the Hub has none for them, and presets.

``config.json`` says ``model_type: glassformer-rnn`` or ``glassformer-textcnn``, which ``transformers``
refuses by name.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from glassformer.errors import NotForThisModelError, UnknownKeyError
from glassformer.families.family import Family
from glassformer.models.hog import HogImage, HogImageConfig
from glassformer.models.linear import FeaturesConfig, LinearConfig, LinearText
from glassformer.models.rnn import Rnn, RnnConfig
from glassformer.models.textcnn import TextCnn, TextCnnConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.hog import HogConfig
from glassformer.nn.recurrent import Cell


def lstm(vocab_size: int, cell: Cell = "lstm") -> RnnConfig:
    """One bidirectional layer of 128 on 128-wide word vectors, dropout 0.2."""
    return RnnConfig(
        EmbeddingConfig(vocab_size, 128, "none", segments=0, norm=False, dropout=0.2), cell, 128, dropout=0.2
    )


def gru(vocab_size: int) -> RnnConfig:
    """The same with a GRU."""
    return lstm(vocab_size, "gru")


def textcnn(vocab_size: int) -> TextCnnConfig:
    """100 filters each of 3, 4 and 5 words on 128-wide word vectors, dropout 0.5."""
    return TextCnnConfig(EmbeddingConfig(vocab_size, 128, "none", segments=0, norm=False))


# What both have of the keys that are unset unless a recipe gives them.
SHARED = ("d_model", "embedding_std", "embedding_dim", "vectors", "dropout", "head_hidden", "revision")


def _laid_over(preset: Any, section: Any, num_labels: int, known: tuple[str, ...], **values: Any) -> Any:
    """A preset with a recipe's model section over it; ``known`` are the keys that both kinds do not share.

    Raises:
        ConfigError: a key that it does not have.
    """
    for key in (f.name for f in fields(section) if f.default is None):
        if key not in (*SHARED, *known) and getattr(section, key) is not None:
            raise UnknownKeyError(f"{section.model!r} has no {key}", where=key, fix="Leave it out")
    width = {"d_model": section.embedding_dim, "dropout": section.dropout if known else None}
    embedding = replace(preset.embedding, frozen=section.freeze_vectors, **_given(width))
    keys = ("d_model", "dropout", "embedding_std", *known)
    values = {key: getattr(section, key) for key in keys} | values
    return replace(
        preset,
        embedding=embedding,
        num_labels=num_labels,
        head_type=section.head,
        head_hidden=section.head_hidden,
        head_dropout=section.head_dropout,
        head_activation=section.head_activation,
        head_input_dropout=section.head_input_dropout,
        **_given(values),
    )


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def configure_rnn(preset: RnnConfig, section: Any, num_labels: int) -> RnnConfig:
    """See ``Family.configure``; ``pooling = "auto"`` reads the last states."""
    pooling = None if section.pooling == "auto" else section.pooling
    return _laid_over(preset, section, num_labels, ("num_layers", "bidirectional"), pooling=pooling)


def configure_textcnn(preset: TextCnnConfig, section: Any, num_labels: int) -> TextCnnConfig:
    """See ``Family.configure``.

    Raises:
        ConfigError: a pooling; each filter has its own.
    """
    pooling = None if section.pooling == "auto" else section.pooling
    config = _laid_over(preset, section, num_labels, (), pooling=pooling)
    if pooling not in (None, "max", "tokens"):
        what = "a TextCNN takes the largest answer of each filter"
        raise NotForThisModelError(what, where="pooling", fix="Leave it out")
    return config


RNN = Family(
    "glassformer-rnn",
    Rnn,
    RnnConfig,
    lambda: RnnConfig(EmbeddingConfig(31, 5, "none", segments=0, norm=False), d_model=7, num_labels=3),
    presets={"lstm": lstm, "gru": gru},
    configure=configure_rnn,
)
TEXTCNN = Family(
    "glassformer-textcnn",
    TextCnn,
    TextCnnConfig,
    lambda: TextCnnConfig(
        EmbeddingConfig(31, 5, "none", segments=0, norm=False), d_model=7, dropout=0.0, num_labels=3
    ),
    presets={"textcnn": textcnn},
    configure=configure_textcnn,
)


# --- TF-IDF and HOG -------------------------------------------------------------------------------
#
# ``config.json`` says ``model_type: glassformer-tfidf``, or ``glassformer-hog`` of images; n-grams stand
# beside it in ``ngrams.json``. Their weights are solved, not trained: ``tasks/text_classification/tfidf.py``,
# and for images ``train/solved_head.py``.


# Of a recipe's model section, what says nothing of the layers of a network.
KNOWN = ("model", "revision")


def tfidf(vocab_size: int) -> LinearConfig:
    """One weight for each n-gram and class."""
    return LinearConfig(FeaturesConfig(vocab_size))


def hog(image_size: tuple[int, ...] = (48, 48), patch_size: tuple[int, ...] = (8, 8)) -> HogImageConfig:
    """One weight for each class and value of a cell of 8 pixels; at 48 pixels 36 cells of 39 values each."""
    return HogImageConfig(HogConfig(image_size, patch_size))


def _with_labels(preset: Any, section: Any, num_labels: int, known: tuple[str, ...], encoder: str) -> Any:
    """See ``Family.configure``.

    Raises:
        ConfigError: a key of networks with layers.
    """
    usual = {f.name: f.default for f in fields(section)}
    for key, value in usual.items():
        if key not in known and getattr(section, key) != value:
            what = f"a linear model has no {key}"
            raise NotForThisModelError(
                what, where=key, fix=f"Leave it out, or name an encoder: model={encoder}"
            )
    return replace(preset, num_labels=num_labels)


def configure_tfidf(preset: LinearConfig, section: Any, num_labels: int) -> LinearConfig:
    """See ``_with_labels``."""
    return _with_labels(preset, section, num_labels, KNOWN, "all-minilm-l6-v2")


def configure_hog(preset: HogImageConfig, section: Any, num_labels: int) -> HogImageConfig:
    """See ``_with_labels``; ``patch_size`` is that of a cell."""
    return _with_labels(preset, section, num_labels, (*KNOWN, "patch_size"), "dinov2-small")


TFIDF = Family(
    "glassformer-tfidf",
    LinearText,
    LinearConfig,
    lambda: LinearConfig(FeaturesConfig(31), num_labels=3),
    presets={"tfidf": tfidf},
    configure=configure_tfidf,
)
HOG = Family(
    "glassformer-hog",
    HogImage,
    HogImageConfig,
    lambda: HogImageConfig(HogConfig((8, 8), (4, 4)), num_labels=3),
    presets={"hog": hog},
    configure=configure_hog,
)
