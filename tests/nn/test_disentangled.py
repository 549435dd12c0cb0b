"""Disentangled attention: packed as padded, as the plain formula; its buckets; what goes together."""

import math

import pytest
import torch

from glassformer.errors import ConfigError
from glassformer.nn.disentangled import Disentangled, DisentangledAttention, DistanceTable
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
    with pytest.raises(ConfigError, match=r"disentangled: -?\d+ buckets for distances up to"):
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
