"""What the blocks do where nothing is said."""

import pytest
import torch

from glassformer.nn.cheaper import attend_linear, attend_local
from glassformer.nn.embed import EmbeddingConfig, TextEmbedding
from glassformer.nn.positions import shift_matrix, sinusoidal
from glassformer.packing import Packing

PACKING = Packing((5, 2, 11))


@pytest.mark.parametrize("attention", [attend_linear, lambda *a, **o: attend_local(*a, 3, **o)])
def test_attention_looks_both_ways(attention):
    q, k, v = torch.randn(3, 18, 2, 7, generator=torch.Generator().manual_seed(1)).unbind(0)
    assert torch.equal(attention(q, k, v, PACKING), attention(q, k, v, PACKING, causal=False))
    assert not torch.allclose(attention(q, k, v, PACKING), attention(q, k, v, PACKING, causal=True))


def test_positions_have_the_papers_base_and_512_places():
    assert torch.equal(sinusoidal(7, 6), sinusoidal(7, 6, 10_000.0))
    assert torch.equal(shift_matrix(3, 6), shift_matrix(3, 6, 10_000.0))
    config = EmbeddingConfig(17, 6)
    assert (config.positions, config.max_positions, config.segments, config.norm) == ("learned", 512, 2, True)
    assert (config.eps, config.dropout, config.scale, config.damp_repeats) == (1e-12, 0.0, 1.0, 0.0)


def test_of_a_frozen_table_the_five_special_tokens_learn():
    embedding = TextEmbedding(EmbeddingConfig(17, 6, frozen=True))
    learning = {name: tuple(p.shape) for name, p in embedding.named_parameters() if p.requires_grad}
    assert learning["special.weight"] == (5, 6)
    assert (17, 6) not in learning.values()
    embedding(torch.arange(17), Packing((17,))).sum().backward()
    assert embedding.special is not None
    assert embedding.special.weight.grad is not None
