"""Writer of a run's ``report.html``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from glassformer.config import UNKNOWN_RECIPE, KnownRecipe
from glassformer.report import answers, classes, numbers, sequences, similarity, tags, vectors
from glassformer.report.page import render, write_page

KINDS = {
    "classes": classes.PAGE,
    "numbers": numbers.PAGE,
    "tags": tags.PAGE,
    "answers": answers.PAGE,
    "similarity": similarity.PAGE,
    "translation": sequences.TRANSLATION,
    "masked words": sequences.WORDS,
    "masked patches": sequences.PATCHES,
    "vectors": vectors.PAGE,
}


def write_report(run_folder: str | Path, known: KnownRecipe = UNKNOWN_RECIPE, kind: str = "classes") -> Path:
    """Write ``report.html`` into a run folder, atomically, and return its path.

    Args:
        known: facts about the run's recipe; by default every setting counts as changed.
        kind: kind of the predictions, one of ``KINDS``.

    Raises:
        DataError: no metrics.json, or a damaged file, which the message names.
        ConfigError: config.toml is not TOML.
    """
    run = replace(KINDS[kind].read(Path(run_folder)), known=known)
    return write_page(run.folder / "report.html", render(run, KINDS[kind]))
