"""Ctrl-C while ``auto`` compares models: the best so far is left, judged and reported, and ``--resume`` goes on."""

from pathlib import Path

import numpy as np
import pytest
from tests.similarity.tiny import checkpoint

import glassformer
from glassformer.checkpoints.files import read_json
from glassformer.checkpoints.native import list_states
from glassformer.tasks import auto
from glassformer.tasks.auto import Candidate
from glassformer.tasks.text_classification import estimator
from glassformer.train.callbacks import Interrupted, Progress, StopOnSignal

from .tiny import sets, write_csv

WORDS = ("a", "dog", "the", "cat", "and", "two", "three", "red", "car")
RNG = np.random.default_rng(11)
TEXTS = [" ".join(RNG.choice(WORDS, 6)) for _ in range(97)]
LABELS = [("dog" if "dog" in t else "none") if i % 7 else ("none", "dog")[i % 2] for i, t in enumerate(TEXTS)]
NAMES = ["tfidf", "tiny, frozen", "tiny, fine-tuned"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> str:
    return str(checkpoint(tmp_path_factory.mktemp("encoder") / "mean"))


@pytest.fixture(autouse=True)
def small(encoder, monkeypatch):
    solved = {"model": encoder, "head_start": "solved"}
    known = [
        auto.TFIDF,
        Candidate(NAMES[1], {**solved, "train_layers": 0}),
        Candidate(NAMES[2], {**solved, "epochs": 2, "batch_size": 8, "lr": 1e-4}, is_trained=True),
    ]
    monkeypatch.setattr(auto, "candidates", lambda *given: known)


@pytest.fixture
def held(monkeypatch):
    """The validation examples decide alone."""
    monkeypatch.setattr(auto, "MIN_VALIDATION", 5)


def argv(out: str) -> list[object]:
    table = write_csv(Path("own.csv"), list(zip(TEXTS, LABELS, strict=True)))
    quick = ("bootstrap=7", "max_length=13", "threads=1", "maps=0", "baselines=false", "precision=fp32")
    return ["train", "--text", table, "--out", out, *sets(*quick)]


def ended_early(done, run: str) -> list[dict]:
    """What was tried, of a run that ended with the best so far."""
    assert done.code == 130, done
    assert "stopped before all models were compared; the best so far, " in done.err
    assert f"continue with: glassformer train --resume --out {run}" in done.err
    tried = read_json(Path(run, "metrics.json"))["tried"]
    assert [one["model"] for one in tried] == NAMES
    (best,) = [one["model"] for one in tried if one.get("chosen")]
    assert f"best so far, {best}, is kept" in done.err
    assert "left out: interrupted" in done.out
    assert "left out: interrupted" in Path(run, "report.html").read_text("utf-8")
    assert set(glassformer.load(run).predict(TEXTS)) <= {"dog", "none"}
    return tried


def test_fine_tuning_that_is_stopped_leaves_the_best_so_far_and_goes_on(gf, ok, held, stop):
    ok(*argv("whole"))
    stop(Progress, "step", calls=3)
    tried = ended_early(gf(*argv("run")), "run")
    assert [one.get("left out") for one in tried] == [None, None, "interrupted"]
    assert [step for step, _ in list_states(Path("run/checkpoints"))][-1] == 3
    done = ok("train", "--resume", "--out", "run")
    assert "resumed at step 3" in done.out
    again, whole = (read_json(Path(run, "metrics.json")) for run in ("run", "whole"))
    assert [one["score"] for one in again["tried"]] == [one["score"] for one in whole["tried"]]
    assert again["test"]["log_loss"] == whole["test"]["log_loss"]


@pytest.mark.parametrize(
    ("owner", "name", "left"),
    [
        (auto.StopUnsaved, "step", 1),  # a step of a fold
        (auto.StartWeights, "shares", 1),  # between two folds
        (estimator, "text_features", 2),  # the pass of the frozen encoder
    ],
    ids=("step", "between", "pass"),
)
def test_cross_validation_that_is_stopped_leaves_the_best_so_far(gf, ok, stop, owner, name, left):
    real = 1 + 3 * 2 if owner is auto.StopUnsaved else 1  # tfidf and frozen have one step each fold
    stop(owner, name, calls=real)
    tried = ended_early(gf(*argv("run")), "run")
    assert [one.get("left out") for one in tried] == [None] * (3 - left) + ["interrupted"] * left
    assert not list_states(Path("run/checkpoints"))
    ok("train", "--resume", "--out", "run")
    assert all("score" in one for one in read_json(Path("run/metrics.json"))["tried"])


def test_the_last_fit_of_the_winner_that_is_stopped_leaves_the_next_best(gf, stop, monkeypatch):
    monkeypatch.setattr(auto.Search, "_is_better", lambda self, dearer, cheaper: dearer.candidate.is_trained)
    stop(Progress, "step", calls=2)
    tried = ended_early(gf(*argv("run")), "run")
    assert [one["chosen"] for one in tried] == [True, False, False]
    assert "score" in tried[2]
    assert tried[2]["left out"] == "interrupted"
    done = gf("train", "--resume", "--out", "run")
    assert "resumed at step 2" in done.out
    assert read_json(Path("run/metrics.json"))["tried"][2]["chosen"]


def test_nothing_is_left_where_nothing_was_scored(gf, stop):
    stop(auto.Search, "run")
    done = gf(*argv("run"))
    assert done.code == 130
    assert not Path("run/model").exists()


def test_whoever_has_not_asked_for_the_best_so_far_is_told_of_the_stop(held, stop, tmp_path):
    stop(StopOnSignal, "step", calls=3)
    clf = glassformer.TextClassifier("auto", max_length=13, precision="fp32", threads=1)
    how = {"checkpoints": tmp_path / "c", "callbacks": [StopOnSignal(tmp_path / "c")]}
    with pytest.raises(Interrupted, match="stopped at step 3"):
        clf.fit(TEXTS[:70], LABELS[:70], validation=(TEXTS[70:], LABELS[70:]), **how)
