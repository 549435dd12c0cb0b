"""Inputs in the server: how the JSON of a request becomes a batch. Each kind of input has a subclass.

JSON ──▶ Served.encode ──▶ Served.join ──▶ one packed batch
         an Item per       a batch
         input
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from glassformer.errors import DataError

CHARS_PER_TOKEN = 3  # an estimate before tokenization


class RequestTooLargeError(DataError):
    """The request is over a limit of the server (status 413 or 431).

    Cause: too many inputs, characters, pixels, bytes or headers.
    Fix: send several smaller requests; the limits are options of ``glassformer serve``.
    """

    code = "request-too-large"


@dataclass(frozen=True)
class Item:
    """One encoded input."""

    encoded: Any  # input of ``Served.join``
    tokens: int
    truncated: bool = False
    given: Any = None  # the original input, if the response needs it


class Served:
    """Base class, for one text per example; other kinds of input override what differs."""

    kind: ClassVar[str] = "text"  # in ``Model`` of the server
    field: ClassVar[str] = "text"  # JSON field of one input; with "s" appended, of several
    element: ClassVar[Any] = str  # type of one input in JSON
    element_description: ClassVar[str | None] = None  # its description, if ``field`` is not enough
    noun: ClassVar[str] = "texts"  # name of several inputs in messages
    long_field: ClassVar[str] = "text"  # the field that may make an input too long to explain
    pair: Callable[..., Any] = staticmethod(lambda *parts: parts)  # combines two texts to one input
    pairs = False
    decoded: ClassVar[bool] = False  # whether each input is decoded separately, which can take seconds
    examples: ClassVar[Sequence[str]] = ()  # files of a run with an example for the page
    neutral: Any = "This is an example. Write a text of your own here."  # example if the recipe has none
    too_long = "Explain a part of it"

    def __init__(self, clf: Any, limits: Any, name: str):
        self.clf, self.limits = clf, limits
        self.max_length: int | None = clf.length_  # tokens to which a text is truncated; None: not truncated
        self.most = limits.characters  # maximum number of tokens of one input

    # Before the queue:

    def guess(self, x: Any) -> int:
        """A cheap estimate of the maximum number of tokens of an input."""
        return min(len(x) // CHARS_PER_TOKEN + 2, self.most)

    def least(self, size: int) -> int:
        """A lower bound of the tokens in a request body of ``size`` bytes, as one ASCII text."""
        return min(size // (2 * CHARS_PER_TOKEN), self.most)

    def length(self, x: Any) -> int:
        """Number of characters of an input."""
        return len(x)

    def encode(self, inputs: Sequence[Any], what: str = "inputs") -> list[Item]:
        """Encode inputs; raise InputError for an unusable input, with its position."""
        raise NotImplementedError

    def trial(self, text: str) -> Item:
        """An encoded input made of this text, for testing a model."""
        return self.encode([self.pair(text, text) if self.pairs else text])[0]

    def to_explain(self, x: Any) -> tuple[Any, int]:
        """An input for the estimator's ``explain``, and its number of tokens."""
        return x, self.encode([x], self.field)[0].tokens

    # After the queue:

    def join(self, items: Sequence[Item]) -> Any:
        """Combine encoded inputs to a batch for the model."""
        raise NotImplementedError

    def about(self) -> dict[str, Any]:
        """Additional fields of ``Model``."""
        return {}
