"""Calibrating a run: what is chosen by which data, what is saved, what stays."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from glassformer.cli.calibrate import overlap_notes
from glassformer.errors import ConfigError, DataError
from glassformer.evaluate.calibrate import fit_temperature
from glassformer.report.html import write_report
from glassformer.study.calibration import calibrate_run
from glassformer.tasks.catalog import TASKS, load_recipe
from glassformer.tasks.load import load
from glassformer.tasks.run import evaluate_task, run_task

from .conftest import write_split


@pytest.fixture(scope="module")
def trained(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    run_task(load_recipe(base, ["baselines=false", "epochs=2"]), folder)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_temperature_is_chosen_by_validation_and_saved(run):
    before = load(run)
    splits = TASKS["text-classification"].load(load_recipe(run / "config.toml"))
    targets = [before.classes_.tolist().index(label) for label in splits.validation.labels]
    wanted = fit_temperature(before.logits(splits.validation.texts), targets)
    found = calibrate_run(run, bootstrap=50)
    assert found["temperature"] == pytest.approx(wanted)
    after = load(run)
    assert after.temperature_ == found["temperature"]
    assert after.threshold_ is None
    text = splits.evaluated.texts[0]
    assert np.array_equal(after.logits([text]), before.logits([text]))
    held = found["splits"]["validation"]
    assert held["after"]["log_loss"] <= held["before"]["log_loss"]
    assert list(found["splits"]) == ["validation", "test"]
    for split in found["splits"].values():
        assert split["before"]["accuracy"] == split["after"]["accuracy"]
        assert 0 <= split["after"]["ece_interval"][0] <= split["after"]["ece"] <= 1
    assert json.loads((run / "calibration.json").read_text())["temperature"] == found["temperature"]
    page = write_report(run).read_text(encoding="utf-8")
    assert "Calibration error, test" in page
    assert 'id="reliability-' in page


def test_threshold_decides_in_prediction_and_evaluation(run):
    found = calibrate_run(run, threshold="macro_f1", bootstrap=20)
    clf = load(run)
    assert clf.threshold_ == found["threshold"]
    clf.threshold_ = 1 + 1e-7  # none reaches it
    clf.save(run / "model", overwrite=True)
    scores = evaluate_task(run)
    assert [sum(row[i] for row in scores["confusion"]) for i in (0, 1)] == [31, 0]
    assert set(load(run).predict(["a warm film", "a dull film"])) == {"bad"}


def test_other_data_may_choose(run, tmp_path):
    write_split(tmp_path / "other.csv", 23, start=900)
    found = calibrate_run(run, data=str(tmp_path / "other.csv"), bootstrap=20)
    assert found["seen"] == {"train": 0, "test": 0}
    assert not list(overlap_notes(found))
    folder = Path(load_recipe(run / "config.toml").data.source)
    (tmp_path / "again.csv").write_text((folder / "test.csv").read_text(encoding="utf-8"), encoding="utf-8")
    known = calibrate_run(run, data=str(tmp_path / "again.csv"), bootstrap=20)
    n = known["splits"][known["chosen_by"]]["before"]["n"]
    assert known["seen"] == {"train": 0, "test": n}
    said = f"{n} of the {n} calibration examples are test examples of the run, or copies of them"
    assert [line.split(":")[0] for line in overlap_notes(known)] == [said]
    assert found["splits"][str(tmp_path / "other.csv")]["before"]["n"] == 23
    (tmp_path / "odd.csv").write_text("text,label\na,good\nb,odd\nc,bad\n")
    with pytest.raises(DataError, match=r"odd\.csv, row 3.*'odd' was not seen"):
        calibrate_run(run, data=str(tmp_path / "odd.csv"))


def test_the_test_split_must_not_choose(run):
    config = run / "config.toml"
    folder = Path(load_recipe(config).data.source)
    lone = run / "data"
    shutil.copytree(folder, lone)
    (lone / "validation.csv").unlink()
    config.write_text(config.read_text().replace(str(folder), str(lone)), encoding="utf-8")
    with pytest.raises(ConfigError, match="calibration must not use the test split"):
        calibrate_run(run)


# --- more than two classes ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_three(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three classes, of which one is rare and hard to tell from another."""
    folder = tmp_path_factory.mktemp("three")
    words = {"good": ("warm", "wise"), "bad": ("dull", "flat"), "so-so": ("dull", "slow")}
    for split, count, start in (("train", 97, 0), ("validation", 89, 200), ("test", 83, 400)):
        rows = ["text,label"]
        for i in range(start, start + count):
            label = "so-so" if i % 7 == 0 else ("good", "bad")[i % 2]
            rows.append(f"a {words[label][i % 3 % 2]} film and number {i},{label}")
        (folder / f"{split}.csv").write_text("\n".join(rows) + "\n")
    recipe = load_recipe(base, [f"source={folder}", "baselines=false", "epochs=2", "maps=0"])
    run_task(recipe, folder / "run")
    return folder / "run"


@pytest.fixture
def three(of_three: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(of_three, tmp_path / "run"))


def test_each_of_three_classes_gets_a_threshold(three):
    found = calibrate_run(three, threshold="macro_f1", abstain_below=0.4, bootstrap=20)
    clf = load(three)
    assert clf.threshold_.tolist() == found["threshold"]
    assert clf.abstain_below_ == 0.4
    assert len(found["threshold"]) == 3
    before, after = (found["splits"]["validation"][side] for side in ("before", "after"))
    assert after["macro_f1"] >= before["macro_f1"]
    assert set(found["unseen"]) == {"folds", "before", "after"}
    splits = TASKS["text-classification"].load(load_recipe(three / "config.toml"))
    answers = clf.predict(splits.evaluated.texts)
    left = found["splits"]["test"]["after"]["abstention"]
    assert left["answered"] == sum(a is not None for a in answers)
    right = sum(a == b for a, b in zip(answers, splits.evaluated.labels, strict=True))
    assert left["accuracy"] == pytest.approx(right / left["answered"])
    again = evaluate_task(three)
    assert again["macro_f1"] == found["splits"]["test"]["after"]["macro_f1"]
    assert again["abstention"] == left
    twice = calibrate_run(three, threshold="macro_f1", abstain_below=0.4, bootstrap=20)
    assert twice | {"date": ""} == found | {"date": ""}


def test_page_and_card_show_the_thresholds(three):
    calibrate_run(three, threshold="accuracy", abstain_below=0.45, bootstrap=20)
    page = (three / "report.html").read_text(encoding="utf-8")
    assert "The threshold of each class" in page
    assert "whose probability divided by its threshold is the largest" in page
    assert "Accuracy of these, test" in page
    card = (three / "model" / "README.md").read_text(encoding="utf-8")
    assert "thresholds of its classes" in card
    assert "predicts no label if the probability of the label is below 0.45" in card
    held = calibrate_run(three, bootstrap=20)["splits"]["validation"]
    assert held["after"]["log_loss"] <= held["before"]["log_loss"]
    assert held["after"]["accuracy"] == held["before"]["accuracy"]
    assert "The threshold of each class" not in (three / "report.html").read_text(encoding="utf-8")
    assert load(three).threshold_ is None


def test_what_three_classes_cannot_have_is_refused(three):
    for wrong, said in (
        ({"threshold": "f1"}, "f1 is defined for two classes, but there are 3"),
        ({"abstain_below": 0.0}, "is not a probability between 0 and 1"),
    ):
        with pytest.raises(ConfigError, match=said):
            calibrate_run(three, **wrong)
