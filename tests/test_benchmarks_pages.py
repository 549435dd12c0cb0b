"""Tables of the pages, from result files of a few numbers: what each line says."""

import json
import re
import tomllib
from types import SimpleNamespace
from typing import Any

import pytest

from .benchmark_tools import ROOT, benchmark

RATIO = {"median": 2.0, "min": 1.5, "max": 2.5}
TOLD = "2.0 × (1.5 to 2.5)"
MEASURED = {
    "machine": {"cpu": "X", "load_before": [0.5], "threads": 1},
    "threads": 1,
    "versions": {"torch": "2", "transformers": "5.0"},
    "date": "2026-01-02T03",
    "seed": 0,
    "rounds": 3,
}
speed, quality, tables = (benchmark(name) for name in ("tables_speed", "tables_quality", "tables"))


PAGES = dict(tables.MADE)


@pytest.mark.parametrize("page", [*PAGES, "docs/reliability.md"])
def test_a_page_is_what_its_result_files_say(page):
    if page not in PAGES:
        pytest.importorskip("accelerate")
        reliability = benchmark("reliability")
        PAGES[page] = lambda text: reliability.page(reliability.read())
    text = (ROOT / page).read_text(encoding="utf-8")
    assert PAGES[page](text) == text


@pytest.fixture
def keep(monkeypatch, tmp_path):
    """Puts a result file where the tables look; nothing else lies there."""
    monkeypatch.setattr(benchmark("markdown"), "RESULTS", tmp_path)

    def write(name: str, result: dict[str, Any]) -> None:
        (tmp_path / f"{name}.json").write_text(json.dumps(result), encoding="utf-8")

    return write


def test_what_was_not_measured_is_told_with_its_command(keep):
    silent = {
        "recipes",
        "highlights",
        "masked",
        "translations",
        "traps",
        "levels",
        "serve",
        "auto",
        "auto-images",
        "task-price",
    }
    for name, make in tables.TABLES.items():
        if name not in silent:  # which have a line for each file that is there, or no file here
            assert make().startswith("Not measured yet: `"), name
    assert speed.pictures("base") == "Not measured yet: `make bench-train_pictures ARGS='--size base'`."


def test_table_of_a_comparison(keep):
    rounds = benchmark("rounds")
    windows = {"peer": [(2.0, 2.5), (4.0, 2.3)], "glassformer": [(1.0, 2.4), (1.0, 2.6)]}
    contenders = []
    for name, found in windows.items():
        turns = iter([rounds.Window(6, 60, 9.0, 9.0), *(rounds.Window(6, 60, *each) for each in found)])
        contenders.append(rounds.Contender(name, {}, lambda turn, turns=turns: next(turns), noun="pictures"))
    result = MEASURED | rounds.compared(contenders, 2)
    assert result["contenders"][0]["windows"][0] == {"pictures": 6, "tokens": 60, "seconds": 2.0, "loss": 2.5}
    keep("train_pictures-base", result)
    lines = speed.pictures("base").splitlines()
    assert lines[2] == "| peer | 2.2 (1.5 to 3.0) | 3.0 × (2.0 to 4.0) | -4.0% |"
    assert lines[3] == "| glassformer | 6.0 (6.0 to 6.0) |  |  |"
    assert lines[5] == "Measured on X, 1 thread, load before 0.5; torch 2, 2026-01-02."


def test_a_level_that_was_not_at_hand_says_so(keep):
    keep("train_imdb-avx2", {"glassformer_against": {"HF Trainer, at its best": RATIO}})
    labels = {"glassformer_against": {"OpenVINO, fp32": RATIO}, "int8_against": {"OpenVINO, fp32": RATIO}}
    keep("inference-avx2", {"labels": labels})
    labels = {"glassformer_against": {"OpenVINO, bf16": RATIO | {"median": 2.2}}}
    keep("inference", {"labels": labels})
    keep("inference-avx512", {"labels": labels, "int8_gate": {"passed": False}})
    keep("word2vec-fit-avx512", {"epochs": {"1": {"ratio": RATIO}, "5": {"ratio": RATIO}}})
    assert speed.levels().splitlines()[2:] == [
        f"| Prediction: OpenVINO | 2.2 × (1.5 to 2.5) | 2.2 × (1.5 to 2.5) | {TOLD} |",
        f"| Prediction, ours in int8: OpenVINO | not measured | gate not passed | {TOLD} |",
        f"| Sentences to word vectors, 1 epoch: gensim | not measured | {TOLD} | not measured |",
        f"| Sentences to word vectors, 5 epochs: gensim | not measured | {TOLD} | not measured |",
        f"| Fine-tuning MiniLM: HF Trainer, at its best | not measured | not measured | {TOLD} |",
    ]


