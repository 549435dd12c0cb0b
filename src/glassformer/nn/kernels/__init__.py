"""CPU kernels in C: attention, GELU, layer norm, and the weight gradient of a linear layer.

The bf16 kernels need AVX512-BF16, and the weight gradient AMX. The fp32 kernels, attention and tanh GELU,
need AVX2. The libraries are compiled when the package is built. Without them, or with
``GLASSFORMER_KERNELS=0``, torch's own operators are used. ``why_not`` returns the reason. A *row* is the
vector of one token.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from glassformer.nn.kernels.jobs import AttentionJob, LinearJob
from glassformer.nn.kernels.loading import has_amx, has_dtype, level, library, torch_threads, why_not
from glassformer.packing import Packing

__all__ = [
    "KernelAttention",
    "KernelDisentangled",
    "attention",
    "attention_backward",
    "disentangled",
    "disentangled_backward",
    "has_amx",
    "has_dtype",
    "has_gradient",
    "level",
    "library",
    "supports",
    "torch_threads",
    "weight_gradient",
    "why_not",
]
MIN_ROWS = 256  # minimum for ``weight_gradient``; with fewer rows torch's product is as fast
FP32_BYTES = 4
BIAS_PADDING = 32  # number of zeros after each head's bias, because the kernel reads whole vectors
MAX_PARTS = 4  # maximum number of parts of a batch, for which gradients of distances are summed separately


def supports(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the attention kernel supports this input: CPU, dtype, head width a multiple of 16."""
    return (
        q.dtype == k.dtype == v.dtype
        and q.device.type == "cpu"
        and q.shape[2] % 16 == 0
        and q.shape[1:] == k.shape[1:] == v.shape[1:]
        and has_dtype(q.dtype)
    )


def _attention_job(
    q_packing: Packing, kv_packing: Packing, scale: float, tensors: dict[str, Tensor], causal: bool = False
) -> tuple[AttentionJob, list]:
    """A job for the attention kernel, and the arrays that it points to, which must stay alive.

    ``tensors`` are ``[N, H, K]``; their keys are fields of ``AttentionJob``.
    """
    no_window = -1
    job = AttentionJob(causal=causal, threads=torch.get_num_threads(), scale=scale, window=no_window)
    for name, x in tensors.items():
        setattr(job, name, x.data_ptr())
        if name != "stats":  # statistics are contiguous; ``o`` and ``out``, the output, have one stride
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
    job.parts = job.sequences
    return job, [*arrays.values()]


def _call_attention(job: AttentionJob, dtype: torch.dtype, backward: bool) -> None:
    run = library().attention if dtype == torch.bfloat16 else library().attention_fp32
    if run(ctypes.byref(job), int(backward), torch_threads()):
        raise MemoryError("attention: no memory for the workspace of a head")


