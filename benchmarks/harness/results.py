"""The machine in words, and result files."""

import json
import os
import statistics
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from glassformer.nn.kernels.levels import LEVELS
from glassformer.runtime import choose_device, choose_dtype, cpu_flags, machine_facts, versions

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def level() -> str:
    """The processor's own level, as the kernels' levels are named; ``none`` below all of them."""
    return next((one.name for one in LEVELS if one.flags <= cpu_flags()), "none")


def half() -> bool:
    """Whether the device computes in bf16; where it is emulated every contender's best is fp32."""
    return choose_dtype("auto", choose_device()) == torch.bfloat16


def result_file(stem: str) -> Path:
    """Where a benchmark writes: a file a level, so that a table is of one kind of processor. AMX is in plain ``stem``."""
    kind = "gpu" if choose_device().type == "cuda" else level()
    return RESULTS / (f"{stem}.json" if kind == "amx" else f"{stem}-{kind}.json")


def environment(*packages: str) -> dict[str, Any]:
    """Date, machine and versions, as every result file states them."""
    flags = ("amx_tile", "amx_bf16", "amx_int8", "avx512_bf16", "avx512f", "avx512_vnni", "avx2")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            **machine_facts(),
            "flags": [flag for flag in flags if flag in cpu_flags()],
            "load_before": [round(load, 2) for load in os.getloadavg()],
        },
        "versions": versions("numpy", "tokenizers", *packages),
        "torch_build": torch.__version__,
        "commit": commit(),
    }


def commit() -> str | None:
    """Of the code that was measured, with a + where files have changed since; None outside a clone."""
    asked = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(asked, cwd=RESULTS, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def write_result(path: Path, result: dict[str, Any]) -> None:
    """A result file, written whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(path)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and range."""
    kinds = {"median": statistics.median, "min": min, "max": max}
    return {kind: round(of(values), 3) for kind, of in kinds.items()}


def kept(path: Path) -> dict[str, Any]:
    """What a result file holds already, so that the same command goes on; empty where there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
