"""Disentangled attention: packed as padded, as the plain formula; its buckets; what goes together."""

import copy
import math
import pickle

import pytest
import torch
from tests.nn.levels import HERE, at_level, drawn
from torch import nn

from glassformer.errors import ConfigError
from glassformer.families import FAMILIES
from glassformer.nn import kernels
from glassformer.nn.disentangled import Disentangled, DisentangledAttention, DistanceTable, used_rows
from glassformer.nn.encoder import EncoderConfig
from glassformer.nn.trace import LayerRecord
from glassformer.packing import Packing

LENGTHS = (13, 1, 7, 11, 3, 7)
KINDS = pytest.mark.parametrize(
    "config",
    [
        Disentangled(6, 11),
        Disentangled(0, 7, norm=False),
        Disentangled(4, 5, by_key=False, shared=False),
        Disentangled(8, 23, by_query=False, shared=False),
        Disentangled(6, 11, by_query=False, by_key=False),
    ],
)


def made(config: Disentangled) -> tuple[DisentangledAttention, DistanceTable, torch.Tensor]:
    torch.manual_seed(3)
    attention = DisentangledAttention(15, 5, 0.0, config, 0.0)
    return attention, DistanceTable(config, 15, 1e-7), torch.randn(sum(LENGTHS), 15, requires_grad=True)


