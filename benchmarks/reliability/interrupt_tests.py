"""The commands, stopped at a random instant of their whole life.

Every command runs in a process of its own, forked from this one, which has imported all that they need; a few are begun
anew, for the instants at which Python imports. What a run folder ends with is one digest, the clock aside.
"""

import atexit
import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

import glassformer as gf
from benchmarks.harness import processes
from benchmarks.harness.processes import ended, scratch
from benchmarks.reliability.kill_tests import without_clock
from glassformer.cli import start, stopping
from glassformer.cli.app import main
from glassformer.data.corpus import countries_sentences
from glassformer.scale import scoring
from glassformer.tasks.run import has_started
from glassformer.train import word_vectors

STOPS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
TINY = ["d_model=12", "num_layers=1", "num_heads=2", "d_ff=20", "precision=fp32", "threads=1", "bootstrap=20",
        "checkpoint_every=3"]  # fmt: skip
CLOCK = {"manifest.json", "glassformer.json", "report.html", "metrics.json", "config.toml", "history.jsonl"}
MACHINE = ("date", "peak_memory_mb", "machine")
Argv = Sequence[str]


# --- what is run ---------------------------------------------------------------------------------------


@cache
def home() -> Path:
    """Data and finished runs, made once: a table, pictures, a corpus, a large table."""
    folder, owner = Path(tempfile.mkdtemp(prefix="reliability-")), os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True))
    rng = np.random.default_rng(1)
    words = ["film", "plot", "actor", "scene", "music", "camera"]
    splendid = {"pos": "splendid", "neg": "dreadful"}
    rows = [(f"the {rng.choice(words)} {i} is {splendid[name]} {rng.choice(words)}", name)
            for i, name in enumerate(["pos", "neg"] * 60)]  # fmt: skip
    (folder / "texts.csv").write_text("text,label\n" + "".join(f"{a},{b}\n" for a, b in rows))
    pq.write_table(pa.table({"text": [text for text, _ in rows] * 4}), folder / "large.parquet")
    for split, count in (("train", 12), ("test", 5)):
        for label in range(3):
            place = folder / "pictures" / split / str(label)
            place.mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 80 * (label + 1), (8, 8, 3), np.uint8)
                Image.fromarray(pixels).save(place / f"{i}.png")
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(s.lower() for s in countries_sentences(400)) + "\n")
    (folder / "vectors.toml").write_text(
        f'task = "word2vec"\nname = "tiny"\nsummary = "tiny"\n[data]\nsource = "{corpus}"\n[vectors]\ndim = 11\n'
        "min_count = 2\nepochs = 3\nthreads = 1\ncheckpoint_every = 1\n[judge]\ntests = []\n"
    )
    for kind in ("text", "image", "word2vec"):
        code = main(training(kind, folder / f"run-{kind}", folder))
        assert code == 0, kind
    return folder


def training(kind: str, out: Path, where: Path | None = None) -> list[str]:
    """The arguments of a small training."""
    folder = where or home()
    if kind == "word2vec":
        return ["train", str(folder / "vectors.toml"), "--out", str(out)]
    sets = [*TINY, "epochs=2"]
    if kind == "text":
        argv = ["train", "--text", str(folder / "texts.csv"), "--model", "encoder-mini"]
        sets += ["batch_size=8", "dropout=0.1", "min_count=1", "max_length=16", "maps=1"]
    else:
        argv = ["train", "--images", str(folder / "pictures"), "--model", "vit-tiny"]
        sets += ["batch_size=6", "image_size=8", "patch_size=4", "robustness=false"]
    return [*argv, "--out", str(out), *(word for pair in sets for word in ("--set", pair))]


def quick() -> None:
    """Small pieces, so that there is something to be stopped between."""
    word_vectors.ROUND = 1_000
    scoring.SHARD_ROWS = 31


# --- processes ------------------------------------------------------------------------------------------


