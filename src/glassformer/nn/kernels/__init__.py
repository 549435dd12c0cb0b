"""Attention, GELU, layer norm, a linear layer's gradient in C, built on the user's machine when first wanted.

The gradient wants a processor with AMX, the others one with AVX512-BF16.

A second or two of ``cc``, kept in the user's cache folder. Without a compiler or such a processor, or with
``GLASSFORMER_KERNELS=0``, everything works without it; ``why_not`` says which.
``GLASSFORMER_KERNELS=avx512`` leaves AMX unused where there is it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from glassformer.nn.kernels import store
from glassformer.packing import Packing
from glassformer.runtime import cache_folder, cpu_flags

FOLDER = Path(__file__).parent
SOURCES = (FOLDER / "attention.c", FOLDER / "linear.c", FOLDER / "rows.c")
FLAGS = ("-O3", "-march=native", "-shared", "-fPIC", "-lm", "-lpthread")
WANTED = frozenset({"avx512f", "avx512_bf16", "avx512bw", "avx512dq", "avx512vl"})
AMX = frozenset({"amx_tile", "amx_bf16"})
POINTERS = ("q", "k", "v", "out", "grad", "o", "dq", "dk", "dv", "stats")
STRIDES = (
    "q_stride",
    "k_stride",
    "v_stride",
    "out_stride",
    "grad_stride",
    "dq_stride",
    "dk_stride",
    "dv_stride",
)
FEW_ROWS = 256  # below, torch's product is as fast
TABLES = ("q_starts", "q_lengths", "k_starts", "k_lengths")
SIZES = ("sequences", "heads", "dim", "longest_q", "longest_k")


class Job(ctypes.Structure):
    """``Job`` of attention.c, field by field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in POINTERS),
        *((name, ctypes.c_int64) for name in STRIDES),
        *((name, ctypes.c_void_p) for name in TABLES),
        *((name, ctypes.c_int64) for name in SIZES),
        ("causal", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("scale", ctypes.c_float),
    ]


class LinearJob(ctypes.Structure):
    """``LinearJob`` of linear.c, field by field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("grad", "x", "weight", "bias")),
        *((name, ctypes.c_int64) for name in ("grad_stride", "x_stride", "rows", "out", "in")),
        ("threads", ctypes.c_int32),
    ]


def supports(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernel computes this: bf16 on a CPU, heads of a multiple of 16, and it could be built."""
    return (
        q.dtype == k.dtype == v.dtype == torch.bfloat16
        and q.device.type == "cpu"
        and q.shape[2] % 16 == 0
        and q.shape[1:] == k.shape[1:] == v.shape[1:]
        and why_not() is None
    )


@cache
def why_not() -> str | None:
    """Why the kernel is not used on this machine; None where it is. Builds it if that was not done yet."""
    if os.environ.get("GLASSFORMER_KERNELS", "1") == "0":
        return "switched off by GLASSFORMER_KERNELS=0"
    if not cpu_flags() >= WANTED:
        return "the processor has no AVX512-BF16"
    try:
        library()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: the user has no home
        detail = getattr(error, "stderr", None) or str(error)
        return f"could not be built: {str(detail).strip().splitlines()[0]}"
    return None


@cache
def has_amx() -> bool:
    """Whether products use AMX: the processor has it, the system lets us, and nobody said otherwise."""
    return bool(library().uses_amx())


@cache
def library() -> ctypes.CDLL:
    """The compiled kernels."""
    for amx in (True, False):
        if amx and (os.environ.get("GLASSFORMER_KERNELS") == "avx512" or not cpu_flags() >= AMX):
            continue
        found = _open(amx)
        found.run.argtypes = (ctypes.POINTER(Job), ctypes.c_int, ctypes.c_void_p)
        found.run.restype = found.prepare.restype = ctypes.c_int
        if amx:
            found.weight_gradient.argtypes = (ctypes.POINTER(LinearJob), ctypes.c_void_p)
            found.weight_gradient.restype = ctypes.c_int
        for name in ("gelu", "layer_norm"):
            getattr(found, name).argtypes = (ctypes.c_void_p, ctypes.c_void_p)
            getattr(found, name).restype = None
        if found.prepare() == 0:  # the system may keep AMX from a process
            break
    return found


def _open(amx: bool) -> ctypes.CDLL:
    folder, reason = store.prepared()
    try:
        file = _build(amx, folder)
        try:
            return ctypes.CDLL(str(file))
        except OSError:  # a damaged file in the cache: built once more
            file.unlink(missing_ok=True)
            return ctypes.CDLL(str(_build(amx, folder)))
    finally:
        if reason is not None:
            store.discard(folder)


def not_kept() -> str | None:
    """Why the kernels are built anew by every process; None where they are kept in the user's cache."""
    try:
        return store.why_unsafe(cache_folder())
    except (OSError, RuntimeError) as error:
        return str(error)


@cache
def torch_threads() -> int | None:
    """The address of ``GOMP_parallel`` in the OpenMP library that torch has loaded; None: another library."""
    try:
        maps = Path("/proc/self/maps").read_text().splitlines()
        loaded = {line.split()[-1] for line in maps if "libgomp" in line}  # scikit-learn brings one too
        with_torch = {path for path in loaded if Path(path).parent == Path(torch.__file__).parent / "lib"}
        (path,) = with_torch or loaded
        return ctypes.cast(ctypes.CDLL(path).GOMP_parallel, ctypes.c_void_p).value
    except (OSError, AttributeError, ValueError):
        return None


