"""Transformers you can see through."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Public name -> where it lives. Loaded on first use, so that ``import glassformer`` costs torch and no more.
_PUBLIC = {
    "TextClassifier": "glassformer.tasks.text_classification.estimator",
    "Word2Vec": "glassformer.tasks.word2vec.estimator",
    "Translator": "glassformer.tasks.translation.estimator",
    "MaskedLM": "glassformer.tasks.masked_lm.estimator",
    "ImageClassifier": "glassformer.tasks.image_classification.estimator",
    "load": "glassformer.tasks.load",
    "load_pretrained": "glassformer.families.pretrained",
    "save_pretrained": "glassformer.families.pretrained",
    "Trace": "glassformer.nn.trace",
    "tune_process": "glassformer.process",
    "Packing": "glassformer.packing",
    "GlassformerError": "glassformer.errors",
    "InputError": "glassformer.errors",
}
_MODULES = ("nn", "models", "data", "errors")

__all__ = [*_PUBLIC, *_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    if name in _MODULES:
        return import_module(f"glassformer.{name}")
    raise AttributeError(f"module 'glassformer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
