"""The attribution methods, and ``explain``, their common interface."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

import numpy as np

from glassformer.config import nearest
from glassformer.errors import (
    BadValueError,
    NotForThisModelError,
    UnknownKeyError,
    UnknownLabelError,
)
from glassformer.explain.attention import attention, attention_gradient, attention_rollout
from glassformer.explain.backward import can_decompose, decomposition, gim
from glassformer.explain.cross import cross as cross_of
from glassformer.explain.faithfulness import trust as trust_in
from glassformer.explain.gradients import gradient_x_input, integrated_gradients
from glassformer.explain.ngrams import ngram_subject, weights
from glassformer.explain.occlusion import occlusion
from glassformer.explain.render import Explanation
from glassformer.explain.result import ABOUT, Scores
from glassformer.explain.shapley import shapley
from glassformer.explain.subject import OutputsAt, Subject, attention_maps, picture_subject, text_subject
from glassformer.finite import finite
from glassformer.runtime import computes_gradients

# Methods with a ``target`` argument explain one label; the others show attention.
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
OF_ATTENTION = ("attention", "rollout", "attention_gradient")
# Methods that repeat the forward pass step by step.
SPELLED_OUT = ("gim", "decomposition")
# Methods for neural networks.
OF_LAYERS = tuple(name for name in METHODS if name != "weights")
# Methods for linear models.
OF_LINEAR = ("weights", "occlusion")
# The default is the first of these that a model supports. decomposition is the best of the methods that need
# one pass, and near those that need 50 to 1,000, too many for large models (docs/faithfulness.md).
DEFAULTS = ("decomposition", "gim", "integrated_gradients")


def methods_for(model: Any) -> list[str]:
    """The methods that support a model; the first is the default."""
    if _is_linear(model):
        return list(OF_LINEAR)
    able = [name for name in OF_LAYERS if not _why_not(model, name)]
    best = DEFAULTS if getattr(model, "has_attention", True) else ("occlusion",)
    default = next(name for name in best if name in able)
    return sorted(able, key=lambda name: name != default)


def default_method(clf: Any, options: Collection[str] = ()) -> str:
    """The method where none is named: the first of ``methods_for`` that has the options given."""
    able = methods_for(clf.model_)
    return next((name for name in able if {*options} <= {"maps", *options_of(name)}), able[0])


def _why_not(model: Any, method: str) -> str:
    """Why a model does not support a method of ``OF_LAYERS``; empty if it does."""
    if not getattr(model, "has_attention", True) and method in (*OF_ATTENTION, *SPELLED_OUT):
        return "has no attention to show" if method in OF_ATTENTION else "has no attention"
    if _kind(model) != "full" and method == "attention_gradient":
        # With local and linear attention, maps are computed for display only.
        return f"has {_kind(model)} attention, whose maps no gradient reaches"
    if _kind(model) == "linear" and method in SPELLED_OUT:
        return f"has {_kind(model)} attention, which {method} does not know"
    if method == "decomposition" and not can_decompose(model):
        return "has a head or a pooling that does not add up over tokens"
    return ""


def _is_linear(model: Any) -> bool:
    return getattr(model, "kind", "") == "linear"


def _kind(model: Any) -> str:
    """The kind of attention of an encoder."""
    return getattr(getattr(getattr(model, "config", None), "encoder", None), "attention", "full")


def notes_of(explanation: Any) -> list[str]:
    """The notes of an explanation, and how its scores are to be interpreted."""
    part = "token" if explanation.image is None else "patch"
    return [*explanation.notes, ABOUT[explanation.method].replace("token", part)]


def check_attention(clf: Any, method: str) -> None:
    """Raises InputError if the model of an estimator does not support a method."""
    able = methods_for(clf.model_)
    if method in able:
        return
    if _is_linear(clf.model_):
        what = f"needs layers, and {clf.model!r} is a linear model"
    elif method == "weights":
        what = f"only for linear models of texts (tfidf), and {clf.model!r} is not one"
    else:
        name = "a linear model" if clf.model_.fixed else repr(clf.model)
        what = f"{name} {_why_not(clf.model_, method)}"
    raise NotForThisModelError(what, where=method, fix=f"Use {', '.join(able[:-1])} or {able[-1]}")


@computes_gradients
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
        trust: test them against 19 random orders under each way of hiding, in about 320 variants of the
            input each, which the classifier's own (often faster) number format answers; of words and answers
            from a text fp32 does.
        cross: of a pair of texts, their words against each other (``cross.py``).
    """
    asked = {name: options.pop(name) for name in getattr(clf, "EXPLAINED_OF", ()) if name in options}
    by: str = method or default_method(clf, options)
    check_method(by, target, options, methods_for(clf.model_))
    check_attention(clf, by)
    if cross and _is_linear(clf.model_):
        what = "in a linear model the words of both texts do not interact"
        raise NotForThisModelError(
            what, where="cross", fix="Leave cross out, or name an encoder: model=all-minilm-l6-v2"
        )
    subject = subject_of(clf, x, **asked)
    if cross and isinstance(subject.model, OutputsAt):
        what = "is for classifiers and regressors on text pairs"
        raise NotForThisModelError(what, where="cross", fix="Leave cross out")
    number = target_number(subject, target)
    made = explain(subject, method=by, target=target, **options)
    if trust:
        judge = None if isinstance(subject.model, OutputsAt) else clf.predictor()
        made.trust = trust_in(replace(subject, judge=judge), made.scores, target=number)
        made.trust["maskable"] = bool(getattr(clf, "maskable", False))
        made.notes.append(made.trust["verdict"])
    if cross:
        made.cross = cross_of(subject, number)
    return made


