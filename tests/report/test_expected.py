"""What recipes and studies say is to be expected: the figures and times of their result files."""

import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from glassformer.report.published import read_study_result, without_shared_gpu
from glassformer.study.grid import load_study
from glassformer.tasks.catalog import load_recipe, recipe_names, study_names

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
SEEDS = ["", "one", "two", "three", "four", "five"]


def read(name: str) -> dict[str, Any]:
    """A result file; nothing where there is none."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


@pytest.mark.parametrize("name", recipe_names())
def test_what_a_recipe_expects_is_what_its_result_file_says(name):
    expect, result = load_recipe(name).expect, read(f"recipe-{name}")
    assert expect.startswith("not measured") != bool(result)
    told = re.search(r"; (\d+)(?: to (\d+))? (s|min) (?:on|of) ", expect)
    if not result:
        assert told is None
        return
    led = ("accuracy", "score", "entity_f1", "f1", "macro_f1")  # what a task is led by
    mean = next(result[key] for key in led if result.get(key))["mean"]
    found = re.search(r"(\d+(?:\.(\d+))?) (%|BLEU)", expect)
    assert found is not None
    digits, unit = len(found[2] or ""), 1 if found[3] == "BLEU" else 100
    assert float(found[1]) == pytest.approx(unit * mean, abs=0.501 * 10**-digits)
    seeds = re.search(r"\((one|two|three|five) seed", expect)
    assert seeds is None or SEEDS.index(seeds[1]) == len(result["runs"])
    if told is None:  # "its time says little, for the run was paused"
        return
    runs = without_shared_gpu(result["runs"])
    spent = [run["seconds"]["train"] / {"s": 1, "min": 60}[told[3]] for run in runs]
    assert float(told[1]) == pytest.approx(min(spent), abs=0.51)
    assert float(told[2] or told[1]) == pytest.approx(max(spent), abs=0.51)
    processors = {run["machine"]["cpu"].split("(")[0].split()[0] for run in runs}
    assert processors <= set(re.findall(r"Intel|AMD", expect))


@pytest.mark.parametrize("name", study_names())
def test_what_a_study_expects_is_what_its_result_file_says(name):
    expect, result, folds = str(load_study(name).expect), read(f"study-{name}"), read(f"folds-{name}")
    assert expect.startswith("not measured") != bool(result or folds)
    if folds and not result:
        means = [100 * fmean(arm["accuracy"]) for arm in folds["arms"].values()]
        by = f"by {folds['folds']}-fold cross-validation"
        assert expect.startswith(f"{min(means):.1f} to {max(means):.1f} % of {folds['n']} images {by}")
        assert f"({SEEDS[len(folds['seeds'])]} seed" in expect
    if not result:
        return
    means = [100 * arm["accuracy"]["mean"] for arm in result["arms"]]
    assert expect.startswith(f"{min(means):.1f} to {max(means):.1f} % of {result['n']} {result['judged']} ")
    minutes = sum(arm["cost"]["train_seconds"] * len(arm["seeds"]) for arm in result["arms"]) / 60
    assert f"; {minutes:.0f} min of training on " in expect
    assert f"({SEEDS[len(result['seeds'])]} seed" in expect
    (linear,) = (b for name, b in result["baselines"].items() if "logistic regression" in name)
    assert f"logistic regression {100 * linear['accuracy']:.0f} %" in expect


def test_a_study_by_cross_validation_stands_in_its_row(tmp_path):
    arms = {name: {"accuracy": [low, low + 0.1]} for name, low in (("a", 0.5), ("b", 0.6), ("c", 0.7))}
    values = (("b", 10, 0.06), ("c", 20, 0.04))
    apart = {n: {"interval": [x - 4.0, x + 4.4], "p_holm": p} for n, x, p in values}
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
    told = read_study_result("hotdog-heads-backbone", tmp_path)
    assert "No significant difference from `a` for any of the 2 arms" in told
