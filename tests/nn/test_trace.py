"""A trace has what was asked for and nothing else; asking it for more is an error."""

import pytest
import torch

from glassformer.errors import ConfigError
from glassformer.families.bert import bert
from glassformer.models.text import TextEncoder as Bert
from glassformer.nn import Trace, attention, maps
from glassformer.nn.trace import TraceRecord
from glassformer.packing import Packing

L, H, D = 3, 2, 14
PACKING = Packing((5, 2, 7))
IDS = torch.arange(14) % 11


@pytest.fixture
def model():
    torch.manual_seed(3)
    return Bert(bert(31, D, L, H, 11, 13, 0.0, head="classification", init_std=0.3)).eval()


@pytest.fixture
def counted(monkeypatch):
    """How many rows of queries the weights were computed for, one entry a group of sequences."""
    calls = []
    compute = maps.group_weights

    def count(q, k, group, *args):
        calls.append(sum(group.q.lengths))
        return compute(q, k, group, *args)

    compute_first = attention.first_row_weights

    def count_first(q, k, packing, **options):
        calls.append(len(q))
        return compute_first(q, k, packing, **options)

    monkeypatch.setattr(maps, "group_weights", count)
    monkeypatch.setattr(attention, "first_row_weights", count_first)
    return calls


REQUESTS = [
    (Trace(), [], []),
    (Trace(attentions=True), [0, 1, 2], []),
    (Trace(attentions=[1]), [1], []),
    (Trace(attentions=[-1, 0]), [0, 2], []),
    (Trace(hidden_states=True), [], [0, 1, 2, 3]),
    (Trace(hidden_states=(0, -1)), [], [0, 3]),
    (Trace(attentions=(2,), hidden_states=(1,)), [2], [1]),
    (Trace(attentions=[], hidden_states=[]), [], []),
]


@pytest.mark.parametrize("rows", ["all", "first"])
@pytest.mark.parametrize(("request_", "numbers", "states"), REQUESTS)
def test_exactly_what_was_asked(model, counted, request_, numbers, states, rows):
    request_ = Trace(request_.attentions, request_.hidden_states, rows)
    with torch.no_grad():
        trace = model(IDS, packing=PACKING, trace=request_).trace
        rows_wanted = (5, 2, 7) if rows == "all" else (3,)  # weights elsewhere were not even computed
        assert sorted(counted) == sorted(rows_wanted * len(numbers))
        full = model(IDS, packing=PACKING, trace=Trace(True, True)).trace
    assert trace.attentions.numbers == numbers
    assert trace.hidden_states.numbers == states
    assert len(trace.attentions) == len(numbers)
    assert len(trace.hidden_states) == len(states)
    for i in range(L):
        if i not in numbers:
            with pytest.raises(
                ConfigError, match=rf"attentions of layer {i} were not recorded.*Trace\(attentions=\["
            ):
                trace.attentions[i]
            continue
        for b, n in enumerate(PACKING.lengths):
            wanted = full.attentions[i][b][:, : n if rows == "all" else 1]
            assert wanted.shape == (H, n if rows == "all" else 1, n)
            torch.testing.assert_close(trace.attentions[i][b], wanted)
            torch.testing.assert_close(wanted.sum(-1), torch.ones(wanted.shape[:-1]))
    for i in range(L + 1):
        if i not in states:
            with pytest.raises(ConfigError, match=f"hidden_states of layer {i} were not recorded"):
                trace.hidden_states[i]
        else:
            torch.testing.assert_close(trace.hidden_states[i], full.hidden_states[i])


@pytest.mark.parametrize("rows", ["all", "first"])
@pytest.mark.parametrize("request_", [r for r, _, _ in REQUESTS])
def test_looking_changes_no_logit(model, request_, rows):
    plain = model(IDS, packing=PACKING)
    assert plain.trace is None
    seen = model(IDS, packing=PACKING, trace=Trace(request_.attentions, request_.hidden_states, rows))
    torch.testing.assert_close(seen.logits, plain.logits)


