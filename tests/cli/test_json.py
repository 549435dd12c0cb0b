"""``--json`` of every verb: stdout is one JSON value with the keys that docs/json.md names, all else is on stderr."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from glassformer.cli.app import build_app
from glassformer.cli.output import print_json

from .every import leaves
from .tiny import settings, write_csv

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
RUNS = Path(__file__).parents[1] / "house" / "saved" / "0.1.0" / "runs"
VERBS = dict(leaves(typer.main.get_command(build_app())))


def documented() -> dict[str, tuple[bool, set[str], bool]]:
    """Command -> whether it gives a list, the keys, and whether there may be others."""
    found, text = {}, PAGE.read_text(encoding="utf-8")
    for name, keys in re.findall(r"^\| `([a-zA-Z -]+)` \| (.+) \|$", text, re.MULTILINE):
        more = "and " in keys or "`Explanation" in keys
        found[name] = (keys.startswith("list of"), set(re.findall(r"`(\w+)`", keys)), more)
    return found


DOCUMENTED = documented()


def test_every_verb_takes_it_and_is_on_the_page():
    for name, command in VERBS.items():
        assert "--json" in [option for p in command.params for option in p.opts], name
    named = [[w for w in name.split() if w.islower() and not w.startswith("--")] for name in DOCUMENTED]
    assert {" ".join(words) for words in named} == VERBS.keys()


@pytest.fixture
def asked(gf) -> Callable[..., Any]:
    """Runs a command with ``--json``; its stdout must be JSON as the page says."""

    def call(entry: str, *argv: object) -> Any:
        result = gf(*argv, "--json")
        assert result.code == 0, result
        found = json.loads(result.out)
        is_list, keys, more = DOCUMENTED[entry]
        assert isinstance(found, list) == is_list
        for item in found if is_list else [found]:
            assert keys <= item.keys() if more else keys == item.keys(), entry
        return found

    return call


def test_training_and_what_is_asked_of_a_run(asked, run: Path, reviews: Path, tmp_path: Path, monkeypatch):
    made = asked("train", "train", "--text", reviews, "--out", "again", *settings())
    assert made["metrics"] == json.loads(Path("again/metrics.json").read_text(encoding="utf-8"))
    assert Path(made["report"]).is_file()
    assert asked("evaluate", "evaluate", run)["n"] == 6
    found = asked("predict", "predict", run, "a splendid film", "a dreadful one")
    assert [a["text"] for a in found["answers"]] == ["a splendid film", "a dreadful one"]
    for a in found["answers"]:
        assert a["probability"] == max(a["probabilities"])
        assert a["label"] == found["classes"][a["probabilities"].index(a["probability"])]
    assert asked("predict --out", "predict", run, reviews, "--out", "p.csv")["examples"] == 60
    assert asked("embed", "embed", run, "a film", "--out", "v.npy")["numbers"] == 16
    explained = asked("explain", "explain", run, "a splendid film")
    assert explained[0]["text"] == "a splendid film"
    assert asked("explain --out", "explain", run, "a film", "--out", "e.html")["explained"] == 1
    assert asked("calibrate", "calibrate", run)["chosen_by"] == "validation"
    shutil.copytree(run, tmp_path / "other")
    assert len(asked("compare", "compare", run, "other")["arms"]) == 2
    assert asked("report", "report", run)["pages"] == [str(run / "report.html")]


def test_folds_and_reviews(asked, reviews: Path):
    words = ("--text", reviews, "--folds", 2, "--out", "f", *settings())
    assert len(asked("cross-validate", "cross-validate", *words)["metrics"]["folds"]) == 2
    assert asked("review-labels", "review-labels", "f")["n"] == 60


def test_other_kinds_of_models(asked):
    said = asked("translate", "translate", RUNS / "translation", "a dog runs")
    assert said["translations"][0]["text"] == "a dog runs"
    table = write_csv(Path("t.csv"), [("a dog",), ("a cat",)], "text")
    assert asked("translate --out", "translate", RUNS / "translation", table, "--out", "o.csv")["texts"] == 2
    filled = asked("fill", "fill", RUNS / "masked", "the [MASK] runs", "--top", 3)
    assert [len(words) for words in filled[0]["masks"]] == [3]
    assert len(asked("vectors", "vectors", RUNS / "vectors", "france", "--count", 2)) == 2
    assert asked("export", "export", RUNS / "lora", "--to", "hf", "--out", "hf")["opens_as"]


def test_what_needs_no_model(asked, monkeypatch, trained: Path, reviews: Path):
    made = {"file": "m.toml", "task": "text-classification", "data": "europe"}
    assert asked("new", "new", "m.toml") == made
    (europe,) = (row for row in asked("recipes", "recipes") if row["name"] == "europe")
    assert europe["task"] == "text-classification"
    assert "europe" in [row["name"] for row in asked("data list", "data", "list")]
    assert asked("data show", "data", "show", reviews)["splits"]
    assert asked("data doctor", "data", "doctor", reviews)["findings"]
    assert asked("doctor", "doctor")["machine"][0]["state"] == "ok"
    assert asked("reproduce", "reproduce", "--table")["rows"][0]["system"]


def test_what_runs_for_long(asked, monkeypatch, trained: Path):
    from glassformer.cli import demo, reproduce
    from glassformer.tasks import run as runner
    from glassformer.tasks.run import Run, read_run_recipe

    metrics = json.loads((trained / "metrics.json").read_text(encoding="utf-8"))
    made = Run(trained, metrics, trained / "report.html")
    monkeypatch.setattr(demo, "demo", lambda folder, settings, name: (made, read_run_recipe(trained)))
    assert asked("demo", "demo")["runs"].keys() == {"messages", "digits"}
    monkeypatch.setattr(runner, "run_task", lambda *given, **options: made)
    monkeypatch.setattr(reproduce, "check_weights", lambda recipe, row: None)
    row = next(r for r in asked("reproduce", "reproduce", "--table")["rows"] if r["reached"])
    assert asked("reproduce ROW", "reproduce", row["row"])["system"] == row["system"]


def test_a_server_says_where_it_listens(asked, monkeypatch, trained: Path):
    pytest.importorskip("fastapi")
    from glassformer.cli import serve
    from glassformer.serve import run as server

    monkeypatch.setattr(serve, "hand_over_signals", lambda: None)
    ready = lambda *given, on_ready, **options: on_ready("http://127.0.0.1:7")  # noqa: E731
    monkeypatch.setattr(server, "run_server", ready)
    assert asked("serve", "serve", trained) == {"address": "http://127.0.0.1:7", "runs": [str(trained)]}


def test_without_it_lines_go_to_stdout_again(gf, run: Path):
    assert gf("evaluate", run, "--json").out.startswith("{")
    shown = gf("evaluate", run)
    assert "accuracy" in shown.out
    assert shown.err == ""


def test_what_fails_prints_its_error_as_json(gf):
    result = gf("evaluate", "nowhere", "--json")
    assert (result.code, json.loads(result.out)["error"]["code"]) == (2, "not-a-run")


def test_numbers_of_numpy_and_paths_are_json(capsys):
    import numpy as np

    print_json({"a": np.float32(0.5), "b": np.array([1, 2]), "c": Path("x")})
    assert json.loads(capsys.readouterr().out) == {"a": 0.5, "b": [1, 2], "c": "x"}
    with pytest.raises(TypeError):
        print_json(object())