def forked(argv: Argv, log: Path, work: Callable[[], int] | None = None) -> int:
    """Start a command in a process of its own, with its output in ``log.out`` and ``log.err``; its number."""
    reader, writer = os.pipe()

    def child() -> int:
        os.close(reader)
        for number in STOPS[1:]:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        sys.argv, stopping._process_handler = ["glassformer", *argv], None
        if work is None:
            stopping.install_for_process()
        os.write(writer, b"!")
        code = start.run() if work is None else work()
        atexit._run_exitfuncs()
        return code

    files = [os.open(f"{log}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for name in ("out", "err")]
    pid = processes.forked(child, *files)
    os.close(writer)
    os.read(reader, 1)  # it listens, or it has ended
    for handle in (reader, *files):
        os.close(handle)
    return pid


def command(argv: Argv, log: Path) -> tuple[int, str, str]:
    """Run a command to its end."""
    return told(ended(forked(argv, log)), log)


def told(code: int, log: Path) -> tuple[int, str, str]:
    return code, Path(f"{log}.out").read_text(), Path(f"{log}.err").read_text()


# --- what a command ends with ----------------------------------------------------------------------------


def digest(folder: Path) -> str:
    """SHA-256 of all files of a folder, the clock aside; what is left over from a stop is named instead."""
    h = hashlib.sha256()
    if litter := [p for p in folder.rglob(".*") if p.name == ".lock"]:
        return f"left behind: {litter}"
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or name.startswith("checkpoints/") or "/." in f"/{name}":
            continue
        h.update(name.encode())
        if path.name in ("history.jsonl", "metrics.json", "glassformer.json"):
            texts = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
            lines = [without_clock(json.loads(text)) for text in texts]
            lines = [{k: v for k, v in line.items() if k not in MACHINE} for line in lines]
            h.update(json.dumps(lines, sort_keys=True).encode())
        elif path.name == "README.md":  # a card: how long the training took, and the card's own checksum
            lines = path.read_text().splitlines()
            h.update("\n".join(x for x in lines if not x.startswith(("It took ", "<!-- card "))).encode())
        elif path.name not in CLOCK:
            h.update(path.read_bytes())
    return h.hexdigest()


class Job:
    """A command with what it leaves and how the same is given again."""

    def __init__(self, verb: str, kind: str):
        self.verb, self.kind = verb, kind

    def argv(self, place: Path, again: bool = False) -> list[str]:
        """The command; ``again``: after a stop, as its message says."""
        run = str(home() / f"run-{self.kind}")
        if self.verb == "train":
            resume = again and (place / "out").is_dir() and has_started(place / "out")
            return training(self.kind, place / "out") + ["--resume"] * resume
        if self.verb == "evaluate":
            return ["evaluate", run]
        if self.verb == "predict":
            large = str(home() / "large.parquet")
            return ["predict", run, "--data", large, "--out", str(place / "out.parquet")]
        return ["export", run, "--to", "hf", "--out", str(place / "out"), "--check", "7"]

    def left(self, place: Path, said: str) -> str:
        """What it has made, as one line; empty: nothing whole."""
        if self.verb == "evaluate":
            return said
        if self.verb == "predict":
            out = place / "out.parquet"
            return hashlib.sha256(out.read_bytes()).hexdigest() if out.exists() else ""
        done = place / "out" / ("report.html" if self.verb == "train" else "manifest.json")
        return digest(place / "out") if done.exists() else ""


VERBS = (
    "train text, train image, train word2vec, evaluate text, train text, predict text, train image, "
    "export image, evaluate image, export image"
)
JOBS = [Job(*words.split()) for words in VERBS.split(", ")]


def warm() -> None:
    """Run each command once here, so that nothing is imported or compiled in a forked process."""
    quick()
    with redirect_stdout(io.StringIO()), scratch() as place:
        home()
        for job in JOBS:
            main(job.argv(place))
            shutil.rmtree(place / "out", ignore_errors=True)


@cache
def peaceful(job: Job) -> tuple[float, str]:
    """Seconds that a command takes and what it leaves when nobody disturbs it."""
    with scratch() as place:
        started = time.perf_counter()
        code, out, err = command(job.argv(place), place / "log")
        seconds = time.perf_counter() - started
        assert code == 0, f"{job.verb} {job.kind}: {err}"
        return seconds, job.left(place, out)


# --- stops --------------------------------------------------------------------------------------------------


def stops(count: int, first: int = 0) -> list[dict]:
    """Commands stopped at a random instant from their first line to their end, and given again."""
    quick()
    turns, jobs = range(first, first + count), len(JOBS)
    return [stop(random.Random(i), JOBS[i % jobs], STOPS[i // jobs % 4]) for i in turns]


def stop(rng: random.Random, job: Job, number: signal.Signals) -> dict[str, Any]:
    """One command, stopped and given again."""
    seconds, wanted = peaceful(job)
    with scratch() as place:
        before = digest(home() / f"run-{job.kind}")
        log = place / "log"
        pid = forked(job.argv(place), log)
        time.sleep(rng.uniform(0, seconds * 1.02))
        os.kill(pid, number)
        code, out, err = told(ended(pid), log)
        found, problems = job.left(place, out), []
        one = {"verb": job.verb, "kind": job.kind, "signal": number.name, "code": code, "said": err.strip()}
        if code == 0:
            problems += ["another result"] * (found != wanted)
        else:
            right = -signal.SIGKILL if number == signal.SIGKILL else 130
            problems += [f"exit code {code}"] * (code != right)
            if number != signal.SIGKILL:
                errors = [line for line in err.splitlines() if not line.startswith("note: ")]
                problems += ["not one line"] * (len(errors) != 1 or not errors[0].startswith("error: "))
                problems += [f"litter: {x}" for x in litter(place)]
            whole = found and job.verb in ("predict", "export")  # it was stopped after its last move
            if not whole:
                again = job.argv(place, again=True)
                code, out, err = command(again, log)
                one |= {"resumed": "--resume" in again}
                problems += [f"given again: exit code {code}: {err.strip()}"] * (code != 0)
            problems += ["another result"] * (code in (0, 130) and job.left(place, out) != wanted)
            problems += [f"litter at the end: {x}" for x in litter(place)] if number != signal.SIGKILL else []
        problems += ["the finished run has changed"] * (digest(home() / f"run-{job.kind}") != before)
        return one | {"answer": f"{job.verb} {number.name}", "problems": problems, "passed": not problems}


def litter(place: Path) -> list[str]:
    """Locks and half-written things that a command in good order leaves nowhere."""
    return [str(p.relative_to(place)) for p in place.rglob(".*")]


def starts(count: int, first: int = 0) -> list[dict]:
    """New processes, stopped while Python begins and imports: 130, or the signal's own end before our first line."""
    out, pipes = [], {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    for i in range(first, first + count):
        rng, number = random.Random(i), STOPS[1 + i % 3]
        with scratch() as place:
            process = subprocess.Popen([sys.executable, "-m", "glassformer", *JOBS[0].argv(place)], **pipes)
            time.sleep(rng.uniform(0, 4.0))
            process.send_signal(number)
            err = process.communicate(timeout=120)[1]
            code, begun = process.returncode, (place / "out").exists()
            early = code in (-number, -signal.SIGINT) or "KeyboardInterrupt" in err
            good = (code in (0, 130) and err.count("\n") <= 1) or (early and not begun)
            out.append({"answer": f"start {number.name}", "code": code, "said": err[-200:], "passed": good})
    return out


def interruptions(count: int, first: int = 0) -> list[dict]:
    """``stops``, every twentieth of them of a process begun anew."""
    anew, before = count // 20, first // 20
    return stops(count - anew, first - before) + starts(anew, before)


def races(count: int, first: int = 0) -> list[dict]:
    """Two writers, or a writer and readers, in one folder."""
    quick()
    kinds = (fresh_fresh, resume_resume, fresh_resume, resume_evaluate, save_load)
    out = []
    for i in range(first, first + count):
        with scratch() as place:
            race = kinds[i % len(kinds)]
            problems = race(random.Random(i), place)
            out.append({"answer": race.__name__, "problems": problems, "passed": not problems})
    return out


def together(rng: random.Random, place: Path, *argvs: Argv) -> list[tuple[int, str, str]]:
    """Commands that run at the same time, each begun a little after the one before."""
    pids = []
    for i, argv in enumerate(argvs):
        pids.append(forked(argv, place / f"log{i}"))
        time.sleep(rng.choice([0, rng.uniform(0, 0.02), rng.uniform(0, 0.4)]))
    return [told(ended(pid), place / f"log{i}") for i, pid in enumerate(pids)]


def main_process_only(results: list[tuple[int, str, str]], place: Path, kind: str) -> list[str]:
    """What is wrong with two trainings in one folder: both right, or one refused in one line, and the run whole."""
    problems = []
    for code, _, err in results:
        refused = code == 2 and err.count("\n") == 1 and (
            "is being written by process" in err or "the output folder exists" in err)  # fmt: skip
        problems += [f"exit code {code}: {err}"] * (code != 0 and not refused)
    problems += ["both refused"] * all(code != 0 for code, _, _ in results)
    problems += ["another result"] * (digest(place / "out") != peaceful(job_of(kind))[1])
    return problems + [f"litter: {x}" for x in litter(place / "out")]


@cache
def job_of(kind: str) -> Job:
    return next(job for job in JOBS if (job.verb, job.kind) == ("train", kind))


def any_kind(rng: random.Random, place: Path) -> tuple[str, list[str]]:
    """A kind of training, and its command."""
    kind = rng.choice(["text", "image", "word2vec"])
    return kind, training(kind, place / "out")


def fresh_fresh(rng: random.Random, place: Path) -> list[str]:
    kind, argv = any_kind(rng, place)
    return main_process_only(together(rng, place, argv, argv), place, kind)


def resume_resume(rng: random.Random, place: Path) -> list[str]:
    kind, argv = any_kind(rng, place)
    while not (place / "out").is_dir() or not has_started(place / "out"):
        pid = forked(argv, place / "log")
        time.sleep(rng.uniform(0.2, 0.9) * peaceful(job_of(kind))[0])
        os.kill(pid, signal.SIGKILL)
        ended(pid)
    argv = [*argv, "--resume"]
    return main_process_only(together(rng, place, argv, argv), place, kind)


def fresh_resume(rng: random.Random, place: Path) -> list[str]:
    kind, argv = any_kind(rng, place)
    both = [argv, [*argv, "--resume"]]
    rng.shuffle(both)
    return main_process_only(together(rng, place, *both), place, kind)


def resume_evaluate(rng: random.Random, place: Path) -> list[str]:
    """A finished run that is judged and saved anew, while others read it."""
    kind = rng.choice(["text", "image"])
    shutil.copytree(home() / f"run-{kind}", place / "out")
    reads = ["evaluate", str(place / "out"), "--json"]
    said = command(reads, place / "log")[1]
    argv = [*training(kind, place / "out"), "--resume"]
    results = together(rng, place, argv, reads, reads, ["report", str(place / "out")], reads)
    problems = main_process_only(results[:1], place, kind)
    for code, out, err in (results[1], results[2], results[4]):
        problems += [f"evaluate: {code}: {err}"] * (code != 0 or out != said)
    return problems + [f"report: {results[3][2]}"] * (results[3][0] != 0)


def save_load(rng: random.Random, place: Path) -> list[str]:
    """Two processes that save two models to one path again and again, and two that load them."""
    from glassformer.serve.limits import Limits
    from glassformer.serve.models import load_models

    clf, other = gf.load(home() / "run-text"), gf.load(home() / "run-text")
    other.temperature_ = 2.0
    for weights in other.model_.parameters():
        weights.data.mul_(-1.0)
    text = ["the film is splendid"]
    known = {round(float(one.predict_proba(text)[0, 0]), 9) for one in (clf, other)}
    path, stop = place / "model", place / "stop"
    clf.save(path)

    def save() -> int:
        for turn in range(25):
            (clf, other)[turn % 2].save(path, overwrite=True)
        return 0

    def read(load: Callable[[], Any]) -> Callable[[], int]:
        def work() -> int:
            turns = 0
            while not stop.exists() or turns == 0:
                if round(float(load().predict_proba(text)[0, 0]), 9) not in known:
                    return 3
                turns += 1
            return 0

        return work

    served = read(lambda: load_models([path], Limits(), precision="fp32")[0][0].clf)
    readers = [read(lambda: gf.load(path)), served]
    work = {"saver": save, "other saver": save, "load": readers[0], "serve": readers[1]}
    pids = {name: forked([], place / f"log {name}", one) for name, one in work.items()}
    codes = {name: ended(pids[name]) for name in ("saver", "other saver")}
    stop.touch()
    codes |= {name: ended(pids[name]) for name in ("load", "serve")}
    said = {name: told(code, place / f"log {name}")[2][-300:] for name, code in codes.items()}
    problems = [f"{name}: {code}: {said[name]}" for name, code in codes.items() if code]
    return problems + [f"litter: {x}" for x in litter(place)]
