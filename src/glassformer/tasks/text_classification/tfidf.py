"""``model="tfidf"``: a linear model on TF-IDF features.

The features are n-grams of words and characters. scikit-learn fits the model: for classes a linear SVM
(one-vs-rest), for multi-label one logistic regression per label, and for numbers ridge regression.
Cross-validation on the training examples chooses the regularization strength and a temperature. The weights
are divided by the temperature, so that probabilities are calibrated. The result is an ordinary text
classifier. Its explanations are exact, as they are the weights of the features of a text.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from glassformer.checkpoints.native import newest_state
from glassformer.config import keys_used_by, values_in_files
from glassformer.data.ngrams import MAX_FEATURES, Ngrams, table_of
from glassformer.data.text import Windows
from glassformer.data.text_pairs import are_pairs
from glassformer.errors import CheckpointError, IdleSettingWarning, NotForThisModelError
from glassformer.families import TEXT_ARCHITECTURES, family_of
from glassformer.process import one_thread, without_warnings
from glassformer.report.notebook import Records
from glassformer.runtime import choose_device, own_generator
from glassformer.targets.multilabel import pos_weights
from glassformer.tasks.auto import assign_folds
from glassformer.tasks.card import count_examples
from glassformer.tasks.estimator import FitState
from glassformer.tasks.text_classification.recipe import TextConfig
from glassformer.train.callbacks import RESUME_HINT, Callback, Interrupted, Progress, StopOnSignal
from glassformer.train.config import user_stacklevel
from glassformer.train.distributed import ONE_PROCESS, Ranks, join, require_single_process
from glassformer.train.loop import SELECTION_SCORE, StepInfo
from glassformer.train.state import History

MAX_WEIGHTS = 50_000_000  # maximum number of n-grams times classes
SVM, LOGISTIC, RIDGE = "linear SVM", "logistic regression", "ridge regression"
# Values of C (inverse regularization strength), or for ridge regression of alpha, to try.
VALUES = {SVM: (0.1, 0.3, 1.0, 3.0), LOGISTIC: (1.0, 4.0, 16.0), RIDGE: (0.1, 0.3, 1.0, 3.0, 10.0)}
SOFTMAX_VALUES = (4.0, 16.0)  # C of multinomial logistic regression, tried for more than two classes
MAX_PER_CLASS = 16  # with more examples per class, this regression is not tried, because it is slow
FOLDS = 5
CERTAIN_LOGIT = 10.0  # the logit of a label that all examples have
# Maximum ``Problem.cost`` for scoring all folds instead of one, and for trying all values.
MAX_COST_ALL_FOLDS, MAX_COST_ALL_VALUES = 20_000_000, 100_000_000
# Setting that linear models do not support -> the only value that is accepted.
UNSUPPORTED = {
    "method": "fine-tune",
    "tokenizer": "auto",
    "long_texts": "cut",
    "word_dropout": 0.0,
    "maskable": False,
    "label_smoothing": 0.0,
    "train_layers": None,
    "unfreeze_every": 0,
    "lora_rank": 0,
    "average": 0.0,
    "keep_epochs": False,
}
FIX = "Leave it out, or name an encoder: model=all-minilm-l6-v2"


def fit_tfidf(
    clf: Any, data: Sequence[Any], callbacks: Sequence[Callback], checkpoints: str | Path | None, resume: bool
) -> Any:
    """Fit a ``TextClassifier`` or a ``TextRegressor`` with ``model="tfidf"`` on the arguments of ``fit``."""
    started = time.perf_counter()
    check_settings(clf)
    if checkpoints is not None and (newest := newest_state(Path(checkpoints))):
        what = "is a checkpoint of another model; this model is fitted without training steps"
        raise CheckpointError(what, where=str(newest), fix="Use another folder")
    configs = clf.configs()
    _build_network(
        configs["model"], 1, 2
    )  # raises errors for invalid settings before the features are computed
    fit = FitState(configs, choose_device(clf.device), join(clf.strategy, torch.device("cpu"), clf.seed))
    if fit.ranks.size > 1:
        require_single_process("a linear model is solved by one process", "Run it without torchrun")
    fit.group_duplicates = bool(clf.validation_fraction)
    fit.examples, fit.validation = clf._examples(fit, *data)
    texts, targets, _ = fit.examples
    clf.pairs_, clf.segments_, clf.truncated_ = are_pairs(texts), False, 0
    clf.temperature_, clf.threshold_, clf.class_order_ = 1.0, None, None
    clf.abstain_below_ = clf.int8_ = None
    text: TextConfig = configs["text"]
    max_features = MAX_FEATURES if text.vocab_size == TextConfig.vocab_size else text.vocab_size
    clf.tokenizer_, features = Ngrams.fitted(
        texts,
        min_count=text.min_count,
        max_features=min(max_features, MAX_WEIGHTS // len(clf.classes_)),
        lowercase=text.lowercase,
        strip_accents=text.strip_accents,
        clean=text.clean,
    )
    num_words, num_characters = len(clf.tokenizer_.words), len(clf.tokenizer_.pieces)
    source = f"fitted on TF-IDF of {num_words:,} n-grams of words and {num_characters:,} of characters"
    model = _build_network(configs["model"], clf.tokenizer_.width, len(clf.classes_))
    model.weights_source = clf.weights_source_ = source
    clf.model_, clf._compute_model = model.eval(), None
    clf.adapter_ = clf.adapter_scale_ = None
    callbacks = [*callbacks, *([Progress()] if clf.verbose else [])]
    training = SingleStepTraining(model, fit.train, callbacks=callbacks, start_time=started)
    with own_generator(), one_thread(), training.run_callbacks():
        problem = _problem(clf, fit, features)
        fold = assign_folds(clf, texts, targets, FOLDS, min_count=1)
        best, out_of_fold = _cross_validate(problem, clf, fold, training.raise_if_interrupted)
        training.raise_if_interrupted()
        weight, bias = problem.solve(np.arange(len(targets)), best)
        _set_weights(model, problem, weight, bias, problem.temperature(out_of_fold))
        training.chosen = clf.chosen_ = {best.key: best.value}
        model.weights_source = clf.weights_source_ = f"{source}: {best}"
        training.solution = str(best)
        record = _evaluate(clf, fit, problem, out_of_fold)
        training.finish(record["train_loss"], record)
    clf.history_, clf.best_step_ = Records(training.history), 1
    clf.examples_ = count_examples(fit)
    clf.train_seconds_ = time.perf_counter() - started
    return clf


def _build_network(section: Any, width: int, outputs: int) -> Any:
    preset = TEXT_ARCHITECTURES[section.model](width)
    family = family_of(preset)
    assert family.configure is not None
    return family.model(family.configure(preset, section, outputs))


def check_settings(clf: Any) -> None:
    """Raise ConfigError for settings that linear models do not support; warn of settings without effect."""
    for key, required in UNSUPPORTED.items():
        if getattr(clf, key, required) != required:
            what = f"{key} = {getattr(clf, key)!r} has no effect with model = {clf.model}, a linear model"
            raise NotForThisModelError(what, where=key, fix=FIX)
    if clf.precision == "int8":
        what = f"model = {clf.model}, a linear model, computes in fp32"
        raise NotForThisModelError(what, where="precision", fix="Leave it out")
    defaults = clf.defaults()
    file_defaults = {k: v for section in clf.SECTIONS.values() for k, v in values_in_files(section).items()}
    changed = [key for key in idle_settings(clf) if getattr(clf, key) != defaults[key]]
    idle = [key for key in changed if getattr(clf, key) != file_defaults.get(key, defaults[key])]
    if idle:
        what = f"{', '.join(idle)} {'has' if len(idle) == 1 else 'have'} no effect with model = {clf.model}, "
        warnings.warn(
            what + "which is solved and not trained in steps", IdleSettingWarning, user_stacklevel()
        )


def idle_settings(clf: Any) -> list[str]:
    """The settings of the sections ``text`` and ``train`` that have no effect on linear models."""
    names = [f.name for section in ("text", "train") for f in fields(clf.SECTIONS[section])]
    effective = keys_used_by("linear", clf.SECTIONS.values())
    return [name for name in names if name not in effective]


# --- the linear model -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """A kind of linear model and its regularization parameter, C or alpha."""

    kind: str
    value: float

    @property
    def key(self) -> str:
        """scikit-learn's name of the regularization parameter."""
        return "alpha" if self.kind == RIDGE else "C"

    def __str__(self) -> str:
        return f"{self.kind}, {self.key} = {self.value:g}"

    def fit(self, X: Any, y: np.ndarray, weights: np.ndarray | None, seed: int) -> Any:
        """Fit scikit-learn's estimator."""
        from sklearn.linear_model import LogisticRegression, Ridge
        from sklearn.svm import LinearSVC

        if self.kind == SVM:
            estimator: Any = LinearSVC(C=self.value, random_state=seed % 2**32)
        elif self.kind == RIDGE:
            estimator = Ridge(self.value, solver="sparse_cg", tol=1e-5)
        else:
            estimator = LogisticRegression(C=self.value, max_iter=2000, tol=1e-5)
        with without_warnings(r"sklearn\."):  # hides warnings of few examples per class and of convergence
            return estimator.fit(X, y, weights)


