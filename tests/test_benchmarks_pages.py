"""Tables of the pages, from result files of a few numbers: what each line says."""

import json
import re
import tomllib
from types import SimpleNamespace
from typing import Any

import pytest

from .benchmark_tools import ROOT, benchmark

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


def test_texts_of_the_data_mean_nothing_in_a_page():
    assert quality.verbatim("a *b* <br> [c](d)\n| e_f") == r"a \*b\* \<br\> \[c\](d) \| e\_f"


# --- reliability and packages ---------------------------------------------------------------------


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
    assert (
        "`--set vectors=word2vec` (word vectors) adds 1.0 points (one seed); the difference from TF-IDF is then -4.0."
        in said
    )
    assert ("Better: use `encoder-small` (+5.0 points compared with TF-IDF)." in said) == (better > 0.6)
    assert ("use TF-IDF" in said) == (better < 0.6)


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
