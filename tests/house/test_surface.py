"""What users rely on stays: nothing of the frozen surface is lost, and no default changes. More may come.

``surface.json`` was written from the last commit before the rebuild; it is written anew only where something is meant to
go, with a line in the changelog.
"""

import copy
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HOUSE = Path(__file__).parent
FROZEN = json.loads((HOUSE / "surface.json").read_text(encoding="utf-8"))
sys.path.insert(0, str(HOUSE))
import surface  # noqa: E402
import surface_runs  # noqa: E402

sys.path.remove(str(HOUSE))


@pytest.mark.parametrize("part", ["names", "verbs", "recipes", "http", "exit_codes"])
def test_nothing_that_users_rely_on_is_lost(part, tmp_path, monkeypatch):
    if part == "http" and not find_spec("fastapi"):
        pytest.skip("fastapi is not installed")
    monkeypatch.chdir(tmp_path)
    now = json.loads(json.dumps(getattr(surface, part)()))
    assert list(surface.lost(FROZEN[part], now, part)) == []


def test_no_option_comes_or_changes_unnoticed():
    """``python tests/house/surface.py --verbs`` takes in what is meant to be new."""
    assert json.loads(json.dumps(surface.verbs())) == FROZEN["verbs"]


def runs_now(kinds: list[str], folder: Path) -> dict:
    out = folder / "runs.json"
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(HOUSE / "surface_runs.py"),
        str(out),
        str(folder / "work"),
        *kinds,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.mark.slow  # tests/records holds the same files and keys of today's code
def test_a_run_and_its_verbs_leave_what_they_did(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    surface_runs.write_pairs(tmp_path / "pairs.csv")
    assert list(surface.lost(FROZEN["runs"]["text"], surface_runs.RUNS["text"](), "text")) == []


@pytest.mark.slow
def test_runs_of_every_kind_leave_what_they_did(tmp_path):
    kinds = [kind for kind in FROZEN["runs"] if kind != "text"]
    now = runs_now(kinds, tmp_path)
    assert list(surface.lost({kind: FROZEN["runs"][kind] for kind in kinds}, now)) == []


def test_what_is_lost_is_seen_and_what_is_added_is_not():
    old = {
        "f": {"by_place": ["a", "b"], "parameters": {"a": "(none)", "b": "1"}},
        "keys": ["x", "y"],
        "code": 2,
    }
    assert list(surface.lost(old, old)) == []
    new = copy.deepcopy(old)
    new["f"]["parameters"]["c"], new["g"] = "3", 1
    new["f"]["by_place"].append("c")
    new["keys"].insert(0, "z")
    assert list(surface.lost(old, new)) == []
    new["f"]["parameters"]["b"], new["code"] = "2", 1
    new["f"]["by_place"] = ["b", "a"]
    new["keys"].remove("y")
    assert list(surface.lost(old, new)) == [
        "f: by place it took ['a', 'b'], now ['b', 'a']",
        "f.parameters.b: was '1', is '2'",
        "keys: 'y' gone",
        "code: was 2, is 1",
    ]
    bounds = [{"type": "string", "maxLength": 100}]
    assert list(surface.lost(bounds, [{"type": "string", "maxLength": 255}])) == []
    for less in (
        {"type": "string", "maxLength": 99},
        {"type": "number", "maxLength": 255},
        {"type": "string"},
    ):
        assert len(list(surface.lost(bounds, [less]))) == 1
    assert len(list(surface.lost(["a"], [{"maxLength": 1}]))) == 1
    del new["f"]["parameters"]["b"]
    assert "f.parameters.b: gone" in list(surface.lost(old, new))
    new["f"]["parameters"]["**"] = "(none)"  # whatever the other package's class takes
    assert "f.parameters.b: gone" not in list(surface.lost(old, new))