@dataclass(frozen=True)
class OutOfFoldLogits:
    """Logits of training examples, from models that were trained on other examples."""

    rows: np.ndarray  # [m] indices of the examples
    logits: np.ndarray  # [m, K] fp64


@dataclass(frozen=True)
class Problem:
    """Features and targets of a linear model."""

    features: Any  # sparse [n, W] fp64
    targets: np.ndarray  # [n], for multi-label [n, K]
    weights: np.ndarray | None  # [n]
    kind: Any  # the target, such as ``Classes``
    outputs: int  # K
    seed: int
    pos_weight: tuple[float, ...] | None = None  # [K] weights of positive examples, for multi-label

    @property
    def cost(self) -> int:
        """Number of non-zero features times number of outputs, which the time of a fit depends on."""
        return self.features.nnz * (1 if self.outputs == 2 else self.outputs)

    def candidates(self) -> list[Candidate]:
        """The models that cross-validation compares."""
        name = RIDGE if not self.kind.predicts_labels else LOGISTIC if self.kind.is_multilabel else SVM
        values = VALUES[name] if self.cost <= MAX_COST_ALL_VALUES else VALUES[name][1:3]
        tries_softmax = (
            name == SVM
            and self.outputs > 2
            and len(self.targets) <= MAX_PER_CLASS * self.outputs
            and self.cost <= MAX_COST_ALL_VALUES
        )
        softmax = [Candidate(LOGISTIC, x) for x in SOFTMAX_VALUES] if tries_softmax else []
        return [Candidate(name, x) for x in values] + softmax

    def solve(self, rows: np.ndarray, candidate: Candidate) -> tuple[np.ndarray, np.ndarray]:
        """Fit weights ``[K, W]`` and biases ``[K]`` on these examples; with only one class, weights are 0."""
        if self.weights is not None:
            rows = rows[self.weights[rows] > 0]
        X, y = self.features[rows], self.targets[rows]
        if not self.kind.is_multilabel and (not len(y) or (self.kind.predicts_labels and y.min() == y.max())):
            bias = np.zeros(self.outputs)
            bias[y[:1] if self.kind.predicts_labels else []] = CERTAIN_LOGIT
            return np.zeros((self.outputs, X.shape[1])), bias
        weights = None if self.weights is None else self.weights[rows]
        if self.kind.is_multilabel:
            per_label = [self._solve_label(X, y[:, k], weights, k, candidate) for k in range(self.outputs)]
            return np.stack([w for w, _ in per_label]), np.array([b for _, b in per_label])
        model = candidate.fit(X, y, weights, self.seed)
        weight, bias = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
        if not self.kind.predicts_labels:
            return weight, bias
        if len(weight) == 1:  # for two classes, scikit-learn has only the weights of the second class
            weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
        if len(model.classes_) == self.outputs:
            return weight, bias
        # A class without examples gets a lower bias than all other classes.
        weights, biases = np.zeros((self.outputs, weight.shape[1])), np.full(self.outputs, bias.min() - 1.0)
        weights[model.classes_], biases[model.classes_] = weight, bias
        return weights, biases

    def _solve_label(
        self, X: Any, y: np.ndarray, weights: Any, k: int, candidate: Candidate
    ) -> tuple[Any, Any]:
        share = float(y.mean())
        if share in (0.0, 1.0):  # no example has the label, or all have it
            return np.zeros(X.shape[1]), CERTAIN_LOGIT * (2 * share - 1)
        if self.pos_weight is not None:
            weights = np.where(y > 0, self.pos_weight[k], 1.0) * (1.0 if weights is None else weights)
        model = candidate.fit(X, y > 0, weights, self.seed)
        return model.coef_[0], model.intercept_[0]

    def temperature(self, out_of_fold: OutOfFoldLogits) -> Any:
        """Fit the temperature; for multi-label one per label, ``[K]``."""
        if not self.kind.predicts_labels:
            return 1.0
        return self.kind.fit_temperature(out_of_fold.logits, self.targets[out_of_fold.rows])


