"""Saved models of ours that a classifier is to begin from: which it can, and what to do with the others."""

from __future__ import annotations

from pathlib import Path

from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.hub import CATALOG
from glassformer.checkpoints.settings import ABOUT, shown
from glassformer.errors import ConfigError

# What ``glassformer.json`` calls an estimator -> what its model reads, and who goes on from it.
BEGINS = {
    "TextClassifier": ("texts", "TextClassifier"),
    "MaskedLM": ("texts", "TextClassifier"),
    "ImageClassifier": ("pictures", "ImageClassifier"),
}
# Those whose weights are no start of a classifier, and what to do instead.
INSTEAD = {
    "Translator": "Begin from a classifier, from a MaskedLM that was trained on your texts, "
    "or from an architecture",
    "Word2Vec": "Give them to a model from scratch: TextClassifier('lstm', vectors=FOLDER)",
}


def check_start(model: str, reads: str) -> None:
    """Raises ConfigError where a folder, or the run in it, holds an estimator of ours that no classifier of
    ``reads`` ("texts" or "pictures") can begin from; folders of others, names and ids pass."""
    folder = Path(model).expanduser()
    if model.lower() in CATALOG or not folder.is_dir():
        return
    file = next((f for f in (folder / ABOUT, folder / "model" / ABOUT) if f.is_file()), None)
    if file is None:
        return
    kind = read_json(file).get("kind", "TextClassifier")  # the first ones did not say
    if kind in INSTEAD:
        what, fix = f"holds a {kind}, which has no encoder for a classifier", INSTEAD[kind]
        raise ConfigError(what, where=str(folder), fix=fix)
    if kind in BEGINS and BEGINS[kind][0] != reads:
        what, fix = f"holds a model of {BEGINS[kind][0]}", f"Go on with {BEGINS[kind][1]}(folder)"
        raise ConfigError(what, where=str(folder), fix=fix)
    if kind not in BEGINS:
        raise ConfigError(f"holds a {shown(kind)}, which this version does not know", where=str(folder))
