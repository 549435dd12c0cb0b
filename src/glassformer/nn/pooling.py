"""Pooling: one vector per sequence from the hidden states of its tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.config import suggest
from glassformer.errors import BadValueError
from glassformer.nn.attention import MultiHeadAttention, attend
from glassformer.nn.dropout import Dropout
from glassformer.nn.encoder import EncoderConfig
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.trace import LayerRecord
from glassformer.packing import Packing


def first_rows(x: Tensor, packing: Packing) -> Tensor:
    """The hidden state of the first token of each sequence, usually [CLS]: ``[N, D]`` -> ``[B, D]``."""
    return x[packing.first_rows]


def mean_rows(x: Tensor, packing: Packing) -> Tensor:
    """The mean over the tokens of each sequence, summed in fp32: ``[N, D]`` -> ``[B, D]``."""
    if packing.is_uniform:
        return x.view(packing.count, packing.max_length, -1).float().mean(1).to(x.dtype)
    total = x.new_zeros(packing.count, x.shape[1], dtype=torch.float32)
    total = total.index_add(0, packing.sequence_ids, x.float())
    return (total / packing.length_tensor[:, None]).to(x.dtype)


def max_rows(x: Tensor, packing: Packing) -> Tensor:
    """The largest value of each feature in each sequence: ``[N, D]`` -> ``[B, D]``."""
    return torch.stack([rows.amax(0) for rows in packing.split(x)])


def padded_first(x: Tensor, mask: Tensor | None) -> Tensor:
    """The first token that is not padding: ``[B, T, D]`` -> ``[B, D]``. Padding may be on either side."""
    return x[:, 0] if mask is None else x[torch.arange(x.shape[0]), mask.long().argmax(1)]


def _token_mask(x: Tensor, mask: Tensor | None) -> Tensor:  # [B, T, 1], 1 at real tokens
    return x.new_ones(x.shape[0], x.shape[1], 1) if mask is None else mask[:, :, None].to(x.dtype)


# Length of vectors after ``UnitPooling``. The default learning rates of heads were measured on MiniLM's
# unnormalized vectors, which have lengths from 3 to 7.
UNIT_LENGTH = 5.0

# Each pooling has two forms. ``forward`` pools packed hidden states ``[N, D]``; some poolings also accept
# cached features ``[B, D]``, already pooled. ``padded`` pools ``[B, T, D]`` in exported graphs; its ``mask``
# ``[B, T]`` is True at real tokens (None: everywhere).


class FirstPooling(nn.Module):
    reads_first_row_only = True  # whether the input may be the hidden states of first tokens ``[B, D]``

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        return first_rows(x, packing) if len(x) != packing.count else x

    def padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return padded_first(x, mask)


class MeanPooling(nn.Module):
    reads_first_row_only = False

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        return mean_rows(x, packing)

    def padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        token_mask = _token_mask(x, mask)
        return (x * token_mask).sum(1) / token_mask.sum(1)


class UnitPooling(nn.Module):
    """The vectors of another pooling, scaled to length ``UNIT_LENGTH``.

    For sentence-transformers checkpoints that end with a normalization layer.
    """

    def __init__(self, pooling: FirstPooling | MeanPooling):
        super().__init__()
        self.pooling = pooling

    @property
    def reads_first_row_only(self) -> bool:
        return self.pooling.reads_first_row_only

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        return (UNIT_LENGTH * F.normalize(self.pooling(x, packing).float(), dim=1)).to(x.dtype)

    def padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return UNIT_LENGTH * F.normalize(self.pooling.padded(x, mask), dim=1)


class PatchMeanPooling(nn.Module):
    """The mean of the patches: ``[N, D]`` -> ``[B, D]``.

    Args:
        skip: number of tokens before the patches: [CLS] and registers.
    """

    reads_first_row_only = False

    def __init__(self, skip: int = 1):
        super().__init__()
        self.skip = skip

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        if len(x) == packing.count:  # cached features, already pooled
            return x
        if packing.is_uniform:
            patch_mean = x.view(packing.count, packing.max_length, -1)[:, self.skip :].float().mean(1)
        else:
            is_patch = packing.positions >= self.skip
            patch_mean = x.new_zeros(packing.count, x.shape[1], dtype=torch.float32)
            patch_mean = patch_mean.index_add(0, packing.sequence_ids[is_patch], x[is_patch].float())
            patch_mean = patch_mean / (packing.length_tensor[:, None] - self.skip)
        return patch_mean.to(x.dtype)

    def padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        token_mask = _token_mask(x, mask)
        is_patch = token_mask * (token_mask.cumsum(1) > self.skip)
        return (x * is_patch).sum(1) / is_patch.sum(1)


class FirstMeanPooling(PatchMeanPooling):
    """[CLS], concatenated with the mean of the patches: ``[N, D]`` -> ``[B, 2 D]`` (DINOv2)."""

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        if len(x) == packing.count:  # cached features, already pooled
            return x
        return torch.cat([first_rows(x, packing), super().forward(x, packing)], 1)

    def padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return torch.cat([padded_first(x, mask), super().padded(x, mask)], 1)


class FirstTwoPooling(nn.Module):
    """The first two tokens, concatenated: ``[N, D]`` -> ``[B, 2 D]`` (DeiT: [CLS], distillation token)."""

    reads_first_row_only = False

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        if len(x) == packing.count:  # cached features, already pooled
            return x
        return torch.cat([x[packing.first_rows], x[packing.first_rows + 1]], 1)

    def padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        later = None if mask is None else mask & (mask.long().cumsum(1) > 1)
        return torch.cat([padded_first(x, mask), x[:, 1] if later is None else padded_first(x, later)], 1)


class MaxPooling(nn.Module):
    reads_first_row_only = False

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        return max_rows(x, packing)

    def padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return torch.where(_token_mask(x, mask) > 0, x, torch.finfo(x.dtype).min).amax(1)


class AttentionPooling(nn.Module):
    """Attention over the tokens with one learned query w: ``sum_t softmax_t(w . x_t) x_t``."""

    reads_first_row_only = False

    def __init__(self, d_model: int):
        super().__init__()
        self.score = nn.Linear(d_model, 1)

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        scores = self.score(x.to(self.score.weight.dtype)).float().squeeze(1)  # [N]
        highest = torch.stack([s.amax() for s in packing.split(scores)]).detach()
        weights = (scores - highest[packing.sequence_ids]).exp()  # [N]
        sums = scores.new_zeros(packing.count).index_add(0, packing.sequence_ids, weights)
        shares = (weights / sums[packing.sequence_ids])[:, None]
        pooled = scores.new_zeros(packing.count, x.shape[1])
        return pooled.index_add(0, packing.sequence_ids, shares * x.float()).to(x.dtype)

    def padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        scores = torch.where(_token_mask(x, mask) > 0, self.score(x), torch.finfo(x.dtype).min)
        return (scores.softmax(1) * x).sum(1)


class MultiHeadPooling(nn.Module):
    """Multi-head attention with one learned query, then a feed-forward network (SigLIP's head).

        z = attention(query, x)        pooled = z + feed_forward(norm(z))

    Args:
        encoder: config of the encoder; the pooling has the same heads, widths and activation.
    """

    reads_first_row_only = False

    def __init__(self, encoder: EncoderConfig):
        super().__init__()
        c = encoder
        self.query = nn.Parameter(torch.zeros(c.d_model))
        self.attention = MultiHeadAttention(c.d_model, c.num_heads)
        self.norm = nn.LayerNorm(c.d_model, eps=c.eps)
        self.feed_forward = FeedForward(c.d_model, c.d_ff, c.activation)

    def forward(self, x: Tensor, packing: Packing, record: LayerRecord | None = None) -> Tensor:
        """``[N, D]`` -> ``[B, D]``; ``record`` receives the attention weights."""
        queries = self.query.expand(packing.count, -1)
        memory = x.to(self.query.dtype)
        z = self.attention(queries, packing.one_row_each, memory, packing, record=record)
        return z + self.feed_forward(self.norm(z))

    def padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        (b, t, d), (h, k) = x.shape, self.attention.heads
        queries = self.attention.queries(self.query.expand(b, -1))[:, :, None]  # [B, H, 1, K]
        keys, values = (
            part.view(b, t, h, k).transpose(1, 2) for part in self.attention.keys_values(x.reshape(-1, d))
        )
        z = self.attention.out(attend(queries, keys, values, mask=mask).reshape(b, d))
        return z + self.feed_forward(self.norm(z))


class UnitMultiHeadPooling(MultiHeadPooling):
    """SigLIP's image vector: the output of ``MultiHeadPooling``, scaled to length 1."""

    def forward(self, x: Tensor, packing: Packing, record: LayerRecord | None = None) -> Tensor:
        return F.normalize(super().forward(x, packing, record), dim=1)

    def padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return F.normalize(super().padded(x, mask), dim=1)


class Pooler(nn.Module):
    """BERT's pooler: ``tanh(W x_[CLS] + b)`` (Devlin et al., 2019).

    Args:
        dropout: rate on the hidden state of [CLS], in training.
    """

    reads_first_row_only = True

    def __init__(self, d_model: int, dropout: float = 0.0):
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        x = x if len(x) == packing.count else first_rows(x, packing)
        return torch.tanh(self.dense(self.dropout(x.to(self.dense.weight.dtype))))

    def padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return torch.tanh(self.dense(padded_first(x, mask)))


class FirstNormPooling(nn.Module):
    """Layer norm of the first token, as in CLIP; with a projection, CLIP's image vector of length 1.

    Args:
        encoder: config with width and eps.
        projection: number of features of the projection; None: no projection.
    """

    reads_first_row_only = True

    def __init__(self, encoder: EncoderConfig, projection: int | None = None):
        super().__init__()
        self.width = projection or encoder.d_model
        self.norm = nn.LayerNorm(encoder.d_model, eps=encoder.eps)
        self.project = nn.Linear(encoder.d_model, projection, bias=False) if projection else None

    def _projected(self, x: Tensor) -> Tensor:  # [B, D] -> [B, width]
        return x if self.project is None else F.normalize(self.project(x), dim=1)

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        x = x if len(x) == packing.count else first_rows(x, packing)
        return self._projected(self.norm(x.to(self.norm.weight.dtype)))

    def padded(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self._projected(self.norm(padded_first(x, mask)))


class TokenPooling(nn.Module):
    """No pooling, for token classification: ``[N, D]`` -> ``[N, D]``."""

    reads_first_row_only = False

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        return x

    def padded(self, x: Tensor, mask: Tensor | None) -> Tensor:  # [B, T, D] -> [B, T, D]
        return x


POOLINGS = {
    "first": lambda d: FirstPooling(),
    "mean": lambda d: MeanPooling(),
    "max": lambda d: MaxPooling(),
    "attention": AttentionPooling,
    "tokens": lambda d: TokenPooling(),
    "pooler": Pooler,
    "first-mean": lambda d: FirstMeanPooling(),
    "first-two": lambda d: FirstTwoPooling(),
    "patches": lambda d: PatchMeanPooling(),
    "unit-first": lambda d: UnitPooling(FirstPooling()),
    "unit-mean": lambda d: UnitPooling(MeanPooling()),
}


ENCODER_POOLINGS = {  # these need the config of the encoder
    "multihead": MultiHeadPooling,
    "unit-multihead": UnitMultiHeadPooling,
    "first-norm": FirstNormPooling,
}
PATCH_POOLINGS = {"first-mean": FirstMeanPooling, "patches": PatchMeanPooling}


def pooled_width(kind: str | None, d_model: int) -> int:
    """Width of the pooled vector for hidden states of width ``d_model``."""
    return 2 * d_model if kind in ("first-mean", "first-two") else d_model


def make_pooling(
    kind: str,
    d_model: int,
    dropout: float = 0.0,
    skip: int = 1,
    encoder: EncoderConfig | None = None,
    projection: int | None = None,
) -> nn.Module:
    """The pooling module called ``kind``.

    Args:
        dropout: rate, for "pooler".
        skip: number of tokens before the patches, for "first-mean" and "patches".
        encoder: config of the encoder, required by ``ENCODER_POOLINGS``.
        projection: number of features, for "first-norm".

    Raises:
        ConfigError: the pooling is unknown.
    """
    if kind == "first-norm" and encoder is not None:
        return FirstNormPooling(encoder, projection)
    if kind in ENCODER_POOLINGS and encoder is not None:
        return ENCODER_POOLINGS[kind](encoder)
    if kind not in POOLINGS:
        raise BadValueError(f"unknown pooling {kind!r}", where="pooling", fix=suggest(kind, list(POOLINGS)))
    if kind in PATCH_POOLINGS:
        return PATCH_POOLINGS[kind](skip)
    return Pooler(d_model, dropout) if kind == "pooler" else POOLINGS[kind](d_model)
