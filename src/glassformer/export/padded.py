"""The same weights over padded input, from ids or pixels to probabilities: the form for graphs.

A packed batch needs the lengths on the host, which a graph does not have. Here the lengths are a mask,
attention is the textbook's branch (each block's ``padded``), and everything else is the model's own modules.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError


class PaddedText(nn.Module):
    """A text classifier over ``[B, T]`` ids and a mask.

    Args:
        model: in evaluation mode, fp32.
        max_length: the longest text that will be given.
        temperature: what logits are divided by before they become probabilities.

    Raises:
        ConfigError: the model has no head for classes.
    """

    def __init__(self, model: Any, max_length: int, temperature: float = 1.0):
        super().__init__()
        if model.head is None:
            raise ConfigError(
                f"a {type(model).__name__} without a head for classes cannot be exported",
                where="export",
                fix="Export a classifier",
            )
        self.model, self.temperature = model, temperature
        if (places := model.embeddings.fixed_places(max_length)) is not None:
            self.register_buffer("places", places, persistent=False)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logits and probabilities, ``[B, C]`` each; padding may be on either side.

        Args:
            token_type_ids: the segments of pairs; None: all 0.
        """
        mask, places = attention_mask.bool(), getattr(self, "places", None)
        x = self.model.embeddings.padded(input_ids, attention_mask, places, token_type_ids)
        logits = self.model.answer_padded(x, mask)
        return logits, (logits / self.temperature).softmax(-1)


class PaddedPictures(nn.Module):
    """A picture classifier over ``[B, C, H, W]`` pixels of the size that it was trained on.

    Args:
        model: in evaluation mode, fp32.
        mean, std: of each channel, on a scale from 0 to 1.
        temperature: what logits are divided by before they become probabilities.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, model: Any, mean: tuple[float, ...], std: tuple[float, ...], temperature: float = 1.0):
        super().__init__()
        self.model, self.temperature = model, temperature
        self.register_buffer("mean", 255.0 * torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", 255.0 * torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """uint8 pixels -> logits and probabilities, ``[B, C]`` each."""
        logits = self.model.answer_padded(
            self.model.embeddings.padded((pixels.float() - self.mean) / self.std), None
        )
        return logits, (logits / self.temperature).softmax(-1)
