"""Settings of a whole process that make glassformer faster. No import makes them: a process is its user's.

This module imports no torch, since two of the settings are read when torch is loaded.
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

ENCODING = "GLASSFORMER_ENCODING"  # names that of files which are not UTF-8
OPTION = "--encoding"  # which sets it for one command
READING = {  # key of recipes -> the option and the environment variable that say how tables are read
    "encoding": (OPTION, ENCODING),
    "quoting": ("--quoting", "GLASSFORMER_QUOTING"),
    "header": ("--header", "GLASSFORMER_HEADER"),
}

# Threads that wait for each other look a thousand times, some ten microseconds, and then sleep: beside
# other work, looking on can be many times slower, and sleeping at once costs small models a third of an idle
# machine's speed. The second name is GNU's, which torch has on Linux, and goes before the first.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}
# oneDNN, and torch on top of it (LRU_CACHE_CAPACITY), each keep a compiled product and its workspace for the
# last 1,024 shapes. Packed batches have a new number of rows each time, so most are never asked for again; 64
# keep the hits, and memory stays flat.
SETTINGS = WAITING | {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}

# What switches off the usage reports of libraries that send them unless they are told not to.
NO_TELEMETRY = {
    "ORT_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def disable_telemetry(environment: MutableMapping[str, str]) -> None:
    """Switch off the usage reports of ONNX Runtime, MLflow and Ray in the environment of a process of ours.

    ONNX Runtime's own function comes too late: on import it has written a device id and looked up a host.
    A library's caller decides for their own process, so only the command line and processes that glassformer
    starts call this.
    """
    environment.update(NO_TELEMETRY)


_FILTERS = threading.Lock()
_ignored: Counter[tuple[Any, ...]] = Counter()  # filters of ``without_warnings``: how many are inside


@contextmanager
def without_warnings(
    module: str = "", category: type[Warning] = Warning, message: str = ""
) -> Iterator[None]:
    """Inside, what a library warns of is not shown; all other warnings are, in every thread.

    Python has one list of filters for all threads, and ``warnings.catch_warnings`` puts back the whole of it:
    of two that overlap, the later one leaves the filters of the first behind. So one filter is added by the
    first and taken out by the last, and nothing else is touched.

    Args:
        module: a pattern for the start of the names of the modules that warn.
        message: a pattern for the start of what they say.
    """
    made = ("ignore", re.compile(message, re.IGNORECASE) if message else None, category)
    made = (*made, re.compile(module) if module else None, 0)  # as ``filterwarnings`` makes it
    with _FILTERS:
        _ignored[made] += 1
        if made not in warnings.filters:
            warnings.filterwarnings("ignore", message, category, module)
    try:
        yield
    finally:
        with _FILTERS:
            _ignored[made] -= 1
            if not _ignored[made]:
                with suppress(ValueError):  # somebody has put back filters from before
                    warnings.filters.remove(made)  # type: ignore[attr-defined]  # a list


_POOLS = threading.RLock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, scikit-learn computes with one thread: its steps are short, and threads that wait for each
    other cost more than they.

    The libraries below it have one number for the process, so one thread of Python at a time sets it, and
    gives it back.
    """
    from threadpoolctl import threadpool_limits

    with _POOLS, threadpool_limits(1):
        yield


def tune_process() -> None:
    """Set this process up for training and prediction on a processor, as the command line does for itself.

    Call it first in your own program, before torch is imported: torch reads the environment once. It sets

    * ``OMP_WAIT_POLICY=PASSIVE`` and ``GOMP_SPINCOUNT=1000``: threads that wait look a thousand times and
      then sleep, so that beside other work they cost less than by looking on;
    * ``ONEDNN_PRIMITIVE_CACHE_CAPACITY=64`` and ``LRU_CACHE_CAPACITY=64``: memory stays flat;
    * glibc's allocator to keep freed blocks for the next step.

    What stands in the environment already stays; where one of the first two does, the other is not set.
    Numbers are the same with and without; what it gains in speed and memory is measured in
    ``docs/benchmarks.md``, under "Process tuning".
    """
    chosen = any(name in os.environ for name in WAITING)
    for name, value in SETTINGS.items():
        if not (chosen and name in WAITING):
            os.environ.setdefault(name, value)
    keep_freed_memory()


@cache
def keep_freed_memory() -> None:
    """Let glibc keep large freed blocks instead of returning them: a training step asks for the same sizes
    again and again, and fresh pages from the kernel cost time. Linux only.
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