def _run(
    backward: bool,
    q_packing: Packing,
    kv_packing: Packing,
    causal: bool,
    scale: float,
    bias: Tensor | None,
    window: int | None,
    **tensors: Tensor,
) -> Tensor | None:
    """Run the attention kernel.

    Returns:
        The gradient of the bias ``[H, 2 L - 1]``; None without a bias or in the forward pass.
    """
    job, _arrays = _attention_job(q_packing, kv_packing, scale, tensors, causal)
    if window is not None:
        job.window = window
    dbias = None
    if bias is not None:
        # The kernel adds the bias before it scales the scores.
        padded = F.pad(bias.float().contiguous() / scale, (0, BIAS_PADDING))
        middle = FP32_BYTES * (bias.shape[1] // 2)  # offset of distance 0 in bytes
        job.bias, job.bias_stride = padded.data_ptr() + middle, padded.shape[1]
        if backward:
            dbias = padded.new_zeros(q_packing.count, *padded.shape)
            job.dbias = dbias.data_ptr() + middle
    _call_attention(job, tensors["q"].dtype, backward)
    return None if dbias is None or bias is None else dbias.sum(0)[:, :-BIAS_PADDING].to(bias.dtype) / scale


def has_gradient(x: Tensor, weight: Tensor) -> bool:
    """Whether ``weight_gradient`` supports this input: bf16, AMX, sizes divisible by 16, enough rows."""
    return (
        x.dtype == weight.dtype == torch.bfloat16
        and x.device.type == "cpu"
        and x.ndim == 2
        and len(x) >= MIN_ROWS
        and weight.shape[0] % 16 == weight.shape[1] % 16 == 0
        and why_not() is None
        and has_amx()
    )


def weight_gradient(grad: Tensor, x: Tensor, bias: bool) -> tuple[Tensor, Tensor | None]:
    """Gradients of a linear layer: ``grad^T x`` ``[out, in]``, and the column sums of ``grad`` if ``bias``.

    Summed in fp32 in the order of rows, for any number of threads. Requires ``has_gradient``.

    Args:
        grad: ``[N, out]``.
        x: ``[N, in]``.
    """
    grad, x = (t if t.stride(1) == 1 else t.contiguous() for t in (grad, x))
    weight = grad.new_empty(grad.shape[1], x.shape[1])
    summed = grad.new_empty(grad.shape[1]) if bias else None
    job = LinearJob(rows=len(x), threads=torch.get_num_threads())
    job.grad, job.x, job.weight = grad.data_ptr(), x.data_ptr(), weight.data_ptr()
    job.bias = summed.data_ptr() if summed is not None else None
    job.grad_stride, job.x_stride = grad.stride(0), x.stride(0)
    job.out = weight.shape[0]
    setattr(job, "in", weight.shape[1])  # ``in`` is a keyword of Python
    if library().weight_gradient(ctypes.byref(job), torch_threads()):
        raise MemoryError("linear layer: no memory for the workspace of its gradient")
    return weight, summed


def _rows(x: Tensor) -> Tensor:
    """``x`` ``[N, H, K]`` with contiguous heads and features; tokens may have any even stride."""
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] and x.stride(0) % 2 == 0 else x.contiguous()


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_packing: Packing,
    kv_packing: Packing,
    causal: bool,
    scale: float,
    bias: Tensor | None = None,
    window: int | None = None,
) -> tuple[Tensor, Tensor]:
    """softmax(Q K^T * scale + B) V ``[N, H, K]``, and softmax statistics for the backward pass ``[N, H, 2]``.

    Args:
        bias: ``[H, 2 L - 1]``, B by distance (``nn/positions.py``); None: zeros.
        window: a query attends to keys at most this many positions away, in time linear in the length; None:
            to all keys. A window and a bias cannot be combined.
    """
    q, k, v = _rows(q), _rows(k), _rows(v)
    out = q.new_empty(q.shape)
    stats = q.new_empty(*q.shape[:2], 2, dtype=torch.float32)
    _run(False, q_packing, kv_packing, causal, scale, bias, window, q=q, k=k, v=v, o=out, stats=stats)
    return out, stats


