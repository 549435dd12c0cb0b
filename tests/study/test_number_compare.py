"""Regressors beside each other: as a study, as finished runs and on a table; and simple models in a comparison."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from tests.tables import read_csv

from glassformer.cli.app import main
from glassformer.errors import ConfigError, DataError
from glassformer.evaluate.predictions import read_baselines, read_numbers, write_baselines
from glassformer.report.notebook import Comparison
from glassformer.study.compare import compare, compare_runs
from glassformer.study.grid import Study
from glassformer.study.results import markdown, table_rows

RECIPE = """\
task = "text-regression"
summary = "tiny"
[data]
source = {source!r}
[text]
max_length = 16
tokenizer = "word"
min_count = 1
[model]
model = "textcnn"
d_model = 7
embedding_dim = 5
dropout = 0.0
[train]
epochs = 6
lr = 3e-2
batch_size = 8
monitor = "spearman"
precision = "fp32"
threads = 1
[evaluate]
bootstrap = 20
"""
WORDS = {"awful": 1.0, "dull": 2.5, "fine": 5.5, "superb": 9.5}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    for split, count in (("train", 67), ("validation", 31), ("test", 29)):
        rows = ["text,score"]
        for i in range(count):
            word = [*WORDS][i % 4]
            rows.append(f"{split} {i} is a {word} film,{WORDS[word] + 0.1 * (i % 7):.1f}")
        (folder / f"{split}.csv").write_text("\n".join(rows) + "\n")
    path = folder / "tiny.toml"
    path.write_text(RECIPE.format(source=str(folder)))
    return path


@pytest.fixture(scope="module")
def done(base: Path, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("study") / "mine"
    study = Study(name="mine", recipe=str(base), seeds=(0, 1), bootstrap=200, grid={"lr": [3e-2, 1e-6]})
    return folder, compare(study, folder, workers=0)


def test_figures_are_those_of_the_predictions(done):
    folder, results = done
    assert (results["measure"], results["n"], results["judged"]) == ("spearman", 31, "validation")
    for arm in results["arms"]:
        for seed in (0, 1):
            run = folder / "arms" / arm["name"] / f"seed-{seed}"
            rows = list(read_numbers(run / "predictions.csv"))
            known = spearmanr([r.label for r in rows], [r.predicted for r in rows])[0]
            assert arm["spearman"]["values"][seed] == pytest.approx(known)
        for key in ("r2", "pearson", "mae"):
            low, high = arm[key]["interval"]
            assert low <= arm[key]["mean"] <= high
    better, worse = results["arms"]
    assert better["spearman"]["mean"] > 0.8 > worse["spearman"]["mean"]
    assert worse["mae"]["difference"] > 0
    assert worse["test"] == "bootstrap"
    assert [t["seed"] for t in worse["permutation"]] == [0, 1]
    assert worse["mcnemar"] == []
    assert "of Spearman below lr=0.03" in results["sentences"]["lr=1e-06"]


def test_tables_page_and_notebook_show_numbers(done):
    folder, results = done
    rows = read_csv(folder / "results.csv")
    assert rows[0]["accuracy"] == ""
    assert float(rows[0]["value"]) == pytest.approx(results["arms"][0]["spearman"]["mean"], abs=1e-5)
    assert [row["measure"] for row in table_rows(results)] == ["spearman"] * 2
    text = (folder / "results.md").read_text(encoding="utf-8")
    assert "| Spearman |" in text
    assert "Difference (Spearman)" in markdown(results)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "permutation p" in page
    assert "McNemar" not in page
    assert "TF-IDF + ridge" in page
    assert "Spearman" in Comparison(results)._repr_html_()


def test_simple_models_have_a_difference_with_its_interval(done):
    folder, results = done
    (ridge,) = [name for name in results["baselines"] if name == "TF-IDF + ridge"]
    figures, arm = results["baselines"][ridge], results["arms"][0]
    cells = read_baselines(folder / "arms" / "lr=0.03" / "seed-0" / "baselines.csv")[ridge]
    true = [r.label for r in read_numbers(folder / "arms" / "lr=0.03" / "seed-0" / "predictions.csv")]
    known = spearmanr(true, np.array(cells, float))[0]
    assert figures["difference"] == pytest.approx(known - arm["spearman"]["mean"], abs=1e-6)
    low, high = figures["difference_interval"]
    assert low <= figures["difference"] <= high
    mean = results["baselines"]["mean of the training numbers"]
    assert mean["spearman"] is None
    assert "difference" not in mean  # of what is not defined


def test_finished_runs_are_compared_by_a_permutation_test(done):
    folder, _ = done
    runs = [folder / "arms" / arm / "seed-0" for arm in ("lr=0.03", "lr=1e-06")]
    results = compare_runs(runs, measure="mae", split="validation", bootstrap=200)
    other = results["arms"][1]
    assert other["test"] == "permutation"
    assert other["p"] == other["permutation"][0]["p"] < 0.05
    assert results["verdict"].startswith(f"Significantly worse than {runs[0].as_posix()}")
    assert "of mean absolute error above" in results["sentences"][other["name"]]
    for wrong, said in (
        ({"split": "test"}, "was evaluated on validation, not on test"),
        ({"split": "tests"}, "Did you mean 'test'"),
        ({"measure": "mea"}, "Did you mean 'mae'"),
    ):
        with pytest.raises(ConfigError, match=said):
            compare_runs(runs, **wrong)


def test_the_command_compares_models_on_a_table(base, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = base.parent / "train.csv"
    small = ["target=number", "d_model=6", "epochs=1", "min_count=1", "max_length=16", "threads=1"]
    small += ["bootstrap=20", "precision=fp32"]
    words = [w for s in small for w in ("--set", s)]
    call = ["compare", "--text", str(table), "--model", "textcnn", "lstm", "--workers", "0"]
    call += ["--split", "test", "--measure", "r2", *words]
    assert main(call) == 0
    said = capsys.readouterr().out
    assert "from baseline" in said
    assert "TF-IDF + ridge" in said
    results = json.loads((tmp_path / "runs" / "train-models-test" / "results.json").read_text())
    assert (results["judged"], results["measure"]) == ("test", "r2")
    assert main(["compare", *call[1:3], "--model", "textcnn", "lstm", "--split", "train", *words]) == 2
    assert "no split 'train'" in capsys.readouterr().err


def test_answers_of_simple_models_come_back(tmp_path):
    write_baselines(tmp_path / "a.csv", {"=one": ["x, y", "+z"], "two": [1.5, -2.0]})
    assert read_baselines(tmp_path / "a.csv") == {"=one": ["x, y", "+z"], "two": ["1.5", "-2.0"]}
    write_baselines(tmp_path / "none.csv", {})
    assert not (tmp_path / "none.csv").exists()
    assert read_baselines(tmp_path / "none.csv") == {}
    (tmp_path / "bad.csv").write_text("a,b\n1\n")
    with pytest.raises(DataError, match=r"bad\.csv.*cannot be read"):
        read_baselines(tmp_path / "bad.csv")
