"""What is said of a training and when: warnings, metrics, the next step, in the words of the page."""

import json
import warnings
from pathlib import Path

from glassformer.cli.output import (
    calibration_hint,
    print_warnings,
    show_run,
    stdout_for_json,
    validation_line,
)
from glassformer.config import read_toml
from glassformer.errors import DataError, IdleSettingWarning
from glassformer.report.html import write_report
from glassformer.tasks import run as runner
from glassformer.tasks.catalog import build_recipe, known_recipe
from glassformer.tasks.run import Run
from glassformer.train.callbacks import Callback

from .every import VIT
from .tiny import pictures, sentences, sets, settings, write_csv


def vietnamese(path: Path) -> Path:
    """43 texts with accents in every word."""
    end = {"tốt": "rất đẹp và ngon", "tệ": "không đáng tiền"}
    rows = [(f"quán số {i} này {text}", label) for i in range(43) for label, text in [[*end.items()][i % 2]]]
    return write_csv(path, rows)


def place_of(lines: list[str], start: str) -> int:
    return next(i for i, line in enumerate(lines) if line.startswith(start))


def test_lost_accents_and_cut_texts_are_said_before_the_first_step(ok, tmp_path: Path):
    path = vietnamese(tmp_path / "quán.csv")
    result = ok("train", "--text", path, "--out", "run", *settings("strip_accents=true", "max_length=5"))
    lines = result.out.splitlines()
    first = place_of(lines, "step ")
    assert place_of(lines, "data doctor: the tokenizer strips accents from") < first
    assert place_of(lines, "data doctor: train: 100.0% of 35 texts exceed 5 tokens") < first
    assert sum("strips accents" in line for line in lines) == 1


def test_a_warning_of_ours_is_one_line_said_once_and_others_stay_as_they_are(capsys):
    with warnings.catch_warnings(record=True) as others, print_warnings():
        warnings.simplefilter("always")
        for _ in range(2):
            warnings.warn("lr has no effect", IdleSettingWarning, stacklevel=1)
        warnings.warn("of another", UserWarning, stacklevel=1)
    assert capsys.readouterr().err.splitlines() == ["note: lr has no effect [idle-setting]"]
    assert [str(one.message) for one in others] == ["of another"]


def test_a_warning_names_the_option_of_the_command(ok, tmp_path: Path):
    path = write_csv(tmp_path / "t.csv", [("a text", "a|b"), ("another", "b|c")] * 9)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = ok("data", "doctor", path, "--label-separator", ";")
    assert "some have '|'. Is '|' the --label-separator?" in result.err


def test_a_run_is_not_told_to_skip_what_it_has_skipped(ok, tmp_path: Path):
    path = vietnamese(tmp_path / "t.csv")
    path.write_text(path.read_text(encoding="utf-8") + ",tệ\n", encoding="utf-8")
    result = ok("train", "--text", path, "--on-bad-row", "skip", "--out", "run", *settings())
    line = next(line for line in result.out.splitlines() if "1 row cannot be used" in line)
    assert line.endswith(": correct them")
    assert "--on-bad-row" not in line


def test_a_run_that_is_killed_leaves_what_the_doctor_found(gf, tmp_path: Path, monkeypatch):
    class Killed(Callback):
        def __init__(self, *_, **__):
            pass

        def step(self, training, info):
            raise DataError("killed")

    monkeypatch.setattr(runner, "StopOnSignal", Killed)
    path = vietnamese(tmp_path / "quán.csv")
    assert gf("train", "--text", path, "--out", "run", *settings("strip_accents=true")).code == 2
    findings = json.loads(Path("run/doctor.json").read_text(encoding="utf-8"))["findings"]
    assert {"accents", "truncation", "unknown"} <= {finding["code"] for finding in findings}


def test_a_set_of_pictures_is_described_as_the_guide_says(ok, tmp_path: Path):
    parts = {
        "train": {"red": 23, "blue": 5, "grey": 3},
        "validation": {"red": 5, "blue": 2},
        "test": {"red": 3, "blue": 2, "grey": 2},
    }
    for seed, (split, classes) in enumerate(parts.items()):
        pictures(tmp_path / "squares" / split, classes, (11, 11), seed)
    red = tmp_path / "squares" / "train" / "red"
    (red / "again.png").write_bytes((red / "0.png").read_bytes())
    (tmp_path / "squares" / "test" / "red" / "leak.png").write_bytes((red / "1.png").read_bytes())
    (red / "torn.png").write_bytes((red / "2.png").read_bytes()[:60])
    words = sets(*VIT, "broken=skip", "baselines=false", "grid=false")
    result = ok("train", "--images", tmp_path / "squares", "--out", "run", *words)
    lines = result.out.splitlines()
    before = lines[: place_of(lines, "step ")]
    for said in (
        "1 image of train left out: ",
        "no image of grey in validation",
        "train is unbalanced: 24 of red, 3 of grey",
        "duplicate images of train: 1",
        "images in both train and test: 1",
    ):
        assert sum(line.startswith(f"data doctor: {said}") for line in before) == 1, said


