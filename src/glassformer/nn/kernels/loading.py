"""Loads the compiled kernels for the highest level that the CPU supports.

The libraries (``lib/LEVEL.so``) are compiled when the package is built, never at run time. The environment
variable ``GLASSFORMER_KERNELS`` limits the level: ``0`` disables the kernels, and ``avx512`` disables AMX.
Lower levels have fp32 kernels, and int8 kernels for prediction.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from glassformer.config import suggest
from glassformer.errors import ConfigError
from glassformer.nn.kernels.jobs import JOBS, AttentionJob, Int8Job, LinearJob, SkipGramJob
from glassformer.nn.kernels.levels import ABI, LEVELS, Level, fingerprint
from glassformer.runtime import cpu_flags

SWITCH = "GLASSFORMER_KERNELS"
REBUILD = "Install glassformer again (in a clone: make kernels)"


class Loaded(NamedTuple):
    """A loaded library and its level."""

    level: Level
    calls: ctypes.CDLL


def allowed_levels() -> tuple[Level, ...]:
    """The levels that ``GLASSFORMER_KERNELS`` allows."""
    limit = os.environ.get(SWITCH, "").strip().lower() or "1"
    names = [level.name for level in LEVELS]
    if limit in ("0", "1"):
        return LEVELS if limit == "1" else ()
    if limit not in names:
        raise ConfigError(f"{SWITCH}={limit} is not a level", fix=suggest(limit, ["0", "1", *names]))
    return LEVELS[names.index(limit) :]


_loaded: list[Loaded | str] = []  # the result of ``choose``, once called


def loaded() -> Loaded | str:
    """The cached result of ``choose``."""
    if not _loaded:
        _loaded.append(choose())
    return _loaded[0]


# A compiled graph then uses the result without tracing the function.
# ``torch.compiler.assume_constant_result`` sets this attribute too, but imports torch._dynamo into every
# process.
loaded._dynamo_marked_constant = True  # type: ignore[attr-defined]  # functions take any


def choose() -> Loaded | str:
    """The library of the highest usable level, or the reason why there is none."""
    levels = allowed_levels()
    if not levels:
        return f"switched off by {SWITCH}=0"
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"the kernels are for Linux on x86-64, not for {platform.system()} on {platform.machine()}"
    levels = tuple(level for level in levels if cpu_flags() >= level.flags)
    if not levels:
        return f"the processor has no {LEVELS[-1].title}"
    reasons = []
    for level in levels:
        library_or_reason = _open(level)
        if isinstance(library_or_reason, ctypes.CDLL):
            return Loaded(level, library_or_reason)
        reasons.append(library_or_reason)
    return reasons[-1]


def check_complete(file: Path) -> None:
    """Raise OSError if a library is truncated: reading its missing pages would kill the process."""
    with file.open("rb") as opened:
        header = opened.read(64)
        size = opened.seek(0, os.SEEK_END)
    if len(header) < 64 or header[:5] != b"\x7fELF\x02":  # 2: 64 bits
        raise OSError("it is not a shared library of this system")
    # Fields of the ELF header: offset of the section headers, and their size and number.
    (sections,) = struct.unpack_from("<Q", header, 40)
    entry_size, count = struct.unpack_from("<HH", header, 58)
    if size < sections + entry_size * count:
        raise OSError(f"it is truncated to {size:,} bytes")


def level_and_fingerprint(calls: ctypes.CDLL) -> str:
    """The level of a library and the fingerprint of its sources.

    This reads a symbol without calling a function, because functions of another level may contain
    instructions that the CPU lacks.
    """
    return ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(calls, "made_of"))).decode()


def _open(level: Level) -> ctypes.CDLL | str:
    """The library of a level, or the reason why it cannot be used."""
    if not level.file.is_file():
        return f"this installation was built without kernels: {level.file} is missing. {REBUILD}"
    try:
        check_complete(level.file)
        calls = ctypes.CDLL(str(level.file))
        name, _, sources = level_and_fingerprint(calls).partition(" ")
        if name != level.name:
            return f"{level.file} was built for {name!r}, not for {level.name!r}. {REBUILD}"
        calls.structure_size.argtypes, calls.structure_size.restype = (ctypes.c_int,), ctypes.c_int64
        built_for = calls.abi(), [calls.structure_size(index) for index in range(len(JOBS) + 1)]
        if "amx" in level.name:
            calls.weight_gradient.argtypes = (ctypes.POINTER(LinearJob), ctypes.c_void_p)
        if level.int8:
            calls.linear_int8.argtypes = (ctypes.POINTER(Int8Job), ctypes.c_void_p)
        for name in ("attention_fp32", *(["attention"] if level.bf16 else [])):
            getattr(calls, name).argtypes = (ctypes.POINTER(AttentionJob), ctypes.c_int, ctypes.c_void_p)
        calls.skip_gram.argtypes = (ctypes.POINTER(SkipGramJob),)
        for name in ("gelu_tanh_fp32", *(["gelu", "layer_norm"] if level.bf16 else [])):
            getattr(calls, name).argtypes = (ctypes.c_void_p, ctypes.c_void_p)
            getattr(calls, name).restype = None
    except (OSError, AttributeError, ValueError) as error:
        return f"{level.file} cannot be loaded: {error}. {REBUILD}"
    if built_for != (ABI, [*map(ctypes.sizeof, JOBS), -1]):
        return f"{level.file} was built for another version of glassformer. {REBUILD}"
    if sources != fingerprint():
        return f"{level.file} was built from older or changed C sources. {REBUILD}"
    if calls.prepare() != 0:
        return f"the operating system does not allow {level.title} in this process"
    return calls


def why_not() -> str | None:
    """The reason why the kernels are not used on this machine, or None if they are."""
    kernels = loaded()
    return kernels if isinstance(kernels, str) else None


def library() -> ctypes.CDLL:
    """The compiled kernels. Requires that ``why_not`` returns None."""
    kernels = loaded()
    assert isinstance(kernels, Loaded)
    return kernels.calls


def level() -> Level | None:
    """The level in use; None without kernels."""
    kernels = loaded()
    return None if isinstance(kernels, str) else kernels.level


def has_dtype(dtype: torch.dtype) -> bool:
    """Whether the level in use has kernels for this dtype."""
    current = level()
    return current is not None and (dtype == torch.float32 or (dtype == torch.bfloat16 and current.bf16))


def has_amx() -> bool:
    """Whether the kernels use AMX: the CPU has it, the system allows it, and it is not switched off."""
    current = level()
    return current is not None and current.name == "amx"


@cache
def torch_threads() -> int | None:
    """The address of ``GOMP_parallel`` in torch's OpenMP library; None if torch uses another library.

    Only a library that is already loaded is used: the process never gets a second OpenMP library.
    """
    for file in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        try:
            openmp = ctypes.CDLL(str(file), mode=os.RTLD_NOLOAD)
            return ctypes.cast(openmp.GOMP_parallel, ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    return None
