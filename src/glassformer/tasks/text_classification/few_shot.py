"""``method = "few-shot"``: a classifier from a few examples a class.

As in SetFit (Tunstall et al., 2022), the encoder first learns from comparisons: texts of one class move
together, others apart (``Embedder.fit(texts, labels)``). Then a logistic regression of its vectors is the
head. What is left is an ordinary text classifier, with everything that one can do.

With many classes comparisons can do harm. Where a third of the texts is enough to tell, the encoder as it
came and the one that has compared the others predict that third, and the better one is taken.

Different from an ``Embedder`` with a head: vectors are not brought to length 1, since the head of a
classifier is linear in them; the regression is solved at their mean length.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.errors import DataError, NotForThisModelError
from glassformer.models.sentences import Dense, Sentences
from glassformer.runtime import choose_device, drawing_own
from glassformer.tasks.auto import Mirror, StopUnsaved, _become, _folds
from glassformer.tasks.build import pooling_by
from glassformer.tasks.estimator import Fit
from glassformer.tasks.heads import LinearHead, fit_head
from glassformer.tasks.similarity.estimator import Embedder
from glassformer.train.callbacks import Callback, StopOnSignal
from glassformer.train.distributed import join
from glassformer.train.solved_head import STRENGTHS

# Settings of a fit by gradients of a head, which is solved here: their values that ask for nothing.
IDLE = {
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
FEWEST = 100  # texts of a third that tell which encoder is better
# The classifier that has the encoder as it came.
UNTOUCHED = {
    "method": "fine-tune",
    "train_layers": 0,
    "unfreeze_every": 0,
    "lora_rank": 0,
    "head_start": "solved",
    "validation_fraction": 0.0,
    **dict.fromkeys(("lr", "epochs", "batch_size", "warmup")),
}
OWN = ("loss", "scale", "pairs_per_text", "head", "neighbors", "pooling", "dropout", "monitor")


def fit_few_shot(
    clf: Any, data: Sequence[Any], callbacks: Sequence[Callback], checkpoints: str | Path | None, resume: bool
) -> Any:
    """Fit a ``TextClassifier`` on a few examples; ``data`` as its ``fit`` hands them on.

    Raises:
        ConfigError: random weights, a checkpoint whose vectors no head of a classifier reads, or a setting
            that would have no effect.
        DataError: pairs, several labels an example, or weights of examples.
    """
    started = time.perf_counter()
    _check_settings(clf)
    configs = clf.configs()
    fit = Fit(configs, choose_device(clf.device), join(clf.strategy, choose_device(clf.device), clf.seed))
    fit.together = bool(clf.validation_fraction)
    fit.examples, fit.held = clf._examples(fit, *data)
    texts, targets, weights = fit.examples
    if clf.kind_.binary or weights is not None:
        what = "several labels per example" if clf.kind_.binary else "weights of examples"
        fix = "Leave --set method=few-shot out"
        raise DataError(f"few-shot compares texts of one label each, without {what}", where="method", fix=fix)
    clf._settle(fit)
    if clf.pairs_:
        what = "few-shot compares single texts, and these are pairs"
        raise DataError(what, where="method", fix="Leave --set method=few-shot out")
    clf.temperature_, clf.threshold_, clf.class_order_, clf.int8_ = 1.0, None, None, None
    clf._training_table(texts)  # counts those that are cut
    tried, strength = _tried(clf, texts, targets, callbacks)
    if tried and tried[0]["chosen"]:
        held = None if fit.held is None else (fit.held[0], clf.classes_[fit.held[1]])
        untouched = type(clf)(**clf.get_params(deep=False) | UNTOUCHED)
        calls = [Mirror(clf, untouched), *callbacks]
        untouched.fit(texts, clf.classes_[targets], validation=held, callbacks=calls)
        _become(clf, untouched, tried)
        clf.train_seconds_ = time.perf_counter() - started
        return clf
    embedder = Embedder(**_settings(clf))
    held = None if fit.held is None else (fit.held[0], fit.held[1].tolist())
    calls = [_Known(clf, embedder), *callbacks]
    given: dict[str, Any] = {"validation": held, "callbacks": calls, "checkpoints": checkpoints}
    embedder.fit(texts, targets.tolist(), resume=resume, **given)
    how: Sentences = embedder.model_.sentences
    with drawing_own():
        clf.model_ = embedder.model_.with_head(
            head="classification", pooling=_pooling(how, clf.model), num_labels=len(clf.classes_)
        ).eval()
    clf.model_.sentences = how
    clf._compute_model = None
    put_head(clf, texts, targets, strength)
    clf.hold_int8(fit)
    clf.history_, clf.best_step_ = embedder.history_, embedder.best_step_
    clf.weights_source_, clf.adapter_ = embedder.weights_source_, embedder.adapter_
    clf.adapter_scale_ = getattr(embedder, "adapter_scale_", None)
    used = ("epochs", "lr", "warmup", "batch_size")
    clf.chosen_ = {key: getattr(embedder, key) for key in used if getattr(clf, key) is None}
    clf.examples_ = {"train": len(texts), "validation": 0 if held is None else len(held[0])}
    clf.train_seconds_, clf.tried_ = time.perf_counter() - started, tried
    return clf


def _tried(
    clf: Any, texts: list[str], targets: np.ndarray, callbacks: Sequence[Callback]
) -> tuple[list[dict[str, Any]], float]:
    """How many of a held-out third each of two heads gets right: on the encoder as it came, and on the one
    that has compared the other texts; and the inverse regularization C that suits the latter.

    The head cannot choose C by itself: the encoder has learned from all of its texts. Nothing, and C = 1:
    the third is too small to tell, or no layer learns.
    """
    place = _folds(clf, texts, targets)
    held, rest = np.flatnonzero(place == 0), np.flatnonzero(place != 0)
    if len(held) < FEWEST or clf.train_layers == 0:
        return [], 1.0
    stops = [StopUnsaved(call.folder) for call in callbacks if isinstance(call, StopOnSignal)]
    found: list[dict[str, Any]] = []
    best = 1.0
    for how in ("frozen", "contrastive"):
        began, embedder = time.perf_counter(), Embedder(**_settings(clf))
        if how == "contrastive":
            embedder.fit([texts[i] for i in rest], targets[rest].tolist(), callbacks=stops)
        vectors = embedder.encode(texts)
        vectors /= max(float(np.linalg.norm(vectors, axis=1).mean()), 1e-12)
        given = {
            C: fit_head(vectors[rest], targets[rest], C=C).probabilities(vectors[held]) for C in STRENGTHS
        }
        own = np.arange(len(held)), targets[held]
        best = min(given, key=lambda C: -np.log(np.maximum(given[C][own], 1e-12)).mean())
        score = float((given[best].argmax(1) == targets[held]).mean())
        record = {"model": f"{clf.model}, {how}", "metric": "accuracy", "score": score}
        record |= {"examples": len(held), "by": "cross-validation"}
        found.append(record | {"seconds": round(time.perf_counter() - began, 2)})
        for call in callbacks:
            call.note(f"{record['model']}: accuracy {score:.4f}, {found[-1]['seconds']:.0f} s")
    untouched, compared = found
    untouched["chosen"] = untouched["score"] >= compared["score"]  # a tie goes to the faster
    compared["chosen"] = not untouched["chosen"]
    return found, best


class _Known(Callback):
    """Those who watch the training ask the classifier where its weights come from."""

    def __init__(self, clf: Any, embedder: Embedder):
        self.clf, self.embedder = clf, embedder

    def start(self, training: Any) -> None:
        self.clf.weights_source_ = self.embedder.weights_source_


def _check_settings(clf: Any) -> None:
    from glassformer.tasks.build import is_from_scratch

    if is_from_scratch(clf.model):
        what = f"few-shot goes on from a checkpoint, and {clf.model!r} has random weights"
        raise NotForThisModelError(what, where="model", fix="Name a checkpoint, such as all-minilm-l6-v2")
    for key, idle in IDLE.items():
        if getattr(clf, key) != idle:
            what = f"{key} = {getattr(clf, key)!r} has no effect with method = few-shot"
            raise NotForThisModelError(what, where=key, fix="Leave it out")


def _settings(clf: Any) -> dict[str, Any]:
    """The classifier's settings as an embedder takes them; what is unset is what suits comparisons."""
    names = [name for name in Embedder.defaults() if name not in OWN and hasattr(clf, name)]
    values = {name: getattr(clf, name) for name in names}
    idle = ("validation_fraction", "batch_tokens", "length_window")  # held out above; comparisons are by text
    values["precision"] = "auto" if clf.precision == "int8" else clf.precision  # int8 is for labels
    return {k: v for k, v in values.items() if v is not None and k not in idle}


