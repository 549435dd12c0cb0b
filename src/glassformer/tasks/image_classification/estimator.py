"""``ImageClassifier`` and ``ImageRegressor``.

In addition to the files of every run, their runs write ``predictions.csv``. Classification also writes
``pictures.json``, ``maps.json`` and ``grid.png``, regression ``numbers.json``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.data.augment import CORRUPTIONS, SEVERITIES, corrupt
from glassformer.data.duplicates import image_digest
from glassformer.data.image import check_images, is_record
from glassformer.data.image_batching import AugmentSettings, ImageStream
from glassformer.data.image_sources import ImageSplit
from glassformer.data.label_sets import flat_labels
from glassformer.data.transform import ImageTransform, PixelTable, read_images, read_training_images
from glassformer.errors import ConfigError, NotForThisModelError
from glassformer.evaluate.baselines import pixel_features, pixel_logistic
from glassformer.evaluate.predict import predict_images
from glassformer.explain.attention import rollout
from glassformer.explain.methods import explain_input
from glassformer.families import IMAGE_ARCHITECTURES, family_of
from glassformer.families.pretrained import Checkpoint, read_checkpoint
from glassformer.finite import finite
from glassformer.inputs.images import (
    Images,
    build_transform,
    check_transform,
    has_fixed_features,
    is_image_architecture,
    load_transform,
    save_transform,
)
from glassformer.runtime import isolated_torch, runs_isolated
from glassformer.targets.multiclass import Classes
from glassformer.targets.regression import Numbers, as_baseline, mean_number, pixel_ridge
from glassformer.tasks.build import (
    SHAPE,
    apply_layer_settings,
    check_unset,
    embedding_dropout,
    head_fields,
    with_new_head,
    without_none,
)
from glassformer.tasks.classifier import NEW_HEAD, Classifier, Regressor, Supervised
from glassformer.tasks.estimator import FitState, with_settings
from glassformer.tasks.image_classification.recipe import (
    ImageConfig,
    ImageFitConfig,
    ImageModelConfig,
    ImageNumberFitConfig,
    ImageNumberRecipe,
    ImageRecipe,
)
from glassformer.tasks.supervised import (
    baseline_weights,
    collect_numbers,
    evaluate,
    labels_and_confidences,
    one_vs_rest_baseline,
    supervised_task,
)
from glassformer.tasks.task import RunContext
from glassformer.train.callbacks import Count, no_progress
from glassformer.train.features import (
    cached_layers,
    can_be_cached,
    classify_rows,
    feature_training,
    image_features,
)
from glassformer.train.objectives import ImageClassification, InputMasking

TOKENS_PER_IMAGE = 257  # number of tokens of an image of 224 pixels in common checkpoints


class ImageModel(Supervised, ImageConfig, ImageModelConfig):
    """Base class of classifiers and regressors of images. Their preprocessing is ``transform_``."""

    INPUTS, CHUNK = Images(), 1024

    batch_size: int | None
    transform_: ImageTransform

    @property
    def learns_in_steps(self) -> bool:
        return not has_fixed_features(self.model)

    # --- images --------------------------------------------------------------------------------

    is_example = staticmethod(is_record)

    @staticmethod
    def check(X: Any, origin: str = "images") -> list[Any]:
        return check_images(X, origin)

    @staticmethod
    def copy_keys(examples: Sequence[Any]) -> list[str]:
        return list(map(image_digest, examples))

    @staticmethod
    def count_tokens(examples: Sequence[Any]) -> int:
        return TOKENS_PER_IMAGE * len(examples)

    def _build_preprocessor(self, fit: FitState) -> None:
        if fit.train.batch_size == 0:
            what = "batch_size = 0 is not supported for images"
            raise ConfigError(what, where="batch_size", fix="Use 1 or more")
        self.transform_ = build_transform(fit.configs["image"], fit.configs["model"], fit.resumed)

    def pixels(self, example: Any, where: str = "picture") -> np.ndarray:
        """The pixels of an example as the model reads them, ``[C, H, W]`` uint8."""
        return self.transform_.read(example, where)

    def encode(self, examples: Sequence[Any]) -> PixelTable:
        return read_images(examples, self.transform_)

    def _training_table(self, examples: Sequence[Any]) -> PixelTable:
        crops = self.augment not in ("none", "shift")
        table, self.transform_ = read_training_images(examples, self.transform_, crops)
        return table

    def _is_from_scratch(self) -> bool:
        return is_image_architecture(self.model) and not has_fixed_features(self.model)

    def _build(self, fit: FitState) -> Any:
        return build_model(fit.configs["model"], self.transform_, len(self.classes_))

    def _stream(self, fit: FitState) -> ImageStream:
        image: ImageConfig = fit.configs["image"]
        augment = AugmentSettings(image.augment, image.flip, image.mix, image.mix_share, image.mix_alpha)
        return ImageStream(
            fit.table,
            self.transform_,
            augment,
            fit.network.config.embedding.num_tokens,
            fit.train.batch_size,
            fit.train.accumulate,
            fit.train.seed,
            fit.device,
        )

    def _objective(self, fit: FitState) -> ImageClassification:
        targets, weights = fit.examples.targets, self._weights(fit.examples)
        criterion = self.kind_.criterion(targets, self.classes_.tolist(), fit.train)
        smoothing = getattr(fit.train, "label_smoothing", 0.0)
        masking = InputMasking(maskable=True) if fit.train.maskable else None
        return ImageClassification(targets, weights, smoothing, masking, criterion)

    def _vectors(self, fit: FitState, model: Any) -> Tensor:
        if model.is_linear:  # computing these features is faster than reading a cache
            return torch.from_numpy(self.table_outputs(model, fit.table, "pooled", fit.device))
        batch_size = max(self.batch_size or 0, 64)
        return image_features(model, fit.table, self.transform_, batch_size, fit.device)

    def _cache_frozen_features(
        self, fit: FitState, stream: Any, objective: Any, table: Any, logits: Any
    ) -> tuple:
        image, model = fit.configs["image"], fit.network
        is_augmented = image.augment != "none" or image.mix != "none" or fit.train.maskable
        randomness = is_augmented, model.config.embedding.patch_dropout
        layers = 0
        if not can_be_cached(model, *randomness):
            layers = cached_layers(model, fit.train, len(fit.table), *randomness)
            if not layers:
                return stream, objective, logits
        options = {"batch_size": max(self.batch_size or 0, 64), "layers": layers}
        features_of = partial(image_features, model, transform=self.transform_, device=fit.device, **options)
        classify = partial(classify_rows, model, **options)
        return feature_training(stream, objective, features_of, classify, table, layers)

    @runs_isolated
    def cached_outputs(self, X: Sequence[Any]) -> np.ndarray:
        train, model = self.configs()["train"], self.predictor()
        is_trained = train.train_layers != 0 or train.unfreeze_every or train.precision == "int8"
        if is_trained or not (model.has_attention and model.has_features):
            return self.outputs(X)
        device, batch_size = next(model.parameters()).device, max(self.batch_size or 0, 64)
        table = self.evaluation_table(self.check_examples(X))
        features = image_features(model, table, self.transform_, batch_size, device)
        return self.to_probabilities(finite(classify_rows(model, features), "logits"))

    def table_outputs(
        self,
        model: Any,
        table: PixelTable,
        output: str,
        device: torch.device,
        progress: Callable | None = None,
    ) -> np.ndarray:
        return predict_images(
            model,
            table,
            self.transform_,
            output,
            batch_size=max(self.batch_size or 0, 64),
            device=device,
            progress=progress,
        )

    def _table_arrays(self, table: PixelTable) -> list[np.ndarray]:
        return [table.pixels]

    def export_outputs(self) -> Any:
        from glassformer.export.outputs import ImageLabels

        return ImageLabels(self)

    def write_parts(self, folder: Path) -> dict[str, Any]:
        save_transform(self.transform_, folder)
        return {}

    def read_parts(self, folder: Path, metadata: dict[str, Any]) -> None:
        self.transform_ = load_transform(folder, default="full" if metadata else None)

    def check_parts(self, folder: Path) -> None:
        super().check_parts(folder)
        check_transform(self.transform_, self.model_.config, folder)


@with_settings
class ImageClassifier(ImageModel, Classifier, ImageFitConfig):
    """A Transformer that classifies images.

    Images are PIL images, paths, bytes, open files, uint8 arrays ``[H, W, C]`` or tensors ``[C, H, W]``. The
    parameters are the keys of a recipe's sections ``image``, ``model`` and ``train``; ``recipe.py`` explains
    them.
    """

    RECIPE = ImageRecipe


@with_settings
class ImageRegressor(Regressor, ImageModel, ImageNumberFitConfig):
    """A Transformer that predicts numbers from images.

    Images are PIL images, paths, bytes, open files, uint8 arrays ``[H, W, C]`` or tensors ``[C, H, W]``. The
    parameters are the keys of a recipe's sections ``image``, ``model`` and ``train``; ``recipe.py`` explains
    them. Targets are standardized for training; predictions have the unit of ``y``. ``score`` is R².
    ``Regressor`` has the fitted attributes.
    """

    RECIPE = ImageNumberRecipe


SHAPE_KEYS = ("patch_size", "stem", "class_token", *SHAPE)


def build_model(model: ImageModelConfig, transform: ImageTransform, num_labels: int) -> Any:
    """The encoder with a classification head, for images of the transform's size."""
    if is_image_architecture(model.model):
        config = scratch_config(model, transform, num_labels)
        built: Any = family_of(config).model(config)
        source = f"{model.model}; {NEW_HEAD}" if built.is_linear else f"random ({model.model}, from scratch)"
        built.weights_source = "; ".join([source, *_border_notes(built)])
        return built
    check_unset(model, SHAPE_KEYS)
    checkpoint = read_checkpoint(model.model, model.revision)
    base = checkpoint.config
    if checkpoint.family.model.reads != "images":
        what = f"{model.model!r} does not read images"
        raise NotForThisModelError(what, where="model", fix="Use TextClassifier")
    if base.embedding.channels != transform.channels:
        what = f"the model reads {base.embedding.channels} channels, the transform gives {transform.channels}"
        raise ConfigError(what, where="channels")
    notes = []
    if base.embedding.image_size != transform.size:
        notes.append(f"positions interpolated to {transform.size[0]} x {transform.size[1]} pixels")
    pooling = default_image_pooling(checkpoint) if model.pooling == "auto" else model.pooling
    head_type = "linear" if model.head == "auto" else model.head
    config, new = with_new_head(base, model, pooling, head_type=head_type, **head_fields(model, num_labels))
    size = {"image_size": transform.size, "patch_dropout": model.patch_dropout}
    config = replace(config, embedding=replace(config.embedding, **size))
    built = checkpoint.build(config, new_head=True)
    new_modules = f"new (random): {', '.join([*new, 'classification head'])}"
    sources = [checkpoint.weights_source, *notes, new_modules, *_border_notes(built)]
    built.weights_source = "; ".join(sources)
    return built


