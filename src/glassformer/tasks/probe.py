"""``Probe``: a classifier on a frozen backbone.

probe = gf.Probe("google/vit-base-patch16-224", head="knn").fit(images, labels)
probe.predict(others); probe.neighbors(others, images, k=5)
gf.Probe(clf, pooling="patches").explain_similarity(image, other).save("page.html")

A probe fits a logistic regression or uses the nearest examples. A classifier with ``train_layers=0`` trains
its head on the same vectors by gradient descent.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from glassformer.checkpoints.files import write_folder
from glassformer.checkpoints.settings import METADATA_FILE, read_metadata, shorten
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.data.checks import check_labels, check_saved_labels
from glassformer.data.image_batching import evaluation_pixels
from glassformer.data.in_memory import as_targets
from glassformer.data.label_kinds import match_known_labels
from glassformer.data.label_sets import are_booleans
from glassformer.data.transform import read_images
from glassformer.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    OneClassError,
    UnequalLengthsError,
    with_article,
)
from glassformer.explain.similarity import ImageSimilarity
from glassformer.finite import finite, json_text
from glassformer.runtime import choose_device, isolated_torch, own_generator, torch_uses_own_generator
from glassformer.sklearn_base import BaseEstimator, ClassifierMixin, check_is_fitted
from glassformer.targets import kind_of_targets
from glassformer.targets.multiclass import Classes, warn_of_spelling
from glassformer.tasks.classifier import accuracy
from glassformer.tasks.estimator import FORMAT, NamedColumns, read_saved
from glassformer.train.solved_head import Head, fit_head, restore_head, unit

BACKBONE, HEAD = "backbone", "head"  # folder and file of a saved probe
POOLINGS = ("auto", "patches")
BATCH_IMAGES = 64  # images per forward pass


class Probe(NamedColumns, ClassifierMixin, BaseEstimator):
    """Classifier on the vectors of a frozen backbone.

    Args:
        backbone: a fitted ``ImageClassifier``, ``TextClassifier`` or ``Embedder``, or the name or folder of a
            checkpoint.
        head: ``linear`` (logistic regression) or ``knn`` (nearest examples by cosine).
        k: number of neighbors for ``knn``.
        C: inverse regularization strength for ``linear``, as in scikit-learn.
        pooling: ``auto``: the pooling of the backbone. ``patches``, for images: the mean over all patches, so
            that cosines are sums over pairs of patches.
    """

    classes_: np.ndarray
    head_: Head
    boolean_labels_ = False  # whether the training labels were booleans; ``predict`` then returns booleans

    def __init__(
        self, backbone: Any, *, head: str = "linear", k: int = 5, C: float = 1.0, pooling: str = "auto"
    ):
        self.backbone, self.head, self.k, self.C, self.pooling = backbone, head, k, C, pooling

    def __sklearn_clone__(self) -> Probe:
        """An unfitted probe on the same (fitted) backbone."""
        return type(self)(self.backbone, head=self.head, k=self.k, C=self.C, pooling=self.pooling)

    def set_params(self, **params: Any) -> Probe:
        """Set parameters, as in scikit-learn. For ``backbone__max_length`` etc. the backbone is copied."""
        if any(name.startswith("backbone__") for name in params) and "backbone" not in params:
            self.backbone = copy(self.backbone)
        return super().set_params(**params)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; labels are matched as in ``score`` of classifiers.

        Raises:
            DataError: examples or labels cannot be used, or their numbers differ.
        """
        check_is_fitted(self, "head_")
        labels, classes = check_labels(y), self.classes_.tolist()
        truth = match_known_labels(labels, classes, ignore_spelling=True)
        warn_of_spelling(labels, classes)
        return accuracy(self.predict(X).tolist(), truth, sample_weight)

    def fit(self, X: Sequence[Any], y: Sequence[Any]) -> Probe:
        """Fit the head on examples and their labels.

        Raises:
            DataError: examples or labels cannot be used, or there is only one class.
            ConfigError: an invalid setting.
        """
        previous = vars(self).copy()
        try:
            return self._fit(X, as_targets(y, "labels"))
        except BaseException:  # a failed fit restores the previous state
            vars(self).clear()
            vars(self).update(previous)
            raise

    def _fit(self, X: Any, y: Any) -> Probe:
        labels, self.boolean_labels_ = check_labels(y), are_booleans(y)
        vectors = self.embed(self.training_examples(X, y))
        if len(labels) != len(vectors):
            what = f"{len(vectors)} examples, {len(labels)} labels"
            raise UnequalLengthsError(what, where="fit", fix="Give one label for each example")
        classes, targets = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            what = "all examples have one label"
            raise OneClassError(what, where="labels", fix="Give examples of two classes or more")
        self.head_ = fit_head(vectors, targets, self.head, self.k, self.C)  # type: ignore[arg-type]  # checked there
        self.classes_ = classes
        return self

    def predict_proba(self, X: Sequence[Any]) -> np.ndarray:
        """Probabilities ``[n, C]``, columns in the order of ``classes_``."""
        check_is_fitted(self, "head_")
        return self.head_.probabilities(self.embed(X))

    def predict(self, X: Sequence[Any]) -> np.ndarray:
        """The most probable label of each example."""
        return Classes(booleans=self.boolean_labels_).to_input_type(
            self.classes_[self.predict_proba(X).argmax(1)]
        )

    def embed(self, X: Sequence[Any]) -> np.ndarray:
        """The vector of each example, ``[n, E]`` fp32.

        Raises:
            DataError: an example cannot be used.
            ConfigError: there is no such backbone or pooling.
        """
        if self.pooling not in POOLINGS:
            fix = f"Known: {', '.join(POOLINGS)}"
            raise ConfigError(f"no pooling {self.pooling!r}", where="pooling", fix=fix)
        backbone = self._backbone_estimator()
        if hasattr(self, "feature_names_in_"):  # otherwise the backbone may know the columns
            X = self.prediction_examples(X)
        if self.pooling == "auto":
            return backbone.embed(X)
        return np.stack([vectors.mean(0) for vectors in self._patches(X)])

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Save the backbone and the head to a folder, with the checksums of all files.

        Raises:
            CheckpointError: the folder exists and ``overwrite`` is False, or it is not a saved model.
        """
        check_is_fitted(self, "head_")
        backbone = self._backbone_estimator()
        metadata = {
            "format": FORMAT,
            "kind": type(self).__name__,
            "parameters": {key: getattr(self, key) for key in ("head", "k", "C", "pooling")},
            "classes": self.classes_.tolist(),
            **({"truth_values": True} if self.boolean_labels_ else {}),
            **self.columns_metadata(),
        }

        def write(folder: Path) -> None:
            shutil.copytree(saved, folder / BACKBONE)
            tensors = {name: torch.from_numpy(array) for name, array in self.head_.tensors().items()}
            write_tensors(folder, tensors, name=HEAD)
            (folder / METADATA_FILE).write_text(
                json_text(metadata, indent=2, ascii=True) + "\n", encoding="utf-8"
            )

        with TemporaryDirectory() as scratch:  # ``write_folder`` cannot be nested
            saved = backbone.save(Path(scratch) / BACKBONE)
            return write_folder(path, write, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> Probe:
        """Load a saved probe, and verify the checksums of its files. ``gf.load`` does the same.

        Raises:
            CheckpointError: the folder is missing or damaged, or has another kind of model.
        """
        from glassformer.tasks.image_classification.estimator import ImageClassifier
        from glassformer.tasks.similarity.estimator import Embedder
        from glassformer.tasks.text_classification.estimator import TextClassifier

        folder = Path(path)
        where = str(folder / METADATA_FILE)
        metadata = read_saved(cls, folder, "a Probe")
        parameters = {k: v for k, v in metadata["parameters"].items() if k in ("head", "k", "C", "pooling")}
        backbone_metadata = read_metadata(folder / BACKBONE, FORMAT)
        kinds = {kind.__name__: kind for kind in (TextClassifier, ImageClassifier, Embedder)}
        if backbone_metadata["kind"] not in kinds:
            what = f"its backbone is {shorten(backbone_metadata['kind'])}, not one of {', '.join(kinds)}"
            raise CheckpointError(what, where=str(folder))
        with isolated_torch(gradients=True):
            backbone = kinds[backbone_metadata["kind"]].restore(folder / BACKBONE, backbone_metadata)
        out = cls(backbone, **parameters)
        if out.pooling not in POOLINGS:
            raise CheckpointError(f"pooling = {out.pooling!r} is not known", where=where)
        out.classes_ = np.asarray(check_saved_labels(metadata.get("classes") or [], "classes", where))
        out.boolean_labels_ = metadata.get("truth_values") is True
        out.read_columns(metadata, where)
        arrays = {name: tensor.numpy() for name, tensor in read_tensors(folder, HEAD).items()}
        key = "weight" if "weight" in arrays else "vectors"
        width = arrays[key].shape[-1] if key in arrays and arrays[key].ndim == 2 else 0
        out.head_ = restore_head(arrays, width, len(out.classes_), str(folder))
        return out

    def neighbors(self, X: Sequence[Any], table: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Find the ``k`` examples of ``table`` that are nearest to each example.

        Args:
            table: examples, or their vectors ``[m, E]``.

        Returns:
            The indices in ``table`` and the cosines, ``[n, k]``.

        Raises:
            ConfigError: ``k`` is below 1.
            DataError: the vectors have another width than those of the backbone.
        """
        from glassformer.tasks.similarity.search import nearest

        if k < 1:
            raise ConfigError(f"k = {k} is below 1", where="neighbors", fix="Use 1 or more")
        queries = unit(self.embed(X))
        is_vectors = isinstance(table, np.ndarray) and table.ndim == 2 and table.dtype.kind == "f"
        vectors = unit(table if is_vectors else self.embed(table))  # type: ignore[arg-type]  # arrays of texts are sequences
        if vectors.shape[1] != queries.shape[1]:
            what = f"vectors of {vectors.shape[1]} numbers, the backbone's have {queries.shape[1]}"
            raise DataError(what, where="neighbors", fix="Give examples, or vectors of this backbone")
        return nearest(queries, vectors, k)

    def explain_similarity(self, a: Any, b: Any) -> ImageSimilarity:
        """Explain the cosine of two images by pairs of patches.

        Raises:
            ConfigError: the backbone reads texts, or ``pooling`` is not ``patches``.
        """
        from glassformer.explain.view import image_data_url

        backbone = self._backbone_estimator()
        if not backbone.INPUTS.has_images:
            fix = "Use gf.Embedder to explain the similarity of texts"
            raise ConfigError("a probe explains images", where="explain_similarity", fix=fix)
        if self.pooling != "patches":
            what = "these vectors are not means over patches"
            raise ConfigError(what, where="pooling", fix='Use Probe(..., pooling="patches")')
        patches = [vectors.astype(np.float64) / len(vectors) for vectors in self._patches([a, b])]  # [P, D]
        norms = [max(float(np.linalg.norm(vectors.sum(0))), 1e-12) for vectors in patches]
        table = patches[0] @ patches[1].T / (norms[0] * norms[1])  # [P, P]
        score = float(patches[0].sum(0) @ patches[1].sum(0)) / (norms[0] * norms[1])
        grid = tuple(backbone.model_.config.embedding.grid)
        pixel_table = read_images([a, b], backbone.transform_)
        urls = tuple(image_data_url(_as_rgb(pixels)) for pixels in pixel_table.pixels)
        names = [str(x) if isinstance(x, str | Path) else name for x, name in ((a, "first"), (b, "second"))]
        return ImageSimilarity(*names, table, score, (grid, grid), urls)  # type: ignore[arg-type]  # two of each

    def _patches(self, X: Sequence[Any]) -> list[np.ndarray]:
        """The output vectors of the patches of each image, ``[P, D]`` fp32, without the class token."""
        backbone = self._backbone_estimator()
        if not backbone.INPUTS.has_images:
            raise ConfigError("texts have no patches", where="pooling", fix='Use pooling="auto"')
        table, model = backbone.encode(backbone.check(X)), backbone.predictor()
        device = next(model.parameters()).device
        first = model.config.embedding.num_prefix
        out: list[np.ndarray] = []
        with isolated_torch(backbone.threads):
            for start in range(0, len(table), BATCH_IMAGES):
                pixels = evaluation_pixels(table, start, BATCH_IMAGES, backbone.transform_, device)
                tokens, packing = model.embed(pixels)  # [N, D]
                vectors = finite(model.encode_rows(tokens, packing).float().cpu(), "vectors")
                out += [
                    image_vectors[first:].numpy() for image_vectors in vectors.split(list(packing.lengths))
                ]
        return out

    @property
    def INPUTS(self) -> Any:  # type: ignore[override]  # that of the backbone
        return self._backbone_estimator().INPUTS

    @property
    def NOUN(self) -> str:  # type: ignore[override]  # that of the backbone
        return self._backbone_estimator().NOUN

    @property
    def MAX_COLUMNS(self) -> int:  # type: ignore[override]  # that of the backbone
        return self._backbone_estimator().columns_per_example()

    def is_example(self, row: Any) -> bool:  # type: ignore[override]  # that of the backbone
        return self._backbone_estimator().is_example(row)

    def _backbone_estimator(self) -> Any:
        """The backbone as an estimator with a method ``embed``."""
        if not isinstance(self.backbone, str | Path):
            if not hasattr(self.backbone, "embed"):
                kind = with_article(type(self.backbone).__name__)
                fix = "Give a fitted classifier, an Embedder, or a checkpoint"
                raise ConfigError(f"{kind} has no embeddings", where="backbone", fix=fix)
            return self.backbone
        cached = getattr(self, "_cached", None)
        if cached is None or cached[0] != self.backbone:
            cached = self._cached = self.backbone, open_backbone(str(self.backbone))
        return cached[1]


