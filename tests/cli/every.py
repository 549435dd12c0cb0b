"""Data of every kind, tiny, and the command that trains a run on it: what suites over all tasks share."""

import contextlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.cli.app import main

from .tiny import pictures, sentences, sets, write_csv

SMALL = ["d_model=8", "num_layers=1", "num_heads=2", "d_ff=11", "epochs=1", "precision=fp32", "threads=1"]
TEXT = [*SMALL, "max_length=16", "min_count=1", "baselines=false", "bootstrap=7", "maps=0"]
TEXT += ["model=encoder-base"]


class Done(NamedTuple):
    code: int
    out: str
    err: str


def call(*words: object) -> Done:
    """The command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        warnings.simplefilter("ignore")
        code = main([str(word) for word in words])
    return Done(code, out.getvalue(), err.getvalue())


def ok(*words: object) -> Done:
    """A command in this process that must end well."""
    done = call(*words)
    assert done.code == 0, done
    return done


def leaves(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command below one that does something, by its name."""
    below = getattr(command, "commands", {})
    if not below:
        yield name, command
    for word, sub in below.items():
        yield from leaves(sub, f"{name} {word}".strip())


# --- data and runs of every kind ------------------------------------------------------------------


def _tags(folder: Path) -> Path:
    lines = []
    for i in range(24):
        names = [("Ann", "B-per"), ("saw", "O"), ("Rome", "B-loc"), (str(i), "O")]
        words = names if i % 3 else [("no", "O"), (str(i), "O")]
        lines.append("".join(f"{word}\t{tag}\n" for word, tag in words))
    file = folder / "tags.conll"
    file.write_text("\n".join(lines))
    return file


def _numbered_pictures(pictures: Path) -> Path:
    files = enumerate(sorted(pictures.rglob("*.png")))
    rows = [(str(file.relative_to(pictures.parent)), str(i / 7)) for i, file in files]
    return write_csv(pictures.parent / "brightness.csv", rows, "image,brightness")


def _questions(folder: Path) -> Path:
    rows = []
    for i in range(24):
        city = ("Rome", "Oslo", "Lima")[i % 3]
        rows.append((f"where is film {i}", f"film {i} is in {city} now", city if i % 4 else ""))
    return write_csv(folder / "questions.csv", rows, "question,context,answer")


def make_data(folder: Path) -> dict[str, Path]:
    """Kind -> its data."""
    rows = sentences(40)
    label = {"pos": "pos|long", "neg": "neg"}
    lines = folder / "lines.txt"
    lines.write_text("\n".join(f"{text}. And {text}!" for text, _ in rows))
    sides = [(text, text.replace("has", "had"), name) for text, name in rows]
    scored = [(a, b, str(i % 6)) for i, (a, b, _) in enumerate(sides)]
    numbers = [(text, str(i / 7)) for i, (text, _) in enumerate(rows)]
    return {
        "texts": write_csv(folder / "texts.csv", rows),
        "label sets": write_csv(folder / "sets.csv", [(t, label[n]) for t, n in rows]),
        "text pairs": write_csv(folder / "pairs.csv", sides, "premise,hypothesis,label"),
        "tags": _tags(folder),
        "similarity": write_csv(folder / "scored.csv", scored, "sentence1,sentence2,score"),
        "masked words": lines,
        "translation": write_csv(folder / "translation.csv", [(a, b) for a, b, _ in sides], "en,de"),
        "word vectors": lines,
        "pictures": pictures(folder / "pictures", {"dark": 12, "light": 12}),
        "masked pictures": folder / "pictures",
        "numbers": write_csv(folder / "numbers.csv", numbers, "text,score"),
        "numbers of pictures": _numbered_pictures(folder / "pictures"),
        "questions": _questions(folder),
    }


VIT = [*SMALL, "model=vit-tiny", "image_size=8", "patch_size=4", "bootstrap=7"]
MLM = ["d_model=8", "num_layers=1", "num_heads=2", "d_ff=13", "epochs=1", "precision=fp32", "vocab_size=90"]
SEQ = ["epochs=1", "d_model=8", "precision=fp32", "threads=1"]
PATCHES = ["epochs=1", "precision=fp32", "threads=1"]


def train_words(kind: str, data: Path, out: Path) -> list[object]:
    """The command that trains a run of a kind."""
    held = ["validation_size=8", "test_size=8"]
    given: dict[str, list[object]] = {
        "texts": ["--text", data, *sets(*TEXT)],
        "label sets": ["--text", data, "--label-separator", "|", *sets(*TEXT)],
        "text pairs": ["--text", data, *sets(*TEXT)],
        "tags": ["wnut17-minilm", "--data", data, *sets(*[s for s in TEXT if s != "maps=0"], *held)],
        "similarity": ["stsb-minilm", "--data", data, *sets(*TEXT, *held)],
        "masked words": ["europe-mlm", "--data", data, *sets(*MLM)],
        "translation": ["multi30k-rnn", "--data", data, *sets(*SEQ, *held)],
        "word vectors": ["countries-word2vec", "--data", data, *sets("epochs=1", "min_count=1")],
        "pictures": ["--images", data, *sets(*VIT)],
        "masked pictures": ["digits-patches", "--data", data, *sets(*PATCHES)],
        "numbers": ["--text", data, *sets(*[s for s in TEXT if s != "maps=0"], "target=number")],
        "numbers of pictures": ["--images", data, *sets(*VIT, "target=number")],
        "questions": ["facts-minilm", "--data", data, *sets(*[s for s in TEXT if s != "maps=0"], *held)],
    }
    return ["train", *given[kind], "--out", out]


class Runs(NamedTuple):
    """A run of each kind, and its data."""

    runs: dict[str, Path]
    data: dict[str, Path]


def make_runs(home: Path) -> Runs:
    """Each of them trained once."""
    data, runs = make_data(home), {}
    for kind, source in data.items():
        runs[kind] = home / f"run-{kind}".replace(" ", "-")
        ok(*train_words(kind, source, runs[kind]))
    return Runs(runs, data)


KINDS = ("texts", "label sets", "text pairs", "tags", "similarity", "masked words", "translation")
KINDS += ("word vectors", "pictures", "masked pictures", "numbers", "numbers of pictures", "questions")
PICTURES = ("pictures", "masked pictures", "numbers of pictures")
A, B = "the film has a plot", "the story has an actor"


def example(kind: str, data: Path) -> list[object]:
    """One input of a kind, as the command line takes it."""
    if kind in PICTURES:
        return [(data if data.is_dir() else data.parent / "pictures") / "dark" / "0.png"]
    return [A, B] if kind in ("text pairs", "questions") else [A]
