"""One suite for every model: packed = padded = one by one, no leaks, bf16, gradients, files."""

import copy
from dataclasses import replace

import pytest
import torch
from tests.shaken import shaken

from glassformer.errors import ShapeError
from glassformer.families.bert import bert, bert_large, minilm
from glassformer.families.own import encoder_base, encoder_mini, encoder_small
from glassformer.models.text import TextEncoder as Bert
from glassformer.nn import Trace
from glassformer.packing import Packing, pack

V, D, LAYERS, HEADS, FF, POSITIONS = 31, 14, 3, 2, 11, 17
LENGTHS = (13, 1, 7, 7, 3)
WIDTH = 15  # two columns more than the longest
PACKING = Packing(LENGTHS)
BLIND = "pooling.score.bias"  # a softmax does not see what is added to all of its scores


def shrunk(config, **changes):
    """A preset with its sizes replaced by small primes; order of norms, positions, eps ... stay."""
    embedding = replace(config.embedding, d_model=D, max_positions=POSITIONS)
    layers = min(LAYERS, config.encoder.num_layers)
    encoder = replace(config.encoder, d_model=D, num_layers=layers, num_heads=HEADS, d_ff=FF)
    # A wide start: with the presets' small one, tiny models are close to constant.
    return replace(config, embedding=embedding, encoder=encoder, init_std=0.3, embedding_std=1.0, **changes)


PRESETS = {
    "bert": bert(V),
    "bert-large": bert_large(V),
    "minilm": minilm(V),
    "encoder-small": encoder_small(V),
    "encoder-base": encoder_base(V),
    "encoder-mini": encoder_mini(V),
}
MODELS = {name: shrunk(config, head="classification", num_labels=3) for name, config in PRESETS.items()} | {
    "no pooling": shrunk(bert(V), pooling=None),
    "mean, mlp": shrunk(bert(V), pooling="mean", head="classification", head_type="mlp", num_labels=5),
    "max": shrunk(encoder_mini(V), pooling="max", head="classification"),
    "attention": shrunk(encoder_small(V), pooling="attention", head="classification"),
    "masked words": shrunk(bert(V), pooling=None, head="mlm"),
    "pre-training": shrunk(bert(V), head="pretraining"),
    "tanh, pre-norm": shrunk(
        bert(V, d_model=D, num_layers=2, num_heads=7, d_ff=FF), head="classification", pooling="first"
    ),
}
MODELS["tanh, pre-norm"] = replace(
    MODELS["tanh, pre-norm"],
    encoder=replace(MODELS["tanh, pre-norm"].encoder, activation="gelu_tanh", norm="pre", final_norm=True),
)


def build(config):
    torch.manual_seed(19)
    return shaken(Bert(config), 0.1)


@pytest.fixture(params=MODELS)
def model(request):
    return build(MODELS[request.param])


IDS = torch.randint(0, V, (PACKING.total,), generator=torch.Generator().manual_seed(23))
SEGMENTS = torch.randint(0, 2, (PACKING.total,), generator=torch.Generator().manual_seed(29))


def segments_for(model, segments=SEGMENTS):
    return segments if model.config.embedding.segments else None


def packed(model, ids=IDS):
    # A trace of the last states makes a classifier compute all rows, so that they can be compared.
    return model(ids, token_type_ids=segments_for(model), packing=PACKING, trace=Trace(hidden_states=[-1]))


def padded_inputs(left=False):
    """Ids, mask, segments ``[B, T]``; what lies in the padding is neither 0 nor alike."""
    ids = torch.arange(len(LENGTHS) * WIDTH).view(-1, WIDTH) % V
    segments, mask = torch.ones_like(ids), torch.zeros_like(ids)
    for b, (start, n) in enumerate(zip(PACKING.starts, LENGTHS, strict=True)):
        place = slice(WIDTH - n, WIDTH) if left else slice(1, n + 1)
        ids[b, place], segments[b, place], mask[b, place] = (
            IDS[start : start + n],
            SEGMENTS[start : start + n],
            1,
        )
    return ids, mask, segments


def padded(model, left=False):
    ids, mask, segments = padded_inputs(left)
    return model(ids, mask, segments_for(model, segments)), mask.bool()


def outputs(out, mask=None):
    """All that a pass gives, with token-wise results as packed rows."""
    found = {"states": out.last_hidden_state, "pooled": out.pooler_output, "logits": out.logits}
    found["next sentence"] = out.seq_relationship_logits
    found = {k: x for k, x in found.items() if x is not None}
    return found if mask is None else {k: x[mask] if x.ndim == 3 else x for k, x in found.items()}


