"""Gated feed-forward networks and learned scales of residual branches."""

import pytest
import torch

from glassformer.errors import ConfigError
from glassformer.nn import Encoder, EncoderConfig
from glassformer.nn.feedforward import GatedFeedForward
from glassformer.nn.int8 import has_linear_layers, quantized_copy
from glassformer.nn.kernels import int8
from glassformer.nn.lora import add_lora, merge
from glassformer.packing import Packing


class Model(torch.nn.Module):
    def __init__(self, **changes):
        super().__init__()
        torch.manual_seed(5)
        self.encoder = Encoder(EncoderConfig(16, 2, 2, 23, "pre", final_norm=True, **changes))

    def set_compute_dtype(self, dtype):
        self.encoder.to(dtype)
        return self


def test_the_first_half_is_the_gate():
    torch.manual_seed(3)
    layer, x = GatedFeedForward(7, 5), torch.randn(11, 7)
    weight, bias = layer.up.weight, layer.up.bias
    gate, up = x @ weight[:5].T + bias[:5], x @ weight[5:].T + bias[5:]
    wanted = (gate * torch.sigmoid(gate) * up) @ layer.down.weight.T + layer.down.bias
    torch.testing.assert_close(layer(x), wanted)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_scales_multiply_each_branch(norm):
    torch.manual_seed(5)
    config = EncoderConfig(12, 2, 3, 17, norm, layer_scale=1.0)
    scaled, x, packing = Encoder(config), torch.randn(12, 12), Packing((7, 5))
    plain = Encoder(EncoderConfig(12, 2, 3, 17, norm))
    plain.load_state_dict({k: v for k, v in scaled.state_dict().items() if "scale" not in k})
    torch.testing.assert_close(scaled(x, packing), plain(x, packing))
    with torch.no_grad():
        for layer, other in zip(scaled.layers, plain.layers, strict=True):
            for scale, product in (
                (layer.scale1, other.attention.out),
                (layer.scale2, other.feed_forward.down),
            ):
                scale.weight.uniform_(0.3, 3.0)
                product.weight *= scale.weight[:, None]  # the same as a scale behind it
                product.bias *= scale.weight
    torch.testing.assert_close(scaled(x, packing), plain(x, packing))
    padded = scaled.padded(packing.pad(x), packing.mask()).flatten(0, 1)[packing.padded_rows]
    torch.testing.assert_close(padded, scaled(x, packing))
    assert not config.is_plain


@pytest.mark.parametrize(
    "gated", [{"feed_forward": "swiglu"}, {"feed_forward": "geglu", "feed_forward_up_bias": False}]
)
def test_updates_inside_of_a_gate_are_refused(gated):
    model = Model(**gated)
    for targets in ("up", "down", "all-linear"):
        with pytest.raises(ConfigError, match=r"in this gated feed-forward network.*Use q,k,v,o"):
            add_lora(model, 2, targets=targets)
    before = model.encoder(torch.ones(3, 16), Packing((3,)))
    add_lora(model, 2, targets="q,k,v,o")
    torch.testing.assert_close(model.encoder(torch.ones(3, 16), Packing((3,))), before)
    merge(model)
    assert not any("parametrizations" in name for name in model.state_dict())


@pytest.mark.skipif(bool(int8.why_not()), reason="no kernels in int8")
def test_its_products_run_in_int8():
    model, x = Model(feed_forward="swiglu", layer_scale=1.0).eval(), torch.randn(11, 16)
    assert has_linear_layers(model)
    with torch.no_grad():
        wanted = model.encoder(x, Packing((11,)))
        half = quantized_copy(model)
        found = half.encoder(x.to(int8.compute_dtype()), Packing((11,))).float()
    assert float((found - wanted).norm() / wanted.norm()) < 0.1


def test_an_unknown_network_is_named():
    with pytest.raises(ConfigError, match="unknown feed-forward network 'swiglo'"):
        EncoderConfig(12, 1, 3, 17, feed_forward="swiglo")
