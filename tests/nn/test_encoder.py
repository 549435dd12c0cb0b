"""THE encoder against torch's with copied weights, and its shortcuts against the long way."""

import pytest
import torch
from tests.shaken import shaken
from torch import nn

from glassformer.errors import ConfigError, NotEnoughMemoryError
from glassformer.nn import Encoder, EncoderConfig, EncoderLayer, FeedForward, Trace, TraceRecord
from glassformer.packing import Packing

D, HEADS, FF, LAYERS = 15, 5, 23, 3
EPS = 0.1  # large, so that its place in the root shows
PACKING = Packing((7, 2, 5))


def randomised(module):
    torch.manual_seed(11)
    return shaken(module, 0.3).double()


def torch_layer(config):
    return nn.TransformerEncoderLayer(
        config.d_model,
        config.num_heads,
        config.d_ff,
        dropout=0.0,
        activation=config.activation,
        layer_norm_eps=config.eps,
        batch_first=True,
        norm_first=config.norm == "pre",
    )


def names(ours: EncoderLayer, theirs: nn.TransformerEncoderLayer):
    """Our parameter beside torch's."""
    pairs = [
        (ours.attention.qkv, theirs.self_attn, "in_proj_"),
        (ours.attention.out, theirs.self_attn.out_proj, ""),
        (ours.feed_forward.up, theirs.linear1, ""),
        (ours.feed_forward.down, theirs.linear2, ""),
        (ours.norm1, theirs.norm1, ""),
        (ours.norm2, theirs.norm2, ""),
    ]
    return [(getattr(a, k), getattr(b, prefix + k)) for a, b, prefix in pairs for k in ("weight", "bias")]


def copied(ours, theirs):
    theirs = theirs.double().eval()
    with torch.no_grad():
        for a, b in names(ours, theirs):
            assert a.shape == b.shape
            b.copy_(a)
    return theirs


