"""Process-wide settings that make glassformer faster.

Importing glassformer changes no such setting: call ``tune_process`` yourself. This module does not import
torch, since torch reads two of the settings when it is loaded.
"""

from __future__ import annotations

import os
import re
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

ENCODING = "GLASSFORMER_ENCODING"  # environment variable: encoding of files that are not UTF-8
OPTION = "--encoding"  # the option that sets this encoding for one command
READING = {  # recipe key -> option and environment variable for reading tables
    "encoding": (OPTION, ENCODING),
    "quoting": ("--quoting", "GLASSFORMER_QUOTING"),
    "header": ("--header", "GLASSFORMER_HEADER"),
}

# OpenMP threads that wait spin a thousand times (about ten microseconds) and then sleep. On a busy machine,
# spinning longer can be many times slower; without spinning, small models lose a third of their speed on an
# idle machine. GOMP_SPINCOUNT is GNU's (torch on Linux) and takes precedence over OMP_WAIT_POLICY.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}
# oneDNN, and torch on top of it (LRU_CACHE_CAPACITY), each cache a compiled kernel and its workspace for the
# last 1,024 shapes. Packed batches have a new number of rows each time, so most entries are never used again.
# With 64 entries the cache hits stay, and memory use stays flat.
SETTINGS = WAITING | {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}

# Switch off the usage reports of libraries that send them by default.
NO_TELEMETRY = {
    "ORT_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def disable_telemetry(environment: MutableMapping[str, str]) -> None:
    """Switch off the usage reports of ONNX Runtime, MLflow and Ray in ``environment``.

    Only the command line and processes that glassformer starts call this; elsewhere the user decides. ONNX
    Runtime's own function would come too late: its import already writes a device id and looks up a host.
    """
    environment.update(NO_TELEMETRY)


_FILTERS = threading.Lock()
_ignored: Counter[tuple[Any, ...]] = Counter()  # filter -> number of active ``without_warnings``


@contextmanager
def without_warnings(
    module: str = "", category: type[Warning] = Warning, message: str = ""
) -> Iterator[None]:
    """Thread-safe context manager that hides the warnings that match.

    Python has one list of filters for all threads, and ``warnings.catch_warnings`` restores the whole list:
    if two such contexts overlap, the one that ends later brings back the filters of the other. Here the first
    context adds one filter and the last one removes it; the rest of the list stays untouched.

    Args:
        module: regular expression for the start of the name of the module that warns.
        message: regular expression for the start of the message.
    """
    message_pattern = re.compile(message, re.IGNORECASE) if message else None
    module_pattern = re.compile(module) if module else None
    entry = ("ignore", message_pattern, category, module_pattern, 0)  # as ``filterwarnings`` stores it
    with _FILTERS:
        _ignored[entry] += 1
        if entry not in warnings.filters:
            warnings.filterwarnings("ignore", message, category, module)
    try:
        yield
    finally:
        with _FILTERS:
            _ignored[entry] -= 1
            if not _ignored[entry]:
                with suppress(ValueError):  # other code has restored an older list of filters
                    warnings.filters.remove(entry)  # type: ignore[attr-defined]  # a list


_POOLS = threading.RLock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Context manager: scikit-learn computes with one thread, which is faster for its short steps.

    The number of threads of OpenMP and BLAS is process-wide, so only one Python thread at a time sets it; it
    is restored at the end.
    """
    from threadpoolctl import threadpool_limits

    with _POOLS, threadpool_limits(1):
        yield


def tune_process() -> None:
    """Tune this process for training and prediction on a CPU, as the command line does.

    Call it at the start of your program, before torch is imported: torch reads the environment once. It sets

    * ``OMP_WAIT_POLICY=PASSIVE`` and ``GOMP_SPINCOUNT=1000``: waiting threads spin only briefly and then
      sleep, which costs less on a busy machine;
    * ``ONEDNN_PRIMITIVE_CACHE_CAPACITY=64`` and ``LRU_CACHE_CAPACITY=64``: memory use stays flat;
    * glibc's allocator to keep freed blocks for the next step.

    Variables that are already set keep their values; if one of the two about waiting is set, so is not the
    other. Results do not change. ``docs/benchmarks.md`` ("Process tuning") has the gains in speed and memory.
    """
    user_chose = any(name in os.environ for name in WAITING)
    for name, value in SETTINGS.items():
        if not (user_chose and name in WAITING):
            os.environ.setdefault(name, value)
    keep_freed_memory()


@cache
def keep_freed_memory() -> None:
    """Let glibc keep large freed blocks instead of returning them to the system (Linux only).

    Each training step allocates the same sizes, and new pages from the kernel cost time.
    """
    import ctypes

    trim_threshold, top_pad, mmap_threshold = -1, -2, -3  # M_* in malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another system, or another C library
        return
    mallopt(mmap_threshold, 2**30)
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(top_pad, 2**26)