def plain(attention: DisentangledAttention, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """One text ``[T, D]``, a score at a time: ``[H, T, T]``."""
    c, d, heads = attention.config, 15, (5, 3)
    q, k, _ = attention.qkv(x).view(-1, 3, *heads).unbind(1)
    own = attention.qkv.weight, attention.qkv.bias
    keys = (
        attention.distance_keys(table)
        if attention.distance_keys
        else table @ own[0][d : 2 * d].T + own[1][d : 2 * d]
    )
    queries = (
        attention.distance_queries(table) if attention.distance_queries else table @ own[0][:d].T + own[1][:d]
    )
    keys, queries, span = keys.view(-1, *heads), queries.view(-1, *heads), c.span
    scores = torch.zeros(5, len(x), len(x))
    for t in range(len(x)):
        for s in range(len(x)):
            away, half = abs(t - s), c.buckets // 2
            if c.buckets and away > half:
                away = half + math.ceil(
                    math.log(away / half) / math.log((c.furthest - 1) / half) * (half - 1) - 1e-6
                )
            row = min(max(span + (away if t > s else -away), 0), 2 * span - 1)
            each = (q[t] * k[s]).sum(1)
            each = each + (q[t] * keys[row]).sum(1) if c.by_query else each
            scores[:, t, s] = each + (k[s] * queries[row]).sum(1) if c.by_key else each
    return (scores / math.sqrt(3 * (1 + c.by_query + c.by_key))).softmax(-1)


@KINDS
def test_packed_is_padded_is_the_plain_formula(config):
    attention, table, x = made(config)
    packing, record = Packing(LENGTHS), LayerRecord("all")
    out = attention(x, packing, bias=table(13), record=record)
    torch.testing.assert_close(attention(x, packing, bias=table(13)), out)
    padded = attention.padded(packing.pad(x), packing.mask(), table(13))
    torch.testing.assert_close(out, padded[packing.mask()], atol=1e-6, rtol=1e-5)
    for x_i, out_i, maps in zip(packing.split(x), packing.split(out), record.weights, strict=True):
        weights = plain(attention, x_i, table(13))
        torch.testing.assert_close(maps, weights, atol=1e-6, rtol=1e-5)
        v = attention.qkv(x_i).view(-1, 3, 5, 3)[:, 2]
        wanted = attention.out(torch.einsum("hts,shk->thk", weights, v).flatten(1))
        torch.testing.assert_close(out_i, wanted, atol=1e-6, rtol=1e-5)
    upstream = torch.randn(out.shape)
    parts = [x, *attention.parameters(), *table.parameters()]
    out = attention(x, packing, bias=table(13))
    ours = torch.autograd.grad((out * upstream).sum(), parts, allow_unused=True)
    theirs = torch.autograd.grad((padded[packing.mask()] * upstream).sum(), parts, allow_unused=True)
    for one, other in zip(ours, theirs, strict=True):
        if one is not None:
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_single_rows_and_their_maps():
    attention, table, x = made(Disentangled(6, 11))
    packing, whole = Packing(LENGTHS), LayerRecord("all")
    out = attention(x, packing, bias=table(13), record=whole)
    for rows in (packing.first_rows, packing.first_rows + torch.tensor(LENGTHS) - 1):
        record = LayerRecord("all")
        torch.testing.assert_close(attention(x, packing, rows=rows, bias=table(13), record=record), out[rows])
        for one, every, row, start in zip(record.weights, whole.weights, rows, packing.starts, strict=True):
            torch.testing.assert_close(one, every[:, int(row) - start][:, None])
    record = LayerRecord("first")
    attention(x, packing, bias=table(13), record=record)
    assert [w.shape[1] for w in record.weights] == [1] * len(LENGTHS)


def test_near_distances_have_rows_of_their_own_and_far_ones_share():
    rows = Disentangled(256, 512).rows(601, torch.device("cpu"))
    assert rows[0, 0] == 256
    assert rows[100, 0] == 356
    assert rows[0, 100] == 156
    assert rows[511, 0] == rows[600, 0] == 511
    assert rows[0, 511] == 1
    assert rows[0, 600] == 0
    assert 30 < len(rows[301:512, 0].unique()) < 60


@pytest.mark.parametrize("sizes", [(7, 512), (256, 129), (-2, 512), (0, 0)])
def test_buckets_that_are_none(sizes):
    with pytest.raises(ConfigError, match=r"disentangled: -?\d+ buckets do not suit distances up to"):
        Disentangled(*sizes)


@pytest.mark.parametrize(
    "other",
    [{"attention": "local"}, {"relative_buckets": 32}, {"rotary_base": 1e4}, {"attention_bias": False}],
)
def test_other_positions_beside_it_are_refused(other):
    with pytest.raises(ConfigError, match="disentangled attention requires full attention"):
        EncoderConfig(12, 2, 3, 17, disentangled=Disentangled(), **other)


def test_its_own_rows_and_a_table_are_needed():
    attention, table, x = made(Disentangled(6, 11))
    for options in ({}, {"bias": table(13), "causal": True}, {"bias": table(13), "memory": x}):
        with pytest.raises(ConfigError, match="requires a table of distances"):
            attention(x, Packing(LENGTHS), **options)


# --- the kernel in C ------------------------------------------------------------------------------

KERNEL_KINDS = [
    Disentangled(6, 11),
    Disentangled(0, 7, norm=False),
    Disentangled(0, 211),  # no length here reaches the furthest distance
    Disentangled(4, 5, by_key=False, shared=False),
    Disentangled(8, 23, by_query=False, shared=False),
    Disentangled(6, 11, by_query=False, by_key=False),
    Disentangled(256, 512),
]
BATCHES = (  # lengths, and the number and width of the heads
    ((13, 1, 97, 7, 31), (3, 16)),
    ((53, 113), (2, 48)),
    ((263,), (5, 64)),  # more queries than the keys are scored for at once
    ((2, 3, 5, 7, 11, 13, 17, 19, 23), (1, 128)),
)
AT_LEVELS = pytest.mark.parametrize("name", [level.name for level in HERE])


def both(config, lengths, heads, dtype, first=False):
    """(output, gradients of x and of all weights) of the kernel, and of torch's operators in fp64."""
    width, packing = math.prod(heads), Packing(lengths)
    torch.manual_seed(3)
    attention = DisentangledAttention(width, heads[0], 0.0, config, 0.0)
    table = DistanceTable(config, width, 1e-7)
    for weight in (*attention.parameters(), *table.parameters()):
        weight.data.normal_(std=0.3 if weight.ndim == 1 else 1.3 * len(weight) ** -0.5)
    x, rows = drawn(packing.total, width).to(dtype), packing.first_rows if first else None
    upstream = drawn(len(lengths) if first else packing.total, width, seed=7).to(dtype)
    found = []
    for exact in (dtype, torch.float64):
        attention, table = attention.to(dtype).to(exact), table.to(dtype).to(exact)
        own = x.to(exact).requires_grad_()
        parts = [own, *attention.parameters(), *table.parameters()]
        out = attention(own, packing, rows=rows, bias=table(packing.max_length))
        gradients = torch.autograd.grad(out, parts, upstream.to(exact), allow_unused=True)
        found.append([out.detach(), *(g for g in gradients if g is not None)])
    return zip(*found, strict=True)


def check(config, lengths, heads, dtype, first=False):
    rough = dtype == torch.bfloat16
    for ours, wanted in both(config, lengths, heads, dtype, first):
        assert ours.isfinite().all()
        off, size = float((ours.double() - wanted).norm()), float(wanted.norm())
        # A sum that cancels, such as the gradient of the keys' bias, is what its terms round to.
        assert off <= (0.03 if rough else 3e-6) * size + (0.02 if rough else 3e-6) * ours.numel() ** 0.5


@AT_LEVELS
@pytest.mark.parametrize("config", KERNEL_KINDS)
def test_the_kernel_computes_what_torch_computes(name, config):
    with at_level(name) as level:
        for dtype in (torch.float32, *([torch.bfloat16] if level.bf16 else [])):
            for lengths, heads in BATCHES:
                check(config, lengths, heads, dtype)


@AT_LEVELS
def test_the_first_rows_alone_are_as_among_all(name):
    with at_level(name) as level:
        for dtype in (torch.float32, *([torch.bfloat16] if level.bf16 else [])):
            for config in KERNEL_KINDS[:5]:
                check(config, (13, 1, 97, 7), (2, 32), dtype, first=True)


@AT_LEVELS
def test_bits_depend_neither_on_the_threads_nor_on_other_sequences(name):
    lengths = (31, 97, 5, 64)
    with at_level(name) as level:
        for dtype in (torch.float32, *([torch.bfloat16] if level.bf16 else [])):
            attention = DisentangledAttention(96, 3, 0.0, Disentangled(6, 11), 0.0).to(dtype)
            table, packing = drawn(12, 96).to(dtype), Packing(lengths)
            before, found = torch.get_num_threads(), []
            try:
                for threads in (1, 2, 3):
                    torch.set_num_threads(threads)
                    q, k, v = drawn(197, 9, 32).to(dtype).requires_grad_().split(3, dim=1)
                    _, rows = used_rows(attention.config, 97, torch.device("cpu"))
                    out = kernels.disentangled(
                        q, k, v, packing, packing, 0.1, *attention.distances(table), rows
                    )
                    gradients = kernels.disentangled_backward(
                        q, k, v, *out, v, packing, packing, 0.1, *attention.distances(table), rows
                    )
                    found.append([*out, *gradients])
            finally:
                torch.set_num_threads(before)
            for other in found[1:]:
                assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))
            keys, queries = attention.distances(table)
            for n, *parts in zip(lengths, *(packing.split(t) for t in (q, k, v, found[0][0])), strict=True):
                used, rows = used_rows(attention.config, n, torch.device("cpu"))
                alone, (*heads, wanted) = Packing((n,)), parts
                own = kernels.disentangled(*heads, alone, alone, 0.1, keys[used], queries[used], rows)
                assert torch.equal(own[0], wanted)


