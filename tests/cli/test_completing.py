"""What bash, zsh and fish are offered: verbs, options, recipes, folders of runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer.cli.places import recipes, run_folders, studies


def ask(shell: str, line: str, folder: Path, kind: str = "complete") -> str:
    """What a shell gets for a command line whose last word is being typed."""
    words = line.split(" ")
    asked = {
        "_GLASSFORMER_COMPLETE": f"{kind}_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    program = "import sys; from glassformer.cli.start import run; sys.exit(run())"
    source = str(Path(__file__).parents[2] / "src")
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | asked | {"PYTHONPATH": path},
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    "shell", ["bash", *(pytest.param(s, marks=pytest.mark.slow) for s in ("zsh", "fish"))]
)
def test_every_shell_is_offered_verbs_and_recipes(shell, tmp_path):
    verbs = ask(shell, "glassformer tra", tmp_path)
    assert "train" in verbs
    assert "translate" in verbs
    assert "predict" not in verbs
    assert "europe-frozen" in ask(shell, "glassformer train euro", tmp_path)
    assert (
        "_glassformer_completion" in (script := ask(shell, "glassformer", tmp_path, "source"))
        or shell == "fish"
    )
    assert "_GLASSFORMER_COMPLETE" in script


def test_bash_is_offered_options_and_runs(tmp_path):
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "config.toml").write_text("")
    assert ask("bash", "glassformer evaluate --js", tmp_path).split() == ["--json"]
    assert ask("bash", "glassformer evaluate runs/", tmp_path).split() == ["runs/one"]


def test_folders_are_offered_by_what_they_hold(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, mark in (
        ("run", "config.toml"),
        ("model", "glassformer.json"),
        ("other", "x.txt"),
        (".hidden", "config.toml"),
    ):
        Path(name).mkdir()
        (Path(name) / mark).write_text("")
    Path("file").write_text("")
    assert run_folders("") == ["model", "other/", "run"]
    assert run_folders("ru") == ["run"]
    assert run_folders(".h") == [".hidden"]
    assert run_folders("nosuch/x") == []
    assert "europe" in recipes("eu")
    assert recipes("zz") == []
    assert "europe-pooling" in studies("europe-p")
