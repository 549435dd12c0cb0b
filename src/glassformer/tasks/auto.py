"""``model="auto"``: compare models by validation.

The candidates, from cheap to expensive:

    tfidf, hog   a linear model: texts by TF-IDF of words and characters, images by edges and colors
    frozen       logistic regression (ridge for numbers) on the embeddings of a frozen encoder
    fine-tuned   the encoder and its head; the weights of that regression initialize the head

For pairs of texts, the frozen encoder reads each text separately (``nn/pairs.py``). Without pre-trained
weights, the candidates are tfidf for texts, and hog and a small encoder from scratch for images.

All candidates are scored on the same examples: the validation examples if there are enough, otherwise the
training examples by cross-validation. The highest score wins, but a more expensive model must be better by
half a standard error of the difference. Fine-tuned weights are interpolated towards the pre-trained weights
by the share with the best score (WiSE-FT, Wortsman et al., 2022). After a candidate without errors, or after
``time_limit``, more expensive candidates are skipped. Apart from ``time_limit``, the choice of candidates
depends only on the data, so that the same seed gives the same bits.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.checkpoints.catalog import AUTO, CATALOG, IMAGE_ENCODER, IMAGE_SCRATCH
from glassformer.checkpoints.hub import is_available, resolve_checkpoint
from glassformer.checkpoints.native import newest_fingerprint
from glassformer.config import keys_used_by
from glassformer.data.splits import grouped_split, stratified_subset
from glassformer.data.text_pairs import are_pairs
from glassformer.data.tokenizer_file import load_tokenizer
from glassformer.errors import CheckpointError, FromScratchWarning, OtherLanguageWarning
from glassformer.process import without_warnings
from glassformer.targets.regression import regression_metrics
from glassformer.tasks.build import foreign_tokens_per_word
from glassformer.tasks.estimator import FitState
from glassformer.train.callbacks import INTERRUPTED, RESUME_HINT, Callback, Interrupted, StopOnSignal
from glassformer.train.config import auto_values, user_stacklevel
from glassformer.train.distributed import world
from glassformer.train.loop import START_SHARES

ENCODER = "all-minilm-l6-v2"
WIDTH = 384  # width of the embeddings of both encoders
MAX_IMAGES = 1_000  # with more training images, the image encoder is not fine-tuned, because it is slow
IMAGES_PER_FIT = 1_000  # approximate number of images that fine-tuning reads in all epochs together
IMAGE_EPOCHS = (3, 20)  # minimum and maximum number of epochs of fine-tuning on images
MIN_VALIDATION = 300  # with fewer validation examples, candidates are scored by cross-validation
FOLDS = 3
MAX_CROSS_VALIDATED = 3_000  # with more training examples, a part is held out instead of cross-validation
MAX_TOKENS_ALL_FOLDS = 100_000  # with more training tokens, only one fold is scored
PERFECT = "no error left to correct"
FOREIGN = "the texts are in a language that it was not trained on, and frozen it is behind"
HELD_OUT = 0.1  # share of examples that is held out instead of cross-validation
MARGIN = 0.5  # number of standard errors by which a more expensive model must be better
RESAMPLES = 50  # number of bootstrap resamples that estimate the standard error
STEP_COST = 5  # upper bound for the time of a training step, relative to prediction


@dataclass(frozen=True)
class Candidate:
    """A model to compare."""

    name: str
    settings: dict[str, Any]  # parameters of the estimator
    is_trained: bool = False  # whether it is trained by gradient descent
    warning: str = ""  # why this model replaces a pre-trained encoder; empty: no warning

    @property
    def fine_tunes(self) -> bool:
        """Whether training starts from pre-trained weights."""
        return self.is_trained and "head_start" in self.settings

    def with_share(self, share: float) -> Candidate:
        """The candidate with this ``start_share``; unchanged if it does not fine-tune."""
        return replace(self, settings=self.settings | {"start_share": share}) if self.fine_tunes else self


TFIDF = Candidate("tfidf", {"model": "tfidf"})
HOG = Candidate("hog", {"model": "hog"})
SCRATCH = Candidate(IMAGE_SCRATCH, {"model": IMAGE_SCRATCH}, is_trained=True)
SCRATCH_SHIFTED = replace(
    SCRATCH, settings={**SCRATCH.settings, "weight_decay": 0.05, "schedule": "cosine", "augment": "shift"}
)
COMPARED = {"start_share": 0.0}  # marks checkpoints of a model from scratch that was compared with others


def frozen_candidate(encoder: str) -> Candidate:
    """A candidate that fits a head on the embeddings of a frozen checkpoint."""
    settings = {"model": encoder, "head_start": "solved", "train_layers": 0}
    return Candidate(f"{encoder}, frozen", settings)


def bi_encoder_candidate(candidate: Candidate) -> Candidate:
    """The candidate for pairs, with an encoder that reads the two texts separately."""
    settings = candidate.settings | {"pairs": "apart"}
    return replace(candidate, name=f"{candidate.name}, sides apart", settings=settings)


def fine_tuned_candidate(encoder: str, **options: Any) -> Candidate:
    """A candidate that fine-tunes a checkpoint; its initial head is that of ``frozen_candidate``."""
    settings = {"model": encoder, "head_start": "solved", **options}
    return Candidate(f"{encoder}, fine-tuned", settings, is_trained=True)


@dataclass
class CandidateResult:
    """A candidate, its outputs ``[m, C]`` for the scored examples, and their score."""

    candidate: Candidate
    outputs: np.ndarray
    score: float
    seconds: float
    estimator: Any = None  # the estimator; None after cross-validation

    @property
    def share(self) -> float:
        """The share of the pre-trained weights in the final weights."""
        chosen = {} if self.estimator is None else self.estimator.chosen_
        return self.candidate.settings.get("start_share", chosen.get("start_share", 0.0))


def needs_encoder(clf: Any) -> bool:
    """Whether the user set a parameter of encoders; ``auto`` then fits only ``default_candidate``."""
    changed = {key for key, default in clf.defaults().items() if getattr(clf, key) != default}
    return bool(changed - keys_used_by("search", clf.SECTIONS.values())) or clf.precision == "int8"


def fit_auto(
    clf: Any, data: Sequence[Any], callbacks: Sequence[Callback], checkpoints: str | Path | None, resume: bool
) -> Any:
    """Fit an estimator with ``model="auto"``, and copy the fitted attributes of the best candidate to it.

    ``data`` are the arguments of ``fit``. ``tried_`` gets the score and the time of each candidate.
    """
    only_candidate = None
    if needs_encoder(clf) or world()[1] > 1:  # several processes train one model
        only_candidate = default_candidate(clf)
    elif is_uncompared(checkpoints if resume else None):
        only_candidate = SCRATCH_SHIFTED
    if only_candidate is not None:
        winner = _new_estimator(clf, only_candidate)
        X, y, validation, weights = data
        options = {"sample_weight": weights, "checkpoints": checkpoints, "resume": resume}
        winner.set_params(validation_fraction=clf.validation_fraction)
        winner.fit(
            X, y, validation=validation, callbacks=[CopyStateOnStart(clf, winner), *callbacks], **options
        )
        return copy_fitted_state(clf, winner, list(winner.tried_))
    started, to_try = time.perf_counter(), candidates(clf)
    fit = FitState.of(clf, data)
    if are_pairs(fit.examples.X):
        to_try = [bi_encoder_candidate(c) if c.settings.get("train_layers") == 0 else c for c in to_try]
    kind, classes = clf.kind_, clf.classes_  # restored below, because each candidate sets its own
    search = Search(clf, fit, list(callbacks), checkpoints, resume)
    if not len(search.truth):  # with one example per class, nothing can be scored: use the frozen encoder
        to_try = [next((c for c in to_try if c.settings.get("train_layers") == 0), to_try[0])]
    limit = clf.time_limit
    try:
        for candidate in to_try:
            is_perfect = bool(search.tried) and search.tried[-1].score == search.perfect_score
            if candidate.warning and not is_perfect:
                warnings.warn(candidate.warning, FromScratchWarning, user_stacklevel())
            if is_perfect:
                search.skipped[candidate.name] = PERFECT
            elif limit is not None and search.tried and time.perf_counter() - started > limit:
                search.skipped[candidate.name] = "time_limit"
            elif candidate.fine_tunes and clf.inputs.has_images and len(search.X) > MAX_IMAGES:
                search.skipped[candidate.name] = f"more than {MAX_IMAGES:,} images: name the model to do it"
            elif candidate.is_trained and search.is_foreign(candidate):
                search.skipped[candidate.name] = FOREIGN
            elif len(search.truth):
                search.run(search.with_image_epochs(candidate))
        winner = search.winner() if search.tried else search.fit_on_all(to_try[0])
    except (Interrupted, KeyboardInterrupt):
        if not search.can_end_early(to_try):
            raise
        winner = search.winner()
    copy_fitted_state(clf, winner, search.records() if search.tried else [])
    clf.kind_, clf.classes_ = (kind if kind.predicts_labels else clf.kind_), classes
    clf.train_seconds_ = time.perf_counter() - started
    return clf


def default_candidate(clf: Any) -> Candidate:
    """The candidate that ``auto`` fits without a comparison."""
    return SCRATCH if clf.inputs.has_images else fine_tuned_candidate(ENCODER)


def is_uncompared(checkpoints: str | Path | None) -> bool:
    """Whether the checkpoints are of an image encoder from scratch that was not compared with others.

    Older versions trained it without a comparison if the Hub could not be reached.
    """
    fingerprint = (None if checkpoints is None else newest_fingerprint(checkpoints)) or {}
    model, share = fingerprint.get("model"), fingerprint.get("start_share")
    return model == IMAGE_SCRATCH and share != COMPARED["start_share"]


def candidates(clf: Any) -> list[Candidate]:
    """The candidates, from cheap to expensive; if no pre-trained weights are available, without them."""
    images = clf.inputs.has_images
    encoder = IMAGE_ENCODER if images else ENCODER
    try:
        resolve_checkpoint(encoder)
    except CheckpointError as error:
        reason = f"images are learned from scratch, without the pre-trained {encoder} (88 MB): {error}"
        shifted = replace(SCRATCH_SHIFTED, settings=SCRATCH_SHIFTED.settings | COMPARED, warning=reason)
        return [HOG, shifted] if images else [TFIDF]
    if images:
        return [HOG, frozen_candidate(encoder), fine_tuned_candidate(encoder, augment="light")]
    return [TFIDF, frozen_candidate(encoder), fine_tuned_candidate(encoder)]


class Search:
    """The comparison of candidates in one ``fit``."""

    def __init__(self, clf: Any, fit: FitState, callbacks: list[Callback], checkpoints: Any, resume: bool):
        self.clf, self.fit = clf, fit
        self.callbacks, self.checkpoints, self.resume = callbacks, checkpoints, resume
        folders = [callback.folder for callback in callbacks if isinstance(callback, StopOnSignal)]
        self.stop_callbacks: list[Callback] = [StopUnsaved(folder) for folder in folders]
        self.tried: list[CandidateResult] = []
        self.skipped: dict[str, str] = {}  # name of a candidate -> why it was skipped
        self.prediction_seconds = 0.0  # prediction time per example of the last candidate
        self.X, self.targets, self.weights = fit.examples
        rows = np.arange(len(self.X))
        self.train_rows, self.score_rows = rows, rows[:0]
        self.fold_of = np.full(len(self.X), -1)  # the fold in which each example is scored; -1: none
        if fit.validation is not None and len(fit.validation[1]) >= MIN_VALIDATION:
            self.truth = fit.validation[1]
        elif len(self.X) > MAX_CROSS_VALIDATED:
            strata = clf.kind_.stratify_by(self.decode(self.targets), self.targets)
            split = grouped_split(strata, clf.copy_keys(self.X), HELD_OUT, clf.seed)
            self.train_rows, self.score_rows = split
            self.truth = self.targets[self.score_rows]
        else:
            self.fold_of = assign_folds(clf, self.X, self.targets)
            if clf.count_tokens(self.X) > MAX_TOKENS_ALL_FOLDS:
                self.fold_of[self.fold_of > 0] = -1  # only the first fold is scored
            self.score_rows = np.flatnonzero(self.fold_of >= 0)
            self.truth = self.targets[self.score_rows]

    @property
    def uses_folds(self) -> bool:
        return bool((self.fold_of >= 0).any())

    def decode(self, targets: np.ndarray) -> Any:
        """Decode targets to labels or numbers, for ``fit`` of a candidate."""
        kind = self.clf.kind_
        if kind.is_multilabel:
            return targets.astype(int)
        return self.clf.classes_[targets] if kind.predicts_labels else kind.to_numbers(targets)

    def is_foreign(self, candidate: Candidate) -> bool:
        """Whether the encoder does not know the language of the texts, and its frozen form was not best."""
        if self.clf.inputs.has_images or not self.tried or self.tried[-1] is self.best():
            return False
        name = candidate.settings["model"]
        tokenizer = load_tokenizer(resolve_checkpoint(name).path)
        return foreign_tokens_per_word(name, tokenizer, self.X) is not None

    def with_image_epochs(self, candidate: Candidate) -> Candidate:
        """The candidate, with a number of epochs that a CPU can train if it fine-tunes an image encoder."""
        if not candidate.fine_tunes or not self.clf.inputs.has_images:
            return candidate
        epochs = int(np.clip(round(IMAGES_PER_FIT / len(self.X)), *IMAGE_EPOCHS))
        return replace(candidate, settings=candidate.settings | {"epochs": epochs})

    def run(self, candidate: Candidate) -> None:
        """Fit and score a candidate."""
        if candidate.fine_tunes:
            for callback in self.callbacks:
                callback.note(
                    f"{candidate.name}: at most about {_duration(self._estimate_seconds(candidate))}"
                )
        began = time.perf_counter()
        estimator = None
        if self.uses_folds:
            by_share = self._cross_validate(candidate)
            share = max(by_share, key=lambda share: self._score(by_share[share], slice(None)))
            candidate, outputs = candidate.with_share(share), by_share[share]
        else:
            callbacks = self.callbacks if candidate.is_trained else self.stop_callbacks
            estimator = self._fit(candidate, self.train_rows, callbacks, candidate.is_trained)
            inputs = [self.X[i] for i in self.score_rows] or self.fit.validation[0]
            outputs = self._outputs(estimator, inputs)
        score = self._score(outputs, slice(None))
        self.tried.append(CandidateResult(candidate, outputs, score, time.perf_counter() - began, estimator))
        for callback in self.callbacks:
            callback.note(f"{candidate.name}: {self.metric} {score:.4f}, {self.tried[-1].seconds:.0f} s")

    def _estimate_seconds(self, candidate: Candidate) -> float:
        """Upper bound for the seconds of fine-tuning, from the prediction time of the frozen encoder."""
        defaults = auto_values(self.fit.train, "solved", WIDTH, len(self.X), len(self.clf.classes_))
        epochs = candidate.settings.get("epochs", defaults["epochs"])
        folds = len({*self.fold_of[self.score_rows].tolist()}) if self.uses_folds else 0
        fits = folds * (1 - 1 / FOLDS) + 1 if folds else 1.0  # + 1: the final fit on all examples
        return STEP_COST * epochs * fits * len(self.X) * self.prediction_seconds

    def _outputs(self, estimator: Any, X: Sequence[Any]) -> np.ndarray:
        began = time.perf_counter()
        outputs = estimator.outputs(X)
        self.prediction_seconds = (time.perf_counter() - began) / max(len(X), 1)
        return outputs

    def _cross_validate(self, candidate: Candidate) -> dict[float, np.ndarray]:
        """Map each ``start_share`` to out-of-fold outputs ``[m, C]`` for ``score_rows``."""
        by_share: dict[float, np.ndarray] = {}
        for fold in sorted({*self.fold_of[self.score_rows].tolist()}):
            rows, start = np.flatnonzero(self.fold_of == fold), StartWeights()
            callbacks = [start, *self.stop_callbacks] if candidate.fine_tunes else self.stop_callbacks
            estimator = self._fit(candidate, np.flatnonzero(self.fold_of != fold), callbacks, False)
            for share in start.shares(estimator) if candidate.fine_tunes else (0.0,):
                outputs = self._outputs(estimator, [self.X[i] for i in rows])
                by_share.setdefault(share, np.empty((len(self.X), outputs.shape[1])))[rows] = outputs
        return {share: outputs[self.score_rows] for share, outputs in by_share.items()}

    def _fit(self, candidate: Candidate, rows: np.ndarray, callbacks: Sequence[Callback], save: bool) -> Any:
        """Fit the candidate on the examples ``rows``; with ``save``, write checkpoints."""
        model = _new_estimator(self.clf, candidate)
        in_fold = self.uses_folds and len(rows) < len(self.X)  # a fold has no validation examples
        validation = None
        if self.fit.validation is not None and not in_fold:
            validation = self.fit.validation[0], self.decode(self.fit.validation[1])
        elif not in_fold and len(self.score_rows) and not self.uses_folds:
            validation = [self.X[i] for i in self.score_rows], self.decode(self.truth)
        if self.uses_folds and candidate.fine_tunes:  # keep the last epoch, which was scored in the folds
            model.keep_best = False
        options: dict[str, Any] = {"checkpoints": self.checkpoints, "resume": self.resume} if save else {}
        if save or callbacks is self.callbacks:
            callbacks = [CopyStateOnStart(self.clf, model), *callbacks]
        weights = None if self.weights is None else self.weights[rows]
        X = [self.X[i] for i in rows]
        return model.fit(
            X,
            self.decode(self.targets[rows]),
            validation=validation,
            sample_weight=weights,
            callbacks=callbacks,
            **options,
        )

    # --- scores ----------------------------------------------------------------------------------

    @property
    def metric(self) -> str:
        """Name of the score: ``monitor``, or average precision (multi-label) or R² (numbers)."""
        kind, monitor = self.clf.kind_, self.clf.monitor
        if kind.is_multilabel:
            return "average precision"
        if not kind.predicts_labels:
            return "R²" if monitor == "loss" else monitor
        return "log loss (negative)" if monitor == "loss" else monitor

    @property
    def perfect_score(self) -> float:
        """The score of perfect predictions."""
        return 0.0 if self.metric == "log loss (negative)" else 1.0

    def _score(self, outputs: np.ndarray, rows: Any) -> float:
        kind, truth, predicted = self.clf.kind_, self.truth[rows], outputs[rows]
        if kind.is_multilabel:
            from sklearn.metrics import average_precision_score

            occurs = truth.any(0)
            if not occurs.any():
                return 0.0
            return float(average_precision_score(truth[:, occurs], predicted[:, occurs], average="macro"))
        if not kind.predicts_labels:
            metrics = regression_metrics(predicted[:, 0], kind.to_numbers(truth))
            return metrics[self.metric.lower().replace("²", "2")] or 0.0
        if self.metric == "accuracy":
            return float((predicted.argmax(1) == truth).mean())
        if self.metric == "macro_f1":
            from sklearn.metrics import f1_score

            return float(f1_score(truth, predicted.argmax(1), average="macro"))
        likelihoods = predicted[np.arange(len(truth)), truth]
        return float(np.log(np.maximum(likelihoods, 1e-12)).mean())

    def _is_better(self, costlier: CandidateResult, cheaper: CandidateResult) -> bool:
        """Whether the more expensive model is better by more than the margin."""
        difference = costlier.score - cheaper.score
        if difference <= 0:
            return False
        n, rng = len(self.truth), np.random.default_rng(self.clf.seed)
        draws = rng.integers(0, n, (RESAMPLES, n))
        differences = [self._score(costlier.outputs, i) - self._score(cheaper.outputs, i) for i in draws]
        return difference > MARGIN * float(np.std(differences))

    def best(self) -> CandidateResult:
        """The best result so far."""
        best, *costlier = [result for result in self.tried if result.candidate.name not in self.skipped]
        for result in costlier:
            if self._is_better(result, best):
                best = result
        return best

    def can_end_early(self, to_try: Sequence[Candidate]) -> bool:
        """Whether an interrupted comparison can end with the best result so far."""
        stops = [call for call in self.callbacks if isinstance(call, StopOnSignal)]
        if not (self.tried and any(call.best_so_far for call in stops)):
            return False
        scored = {result.candidate.name for result in self.tried}
        stopped = [c.name for c in to_try if c.name not in scored | self.skipped.keys()]
        if not stopped and self.best().candidate.is_trained:  # stopped in the final fit on all examples
            stopped = [self.best().candidate.name]
        if not stopped or scored == set(stopped):
            return False
        self.skipped |= dict.fromkeys(stopped, INTERRUPTED)
        self.callbacks = [c for c in self.callbacks if c not in stops]  # a second signal stops immediately
        for callback in self.callbacks:
            callback.note(f"interrupted: ends with {self.best().candidate.name}, the best so far")
        return True

    def winner(self) -> Any:
        """The best candidate, fitted on all training examples."""
        best = self.best()
        if best.candidate.is_trained and not self.uses_folds:
            return best.estimator
        return self.fit_on_all(best.candidate)

    def fit_on_all(self, candidate: Candidate) -> Any:
        """Fit a candidate on all training examples."""
        return self._fit(candidate, np.arange(len(self.X)), self.callbacks, candidate.is_trained)

    def records(self) -> list[dict[str, Any]]:
        """One JSON record per candidate, for example with its score and time."""
        best, method = self.best(), "cross-validation" if self.uses_folds else "validation"
        out = [
            {
                "model": result.candidate.name,
                "metric": self.metric,
                "score": result.score,
                "examples": len(self.truth),
                "by": method,
                "seconds": round(result.seconds, 2),
                "chosen": result is best,
            }
            | ({"start_share": result.share} if result.candidate.fine_tunes else {})
            for result in self.tried
        ]
        by_name = {record["model"]: record for record in out}
        for name, reason in self.skipped.items():
            if name not in by_name:
                by_name[name] = {"model": name}
            by_name[name]["left out"] = reason
        return list(by_name.values())


class StopUnsaved(StopOnSignal):
    """Stops the fit of a candidate without a checkpoint: the folder is for checkpoints of the winner."""

    def step(self, training: Any, info: Any) -> None:
        if not training.finished and self.signals.received is not None:
            self.signals.handled = True
            raise Interrupted(f"stopped while models were being compared, which starts again; {RESUME_HINT}")


class StartWeights(Callback):
    """Keeps a copy of the initial weights of training."""

    def start(self, training: Any) -> None:
        self.weights = training.optimizer.weights()

    @torch.no_grad()
    def shares(self, estimator: Any) -> Iterator[float]:
        """Yield each of ``START_SHARES``, after mixing that share of the initial weights into the weights."""
        parameters = {n: p for n, p in estimator.model_.named_parameters() if n in self.weights}
        end = {n: p.clone() for n, p in parameters.items()}
        for share in START_SHARES:
            for n, p in parameters.items():
                p.copy_(torch.lerp(end[n], self.weights[n], share))
            yield share


class CopyStateOnStart(Callback):
    """Copies the state of a candidate to the user's estimator when training starts, for callbacks."""

    def __init__(self, outer: Any, inner: Any):
        self.outer, self.inner = outer, inner

    def start(self, training: Any) -> None:
        copy_fitted_state(self.outer, self.inner, None)


