"""Solutions of lab 1."""

import torch
from torch import Tensor

from glassformer.nn import attend
from glassformer.nn.scores import AdditiveScore


def stable_softmax(scores: Tensor) -> Tensor:
    """Subtracting the largest score changes nothing: it cancels in the quotient."""
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def entropy_share(weights: Tensor) -> Tensor:
    """``xlogy`` is 0 where the weight is 0; 0 · log 0 would be NaN."""
    return -torch.xlogy(weights, weights).sum(-1) / torch.tensor(weights.shape[-1]).log()


def causal_and_real(lengths: list[int]) -> Tensor:
    """A triangle for all, and for each text the columns of its tokens."""
    longest = max(lengths)
    real = torch.arange(longest) < torch.tensor(lengths)[:, None]  # [B, T]
    return real[:, None] & torch.ones(longest, longest).tril().bool()


def as_heads(x: Tensor, heads: int) -> Tensor:
    """``view`` cuts the last axis; the heads then come to the front."""
    return x.view(len(x), heads, -1).transpose(0, 1)


def additive_scores(q: Tensor, k: Tensor, w1: Tensor, w2: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """Two new axes make a hidden layer for each pair: [T, 1, hidden] + [1, S, hidden]."""
    return torch.tanh((q @ w1.T)[:, None] + (k @ w2.T)[None] + b) @ v


def permuted(x: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """They are equal."""
    y = x[:, order]
    return attend(y, y, y), attend(x, x, x)[:, order]


def shift_kernel() -> Tensor:
    """Each output pixel is its left neighbor: a 1 on the left of the middle row, for each color."""
    kernel = torch.zeros(3, 3, 3, 3)
    for color in range(3):
        kernel[color, color, 1, 0] = 1.0
    return kernel


def test() -> None:
    scores = torch.tensor([[1000.0, 1001.0], [-1000.0, -1000.0]])
    assert torch.allclose(stable_softmax(scores), torch.tensor([[0.26894, 0.73106], [0.5, 0.5]]), atol=1e-4)
    shares = entropy_share(torch.tensor([[0.25] * 4, [1.0, 0, 0, 0], [0.5, 0.5, 0, 0]]))
    assert torch.allclose(shares, torch.tensor([1.0, 0.0, 0.5]), atol=1e-6)
    expected = [[[1, 0, 0], [1, 1, 0], [1, 1, 1]], [[1, 0, 0], [1, 1, 0], [1, 1, 0]]]
    assert causal_and_real([3, 2]).int().tolist() == expected
    x = torch.randn(5, 6)
    assert torch.equal(as_heads(x, 2), torch.stack([x[:, :3], x[:, 3:]]))
    scorer, q, k = AdditiveScore(4, 4, 7), torch.randn(3, 4), torch.randn(5, 4)
    weights = scorer.query.weight, scorer.key.weight, scorer.query.bias, scorer.vector.weight[0]
    assert torch.allclose(additive_scores(q, k, *weights), scorer(q[None], k[None])[0], atol=1e-5)
    x, order = torch.randn(1, 6, 4), torch.tensor([3, 1, 5, 0, 2, 4])
    first, second = permuted(x, order)
    assert torch.allclose(first, second, atol=1e-6)
    assert torch.allclose(second, attend(x, x, x)[:, order])
    image = torch.rand(1, 3, 5, 5)
    moved = torch.nn.functional.conv2d(image, shift_kernel(), padding=1)
    assert torch.equal(moved[..., 1:], image[..., :-1])
