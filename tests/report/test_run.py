"""A run folder is read within bounds, and a damaged file is named."""

import json

import pytest

from glassformer.errors import ConfigError, DataError
from glassformer.evaluate.predictions import read_predictions
from glassformer.report import run as run_module
from glassformer.report.run import read_run


def test_what_a_full_run_holds(make_run):
    run = read_run(make_run(n=500), mistakes=5)
    assert run.split == "test"
    assert len(run.steps) == 1200
    assert [e["step"] for e in run.evaluations] == [400, 800, 1200]
    answers = list(read_predictions(run.folder / "predictions.csv"))
    wrong = sorted((a.probability for a in answers if a.is_wrong), reverse=True)
    assert [m.probability for m in run.mistakes] == wrong[:5]
    assert sum(run.calibration_bins.total) == 500
    assert sum(run.calibration_bins.correct) == round(500 * run.scores["accuracy"]) == 500 - len(wrong)


def test_a_torn_history_nan_and_unshowable_characters_are_tamed(make_run):
    folder = make_run()
    with open(folder / "history.jsonl", "a", encoding="utf-8") as file:
        file.write('{"kind": "step", "st')  # this last line is left out
    assert len(read_run(folder).steps) == 1200
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics |= {"weights_source": "a\x00b\u202ec\ud800d\r\n", "tokens_per_second": float("nan")}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    run = read_run(folder)
    assert run.metrics["weights_source"] == "a\ufffdb\ufffdc\ufffdd \n"
    assert run.metrics["tokens_per_second"] is None


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("metrics.json", b"{", DataError, "metrics.json: not valid JSON"),
        ("metrics.json", b"[]", DataError, "metrics.json: does not contain a dict"),
        ("metrics.json", b"\xff\xfe{}", DataError, "not valid JSON"),
        ("metrics.json", b"[" * 100_000, DataError, "not valid JSON"),
        ("metrics.json", b"{}", DataError, "none of test, validation, train"),
        ("metrics.json", b'{"test": {"n": 3}}', DataError, "test has no accuracy, confusion"),
        ("maps.json", b"nonsense", DataError, "maps.json"),
        ("doctor.json", b"3", DataError, "doctor.json"),
        ("history.jsonl", b"{}\n[]\n", DataError, "history.jsonl: line 1"),
        ("history.jsonl", b'{"step": 1}\nnot\n', DataError, "history.jsonl: line 2"),
        ("predictions.csv", b"a,b\n", DataError, "predictions.csv"),
        ("config.toml", b"=", ConfigError, "config.toml"),
    ],
)
def test_damaged_files_are_named(make_run, name, content, error, message):
    folder = make_run(n=20)
    (folder / name).write_bytes(content)
    with pytest.raises(error, match=message):
        read_run(folder)


def test_too_large_and_missing_files_are_named(make_run, tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"no metrics\.json"):
        read_run(tmp_path)
    folder = make_run(n=20)
    monkeypatch.setattr(run_module, "MAX_BYTES", 10)
    with pytest.raises(DataError, match="larger than"):
        read_run(folder)


def test_final_figures_of_another_split_bear_its_name(make_run):
    folder = make_run(n=50)
    content = (folder / "predictions.csv").read_text(encoding="utf-8")
    (folder / "predictions.csv").write_text(content.replace("\ntest,", "\ndev,"), encoding="utf-8")
    run = read_run(folder)  # answers of other splits are left out
    assert (run.mistakes, sum(run.calibration_bins.total)) == ([], 0)
    metrics = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps(metrics | {"judged": "dev"}))
    run = read_run(folder)
    assert (run.split, run.scores, sum(run.calibration_bins.total)) == ("dev", metrics["test"], 50)