def open_backbone(name: str) -> Any:
    """Open a checkpoint of texts or images as an estimator with a method ``embed``.

    Raises:
        ConfigError: the name is that of an architecture, which has random weights.
        CheckpointError: there is no such checkpoint.
    """
    from glassformer.families import IMAGE_ARCHITECTURES
    from glassformer.families.pretrained import read_checkpoint
    from glassformer.tasks.build import is_from_scratch

    if name in IMAGE_ARCHITECTURES or is_from_scratch(name):
        what = f"{name!r} has random weights, whose vectors say nothing about the inputs"
        raise ConfigError(what, where="backbone", fix="Name a checkpoint, or give a fitted estimator")
    if read_checkpoint(name).family.model.reads == "texts":
        from glassformer.tasks.similarity.estimator import Embedder

        return Embedder(name)
    from glassformer.inputs.images import build_transform
    from glassformer.tasks.image_classification.estimator import ImageClassifier, build_model

    clf = ImageClassifier(name)
    configs = clf.configs()
    choose_device(clf.device)
    clf.transform_ = build_transform(configs["image"], configs["model"])
    # The generator initializes the head, which is not used.
    with own_generator(), isolated_torch(gradients=True), torch_uses_own_generator():
        model = build_model(configs["model"], clf.transform_, 2).eval()
    state = {"temperature": 1.0, "threshold": None, "class_order": None}
    return clf._with_parts(model, classes=np.array([0, 1]), kind=kind_of_targets([0, 1]), **state)


def _as_rgb(pixels: np.ndarray) -> np.ndarray:
    """Convert pixels ``[C, H, W]`` uint8 to RGB ``[H, W, 3]``."""
    image = np.moveaxis(pixels, 0, -1)
    return np.ascontiguousarray(np.repeat(image, 3, -1) if image.shape[-1] == 1 else image[..., :3])
