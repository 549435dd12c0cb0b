"""Tiny data for the records: 67 examples (two labels of them wrong) and one that cannot be used, 17 others, 7 new.

What is to be learned is given away by single words, or by the brightness of images, so that a model of some thousand
numbers learns it within a second and its labels are the same on every machine.
"""

import csv
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NOUNS = ["film", "plot", "actor", "scene", "music", "camera", "story"]
PLACES = ["Rome", "Oslo", "Lima"]


def write(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def sentences(count: int, words: Sequence[str], seed: int = 3) -> list[tuple[str, int]]:
    """Distinct texts, and the number of the word of ``words`` that each has."""
    rng, rows = random.Random(seed), []
    for i in range(count):
        first, second = rng.sample(NOUNS, 2)
        rows.append((f"the {first} of {i} has a {words[i % len(words)]} {second}", i % len(words)))
    return rows


def wrong(example: int, answer: int, answers: int) -> int:
    """The answer of an example; another one for two of them, which a label review is to find."""
    return (answer + 1) % answers if example in (11, 31) else answer


def tables(
    folder: Path, header: Sequence[str], rows: Sequence[Sequence[Any]], bad: Sequence[Any], inputs: int
) -> None:
    """train.csv (67 rows and one that cannot be used), other.csv (17, with a column more), new.csv (7, 1 strange)."""
    others, new = enumerate(rows[67:84]), enumerate(rows[84:])
    strange = [7, *["nothing is said"] * inputs]
    write(folder / "train.csv", header, [*rows[:67], bad])
    write(folder / "other.csv", [*header, "source"], [[*row, "ab"[i % 2]] for i, row in others])
    write(folder / "new.csv", ["id", *header[:inputs]], [*([i, *row[:inputs]] for i, row in new), strange])


def texts(folder: Path) -> None:
    names = ("bad", "good")
    rows = [
        (text, names[wrong(n, i, 2)]) for n, (text, i) in enumerate(sentences(91, ("dreadful", "splendid")))
    ]
    tables(folder, ("text", "label"), rows, ("", "good"), 1)


def several_labels(folder: Path) -> None:
    names = ("bad", "good|long", "")
    given = enumerate(sentences(91, ("dreadful", "splendid", "plain")))
    rows = [(text, names[wrong(n, i, 3)]) for n, (text, i) in given]
    tables(folder, ("text", "label"), rows, ("", "good"), 1)


def text_pairs(folder: Path) -> None:
    names, words = ("no", "yes"), ("never", "indeed")
    given = enumerate(sentences(91, ("dreadful", "splendid")))
    rows = [(text, f"it is {words[n]} so in {i}", names[n]) for i, (text, n) in given]
    tables(folder, ("premise", "hypothesis", "label"), rows, ("a film", "", "yes"), 2)


def text_numbers(folder: Path) -> None:
    words = ("dreadful", "plain", "splendid")
    rows = [(text, 1.5 + 2 * i) for text, i in sentences(91, words)]
    tables(folder, ("text", "stars"), rows, ("a film", "many"), 1)


def scored_pairs(folder: Path) -> None:
    rows = []
    for i, (text, _) in enumerate(sentences(91, ("dreadful", "splendid"))):
        rows.append((text, text.replace("the", "a") if i % 2 else f"rain {i} falls on hills", 5 * (i % 2)))
    write(folder / "words.csv", ("text",), [(row[0],) for row in rows[84:]])
    tables(folder, ("sentence1", "sentence2", "score"), rows, ("a film", "a plot", "many"), 2)


def translations(folder: Path) -> None:
    german = {"a": "ein", "dog": "hund", "cat": "kater", "runs": "rennt", "sees": "sieht", "big": "alter"}
    rng, rows = random.Random(3), []
    while len(rows) < 91:
        words = rng.choices(list(german), k=rng.randint(2, 4))
        rows.append((" ".join(words), " ".join(german[word] for word in words)))
    tables(folder, ("en", "de"), rows, ("a dog", ""), 1)


def questions(folder: Path) -> None:
    rows = []
    for i in range(91):
        place = PLACES[i % 3] if i % 4 else ""
        rows.append((f"where is film {i}", f"film {i} is {f'in {place} now' if place else 'lost'}", place))
    tables(folder, ("question", "context", "answer"), rows, ("where is it", "it is in Rome", "Lima"), 2)


def tags(folder: Path) -> None:
    def sentence(i: int) -> str:
        words = ["Ann", "Bell", "saw", PLACES[i % 3], f"no{i}"]
        kinds = ["B-person", "I-person", "O", ("B-place", "B-person")[wrong(i, 0, 2)], "O"]
        return "".join(f"{word}\t{kind}\n" for word, kind in [*zip(words, kinds, strict=True)][2 * (i % 2) :])

    train = [*map(sentence, range(67)), "Ann\tB-person\nsaw\n"]
    (folder / "train.conll").write_text("\n".join(train), encoding="utf-8")
    (folder / "other.conll").write_text("\n".join(map(sentence, range(67, 84))), encoding="utf-8")
    write(folder / "new.csv", ("id", "text"), [(i, f"Ann Bell saw {PLACES[i % 3]}") for i in range(7)])


def lines(folder: Path) -> None:
    facts = [f"{place} is in {land} ." for place, land in zip(PLACES, ("Italy", "Norway", "Peru"))]
    rows = [(f"{facts[i % 3]} the {NOUNS[i % 7]} of {i} is there",) for i in range(91)]
    (folder / "train.txt").write_text("\n".join(row[0] for row in rows[:67]) + "\n", encoding="utf-8")
    write(
        folder / "other.csv", ("text", "source"), [(*row, "ab"[i % 2]) for i, row in enumerate(rows[67:84])]
    )
    write(folder / "new.csv", ("id", "text"), [(i, *row) for i, row in enumerate(rows[84:])])


def lines_and_texts(folder: Path) -> None:
    lines(folder)
    texts(folder)


def pictures(folder: Path) -> None:
    """8 x 8 pixels, dark or light: folders of classes, a table with their brightness, and a file that is none."""
    import numpy as np
    from PIL import Image

    rng, rows = np.random.default_rng(3), []
    for i in range(91):
        part = "train" if i < 67 else "other" if i < 84 else "new"
        light = 0.5 if i == 90 else i % 2
        name = "" if part == "new" else ("dark", "light")[wrong(i, i % 2, 2)]
        file = folder / part / name / f"{i:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((rng.integers(0, 60, (8, 8, 3)) + 180 * light).astype(np.uint8)).save(file)
        rows.append((file.relative_to(folder).as_posix(), 1.5 + 2 * light))
    (folder / "train" / "dark" / "broken.png").write_bytes(b"no image")
    header, others = ("image", "brightness"), enumerate(rows[67:84])
    write(folder / "train.csv", header, [*rows[:67], ("train/dark/broken.png", 1.5)])
    write(folder / "other.csv", (*header, "source"), [(*row, "ab"[i % 2]) for i, row in others])
    write(folder / "words.csv", ("text",), [("a film",), ("a plot",)])