def _new_estimator(clf: Any, candidate: Candidate) -> Any:
    """A new estimator with the settings of ``clf`` and of the candidate, without a validation split."""
    defaults = clf.defaults()
    settings = clf.get_params(deep=False) | {"validation_fraction": 0.0, "time_limit": None}
    if candidate is TFIDF:  # these settings have no effect on it and would cause a warning
        idle = ("max_length", "calibration", "head_start", "start_share")
        settings |= {key: defaults[key] for key in idle if key in defaults}
    elif "calibration" in defaults:
        settings["calibration"] = "auto"
    return type(clf)(**settings | candidate.settings)


def copy_fitted_state(clf: Any, fitted: Any, tried: list[dict[str, Any]] | None) -> Any:
    """Copy the fitted attributes of another estimator to ``clf``."""
    parameters = clf.defaults()
    vars(clf).update({name: value for name, value in vars(fitted).items() if name not in parameters})
    if tried is not None:
        clf.tried_ = tried
    return clf


def assign_folds(
    clf: Any, X: Sequence[Any], targets: np.ndarray, folds: int = FOLDS, min_count: int = 2
) -> np.ndarray:
    """The fold of each checked example ``[n]``, stratified by class; duplicates share a fold.

    Examples of classes with fewer than ``min_count`` examples are only used for training: their fold is -1.
    """
    numbers: dict[str, int] = {}
    group = np.array([numbers.setdefault(key, len(numbers)) for key in clf.copy_keys(X)])
    first = np.unique(group, return_index=True)[1]  # the first example of each group
    by_class = clf.kind_.predicts_labels and targets.ndim == 1
    classes = targets[first] if by_class else np.zeros(len(first), np.int64)
    order = np.random.default_rng(clf.seed).permutation(len(first))
    order = order[np.argsort(classes[order], kind="stable")]
    order = order[np.bincount(classes)[classes[order]] >= min_count]
    fold = np.full(len(first), -1)
    fold[order] = np.arange(len(order)) % folds
    return fold[group]


