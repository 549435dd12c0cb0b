"""Mapping a function over items: one by one in this process, or as Ray tasks on any number of machines.

The functions that are mapped (an arm of a study, a shard to score) may be called again at any time and then
do only what is missing, so a lost machine or a stopped command costs no more than what was running.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from glassformer.errors import BadValueError, GlassformerError, NotInstalledError

ENGINES = ("serial", "ray")
# A cluster begun here is of this machine alone: it listens on no other address.
LOCAL: dict[str, Any] = {
    "include_dashboard": False,
    "num_cpus": os.cpu_count(),
    "_node_ip_address": "127.0.0.1",
}
RunContext = Callable[[Any], Any]


def check_engine(engine: str) -> None:
    """Raises ConfigError where there is no such engine."""
    if engine not in ENGINES:
        raise BadValueError(f"no engine {engine!r}", where="--engine", fix=f"Use {' or '.join(ENGINES)}")


def needs(threads: int, device: str) -> dict[str, int]:
    """What one call computes with, in the words of ``mapped``: its threads, and a GPU where it is to use one.

    Args:
        threads: 0 leaves the number to torch, which under Ray takes the cores that are declared: one.
        device: ``cpu``, ``cuda`` or ``auto``, which is a GPU if this machine has one.
    """
    import torch

    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    return {"cpus": max(1, threads), "gpus": int(on_gpu)}


def mapped(
    engine: str, work: RunContext, items: Iterable[Any], *, cpus: int = 1, gpus: int = 0
) -> Iterator[tuple[Any, Any]]:
    """(item, ``work(item)``) of each item, as they are done.

    Args:
        engine: ``serial``, or ``ray``: on the cluster that ``RAY_ADDRESS`` names, else on one begun here.
        work: a function by name, or a ``partial`` of one, so that it can be sent to another process.
        cpus: cores that one call computes with; Ray runs as many calls on a machine as it has cores for, and
            where none has so many, one.
        gpus: GPUs that one call computes with, where there are any.

    Raises:
        ConfigError: no such engine, or Ray is not installed.
    """
    check_engine(engine)
    if engine == "serial":
        return ((item, work(item)) for item in items)
    return _on_ray(work, list(items), cpus, gpus)


def _on_ray(work: RunContext, items: list[Any], cpus: int, gpus: int) -> Iterator[tuple[Any, Any]]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing calls home
    os.environ.setdefault(
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"
    )  # tasks that ask for no GPU leave it visible
    try:
        import ray  # pyright: ignore[reportMissingImports]  # of the extra
    except ImportError:
        raise NotInstalledError(
            "Ray is not installed",
            where="engine",
            fix="pip install 'glassformer[scale]', or '.[scale]' in a clone",
        ) from None
    begun = not ray.is_initialized()
    if begun:
        address = os.environ.get("RAY_ADDRESS")
        ray.init(address=address, log_to_driver=False, configure_logging=False, **({} if address else LOCAL))
    try:
        # A task that asks for more than any machine has would wait forever; without a GPU it says what lacks.
        has = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        cpus = max(1, min(cpus, int(max(one.get("CPU", 0) for one in has))))
        gpus = min(gpus, int(max(one.get("GPU", 0) for one in has)))
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=3)(work_on)
        waiting: dict[Any, Any] = {}
        left = iter(items)
        # A few more than there are cores: a million shards are not a million objects in the cluster's memory.
        most = 4 * max(1, int(ray.cluster_resources().get("CPU", 1)) // cpus)
        while True:
            for item in left:
                waiting[task.remote(work, item)] = item
                if len(waiting) >= most:
                    break
            if not waiting:
                return
            done, _ = ray.wait(list(waiting), num_returns=1)
            for reference in done:
                failed, value = ray.get(reference)
                if failed:
                    raise value
                yield waiting.pop(reference), value
    finally:
        if begun:
            ray.shutdown()


def work_on(work: RunContext, item: Any) -> tuple[bool, Any]:
    """(whether it failed, the result or the error): an error of ours comes back as it is."""
    try:
        return False, work(item)
    except GlassformerError as error:
        return True, error
    except Exception as error:  # of any library: only its words are sure to survive the way back
        return True, GlassformerError(f"{type(error).__name__}: {error}")
