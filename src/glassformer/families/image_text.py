"""Load and save CLIP and SigLIP models with both their encoders.

``clip.py`` and ``siglip.py`` have the image encoders; ``clip_text.py``, ``siglip_text.py`` the text encoders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.hub import resolve_checkpoint
from glassformer.checkpoints.layout import model_from_state
from glassformer.checkpoints.layout import write_model as write_folder
from glassformer.checkpoints.settings import get_section, get_size, shorten
from glassformer.checkpoints.tensors import read_tensors
from glassformer.errors import CheckpointError, ConfigError, UnsupportedModelError
from glassformer.families import clip, clip_text, siglip, siglip_text
from glassformer.families.settings import write_settings
from glassformer.models.image_text import ImageTextConfig, ImageTextModel
from glassformer.runtime import isolated_torch


@dataclass(frozen=True)
class PairFormat:
    """The file format of an image-text model.

    Args:
        image, text: the modules of the formats of both encoders.
        shared: our name of a tensor outside both encoders -> the Hub's name.
    """

    image: ModuleType
    text: ModuleType
    shared: Mapping[str, str]


FORMATS = {  # ``model_type`` -> format
    clip.PAIR_MODEL_TYPE: PairFormat(
        clip,
        clip_text,
        {
            "image.pooling.project.weight": "visual_projection.weight",
            "text_projection.weight": "text_projection.weight",
            "logit_scale": "logit_scale",
        },
    ),
    siglip.PAIR_MODEL_TYPE: PairFormat(
        siglip,
        siglip_text,
        {
            "text_projection.weight": "text_model.head.weight",
            "text_projection.bias": "text_model.head.bias",
            "logit_scale": "logit_scale",
            "logit_bias": "logit_bias",
        },
    ),
}


def read(settings: dict[str, Any], where: str) -> ImageTextConfig:
    """Our config from the ``config.json`` of an image-text model.

    Raises:
        CheckpointError: the ``model_type`` is another one, an encoder is missing, or a value is invalid.
    """
    kind = settings.get("model_type")
    if kind not in FORMATS:
        what = f"model_type {shorten(kind)} does not compare images with texts"
        fix = f"Name a folder of model_type {' or '.join(map(repr, FORMATS))}"
        raise UnsupportedModelError(what, where=where, fix=fix)
    try:
        if kind == siglip.PAIR_MODEL_TYPE:
            image = replace(siglip.read(settings, where), pooling="unit-multihead")
            text = get_section(settings, "text_config", where)
            return ImageTextConfig(image, siglip_text.read(text, where, image.encoder.d_model), "last")
        width = get_size(settings, "projection_dim", where, 512)
        image = replace(clip.read(settings, where), pooling="first-norm", projection=width)
        text = clip.encoder_section(settings, "text_config", where)
        return ImageTextConfig(image, *clip_text.read(text, where))
    except ConfigError as error:  # inconsistent sizes
        raise CheckpointError(str(error), where=where, fix="Download it again, or correct it") from None


def write(config: ImageTextConfig) -> dict[str, Any]:
    """The contents of ``config.json``."""
    if config.end_token == "last":  # SigLIP
        image = write_settings(siglip.SETTINGS, config.image) | {"model_type": "siglip_vision_model"}
        sections = {"vision_config": image, "text_config": siglip_text.write(config.text, config.width)}
        return {"model_type": siglip.PAIR_MODEL_TYPE, "architectures": ["SiglipModel"], **sections}
    width = {"projection_dim": config.width}
    image = write_settings(clip.SETTINGS, config.image) | {"model_type": "clip_vision_model"}
    text = clip_text.write(config.text, config.end_token)
    sections = {"vision_config": image | width, "text_config": text | width}
    return {"model_type": clip.PAIR_MODEL_TYPE, "architectures": ["CLIPModel"], **width, **sections}


def _format(config: ImageTextConfig) -> PairFormat:
    # SigLIP reads the last token of a padded text; CLIP reads the end-of-text token.
    is_siglip = config.end_token == "last"
    return FORMATS[siglip.PAIR_MODEL_TYPE if is_siglip else clip.PAIR_MODEL_TYPE]


def from_hub(tensors: dict[str, Tensor], where: str, config: ImageTextConfig) -> dict[str, Tensor]:
    """Convert the Hub's tensors to ours.

    Raises:
        CheckpointError: tensors are unknown or missing.
    """
    pair_format = _format(config)
    encoders = {
        "image": pair_format.image.from_hub(tensors, where, config.image),
        "text": pair_format.text.NAMES.from_hub(tensors, where),
    }
    out = {f"{encoder}.{name}": t for encoder, part in encoders.items() for name, t in part.items()}
    shared = {name: tensors[hub_name] for name, hub_name in pair_format.shared.items() if hub_name in tensors}
    scalars = {name: shared[name].reshape(()) for name in ("logit_scale", "logit_bias") if name in shared}
    return out | shared | scalars


def to_hub(tensors: dict[str, Tensor], config: ImageTextConfig) -> dict[str, Tensor]:
    """Convert our tensors to the Hub's."""
    pair_format = _format(config)
    image, text = (
        {
            name.removeprefix(prefix): tensor
            for name, tensor in tensors.items()
            if name.startswith(prefix) and name not in pair_format.shared
        }
        for prefix in ("image.", "text.")
    )
    shared = {hub_name: tensors[name] for name, hub_name in pair_format.shared.items()}
    if config.has_biases:  # SigLIP stores vectors of one number
        shared |= {name: shared[name].reshape(1) for name in ("logit_scale", "logit_bias")}
    image_tensors = pair_format.image.to_hub(image, True, config.image)
    return image_tensors | pair_format.text.NAMES.to_hub(text, True) | shared


def is_image_text_folder(folder: Path) -> bool:
    """Whether a folder contains both encoders of an image-text model, according to its ``config.json``."""
    file = folder / "config.json"
    settings = read_json(file) if file.is_file() else {}
    is_classifier = str(settings.get("architectures")).endswith("ForImageClassification']")
    return settings.get("model_type") in FORMATS and "text_config" in settings and not is_classifier


@isolated_torch(gradients=True)
def load_image_text(name: str | Path, revision: str | None = None) -> ImageTextModel:
    """Load an image-text model from a folder or a Hub id; in fp32 and evaluation mode.

    Raises:
        CheckpointError: the checkpoint does not exist, it lacks an encoder, or tensors are missing, unknown
            or misshapen.
    """
    folder, source, _ = resolve_checkpoint(name, revision)
    config = read(read_json(folder / "config.json"), f"{folder}/config.json")
    state = from_hub(read_tensors(folder), str(folder), config)
    model = model_from_state(ImageTextModel, config, state, str(folder))
    model.image.weights_source = model.text.weights_source = f"{source}: encoder"
    return model.eval()


def save_image_text(model: ImageTextModel, folder: str | Path) -> None:
    """Write ``config.json`` and the weights of both encoders in the format of ``transformers``."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_folder(Path(folder), write(model.config), to_hub(dict(model.state_dict()), model.config), None)
