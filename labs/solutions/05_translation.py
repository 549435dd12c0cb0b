"""Solutions of lab 5."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

Step = Callable[[tuple[str, ...]], dict[str, float]]
END = "."


def precision(said: str, reference: str) -> float:
    """Clipped: a word said three times and there once counts once."""
    words = said.split()
    return sum((Counter(words) & Counter(reference.split())).values()) / len(words)


def greedy(step: Step, longest: int = 20) -> tuple[str, ...]:
    """The best next word, until the end."""
    words: tuple[str, ...] = ()
    while len(words) < longest and words[-1:] != (END,):
        chances = step(words)
        words += (max(chances, key=lambda w: chances[w]),)
    return words


def beam_search(step: Step, width: int, longest: int = 20) -> tuple[str, ...]:
    """The most probable of the sentences that ``width`` beginnings lead to."""
    alive: list[tuple[float, tuple[str, ...]]] = [(0.0, ())]
    for _ in range(longest):
        grown = []
        for score, words in alive:
            if words[-1:] == (END,):
                grown.append((score, words))
            else:
                grown += [(score + math.log(p), (*words, w)) for w, p in step(words).items()]
        alive = sorted(grown, reverse=True)[:width]
    return alive[0][1]


def test() -> None:
    assert precision("the the the", "the cat") == 1 / 3
    tree = {(): {"a": 0.6, "b": 0.4}, ("a",): {"c": 0.5, "d": 0.5}, ("b",): {"e": 1.0}}
    step: Step = lambda words: tree.get(words, {END: 1.0})  # noqa: E731
    assert greedy(step)[0] == "a"
    assert beam_search(step, 2) == ("b", "e", END)  # 0.4 against 0.3
