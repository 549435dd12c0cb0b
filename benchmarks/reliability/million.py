"""A million short texts scored on Ray, the command killed in the middle, given again: every row exactly once.

    python -m benchmarks.reliability.million [--rows 1000000] [--engine ray]

Writes results/million.json: rows, rows answered, shards kept from the first call, memory of all processes over time.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import glassformer as gf
from benchmarks.harness.command import command

FILM = ["film", "story", "plot", "cast", "scene", "end", "book", "song"]
WORDS = np.array(["a", "good", "bad", "dull", "fine", "very", "not", "warm", *FILM])
EVERY = 2.0  # seconds between two looks at the memory


def write_texts(path: Path, rows: int) -> None:
    """So many texts of 3 to 8 words, a row group at a time."""
    rng = np.random.default_rng(0)
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, 50_000):
            count = min(50_000, rows - start)
            words = WORDS[rng.integers(0, len(WORDS), (count, 8))]
            texts = [" ".join(w[:n]) for w, n in zip(words, rng.integers(3, 9, count), strict=True)]
            writer.write_table(pa.table({"id": np.arange(start, start + count), "text": texts}, schema))


def memory_mb(process: psutil.Process) -> float:
    """Resident memory of a process and all it has started (shared pages counted once: USS)."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        try:
            total += one.memory_full_info().uss / 1e6
        except psutil.Error:
            continue
    return total


def score(command: list[str], parts: Path, stop_at: int | None) -> tuple[int, list[tuple[int, float]]]:
    """Run the command, killed once so many shards lie there; its exit code, and (shards done, memory) over time."""
    process = subprocess.Popen(command)
    watched, memory, looked = psutil.Process(process.pid), [], 0.0
    while process.poll() is None:
        time.sleep(0.2)
        done = len(list(parts.glob("part-*.parquet"))) if parts.is_dir() else 0
        if time.monotonic() - looked > EVERY and done:
            looked = time.monotonic()
            memory.append((done, round(memory_mb(watched), 1)))
        if stop_at is not None and done >= stop_at:
            children = watched.children(recursive=True)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            psutil.wait_procs(children, timeout=20)  # Ray's own notice that their driver is gone
            break
    return process.wait(), memory


def flatness(memory: list[tuple[int, float]], before: int) -> dict[str, Any]:
    """The largest memory in the first and in the last half of this call's shards, once its workers have begun.

    ``memory``: (shards there, MB). Workers are starting until a fifth of the shards beyond ``before`` is done.
    """
    last = max((done for done, _ in memory), default=0)
    begun = [(done, mb) for done, mb in memory if done > before + (last - before) // 5]
    middle = begun[len(begun) // 2][0] if begun else 0
    first, rest = ([mb for done, mb in begun if (done > middle) == late] for late in (False, True))
    return {"by_shards": memory, "first_half": max(first, default=0.0), "last_half": max(rest, default=0.0)}


@command("a million texts", out="million", packages=("ray", "pyarrow"), rows=1000000, engine="ray")
def main(options: Any) -> dict[str, Any]:
    """Score, kill, score again, count."""
    sizes: dict[str, Any] = {"d_model": 12, "num_layers": 1, "num_heads": 2, "d_ff": 16, "max_length": 12}
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        source, out, parts = (home / name for name in ("texts.parquet", "out.parquet", "out.parquet.parts"))
        write_texts(source, options.rows)
        clf = gf.TextClassifier("encoder-mini", epochs=1, min_count=1, threads=1, **sizes)
        model = clf.fit(["a good film", "a bad film"] * 9, [1, 0] * 9).save(home / "model")
        words = [sys.executable, "-m", "glassformer", "predict", model, "--data", source, "--out", out]
        words = [str(word) for word in (*words, "--engine", options.engine)]
        started = time.perf_counter()
        killed, _ = score(words, parts, options.rows // 4096 // 2)
        kept = {p.name: p.stat().st_mtime_ns for p in parts.glob("part-*.parquet")}
        code, memory = score(words, parts, None)
        seconds = time.perf_counter() - started
        rows = pq.read_table(out, columns=["row", "label", "error"])
        numbers = rows.column("row").to_numpy()
    return {
        "engine": options.engine,
        "rows": options.rows,
        "answers": len(numbers),
        "each_exactly_once": bool((numbers == np.arange(1, options.rows + 1)).all()),
        "without_a_label": int(pc.sum(pc.is_null(rows.column("label"))).as_py() or 0),  # pyright: ignore
        "exit_codes": [killed, code],
        "shards_kept_over_the_kill": len(kept),
        "seconds": round(seconds, 1),
        "memory_mb": flatness(memory, len(kept)),
    }
