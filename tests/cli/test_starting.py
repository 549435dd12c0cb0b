"""What a process imports before it answers: a server that was killed is to be back in a few seconds."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from sklearn.base import BaseEstimator, ClassifierMixin

import glassformer as gf
from glassformer.cli.app import build_app
from glassformer.sklearn_base import PlainEstimator
from glassformer.tasks.word2vec.estimator import Word2Vec

ROOT = Path(__file__).parents[2]
HEAVY = "sklearn scipy pandas pyarrow matplotlib numba PIL jinja2 huggingface_hub transformers kornia".split()
PROGRAM = f"""
import asyncio, sys
from glassformer.cli.app import main

def serve(server, sockets):  # as far as the moment at which the server is ready
    async def once():
        async with server.config.app.router.lifespan_context(server.config.app):
            print("ready", server.config.app.state.server.ready)
    asyncio.run(once())

if "serve" in sys.argv:
    import uvicorn
    uvicorn.Server.run = serve
code = main()
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


def python(program: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    paths = f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": paths}
    return subprocess.run(command, capture_output=True, text=True, env=environment, **options)


def started(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A process of the command line, which lists at its end what it has imported of ``HEAVY``."""
    return python(PROGRAM, *arguments)


def imported_by(*arguments: str) -> set[str]:
    """The modules that a command has imported when it ends."""
    program = "import sys; from glassformer.cli.app import main; main(); print(*sys.modules, file=sys.stderr)"
    return set(
        subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True
        ).stderr.split()
    )


def test_a_server_is_ready_without_heavy_packages(run: Path):
    for package in ("fastapi", "uvicorn", "httptools", "prometheus_client"):
        pytest.importorskip(package)
    done = started("serve", run, "--port", 0, "--precision", "fp32", "--threads", 1)
    assert done.returncode == 0, done.stderr
    assert "ready True" in done.stdout
    assert done.stderr == "[]\n"


def test_asking_a_model_needs_no_heavy_package_and_gives_the_same_answer(gf, run: Path):
    done = started("predict", run, "a splendid film")
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert done.stdout == gf("predict", run, "a splendid film").out


def test_an_export_needs_no_scikit_learn(run: Path, tmp_path: Path):
    done = started("export", run, "--to", "onnx", "--out", tmp_path / "onnx", "--check", 3)
    if "onnx" in done.stderr and "is not installed" in done.stderr:
        pytest.skip("needs onnx")
    assert done.returncode == 0, done.stderr
    assert "sklearn" not in done.stderr.splitlines()[-1]


def test_help_needs_not_even_torch():
    program = "import sys; from glassformer.cli.app import main; main(); print('torch' in sys.modules)"
    done = python(program, "--help", check=True)
    assert "serve" in done.stdout
    assert done.stdout.endswith("False\n")


# What is named is not there.
MISTAKES = (
    "predict X hello|predict X --data x.csv|evaluate X|explain X hello|export X --to hf --out x|fill X hello"
)
MISTAKES += (
    "|translate X hello|vectors X king|calibrate X|serve X|report X|compare X other|review-labels X|train X"
)
MISTAKES += "|train --text X.csv|cross-validate X|data doctor X.csv|doctor --X"
MISTAKES = MISTAKES.replace("X", "nosuch").split("|")


def test_a_mistake_is_told_without_torch(tmp_path: Path):
    program = """
import sys
from glassformer.cli.app import main
for line in sys.stdin:
    code = main(line.split())
    print(line.strip(), code, sorted({"torch", "sklearn", "numba", "pyarrow"} & set(sys.modules)))
"""
    done = python(program, input="\n".join(MISTAKES), check=True, cwd=tmp_path)
    assert done.stdout.splitlines() == [f"{line} 2 []" for line in MISTAKES]
    assert done.stderr.count("error: ") == len(MISTAKES)
    assert "nosuch" in done.stderr


@pytest.mark.parametrize("cls", [gf.TextClassifier, gf.ImageClassifier, gf.Translator, gf.MaskedLM, Word2Vec])
def test_in_a_library_estimators_are_those_of_scikit_learn(cls):
    assert issubclass(cls, BaseEstimator)
    assert issubclass(cls, ClassifierMixin) == hasattr(cls, "predict_proba")
    assert PlainEstimator._get_param_names.__func__(cls) == cls._get_param_names()  # type: ignore[attr-defined]
    assert PlainEstimator.get_params(cls()) == cls().get_params(deep=False)


def test_the_list_of_commands_imports_none_of_them_and_has_their_summaries():
    assert "glassformer.data.doctor" not in imported_by("--help")
    assert "glassformer.cli.train" in imported_by("train", "--help")
    listed = typer.main.get_command(build_app(imported=())).commands
    commands = typer.main.get_command(build_app()).commands
    assert {name: command.help for name, command in listed.items()} == {
        name: command.help.split("\n\n")[0] for name, command in commands.items()
    }
    panels = {name: command.rich_help_panel for name, command in commands.items()}
    assert {name: command.rich_help_panel for name, command in listed.items()} == panels
