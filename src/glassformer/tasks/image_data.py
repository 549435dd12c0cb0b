"""The images of a run, whatever is learned from them: the value of white, and which cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glassformer.checkpoints.native import newest_fingerprint
from glassformer.data.image import ImageRange
from glassformer.data.image import leave_out as without_unreadable_of
from glassformer.tasks.image_classification.build import build_transform, is_image_architecture
from glassformer.tasks.image_classification.recipe import ImageConfig, ImageModelConfig


def first_range(image: ImageConfig, model: ImageModelConfig, folder: Path) -> ImageRange:
    """``image_range`` that a training in a run's folder begins with, told before a model is fetched."""
    if not (is_image_architecture(model.model) or Path(model.model).expanduser().is_dir()):
        return image.image_range
    return build_transform(image, model, newest_fingerprint(folder / "checkpoints")).image_range


def leave_out(splits: Any, work: Any) -> tuple[Any, list[str]]:
    """A run's splits without the pictures that cannot be read, and what was left out of each.

    Raises:
        DataError: a split of which none is left.
    """
    transform = getattr(work.estimator, "transform_", None)
    image_range = work.recipe.image.image_range if transform is None else transform.image_range
    return without_unreadable_of(splits, image_range or "full")
