"""Map of a function over items, in this process or with Ray.

Ray runs the calls as tasks on any number of machines. The functions run a job of a study or score a shard. A
repeated call only does unfinished work, so only unfinished items are lost if a machine fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from glassformer.errors import BadValueError, GlassformerError, NotInstalledError

ENGINES = ("serial", "ray")
# Options of a new cluster, which only uses this machine, and only listens on the loopback address
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


def required_resources(threads: int, device: str) -> dict[str, int]:
    """The CPUs and GPUs that a call needs, as arguments of ``map_items``.

    Args:
        threads: number of threads; 0: one, as torch uses in Ray tasks by default.
        device: ``cpu``, ``cuda`` or ``auto``, which is a GPU if this machine has one.
    """
    import torch

    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    return {"cpus": max(1, threads), "gpus": int(on_gpu)}


def map_items(
    engine: str, work: Work, items: Iterable[Any], *, cpus: int = 1, gpus: int = 0
) -> Iterator[tuple[Any, Any]]:
    """Yield (item, ``work(item)``) for each item; with Ray, in the order in which calls finish.

    Args:
        engine: ``serial``, or ``ray`` for the cluster at ``RAY_ADDRESS`` or a new local cluster.
        work: a picklable function: a named function, or a ``partial`` of it.
        cpus: cores per call, which limit the number of parallel calls; reduced to those of a machine.
        gpus: GPUs per call; reduced to those of a machine.
    """
    check_engine(engine)
    if engine == "serial":
        return ((item, work(item)) for item in items)
    return _on_ray(work, list(items), cpus, gpus)


def _on_ray(work: Work, items: list[Any], cpus: int, gpus: int) -> Iterator[tuple[Any, Any]]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Do not hide GPUs from tasks that reserve none.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray  # pyright: ignore[reportMissingImports]  # of the extra
    except ImportError:
        fix = "pip install 'glassformer[scale]', or '.[scale]' in a clone"
        raise NotInstalledError("Ray is not installed", where="engine", fix=fix) from None
    is_new = not ray.is_initialized()
    if is_new:
        address = os.environ.get("RAY_ADDRESS")
        ray.init(address=address, log_to_driver=False, configure_logging=False, **({} if address else LOCAL))
    try:
        # A task that needs more resources than any machine has would wait forever. Without a GPU, ``work``
        # raises an error.
        resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        cpus = max(1, min(cpus, int(max(node.get("CPU", 0) for node in resources))))
        gpus = min(gpus, int(max(node.get("GPU", 0) for node in resources)))
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=3)(call_safely)
        pending: dict[Any, Any] = {}
        remaining = iter(items)
        # Submit only four tasks per core at a time, to limit the memory of the cluster.
        max_pending = 4 * max(1, int(ray.cluster_resources().get("CPU", 1)) // cpus)
        while True:
            for item in remaining:
                pending[task.remote(work, item)] = item
                if len(pending) >= max_pending:
                    break
            if not pending:
                return
            done, _ = ray.wait(list(pending), num_returns=1)
            for reference in done:
                has_failed, value = ray.get(reference)
                if has_failed:
                    raise value
                yield pending.pop(reference), value
    finally:
        if is_new:
            ray.shutdown()


def call_safely(work: Work, item: Any) -> tuple[bool, Any]:
    """Call ``work(item)``; returns whether it failed, and its result or error.

    Errors of other libraries are converted to a GlassformerError, because they may not be picklable.
    """
    try:
        return False, work(item)
    except GlassformerError as error:
        return True, error
    except Exception as error:
        return True, GlassformerError(f"{type(error).__name__}: {error}")
