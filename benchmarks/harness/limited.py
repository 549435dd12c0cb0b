"""A benchmark measured at several levels of the processor, each in a process of its own that switches keep to it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from glassformer.errors import InputError
from glassformer.nn.kernels import loading
from glassformer.process import keep_freed_memory

# What keeps torch and its libraries to a level. oneDNN's name for AVX512 without VNNI is that of its first processors.
LIMITS = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512f": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
    },
}


def at_levels(
    module: str, levels: Sequence[str], switches: Mapping[str, dict[str, str]], options: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What ``python -m module --here`` finds at each level, one thread each: its last line, as JSON."""
    names = [level.name for level in loading.LEVELS if loading.cpu_flags() >= level.flags]
    if missing := [name for name in levels if name not in names]:
        raise InputError(f"the processor has no {', '.join(missing)}")
    words = [str(word) for key, value in options.items() for word in (f"--{key}", value)]
    for name in levels:
        print(f"-- {name}", flush=True)
        own = {loading.SWITCH: name, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        command = [sys.executable, "-m", module, "--here", *words]
        env = os.environ | switches[name] | own
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
        yield name, json.loads(done.stdout.splitlines()[-1]) | {"switches": switches[name]}


def begin_here() -> dict[str, Any]:
    """One thread, memory kept, and the level that this process is kept to."""
    torch.set_num_threads(1)
    keep_freed_memory()
    found = loading.loaded()
    assert isinstance(found, loading.Loaded), found
    return {"level": found.level.title, "torch": torch.backends.cpu.get_cpu_capability()}


def about(rounds: int, seed: int) -> dict[str, Any]:
    """How it was measured, as a result file says."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {"threads": 1, "seed": seed, "rounds": rounds, "clock": "process time", "cores": cores}
