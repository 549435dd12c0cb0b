"""What a step minimises where an answer is a span: cross-entropy of its first and of its last token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.data.batching import TextBatch
from glassformer.packing import Packing
from glassformer.runtime import send
from glassformer.train.objectives import StepLoss


def log_shares(logits: Tensor, packing: Packing) -> Tensor:
    """A softmax over the tokens of each sequence, column by column: logits ``[N, 2]`` -> logarithms of shares
    ``[N, 2]``."""
    sequence = packing.sequence_ids
    index = sequence[:, None].expand_as(logits)
    highest = logits.new_full((packing.count, logits.shape[1]), -torch.inf)
    highest = highest.scatter_reduce(0, index, logits.detach(), "amax")  # [B, 2]
    below = logits - highest[sequence]
    sums = logits.new_zeros(highest.shape).index_add(0, sequence, below.exp())
    return below - sums.log()[sequence]


@dataclass
class AnswerSpans:
    """Mean of two cross-entropies a window, over all its tokens (Devlin et al., 2019); a sum over windows.

    Args:
        targets: ``[W, 2]`` of the whole training table: the first and the last token of the answer, counted
            in the window; [CLS], 0, where none stands in it.
    """

    targets: np.ndarray

    def __call__(self, model: nn.Module, batch: TextBatch) -> StepLoss:
        targets = send(torch.from_numpy(self.targets[batch.index]), batch.ids.device)  # [B, 2]
        logits = model(batch.ids, token_type_ids=batch.segments, packing=batch.packing).logits.float()
        shares = log_shares(logits, batch.packing)  # [N, 2]
        rows = batch.packing.first_rows[:, None] + targets
        found = shares.gather(0, rows)  # [B, 2]
        best = shares.detach().new_full(found.shape, -torch.inf)
        index = batch.packing.sequence_ids[:, None].expand_as(shares)
        best = best.scatter_reduce(0, index, shares.detach(), "amax")
        right = (found.detach() >= best).all(1).sum()
        return StepLoss(-found.mean(1).sum(), right, len(targets))
