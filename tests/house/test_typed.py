"""The public interface for type checkers: a program as users write them is clean, and it does what it says."""

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import glassformer as gf

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("typed_program.py")
NAMES = [name for name in gf.__all__ if name != "__version__"]


@pytest.fixture(scope="module")
def pyright_says(tmp_path_factory) -> dict[str, list[dict]]:
    """What pyright finds in programs outside the repository that import the package: file -> its lines."""
    pytest.importorskip("pyright")
    folder = tmp_path_factory.mktemp("programs")
    asked = "".join(f"reveal_type(gf.{name})\n" for name in NAMES)
    wrong = "gf.TextClassifier().predit(['a'])\ngf.Packing((3,)).total.nosuch\n"
    shutil.copy(PROGRAM, folder / "program.py")
    (folder / "names.py").write_text(f"import glassformer as gf\n{asked}{wrong}", encoding="utf-8")
    settings = {"typeCheckingMode": "basic", "pythonVersion": "3.11", "extraPaths": [str(ROOT / "src")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--pythonpath",
        sys.executable,
        "--outputjson",
        "-p",
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if not done.stdout.startswith("{"):  # it fetches its own Node where there is none
        pytest.skip(f"pyright does not start: {done.stderr.strip()[:200]}")
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == 2
    lines = found["generalDiagnostics"]
    return {
        name: [line for line in lines if Path(line["file"]).name == name]
        for name in ("program.py", "names.py")
    }


def test_the_package_says_that_it_is_typed():
    assert (Path(gf.__file__).parent / "py.typed").is_file()
    assert set(gf.__all__) == {*gf._PUBLIC, *gf._MODULES, "__version__"}


def test_a_users_program_is_clean(pyright_says):
    assert pyright_says["program.py"] == []


def test_public_names_are_no_unknowns(pyright_says):
    found = pyright_says["names.py"]
    told = [line["message"] for line in found if line["severity"] == "information"]
    assert len(told) == len(NAMES)
    assert not [line for line in told if 'is "Any"' in line or "Unknown" in line]
    assert [line["rule"] for line in found if line["severity"] == "error"] == [
        "reportAttributeAccessIssue"
    ] * 2


def test_the_program_runs(tmp_path):
    runpy.run_path(str(PROGRAM))["main"](tmp_path)
    assert (tmp_path / "texts" / "manifest.json").is_file()
    assert (tmp_path / "masked" / "manifest.json").is_file()