def _pooling(how: Sentences, name: str) -> str:
    """How the head's vectors are made, where a classifier can make them as the checkpoint does.

    Raises:
        ConfigError: it cannot.
    """
    steps = [type(step).__name__ for step in how.after if isinstance(step, Dense)]
    odd = "lowercased texts" if how.lowercase else "a prompt" if how.prompt(None, None) else ""
    odd = "truncation" if how.truncate_dim is not None else odd
    pooling = pooling_by(how)
    if pooling is None or steps or odd:
        what = f"{name!r} makes its vectors by {odd or ' and '.join([*how.pool.modes, *steps])}"
        raise NotForThisModelError(
            f"{what}, which the head of a classifier does not read",
            where="model",
            fix="Use gf.Embedder().fit(texts, labels), or another checkpoint",
        )
    return pooling


def put_head(clf: Any, texts: list[str], targets: np.ndarray, strength: float = 1.0) -> None:
    """Solve the head on the vectors of ``texts`` as the classifier makes them; ``strength``: C."""
    vectors = (
        clf.embed(texts, head=True) if clf.precision != "int8" else clf._rows(texts, "pooled", None, "auto")
    )
    length = max(float(np.linalg.norm(vectors, axis=1).mean()), 1e-12)
    head = fit_head(vectors / length, targets, C=strength)
    assert isinstance(head, LinearHead)
    with torch.no_grad():
        clf.model_.head.out.weight.copy_(torch.from_numpy(head.weight / length))
        clf.model_.head.out.bias.copy_(torch.from_numpy(head.bias))
    clf._compute_model = None
