"""Token, position and segment embeddings, by hand."""

import pytest
import torch
from torch.nn import functional as F

from glassformer.errors import ShapeError
from glassformer.nn import EmbeddingConfig, TextEmbedding, sinusoidal
from glassformer.packing import Packing

V, D = 31, 7
PACKING = Packing((3, 5))
PLACES = [0, 1, 2, 0, 1, 2, 3, 4]
IDS = torch.tensor([30, 0, 7, 7, 1, 2, 30, 5])
SEGMENTS = torch.tensor([0, 0, 1, 0, 1, 1, 0, 1])


def build(**changes):
    torch.manual_seed(3)
    return TextEmbedding(EmbeddingConfig(V, D, **{"max_positions": 11} | changes)).eval()


def test_bert_embeddings_are_a_normalised_sum():
    module = build(eps=0.1)
    with torch.no_grad():
        module.norm.weight.copy_(torch.randn(D))
        module.norm.bias.copy_(torch.randn(D))
    x = module.tokens.weight[IDS] + module.positions.weight[PLACES] + module.segments.weight[SEGMENTS]
    centred = x - x.mean(1, keepdim=True)
    wanted = centred / (x.var(1, correction=0, keepdim=True) + 0.1).sqrt()  # biased variance, eps in the root
    wanted = wanted * module.norm.weight + module.norm.bias
    torch.testing.assert_close(module(IDS, PACKING, SEGMENTS), wanted)


def test_no_segments_means_all_0():
    module = build()
    assert torch.equal(module(IDS, PACKING), module(IDS, PACKING, torch.zeros_like(SEGMENTS)))
    module(IDS, PACKING).sum().backward()
    assert not module.segments.weight.grad[1].any()


def test_the_plain_sum_of_a_small_encoder():
    module = build(positions="sinusoidal", segments=0, norm=False)
    wanted = module.tokens.weight[IDS] + sinusoidal(5, D)[PLACES]
    torch.testing.assert_close(module(IDS, PACKING), wanted)
    assert list(module.state_dict()) == ["tokens.weight"]


def test_without_positions_the_order_is_not_seen():
    module = build(positions="none", segments=0)
    out = module(IDS, PACKING)
    assert torch.equal(module(IDS[[2, 1, 0, 3, 4, 5, 6, 7]], PACKING)[0], out[2])


def test_repeats_are_scaled_down_within_their_sequence():
    module = build(positions="none", segments=0, norm=False, damp_repeats=0.5)
    ids = torch.tensor([7, 1, 7, 7, 30, 7, 30, 7])  # sequences of 3 and 5: 7 stands twice, then three times
    counts = torch.tensor([2, 1, 2, 3, 2, 3, 2, 3.0])
    wanted = module.tokens.weight[ids] / counts.sqrt()[:, None]
    torch.testing.assert_close(module(ids, PACKING), wanted)
    alone = torch.cat([module(part, Packing((len(part),))) for part in (ids[:3], ids[3:])])
    assert torch.equal(alone, module(ids, PACKING))  # what stands beside a text is not counted


def test_dropout_comes_after_norm():
    module = build(dropout=0.5).train()
    calm = module.eval()(IDS, PACKING)
    torch.manual_seed(4)
    out = module.train()(IDS, PACKING)
    kept = out != 0
    assert 10 < int(kept.sum()) < 46
    torch.testing.assert_close(out[kept], 2 * calm[kept])


def test_computes_in_fp32_and_hands_over_in_another_format():
    module = build()
    exact = module(IDS, PACKING, SEGMENTS)
    module.compute_dtype = torch.bfloat16
    assert torch.equal(module(IDS, PACKING, SEGMENTS), exact.bfloat16())
    assert all(p.dtype == torch.float32 for p in module.parameters())


def test_gradients_of_frequent_words_add_up():
    module = build(positions="none", segments=0, norm=False)
    module(IDS, PACKING).sum().backward()
    counts = torch.bincount(IDS, minlength=V).float()
    torch.testing.assert_close(module.tokens.weight.grad, counts[:, None].expand(V, D))
    torch.testing.assert_close(F.one_hot(IDS, V).float().T @ torch.ones(8, D), module.tokens.weight.grad)


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (IDS[:7], r"\(7,\), but the packing has 8 tokens"),
        (IDS[None], r"\(1, 8\), but the packing has 8 tokens"),
        (IDS.clamp(min=1) - 1 + 2 * (IDS == 30), "run from 0 to 31, but the vocabulary has 31 tokens"),
        (IDS - 1, "run from -1 to 29, but the vocabulary has 31 tokens"),
    ],
)
def test_ids_that_do_not_fit(ids, said):
    with pytest.raises(ShapeError, match=said):
        build()(ids, PACKING)


@pytest.mark.parametrize(
    "segments", [SEGMENTS + 5, SEGMENTS - 1, torch.tensor([1])], ids=["high", "low", "one"]
)
def test_segments_that_do_not_fit(segments):
    with pytest.raises(ShapeError, match=r"segments|token_type_ids"):
        build()(IDS, PACKING, segments)
