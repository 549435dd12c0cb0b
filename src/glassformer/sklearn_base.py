"""scikit-learn's base classes of estimators, or substitutes for commands that only predict.

``import sklearn.base`` takes as long as ``import torch``, and these commands do not need scikit-learn. So the
command line calls ``skip_sklearn()`` before it imports an estimator.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from glassformer.config.synonyms import foreign_name_hint, suggest

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "RegressorMixin",
    "check_is_fitted",
    "skip_sklearn",
    "with_hints",
]

_skips_sklearn = False


def skip_sklearn() -> None:
    """Import estimators without scikit-learn from now on. Only the command line calls this."""
    global _skips_sklearn
    _skips_sklearn = True


def check_is_fitted(estimator: Any, attribute: str) -> None:
    """Raise scikit-learn's NotFittedError if the estimator lacks ``attribute``, which ``fit`` sets."""
    # ``has_model`` is True before ``model_`` is read from a saved folder
    is_fitted = attribute == "model_" and getattr(estimator, "has_model", False)
    if not is_fitted and not hasattr(estimator, attribute):
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(
            f"This {type(estimator).__name__} instance is not fitted yet. Call 'fit' with appropriate "
            "arguments before using this estimator."
        )


def with_hints(init: Callable) -> Callable:
    """A decorator for constructors: an unknown parameter raises a TypeError with a suggestion."""
    known = inspect.signature(init).parameters
    keyword_only = all(p.kind is p.KEYWORD_ONLY for name, p in known.items() if name != "self")

    @wraps(init)
    def call(self: Any, *args: Any, **settings: Any) -> None:
        if args and keyword_only:
            what = f"{type(self).__name__} takes settings as keyword arguments"
            raise TypeError(f"{what}. Pass the training data to fit")
        for name in settings:
            if name not in known:
                hint = foreign_name_hint(name, known) or suggest(
                    name, [key for key in known if key != "self"]
                )
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}. {hint}")
        init(self, *args, **settings)

    return call


class PlainEstimator:
    """Replaces ``BaseEstimator``; it has only ``get_params``, which saved models need."""

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(name for name in inspect.signature(cls.__init__).parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._get_param_names()}


class PlainMixin:
    """Replaces ``ClassifierMixin`` and ``RegressorMixin``."""


def __getattr__(name: str) -> Any:  # runs for ``from glassformer.sklearn_base import BaseEstimator``
    substitutes = {
        "BaseEstimator": PlainEstimator,
        "ClassifierMixin": PlainMixin,
        "RegressorMixin": PlainMixin,
    }
    if name not in substitutes:
        raise AttributeError(f"module 'glassformer.sklearn_base' has no attribute {name!r}")
    if _skips_sklearn:
        return substitutes[name]
    import sklearn.base

    return getattr(sklearn.base, name)
