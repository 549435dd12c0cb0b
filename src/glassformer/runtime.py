"""Devices, dtypes, threads, random generators, and facts about the machine."""

from __future__ import annotations

import os
import platform
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, partial, wraps
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from glassformer.errors import (
    BadValueError,
    ConfigError,
    NoGpuError,
    NotEnoughMemoryError,
    OtherDeviceWarning,
)

Result = TypeVar("Result")


@cache
def cpu_flags() -> frozenset[str]:
    """The feature flags of the CPU; empty if the system is not Linux."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()


def has_fast_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bf16 matrices in hardware; without this, bf16 is very slow."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bool({"amx_bf16", "avx512_bf16"} & cpu_flags())


def check_fits_memory(num_parameters: int) -> None:
    """Check that the machine has memory for weights in fp32, before they are created.

    Raises:
        NotEnoughMemoryError: it has not; the system would stop the process without a message.
    """
    if torch.get_default_device().type != "cpu" or not hasattr(os, "sysconf"):
        return
    size, memory = 4 * num_parameters, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory:
        what = f"a model of {num_parameters / 1e9:,.0f} billion parameters needs {size / 1e9:,.0f} GB, and "
        what += f"this machine has {memory / 1e9:,.0f} GB"
        raise NotEnoughMemoryError(what, fix="Use a smaller model (d_model, d_ff, num_layers)")


_single_process: list[bool] = []  # not empty in a context of ``as_single_process``
LAUNCHER_VARIABLES = ("RANK", "MASTER_ADDR", "MASTER_PORT")  # launchers set them in addition to WORLD_SIZE


def world() -> tuple[int, int]:
    """The rank of this process and the number of processes that train together, as ``torchrun`` sets them.

    Raises:
        ConfigError: the variables are inconsistent, for example because WORLD_SIZE is from another job.
    """
    size = _int_variable("WORLD_SIZE", 1)
    if size < 2 or _single_process:
        return 0, 1
    fix = f"Unset WORLD_SIZE for one process, or use torchrun --nproc-per-node {size}"
    joined = torch.distributed.is_available() and torch.distributed.is_initialized()
    missing = [name for name in LAUNCHER_VARIABLES if not os.environ.get(name)]
    if missing and not joined:
        what = f"is {size}, but no launcher has started this process: {', '.join(missing)} not set"
        raise ConfigError(what, where="WORLD_SIZE", fix=fix)
    rank = _int_variable("RANK", 0)
    if not 0 <= rank < size:
        raise ConfigError(f"RANK is {rank}, but there are {size} processes", where="RANK", fix=fix)
    return rank, size


@contextmanager
def as_single_process() -> Iterator[None]:
    """Let ``world`` return (0, 1) in a context, so that a fit does not wait for other processes."""
    _single_process.append(True)
    try:
        yield
    finally:
        _single_process.pop()


def _int_variable(name: str, default: int) -> int:
    """The integer in an environment variable; an empty variable counts as not set."""
    value = os.environ.get(name) or str(default)
    try:
        return int(value)
    except ValueError:
        what = f"{value[:40]!r} is not a whole number"
        raise ConfigError(what, where=name, fix=f"Unset {name}, or start with torchrun") from None


def choose_device(name: str = "auto") -> torch.device:
    """The device called ``name``; ``auto`` is the GPU if there is one, with ``torchrun`` one per process.

    Raises:
        ConfigError: torch does not know or does not see the device, or ``world`` raises the error.
    """
    if name in ("auto", "cuda") and torch.cuda.is_available():
        rank, gpus = _int_variable("LOCAL_RANK", -1) if world()[1] > 1 else -1, torch.cuda.device_count()
        if rank >= gpus:
            fix = f"Use --nproc-per-node {gpus}, or --set device=cpu"
            raise NoGpuError(f"process {rank} of this machine has no GPU", where="torchrun", fix=fix)
        return torch.device("cuda" if rank < 0 else f"cuda:{rank}")
    if name == "auto":
        return torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        fix = "Use cpu, cuda or auto"
        raise BadValueError(f"{name!r} is not a device", where="device", fix=fix) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise NoGpuError("no GPU is visible", where="device", fix="Use device = cpu or auto")
    if device.type not in ("cpu", "cuda"):
        raise NoGpuError(f"{name!r} is not supported", where="device", fix="Use cpu, cuda or auto")
    return device


def with_device_here(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The settings of a saved model, with ``device`` set to ``auto`` if its GPU is not visible."""
    name = str(settings.get("device"))
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    match = re.fullmatch(r"cuda(?::(\d{1,4}))?", name)
    if match is None or int(match[1] or 0) < num_gpus:
        return settings
    reason, device = "no GPU is visible", "the CPU"
    if num_gpus:
        reason, device = f"only {num_gpus} GPU{'s are' if num_gpus > 1 else ' is'} visible", "cuda:0"
    message = f"{folder} was saved with device = {name!r}, but {reason}: it runs on {device}"
    warnings.warn(message, OtherDeviceWarning, stacklevel=4)
    return settings | {"device": "auto"}


