"""The disk full in every verb that writes, at any byte: one line, exit code 1, nothing half-written, the rest kept.

Each verb runs once in a process of its own without a limit, to know how large the files are that it writes. Then the
system refuses every byte of a file beyond a limit (RLIMIT_FSIZE: writers in C and Rust are refused as Python's are).
A file that was there must have its old content or a complete new one, a new one must be complete, and no draft stays.
"""

import hashlib
import os
import random
import re
import resource
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from benchmarks.harness.processes import ended, forked, scratch
from glassformer.cli.app import main

MOST_SECONDS = 120
REFUSAL = re.compile(r"could not be written: .*File too large")
WORDS = ("film", "plot", "actor", "scene", "music", "camera", "story", "ending")
TINY = ("d_model=12", "num_layers=1", "num_heads=2", "d_ff=16", "epochs=1", "precision=fp32", "threads=1")
TEXT = (
    *TINY, "model=encoder-mini", "max_length=16", "min_count=1", "baselines=false", "bootstrap=20", "maps=1",
    "checkpoint_every=2", "validation_size=0.2", "test_size=0.2",
)  # fmt: skip
IMAGE = (
    *TINY, "model=vit-tiny", "image_size=8", "patch_size=4", "bootstrap=20", "validation_size=0.2",
    "test_size=0.2",
)  # fmt: skip
PAIRS = (*TINY, "max_length=16", "beam=2", "maps=1", "baselines=false")
MODEL = "[model]\nd_model = 12\nnum_layers = 1\nnum_heads = 2\nd_ff = 16\n"
LEARN = '[train]\nepochs = 1\nthreads = 1\nprecision = "fp32"\n'
HELD = "validation_size = 0.2\ntest_size = 0.2\n"
BY_WORD = '[text]\ntokenizer = "word"\nmin_count = 1\nmax_length = 16\n'
SENTENCES = '[data]\nsource = "sentences.txt"\n'
RECIPES = {
    "words": f'task = "word2vec"\n{SENTENCES}[vectors]\ndim = 7\nmin_count = 1\nepochs = 1\nthreads = 1\n',
    "masked": f'task = "masked-lm"\n{SENTENCES}{BY_WORD}{MODEL}max_positions = 20\n{LEARN}',
    "pairs": f'task = "translation"\n[data]\nsource = "pairs.csv"\n{HELD}{BY_WORD}{MODEL}{LEARN}[evaluate]\n'
    "beam = 2\nmaps = 1\n",
}


def sets(values: Sequence[str]) -> list[str]:
    """``--set`` arguments."""
    return [word for value in values for word in ("--set", value)]


# verb: (the command line in the home folder, what it needs there)
VERBS: dict[str, list[str]] = {
    "train (texts)": ["train", "--text", "reviews.csv", "--out", "new", *sets(TEXT)],
    "train (pictures)": ["train", "--images", "pictures", "--out", "new", *sets(IMAGE)],
    "train (word vectors)": ["train", "words.toml", "--out", "new"],
    "train (masked words)": ["train", "masked.toml", "--out", "new"],
    "train (pairs)": ["train", "pairs.toml", "--out", "new"],
    "train --resume": ["train", "--text", "reviews.csv", "--out", "begun", "--resume", *sets(TEXT)],
    "predict --out": ["predict", "run", "reviews.csv", "--out", "new.csv"],
    "predict --data": ["predict", "run", "--data", "table.parquet", "--out", "new.parquet"],
    "calibrate": ["calibrate", "run"],
    "export --to hf": ["export", "seen", "--to", "hf", "--out", "new", "--check", "8"],
    "export --to onnx": ["export", "run", "--to", "onnx", "--out", "new", "--check", "8"],
    "export --int8": ["export", "run", "--to", "onnx", "--int8", "--out", "new", "--check", "8",
                      "--int8-tolerance", "100"],
    "cross-validate": ["cross-validate", "--text", "reviews.csv", "--folds", "2", "--out", "new", *sets(TEXT)],
    "review-labels": ["review-labels", "folds"],
    "compare": ["compare", "study.toml", "--out", "new", "--workers", "0"],
    "report": ["report", "run"],
    "reproduce --table": ["reproduce", "--table", "--out", "new.md"],
    "vectors --out .txt": ["vectors", "vectors", "--out", "new.txt"],
    "vectors --out .bin": ["vectors", "vectors", "--out", "new.bin"],
    "translate --out": ["translate", "translator", "reviews.csv", "--text-column", "text", "--out", "new.csv",
                        "--beam", "1"],
    "translate --align": ["translate", "translator", "a film plot", "--align", "new.html", "--beam", "1"],
    "explain --out .html": ["explain", "run", "a splendid film", "--out", "new.html"],
    "explain --out .json": ["explain", "run", "a splendid film", "--out", "new.json"],
    "data show --augment": ["data", "show", "pictures", "--augment", "light", "--out", "new.png"],
}  # fmt: skip
FEW = ("predict --out", "predict --data", "export --to onnx", "explain --out .html", "vectors --out .txt", "report",
       "calibrate", "data show --augment")  # fmt: skip