def _problem(clf: Any, fit: FitState, features: Any) -> Problem:
    kind, targets, weights = clf.kind_, fit.examples.targets, clf._weights(fit.examples)
    pos_weight = None
    if kind.is_multilabel:
        pos_weight = pos_weights(targets, clf.classes_.tolist(), fit.train.pos_weight)
    return Problem(features, targets, weights, kind, len(clf.classes_), clf.seed, pos_weight)


def _cross_validate(
    problem: Problem, clf: Any, fold: np.ndarray, raise_if_interrupted: Callable[[], None]
) -> tuple[Candidate, OutOfFoldLogits]:
    """The candidate with the best ``monitor``, and its logits; the loss decides between equal candidates."""
    folds = range(FOLDS if problem.cost <= MAX_COST_ALL_FOLDS else 1)
    has_weight = True if problem.weights is None else problem.weights > 0
    rows = np.flatnonzero(np.isin(fold, folds) & has_weight)
    best: tuple[tuple[float, float], Candidate, OutOfFoldLogits] | None = None
    for candidate in problem.candidates():
        logits = np.empty((len(fold), problem.outputs))
        for number in folds:
            raise_if_interrupted()
            scored_rows = np.flatnonzero(fold == number)
            weight, bias = problem.solve(np.flatnonzero(fold != number), candidate)
            logits[scored_rows] = problem.features[scored_rows] @ weight.T + bias
        out_of_fold = OutOfFoldLogits(rows, logits[rows])
        logits = out_of_fold.logits / problem.temperature(out_of_fold)
        metrics = clf.kind_.validation_metrics(clf, logits, problem.targets[rows])
        score = metrics.pop(SELECTION_SCORE, None)
        if score is None:
            score = -metrics["loss"] if clf.monitor == "loss" else metrics[clf.monitor]
        if best is None or (score, -metrics["loss"]) > best[0]:
            best = (score, -metrics["loss"]), candidate, out_of_fold
    assert best is not None
    return best[1], best[2]


