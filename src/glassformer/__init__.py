"""Transformers you can see through."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

# These settings are read when torch is first imported or first multiplies; what the user has set stays.
# Threads that wait for each other sleep instead of spinning: beside other work, spinning is many times slower.
# oneDNN, and torch on top of it (LRU_CACHE_CAPACITY), each keep a compiled product and its workspace for the last
# 1,024 shapes. Packed batches have a new number of rows each time, so most are never asked for again; 64 keep the
# hits, and memory stays flat.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
os.environ.setdefault("LRU_CACHE_CAPACITY", "64")

__version__ = "0.1.0"

# Public name -> where it lives. Loaded on first use, so that ``import glassformer`` costs torch and no more.
_PUBLIC = {
    "TextClassifier": "glassformer.tasks.text_classification.estimator",
    "Word2Vec": "glassformer.tasks.word2vec.estimator",
    "Translator": "glassformer.tasks.translation.estimator",
    "MaskedLM": "glassformer.tasks.masked_lm.estimator",
    "ImageClassifier": "glassformer.tasks.image_classification.estimator",
    "load": "glassformer.tasks.load",
    "load_pretrained": "glassformer.checkpoints.huggingface",
    "save_pretrained": "glassformer.checkpoints.huggingface",
    "Trace": "glassformer.nn.trace",
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