def warm() -> None:
    """Import here what every forked process will need."""
    import onnx  # noqa: F401
    import scipy.stats  # noqa: F401
    import sklearn.linear_model  # noqa: F401
    import torch

    import glassformer as gf
    from glassformer.export import hf_folder, onnx_folder  # noqa: F401
    from glassformer.study import compare, folds  # noqa: F401
    from glassformer.tasks import run as tasks  # noqa: F401

    torch.set_num_threads(1)
    sizes: dict[str, Any] = {"d_model": 6, "num_layers": 1, "num_heads": 1, "d_ff": 5}
    clf = gf.TextClassifier("encoder-mini", epochs=1, threads=1, **sizes)
    clf.fit(["a good film", "a bad film"] * 4, [1, 0] * 4)


def prepare(home: Path, verbs: Sequence[str]) -> None:
    """Data, recipes and finished runs that these verbs need."""
    rng, needs = random.Random(3), " ".join(word for verb in verbs for word in VERBS[verb]).split()
    rows = [(f"the {rng.choice(WORDS)} number {i} has a {('dreadful', 'splendid')[i % 2]} {rng.choice(WORDS)}",
             ("neg", "pos")[i % 2]) for i in range(60)]  # fmt: skip
    (home / "reviews.csv").write_text("text,label\n" + "".join(f"{t},{label}\n" for t, label in rows))
    (home / "pairs.csv").write_text("source,target\n" + "".join(f"{t},{t[::-1]}\n" for t, _ in rows))
    (home / "sentences.txt").write_text("".join(f"{t}\n" for t, _ in rows))
    pq.write_table(pa.table({"text": [t for t, _ in rows] * 200}), home / "table.parquet")
    for name, text in RECIPES.items():
        (home / f"{name}.toml").write_text(text)
    (home / "base.toml").write_text(
        f'[data]\nsource = "reviews.csv"\n{HELD}[text]\nmax_length = 16\nmin_count = 1\n{MODEL}model = "encoder-mini"\n'
        f"{LEARN}[evaluate]\nbootstrap = 20\nmaps = 1\nbaselines = false\n"
    )
    study = 'summary = "tiny"\nrecipe = "base.toml"\nseeds = [0]\n[grid]\nlr = [1e-3, 2e-3]\n'
    (home / "study.toml").write_text(study)
    for label in ("dark", "light"):
        (home / "pictures" / label).mkdir(parents=True)
        for i in range(12):
            grey = np.full((8, 8, 3), (40, 200)[label == "light"] + i, np.uint8)
            Image.fromarray(grey).save(home / "pictures" / label / f"{i}.png")
    for name, argv in {
        "run": ["train", "--text", "reviews.csv", "--out", "run", *sets(TEXT)],
        "seen": ["train", "--images", "pictures", "--out", "seen", *sets(IMAGE)],
        "begun": ["train", "--text", "reviews.csv", "--out", "begun", *sets(TEXT)],
        "folds": ["cross-validate", "--text", "reviews.csv", "--folds", "2", "--out", "folds", *sets(TEXT)],
        "vectors": ["train", "words.toml", "--out", "vectors"],
        "translator": ["train", "pairs.toml", "--out", "translator"],
    }.items():
        if name in needs:
            code, said, _ = called(argv)
            assert code == 0, said
    # So that the verb that writes it has something to do.
    (home / "run" / "report.html").unlink(missing_ok=True)
    if "begun" in needs:  # as if it had been stopped behind its first checkpoint
        for name in ("metrics.json", "predictions.csv", "report.html", "history.jsonl"):
            (home / "begun" / name).unlink(missing_ok=True)
        shutil.rmtree(home / "begun" / "model", ignore_errors=True)
        for newer in sorted((home / "begun" / "checkpoints").iterdir())[1:]:
            shutil.rmtree(newer)


