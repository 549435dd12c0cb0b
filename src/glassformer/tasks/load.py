"""A fitted classifier as one folder: the Hub's layout, ``glassformer.json``, and a manifest written last."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from glassformer.checkpoints.exchange import steadily
from glassformer.checkpoints.files import MANIFEST, read_json, restore_folder, verify_folder
from glassformer.checkpoints.huggingface import load_pretrained
from glassformer.checkpoints.layout import other_task
from glassformer.checkpoints.settings import ABOUT, check_parameters, read_about, real, section, shown
from glassformer.data.checks import check_labels
from glassformer.errors import CheckpointError, DataError
from glassformer.tasks.build import check_table

if TYPE_CHECKING:
    from glassformer.tasks.classifier import Estimator

FORMAT = 1  # of glassformer.json
COLDEST, HOTTEST = 1e-3, 1e3  # of a temperature; calibration itself looks at 0.05 to 20
LARGER = 4  # a picture of other people's models than the one that its positions belong to
OVER_ONE = 1 + 1e-6  # a threshold that no probability reaches may stand just above 1
THEIR_CLASSIFIERS = {"BertForSequenceClassification", "ViTForImageClassification"}


def load(path: str | Path) -> Any:
    """A saved estimator of any kind, every byte checked against its manifest.

    A classifier that ``transformers`` trained and saved, BERT or ViT, is opened too: its own head answers. What another
    process saves there meanwhile is the old model or the new one, never parts of both.

    Args:
        path: the folder that ``save`` wrote, or a run folder that holds it as ``model``.

    Raises:
        CheckpointError: no such folder, a missing, cut or changed file (named), or a newer format; a folder of
            ``transformers`` without a head for classes.
    """
    folder = Path(path)
    for one in (folder, folder / "model"):
        restore_folder(one)
    if not (folder / ABOUT).is_file() and (folder / "model" / ABOUT).is_file():
        folder = folder / "model"
    return steadily(folder, lambda: _load(folder, path))


def _load(folder: Path, path: str | Path) -> Any:
    if folder.exists() and not folder.is_dir():
        raise CheckpointError("is a file, not a folder", where=str(path), fix="Name the folder around it")
    if not folder.is_dir():
        raise CheckpointError("no such folder", where=str(path))
    folder = folder.resolve()  # a folder may be called as a checkpoint of the Hub is
    if not (folder / ABOUT).exists() and (folder / "config.json").is_file():
        if (folder / MANIFEST).exists():  # an export of ours has one; so has an estimator that lost its file
            verify_folder(folder)
        return _of_transformers(folder)
    verify_folder(folder)
    about = read_about(folder, FORMAT)
    kind = about["kind"]
    if kind == "Translator":
        from glassformer.tasks.translation.estimator import load_translator

        return load_translator(folder, about)
    if kind == "MaskedLM":
        from glassformer.tasks.masked_lm.estimator import load_masked_lm

        return load_masked_lm(folder, about)
    if kind == "Word2Vec":
        from glassformer.tasks.word2vec.estimator import Word2Vec

        return Word2Vec.load(folder)
    return _fitted(folder, about)


def _kinds() -> dict[str, type[Estimator]]:
    """What ``glassformer.json`` may call a classifier."""
    from glassformer.tasks.image_classification.estimator import ImageClassifier
    from glassformer.tasks.text_classification.estimator import TextClassifier

    return {cls.__name__: cls for cls in (TextClassifier, ImageClassifier)}


def _of_transformers(folder: Path) -> Any:
    """The classifier in a folder that ``transformers`` wrote; texts are cut at the model's positions.

    Its labels are sorted, as ``classes_`` always is, and the rows of its head with them.
    """
    from glassformer.models.image import ViT
    from glassformer.models.text import Bert
    from glassformer.tasks.image_classification.estimator import ImageClassifier
    from glassformer.tasks.text_classification.estimator import TextClassifier

    where, settings = str(folder / "config.json"), read_json(folder / "config.json")
    model = load_pretrained(folder)
    made_as, count = (
        settings.get("architectures") or list(THEIR_CLASSIFIERS),
        getattr(model.config, "num_labels", 0),
    )
    other = other_task(settings, count)
    if (
        not isinstance(model, Bert | ViT)
        or str(settings.get("model_type")).startswith("glassformer")
        or model.config.head != "classification"
        or not isinstance(made_as, list)
        or not set(map(str, made_as)) <= THEIR_CLASSIFIERS
        or other
    ):
        raise CheckpointError(
            f"holds a model whose head is for {other}"
            if other
            else "holds a model without a head for classes",
            where=str(folder),
            fix="Open it with load_pretrained, or fine-tune it with TextClassifier(path) or ImageClassifier(path)",
        )
    named = section(settings, "id2label", where) if settings.get("id2label") else {}
    names = [named.get(str(i), None if named else f"LABEL_{i}") for i in range(count)]
    if len(named) not in (0, count) or not all(isinstance(n, str) for n in names) or len(set(names)) < count:
        raise CheckpointError(f"'id2label' does not name each of the {count} outputs once", where=where)
    names = _labels(names, "id2label", where)
    clf: Any
    if isinstance(model, Bert):
        clf = TextClassifier(str(folder), max_length=model.config.embedding.max_positions)
    else:
        clf = ImageClassifier(str(folder))
    clf._read_parts(folder, {})
    if isinstance(model, Bert):
        check_table(clf.tokenizer_, model, str(folder))
    if isinstance(model, ViT):
        if clf.transform_.channels != model.config.embedding.channels:
            what = "the preprocessor gives other channels than the model reads"
            raise CheckpointError(what, where=str(folder))
        if max(clf.transform_.size) > LARGER * max(model.config.embedding.image_size):
            what = "the preprocessor gives far larger pictures than the model was made for"
            raise CheckpointError(what, where=str(folder))
    order = sorted(range(count), key=lambda i: names[i])
    with torch.no_grad():
        for part in model.head.out.parameters():  # type: ignore[union-attr]
            part.copy_(part[order])
    clf.classes_, clf.model_ = np.asarray([names[i] for i in order]), model
    clf.temperature_, clf.threshold_, clf.history_ = 1.0, None, []
    clf.weights_source_, clf.best_step_, clf.train_seconds_ = model.weights_source, 0, 0.0
    return clf


def _labels(labels: list[Any], key: str, where: str) -> list[Any]:
    """The labels of a model, each checked as those of a table are.

    Raises:
        CheckpointError: one that cannot be one, or stands there twice.
    """
    try:
        checked = check_labels(labels, key)
    except DataError as error:
        raise CheckpointError(f"{error.where}: {error.what}", where=where) from None
    if len(set(checked)) < len(checked):
        raise CheckpointError(f"{key!r} holds what is no label, or a label twice", where=where)
    return list(checked)


def _check_fit(clf: Any, folder: Path) -> None:
    """Raises CheckpointError where the preprocessing of a folder gives what its model cannot read."""
    config = clf.model_.config.embedding
    if clf.NOUN == "texts":
        check_table(clf.tokenizer_, clf.model_, str(folder))
        is_encoder = hasattr(clf.model_.config, "encoder")  # others have no positions
        if is_encoder and config.positions == "learned" and clf.max_length > config.max_positions:
            what = f"max_length = {clf.max_length} is more than the model's {config.max_positions} positions"
            raise CheckpointError(what, where=str(folder / ABOUT))
    elif (clf.transform_.channels, clf.transform_.size) != (config.channels, config.image_size):
        raise CheckpointError("the preprocessor gives other pictures than the model reads", where=str(folder))


def _fitted(folder: Path, about: dict[str, Any]) -> Any:
    kind = _kinds().get(about["kind"])
    if kind is None:
        raise CheckpointError(
            f"holds a {shown(about['kind'])}, which this version does not know", where=str(folder)
        )
    where = str(folder / ABOUT)
    classes = about.get("classes")
    if not isinstance(classes, list) or not classes:
        raise CheckpointError("'classes' is missing or no list of labels of one kind", where=where)
    classes = _labels(classes, "classes", where)
    names = kind._get_param_names()
    # JSON has lists only; parameters that hold several values are tuples.
    known = {k: tuple(v) if isinstance(v, list) else v for k, v in about["parameters"].items() if k in names}
    clf = kind(**known)
    check_parameters(clf._configs, folder)
    clf.classes_ = np.asarray(classes)
    clf.model_ = load_pretrained(folder)
    if hasattr(clf.model_.config.embedding, "vocab_size") != (clf.NOUN == "texts"):
        raise CheckpointError(f"holds a model that does not read {clf.NOUN}", where=str(folder))
    if clf.model_.config.num_labels != len(classes):
        what = f"{len(classes)} classes, but the model has {clf.model_.config.num_labels} outputs"
        raise CheckpointError(what, where=where)
    clf._read_parts(folder, about)
    _check_fit(clf, folder)
    clf.temperature_ = real(about, "temperature", where, 1.0)
    if not COLDEST <= clf.temperature_ <= HOTTEST:
        what = f"temperature = {clf.temperature_:g} is none from {COLDEST:g} to {HOTTEST:g}"
        raise CheckpointError(what, where=where, fix="Calibrate it again")
    clf.threshold_ = None if about.get("threshold") is None else real(about, "threshold", where, 0.5)
    if clf.threshold_ is not None and clf.threshold_ > OVER_ONE:
        what = f"threshold = {clf.threshold_:g} is no probability"
        raise CheckpointError(what, where=where, fix="Choose it again")
    clf.weights_source_, clf.best_step_ = about["weights_source"], about["best_step"]
    clf.train_seconds_ = about["train_seconds"]
    if isinstance(clf.class_weight, dict):  # JSON's keys are text
        by_text = {str(label): label for label in classes}
        clf.class_weight = {by_text.get(key, key): weight for key, weight in clf.class_weight.items()}
    clf.history_ = []
    return clf
