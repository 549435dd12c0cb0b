"""The layer norm of encoder and decoder: torch's own, or a faster pass over the rows where there is one."""

from __future__ import annotations

from torch import Tensor, nn

from glassformer.nn.kernels import ops, rows
from glassformer.runtime import is_compiling


class LayerNorm(nn.LayerNorm):
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` (Ba et al., 2016), as ``torch.nn.LayerNorm``.

    In a post-norm layer it is the norm of a sum; then ``plus`` is the other summand.
    """

    def forward(self, x: Tensor, plus: Tensor | None = None) -> Tensor:  # [N, D] -> [N, D]
        if rows.can_norm(x, plus, self.weight, self.bias):
            if is_compiling():
                return ops.layer_norm(x, plus, self.weight, self.bias, self.eps)[0]
            return rows.layer_norm(x, plus, self.weight, self.bias, self.eps)
        return super().forward(x if plus is None else x + plus)
