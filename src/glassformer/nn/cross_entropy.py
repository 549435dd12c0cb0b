"""Cross-entropy over a large vocabulary, straight from the rows that come before the last product.

``F.cross_entropy`` on ``[M, V]`` logits keeps three fp32 copies of them. Here the logits exist once, in the
format of the rows; a few rows at a time become fp32, give their loss, and are replaced by their gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 128  # rows in fp32 at a time: at 8,000 words they fit a core's cache


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, targets, smoothing: float):  # type: ignore[override]
        w = weight.to(x.dtype)
        logits = x @ w.t() if bias is None else torch.addmm(bias.to(x.dtype), x, w.t())  # [M, V]
        losses = torch.empty(len(x), dtype=torch.float32, device=x.device)
        predicted = torch.empty(len(x), dtype=torch.int64, device=x.device)
        wanted = any(ctx.needs_input_grad)
        for start in range(0, len(x), CHUNK):
            chunk = slice(start, start + CHUNK)
            part, target = logits[chunk].float(), targets[chunk, None]
            predicted[chunk] = part.argmax(1)
            total = part.logsumexp(1, keepdim=True)
            losses[chunk] = (
                total - (1.0 - smoothing) * part.gather(1, target) - smoothing * part.mean(1, keepdim=True)
            ).squeeze(1)
            if wanted:  # softmax minus the smoothed target
                grad = part.sub_(total).exp_()
                if smoothing:
                    grad.sub_(smoothing / part.shape[1])
                grad.scatter_add_(1, target, grad.new_full(target.shape, smoothing - 1.0))
                logits[chunk] = grad
        ctx.has_bias = bias is not None
        ctx.weight_dtype = weight.dtype
        ctx.bias_dtype = None if bias is None else bias.dtype
        if wanted:
            ctx.save_for_backward(x, w, logits)
        ctx.mark_non_differentiable(predicted)
        return losses, predicted

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, _):  # type: ignore[override]
        x, w, dlogits = ctx.saved_tensors
        scale = grad.to(x.dtype)[:, None]  # [M, 1]; on the narrow side of both products
        dx = (dlogits @ w).mul_(scale)
        dw = (dlogits.t() @ (x * scale)).to(ctx.weight_dtype)
        db = (dlogits.t() @ scale).squeeze(1).to(ctx.bias_dtype) if ctx.has_bias else None
        return dx, dw, db, None, None


def linear_cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The losses of ``softmax(x weight^T + bias)`` against ``targets``, and the most probable words.

    Args:
        x: ``[M, D]``; the product is computed in its number format, the softmax in fp32.
        weight: ``[V, D]``, the token table.
        targets: ``[M]``, from 0 to V - 1.
        label_smoothing: share of the target that is spread over all V (Szegedy et al., 2016).

    Returns:
        ``[M]`` fp32 losses, and ``[M]`` word numbers, without a gradient.
    """
    return _LinearCrossEntropy.apply(x, weight, bias, targets, label_smoothing)  # type: ignore[return-value]
