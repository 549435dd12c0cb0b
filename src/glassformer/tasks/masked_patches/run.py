"""Runs of masked autoencoding.

Fine-tune the result with ``glassformer train RECIPE --model RUN/model``. In addition to the files of every
run, they write ``paintings.json``: validation images with masked and reconstructed patches.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.duplicates import digest
from glassformer.data.files import is_system_file
from glassformer.data.image import check_readable, image_files, remove_unreadable
from glassformer.data.image_sources import ImageSplit, load_image_dataset
from glassformer.data.sources import split_files
from glassformer.errors import MissingValueError, counted
from glassformer.inputs.images import initial_image_range
from glassformer.tasks.masked_patches.estimator import MaskedPatches, as_classifier_sections
from glassformer.tasks.masked_patches.recipe import ImageCorpusConfig, PatchesRecipe
from glassformer.tasks.run_steps import named_splits, reload_data, sample_items, split_rows
from glassformer.tasks.task import TINY, DataPreview, RunContext, Task, report_renderer


@dataclass(frozen=True)
class ImageCorpus:
    """Training and validation images."""

    train: ImageSplit
    validation: ImageSplit
    counts: dict[str, int]  # source -> number of images used
    notes: tuple[str, ...] = ()


def load(recipe: PatchesRecipe) -> ImageCorpus:
    """Load the images of all sources of a recipe, and hold some out."""
    d = recipe.data
    images: list[Any] = []
    counts: dict[str, int] = {}
    notes: list[str] = []
    for source in (d.source, *d.also):
        source_images, messages = load_images(source, d, recipe.image.image_range)
        counts[source] = len(source_images)
        images += source_images
        notes += messages
    train_rows, validation_rows = split_rows(len(images), "images", d, list(map(digest, images)))
    all_images = ImageSplit(images, None, ", ".join(counts))
    return ImageCorpus(
        all_images.select(train_rows), all_images.select(validation_rows), counts, tuple(notes)
    )


def load_images(
    source: str, d: ImageCorpusConfig, image_range: float | None = None
) -> tuple[list[Any], list[str]]:
    """The images of one source, and messages about it; ``image_range`` as in ``open_image``."""
    path = Path(source).expanduser() if source else None
    if path is not None and path.is_dir() and not split_files(path) and not _folders(path):
        split = ImageSplit([str(file) for file in image_files(path)], None, str(path))
        if not split.images:
            raise MissingValueError("no images", where=str(path), fix="Put images there, or folders of them")
        splits, notes = {"train": split}, []
    else:
        dataset = load_image_dataset(source, image_column=d.image_column)
        names, notes = named_splits(dataset, d, source), list(dataset.notes)
        splits = {name: split for name, split in dataset.splits.items() if name in names}
    if d.broken == "skip":
        for name, split in splits.items():
            splits[name], messages = remove_unreadable(split, name, image_range=image_range or "full")
            notes += messages
    return sample_items([image for split in splits.values() for image in split.images], d), notes


def _folders(path: Path) -> bool:
    return any(p.is_dir() and not is_system_file(p) for p in path.iterdir())


def preview_data(context: RunContext) -> DataPreview:
    """Check that all images are readable, and describe them."""
    data = context.data
    image_range = initial_image_range(
        *as_classifier_sections(context.recipe.image, context.recipe.model), context.folder
    )
    check_readable({"train": data.train, "validation": data.validation}, image_range)
    counts = ", ".join(f"{n:,} of {source}" for source, n in data.counts.items())
    return DataPreview([f"images: {counts}; {len(data.validation):,} of them held out", *data.notes])


def fit(context: RunContext, **options: Any) -> None:
    """Train on the images that are not held out."""
    context.estimator.fit(context.data.train.images, validation=context.data.validation.images, **options)


def evaluate(context: RunContext) -> dict[str, Any]:
    """Metrics on the validation images."""
    learner, data = context.estimator, context.data
    embedding = learner.model_.config.embedding
    return {
        "hidden": learner.judge(data.validation.images),
        "pictures": data.counts | {"validation": len(data.validation)},
        "tokens_per_picture": embedding.num_tokens,
    }


def collect_artifacts(context: RunContext) -> dict[str, Any]:
    """``paintings.json``: validation images, each original, masked and reconstructed."""
    from glassformer.report.images import thumbnail

    rows = []
    count = min(context.recipe.evaluate.shown, len(context.data.validation))
    for painting in context.estimator.paint(context.data.validation.images[:count]) if count else []:
        gh, gw = painting.hidden.shape
        height, width = painting.picture.shape[:2]
        mask = np.kron(painting.hidden, np.ones((height // gh, width // gw), bool))  # [gh * p, gw * q]
        masked_image = painting.picture.copy()
        masked_image[: mask.shape[0], : mask.shape[1]][mask] = 127
        images = (painting.picture, masked_image, painting.painted)
        rows.append([thumbnail(_as_rgb(image)) for image in images])
    return {"paintings.json": {"rows": rows}}


def _as_rgb(image: np.ndarray) -> np.ndarray:
    return image.repeat(3, 2) if image.shape[2] == 1 else image


def evaluate_saved(context: RunContext, source: str | None) -> dict[str, Any]:
    """Metrics of a saved model on its validation images or on other images."""
    d = context.recipe.data
    if source is None:
        images, origin = reload_data(context, ["validation"]).validation.images, f"{d.source}, held out"
    else:
        images, origin = load_images(source, d, context.recipe.image.image_range)[0], source
    context.log(f"{counted(len(images), 'image')} of {origin}")
    return {"hidden": context.estimator.judge(images)}


def example_fixture() -> tuple[MaskedPatches, tuple]:
    """A minimal estimator and images of noise."""
    pictures = list(np.random.default_rng(1).integers(0, 256, (7, 8, 8, 3)).astype(np.uint8))
    sizes = {"image_size": 8, "patch_size": 2, "decoder_width": 8, "decoder_layers": 1, "decoder_heads": 2}
    settings: dict[str, Any] = {**TINY, **sizes}
    return MaskedPatches(**settings), (pictures,)


TASK = Task(
    estimator=MaskedPatches,
    load=load,
    preview_data=preview_data,
    fit=fit,
    evaluate=evaluate,
    evaluate_saved=evaluate_saved,
    render_report=report_renderer("masked patches"),
    collect_artifacts=collect_artifacts,
    example_fixture=example_fixture,
    verb="evaluate",
    packages=("pillow", "kornia", "safetensors"),
)
