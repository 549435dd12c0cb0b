"""A study from file to page: what is kept, what goes on, what is refused, and figures that agree with the runs."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from tests.tables import read_csv

from glassformer.errors import CheckpointError, ConfigError, DataError, GlassformerError
from glassformer.evaluate.predictions import read_predictions
from glassformer.report.study import render_study, run_pages, write_study_report
from glassformer.study import arms as arms_module
from glassformer.study.arms import plan_jobs, run_jobs
from glassformer.study.compare import compare, compare_runs
from glassformer.study.grid import Study, expand
from glassformer.study.results import collect, markdown, sentences, table_rows


@pytest.fixture(scope="module")
def study(base: Path) -> Study:
    return Study(
        name="mine", summary="a <b>study</b>", recipe=str(base), seeds=(0, 1), bootstrap=200,
        grid={"lr": [3e-2, 1e-6]},
    )  # fmt: skip


@pytest.fixture(scope="module")
def done(study: Study, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("study") / "mine"
    lines: list[str] = []
    return folder, compare(study, folder, workers=0, log=lines.append), lines


def test_folder_is_complete(done):
    folder, results, lines = done
    assert {p.name for p in folder.iterdir()} == {
        "arms", "study.toml", "results.json", "results.csv", "results.md", "report.html",
    }  # fmt: skip
    assert sorted(p.name for p in (folder / "arms").iterdir()) == ["lr=0.03", "lr=1e-06"]
    run = folder / "arms" / "lr=0.03" / "seed-1"
    assert (run / "model").is_dir()
    assert not (run / "checkpoints").exists()
    assert json.loads((folder / "results.json").read_text()) == json.loads(json.dumps(results))
    (last,) = [line for line in lines if "[4/4]" in line]
    assert last.endswith(" s")
    assert [line.endswith(" left)") for line in lines if line.startswith("[")] == [True] * 3 + [False]


def test_missing_weights_end_a_study_before_any_data_are_read(study: Study, tmp_path: Path):
    lacking = replace(study, grid={}, arms={"here": {}, "away": {"model": "runs/no-such-run/model"}})
    lines: list[str] = []
    with pytest.raises(CheckpointError, match="runs/no-such-run/model"):
        compare(lacking, tmp_path / "away", workers=0, log=lines.append)
    assert [line for line in lines if "train" in line] == []
    assert [*(tmp_path / "away" / "arms").iterdir()] == []


def test_figures_are_those_of_the_predictions(done):
    folder, results, _ = done
    for arm in results["arms"]:
        shares = []
        for seed in (0, 1):
            rows = list(read_predictions(folder / "arms" / arm["name"] / f"seed-{seed}" / "predictions.csv"))
            assert {row.split for row in rows} == {"validation"}
            shares.append(sum(not row.is_wrong for row in rows) / len(rows))
        assert arm["accuracy"]["values"] == pytest.approx(shares)
        assert arm["accuracy"]["mean"] == pytest.approx(np.mean(shares))
        assert arm["accuracy"]["sd"] == pytest.approx(np.std(shares, ddof=1))
        metrics = json.loads((folder / arm["runs"][0] / "metrics.json").read_text())
        assert arm["macro_f1"]["values"][0] == pytest.approx(metrics["test"]["macro_f1"], abs=1e-6)
        cost = arm["cost"]
        assert cost["parameters"] == metrics["parameters"]
        assert cost["peak_memory_mb"] is None  # it is not the run's own
        assert cost["seconds_per_epoch"] > 0
    first, second = results["arms"]
    assert second["accuracy"]["difference"] == pytest.approx(
        second["accuracy"]["mean"] - first["accuracy"]["mean"]
    )
    assert first["accuracy"]["mean"] > 0.9 > second["accuracy"]["mean"]
    assert (results["n"], results["judged"], results["baseline"]) == (29, "validation", "lr=0.03")
    own = {name for name in results["baselines"] if not name.startswith("frozen")}  # weights are needed
    assert own == {"TF-IDF + logistic regression", "mean bag of embeddings"}


def test_tables_and_page(done, tmp_path):
    folder, results, _ = done
    rows = read_csv(folder / "results.csv")
    assert [row["arm"] for row in rows] == ["lr=0.03", "lr=1e-06"]
    assert float(rows[1]["accuracy"]) == pytest.approx(results["arms"][1]["accuracy"]["mean"], abs=1e-5)
    text = (folder / "results.md").read_text(encoding="utf-8")
    assert "| lr=0.03 (baseline) |" in text
    assert "a &lt;b>study" in text
    assert text.count("\n| ") == 1 + 2 + len(results["baselines"])  # header, arms, simple models
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "a &lt;b&gt;study" in page
    assert "<b>study" not in page
    assert page.count("<svg") >= 3
    assert "script-src &#39;sha256-" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    said = " ".join(render_study(results).split())
    assert "The two tests answer different questions. McNemar's test, seed by seed" in said
    assert "of which two seeds give a poor estimate" in said
    write_study_report(folder)
    assert (folder / "report.html").read_text(encoding="utf-8") == page
    for arm in results["arms"]:  # confusions are those of all seeds
        runs = [json.loads((folder / run / "metrics.json").read_text())["test"] for run in arm["runs"]]
        assert len(runs) == 2
        assert arm["confusion"] == np.sum([run["confusion"] for run in runs], axis=0).tolist()
    assert page.count('<table class="confusion">') == 2
    links = [link for link in re.findall(r'href="([^"]*)"', page) if not link.startswith("#")]
    assert len(links) == 4
    assert all((folder / unquote(link)).is_file() for link in links)
    (tmp_path / "report.html").write_text("not of the study")
    (tmp_path / "mine").mkdir()
    outside = results | {"arms": [results["arms"][0] | {"runs": ["..", "javascript:alert(1)"]}]}
    assert run_pages(outside, tmp_path / "mine") == {"lr=0.03": []}


def test_a_ladder_says_where_accuracy_first_falls(done):
    _, results, _ = done

    def said(ladder, p):
        arms = [results["arms"][0], results["arms"][1] | {"significant": p < 0.05}]
        return sentences(results | {"ladder": ladder, "arms": arms})["verdict"]

    ladder = ["lr=0.03", "lr=1e-06"]
    way = "In the order lr=0.03, lr=1e-06"
    assert f"{way}, lr=1e-06 is the first that is significantly worse than lr=0.03." in said(ladder, 0.01)
    assert f"{way}, none is significantly worse than lr=0.03; these variants were not tested" in said(
        ladder, 0.2
    )
    assert "In the order" not in said([], 0.01)


def test_page_of_a_study_from_before_robustness_was_kept(done, tmp_path):
    results = json.loads((done[0] / "results.json").read_text(encoding="utf-8"))
    for arm in results["arms"]:
        del arm["robustness"], arm["confusion"], arm["runs"]
    del results["ladder"]
    (tmp_path / "results.json").write_text(json.dumps(results), encoding="utf-8")
    assert "Robustness to image corruption" not in write_study_report(tmp_path).read_text(encoding="utf-8")


def test_again_changes_nothing_but_the_date(done, study):
    folder, results, _ = done
    runs = {p: p.stat().st_mtime_ns for p in folder.rglob("model/*")}
    again = compare(study, folder, workers=0)
    assert again | {"date": ""} == results | {"date": ""}
    assert runs == {p: p.stat().st_mtime_ns for p in folder.rglob("model/*")}


def test_a_broken_arm_goes_on_and_the_finished_ones_are_kept(done, study, tmp_path):
    folder, results, _ = done
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    broken = copy / "arms" / "lr=0.03" / "seed-1"
    for name in ("arm.json", "metrics.json", "predictions.csv", "report.html"):
        (broken / name).unlink()
    kept = (copy / "arms" / "lr=0.03" / "seed-0" / "metrics.json").stat().st_mtime_ns
    again = compare(study, copy, workers=0)
    assert (copy / "arms" / "lr=0.03" / "seed-0" / "metrics.json").stat().st_mtime_ns == kept
    for new, old in zip(again["arms"], results["arms"], strict=True):
        assert new["accuracy"] == old["accuracy"]


def test_an_arm_that_fails_leaves_the_others(study, tmp_path, monkeypatch):
    real = arms_module.run_task

    def fails_once(recipe, folder, **options):
        if recipe.train.lr < 1e-3 and recipe.train.seed == 1:
            raise GlassformerError("the loss is nan")
        return real(recipe, folder, **options)

    monkeypatch.setattr(arms_module, "run_task", fails_once)
    results = compare(study, tmp_path / "s", workers=0)
    assert results["failed"] == {"lr=1e-06, seed 1": "the loss is nan"}
    assert results["unfinished"] == ["lr=1e-06, seed 1"]
    assert [arm["seeds"] for arm in results["arms"]] == [[0, 1], [0]]
    assert "1 run is missing" in results["verdict"]
    assert "the loss is nan" in (tmp_path / "s" / "report.html").read_text()


def test_without_the_baseline_there_is_nothing_to_say(study, tmp_path, monkeypatch):
    def fails(recipe, folder, **options):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(arms_module, "run_task", fails)
    said = r"no run of the baseline 'lr=0.03' has finished.*out of memory"
    with pytest.raises(GlassformerError, match=said):
        compare(study, tmp_path / "s", workers=0)


def test_wrong_input_stops_at_the_first_arm(study, tmp_path):
    calls: list[str] = []
    with pytest.raises(DataError, match="no file, folder or named data set"):
        compare(study, tmp_path / "s", settings={"source": "nowhere"}, workers=0, log=calls.append)
    assert not any("failed" in line for line in calls[1:])


def test_folders_of_others_are_refused(study, tmp_path, done):
    (tmp_path / "mine.txt").write_text("my own")
    for folder, said in ((tmp_path, "is not the folder of a study"), (tmp_path / "mine.txt", "is a file")):
        with pytest.raises(ConfigError, match=said):
            compare(study, folder, workers=0)
    with pytest.raises(ConfigError, match="another recipe"):
        compare(study, done[0], settings={"epochs": 3}, workers=0)


def test_runs_on_other_examples_are_not_compared(done, study, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(done[0], copy)
    path = copy / "arms" / "lr=1e-06" / "seed-0" / "predictions.csv"
    path.write_text(path.read_text().replace("number 201", "number 2010"), encoding="utf-8")
    with pytest.raises(ConfigError, match="evaluated on different examples"):
        compare(study, copy, workers=0)


def test_one_seed_is_tested_by_mcnemar(done, base):
    folder, _, _ = done
    one = Study(name="mine", recipe=str(base), seeds=(0,), bootstrap=200, grid={"lr": [3e-2, 1e-6]})
    arms = expand(one)
    found = collect(one, arms, plan_jobs(one, arms, folder))
    arm = found["arms"][1]
    assert arm["test"] == "mcnemar"
    assert arm["p"] == arm["p_holm"] == arm["mcnemar"][0]["p"]
    assert arm["significant"] == (arm["p"] < 0.05)
    assert "There is one seed per variant" in found["verdict"]


def two_seeds(p: float, *tests: tuple[int, int, float], seeds=(0, 1), measure="accuracy") -> dict:
    """A study of two arms as ``sentences`` reads it."""
    apart = {"difference": -0.058, "difference_interval": [-0.21, 0.09]}
    arm = {
        "name": "late", "accuracy": apart, "macro_f1": apart, "p_holm": p, "significant": p < 0.05,
        "mcnemar": [dict(seed=s, wins=w, losses=x, p=q) for s, (w, x, q) in enumerate(tests)],
    }  # fmt: skip
    about = {"n": 1500, "baseline": "base", "unfinished": [], "seeds": seeds, "measure": measure}
    return sentences(about | {"arms": [{"name": "base"}, arm]})


def test_what_two_seeds_can_decide_is_said():
    found = two_seeds(0.31, (20, 107, 1e-9), (31, 118, 1e-8))
    told = found["sentences"]["late"]
    assert told.startswith("Inconclusive: 5.80 points below base (95 % interval")
    assert "Each pair of trainings differs on these examples (McNemar, p < 0.001), but other seeds" in told
    assert "No significant difference" not in found["verdict"] + told
    assert found["verdict"].startswith("Inconclusive compared with base: late.")
    assert "Two seeds per variant estimate the variation between seeds poorly" in found["verdict"]
    # one pair that differs the other way, or not at all: nothing is there to be told apart
    for tests in ([(20, 107, 1e-9), (118, 31, 1e-8)], [(20, 107, 1e-9), (31, 29, 0.8)]):
        found = two_seeds(0.31, *tests)
        assert found["sentences"]["late"].startswith("No significant difference: 5.80 points below base")
        assert "Undecided" not in found["verdict"]
        assert "Two seeds per variant" in found["verdict"]
    clear = two_seeds(0.01, (20, 107, 1e-9), (31, 118, 1e-8))
    assert clear["verdict"] == "Significantly worse than base: late."
    assert "Two seeds" not in two_seeds(0.3, *[(20, 107, 1e-9)] * 3, seeds=(0, 1, 2))["verdict"]


def test_a_study_is_compared_by_what_its_recipes_choose_by(done, base, tmp_path):
    told = two_seeds(0.01, (1, 2, 0.5), measure="macro_f1")["sentences"]["late"]
    assert told.startswith("5.80 points of macro-F1 below base")
    folder, _, _ = done
    one = Study(name="mine", recipe=str(base), seeds=(0,), bootstrap=200, grid={"lr": [3e-2, 1e-6]})
    jobs = plan_jobs(one, expand(one), folder)
    f1 = lambda recipe: replace(recipe, train=replace(recipe.train, monitor="macro_f1"))  # noqa: E731
    by_f1 = [replace(job, recipe=f1(job.recipe)) for job in jobs]
    found = collect(one, expand(one), by_f1)
    assert found["measure"] == "macro_f1"
    arm = found["arms"][1]
    assert arm["test"] == "bootstrap"
    assert arm["p"] == arm["macro_f1"]["bootstrap_p"]
    page = render_study(found)
    assert "of the mean macro-F1 over the sampling" in page
    assert "Difference (macro-F1, points)" in markdown(found)
    (row,) = (row for row in table_rows(found) if row["arm"] != "lr=0.03")
    assert row["difference"] == arm["macro_f1"]["difference"]


def test_finished_runs_are_compared_without_a_study(done, tmp_path):
    folder, results, _ = done
    runs = [folder / "arms" / arm / f"seed-{seed}" for arm in ("lr=0.03", "lr=1e-06") for seed in (0, 1)]
    found = compare_runs(runs, bootstrap=2000)
    assert [arm["seeds"] for arm in found["arms"]] == [[0, 1], [0, 1]]
    assert [arm["name"] for arm in found["arms"]] == [runs[0].as_posix(), runs[2].as_posix()]
    for new, old in zip(found["arms"], results["arms"], strict=True):
        assert new["accuracy"]["values"] == old["accuracy"]["values"]
        assert new.get("mcnemar") == old.get("mcnemar")
    two = compare_runs([runs[0], runs[3]])
    assert [arm["seeds"] for arm in two["arms"]] == [[0], [1]]
    for wrong, said in (
        (runs[:1], "only one run is named"),
        (runs[:1] * 2, "the same run is named twice"),
        (runs[:2], "the same recipe with different seeds"),
    ):
        with pytest.raises(ConfigError, match=said):
            compare_runs(wrong)


def test_equal_arms_differ_by_nothing(base, tmp_path):
    """A key that changes no bit: the sentence must say so."""
    same = Study(name="same", recipe=str(base), bootstrap=200, grid={"checkpoint_every": [0, 3]})
    results = compare(same, tmp_path / "s", workers=0)
    none = "No significant difference between checkpoint_every=3 and checkpoint_every=0."
    assert results["verdict"].startswith(none)
    assert results["arms"][1]["p_holm"] == 1.0
    same = "No difference: right on the same examples as checkpoint_every=0, and wrong on the same."
    assert results["sentences"]["checkpoint_every=3"] == same


@pytest.mark.slow
def test_processes_give_what_one_process_gives(done, study, tmp_path):
    _, results, _ = done
    apart = compare(study, tmp_path / "s", workers=2)
    for new, old in zip(apart["arms"], results["arms"], strict=True):
        assert new["accuracy"] == old["accuracy"]
        assert new["cost"]["peak_memory_mb"] > 50


@pytest.mark.slow
def test_what_goes_wrong_in_a_process_comes_back(study, tmp_path):
    arms = expand(study, {"source": "nowhere"})
    with pytest.raises(DataError, match="no file, folder or named data set"):
        run_jobs(plan_jobs(study, arms, tmp_path / "s"), workers=1)


def test_robustness_is_the_mean_of_the_runs_suites(tmp_path):
    tiny = {"train_size": 90, "epochs": 1, "num_layers": 1, "threads": 1}
    tiny |= {"robustness": True, "robustness_limit": 31}
    grid = {"augment": ["none", "light"]}
    study = Study(name="pictures", recipe="digits", seeds=(0, 1), bootstrap=50, set=tiny, grid=grid)
    folder = tmp_path / "pictures"
    results = compare(study, folder, workers=0)
    for arm in results["arms"]:
        suites = [json.loads((folder / r / "metrics.json").read_text())["robustness"] for r in arm["runs"]]
        kinds = arm["robustness"]["kinds"]
        assert list(kinds) == ["crop", "light", "blur", "noise", "jpeg", "rotation"]
        noise = [row["accuracy"] for suite in suites for row in suite["noise"]]
        assert len(noise) == 2 * 5
        assert kinds["noise"] == pytest.approx(np.mean(noise))
        assert arm["robustness"]["accuracy"] == pytest.approx(np.mean(list(kinds.values())))
        assert list(arm["robustness"]["each"]) == list(kinds)
        third = {"severity": 3}
        for key in ("accuracy", "macro_f1"):
            third[key] = pytest.approx(np.mean([suite["noise"][2][key] for suite in suites]))
        assert arm["robustness"]["each"]["noise"][2] == third
    rows = read_csv(folder / "robustness.csv")
    assert len(rows) == 2 * 6 * 5
    assert (rows[33]["arm"], rows[33]["kind"], rows[33]["severity"]) == ("augment=light", "crop", "4")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "At each severity" in page
    assert "Robustness to image corruption" in page
    assert "| Changed images |" in (folder / "results.md").read_text(encoding="utf-8")
    shares = [float(row["robustness"]) for row in read_csv(folder / "results.csv")]
    assert shares == pytest.approx([arm["robustness"]["accuracy"] for arm in results["arms"]], abs=1e-5)