def _set_weights(
    model: Any, problem: Problem, weight: np.ndarray, bias: np.ndarray, temperature: Any
) -> None:
    scale = np.broadcast_to(1.0 / np.asarray(temperature, np.float64), (problem.outputs,))
    with torch.no_grad():
        model.head.out.weight.copy_(torch.from_numpy(weight * scale[:, None]))
        model.head.out.bias.copy_(torch.from_numpy(bias * scale))


def _evaluate(clf: Any, fit: FitState, problem: Problem, out_of_fold: OutOfFoldLogits) -> dict[str, float]:
    """Set the thresholds or prediction intervals, and return the only record of the history.

    They are computed on the validation examples or, without these, from the out-of-fold logits.
    """
    kind, device = clf.kind_, torch.device("cpu")

    def logits(features: Any) -> np.ndarray:
        table = Windows(table_of(features), features.shape[0])
        return clf.table_outputs(clf.model_, table, "logits", device)

    metrics = kind.validation_metrics(clf, logits(problem.features), problem.targets)
    record = {"train_loss": metrics["loss"], "train_accuracy": metrics.get("accuracy", 0.0)}
    outputs = out_of_fold.logits / problem.temperature(out_of_fold)
    targets = problem.targets[out_of_fold.rows]
    clf.cross_validated_ = _without_selection_score(kind.validation_metrics(clf, outputs, targets))
    if fit.validation is not None:
        outputs, targets = logits(clf.tokenizer_.rows(fit.validation[0])), fit.validation[1]
        record |= _without_selection_score(kind.validation_metrics(clf, outputs, targets))
    if kind.is_multilabel:
        clf.threshold_ = kind.threshold(fit.train, outputs, targets)
    if hasattr(clf, "errors_"):
        clf.errors_ = clf._errors(clf.to_probabilities(outputs)[:, 0], kind.to_numbers(targets))
    return record


