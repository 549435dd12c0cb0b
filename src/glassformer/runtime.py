"""Device, dtype, threads, random generators, and facts about the machine."""

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

from glassformer.errors import BadValueError, ConfigError, NoGpuError, OtherDeviceWarning

Result = TypeVar("Result")


@cache
def cpu_flags() -> frozenset[str]:
    """The CPU's feature flags (Linux; empty if they cannot be read)."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()


def has_fast_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bf16 matrices in hardware; otherwise bf16 is very slow."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bool({"amx_bf16", "avx512_bf16"} & cpu_flags())


_single_process: list[bool] = []  # not empty inside ``as_single_process``
LAUNCHER = ("RANK", "MASTER_ADDR", "MASTER_PORT")  # variables that a launcher sets in addition to WORLD_SIZE


def world() -> tuple[int, int]:
    """The rank of this process and the number of processes that train together, as set by ``torchrun``.

    Raises:
        ConfigError: the variables are inconsistent, such as a WORLD_SIZE left over from another job.
    """
    size = _variable("WORLD_SIZE", 1)
    if size < 2 or _single_process:
        return 0, 1
    fix = f"Unset WORLD_SIZE for one process, or use torchrun --nproc-per-node {size}"
    joined = torch.distributed.is_available() and torch.distributed.is_initialized()
    missing = [name for name in LAUNCHER if not os.environ.get(name)]
    if missing and not joined:
        what = f"is {size}, but no launcher has started this process: {', '.join(missing)} not set"
        raise ConfigError(what, where="WORLD_SIZE", fix=fix)
    rank = _variable("RANK", 0)
    if not 0 <= rank < size:
        raise ConfigError(f"RANK is {rank}, but there are {size} processes", where="RANK", fix=fix)
    return rank, size


@contextmanager
def as_single_process() -> Iterator[None]:
    """Context manager: ``world`` returns (0, 1), so that a fit inside does not wait for other processes."""
    _single_process.append(True)
    try:
        yield
    finally:
        _single_process.pop()


def _variable(name: str, default: int) -> int:
    """An integer from the environment; an empty variable counts as not set."""
    value = os.environ.get(name) or str(default)
    try:
        return int(value)
    except ValueError:
        what = f"{value[:40]!r} is not a whole number"
        raise ConfigError(what, where=name, fix=f"Unset {name}, or start with torchrun") from None


def choose_device(name: str = "auto") -> torch.device:
    """The device for ``name``. ``auto``: the GPU if there is one; with ``torchrun`` one GPU per process.

    Raises:
        ConfigError: torch does not know or does not see the device; also errors of ``world``.
    """
    if name in ("auto", "cuda") and torch.cuda.is_available():
        rank, gpus = _variable("LOCAL_RANK", -1) if world()[1] > 1 else -1, torch.cuda.device_count()
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
    """The settings of a saved model, with ``device`` set to ``auto`` if its GPU is not visible here."""
    name = str(settings.get("device"))
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = re.fullmatch(r"cuda(?::(\d{1,4}))?", name)
    if number is None or int(number[1] or 0) < seen:
        return settings
    reason, device = (
        (f"only {seen} GPU{'s are' if seen > 1 else ' is'} visible", "cuda:0")
        if seen
        else ("no GPU is visible", "the CPU")
    )
    message = f"{folder} was saved with device = {name!r}, but {reason}: it computes on {device}"
    warnings.warn(message, OtherDeviceWarning, stacklevel=4)
    return settings | {"device": "auto"}


def send(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a CPU tensor to the device, asynchronously if it is a GPU."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


def fits(device: torch.device, size: int) -> bool:
    """Whether ``size`` bytes of data may be kept on the GPU: at most a quarter of its free memory."""
    return device.type == "cuda" and size <= torch.cuda.mem_get_info(device)[0] // 4


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The dtype to compute in. ``auto`` and ``int8``: bf16 if the hardware multiplies in it, else fp32 (with
    ``int8`` only weights and inputs of linear layers have 8 bits)."""
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
    """Return the memory that ``process.keep_freed_memory`` keeps, after work whose sizes do not recur."""
    _malloc_trim()(0)


