"""What a kind of input has for itself where a model is served: how a request's JSON becomes a batch.

JSON ──▶ Served.encode ──▶ Served.join ──▶ one packed batch
         an Item per       a batch
         input
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from glassformer.errors import DataError

CHARS_PER_TOKEN = 3  # a guess before the tokenizer has seen a text


class RequestTooLargeError(DataError):
    """The request is over a limit of the server (status 413 or 431).

    Cause: too many inputs, characters, pixels, bytes or headers.
    Fix: send several smaller requests; the limits are options of ``glassformer serve``.
    """

    code = "request-too-large"


@dataclass(frozen=True)
class Item:
    """One input, ready to be batched."""

    encoded: Any  # what ``Served.join`` makes a batch of
    tokens: int
    truncated: bool = False
    given: Any = None  # the input itself, where a response needs it


class Served:
    """One text an example; each other kind of input replaces what it has otherwise.

    Raises:
        ConfigError: a model that cannot be served, where one is made.
    """

    kind: ClassVar[str] = "text"  # as ``Model`` of the server has it
    field: ClassVar[str] = "text"  # of a request with one input; with several it ends in s
    element: ClassVar[Any] = str  # the JSON of one input
    element_is: ClassVar[str | None] = None  # what that is, where ``field`` does not say it
    noun: ClassVar[str] = "texts"  # what several are called in messages
    long_field: ClassVar[str] = "text"  # the field that makes an input too long to explain
    pair: Callable[..., Any] = staticmethod(lambda *parts: parts)  # what two texts are made one input by
    pairs = False
    decoded: ClassVar[bool] = False  # opened and decoded, each by itself; it takes seconds
    examples: ClassVar[Sequence[str]] = ()  # files of a run that the page opens with
    neutral: Any = "This is an example. Write a text of your own here."  # where the recipe names no text
    too_long = "Explain a part of it"

    def __init__(self, clf: Any, limits: Any, name: str):
        self.clf, self.limits = clf, limits
        self.max_length: int | None = clf.length_  # tokens that are read of a text; None: all
        self.most = limits.characters  # tokens that are computed of one text

    # Before the queue.

    def guess(self, x: Any) -> int:
        """Tokens that an input will have at most, or nearly so; costs nothing."""
        return min(len(x) // CHARS_PER_TOKEN + 2, self.most)

    def least(self, size: int) -> int:
        """Tokens that a body of ``size`` bytes has at least, as one ASCII text; fewer than ``guess``."""
        return min(size // (2 * CHARS_PER_TOKEN), self.most)

    def length(self, x: Any) -> int:
        """Characters of an input."""
        return len(x)

    def encode(self, inputs: Sequence[Any], what: str = "inputs") -> list[Item]:
        """Raises InputError for an input that cannot be used; it is named."""
        raise NotImplementedError

    def trial(self, text: str) -> Item:
        """An input to try a model with, made of this text."""
        return self.encode([self.pair(text, text) if self.pairs else text])[0]

    def to_explain(self, x: Any) -> tuple[Any, int]:
        """An input as ``explain`` of the estimator takes it, and its tokens."""
        return x, self.encode([x], self.field)[0].tokens

    # After it.

    def join(self, items: Sequence[Item]) -> Any:
        """A batch, as the model takes it."""
        raise NotImplementedError

    def about(self) -> dict[str, Any]:
        """Fields of ``Model``."""
        return {}