def test_what_the_kernel_does_not_compute_stays_with_torch(monkeypatch):
    attention = DisentangledAttention(32, 2, 0.3, Disentangled(6, 11), 0.0)
    table, x, called = drawn(12, 32), drawn(20, 32), []
    monkeypatch.setattr(attention, "_by_kernel", lambda q, *_: called.append(q.dtype) or q)
    attention(x, Packing((13, 7)), bias=table)  # dropout in training
    attention.eval()
    attention(x, Packing((13, 7)), bias=table, record=LayerRecord("all"))
    attention.double()(x.double(), Packing((13, 7)), bias=table.double())
    assert called == []
    attention.float()(x, Packing((13, 7)), bias=table)
    assert called == ([torch.float32] if kernels.has_dtype(torch.float32) else [])


@pytest.mark.skipif(not kernels.has_dtype(torch.float32), reason="no kernels")
def test_distances_are_projected_once_until_a_weight_changes(monkeypatch):
    config, packing = Disentangled(6, 11), Packing((13, 7))
    attention, table, x = (
        DisentangledAttention(32, 2, 0.0, config, 0.3),
        DistanceTable(config, 32, 1e-7),
        drawn(20, 32),
    )
    parts, calls, projected = nn.ModuleList([attention, table]).eval(), [], DisentangledAttention.distances
    monkeypatch.setattr(
        DisentangledAttention, "distances", lambda *given: calls.append(1) or projected(*given)
    )

    def both_ways(attention, table):
        """Without and with gradients; how often distances were projected without."""
        with torch.inference_mode():
            before = len(calls)
            out = [
                attention(x, Packing(lengths), bias=table(13)) for lengths in ((13, 7), (7, 13), (5, 5, 5, 5))
            ]
            times = len(calls) - before
        other, distances = copy.deepcopy((attention, table))  # a pass with gradients clears the cache
        torch.testing.assert_close(out[0].clone(), other(x, packing, bias=distances(13)).detach())
        return times

    assert both_ways(attention, table) == 1
    assert both_ways(attention, table) == 0
    for weight in (table.table.weight, table.norm.bias, attention.qkv.weight, attention.qkv.bias):
        with torch.no_grad():
            weight.mul_(1.5)
        assert both_ways(attention, table) == 1
    attention.qkv.weight = nn.Parameter(drawn(96, 32, seed=5))
    assert both_ways(attention, table) == 1
    copies = copy.deepcopy(parts)
    assert copies[0].cache.result is None
    assert both_ways(*copies) == 1
    assert pickle.loads(pickle.dumps(parts))[1].cache.result is None  # its own bytes
    attention.train()
    with torch.no_grad():
        first, second = (attention(x, packing, bias=table(13)) for _ in range(2))
    assert not torch.equal(first, second)  # dropout of the table