def default_image_pooling(checkpoint: Checkpoint) -> Any:
    """The default pooling for a new head: that of the family, or of a model in glassformer's format."""
    base, hub = checkpoint.config, checkpoint.family.hub
    if hub is not None:
        return hub.pooling
    return base.pooling if base.pooling and not base.embedding.class_token else "first"


def _border_notes(network: Any) -> list[str]:
    """A list with a note if the patches do not cover the lower or right border of the image."""
    embedding = network.config.embedding
    sizes = zip(embedding.image_size, embedding.patch_size, strict=True)
    rows, columns = [size % patch for size, patch in sizes]
    patch = " x ".join(map(str, embedding.patch_size))
    return [f"patches of {patch} leave {rows} rows and {columns} columns unseen"] if rows or columns else []


def scratch_config(model: ImageModelConfig, transform: ImageTransform, num_labels: int) -> Any:
    """The config of a from-scratch architecture: the preset with the settings of the recipe."""
    preset = IMAGE_ARCHITECTURES[model.model]
    patch = {"patch_size": (model.patch_size,) * 2} if model.patch_size else {}
    config = preset(image_size=transform.size, **patch)
    config = replace(config, embedding=replace(config.embedding, channels=transform.channels))
    if (configure := family_of(config).configure) is not None:
        return configure(config, model, num_labels)
    embedding = {
        "d_model": model.d_model,
        "stem": model.stem,
        "positions": model.positions,
        "class_token": model.class_token,
        "patch_dropout": model.patch_dropout,
        "dropout": embedding_dropout(model),
    }
    head = head_fields(model, num_labels) | {"head_type": None if model.head == "auto" else model.head}
    return replace(
        config,
        embedding=replace(config.embedding, **without_none(embedding)),
        encoder=apply_layer_settings(config.encoder, model),
        pooling=config.pooling if model.pooling == "auto" else model.pooling,
        **without_none(head | {"init_std": model.init_std}),
    )


