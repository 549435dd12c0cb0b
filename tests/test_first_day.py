"""The script of a stranger's first day: steps without a training are as told, and a wrong one is noticed."""

import json
from pathlib import Path

import pytest

from .benchmark_tools import BENCHMARKS, benchmark


@pytest.fixture
def day(monkeypatch):
    return benchmark("first_day")


def quick(step) -> bool:
    """Whether a step trains nothing and needs no step before it: it looks at a table, or ``train`` refuses it."""
    words = step.do.split() if isinstance(step.do, str) else [""]
    refused = (
        words[0] == "train"
        and step.code == 2
        and "--text" in words
        and "the folder is there" not in step.what
    )
    return words[0] == "data" or refused


@pytest.mark.parametrize("kind", ["tables", "pictures"])
def test_what_the_doctor_and_refusals_say(day, kind, tmp_path, monkeypatch):
    made = day.KINDS[kind]
    monkeypatch.setitem(day.KINDS, kind, lambda home: [step for step in made(home) if quick(step)])
    rows = day.run([kind], tmp_path)
    assert len(rows) > 15
    assert [(row["step"], row["wrong"]) for row in rows if row["wrong"]] == []


def test_a_step_that_is_not_as_told_is_noticed(day, tmp_path, monkeypatch):
    def steps(home: Path):
        (home / "a.csv").write_text("text,label\na fine film,x\na dull film,y\n")
        doctor = "data doctor a.csv"
        return [
            day.Step("as told", doctor, ("2 classes",)),
            day.Step("not said", doctor, ("60 classes",)),
            day.Step("said all the same", doctor, (), 0, ("2 classes",)),
            day.Step("another code", doctor, (), 2),
            day.Step("not made", doctor, (), 0, (), ("report.html",)),
            day.Step("broken", lambda: 1 / 0),
        ]

    monkeypatch.setitem(day.KINDS, "texts", steps)
    rows = day.run(["texts"], tmp_path)
    assert [bool(row["wrong"]) for row in rows] == [False, True, True, True, True, True]


def test_the_figures_of_the_whole_day():
    found = json.loads((BENCHMARKS / "results" / "first-day.json").read_text(encoding="utf-8"))
    assert found["steps"] == len(found["taken"]) >= 120
    assert found["as_told"] == sum(not row["wrong"] for row in found["taken"]) == found["steps"]
