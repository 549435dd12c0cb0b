"""Text pairs encoded by a bi-encoder (Sentence-BERT; Reimers and Gurevych, 2019).

    a batch of B pairs    [CLS] a [SEP] [CLS] b [SEP]  [CLS] c [SEP] [CLS] d [SEP]     B sequences, [N]
    its segments             0   0   0     1   1   1      0   0   0     1   1   1
    split_pairs(...)         the same tokens as 2 B sequences: attention and positions stay inside each text
    PairPooling           u, v = pooled vectors of both texts, normalized  ->  features [B, 4 D + 1]:

                          s u, s v, |u - v|, u * v, u . v

Differences from the paper: vectors have length 1, their cosine u . v is an additional feature, and u and v
are scaled by s = ``UV_SCALE``. With few training pairs, u and v do not help a linear head, and unscaled
vectors outweigh ``|u - v|``. Trained on 100 pairs of SICK, accuracy is 73 % with s = 1 and 80 % with s = 0.2
(mean of five samples).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.errors import ConfigError, ShapeError
from glassformer.packing import Packing

UV_SCALE = 0.2  # s
POOLINGS = ("first", "mean", "max")


def split_pairs(packing: Packing, segments: Tensor | None) -> Packing:
    """The packing of the same tokens as ``2 B`` texts instead of B pairs; synchronizes a GPU.

    Args:
        segments: ``[N]``, 0 in the first text of a pair, 1 in the second text.
    """
    if segments is None:
        what = "each input is two texts, but token_type_ids are missing"
        raise ShapeError(what, where="token_type_ids", fix="Give 0 in the first text and 1 in the second")
    second = torch.zeros_like(packing.length_tensor)
    second = second.index_add(0, packing.sequence_ids, segments.to(second))
    lengths = torch.stack([packing.length_tensor - second, second], 1).flatten().tolist()
    if min(lengths) < 1:
        raise ShapeError("a pair lacks one of its texts", where="token_type_ids")
    return Packing(tuple(lengths), packing.device)


def pair_width(d_model: int) -> int:
    """Width of ``pair_features`` for vectors of width ``d_model``."""
    return 4 * d_model + 1


def pair_features(u: Tensor, v: Tensor) -> Tensor:
    """Features of pairs from the vectors of both texts: 2 x ``[B, D]`` -> ``[B, 4 D + 1]``, fp32."""
    u, v = F.normalize(u.float(), dim=1), F.normalize(v.float(), dim=1)
    product = u * v
    return torch.cat([UV_SCALE * u, UV_SCALE * v, (u - v).abs(), product, product.sum(1, keepdim=True)], 1)


class PairPooling(nn.Module):
    """Pool both texts of each pair: hidden states of ``2 B`` texts -> ``[B, 4 D + 1]``.

    Args:
        text_pooling: the pooling of each text.
        kind: the name of that pooling.
    """

    text_pooling: Any

    def __init__(self, text_pooling: nn.Module, kind: str, d_model: int):
        super().__init__()
        if kind not in POOLINGS:
            what, fix = f"{kind} pooling does not support a bi-encoder", f"Use {', '.join(POOLINGS)}"
            raise ConfigError(what, where="pooling", fix=fix)
        self.text_pooling, self.width = text_pooling, pair_width(d_model)

    @property
    def reads_first_row_only(self) -> bool:
        """Whether only the first token of each text is used."""
        return bool(self.text_pooling.reads_first_row_only)

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        """Features ``[B, 4 D + 1]``; ``packing`` is from ``split_pairs``."""
        if x.shape[1] == self.width:  # cached features
            return x
        vectors = self.text_pooling(x, packing)  # [2 B, D]
        return pair_features(vectors[0::2], vectors[1::2])

    def padded(self, first: Tensor, second: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        """Like ``forward``, for padded hidden states of first and of second texts, 2 x ``[B, T, D]``."""
        u, v = (self.text_pooling.padded(x, mask & (segments == k)) for k, x in enumerate((first, second)))
        return pair_features(u, v)


def distinguishes_texts(config: Any) -> bool:
    """Whether a model with this config distinguishes the two texts of a pair."""
    return getattr(config, "sides", None) is not None or getattr(config.embedding, "segments", 0) > 1