MAX_MISTAKES = 20  # maximum number of mistakes in the report
NUM_MAPS = 4  # maximum number of images whose attention is in the report
MAP_SIDE = 192  # side length of such an image, in pixels
MAX_WEIGHTS = 2**20  # maximum number of attention weights per image, which limits the size of the report


def evaluate_images(context: RunContext) -> dict[str, Any]:
    """The metrics of ``evaluate``, and with ``robustness`` in the recipe also those on perturbed images."""
    out, settings = evaluate(context), context.recipe.evaluate
    if out["test"] and settings.robustness:
        started = time.perf_counter()
        context.log("robustness: crops, lighting, blur, noise, JPEG, rotation")
        split = sample_split(context.data.evaluated, settings.robustness_limit)
        out["robustness"] = robustness(context.estimator, split, context.count)
        out["seconds"]["evaluate"] += time.perf_counter() - started
    return out


def pixel_baseline(clf: Any, recipe: ImageRecipe, splits: Any, targets: np.ndarray) -> tuple:
    """Baseline: logistic regression on downscaled pixels."""
    if clf.kind_.is_multilabel:
        features = partial(pixel_features, image_range=clf.transform_.image_range)
        name = "logistic regression per label on 16 x 16 pixels"
        return (name, *one_vs_rest_baseline(clf, splits, targets, features))
    classes = len(clf.classes_)
    probabilities, name = pixel_logistic(
        splits.train.images,
        targets,
        splits.evaluated.images,
        num_classes=classes,
        sample_weight=baseline_weights(clf, targets),
        image_range=clf.transform_.image_range,
    )
    return name, probabilities


