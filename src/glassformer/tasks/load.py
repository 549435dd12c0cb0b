"""A fitted classifier as one folder: the Hub's layout, ``glassformer.json``, and a manifest written last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.checkpoints.files import (
    MANIFEST,
    check_is_model,
    models_below,
    no_folder,
    read_json,
    restore_folder,
    steadily,
    verify_folder,
)
from glassformer.checkpoints.layout import other_task
from glassformer.checkpoints.native import refuse_unfinished
from glassformer.checkpoints.sentences import MODULES
from glassformer.checkpoints.settings import ABOUT, about_in, read_about, section, shown
from glassformer.data.checks import read_labels
from glassformer.data.tokenizer_file import check_cut, model_max_length
from glassformer.errors import CheckpointError, UnsupportedModelError
from glassformer.families import FAMILIES
from glassformer.families.pretrained import Checkpoint, load_pretrained, read_checkpoint
from glassformer.inputs.inputs import Inputs
from glassformer.runtime import computing
from glassformer.targets import kind_on_hub
from glassformer.targets.multiclass import Classes
from glassformer.tasks.build import fitting
from glassformer.tasks.catalog import TASKS, task_making
from glassformer.tasks.classifier import Supervised
from glassformer.tasks.estimator import FORMAT, Estimator
from glassformer.tasks.probe import Probe
from glassformer.tasks.task import Task

SENTENCES = "similarity"  # the task of folders of sentence-transformers
LARGER = 4  # an image of other people's models than the one that its positions belong to
THEIR_CLASSIFIERS = {f.hub.classes["classification"] for f in FAMILIES.values() if f.hub}
THEIR_TAGGERS = {f.hub.classes["tokens"] for f in FAMILIES.values() if f.hub and "tokens" in f.hub.classes}


def load(path: str | Path) -> Any:
    """A saved estimator of any kind, every byte checked against its manifest.

    A model that ``transformers`` trained and saved, of any of ``FAMILIES``, is opened too, where its head is
    for classes (of texts, images or words), numbers, answers from a text or masked words: its own head
    answers. A folder of sentence-transformers opens as an ``Embedder``. What another process saves there
    meanwhile is the old model or the new one, never parts of both.

    Args:
        path: the folder that ``save`` wrote, or a run folder that holds it as ``model``.

    Raises:
        CheckpointError: no such folder, a missing, cut or changed file (named), or a newer format; a folder
            of ``transformers`` without such a head.
        ConfigError: a run whose training is not finished.
    """
    folder = Path(path)
    for one in (folder, folder / "model"):
        restore_folder(one)
    refuse_unfinished(folder)
    if not (folder / ABOUT).is_file() and (folder / "model" / ABOUT).is_file():
        folder = folder / "model"
    with computing(gradients=True):
        return steadily(folder, lambda: _load(folder, path))


def _load(folder: Path, path: str | Path) -> Any:
    if folder.exists() and not folder.is_dir():
        fix = "Name the folder around it; a file of word vectors opens with Word2Vec.load"
        raise CheckpointError("is a file, not a folder", where=str(path), fix=fix)
    if not folder.is_dir():
        raise no_folder(path)
    folder = folder.resolve()  # a folder may be called as a checkpoint of the Hub is
    if not (folder / ABOUT).exists() and (folder / "config.json").is_file():
        if (folder / MANIFEST).exists():  # an export of ours has one; so has an estimator that lost its file
            verify_folder(folder)
        return _of_transformers(folder)
    if (
        not (folder / MANIFEST).exists()
        and not (folder / ABOUT).exists()
        and (found := models_below(folder, ABOUT, "config.json"))
    ):
        raise CheckpointError("holds no model itself", where=str(path), fix=f"Give one below it: {found}")
    check_is_model(folder)
    verify_folder(folder)
    about = read_about(folder, FORMAT)
    task = task_making(about["kind"])
    if task is None and about["kind"] == Probe.__name__:
        return Probe.load(folder)
    if task is None:
        what = f"holds a {shown(about['kind'])}, which this version does not know"
        raise UnsupportedModelError(what, where=str(folder))
    return task.estimator.restore(folder, about)


def estimators() -> dict[str, type[Estimator]]:
    """Every estimator by what ``glassformer.json`` calls it."""
    return {task.estimator.saved_as(): task.estimator for task in TASKS.values()}


def _no_classifier(checkpoint: Checkpoint, other: str) -> tuple[str, str]:
    """What a folder of other people's holds that is no classifier, and what opens it.

    Args:
        other: what its head's outputs are, in words, where they are no scores of classes.
    """
    what = f"holds a model whose head is for {other}" if other else "holds a model without a head for classes"
    tuned = "TextClassifier(path)" if checkpoint.family.model.reads == "texts" else "ImageClassifier(path)"
    return what, f"Open it with load_pretrained, or fine-tune it with {tuned}"


def task_opening(checkpoint: Checkpoint) -> Task | None:
    """The task that makes use of a checkpoint's own head, where that is no head for classes."""
    return next((task for task in TASKS.values() if checkpoint.head in task.opens), None)


