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
WRITTEN = (  # for examples that are shown
    "I went in expecting very little, and the film is better than its poster, but not by much.",
    "The first hour drags, then the story wakes up and the last twenty minutes are splendid.",
    "Nobody who loves good dialogue should miss it, even if the plot makes no sense at all.",
    "A clever idea wasted on a script that never decides what it wants to be.",
    "My father fell asleep, my sister cried, and I would happily watch it again.",
    "The effects are cheap, the jokes are old, and still I left the cinema with a smile.",
    "For a film that cost so much it has remarkably little to say.",
    "Great cast, great music, great costumes: what a pity that somebody forgot the story.",
    "It is hardly a masterpiece, yet I can think of worse ways to spend an evening.",
    "The director said it would change cinema; it did not even change my mood.",
    "Slow and quiet, and not for everyone, it stayed with me for days.",
    "If you liked the book, do yourself a favor and read it once more instead.",
    "The lead actor tries hard, which is more than can be said of the camera.",
    "Too long by half, and I enjoyed every minute.",
    "There are three good scenes in it, and you have seen all of them in the trailer.",
    "I wanted to hate this sequel and could not.",
    "Honest, warm and funny, although the ending is a little too neat.",
    "What begins as a smart thriller ends as a lecture nobody asked for.",
    "The children around us laughed; the parents looked at their watches.",
    "It fails at nearly everything it attempts and is oddly charming in the attempt.",
)
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
