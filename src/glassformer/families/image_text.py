"""Models of both halves of CLIP (``model_type`` clip): their files in both directions.

``clip.py`` has the half that reads images, ``clip_text.py`` the half that reads texts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.checkpoints.layout import model_from_state
from glassformer.checkpoints.layout import write_model as write_folder
from glassformer.checkpoints.settings import get_size, shorten
from glassformer.checkpoints.tensors import read_tensors
from glassformer.errors import CheckpointError, ConfigError, UnsupportedModelError
from glassformer.families import clip, clip_text
from glassformer.families.settings import write_settings
from glassformer.models.image_text import ImageTextConfig, ImageTextModel
from glassformer.runtime import computing

SHARED = {  # our names -> the Hub's
    "image.pooling.project.weight": "visual_projection.weight",
    "text_projection.weight": "text_projection.weight",
    "logit_scale": "logit_scale",
}


def read(settings: dict[str, Any], where: str) -> ImageTextConfig:
    """Our config from a ``config.json`` of both halves.

    Raises:
        CheckpointError: another ``model_type``, one half alone, or an invalid value.
    """
    if settings.get("model_type") != clip.PAIR_MODEL_TYPE:
        what = f"model_type {shorten(settings.get('model_type'))} does not compare images with texts"
        raise UnsupportedModelError(
            what, where=where, fix=f"Name a folder of model_type {clip.PAIR_MODEL_TYPE!r}"
        )
    try:
        width = get_size(settings, "projection_dim", where, 512)
        image = replace(clip.read(settings, where), pooling="first-norm", projection=width)
        return ImageTextConfig(image, *clip_text.read(clip.half(settings, "text_config", where), where))
    except ConfigError as error:  # inconsistent sizes
        raise CheckpointError(str(error), where=where, fix="Download it again, or correct it") from None


def write(config: ImageTextConfig) -> dict[str, Any]:
    """``config.json`` of both halves."""
    width = {"projection_dim": config.image.projection}
    image = write_settings(clip.SETTINGS, config.image) | {"model_type": "clip_vision_model"}
    text = clip_text.write(config.text, config.end_token)
    halves = {"vision_config": image | width, "text_config": text | width}
    return {"model_type": clip.PAIR_MODEL_TYPE, "architectures": ["CLIPModel"], **width, **halves}


def from_hub(tensors: dict[str, Tensor], where: str, config: ImageTextConfig) -> dict[str, Tensor]:
    """Convert the Hub's tensors of both halves to ours.

    Raises:
        CheckpointError: unknown or missing tensors.
    """
    halves = {
        "image": clip.from_hub(tensors, where, config.image),
        "text": clip_text.NAMES.from_hub(tensors, where),
    }
    out = {f"{half}.{name}": tensor for half, part in halves.items() for name, tensor in part.items()}
    return out | {ours: tensors[theirs] for ours, theirs in SHARED.items() if theirs in tensors}


def to_hub(tensors: dict[str, Tensor], config: ImageTextConfig) -> dict[str, Tensor]:
    """Convert our tensors of both halves to the Hub's."""
    rest = {name: tensor for name, tensor in tensors.items() if name not in SHARED}
    image, text = (
        {name.removeprefix(half): tensor for name, tensor in rest.items() if name.startswith(half)}
        for half in ("image.", "text.")
    )
    shared = {theirs: tensors[ours] for ours, theirs in SHARED.items()}
    return clip.to_hub(image, True, config.image) | clip_text.NAMES.to_hub(text, True) | shared


def has_both_halves(folder: Path) -> bool:
    """Whether a folder holds a model of both halves, by its ``config.json``."""
    file = folder / "config.json"
    settings = read_json(file) if file.is_file() else {}
    return settings.get("model_type") == clip.PAIR_MODEL_TYPE and "text_config" in settings


@computing(gradients=True)
def load_image_text(name: str | Path, revision: str | None = None) -> ImageTextModel:
    """Load both halves from a folder or a Hub id; fp32, evaluation mode.

    Raises:
        CheckpointError: the checkpoint does not exist, it is not of both halves, or tensors are missing,
            unknown or misshapen.
    """
    folder, source, _ = resolve_checkpoint(name, revision)
    config = read(read_json(folder / "config.json"), f"{folder}/config.json")
    state = from_hub(read_tensors(folder), str(folder), config)
    model = model_from_state(ImageTextModel, config, state, str(folder))
    model.image.weights_source = model.text.weights_source = f"{source}: encoder"
    return model.eval()


def save_image_text(model: ImageTextModel, folder: str | Path) -> None:
    """Write ``config.json`` and the weights of both halves into a folder, which ``transformers`` opens."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_folder(Path(folder), write(model.config), to_hub(dict(model.state_dict()), model.config), None)
