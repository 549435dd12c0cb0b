"""Where a token stands: the closed form, its wavelengths, its linearity; learned positions."""

import math

import pytest
import torch

from glassformer.config import build, to_dict
from glassformer.errors import ConfigError, ShapeError
from glassformer.nn import EmbeddingConfig, LearnedPositions, SinusoidalPositions, TextEmbedding, sinusoidal
from glassformer.nn.positions import Learned, shift_matrix
from glassformer.packing import Packing


@pytest.mark.parametrize("d_model", [1, 2, 7, 13, 64])
def test_closed_form(d_model):
    """Odd widths too: they end on a sine."""
    table = sinusoidal(37, d_model)
    assert table.shape == (37, d_model)
    assert table.dtype == torch.float32
    for place in (0, 1, 5, 36):
        for column in range(d_model):
            angle = place / 10_000 ** ((column - column % 2) / d_model)
            wanted = math.cos(angle) if column % 2 else math.sin(angle)
            assert table[place, column].item() == pytest.approx(wanted, abs=1e-6)


def test_another_base():
    assert sinusoidal(4, 4, base=100.0)[3, 2].item() == pytest.approx(math.sin(3 / 10), abs=1e-6)


def test_far_places_are_exact():
    """Angles are computed in fp64: in fp32 the sine of place 100,003 would be off in the third digit."""
    table = sinusoidal(100_004, 2)
    assert table[100_003, 0].item() == pytest.approx(math.sin(100_003), abs=1e-6)


@pytest.mark.parametrize("d_model", [6, 22, 128])
def test_wavelengths_run_geometrically_from_2_pi(d_model):
    table = sinusoidal(2, d_model).double()
    turns = torch.atan2(table[1, 0::2], table[1, 1::2])  # radians per place
    wavelengths = 2 * math.pi / turns
    assert wavelengths[0].item() == pytest.approx(2 * math.pi, rel=1e-5)
    ratios = wavelengths[1:] / wavelengths[:-1]
    torch.testing.assert_close(ratios, torch.full_like(ratios, 10_000 ** (2 / d_model)), rtol=1e-4, atol=0)
    # One more step would be 10000 * 2 pi: the series runs towards it without reaching it.
    assert float(wavelengths[-1]) < 10_000 * 2 * math.pi
    assert float(wavelengths[-1] * ratios[-1]) == pytest.approx(10_000 * 2 * math.pi, rel=1e-3)


@pytest.mark.parametrize("base", [10_000.0, 61.0])
@pytest.mark.parametrize("shift", [1, 5, 41])
def test_a_shift_is_one_linear_map(shift, base):
    d_model = 10
    table, turn = sinusoidal(101, d_model, base), shift_matrix(shift, d_model, base)
    torch.testing.assert_close(table[:-shift] @ turn.T, table[shift:], atol=1e-6, rtol=0)
    back = shift_matrix(-shift, d_model, base)
    torch.testing.assert_close(table[shift:] @ back.T, table[:-shift], atol=1e-6, rtol=0)


def test_every_sequence_counts_from_its_own_start():
    module = SinusoidalPositions(7)
    rows = module(Packing((3, 1, 5)))
    table = sinusoidal(5, 7)
    assert torch.equal(rows, table[[0, 1, 2, 0, 0, 1, 2, 3, 4]])


def test_sinusoidal_positions_have_no_end_and_no_weights():
    module = SinusoidalPositions(7, length=11)
    assert torch.equal(module(Packing((29, 3)))[:29], sinusoidal(29, 7))
    assert torch.equal(module(Packing((11,))), sinusoidal(11, 7))
    assert not module.state_dict()
    assert not list(module.parameters())


def test_a_table_that_grew_under_inference_serves_training():
    module = SinusoidalPositions(7, length=3)
    with torch.inference_mode():
        module(Packing((13,)))
    x = torch.ones(13, 7, requires_grad=True)
    (x * module(Packing((13,)))).sum().backward()
    torch.testing.assert_close(x.grad, sinusoidal(13, 7))


def test_learned_positions():
    module = LearnedPositions(7, 5)
    packing = Packing((3, 7))
    rows = module(packing)
    assert torch.equal(rows, module.weight[[0, 1, 2, 0, 1, 2, 3, 4, 5, 6]])
    rows.sum().backward()
    assert module.weight.grad[:, 0].tolist() == [2, 2, 2, 1, 1, 1, 1]


def test_too_long_for_learned_positions():
    with pytest.raises(ShapeError, match=r"8 tokens, but the model has 7 positions.*max_length=7"):
        LearnedPositions(7, 5)(Packing((3, 8)))


def test_positions_may_begin_further_down_their_table():
    """As RoBERTa's, whose first two rows stand for none."""
    torch.manual_seed(0)
    config = EmbeddingConfig(13, 6, Learned(11, offset=2), segments=0)
    module = TextEmbedding(config)
    assert module.positions.weight.shape == (13, 6)
    assert config.max_positions == 11
    packing = Packing((3, 11))
    places = torch.cat([torch.arange(3), torch.arange(11)])
    assert torch.equal(module.positions(packing), module.positions.weight[places + 2])
    with pytest.raises(ShapeError, match="12 tokens, but the model has 11 positions"):
        module.positions(Packing((12,)))
    ids = torch.arange(13)[None, :11]
    padded = module.padded(ids, torch.ones_like(ids), None)
    torch.testing.assert_close(padded[0], module(ids[0], Packing((11,))))
    assert build(EmbeddingConfig, to_dict(config)) == config
    assert EmbeddingConfig(13, 6, "learned", 11).position_config == Learned(11)


def test_learned_positions_take_what_their_table_does():
    module = LearnedPositions(7, 5, 2, device="meta", dtype=torch.float64, offset=1)
    assert (module.padding_idx, module.offset) == (2, 1)
    assert (module.weight.device.type, module.weight.dtype) == ("meta", torch.float64)


def test_positions_that_cannot_be():
    for wrong in ((0, 0), (7, -1)):
        with pytest.raises(ConfigError, match="learned positions cannot have"):
            Learned(*wrong)


def test_how_long_a_text_may_be():
    assert EmbeddingConfig(13, 6, Learned(11, offset=2)).longest == 11
    assert EmbeddingConfig(13, 6, "learned", 17).longest == 17
    assert EmbeddingConfig(13, 6, "sinusoidal", 17).longest is None
    assert EmbeddingConfig(13, 6, "none", 17).longest is None
