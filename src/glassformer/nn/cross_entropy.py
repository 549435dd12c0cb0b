"""Cross-entropy over a large vocabulary, fused with the output projection.

``F.cross_entropy`` on ``[M, V]`` logits keeps three fp32 copies of the logits. Here there is one copy, in the
dtype of the input. The loss converts a chunk of rows at a time to fp32, and then overwrites the logits by
their gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 64  # number of rows in fp32 at a time; with a vocabulary of 8,000 they fit into a core's cache


class _LinearCrossEntropy(torch.autograd.Function):
    """The fused loss with its gradient.

    Label smoothing needs the mean logit over the vocabulary. This is the product of ``x`` with the mean row
    of ``weight``, so it needs no further pass over the logits.
    """

    @staticmethod
    def forward(ctx, x, weight, bias, targets, smoothing: float):
        w = weight.to(x.dtype)
        logits = x @ w.t() if bias is None else torch.addmm(bias.to(x.dtype), x, w.t())  # [M, V]
        predicted = torch.empty(len(x), dtype=torch.int64, device=x.device)
        log_sums = torch.empty(len(x), dtype=torch.float32, device=x.device)  # log of the sum of exponentials
        needs_grad = any(ctx.needs_input_grad)
        target_logits = logits.gather(1, targets[:, None]).squeeze(1).float()
        for start in range(0, len(x), CHUNK):
            chunk = slice(start, start + CHUNK)
            chunk_logits = logits[chunk]
            highest, predicted[chunk] = chunk_logits.max(1)
            p = torch.softmax(chunk_logits, 1, dtype=torch.float32)
            log_sums[chunk] = highest.float() - p.gather(1, predicted[chunk, None]).squeeze(1).log()
            if needs_grad:  # softmax minus the target
                target = targets[chunk, None]
                logits[chunk] = p.scatter_add_(1, target, p.new_full(target.shape, smoothing - 1.0))
        losses = log_sums - (1.0 - smoothing) * target_logits
        mean_row = w.float().mean(0) if smoothing else None  # [D]
        if mean_row is not None:
            mean_bias = 0.0 if bias is None else bias.float().mean()
            losses -= smoothing * (x.float() @ mean_row + mean_bias)
        ctx.smoothing, ctx.weight_dtype = smoothing, weight.dtype
        ctx.bias_dtype = None if bias is None else bias.dtype
        if needs_grad:
            ctx.save_for_backward(x, w, logits, mean_row)
        ctx.mark_non_differentiable(predicted)
        return losses, predicted

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, _):
        x, w, dlogits, mean_row = ctx.saved_tensors
        scale = grad.to(x.dtype)[:, None]  # [M, 1]; scales x and dx, which are narrower than the logits
        scaled = x * scale
        dx = dlogits @ w
        dw = (dlogits.t() @ scaled).to(ctx.weight_dtype)
        db = (dlogits.t() @ scale).squeeze(1).to(ctx.bias_dtype) if ctx.bias_dtype is not None else None
        if mean_row is not None:
            share = ctx.smoothing / len(w)
            dx -= (ctx.smoothing * mean_row).to(dx.dtype)
            dw -= share * scaled.float().sum(0).to(dw.dtype)
            if db is not None:
                db -= share * grad.float().sum().to(db.dtype)
        return dx.mul_(scale), dw, db, None, None


def linear_cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Cross-entropy losses of the logits ``x weight^T + bias``, and the most probable tokens.

    Args:
        x: ``[M, D]``; the product is computed in its dtype, the softmax in fp32.
        weight: ``[V, D]``, the token embeddings.
        targets: ``[M]``, from 0 to V - 1.
        label_smoothing: share of the target distribution that is spread over all V tokens (Szegedy et al.,
            2016).

    Returns:
        ``[M]`` fp32 losses, and ``[M]`` token ids without a gradient.
    """
    return _LinearCrossEntropy.apply(x, weight, bias, targets, label_smoothing)
