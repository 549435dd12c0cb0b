"""Mixin with the ``explain`` methods of estimators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from glassformer.errors import WrongInputError
from glassformer.sklearn_base import check_is_fitted

if TYPE_CHECKING:
    from glassformer.explain.render import Explanation


class ExplainMixin:
    """Adds ``explain`` and ``explain_many`` to an estimator with ``check_examples``.

    An estimator that explains something other than the label of the whole input defines ``explain_target``
    and lists its options in ``EXPLAIN_TARGET_OPTIONS``.
    """

    check_examples: Any
    EXPLAIN_TARGET_OPTIONS: ClassVar[tuple[str, ...]] = ()

    def explain(
        self,
        X: Any,
        *,
        method: str | None = None,
        target: Any = None,
        trust: bool = False,
        **options: Any,
    ) -> Explanation:
        """Scores for the tokens of one text (or of both texts of a pair) or the patches of one image.

        Args:
            method: a key of ``glassformer.explain.methods.METHODS``. The default is decomposition, or gim if
                the head does not support it. It is occlusion for models without attention and weights for
                linear models. With an option such as ``layer``, it is the first method with that option.
            target: the label to explain; None: the predicted label.
            trust: also test the scores against random orders, with several ways of masking. The curves and
                metrics are in ``Explanation.trust``, the verdict is in ``Explanation.notes``.
            options: options of the method. For text pairs also ``cross=True``, which adds the interactions of
                the words of both texts as ``Explanation.cross``.

        Raises:
            InputError: the input cannot be used, or the method, option or label is unknown.
        """
        options.update(method=method, target=target, trust=trust)
        check_is_fitted(self, "model_")
        if isinstance(X, list) and len(X) > 1 and getattr(self, "pairs_", None) is False:
            what = f"takes one text, got a list of {len(X)}"
            raise WrongInputError(what, where="explain", fix="Use explain_many(texts)")
        return self._explained(self.check_examples([X]), None, options)[0]

    def explain_many(
        self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None, **options: Any
    ) -> list[Explanation]:
        """Explain several inputs, one after the other; see ``explain``.

        Args:
            progress: called with 1 after each input.
            options: arguments of ``explain``.

        Raises:
            InputError: see ``explain``. All inputs are checked before the first one is explained.
        """
        check_is_fitted(self, "model_")
        return self._explained(self.check_examples(X), progress, options)

    def _explained(
        self, examples: Sequence[Any], progress: Callable[[int], None] | None, options: dict[str, Any]
    ) -> list[Explanation]:
        from glassformer.explain.methods import explain_input

        explanations = []
        for x in examples:
            explanations.append(explain_input(self, x, **options))
            if progress is not None:
                progress(1)
        return explanations