@dataclass(frozen=True)
class SavedModel:
    """What a folder holds, told without its weights."""

    path: Path  # of the model: of a run the folder in it
    about: Mapping[str, Any]  # what ``glassformer.json`` says; empty: others wrote it, or no model is there
    task: Task | None  # whose estimator ``load`` gives; None: there is none, and ``load`` says why

    @property
    def inputs(self) -> Inputs | None:
        """The kind of what it reads; None: only the model can tell."""
        return None if self.task is None or not self.about else self.task.estimator.INPUTS.of(self.about)


def describe(folder: str | Path) -> SavedModel:
    """What a run, a saved model, or a folder of ``transformers`` or sentence-transformers holds.

    Raises:
        CheckpointError: a folder that cannot be read.
    """
    path, about = about_in(folder)
    if about:
        kind = about.get("kind")
        return SavedModel(path, about, task_making(kind) if isinstance(kind, str) else None)
    if not (path / "config.json").is_file():
        return SavedModel(path, {}, None)
    return SavedModel(path, {}, task_of_checkpoint(read_checkpoint(path.resolve())))


def task_of_checkpoint(checkpoint: Checkpoint) -> Task | None:
    """The task whose estimator ``load`` gives for a folder of others; None: none, and ``load`` says why."""
    if (task := task_opening(checkpoint)) is not None:
        return task
    if _answers_tokens(checkpoint):
        return next(task for task in TASKS.values() if task.target.word_labels)
    if checkpoint.head == "classification" and checkpoint.family.hub is not None:
        return _task_learning(checkpoint, kind_on_hub(checkpoint.settings, checkpoint.config.num_labels))
    return TASKS[SENTENCES] if _makes_vectors(checkpoint) else None


def _makes_vectors(checkpoint: Checkpoint) -> bool:
    """Whether a folder of sentence-transformers says how its encoder makes one vector of a text."""
    return checkpoint.head is None and (checkpoint.folder / MODULES).exists()


def _answers_tokens(checkpoint: Checkpoint) -> bool:
    """Whether the head of a checkpoint of others gives classes for each token."""
    return getattr(checkpoint.config, "pooling", None) == "tokens" and checkpoint.family.hub is not None


def _task_learning(checkpoint: Checkpoint, kind: Classes) -> Task:
    """The task of a checkpoint with a head of that kind of target."""
    able = (task for task in TASKS.values() if issubclass(task.estimator, Supervised))
    reads = checkpoint.family.model.reads
    return next(t for t in able if reads == t.estimator.NOUN and t.estimator.learns(kind))


def _check_applied(settings: dict[str, Any], kind: Classes, where: str) -> None:
    """Raises CheckpointError where ``config.json`` makes answers of logits in another way than the kind does.

    ``function_to_apply`` is of pipelines of transformers, the others of the cross-encoders of
    sentence-transformers.
    """
    usual = {"softmax"} if kind.joint else {"sigmoid"} if kind.binary else {"none"}
    asked = settings.get("function_to_apply")
    if asked is not None and asked not in usual:
        raise UnsupportedModelError(f"function_to_apply = {shown(asked)} is not supported", where=where)
    theirs, old = settings.get("sentence_transformers"), "sbert_ce_default_activation_function"
    own = theirs.get("activation_fn") if isinstance(theirs, dict) else None
    named = {"sentence_transformers.activation_fn": own, old: settings.get(old)}
    for key, name in named.items():
        if name is not None and str(name).rpartition(".")[2] != "Identity":
            raise UnsupportedModelError(f"{key} = {shown(name)} is not supported", where=where)


