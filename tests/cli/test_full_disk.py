"""The disk full in the verbs that write: one line, exit code 1, nothing half-written, what was there as it was."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .tiny import snapshot


@contextmanager
def no_file_longer_than(limit: int) -> Iterator[None]:
    """The system refuses the bytes behind it, to Python as to compiled code."""
    before, heard = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, heard)


VERBS = {
    "predict": (["predict", "run", "reviews.csv", "--out", "new.csv"], "new.csv"),
    "predict --data": (["predict", "run", "--data", "table.parquet", "--out", "new.parquet"], "new.parquet"),
    "explain, a page": (["explain", "run", "a splendid film", "--out", "new.html"], "new.html"),
    "explain, figures": (["explain", "run", "a splendid film", "--out", "new.json"], "new.json"),
    "embed": (["embed", "run", "reviews.csv", "--out", "new.npy"], "new.npy"),
    "export": (["export", "run", "--to", "onnx", "--out", "new", "--check", "3"], "new"),
    "report": (["report", "run"], "report.html"),
    "vectors": (["vectors", "vectors.txt", "--out", "new.bin"], "new.bin"),
    "reproduce --table": (["reproduce", "--table", "--out", "new.md"], "new.md"),
}


@pytest.mark.parametrize("limit", [0, 131])
@pytest.mark.parametrize(
    "verb", [pytest.param(v, marks=pytest.mark.slow) if v == "export" else v for v in VERBS]
)
def test_nothing_is_left_half_written(gf, run, reviews, tmp_path, verb, limit):
    argv, named = VERBS[verb]
    pq.write_table(
        pa.table({"text": ["a splendid film", "a dreadful plot"] * 11}), tmp_path / "table.parquet"
    )
    vectors = "".join(f"word{i} {' '.join([str(i)] * 11)}\n" for i in range(7))
    (tmp_path / "vectors.txt").write_text(f"7 11\n{vectors}")
    before = snapshot(tmp_path)
    with no_file_longer_than(limit):
        result = gf(*argv)
    assert result.code == 1, result
    assert result.err.count("\n") == 1, result.err
    assert "could not be written: " in result.err
    assert named in result.err
    assert snapshot(tmp_path) == before
    assert gf(*argv).code == 0  # and what is left does not stand in the way of the next call
    assert not [name for name in snapshot(tmp_path) if ".tmp" in name]


def test_a_training_says_it_and_goes_on_later(gf, reviews, tmp_path):
    from .tiny import settings

    argv = ["train", "--text", reviews, "--out", "new", *settings()]
    with no_file_longer_than(4_099):
        result = gf(*argv)
    assert result.code == 1, result
    assert "could not be written: " in result.err.splitlines()[-1]
    left = snapshot(tmp_path / "new")
    assert all(len(content) != 4_099 for content in left.values()), "a file ends where the disk did"
    assert not [name for name in left if ".tmp" in name]
    assert gf(*argv, "--resume").code == 0
