"""Process-wide settings that make glassformer faster.

``import glassformer`` does not change them; call ``tune_process`` yourself. This module does not import
torch, because torch reads two of the settings when it is imported.
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

ENCODING_VARIABLE = "GLASSFORMER_ENCODING"  # environment variable: encoding of files that are not UTF-8
ENCODING_OPTION = "--encoding"  # option that sets the encoding for one command
READ_OPTIONS = {  # how tables are read: recipe key -> option of the command line, environment variable
    "encoding": (ENCODING_OPTION, ENCODING_VARIABLE),
    "quoting": ("--quoting", "GLASSFORMER_QUOTING"),
    "header": ("--header", "GLASSFORMER_HEADER"),
}

# Waiting OpenMP threads spin a thousand times (about ten microseconds), and then sleep. On a busy machine,
# longer spinning can be many times slower. On an idle machine, small models lose a third of their speed
# without spinning. GOMP_SPINCOUNT is a variable of GNU's OpenMP (torch on Linux) and has precedence over
# OMP_WAIT_POLICY.
THREAD_WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}
# oneDNN and torch (LRU_CACHE_CAPACITY) cache compiled kernels and their workspaces for the last 1,024 shapes.
# Packed batches differ in their number of rows, so most entries are never used again. A cache of 64 entries
# has the same number of hits, and its memory does not grow.
SETTINGS = THREAD_WAITING | {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}

# Variables that disable usage reports of libraries
NO_TELEMETRY = {
    "ORT_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def disable_telemetry(environment: MutableMapping[str, str]) -> None:
    """Disable usage reports of ONNX Runtime, MLflow and Ray in ``environment``.

    Only the command line and processes that glassformer starts call this; elsewhere the user decides. ONNX
    Runtime's own function is too late, because its import already writes a device id and looks up a host.
    """
    environment.update(NO_TELEMETRY)


_filters_lock = threading.Lock()
_ignored: Counter[tuple[Any, ...]] = Counter()  # filter -> number of active contexts that use it


@contextmanager
def without_warnings(
    module: str = "", category: type[Warning] = Warning, message: str = ""
) -> Iterator[None]:
    """Hide matching warnings in a context; thread-safe.

    ``warnings.catch_warnings`` restores the whole list of filters, which all threads share. If two of its
    contexts overlap, the second one restores the filters of the first. Here the first context adds one
    filter, and the last context removes it.

    Args:
        module: regular expression for the start of the name of the module that warns.
        message: regular expression for the start of the message.
    """
    message_pattern = re.compile(message, re.IGNORECASE) if message else None
    module_pattern = re.compile(module) if module else None
    entry = ("ignore", message_pattern, category, module_pattern, 0)  # as ``filterwarnings`` stores it
    with _filters_lock:
        _ignored[entry] += 1
        if entry not in warnings.filters:
            warnings.filterwarnings("ignore", message, category, module)
    try:
        yield
    finally:
        with _filters_lock:
            _ignored[entry] -= 1
            if not _ignored[entry]:
                with suppress(ValueError):  # other code has restored an older list of filters
                    warnings.filters.remove(entry)  # type: ignore[attr-defined]  # a list


_thread_pools_lock = threading.RLock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let scikit-learn compute with one thread in a context, which is faster for its short steps.

    The number of threads of OpenMP and BLAS is process-wide, so other Python threads wait for the context.
    """
    from threadpoolctl import threadpool_limits

    with _thread_pools_lock, threadpool_limits(1):
        yield


def tune_process() -> None:
    """Tune this process for training and prediction on a CPU, as the command line does.

    Call it at the start of your program, before you import torch, which reads the environment only once. It
    sets

    * ``OMP_WAIT_POLICY=PASSIVE`` and ``GOMP_SPINCOUNT=1000``: waiting threads spin briefly and then sleep,
      which is faster on a busy machine;
    * ``ONEDNN_PRIMITIVE_CACHE_CAPACITY=64`` and ``LRU_CACHE_CAPACITY=64``: memory use does not grow;
    * glibc's allocator: it keeps freed blocks for the next step.

    Variables that are already set keep their values. If one of the first two variables is set, the other one
    stays unset. Results do not change. ``docs/benchmarks.md`` ("Process tuning") has the gains in speed and
    memory.
    """
    user_chose = any(name in os.environ for name in THREAD_WAITING)
    for name, value in SETTINGS.items():
        if not (user_chose and name in THREAD_WAITING):
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
    mallopt(mmap_threshold, 2**30)  # bytes
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(top_pad, 2**26)