def gradients(model, found):
    """Of every parameter, from one scalar that depends on all outputs."""
    total = 0.0
    for i, x in enumerate(found.values()):
        upstream = torch.randn(x.shape, generator=torch.Generator().manual_seed(i))
        total = total + (x * upstream).sum()
    grads = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
    return {name: g for (name, _), g in zip(model.named_parameters(), grads, strict=True)}


def check_equal(ours, theirs, tolerance=2e-5):
    assert ours.keys() == theirs.keys()
    for name, x in ours.items():
        if x is None or theirs[name] is None:
            assert x is theirs[name], name
            continue
        scale = max(1.0, float(theirs[name].detach().abs().max()))
        torch.testing.assert_close(
            x, theirs[name], atol=tolerance * scale, rtol=0, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_padded_equals_packed(model):
    wanted = outputs(packed(model))
    found = outputs(*padded(model))
    check_equal(found, wanted)
    check_equal(gradients(model, found), gradients(model, wanted))


def test_one_by_one_equals_packed(model):
    wanted = outputs(packed(model))
    parts = []
    segments = segments_for(model)
    for start, n in zip(PACKING.starts, LENGTHS, strict=True):
        one = slice(start, start + n)
        parts.append(
            outputs(
                model(
                    IDS[one],
                    token_type_ids=None if segments is None else segments[one],
                    packing=Packing((n,)),
                    trace=Trace(hidden_states=[-1]),
                )
            )
        )
    found = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    check_equal(found, wanted)
    check_equal(gradients(model, found), gradients(model, wanted))


def test_the_order_of_sequences_does_not_matter(model):
    order = [4, 2, 0, 3, 1]
    ids, packing = pack([PACKING.split(IDS)[i] for i in order])
    segments = segments_for(model)
    if segments is not None:
        segments, _ = pack([PACKING.split(segments)[i] for i in order])
    out = model(ids, token_type_ids=segments, packing=packing)
    wanted = packed(model)
    if out.pooler_output is not None:
        torch.testing.assert_close(out.pooler_output, wanted.pooler_output[order], atol=2e-5, rtol=0)
    else:
        states, _ = pack([PACKING.split(wanted.last_hidden_state)[i] for i in order])
        torch.testing.assert_close(out.last_hidden_state, states, atol=2e-5, rtol=0)


def test_left_padding_equals_right_padding(model):
    """Positions count real tokens."""
    check_equal(outputs(*padded(model, left=True)), outputs(*padded(model)))


def test_a_hole_in_the_mask_is_no_token(model):
    ids, mask, segments = padded_inputs()
    mask[0, 5] = 0
    out = model(ids, mask, segments_for(model, segments))
    shorter = torch.cat([ids[0, 1:5], ids[0, 6:14]])
    segments = segments_for(model, torch.cat([segments[0, 1:5], segments[0, 6:14]]))
    wanted = model(shorter, token_type_ids=segments, packing=Packing((12,)), trace=Trace(hidden_states=[-1]))
    torch.testing.assert_close(
        out.last_hidden_state[0][mask[0].bool()], wanted.last_hidden_state, atol=2e-5, rtol=0
    )


def test_nothing_is_said_of_padding(model):
    out, mask = padded(model)
    assert not out.last_hidden_state[~mask].any()
    if model.mlm is not None:
        assert not out.logits[~mask].any()


def test_no_mask_means_all_real(model):
    ids, _, segments = padded_inputs()
    segments = segments_for(model, segments)
    with_mask = model(ids, torch.ones_like(ids), segments)
    check_equal(outputs(model(ids, token_type_ids=segments)), outputs(with_mask), 0.0)


def test_perturbing_one_sequence_changes_no_other(model):
    """To the bit: nothing of a neighbour enters a sum."""
    changed = IDS.clone()
    changed[14:21] = (changed[14:21] + 5) % V  # the third sequence
    before, after = outputs(packed(model)), outputs(packed(model, changed))
    for name, x in before.items():
        own = torch.arange(5) == 2 if len(x) == 5 else PACKING.sequence_ids == 2
        assert torch.equal(x[~own], after[name][~own]), name
        assert not torch.allclose(x[own], after[name][own]), name


def test_every_parameter_receives_a_gradient(model):
    found = gradients(model, outputs(packed(model)))
    idle = {name for name, g in found.items() if g is None or not bool(g.any())}
    assert not idle - {BLIND}
    assert all(bool(g.isfinite().all()) for g in found.values())
    if BLIND in found:
        assert float(found[BLIND].abs().max()) < 1e-4


def test_the_training_pass_reaches_every_parameter(model):
    """As the loop calls it: no trace, dropout on, and only the first rows of the last layer where they suffice."""
    model.train()
    torch.manual_seed(31)
    out = model(IDS, token_type_ids=segments_for(model), packing=PACKING)
    if out.logits is None:
        total = out.last_hidden_state.square().sum()
    else:
        total = out.logits.square().sum()
    if out.seq_relationship_logits is not None:
        total = total + out.seq_relationship_logits.square().sum()
    total.backward()
    idle = {name for name, p in model.named_parameters() if p.grad is None or not bool(p.grad.any())}
    assert not idle - {BLIND}


def test_first_rows_alone_give_the_same_logits_and_gradients(model):
    """A packed pass without a trace may leave rows out; that must not show."""
    short = model(IDS, token_type_ids=segments_for(model), packing=PACKING)
    full = packed(model)
    found, wanted = ({"logits": out.logits, "pooled": out.pooler_output} for out in (short, full))
    if short.logits is None and short.pooler_output is None:
        found, wanted = ({"states": out.last_hidden_state} for out in (short, full))
    found, wanted = ({k: x for k, x in d.items() if x is not None} for d in (found, wanted))
    check_equal(found, wanted)
    check_equal(gradients(model, found), gradients(model, wanted))


def test_dropout_in_training_and_only_there(model):
    def states():
        return packed(model).last_hidden_state

    assert torch.equal(states(), states())
    model.train()
    torch.manual_seed(37)
    first, second = states(), states()
    assert not torch.equal(first, second)
    torch.manual_seed(37)
    assert torch.equal(states(), first)


def test_bf16_within_its_rounding(model):
    exact = outputs(packed(model))
    half = copy.deepcopy(model).set_compute_dtype(torch.bfloat16)
    found = outputs(packed(half))
    assert found["states"].dtype == torch.bfloat16
    assert all(x.dtype == torch.float32 for k, x in found.items() if k in ("logits", "next sentence"))
    for name, x in found.items():  # 2^-8 is one step of bf16; some tens of roundings lie on the way
        error = (x.float() - exact[name]).norm() / exact[name].norm()
        assert float(error.detach()) < 2**-5, name
    wanted = gradients(model, exact)
    for name, g in gradients(half, found).items():
        if name != BLIND:
            error = (g.float() - wanted[name]).norm() / wanted[name].norm()
            assert float(error) < 2**-3, name
    again = half.set_compute_dtype(torch.float32)
    assert all(p.dtype == torch.float32 for p in again.parameters())
    assert packed(again).last_hidden_state.dtype == torch.float32


def test_state_dict_is_all_there_is(model):
    torch.manual_seed(1)
    other = Bert(model.config).eval()
    assert not torch.equal(packed(other).last_hidden_state, packed(model).last_hidden_state)
    other.load_state_dict(model.state_dict())
    check_equal(outputs(packed(other)), outputs(packed(model)), 0.0)
    check_equal(outputs(packed(copy.deepcopy(model))), outputs(packed(model)), 0.0)


def test_weights_are_the_seeds(model):
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(Bert(model.config).state_dict()["encoder.layers.0.attention.qkv.weight"])
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


# --- errors ---------------------------------------------------------------------------------------


def test_shapes_that_do_not_fit(model):
    ids, mask, _ = padded_inputs()
    with pytest.raises(ShapeError, match=r"padded input_ids must be \[B, T\], got \(31,\)"):
        model(IDS)
    with pytest.raises(ShapeError, match=r"\(5, 14\) differs from that of input_ids, \(5, 15\)"):
        model(ids, mask[:, 1:])
    with pytest.raises(ShapeError, match=r"\(30,\), but the packing has 31 tokens"):
        model(IDS[:-1], packing=PACKING)
    with pytest.raises(ShapeError, match="at least one token"):
        model(ids, mask * (torch.arange(5) > 0)[:, None])
    with pytest.raises(ShapeError, match=rf"run from \d+ to {V}, but the vocabulary has {V} tokens"):
        model(torch.where(IDS == 7, V, IDS), packing=PACKING)


def test_a_text_of_any_length_or_a_clear_error(model):
    ids = torch.zeros(POSITIONS + 1, dtype=torch.long)
    if model.config.embedding.positions == "learned":
        with pytest.raises(ShapeError, match="18 tokens, but the model has 17 positions"):
            model(ids, packing=Packing((POSITIONS + 1,)))
    else:
        out = model(ids, packing=Packing((POSITIONS + 1,)), trace=Trace(hidden_states=[-1]))
        assert bool(out.last_hidden_state.isfinite().all())


@pytest.mark.parametrize("shape", [(5, 16), (5, 14), (1, 15), (4, 15)])
def test_segments_of_another_shape(shape):
    model = build(MODELS["bert"])
    ids, mask, _ = padded_inputs()
    with pytest.raises(ShapeError, match="token_type_ids"):
        model(ids, mask, torch.zeros(shape, dtype=torch.long))
