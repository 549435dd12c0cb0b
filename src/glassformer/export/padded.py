"""Models with padded inputs, for ONNX graphs.

Packed batches need the lengths of the texts as Python numbers, which a graph cannot have. These modules use a
mask instead of lengths, and eager attention (method ``padded`` of each block). All other modules and all
weights are those of the packed model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError
from glassformer.models.sentences import EmbeddingSettings

ToProbabilities = Callable[[Tensor, Any], Tensor]  # logits [B, C], temperature -> probabilities [B, C]


def softmax(logits: Tensor, temperature: Any) -> Tensor:
    """Class probabilities."""
    return (logits / temperature).softmax(-1)


class PaddedTokens(nn.Module):
    """Base class of models with ids ``[B, T]`` and a mask, for texts of at most ``max_length`` tokens.

    Args:
        model: a model in evaluation mode and fp32.
    """

    def __init__(self, model: Any, max_length: int):
        super().__init__()
        self.model = model
        if (positions := model.embeddings.fixed_positions(max_length)) is not None:
            self.register_buffer("positions", positions, persistent=False)

    def embed(self, ids: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """The embeddings ``[B, T, D]`` of the tokens."""
        return self.model.embeddings.padded(ids, mask, getattr(self, "positions", None), segments)


class PaddedText(PaddedTokens):
    """A text classifier, or a tagger if the head has outputs for every token.

    Args:
        temperature: divides the logits.
        to_probabilities: computes probabilities from logits and temperature.

    Raises:
        ConfigError: the model has no head for classes.
    """

    def __init__(
        self, model: Any, max_length: int, temperature: Any = 1.0, to_probabilities: ToProbabilities = softmax
    ):
        if model.head is None:
            what = f"a {type(model).__name__} without a head for classes cannot be exported"
            raise ConfigError(what, where="export", fix="Export a classifier")
        super().__init__(model, max_length)
        self.temperature, self.to_probabilities = temperature, to_probabilities

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The logits and probabilities, both ``[B, C]``; padding may be on either side.

        Args:
            token_type_ids: token types of pairs; None: all 0.
        """
        mask = attention_mask.bool()
        if getattr(self.model.config, "sides", None) and token_type_ids is not None:
            logits = self.pair_logits(input_ids, mask, token_type_ids)
        else:
            logits = self.model.padded_logits(self.embed(input_ids, attention_mask, token_type_ids), mask)
        return logits, self.to_probabilities(logits, self.temperature)

    def pair_logits(self, ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        """The logits of pairs whose texts are encoded separately."""
        masks = [mask & (segments == segment) for segment in (0, 1)]
        states = [self.model.encoder.padded(self.embed(ids, m.long()), m) for m in masks]
        return self.model.head(self.model.pooling.padded(*states, mask, segments))


class PaddedSpans(PaddedTokens):
    """A question answering model with start and end logits, both ``[B, T]``."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        mask = attention_mask.bool()
        x = self.embed(input_ids, attention_mask, token_type_ids)
        logits = self.model.spans(self.model.encoder.padded(x, mask))  # [B, T, 2]
        return logits[..., 0], logits[..., 1]


def _first(x: Tensor, mask: Tensor) -> Tensor:
    return x[:, 0]


def _last(x: Tensor, mask: Tensor) -> Tensor:
    last = (mask.sum(1) - 1).long()[:, None, None].expand(-1, 1, x.shape[2])
    return x.gather(1, last)[:, 0]


def _max(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill(mask[:, :, None] == 0, -3e38).amax(1)


def _mean(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)


def _sum_by_root_length(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True).sqrt()


def _weighted(x: Tensor, mask: Tensor) -> Tensor:
    return _mean(x, mask * mask.cumsum(1))


# ``models.sentences.POOLS`` for texts padded on the right: hidden states [B, T, D], mask [B, T] -> [B, D]
PADDED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": _first,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len_tokens": _sum_by_root_length,
    "weightedmean": _weighted,
    "lasttoken": _last,
}


class PaddedVectors(PaddedTokens):
    """An embedding model for texts padded on the right, with outputs ``[B, E]``."""

    def __init__(self, model: Any, sentences: EmbeddingSettings, max_length: int):
        super().__init__(model, max_length)
        self.sentences = sentences

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.embed(input_ids, attention_mask)
        x = self.model.encoder.padded(x, attention_mask.bool())
        mask = attention_mask.to(x.dtype)
        out = torch.cat([PADDED[mode](x, mask) for mode in self.sentences.pool.modes], 1)
        for step in self.sentences.after:
            out = step(out)
        return out[:, : self.sentences.truncate_dim]


class PaddedFeatures(nn.Module):
    """A linear model with feature ids ``[B, T]`` and their values; padding has the value 0."""

    table: Tensor
    bias: Tensor

    def __init__(self, model: Any, temperature: Any = 1.0, to_probabilities: ToProbabilities = softmax):
        super().__init__()
        self.temperature, self.to_probabilities = temperature, to_probabilities
        self.register_buffer("table", model.head.out.weight.detach().T.contiguous())  # [W, C]
        self.register_buffer("bias", model.head.out.bias.detach())

    def forward(self, ids: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The logits and probabilities, both ``[B, C]``."""
        logits = (values[:, None] @ self.table[ids])[:, 0] + self.bias
        return logits, self.to_probabilities(logits, self.temperature)


class PaddedImages(nn.Module):
    """An image classifier with pixels ``[B, C, H, W]`` of the training size.

    Args:
        model: a model in evaluation mode and fp32.
        mean, std: mean and standard deviation of each channel, for pixels from 0 to 1.
        temperature: divides the logits.
        to_probabilities: computes probabilities from logits and temperature.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        model: Any,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        temperature: Any = 1.0,
        to_probabilities: ToProbabilities = softmax,
    ):
        super().__init__()
        self.model, self.temperature, self.to_probabilities = model, temperature, to_probabilities
        self.register_buffer("mean", 255.0 * torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", 255.0 * torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """The logits and probabilities, both ``[B, C]``, of uint8 pixels."""
        x = self.model.embeddings.padded((pixels.float() - self.mean) / self.std)
        logits = self.model.padded_logits(x, None)
        return logits, self.to_probabilities(logits, self.temperature)
