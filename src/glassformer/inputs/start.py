"""Saved models of ours that a classifier is to begin from: which it can, and what to do with the others."""

from __future__ import annotations

from pathlib import Path

from glassformer.checkpoints.catalog import CATALOG, IMAGE_ENCODER
from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.settings import about_in, section, shown
from glassformer.errors import NotForThisModelError
from glassformer.families import FAMILIES

GOES_ON = {"texts": "TextClassifier", "images": "ImageClassifier"}  # what a body reads -> who goes on
LINEAR = "linear"  # a model without layers
INSTEAD = (
    "Begin from a classifier, from a MaskedLM that was trained on your texts, or from an architecture; "
    "word vectors go into one: TextClassifier('lstm', vectors=FOLDER)"
)


def check_start(model: str, reads: str) -> None:
    """Raises ConfigError where a folder, or the run in it, holds an estimator of ours that no classifier of
    ``reads`` ("texts" or "images") can begin from; folders of others, names and ids pass."""
    folder = Path(model).expanduser()
    if model.lower() in CATALOG or not folder.is_dir():
        return
    inner, about = about_in(folder)
    if not about:
        return
    kind = about.get("kind", "TextClassifier")  # the first ones did not say
    body = _read_by(inner / "config.json")
    if body is None:
        name = shown(kind).strip("'")
        what = f"holds a {name}, which has no encoder for a classifier"
        raise NotForThisModelError(what, where=str(folder), fix=INSTEAD)
    if body == LINEAR:
        what = "holds a linear model, which has no encoder to continue from"
        new, encoder = ("tfidf", "all-minilm-l6-v2") if reads == "texts" else ("hog", IMAGE_ENCODER)
        fix = f"Fit a new one with model={new}, or begin from an encoder: model={encoder}"
        raise NotForThisModelError(what, where=str(folder), fix=fix)
    if body != reads:
        fix = f"Continue with {GOES_ON[body]}(folder)"
        raise NotForThisModelError(f"holds a model of {body}", where=str(folder), fix=fix)


def _read_by(file: Path) -> str | None:
    """What the body that a ``config.json`` describes reads, or ``LINEAR``; None: no family has it."""
    settings = read_json(file) if file.is_file() else {}
    kind = settings.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        return None
    if getattr(family.model, "fixed", False):
        return LINEAR
    # A recurrent translator has the ``model_type`` of a recurrent classifier, and two vocabularies.
    own = family.hub is not None or "embedding" in section(settings, "architecture", str(file))
    return family.model.reads if own else None
