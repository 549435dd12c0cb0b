"""Linear attention: a product of feature maps in the place of the softmax, so that no map is ever computed.

    V'_i = phi(Q_i)^T sum_j phi(K_j) V_j^T / phi(Q_i)^T sum_j phi(K_j),   phi(x) = elu(x) + 1

Katharopoulos et al., 2020, equations 5 to 7; causal: equations 8 to 12, sums over j <= i. Time is O(T K V) a
sequence and head. There is no 1 / sqrt(K): the paper has none. It is another function than softmax attention,
with other weights: a model must be trained with it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.nn.local import check_rows
from glassformer.packing import Packing

CHUNK = 128  # rows of a causal sequence computed at a time


def attend_linear(
    q: Tensor,  # [N, H, K]
    k: Tensor,  # [N, H, K]
    v: Tensor,  # [N, H, V]
    packing: Packing,
    causal: bool = False,
) -> Tensor:
    """Linear attention inside each sequence, ``[N, H, V]``; sums are made in fp32.

    Raises:
        ShapeError: sizes that do not fit.
    """
    check_rows(q, k, v, packing, "attend_linear")
    ones = v.new_ones(*v.shape[:2], 1)  # a last column of ones sums phi(K) along with phi(K) V^T
    rows = (_features(q), _features(k), torch.cat([v, ones], 2).float())
    one = _causal if causal else _everywhere
    outs = [
        one(*(x.transpose(0, 1) for x in (q_i, k_i, v_i)))  # [H, T, V + 1]
        for q_i, k_i, v_i in zip(*(packing.split(x) for x in rows), strict=True)
    ]
    out = torch.cat(outs, 1).transpose(0, 1)  # [N, H, V + 1]
    return (out[..., :-1] / out[..., -1:]).to(v.dtype)


def _features(x: Tensor) -> Tensor:
    """phi: positive, so that the weights are."""
    return F.elu(x.float()) + 1.0


def _everywhere(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q @ (k.transpose(1, 2) @ v)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A chunk at a time: what came before as one sum, what is inside the chunk as a masked product."""
    before = q.new_zeros(q.shape[0], q.shape[2], v.shape[2])  # [H, K, V]
    outs = []
    for q_c, k_c, v_c in zip(*(x.split(CHUNK, 1) for x in (q, k, v)), strict=True):
        inside = (q_c @ k_c.transpose(1, 2)).tril()
        outs.append(q_c @ before + inside @ v_c)
        before = before + k_c.transpose(1, 2) @ v_c
    return torch.cat(outs, 1)
