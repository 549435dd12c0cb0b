"""A signal at each stage of a command: one line, exit code 130, no files left if nothing was started, and going on."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glassformer.checkpoints.locks import LOCK, write_lock
from glassformer.cli import stopping
from glassformer.cli.app import main
from glassformer.cli.stopping import SIGNALS
from glassformer.inputs import texts as inputs
from glassformer.report import html
from glassformer.scale import scoring
from glassformer.targets.multiclass import Classes
from glassformer.tasks import run as runner
from glassformer.tasks import supervised
from glassformer.tasks.masked_lm import estimator as masked
from glassformer.tasks.text_classification import estimator as texts
from glassformer.tasks.translation import estimator as translation
from glassformer.tasks.word2vec import estimator as vectors
from glassformer.train.callbacks import Progress

from .every import SMALL
from .tiny import sentences, sets, settings, snapshot, write_csv

HOLD = """\
import sys
from glassformer.checkpoints.locks import write_lock
with write_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""
SENDS = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "SIGINT", signal.SIGHUP: "SIGHUP"}


def handlers() -> list:
    return [signal.getsignal(number) for number in SIGNALS] + [sys.unraisablehook, signal.set_wakeup_fd(-1)]


def one_line(result) -> str:
    assert result.code == 130, result
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    return result.err


def steps(run: Path) -> list[tuple]:
    lines = map(json.loads, (run / "history.jsonl").read_text().splitlines())
    return [(r["step"], r["loss"]) for r in lines if r["kind"] == "step"]


@pytest.mark.parametrize(
    ("owner", "stage", "number"),
    [
        (inputs, "load_text_dataset", signal.SIGTERM),
        (Classes, "check_unseen", signal.SIGINT),
        (runner, "create_run_folder", signal.SIGHUP),
        (supervised, "_examine", signal.SIGTERM),
    ],
)
def test_a_start_that_has_begun_nothing_leaves_nothing(gf, ok, reviews, stop, owner, stage, number):
    before = handlers()
    stop(owner, stage, number)
    argv = ["train", "--text", reviews, "--out", "a/run", *settings()]
    assert "run the same command again" in one_line(gf(*argv))
    assert not Path("a").exists()
    assert handlers() == before
    ok(*argv)


JUDGING = {
    "evaluate_splits": supervised, "evaluate_baselines": supervised, "training_sample": supervised, "write": Classes,
    "attention_examples": texts, "write_report": html,
}  # fmt: skip


@pytest.mark.parametrize("stage", JUDGING)
def test_stopped_in_judging_and_gone_on_with(gf, ok, reviews, stop, stage):
    compared = sets("baselines=true") if stage == "evaluate_baselines" else []
    argv = ["train", "--text", reviews, "--out", "run", *settings(), *compared]
    stop(JUDGING[stage], stage, SIGNALS[[*JUDGING].index(stage) % 3])
    assert "interrupted; continue with: glassformer train --resume --out run" in one_line(gf(*argv))
    assert not Path("run", LOCK).exists()
    trained, weights = steps(Path("run")), Path("run/model/model.safetensors").read_bytes()
    result = ok("train", "--resume", "--out", "run")
    assert f"resumed at step {trained[-1][0]}" in result.out
    assert steps(Path("run")) == trained  # nothing was trained again
    assert Path("run/model/model.safetensors").read_bytes() == weights
    assert Path("run/report.html").is_file()


def test_a_signal_in_the_last_step_stops_what_follows(gf, ok, reviews, stop):
    argv = ["train", "--text", reviews, "--out", "run", *settings(), "--set", "batch_size=8"]
    ok(*argv)
    last = steps(Path("run"))[-1][0]
    shutil.rmtree("run")
    stop(Progress, "step", signal.SIGTERM, calls=last)
    assert "continue with" in one_line(gf(*argv))
    assert steps(Path("run"))[-1][0] == last
    assert not Path("run/metrics.json").exists()


HELD = ("test_size=8", "validation_size=4", "vocab_size=300")
OTHERS = {
    "image": (supervised, "evaluate_splits", ["digits", *sets(*SMALL, "limit=120", "robustness=false")]),
    "masked words": (masked, "count_masked_tokens", ["europe-mlm", *sets(*SMALL, "limit=300")]),
    "vectors": (vectors, "tests_folder", ["countries-word2vec", *sets("dim=13", "epochs=2", "limit=800")]),
    "translation": (
        translation,
        "search",
        ["multi30k-transformer", "--data", "pairs.csv", *sets(*SMALL, *HELD)],
    ),
}


