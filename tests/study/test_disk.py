"""A disk that refuses while a run folder is written: one line that names the file, and what was there stays."""

import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables import write_predictions

from glassformer.checkpoints.files import replace_text
from glassformer.errors import GlassformerError
from glassformer.report.page import write_page
from glassformer.scale.scoring import join_parts
from glassformer.tasks.task import write_json
from glassformer.train.callbacks import HistoryFile

REFUSALS = {
    errno.EROFS: "Read-only file system",
    errno.EACCES: "Permission denied",
    errno.ENOSPC: "No space left on device",
}


def join(path: Path) -> None:
    part = path.parent / "part.parquet"
    if not part.is_file():
        pq.write_table(pa.table({"label": ["a", "b"]}), part)
    join_parts([part], path)


WRITERS = {
    "text": lambda path: replace_text(path, "new"),
    "json": lambda path: write_json(path, {"new": 1}),
    "parts": join,
    "page": lambda path: write_page(path, "<p>new"),
    "predictions": lambda path: write_predictions(path, ["a"], np.ones((1, 2)) / 2, ["x", "y"]),
}


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("number", REFUSALS)
@pytest.mark.parametrize("name", WRITERS)
def test_a_refusal_names_the_file_and_leaves_the_old_one(tmp_path, monkeypatch, name, number, call):
    path = tmp_path / "results.json"
    path.write_text("old")
    if name == "parts":
        join(tmp_path / "first.parquet")
    before = sorted(os.listdir(tmp_path))

    def refuses(*given):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, refuses)
        with pytest.raises(
            GlassformerError, match=rf"results\.json: could not be written: {REFUSALS[number]}"
        ):
            WRITERS[name](path)
    assert path.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == before  # no draft is left
    WRITERS[name](path)
    assert path.read_bytes() != b"old"


def test_what_is_written_is_synced_before_it_is_seen(tmp_path, monkeypatch):
    done, sync, move = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("sync"), sync(handle)))
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("move"), move(a, b)))
    replace_text(tmp_path / "arm.json", json.dumps({"seed": 3}))
    assert done == ["sync", "move", "sync"]  # the file, then its name, then the folder that holds the name


@pytest.mark.parametrize("number", REFUSALS)
def test_the_history_of_a_training(tmp_path, monkeypatch, number):
    def refuses(*given, **options):
        raise OSError(number, os.strerror(number))

    training: Any = SimpleNamespace(history=[{"loss": 0.5}])
    history = HistoryFile(tmp_path / "history.jsonl")
    history.start(training)
    training.history.append({"loss": 0.25})
    monkeypatch.setattr(Path, "open", refuses)
    with pytest.raises(GlassformerError, match=rf"history\.jsonl: could not be written: {REFUSALS[number]}"):
        history._flush(training)
