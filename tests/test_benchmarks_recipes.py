"""Result files of recipes: seeds of the same settings stay together, and nothing measured is lost."""

import csv
import json
from pathlib import Path

import pytest

from glassformer.config import to_toml
from glassformer.errors import ConfigError
from glassformer.tasks.catalog import load_recipe
from glassformer.tasks.run import run_task

from .benchmark_tools import BENCHMARKS, benchmark


def test_runs_of_other_settings_are_neither_taken_over_nor_lost(tmp_path, monkeypatch):
    tool = benchmark("recipes")
    digest, known = tool.settings_digest, tool.known_runs
    same = digest(load_recipe("europe"))
    assert same == digest(load_recipe("europe", ["seed=3", "verbose=1", "baselines=false", "threads=1"]))
    assert same != digest(load_recipe("europe", ["lr=0.5"]))
    file = tmp_path / "result.json"
    assert known(file, same, [0]) == []
    content = {"overrides": [], "settings": same, "runs": [{"seed": 0}, {"seed": 1}]}
    file.write_text(json.dumps(content))
    assert known(file, same, [0]) == [{"seed": 1}]
    unknown = {k: v for k, v in content.items() if k != "settings"}  # nobody knows what its settings were
    for held, asked in ((content, "other"), (unknown, same)):
        file.write_text(json.dumps(held))
        with pytest.raises(ConfigError, match=r"runs with other settings \(seeds 1\)"):
            known(file, asked, [0])
        assert known(file, asked, [0, 1]) == known(file, asked, [0], True) == []


def test_a_key_that_a_later_version_adds_leaves_settings_what_they_were(monkeypatch):
    beyond = benchmark("recipes").beyond
    before = {"task": "x", "train": {"lr": 0.1, "epochs": 3}}
    assert beyond(before, {"task": "x", "train": {"lr": 0.2, "epochs": 3}}) == {"train": {"lr": 0.1}}
    later = {"task": "x", "train": {"lr": 0.1, "epochs": 3, "new": None}, "more": {"a": 1}}
    defaults = {"task": "x", "train": {"lr": 0.2, "epochs": 3, "new": None}, "more": {"a": 1}}
    assert beyond(later, defaults) == {"train": {"lr": 0.1}}
    assert beyond(later | {"more": {"a": 2}}, defaults) == {"train": {"lr": 0.1}, "more": {"a": 2}}


def test_a_finished_run_of_other_settings_is_refused(monkeypatch, tmp_path):
    tool = benchmark("recipes")
    digest, check = tool.settings_digest, tool.check_finished
    folders = [tmp_path / name for name in ("ended", "begun", "none")]
    for folder in folders[:2]:
        folder.mkdir()
        text = to_toml(load_recipe("europe", ["lr=0.5", "seed=3", "threads=1", "baselines=false"]))
        (folder / "config.toml").write_text(text, encoding="utf-8")
    (folders[0] / "metrics.json").write_text("{}", encoding="utf-8")
    check(folders, digest(load_recipe("europe", ["lr=0.5"])))
    check(folders[1:], digest(load_recipe("europe")))  # goes on, where the training itself looks
    with pytest.raises(ConfigError, match="was trained with other settings"):
        check(folders, digest(load_recipe("europe")))


def test_the_first_seed_has_the_baselines_whenever_it_was_trained(monkeypatch):
    in_order = benchmark("recipes").in_order
    bare, known = {"seed": 0, "baselines": {}}, {"seed": 2, "baselines": {"TF-IDF": {"accuracy": 0.9}}}
    told = {"seed": 0, "baselines": known["baselines"]}
    assert in_order([known, {"seed": 1}, bare]) == [told, {"seed": 1}, known]
    own = {"seed": 0, "baselines": {"TF-IDF": {"accuracy": 0.8}}}
    assert in_order([known, own]) == [own, known]
    assert in_order([{"seed": 3}, {"seed": 1}]) == [{"seed": 1}, {"seed": 3}]


# No version of the sources gives the digest that stands there: its runs were trained between two commits.
UNTOLD = {"sick-minilm"}


def test_results_are_of_the_settings_that_their_recipes_have_now(monkeypatch):
    digest = benchmark("recipes").settings_digest
    results = [json.loads(p.read_text()) for p in sorted((BENCHMARKS / "results").glob("recipe-*.json"))]
    told = [r for r in results if "settings" in r and r["recipe"] not in UNTOLD]
    assert len(told) >= 40
    others = [r["recipe"] for r in told if r["settings"] != digest(load_recipe(r["recipe"], r["overrides"]))]
    assert others == []


def test_fp32_stands_beside_the_run_in_bf16_of_the_same_seed(tmp_path, monkeypatch):
    finding = benchmark("precision").finding
    small = ["limit=60", "epochs=1", "validation_size=20", "baselines=false", "threads=1"]
    folders = [tmp_path / precision for precision in ("bf16", "fp32")]
    for folder in folders:
        run_task(load_recipe("europe", [*small, f"precision={folder.name}"]), folder, log=str)
    found = finding("europe", *folders, [folders[0]])
    assert found["verdict"].endswith(
        "same answer to 100.0%: the number format changes no less than the seed does."
    )
    answers = [[row["predicted"] for row in predictions(folder)] for folder in folders]
    truth = [row["label"] for row in predictions(folders[0])]
    equal = sum(a == b for a, b in zip(*answers, strict=True)) / len(truth)
    assert found["n"] == len(truth)
    assert found["equal_answers"] == pytest.approx(equal)
    for name, answered in zip(("bf16", "fp32"), answers, strict=True):
        right = sum(a == b for a, b in zip(answered, truth, strict=True)) / len(truth)
        assert found["accuracy"][name] == pytest.approx(right)
    assert found["difference"] == pytest.approx(found["accuracy"]["fp32"] - found["accuracy"]["bf16"])
    assert f"the same answer to {equal:.1%} of them" in found["verdict"]
    assert [row[0] for row in found["tables"][0]["rows"]] == ["bf16", "fp32"]


def predictions(folder: Path) -> list[dict[str, str]]:
    with (folder / "predictions.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
