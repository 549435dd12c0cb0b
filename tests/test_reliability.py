"""The rows of the reliability scoreboard, a few times each; `make soak` runs them at their full counts."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from .benchmark_tools import ROOT, benchmark

PROGRAM = """\
import json, sys
sys.path.insert(0, {root!r})
from benchmarks.reliability import {modules}
{warm}
print(json.dumps([one for one in {call}]))
"""


def run(call: str, warm: bool = False, modules: str = "kill_tests, bad_files") -> list[dict]:
    """The runs of a row, in a process of its own: it forks, and pytest's has threads."""
    program = PROGRAM.format(
        root=str(ROOT), call=call, warm="kill_tests.warm()" if warm else "", modules=modules
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("count", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_trainings_resume_to_the_same_bits(count):
    runs = run(f"kill_tests.kills({count})", warm=True)
    assert [one["killed"] and one["passed"] for one in runs] == [True] * count


ROWS = {
    "kill_tests.crashes()": 23,
    "kill_tests.full_disks(10)": 10,
    "bad_files.damaged_checkpoints(90)": 90,
    "bad_files.malicious_checkpoints()": 62,
    "bad_files.tables(300)": 360,
    "bad_files.pictures(200)": 240,
    "bad_files.readers(120)": 120,
}


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict]]:
    found = run("[{" + ", ".join(f"{row!r}: {row}" for row in ROWS) + "}]")
    return found[0]


@pytest.mark.parametrize("row", ROWS)
def test_crashes_full_disks_and_bad_files(rows, row):
    assert len(rows[row]) == ROWS[row]
    assert [one for one in rows[row] if not one["passed"]] == []


SLOW = {  # call -> how many runs it has; of hostile folders at least
    "interrupt_tests.stops(20)": 20,
    "interrupt_tests.starts(3)": 3,
    "interrupt_tests.races(10)": 10,
    "hostile_folders.labels(84)": 84,
    "hostile_folders.labels(0)": 560,
    "hostile_folders.tokenizers(24)": 24,
    "hostile_folders.tokenizers(0)": 700,
    "injections.injections(60)": 60,
    "injections.control(30)": 30,  # a page that does not escape would be noticed
    "round_trips.round_trips(6)": 6,
    "bad_files.settings(77)": 77,
}
SEEN = {  # answers that must be among the runs
    "hostile_folders.labels(84)": {"kept", "refused"},
    "hostile_folders.tokenizers(24)": {"read", "refused"},
}


@pytest.mark.slow
@pytest.mark.parametrize("call", SLOW)
def test_a_row_holds(call):
    module = call.partition(".")[0]
    if module == "injections":
        needs_a_browser()
    runs = run(
        f"(interrupt_tests.warm(), {call})[1]" if module == "interrupt_tests" else call, modules=module
    )
    assert len(runs) >= SLOW[call] if module == "hostile_folders" else len(runs) == SLOW[call]
    assert [one for one in runs if not one["passed"]] == []
    assert SEEN.get(call, set()) <= {one.get("answer") for one in runs}
    if module == "round_trips":
        assert len({one["kind"] for one in runs}) == len(runs)


def needs_a_browser() -> None:
    for package in ("playwright", "fastapi", "uvicorn", "httptools", "prometheus_client"):
        pytest.importorskip(package)
    if shutil.which("chromium") is None and shutil.which("chromium-browser") is None:
        pytest.skip("needs chromium")


@pytest.mark.slow
def test_memory_does_not_grow_with_the_steps():
    runs = run("long_run.memory(4_000)", modules="long_run")
    assert [one["step"] for one in runs] == list(range(800, 4_001, 400))
    assert [one for one in runs if not one["passed"]] == []


@pytest.mark.slow
def test_hostile_requests_are_refused_and_nobody_else_notices():
    runs = run("hostile_requests.hostile_requests(90)", modules="hostile_requests")
    assert len({one["kind"] for one in runs}) >= 15  # 13 of them or more, good ones, and the whole
    assert [one for one in runs if not one["passed"] and one["name"] != "/health"] == []


@pytest.mark.slow
def test_a_soak_of_the_server_answers_right():
    runs = run("soak_server.soak_server(600)", modules="soak_server")
    assert len(runs) == 13
    wrong = [one for one in runs if not one["passed"]]
    assert [one for one in wrong if one["name"] in ("answers", "stderr", "refused for load")] == []