@pytest.mark.parametrize("task", OTHERS)
def test_no_task_is_trained_again_for_its_judging(gf, ok, stop, task):
    if task == "translation":
        pytest.importorskip("sacrebleu")
        rows = [(f"the {w} number {i}", f"das {w} Nummer {i}") for i in range(20) for w in ("dog", "cat")]
        write_csv(Path("pairs.csv"), rows, "en,de")
    module, stage, argv = OTHERS[task]
    stop(module, stage, signal.SIGTERM)
    assert "continue with" in one_line(gf("train", *argv, "--out", "run"))
    trained, model = steps(Path("run")), snapshot(Path("run/model"))
    assert trained
    ok("train", "--resume", "--out", "run")
    assert steps(Path("run")) == trained
    weights = [name for name in model if name.endswith(".safetensors")]
    assert weights
    assert all(Path("run/model", name).read_bytes() == model[name] for name in weights)


def test_what_a_kill_left_before_anything_was_begun_blocks_no_start(gf, ok, reviews):
    argv = ["train", "--text", reviews, "--out", "run", *settings()]
    ok(*argv)
    whole = Path("run/config.toml").read_bytes()
    shutil.rmtree("run")
    Path("run/checkpoints/.step-00000001.77-0123abcd.tmp").mkdir(parents=True)
    for name in ("history.jsonl", LOCK, "doctor.json"):
        Path("run", name).touch()
    Path("run/config.toml").write_bytes(whole.replace(b"d_ff = 16", b"d_ff = 24"))  # of another recipe, even
    ok(*argv)
    assert Path("run/config.toml").read_bytes() == whole
    Path("run", LOCK).touch()
    assert gf(*argv).code == 2  # now it is a run
    Path("run2").mkdir()
    shutil.copy("run/config.toml", "run2")  # and this is somebody's own
    assert gf(*argv[: -len(settings()) - 1], "run2", *settings()).code == 2
    assert os.listdir("run2") == ["config.toml"]


@pytest.mark.parametrize("number", SENDS)
def test_predict_keeps_its_parts_and_goes_on(gf, ok, run, stop, number, monkeypatch):
    monkeypatch.setattr(scoring, "SHARD_ROWS", 7)
    pq.write_table(pa.table({"text": [text for text, _ in sentences(40)]}), "many.parquet")
    argv = ["predict", run, "--data", "many.parquet", "--out"]
    ok(*argv, "whole.parquet")
    stop(scoring, "_table", number, calls=4)
    said = one_line(gf(*argv, "out.parquet"))
    assert "finished parts are kept, run the same command again to continue" in said
    assert sorted(os.listdir("out.parquet.parts")) == [f"part-{i:06}.parquet" for i in range(3)]
    ok(*argv, "out.parquet")
    assert Path("out.parquet").read_bytes() == Path("whole.parquet").read_bytes()
    assert not Path("out.parquet.parts").exists()


def test_evaluate_and_export_leave_nothing_half(gf, ok, run, stop):
    before = snapshot(run)
    stop(supervised, "evaluate_split", signal.SIGHUP)
    one_line(gf("evaluate", run))
    assert snapshot(run) == before
    ok("evaluate", run)
    import glassformer.export.onnx_folder as onnx_folder

    pytest.importorskip("onnxruntime")
    stop(onnx_folder, "export_graph", signal.SIGTERM)
    one_line(gf("export", run, "--to", "onnx"))
    assert snapshot(run) == before
    assert os.listdir(run) == [p.name for p in run.iterdir() if not p.name.startswith(".")]


