"""Images: how a run reads and examines them, and the transform between a file and pixel values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from glassformer.checkpoints.catalog import AUTO, CATALOG, IMAGE_ENCODER, IMAGE_SCRATCH
from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.hub import is_at_hand, resolve_checkpoint
from glassformer.checkpoints.native import newest_fingerprint
from glassformer.checkpoints.settings import ABOUT
from glassformer.config import nearest
from glassformer.data.dataset import Dataset
from glassformer.data.findings import DoctorReport
from glassformer.data.image import ImageRange, leave_out, refuse_unreadable
from glassformer.data.image_doctor import examine_pictures
from glassformer.data.image_sources import load_image_dataset
from glassformer.data.transform import ImageTransform
from glassformer.errors import ConfigError
from glassformer.families import IMAGE_ARCHITECTURES, family_of
from glassformer.finite import json_text
from glassformer.inputs.inputs import Inputs, options
from glassformer.inputs.start import check_start

TRANSFORM_FILE = "preprocessor_config.json"


class Images(Inputs):
    """One image an example."""

    packages = ("pillow", "kornia", "safetensors", "scikit-learn")
    severities = ("warning", "note")
    notes = "notes"
    fixture_settings: ClassVar = {"image_size": 8, "patch_size": 4}

    def read(self, recipe: Any, source: str, numbers: bool, **part: Any) -> Dataset:
        part.pop("trained", None)  # images are found by themselves
        known = options(recipe.data, "image_column", "label_column", "label_separator", "broken")
        image_range = recipe.image.image_range
        return load_image_dataset(source, image_range=image_range, numbers=numbers, **known, **part)

    def skips(self, d: Any) -> bool:
        return d.broken == "skip"

    def check(self, recipe: Any, splits: Mapping[str, Any], folder: Path) -> None:
        """Those that cannot be read are found before the training, not after it."""
        refuse_unreadable(dict(splits), first_range(recipe.image, recipe.model, folder))

    def examine(self, dataset: Any, est: Any, recipe: Any, held_out: Any) -> DoctorReport:
        return examine_pictures(dataset.name, dataset.splits, dataset.notes, transform=est.transform_)

    def drop_unreadable(self, splits: Any, est: Any, recipe: Any) -> tuple[Any, list[str]]:
        transform = getattr(est, "transform_", None)
        image_range = recipe.image.image_range if transform is None else transform.image_range
        return leave_out(splits, image_range or "full")

    def facts(self, est: Any, splits: Any, recipe: Any) -> dict[str, Any]:
        return {"tokens_per_picture": est.model_.config.embedding.num_tokens}

    def example_fixture(self) -> Sequence[Any]:
        return list(np.random.default_rng(1).integers(0, 256, (7, 8, 8, 3)).astype(np.uint8))


def first_range(image: Any, model: Any, folder: Path) -> ImageRange:
    """``image_range`` that a training in a run's folder begins with, told before a model is fetched.

    Args:
        image, model: sections of a recipe.
    """
    if not (is_image_architecture(model.model) or Path(model.model).expanduser().is_dir()):
        return image.image_range
    return build_transform(image, model, newest_fingerprint(folder / "checkpoints")).image_range


def is_image_architecture(model: str) -> bool:
    """Whether the name means an architecture rather than a checkpoint."""
    return model in IMAGE_ARCHITECTURES


def has_fixed_features(model: str) -> bool:
    """Whether the name means an architecture without random weights: a linear model, which is solved."""
    return is_image_architecture(model) and family_of(IMAGE_ARCHITECTURES[model]()).model.fixed


def build_transform(image: Any, model: Any, begun: Mapping[str, Any] | None = None) -> ImageTransform:
    """The checkpoint's transform, or the architecture's size and plain statistics, with the settings over it.

    Before a fit has chosen, ``auto`` means its encoder where that is at hand: nothing is fetched.

    Args:
        begun: the fingerprint of a training that goes on; one from before there was ``image_range`` has
            taken the range of 16 bits as full.

    Raises:
        ConfigError: no such model, or settings that do not fit each other.
    """
    known = [*IMAGE_ARCHITECTURES, *CATALOG]
    name = model.model
    if name == AUTO:
        name = IMAGE_ENCODER if is_at_hand(IMAGE_ENCODER) else IMAGE_SCRATCH
    if name not in known and "/" not in name and not Path(name).expanduser().exists():
        raise ConfigError(f"no model {name!r}", where="model", fix=nearest(name, known))
    if is_image_architecture(name):
        channels = image.channels or 3
        size = IMAGE_ARCHITECTURES[name]().embedding.image_size
        base = ImageTransform(size, mean=(0.5,) * channels, std=(0.5,) * channels, channels=channels)
    else:
        check_start(name, "pictures")
        if image.channels is not None:
            raise ConfigError("channels belong to from-scratch models", where="channels")
        base = load_transform(resolve_checkpoint(name, model.revision).path)
    size = (image.image_size,) * 2 if image.image_size else base.size
    fit = image.framing or ("crop" if image.resize else base.fit)
    shorter = image.resize or (base.shorter if fit == "crop" else 0)
    if fit == "crop" and image.resize is None and image.image_size:
        shorter = 0 if not base.shorter else round(base.shorter * image.image_size / base.size[0])
    return replace(
        base,
        size=size,
        fit=fit,
        shorter=shorter,
        interpolation=image.interpolation or base.interpolation,
        mean=tuple(image.mean) or base.mean,
        std=tuple(image.std) or base.std,
        image_range=image.image_range or _range(base, begun),
    )


def saved_range(folder: Path) -> ImageRange:
    """``image_range`` of a saved model, or of a run's; ``full`` where there is none of images."""
    for place in (folder, folder / "model"):
        if (place / TRANSFORM_FILE).is_file():
            return load_transform(place, before="full" if (place / ABOUT).is_file() else None).image_range
    return "full"


def _range(base: ImageTransform, begun: Mapping[str, Any] | None) -> ImageRange:
    """``image_range`` where none is given: the checkpoint's if that is a number."""
    if begun is not None and "image_range" not in begun:
        return "full"
    return None if base.image_range == "full" else base.image_range


def save_transform(transform: ImageTransform, folder: Path) -> None:
    """``preprocessor_config.json``, as the Hub has it."""
    text = json_text(transform.to_hub(), indent=2, ascii=True) + "\n"
    (folder / TRANSFORM_FILE).write_text(text, encoding="utf-8")


def load_transform(folder: Path, before: ImageRange = None) -> ImageTransform:
    """The reverse.

    Args:
        before: ``image_range`` where the file is from before there was such a setting.

    Raises:
        CheckpointError: no such file, or it is damaged.
        ConfigError: a step that we do not have.
    """
    return ImageTransform.from_hub(read_json(folder / TRANSFORM_FILE), str(folder / TRANSFORM_FILE), before)