def test_a_seed_that_stood_beside_other_work_does_not_tell_the_time(keep):
    runs = [{"seconds": {"train": 60 * minutes}, "machine": {"threads": 1}} for minutes in (47, 34, 110)]
    keep("recipe-cifar10-vit-stem", {"accuracy": {"mean": 0.832}, "seeds": [0, 1, 2], "runs": runs})
    (line,) = tables.highlights().splitlines()[2:]
    assert line.endswith("| 83.2% (3) | – | 47 min on 1 thread |")


def test_the_readme_says_how_often_a_killed_training_went_on(keep):
    keep(
        "reliability", {"rows": {"kills": {"run": 11, "passed": 7}, "trainer_kills": {"run": 5, "passed": 2}}}
    )
    assert tables.kills() == "7 of 11 tries (Hugging Face's Trainer: 2 of 5)"


def test_the_readme_has_the_mean_accuracy_of_the_demo(keep):
    keep("demo", {"draws": [{"ours": {"accuracy": 0.7}}, {"ours": {"accuracy": 0.8}}]})
    assert tables.demo("ours") == "75"


def test_texts_of_the_data_mean_nothing_in_a_page():
    assert quality.verbatim("a *b* <br> [c](d)\n| e_f") == r"a \*b\* \<br\> \[c\](d) \| e\_f"


# --- reliability and packages ---------------------------------------------------------------------


PASSED = {"seconds": 2.0, "load_before": 0.5}


def column(**steps: Any) -> dict[str, Any]:
    return {"python": "3.13.0", "package": "wheel", "torch": "any", "installer": "uv", "steps": steps}


def test_a_column_of_packages_counts_what_passed(keep):
    steps = {
        "core": PASSED,
        "torch": PASSED | {"said": "2.13.0+cu130"},
        "demo --quick": {"seconds": 17.4, "load_before": 1.26, "processor_seconds": 15.6},
        "tests": PASSED | {"said": "113 passed, 2 skipped in 7.00s"},
        "[onnx]": PASSED,
        "[onnx] imports": PASSED,
        "[onnx] tests": PASSED | {"said": "3 passed in 1.00s"},
        "[scale]": {"failed": "no wheel"},
        "[mlflow]": PASSED,
        "[mlflow] imports": PASSED,
        "[mlflow] tests": {"failed": "1 failed"},
    }
    keep("packages", MEASURED | {"tried": [column(**steps)]})
    lines = tables.packages().splitlines()
    assert lines[2] == (
        "| 3.13.0 | wheel | 2.13.0+cu130 | 17 s, load 1; 16 s of the processor | 113 | 2 of 3, not [scale] | 3, failures in [mlflow] |"
    )
    assert lines[-1].startswith("Installed by uv on 3.13,")


def test_a_core_that_was_not_installed_says_why(keep):
    tried = [column(core={"failed": "no torch for this Python\nmore"}), column() | {"python": "3.9.1"}]
    keep("packages", MEASURED | {"tried": tried})
    lines = tables.packages().splitlines()
    assert lines[2] == "| 3.9.1 | wheel | any build | not reached | | | |"
    assert lines[3] == "| 3.13.0 | wheel | any build | no torch for this Python | | | |"


# --- advice where a default falls short -----------------------------------------------------------


def untuned_row(model: str, ours: float, change: str = "", seed: int = 0) -> dict[str, Any]:
    settings = ["class_weight=balanced", "monitor=macro_f1", *(["vectors=word2vec"] if change else [])]
    about = {"data": "goemotions, five classes", "model": model, "change": change, "seed": seed}
    scores = {"macro_f1": ours, "tfidf": {"macro_f1": 0.6}, "classes": {"joy": 3, "anger": 5}}
    return about | scores | {"settings": settings, "train_seconds": 6000.0, "cpu_seconds": 300.0}


