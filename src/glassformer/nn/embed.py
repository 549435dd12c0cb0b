"""Token embeddings with positions and segments."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.errors import ShapeError
from glassformer.nn.dropout import Dropout
from glassformer.nn.positions import Learned, LearnedPositions, Sinusoidal, sinusoidal
from glassformer.packing import Packing
from glassformer.types import Positions

NUM_SPECIAL = 5  # the first tokens of vocabularies trained here: [PAD] [UNK] [CLS] [SEP] [MASK]


@dataclass(frozen=True)
class EmbeddingConfig:
    """Config of token, position and segment embeddings, with norm and dropout."""

    vocab_size: int
    d_model: int
    positions: Positions | Learned = "learned"  # "learned" means Learned(max_positions)
    max_positions: int = 512  # for learned positions; sinusoidal positions are unlimited
    segments: int = 2  # number of BERT's token types; 0: no segments
    norm: bool = True
    eps: float = 1e-12
    dropout: float = 0.0
    # Width of the token embeddings, which a linear layer then projects; None: that of the other embeddings.
    token_width: int | None = None
    # Whether the token embeddings are frozen, except those of the special tokens, which come first.
    frozen: bool = False
    # Factor of the token embedding: sqrt(d_model) in Vaswani et al., who tie it to the output layer.
    scale: float = 1.0
    # A token that occurs k times in its sequence is scaled by k ** -damp_repeats: see ``repeat_scale``.
    damp_repeats: float = 0.0
    # Width of the embeddings and their norm, before a linear layer to d_model; None: no such layer.
    width: int | None = None
    norm_bias: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.positions, Learned):
            object.__setattr__(self, "max_positions", self.positions.length)

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens of a sequence; None: unlimited."""
        return self.max_positions if isinstance(self.position_config, Learned) else None

    @property
    def position_config(self) -> Learned | Sinusoidal | None:
        """The config of the position embeddings; None: the model has no positions."""
        if self.positions == "learned":
            return Learned(self.max_positions)
        if isinstance(self.positions, Learned):
            return self.positions
        return Sinusoidal() if self.positions == "sinusoidal" else None


def repeat_scale(ids: Tensor, packing: Packing, power: float) -> Tensor:
    """``k ** -power`` for every token that occurs ``k`` times in its sequence, ``[N]``.

    At 0.5, the k copies of a word together have the weight sqrt(k): sublinear term frequency (Manning,
    Raghavan and Schütze, 2008, section 6.4.1). At 1, all copies together weigh as much as one word. Equal ids
    are copies, so all unknown words, and all words that word dropout masked, are copies of [UNK].
    """
    keys = packing.sequence_ids.long() * 2**32 + ids.long()
    ordered = keys.sort().values  # not ``unique``, whose output shape depends on the data
    counts = torch.searchsorted(ordered, keys, right=True) - torch.searchsorted(ordered, keys)
    return counts.float() ** -power