def draw(rows, width=D, seed=1):
    x = torch.randn(rows, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (2.0 * x).requires_grad_()


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_layer_equals_torch(norm, activation):
    config = EncoderConfig(D, 1, HEADS, FF, norm, activation, EPS)
    ours = randomised(EncoderLayer(config))
    theirs = copied(ours, torch_layer(config))
    x = draw(14)
    out = ours(x, PACKING)
    wanted = theirs(PACKING.pad(x, 3.0), src_key_padding_mask=~PACKING.mask())[PACKING.mask()]
    torch.testing.assert_close(out, wanted)
    pairs = [(x, x), *names(ours, theirs)]
    found = torch.autograd.grad(out.square().sum(), [a for a, _ in pairs])
    for a, b in zip(found, torch.autograd.grad(wanted.square().sum(), [b for _, b in pairs]), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("norm", "final_norm"), [("pre", True), ("post", False), ("post", True)])
def test_stack_equals_torch(norm, final_norm):
    config = EncoderConfig(D, LAYERS, HEADS, FF, norm, "gelu", EPS, final_norm=final_norm)
    ours = randomised(Encoder(config))
    last = nn.LayerNorm(D, eps=EPS).double() if final_norm else None
    theirs = (
        nn.TransformerEncoder(torch_layer(config), LAYERS, last, enable_nested_tensor=False).double().eval()
    )
    for a, b in zip(ours.layers, theirs.layers, strict=True):
        copied(a, b)
    if last is not None:
        last.load_state_dict(ours.final_norm.state_dict())
        theirs.norm.load_state_dict(last.state_dict())
    x = draw(14)
    wanted = theirs(PACKING.pad(x, 3.0), src_key_padding_mask=~PACKING.mask())[PACKING.mask()]
    torch.testing.assert_close(ours(x, PACKING), wanted)


def test_an_image_sized_batch_equals_torch():
    """Thirty-two sequences of 50 rows, 200 wide, 5 heads: one length, so one block without any copying."""
    config = EncoderConfig(200, 1, 5, 1024, "post", "relu", 1e-6)
    torch.manual_seed(2)
    ours = Encoder(config).eval()
    theirs = torch_layer(config).eval()
    with torch.no_grad():
        for a, b in names(ours.layers[0], theirs):
            b.copy_(a)
        x = torch.randn(32, 50, 200)
        out = ours(x.view(-1, 200), Packing.uniform(32, 50)).view(32, 50, 200)
        torch.testing.assert_close(out, theirs(x), atol=2e-5, rtol=1e-5)


def test_norm_has_the_biased_variance_and_eps_in_the_root():
    config = EncoderConfig(D, 1, HEADS, FF, "post", "relu", EPS)
    layer = randomised(EncoderLayer(config))
    x = draw(14)
    y = x + layer.attention(x, PACKING)
    normed = (y - y.mean(1, keepdim=True)) / (
        (y - y.mean(1, keepdim=True)).square().mean(1, keepdim=True) + EPS
    ).sqrt()
    h = normed * layer.norm1.weight + layer.norm1.bias
    y = h + layer.feed_forward(h)
    normed = (y - y.mean(1, keepdim=True)) / (
        (y - y.mean(1, keepdim=True)).square().mean(1, keepdim=True) + EPS
    ).sqrt()
    torch.testing.assert_close(layer(x, PACKING), normed * layer.norm2.weight + layer.norm2.bias)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("rows", [[0, 7, 9], [6, 8, 13]])
def test_wanted_rows_only(norm, rows):
    """The last layer computes one row per sequence: the same values and gradients as from all rows."""
    config = EncoderConfig(D, LAYERS, HEADS, FF, norm, "gelu", EPS, final_norm=True)
    model, x, rows = randomised(Encoder(config)), draw(14), torch.tensor(rows)
    few, full = model(x, PACKING, rows=rows), model(x, PACKING)
    assert few.shape == (3, D)
    torch.testing.assert_close(few, full[rows])
    inputs = [x, *model.parameters()]
    found = torch.autograd.grad(few.square().sum(), inputs)
    for a, b in zip(found, torch.autograd.grad(full[rows].square().sum(), inputs), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_causal_encoder_equals_torch_with_a_mask(norm):
    config = EncoderConfig(D, 1, HEADS, FF, norm, "gelu", EPS, causal=True)
    ours = randomised(Encoder(config))
    theirs = copied(ours.layers[0], torch_layer(config))
    x = draw(14)
    later = nn.Transformer.generate_square_subsequent_mask(max(PACKING.lengths), dtype=torch.float64)
    wanted = theirs(PACKING.pad(x, 3.0), src_mask=later, is_causal=True)[PACKING.mask()]
    torch.testing.assert_close(ours(x, PACKING), wanted)
    padded = ours.padded(PACKING.pad(x, 3.0), PACKING.mask())[PACKING.mask()]
    torch.testing.assert_close(padded, wanted)
    rows = torch.tensor([2, 8, 13])
    torch.testing.assert_close(ours(x, PACKING, rows=rows), wanted[rows])


@pytest.mark.parametrize(
    "options", [{"attention": "local"}, {"attention": "linear"}, {"relative_buckets": 32}]
)
def test_a_causal_encoder_needs_full_attention(options):
    with pytest.raises(ConfigError, match="a causal encoder requires full attention"):
        EncoderConfig(D, LAYERS, HEADS, FF, causal=True, **options)


def test_hidden_states_are_what_enters_and_leaves_each_layer():
    config = EncoderConfig(D, LAYERS, HEADS, FF, "pre", "gelu", EPS, final_norm=True)
    model, x = randomised(Encoder(config)), draw(14)
    record = TraceRecord(Trace(hidden_states=True), LAYERS)
    out = model(x, PACKING, trace=record)
    states = list(record.hidden_states)
    assert states[0] is x
    for layer, before, after in zip(model.layers, states[:-1], states[1:], strict=True):
        torch.testing.assert_close(layer(before, PACKING), after)
    torch.testing.assert_close(model.final_norm(states[-1]), out)


# --- dropout and stochastic depth in their places -------------------------------------------------


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_stochastic_depth_drops_a_branch_for_a_whole_sequence(norm):
    layer = randomised(EncoderLayer(EncoderConfig(D, 1, HEADS, FF, norm, "gelu", EPS), drop_path=0.5)).train()
    x = draw(14).detach()

    def by_hand(attention, feed_forward):  # what each branch is multiplied with
        if norm == "pre":
            y = x + attention * layer.attention(layer.norm1(x), PACKING)
            return y + feed_forward * layer.feed_forward(layer.norm2(y))
        y = layer.norm1(x + attention * layer.attention(x, PACKING))
        return layer.norm2(y + feed_forward * layer.feed_forward(y))

    cases = [PACKING.split(by_hand(a, f)) for a in (0.0, 2.0) for f in (0.0, 2.0)]
    seen = set()
    torch.manual_seed(13)
    for _ in range(60):
        for b, rows in enumerate(PACKING.split(layer(x, PACKING))):
            fits = [i for i, case in enumerate(cases) if torch.allclose(rows, case[b])]
            assert len(fits) == 1
            seen.add((b, fits[0]))
    assert len(seen) == 12  # every sequence was seen in each of the four cases
    torch.testing.assert_close(layer.eval()(x, PACKING), by_hand(1.0, 1.0))


def test_stochastic_depth_grows_with_the_layer():
    model = Encoder(EncoderConfig(D, 5, HEADS, FF, stochastic_depth=0.4))
    assert [layer.drop_path for layer in model.layers] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert [layer.drop_path for layer in Encoder(EncoderConfig(D, 2, HEADS, FF)).layers] == [0.0, 0.0]


def test_stochastic_depth_of_a_single_layer():
    assert Encoder(EncoderConfig(D, 1, HEADS, FF, stochastic_depth=0.4)).layers[0].drop_path == 0.4


def test_dropout_is_on_the_output_of_each_branch():
    layer = randomised(EncoderLayer(EncoderConfig(D, 1, HEADS, FF, "pre", "gelu", EPS, dropout=0.5))).train()
    with torch.no_grad():
        layer.feed_forward.down.weight.zero_()
        layer.feed_forward.down.bias.zero_()
        x = draw(14).detach()
        branch = layer.attention(layer.norm1(x), PACKING)
        torch.manual_seed(5)
        added = layer(x, PACKING) - x
        kept = added.abs() > 1e-12
        assert 60 < int(kept.sum()) < 150  # of 210
        torch.testing.assert_close(added[kept], 2.0 * branch[kept])
        torch.testing.assert_close(layer.eval()(x, PACKING), x + branch)


def test_attention_dropout_reaches_the_attention():
    config = EncoderConfig(D, 1, HEADS, FF, "post", "gelu", EPS, attention_dropout=0.5)
    layer, x = randomised(EncoderLayer(config)), draw(14).detach()
    assert layer.attention.dropout == 0.5
    torch.manual_seed(6)
    noisy = layer.train()(x, PACKING)
    assert float((noisy - layer.eval()(x, PACKING)).detach().abs().max()) > 1e-3
    assert torch.equal(layer(x, PACKING), layer(x, PACKING))


def test_steps_that_share_a_layer():
    """As many layers as steps with equal weights; the gradient of a shared layer is their sum."""
    order = (0, 0, 1, 0)
    sizes = {"d_model": D, "num_layers": len(order), "num_heads": 3, "d_ff": FF}
    shared = randomised(Encoder(EncoderConfig(**sizes, layer_order=order)))
    apart = Encoder(EncoderConfig(**sizes)).double().eval()
    assert (len(shared.layers), len(shared.steps)) == (2, 4)
    for layer, own in zip(apart.layers, order, strict=True):
        layer.load_state_dict(shared.layers[own].state_dict())
    x, record = draw(PACKING.total), TraceRecord(Trace(attentions=True, hidden_states=True), len(order))
    found, wanted = shared(x, PACKING), apart(x, PACKING)
    assert torch.equal(found, wanted)
    torch.testing.assert_close(shared(x, PACKING, trace=record), wanted)
    assert (len(record.hidden_states), len(record.attentions)) == (5, 4)
    assert torch.equal(shared(shared(x, PACKING, end=2), PACKING, begin=2), wanted)
    assert torch.equal(
        shared(x, PACKING, rows=PACKING.first_rows), apart(x, PACKING, rows=PACKING.first_rows)
    )
    lone = x[: PACKING.lengths[0]][None]
    assert torch.equal(shared.padded(lone, None), apart.padded(lone, None))
    for one in (found, wanted):
        one.square().sum().backward()
    for name, p in shared.layers[0].named_parameters():
        parts = [apart.layers[i].get_parameter(name).grad for i in (0, 1, 3)]
        torch.testing.assert_close(p.grad, sum(parts), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("order", [(0, 0), (0, 2, 1, 1, 0), (1, 1, 1), (0, 0, -1)])
def test_an_order_that_cannot_be(order):
    with pytest.raises(ConfigError, match="must have 3 entries and use every layer"):
        EncoderConfig(D, 3, 3, FF, layer_order=order)


# --- feed-forward ---------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "quick_gelu"])
def test_feed_forward_by_hand(activation):
    module, x = randomised(FeedForward(D, FF, activation)), draw(7)
    h = x @ module.up.weight.T + module.up.bias
    if activation == "relu":
        h = h * (h > 0)
    elif activation == "gelu":
        h = h * 0.5 * (1 + torch.erf(h / 2**0.5))
    elif activation == "quick_gelu":
        h = h / (1 + (-1.702 * h).exp())
    else:
        h = h * 0.5 * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (h + 0.044715 * h**3)))
    torch.testing.assert_close(module(x), h @ module.down.weight.T + module.down.bias)


def test_unknown_activation():
    with pytest.raises(ConfigError, match=r"'gleu'.*'gelu'"):
        FeedForward(D, FF, "gleu")


# --- configs that cannot be -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((15, 2, 4, 23), "d_model 15 is not a multiple of num_heads 4"),
        ((15, 0, 5, 23), "at least 1"),
        ((15, 2, 0, 23), "at least 1"),
        ((0, 2, 5, 23), "at least 1"),
        ((15, 2, 5, 0), "at least 1"),
    ],
)
def test_sizes_that_cannot_be(sizes, said):
    with pytest.raises(ConfigError, match=said):
        EncoderConfig(*sizes)


def test_dropout_outside_its_range():
    with pytest.raises(ConfigError, match=r"\[0, 1\)"):
        Encoder(EncoderConfig(D, 1, HEADS, FF, dropout=1.0))


@pytest.mark.parametrize("key", ["attention_dropout", "stochastic_depth"])
@pytest.mark.parametrize("p", [1.0, 1.5, -0.1])
def test_other_rates_outside_their_range(key, p):
    with pytest.raises(ConfigError, match=key):
        Encoder(EncoderConfig(D, 2, HEADS, FF, **{key: p}))


def test_weights_that_exceed_the_memory_are_refused_before_they_are_made():
    with pytest.raises(NotEnoughMemoryError, match=r"309 billion parameters needs 1,237 GB.*d_model"):
        Encoder(EncoderConfig(d_model=16384, num_layers=96, num_heads=64, d_ff=65536))
