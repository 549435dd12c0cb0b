"""``--model tfidf`` on the command line: compared with another model, and what a linear model has not.

tests/records has every verb on its run, tests/classifier/test_tfidf.py its features and explanations.
"""

from pathlib import Path

import pytest

from .every import A, Done, call, ok
from .tiny import sentences, write_csv

QUICK = ["--set", "bootstrap=7", "--set", "min_count=1", "--set", "baselines=false"]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A table of reviews, and a run on it."""
    home = tmp_path_factory.mktemp("tfidf")
    done = train(write_csv(home / "texts.csv", sentences(40)), home / "texts")
    assert done.code == 0, done.err
    return home


@pytest.fixture(autouse=True)
def inside(home, monkeypatch):
    monkeypatch.chdir(home)


def train(data: Path, out: Path, *more: object) -> Done:
    return call("train", "--text", data, "--model", "tfidf", "--out", out, *QUICK, *more)


def test_models_are_compared(home):
    data = home / "texts.csv"
    words = ("--model", "tfidf", "--model", "textcnn", "--set", "epochs=1", "--workers", 0, *QUICK)
    done = ok("compare", "--text", data, "--out", home / "both", *words)
    assert "tfidf" in done.out


def test_what_a_linear_model_has_not_names_another(home):
    data = home / "texts.csv"
    for setting in ("lora_rank=4", "pooling=mean", "precision=int8", "long_texts=mean"):
        wrong = train(data, home / "no", "--set", setting)
        assert wrong.code == 2
        assert "Leave it out" in wrong.err
        assert not (home / "no").exists()
    wrong = call("train", "--text", data, "--model", home / "texts" / "model", "--out", home / "no")
    assert wrong.code == 2
    assert "model=tfidf" in wrong.err
    wrong = call("train", "--text", data, "--model", "tfid", "--out", home / "no")
    assert "Did you mean 'tfidf'?" in wrong.err
    wrong = call("embed", "texts", A, "--out", home / "vectors.npy")
    assert wrong.code == 2
    assert "such as all-minilm-l6-v2" in wrong.err


def test_the_data_doctor_needs_no_tokenizer(home):
    done = ok("data", "doctor", home / "texts.csv", "--model", "tfidf")
    assert "tokens" not in done.out