def cache_folder() -> Path:
    """The user's cache folder: ``$XDG_CACHE_HOME/glassformer``, by default ``~/.cache/glassformer``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glassformer"


def set_threads(threads: int) -> None:
    """Set torch's number of threads for this process; 0 leaves it unchanged. Only for processes that
    glassformer starts; estimators use ``computing``, which leaves the caller's number unchanged."""
    if threads:
        torch.set_num_threads(threads)


def set_seed(seed: int) -> None:
    """Seed the random generators of the fit that runs in this thread; outside of fits, torch's."""
    generator = _generator.get()
    if generator is None:
        torch.manual_seed(seed)
        return
    generator.manual_seed(seed)
    if _on_gpu.get():
        torch.cuda.manual_seed_all(seed)


def be_deterministic() -> None:
    """Use only deterministic algorithms; torch raises an error for an operation without one.

    On a CPU all algorithms are deterministic; on a GPU, the order of additions can otherwise differ.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it at the first product
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


# --- random numbers -------------------------------------------------------------------------------

# The generator of the fit that runs in this thread. Torch's default CPU generator is shared by all threads:
# two fits that used it would change each other's random numbers, and the caller's.
_generator: ContextVar[torch.Generator | None] = ContextVar("draws", default=None)
_on_gpu: ContextVar[bool] = ContextVar("on_gpu", default=False)
# Dropout and attention on a GPU can only use torch's default generator, so one fit at a time runs there. The
# lock is reentrant because a fit may fit another model in the same thread.
_GPU = threading.RLock()


def generator_on(device: torch.device) -> torch.Generator | None:
    """The generator to use on a device: on a CPU, the generator of the fit in this thread. On a GPU and
    outside of fits None, which means torch's default generator."""
    return _generator.get() if device.type == "cpu" else None


