"""Models of both halves of CLIP and SigLIP: their files in both directions.

``clip.py`` and ``siglip.py`` have the halves that read images, ``clip_text.py`` and ``siglip_text.py`` the
halves that read texts.
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
from glassformer.runtime import computing


@dataclass(frozen=True)
class PairFormat:
    """The file format of a model of both halves.

    Args:
        image, text: the modules of the halves.
        shared: our names of the tensors that compare both halves -> the Hub's.
    """

    image: ModuleType
    text: ModuleType
    shared: Mapping[str, str]


FORMATS = {  # by ``model_type``
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
    """Our config from a ``config.json`` of both halves.

    Raises:
        CheckpointError: another ``model_type``, one half alone, or an invalid value.
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
        return ImageTextConfig(image, *clip_text.read(clip.half(settings, "text_config", where), where))
    except ConfigError as error:  # inconsistent sizes
        raise CheckpointError(str(error), where=where, fix="Download it again, or correct it") from None


def write(config: ImageTextConfig) -> dict[str, Any]:
    """``config.json`` of both halves."""
    if config.end_token == "last":  # SigLIP
        image = write_settings(siglip.SETTINGS, config.image) | {"model_type": "siglip_vision_model"}
        halves = {"vision_config": image, "text_config": siglip_text.write(config.text, config.width)}
        return {"model_type": siglip.PAIR_MODEL_TYPE, "architectures": ["SiglipModel"], **halves}
    width = {"projection_dim": config.width}
    image = write_settings(clip.SETTINGS, config.image) | {"model_type": "clip_vision_model"}
    text = clip_text.write(config.text, config.end_token)
    halves = {"vision_config": image | width, "text_config": text | width}
    return {"model_type": clip.PAIR_MODEL_TYPE, "architectures": ["CLIPModel"], **width, **halves}


def _format(config: ImageTextConfig) -> PairFormat:
    # SigLIP's texts end with padding, so that the last row is read; CLIP's have an end token.
    is_siglip = config.end_token == "last"
    return FORMATS[siglip.PAIR_MODEL_TYPE if is_siglip else clip.PAIR_MODEL_TYPE]


def from_hub(tensors: dict[str, Tensor], where: str, config: ImageTextConfig) -> dict[str, Tensor]:
    """Convert the Hub's tensors of both halves to ours.

    Raises:
        CheckpointError: unknown or missing tensors.
    """
    form = _format(config)
    halves = {
        "image": form.image.from_hub(tensors, where, config.image),
        "text": form.text.NAMES.from_hub(tensors, where),
    }
    out = {f"{half}.{name}": tensor for half, part in halves.items() for name, tensor in part.items()}
    shared = {ours: tensors[theirs] for ours, theirs in form.shared.items() if theirs in tensors}
    scalars = {name: shared[name].reshape(()) for name in ("logit_scale", "logit_bias") if name in shared}
    return out | shared | scalars


def to_hub(tensors: dict[str, Tensor], config: ImageTextConfig) -> dict[str, Tensor]:
    """Convert our tensors of both halves to the Hub's."""
    form = _format(config)
    rest = {name: tensor for name, tensor in tensors.items() if name not in form.shared}
    image, text = (
        {name.removeprefix(half): tensor for name, tensor in rest.items() if name.startswith(half)}
        for half in ("image.", "text.")
    )
    shared = {theirs: tensors[ours] for ours, theirs in form.shared.items()}
    if config.has_biases:  # SigLIP's are vectors of one number
        shared |= {name: shared[name].reshape(1) for name in ("logit_scale", "logit_bias")}
    return form.image.to_hub(image, True, config.image) | form.text.NAMES.to_hub(text, True) | shared


def has_both_halves(folder: Path) -> bool:
    """Whether a folder holds a model of both halves, by its ``config.json``."""
    file = folder / "config.json"
    settings = read_json(file) if file.is_file() else {}
    is_classifier = str(settings.get("architectures")).endswith("ForImageClassification']")
    return settings.get("model_type") in FORMATS and "text_config" in settings and not is_classifier


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
