"""Every verb over a run of every kind: it works, or refuses in one line that says what to do instead.

The runs are trained once, tiny; each cell of the table below is one call of the command. A new task or verb
fails here until the table says what it does.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import typer.main
from PIL import Image

from glassformer.cli.app import app, main
from glassformer.tasks.catalog import TASKS

from .tiny import sentences, write_csv

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


def settings(*given: str) -> list[str]:
    return [word for setting in given for word in ("--set", setting)]


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


def _pictures(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    for label in ("dark", "light"):
        (folder / "pictures" / label).mkdir(parents=True)
        for i in range(12):
            pixels = rng.integers(0, 100, (8, 8, 3)) + 150 * (label == "light")
            Image.fromarray(pixels.astype(np.uint8)).save(folder / "pictures" / label / f"{i}.png")
    return folder / "pictures"


def _numbered_pictures(pictures: Path) -> Path:
    rows = [
        (str(p.relative_to(pictures.parent)), str(i / 7))
        for i, p in enumerate(sorted(pictures.rglob("*.png")))
    ]
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
    return {
        "texts": write_csv(folder / "texts.csv", rows),
        "label sets": write_csv(folder / "sets.csv", [(t, label[n]) for t, n in rows]),
        "text pairs": write_csv(folder / "pairs.csv", sides, "premise,hypothesis,label"),
        "tags": _tags(folder),
        "similarity": write_csv(folder / "scored.csv", scored, "sentence1,sentence2,score"),
        "masked words": lines,
        "translation": write_csv(folder / "translation.csv", [(a, b) for a, b, _ in sides], "en,de"),
        "word vectors": lines,
        "pictures": _pictures(folder),
        "masked pictures": folder / "pictures",
        "numbers": write_csv(
            folder / "numbers.csv", [(t, str(i / 7)) for i, (t, _) in enumerate(rows)], "text,score"
        ),
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
        "texts": ["--text", data, *settings(*TEXT)],
        "label sets": ["--text", data, "--label-separator", "|", *settings(*TEXT)],
        "text pairs": ["--text", data, *settings(*TEXT)],
        "tags": ["wnut17-minilm", "--data", data, *settings(*[s for s in TEXT if s != "maps=0"], *held)],
        "similarity": ["stsb-minilm", "--data", data, *settings(*TEXT, *held)],
        "masked words": ["europe-mlm", "--data", data, *settings(*MLM)],
        "translation": ["multi30k-rnn", "--data", data, *settings(*SEQ, *held)],
        "word vectors": ["countries-word2vec", "--data", data, *settings("epochs=1", "min_count=1")],
        "pictures": ["--images", data, *settings(*VIT)],
        "masked pictures": ["digits-patches", "--data", data, *settings(*PATCHES)],
        "numbers": ["--text", data, *settings(*[s for s in TEXT if s != "maps=0"], "target=number")],
        "numbers of pictures": ["--images", data, *settings(*VIT, "target=number")],
        "questions": ["facts-minilm", "--data", data, *settings(*[s for s in TEXT if s != "maps=0"], *held)],
    }
    return ["train", *given[kind], "--out", out]


class Runs(NamedTuple):
    """A run of each kind, and its data."""

    runs: dict[str, Path]
    data: dict[str, Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Runs:
    home = tmp_path_factory.mktemp("every")
    data = make_data(home)
    runs = {}
    for kind, source in data.items():
        runs[kind] = home / f"run-{kind}".replace(" ", "-")
        done = call(*train_words(kind, source, runs[kind]))
        assert done.code == 0, (kind, done.err)
    return Runs(runs, data)


# --- the calls ------------------------------------------------------------------------------------

KINDS = (
    "texts",
    "label sets",
    "text pairs",
    "tags",
    "similarity",
    "masked words",
    "translation",
    "word vectors",
    "pictures",
    "masked pictures",
    "numbers",
    "numbers of pictures",
    "questions",
)
PICTURES = ("pictures", "masked pictures", "numbers of pictures")
A, B = "the film has a plot", "the story has an actor"


def example(kind: str, data: Path) -> list[object]:
    """One input of a kind, as the command line takes it."""
    if kind in PICTURES:
        return [(data if data.is_dir() else data.parent / "pictures") / "dark" / "0.png"]
    return [A, B] if kind in ("text pairs", "questions") else [A]


def other_run(run: Path, out: Path) -> Path:
    """A copy of a run whose recipe says that it was trained for longer."""
    shutil.copytree(run, out)
    text = (out / "config.toml").read_text()
    (out / "config.toml").write_text(text.replace("epochs = 1\n", "epochs = 2\n", 1))
    return out


def folds(run: Path, tmp: Path) -> list[object]:
    return [run / "config.toml", "--folds", 2, "--out", tmp / "folds"]


CALLS: dict[str, Callable[[str, Path, Path, Path], list[object]]] = {
    "train": lambda kind, run, data, tmp: ["train", "--resume", "--out", run],
    "new": lambda kind, run, data, tmp: ["new", tmp / "new.toml", run / "config.toml"],
    "evaluate": lambda kind, run, data, tmp: ["evaluate", run],
    "predict": lambda kind, run, data, tmp: ["predict", run, *example(kind, data)],
    "calibrate": lambda kind, run, data, tmp: ["calibrate", run],
    "compare": lambda kind, run, data, tmp: ["compare", run, other_run(run, tmp / "other")],
    "cross-validate": lambda kind, run, data, tmp: ["cross-validate", *folds(run, tmp)],
    "review-labels": lambda kind, run, data, tmp: ["review-labels", *folds(run, tmp)],
    "report": lambda kind, run, data, tmp: ["report", run],
    "vectors": lambda kind, run, data, tmp: ["vectors", run, "film"],
    "translate": lambda kind, run, data, tmp: ["translate", run, A],
    "embed": lambda kind, run, data, tmp: ["embed", run, *example(kind, data), "--out", tmp / "vectors.npy"],
    "similar": lambda kind, run, data, tmp: ["similar", A, B, "--model", run],
    "search": lambda kind, run, data, tmp: ["search", run, data.parent / "texts.csv", A],
    "fill": lambda kind, run, data, tmp: ["fill", run, "the [MASK] has a plot"],
    "explain": lambda kind, run, data, tmp: ["explain", run, *example(kind, data)],
    "export": lambda kind, run, data, tmp: ["export", run, "--to", "hf", "--out", tmp / "out", "--check", 5],
    "serve": lambda kind, run, data, tmp: ["serve", run],
    "data show": lambda kind, run, data, tmp: ["data", "show", data],
    "data doctor": lambda kind, run, data, tmp: ["data", "doctor", data],
    "doctor": lambda kind, run, data, tmp: ["doctor", run / "model"],
}
WITHOUT_RUN = ("demo", "reproduce", "data list")  # of no run and of no data


# Verb -> kind -> the words with which it is refused; a kind that is not named works.
LABELS = {
    "similarity": "similarity does not predict labels",
    "masked words": "masked-lm does not predict labels",
    "translation": "translation does not predict labels",
    "word vectors": "word2vec does not predict labels",
    "masked pictures": "masked-patches does not predict labels",
}
QUESTIONS = {"questions": "question-answering does not predict labels"}
REGRESSORS = ("numbers", "numbers of pictures")
NO_LABELS = {
    "similarity": "Use glassformer similar",
    "masked words": "Use glassformer fill",
    "translation": "Use glassformer translate",
    "word vectors": "Use glassformer vectors",
    "masked pictures": "Use glassformer evaluate",
}


def all_but(able: str, said: str) -> dict[str, str]:
    return dict.fromkeys([kind for kind in KINDS if kind != able], said)


REFUSED: dict[str, dict[str, str]] = {
    "train": {},
    "new": {},
    "evaluate": {},
    "predict": NO_LABELS,
    "calibrate": LABELS
    | {"questions": "answers from texts have no temperature"}
    | dict.fromkeys(REGRESSORS, "numbers have intervals, not a temperature"),
    "compare": dict.fromkeys(LABELS, "has no answers that can be compared"),
    "cross-validate": LABELS,
    "review-labels": LABELS
    | {"label sets": "one label an example can be ranked"}
    | QUESTIONS
    | dict.fromkeys(REGRESSORS, "has numbers, and labels are ranked"),
    "report": {},
    "vectors": all_but("word vectors", "not word vectors"),
    "translate": all_but("translation", "which cannot translate. Name a run of a Translator"),
    "embed": {
        "text pairs": "reads pairs of texts, and this command takes single ones",
        "tags": "a TokenTagger, which gives no vectors",
        "questions": "a TextAnswerer, which gives no vectors",
        "masked words": "a MaskedLM, which gives no vectors",
        "translation": "a Translator, which gives no vectors",
        "word vectors": "a Word2Vec, which gives no vectors",
    },
    "similar": all_but("similarity", "which cannot compare texts. Name a run of an Embedder"),
    "search": all_but("similarity", "which cannot compare texts. Name a run of an Embedder"),
    "fill": all_but("masked words", "which cannot fill. Name a run of a MaskedLM"),
    "explain": NO_LABELS | {"similarity": "a cosine is explained. Give two texts"},
    "export": NO_LABELS,
    "serve": dict.fromkeys(
        ("masked words", "translation", "word vectors", "masked pictures"),
        "classifiers, embedders, taggers and answerers are served",
    ),
    "data show": {},
    "data doctor": {},
    "doctor": {},
}


def leaves(command: Any, name: str = "") -> list[str]:
    below = getattr(command, "commands", {})
    return [leaf for word, sub in below.items() for leaf in leaves(sub, f"{name} {word}".strip())] or [name]


def test_every_verb_and_every_task_has_its_place_in_the_table(made):
    assert {*leaves(typer.main.get_command(app))} == {*CALLS, *WITHOUT_RUN}
    assert REFUSED.keys() == CALLS.keys()
    assert made.runs.keys() == {*KINDS}
    saved = [run / "model" / "glassformer.json" for run in made.runs.values()]
    kinds = {json.loads(file.read_text())["kind"] for file in saved}
    assert kinds == {task.estimator.__name__ for task in TASKS.values()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", CALLS)
def test_it_works_or_says_in_one_line_what_to_do(verb, kind, made, tmp_path, monkeypatch):
    if verb == "serve":
        pytest.importorskip("fastapi")
        from glassformer.serve import run as server
        from glassformer.serve.loading import load_models

        loaded = lambda runs, limits, **_: load_models(runs, limits, threads=1)  # noqa: E731
        monkeypatch.setattr(server, "run_server", loaded)
    monkeypatch.chdir(tmp_path)
    run, data = made.runs[kind], made.data[kind]
    if verb in ("calibrate", "report"):  # they change it
        run = Path(shutil.copytree(run, tmp_path / "own"))
    done = call(*CALLS[verb](kind, run, data, tmp_path))
    said = REFUSED[verb].get(kind)
    if said is None:
        assert done.code == 0, done.err
        return
    assert done.code == 2, (done.out, done.err)
    assert said in done.err
    lines = done.err.splitlines()
    assert [line.startswith("error: ") for line in lines].index(True) == len(lines) - 1
