"""Load saved estimators and checkpoints of other libraries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.checkpoints.files import (
    MANIFEST,
    check_is_model,
    list_models_below,
    missing_folder_error,
    read_consistently,
    read_json,
    restore_folder,
    verify_folder,
)
from glassformer.checkpoints.layout import describe_outputs
from glassformer.checkpoints.native import check_finished
from glassformer.checkpoints.sentences import MODULES
from glassformer.checkpoints.settings import METADATA_FILE, find_metadata, read_metadata, shorten
from glassformer.data.checks import check_saved_labels
from glassformer.data.tokenizer_file import check_truncation_side, model_max_length
from glassformer.errors import CheckpointError, UnsupportedModelError
from glassformer.families import FAMILIES
from glassformer.families.image_text import is_image_text_folder
from glassformer.families.pretrained import Checkpoint, load_pretrained, read_checkpoint
from glassformer.inputs.inputs import Inputs
from glassformer.runtime import choose_device, choose_dtype, isolated_torch
from glassformer.targets import target_from_hub
from glassformer.targets.multiclass import Classes
from glassformer.tasks.build import cover_vocabulary, hub_labels
from glassformer.tasks.catalog import TASKS, task_of_estimator_name
from glassformer.tasks.classifier import Supervised
from glassformer.tasks.estimator import FORMAT, Estimator, predicts_in_bf16
from glassformer.tasks.probe import Probe
from glassformer.tasks.task import Task

SENTENCES = "similarity"  # task of the estimator for folders of sentence-transformers
MAX_SIZE_RATIO = 4  # maximum image size of the preprocessor, relative to that of the position embeddings
CLASSIFIER_HEADS = ("classification", "first-two")
# Class names in transformers.
HUB_CLASSIFIERS = {
    f.hub.classes[k] for f in FAMILIES.values() if f.hub for k in CLASSIFIER_HEADS if k in f.hub.classes
}
HUB_TAGGERS = {f.hub.classes["tokens"] for f in FAMILIES.values() if f.hub and "tokens" in f.hub.classes}


def load(path: str | Path, *, precision: str | None = None) -> Any:
    """Load a saved estimator of any class, and verify the checksums of its files.

    The function also opens models of ``transformers`` whose family is in ``FAMILIES``, with a head for
    classification (of texts, images or tokens), regression, extractive question answering or masked language
    modeling. It opens a folder of sentence-transformers as an ``Embedder``. If another process saves to the
    folder at the same time, the result is the old or the new model, never a mixture.

    Args:
        path: a folder that ``save`` wrote, or the folder of a run.
        precision: "fp32", "bf16", "int8" (classifiers) or "auto"; None: the saved setting. With bf16, the
            weights of a Transformer are read into bf16, so that prediction needs about half the memory.
            If something needs the weights in fp32, such as ``save``, they are read again.

    Raises:
        CheckpointError: the folder is missing, a file is missing or damaged, the format is newer, or the
            ``transformers`` model has no such head.
        ConfigError: the training of the run is not finished, or the precision is unknown.
    """
    if precision is not None:
        choose_dtype(precision, torch.device("cpu"))  # raises an error for an unknown precision
    estimator = _open(path, precision)
    return estimator if precision is None else estimator.set_params(precision=precision)


def load_for_predictions(path: str | Path, precision: str | None = None) -> Any:
    """Load an estimator for predictions only: in bf16 if this is ``precision`` or the saved setting."""
    if precision is None:
        saved = find_metadata(path)[1].get("parameters")
        precision = saved.get("precision", "auto") if isinstance(saved, dict) else "auto"
    return _open(path, precision)


def _open(path: str | Path, precision: Any) -> Any:
    """Load an estimator; its weights are bf16 if it predicts in bf16 with this precision."""
    folder = Path(path)
    restore_folder(folder)
    restore_folder(folder / "model")
    check_finished(folder)
    if not (folder / METADATA_FILE).is_file() and (folder / "model" / METADATA_FILE).is_file():
        folder = folder / "model"
    is_known = precision in ("auto", "fp32", "bf16")
    in_bf16 = is_known and predicts_in_bf16(precision, choose_device())
    with isolated_torch(gradients=True):
        estimator = read_consistently(folder, lambda: _load(folder, path, in_bf16))
    return estimator.keep_bf16() if in_bf16 and isinstance(estimator, Estimator) else estimator


def _load(folder: Path, path: str | Path, in_bf16: bool) -> Any:
    if folder.exists() and not folder.is_dir():
        fix = "Name the folder around it; a file of word vectors opens with Word2Vec.load"
        if folder.suffix in (".joblib", ".pkl", ".pickle"):
            fix = (
                "Read it with the library that wrote it, such as joblib; load opens folders that save() wrote"
            )
        raise CheckpointError("is a file, not a folder", where=str(path), fix=fix)
    if not folder.is_dir():
        raise missing_folder_error(path)
    folder = folder.resolve()  # because a relative path may look like a Hub id
    has_metadata, has_manifest = (folder / METADATA_FILE).exists(), (folder / MANIFEST).exists()
    if not has_metadata and (folder / "config.json").is_file():
        if has_manifest:  # an export, or an estimator without its glassformer.json
            verify_folder(folder)
        return _load_transformers(folder, in_bf16)
    is_foreign = not has_metadata and not has_manifest
    if is_foreign and (models := list_models_below(folder, METADATA_FILE, "config.json")):
        fix = f"Give one of its sub-folders: {models}"
        raise CheckpointError("contains no model itself", where=str(path), fix=fix)
    check_is_model(folder)
    verify_folder(folder)
    metadata = read_metadata(folder, FORMAT)
    task = task_of_estimator_name(metadata["kind"])
    if task is None and metadata["kind"] == Probe.__name__:
        return Probe.load(folder)
    if task is None:
        what = f"has a {shorten(metadata['kind'])}, which this version does not know"
        raise UnsupportedModelError(what, where=str(folder))
    return task.estimator.restore(folder, metadata, in_bf16=in_bf16)


def task_for_head(checkpoint: Checkpoint) -> Task | None:
    """The task whose estimator uses the head of a checkpoint, such as masked language modeling, or None."""
    return next((task for task in TASKS.values() if checkpoint.head in task.checkpoint_heads), None)


@dataclass(frozen=True)
class SavedModel:
    """Description of a model folder, without its weights."""

    path: Path  # the folder of the model; for a run, its sub-folder ``model``
    metadata: Mapping[str, Any]  # contents of ``glassformer.json``; empty: the folder has no such file
    task: Task | None  # the task of the estimator that ``load`` returns; None: ``load`` raises an error

    @property
    def inputs(self) -> Inputs | None:
        """The kind of inputs; None if it is only known after loading the model."""
        if self.task is None or not self.metadata:
            return None
        return self.task.estimator.INPUTS.of_saved_model(self.metadata)


def describe(folder: str | Path) -> SavedModel:
    """Describe a run, a saved model, or a folder of ``transformers`` or sentence-transformers.

    Raises:
        CheckpointError: the folder cannot be read.
    """
    path, metadata = find_metadata(folder)
    if metadata:
        kind = metadata.get("kind")
        return SavedModel(path, metadata, task_of_estimator_name(kind) if isinstance(kind, str) else None)
    if not (path / "config.json").is_file():
        return SavedModel(path, {}, None)
    return SavedModel(path, {}, task_of_checkpoint(read_checkpoint(path.resolve())))


def task_of_checkpoint(checkpoint: Checkpoint) -> Task | None:
    """The task of the estimator that ``load`` returns for another library's folder, or None."""
    if (task := task_for_head(checkpoint)) is not None:
        return task
    if _classifies_tokens(checkpoint):
        return next(task for task in TASKS.values() if task.target.has_word_labels)
    if checkpoint.head == "classification" and checkpoint.family.hub is not None:
        return _task_for_target(
            checkpoint, target_from_hub(checkpoint.settings, checkpoint.config.num_labels)
        )
    return TASKS[SENTENCES] if _embeds_sentences(checkpoint) else None


