"""Folders of the recurrent and convolutional classifiers: a layout of our own, because the Hub has none for them.

``config.json`` says ``model_type: glassformer-rnn`` or ``glassformer-textcnn``, which ``transformers`` refuses by name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glassformer.checkpoints.layout import filled
from glassformer.checkpoints.settings import section
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.config import build, to_dict
from glassformer.models.packed import PackedClassifier
from glassformer.models.rnn import Rnn, RnnConfig
from glassformer.models.textcnn import TextCnn, TextCnnConfig

KINDS: dict[str, tuple[type, type]] = {
    "glassformer-rnn": (RnnConfig, Rnn),
    "glassformer-textcnn": (TextCnnConfig, TextCnn),
}


def save_baseline(model: PackedClassifier, folder: Path, label_names: tuple[str, ...] = ()) -> None:
    """Write ``config.json`` and the weights into an existing folder."""
    kind = next(name for name, (_, cls) in KINDS.items() if isinstance(model, cls))
    settings: dict[str, Any] = {"model_type": kind, "architecture": to_dict(model.config)}
    if label_names:
        settings["id2label"] = {str(i): name for i, name in enumerate(label_names)}
        settings["label2id"] = {name: i for i, name in enumerate(label_names)}
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    write_tensors(folder, {k: v.float() for k, v in model.state_dict().items()})


def load_baseline(settings: dict[str, Any], folder: Path, source: str) -> PackedClassifier:
    """The model in a folder, in fp32, in evaluation mode.

    Raises:
        CheckpointError: a tensor is missing, left over or of another shape.
    """
    config_class, model_class = KINDS[settings["model_type"]]
    where = f"{folder}/config.json"
    config = build(config_class, section(settings, "architecture", where), where)
    model = filled(model_class, config, read_tensors(folder), str(folder))
    model.weights_source = source
    return model.eval()
