"""Sentences made of parts, small and seeded: film reviews with negation for labs that have no real ones, and pairs of words
of which one leans on the other."""

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


def word_pairs(kind: str, count: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """Sentences, each with a word that leans on another and that other: ``negation`` (what is negated, the negation),
    ``agreement`` (verb, subject) or ``entities`` (last name, first name)."""
    rng = random.Random(seed)

    def one_of(words: str) -> str:
        return rng.choice(words.split())

    found = []
    for _ in range(count):
        thing, good = (
            one_of("film plot ending music story cast"),
            one_of("good funny clever great strong bad"),
        )
        many, one = one_of("actors stories scenes jokes songs"), one_of("film man book town king house")
        first = rng.random() < 0.5  # of two forms
        if kind == "negation" and first:
            found.append((f"The {thing} is not {one_of('very really even so')} {good} .", good, "not"))
        elif kind == "negation":
            like = one_of("like love enjoy believe remember")
            found.append((f"I did not {one_of('really even ever')} {like} the {thing} .", like, "not"))
        elif kind == "agreement" and first:
            are = one_of("are were")
            found.append((f"The {many} of the {one} {are} {good} .", are, many))
        elif kind == "agreement":
            was = one_of("is was")
            found.append((f"The {one} with the {many} {was} {good} .", was, one))
        else:
            name, last = (
                one_of("John Paul Marie Anna Peter David"),
                one_of("Carter Smith Brown Wilson Miller"),
            )
            text = (
                f"We {one_of('saw met knew liked')} {name} {last} in {one_of('Paris London Rome Berlin')} ."
            )
            found.append((text, last.lower(), name.lower()))
    return found