def test_every_writer_into_a_held_run_is_refused_and_readers_are_not(gf, ok, run, reviews, tmp_path):
    before = snapshot(run)
    command = [sys.executable, "-c", HOLD, str(run)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        recipe = ["train", "--text", reviews, "--out", run, *settings()]
        for argv in (recipe, ["train", "--resume", "--out", run], ["calibrate", run]):
            result = gf(*argv)
            assert result.code == 2, result
            assert f"is being written by process {process.pid}" in result.err
            assert result.err.count("\n") == 1
        for argv in (["evaluate", run], ["predict", run, "a text"], ["report", run]):
            ok(*argv)
        left = snapshot(run)
        for written in (LOCK, "report.html"):
            before.pop(written, None)
            left.pop(written, None)
        assert left == before
    finally:
        process.communicate(b"")
    ok("calibrate", run)


def test_folds_studies_and_scoring_have_one_writer(gf, reviews, run, tmp_path):
    pq.write_table(pa.table({"text": ["a text"]}), "one.parquet")
    Path("study.toml").write_text(f'recipe = "{run / "config.toml"}"\n[grid]\npooling = ["mean", "max"]\n')
    commands = {
        "folds": ["cross-validate", "--text", reviews, "--out", "folds", *settings()],
        "study": ["compare", "study.toml", "--out", "study", "--workers", "0"],
        "out.parquet.parts": ["predict", run, "--data", "one.parquet", "--out", "out.parquet"],
    }
    (tmp_path / "demo-run").mkdir()
    (tmp_path / "demo-run" / "config.toml").write_text('name = "europe"\n')
    with write_lock("demo-run"):
        assert "is being written by process" in gf("demo").err
    assert (tmp_path / "demo-run" / "config.toml").is_file()
    for folder, argv in commands.items():
        with write_lock(folder):  # another open file is another writer, in this process too
            result = gf(*argv)
            assert result.code == 2, result
            assert "is being written by process" in result.err
        assert not Path(folder).exists()


def test_a_library_gets_its_handlers_back(gf, ok, reviews):
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        mine = handlers()
        ok("train", "--text", reviews, "--out", "run", *settings())
        assert gf("evaluate", "nothing").code == 2
        assert handlers() == mine
        signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
    done = []
    thread = threading.Thread(target=lambda: done.append(main(["evaluate", "nothing"])))
    thread.start()
    thread.join()
    assert done == [2]


def test_what_is_ignored_stays_ignored(ok, reviews, stop):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop(inputs, "load_text_dataset", signal.SIGHUP)
        stop(Progress, "step", signal.SIGHUP)
        ok("train", "--text", reviews, "--out", "run", *settings())
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


PROGRAM = """\
import sys, threading, time
from glassformer.cli import stopping
stopping.{change}
listening = stopping.install_for_process()
def main():
    {body}
try:
    main()
    listening.code = 0
except KeyboardInterrupt:
    print("unwound", flush=True)
    {after}
    listening.code = 130
    sys.exit(130)
"""


def program(body: str, after: str = "pass", change: str = "TICK = 0.01") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM.format(body=body, after=after, change=change)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


@pytest.mark.parametrize("number", SENDS)
def test_a_second_signal_ends_at_once(number):
    process = program("print('ready', flush=True); time.sleep(60)", after="time.sleep(60)")
    ready(process)
    process.send_signal(number)
    process.send_signal(number)  # the same wish, told twice
    assert process.stdout is not None
    assert process.stdout.readline() == "unwound\n"
    time.sleep(0.4)  # more than ECHO ticks
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(30) == 130
    assert process.communicate()[1] == stopping.ENDED_MESSAGE.decode()


SLOW = "import time\nprint('ready', flush=True)\ntime.sleep(0.5)\nprint('imported', flush=True)\n"
COMPUTES = """import hashlib
    threading.Timer(1, lambda: print('ready', flush=True)).start()
    hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)"""
SWALLOWS = """class Swallows:
        def __del__(self):
            print('ready', flush=True)
            time.sleep(60)
    Swallows()
    time.sleep(60)"""
# What a main thread does when the signal comes, and what is said on both streams.
BODIES = {
    "computes outside of Python, so it is not waited for": (COMPUTES, "", stopping.ENDED_MESSAGE.decode()),
    "is in a destructor, where the interruption would be lost": (SWALLOWS, "unwound\n", ""),
    "imports, which is finished before": ("import slow; time.sleep(60)", "imported\nunwound\n", ""),
}


@pytest.mark.parametrize("what", BODIES)
def test_a_signal_ends_a_main_thread_that(what, tmp_path, monkeypatch):
    (tmp_path / "slow.py").write_text(SLOW)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    body, out, err = BODIES[what]
    change = "TICK = stopping.TIMEOUT_TICKS = 0.1" if body == COMPUTES else "TICK = 0.01"
    process = program(body, change=change)
    ready(process)  # told by a second thread where the first is where no signal is heard
    process.send_signal(signal.SIGINT if "import slow" in body else signal.SIGTERM)
    assert (*process.communicate(timeout=60), process.returncode) == (out, err, 130)


def test_a_stopped_and_continued_process_has_not_waited():
    process = program("print('ready', flush=True); time.sleep(60)", after="time.sleep(1)")
    ready(process)
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    time.sleep(1.5)
    process.send_signal(signal.SIGCONT)
    assert (*process.communicate(timeout=30), process.returncode) == ("unwound\n", "", 130)