def _embeds_sentences(checkpoint: Checkpoint) -> bool:
    return checkpoint.head is None and (checkpoint.folder / MODULES).exists()


def _classifies_tokens(checkpoint: Checkpoint) -> bool:
    return getattr(checkpoint.config, "pooling", None) == "tokens" and checkpoint.family.hub is not None


def _task_for_target(checkpoint: Checkpoint, kind: Classes) -> Task:
    supervised = (task for task in TASKS.values() if issubclass(task.estimator, Supervised))
    reads = checkpoint.family.model.reads
    return next(t for t in supervised if reads == t.estimator.NOUN and t.estimator.supports(kind))


def _check_activation(settings: dict[str, Any], kind: Classes, where: str) -> None:
    """Raise CheckpointError if ``config.json`` sets another activation of the logits than this target uses.

    The keys are those of transformers' pipelines and of sentence-transformers' cross-encoders.
    """
    supported = {"softmax"} if kind.is_single_label else {"sigmoid"} if kind.is_multilabel else {"none"}
    function = settings.get("function_to_apply")
    if function is not None and function not in supported:
        raise UnsupportedModelError(f"function_to_apply = {shorten(function)} is not supported", where=where)
    section, old_key = settings.get("sentence_transformers"), "sbert_ce_default_activation_function"
    activation = section.get("activation_fn") if isinstance(section, dict) else None
    activations = {"sentence_transformers.activation_fn": activation, old_key: settings.get(old_key)}
    for key, name in activations.items():
        if name is not None and str(name).rpartition(".")[2] != "Identity":
            raise UnsupportedModelError(f"{key} = {shorten(name)} is not supported", where=where)


