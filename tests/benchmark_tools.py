"""Benchmarks as modules, by their names."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"


def benchmark(name: str) -> ModuleType:
    """The benchmark of this name, from whichever folder has it."""
    (file,) = BENCHMARKS.glob(f"*/{name}.py")
    return import_module(f"benchmarks.{file.parent.name}.{name}")
