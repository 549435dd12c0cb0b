"""The branch for a GPU, on a processor: torch's varlen kernel is stood in for by a plain one with its arguments.

What this holds is the code around the kernel (places, sizes, scale, the choice); the kernel itself runs in ``tests/gpu``.
"""

import inspect

import pytest
import torch

from glassformer.errors import ConfigError
from glassformer.nn import attend, attention
from glassformer.nn.attention import choose_branch
from glassformer.packing import Packing

ARGUMENTS = ["query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k"]


def plain_varlen(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k):
    """Softmax attention of sequence i of the queries over sequence i of the keys, scale 1 / sqrt(K)."""
    assert all(x.stride(-1) == 1 for x in (query, key, value))
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert max_q == int(cu_seq_q.diff().max())
    assert max_k == int(cu_seq_k.diff().max())
    outs = []
    for i in range(len(cu_seq_q) - 1):
        q, k, v = (
            query[cu_seq_q[i] : cu_seq_q[i + 1]],
            *(x[cu_seq_k[i] : cu_seq_k[i + 1]] for x in (key, value)),
        )
        scores = torch.einsum("thk,shk->hts", q, k) / q.shape[-1] ** 0.5
        outs.append(torch.einsum("hts,shk->thk", scores.softmax(-1), v))
    return torch.cat(outs)


@pytest.fixture
def calls(monkeypatch) -> list[int]:
    """The plain kernel in the place of torch's; the number of rows of each call."""
    rows: list[int] = []

    def counted(*arguments):
        rows.append(len(arguments[0]))
        return plain_varlen(*arguments)

    monkeypatch.setattr(
        "torch.nn.attention.varlen.varlen_attn", counted
    )  # a slow import, in these tests alone
    return rows


def test_the_stand_in_has_the_arguments_of_the_kernel():
    from torch.nn.attention import varlen

    assert list(inspect.signature(varlen.varlen_attn).parameters)[:7] == ARGUMENTS
    assert list(inspect.signature(plain_varlen).parameters) == ARGUMENTS


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("kv_lengths", [(5, 2, 11), (3, 13, 7)], ids=["self", "cross"])
def test_varlen_equals_explicit(calls, kv_lengths, scale):
    q_packing, kv_packing = Packing((5, 2, 11)), Packing(kv_lengths)
    generator = torch.Generator().manual_seed(3)
    q, k, v = (
        torch.randn(packing.total, 3, 7, dtype=torch.float64, generator=generator).requires_grad_()
        for packing in (q_packing, kv_packing, kv_packing)
    )
    upstream = torch.randn(q_packing.total, 3, 7, dtype=torch.float64, generator=generator)
    found = []
    for branch in ("varlen", "explicit"):
        out = attend(q, k, v, q_packing, kv_packing, scale=scale, branch=branch)
        found.append((out.detach(), *torch.autograd.grad(out, (q, k, v), upstream)))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-12)
    assert calls == [18]


def test_rows_that_do_not_lie_together_and_one_head(calls):
    packing = Packing((5, 2))
    joint = torch.randn(7, 3, 2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    q, k, v = joint.unbind(1)  # as the joint projection gives them
    for parts in ((q, k, v), (q[:, 0], k[:, 0], v[:, 0])):
        ours, textbook = (attend(*parts, packing, branch=branch) for branch in ("varlen", "explicit"))
        torch.testing.assert_close(ours, textbook, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "width", "causal", "dropout", "weights", "wanted"),
    [
        (torch.bfloat16, 8, False, 0.0, False, "varlen"),
        (torch.float16, 24, False, 0.0, False, "varlen"),
        (torch.float32, 8, False, 0.0, False, "padded"),
        (torch.float32, 8, False, 0.1, False, "padded"),
        (torch.bfloat16, 7, False, 0.0, False, "padded"),
        (torch.bfloat16, 8, True, 0.0, False, "varlen"),
        (torch.bfloat16, 8, False, 0.1, False, "varlen"),
        (torch.bfloat16, 8, False, 0.0, True, "grouped"),
        (torch.bfloat16, 8, False, 0.1, True, "explicit"),
    ],
)
def test_choice_on_a_gpu(monkeypatch, dtype, width, causal, dropout, weights, wanted):
    q, packing = torch.zeros(5, 2, width, dtype=dtype), Packing((3, 2))
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
    monkeypatch.setattr(attention, "has_flash", lambda device: True)
    assert choose_branch(q, q, q, packing, packing, causal, dropout, weights) == wanted
    if causal:  # its mask begins elsewhere where queries and keys are not as many
        assert choose_branch(q, q, q, packing, Packing((3, 2)), causal, dropout, weights) == "padded"


def test_what_the_kernel_for_packed_rows_cannot_do(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
    monkeypatch.setattr(attention, "has_flash", lambda device: True)
    packing = Packing((3, 2))

    def choice(width, v_width):
        q, v = (torch.zeros(5, 1, n, dtype=torch.bfloat16) for n in (width, v_width))
        return choose_branch(q, q, v, packing, packing, False, 0.0, False)

    assert [choice(256, 256), choice(264, 264), choice(8, 16)] == ["varlen", "padded", "padded"]
    monkeypatch.setattr(attention, "has_flash", lambda device: False)  # a GPU from before Ampere
    assert choice(8, 8) == "padded"


def test_a_causal_mask_over_more_keys_is_refused_by_name():
    q, k = torch.zeros(3, 2, 8), torch.zeros(5, 2, 8)
    with pytest.raises(ConfigError, match=r"no causal mask over more keys.*Use branch=padded"):
        attend(q, k, k, Packing((3,)), Packing((5,)), causal=True, branch="varlen")


@pytest.mark.parametrize("causal", [False, True])
def test_what_the_kernel_below_is_asked(monkeypatch, causal):
    asked = []

    def stand_in(query, key, value, cu_q, cu_k, max_q, max_k, dropout, is_causal, debug, *, scale):
        asked.append((dropout, is_causal, debug, scale))
        assert causal == is_causal
        return plain_varlen(query, key, value, cu_q, cu_k, max_q, max_k), None

    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", stand_in)
    packing = Packing((5, 2, 11))
    q = torch.randn(18, 3, 8, generator=torch.Generator().manual_seed(3))
    attend(q, q, q, packing, causal=causal, dropout=0.1, scale=0.3, branch="varlen")
    assert asked == [(0.1, causal, False, 0.3)]


def test_the_arguments_of_the_kernel_below():
    schema = torch.ops.aten._flash_attention_forward.default._schema
    names = [argument.name for argument in schema.arguments]
    wanted = ["query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal"]
    assert names[:10] == [*wanted, "return_debug_mask"]
    assert "scale" in names
    assert schema.returns[0].name == "output"


def test_auto_on_a_gpu_takes_the_kernel(calls, monkeypatch):
    packing = Packing((3, 2))
    q = torch.randn(5, 2, 8, generator=torch.Generator().manual_seed(7)).bfloat16()
    textbook = attend(q, q, q, packing, branch="explicit")
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
    monkeypatch.setattr(attention, "has_flash", lambda device: True)
    torch.testing.assert_close(attend(q, q, q, packing), textbook)
    assert calls == [5]