def _build(amx: bool, folder: Path | None = None) -> Path:
    """The compiled kernel in a folder (None: the user's cache), compiled now if it is not there."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise OSError("no C compiler (cc, gcc or clang) was found")
    flags = FLAGS if amx else (*FLAGS, "-mno-amx-bf16")
    sources = [file.read_bytes() for file in sorted(FOLDER.glob("*.[ch]"))]
    made_of = (*sources, " ".join(flags).encode(), " ".join(sorted(cpu_flags())).encode())
    key = hashlib.sha256(b"\0".join((*made_of, platform.platform().encode()))).hexdigest()[:16]
    home = folder or cache_folder()
    file = home / f"kernels-{key}.so"
    if os.path.lexists(file) and not store.is_ours(file):
        file.unlink()
    if not file.exists():
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as place:  # two processes may build at the same time
            fresh = Path(place) / file.name
            command = [*shlex.split(compiler), *map(str, SOURCES), "-o", str(fresh), *flags]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
            fresh.chmod(0o700)  # whatever the umask says
            os.replace(fresh, file)
    return file


def _run(
    backward: bool, q_packing: Packing, kv_packing: Packing, causal: bool, scale: float, **tensors: Tensor
) -> None:
    """Each tensor is ``[N, H, K]`` with contiguous heads and places, under its name in attention.c."""
    job = Job(causal=causal, threads=torch.get_num_threads(), scale=scale)
    for name, x in tensors.items():
        setattr(job, name, x.data_ptr())
        if name != "stats":
            setattr(job, "out_stride" if name == "o" else f"{name}_stride", x.stride(0))
    tables = {
        "q_starts": q_packing.starts,
        "q_lengths": q_packing.lengths,
        "k_starts": kv_packing.starts,
        "k_lengths": kv_packing.lengths,
    }
    arrays = {name: (ctypes.c_int64 * len(values))(*values) for name, values in tables.items()}
    for name, array in arrays.items():
        setattr(job, name, ctypes.addressof(array))
    q = tensors["q"]
    job.sequences, job.heads, job.dim = q_packing.count, q.shape[1], q.shape[2]
    job.longest_q, job.longest_k = q_packing.max_length, kv_packing.max_length
    if library().run(ctypes.byref(job), int(backward), torch_threads()):
        raise MemoryError("attention: no memory for a head's working set")


def gives_gradient(x: Tensor, weight: Tensor) -> bool:
    """Whether ``weight_gradient`` computes this: bf16, CPU with AMX, sides a multiple of 16, enough rows."""
    return (
        x.dtype == weight.dtype == torch.bfloat16
        and x.device.type == "cpu"
        and x.ndim == 2
        and len(x) >= FEW_ROWS
        and weight.shape[0] % 16 == weight.shape[1] % 16 == 0
        and why_not() is None
        and has_amx()
    )


def weight_gradient(grad: Tensor, x: Tensor, bias: bool) -> tuple[Tensor, Tensor | None]:
    """``grad^T x`` ``[out, in]`` of ``grad`` ``[N, out]`` and ``x`` ``[N, in]``, with ``bias`` its rows' sum.

    Summed up in fp32 in the order of the rows, however many threads there are; ``gives_gradient`` says where
    it can be.
    """
    grad, x = (t if t.stride(1) == 1 else t.contiguous() for t in (grad, x))
    weight = grad.new_empty(grad.shape[1], x.shape[1])
    summed = grad.new_empty(grad.shape[1]) if bias else None
    job = LinearJob(
        grad.data_ptr(),
        x.data_ptr(),
        weight.data_ptr(),
        summed.data_ptr() if summed is not None else None,
        grad.stride(0),
        x.stride(0),
        len(x),
        *weight.shape,
        torch.get_num_threads(),
    )
    if library().weight_gradient(ctypes.byref(job), torch_threads()):
        raise MemoryError("linear layer: no memory for the working set of its gradient")
    return weight, summed


def _rows(x: Tensor) -> Tensor:
    """``x`` as the kernel can read it: heads and places contiguous; only the row stride is free."""
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] and x.stride(0) % 2 == 0 else x.contiguous()


class KernelAttention(torch.autograd.Function):
    """softmax(Q K^T * scale) V over packed rows, without padding and without keeping the weights."""

    @staticmethod
    def forward(ctx, q, k, v, q_packing: Packing, kv_packing: Packing, causal: bool, scale: float):
        q, k, v = _rows(q), _rows(k), _rows(v)
        out = q.new_empty(q.shape)  # [N, H, K]
        stats = q.new_empty(*q.shape[:2], 2, dtype=torch.float32)
        _run(False, q_packing, kv_packing, causal, scale, q=q, k=k, v=v, o=out, stats=stats)
        ctx.save_for_backward(q, k, v, out, stats)
        ctx.settings = q_packing, kv_packing, causal, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        q, k, v, out, stats = ctx.saved_tensors
        dq, dk, dv = q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)
        _run(True, *ctx.settings, q=q, k=k, v=v, out=out, grad=_rows(grad), stats=stats, dq=dq, dk=dk, dv=dv)
        return dq, dk, dv, None, None, None, None
