"""Products in int8 against exact whole numbers, at every level of this processor that has them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.nn.levels import HERE, at_level, drawn
from torch.nn import functional as F

from glassformer.errors import ShapeError
from glassformer.nn import kernels
from glassformer.nn.encoder import Encoder, EncoderConfig
from glassformer.nn.int8 import Int8Linear, has_linear_layers, precision_of, quantized_copy
from glassformer.nn.kernels import int8, levels, loading, ops
from glassformer.nn.linear import Linear
from glassformer.packing import Packing

NAMES = [level.name for level in HERE if level.int8]
if kernels.why_not() is not None or not NAMES:
    pytest.skip(f"no products in int8: {int8.why_not()}", allow_module_level=True)


@pytest.fixture(params=NAMES, autouse=True, scope="module")
def level(request):
    with at_level(request.param) as found:
        assert int8.why_not() is None
        yield found


def exact(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """What the kernel shall give, to the bit: sums of whole numbers, and the fewest roundings to fp32."""
    x = x.float()
    whole, scale = int8.quantize(weight)
    largest = x.abs().amax(1)
    times = torch.where(largest > 1e-35, 127 / largest, 0.0)
    rows = (x * times[:, None]).round().to(torch.int64)
    assert rows.abs().max() <= 127
    sums = (rows @ whole.to(torch.int64).T).float()
    own = torch.where(largest > 1e-35, largest / 127, 0.0)
    return (sums.double() * (own[:, None] * scale).double() + bias.double()).float()


@given(rows=st.integers(1, 211), inputs=st.integers(1, 167), columns=st.integers(1, 149))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_products_are_the_exact_ones_of_whole_numbers(rows, inputs, columns):
    x, weight, bias = drawn(rows, inputs), drawn(columns, inputs, seed=5), drawn(columns, seed=7)
    found = int8.linear(x, int8.pack(weight, bias))
    torch.testing.assert_close(found, exact(x, weight, bias), rtol=0, atol=0)


@pytest.mark.parametrize(("rows", "inputs", "columns"), [(1031, 384, 1152), (97, 1536, 384), (7, 4099, 3)])
def test_large_products_are_exact_and_near_fp32(rows, inputs, columns):
    x, weight, bias = drawn(rows, inputs), drawn(columns, inputs, seed=5), drawn(columns, seed=7)
    found = int8.linear(x, int8.pack(weight, bias))
    assert torch.equal(found, exact(x, weight, bias))
    near = F.linear(x, weight, bias)
    assert float((found - near).norm() / near.norm()) < 0.02


def test_the_largest_sums_stay_in_32_bits():
    """Rows and weights at their bounds all along: 127 * 127 * 65,536 is half of what fits."""
    ones = torch.ones(3, int8.MAX_IN_FEATURES)
    found = int8.linear(torch.cat([ones, -ones]), int8.pack(ones, None))
    torch.testing.assert_close(found[:3], torch.full((3, 3), float(int8.MAX_IN_FEATURES)), rtol=1e-6, atol=0)
    assert torch.equal(found[3:], -found[:3])


def test_rows_of_zeros_weights_of_zeros_no_rows_and_no_bias():
    weight = drawn(37, 29)
    weight[5] = 0
    x = drawn(13, 29)
    x[4] = 0
    x[6] = 1e-38  # too small for a scale of its own
    packed = int8.pack(weight, None)
    found = int8.linear(x, packed)
    assert not found[4].any()
    assert not found[6].any()
    assert not found[:, 5].any()
    assert torch.equal(found, exact(x, weight, torch.zeros(37)))
    assert int8.linear(x[:0], packed).shape == (0, 37)


def test_huge_values_scale_and_what_is_no_number_stays_in_its_row():
    x, weight, bias = drawn(11, 31), drawn(17, 31, seed=5), torch.zeros(17)
    packed = int8.pack(weight, bias)
    torch.testing.assert_close(int8.linear(x * 2.0**90, packed), int8.linear(x, packed) * 2.0**90)
    x[2, 30], x[5, 0], x[7, 16] = float("inf"), float("nan"), -float("inf")
    found = int8.linear(x, packed)
    broken = torch.zeros(11, dtype=torch.bool)
    broken[[2, 5, 7]] = True
    assert found[broken].isnan().all()
    assert torch.equal(found[~broken], exact(x[~broken], weight, bias))


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_activations_are_those_of_torch(activation, scale):
    x, weight, bias = drawn(101, 67), scale * drawn(59, 67, seed=5), drawn(59, seed=7)
    x[3, 3] = float("nan")
    bare = int8.linear(x, int8.pack(weight, bias))
    wanted = {
        "relu": torch.relu(bare),
        "gelu": F.gelu(bare.double()).float(),
        "gelu_tanh": F.gelu(bare.double(), approximate="tanh").float(),
    }[activation]
    found = int8.linear(x, int8.pack(weight, bias), activation)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=3e-6 * scale, equal_nan=True)


def test_bf16_in_and_out_where_the_level_has_it(level):
    if not level.bf16:
        assert int8.compute_dtype() == torch.float32
        pytest.skip("a level in fp32")
    assert int8.compute_dtype() == torch.bfloat16
    x, weight, bias = drawn(103, 53).bfloat16(), drawn(41, 53, seed=5), drawn(41, seed=7)
    found = int8.linear(x, int8.pack(weight, bias))
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, exact(x, weight, bias).bfloat16())


def test_bits_depend_neither_on_the_batch_nor_on_the_threads_nor_on_the_layout():
    x, packed = drawn(307, 61), int8.pack(drawn(83, 61, seed=5), drawn(83, seed=7))
    whole = int8.linear(x, packed, "gelu")
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(int8.linear(x, packed, "gelu"), whole)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.cat([int8.linear(part, packed, "gelu") for part in x.split(7)]), whole)
    assert torch.equal(int8.linear(x.T.contiguous().T, packed, "gelu"), whole)
    wide = torch.cat([x, x], 1)[:, 61:]  # rows that lie apart
    assert torch.equal(int8.linear(wide, packed, "gelu"), whole)


def test_rows_that_do_not_fit_are_refused_and_more_axes_are_rows(level):
    layer = Int8Linear(Linear(13, 17))
    x = drawn(3, 5, 13)
    assert torch.equal(layer(x), layer(x.flatten(0, 1)).view(3, 5, 17))
    with pytest.raises(ShapeError, match=r"expected input of shape \[N, 13\], got \[3, 12\]"):
        layer(drawn(3, 12))
    for dtype in (torch.float16, torch.float64, *([] if level.bf16 else [torch.bfloat16])):
        with pytest.raises(TypeError, match="int8 layers take float32"):
            layer(drawn(3, 13).to(dtype))


def test_some_of_the_columns_are_those_of_all():
    x = drawn(19, 23)
    for width in (48, 51):  # what begins with a panel, and what does not
        layer = Linear(23, width)
        small = Int8Linear(layer)
        for begin, end in ((0, width // 3), (width // 3, width)):
            assert torch.equal(small.part(x, begin, end), small(x)[:, begin:end])
            torch.testing.assert_close(layer.part(x, begin, end), layer(x)[:, begin:end])


class Model(torch.nn.Module):
    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.encoder = Encoder(config)

    def set_compute_dtype(self, dtype: torch.dtype):
        self.encoder.to(dtype)
        return self


@pytest.mark.parametrize("activation", ["gelu", "relu", "gelu_tanh", "quick_gelu"])
def test_an_encoder_keeps_its_states_and_packed_rows_are_those_of_lone_texts(activation):
    torch.manual_seed(3)
    model = Model(EncoderConfig(48, 2, 3, 67, activation=activation)).eval()
    packing, x = Packing((7, 31, 1, 13)), drawn(52, 48)
    small = quantized_copy(model)
    assert (precision_of(model), precision_of(small)) == ("fp32", "int8")
    assert has_linear_layers(model)
    assert not has_linear_layers(small)
    x = x.to(next(small.encoder.parameters()).dtype)
    with torch.no_grad():
        near = model.encoder(x.float(), packing)
        found = small.encoder(x, packing)
        first = small.encoder(x, packing, rows=packing.first_rows)
        alone = [small.encoder(part, Packing((len(part),))) for part in x.split(packing.lengths)]
        x[7:38] = 5.0  # a neighbor
        other = small.encoder(x, packing)
    assert float((found.float() - near).norm() / near.norm()) < 0.05
    assert torch.equal(torch.cat(alone), found)
    assert torch.equal(first, found[packing.first_rows])
    assert torch.equal(other[38:], found[38:])
    assert torch.equal(other[:7], found[:7])


def test_there_is_no_gradient_and_a_graph_holds_the_operator():
    layer = Int8Linear(Linear(13, 17), "relu")
    with pytest.raises(RuntimeError, match="no gradient"):
        layer(drawn(3, 13).requires_grad_())
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph)
        return graph.forward

    with torch.no_grad():
        x = drawn(5, 13)
        assert torch.equal(torch.compile(layer, backend=keep, fullgraph=True)(x), layer(x))
    assert any("int8_linear" in str(node.target) for node in graphs[0].graph.nodes)
    meta = [t.to("meta") for t in (x, *layer.packed[:4])]
    assert ops.int8_linear(*meta, 13, 17, "none").shape == (5, 17)


def test_levels_that_gain_nothing_refuse(monkeypatch):
    for level in levels.LEVELS:
        monkeypatch.setattr(loading, "_loaded", [loading.Loaded(level, None)])  # type: ignore[arg-type]
        reason = int8.why_not()
        assert (reason is None) == level.int8
        if level.name == "amx":
            assert reason == "bf16 with AMX is faster"
        elif not level.int8:
            assert reason == "AVX512 without VNNI is no faster in int8 than in fp32"
    monkeypatch.setattr(loading, "_loaded", ["switched off"])
    assert int8.why_not() == "switched off"