@pytest.mark.slow
@pytest.mark.reaches_out
def test_an_attempt_of_a_test_is_counted(tmp_path):
    reaches = ROOT / "tests" / "test_offline.py"
    runs = run(f"offline_suite.suite([{str(reaches)!r}])", modules="offline_suite")
    assert [one["passed"] for one in runs] == [True] * 3  # two of them are meant to
    conftest = ROOT / "tests" / "conftest.py"
    (tmp_path / "conftest.py").write_text(
        "import importlib.util as u\n"
        f"spec = u.spec_from_file_location('guard', {str(conftest)!r})\n"
        "guard = u.module_from_spec(spec)\nspec.loader.exec_module(guard)\n"
        "globals().update({k: v for k, v in vars(guard).items() if not k.startswith('__')})\n"
    )
    mine = tmp_path / "test_mine.py"
    mine.write_text(
        "import socket\ndef test_it():\n    try:\n        socket.create_connection(('192.0.2.1', 80))\n"
        "    except OSError:\n        pass\ndef test_other():\n    assert True\n"
    )
    runs = run(f"offline_suite._in_own_process({str(mine)!r})['tests']", modules="offline_suite")
    assert [one["tried"] > 0 for one in runs] == [True, False]


def test_rows_of_other_benchmarks_are_counted_from_their_files(monkeypatch, tmp_path):
    rows = benchmark("borrowed")
    monkeypatch.setattr(rows, "RESULTS", tmp_path)
    load = {"statuses": {"200": 50}, "wrong": 0, "broken": 0, "refused_p99_ms": None}
    bad = load | {"statuses": {"200": 3, "500": 2}, "wrong": 1, "broken": 4}
    full = load | {"statuses": {"200": 5, "429": 7}, "refused_p99_ms": 61.4}
    served = {
        "speed": {"rounds": [{"glassformer": {"8": bad}}]},  # judged loosely: in no row
        "overload": full,
        "answers": {"date": "2026", "fp32, 1 clients": load, "fp32, 8 clients": bad, "auto, 1 clients": load},
    }
    (tmp_path / "serve.json").write_text(json.dumps(served))
    fp32, bf16 = rows.answers()
    assert (fp32["run"], fp32["passed"]) == (50 + 5 + 4, 50 + 2)
    assert (bf16["run"], bf16["passed"]) == (50, 50)
    assert (rows.refusals()["run"], rows.refusals()["passed"]) == (12, 12)
    assert "61 ms" in rows.refusals()["promise"]
    (tmp_path / "serve.json").write_text(json.dumps(served | {"overload": full | {"refused_p99_ms": 221.4}}))
    assert rows.refusals()["passed"] == 5  # too slow: none of the refusals holds
    assert rows.fuzz()["passed"] == "not measured"
    (tmp_path / "fuzz.json").write_text(
        '{"statuses": {"2xx": 31, "4xx": 17, "5xx": 2}, "slowest_health_ms": 91.0}'
    )
    assert (rows.fuzz()["run"], rows.fuzz()["passed"]) == (50, 48)
    (tmp_path / "fuzz.json").write_text('{"statuses": {"2xx": 31}, "slowest_health_ms": 1200.0}')
    assert rows.fuzz()["passed"] == 0
    one = {"inputs": 1000, "labels_changed": 0, "largest_difference": 2e-6, "seconds": 3}
    models = {"a": one, "b": one | {"labels_changed": 2}, "c": one | {"largest_difference": 2e-4}}
    (tmp_path / "export.json").write_text(json.dumps({"models": models}))
    row, said = rows.onnx()
    assert (row["run"], row["passed"]) == (3000, 1998)
    assert "2.0e-04" in said


def test_the_page_says_whether_the_whole_suite_ran_without_a_network(monkeypatch):
    soak = benchmark("reliability")
    result, told = soak.read(), []
    for fewer in (0, 7):
        result["rows"]["suite"]["run"] -= fewer
        lines = soak.page(result).splitlines()
        told.append(next(line for line in lines if line.startswith("Tests without a network")))
    assert told[0].startswith("Tests without a network (all tests): ")
    assert told[1].startswith("Tests without a network (some folders were not run in this way): ")
