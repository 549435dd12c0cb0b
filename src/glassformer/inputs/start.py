"""Check whether a classifier can be initialized from a saved model."""

from __future__ import annotations

from pathlib import Path

from glassformer.checkpoints.catalog import CATALOG, IMAGE_ENCODER
from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.settings import find_metadata, get_section, shorten
from glassformer.errors import NotForThisModelError, with_article
from glassformer.families import find_family

ESTIMATORS = {"texts": "TextClassifier", "images": "ImageClassifier"}  # input of a backbone -> estimator
LINEAR = "linear"  # stands for the inputs of a linear model, which has no encoder
SUPPORTED_STARTS = (
    "Start from a classifier, from a MaskedLM that was trained on your texts, or from an architecture; "
    "to start from word vectors: TextClassifier('lstm', vectors=FOLDER)"
)


def check_start(model: str, reads: str) -> None:
    """Raise ConfigError for a folder with a glassformer model that cannot initialize a classifier.

    Args:
        model: a folder, name or Hub id; only folders with a glassformer model are checked.
        reads: the inputs of the classifier, "texts" or "images".
    """
    folder = Path(model).expanduser()
    if model.lower() in CATALOG or not folder.is_dir():
        return
    model_folder, metadata = find_metadata(folder)
    if not metadata:
        return
    estimator = metadata.get("kind", "TextClassifier")  # missing in the oldest models
    backbone_inputs = _inputs_of_backbone(model_folder / "config.json")
    if backbone_inputs is None:
        name = shorten(estimator).strip("'")
        what = f"{with_article(name)} has no encoder for a classifier"
        raise NotForThisModelError(what, where=str(folder), fix=SUPPORTED_STARTS)
    if backbone_inputs == LINEAR:
        what = "a linear model has no encoder to continue from"
        new, encoder = ("tfidf", "all-minilm-l6-v2") if reads == "texts" else ("hog", IMAGE_ENCODER)
        fix = f"Fit a new linear model with model={new}, or start from an encoder: model={encoder}"
        raise NotForThisModelError(what, where=str(folder), fix=fix)
    if backbone_inputs != reads:
        fix = f"Continue with {ESTIMATORS[backbone_inputs]}(folder)"
        what = f"the model reads {backbone_inputs}, not {reads}"
        raise NotForThisModelError(what, where=str(folder), fix=fix)


def _inputs_of_backbone(file: Path) -> str | None:
    """What the backbone of a ``config.json`` reads: "texts", "images" or ``LINEAR``; None: unknown."""
    settings = read_json(file) if file.is_file() else {}
    family = find_family(settings.get("model_type"))
    if family is None:
        return None
    if getattr(family.model, "is_linear", False):
        return LINEAR
    # A recurrent translator has the same ``model_type`` as a recurrent classifier, but two vocabularies.
    classifies = family.hub is not None or "embedding" in get_section(settings, "architecture", str(file))
    return family.model.reads if classifies else None