def _of_transformers(folder: Path) -> Any:
    """What a folder that ``transformers`` wrote answers with; texts are cut where its tokenizer and the
    model's positions say. A head that answers each token makes it a tagger.

    Its labels are sorted, as ``classes_`` always is, and the rows of its head with them. A head of several
    labels at once gives label sets.
    """
    where, settings = str(folder / "config.json"), read_json(folder / "config.json")
    checkpoint = read_checkpoint(folder)
    if (task := task_opening(checkpoint)) is not None:
        return task.estimator.opened(checkpoint)
    model, made_as = load_pretrained(checkpoint), settings.get("architectures") or []
    if _makes_vectors(checkpoint):
        return TASKS[SENTENCES].estimator(str(folder)).opened()
    if _answers_tokens(checkpoint) and isinstance(made_as, list) and set(map(str, made_as)) <= THEIR_TAGGERS:
        tagger = next(t.estimator for t in TASKS.values() if hasattr(t.estimator, "of_tokens"))
        return tagger.of_tokens(folder, checkpoint)
    count = getattr(model.config, "num_labels", 0)
    kind_of_target = kind_on_hub(settings, count)
    other = other_task(settings, count, where) if kind_of_target.joint else ""
    if (
        not model.has_attention
        or str(settings.get("model_type")).startswith("glassformer")
        or model.config.head != "classification"
        or _answers_tokens(checkpoint)
        or not isinstance(made_as, list)
        or not set(map(str, made_as)) <= THEIR_CLASSIFIERS
        or other
    ):
        what, fix = _no_classifier(checkpoint, other)
        raise UnsupportedModelError(what, where=str(folder), fix=fix)
    named = section(settings, "id2label", where) if settings.get("id2label") else {}
    names = [named.get(str(i), None if named else f"LABEL_{i}") for i in range(count)]
    if len(named) not in (0, count) or not all(isinstance(n, str) for n in names) or len(set(names)) < count:
        raise CheckpointError(f"'id2label' does not name each of the {count} outputs once", where=where)
    names = read_labels(names, "id2label", where)
    if count == 1 and kind_of_target.joint:
        what = f"num_labels = 1 with problem_type = {shown(settings.get('problem_type'))}: one class alone"
        raise CheckpointError(
            what, where=where, fix="For a score set problem_type to regression, or take it out"
        )
    _check_applied(settings, kind_of_target, where)
    kind: Any = _task_learning(checkpoint, kind_of_target).estimator
    most = {}
    if model.reads == "texts":
        check_cut(folder, "Fine-tune it: TextClassifier(path)")
        positions = model.config.embedding.max_positions
        most["max_length"] = min(positions, model_max_length(folder) or positions)
    clf = kind(str(folder), **most)
    clf.read_parts(folder, {})
    if model.reads == "texts":
        fitted = fitting(checkpoint, clf.tokenizer_, str(folder))
        model = model if fitted is checkpoint else load_pretrained(fitted)
    if model.reads == "images":
        if clf.transform_.channels != model.config.embedding.channels:
            what = "the preprocessor gives other channels than the model reads"
            raise CheckpointError(what, where=str(folder))
        if max(clf.transform_.size) > LARGER * max(model.config.embedding.image_size):
            what = "the preprocessor gives far larger images than the model was made for"
            raise CheckpointError(what, where=str(folder))
    clf._with_parts(model, class_order=None, kind=kind_of_target, temperature=1.0, threshold=None)
    clf.classes_ = np.asarray(kind_of_target.classes(names) if count == 1 else names)
    if kind_of_target.sort_classes():
        clf._sort_classes()
    return clf
