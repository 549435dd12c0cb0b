"""Compiles the kernels in C when glassformer is built; hatchling calls it, for wheels and editable installs.

    python hatch_build.py        the same by hand, into src: with ziglang where it is installed, else with cc

One library a level (``src/glassformer/nn/kernels/levels.py``). The compiler is ``ziglang``, which pip fetches for the build, so
that the system needs none and the libraries ask for no newer glibc than ``GLIBC``; where it is not, ``$CC``, cc, gcc or
clang. Without any, or on another system than Linux on x86-64, the package is pure Python.

GLASSFORMER_BUILD=pure asks for that, GLASSFORMER_BUILD=kernels makes it an error that names what is missing, and with
GLASSFORMER_BUILD=keep an editable install leaves the libraries that it finds.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # by hand
    BuildHookInterface = object

KERNELS = Path(__file__).parent / "src" / "glassformer" / "nn" / "kernels"
COMPILER = "ziglang==0.15.2; sys_platform == 'linux' and platform_machine == 'x86_64'"
GLIBC = (2, 28)  # of manylinux_2_28: what torch's own wheels ask for
# The order of additions and roundings is that of the sources, whatever the compiler.
FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=off", "-fPIC", "-shared", "-s")


def read_levels() -> ModuleType:
    """``levels.py``, without the package, which imports torch."""
    spec = importlib.util.spec_from_file_location("kernel_levels", KERNELS / "levels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find_compiler() -> tuple[str, ...] | None:
    """The command of a C compiler; None where there is none."""
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    found = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return tuple(shlex.split(found)) if found else None


def is_zig(compiler: tuple[str, ...]) -> bool:
    return "ziglang" in compiler


def target(compiler: tuple[str, ...], features: tuple[str, ...]) -> list[str]:
    """The flags that a compiler knows a level's instructions by."""
    if is_zig(compiler):
        return ["-target", "x86_64-linux-gnu." + ".".join(map(str, GLIBC)), "-mcpu=" + "+".join(features)]
    base, *more = (name.replace("_", "-") for name in features)
    return [f"-march={base}", *(f"-m{name}" for name in more)]


def compile_all(folder: Path, compiler: tuple[str, ...]) -> tuple[list[Path], list[str]]:
    """The libraries, compiled into a folder, and what could not be compiled, with the compiler's first words."""
    levels, made, failed = read_levels(), [], []
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        # zig keeps what it compiles beside the sources otherwise
        env = {**os.environ, "ZIG_LOCAL_CACHE_DIR": str(Path(fresh) / "zig")}
        for level in levels.LEVELS:
            file = Path(fresh) / level.file.name
            made_of = f'-DMADE_OF="{level.name} {levels.fingerprint()}"'
            sources = [str(KERNELS / name) for name in levels.SOURCES]
            words = [*compiler, *FLAGS, *target(compiler, level.target), made_of, *sources, "-o", str(file)]
            try:
                done = subprocess.run(
                    [*words, "-lm", "-lpthread"],
                    env=env,
                    capture_output=True,
                    text=True,
                    timeout=600,
                    check=False,
                )
                said = done.stderr.strip() if done.returncode else ""
            except OSError as error:
                said = str(error)
            if said or not file.is_file():
                failed.append(f"{level.name}: {said.splitlines()[0] if said else 'nothing came of it'}")
                continue
            file.chmod(0o755)
            os.replace(file, folder / file.name)
            made.append(folder / file.name)
    return made, failed


def build(folder: Path) -> tuple[list[Path], str]:
    """The libraries in a folder (none of an earlier build stays), and in a line what was done.

    Raises:
        RuntimeError: GLASSFORMER_BUILD=kernels, and a level could not be compiled.
    """
    wanted = os.environ.get("GLASSFORMER_BUILD", "")
    compiler = find_compiler()
    made: list[Path] = []
    failed: list[str] = []
    if wanted not in ("", "pure", "kernels", "keep"):
        raise RuntimeError(f"GLASSFORMER_BUILD={wanted}: use pure, kernels or keep, or leave it out")
    if wanted == "pure":
        failed = ["GLASSFORMER_BUILD=pure"]
    elif sys.platform != "linux" or platform.machine() != "x86_64":
        failed = [f"they are for Linux on x86-64, not for {platform.system()} on {platform.machine()}"]
    elif compiler is None:
        failed = ["no C compiler (ziglang, cc, gcc or clang) was found"]
    else:
        made, failed = compile_all(folder, compiler)
    for old in set(folder.glob("*.so")) - set(made):
        old.unlink()
    if failed and wanted == "kernels":
        raise RuntimeError("the kernels could not be built: " + "; ".join(failed))
    said = f"kernels in C: {', '.join(file.stem for file in made) or 'none'}"
    said += f", by {shlex.join(compiler)}" if made and compiler else ""
    return made, said + (f" ({'; '.join(failed)})" if failed else "")


def tag() -> str:
    """What pip knows a wheel with libraries by: any Python 3, and the glibc that the compiler was told of."""
    compiler = find_compiler()
    system = "manylinux_{}_{}".format(*GLIBC) if compiler and is_zig(compiler) else "linux"
    return f"py3-none-{system}_x86_64"


class KernelHook(BuildHookInterface):
    """Compiles into the wheel; of an editable install, into the sources, which Python reads there."""

    def dependencies(self) -> list[str]:
        return [] if os.environ.get("GLASSFORMER_BUILD") in ("pure", "keep") else [COMPILER]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" and os.environ.get("GLASSFORMER_BUILD") == "keep":
            said = "kernels in C: as they were"
        elif version == "editable":
            _, said = build(KERNELS / "lib")
        else:
            self.folder = tempfile.TemporaryDirectory()
            made, said = build(Path(self.folder.name))
            place = "glassformer/nn/kernels/lib"
            build_data["force_include"].update({str(file): f"{place}/{file.name}" for file in made})
            if made:
                build_data["pure_python"], build_data["tag"] = False, tag()
        self.app.display_info(said)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self.folder.cleanup()


if __name__ == "__main__":
    print(build(KERNELS / "lib")[1])