def subject_of(clf: Any, x: Any, **asked: Any) -> Subject:
    """What is explained for an input: what the estimator's ``explain_target`` gives where it has one, else
    the label of a text or an image, whichever a classifier reads.

    Args:
        asked: of ``explain_target``, such as the word of a tagged sentence.
    """
    if hasattr(clf, "explain_target"):
        return clf.explain_target(x, **asked)
    if not hasattr(clf, "tokenizer_"):
        return picture_subject(clf, x)
    return ngram_subject(clf, x) if _is_linear(clf.model_) else text_subject(clf, x)


@computes_gradients
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
        method: a key of ``METHODS``; its function says what it computes and which options it takes.
        target: the label to explain, None: the predicted one. ``attention`` and ``rollout`` have none.
        maps: whether to keep all attention maps; None: where the method makes them anyway.

    Raises:
        InputError: no such method, option, label, or a target for a method that has none.
        NotFiniteError: the model's outputs, or the scores, are NaN or infinite.
    """
    check_method(method, target, options)
    options = {name: v.item() if isinstance(v, np.generic) else v for name, v in options.items()}
    number = target_number(subject, target)
    has_target = takes_target(method)
    result = (
        METHODS[method](subject, number, **options) if has_target else METHODS[method](subject, **options)
    )
    kept, reads = result.maps, result.reads
    shown = {**subject.shown, "notes": [*subject.shown.get("notes", ()), *result.notes]}
    if maps and kept is None and getattr(subject.model, "has_attention", True):
        kept, reads = attention_maps(subject)
    scores = finite(np.asarray(result.scores), "scores")
    if subject.grid is not None:
        scores = scores[subject.hideable].reshape(subject.grid)
    return Explanation(
        **shown,
        scores=scores,
        probability=float(subject.probabilities[subject.target]),
        method=method,
        target=subject.classes[number] if has_target else None,
        target_probability=float(subject.probabilities[number]) if has_target else None,
        maps=None if maps is False else kept,
        reads=reads,
        error=result.error,
        settings=result.settings,
    )


def takes_target(method: str) -> bool:
    """Whether a method explains one label."""
    return "target" in inspect.signature(METHODS[method]).parameters


def options_of(method: str) -> dict[str, inspect.Parameter]:
    """The options of a method's function, by name."""
    parameters = inspect.signature(METHODS[method]).parameters
    return {name: p for name, p in parameters.items() if name not in ("subject", "target")}


def target_number(subject: Subject, target: Any) -> int:
    """The number of the label to explain.

    Raises:
        InputError: an unknown label.
    """
    if target is None:
        return subject.target
    if target in subject.classes:
        return subject.classes.index(target)
    names = [str(label) for label in subject.classes]  # a number that came as text, from a command line
    if str(target) not in names:
        raise UnknownLabelError(f"no label {target!r}", where="target", fix=nearest(str(target), names))
    return names.index(str(target))


def check_method(
    method: str, target: Any, options: dict[str, Any], able: Sequence[str] = tuple(METHODS)
) -> None:
    """Raises InputError for an unknown method, an unknown option, or an option of the wrong type.

    Args:
        able: the methods that an error message may suggest.
    """
    if not isinstance(method, str) or method not in METHODS:
        close = get_close_matches(str(method), able, n=1, cutoff=0.7)
        fix = (f"Did you mean {close[0]!r}? " if close else "") + f"For this model: {', '.join(able)}"
        raise BadValueError(f"no method {method!r}", where="explain", fix=fix)
    known = options_of(method)
    for name, value in options.items():
        if name == "maps":
            continue
        if name not in known:
            raise UnknownKeyError(
                f"{method} has no option {name!r}", where="explain", fix=nearest(name, [*known, "maps"])
            )
        default = known[name].default
        kind = int if default is None else type(default)  # layers, heads and windows are None by default
        asked = {int: Integral, float: Real, str: str}[kind]  # those of NumPy, too
        fits = isinstance(value, asked) and not isinstance(value, bool)
        if not (fits or (default is None and value is None)):
            wanted = {int: "a whole number", float: "a number", str: "text"}[kind]
            raise BadValueError(f"{name} is {wanted}, not {value!r}", where=method)
    if target is not None and not takes_target(method):
        having = ", ".join(name for name in able if takes_target(name))
        raise NotForThisModelError(
            f"{method} has no target",
            where="explain",
            fix=f"Leave target out, or choose a method with one: {having}",
        )
