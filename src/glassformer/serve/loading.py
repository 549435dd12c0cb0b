"""Saved models read from their folders to be served; a broken one is named and does not stop the others."""

from __future__ import annotations

import base64
import json
import logging
import math
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer import outputs
from glassformer.checkpoints.catalog import is_named
from glassformer.errors import CheckpointError, ConfigError, InputError
from glassformer.reading import read_regular
from glassformer.runtime import choose_dtype
from glassformer.serve.answerers import ServedAnswerer
from glassformer.serve.embedders import ServedEmbedder, Table
from glassformer.serve.limits import Limits
from glassformer.serve.models import EXAMPLES, Served
from glassformer.serve.problems import Problem, printable
from glassformer.serve.taggers import ServedTagger
from glassformer.tasks.similarity.estimator import Embedder

log = logging.getLogger("glassformer.serve")

EXAMPLE_CHARACTERS = 2_000  # of one sentence on the page
MAX_METRICS_BYTES, MAX_IMAGE_BYTES = 64 << 20, 1 << 20
# What tasks are judged by, the first that a run has: spans, answers, labels, numbers, similarity.
MAIN = ("entity_f1", "f1", "accuracy", "r2", "mae", "spearman", "found")


def load_models(
    runs: Sequence[str | Path],
    limits: Limits,
    *,
    threads: int = 0,
    precision: str = "auto",
    broken: dict[str, str] | None = None,
) -> list[tuple[Served, bool]]:
    """Saved classifiers under the names of their folders, each with whether it was calibrated.

    Args:
        broken: is given what is wrong with each model that cannot be loaded, under its name, where another
            can. None: the first such model ends the loading.

    Raises:
        InputError: no such folder, two of one name; a damaged one or no classifier, if none can be served.
    """
    found: dict[str, tuple[Served, bool]] = {}
    wrong: dict[str, InputError] = {}
    for run in runs:
        path = Path(run).resolve()
        if is_named(run):
            path = Path(run)
        elif not path.is_dir():
            raise ConfigError(
                "no such run folder", where=str(run), fix="Name the --out of 'glassformer train'"
            )
        name = path.parent.name if path.name == "model" else path.name
        if name in found or name in wrong:
            raise ConfigError(f"two models are called {name!r}", where=str(run), fix="Rename one folder")
        try:
            found[name] = _loaded(name, path, limits, threads, precision)
        except InputError as error:
            if broken is None:
                raise
            wrong[name] = error
        except Exception as error:  # one folder must not keep the others from being served
            if broken is None:
                raise
            told = outputs.printable("".join(traceback.format_exception(error)), keep="\n")
            log.error("%s could not be loaded\n%s", outputs.printable(name), told)
            wrong[name] = CheckpointError(f"could not be loaded ({type(error).__name__})", where=str(run))
    if wrong and not found:
        raise next(iter(wrong.values()))
    if broken is not None:
        broken |= {name: printable(str(error)) for name, error in wrong.items()}
    return list(found.values())


def search_in(models: Sequence[tuple[Served, bool]], given: Path | Table) -> None:
    """Give the one embedder among the models a list to search in.

    Raises:
        ConfigError: there is none, or there are two.
        InputError: a list that this model cannot search in.
    """
    able = [served for served, _ in models if isinstance(served, ServedEmbedder)]
    if not able:
        names = ", ".join(f"{served.name} gives {served.gives}" for served, _ in models)
        fix = "Serve an Embedder, or a checkpoint of vectors such as all-minilm-l6-v2"
        raise ConfigError(f"a list is searched by vectors, and {names}", where="--search", fix=fix)
    if len(able) > 1:
        what = f"{' and '.join(served.name for served in able)} both give vectors"
        raise ConfigError(what, where="--search", fix="Serve one of them, the other on a port of its own")
    able[0].search_in(given)


def _loaded(name: str, path: Path, limits: Limits, threads: int, precision: str) -> tuple[Served, bool]:
    """One model, which has answered once."""
    from glassformer.tasks.load import load

    choose_dtype(precision, torch.device("cpu"))  # a wrong word is no fault of a model
    if is_named(path):  # sentence vectors without a training
        clf: Any = Embedder(str(path))
        clf.longest()
    else:
        clf = load(path)
    calibrated = bool(np.any(clf.temperature_ != 1.0)) if hasattr(clf, "temperature_") else False
    run_folder = path.parent if path.name == "model" else path
    examples = example_sentences(run_folder)
    kind = Served
    if hasattr(clf, "explain_similarity"):
        kind = ServedEmbedder
    elif hasattr(clf, "word_logits"):
        kind = ServedTagger
    elif hasattr(clf, "token_logits"):
        kind = ServedAnswerer
    served = kind(name, clf, limits, threads=threads, precision=precision, examples=examples)
    served.score, served.image = score_of(run_folder), example_image(run_folder, served)
    served.try_out()
    return served, calibrated


def example_sentences(run: Path) -> list[str]:
    """The sentences that a run's recipe names (``evaluate.sentences``); rows of its data are never shown."""
    named = _metrics(run).get("sentences")
    try:
        return [printable(str(sentence["text"]), limit=EXAMPLE_CHARACTERS) for sentence in named[:EXAMPLES]]
    except (KeyError, TypeError):  # a run without them: the page offers none
        return []


def example_image(run: Path, served: Served) -> str | None:
    """The file ``example.png`` or ``example.jpg`` of a run of images, in base64; its data are never shown."""
    for name in ("example.png", "example.jpg") if served.kind == "image" else ():
        try:
            content = base64.b64encode(read_regular(run / name, MAX_IMAGE_BYTES)).decode()
            served.opened(content, name)
        except (OSError, Problem) as error:
            if (run / name).exists():
                log.warning("%s", printable(f"{run / name} cannot be shown: {error}"))
        else:
            return content
    return None


def score_of(run: Path) -> dict[str, Any] | None:
    """The main metric of a run's judged split, as ``Score`` has it; None: no run, or nothing was judged."""
    metrics = _metrics(run)
    judged = metrics.get("judged", "test")
    similar = metrics.get("similarity")
    for split, scores in (
        (judged, metrics.get("test")),
        ("validation", metrics.get("validation")),
        (judged, similar.get(judged) if isinstance(similar, dict) else None),
    ):
        if not isinstance(scores, dict):
            continue
        ranked = ("macro_f1",) if scores.get("kind") == "labels" else MAIN
        for metric in ranked:
            value, n = scores.get(metric), scores.get("n")
            if isinstance(value, int | float) and math.isfinite(value):
                n = n if isinstance(n, int) else None
                return {"metric": metric, "value": value, "split": str(split), "examples": n}
    return None


def _metrics(run: Path) -> dict[str, Any]:
    """A run's metrics.json; empty where it cannot be read."""
    try:
        found = json.loads(read_regular(run / "metrics.json", MAX_METRICS_BYTES).decode())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
