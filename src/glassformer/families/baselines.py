"""LSTM, GRU, TextCNN, TF-IDF and HOG models.

The Hub has no formats for these models, so they are saved in our own formats. ``transformers`` cannot open
files with their ``model_type`` (``glassformer-rnn`` and so on).
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from glassformer.errors import NotForThisModelError, UnknownKeyError
from glassformer.families.family import Family
from glassformer.models.linear import FeaturesConfig, HogImage, HogImageConfig, LinearConfig, LinearText
from glassformer.models.rnn import Rnn, RnnConfig
from glassformer.models.textcnn import TextCnn, TextCnnConfig
from glassformer.nn.embed import EmbeddingConfig
from glassformer.nn.hog import HogConfig
from glassformer.nn.recurrent import Cell


def lstm(vocab_size: int, cell: Cell = "lstm") -> RnnConfig:
    """One bidirectional LSTM layer of 128 units on word vectors of width 128, dropout 0.2."""
    return RnnConfig(
        EmbeddingConfig(vocab_size, d_model=128, positions="none", segments=0, norm=False, dropout=0.2),
        cell,
        d_model=128,
        dropout=0.2,
    )


def gru(vocab_size: int) -> RnnConfig:
    """Like ``lstm``, with a GRU."""
    return lstm(vocab_size, "gru")


def textcnn(vocab_size: int) -> TextCnnConfig:
    """100 filters for each of the widths 3, 4 and 5 on word vectors of width 128, dropout 0.5."""
    return TextCnnConfig(EmbeddingConfig(vocab_size, d_model=128, positions="none", segments=0, norm=False))


# Optional keys of a recipe's model section that both kinds of models support.
SHARED_KEYS = ("d_model", "embedding_std", "embedding_dim", "vectors", "dropout", "head_hidden", "revision")


def _override(preset: Any, section: Any, num_labels: int, more_keys: tuple[str, ...], **values: Any) -> Any:
    """The preset, updated with the values of a recipe's model section.

    ``more_keys`` are the supported keys in addition to ``SHARED_KEYS``.
    """
    for key in (f.name for f in fields(section) if f.default is None):
        if key not in (*SHARED_KEYS, *more_keys) and getattr(section, key) is not None:
            raise UnknownKeyError(f"{section.model!r} has no {key}", where=key, fix="Leave it out")
    width = {"d_model": section.embedding_dim, "dropout": section.dropout if more_keys else None}
    embedding = replace(preset.embedding, frozen=section.freeze_vectors, **_without_none(width))
    keys = ("d_model", "dropout", "embedding_std", *more_keys)
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
        **_without_none(values),
    )


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def configure_rnn(preset: RnnConfig, section: Any, num_labels: int) -> RnnConfig:
    """See ``Family.configure``; ``pooling = "auto"`` means the final states."""
    pooling = None if section.pooling == "auto" else section.pooling
    return _override(preset, section, num_labels, ("num_layers", "bidirectional"), pooling=pooling)


def configure_textcnn(preset: TextCnnConfig, section: Any, num_labels: int) -> TextCnnConfig:
    """See ``Family.configure``."""
    pooling = None if section.pooling == "auto" else section.pooling
    config = _override(preset, section, num_labels, (), pooling=pooling)
    if pooling not in (None, "max", "tokens"):
        what = "a TextCNN always uses max pooling"
        raise NotForThisModelError(what, where="pooling", fix="Leave it out")
    return config


RNN = Family(
    "glassformer-rnn",
    Rnn,
    RnnConfig,
    lambda: RnnConfig(
        EmbeddingConfig(vocab_size=31, d_model=5, positions="none", segments=0, norm=False),
        d_model=7,
        num_labels=3,
    ),
    presets={"lstm": lstm, "gru": gru},
    configure=configure_rnn,
)
TEXTCNN = Family(
    "glassformer-textcnn",
    TextCnn,
    TextCnnConfig,
    lambda: TextCnnConfig(
        EmbeddingConfig(vocab_size=31, d_model=5, positions="none", segments=0, norm=False),
        d_model=7,
        dropout=0.0,
        num_labels=3,
    ),
    presets={"textcnn": textcnn},
    configure=configure_textcnn,
)


# --- TF-IDF and HOG -------------------------------------------------------------------------------
#
# The n-grams are in ``ngrams.json``. The weights are fitted without gradient steps
# (``tasks/text_classification/tfidf.py`` and ``train/solved_head.py``).


# Keys of a recipe's model section that linear models support.
LINEAR_KEYS = ("model", "revision")


def tfidf(vocab_size: int) -> LinearConfig:
    """A linear model on n-grams."""
    return LinearConfig(FeaturesConfig(vocab_size))


def hog(image_size: tuple[int, ...] = (48, 48), patch_size: tuple[int, ...] = (8, 8)) -> HogImageConfig:
    """A linear model on HOG features; an image of 48 x 48 pixels has 36 cells with 39 features each."""
    return HogImageConfig(HogConfig(image_size, patch_size))


def _with_labels(preset: Any, section: Any, num_labels: int, supported: tuple[str, ...], encoder: str) -> Any:
    """``Family.configure`` of linear models; an error recommends the model ``encoder``."""
    defaults = {f.name: f.default for f in fields(section)}
    for key, value in defaults.items():
        if key not in supported and getattr(section, key) != value:
            what = f"a linear model has no {key}"
            raise NotForThisModelError(
                what, where=key, fix=f"Leave it out, or name an encoder: model={encoder}"
            )
    return replace(preset, num_labels=num_labels)


def configure_tfidf(preset: LinearConfig, section: Any, num_labels: int) -> LinearConfig:
    """See ``_with_labels``."""
    return _with_labels(preset, section, num_labels, LINEAR_KEYS, "all-minilm-l6-v2")


def configure_hog(preset: HogImageConfig, section: Any, num_labels: int) -> HogImageConfig:
    """See ``_with_labels``; ``patch_size`` is the size of a cell."""
    return _with_labels(preset, section, num_labels, (*LINEAR_KEYS, "patch_size"), "dinov2-small")


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
