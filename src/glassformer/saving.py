"""A fitted classifier as one folder: the Hub's layout, ``glassformer.json``, and a manifest written last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer.checkpoints.files import read_json, verify_folder, write_folder
from glassformer.checkpoints.huggingface import load_pretrained, save_pretrained
from glassformer.data.text import load_tokenizer
from glassformer.errors import CheckpointError
from glassformer.pipeline import save_tokenizer
from glassformer.recipe import fit_parameters
from glassformer.runtime import versions

if TYPE_CHECKING:
    from glassformer.classifier import TextClassifier

FORMAT = 1  # of glassformer.json


def save_classifier(clf: TextClassifier, path: str | Path, overwrite: bool = False) -> Path:
    """Write everything that prediction needs; see ``TextClassifier.save``."""

    def write(folder: Path) -> None:
        save_pretrained(clf.model_, folder, label_names=tuple(map(str, clf.classes_.tolist())))
        save_tokenizer(clf.tokenizer_, folder, clf.max_length)
        about = {
            "format": FORMAT,
            "kind": type(clf).__name__,
            "parameters": clf.get_params(deep=False),
            "classes": clf.classes_.tolist(),
            "temperature": clf.temperature_,
            "threshold": clf.threshold_,
            "weights_source": clf.weights_source_,
            "truncated": clf.truncated_,
            "best_step": clf.best_step_,
            "train_seconds": clf.train_seconds_,
            "versions": versions(),
        }
        text = json.dumps(about, indent=2, default=str) + "\n"
        (folder / "glassformer.json").write_text(text, encoding="utf-8")

    return write_folder(path, write, overwrite=overwrite)


def load(path: str | Path) -> Any:
    """A saved estimator of any kind, every byte checked against its manifest.

    Args:
        path: the folder that ``save`` wrote, or a run folder that holds it as ``model``.

    Raises:
        CheckpointError: no such folder, a missing, cut or changed file (named), or a newer format.
    """
    folder = Path(path)
    if not (folder / "glassformer.json").is_file() and (folder / "model" / "glassformer.json").is_file():
        folder = folder / "model"
    if not folder.is_dir():
        raise CheckpointError("no such folder", where=str(path))
    verify_folder(folder)
    about = read_json(folder / "glassformer.json")
    if about.get("format", 0) > FORMAT:
        what = f"format {about['format']} is newer than this version reads ({FORMAT})"
        raise CheckpointError(what, where=str(folder), fix="Update glassformer")
    kind = about.get("kind", "TextClassifier")
    if kind == "Translator":
        from glassformer.translator import load_translator

        return load_translator(folder, about)
    if kind == "MaskedLM":
        from glassformer.masked_lm import load_masked_lm

        return load_masked_lm(folder, about)
    return _fitted(folder, about)


def _fitted(folder: Path, about: dict[str, Any]) -> TextClassifier:
    from glassformer.classifier import TextClassifier

    known = {k: v for k, v in about["parameters"].items() if k in fit_parameters()}
    known["betas"] = tuple(known.get("betas", (0.9, 0.999)))
    clf = TextClassifier(**known)
    clf.classes_ = np.asarray(about["classes"])
    clf.tokenizer_ = load_tokenizer(folder)
    clf.model_ = load_pretrained(folder)
    clf.temperature_, clf.threshold_ = about.get("temperature", 1.0), about.get("threshold")
    clf.weights_source_ = about.get("weights_source", "unknown")
    clf.truncated_, clf.best_step_ = about.get("truncated", 0), about.get("best_step", 0)
    clf.train_seconds_ = about.get("train_seconds", 0.0)
    if isinstance(clf.class_weight, dict):  # JSON's keys are text
        by_text = {str(label): label for label in about["classes"]}
        clf.class_weight = {by_text.get(key, key): weight for key, weight in clf.class_weight.items()}
    clf.history_ = []
    return clf
