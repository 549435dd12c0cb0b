"""``method="few-shot"``: few-shot classification as in SetFit.

First the encoder is trained with a contrastive loss: texts of the same class move closer together, and texts
of different classes move apart (``Embedder.fit(texts, labels)``; Tunstall et al., 2022). Then a logistic
regression on the embeddings becomes the head. The result is an ordinary text classifier.

With many classes, contrastive training can lower the accuracy. If there are enough texts, the pre-trained
encoder is compared with an encoder trained on two thirds of the texts, and the better one is used.

The head of a classifier is linear, so it cannot normalize embeddings as an ``Embedder`` does. Therefore the
regression is fitted on embeddings that are divided by their mean norm.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.errors import DataError, NotForThisModelError
from glassformer.models.sentences import Dense, EmbeddingSettings
from glassformer.runtime import torch_uses_own_generator
from glassformer.tasks.auto import CopyStateOnStart, StopUnsaved, assign_folds, copy_fitted_state
from glassformer.tasks.build import matching_pooling
from glassformer.tasks.estimator import FitState
from glassformer.tasks.similarity.estimator import Embedder
from glassformer.train.callbacks import Callback, StopOnSignal
from glassformer.train.solved_head import C_VALUES, LinearHead, fit_head

# Setting that has no effect, as no head is trained by gradient descent -> the only value that is accepted.
REQUIRED = {
    "class_weight": None,
    "pos_weight": None,
    "label_smoothing": 0.0,
    "word_dropout": 0.0,
    "maskable": False,
    "head": "linear",
    "head_dropout": 0.0,
    "keep_epochs": False,
    "long_texts": "cut",
    "add_special_tokens": True,
}
MIN_HELD_OUT = 100  # minimum number of texts in the held-out third
# Settings of the classifier if the pre-trained encoder is the better one.
PRETRAINED = {
    "method": "fine-tune",
    "train_layers": 0,
    "unfreeze_every": 0,
    "lora_rank": 0,
    "head_start": "solved",
    "validation_fraction": 0.0,
    **dict.fromkeys(("lr", "epochs", "batch_size", "warmup")),
}
# Settings of ``Embedder`` that are not taken from the classifier.
NOT_SHARED = ("loss", "scale", "pairs_per_text", "head", "neighbors", "pooling", "dropout", "monitor")


def fit_few_shot(
    clf: Any, data: Sequence[Any], callbacks: Sequence[Callback], checkpoints: str | Path | None, resume: bool
) -> Any:
    """Fit a ``TextClassifier`` with ``method="few-shot"`` on the arguments of ``fit``."""
    started = time.perf_counter()
    _check_settings(clf)
    fit = FitState.of(clf, data)
    texts, targets, weights = fit.examples
    if clf.kind_.is_multilabel or weights is not None:
        unsupported = "several labels per example" if clf.kind_.is_multilabel else "weights of examples"
        what = f"few-shot needs texts with one label and does not support {unsupported}"
        raise DataError(what, where="method", fix="Leave --set method=few-shot out")
    clf._build_preprocessor(fit)
    if clf.pairs_:
        what = "few-shot compares single texts, and these are pairs"
        raise DataError(what, where="method", fix="Leave --set method=few-shot out")
    clf.temperature_, clf.threshold_, clf.class_order_, clf.int8_ = 1.0, None, None, None
    clf._training_table(texts)  # to set ``truncated_``
    tried, C = _compare_encoders(clf, texts, targets, callbacks)
    if tried and tried[0]["chosen"]:  # the pre-trained encoder
        validation = None if fit.validation is None else (fit.validation[0], clf.classes_[fit.validation[1]])
        pretrained = type(clf)(**clf.get_params(deep=False) | PRETRAINED)
        callbacks = [CopyStateOnStart(clf, pretrained), *callbacks]
        pretrained.fit(texts, clf.classes_[targets], validation=validation, callbacks=callbacks)
        copy_fitted_state(clf, pretrained, tried)
        clf.train_seconds_ = time.perf_counter() - started
        return clf
    embedder = Embedder(**_embedder_settings(clf))
    validation = None if fit.validation is None else (fit.validation[0], fit.validation[1].tolist())
    callbacks = [_CopySource(clf, embedder), *callbacks]
    options: dict[str, Any] = {"validation": validation, "callbacks": callbacks, "checkpoints": checkpoints}
    embedder.fit(texts, targets.tolist(), resume=resume, **options)
    sentences: EmbeddingSettings = embedder.model_.sentences
    options = {"head": "classification", "num_labels": len(clf.classes_)}
    pooling = equivalent_pooling(sentences, clf.model)
    with torch_uses_own_generator():
        clf.model_ = embedder.model_.with_head(pooling=pooling, **options).eval()
    clf.model_.sentences = sentences
    clf._compute_model = None
    fit_encoder_head(clf, texts, targets, C)
    clf.check_int8_after_fit(fit)
    clf.history_, clf.best_step_ = embedder.history_, embedder.best_step_
    clf.weights_source_, clf.adapter_ = embedder.weights_source_, embedder.adapter_
    clf.adapter_scale_ = getattr(embedder, "adapter_scale_", None)
    keys = ("epochs", "lr", "warmup", "batch_size")
    clf.chosen_ = {key: getattr(embedder, key) for key in keys if getattr(clf, key) is None}
    clf.examples_ = {"train": len(texts), "validation": 0 if validation is None else len(validation[0])}
    clf.train_seconds_, clf.tried_ = time.perf_counter() - started, tried
    return clf


def _compare_encoders(
    clf: Any, texts: list[str], targets: np.ndarray, callbacks: Sequence[Callback]
) -> tuple[list[dict[str, Any]], float]:
    """Compare the pre-trained encoder with one that is trained on two thirds of the texts.

    Returns:
        One record per encoder with its accuracy on the other third, and the best C (inverse regularization
        strength) for the trained encoder. Cross-validation could not choose C for the final head, because its
        encoder is trained on all texts. If the third is too small or no layer is trained: no records, C = 1.
    """
    fold = assign_folds(clf, texts, targets)
    held_out, train = np.flatnonzero(fold == 0), np.flatnonzero(fold != 0)
    if len(held_out) < MIN_HELD_OUT or clf.train_layers == 0:
        return [], 1.0
    stop_callbacks = [StopUnsaved(call.folder) for call in callbacks if isinstance(call, StopOnSignal)]
    records: list[dict[str, Any]] = []
    best = 1.0
    for variant in ("frozen", "contrastive"):
        started, embedder = time.perf_counter(), Embedder(**_embedder_settings(clf))
        if variant == "contrastive":
            embedder.fit([texts[i] for i in train], targets[train].tolist(), callbacks=stop_callbacks)
        vectors = embedder.encode(texts)
        vectors /= max(float(np.linalg.norm(vectors, axis=1).mean()), 1e-12)
        heads = {C: fit_head(vectors[train], targets[train], C=C) for C in C_VALUES}
        by_C = {C: head.probabilities(vectors[held_out]) for C, head in heads.items()}
        truth = np.arange(len(held_out)), targets[held_out]
        best = min(by_C, key=lambda C: -np.log(np.maximum(by_C[C][truth], 1e-12)).mean())
        score = float((by_C[best].argmax(1) == targets[held_out]).mean())
        record = {"model": f"{clf.model}, {variant}", "metric": "accuracy", "score": score}
        record |= {"examples": len(held_out), "by": "cross-validation"}
        records.append(record | {"seconds": round(time.perf_counter() - started, 2)})
        for call in callbacks:
            call.note(f"{record['model']}: accuracy {score:.4f}, {records[-1]['seconds']:.0f} s")
    frozen, contrastive = records
    frozen["chosen"] = frozen["score"] >= contrastive["score"]  # if they are equal, the faster one
    contrastive["chosen"] = not frozen["chosen"]
    return records, best


class _CopySource(Callback):
    """Copies ``weights_source_`` to the classifier when training starts, for the user's callbacks."""

    def __init__(self, clf: Any, embedder: Embedder):
        self.clf, self.embedder = clf, embedder

    def start(self, training: Any) -> None:
        self.clf.weights_source_ = self.embedder.weights_source_


