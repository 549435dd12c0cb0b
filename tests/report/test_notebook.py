"""What a notebook shows: escaped HTML of estimators, histories, runs and comparisons, and a figure of a history."""

import json
import pickle
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.report.notebook import Comparison, Records, comparison_html, estimator_html, plot_history
from glassformer.tasks.catalog import TASKS
from glassformer.tasks.load import load
from glassformer.tasks.run import Run

from .conftest import Page

RUNS = Path(__file__).parents[1] / "house" / "saved" / "0.1.0" / "runs"
EVIL = "<script>alert(1)</script>&\"'"
STEPS = [
    {"kind": "step", "step": i, "epoch": i // 5, "loss": 1 / i, "lr": 0.1, "tokens": 7, "seconds": i / 10}
    for i in range(1, 18)
]
KEYS = ("step", "epoch", "train_loss", "train_accuracy", "loss", "accuracy", "best")
VALUES = ((5, 0, 0.9, 0.4, 0.8, 0.5, True), (10, 1, 0.5, 0.7, 0.9, 0.25, False))
JUDGED = [{"kind": "evaluation"} | dict(zip(KEYS, values)) for values in VALUES]


@pytest.mark.parametrize("task", list(TASKS))
def test_every_estimator_shows_itself_before_a_fit(task):
    estimator, _ = TASKS[task].example_fixture()
    before = Page(estimator._repr_html_())
    assert before.cells[0] == f"{type(estimator).__name__}, not fitted"
    assert "seed=3" in " ".join(before.cells)
    bundle = estimator._repr_mimebundle_()
    assert bundle["text/html"] == estimator._repr_html_()
    assert bundle["text/plain"] == repr(estimator)


@pytest.mark.parametrize("kind", ["text", "pictures", "translation", "masked"])
def test_a_saved_estimator_shows_what_it_is(kind):
    clf = load(RUNS / kind)
    cells = Page(clf._repr_html_()).cells
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
    cells = Page(clf._repr_html_()).cells
    assert "2 classes" in cells
    assert "c, d" in cells
    assert "4 steps, 2 evaluations" in cells


def test_a_history_shows_its_evaluations():
    cells = Page(Records(STEPS + JUDGED)._repr_html_()).cells
    assert cells[0] == "17 steps, 2 evaluations"
    assert cells[1:7] == ["epoch", "step", "train loss", "loss", "accuracy", ""]
    assert cells[7:13] == ["1", "5", "0.9000", "0.8000", "0.5000", "best"]
    assert cells[18] == ""
    many = Records({**JUDGED[0], "step": i, "epoch": i} for i in range(31))
    shown = Page(many._repr_html_())
    assert shown.cells[0] == "0 steps, 31 evaluations, 19 of them are not shown"
    assert shown.cells[7] == "1"
    assert shown.cells[-6] == "31"
    assert Page(Records()._repr_html_()).cells == ["0 steps, 0 evaluations"]


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
    cells = Page(run._repr_html_()).cells
    assert "this model" in cells
    assert cells[0].startswith("text: ")
    scores = {"scores": {EVIL: {"beam": {"bleu": 2.5, "n": 3}}}}
    (tmp_path / "metrics.json").write_text(json.dumps(scores))
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(r) + "\n" for r in STEPS + JUDGED))
    run = Run.of(tmp_path)
    assert run.history == STEPS + JUDGED
    assert len(run.plot().axes) == 2
    shown = Page(run._repr_html_())
    assert "script" not in shown.tags
    assert f"scores {EVIL} beam bleu" in shown.cells


def test_a_comparison_shows_its_arms_and_what_can_be_said():
    figure = {"mean": 0.5, "sd": 0.01, "difference": None, "difference_interval": None}
    other = figure | {"mean": 0.75, "difference": 0.25, "difference_interval": [0.1, 0.4]}
    arms = [{"name": "one", "accuracy": figure}, {"name": EVIL, "accuracy": other, "p_holm": 0.031}]
    about = {"name": EVIL, "n": 40, "judged": "test", "measure": "accuracy", "verdict": EVIL}
    about |= {"baselines": {"TF-IDF": {"accuracy": 0.6}}, "sentences": {"one": "is the baseline"}}
    results = Comparison(arms=arms, **about)
    shown = Page(results._repr_html_())
    assert "script" not in shown.tags
    assert "+25.0 (+10.0 to +40.0)" in shown.cells
    assert shown.cells.count(EVIL) == 2
    assert "one: is the baseline" in shown.cells
    assert json.loads(json.dumps(results)) == results
    assert str(comparison_html(results)) == results._repr_html_()
    assert "script" not in Page(str(estimator_html(gf.TextClassifier(EVIL)))).tags
