"""What a stranger's model folder decides: hostile tokenizers and labels end in one typed error, or in right answers.

Tokenizers are read by another process, which can be stopped when it does not come back; what it writes to its error
output is looked through for panics.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import glassformer as gf
from benchmarks.reliability import hostile_tokenizers
from benchmarks.reliability.kill_tests import scratch
from glassformer.checkpoints.files import write_folder
from glassformer.data.sources import load_text_dataset
from glassformer.errors import InputError

MOST_SECONDS = 60.0  # of one case: a pattern is tried for at most half of it
MOST_MB = 300  # more than before
TEXTS = [
    "a fine film",
    "a bad film",
    "bad, not fine",
    "a" * 3000,
    "a film " * 400,
    "\ufdfa \u00e9\u0301 \U0001f642",
    "x",
]
LABELS = ["pos", "neg"] * 4
SMALL = {
    "d_model": 6,
    "num_layers": 1,
    "num_heads": 1,
    "d_ff": 5,
    "epochs": 1,
    "threads": 1,
    "precision": "fp32",
}


# --- tokenizers -----------------------------------------------------------------------------------------


def tokenizers(count: int) -> list[dict]:
    """Each in the folder of a saved classifier, which is loaded and asked."""
    out = []
    with scratch() as home:
        clf = gf.TextClassifier("encoder-mini", min_count=1, max_length=40, **SMALL)
        many = [
            " ".join(f"w{8 * i + j}" for j in range(8)) for i in range(len(LABELS))
        ]  # more rows than tokens below
        saved = clf.fit(many, LABELS).save(home / "saved")
        reader = Reader(home / "said.txt", answer_of)
        try:
            for i, (name, content) in enumerate(hostile_tokenizers.hostile(count)):
                folder = home / f"case-{i}"
                put_in(saved, folder, "tokenizer.json", content)
                out.append(reader.ask(str(folder)) | {"what": name})
                shutil.rmtree(folder)
        finally:
            reader.stop()
    return out


def put_in(saved: Path, folder: Path, name: str, content: str) -> None:
    """A copy of a saved folder with one file replaced, under a manifest that fits."""

    def write(fresh: Path) -> None:
        for file in saved.iterdir():
            if file.name not in ("manifest.json", name):
                shutil.copy(file, fresh)
        (fresh / name).write_text(content, encoding="utf-8", errors="surrogatepass")

    write_folder(folder, write)


def answer_of(folder: str) -> str:
    """Read and asked: ``read`` where every answer is right, ``refused`` by a line that names the folder."""
    try:
        clf = gf.load(folder)
    except InputError as error:
        one_line = "\n" not in str(error) and len(str(error)) < 2000
        return "refused" if folder in str(error) and one_line else f"an unclear error: {str(error)[:200]}"
    try:
        together = clf.predict_proba(TEXTS)
    except InputError:
        return "refused a text"
    alone = np.concatenate([clf.predict_proba([text]) for text in TEXTS])
    right = (
        np.isfinite(together).all()
        and np.allclose(together.sum(1), 1)
        and np.allclose(together, alone, atol=1e-5)
    )
    return "read" if right else "wrong answers"


class Reader:
    """A process that does one thing after the other, and is replaced when it does not come back."""

    def __init__(self, errors: Path, work: Callable[[str], str]):
        self.errors, self.work = errors, work
        self.context = multiprocessing.get_context("spawn")
        self.process: Any = None
        self._start()

    def _start(self) -> None:
        self.pipe, theirs = self.context.Pipe()
        self.process = self.context.Process(
            target=_serve, args=(theirs, str(self.errors), self.work), daemon=True
        )
        self.process.start()
        theirs.close()
        self.before = self.pipe.recv()[1] if self.pipe.poll(120) else 0.0

    def ask(self, argument: str) -> dict[str, Any]:
        """``passed`` with the answer, the seconds and the memory that it took."""
        started, said_before = time.perf_counter(), self.errors.stat().st_size
        self.pipe.send(argument)
        try:
            answer, peak = self.pipe.recv() if self.pipe.poll(MOST_SECONDS) else ("no end", self.before)
        except EOFError:
            answer, peak = f"the process ended ({self.process.exitcode})", self.before
        if answer == "no end" or not self.process.is_alive():
            self.stop()
            self._start()
        seconds, more = time.perf_counter() - started, peak - self.before
        with self.errors.open("rb") as file:
            file.seek(said_before)
            noise = file.read(10_000).decode("utf-8", "replace")
        quiet = "panicked" not in noise and "Traceback" not in noise
        fine = answer in ("read", "refused", "refused a text")
        return {
            "answer": answer, "seconds": round(seconds, 2), "MB more": round(more), "quiet": quiet,
            "passed": bool(fine and quiet and more < MOST_MB and seconds < MOST_SECONDS),
        }  # fmt: skip

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection, errors: str, work: Callable[[str], str]) -> None:
    handle = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 2)
    pipe.send(("ready", _peak_mb()))
    while True:
        argument = pipe.recv()
        try:
            answer = work(argument)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic is no Exception
            answer = f"{type(error).__name__}: {str(error)[:200]}"
        pipe.send((answer, _peak_mb()))


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# --- labels -----------------------------------------------------------------------------------------------

# Two labels each; every door must keep them apart as they are, or refuse.
PAIRS: tuple[tuple[Any, Any], ...] = (
    ("a", "b"), ("a", "a\0"), ("a\0", "a\0\0"), ("\0", "a"), ("\ud800", "a"), ("a\udfff", "a"), ("a", " a"),
    ("a", "a "), ("a", "A"), ("\u00e9", "e\u0301"), ("", "a"), (" ", "a"), ("\t", "a"), ("\n", "a"),
    ("a\nb", "a"), ("a\tb", "a"), ("a\x1b[2J", "a"), ("\x07", "a"), ("a\x7f", "a"), ("a\x85", "a"),
    ("\u202ea", "a"), ("\u2066a", "a"), ("a\u200b", "a"), ("\ufeffa", "a"), ("a" * 1000, "a"),
    ("a" * 1001, "a"), ("a" * 100_000, "a"), ("nan", "a"), ("NaN", "a"), ("None", "a"), ("null", "a"),
    ("true", "false"), ("0", "1"), ("00", "0"), ("-0", "0"), ("+1", "1"), ("1", "1.0"), ("1e0", "1"),
    ("\u0661", "1"), ("1_0", "10"), ("1" * 19, "2"), ("9" * 40, "9" * 41), ("=1+1", "@a"), ("a,b", "a"),
    ('a"b', "a"), ("<b>", "a"), ("__proto__", "a"), ("\U0001f642", "a"), ("..", "a"), ("a/b", "a"), (0, 1),
    (1, 2), (-1, 1), (0, 0.0), (True, False), (True, 1), (False, 0), (True, 0), (1, "1"), (1, "a"), (1.0, 2.0),
    (1.0, 1), (1.5, 2), (0.1, 0.2), (2**63, -1), (2**63 - 1, -(2**63)), (2**64, 1), (10**40, 1),
    (2**53, 2**53 + 1), (float(2**53), 2.0**53 + 2), (1e300, 1), (float("nan"), 1), (float("inf"), 1),
    (-0.0, 0.0), (None, "a"), (None, 1), ([], "a"), ({}, "a"), (["a"], "a"), (b"a", "a"), ({"a": 1}, 1),
)  # fmt: skip


def labels(count: int) -> list[dict]:
    """Each pair through every door: tables, ``fit``, and the two kinds of model folders."""
    out = []
    with scratch() as home:
        doors = _doors(home)
        work = [(door, i, pair) for i, pair in enumerate(PAIRS) for door in doors]
        for door, i, pair in work[: count or len(work)]:
            started = time.perf_counter()
            try:
                found = doors[door](home / f"{door}-{i}", pair)
                answer = (
                    "kept"
                    if found is None or _same(found, pair, door in ("csv", "tsv"))
                    else f"became {found!r}"
                )
            except InputError as error:
                answer = "refused" if "\n" not in str(error).rstrip() else "a line of several"
            except Exception as error:
                answer = f"{type(error).__name__}: {str(error)[:150]}"
            passed = (
                answer in ("kept", "refused", "cannot be written")
                and time.perf_counter() - started < MOST_SECONDS
            )
            out.append({"door": door, "labels": str(pair)[:60], "answer": answer, "passed": passed})
    return out


def _same(found: list[Any], pair: tuple[Any, Any], as_text: bool) -> bool:
    """Whether both labels are there as given, and of one kind.

    CSV knows text only: blanks around a label are none of it, and whole numbers are read as numbers. Numbers that are
    equal are one label.
    """
    if len(found) != 2 or type(found[0]) is not type(found[1]):
        return False
    if as_text:
        return [str(label) for label in found] == [str(given).strip() for given in pair]
    return all(
        label == given and isinstance(label, str) == isinstance(given, str)
        for label, given in zip(found, pair, strict=True)
    )


def _doors(home: Path) -> dict[str, Callable[[Path, tuple[Any, Any]], list[Any] | None]]:
    clf = gf.TextClassifier("encoder-mini", min_count=1, max_length=9, **SMALL)
    saved = clf.fit([*TEXTS[:3], "x"], ["a", "b", "a", "b"]).save(home / "saved")
    about = json.loads((saved / "glassformer.json").read_text())

    def fit(place: Path, pair: tuple[Any, Any]) -> list[Any]:
        made = gf.TextClassifier("encoder-mini", min_count=1, max_length=9, **SMALL)
        made.fit([*TEXTS[:3], "x"], [*pair, *pair])
        answers = made.predict(TEXTS[:3]).tolist()
        assert set(answers) <= set(made.classes_.tolist())
        return _ordered(gf.load(made.save(place)).classes_.tolist(), pair)

    def folder(place: Path, pair: tuple[Any, Any]) -> list[Any]:
        put_in(saved, place, "glassformer.json", json.dumps(_bare(about | {"classes": list(pair)})))
        loaded = gf.load(place)
        assert set(loaded.predict(TEXTS[:3]).tolist()) <= set(loaded.classes_.tolist())
        return _ordered(loaded.classes_.tolist(), pair)

    def delimited(separator: str) -> Callable[[Path, tuple[Any, Any]], list[Any]]:
        def read(place: Path, pair: tuple[Any, Any]) -> list[Any]:
            def cell(label: Any) -> str:
                return '"' + ("" if label is None else str(label)).replace('"', '""') + '"'

            lines = [
                f"text{separator}label",
                *(f"t{i}{separator}{cell(label)}" for i, label in enumerate(pair * 2)),
            ]
            return _table(place.with_suffix(".csv" if separator == "," else ".tsv"), "\n".join(lines) + "\n")

        return read

    def lines(place: Path, pair: tuple[Any, Any]) -> list[Any]:
        rows = [json.dumps(_bare({"text": f"t{i}", "label": label})) for i, label in enumerate(pair * 2)]
        return _table(place.with_suffix(".jsonl"), "\n".join(rows) + "\n")

    def array(place: Path, pair: tuple[Any, Any]) -> list[Any]:
        rows = [_bare({"text": f"t{i}", "label": label}) for i, label in enumerate(pair * 2)]
        return _table(place.with_suffix(".json"), json.dumps(rows))

    def parquet(place: Path, pair: tuple[Any, Any]) -> list[Any] | None:
        file = place.with_suffix(".parquet")
        try:
            pq.write_table(pa.table({"text": [f"t{i}" for i in range(4)], "label": [*pair, *pair]}), file)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return None  # the format itself cannot hold them
        held = pq.read_table(file).column("label").to_pylist()
        if held[:2] != list(pair) or [type(x) for x in held[:2]] != [type(x) for x in pair]:
            return None  # it has made other values of them before we see any
        return _ordered(list(load_text_dataset(file).splits["train"].labels or [])[:2], pair)

    return {
        "fit": fit, "folder": folder, "csv": delimited(","), "tsv": delimited("\t"), "jsonl": lines, "json": array,
        "parquet": parquet,
    }  # fmt: skip


def _bare(value: Any) -> Any:
    """With bytes as JSON can have them."""
    if isinstance(value, dict):
        return {key: _bare(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_bare(inner) for inner in value]
    return list(value) if isinstance(value, bytes) else value


def _ordered(found: list[Any], pair: tuple[Any, Any]) -> list[Any]:
    """Classes, which are sorted, in the order of the pair."""
    return found if not found or found[0] == pair[0] else found[::-1]


def _table(path: Path, content: str) -> list[Any]:
    path.write_text(content, encoding="utf-8", errors="surrogatepass", newline="")
    return list(load_text_dataset(path).splits["train"].labels or [])[:2]