def _duration(seconds: float) -> str:
    return f"{max(seconds, 1):.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


# --- a baseline for texts: a regression on the embeddings of a frozen encoder -----------------------


FROZEN = frozen_candidate(ENCODER)
FROZEN_NAME = f"frozen {ENCODER}"
MAX_FROZEN_TEXTS = 10_000  # maximum number of training texts; not used if ``auto`` has encoded all texts
MAX_FROZEN_LENGTH = 128  # maximum number of tokens; not used if ``auto`` has chosen another one


def fit_frozen(
    est: Any,
    texts: Sequence[Any],
    labels: Sequence[Any],
    weights: np.ndarray | None = None,
    validation: tuple[Sequence[Any], Sequence[Any]] | None = None,
) -> tuple[str, Any] | None:
    """Fit the frozen encoder as a baseline for ``est``, and return its name and estimator.

    ``validation`` (texts, labels) is used to tune thresholds. The result is None if the encoder is not
    downloaded, or if ``est`` is the same model.
    """
    if is_frozen(est) or not is_available(ENCODER):
        return None
    name = FROZEN_NAME
    settings = {key: getattr(est, key) for key in sorted(keys_used_by("frozen", est.SECTIONS.values()))}
    settings["precision"] = "auto" if est.precision == "int8" else est.precision
    settings["max_length"] = est.max_length if est.tried_ else MAX_FROZEN_LENGTH
    if len(texts) > MAX_FROZEN_TEXTS and not est.tried_:  # after ``auto`` the embeddings are in the cache
        strata = list(map(str, labels)) if est.kind_.predicts_labels else [0] * len(labels)
        rows = stratified_subset(strata, MAX_FROZEN_TEXTS, 0).tolist()
        texts, labels = [texts[i] for i in rows], [labels[i] for i in rows]
        weights = None if weights is None else weights[rows]
        name += f" ({MAX_FROZEN_TEXTS:,} texts)"
    model = type(est)(**settings, **_baseline_candidate(est).settings)
    with without_warnings(category=OtherLanguageWarning):
        return name, model.fit(texts, labels, sample_weight=weights, validation=validation)


def missing_baselines(est: Any) -> dict[str, str]:
    """Map the name of the frozen baseline to the reason why it is missing; empty if it is not."""
    return {} if is_frozen(est) or is_available(ENCODER) else {FROZEN_NAME: "its weights are not at hand"}


def is_frozen(est: Any) -> bool:
    """Whether an estimator is the same model as the baseline: a frozen encoder with a new head."""
    if est.tried_:
        return any(
            tried["model"] == _baseline_candidate(est).name and tried.get("chosen") for tried in est.tried_
        )
    name = (ENCODER if est.model == AUTO else est.model).lower()
    entry = CATALOG[ENCODER]
    same_encoder = CATALOG.get(name) == entry or name == entry.repo.lower()
    same_input = est.pairs == "apart" or not est.pairs_
    return same_encoder and same_input and est.train_layers == 0 and not est.unfreeze_every


def _baseline_candidate(est: Any) -> Candidate:
    return bi_encoder_candidate(FROZEN) if est.pairs_ else FROZEN
