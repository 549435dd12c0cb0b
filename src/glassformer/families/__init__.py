"""One file a ``model_type``: config and names both ways, head layout, presets. ``FAMILIES`` lists them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from glassformer.checkpoints.names import NameTable
from glassformer.families.baselines import HOG, RNN, TEXTCNN, TFIDF
from glassformer.families.bert import BERT
from glassformer.families.dinov2 import DINOV2, DINOV2_REGISTERS
from glassformer.families.distilbert import DISTILBERT
from glassformer.families.electra import ELECTRA
from glassformer.families.family import Family
from glassformer.families.modernbert import MODERNBERT
from glassformer.families.mpnet import MPNET
from glassformer.families.own import OWN_IMAGE, OWN_TEXT
from glassformer.families.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from glassformer.families.vit import VIT

FAMILIES: dict[str, Family] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": XLM_ROBERTA,
    "camembert": CAMEMBERT,
    "distilbert": DISTILBERT,
    "electra": ELECTRA,
    "mpnet": MPNET,
    "modernbert": MODERNBERT,
    "vit": VIT,
    "dinov2": DINOV2,
    "dinov2_with_registers": DINOV2_REGISTERS,
    "glassformer-text": OWN_TEXT,
    "glassformer-image": OWN_IMAGE,
    "glassformer-rnn": RNN,
    "glassformer-textcnn": TEXTCNN,
    "glassformer-tfidf": TFIDF,
    "glassformer-hog": HOG,
}


def _presets(reads: str) -> dict[str, Callable[..., Any]]:
    found = [family for family in FAMILIES.values() if family.model.reads == reads]
    return {name: preset for family in found for name, preset in family.presets.items()}


# Names of random weights -> a function that gives the config; those of trained ones: ``checkpoints/hub.py``.
TEXT_ARCHITECTURES = _presets("texts")
IMAGE_ARCHITECTURES = _presets("images")
PRETRAINING = {name: preset for family in FAMILIES.values() for name, preset in family.pretraining.items()}
SCRATCH = next(iter(PRETRAINING))  # what is pre-trained unless a checkpoint is named


def names_of(config: Any) -> NameTable:
    """The Hub's names for a model of this config; else those of the encoder's first family."""
    like = [family_of(config), *(f for f in FAMILIES.values() if f.config is type(config))]
    return next(family.hub.names for family in like if family.hub is not None)


def family_of(config: Any) -> Family:
    """The family that writes a model of this config down: the Hub's where one can express it, else ours."""
    able = [family for family in FAMILIES.values() if family.config is type(config)]
    return next(
        f for f in able if f.hub is None or (config.head in f.hub.classes and f.hub.expresses(config))
    )
