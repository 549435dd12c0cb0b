"""Which of the compiled libraries this process computes with: the highest level that the processor has.

They come with the package (``lib/LEVEL.so``) and are compiled when it is built, never here. The environment
variable ``GLASSFORMER_KERNELS`` limits the level: ``0`` uses none, ``avx512`` leaves AMX unused, those below
have fp32, and for prediction int8, only.
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

from glassformer.config import nearest
from glassformer.errors import ConfigError
from glassformer.nn.kernels.jobs import JOBS, AttentionJob, Int8Job, LinearJob, SkipGramJob
from glassformer.nn.kernels.levels import ABI, LEVELS, Level, fingerprint
from glassformer.runtime import cpu_flags

SWITCH = "GLASSFORMER_KERNELS"
REBUILD = "Install glassformer again (in a clone: make kernels)"


class Loaded(NamedTuple):
    """A library that this process computes with."""

    level: Level
    calls: ctypes.CDLL


def allowed() -> tuple[Level, ...]:
    """The levels that ``GLASSFORMER_KERNELS`` allows.

    Raises:
        ConfigError: it names no level.
    """
    limit = os.environ.get(SWITCH, "").strip().lower() or "1"
    names = [level.name for level in LEVELS]
    if limit in ("0", "1"):
        return LEVELS if limit == "1" else ()
    if limit not in names:
        raise ConfigError(f"{SWITCH}={limit} is not a level", fix=nearest(limit, ["0", "1", *names]))
    return LEVELS[names.index(limit) :]


_loaded: list[Loaded | str] = []  # once known


def loaded() -> Loaded | str:
    """What ``choose`` found, looked for once a process."""
    if not _loaded:
        _loaded.append(choose())
    return _loaded[0]


# What ``torch.compiler.assume_constant_result`` sets: a graph takes the result and does not look at how it is
# found. That function itself would import torch._dynamo into every process.
loaded._dynamo_marked_constant = True  # type: ignore[attr-defined]  # functions take any


def choose() -> Loaded | str:
    """The library of the highest level that can be had, or why there is none.

    Raises:
        ConfigError: ``GLASSFORMER_KERNELS`` names no level.
    """
    levels = allowed()
    if not levels:
        return f"switched off by {SWITCH}=0"
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"they are for Linux on x86-64, not for {platform.system()} on {platform.machine()}"
    levels = tuple(level for level in levels if cpu_flags() >= level.flags)
    if not levels:
        return f"the processor has no {LEVELS[-1].title}"
    reasons = []
    for level in levels:
        found = _open(level)
        if isinstance(found, ctypes.CDLL):
            return Loaded(level, found)
        reasons.append(found)
    return reasons[-1]


def check_whole(file: Path) -> None:
    """A library that was cut off, as by a full disk, would end the process where its missing pages are read.

    Raises:
        OSError: the file ends before its table of sections, which stands last (ELF-64: offsets 40, 58, 60).
    """
    with file.open("rb") as opened:
        header = opened.read(64)
        size = opened.seek(0, os.SEEK_END)
    if len(header) < 64 or header[:5] != b"\x7fELF\x02":
        raise OSError("it is not a library of this system")
    (sections,) = struct.unpack_from("<Q", header, 40)
    each, count = struct.unpack_from("<HH", header, 58)
    if size < sections + each * count:
        raise OSError(f"it was cut off after {size:,} bytes")


def made_of(calls: ctypes.CDLL) -> str:
    """A library's level and the fingerprint of its sources. Nothing of it is called for that: one of another
    level may have instructions that the processor has not, which end the process.

    Raises:
        ValueError: it says nothing.
    """
    return ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(calls, "made_of"))).decode()


def _open(level: Level) -> ctypes.CDLL | str:
    """The library of a level, or why it cannot be used here."""
    if not level.file.is_file():
        return f"this installation was built without them: no {level.file}. {REBUILD}"
    try:
        check_whole(level.file)
        calls = ctypes.CDLL(str(level.file))
        name, _, sources = made_of(calls).partition(" ")
        if name != level.name:
            return f"{level.file} was built for {name!r}, not for {level.name!r}. {REBUILD}"
        calls.structure_size.argtypes, calls.structure_size.restype = (ctypes.c_int,), ctypes.c_int64
        theirs = calls.abi(), [calls.structure_size(which) for which in range(len(JOBS) + 1)]
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
    if theirs != (ABI, [*map(ctypes.sizeof, JOBS), -1]):
        return f"{level.file} was built for other structures than this version's. {REBUILD}"
    if sources != fingerprint():
        return f"{level.file} was built from other sources than those beside it. {REBUILD}"
    if calls.prepare() != 0:
        return f"the system keeps {level.title} from this process"
    return calls


def why_not() -> str | None:
    """Why the kernels are not used on this machine; None where they are."""
    found = loaded()
    return found if isinstance(found, str) else None


def library() -> ctypes.CDLL:
    """The compiled kernels, where ``why_not`` says nothing."""
    found = loaded()
    assert isinstance(found, Loaded)
    return found.calls


def level() -> Level | None:
    """The level that is computed with; None where there are no kernels."""
    found = loaded()
    return None if isinstance(found, str) else found.level


def computes(dtype: torch.dtype) -> bool:
    """Whether the level that is computed with has kernels in this format."""
    found = level()
    return found is not None and (dtype == torch.float32 or (dtype == torch.bfloat16 and found.bf16))


def has_amx() -> bool:
    """Whether products use AMX: the processor has it, the system lets us, and nobody said otherwise."""
    found = level()
    return found is not None and found.name == "amx"


@cache
def torch_threads() -> int | None:
    """The address of ``GOMP_parallel`` in the OpenMP library in torch's folder; None: torch has another one.

    Only a library that the process has loaded already is taken: there are never two of them for us.
    """
    for file in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        try:
            found = ctypes.CDLL(str(file), mode=os.RTLD_NOLOAD)
            return ctypes.cast(found.GOMP_parallel, ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    return None
