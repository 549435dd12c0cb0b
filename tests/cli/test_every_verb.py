"""Every verb over a run of every kind: it works, or refuses in one line that says what to do instead.

The runs are trained once, tiny; each cell of the table below is one call of the command. A new task or verb
fails here until the table says what it does.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from glassformer.cli.app import app
from glassformer.tasks.catalog import TASKS

from .every import KINDS, A, B, call, example

# --- the calls ------------------------------------------------------------------------------------


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
NO_FOLDS = {
    "masked words": "masked-lm does not predict labels",
    "translation": "translation does not predict labels",
    "word vectors": "word2vec does not predict labels",
    "masked pictures": "masked-patches does not predict labels",
}
LABELS = NO_FOLDS | {"similarity": "similarity does not predict labels"}
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
    "compare": dict.fromkeys(NO_FOLDS, "has no answers that can be compared"),
    "cross-validate": NO_FOLDS,
    "review-labels": LABELS | QUESTIONS | dict.fromkeys(REGRESSORS, "has numbers, and labels are ranked"),
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
    "export": {kind: said for kind, said in NO_LABELS.items() if kind != "similarity"},
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
        from glassformer.serve.models import load_models

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