def attention_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    stats: Tensor,
    grad: Tensor,
    q_packing: Packing,
    kv_packing: Packing,
    causal: bool,
    scale: float,
    bias: Tensor | None = None,
    window: int | None = None,
    stack: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of queries, keys and values ``[N, H, K]``, and of the bias if there is one.

    Args:
        out, stats: the results of ``attention``.
        grad: the gradient of ``out``.
        stack: return views of one tensor ``[N, 3, H, K]`` if all three have the same shape.
    """
    q, k, v, out, grad = map(_rows, (q, k, v, out, grad))
    stats = stats.contiguous()
    if stack and q.shape == k.shape:
        dq, dk, dv = q.new_empty(len(q), 3, *q.shape[1:]).unbind(1)
    else:
        dq, dk, dv = q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)
    inputs = {"q": q, "k": k, "v": v, "out": out, "grad": grad, "stats": stats}
    dbias = _run(True, q_packing, kv_packing, causal, scale, bias, window, **inputs, dq=dq, dk=dk, dv=dv)
    return dq, dk, dv, dbias


class KernelAttention(torch.autograd.Function):
    """Differentiable ``attention``; the weights are not stored."""

    @staticmethod
    def forward(
        ctx,
        q,
        k,
        v,
        q_packing: Packing,
        kv_packing: Packing,
        causal: bool,
        scale: float,
        bias: Tensor | None,
        window: int | None = None,
    ):
        q, k, v = _rows(q), _rows(k), _rows(v)
        out, stats = attention(q, k, v, q_packing, kv_packing, causal, scale, bias, window)
        ctx.save_for_backward(q, k, v, out, stats, bias)
        ctx.settings = q_packing, kv_packing, causal, scale, window
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        q, k, v, out, stats, bias = ctx.saved_tensors
        q_packing, kv_packing, causal, scale, window = ctx.settings
        *dqkv, dbias = attention_backward(
            q, k, v, out, stats, grad, q_packing, kv_packing, causal, scale, bias, window, stack=True
        )
        return *dqkv, None, None, None, None, dbias, None


def _run_disentangled(
    backward: bool,
    q_packing: Packing,
    kv_packing: Packing,
    scale: float,
    keys: Tensor | None,
    queries: Tensor | None,
    rows: Tensor,
    tensors: dict[str, Tensor],
) -> list[Tensor | None]:
    """Run the attention kernel with distance scores.

    Returns:
        In the backward pass the gradients of ``keys`` and ``queries``; None for absent ones.
    """
    job, _arrays = _attention_job(q_packing, kv_packing, scale, tensors)
    q, middle = tensors["q"], len(rows) // 2
    _, heads, width = q.shape
    # Indexed by the distance key - query for ``keys``, and by query - key for ``queries``.
    tables = {"k": (keys, rows.flip(0)), "q": (queries, rows)}
    by_distance = {name: t.flatten(1)[index] for name, (t, index) in tables.items() if t is not None}
    gradients = {}
    job.distance_stride = heads * width
    if backward:
        job.parts = min(q_packing.count, MAX_PARTS)
        job.ddistance_stride = -(-(len(rows) + BIAS_PADDING) // 16) * 16  # rounded up to a multiple of 16
    for name, table in by_distance.items():
        offset = middle * job.distance_stride * table.element_size()
        setattr(job, f"distance_{name}", table.data_ptr() + offset)
        if backward:
            gradients[name] = q.new_zeros(job.parts, heads, width, job.ddistance_stride, dtype=torch.float32)
            setattr(job, f"ddistance_{name}", gradients[name].data_ptr() + FP32_BYTES * middle)
    _call_attention(job, q.dtype, backward)
    table_gradients: list[Tensor | None] = []
    for name, (table, index) in tables.items():
        if table is None or not backward:
            table_gradients.append(None)
            continue
        by_row = gradients[name].sum(0)[..., : len(rows)].permute(2, 0, 1)  # [2 L - 1, H, K]
        total = q.new_zeros(table.shape, dtype=torch.float32)
        table_gradients.append(total.index_add_(0, index, by_row).to(table.dtype))
    return table_gradients


def disentangled(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_packing: Packing,
    kv_packing: Packing,
    scale: float,
    keys: Tensor | None,
    queries: Tensor | None,
    rows: Tensor,
) -> tuple[Tensor, Tensor]:
    """Attention with distance scores (``nn/disentangled.py``), and softmax statistics as from ``attention``.

    Args:
        q_packing: packing of the queries, which are the first tokens of each sequence.
        keys, queries: projected distances ``[R, H, K]``; None: scores do not use them.
        rows: ``[2 L - 1]``, the row in ``keys`` and ``queries`` of each distance query - key, ascending from
            ``-(L - 1)``; L is the length of the longest sequence.
    """
    q, k, v = _rows(q), _rows(k), _rows(v)
    out = q.new_empty(q.shape)
    stats = q.new_empty(*q.shape[:2], 2, dtype=torch.float32)
    tensors = {"q": q, "k": k, "v": v, "o": out, "stats": stats}
    _run_disentangled(False, q_packing, kv_packing, scale, keys, queries, rows, tensors)
    return out, stats


def disentangled_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    stats: Tensor,
    grad: Tensor,
    q_packing: Packing,
    kv_packing: Packing,
    scale: float,
    keys: Tensor | None,
    queries: Tensor | None,
    rows: Tensor,
) -> tuple[Tensor | None, ...]:
    """Gradients of q, k, v, ``keys`` and ``queries``; see ``attention_backward``."""
    q, k, v, out, grad = map(_rows, (q, k, v, out, grad))
    if q.shape == k.shape:
        dq, dk, dv = q.new_empty(len(q), 3, *q.shape[1:]).unbind(1)
    else:
        dq, dk, dv = q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)
    tensors = {"q": q, "k": k, "v": v, "out": out, "grad": grad, "stats": stats.contiguous()}
    tensors |= {"dq": dq, "dk": dk, "dv": dv}
    return dq, dk, dv, *_run_disentangled(True, q_packing, kv_packing, scale, keys, queries, rows, tensors)


class KernelDisentangled(torch.autograd.Function):
    """Differentiable ``disentangled``."""

    @staticmethod
    def forward(ctx, q, k, v, q_packing: Packing, kv_packing: Packing, scale: float, keys, queries, rows):
        q, k, v = _rows(q), _rows(k), _rows(v)
        out, stats = disentangled(q, k, v, q_packing, kv_packing, scale, keys, queries, rows)
        ctx.save_for_backward(q, k, v, out, stats, keys, queries, rows)
        ctx.settings = q_packing, kv_packing, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        q, k, v, out, stats, keys, queries, rows = ctx.saved_tensors
        q_packing, kv_packing, scale = ctx.settings
        dq, dk, dv, dkeys, dqueries = disentangled_backward(
            q, k, v, out, stats, grad, q_packing, kv_packing, scale, keys, queries, rows
        )
        return dq, dk, dv, None, None, None, dkeys, dqueries, None
