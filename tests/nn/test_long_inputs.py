"""Prediction computes long inputs in parts, which take less memory: as without parts."""

import pytest
import torch
from tests.shaken import shaken

from glassformer.nn import Encoder, EncoderConfig
from glassformer.nn.attention import HEADS_AT_ONCE, LONG_INPUT
from glassformer.nn.linear import ROWS, in_chunks, uses_chunks
from glassformer.nn.positions import ROTATED_ROWS, apply_rotary
from glassformer.packing import Packing

HEADS = HEADS_AT_ONCE + 1  # the last group of heads is smaller
D = 16 * HEADS
SHORT, LONG = Packing((7, ROWS + 3, 5)), Packing((LONG_INPUT // 2, 3, LONG_INPUT // 2 + 7))
OPTIONS = {
    "post": {},
    "pre": {"norm": "pre", "final_norm": True, "layer_scale": 0.5},
    "local": {"attention": "local", "attention_window": 3, "rotary_base": 1e4, "feed_forward": "geglu", "norm": "pre"},
    "linear": {"attention": "linear", "feed_forward": "swiglu"},
    "rotary": {"rotary_base": 1e4, "attention_bias": False},
    "causal": {"causal": True, "norm": "pre"},
    "relative": {"relative_buckets": 8},
}  # fmt: skip


@pytest.mark.parametrize("packing", [SHORT, LONG], ids=["parts of rows", "parts of heads"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_an_encoder_computes_long_inputs_as_short_ones(options, dtype, packing):
    torch.manual_seed(5)
    encoder = shaken(Encoder(EncoderConfig(D, 2, HEADS, 24, eps=1e-5, **options)), 0.3).to(dtype).eval()
    x = torch.randn(packing.total, D, dtype=dtype)
    given = x.clone()
    with torch.no_grad():
        assert uses_chunks(x)
        found = encoder(x, packing)
        first = encoder(x, packing, rows=packing.first_rows)
    assert torch.equal(x, given)  # the caller's rows are not overwritten
    expected = encoder(x, packing).detach()  # with gradients: in one piece
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(first, expected[packing.first_rows], rtol=tolerance, atol=tolerance)


def test_rotated_rows_do_not_depend_on_the_parts():
    x, positions = torch.randn(2 * ROTATED_ROWS + 3, 2, 8), torch.arange(2 * ROTATED_ROWS + 3)
    with torch.no_grad():
        expected = apply_rotary(x.clone(), positions, len(x), 1e4)
        assert torch.equal(apply_rotary(x.clone(), positions, len(x), 1e4, in_place=True), expected)
        longer_table = apply_rotary(x.clone(), positions, 5000, 1e4)
    assert torch.equal(longer_table, expected)


def test_rows_in_parts_keep_order_and_may_change_width():
    x = torch.arange(2.0 * ROWS + 5)[:, None].expand(-1, 3)
    with torch.no_grad():
        assert torch.equal(in_chunks(lambda part: part.sum(1, keepdim=True), x), x.sum(1, keepdim=True))
        own = x.clone()
        assert in_chunks(lambda part: part + 1, own, in_place=True) is own
        assert torch.equal(own, x + 1)