@contextmanager
def own_generator(device: torch.device | None = None) -> Iterator[None]:
    """Context manager: use a new random generator in this thread; the caller's generators stay unchanged.

    On a CPU, any number of threads may do this at once. On a GPU, threads wait for each other.

    Args:
        device: device of the fit; None: the CPU.
    """
    on_gpu = device is not None and device.type == "cuda"
    with ExitStack() as stack:
        if on_gpu:
            stack.enter_context(_GPU)
            stack.callback(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
        stack.callback(_generator.reset, _generator.set(torch.Generator()))
        stack.callback(_on_gpu.reset, _on_gpu.set(on_gpu))
        yield


@contextmanager
def use_own_generator() -> Iterator[None]:
    """Context manager: torch's own modules use the fit's generator too, for example for initial weights."""
    with _OwnGenerator() if _generator.get() is not None else nullcontext():
        yield


class _OwnGenerator(TorchFunctionMode):
    """In this thread, pass the fit's generator to torch functions that are called without a generator."""

    NAMES = frozenset(("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial"))
    IN_PLACE = frozenset(("normal_", "uniform_", "random_", "bernoulli_"))

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        random = "generator" in kwargs or getattr(func, "__name__", "") in self.NAMES | self.IN_PLACE
        if random and kwargs.get("generator") is None:
            target = kwargs.get("tensor", args[0] if args else None)
            device = target.device if isinstance(target, torch.Tensor) else torch.device("cpu")
            kwargs = {**kwargs, "generator": generator_on(device)}
        return func(*args, **kwargs)


def generator_states(device: torch.device | None = None) -> dict[str, torch.Tensor]:
    """The states of the random generators that training uses, for its checkpoint."""
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


# --- what the caller has set ----------------------------------------------------------------------

# this thread computes, not traces a graph
_computes: ContextVar[bool] = ContextVar("computes", default=False)


@contextmanager
def computing(threads: int = 0, *, gradients: bool = False, graph: bool = False) -> Iterator[None]:
    """Context manager that ignores the caller's torch settings; fits, predictions and explanations use it.

    Inside, in this thread only: gradients are on or off as set here, there is no ``autocast``, and new
    tensors are float32 on the CPU, whatever ``torch.set_default_dtype`` and ``set_default_device`` say.

    Args:
        threads: number of threads; 0 keeps the caller's.
        gradients: whether gradients are computed; if not, as in ``torch.inference_mode``.
        graph: whether the calls inside are traced for an export instead of computed.
    """
    with ExitStack() as stack:
        nested = _computes.get()  # an outer ``computing`` has already done the rest
        stack.callback(_computes.reset, _computes.set(not graph))
        stack.enter_context(_limited(threads))
        stack.enter_context(torch.inference_mode(not gradients))
        if gradients:
            stack.enter_context(torch.enable_grad())
        if nested:
            yield
            return
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_dtype() != torch.float32 or torch.get_default_device().type != "cpu":
            stack.enter_context(_OwnDefaults())
        yield


def computes(function: Callable[..., Result], *, gradients: bool = False) -> Callable[..., Result]:
    """Decorator: run an estimator's method, or a function whose first argument is an estimator, inside
    ``computing`` with the estimator's number of threads."""

    @wraps(function)
    def call(estimator: Any, *args: Any, **options: Any) -> Result:
        with computing(getattr(estimator, "threads", 0), gradients=gradients):
            return function(estimator, *args, **options)

    return call


computes_gradients = partial(computes, gradients=True)


def is_compiling() -> bool:
    """Whether this thread traces a graph. Torch's own flag is shared by all threads: while one exports a
    model, the flag is also set for threads that predict."""
    return torch.compiler.is_compiling() and (torch.compiler.is_dynamo_compiling() or not _computes.get())


def is_exporting() -> bool:
    """Whether this thread traces a graph for an export."""
    return torch.compiler.is_exporting() and is_compiling()


class _OwnDefaults(TorchFunctionMode):
    """In this thread, new tensors are float32 on the CPU unless the call sets dtype or device."""

    MAKE = frozenset((torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.eye))
    FOLLOW = frozenset((torch.full, torch.arange, torch.tensor, torch.as_tensor))  # dtype of their arguments
    WHOLE = frozenset((torch.randint, torch.randperm, torch.triu_indices))  # integers

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        is_new = func in self.MAKE or (func in self.FOLLOW and _has_float(args, kwargs))
        if is_new and kwargs.get("dtype") is None:
            kwargs["dtype"] = torch.float32
        has_device = kwargs.get("device") is not None or any(isinstance(x, torch.Tensor) for x in args)
        if not has_device and (is_new or func in self.FOLLOW or func in self.WHOLE):
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


def _has_float(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the arguments of a new tensor contain Python floats; arrays and tensors keep their dtype."""
    values = [*args, *(kwargs.get(name) for name in ("data", "fill_value", "start", "end", "step"))]
    while values and isinstance(values[0], list | tuple):
        values = [*values[0], *values[1:]]
    return any(isinstance(value, float) for value in values)


@contextmanager
def _limited(threads: int) -> Iterator[None]:
    """Context manager: compute with ``threads`` threads (0: no change) in this Python thread only."""
    old = torch.get_num_threads()
    if threads in (0, old):
        yield
        return
    _set_threads_here(threads)
    try:
        yield
    finally:
        _set_threads_here(old)


_SETTING = threading.Lock()


def _set_threads_here(threads: int) -> None:
    """Set the number of threads of this Python thread only.

    ``torch.set_num_threads`` also sets the default of Python threads that use torch for the first time later;
    a fresh thread restores that default.
    """
    with _SETTING, ThreadPoolExecutor(1) as fresh:
        default = fresh.submit(torch.get_num_threads).result()
        torch.set_num_threads(threads)
        fresh.submit(torch.set_num_threads, default).result()


def machine_facts() -> dict[str, object]:
    """The machine that a result was measured on: CPU, cores, memory, GPU."""
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
    found = {package: _version(package) for package in ("glassformer", "torch", *packages)}
    return {"python": platform.python_version()} | {p: version for p, version in found.items() if version}


@cache
def _version(package: str) -> str:
    """Empty where the package is not installed. Reading its metadata takes milliseconds."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def peak_memory_mb() -> float:
    """Peak resident memory of this process, in MB."""
    import resource

    scale = 1024 if platform.system() != "Darwin" else 1  # Linux counts in KiB, macOS in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e6