def sample_split(split: ImageSplit, limit: int) -> ImageSplit:
    """A random sample of at most ``limit`` images (0: all). It is the same for every model."""
    if not limit or len(split) <= limit:
        return split
    return split.select(sorted(np.random.default_rng(0).permutation(len(split))[:limit].tolist()))


def robustness(clf: ImageClassifier, split: ImageSplit, count: Count = no_progress) -> dict[str, Any]:
    """Map each perturbation to accuracy and macro F1 on perturbed images, per severity."""
    table = read_images(split.images, clf.transform_, split.origin, split.rows)
    targets = clf.encode_targets(split.labels or [], split.origin, split.rows)
    model = clf.predictor()
    device = next(model.parameters()).device
    out: dict[str, Any] = {}
    num_images = len(split) * len(CORRUPTIONS) * len(SEVERITIES)
    with isolated_torch(clf.threads), count("changed images", num_images) as progress:
        for kind in CORRUPTIONS:
            out[kind] = []
            for severity in SEVERITIES:
                perturbed = corrupt(table, kind, severity, seed=0)
                logits = clf.table_outputs(model, perturbed, "logits", torch.device(device), progress)
                p, classes = clf.to_probabilities(logits), clf.classes_.tolist()
                predicted = clf.predicted_index(p)
                result = clf.kind_.score(p, targets, classes, predicted, bootstrap=0, curves=False)
                out[kind].append(
                    {key: result[key] for key in ("accuracy", "macro_f1")}
                    | {"severity": severity, "n": len(targets)}
                )
    return out