def copy_to_device(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a CPU tensor to the device, asynchronously if it is a GPU."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


def fits_on_gpu(device: torch.device, size: int) -> bool:
    """Whether ``size`` bytes of data need at most a quarter of the GPU's free memory; False on a CPU."""
    return device.type == "cuda" and size <= torch.cuda.mem_get_info(device)[0] // 4


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The dtype for a precision; ``auto`` and ``int8`` mean bf16 if the hardware supports it, else fp32.

    With ``int8``, only the weights and inputs of linear layers have 8 bits.
    """
    if precision in ("auto", "int8"):
        return torch.bfloat16 if has_fast_bf16(device) else torch.float32
    try:
        return {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    except KeyError:
        fix = "Use auto, fp32 or bf16 (classifiers: int8)"
        raise BadValueError(f"{precision!r} is not a precision", where="precision", fix=fix) from None


@cache
def _malloc_trim() -> Callable[[int], int]:
    import ctypes

    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return lambda pad: 0


def return_freed_memory() -> None:
    """Return the memory that ``process.keep_freed_memory`` keeps to the system."""
    _malloc_trim()(0)


def cache_folder() -> Path:
    """The user's cache folder: ``$XDG_CACHE_HOME/glassformer``, by default ``~/.cache/glassformer``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glassformer"


def set_threads(threads: int) -> None:
    """Set torch's number of threads; 0 leaves it unchanged. Only processes that glassformer starts call this.

    Estimators use ``isolated_torch`` instead, which does not change the caller's number of threads.
    """
    if threads:
        torch.set_num_threads(threads)


def set_seed(seed: int) -> None:
    """Seed the random generators of the fit in this thread, or torch's generators outside of fits."""
    generator = _generator.get()
    if generator is None:
        torch.manual_seed(seed)
        return
    generator.manual_seed(seed)
    if _on_gpu.get():
        torch.cuda.manual_seed_all(seed)


def be_deterministic() -> None:
    """Use only deterministic algorithms; torch raises an error for an operation without one.

    On a CPU, all algorithms are deterministic. On a GPU, the order of additions may differ without this call.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it before the first product
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


# --- random numbers -------------------------------------------------------------------------------

# The generator of the fit in this thread. All threads share torch's default generator for CPUs, so two fits
# that use it would change each other's random numbers, and those of the caller.
_generator: ContextVar[torch.Generator | None] = ContextVar("generator", default=None)
_on_gpu: ContextVar[bool] = ContextVar("on_gpu", default=False)
# Dropout and attention on a GPU can only use torch's default generator, so only one fit at a time runs there.
# The lock is reentrant, because a fit may fit another model in the same thread.
_gpu_lock = threading.RLock()


def generator_on(device: torch.device) -> torch.Generator | None:
    """The generator of the fit in this thread; None, for torch's default, on GPUs and outside of fits."""
    return _generator.get() if device.type == "cpu" else None


@contextmanager
def own_generator(device: torch.device | None = None) -> Iterator[None]:
    """Use a new random generator in a context and in this thread; the caller's generators do not change.

    On a CPU, any number of threads may do this at the same time. On a GPU, threads wait for each other.

    Args:
        device: device of the fit; None: the CPU.
    """
    on_gpu = device is not None and device.type == "cuda"
    with ExitStack() as stack:
        if on_gpu:
            stack.enter_context(_gpu_lock)
            stack.callback(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
        stack.callback(_generator.reset, _generator.set(torch.Generator()))
        stack.callback(_on_gpu.reset, _on_gpu.set(on_gpu))
        yield


@contextmanager
def torch_uses_own_generator() -> Iterator[None]:
    """Make torch's functions use the generator of the fit in a context, for example for initial weights."""
    with _PassGenerator() if _generator.get() is not None else nullcontext():
        yield


class _PassGenerator(TorchFunctionMode):
    """Passes the generator of the fit to torch functions that are called without a generator."""

    NAMES = frozenset(("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial"))
    IN_PLACE = frozenset(("normal_", "uniform_", "random_", "bernoulli_"))

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        is_random = "generator" in kwargs or getattr(func, "__name__", "") in self.NAMES | self.IN_PLACE
        if is_random and kwargs.get("generator") is None:
            target = kwargs.get("tensor", args[0] if args else None)
            device = target.device if isinstance(target, torch.Tensor) else torch.device("cpu")
            kwargs = {**kwargs, "generator": generator_on(device)}
        return func(*args, **kwargs)


def generator_states(device: torch.device | None = None) -> dict[str, torch.Tensor]:
    """The states of the random generators that training uses, for checkpoints."""
    generator = _generator.get()
    states = {"rng/torch": torch.get_rng_state() if generator is None else generator.get_state()}
    if _on_gpu.get() or (generator is None and torch.cuda.is_available()):
        states["rng/cuda"] = torch.cuda.get_rng_state(device or "cuda")
    return states


def set_generator_states(states: Mapping[str, torch.Tensor], device: torch.device | None = None) -> None:
    """Restore the states that ``generator_states`` returned."""
    generator = _generator.get()
    if generator is None:
        torch.set_rng_state(states["rng/torch"])
    else:
        generator.set_state(states["rng/torch"])
    if "rng/cuda" in states and (_on_gpu.get() or (generator is None and torch.cuda.is_available())):
        torch.cuda.set_rng_state(states["rng/cuda"], device or "cuda")


# --- settings of the caller -------------------------------------------------------------------------

# Whether this thread is in a context of ``isolated_torch`` that does not trace a graph
_is_isolated: ContextVar[bool] = ContextVar("is_isolated", default=False)


@contextmanager
def isolated_torch(threads: int = 0, *, gradients: bool = False, graph: bool = False) -> Iterator[None]:
    """Ignore the caller's torch settings in a context; fits, predictions and explanations use it.

    ``autocast`` is disabled in this thread. New tensors are float32 on the CPU, even if
    ``torch.set_default_dtype`` or ``set_default_device`` set something else.

    Args:
        threads: number of threads; 0: the caller's number.
        gradients: whether gradients are computed; False: use ``torch.inference_mode``.
        graph: whether calls are traced for an export, instead of computed.
    """
    with ExitStack() as stack:
        is_nested = _is_isolated.get()  # an outer context has already changed the other settings
        stack.callback(_is_isolated.reset, _is_isolated.set(not graph))
        stack.enter_context(_with_threads(threads))
        stack.enter_context(torch.inference_mode(not gradients))
        if gradients:
            stack.enter_context(torch.enable_grad())
        if is_nested:
            yield
            return
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_dtype() != torch.float32 or torch.get_default_device().type != "cpu":
            stack.enter_context(_CpuFloat32())
        yield


def runs_isolated(function: Callable[..., Result], *, gradients: bool = False) -> Callable[..., Result]:
    """A decorator that runs a method of an estimator in ``isolated_torch``, with its number of threads.

    It also decorates functions whose first argument is an estimator.
    """

    @wraps(function)
    def call(estimator: Any, *args: Any, **options: Any) -> Result:
        with isolated_torch(getattr(estimator, "threads", 0), gradients=gradients):
            return function(estimator, *args, **options)

    return call


runs_isolated_with_gradients = partial(runs_isolated, gradients=True)


def is_compiling() -> bool:
    """Whether this thread traces a graph.

    All threads share torch's own flag: while a thread exports a model, it is also set for threads that
    predict.
    """
    return torch.compiler.is_compiling() and (torch.compiler.is_dynamo_compiling() or not _is_isolated.get())


def is_exporting() -> bool:
    """Whether this thread traces a graph for an export."""
    return torch.compiler.is_exporting() and is_compiling()


class _CpuFloat32(TorchFunctionMode):
    """Creates new tensors as float32 on the CPU, unless the call sets dtype or device."""

    FLOAT = frozenset((torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.eye))
    INFERRED = frozenset((torch.full, torch.arange, torch.tensor, torch.as_tensor))  # dtype of the arguments
    INTEGER = frozenset((torch.randint, torch.randperm, torch.triu_indices))

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        is_float = func in self.FLOAT or (func in self.INFERRED and _has_float(args, kwargs))
        if is_float and kwargs.get("dtype") is None:
            kwargs["dtype"] = torch.float32
        has_device = kwargs.get("device") is not None or any(isinstance(x, torch.Tensor) for x in args)
        if not has_device and (is_float or func in self.INFERRED or func in self.INTEGER):
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


def _has_float(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the arguments of a new tensor contain Python floats; arrays and tensors keep their dtype."""
    values = [*args, *(kwargs.get(name) for name in ("data", "fill_value", "start", "end", "step"))]
    while values and isinstance(values[0], list | tuple):
        values = [*values[0], *values[1:]]
    return any(isinstance(value, float) for value in values)


@contextmanager
def _with_threads(threads: int) -> Iterator[None]:
    """Compute with ``threads`` threads (0: no change) in a context, in this Python thread only."""
    old = torch.get_num_threads()
    if threads in (0, old):
        yield
        return
    _set_threads_here(threads)
    try:
        yield
    finally:
        _set_threads_here(old)


_set_threads_lock = threading.Lock()


def _set_threads_here(threads: int) -> None:
    """Set the number of threads of this Python thread only.

    ``torch.set_num_threads`` also sets the default for new Python threads. A new thread reads this default
    before and restores it afterwards.
    """
    with _set_threads_lock, ThreadPoolExecutor(1) as new_thread:
        default = new_thread.submit(torch.get_num_threads).result()
        torch.set_num_threads(threads)
        new_thread.submit(torch.set_num_threads, default).result()


def machine_facts() -> dict[str, object]:
    """The hardware of this machine: CPU, cores, memory, GPU."""
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
    """The versions of Python, torch, glassformer and ``packages``, if installed."""
    installed = {package: _version(package) for package in ("glassformer", "torch", *packages)}
    return {"python": platform.python_version()} | {p: version for p, version in installed.items() if version}


@cache
def _version(package: str) -> str:
    """The version of a package; empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def peak_memory_mb() -> float:
    """Peak resident memory of this process, in MB."""
    import resource

    scale = 1024 if platform.system() != "Darwin" else 1  # Linux counts in KiB, macOS in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e6