def called(argv: Sequence[str], limit: int | None = None) -> tuple[int, str, float]:
    """Exit code, standard error and seconds of one command in a process of its own."""
    reader, writer = os.pipe()
    started = time.perf_counter()

    def child() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        signal.alarm(MOST_SECONDS)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return main(list(argv))

    with open(os.devnull, "wb") as quiet:
        pid = forked(child, quiet.fileno(), writer)
    os.close(writer)
    with open(reader, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    return ended(pid), said, time.perf_counter() - started


def contents(home: Path) -> dict[str, tuple[int, str]]:
    """Every file below a folder: its size and what it holds."""
    found = {}
    for path in sorted(home.rglob("*")):
        if path.is_file():
            raw = path.read_bytes()
            found[str(path.relative_to(home))] = (len(raw), hashlib.sha256(raw).hexdigest())
    return found


def faults(before: dict, after: dict, sizes: dict, limit: int) -> list[str]:
    """What a refused command must not have left; older checkpoints and shards of a whole table may go."""
    goes = ("checkpoints/", ".parts/")
    gone = [name for name in before.keys() - after.keys() if not any(part in name for part in goes)]
    wrong = [f"{name} is gone" for name in gone]
    for name, (size, digest) in after.items():
        if "/." in f"/{name}":
            wrong.append(f"{name} is left over")
        elif before.get(name, (0, ""))[1] != digest and size == limit > 0:
            wrong.append(f"{name} ends at the limit")
        elif name not in before and size == 0 and sizes.get(name, 1) and not name.endswith("history.jsonl"):
            wrong.append(f"{name} is empty")
    return wrong


def full_disks(count: int, first: int = 0, verbs: Sequence[str] = tuple(VERBS)) -> list[dict]:
    """``count`` refusals in turn over the verbs, at a random byte of a random file that each writes."""
    out: list[dict] = []
    warm()
    with scratch(enter=True) as home, scratch() as place:
        prepare(home, verbs)
        whole = shutil.copytree(home, place / "whole")
        known: dict[str, dict[str, int]] = {}
        for i in range(first, first + count):
            verb = verbs[i % len(verbs)]
            if verb not in known:
                known[verb], error = sizes_of(verb, home, whole)
                if error:
                    out.append({"verb": verb, "passed": False, "said": error})
            if known[verb]:
                out.append(refusal(verb, home, whole, known[verb], random.Random(i)))
    return out


def restore(home: Path, whole: Path) -> None:
    """The home folder as it was."""
    for entry in home.iterdir():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    shutil.copytree(whole, home, dirs_exist_ok=True)


def sizes_of(verb: str, home: Path, whole: Path) -> tuple[dict[str, int], str]:
    """The files that a verb writes when nothing refuses, with their sizes; else what it said."""
    restore(home, whole)
    before = contents(home)
    code, said, _ = called(VERBS[verb])
    if code != 0:
        return {}, f"exit code {code} without a limit: {said[-300:]}"
    after = contents(home)
    made = {n: size for n, (size, digest) in after.items() if before.get(n, (0, ""))[1] != digest and size}
    return made, "" if made else "writes nothing"


def refusal(verb: str, home: Path, whole: Path, sizes: dict[str, int], rng: random.Random) -> dict:
    """One command whose disk is full at some byte, and whether all is as promised."""
    largest = max(sizes.values())
    limit = rng.randrange(largest if rng.random() < 0.5 else rng.choice(sorted(sizes.values())))
    restore(home, whole)
    before = contents(home)
    code, said, seconds = called(VERBS[verb], limit)
    wrong = faults(before, contents(home), sizes, limit)
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    if code != 1 or len(lines) != 1 or "Traceback" in said or not REFUSAL.search(said):
        wrong.append(f"exit code {code}: {said[-300:]}")
    if "--debug" in said:
        wrong.append(f"an error without a type: {said[-300:]}")
    return {
        "verb": verb, "limit": limit, "of": largest, "answer": verb, "passed": not wrong,
        "said": "; ".join(wrong)[:400], "seconds": round(seconds, 1),
    }  # fmt: skip
