"""A masked autoencoder: the image encoder reads a few patches, a small decoder paints the others.

He et al., "Masked Autoencoders Are Scalable Vision Learners" (2022). Ours differs in that hidden patches are
never embedded: the packed batch holds the seen ones alone.

    image --cut--> n patches --keep K--> encoder [B, 1 + K, D] --> decoder [B, n, D'] --> their pixels

Letters: n patches of an image, K of them seen, P = C * p * q pixel values of a patch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError
from glassformer.models.image import ImageEncoder, ImageEncoderConfig
from glassformer.nn.encoder import Encoder, EncoderConfig
from glassformer.nn.patches import PatchConfig, cut_patches, sinusoidal_2d
from glassformer.packing import Packing

FLAT = 1e-6  # added to a patch's variance: a patch of one color has none


@dataclass(frozen=True)
class DecoderSizes:
    """Of the decoder, which is thrown away when the encoder is taken on."""

    d_model: int = 128
    num_layers: int = 2
    num_heads: int = 4


class PatchDecoder(nn.Module):
    """States of the seen patches, a learned row in the place of each other one -> pixels of all."""

    def __init__(self, sizes: DecoderSizes, width: int, patches: PatchConfig):
        super().__init__()
        d = sizes.d_model
        self.grid, self.before = patches.grid, patches.before
        self.enter = nn.Linear(width, d)
        self.hidden = nn.Parameter(torch.zeros(d))
        layers = EncoderConfig(
            d, sizes.num_layers, sizes.num_heads, 4 * d, norm="pre", eps=1e-6, final_norm=True
        )
        self.encoder = Encoder(layers)
        self.out = nn.Linear(d, patches.channels * math.prod(patches.patch_size))

    def forward(self, states: Tensor, seen: Tensor) -> Tensor:
        """``[B, 1 + K, D]`` ([CLS] and the like first) and ``seen`` ``[B, K]`` -> ``[B, n, P]``."""
        x = self.enter(states)
        first, x = x[:, : self.before], x[:, self.before :]
        b, n, d = len(x), math.prod(self.grid), x.shape[2]
        rows = self.hidden.to(x.dtype).expand(b, n, d)
        rows = rows.scatter(1, seen[:, :, None].expand(-1, -1, d), x)  # [B, n, D']
        rows = rows + sinusoidal_2d(self.grid, d).to(x)
        rows = torch.cat([first, rows], dim=1)
        packing = Packing.uniform(b, rows.shape[1], rows.device)
        out = self.encoder(rows.flatten(0, 1), packing).view(b, -1, d)
        return self.out(out[:, self.before :])


class MaskedAutoencoder(ImageEncoder):
    """An image encoder without a head, and the decoder that teaches it."""

    kind = "encoder"

    def __init__(self, config: ImageEncoderConfig, sizes: DecoderSizes):
        if config.embedding.stem:
            what = "a convolution stem reads across the patches, so that hidden ones would be seen"
            raise ConfigError(what, where="stem", fix="Use a model without one")
        if config.embedding.channels * math.prod(config.embedding.patch_size) < 2:
            raise ConfigError("a patch of one value has no pattern", where="patch_size", fix="Use 2 or more")
        super().__init__(replace(config, head=None, pooling=None))
        self.sizes = sizes
        self.patch_decoder = PatchDecoder(sizes, config.encoder.d_model, config.embedding)
        self.draw(self.patch_decoder)
        nn.init.normal_(self.patch_decoder.hidden, std=config.init_std)

    def paint(self, pictures: Tensor, seen: Tensor) -> Tensor:
        """Normalized images ``[B, C, H, W]``, ``seen`` ``[B, K]`` -> ``[B, n, P]`` as ``target``; fp32."""
        x, packing = self.embeddings.some(pictures, seen)  # [N, D]
        states = self.encode_rows(x, packing).view(len(seen), -1, self.width)
        return self.patch_decoder(states, seen).float()

    def target(self, pictures: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of ``[B, C, H, W]``: its patches ``[B, n, P]`` with mean 0 and variance 1 each, and what was taken
        out of them, mean and deviation ``[B, n, 1]``.
        """
        raw = cut_patches(pictures.float(), self.config.embedding.patch_size)
        mean, std = raw.mean(2, keepdim=True), (raw.var(2, keepdim=True) + FLAT).sqrt()
        return (raw - mean) / std, mean, std

    def losses(self, pictures: Tensor, seen: Tensor) -> Tensor:
        """``[B]``: mean squared error over each image's hidden patches; of a gray answer it is 1."""
        target, _, _ = self.target(pictures)
        errors = (self.paint(pictures, seen) - target).square().mean(2)  # [B, n]
        hidden = torch.ones_like(errors).scatter(1, seen, 0.0)
        return (errors * hidden).sum(1) / hidden.sum(1)

    def taken(self) -> ImageEncoder:
        """The encoder alone, with these weights: what fine-tuning begins with."""
        out = ImageEncoder(self.config)
        own = self.state_dict()
        out.load_state_dict({name: own[name] for name in out.state_dict()})
        out.weights_source = self.weights_source
        return out.eval()

    def set_compute_dtype(self, dtype: torch.dtype) -> MaskedAutoencoder:
        """Encoder and decoder compute in ``dtype``; positions and [CLS] stay in fp32."""
        self.patch_decoder.to(dtype)
        return super().set_compute_dtype(dtype)
