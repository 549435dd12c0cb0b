"""Attribution methods and their common interface, ``explain``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

import numpy as np

from glassformer.config import suggest
from glassformer.errors import (
    BadValueError,
    NotForThisModelError,
    UnknownKeyError,
    UnknownLabelError,
)
from glassformer.explain.attention import attention, attention_gradient, attention_rollout
from glassformer.explain.backward import can_decompose, decomposition, gim
from glassformer.explain.cross import cross as cross_interactions
from glassformer.explain.faithfulness import check_faithfulness
from glassformer.explain.gradients import gradient_x_input, integrated_gradients
from glassformer.explain.ngrams import ngram_subject, weights
from glassformer.explain.occlusion import occlusion
from glassformer.explain.render import Explanation
from glassformer.explain.result import ABOUT, Scores
from glassformer.explain.shapley import shapley
from glassformer.explain.subject import (
    SingleOutputModel,
    Subject,
    attention_maps,
    image_subject,
    text_subject,
)
from glassformer.finite import finite
from glassformer.runtime import runs_isolated_with_gradients

# Functions with a ``target`` argument explain one label. The others show attention, which has no target.
METHODS: dict[str, Callable[..., Scores]] = {
    "attention": attention,
    "rollout": attention_rollout,
    "gradient_x_input": gradient_x_input,
    "integrated_gradients": integrated_gradients,
    "attention_gradient": attention_gradient,
    "gim": gim,
    "decomposition": decomposition,
    "occlusion": occlusion,
    "shapley": shapley,
    "weights": weights,
}

# Methods that need attention weights.
ATTENTION_METHODS = ("attention", "rollout", "attention_gradient")
# Methods that repeat the forward pass step by step.
STEPWISE_METHODS = ("gim", "decomposition")
# Methods for neural networks.
NETWORK_METHODS = tuple(name for name in METHODS if name != "weights")
# Methods for linear models.
LINEAR_METHODS = ("weights", "occlusion")
# The default is the first of these methods that a model supports. decomposition is the best method that needs
# only one pass through the model, nearly as good as methods with 50 to 1,000 passes (docs/faithfulness.md).
DEFAULTS = ("decomposition", "gim", "integrated_gradients")


def methods_for(model: Any) -> list[str]:
    """The methods that support a model; the first is the default."""
    if _is_linear(model):
        return list(LINEAR_METHODS)
    supported = [name for name in NETWORK_METHODS if not _unsupported_reason(model, name)]
    preferred = DEFAULTS if getattr(model, "has_attention", True) else ("occlusion",)
    default = next(name for name in preferred if name in supported)
    return sorted(supported, key=lambda name: name != default)


def default_method(clf: Any, options: Collection[str] = ()) -> str:
    """The default method: the first of ``methods_for`` that has all ``options``."""
    supported = methods_for(clf.model_)
    return next((name for name in supported if {*options} <= {"maps", *method_options(name)}), supported[0])


def _unsupported_reason(model: Any, method: str) -> str:
    """Why a model does not support a method of ``NETWORK_METHODS``; empty if it does."""
    if not getattr(model, "has_attention", True) and method in (*ATTENTION_METHODS, *STEPWISE_METHODS):
        return "has no attention to show" if method in ATTENTION_METHODS else "has no attention"
    if _attention_kind(model) != "full" and method == "attention_gradient":
        # With local and linear attention, maps are computed for display only.
        return f"has {_attention_kind(model)} attention, whose maps no gradient reaches"
    if _attention_kind(model) == "linear" and method in STEPWISE_METHODS:
        return f"has linear attention, which {method} does not support"
    if method == "decomposition" and not can_decompose(model):
        return "has a head or a pooling that does not add up over tokens"
    return ""


def _is_linear(model: Any) -> bool:
    return getattr(model, "kind", "") == "linear"


def _attention_kind(model: Any) -> str:
    """The kind of attention of the encoder: full, local or linear."""
    return getattr(getattr(getattr(model, "config", None), "encoder", None), "attention", "full")


def notes_with_interpretation(explanation: Any) -> list[str]:
    """The notes of an explanation, followed by how to interpret its scores."""
    part = "token" if explanation.image is None else "patch"
    return [*explanation.notes, ABOUT[explanation.method].replace("token", part)]


def check_supported(clf: Any, method: str) -> None:
    """Raise NotForThisModelError if the model of an estimator does not support a method."""
    supported = methods_for(clf.model_)
    if method in supported:
        return
    if _is_linear(clf.model_):
        what = f"needs layers, but {clf.model!r} is a linear model"
    elif method == "weights":
        what = f"is only for linear models of texts (tfidf), and {clf.model!r} is not one"
    else:
        name = "a linear model" if clf.model_.is_linear else repr(clf.model)
        what = f"{name} {_unsupported_reason(clf.model_, method)}"
    raise NotForThisModelError(what, where=method, fix=f"Use {', '.join(supported[:-1])} or {supported[-1]}")


@runs_isolated_with_gradients
def explain_input(
    clf: Any,
    x: Any,
    *,
    method: str | None = None,
    target: Any = None,
    trust: bool = False,
    cross: bool = False,
    **options: Any,
) -> Explanation:
    """Scores for the tokens of one text, or the patches of one image, from the fp32 model; see ``explain``.

    Args:
        method: None: ``default_method``.
        trust: also test the scores against 19 random orders, with about 320 variants of the input for each
            way of masking. Classifiers predict the variants in their own, often faster, number format.
            Taggers and question answering predict them in fp32.
        cross: for text pairs, also compute the interactions of their words (``cross.py``).
    """
    target_options = {
        name: options.pop(name) for name in getattr(clf, "EXPLAIN_TARGET_OPTIONS", ()) if name in options
    }
    method = method or default_method(clf, options)
    check_method(method, target, options, methods_for(clf.model_))
    check_supported(clf, method)
    if cross and _is_linear(clf.model_):
        what = "in a linear model the words of both texts do not interact"
        raise NotForThisModelError(
            what, where="cross", fix="Leave cross out, or name an encoder: model=all-minilm-l6-v2"
        )
    subject = make_subject(clf, x, **target_options)
    if cross and isinstance(subject.model, SingleOutputModel):
        what = "is for classifiers and regressors on text pairs"
        raise NotForThisModelError(what, where="cross", fix="Leave cross out")
    index = target_index(subject, target)
    explanation = explain(subject, method=method, target=target, **options)
    if trust:
        predictor = None if isinstance(subject.model, SingleOutputModel) else clf.predictor()
        tested = replace(subject, predictor=predictor)
        explanation.trust = check_faithfulness(tested, explanation.scores, target=index)
        explanation.trust["maskable"] = bool(getattr(clf, "maskable", False))
        explanation.notes.append(explanation.trust["verdict"])
    if cross:
        explanation.cross = cross_interactions(subject, index)
    return explanation


def make_subject(clf: Any, x: Any, **target_options: Any) -> Subject:
    """The ``Subject`` of one input of an estimator.

    Args:
        target_options: options of the estimator's ``explain_target``, such as the word of a tagged sentence.
    """
    if hasattr(clf, "explain_target"):
        return clf.explain_target(x, **target_options)
    if not hasattr(clf, "tokenizer_"):
        return image_subject(clf, x)
    return ngram_subject(clf, x) if _is_linear(clf.model_) else text_subject(clf, x)


@runs_isolated_with_gradients
def explain(
    subject: Subject,
    *,
    method: str = "attention",
    target: Any = None,
    maps: bool | None = None,
    **options: Any,
) -> Explanation:
    """Scores for every token or patch of one input.

    Args:
        method: a key of ``METHODS``; the docstring of its function describes its options.
        target: the label to explain; None: the predicted label. Not for ``attention`` and ``rollout``.
        maps: whether to keep all attention maps; None: only if the method computes them anyway.

    Raises:
        InputError: the method, option or label is unknown, or there is a target for a method without one.
        NotFiniteError: the model's outputs, or the scores, are NaN or infinite.
    """
    check_method(method, target, options)
    options = {name: v.item() if isinstance(v, np.generic) else v for name, v in options.items()}
    index = target_index(subject, target)
    has_target = takes_target(method)
    arguments = (subject, index) if has_target else (subject,)
    result = METHODS[method](*arguments, **options)
    all_maps, reads = result.maps, result.reads
    notes = [*subject.input_fields.get("notes", ()), *result.notes]
    if maps and all_maps is None and getattr(subject.model, "has_attention", True):
        all_maps, reads = attention_maps(subject)
    scores = finite(np.asarray(result.scores), "scores")
    if subject.grid is not None:
        scores = scores[subject.maskable_indices].reshape(subject.grid)
    return Explanation(
        **{**subject.input_fields, "notes": notes},
        scores=scores,
        probability=float(subject.probabilities[subject.target]),
        method=method,
        target=subject.classes[index] if has_target else None,
        target_probability=float(subject.probabilities[index]) if has_target else None,
        maps=None if maps is False else all_maps,
        reads=reads,
        error=result.error,
        settings=result.settings,
    )


def takes_target(method: str) -> bool:
    """Whether a method explains one label."""
    return "target" in inspect.signature(METHODS[method]).parameters


def method_options(method: str) -> dict[str, inspect.Parameter]:
    """The options of a method's function, by name."""
    parameters = inspect.signature(METHODS[method]).parameters
    return {name: p for name, p in parameters.items() if name not in ("subject", "target")}


