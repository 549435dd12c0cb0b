"""``--model tfidf``: a linear model through every verb."""

import json
from pathlib import Path

import pytest

from glassformer.checkpoints.files import read_json

from .every import A, B, Done, call, make_data, ok

QUICK = ["--set", "bootstrap=7", "--set", "min_count=1"]
GIVEN = {"texts": [A], "label sets": [A], "text pairs": [A, B], "numbers": [A]}
MORE = {"label sets": ["--label-separator", "|"], "numbers": ["--set", "target=number"]}
KINDS = pytest.mark.parametrize("kind", GIVEN)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A run of each kind of target, in a folder of its own; ``data`` has what they learned from."""
    home = tmp_path_factory.mktemp("tfidf")
    data = make_data(home)
    for kind in GIVEN:
        done = train(data[kind], home / kind, *MORE.get(kind, []))
        assert done.code == 0, done.err
    return home


@pytest.fixture(autouse=True)
def inside(home, monkeypatch):
    monkeypatch.chdir(home)


def train(data: Path, out: Path, *more: object) -> Done:
    return call("train", "--text", data, "--model", "tfidf", "--out", out, *QUICK, *more)


@KINDS
def test_its_run_speaks_of_no_tokens(home, kind):
    metrics = read_json(home / kind / "metrics.json")
    assert "truncated" not in metrics
    assert "padding" not in metrics
    assert metrics["tokens_per_second"] is None
    assert metrics["chosen"].keys() <= {"C", "alpha"}
    assert "fitted on TF-IDF of" in metrics["weights_source"]
    history = [json.loads(line) for line in (home / kind / "history.jsonl").read_text().splitlines()]
    assert [record["kind"] for record in history] == ["step", "evaluation"]
    assert "loss" in history[1]
    page = (home / kind / "report.html").read_text()
    assert "n-grams" in page
    for word in ("N tokens", "cut texts", "padding, ", "Attention"):
        assert word not in page
    card = (home / kind / "model" / "README.md").read_text()
    assert "tokens" not in card
    assert "fitted on TF-IDF" in card


@KINDS
def test_predictions_and_metrics_again(home, kind):
    one = ok("predict", kind, *GIVEN[kind])
    assert A in one.out
    again = ok("evaluate", kind, "--json")
    found = json.loads(again.out)
    judged = read_json(home / kind / "metrics.json")["test"]
    key = "r2" if kind == "numbers" else "accuracy"
    assert found[key] == pytest.approx(judged[key], rel=1e-6)
    assert call("report", kind).code == 0


@KINDS
def test_it_is_explained_by_its_weights(home, kind):
    found = json.loads(call("explain", kind, *GIVEN[kind], "--json").out)[0]
    assert found["method"] == "weights"
    settings = found["settings"]
    assert sum(found["scores"]) + settings["bias"] == pytest.approx(settings["logit"], abs=1e-4)
    ok("explain", kind, *GIVEN[kind], "--out", home / f"{kind}.html")
    wrong = call("explain", kind, *GIVEN[kind], "--method", "rollout")
    assert wrong.code == 2
    assert "Use weights or occlusion" in wrong.err


def test_a_run_that_goes_on_has_the_same_bits(home):
    weights = home / "texts" / "model" / "model.safetensors"
    before = weights.read_bytes()
    (home / "texts" / "metrics.json").unlink()
    ok("train", home / "texts", "--resume")
    assert weights.read_bytes() == before


def test_models_are_compared(home):
    data = home / "texts.csv"
    words = ("--model", "tfidf", "--model", "textcnn", "--set", "epochs=1", "--workers", 0, *QUICK)
    done = ok("compare", "--text", data, "--out", home / "both", *words)
    assert "tfidf" in done.out


def test_it_is_calibrated(home):
    assert call("calibrate", "label sets", "--json").code == 0


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
