"""Each task's example still does what its committed record says: every verb, file, HTTP answer and graph.

A change that is meant is written anew with the command that a failure names, and read in the commit.
"""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import record  # noqa: E402
from cases import CASES, GRAPH, STOP, VERBS  # noqa: E402
from differences import differences  # noqa: E402

sys.path.remove(str(HERE))
COMMITTED = HERE / "committed"
SHOWN = 20
MORE_MODELS = ("textcnn", "lstm", "lora")  # of a task that other cases show


def check(name: str, graphs: bool) -> None:
    """Make the record of a case and compare it with the committed one."""
    wanted = json.loads((COMMITTED / f"{name}.json").read_text(encoding="utf-8"))
    if not graphs:
        wanted.pop("graphs")
        wanted["commands"] = {k: v for k, v in wanted["commands"].items() if not k.startswith(GRAPH)}
    if record.missing(record.SERVING):
        wanted.pop("http")  # nothing can be served here; the rest is compared
    found = list(differences(wanted, record.make_record(CASES[name], graphs=graphs)))
    again = f"python tests/records/record.py tests/records/committed --case {name}"
    more = f"\n... and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    assert not found, "\n".join(found[:SHOWN]) + more + f"\nIf that is meant: {again}"


@pytest.mark.parametrize("name", [name for name in CASES if name not in MORE_MODELS])
def test_it_does_what_its_record_says(name):
    check(name, graphs=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_its_graph_and_more_models_do_too(name):
    absent = record.missing(record.EXPORTING)
    if absent and name not in MORE_MODELS:
        pytest.skip(f"without {', '.join(absent)} nothing is exported")
    check(name, graphs=not absent)


def test_there_is_a_case_for_every_task_and_a_record_for_every_case():
    from glassformer.tasks.catalog import TASKS

    assert {*TASKS} <= {*CASES}
    assert {path.stem for path in COMMITTED.glob("*.json")} == {*CASES}


def test_every_verb_is_asked_of_every_task():
    """Whatever the parser knows stands in ``VERBS``, but for what is of no run and of no data."""
    import typer.main
    from tests.cli.every import leaves

    from glassformer.cli.app import build_app

    verbs = {name for name, _ in leaves(typer.main.get_command(build_app()))}
    lines = [line.removeprefix(STOP).format_map(Words()) for line in VERBS.splitlines() if line]
    asked = {verb for verb in verbs if any(f"{line} ".startswith(f"{verb} ") for line in lines)}
    asked |= {"serve"}  # record_http
    asked |= {"audit", "diff"}  # tests/audit, on models that are made for them
    asked |= {"prove"}  # tests/parity/test_proof.py
    assert verbs - asked == {"demo", "recipes", "reproduce", "data list"}


class Words(dict[str, str]):
    """``{train}`` is the verb, and whatever else stands in braces is a word."""

    def __missing__(self, key: str) -> str:
        return key


OLD: dict[str, Any] = {
    "exact": False,
    "commands": {
        "evaluate run": {"exit": 0, "out": ["accuracy 97.1 % of 13"], "n": 13, "r2": 0.91, "loss": 0.4}
    },
}


@pytest.mark.parametrize(
    ("key", "value", "differs"),
    [
        ("n", 17, True),
        ("n", "13", True),
        ("exit", 1, True),
        ("out", ["accuracy 97.2 % of 13"], False),  # a figure within what machines differ by
        ("out", ["accuracy 97.1 % of 17"], True),
        ("out", ["Accuracy 97.1 % of 13"], True),
        ("out", ["accuracy 97.1 % of 13", "next"], True),
        ("r2", 0.93, False),
        ("r2", 0.71, True),
        ("loss", 7.3, False),  # of many steps: only that it is there
        ("loss", None, True),
        ("new", 1, True),
    ],
)
def test_a_difference_is_seen_and_the_noise_of_machines_is_not(key, value, differs):
    new = copy.deepcopy(OLD)
    new["commands"]["evaluate run"][key] = value
    found = list(differences(OLD, new))
    assert bool(found) is differs
    assert all(f"commands > evaluate run > {key}" in line for line in found)
    exact = [{**side, "exact": True} for side in (OLD, new)]
    assert list(differences(*exact)), "exact records are compared to the last digit"