def target_index(subject: Subject, target: Any) -> int:
    """The index of the label to explain."""
    if target is None:
        return subject.target
    if target in subject.classes:
        return subject.classes.index(target)
    names = [str(label) for label in subject.classes]  # on the command line, numbers are text
    if str(target) not in names:
        raise UnknownLabelError(f"no label {target!r}", where="target", fix=suggest(str(target), names))
    return names.index(str(target))


def check_method(
    method: str, target: Any, options: dict[str, Any], suggested: Sequence[str] = tuple(METHODS)
) -> None:
    """Raise InputError for an unknown method, an unknown option, or an option of the wrong type.

    Args:
        suggested: the methods that an error message may suggest.
    """
    if not isinstance(method, str) or method not in METHODS:
        close = get_close_matches(str(method), suggested, n=1, cutoff=0.7)
        fix = (f"Did you mean {close[0]!r}? " if close else "") + f"For this model: {', '.join(suggested)}"
        raise BadValueError(f"unknown method {method!r}", where="explain", fix=fix)
    known = method_options(method)
    for name, value in options.items():
        if name == "maps":
            continue
        if name not in known:
            raise UnknownKeyError(
                f"{method} has no option {name!r}", where="explain", fix=suggest(name, [*known, "maps"])
            )
        default = known[name].default
        kind = int if default is None else type(default)  # layers, heads and windows are None by default
        number_class, expected = {
            int: (Integral, "a whole number"),
            float: (Real, "a number"),
            str: (str, "text"),
        }[kind]  # these classes include the numbers of NumPy
        is_valid = isinstance(value, number_class) and not isinstance(value, bool)
        if not (is_valid or (default is None and value is None)):
            raise BadValueError(f"{name} must be {expected}, got {value!r}", where=method)
    if target is not None and not takes_target(method):
        with_target = ", ".join(name for name in suggested if takes_target(name))
        raise NotForThisModelError(
            f"{method} has no target",
            where="explain",
            fix=f"Leave target out, or choose a method with one: {with_target}",
        )
