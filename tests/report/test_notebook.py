"""What a notebook shows: escaped HTML of estimators, histories, runs and comparisons, and a figure of a history."""

import json
import pickle
from html.parser import HTMLParser
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.report.notebook import Comparison, Records, comparison_html, estimator_html, plot_history
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.load import load
from glassformer.tasks.run import Run

RUNS = Path(__file__).parents[1] / "house" / "saved" / "0.1.0" / "runs"
EVIL = "<script>alert(1)</script>&\"'"
STEPS = [
    {"kind": "step", "step": i, "epoch": i // 5, "loss": 1 / i, "lr": 0.1, "tokens": 7, "seconds": i / 10}
    for i in range(1, 18)
]
JUDGED = [
    {
        "kind": "evaluation",
        "step": 5,
        "epoch": 0,
        "train_loss": 0.9,
        "train_accuracy": 0.4,
        "loss": 0.8,
        "accuracy": 0.5,
        "best": True,
    },
    {
        "kind": "evaluation",
        "step": 10,
        "epoch": 1,
        "train_loss": 0.5,
        "train_accuracy": 0.7,
        "loss": 0.9,
        "accuracy": 0.25,
        "best": False,
    },
]


class Parsed(HTMLParser):
    """The cells of tables and the tags seen; every tag that opens must close."""

    def __init__(self, html: str):
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.cells: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.add(tag)
        if tag in ("td", "th", "caption", "p"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.cells:
            self.cells[-1] += data


@pytest.mark.parametrize("task", list(TASKS))
def test_every_estimator_shows_itself_before_and_after_a_fit(task):
    estimator, _ = TASKS[task].example_fixture()
    before = Parsed(estimator._repr_html_())
    assert before.cells[0] == f"{type(estimator).__name__}, not fitted"
    assert "seed=3" in " ".join(before.cells)
    bundle = estimator._repr_mimebundle_()
    assert bundle["text/html"] == estimator._repr_html_()
    assert bundle["text/plain"] == repr(estimator)


@pytest.mark.parametrize("kind", ["text", "pictures", "translation", "masked"])
def test_a_saved_estimator_shows_what_it_is(kind):
    clf = load(RUNS / kind)
    cells = Parsed(clf._repr_html_()).cells
    assert cells[0] == f"{type(clf).__name__}, fitted"
    assert f"{sum(p.numel() for p in clf.model_.parameters()):,}" in cells
    assert clf.weights_source_ in cells


def test_a_fit_leaves_a_history_that_is_a_list_and_shows_itself():
    texts = ["the dog runs", "a small cat", "a dog", "the cat", "small dog"]
    clf = gf.TextClassifier("textcnn", epochs=2, batch_size=3, max_length=11, threads=1, seed=3)
    clf.fit(texts, ["d", "c", "d", "c", "d"], validation=(texts, ["d", "c", "d", "c", "d"]))
    assert isinstance(clf.history_, list)
    assert json.loads(json.dumps(clf.history_)) == clf.history_
    assert pickle.loads(pickle.dumps(clf.history_)) == clf.history_
    cells = Parsed(clf._repr_html_()).cells
    assert "2 classes" in cells
    assert "c, d" in cells
    assert "4 steps, 2 evaluations" in cells


def test_a_history_shows_its_evaluations():
    cells = Parsed(Records(STEPS + JUDGED)._repr_html_()).cells
    assert cells[0] == "17 steps, 2 evaluations"
    assert cells[1:7] == ["epoch", "step", "train loss", "loss", "accuracy", ""]
    assert cells[7:13] == ["1", "5", "0.9000", "0.8000", "0.5000", "best"]
    assert cells[18] == ""
    many = Records({**JUDGED[0], "step": i, "epoch": i} for i in range(31))
    shown = Parsed(many._repr_html_())
    assert shown.cells[0] == "0 steps, 31 evaluations, 19 of them are not shown"
    assert shown.cells[7] == "1"
    assert shown.cells[-6] == "31"
    assert Parsed(Records()._repr_html_()).cells == ["0 steps, 0 evaluations"]


def test_a_figure_draws_what_the_history_says():
    figure = Records(STEPS + JUDGED).plot("two & <three> $x$")
    loss, accuracy = figure.axes
    x, y = loss.lines[0].get_data()
    assert list(x) == list(range(1, 18))
    assert y[1] == 0.5
    assert [list(line.get_ydata()) for line in loss.lines[1:]] == [[0.9, 0.5], [0.8, 0.9]]
    assert [list(line.get_ydata()) for line in accuracy.lines] == [[0.4, 0.7], [0.5, 0.25]]
    assert accuracy.get_ylabel() == "accuracy"
    svg = figure._repr_svg_()
    assert svg.startswith("<?xml")
    assert "<three>" not in svg
    assert len(plot_history(STEPS).axes) == 1


def test_a_run_shows_its_figures_and_draws_its_training(tmp_path: Path):
    run = Run.of(RUNS / "text")
    cells = Parsed(run._repr_html_()).cells
    assert "this model" in cells
    assert cells[0].startswith("text: ")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "metrics.json").write_text(
        json.dumps({"scores": {EVIL: {"beam": {"bleu": 2.5, "n": 3}}}})
    )
    (tmp_path / "r" / "history.jsonl").write_text("".join(json.dumps(r) + "\n" for r in STEPS + JUDGED))
    run = Run.of(tmp_path / "r")
    assert run.history == STEPS + JUDGED
    assert len(run.plot().axes) == 2
    shown = Parsed(run._repr_html_())
    assert "script" not in shown.seen
    assert f"scores {EVIL} beam bleu" in shown.cells


def test_a_comparison_shows_its_arms_and_what_can_be_said():
    figure = {"mean": 0.5, "sd": 0.01, "difference": None, "difference_interval": None}
    other = figure | {"mean": 0.75, "difference": 0.25, "difference_interval": [0.1, 0.4]}
    results = Comparison(
        name=EVIL,
        n=40,
        judged="test",
        measure="accuracy",
        arms=[{"name": "one", "accuracy": figure}, {"name": EVIL, "accuracy": other, "p_holm": 0.031}],
        baselines={"TF-IDF": {"accuracy": 0.6}},
        verdict=EVIL,
        sentences={"one": "is the baseline"},
    )
    shown = Parsed(results._repr_html_())
    assert "script" not in shown.seen
    assert "+25.0 (+10.0 to +40.0)" in shown.cells
    assert shown.cells.count(EVIL) == 2
    assert "one: is the baseline" in shown.cells
    assert json.loads(json.dumps(results)) == results
    assert str(comparison_html(results)) == results._repr_html_()


def test_names_from_data_are_text(monkeypatch):
    clf = gf.TextClassifier(EVIL)
    assert "script" not in Parsed(str(estimator_html(clf))).seen
