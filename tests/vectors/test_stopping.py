"""Ctrl-C and SIGTERM in the middle of training word vectors: saved, and resumed to the same bits."""

import json
import queue
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer.checkpoints.native import list_states, load_state
from glassformer.cli.app import main
from glassformer.data.corpus import countries_sentences
from glassformer.errors import NotBitIdenticalWarning
from glassformer.nn import kernels
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.run import run_task
from glassformer.train import negative_sampling, word_vectors
from glassformer.train.callbacks import Callback, Interrupted

SENTENCES = [s.lower() for s in countries_sentences(700)]
SMALL = dict(dim=13, min_count=2, epochs=3, threads=1)
LONG = 200  # seconds that nothing here takes, however busy the machine is


class Send(Callback):
    """A callback of either engine that signals in the middle of the training, to the thread that trains:
    what is sent to the process may be heard by another thread, when that one's turn comes.
    """

    def __init__(self, number: int, after: int):
        self.number, self.left = number, after

    def step(self, training, info):
        self.tell({})

    def tell(self, record):
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_signal_saves_and_resuming_gives_the_same_bits(optimizer, number, tmp_path, monkeypatch):
    monkeypatch.setattr(word_vectors, "ROUND", 1_500)
    settings = SMALL | {"optimizer": optimizer, "checkpoint_every": 1_000}
    before = signal.getsignal(number)
    whole = gf.Word2Vec(**settings).fit(SENTENCES)
    send = Send(number, 4)
    with pytest.raises(
        Interrupted, match=r"stopped at (round|step) \d+ of \d+, saved in .*; continue with --resume"
    ):
        gf.Word2Vec(**settings).fit(SENTENCES, checkpoints=tmp_path, tell=send.tell, callbacks=[send])
    assert signal.getsignal(number) == before
    (step, _), *rest = list_states(tmp_path)
    assert 4 <= step <= 6  # at once, not at the next checkpoint
    assert not rest
    again = gf.Word2Vec(**settings).fit(SENTENCES, checkpoints=tmp_path, resume=True)
    assert np.array_equal(again.vectors_, whole.vectors_)
    assert np.array_equal(again.contexts_, whole.contexts_)
    assert [r.get("loss") for r in again.history_] == [r.get("loss") for r in whole.history_]


@pytest.mark.slow
def test_several_threads_are_resumed_to_equal_quality(tmp_path: Path):
    """Threads write into one table without waiting, so the bits differ, and what is learnt a little, stopped or not."""
    sentences = [s.lower().replace(" ,", "").replace(" .", "") for s in countries_sentences()]
    settings = dict(dim=50, negative=15, min_count=1, add_contexts=True, epochs=30, threads=2)

    def share(vectors: gf.Word2Vec) -> float:
        sections = vectors.judge(["countries"])["countries"]["sections"]
        two = [sections[name] for name in ("country : capital", "country : currency")]
        return sum(s["correct"] for s in two) / sum(s["known"] for s in two)

    whole, resumed = [], []
    for seed in range(3):
        whole.append(share(gf.Word2Vec(**settings, seed=seed).fit(sentences)))
        folder, send = tmp_path / str(seed), Send(signal.SIGTERM, 7)
        with pytest.raises(Interrupted):
            gf.Word2Vec(**settings, seed=seed).fit(sentences, checkpoints=folder, tell=send.tell)
        assert list_states(folder)
        resumed.append(
            share(gf.Word2Vec(**settings, seed=seed).fit(sentences, checkpoints=folder, resume=True))
        )
    assert np.mean(resumed) == pytest.approx(np.mean(whole), abs=0.08)
    assert np.mean(whole) > 0.9


def test_a_second_ctrl_c_stops_at_once(tmp_path):
    def tell(record):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        gf.Word2Vec(**SMALL | {"checkpoint_every": 100}).fit(SENTENCES, checkpoints=tmp_path, tell=tell)
    assert list_states(tmp_path) == []
    with pytest.raises(KeyboardInterrupt):
        gf.Word2Vec(**SMALL).fit(SENTENCES, tell=Send(signal.SIGINT, 1).tell)


