"""A fitted classifier as one folder: the Hub's layout, ``glassformer.json``, and a manifest written last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import write_folder
from glassformer.checkpoints.huggingface import save_pretrained
from glassformer.config import plain
from glassformer.runtime import versions

FORMAT = 1  # of glassformer.json


def save_classifier(clf: Any, path: str | Path, overwrite: bool = False) -> Path:
    """Write everything that prediction needs; see ``Estimator.save``."""

    def write(folder: Path) -> None:
        save_pretrained(clf.model_, folder, label_names=tuple(map(str, clf.classes_.tolist())))
        about = {
            "format": FORMAT,
            "kind": type(clf).__name__,
            "parameters": clf.get_params(deep=False),
            "classes": clf.classes_.tolist(),
            "temperature": clf.temperature_,
            "threshold": clf.threshold_,
            "weights_source": clf.weights_source_,
            "best_step": clf.best_step_,
            "train_seconds": clf.train_seconds_,
            "versions": versions(),
            **clf._write_parts(folder),
        }
        text = json.dumps(plain(about), indent=2) + "\n"
        (folder / "glassformer.json").write_text(text, encoding="utf-8")

    return write_folder(path, write, overwrite=overwrite)
