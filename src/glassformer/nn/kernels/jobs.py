"""ctypes structures passed to the C kernels; they mirror ``jobs.h``, which explains each field."""

from __future__ import annotations

import ctypes


class AttentionJob(ctypes.Structure):
    """Attention over packed queries, keys and values, or its gradients."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "out", "grad", "o", "dq", "dk", "dv", "stats")),
        *((name, ctypes.c_void_p) for name in ("bias", "dbias")),
        *((name, ctypes.c_void_p) for name in ("distance_k", "distance_q", "ddistance_k", "ddistance_q")),
        *((f"{name}_stride", ctypes.c_int64) for name in ("q", "k", "v", "out", "grad", "dq", "dk", "dv")),
        *((f"{name}_stride", ctypes.c_int64) for name in ("bias", "distance", "ddistance")),
        *((name, ctypes.c_void_p) for name in ("q_starts", "q_lengths", "k_starts", "k_lengths")),
        *(
            (name, ctypes.c_int64)
            for name in ("sequences", "heads", "dim", "longest_q", "longest_k", "parts", "window")
        ),
        ("causal", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("scale", ctypes.c_float),
    ]


class LinearJob(ctypes.Structure):
    """The gradient of a linear layer's weight and bias."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("grad", "x", "weight", "bias")),
        *((name, ctypes.c_int64) for name in ("grad_stride", "x_stride", "rows", "out", "in")),
        ("threads", ctypes.c_int32),
    ]


class GeluJob(ctypes.Structure):
    """GELU, or its gradient."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "grad", "out")),
        ("count", ctypes.c_int64),
        ("threads", ctypes.c_int32),
    ]


class NormJob(ctypes.Structure):
    """Layer norm of a sum, or its gradients."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "plus", "weight", "bias", "sum", "out", "stats", "grad")),
        *((name, ctypes.c_void_p) for name in ("dx", "dweight", "dbias", "partial")),
        ("rows", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("threads", ctypes.c_int32),
        ("eps", ctypes.c_float),
    ]


class Int8Job(ctypes.Structure):
    """A linear layer in int8."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "out", "weight", "scale", "bias", "start")),
        *((name, ctypes.c_int64) for name in ("x_stride", "out_stride", "rows", "inputs", "columns")),
        *((name, ctypes.c_int32) for name in ("half", "activation", "threads")),
    ]


class SkipGramJob(ctypes.Structure):
    """Skip-gram training on some sentences: tables, settings, and the resulting loss."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("centres", "contexts", "ids", "starts")),
        *((name, ctypes.c_void_p) for name in ("keep", "probability", "alias")),
        *((name, ctypes.c_int64) for name in ("first", "last", "width", "size", "window", "negative")),
        ("state", ctypes.c_uint64),
        ("rate", ctypes.c_double),
        ("fall", ctypes.c_double),
        ("pairs", ctypes.c_int64),
        ("judged", ctypes.c_int64),
        ("loss", ctypes.c_double),
    ]


# In the order of ``structure_size`` in library.c.
JOBS = (AttentionJob, LinearJob, GeluJob, NormJob, Int8Job, SkipGramJob)
