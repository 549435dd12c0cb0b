"""A linear model on TF-IDF features of words and characters: a layout of our own.

``config.json`` says ``model_type: glassformer-tfidf``; the n-grams stand beside it in ``ngrams.json``. Its
weights are solved, not trained: ``tasks/text_classification/tfidf.py``.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from glassformer.errors import ConfigError
from glassformer.families.family import Family
from glassformer.models.linear import FeaturesConfig, LinearConfig, LinearText

# Of a recipe's model section, what says nothing of the layers of a network.
KNOWN = ("model", "revision")


def tfidf(vocab_size: int) -> LinearConfig:
    """One weight for each n-gram and class."""
    return LinearConfig(FeaturesConfig(vocab_size))


def configure(preset: LinearConfig, section: Any, num_labels: int) -> LinearConfig:
    """See ``Family.configure``.

    Raises:
        ConfigError: a key of networks with layers.
    """
    usual = {f.name: f.default for f in fields(section)}
    for key, value in usual.items():
        if key not in KNOWN and getattr(section, key) != value:
            what = f"a linear model has no {key}"
            raise ConfigError(what, where=key, fix="Leave it out, or name an encoder: model=all-minilm-l6-v2")
    return replace(preset, num_labels=num_labels)


TFIDF = Family(
    "glassformer-tfidf",
    LinearText,
    LinearConfig,
    lambda: LinearConfig(FeaturesConfig(31), num_labels=3),
    presets={"tfidf": tfidf},
    configure=configure,
)
