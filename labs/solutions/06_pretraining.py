"""Solutions of lab 6."""

from __future__ import annotations

import random
from collections import Counter
from math import exp, log


def masked(words: list[str], vocabulary: list[str], rng: random.Random) -> tuple[list[str], list[int]]:
    """The words as they are read, and the places that are asked for."""
    read, asked = list(words), [i for i in range(len(words)) if rng.random() < 0.15]
    for i in asked:
        fate = rng.random()
        if fate < 0.8:
            read[i] = "[MASK]"
        elif fate < 0.9:
            read[i] = rng.choice(vocabulary)
    return read, asked


def false_share(words: list[str], read: list[str]) -> float:
    """Of the words that can be read ([MASK] is none), how many are not the true ones.

    With 80/10/10 about 15 % x 10 % / 88 % = 1.7 %, with [MASK] for all 0: a model would then need an opinion only where
    [MASK] stands, and what it is fine-tuned on has no [MASK] at all (Devlin et al., 2019).
    """
    seen = [(a, b) for a, b in zip(words, read, strict=True) if b != "[MASK]"]
    return sum(a != b for a, b in seen) / len(seen)


def unigram(words: list[str]) -> tuple[float, float]:
    """Accuracy of always saying the most frequent word, and perplexity of saying every word's share."""
    shares = [n / len(words) for n in Counter(words).values()]
    return max(shares), exp(-sum(p * log(p) for p in shares))


def segments(first: list[str], second: list[str]) -> tuple[list[str], list[int]]:
    """[CLS] and the first [SEP] belong to the first segment."""
    a, b = ["[CLS]", *first, "[SEP]"], [*second, "[SEP]"]
    return a + b, [0] * len(a) + [1] * len(b)


def drawn_evenly(labels: list[str], each: int, seed: int) -> list[int]:
    """A sample without repetition for each class."""
    rng = random.Random(seed)
    places = {name: [i for i, label in enumerate(labels) if label == name] for name in sorted(set(labels))}
    return [i for found in places.values() for i in rng.sample(found, each)]


def test() -> None:
    rng = random.Random(0)
    words = [rng.choice("abcdefghij") for _ in range(20_000)]
    read, asked = masked(words, list("abcdefghij"), rng)
    assert abs(len(asked) / len(words) - 0.15) < 0.01
    assert abs(sum(w == "[MASK]" for w in read) / len(asked) - 0.8) < 0.02
    assert 0.01 < false_share(words, read) < 0.02  # 15 % x 10 % x 9/10 of 88 %
    all_hidden = ["[MASK]" if a != b or rng.random() < 0.15 else a for a, b in zip(words, read, strict=True)]
    assert false_share(words, all_hidden) == 0
    accuracy, perplexity = unigram(["a", "b", "c", "d"])
    assert accuracy == 0.25
    assert abs(perplexity - 4) < 1e-9
    tokens, numbers = segments(["a", "b"], ["c"])
    assert tokens == ["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"]
    assert numbers == [0, 0, 0, 0, 1, 1]
    labels = ["x"] * 50 + ["y"] * 5
    drawn = [drawn_evenly(labels, 4, seed) for seed in range(5)]
    assert all(len(set(rows)) == 8 and sum(labels[i] == "y" for i in rows) == 4 for rows in drawn)
    assert len({tuple(sorted(rows)) for rows in drawn}) > 1
