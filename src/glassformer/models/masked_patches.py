"""Masked autoencoder for pre-training an image encoder (He et al., 2022).

The encoder reads a few visible patches, and a small decoder predicts the masked patches. Difference from the
paper: masked patches are not even embedded. The packed batch contains only visible patches.

    image --cut--> n patches --keep K--> encoder [B, 1 + K, D] --> decoder [B, n, D'] --> pixels [B, n, P]

An image has n patches, and K of them are visible. P = C * p * q is the number of pixel values of a patch.
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

VARIANCE_EPS = 1e-6  # added to the variance of a patch, which may be 0


@dataclass(frozen=True)
class DecoderSizes:
    """Sizes of the decoder, which is discarded after pre-training."""

    d_model: int = 128
    num_layers: int = 2
    num_heads: int = 4


class PatchDecoder(nn.Module):
    """Predicts the pixels of all patches from the hidden states of the visible ones and a mask token."""

    def __init__(self, sizes: DecoderSizes, width: int, patches: PatchConfig):
        super().__init__()
        d = sizes.d_model
        self.grid, self.num_prefix = patches.grid, patches.num_prefix
        self.enter = nn.Linear(width, d)
        self.hidden = nn.Parameter(torch.zeros(d))  # the mask token
        layers = EncoderConfig(
            d, sizes.num_layers, sizes.num_heads, 4 * d, norm="pre", eps=1e-6, final_norm=True
        )
        self.encoder = Encoder(layers)
        self.out = nn.Linear(d, patches.channels * math.prod(patches.patch_size))

    def forward(self, states: Tensor, visible: Tensor) -> Tensor:
        """Pixels ``[B, n, P]`` from hidden states ``[B, 1 + K, D]`` of the patches ``visible`` ``[B, K]``."""
        x = self.enter(states)
        prefix, x = x[:, : self.num_prefix], x[:, self.num_prefix :]
        b, n, d = len(x), math.prod(self.grid), x.shape[2]
        patches = self.hidden.to(x.dtype).expand(b, n, d)
        patches = patches.scatter(1, visible[:, :, None].expand(-1, -1, d), x)  # [B, n, D']
        tokens = torch.cat([prefix, patches + sinusoidal_2d(self.grid, d).to(x)], dim=1)
        packing = Packing.uniform(b, tokens.shape[1], tokens.device)
        out = self.encoder(tokens.flatten(0, 1), packing).view(b, -1, d)
        return self.out(out[:, self.num_prefix :])


class MaskedAutoencoder(ImageEncoder):
    """An image encoder without a head, with the decoder for pre-training."""

    kind = "encoder"

    def __init__(self, config: ImageEncoderConfig, sizes: DecoderSizes):
        if config.embedding.stem:
            what = "a convolution stem mixes neighboring patches, so it would reveal masked ones"
            raise ConfigError(what, where="stem", fix="Use a model without a stem")
        if config.embedding.channels * math.prod(config.embedding.patch_size) < 2:
            raise ConfigError("a patch has only one value", where="patch_size", fix="Use 2 or more")
        super().__init__(replace(config, head=None, pooling=None))
        self.sizes = sizes
        self.patch_decoder = PatchDecoder(sizes, config.encoder.d_model, config.embedding)
        self.init_module(self.patch_decoder)
        nn.init.normal_(self.patch_decoder.hidden, std=config.init_std)

    def reconstruct(self, images: Tensor, visible: Tensor) -> Tensor:
        """Predicted patches ``[B, n, P]`` in fp32, standardized like ``target``.

        Args:
            images: normalized, ``[B, C, H, W]``.
            visible: ``[B, K]`` indices of the visible patches.
        """
        x, packing = self.embeddings.embed_visible(images, visible)  # [N, D]
        states = self.encode_rows(x, packing).view(len(visible), -1, self.width)
        return self.patch_decoder(states, visible).float()

    def target(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Standardized patches ``[B, n, P]``, and the mean and standard deviation of each ``[B, n, 1]``."""
        patches = cut_patches(images.float(), self.config.embedding.patch_size)
        mean, std = patches.mean(2, keepdim=True), (patches.var(2, keepdim=True) + VARIANCE_EPS).sqrt()
        return (patches - mean) / std, mean, std

    def losses(self, images: Tensor, visible: Tensor) -> Tensor:
        """Mean squared error over the masked patches of each image, ``[B]``; predicting the mean gives 1."""
        target, _, _ = self.target(images)
        errors = (self.reconstruct(images, visible) - target).square().mean(2)  # [B, n]
        is_masked = torch.ones_like(errors).scatter(1, visible, 0.0)
        return (errors * is_masked).sum(1) / is_masked.sum(1)

    def encoder_only(self) -> ImageEncoder:
        """The encoder alone, for fine-tuning."""
        out = ImageEncoder(self.config)
        tensors = self.state_dict()
        out.load_state_dict({name: tensors[name] for name in out.state_dict()})
        out.weights_source = self.weights_source
        return out.eval()

    def set_compute_dtype(self, dtype: torch.dtype) -> MaskedAutoencoder:
        """Compute encoder and decoder in ``dtype``; positions and [CLS] stay in fp32."""
        self.patch_decoder.to(dtype)
        return super().set_compute_dtype(dtype)
