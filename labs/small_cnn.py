"""A small CNN for lab 4: it learns from the pictures that the ViT learns from, changed in the same ways."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.data.augment import LEVELS, augment, mix_pairs


class SmallCNN(nn.Module):
    """Two convolutions, a pool, a linear layer: fewer parameters than one layer of the lab's ViT has."""

    def __init__(self, classes: int = 10):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    def says(self, pixels: Tensor) -> Tensor:
        """uint8 ``[B, 1, H, W]`` -> class numbers ``[B]``."""
        with torch.no_grad():
            return self(pixels.float() / 255 - 0.5).argmax(1)


def fit_cnn(pixels: Tensor, targets: Tensor, treatment: str, epochs: int, seed: int) -> SmallCNN:
    """Trained on uint8 ``[B, 1, H, W]``; ``treatment`` is a rung of the augmentation ladder, or mixup or cutmix."""
    torch.manual_seed(seed)
    generator, model = torch.Generator().manual_seed(seed), SmallCNN(int(targets.max()) + 1)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    level = treatment if treatment in LEVELS else "none"
    for _ in range(epochs):
        for rows in torch.randperm(len(pixels), generator=generator).split(32):
            x, wanted = augment(pixels[rows], (8, 8), level, generator, flip=False), targets[rows]
            x = (x.float() / 255 if x.dtype == torch.uint8 else x) - 0.5
            if treatment not in LEVELS:
                x, mixed = mix_pairs(x, treatment, 1.0, 1.0, generator)
                wanted = wanted if mixed is None else mixed.soften(wanted, int(targets.max()) + 1)
            F.cross_entropy(model(x), wanted).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model
