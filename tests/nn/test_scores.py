"""The three scorers, the recurrent layers over packed rows, and cross-entropy from the rows before the last product."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from glassformer.errors import ConfigError, ShapeError
from glassformer.nn import AdditiveScore, DotScore, MultiplicativeScore, PackedRNN, ScoredAttention
from glassformer.nn import linear_cross_entropy as lce
from glassformer.nn.trace import LayerRecord
from glassformer.packing import Packing

Q, K = Packing((3, 1, 7, 5)), Packing((2, 11, 5, 5))


def test_scores_are_the_formulas():
    torch.manual_seed(1)
    q, k = torch.randn(2, 3, 7), torch.randn(2, 5, 7)
    torch.testing.assert_close(DotScore(7, 7)(q, k), torch.einsum("btk,bsk->bts", q, k) / 7**0.5)
    general = MultiplicativeScore(7, 7)
    torch.testing.assert_close(general(q, k), torch.einsum("bti,ji,bsj->bts", q, general.weight.weight, k))
    additive = AdditiveScore(7, 7, hidden=11)
    for b in range(2):
        for t in range(3):
            for s in range(5):
                hidden = torch.tanh(additive.query(q[b, t]) + additive.key(k[b, s]))
                torch.testing.assert_close(additive(q, k)[b, t, s], (additive.vector.weight @ hidden)[0])


def test_queries_and_keys_may_differ_in_width():
    torch.manual_seed(1)
    q, k = torch.randn(2, 3, 7), torch.randn(2, 5, 11)
    general = MultiplicativeScore(7, 11)
    torch.testing.assert_close(general(q, k), torch.einsum("bti,ji,bsj->bts", q, general.weight.weight, k))
    additive = AdditiveScore(7, 11)
    assert additive.vector.weight.shape == (1, 11)
    hidden = torch.tanh(additive.query(q)[:, :, None] + additive.key(k)[:, None])
    torch.testing.assert_close(additive(q, k), (hidden @ additive.vector.weight[0]))
    for scorer in (general, additive):
        assert scorer(q, k).shape == (2, 3, 5)


def test_scorers_say_what_does_not_fit():
    with pytest.raises(ShapeError, match="7 features, but keys 5"):
        DotScore(7, 5)
    with pytest.raises(ConfigError, match="Did you mean 'additive'"):
        ScoredAttention("aditive", 7, 7)
    with pytest.raises(ConfigError, match="lstm or gru"):
        PackedRNN("rnn", 3, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("scorer", ["dot", "multiplicative", "additive"])
def test_scored_attention_packed_equals_one_by_one(scorer):
    torch.manual_seed(2)
    attention = ScoredAttention(scorer, 7, 7)
    q, memory, record = torch.randn(Q.total, 7), torch.randn(K.total, 7), LayerRecord()
    out = Q.split(attention(q, memory, Q, K, record))
    for i, (a, m) in enumerate(zip(Q.split(q), K.split(memory), strict=True)):
        weights = attention.score(a[None], m[None])[0].softmax(-1)
        torch.testing.assert_close(out[i], weights @ m, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(record.weights[i][0], weights, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("both", [False, True])
def test_rnn_packed_equals_one_by_one(cell, both):
    torch.manual_seed(3)
    rnn = PackedRNN(cell, 7, 5, num_layers=2, bidirectional=both)
    x = torch.randn(K.total, 7)
    start = tuple(torch.randn(4 if both else 2, K.count, 5) for _ in range(2 if cell == "lstm" else 1))
    rows, last = rnn(x, K, start)
    for i, one in enumerate(K.split(x)):
        state = tuple(s[:, i] for s in start)
        wanted, end = rnn.rnn(one, state if cell == "lstm" else state[0])
        torch.testing.assert_close(K.split(rows)[i], wanted, atol=1e-5, rtol=1e-5)
        for a, b in zip(last, end if cell == "lstm" else (end,), strict=True):
            torch.testing.assert_close(a[:, i], b, atol=1e-5, rtol=1e-5)
    (rows * torch.randn_like(rows)).sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in rnn.parameters())


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_rnn_steps_equal_the_whole(cell):
    torch.manual_seed(4)
    rnn = PackedRNN(cell, 7, 5, num_layers=2)
    x = torch.randn(3, 4, 7)
    rows, _ = rnn(x.reshape(-1, 7), Packing.uniform(3, 4))
    state = tuple(torch.zeros(2, 3, 5) for _ in range(2 if cell == "lstm" else 1))
    for t in range(4):
        out, state = rnn.step(x[:, t], state)
        torch.testing.assert_close(out, rows.view(3, 4, 5)[:, t], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("biased", [False, True])
def test_cross_entropy_and_gradients_equal_torch(smoothing, biased):
    torch.manual_seed(5)
    m, d, v = 307, 13, 29  # more rows than one chunk
    x, table, bias = torch.randn(m, d), torch.randn(v, d), torch.randn(v) if biased else None
    targets, upstream = torch.randint(0, v, (m,)), torch.rand(m)
    ours = [p.clone().requires_grad_() if p is not None else None for p in (x, table, bias)]
    theirs = [p.clone().requires_grad_() if p is not None else None for p in (x, table, bias)]
    losses, predicted = lce(*ours, targets, smoothing)
    logits = F.linear(*theirs)
    wanted = F.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)
    torch.testing.assert_close(losses, wanted, atol=1e-5, rtol=1e-5)
    assert torch.equal(predicted, logits.argmax(1))
    (losses * upstream).sum().backward()
    (wanted * upstream).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        if a is not None and b is not None:
            torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-5)


def test_cross_entropy_in_bf16_is_near_fp32_and_keeps_the_tables_format():
    torch.manual_seed(6)
    x, table = nn.Parameter(torch.randn(31, 17)), nn.Parameter(torch.randn(37, 17))
    targets = torch.randint(0, 37, (31,))
    rough, _ = lce(x.bfloat16(), table, None, targets, 0.1)
    exact, _ = lce(x, table, None, targets, 0.1)
    assert float((rough - exact).detach().abs().max()) < 0.2
    rough.sum().backward()
    assert table.grad is not None
    assert table.grad.dtype == torch.float32
