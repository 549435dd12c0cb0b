"""Read and write the n-gram vectorizer of linear models.

The n-grams are in ``ngrams.json``, their IDF weights in ``idf.safetensors``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.settings import shorten
from glassformer.checkpoints.tensors import read_tensors, write_tensors
from glassformer.data.ngrams import Ngrams
from glassformer.errors import CheckpointError
from glassformer.finite import json_text

FILE, IDF = "ngrams.json", "idf"
FORMAT = 1
CLEAN = ("none", "html", "words", "syllables", "trim")


def ngrams_metadata(ngrams: Ngrams) -> dict[str, Any]:
    """All values except the IDF weights, for JSON."""
    return {
        "format": FORMAT,
        "lowercase": ngrams.lowercase,
        "strip_accents": ngrams.strip_accents,
        "clean": ngrams.clean,
        "pairs": ngrams.pairs,
        "words": list(ngrams.words),
        "characters": list(ngrams.pieces),
    }


def write_ngrams(ngrams: Ngrams, folder: Path) -> None:
    """Write both files to an existing folder."""
    text = json_text(ngrams_metadata(ngrams), indent=0) + "\n"
    (folder / FILE).write_text(text, encoding="utf-8")
    write_tensors(folder, {"idf": torch.from_numpy(ngrams.idf)}, name=IDF)


def read_ngrams(folder: str | Path) -> Ngrams:
    """Read the files of ``write_ngrams``.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    folder = Path(folder)
    where, metadata = str(folder / FILE), read_json(folder / FILE)
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"has the format {shorten(metadata.get('format'))}, not {FORMAT}", where=where)
    lists: dict[str, Any] = {key: metadata.get(key) for key in ("words", "characters")}
    for key, value in lists.items():
        if not isinstance(value, list) or not all(isinstance(ngram, str) for ngram in value):
            raise CheckpointError(f"{key!r} is not a list of texts", where=where)
    flags: dict[str, Any] = {key: metadata.get(key) for key in ("lowercase", "strip_accents", "pairs")}
    for key, value in flags.items():
        if not isinstance(value, bool):
            raise CheckpointError(f"{key} = {shorten(value)} is not true or false", where=where)
    clean = metadata.get("clean")
    if clean not in CLEAN:
        raise CheckpointError(f"clean = {shorten(clean)} is not known", where=where, fix=", ".join(CLEAN))
    count = len(lists["words"]) + len(lists["characters"])
    idf = read_tensors(folder, IDF).get("idf")
    if idf is None or idf.dtype != torch.float64 or idf.shape != (count,) or not idf.isfinite().all():
        what = f"has no weight for each of the {count:,} n-grams"
        raise CheckpointError(what, where=str(folder / f"{IDF}.safetensors"), fix="Save it again")
    return Ngrams(lists["words"], lists["characters"], idf.numpy().copy(), clean=clean, **flags)
