"""What recipes and studies say is to be expected: the figures and times of their result files."""

import json
import re
from pathlib import Path
from statistics import fmean

import pytest

from glassformer.report.published import read_study_result, without_shared_gpu
from glassformer.study.grid import load_study
from glassformer.tasks.catalog import load_recipe, recipe_names, study_names

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("name", recipe_names())
def test_what_a_recipe_expects_is_what_its_result_file_says(name):
    expect, file = load_recipe(name).expect, BENCHMARKS / "results" / f"recipe-{name}.json"
    assert expect.startswith("not measured") != file.is_file()
    if not file.is_file():
        return
    result = json.loads(file.read_text(encoding="utf-8"))
    led = ("accuracy", "score", "entity_f1", "f1", "macro_f1")  # what a task is led by
    mean = next(result[key] for key in led if result.get(key))["mean"]
    found = re.search(r"(\d+(?:\.(\d+))?) (%|BLEU)", expect)
    assert found is not None
    digits, unit = len(found[2] or ""), 1 if found[3] == "BLEU" else 100
    assert float(found[1]) == pytest.approx(unit * mean, abs=0.501 * 10**-digits)
    seeds = re.search(r"\((one|two|three|five) seed", expect)
    assert seeds is None or {"one": 1, "two": 2, "three": 3, "five": 5}[seeds[1]] == len(result["runs"])


@pytest.mark.parametrize("name", recipe_names())
def test_the_time_that_a_recipe_expects_is_that_of_its_result_file(name):
    file = BENCHMARKS / "results" / f"recipe-{name}.json"
    told = re.search(r"; (\d+)(?: to (\d+))? (s|min) (?:on|of) ", load_recipe(name).expect)
    if told is None or not file.is_file():  # "its time says little, for the run was paused"
        assert told is None
        return
    runs = json.loads(file.read_text(encoding="utf-8"))["runs"]
    unit = {"s": 1, "min": 60}[told[3]]
    runs = without_shared_gpu(runs)
    spent = [run["seconds"]["train"] / unit for run in runs]
    assert float(told[1]) == pytest.approx(min(spent), abs=0.51)
    assert float(told[2] or told[1]) == pytest.approx(max(spent), abs=0.51)
    assert {run["machine"]["cpu"].split("(")[0].split()[0] for run in runs} <= set(
        re.findall(r"Intel|AMD", load_recipe(name).expect)
    )


@pytest.mark.parametrize("name", study_names())
def test_what_a_study_expects_is_what_its_result_file_says(name):
    expect, file = str(load_study(name).expect), BENCHMARKS / "results" / f"study-{name}.json"
    folds = BENCHMARKS / "results" / f"folds-{name}.json"
    assert expect.startswith("not measured") != (file.is_file() or folds.is_file())
    if not file.is_file():
        if folds.is_file():
            result = json.loads(folds.read_text(encoding="utf-8"))
            means = [100 * fmean(arm["accuracy"]) for arm in result["arms"].values()]
            by = f"by {result['folds']}-fold cross-validation"
            assert expect.startswith(f"{min(means):.1f} to {max(means):.1f} % of {result['n']} images {by}")
            assert f"({['', 'one', 'two', 'three', 'four', 'five'][len(result['seeds'])]} seed" in expect
        return
    result = json.loads(file.read_text(encoding="utf-8"))
    means = [100 * arm["accuracy"]["mean"] for arm in result["arms"]]
    assert expect.startswith(f"{min(means):.1f} to {max(means):.1f} % of {result['n']} {result['judged']} ")
    minutes = sum(arm["cost"]["train_seconds"] * len(arm["seeds"]) for arm in result["arms"]) / 60
    assert f"; {minutes:.0f} min of training on " in expect
    assert f"({['', 'one', 'two', 'three', 'four', 'five'][len(result['seeds'])]} seed" in expect
    (linear,) = (b for name, b in result["baselines"].items() if "logistic regression" in name)
    assert f"logistic regression {100 * linear['accuracy']:.0f} %" in expect


def test_a_study_by_cross_validation_stands_in_its_row(tmp_path):
    arms = {name: {"accuracy": [low, low + 0.1]} for name, low in (("a", 0.5), ("b", 0.6), ("c", 0.7))}
    apart = {
        n: {"interval": [x - 4.0, x + 4.4], "p_holm": p} for n, x, p in (("b", 10, 0.06), ("c", 20, 0.04))
    }
    found = {"arms": arms, "seeds": [0, 1], "n": 250, "folds": 5, "baseline": "a", "differences": apart}
    file = tmp_path / "folds-hotdog-heads-backbone.json"
    file.write_text(json.dumps(found), encoding="utf-8")
    told = read_study_result("hotdog-heads-backbone", tmp_path)
    assert told == (
        "**55.0% to 75.0%** (3 arms, 2 seeds, 250 examples, each evaluated once by 5-fold cross-validation). "
        "Different from `a` after correction: `c`. The 95 % intervals of the differences are at most ± 4 points wide "
        "([Studies, measured](studies.md))"
    )
    apart["c"]["p_holm"] = 0.05
    file.write_text(json.dumps(found), encoding="utf-8")
    assert "No significant difference from `a` for any of the 2 arms" in read_study_result(
        "hotdog-heads-backbone", tmp_path
    )
