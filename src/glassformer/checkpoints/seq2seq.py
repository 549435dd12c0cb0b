"""Read and write translation models.

A folder has ``config.json``, with a model type of glassformer, and ``model.safetensors``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.layout import check_tensors, create_model, create_on_meta
from glassformer.checkpoints.settings import get_section, shorten
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.config import build, to_dict
from glassformer.errors import UnsupportedModelError
from glassformer.finite import json_text
from glassformer.models.seq2seq import TransformerConfig, TransformerSeq2Seq
from glassformer.models.seq2seq_rnn import RecurrentConfig, RecurrentSeq2Seq

KINDS: dict[str, tuple[type, type]] = {
    "glassformer-transformer": (TransformerConfig, TransformerSeq2Seq),
    "glassformer-rnn": (RecurrentConfig, RecurrentSeq2Seq),
}


def save_seq2seq(model: Any, folder: str | Path) -> None:
    """Write ``config.json`` and the weights to an existing folder; shared embeddings are written once."""
    folder = Path(folder)
    kind = next(name for name, (_, cls) in KINDS.items() if isinstance(model, cls))
    settings = {"model_type": kind, "architecture": to_dict(model.config)}
    text = json_text(settings, indent=2, sort_keys=True, ascii=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    write_tensors(folder, {name: p.detach().float() for name, p in model.named_parameters()})


def load_seq2seq(folder: str | Path) -> Any:
    """Load the model in a folder, in fp32 and evaluation mode.

    Raises:
        CheckpointError: the folder has another kind of model, or tensors do not match the config.
    """
    folder = Path(folder)
    settings = read_json(folder / "config.json")
    kind = settings.get("model_type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise UnsupportedModelError(
            f"model_type {shorten(kind)} is not a translator",
            where=f"{folder}/config.json",
            fix=f"Known: {', '.join(KINDS)}",
        )
    config_class, model_class = KINDS[kind]
    where, tensors = f"{folder}/config.json", read_tensors(folder)
    config = build(config_class, get_section(settings, "architecture", where), where)
    expected = dict(create_on_meta(model_class, config, len(tensors), str(folder)).named_parameters())
    check_tensors(expected, tensors, str(folder))
    model = create_model(model_class, config, str(folder))
    parameters = dict(model.named_parameters())
    for name, tensor in tensors.items():
        parameters[name].data.copy_(tensor)
    return model.eval()
