"""Model families, one file per ``model_type``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from glassformer.checkpoints.names import NameTable
from glassformer.families.albert import ALBERT
from glassformer.families.baselines import HOG, RNN, TEXTCNN, TFIDF
from glassformer.families.bert import BERT
from glassformer.families.clip import CLIP
from glassformer.families.deberta_v2 import DEBERTA_V2
from glassformer.families.deit import DEIT
from glassformer.families.dinov2 import DINOV2, DINOV2_REGISTERS
from glassformer.families.distilbert import DISTILBERT
from glassformer.families.electra import ELECTRA
from glassformer.families.family import Family
from glassformer.families.gte import GTE
from glassformer.families.modernbert import MODERNBERT
from glassformer.families.mpnet import MPNET
from glassformer.families.nomic_bert import NOMIC_BERT
from glassformer.families.own import OWN_IMAGE, OWN_TEXT
from glassformer.families.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from glassformer.families.siglip import SIGLIP
from glassformer.families.vit import VIT

FAMILIES: dict[str, Family] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": XLM_ROBERTA,
    "camembert": CAMEMBERT,
    "distilbert": DISTILBERT,
    "electra": ELECTRA,
    "albert": ALBERT,
    "deberta-v2": DEBERTA_V2,
    "mpnet": MPNET,
    "modernbert": MODERNBERT,
    "nomic_bert": NOMIC_BERT,
    "gte": GTE,
    "vit": VIT,
    "deit": DEIT,
    "dinov2": DINOV2,
    "dinov2_with_registers": DINOV2_REGISTERS,
    "siglip": SIGLIP,
    "clip": CLIP,
    "glassformer-text": OWN_TEXT,
    "glassformer-image": OWN_IMAGE,
    "glassformer-rnn": RNN,
    "glassformer-textcnn": TEXTCNN,
    "glassformer-tfidf": TFIDF,
    "glassformer-hog": HOG,
}

# ``model_type`` of well-known unsupported encoders -> the reason.
UNSUPPORTED_FAMILIES = {
    "clip_text_model": "CLIP's text encoder can only be loaded together with its image encoder",
    "siglip_text_model": "SigLIP's text encoder can only be loaded together with its image encoder",
    "neobert": "transformers has no code for it that our implementation could be tested against",
    "swin": "it has shifted windows, and merges patches in four stages",
    "swinv2": "it has shifted windows, and merges patches in four stages",
}


def _presets(reads: str) -> dict[str, Callable[..., Any]]:
    families = [family for family in FAMILIES.values() if family.model.reads == reads]
    return {name: preset for family in families for name, preset in family.presets.items()}


# Name of an architecture with random weights -> preset. Names of checkpoints are in ``checkpoints/hub.py``.
TEXT_ARCHITECTURES = _presets("texts")
IMAGE_ARCHITECTURES = _presets("images")
PRETRAINING = {name: preset for family in FAMILIES.values() for name, preset in family.pretraining.items()}
SCRATCH = next(iter(PRETRAINING))  # the default architecture of pre-training from scratch


def find_family(model_type: Any) -> Family | None:
    """The family that reads files with this ``model_type``; None: the model type is not supported."""
    return next((f for name, f in FAMILIES.items() if model_type in (name, *f.aliases)), None)


def hub_names(config: Any) -> NameTable:
    """The Hub's tensor names for a model with this config.

    For a family without a Hub format, they are the names of another family with the same config class.
    """
    families = [family_of(config), *(f for f in FAMILIES.values() if f.config is type(config))]
    return next(family.hub.names for family in families if family.hub is not None)


def family_of(config: Any) -> Family:
    """The family whose format can save a model with this config: a Hub format if possible, else ours."""
    candidates = [family for family in FAMILIES.values() if family.config is type(config)]
    return next(f for f in candidates if f.hub is None or f.hub.can_save(config))