def test_padded_maps_and_states_lie_where_the_tokens_were(model):
    """Left padding, so that nothing falls into place by itself."""
    packed = model(IDS, packing=PACKING, trace=Trace(True, True)).trace
    ids, mask = torch.zeros(3, 7, dtype=torch.long), torch.zeros(3, 7, dtype=torch.long)
    for b, (start, n) in enumerate(zip(PACKING.starts, PACKING.lengths, strict=True)):
        ids[b, 7 - n :], mask[b, 7 - n :] = IDS[start : start + n], 1
    padded = model(ids, mask, trace=Trace(True, True)).trace
    for i in range(L):
        assert padded.attentions[i].shape == (3, H, 7, 7)
        for b, n in enumerate(PACKING.lengths):
            torch.testing.assert_close(padded.attentions[i][b, :, 7 - n :, 7 - n :], packed.attentions[i][b])
            assert not padded.attentions[i][b, :, : 7 - n].any()
            assert not padded.attentions[i][b, :, :, : 7 - n].any()
    for i in range(L + 1):
        assert padded.hidden_states[i].shape == (3, 7, D)
        torch.testing.assert_close(padded.hidden_states[i][mask.bool()], packed.hidden_states[i])
        assert not padded.hidden_states[i][~mask.bool()].any()
    first = model(ids, mask, trace=Trace(attentions=[1], rows="first")).trace.attentions[1]
    assert first.shape == (3, H, 1, 7)
    for b, n in enumerate(PACKING.lengths):
        torch.testing.assert_close(first[b, :, 0, 7 - n :], packed.attentions[1][b][:, 0])
        assert not first[b, :, 0, : 7 - n].any()


def test_layers_read_like_a_list(model):
    trace = model(IDS, packing=PACKING, trace=Trace(attentions=True, hidden_states=[0, 2])).trace
    assert trace.attentions[-1] is trace.attentions[2]
    assert [m is trace.attentions[i] for i, m in enumerate(trace.attentions)] == [True] * L
    assert [m is trace.attentions[i + 1] for i, m in enumerate(trace.attentions[1:])] == [True, True]
    assert [s is trace.hidden_states[i] for i, s in zip((0, 2), trace.hidden_states, strict=True)] == [
        True,
        True,
    ]
    for layers, number in ((trace.attentions, L), (trace.attentions, -L - 1), (trace.hidden_states, L + 1)):
        with pytest.raises(IndexError, match="there are"):
            layers[number]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Trace(attentions=[3]), "no layer 3 for attentions: there are 3"),
        (Trace(attentions=[-4]), "no layer -1 for attentions"),
        (Trace(hidden_states=[0, 4]), "no layer 4 for hidden_states: there are 4"),
    ],
)
def test_layers_that_are_not_there(model, request_, said):
    with pytest.raises(ConfigError, match=said):
        model(IDS, packing=PACKING, trace=request_)


def test_only_a_trace_that_needs_them_makes_the_last_layer_compute_all_rows(model):
    """A classifier computes the [CLS] row alone in its last layer; the trace must not change that for nothing."""
    seen = []
    model.encoder.layers[-1].register_forward_hook(lambda _, __, out: seen.append(len(out)))
    for request_, rows in [
        (None, 3),
        (Trace(), 3),
        (Trace(attentions=True, rows="first"), 3),
        (Trace(attentions=[0, 1]), 3),
        (Trace(hidden_states=[0, 2]), 3),
        (Trace(attentions=[-1]), 14),
        (Trace(hidden_states=[-1]), 14),
    ]:
        seen.clear()
        out = model(IDS, packing=PACKING, trace=request_)
        assert seen == [rows], request_
        if rows == 14:
            assert out.last_hidden_state.shape == (14, D)
        else:
            with pytest.raises(
                ConfigError, match=r"only the tokens that the head reads.*hidden_states=\[-1\]"
            ):
                _ = out.last_hidden_state


def test_maps_on_a_fused_branch_are_never_empty(model):
    """Without a trace the grouped branch runs; with one, its maps are those of the explicit branch."""
    q = torch.randn(14, H, 7)
    _, weights = attention.attend(q, q, q, PACKING, branch="fused", return_weights=True)
    _, wanted = attention.attend(q, q, q, PACKING, branch="explicit", return_weights=True)
    for a, b in zip(weights, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_unknown_rows(model):
    with pytest.raises(ConfigError, match="frist"):
        model(IDS, packing=PACKING, trace=Trace(attentions=True, rows="frist"))


@pytest.mark.parametrize("what", ["attentions", "hidden_states"])
def test_one_number_is_not_a_list_of_layers(what):
    with pytest.raises(ConfigError, match=rf"{what}=1 is not a list.*\[1\]"):
        TraceRecord(Trace(**{what: 1}), 3)