def _load_transformers(folder: Path, in_bf16: bool = False) -> Any:
    """Load a folder of ``transformers`` as an estimator.

    Texts are truncated to the limit of the tokenizer and the position embeddings. The labels and the rows of
    the head are sorted, because ``classes_`` of every estimator is sorted.
    """
    where, settings = str(folder / "config.json"), read_json(folder / "config.json")
    checkpoint = read_checkpoint(folder)
    if (task := task_for_head(checkpoint)) is not None:
        return task.estimator.from_checkpoint(checkpoint)
    if _embeds_sentences(checkpoint):
        return TASKS[SENTENCES].estimator(str(folder)).open(in_bf16=in_bf16)
    precision: Any = "bf16" if in_bf16 else "fp32"
    model = load_pretrained(checkpoint, precision=precision)
    classes = settings.get("architectures") or []
    is_list = isinstance(classes, list)
    if _classifies_tokens(checkpoint) and is_list and set(map(str, classes)) <= HUB_TAGGERS:
        tagger = next(t.estimator for t in TASKS.values() if hasattr(t.estimator, "from_tagger_checkpoint"))
        return tagger.from_tagger_checkpoint(folder, checkpoint)
    count = getattr(model.config, "num_labels", 0)
    kind_of_target = target_from_hub(settings, count)
    other_head = describe_outputs(settings, count, where) if kind_of_target.is_single_label else ""
    if (
        not model.has_attention
        or str(settings.get("model_type")).startswith("glassformer")
        or model.config.head != "classification"
        or _classifies_tokens(checkpoint)
        or not is_list
        or not set(map(str, classes)) <= HUB_CLASSIFIERS
        or other_head
    ):
        what = "the model has no head for classes"
        if other_head:
            what = f"the model has a head for {other_head}"
        classifier = "TextClassifier(path)" if model.reads == "texts" else "ImageClassifier(path)"
        use = "Open it with load_pretrained"
        if is_image_text_folder(folder):
            use = "Name labels: ZeroShotImageClassifier(path, labels)"
        fix = f"{use}, or fine-tune it with {classifier}"
        raise UnsupportedModelError(what, where=str(folder), fix=fix)
    names = check_saved_labels(hub_labels(settings, count, where), "id2label", where)
    if count == 1 and kind_of_target.is_single_label:
        problem_type = shorten(settings.get("problem_type"))
        what = f"num_labels = 1 with problem_type = {problem_type} is a classifier with one class"
        fix = "For a score set problem_type to regression, or take it out"
        raise CheckpointError(what, where=where, fix=fix)
    _check_activation(settings, kind_of_target, where)
    estimator: Any = _task_for_target(checkpoint, kind_of_target).estimator
    limits = {}
    if model.reads == "texts":
        check_truncation_side(folder, "Fine-tune it: TextClassifier(path)")
        positions = model.config.embedding.max_positions
        limits["max_length"] = min(positions, model_max_length(folder) or positions)
    clf = estimator(str(folder), **limits)
    clf.read_parts(folder, {})
    if model.reads == "texts":
        extended = cover_vocabulary(checkpoint, clf.tokenizer_, str(folder))
        model = model if extended is checkpoint else load_pretrained(extended, precision=precision)
    if model.reads == "images":
        if clf.transform_.channels != model.config.embedding.channels:
            what = "the preprocessor and the model have different numbers of channels"
            raise CheckpointError(what, where=str(folder))
        if max(clf.transform_.size) > MAX_SIZE_RATIO * max(model.config.embedding.image_size):
            what = "the images of the preprocessor are far larger than those of the model"
            raise CheckpointError(what, where=str(folder))
    clf._with_parts(model, class_order=None, kind=kind_of_target, temperature=1.0, threshold=None)
    clf.classes_ = np.asarray(kind_of_target.classes(names) if count == 1 else names)
    if kind_of_target.sort_classes():
        clf._sort_classes()
    return clf
