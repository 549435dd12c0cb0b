"""The machine: device, number format, threads, seeds, and the facts a result file states."""

from __future__ import annotations

import os
import platform
import random
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.errors import ConfigError, OtherDeviceWarning


@cache
def cpu_flags() -> frozenset[str]:
    """The processor's feature flags (Linux; empty where they cannot be read)."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()


def has_fast_bf16(device: torch.device) -> bool:
    """Whether bf16 matrix products run in hardware there; elsewhere they would be very slow."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bool({"amx_bf16", "avx512_bf16"} & cpu_flags())


MEETING = ("RANK", "MASTER_ADDR", "MASTER_PORT")  # what a launcher sets beside WORLD_SIZE


def world() -> tuple[int, int]:
    """(rank, number of processes) that train together, as ``torchrun`` says it in the environment.

    Raises:
        ConfigError: variables that no launcher has set so, such as a WORLD_SIZE that is left over.
    """
    size = _variable("WORLD_SIZE", 1)
    if size < 2:
        return 0, 1
    fix = f"Unset WORLD_SIZE for one process, or use torchrun --nproc-per-node {size}"
    joined = torch.distributed.is_available() and torch.distributed.is_initialized()
    missing = [name for name in MEETING if not os.environ.get(name)]
    if missing and not joined:
        what = f"is {size}, but no launcher has started this process: not set are {', '.join(missing)}"
        raise ConfigError(what, where="WORLD_SIZE", fix=fix)
    rank = _variable("RANK", 0)
    if not 0 <= rank < size:
        raise ConfigError(f"RANK is {rank} of {size} processes", where="RANK", fix=fix)
    return rank, size


def _variable(name: str, default: int) -> int:
    """A whole number from the environment; one that is set but empty counts as not set."""
    value = os.environ.get(name) or str(default)
    try:
        return int(value)
    except ValueError:
        what = f"{value[:40]!r} is not a whole number"
        raise ConfigError(what, where=name, fix=f"Unset {name}, or start with torchrun") from None


def choose_device(name: str = "auto") -> torch.device:
    """``auto`` is the GPU where there is one; under ``torchrun`` each process of a machine has its own.

    Raises:
        ConfigError: a device that torch does not know or does not see; as ``world``.
    """
    if name in ("auto", "cuda") and torch.cuda.is_available():
        place, gpus = _variable("LOCAL_RANK", -1) if world()[1] > 1 else -1, torch.cuda.device_count()
        if place >= gpus:
            raise ConfigError(
                f"process {place} of this machine has no GPU",
                where="torchrun",
                fix=f"Use --nproc-per-node {gpus}, or --set device=cpu",
            )
        return torch.device("cuda" if place < 0 else f"cuda:{place}")
    if name == "auto":
        return torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"{name!r} is not a device", where="device", fix="Use cpu, cuda or auto") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("no GPU is visible", where="device", fix="Use device = cpu or auto")
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"{name!r} is not supported", where="device", fix="Use cpu, cuda or auto")
    return device


def with_device_here(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The settings of a saved model, its device ``auto`` if they name a GPU and this machine shows none."""
    name = str(settings.get("device"))
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = re.fullmatch(r"cuda(?::(\d{1,4}))?", name)
    if number is None or int(number[1] or 0) < seen:
        return settings
    there = "only such GPUs as come before it are" if seen else "no GPU is"
    where = "on the first of them" if seen else "on the processor"
    told = f"{folder} was saved with device = {name!r}, and {there} visible: it computes {where}"
    warnings.warn(told, OtherDeviceWarning, stacklevel=4)
    return settings | {"device": "auto"}


def send(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    """``x`` of the host on the device. Nothing waits for the copy to a GPU but what reads it there."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


def fits(device: torch.device, size: int) -> bool:
    """Whether so many bytes of data may stay in the device's memory: at most a quarter of what is free."""
    return device.type == "cuda" and size <= torch.cuda.mem_get_info(device)[0] // 4


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The number format to compute in: ``auto`` is bf16 where the hardware has it, else fp32; so is what
    lies between the products of ``int8``, which classifiers have."""
    if precision in ("auto", "int8"):
        return torch.bfloat16 if has_fast_bf16(device) else torch.float32
    try:
        return {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    except KeyError:
        raise ConfigError(
            f"{precision!r} is not a precision",
            where="precision",
            fix="Use auto, fp32 or bf16 (classifiers: int8)",
        ) from None


@cache
def _malloc_trim() -> Callable[[int], int]:
    import ctypes

    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return lambda pad: 0


def return_freed_memory() -> None:
    """Return to the system what ``process.keep_freed_memory`` keeps: after work whose sizes do not recur."""
    _malloc_trim()(0)


def cache_folder() -> Path:
    """The user's cache folder for what can be remade: ``$XDG_CACHE_HOME/glassformer``, or in ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glassformer"


def set_threads(threads: int) -> None:
    """Compute with this many threads; 0 leaves torch's own choice."""
    if threads:
        torch.set_num_threads(threads)


def set_seed(seed: int) -> None:
    """Seed every generator that training draws from."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def be_deterministic() -> None:
    """Use only algorithms that give the same bits each time; one that cannot is an error that names it.

    On a CPU that is so anyway. On a GPU sums are otherwise taken in an order that changes from run to run.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the first product is computed
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


@contextmanager
def own_generators() -> Iterator[None]:
    """Give back the caller's random generators as they were: training seeds and draws from global ones."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)


def machine_facts() -> dict[str, object]:
    """What a figure must be read beside: processor, cores, memory, GPU."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (OSError, ValueError):
        memory = 0.0
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "bf16": sorted({"amx_bf16", "avx512_bf16"} & cpu_flags()),
        "memory_gib": round(memory, 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.system(),
    }


def versions(*packages: str) -> dict[str, str]:
    """The versions of Python, torch, glassformer and of the packages named, where installed."""
    found = {"python": platform.python_version()}
    for package in ("glassformer", "torch", *packages):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def peak_memory_mb() -> float:
    """The largest resident size of this process so far, in MB."""
    import resource

    scale = 1024 if platform.system() != "Darwin" else 1  # Linux counts in KiB, macOS in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e6