# --- as the page has it -----------------------------------------------------------------------------


def test_a_share_of_nearly_all_is_no_hundred_percent(run, capsys):
    path = run / "metrics.json"
    metrics = json.loads(path.read_text(encoding="utf-8"))
    metrics["sentences"] = [{"text": "a fine film", "label": "good", "probability": 0.99971}]
    metrics["validation"]["accuracy"] = 0.99997
    path.write_text(json.dumps(metrics), encoding="utf-8")
    recipe = build_recipe(read_toml(run / "config.toml"), "config.toml")
    stdout_for_json(False)  # whatever the command before has asked for
    show_run(Run.of(run), recipe)
    said = capsys.readouterr().out
    page = write_report(run, known_recipe(run)).read_text(encoding="utf-8")
    own = said.partition("example sentences")[2]
    assert "99.9 %" in own
    assert "99.9\u202f%" in page.partition("Your sentences")[2]
    assert "100.0" not in own
    assert "validation accuracy: 99.9 %" in said


def test_labels_in_other_spellings_are_said_with_the_class_that_they_are(ok, run, tmp_path):
    rows = [(text, label.upper()) for text, label in sentences(20)]
    said = ok("evaluate", run, "--data", write_csv(tmp_path / "cased.csv", rows))
    assert "labels in another spelling than the model's: 'NEG' as 'neg' (10), 'POS' as 'pos' (10)" in said.out


def test_notes_of_a_verb_name_its_options(gf, run, tmp_path):
    table = tmp_path / "other.csv"
    table.write_text("\n".join(["remark,mood", *(f"{text},{label}" for text, label in sentences(20))]))
    said = gf("evaluate", run, "--data", table).out
    assert "texts in 'remark', labels in 'mood'; set --text-column and --label-column to override" in said
    assert "another spelling" not in said


# --- few examples, and probabilities that are too low -----------------------------------------------


def test_a_handful_is_counted():
    for n, accuracy, said in ((4, 0.75, "3 of 4"), (29, 28 / 29, "28 of 29"), (101, 0.9, "90.0\u202f%")):
        line = validation_line({"n": n, "accuracy": accuracy}, "accuracy")
        assert line.startswith(f"validation accuracy: {said}")
    assert validation_line({"n": 7, "accuracy": 1.0, "macro_f1": 0.5}, "macro_f1").endswith("(of 7 examples)")


def figures(n: int, accuracy: float, confidence: float) -> dict:
    return {"n": n, "accuracy": accuracy, "confidence": confidence}


def test_probabilities_that_are_too_low_are_told_with_what_mends_them():
    low, run = figures(300, 0.93, 0.59), Path("runs/few")
    few = calibration_hint(run, {"test": low, "validation": figures(4, 0.75, 0.6)})
    assert "too low: 0.59 on average, and 0.93 of the predictions are right" in few
    assert "the 4 validation examples are too few" in few
    assert "glassformer calibrate runs/few --data" in few
    many = calibration_hint(run, {"test": low, "validation": figures(211, 0.9, 0.6)})
    assert many.endswith("To calibrate: glassformer calibrate runs/few")
    assert "no validation examples" in calibration_hint(run, {"test": low, "validation": None})
    high = {"test": figures(300, 0.7, 0.95), "validation": figures(211, 0.72, 0.94)}
    assert "too high" in calibration_hint(run, high)


def test_nothing_is_said_where_it_would_not_help():
    run = Path("runs/few")
    assert calibration_hint(run, {"test": figures(300, 0.93, 0.95)}) == ""  # as sure as it should be
    assert calibration_hint(run, {"test": figures(11, 0.9, 0.8)}) == ""  # chance
    assert (
        calibration_hint(run, {"test": {"n": 300, "accuracy": 0.5}}) == ""
    )  # several labels, or an older run
    against = {"test": figures(300, 0.93, 0.59), "validation": figures(211, 0.6, 0.6)}
    assert calibration_hint(run, against) == ""  # the validation examples would not mend it
    assert calibration_hint(run, {"test": None, "validation": None}) == ""