def test_what_falls_short_is_tried_with_changes():
    tool = benchmark("untuned")
    args = SimpleNamespace(only=["goemotions"], seeds=[0, 1])
    first = list(tool.wanted(args, []))
    assert [(model, seed) for _, model, seed, _ in first] == [(m, s) for s in (0, 1) for m in tool.MODELS]
    rows = [untuned_row(m, 0.58 if m == "textcnn" else 0.595, seed=s) for m in tool.MODELS for s in (0, 1)]
    (change,) = tool.wanted(args, rows)  # the others are less than a point below
    name = "word vectors of its own texts"
    assert (change[1], change[2], change[3].name) == ("textcnn", 0, name)
    assert list(tool.wanted(args, [*rows, untuned_row("textcnn", 0.6, name)])) == []


def test_tables_are_drawn_from_train_and_judged_on_validation(monkeypatch, tmp_path):
    tool, asked = benchmark("untuned"), []

    def rows_of(name: str, split: str) -> list[dict]:
        asked.append(split)
        if name == "ntc-scv":
            return [{"text": f"{split} {i}", "label": i % 2} for i in range(40)]
        return [{"text": f"{split} {i}", "labels": [i % 7] if i % 3 else [1, 2]} for i in range(70)]

    monkeypatch.setattr(tool, "rows_of", rows_of)
    found = tool.reviews()
    labels = [label for _, label in found["train"]]
    assert (labels.count("positive"), labels.count("negative")) == (4, 20)  # a fifth of twenty
    assert len({label for _, label in tool.comments()["validation"]}) == 5
    assert set(asked) == {"train", "validation"}  # the test split is not opened
    tool.write_tables(found, tmp_path / "table", limit=7)
    assert (tmp_path / "table" / "test.csv").read_text().count("validation ") == 7


@pytest.mark.parametrize("better", [0.65, 0.55])
def test_the_page_says_what_to_change(keep, better):
    rows = [untuned_row("textcnn", 0.55), untuned_row("textcnn", 0.57, seed=1)]
    rows += [untuned_row("textcnn", 0.56, "word vectors"), untuned_row("encoder-small", better)]
    keep("untuned", MEASURED | {"rows": rows, "seeds": [0, 1]})
    line = "| goemotions, five classes | textcnn | 56.0% (55.0% to 57.0%) | 60.0% (60.0% to 60.0%) | -4.0 points | 5 min |"
    assert line in quality.untuned()
    said = quality.untuned_changes()
    assert "**textcnn** on goemotions, five classes is 4.0 points below TF-IDF" in said
    assert "`--set vectors=word2vec` (word vectors) adds 1.0 (one seed), -4.0 compared with TF-IDF." in said
    assert ("Take `encoder-small` there (+5.0 points)." in said) == (better > 0.6)
    assert ("take TF-IDF" in said) == (better < 0.6)


def test_the_named_pythons_were_tried():
    result = json.loads((ROOT / "benchmarks" / "results" / "packages.json").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = set(re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"])))
    needed = ("core", "demo --quick", "tests")
    passed = {
        t["python"].rpartition(".")[0]
        for t in result["tried"]
        if t["package"] == "wheel" and all("seconds" in t["steps"].get(step, {}) for step in needed)
    }
    assert named
    assert named <= passed


def test_pages_that_were_looked_at_before_keep_their_day():
    merged = pytest.importorskip("playwright") and benchmark("pages").merged

    def result(day: str, *names: str, **faults: list[str]) -> dict:
        told = {f"{name}, 400 px, dark": found for name, found in faults.items()}
        return {
            "date": day,
            "commit": day,
            "pages": [*names],
            "views": 3 * len(names),
            "longest_line": 70,
            "faults": told,
        }

    first = result("mon", "a", "b", "c", a=["wide"], b=["pale"])
    second = merged(first, result("tue", "b", "d"))
    assert second["faults"] == {"a, 400 px, dark": ["wide"]}
    third = merged(second, result("wed", "a", a=["long"]))
    assert third["earlier"] == [
        {"date": "mon", "commit": "mon", "pages": ["c"]},
        {"date": "tue", "commit": "tue", "pages": ["b", "d"]},
    ]
    assert (third["pages"], third["views"]) == (["a", "c", "b", "d"], 12)
    assert third["faults"] == {"a, 400 px, dark": ["long"]}
