"""``MaskedPatches``: pre-training by masked autoencoding.

Fine-tune a saved model with ``ImageClassifier(FOLDER)``, or with
``glassformer train RECIPE --model RUN/model``.

In addition to the files of every run, its runs write ``paintings.json``: validation images with masked and
reconstructed patches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.data.duplicates import image_digest
from glassformer.data.files import is_system_file
from glassformer.data.folders import split_files
from glassformer.data.image import check_images, check_readable, image_files, is_record, remove_unreadable
from glassformer.data.image_batching import (
    MASK_SEED,
    AugmentSettings,
    PatchStream,
    draw_visible_patches,
    evaluation_pixels,
)
from glassformer.data.image_sources import ImageSplit, load_image_dataset
from glassformer.data.splits import random_split
from glassformer.data.transform import ImageTransform, PixelTable, read_images, read_training_images
from glassformer.errors import CheckpointError, ConfigError, MissingValueError, NotForThisModelError, counted
from glassformer.families.pretrained import load_pretrained, read_checkpoint, save_pretrained
from glassformer.finite import finite
from glassformer.inputs.images import (
    Images,
    build_transform,
    check_transform,
    has_fixed_features,
    initial_image_range,
    is_image_architecture,
    load_transform,
    save_transform,
)
from glassformer.models.masked_patches import DecoderSizes, MaskedAutoencoder
from glassformer.nn.patches import join_patches
from glassformer.runtime import isolated_torch, runs_isolated
from glassformer.tasks.build import check_unset, shared_settings
from glassformer.tasks.estimator import Estimator, FitState, fitted_attribute, with_settings
from glassformer.tasks.image_classification.estimator import SHAPE_KEYS, scratch_config
from glassformer.tasks.image_classification.recipe import ImageConfig, ImageModelConfig
from glassformer.tasks.masked_patches.recipe import (
    ImageCorpusConfig,
    PatchesRecipe,
    PatchFitConfig,
    PatchImageConfig,
    PatchModelConfig,
)
from glassformer.tasks.task import TINY, DataPreview, RunContext, Task, named_splits, sample_items, split_rows
from glassformer.train.callbacks import Callback
from glassformer.train.objectives import MaskedPatchLoss

DECODER = "decoder"  # file name of the decoder's weights, without extension
BATCH_IMAGES = 64  # images per forward pass in evaluation


@dataclass(frozen=True)
class Painting:
    """An image, which of its patches were masked, and the image with these patches reconstructed."""

    picture: np.ndarray  # [H, W, C] uint8
    hidden: np.ndarray  # [gh, gw] bool, True for masked patches
    painted: np.ndarray  # [H, W, C] uint8


@with_settings
class MaskedPatches(Estimator, PatchImageConfig, PatchModelConfig, PatchFitConfig):
    """A masked autoencoder (He et al., 2022) for PIL images, paths, bytes or uint8 arrays without labels.

    The parameters are the keys of a recipe's sections ``image``, ``model`` and ``train``; ``recipe.py``
    explains them. Fitted attributes: ``model_``, ``transform_``, ``history_``, ``train_seconds_``,
    ``weights_source_``. The loss is the mean squared error over masked patches, each standardized to mean 0
    and variance 1, so that a gray patch has a loss of 1; ``accuracy`` is 1 - loss, the explained variance.
    """

    RECIPE, INPUTS, is_example = PatchesRecipe, Images(), staticmethod(is_record)
    TASK = PatchesRecipe.task

    transform_: ImageTransform = fitted_attribute()

    # --- training --------------------------------------------------------------------------------

    def fit(
        self,
        pictures: Sequence[Any],
        y: None = None,
        *,
        validation: Sequence[Any] | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoints: str | Path | None = None,
        resume: bool = False,
    ) -> MaskedPatches:
        """Train on images without labels.

        Args:
            y: ignored; present for scikit-learn's pipelines.
            validation: images for evaluation after each epoch, always with the same masks.
            checkpoints, resume: see ``TextClassifier.fit``.

        Raises:
            DataError: there are no images, or an image is unreadable.
            ConfigError: an invalid setting, for example one that masks no patch or all patches.
            CheckpointError: the weights cannot be loaded, or the checkpoint is of another run.
        """
        return self._fit((pictures, validation), callbacks, checkpoints, resume)

    def _examples(self, fit: FitState, *data: Any) -> tuple[list[Any], list[Any] | None]:
        X, validation = data
        images, validation_images = check_images(self.training_examples(X)), None
        if validation is not None:
            validation_images = check_images(self.prediction_examples(validation, "validation"), "validation")
        elif fit.train.validation_fraction:
            groups = list(map(image_digest, images)) if fit.group_duplicates else None
            (images,), (validation_images,) = random_split(
                [images], fit.train.validation_fraction, fit.train.seed, groups
            )
        return images, validation_images

    def _prepare(self, fit: FitState) -> tuple[PixelTable, PixelTable | None]:
        if fit.train.batch_size == 0:
            what = "batch_size = 0 is not supported for images"
            raise ConfigError(what, where="batch_size", fix="Use 1 or more")
        image, model = as_classifier_sections(fit.configs["image"], fit.configs["model"])
        self.transform_ = build_transform(image, model, fit.resumed)
        crops = image.augment not in ("none", "shift")
        table, self.transform_ = read_training_images(fit.examples, self.transform_, crops)
        images = fit.validation
        return table, None if images is None else read_images(images, self.transform_, "validation")

    def _build(self, fit: FitState) -> MaskedAutoencoder:
        return build_autoencoder(fit.configs["model"], self.transform_)

    def _loop(
        self, fit: FitState
    ) -> tuple[PatchStream, MaskedPatchLoss, Callable[[], dict[str, float]] | None]:
        image, patches = fit.configs["image"], fit.network.config.embedding
        n = math.prod(patches.grid)
        num_visible = num_visible_patches(n, image.mask_share)
        stream = PatchStream(
            fit.table,
            self.transform_,
            AugmentSettings(image.augment, image.flip),
            num_visible + patches.num_prefix,
            fit.train.batch_size,
            fit.train.accumulate,
            fit.train.seed,
            fit.device,
            n,
            num_visible,
        )
        evaluate = None
        if fit.validation_table is not None:
            evaluate = partial(self._metrics, fit.network, fit.validation_table, fit.device)
        return stream, MaskedPatchLoss(), evaluate

    def _arrays(self, fit: FitState) -> list[np.ndarray | None]:
        tables = [fit.table] if fit.validation is None else [fit.table, fit.validation_table]
        return [table.pixels for table in tables]

    def _metrics(self, model: Any, table: PixelTable, device: torch.device) -> dict[str, float]:
        n = math.prod(model.config.embedding.grid)
        visible = draw_visible_patches(len(table), n, num_visible_patches(n, self.mask_share), [0, MASK_SEED])
        total = 0.0
        with isolated_torch():
            for start in range(0, len(table), BATCH_IMAGES):
                pixels = evaluation_pixels(table, start, BATCH_IMAGES, self.transform_, device)
                batch_visible = torch.from_numpy(visible[start : start + BATCH_IMAGES]).to(device)
                total += float(model.losses(pixels, batch_visible).double().sum())
        loss = total / len(table)
        return {"loss": loss, "accuracy": 1.0 - loss}

    # --- use -------------------------------------------------------------------------------------

    @runs_isolated
    def judge(self, pictures: Sequence[Any]) -> dict[str, float]:
        """Evaluate on images: ``loss`` over masked patches, and ``accuracy``, their explained variance.

        Raises:
            DataError: there are no images, or an image is unreadable.
        """
        model = self.predictor()
        table = read_images(check_images(self.prediction_examples(pictures)), self.transform_)
        metrics = self._metrics(model, table, next(model.parameters()).device)
        finite(np.array(list(metrics.values())), "losses")
        return metrics

    def score(self, pictures: Sequence[Any], y: None = None) -> float:
        """Explained variance of the masked patches: at best 1, and 0 for gray patches."""
        return self.judge(pictures)["accuracy"]

    @runs_isolated
    def paint(self, pictures: Sequence[Any], seed: int = 0) -> list[Painting]:
        """Reconstruct masked patches of images.

        The mean and standard deviation of a masked patch are those of the image, as in the loss.

        Args:
            seed: random seed for the choice of patches.
        """
        model = self.predictor()
        table = read_images(check_images(self.prediction_examples(pictures)), self.transform_)
        embedding, device = model.config.embedding, next(model.parameters()).device
        n = math.prod(embedding.grid)
        visible = draw_visible_patches(
            len(table), n, num_visible_patches(n, self.mask_share), [seed, MASK_SEED]
        )
        out = []
        with isolated_torch():
            for i in range(len(table)):
                pixels = evaluation_pixels(table, i, 1, self.transform_, device)
                image_visible = torch.from_numpy(visible[i : i + 1]).to(device)
                target, mean, std = model.target(pixels)
                predicted = finite(model.reconstruct(pixels, image_visible), "patches")
                is_masked = torch.ones(1, n, 1, device=device, dtype=torch.bool)
                is_masked[0, image_visible[0]] = False
                patches = torch.where(is_masked, predicted, target) * std + mean  # [1, n, P]
                sizes = embedding.grid, embedding.patch_size, embedding.channels
                reconstructed = self.transform_.denormalize(join_patches(patches, *sizes)[0])
                picture = table.pixels[i].transpose(1, 2, 0)
                height, width = reconstructed.shape[:2]  # the patches may not cover the border
                painted = picture.copy()
                painted[:height, :width] = reconstructed
                hidden = is_masked[0, :, 0].view(*embedding.grid).cpu().numpy()
                out.append(Painting(picture, hidden, painted))
        return out

    @runs_isolated
    def embed(self, pictures: Sequence[Any]) -> np.ndarray:
        """Embed images without masking: the mean over all patches, ``[n, D]`` fp32."""
        model = self.predictor()
        table = read_images(check_images(self.prediction_examples(pictures)), self.transform_)
        device, first = next(model.parameters()).device, model.config.embedding.num_prefix
        out = []
        with isolated_torch():
            for start in range(0, len(table), BATCH_IMAGES):
                pixels = evaluation_pixels(table, start, BATCH_IMAGES, self.transform_, device)
                vectors = model.encode(pixels).view(len(pixels), -1, model.width)
                out.append(vectors[:, first:].float().mean(1).cpu().numpy())
        return finite(np.concatenate(out), "vectors")

    # --- files -----------------------------------------------------------------------------------

    def _write_model(self, folder: Path) -> None:
        save_pretrained(self.model_.encoder_only(), folder)
        write_tensors(folder, self.model_.patch_decoder.state_dict(), name=DECODER)

    def _read_model(self, folder: Path, in_bf16: bool = False) -> None:
        encoder = load_pretrained(folder)
        model = MaskedAutoencoder(encoder.config, decoder_sizes(self.configs()["model"]))
        decoder_tensors = read_tensors(folder, DECODER)
        tensors = encoder.state_dict() | {f"patch_decoder.{name}": t for name, t in decoder_tensors.items()}
        expected = {name: t.shape for name, t in model.state_dict().items()}
        if {name: t.shape for name, t in tensors.items()} != expected:
            what = "the decoder's weights do not match its settings"
            raise CheckpointError(what, where=f"{folder}/{DECODER}.safetensors")
        model.load_state_dict(tensors)
        self.model_ = model.eval()

    def write_parts(self, folder: Path) -> dict[str, Any]:
        save_transform(self.transform_, folder)
        return {}

    def read_parts(self, folder: Path, metadata: dict[str, Any]) -> None:
        self.transform_ = load_transform(folder, default="full" if metadata else None)

    def check_parts(self, folder: Path) -> None:
        check_transform(self.transform_, self.model_.config, folder)


def num_visible_patches(patches: int, mask_share: float) -> int:
    """The number of visible patches per image.

    Raises:
        ConfigError: no patch or all patches would be visible.
    """
    num_visible = round(patches * (1.0 - mask_share))
    if not 0 < num_visible < patches:
        what = f"mask_share = {mask_share} of {patches} patches leaves {num_visible} visible patches"
        raise ConfigError(what, where="mask_share", fix="Use 0.75, or smaller patches")
    return num_visible


def decoder_sizes(model: PatchModelConfig) -> DecoderSizes:
    """The decoder's sizes from a recipe's settings."""
    return DecoderSizes(model.decoder_width, model.decoder_layers, model.decoder_heads)


def build_autoencoder(model: PatchModelConfig, transform: ImageTransform) -> MaskedAutoencoder:
    """Build a new encoder or load a checkpoint's, with a new decoder.

    Raises:
        ConfigError: sizes are set for a checkpoint, or the checkpoint reads texts.
        CheckpointError: the weights cannot be loaded.
    """
    if has_fixed_features(model.model):
        what = f"{model.model!r} is a linear model, which needs labels"
        raise ConfigError(what, where="model", fix="Name an encoder: model=vit-tiny")
    sizes, (_, shape) = decoder_sizes(model), as_classifier_sections(PatchImageConfig(), model)
    if is_image_architecture(model.model):
        built = MaskedAutoencoder(scratch_config(shape, transform, 1), sizes)
        built.weights_source = f"random ({model.model}, from scratch)"
        return built
    check_unset(shape, SHAPE_KEYS)
    checkpoint = read_checkpoint(model.model, model.revision)
    if checkpoint.family.model.reads != "images":
        raise NotForThisModelError(f"{model.model!r} does not read images", where="model", fix="Use MaskedLM")
    encoder = load_pretrained(checkpoint).at_size(transform.size)
    built = MaskedAutoencoder(encoder.config, sizes)
    built.load_state_dict(
        {k: v for k, v in encoder.state_dict().items() if k in built.state_dict()}, strict=False
    )
    built.weights_source = f"{checkpoint.weights_source}; new (random): decoder"
    return built


def as_classifier_sections(
    image: PatchImageConfig, model: PatchModelConfig
) -> tuple[ImageConfig, ImageModelConfig]:
    """The settings as sections ``image`` and ``model`` of ``ImageClassifier``."""
    image_config = ImageConfig(**shared_settings(image, ImageConfig))
    return image_config, ImageModelConfig(**shared_settings(model, ImageModelConfig))


@dataclass(frozen=True)
class ImageCorpus:
    """Training and validation images."""

    train: ImageSplit
    validation: ImageSplit
    counts: dict[str, int]  # source -> number of images used
    notes: tuple[str, ...] = ()


def load(recipe: PatchesRecipe) -> ImageCorpus:
    """Load the images of all sources of a recipe, and hold some out."""
    data = recipe.data
    images: list[Any] = []
    counts: dict[str, int] = {}
    notes: list[str] = []
    for source in (data.source, *data.also):
        source_images, messages = load_images(source, data, recipe.image.image_range)
        counts[source] = len(source_images)
        images += source_images
        notes += messages
    train_rows, validation_rows = split_rows(len(images), "images", data, list(map(image_digest, images)))
    all_images = ImageSplit(images, None, ", ".join(counts))
    return ImageCorpus(
        all_images.select(train_rows), all_images.select(validation_rows), counts, tuple(notes)
    )


def load_images(
    source: str, data: ImageCorpusConfig, image_range: float | None = None
) -> tuple[list[Any], list[str]]:
    """The images of one source, and messages about it; for ``image_range`` see ``open_image``."""
    path = Path(source).expanduser() if source else None
    files = path.iterdir() if path is not None and path.is_dir() else ()
    has_folders = any(p.is_dir() and not is_system_file(p) for p in files)
    if path is not None and path.is_dir() and not split_files(path) and not has_folders:
        split = ImageSplit([str(file) for file in image_files(path)], None, str(path))
        if not split.images:
            raise MissingValueError("no images", where=str(path), fix="Put images there, or folders of them")
        splits, notes = {"train": split}, []
    else:
        dataset = load_image_dataset(source, image_column=data.image_column)
        names, notes = named_splits(dataset, data, source), list(dataset.notes)
        splits = {name: split for name, split in dataset.splits.items() if name in names}
    if data.broken == "skip":
        for name, split in splits.items():
            splits[name], messages = remove_unreadable(split, name, image_range=image_range or "full")
            notes += messages
    return sample_items([image for split in splits.values() for image in split.images], data), notes


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
    estimator, data = context.estimator, context.data
    embedding = estimator.model_.config.embedding
    return {
        "hidden": estimator.judge(data.validation.images),
        "pictures": data.counts | {"validation": len(data.validation)},
        "tokens_per_picture": embedding.num_tokens,
    }


def collect_artifacts(context: RunContext) -> dict[str, Any]:
    """The contents of ``paintings.json``: validation images, each original, masked and reconstructed."""
    from glassformer.report.images import thumbnail

    rows = []
    count = min(context.recipe.evaluate.shown, len(context.data.validation))
    for painting in context.estimator.paint(context.data.validation.images[:count]) if count else []:
        grid_height, grid_width = painting.hidden.shape
        height, width = painting.picture.shape[:2]
        patch = np.ones((height // grid_height, width // grid_width), bool)
        mask = np.kron(painting.hidden, patch)  # of the image, without an uncovered border
        masked_image = painting.picture.copy()
        masked_image[: mask.shape[0], : mask.shape[1]][mask] = 127
        images = (painting.picture, masked_image, painting.painted)
        rows.append([thumbnail(_as_rgb(image)) for image in images])
    return {"paintings.json": {"rows": rows}}


def _as_rgb(image: np.ndarray) -> np.ndarray:
    return image.repeat(3, 2) if image.shape[2] == 1 else image


def evaluate_saved(context: RunContext, source: str | None) -> dict[str, Any]:
    """Metrics of a saved model on its validation images or on other images."""
    data = context.recipe.data
    if source is None:
        images, origin = context.reload_data(["validation"]).validation.images, f"{data.source}, held out"
    else:
        images, origin = load_images(source, data, context.recipe.image.image_range)[0], source
    context.log(f"{counted(len(images), 'image')} of {origin}")
    return {"hidden": context.estimator.judge(images)}


def example_fixture() -> tuple[MaskedPatches, tuple]:
    images = list(np.random.default_rng(1).integers(0, 256, (7, 8, 8, 3)).astype(np.uint8))
    sizes: dict[str, Any] = {"image_size": 8, "patch_size": 2, "decoder_width": 8}
    return MaskedPatches(**TINY, **sizes, decoder_layers=1, decoder_heads=2), (images,)


TASK = Task(
    estimator=MaskedPatches,
    load=load,
    preview_data=preview_data,
    fit=fit,
    evaluate=evaluate,
    evaluate_saved=evaluate_saved,
    report="masked patches",
    collect_artifacts=collect_artifacts,
    example_fixture=example_fixture,
    verb="evaluate",
    packages=("pillow", "kornia", "safetensors"),
)