def collect_artifacts(context: RunContext) -> dict[str, Any]:
    """Thumbnails of one image per class and of the most confident mistakes, and attention of a few images.

    The function also writes ``grid.png``.
    """
    from glassformer.report.images import draw_grid, thumbnail

    if context.predictions is None:
        return {}
    clf, split, probabilities = context.estimator, context.data.evaluated, context.predictions
    truth, labels = split.labels, clf.decide(probabilities).tolist()
    firsts = _first_of_each_class(truth, clf.classes_.tolist())  # indices
    confidence = np.array(labels_and_confidences(clf, probabilities)[1])
    order = np.argsort(-confidence, kind="stable").tolist()
    wrong = [i for i in order if labels[i] != truth[i]][:MAX_MISTAKES]

    def record(i: int) -> dict[str, Any]:
        return {
            "name": split.names()[i],
            "label": str(truth[i]),
            "predicted": str(labels[i]),
            "probability": float(confidence[i]),
            "png": thumbnail(split.images[i], image_range=clf.transform_.image_range),
        }

    examples, mistakes = [record(i) for i in firsts], [record(i) for i in wrong]
    correct = [i for i in firsts if labels[i] == truth[i]]
    mapped = [*dict.fromkeys([*wrong[:1], *correct, *firsts])][: NUM_MAPS if clf.model_.has_attention else 0]
    if context.recipe.evaluate.grid:
        images, image_range = [split.images[i] for i in firsts], clf.transform_.image_range
        draw_grid(context.folder / "grid.png", images, examples, image_range=image_range)
    return {
        "maps.json": {"examples": [attention_example(clf, split, i) for i in mapped]},
        "pictures.json": {"examples": examples, "mistakes": mistakes},
    }


def _first_of_each_class(truth: Sequence[Any], classes: Sequence[Any], limit: int = 10) -> list[int]:
    """The index of the first image of each class; for multi-label, of the first image with each label."""
    first: dict[Any, int] = {}
    for i, labels in enumerate(truth):
        for label in flat_labels([labels]):
            first.setdefault(label, i)
    return [*dict.fromkeys(first[c] for c in classes if c in first)][:limit]


def attention_example(clf: ImageClassifier, split: ImageSplit, i: int) -> dict[str, Any]:
    """An image as the model reads it, with attention weights per layer and head.

    ``maps`` has all weights, ``cls_rows`` those of the tokens that the head reads.
    """
    from glassformer.report.images import encode as encode_maps
    from glassformer.report.images import thumbnail

    e = explain_input(clf, split.images[i], method="attention")
    assert e.maps is not None
    assert e.image is not None
    reads = np.eye(e.maps.shape[-1])[0] if e.reads is None else e.reads
    return {
        "name": split.names()[i],
        "label": str((split.labels or [""])[i]),
        "predicted": str(e.label),
        "probability": e.probability,
        "png": thumbnail(e.image, MAP_SIDE),
        "size": [e.image.shape[1], e.image.shape[0]],
        "grid": list(e.scores.shape),
        "cls_rows": np.round(np.einsum("t,lhts->lhs", reads, e.maps), 4).tolist(),
        "rollout": np.round(reads @ rollout(e.maps), 4).tolist(),
        "maps": encode_maps(e.maps) if e.maps.size <= MAX_WEIGHTS else None,
    }


TASK = supervised_task(
    ImageClassifier,
    Classes(),
    label_of=lambda image: int(image.mean() > 127),
    report="classes",
    evaluate=evaluate_images,
    collect_artifacts=collect_artifacts,
    baselines=(pixel_baseline,),
)

REGRESSION = supervised_task(
    ImageRegressor,
    Numbers(),
    label_of=lambda image: float(image.mean()),
    report="numbers",
    collect_artifacts=collect_numbers,
    baselines=(mean_number, as_baseline(pixel_ridge)),
)
