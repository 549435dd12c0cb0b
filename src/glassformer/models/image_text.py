"""Image-text models with one shared vector space (CLIP and SigLIP).

    image vectors [B, E] and text vectors [K, E], all of length 1        logits [B, K] = exp(s) * cosines + b

s is ``logit_scale`` and b is ``logit_bias``.

CLIP (Radford et al., 2021) applies layer norm to the hidden state of an image's [CLS] and projects it
(``FirstNormPooling``). Its text encoder is causal. The hidden state of the end-of-text token, which attends
to the whole text, is projected. b is 0.

SigLIP (Zhai et al., 2023) pools an image by attention (``UnitMultiHeadPooling``). Its texts are padded to the
same length, as in its training, and the encoder reads the padding too. The hidden state of the last token is
projected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.errors import ConfigError
from glassformer.models.image import ImageEncoder, ImageEncoderConfig
from glassformer.models.text import TextEncoder, TextEncoderConfig
from glassformer.nn.patches import Images
from glassformer.packing import Packing

INITIAL_SCALE = 1 / 0.07  # initial exp(s)


@dataclass(frozen=True)
class ImageTextConfig:
    """Config of both encoders.

    Args:
        image: with a pooling that returns E features of length 1: "first-norm" with a projection (CLIP), or
            "unit-multihead" (SigLIP).
        text: without pooling and head.
        end_token: id of the end-of-text token; None: the highest id of a text (CLIP); "last": the last token
            of a padded text (SigLIP).
    """

    image: ImageEncoderConfig
    text: TextEncoderConfig
    end_token: int | Literal["last"] | None = None

    def __post_init__(self) -> None:
        if self.image.projection is None and self.image.pooling != "unit-multihead":
            what = f"images with {self.image.pooling} pooling have no projection to compare with texts"
            raise ConfigError(what, where="projection", fix="Use pooling='first-norm' and a projection")

    @property
    def width(self) -> int:
        """E, the number of features of a vector."""
        return self.image.projection or self.image.encoder.d_model

    @property
    def has_biases(self) -> bool:
        """Whether the projection of texts and the logits have a bias, as in SigLIP."""
        return self.image.projection is None


def end_rows(ids: Tensor, packing: Packing, end_token: int | Literal["last"] | None) -> Tensor:
    """Index of the end of each text in packed ``ids`` ``[N]``: ``[B]``; see ``ImageTextConfig.end_token``."""
    if end_token == "last":
        return packing.first_rows + packing.length_tensor - 1
    marks = ids if end_token is None else (ids == end_token).int()
    return packing.first_rows + packing.pad(marks, -1).argmax(1)  # argmax returns the first maximum


class ImageTextModel(nn.Module):
    """The encoders of images and texts, both projections, and the scale and bias of the logits."""

    def __init__(self, config: ImageTextConfig):
        super().__init__()
        c = self.config = config
        d = c.text.encoder.d_model
        self.image, self.text = ImageEncoder(c.image), TextEncoder(c.text)
        self.text_projection = nn.Linear(d, c.width, bias=c.has_biases)
        nn.init.normal_(self.text_projection.weight, std=d**-0.5)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(INITIAL_SCALE)))
        self.logit_bias = nn.Parameter(torch.tensor(0.0)) if c.has_biases else None

    def image_vectors(self, pixel_values: Images) -> Tensor:
        """Vectors ``[B, E]`` of length 1 of normalized images ``[B, C, H, W]``; see ``ImageEncoder``."""
        pooled = self.image(pixel_values, packed=True).pooler_output
        assert pooled is not None, "there is a pooling"
        return pooled

    def text_vectors(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, *, packing: Packing | None = None
    ) -> Tensor:
        """Vectors ``[K, E]`` of length 1 of texts.

        ``input_ids`` are padded ``[K, T]`` with a mask (None: no padding), or packed ``[N]`` with a packing.
        For SigLIP, the padding is a part of the text: give no mask.
        """
        if packing is None:
            mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
            packing, flat = Packing.from_mask(mask)
            input_ids = input_ids.flatten()[flat]
        states = self.text(input_ids, packing=packing).states  # [N, D]
        ends = states[end_rows(input_ids, packing, self.config.end_token)]  # [K, D]
        return F.normalize(self.text_projection(ends.to(self.text_projection.weight.dtype)), dim=1)

    def forward(
        self,
        pixel_values: Images,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        packing: Packing | None = None,
    ) -> Tensor:
        """Logits ``[B, K]`` of each image with each text; the inputs are those of ``image_vectors`` and
        ``text_vectors``."""
        texts = self.text_vectors(input_ids, attention_mask, packing=packing)
        logits = self.logit_scale.exp() * self.image_vectors(pixel_values) @ texts.T
        return logits if self.logit_bias is None else logits + self.logit_bias
