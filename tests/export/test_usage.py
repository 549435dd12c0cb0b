"""An exported script that is given nothing says how it is used, before it imports or reads anything."""

import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

SCRIPTS = Path(str(files("glassformer.export"))) / "scripts"
NAMES = sorted(path.stem for path in SCRIPTS.glob("run_*.txt"))


def started(folder: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The script in a process that has no package installed."""
    shutil.copy(SCRIPTS / f"{name}.txt", folder / "run.py")
    command = [sys.executable, "-I", "-S", str(folder / "run.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_usage_line_and_exit_code_2(tmp_path, name):
    done = started(tmp_path, name)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: python run.py ")
    assert done.stderr.count("\n") == 1
    assert ("a.png" in done.stderr) == name.endswith("pictures")
    assert ("a model of pairs: two texts for each" in done.stderr) == (
        name in ("run_text", "run_hf_text", "run_ngrams")
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [("run_vectors", ["--vectors"]), ("run_answers", ["who?"]), ("run_answers", ["who?", "Ann", "where?"])],
)
def test_a_part_of_what_is_wanted(tmp_path, name, words):
    done = started(tmp_path, name, *words)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python run.py ")


@pytest.mark.parametrize("name", NAMES)
def test_with_an_input_it_goes_on(tmp_path, name):
    """To what is missing here: a library, or the model's own files."""
    done = started(tmp_path, name, "a", "b")
    assert done.returncode == 1
    assert "usage" not in done.stderr