def _check_settings(clf: Any) -> None:
    from glassformer.tasks.build import is_from_scratch

    if is_from_scratch(clf.model):
        what = f"few-shot needs a checkpoint, and {clf.model!r} has random weights"
        raise NotForThisModelError(what, where="model", fix="Name a checkpoint, such as all-minilm-l6-v2")
    for key, required in REQUIRED.items():
        if getattr(clf, key) != required:
            what = f"{key} = {getattr(clf, key)!r} has no effect with method = few-shot"
            raise NotForThisModelError(what, where=key, fix="Leave it out")


def _embedder_settings(clf: Any) -> dict[str, Any]:
    """The settings of the embedder, from those of the classifier, without settings that are None."""
    names = [name for name in Embedder.defaults() if name not in NOT_SHARED and hasattr(clf, name)]
    values = {name: getattr(clf, name) for name in names}
    unused = ("validation_fraction", "batch_tokens", "length_window")  # batches have a fixed number of texts
    values["precision"] = "auto" if clf.precision == "int8" else clf.precision  # only classifiers have int8
    return {k: v for k, v in values.items() if v is not None and k not in unused}


def equivalent_pooling(sentences: EmbeddingSettings, name: str) -> str:
    """The classifier's pooling that equals the checkpoint's; raises ConfigError if there is none."""
    dense = [type(step).__name__ for step in sentences.after if isinstance(step, Dense)]
    unsupported = ""
    if sentences.truncate_dim is not None:
        unsupported = "truncation"
    elif sentences.lowercase:
        unsupported = "lowercased texts"
    elif sentences.prompt(None, None):
        unsupported = "a prompt"
    pooling = matching_pooling(sentences)
    if pooling is None or dense or unsupported:
        unsupported = unsupported or " and ".join([*sentences.pool.modes, *dense])
        what = f"{name!r} computes its vectors with {unsupported}, which a classifier does not support"
        fix = "Use gf.Embedder().fit(texts, labels), or another checkpoint"
        raise NotForThisModelError(what, where="model", fix=fix)
    return pooling


def fit_encoder_head(clf: Any, texts: list[str], targets: np.ndarray, C: float = 1.0) -> None:
    """Fit the head on the pooled vectors of ``texts``; C is the inverse regularization strength."""
    # int8 is checked only after the fit.
    vectors = clf._compute(texts, "pooled", precision="auto" if clf.precision == "int8" else None)
    length = max(float(np.linalg.norm(vectors, axis=1).mean()), 1e-12)
    head = fit_head(vectors / length, targets, C=C)
    assert isinstance(head, LinearHead)
    with torch.no_grad():
        clf.model_.head.out.weight.copy_(torch.from_numpy(head.weight / length))
        clf.model_.head.out.bias.copy_(torch.from_numpy(head.bias))
    clf._compute_model = None
