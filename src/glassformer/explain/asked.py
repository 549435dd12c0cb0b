"""Mixin with the ``explain`` methods of estimators; attribution methods are imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from glassformer.errors import WrongInputError
from glassformer.sklearn_base import check_is_fitted

if TYPE_CHECKING:
    from glassformer.explain.render import Explanation


class Explains:
    """Adds ``explain`` and ``explain_many`` to an estimator with ``examples_of``.

    An estimator may define ``explain_target`` if it explains something other than the label of the whole
    input, and ``EXPLAINED_OF``, the options of ``explain_target``.
    """

    examples_of: Any
    EXPLAINED_OF: ClassVar[tuple[str, ...]] = ()

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
            method: one of ``glassformer.explain.methods``, which has their options too; None: decomposition,
                or gim for a head that it does not support; occlusion for models without attention; weights
                for linear models; with an option that it lacks (``layer``), the first method that has it.
            target: the label to explain; None: the predicted one.
            trust: test them against random orders, under several ways of hiding parts: curves and figures in
                ``trust``, a verdict in ``notes``.
            options: of the method; also ``cross=True``: the words of a pair against each other, in ``cross``.

        Raises:
            InputError: an input that cannot be used, or no such method, option or label.
        """
        options.update(method=method, target=target, trust=trust)
        check_is_fitted(self, "model_")
        if isinstance(X, list) and len(X) > 1 and getattr(self, "pairs_", None) is False:
            what = f"takes one text, got a list of {len(X)}"
            raise WrongInputError(what, where="explain", fix="Use explain_many(texts)")
        return self._explained(self.examples_of([X]), None, options)[0]

    def explain_many(
        self, X: Sequence[Any], *, progress: Callable[[int], None] | None = None, **options: Any
    ) -> list[Explanation]:
        """Explain several inputs, one after the other; see ``explain``.

        Args:
            progress: called with 1 after each.
            options: of ``explain``.

        Raises:
            InputError: see ``explain``; inputs are checked before the first is explained.
        """
        check_is_fitted(self, "model_")
        return self._explained(self.examples_of(X), progress, options)

    def _explained(
        self, examples: Sequence[Any], progress: Callable[[int], None] | None, options: dict[str, Any]
    ) -> list[Explanation]:
        from glassformer.explain.methods import explain_input

        made = []
        for x in examples:
            made.append(explain_input(self, x, **options))
            if progress is not None:
                progress(1)
        return made
