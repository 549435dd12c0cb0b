"""What is wrong with a batch's logits, for targets that are no classes: one loss an example.

A ``Classification`` objective is handed one of these instead of its cross-entropy.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class BinaryCrossEntropy:
    """Several labels an example: a sigmoid and a yes or no for each, their losses' mean.

    Args:
        pos_weight: ``[K]``, what a yes of each label counts, a no being 1; None: 1.
        smoothing: share of each target spread over yes and no.
    """

    pos_weight: tuple[float, ...] | None = None
    smoothing: float = 0.0

    def __call__(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """``[B, K]`` logits and targets from 0 to 1 -> losses ``[B]``, examples with all labels right."""
        wanted = targets.float()
        weight = None if self.pos_weight is None else logits.new_tensor(self.pos_weight)
        soft = wanted * (1 - self.smoothing) + self.smoothing / 2 if self.smoothing else wanted
        losses = F.binary_cross_entropy_with_logits(logits, soft, pos_weight=weight, reduction="none").mean(1)
        return losses, ((logits.detach() > 0) == (wanted > 0.5)).all(1).sum()


@dataclass(frozen=True)
class SquaredError:
    """A number an example, standardized: the squared error; right is what is less than half a spread off."""

    def __call__(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """``[B, 1]`` logits and targets ``[B]`` -> losses ``[B]`` and the number that is right."""
        gaps = logits[:, 0] - targets.float()
        return gaps.square(), (gaps.detach().abs() < 0.5).sum()


def mixed_targets(targets: Tensor, partner: Tensor, share: Tensor) -> Tensor:
    """The targets of pictures that were mixed, each with its partner's by their shares."""
    wanted = targets.float()
    share = share.to(wanted.device).view(-1, *[1] * (wanted.dim() - 1))
    return torch.lerp(wanted[partner.to(wanted.device)], wanted, share)
