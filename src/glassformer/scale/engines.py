"""Map a function over items: serially in this process, or as Ray tasks on any number of machines.

The functions (run a job of a study, score a shard) can be repeated at any time and then do only what is
missing. So if a machine fails or the command is stopped, only unfinished items are lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from glassformer.errors import BadValueError, GlassformerError, NotInstalledError

ENGINES = ("serial", "ray")
# A cluster started here uses only this machine and listens only on the loopback address.
LOCAL: dict[str, Any] = {
    "include_dashboard": False,
    "num_cpus": os.cpu_count(),
    "_node_ip_address": "127.0.0.1",
}
Work = Callable[[Any], Any]


def check_engine(engine: str) -> None:
    """Raise ConfigError for an unknown engine."""
    if engine not in ENGINES:
        raise BadValueError(f"no engine {engine!r}", where="--engine", fix=f"Use {' or '.join(ENGINES)}")


def needs(threads: int, device: str) -> dict[str, int]:
    """CPUs and GPUs of one call, as arguments for ``mapped``.

    Args:
        threads: number of threads; 0: torch's default, which under Ray is the declared number of cores, one.
        device: ``cpu``, ``cuda`` or ``auto``, which is a GPU if this machine has one.
    """
    import torch

    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    return {"cpus": max(1, threads), "gpus": int(on_gpu)}


def mapped(
    engine: str, work: Work, items: Iterable[Any], *, cpus: int = 1, gpus: int = 0
) -> Iterator[tuple[Any, Any]]:
    """Yield (item, ``work(item)``) for each item, as they are finished.

    Args:
        engine: ``serial``, or ``ray``: on the cluster at ``RAY_ADDRESS``, or on a new local one.
        work: a picklable function: a named one, or a ``partial`` of it.
        cpus: cores per call, which limit the number of parallel calls; reduced to what the largest machine
            has.
        gpus: GPUs per call; reduced to what the largest machine has.
    """
    check_engine(engine)
    if engine == "serial":
        return ((item, work(item)) for item in items)
    return _on_ray(work, list(items), cpus, gpus)


def _on_ray(work: Work, items: list[Any], cpus: int, gpus: int) -> Iterator[tuple[Any, Any]]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
    # tasks that ask for no GPU leave it visible
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray  # pyright: ignore[reportMissingImports]  # of the extra
    except ImportError:
        fix = "pip install 'glassformer[scale]', or '.[scale]' in a clone"
        raise NotInstalledError("Ray is not installed", where="engine", fix=fix) from None
    begun = not ray.is_initialized()
    if begun:
        address = os.environ.get("RAY_ADDRESS")
        ray.init(address=address, log_to_driver=False, configure_logging=False, **({} if address else LOCAL))
    try:
        # A task that asks for more than any machine has would wait forever. Without a GPU, ``work`` raises an
        # error that names it.
        resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        cpus = max(1, min(cpus, int(max(one.get("CPU", 0) for one in resources))))
        gpus = min(gpus, int(max(one.get("GPU", 0) for one in resources)))
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=3)(work_on)
        waiting: dict[Any, Any] = {}
        remaining = iter(items)
        # Submit only a few more tasks than there are cores, to limit the cluster's memory use.
        max_pending = 4 * max(1, int(ray.cluster_resources().get("CPU", 1)) // cpus)
        while True:
            for item in remaining:
                waiting[task.remote(work, item)] = item
                if len(waiting) >= max_pending:
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


def work_on(work: Work, item: Any) -> tuple[bool, Any]:
    """Whether ``work(item)`` failed, and its result or error. Only glassformer's errors are returned
    unchanged, since others may not be picklable."""
    try:
        return False, work(item)
    except GlassformerError as error:
        return True, error
    except Exception as error:
        return True, GlassformerError(f"{type(error).__name__}: {error}")
