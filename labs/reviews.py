"""Short film reviews made of parts, for labs that have no real ones: small, seeded, with negation."""

from __future__ import annotations

import random

GOOD = (
    "good",
    "great",
    "wonderful",
    "funny",
    "clever",
    "beautiful",
    "brilliant",
    "memorable",
    "warm",
    "excellent",
)
BAD = ("bad", "terrible", "boring", "dull", "silly", "ugly", "predictable", "awful", "slow", "poor")
PARTS = ("story", "film", "plot", "acting", "ending", "music", "cast", "dialogue", "director", "camera")
NAMES = ("Anna Weiss", "John Carter", "Marie Dubois", "Ken Sato", "Paul Novak")


def reviews(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts and their labels, ``pos`` or ``neg``; a third of the words of praise or blame are negated."""
    rng = random.Random(seed)
    texts, labels = [], []
    for _ in range(count):
        positive = rng.random() < 0.5
        sentences = []
        for _ in range(rng.randint(1, 3)):
            negated = rng.random() < 1 / 3
            word = rng.choice(GOOD if positive != negated else BAD)
            start = rng.choice((f"The {rng.choice(PARTS)} is", f"I think the {rng.choice(PARTS)} was",
                                f"With {rng.choice(NAMES)} the {rng.choice(PARTS)} is"))  # fmt: skip
            sentences.append(
                f"{start} {'not ' if negated else ''}{rng.choice(('', 'really ', 'very '))}{word}."
            )
        texts.append(" ".join(sentences))
        labels.append("pos" if positive else "neg")
    return texts, labels