def _without_selection_score(metrics: dict[str, float]) -> dict[str, float]:
    return {key: value for key, value in metrics.items() if key != SELECTION_SCORE}


@dataclass
class SingleStepTraining:
    """A ``Training`` of one step without checkpoints, so that callbacks work with deterministic fits."""

    model: nn.Module
    config: Any
    ranks: Ranks = ONE_PROCESS
    chosen: Mapping[str, Any] = field(default_factory=dict)
    step: int = 0
    total_steps: int = 1
    epoch: int = 0
    cursor: int = 0
    start_time: float = field(default_factory=time.perf_counter)
    history: History = field(default_factory=History)
    skipped: Sequence[str] = ()
    callbacks: Sequence[Callback] = ()
    solution: str = ""  # description of the chosen settings

    @property
    def finished(self) -> bool:
        return self.step == self.total_steps

    @contextmanager
    def run_callbacks(self) -> Iterator[None]:
        """A context that calls ``start`` and ``end`` of the callbacks, also after an error."""
        try:
            for callback in self.callbacks:
                callback.start(self)  # type: ignore[arg-type]  # has all attributes that callbacks use
            yield
        finally:
            with ExitStack() as stack:
                for callback in reversed(self.callbacks):
                    stack.callback(callback.end, self)  # type: ignore[arg-type]  # as above

    def raise_if_interrupted(self) -> None:
        """Raise Interrupted if a signal was received; to call between two fits."""
        for callback in self.callbacks:
            if isinstance(callback, StopOnSignal) and callback.signals.received is not None:
                callback.signals.handled = True
                raise Interrupted(f"stopped before the weights were fitted; {RESUME_HINT}")

    def finish(self, loss: float, evaluation: dict[str, Any]) -> None:
        """Report the step with its training loss and evaluation to the callbacks."""
        seconds = round(time.perf_counter() - self.start_time, 3)
        self.step = self.epoch = 1
        info: dict[str, Any] = {"step": 1, "epoch": 0, "loss": loss, "lr": 0.0, "tokens": 0}
        self.history.append({"kind": "step", **info, "seconds": seconds})
        self.history.append({"kind": "evaluation", "step": 1, "epoch": 0, **evaluation, "best": True})
        for callback in self.callbacks:
            callback.step(self, StepInfo(**info, gradient_norm=0.0, evaluation=evaluation, is_best=True))  # type: ignore[arg-type]  # as above