def test_a_signal_after_the_last_round_lets_training_end(tmp_path):
    send = Send(signal.SIGTERM, 3)
    before = signal.getsignal(signal.SIGTERM)
    vectors = gf.Word2Vec(**SMALL).fit(SENTENCES, checkpoints=tmp_path, tell=send.tell)
    assert send.left == 0
    assert len(vectors.history_) == 3
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.slow
def test_ctrl_c_on_the_command_line(tmp_path: Path, capsys):
    keys = ["dim=13", "limit=2000", "epochs=600", "tests=[]", "checkpoint_every=100000"]
    recipe = load_recipe("countries-word2vec", keys)
    command = ["train", "countries-word2vec", *(word for key in keys for word in ("--set", key))]
    command += ["--out", str(tmp_path / "run")]
    program, pipe = [sys.executable, "-u", "-m", "glassformer.cli.app", *command], subprocess.PIPE
    process = subprocess.Popen(program, stdout=pipe, stderr=pipe, text=True)
    lines: queue.Queue[str] = queue.Queue()
    reader = threading.Thread(target=lambda: [lines.put(line) for line in process.stdout], daemon=True)
    reader.start()
    deadline = time.monotonic() + LONG
    while "rounds" not in lines.get(timeout=deadline - time.monotonic()):
        pass
    process.send_signal(signal.SIGINT)
    assert process.wait(LONG) == 130
    reader.join()
    err = process.stderr.read()
    for pipe in (process.stdout, process.stderr):
        pipe.close()
    assert err.startswith("error: stopped at round ")
    assert err.count("\n") == 1
    assert "--resume" in err
    (step, _), *_ = list_states(tmp_path / "run" / "checkpoints")
    assert 60 <= step < 600
    assert not (tmp_path / "run" / "model").exists()
    assert main([*command, "--resume"]) == 0
    assert capsys.readouterr().err == ""
    whole = run_task(recipe, tmp_path / "whole").folder
    one, two = (run / "model" / "model.safetensors" for run in (tmp_path / "run", whole))
    assert one.read_bytes() == two.read_bytes()
    lines = ((run / "history.jsonl").read_text().splitlines() for run in (tmp_path / "run", whole))
    one, two = ([json.loads(line) | {"seconds": 0} for line in own] for own in lines)
    assert one == two
    assert len(one) == 600


@pytest.mark.parametrize(("threads", "warned"), [(1, True), (2, False)])
def test_vectors_that_go_on_in_other_loops_say_so(threads, warned, tmp_path, monkeypatch):
    """Of several threads no two trainings have the same bits, stopped or not."""
    monkeypatch.setattr(word_vectors, "ROUND", 1_500)
    settings = SMALL | {"threads": threads, "checkpoint_every": 1}
    send = Send(signal.SIGINT, 4)
    with pytest.raises(Interrupted):
        gf.Word2Vec(**settings).fit(SENTENCES, checkpoints=tmp_path, tell=send.tell, callbacks=[send])
    monkeypatch.setattr(negative_sampling, "loops_origin", lambda: "the loops of another processor")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gf.Word2Vec(**settings).fit(SENTENCES, checkpoints=tmp_path, resume=True)
    found = [str(one.message) for one in told if one.category is NotBitIdenticalWarning]
    assert len(found) == warned
    assert all("the loops of another processor now): results will not be" in one for one in found)
    kept = load_state(tmp_path).state["computed"]
    assert [one["loops"] for one in kept][1:] == ["the loops of another processor"]
    assert all(one["threads"] == threads for one in kept)


def test_the_loops_are_named_by_who_compiled_them(monkeypatch):
    found = kernels.level()
    assert negative_sampling.loops_origin() == (f"kernels of {found.title}" if found else "numba")
    monkeypatch.setattr(kernels, "level", lambda: None)
    assert negative_sampling.loops_origin() == "numba"