class TextEmbedding(nn.Module):
    """The sum of token, position and segment embeddings (Devlin et al., 2019, fig. 2).

    The weights stay in fp32 when the encoder computes in bf16: the gradient of a frequent word is a sum over
    hundreds of tokens, too many for bf16. The output has ``compute_dtype``.
    """

    def __init__(self, config: EmbeddingConfig):
        super().__init__()
        c = self.config = config
        d = c.width or c.d_model
        width = c.token_width or d
        self.tokens = nn.Embedding(c.vocab_size, width)
        self.tokens.weight.requires_grad_(not c.frozen)
        self.special = nn.Embedding(min(NUM_SPECIAL, c.vocab_size), width) if c.frozen else None
        self.project = nn.Linear(width, d) if width != d else None
        self.positions = c.position_config.build(d) if c.position_config else None
        self.segments = nn.Embedding(c.segments, d) if c.segments else None
        self.norm = nn.LayerNorm(d, eps=c.eps, bias=c.norm_bias) if c.norm else None
        self.widen = nn.Linear(d, c.d_model) if c.width is not None else None
        self.dropout = Dropout(c.dropout)
        self.compute_dtype: torch.dtype | None = None

    def forward(self, ids: Tensor, packing: Packing, segments: Tensor | None = None) -> Tensor:
        """``ids`` ``[N]`` and ``segments`` ``[N]`` (None: all 0) -> ``[N, D]``.

        Raises:
            ShapeError: the number of ids differs from that of the packing, an id is not in the vocabulary, or
                a sequence is too long.
        """
        if ids.shape != (packing.total,):
            raise ShapeError(
                f"ids have shape {tuple(ids.shape)}, but the packing has {packing.total} tokens",
                where="input_ids",
            )
        is_checked = not ids.is_cuda and len(ids) > 0  # a check would synchronize a GPU
        if is_checked and not 0 <= int(ids.min()) <= int(ids.max()) < self.config.vocab_size:
            raise ShapeError(
                f"token ids run from {int(ids.min())} to {int(ids.max())}, but the vocabulary has "
                f"{self.config.vocab_size} tokens",
                where="input_ids",
                fix="Use the tokenizer that belongs to the model",
            )
        count = self.config.segments
        if segments is not None and segments.shape != ids.shape:
            raise ShapeError(
                f"segments have shape {tuple(segments.shape)}, but ids {tuple(ids.shape)}",
                where="token_type_ids",
            )
        if segments is not None and count and is_checked:
            smallest, largest = int(segments.min()), int(segments.max())
            if not 0 <= smallest <= largest < count:
                what = f"segments run from {smallest} to {largest}, but the model has {count}"
                raise ShapeError(what, where="token_type_ids")
        x = self._embed_tokens(ids)
        if self.config.scale != 1.0:
            x = x * self.config.scale
        if self.config.damp_repeats:
            x = x * repeat_scale(ids, packing, self.config.damp_repeats)[:, None]
        if self.segments is not None:
            x = x + (self.segments.weight[0] if segments is None else self.segments(segments))
        if self.positions is not None:
            x = x + self.positions(packing)
        if self.norm is not None:
            x = self.norm(x)
        if self.widen is not None:
            x = self.widen(self.dropout(x))
        if self.compute_dtype is not None:
            x = x.to(self.compute_dtype)
        return x if self.widen is not None else self.dropout(x)

    def _embed_tokens(self, ids: Tensor) -> Tensor:  # [...] -> [..., D]
        x = self.tokens(ids)
        if self.special is not None:
            is_special = ids < self.special.num_embeddings
            special = self.special(torch.where(is_special, ids, 0))
            x = torch.where(is_special[..., None], special, x)
        return x if self.project is None else self.project(x)

    def init_weights(self) -> None:
        """Initialize the projection so that embeddings keep their norm (about 1, like positions)."""
        if self.project is not None:
            nn.init.normal_(self.project.weight, std=self.project.in_features**-0.5)

    def set_compute_dtype(self, dtype: torch.dtype) -> None:
        self.compute_dtype = dtype

    # --- padded input, for exported graphs -------------------------------------------------------

    def fixed_positions(self, length: int) -> Tensor | None:
        """Sinusoidal positions ``[length, D]`` for ``padded``; None: the model has no such positions."""
        is_fixed = self.positions is not None and not isinstance(self.positions, LearnedPositions)
        return sinusoidal(length, self.config.width or self.config.d_model) if is_fixed else None

    def padded(
        self, ids: Tensor, mask: Tensor, fixed_table: Tensor | None, segments: Tensor | None = None
    ) -> Tensor:
        """``forward`` in evaluation mode for padded inputs ``[B, T]``; returns ``[B, T, D]``."""
        x = self._embed_tokens(ids) * self.config.scale
        if self.config.damp_repeats:
            is_copy = (ids[:, :, None] == ids[:, None, :]) & mask.bool()[:, None, :]  # [B, T, T]
            counts = is_copy.sum(2).clamp(min=1)
            x = x * (counts.float() ** -self.config.damp_repeats)[:, :, None]
        if self.segments is not None:
            x = x + (self.segments.weight[0] if segments is None else self.segments(segments))
        if self.positions is not None:
            positions = (mask.long().cumsum(1) - 1).clamp(min=0)  # number of real tokens before each token
            table = self.positions.vectors() if isinstance(self.positions, LearnedPositions) else fixed_table
            assert table is not None, "sinusoidal positions come from fixed_positions"
            x = x + table[positions]
        x = self.norm(x) if self.norm is not None else x
        return self.widen(x) if self.widen is not None else x
