"""The losses of several labels and of numbers, beside torch's own."""

import torch
from torch.nn import functional as F

from glassformer.train.objectives import BinaryCrossEntropy, SquaredError, mixed_targets


def test_several_labels_are_binary_cross_entropies():
    torch.manual_seed(0)
    logits, y = torch.randn(7, 5), (torch.rand(7, 5) < 0.4).float()
    losses, right = BinaryCrossEntropy()(logits, y)
    torch.testing.assert_close(losses.mean(), F.binary_cross_entropy_with_logits(logits, y))
    assert int(right) == sum(((logits > 0) == (y > 0.5)).all(1).tolist())
    weights = (1.0, 2.0, 3.0, 0.5, 7.0)
    weighed, _ = BinaryCrossEntropy(weights, 0.2)(logits, y)
    torch.testing.assert_close(
        weighed.mean(),
        F.binary_cross_entropy_with_logits(logits, 0.8 * y + 0.1, pos_weight=torch.tensor(weights)),
    )


def test_numbers_are_squared_errors():
    logits, y = torch.tensor([[0.5], [2.0], [-1.0]]), torch.tensor([0.25, 0.0, -1.5])
    losses, right = SquaredError()(logits, y)
    torch.testing.assert_close(losses, torch.tensor([0.0625, 4.0, 0.25]))
    assert int(right) == 1


def test_targets_of_mixed_pictures():
    y = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    mixed = mixed_targets(y, torch.tensor([1, 2, 0]), torch.tensor([0.75, 1.0, 0.5]))
    torch.testing.assert_close(mixed, torch.tensor([[0.75, 0.25], [0.0, 1.0], [1.0, 0.5]]))
    torch.testing.assert_close(
        mixed_targets(torch.tensor([1.0, 3.0]), torch.tensor([1, 0]), torch.tensor([0.5, 0.25])),
        torch.tensor([2.0, 1.5]),
    )
