"""A run without a named model, whichever candidate wins: every verb works on what it leaves."""

import json
from pathlib import Path

import pytest
from tests.similarity.tiny import checkpoint

from glassformer.checkpoints.files import read_json
from glassformer.tasks import auto
from glassformer.tasks.auto import Candidate

from .every import A, Done, call, make_data, ok
from .tiny import sets

WINNERS = ("tfidf", "frozen", "fine-tuned")
KINDS = {"texts": ([], "classifier"), "numbers": (["--set", "target=number"], "regressor")}


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A run for each winner and kind of target, in a folder of its own."""
    home = tmp_path_factory.mktemp("auto")
    data, encoder = make_data(home), str(checkpoint(home / "mean"))
    solved = {"model": encoder, "head_start": "solved"}
    tuned = solved | {"epochs": 1, "lr": 1e-4}
    known = {"tfidf": auto.TFIDF, "frozen": Candidate("tiny, frozen", solved | {"train_layers": 0})}
    known |= {"fine-tuned": Candidate("tiny, fine-tuned", tuned, is_trained=True)}
    with pytest.MonkeyPatch.context() as patch:
        for winner, candidate in known.items():
            patch.setattr(auto, "candidates", lambda clf, one=candidate: [one])
            for kind, (more, _) in KINDS.items():
                done = train(data[kind], home / f"{winner}-{kind}", *more)
                assert done.code == 0, done.err
    return home


@pytest.fixture(autouse=True)
def inside(home, monkeypatch):
    monkeypatch.chdir(home)


def train(data: Path, out: Path, *more: object) -> Done:
    quick = sets("bootstrap=7", "max_length=13", "threads=1", "baselines=false")
    return call("train", "--text", data, "--out", out, *quick, *more)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("winner", WINNERS)
def test_every_verb_takes_the_winner(home, winner, kind):
    run = f"{winner}-{kind}"
    tried = read_json(home / run / "metrics.json")["tried"]
    assert [(one["model"].split(", ")[-1], one["chosen"]) for one in tried] == [(winner, True)]
    page = (home / run / "report.html").read_text()
    assert "Models compared" in page
    name = tried[0]["model"]
    assert (f'<th scope="row" dir="auto">{name}, test</th>' if kind == "numbers" else f">{name}</dd>") in page
    assert ("n-grams" in page) == (winner == "tfidf")
    predicted = ok("predict", run, A)
    assert A in predicted.out
    again = ok("evaluate", run, "--json")
    key = "r2" if kind == "numbers" else "accuracy"
    judged = read_json(home / run / "metrics.json")["test"]
    assert json.loads(again.out)[key] == pytest.approx(judged[key], rel=1e-5)
    assert call("report", run).code == 0
    ok("explain", run, A, "--out", f"{run}.html")
    assert A.split()[0] in (home / f"{run}.html").read_text()


def test_the_doctor_speaks_once_however_many_models_train(home, monkeypatch):
    settings = {"model": str(home / "mean"), "head_start": "solved"}
    dear = Candidate("tiny, fine-tuned", {**settings, "epochs": 1, "lr": 1e-4}, is_trained=True)
    cheap = Candidate("tiny, frozen", {**settings, "train_layers": 0})
    monkeypatch.setattr(auto, "candidates", lambda clf: [cheap, dear])
    monkeypatch.setattr(auto, "MIN_VALIDATION", 1)
    monkeypatch.setattr(auto.Search, "_is_better", lambda self, dearer, cheaper: False)
    done = train(home / "texts.csv", home / "twice", "--set", "max_length=5")
    assert done.code == 0, done.err
    lines = [line for line in done.out.splitlines() if line.startswith("data doctor: train")]
    assert read_json(home / "twice" / "metrics.json")["tried"][0]["chosen"]  # so that two trainings began
    assert len(lines) == len(set(lines)) > 0
