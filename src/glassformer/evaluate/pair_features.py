"""Counted words of pairs: of each side, of what both share and of what one alone has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glassformer.data.text_pairs import TextPair
from glassformer.errors import DataError


def counted(vectorizer: Any, train: Sequence[Any]) -> Any:
    """``[n, W]`` sparse: what a vectorizer makes of its training texts, once it has learned their words.

    Raises:
        DataError: there is no word in them.
    """
    try:
        return vectorizer.fit_transform(train)
    except ValueError as error:  # "empty vocabulary"
        raise DataError(f"no words to count ({error})", where="TF-IDF baseline") from None


class BothSides:
    """A vectorizer of texts as one of pairs: ``[a, b, a * b, |a - b|]``, the words counted over both sides.

    Args:
        vectorizer: of texts, scikit-learn's.
    """

    def __init__(self, vectorizer: Any):
        self.vectorizer = vectorizer

    def fit_transform(self, pairs: Sequence[TextPair]) -> Any:
        """``[n, 4 W]`` sparse, of the training pairs."""
        self.vectorizer.fit([text for pair in pairs for text in pair.sides])
        return self.transform(pairs)

    def transform(self, pairs: Sequence[TextPair]) -> Any:
        """``[n, 4 W]`` sparse."""
        from scipy.sparse import hstack

        a, b = (self.vectorizer.transform([pair.sides[side] for pair in pairs]) for side in (0, 1))
        return hstack([a, b, a.multiply(b), abs(a - b)], format="csr")