@pytest.mark.skipif(not kernels.has_dtype(torch.float32), reason="no kernels")
def test_a_graph_holds_the_kernel():
    packing = Packing((7, 31))
    for config in KERNEL_KINDS[2:6]:
        attention = DisentangledAttention(32, 2, 0.0, config, 0.0)
        table, found = DistanceTable(config, 32, 1e-7), []

        def run(x, attention=attention, table=table):
            return attention(x, packing, bias=table(31))

        for one in (run, torch.compile(run, backend="aot_eager", fullgraph=True)):
            x = drawn(38, 32).requires_grad_()
            attention.zero_grad(), table.zero_grad()
            out = one(x)
            out.backward(drawn(38, 32, seed=5))
            weights = (*attention.parameters(), *table.parameters())
            found.append([out.detach(), x.grad, *(w.grad for w in weights if w.grad is not None)])
        for ours, theirs in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("trains", [True, False])
def test_kept_projections_are_those_of_the_weights_after_a_fused_step(trains):
    """Such a step changes no version of a tensor."""
    torch.manual_seed(3)
    family = FAMILIES["deberta-v2"]
    model, ids, packing = family.model(family.tiny()).eval(), torch.arange(12) % 29, Packing((7, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    for _ in range(2):
        with torch.no_grad():
            found = model(ids, packing=packing).logits
            torch.testing.assert_close(found, copy.deepcopy(model)(ids, packing=packing).logits)
        model.train(trains)
        model(ids, packing=packing).logits.square().sum().backward()
        optimizer.step()
        model.eval()
    with torch.no_grad():
        found = model(ids, packing=packing).logits
        torch.testing.assert_close(found, copy.deepcopy(model)(ids, packing=packing).logits)
