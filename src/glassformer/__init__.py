"""Transformers you can see through."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:  # the names of `_PUBLIC` for type checkers, which do not run `__getattr__`
    from glassformer import data, errors, models, nn
    from glassformer.errors import GlassformerError, InputError
    from glassformer.families.pretrained import load_pretrained, save_pretrained
    from glassformer.nn.trace import Trace
    from glassformer.packing import Packing
    from glassformer.process import tune_process
    from glassformer.tasks.image_classification.estimator import ImageClassifier, ImageRegressor
    from glassformer.tasks.load import load
    from glassformer.tasks.masked_lm.estimator import MaskedLM
    from glassformer.tasks.masked_patches.estimator import MaskedPatches
    from glassformer.tasks.probe import Probe
    from glassformer.tasks.question_answering.estimator import QuestionAnswerer, TextAnswerer
    from glassformer.tasks.similarity.estimator import Embedder
    from glassformer.tasks.text_classification.estimator import TextClassifier, TextRegressor
    from glassformer.tasks.token_tagging.estimator import TokenTagger
    from glassformer.tasks.translation.estimator import Translator
    from glassformer.tasks.word2vec.estimator import Word2Vec
    from glassformer.tasks.zero_shot import ZeroShotClassifier, ZeroShotImageClassifier

# Public name -> its module, which is imported at the first use so that ``import glassformer`` is fast
_PUBLIC = {
    "TextClassifier": "glassformer.tasks.text_classification.estimator",
    "Word2Vec": "glassformer.tasks.word2vec.estimator",
    "Translator": "glassformer.tasks.translation.estimator",
    "MaskedLM": "glassformer.tasks.masked_lm.estimator",
    "MaskedPatches": "glassformer.tasks.masked_patches.estimator",
    "ImageClassifier": "glassformer.tasks.image_classification.estimator",
    "TextRegressor": "glassformer.tasks.text_classification.estimator",
    "ImageRegressor": "glassformer.tasks.image_classification.estimator",
    "Embedder": "glassformer.tasks.similarity.estimator",
    "Probe": "glassformer.tasks.probe",
    "ZeroShotClassifier": "glassformer.tasks.zero_shot",
    "ZeroShotImageClassifier": "glassformer.tasks.zero_shot",
    "QuestionAnswerer": "glassformer.tasks.question_answering.estimator",
    "TextAnswerer": "glassformer.tasks.question_answering.estimator",
    "TokenTagger": "glassformer.tasks.token_tagging.estimator",
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

__all__ = [
    "Embedder",
    "GlassformerError",
    "ImageClassifier",
    "ImageRegressor",
    "InputError",
    "MaskedLM",
    "MaskedPatches",
    "Packing",
    "Probe",
    "QuestionAnswerer",
    "TextAnswerer",
    "TextClassifier",
    "TextRegressor",
    "TokenTagger",
    "Trace",
    "Translator",
    "Word2Vec",
    "ZeroShotClassifier",
    "ZeroShotImageClassifier",
    "__version__",
    "data",
    "errors",
    "load",
    "load_pretrained",
    "models",
    "nn",
    "save_pretrained",
    "tune_process",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    if name in _MODULES:
        return import_module(f"glassformer.{name}")
    raise AttributeError(f"module 'glassformer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
