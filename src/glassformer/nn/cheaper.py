"""Self-attention modules whose cost grows with the length and not with its square: local and linear.

They have the parameters of ``MultiHeadAttention`` under the same names and compute another function of
them, so a model is trained with the kind that it is used with. ``local.py`` and ``linear_attention.py`` have
the functions and the papers; here are their projections, and the maps that explanations and graphs ask for.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.errors import ConfigError
from glassformer.nn.attention import MultiHeadAttention
from glassformer.nn.linear_attention import attend_linear
from glassformer.nn.local import attend_local, check_window
from glassformer.nn.maps import masked_softmax
from glassformer.nn.trace import LayerRecord
from glassformer.packing import Packing


class CheaperAttention(MultiHeadAttention):
    """Self-attention of a cheaper kind; a subclass says how rows attend and what their map is.

    Its map is quadratic again: it is made only where a trace or a graph over padded input asks for it.
    """

    def attended(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing, causal: bool) -> Tensor:
        """3 x ``[N, H, K]`` -> ``[N, H, K]``."""
        raise NotImplementedError

    def weights(self, q: Tensor, k: Tensor, allowed: Tensor | None = None) -> Tensor:
        """2 x ``[..., T, K]`` -> ``[..., T, T]``, rows that sum to 1; ``allowed`` True: may look."""
        raise NotImplementedError

    def forward(
        self,
        x: Tensor,  # [N, D]
        packing: Packing,
        memory: Tensor | None = None,
        memory_packing: Packing | None = None,
        causal: bool = False,
        *,
        rows: Tensor | None = None,
        record: LayerRecord | None = None,
    ) -> Tensor:
        """As ``MultiHeadAttention``'s, without ``memory``.

        Raises:
            ConfigError: with ``memory``, or rows and causal together.
        """
        if memory is not None:
            raise ConfigError("attends to its own rows only", where=type(self).__name__)
        if causal and rows is not None:
            raise ConfigError("rows and causal do not go together", where=type(self).__name__)
        q, k, v = self.project(x)
        if record is not None:
            record.weights = self._maps(q, k, packing, causal, rows, record.rows == "first")
        out = self.attended(q, k, v, packing, causal).flatten(1)
        return self.out(out if rows is None else out[rows])

    def _maps(
        self, q: Tensor, k: Tensor, packing: Packing, causal: bool, rows: Tensor | None, first: bool
    ) -> tuple[Tensor, ...]:
        """A ``[H, T_i, T_i]`` each, or the one row of it that is wanted: ``[H, 1, T_i]``."""
        found = []
        for i, (q_i, k_i) in enumerate(zip(packing.split(q), packing.split(k), strict=True)):
            order = torch.ones(len(q_i), len(q_i), dtype=torch.bool, device=q.device).tril()
            map_i = self.weights(q_i.transpose(0, 1), k_i.transpose(0, 1), order if causal else None)
            at = int(rows[i]) - packing.starts[i] if rows is not None else 0
            found.append(map_i[:, at : at + 1] if first or rows is not None else map_i)
        return tuple(found)

    def padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The same over ``[B, T, D]``, by its map; ``mask`` ``[B, T]`` True at one stretch of real tokens."""
        b, t = x.shape[0], x.shape[1]
        q, k, v = self.qkv(x).view(b, t, 3, *self.heads).permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, T, K]
        out = self.weights(q, k, None if mask is None else mask[:, None, None]) @ v
        return self.out(out.transpose(1, 2).reshape(b, t, self.d_model))


class LocalAttention(CheaperAttention):
    """Each row sees at most ``window`` places on either side (Beltagy et al., 2020, without global tokens).

    Args:
        d_model, num_heads: as of ``MultiHeadAttention``.
        window: places; from the longest sequence on this is full attention.

    Raises:
        ConfigError: ``num_heads`` does not divide ``d_model``, or a window below 1.
    """

    def __init__(self, d_model: int, num_heads: int, window: int):
        super().__init__(d_model, num_heads)
        self.window = check_window(window, "LocalAttention")

    def attended(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing, causal: bool) -> Tensor:
        return attend_local(q, k, v, packing, self.window, causal)

    def weights(self, q: Tensor, k: Tensor, allowed: Tensor | None = None) -> Tensor:
        places = torch.arange(q.shape[-2], device=q.device)
        near = (places - places[:, None]).abs() <= self.window  # [T, T]
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return masked_softmax(scores, near if allowed is None else near & allowed)


class LinearAttention(CheaperAttention):
    """A product of feature maps in the place of the softmax (Katharopoulos et al., 2020)."""

    def attended(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing, causal: bool) -> Tensor:
        return attend_linear(q, k, v, packing, causal)

    def weights(self, q: Tensor, k: Tensor, allowed: Tensor | None = None) -> Tensor:
        alike = (F.elu(q.float()) + 1.0) @ (F.elu(k.float()) + 1.0).transpose(-1, -2)
        alike = alike if allowed is None else alike * allowed
        return (alike / alike.sum(-1, keepdim=True).clamp(min=1e-30)).to(q.dtype)
