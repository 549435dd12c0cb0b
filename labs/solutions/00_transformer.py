"""Solutions of lab 0."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def known_share(tokens: list[str], vocabulary: list[str]) -> float:
    """A set makes each look-up cheap."""
    known = set(vocabulary)
    return sum(token in known for token in tokens) / len(tokens)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """``tril`` is True on the diagonal and below it."""
    T = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return scores.masked_fill(~torch.ones(T, T).tril().bool(), -torch.inf).softmax(-1) @ v


def attention_parameters(d_model: int) -> int:
    """Queries, keys, values and output: a matrix and a bias each."""
    return 4 * (d_model**2 + d_model)


def post_norm(x: Tensor, f, norm) -> Tensor:
    """The sum is normalized, and the branch reads the rows as they are."""
    return norm(x + f(x))


def max_of_real(x: Tensor, mask: Tensor) -> Tensor:
    """-∞ is never the largest; 0 would be where all real numbers are negative."""
    return x.masked_fill(~mask[..., None], -torch.inf).amax(1)


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """-log p = log Σ eˣ - x of the true class; ``logsumexp`` subtracts the largest logit first."""
    return (logits.logsumexp(1) - logits.gather(1, targets[:, None])[:, 0]).mean()


def packed_ids(ids: Tensor, pad: int = 0) -> tuple[Tensor, list[int]]:
    """A boolean index reads row by row."""
    real = ids != pad
    return ids[real], real.sum(1).tolist()


def test() -> None:
    assert known_share(["a", "good", "film", "a"], ["[PAD]", "a", "film"]) == 0.75
    q, k, v = torch.randn(3, 2, 5, 4)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(causal(q, k, v), expected)
    assert attention_parameters(16) == sum(p.numel() for p in nn.MultiheadAttention(16, 2).parameters())
    x = torch.randn(2, 3, 4)
    norm = nn.LayerNorm(4)
    expected = norm(3 * x)
    torch.testing.assert_close(post_norm(x, lambda rows: 2 * rows, norm), expected)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    expected = torch.stack([-torch.minimum(*x[0, :2].abs()), -x[1, 0].abs()])
    torch.testing.assert_close(max_of_real(-x.abs(), mask), expected)
    logits, targets = torch.tensor([[1000.0, 0.0], [1000.0, 0.0], [0.5, -0.5]]), torch.tensor([0, 1, 1])
    torch.testing.assert_close(loss_of(logits, targets), F.cross_entropy(logits, targets))
    ids, lengths = packed_ids(torch.tensor([[5, 6, 0], [7, 0, 0]]))
    assert ids.tolist() == [5, 6, 7]
    assert lengths == [2, 1]
    ids, lengths = packed_ids(torch.tensor([[5, 0, 9], [7, 9, 9]]), pad=9)
    assert (ids.tolist(), lengths) == ([5, 0, 7], [2, 1])
