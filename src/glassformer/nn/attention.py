"""Attention as a function (``attend``) and as a module (``MultiHeadAttention``).

    softmax(Q K^T / sqrt(d_k)) V                     Vaswani et al., 2017, equation 1; K in shapes is d_k

``attend`` has an explicit branch, which follows this equation, and faster branches with the same output.
``choose_branch`` selects the branch. All branches except varlen accept a bias of relative positions
(``nn/positions.py``). Shapes: N query tokens, H heads, B sequences of T query and S key tokens, K features
per head, D = H K. A *row* is the vector of one token.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from glassformer.config import check_heads, suggest
from glassformer.errors import ConfigError, ShapeError
from glassformer.nn import kernels
from glassformer.nn.dropout import check_rate
from glassformer.nn.dropout import dropout as drop
from glassformer.nn.kernels import ops
from glassformer.nn.linear import Linear, in_chunks, split_qkv, uses_chunks
from glassformer.nn.maps import (
    NEG_INF,
    Group,
    add_relative_bias,
    attend_with_maps,
    attention_weights,
    causal_mask,
    check_packed,
    explicit_weights,
    first_row_weights,
    length_groups,
    masked_softmax,
)
from glassformer.nn.positions import (
    apply_rotary,
    apply_rotary_padded,
    check_bias,
    distance_index,
    expand_bias,
)
from glassformer.nn.trace import LayerRecord
from glassformer.packing import Packing
from glassformer.runtime import return_freed_memory

# --- torch's own fused kernels --------------------------------------------------------------------
#
# ``padded`` computes padded sequences, ``attend_each`` one sequence at a time, ``varlen`` packed sequences.
#
# On a GPU, launching a kernel takes about as long as computing a whole batch. So a batch is one call of
# ``varlen`` if it supports the input, and otherwise of ``padded``.


MAX_WIDTH = 256  # maximum head width of ``varlen``


def has_varlen(q: Tensor, v: Tensor, q_packing: Packing, kv_packing: Packing, causal: bool) -> bool:
    """Whether ``varlen`` supports this input; its causal mask requires as many queries as keys."""
    width = q.shape[-1]
    fits = q.dtype in (torch.bfloat16, torch.float16) and width % 8 == 0 and v.shape[-1] == width <= MAX_WIDTH
    return fits and (not causal or q_packing is kv_packing) and has_flash(q.device)


@cache
def has_flash(device: torch.device) -> bool:
    """Whether the GPU supports FlashAttention: Ampere (compute capability 8.0) or later."""
    return torch.cuda.get_device_capability(device) >= (8, 0)


def attend_each(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_packing: Packing,
    kv_packing: Packing,
    causal: bool,
    scale: float,
    bias: Tensor | None = None,
) -> Tensor:
    """Attend one sequence at a time. Memory is linear in the length without a bias, quadratic with one."""
    outs = []
    for q_i, k_i, v_i in zip(q_packing.split(q), kv_packing.split(k), kv_packing.split(v), strict=True):
        heads = (x.transpose(0, 1)[None] for x in (q_i, k_i, v_i))  # [1, H, T, K]
        mask = causal_mask(len(q_i), len(k_i), q.device) if causal and len(q_i) != len(k_i) else None
        if bias is not None:
            mask = expand_bias(bias, len(q_i), len(k_i)).to(q.dtype)  # [H, T, S], added to the scores
            if causal:
                mask = mask.masked_fill(~causal_mask(len(q_i), len(k_i), q.device), NEG_INF)
        out = F.scaled_dot_product_attention(
            *heads, attn_mask=mask, is_causal=causal and mask is None, scale=scale
        )
        outs.append(out[0].transpose(0, 1))
    return torch.cat(outs)


def padded(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_packing: Packing,
    kv_packing: Packing,
    causal: bool,
    scale: float,
    dropout: float,
    bias: Tensor | None = None,
) -> Tensor:
    """Attend all sequences in one call, padded to the longest; the output is packed."""
    count, longest = q_packing.count, q_packing.max_length
    heads = (
        packing.pad(x).transpose(1, 2)  # [B, H, T, K]
        for x, packing in ((q, q_packing), (k, kv_packing), (v, kv_packing))
    )
    mask = None
    if causal or not kv_packing.is_uniform:  # without a mask, memory is linear in the length
        mask = kv_packing.mask()[:, None, None]  # [B, 1, 1, S]
        if causal:
            # The last query is at the position of the last key (``maps.causal_mask``).
            offsets = kv_packing.length_tensor - q_packing.length_tensor  # [B]
            queries, keys = (torch.arange(p.max_length, device=q.device) for p in (q_packing, kv_packing))
            mask = mask & (keys <= (queries + offsets[:, None])[:, None, :, None])  # [B, 1, T, S]
        mask = mask.expand(count, 1, longest, kv_packing.max_length)
    if bias is not None:
        dense_bias = expand_bias(bias, longest, kv_packing.max_length).to(q.dtype)  # [H, T, S]
        mask = dense_bias if mask is None else torch.where(mask, dense_bias, NEG_INF)  # [B, H, T, S]
    out = F.scaled_dot_product_attention(*heads, attn_mask=mask, dropout_p=dropout, scale=scale)
    return out.transpose(1, 2).flatten(0, 1)[q_packing.padded_rows]  # [N, H, K]


def varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_packing: Packing,
    kv_packing: Packing,
    causal: bool,
    scale: float,
    dropout: float,
) -> Tensor:
    """Attend packed sequences with FlashAttention (CUDA, half precision), without padding."""
    offsets = q_packing.cu_seqlens, kv_packing.cu_seqlens, q_packing.max_length, kv_packing.max_length
    if causal or dropout:
        # In torch 2.11 to 2.13, ``varlen_attn`` calls this op without ``causal`` and ``dropout``.
        rows = (_contiguous_heads(x) for x in (q, k, v))
        forward = torch.ops.aten._flash_attention_forward
        return forward(*rows, *offsets, dropout, causal, False, scale=scale)[0]
    from torch.nn.attention.varlen import varlen_attn

    # The keyword for the scale differs between torch 2.11 and 2.13, so q is scaled instead.
    q = q * (scale * q.shape[-1] ** 0.5) if scale != q.shape[-1] ** -0.5 else q
    out = varlen_attn(_contiguous_heads(q), _contiguous_heads(k), _contiguous_heads(v), *offsets)
    assert isinstance(out, Tensor)  # a tuple only with auxiliary outputs, which are not requested
    return out


def _contiguous_heads(x: Tensor) -> Tensor:
    """``x`` with contiguous features; the kernel accepts any stride of tokens and heads."""
    return x if x.stride(-1) == 1 else x.contiguous()


# --- the function ---------------------------------------------------------------------------------


Branch = Literal["auto", "explicit", "kernel", "grouped", "fused", "varlen", "padded"]
BRANCHES = ("auto", "explicit", "kernel", "grouped", "fused", "varlen", "padded")
DROPOUT_BRANCHES = ("explicit", "varlen", "padded")  # branches that support attention dropout
LONG = 1024  # sequence length in tokens from which the attention weights of a group do not fit into a cache
LONG_INPUT = 8192  # number of tokens in a batch above which prediction computes few heads at a time
HEADS_AT_ONCE = 2  # number of these heads


class AttendOptions(TypedDict, total=False):
    """Optional arguments of ``attend``."""

    mask: Tensor | None
    scale: float | None
    dropout: float
    branch: Branch
    bias: Tensor | None


@overload
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor | None = None,
    q_packing: Packing | None = None,
    kv_packing: Packing | None = None,
    causal: bool = False,
    *,
    return_weights: Literal[False] = False,
    **options: Unpack[AttendOptions],
) -> Tensor: ...
@overload
def attend(*args: Any, return_weights: bool, **kwargs: Any) -> Any: ...
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor | None = None,
    q_packing: Packing | None = None,
    kv_packing: Packing | None = None,
    causal: bool = False,
    *,
    mask: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    return_weights: bool = False,
    branch: Branch = "auto",
    bias: Tensor | None = None,
) -> Any:
    """Scaled dot-product attention over packed sequences, or over padded sequences with a mask.

    With ``q_packing``, sequences are packed: ``q`` is ``[N, H, K]`` (or ``[N, K]``: one head), and sequence i
    of ``q`` attends to sequence i of ``k`` and ``v``. Otherwise sequences are padded: ``q`` is ``[B, T, D]``
    (one head) or ``[B, H, T, K]``.

    Args:
        v: the values; None: the keys.
        kv_packing: packing of ``k`` and ``v``; None: ``q_packing``.
        causal: each token attends only to its own position and to earlier positions.
        mask: for padded input; boolean, True = may attend, ``[B, S]`` over the keys, ``[B, T, S]`` or
            broadcastable to ``[B, H, T, S]``. The output is zero for a query that may attend to no key.
        scale: factor of the scores; None: ``1 / sqrt(K)``.
        dropout: probability of zeroing a weight (branches explicit, varlen and padded).
        return_weights: also return the weights: ``[B, T, S]`` or ``[B, H, T, S]``; for packed sequences a
            tuple with one ``[H, T_i, S_i]`` per sequence.
        branch: the implementation; "auto": the fastest branch that supports the call.
        bias: ``[H, 2 L - 1]``, one number per head and distance ``s - t``, which is added to the score of
            query t and key s. Distances run from ``-(L - 1)`` to ``L - 1``, and L is at least the length of
            the longest sequence (``nn/positions.py``).

    Returns:
        The output, in the shape of ``q`` with the last axis of ``v``. With ``return_weights`` the tuple
        ``(output, weights)``.

    Raises:
        ShapeError: the shapes are incompatible, or there are both a mask and a packing.
        ConfigError: the branch is unknown or does not support the call.
    """
    v = k if v is None else v
    factor: float = float(q.shape[-1] ** -0.5) if scale is None else scale
    if branch not in BRANCHES:
        raise ConfigError(f"unknown branch {branch!r}", where="attend", fix=suggest(branch, BRANCHES))
    if q_packing is None and kv_packing is not None:
        raise ShapeError("kv_packing requires q_packing", where="attend", fix="Give both, or neither")
    if q_packing is None:
        out, weights = _attend_padded(q, k, v, mask, causal, factor, dropout, bias)
        return (out, weights) if return_weights else out
    if mask is not None:
        raise ShapeError(
            "a packed batch needs no mask", where="attend", fix="Give mask or q_packing, not both"
        )
    kv_packing = kv_packing or q_packing
    check_packed(q, k, v, q_packing, kv_packing)
    one_head = q.ndim == 2
    if one_head:
        q, k, v = q[:, None], k[:, None], v[:, None]
    if bias is not None:
        check_bias(bias, q.shape[1], q_packing, kv_packing, causal, factor)
    if branch == "auto":
        branch = choose_branch(q, k, v, q_packing, kv_packing, causal, dropout, return_weights, bias)
    if dropout > 0.0 and branch not in DROPOUT_BRANCHES:
        raise ConfigError(f"the {branch} branch has no dropout", where="attend", fix="Use branch=explicit")
    weights = None
    if branch == "explicit":
        weights = explicit_weights(q, k, q_packing, kv_packing, causal, factor, bias)
        parts = zip(weights, kv_packing.split(v), strict=True)  # [H, T, S] @ [H, S, K] -> [T, H, K]
        out = torch.cat([(drop(w, dropout, True) @ v_i.transpose(0, 1)).transpose(0, 1) for w, v_i in parts])
    elif branch == "kernel":
        if not kernels.supports(q, k, v):
            needs = "it needs fp32 or bf16 on a CPU and a head size that is a multiple of 16"
            reason = kernels.why_not() or needs
            raise ConfigError(f"no kernel for this call: {reason}", where="attend", fix="Use branch=auto")
        out = ops.packed_attention(q, k, v, q_packing, kv_packing, causal, factor, bias)
    elif branch == "varlen":
        if bias is not None:
            raise ConfigError("the varlen branch takes no bias", where="attend", fix="Use branch=padded")
        if causal and q_packing.lengths != kv_packing.lengths:
            what = "the varlen branch has no causal mask over more keys than queries"
            raise ConfigError(what, where="attend", fix="Use branch=padded")
        out = varlen(q, k, v, q_packing, kv_packing, causal, factor, dropout)
    elif branch == "padded":
        out = padded(q, k, v, q_packing, kv_packing, causal, factor, dropout, bias)
    elif branch == "fused":
        out = attend_each(q, k, v, q_packing, kv_packing, causal, factor, bias)
    else:
        if return_weights and not _needs_gradient(q, k, v, bias):
            out, weights = attend_with_maps(q, k, v, q_packing, kv_packing, causal, factor, bias)
        else:
            out = _Grouped.apply(q, k, v, length_groups(q_packing, kv_packing), causal, factor, bias)
    if return_weights and weights is None:
        weights = attention_weights(q, k, q_packing, kv_packing, causal, scale=factor, bias=bias)
    out = out.squeeze(1) if one_head else out
    return (out, weights) if return_weights else out


def choose_branch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_packing: Packing,
    kv_packing: Packing,
    causal: bool,
    dropout: float,
    return_weights: bool,
    bias: Tensor | None = None,
) -> Branch:
    """The fastest branch that supports the call.

    On a CPU the choice follows measurements (``benchmarks/speed/parts.py``). On a GPU the branch computes the
    batch in one call.
    """
    if return_weights:
        return "explicit" if dropout > 0.0 or _needs_gradient(q, k, v, bias) else "grouped"
    if q.is_cuda:
        return "varlen" if bias is None and has_varlen(q, v, q_packing, kv_packing, causal) else "padded"
    if dropout > 0.0:
        return "explicit"
    if kernels.supports(q, k, v):
        return "kernel"
    longest = max(q_packing.max_length, kv_packing.max_length)
    return "fused" if longest >= LONG else "grouped"


def _needs_gradient(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


# --- padded input --------------------------------------------------------------------------------


def _attend_padded(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    dropout: float,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor]:
    is_valid = q.ndim in (3, 4) and q.ndim == k.ndim and q.shape[-1] == k.shape[-1]
    if not is_valid or k.shape[:-1] != v.shape[:-1] or q.shape[:-2] != k.shape[:-2]:
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        raise ShapeError(f"shapes do not fit: {shapes}", where="attend", fix="Padded: [B, T, D] each")
    scores = scale * (q @ k.transpose(-2, -1))  # [B, (H,) T, S]
    if bias is not None:
        dense_bias = expand_bias(bias, scores.shape[-2], scores.shape[-1])  # [H, T, S]
        scores = scores + (dense_bias if q.ndim == 4 else dense_bias[0]).to(scores.dtype)
    allowed = causal_mask(scores.shape[-2], scores.shape[-1], scores.device) if causal else None
    if mask is not None:
        if mask.dtype != torch.bool:
            raise ShapeError(
                f"the mask is {mask.dtype}, not boolean", where="attend", fix="True = may attend"
            )
        if mask.ndim == 2:
            mask = mask[:, None]  # [B, 1, S]
        if mask.ndim == 3 and q.ndim == 4:
            mask = mask[:, None]  # [B, 1, T, S]
        try:
            mask = mask.expand(scores.shape)
        except RuntimeError:
            raise ShapeError(
                f"mask {tuple(mask.shape)} does not broadcast to scores {tuple(scores.shape)}", where="attend"
            ) from None
        allowed = mask if allowed is None else mask & allowed
    weights = masked_softmax(scores, allowed)
    return drop(weights, dropout, True) @ v, weights


# --- the faster branches -------------------------------------------------------------------------


class _Grouped(torch.autograd.Function):
    """Batched products over groups of G sequences of (nearly) equal length.

    The weights are saved for the backward pass: one ``[G, H, T, T]`` tensor per layer and group. torch's
    fused CPU kernel recomputes them, which is slower (``benchmarks/results/attention.json``).
    """

    @staticmethod
    def forward(ctx, q, k, v, groups: tuple[Group, ...], causal: bool, scale: float, bias: Tensor | None):
        out = q.new_empty(*q.shape[:2], v.shape[2])  # [N, H, K]
        saved = []
        for group in groups:
            q_g, k_g, v_g = group.gather_q(q, scale), group.gather_k(k), group.gather_k(v)  # [G*H, T, K]
            scores = add_relative_bias(torch.bmm(q_g, k_g.transpose(1, 2)), bias)  # [G*H, T, S]
            weights = group.mask_scores(scores, causal).softmax(-1)
            if group.has_fully_masked_rows(causal):
                weights.nan_to_num_(0.0)
            group.scatter_q(torch.bmm(weights, v_g), out)
            saved += [q_g, k_g, v_g, weights]
        ctx.save_for_backward(*saved)
        ctx.groups, ctx.scale, ctx.shapes = groups, scale, (q.shape, k.shape, v.shape)
        ctx.bias_grad = bias if bias is None else torch.zeros_like(bias)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        dq, dk, dv = (grad.new_empty(shape) for shape in ctx.shapes)
        for i, group in enumerate(ctx.groups):
            q_g, k_g, v_g, weights = ctx.saved_tensors[4 * i : 4 * i + 4]
            do = group.gather_q(grad, 1.0, zero_padding=True)
            group.scatter_k(torch.bmm(weights.transpose(1, 2), do), dv)
            dw = torch.bmm(do, v_g.transpose(1, 2))
            ds = torch.ops.aten._softmax_backward_data(
                dw, weights, -1, weights.dtype
            )  # w * (dw - sum(w * dw))
            if (dbias := ctx.bias_grad) is not None:
                sums = ds.view(-1, len(dbias), *ds.shape[1:]).sum(0, dtype=dbias.dtype).flatten(1)  # [H, T*S]
                dbias.index_add_(1, distance_index(dbias, *ds.shape[1:]).flatten(), sums)
            group.scatter_q(torch.bmm(ds, k_g).mul_(ctx.scale), dq)
            group.scatter_k(torch.bmm(ds.transpose(1, 2), q_g), dk)  # q_g is already scaled
        return dq, dk, dv, None, None, None, ctx.bias_grad


# --- the module ----------------------------------------------------------------------------------


class MultiHeadAttention(nn.Module):
    """Multi-head attention (Vaswani et al., 2017, 3.2.2) with heads of width ``d_model / num_heads``.

    Args:
        d_model: D, the number of features of a token.
        num_heads: must divide ``d_model``.
        dropout: rate on the attention weights, in training.
        bias: whether both projections have a bias.
        rotary: base of rotary positions (``positions.rotary``) in self-attention; None: no rotary positions.
        rotary_factor: rotary positions are divided by this number.

    Raises:
        ConfigError: ``num_heads`` does not divide ``d_model``.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float = 0.0,
        *,
        bias: bool = True,
        rotary: float | None = None,
        rotary_factor: float = 1.0,
    ):
        super().__init__()
        check_heads(d_model, num_heads)
        check_rate("dropout", dropout)
        self.d_model, self.num_heads, self.dropout = d_model, num_heads, dropout
        self.heads = num_heads, d_model // num_heads  # [H, K]
        self.rotary, self.rotary_factor = rotary, rotary_factor
        self.qkv = Linear(d_model, 3 * d_model, bias)  # queries, keys, values in one product
        self.out = Linear(d_model, d_model, bias)

    def project(
        self, x: Tensor, memory: Tensor | None = None, rows: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries from ``x`` (only for ``rows``, if given), keys and values from ``memory`` (None: ``x``)."""
        if memory is None and rows is None:
            return split_qkv(self.qkv(x).view(-1, 3, *self.heads))  # 3 x [N, H, K]
        q = self.queries(x if rows is None else x[rows])
        return q, *self.keys_values(x if memory is None else memory)

    def rotate(
        self,
        q: Tensor,
        k: Tensor,
        packing: Packing,
        rows: Tensor | None = None,
        *,
        in_place: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Apply rotary positions, if the layer has them, to queries and keys ``[N, H, K]``.

        Args:
            rows: ``[B]`` indices of the tokens of the queries; None: all tokens.
            in_place: see ``apply_rotary``.
        """
        if self.rotary is None:
            return q, k
        pos = packing.positions
        q_pos = pos if rows is None else pos[rows]
        angles = packing.max_length, self.rotary, self.rotary_factor
        q = apply_rotary(q, q_pos, *angles, in_place=in_place)
        return q, apply_rotary(k, pos, *angles, in_place=in_place)

    def by_heads(
        self, x: Tensor, packing: Packing, attend: Callable[..., Tensor], rows: Tensor | None = None
    ) -> Tensor:
        """Self-attention without the output layer, ``[N, D]`` -> ``[N, D]``, for a few heads at a time.

        This takes less memory than the queries, keys and values of all heads.

        Args:
            attend: returns ``[N, h, K]`` for the queries, keys and values of ``h`` heads.
            rows: ``[B]`` indices of the tokens to compute; None: all tokens.
        """
        query_x = x if rows is None else x[rows]
        width, d, out = self.heads[1], self.d_model, torch.empty_like(query_x)
        for begin in range(0, d, HEADS_AT_ONCE * width):
            end = min(begin + HEADS_AT_ONCE * width, d)
            inputs = enumerate((query_x, x, x))
            parts = (self.qkv.part(t, i * d + begin, i * d + end) for i, t in inputs)
            q, k, v = (part.view(len(part), -1, width) for part in parts)
            q, k = self.rotate(q, k, packing, rows, in_place=True)
            out[:, begin:end] = attend(q, k, v).flatten(1)
            del q, k, v  # free their memory before the next heads are computed
            return_freed_memory()
        return out

    def queries(self, x: Tensor) -> Tensor:
        """Queries only: ``[N, D]`` -> ``[N, H, K]``."""
        return self.qkv.part(x, 0, self.d_model).view(-1, *self.heads)

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values only: ``[N, D]`` -> 2 x ``[N, H, K]``."""
        d = self.d_model
        k, v = self.qkv.part(x, d, 3 * d).view(-1, 2, *self.heads).unbind(1)
        return k, v

    def forward(
        self,
        x: Tensor,  # [N, D]
        packing: Packing,
        memory: Tensor | None = None,  # [M, D]
        memory_packing: Packing | None = None,
        causal: bool = False,
        *,
        rows: Tensor | None = None,
        record: LayerRecord | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Self-attention, or with ``memory`` cross-attention.

        Args:
            rows: ``[B]`` one token index per sequence; only these tokens are computed.
            record: receives the attention weights of this layer; None: they are not recorded.
            bias: ``[H, 2 L - 1]``, relative positions; see ``attend``.

        Returns:
            ``[N, D]``, or ``[B, D]`` with ``rows``.
        """
        needs_all_rows = causal or (bias is not None and rows is not packing.first_rows)
        if rows is not None and needs_all_rows:  # the mask or the bias depends on the positions of the tokens
            return self.forward(x, packing, memory, memory_packing, causal, record=record, bias=bias)[rows]
        if memory is None and record is None and bias is None and uses_chunks(x, LONG_INPUT):
            queries = packing if rows is None else packing.one_row_each
            out = self.by_heads(x, packing, lambda q, k, v: attend(q, k, v, queries, packing, causal), rows)
            return in_chunks(self.out, out, in_place=True)
        q, k, v = self.project(x, memory, rows)
        if memory is None:
            q, k = self.rotate(q, k, packing, rows, in_place=True)
        q_packing = packing if rows is None else packing.one_row_each
        kv_packing = memory_packing if memory is not None else packing
        p = self.dropout if self.training else 0.0
        if record is not None and record.rows == "all":
            out, record.weights = attend(
                q, k, v, q_packing, kv_packing, causal, dropout=p, return_weights=True, bias=bias
            )
        else:
            out = attend(q, k, v, q_packing, kv_packing, causal, dropout=p, bias=bias)
        if record is not None and record.rows == "first" and causal:  # the first token attends only to itself
            record.weights = tuple(
                w[:, :1] for w in attention_weights(q, k, q_packing, kv_packing or packing, True, bias=bias)
            )
        elif record is not None and record.rows == "first":  # the branch does not return its weights
            first = q if rows is not None else q[packing.first_rows]
            record.weights = first_row_weights(first, k, kv_packing or packing, bias=bias)
        return in_chunks(self.out, out.flatten(1), in_place=True)

    def project_padded(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``[B, T, D]`` -> 3 x ``[B, H, T, K]``, with rotary positions."""
        b, t = x.shape[0], x.shape[1]
        q, k, v = self.qkv(x).view(b, t, 3, *self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        if self.rotary is not None:
            q, k = (apply_rotary_padded(t, self.rotary, self.rotary_factor) for t in (q, k))
        return q, k, v

    def padded(
        self, x: Tensor, mask: Tensor | None, bias: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Self-attention over padded ``[B, T, D]``; ``mask`` ``[B, T]`` is True at real tokens.

        With a ``bias``, the real tokens of a sequence must be contiguous.
        """
        b, t = x.shape[0], x.shape[1]
        q, k, v = self.project_padded(x)
        out = attend(q, k, v, causal=causal, mask=mask, bias=bias)
        return self.out(out.transpose(1, 2).reshape(b, t, self.d_model))
