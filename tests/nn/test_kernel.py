"""The C kernel of attention against the explicit branch in fp32; skipped where it does not run, saying why."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import ConfigError
from glassformer.nn import attend, kernels
from glassformer.nn.attention import choose_branch
from glassformer.packing import Packing

here = pytest.mark.skipif(not kernels.computes(torch.bfloat16), reason="no kernels in bf16")
LENGTHS = st.lists(st.integers(1, 131), min_size=1, max_size=5)
PAIRS = st.lists(st.tuples(st.integers(1, 53), st.integers(1, 67)), min_size=1, max_size=5)
WIDTHS = st.sampled_from([16, 32, 48, 64, 80, 128])
few_examples = settings(max_examples=30, deadline=None, derandomize=True)


def draw(rows, heads, width, seed):
    """bf16 numbers, so that both branches start from the same ones."""
    generator = torch.Generator().manual_seed(seed)
    return (1.5 * torch.randn(rows, heads, width, generator=generator)).to(torch.bfloat16)


def both(q, k, v, q_packing, kv_packing, causal, scale=None):
    """(output, dq, dk, dv) of the kernel in bf16, and of the textbook in fp32."""
    found = []
    for branch, dtype in (("kernel", torch.bfloat16), ("explicit", torch.float32)):
        inputs = [x.to(dtype).requires_grad_() for x in (q, k, v)]
        out = attend(*inputs, q_packing, kv_packing, causal, scale=scale, branch=branch)
        upstream = draw(len(q), q.shape[1], v.shape[2], 7).to(dtype)
        found.append([out.detach().float(), *(g.float() for g in torch.autograd.grad(out, inputs, upstream))])
    return found


def check(q_packing, kv_packing, heads, width, causal, scale=None):
    q = draw(q_packing.total, heads, width, 1)
    k, v = (draw(kv_packing.total, heads, width, seed) for seed in (2, 3))
    ours, theirs = both(q, k, v, q_packing, kv_packing, causal, scale)
    for name, a, b in zip(("out", "dq", "dk", "dv"), ours, theirs, strict=True):
        assert a.isfinite().all(), name
        # bf16 rounds to 2 ** -8; where large terms cancel, the rounding of numbers around 1 remains.
        assert float((a - b).norm()) <= 0.01 * float(b.norm()) + 0.005 * a.numel() ** 0.5, name


@here
@pytest.mark.parametrize("causal", [False, True])
@given(lengths=LENGTHS, width=WIDTHS)
@few_examples
def test_self_attention_and_its_gradients(causal, lengths, width):
    packing = Packing(tuple(lengths))
    check(packing, packing, 3, width, causal)


@here
@pytest.mark.parametrize("causal", [False, True])
@given(pairs=PAIRS, width=WIDTHS)
@few_examples
def test_cross_attention_and_its_gradients(causal, pairs, width):
    check(Packing(tuple(t for t, _ in pairs)), Packing(tuple(s for _, s in pairs)), 2, width, causal)


@here
@pytest.mark.parametrize("scale", [0.0, 0.3, -0.7])
def test_scale(scale):
    packing = Packing((7, 2, 61))
    check(packing, packing, 2, 32, False, scale)


@here
def test_a_long_sequence():
    packing = Packing((1031, 3))
    check(packing, packing, 1, 64, False)
    check(packing, packing, 1, 64, True)


@here
def test_large_scores_do_not_overflow():
    packing = Packing((37, 5))
    q, k, v = (300 * draw(42, 2, 32, seed) for seed in (1, 2, 3))
    out = attend(q, k, v, packing, branch="kernel")
    wanted = attend(q.float(), k.float(), v.float(), packing, branch="explicit")
    torch.testing.assert_close(out.float(), wanted, rtol=0.02, atol=2.0)


@here
def test_nan_in_one_sequence_stays_in_it_and_is_seen():
    packing = Packing((11, 19, 13))
    q, k, v = (draw(43, 2, 32, seed) for seed in (1, 2, 3))
    k[15] = float("nan")
    out = attend(q, k, v, packing, branch="kernel")
    assert out[11:30].isnan().all()
    assert out[:11].isfinite().all()
    assert out[30:].isfinite().all()


@here
def test_rows_that_see_nothing_are_zero():
    q_packing, kv_packing = Packing((5, 3)), Packing((2, 7))
    q, k, v = draw(8, 2, 16, 1), draw(9, 2, 16, 2), draw(9, 2, 16, 3)
    (out, dq, dk, dv), _ = both(q, k, v, q_packing, kv_packing, True)
    assert not out[:3].any()
    assert not dq[:3].any()
    assert all(bool(x.isfinite().all()) for x in (out, dq, dk, dv))


@here
def test_bits_depend_neither_on_the_batch_nor_on_the_threads():
    lengths = (31, 97, 5, 64)
    packing = Packing(lengths)
    q, k, v = (draw(packing.total, 3, 32, seed) for seed in (1, 2, 3))
    whole = packing.split(attend(q, k, v, packing, branch="kernel"))
    parts = zip(lengths, packing.split(q), packing.split(k), packing.split(v), whole, strict=True)
    for n, q_i, k_i, v_i, out in parts:
        assert torch.equal(attend(q_i, k_i, v_i, Packing((n,)), branch="kernel"), out)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        again = attend(q, k, v, packing, branch="kernel")
    finally:
        torch.set_num_threads(before)
    assert torch.equal(torch.cat(whole), again)


@here
def test_views_of_one_product_and_whole_tensors_give_the_same():
    packing = Packing((23, 41))
    qkv = draw(64, 3 * 2, 32, 1).view(64, 3, 2, 32)
    q, k, v = qkv.unbind(1)
    out = attend(q, k, v, packing, branch="kernel")
    assert torch.equal(out, attend(q.contiguous(), k.contiguous(), v.contiguous(), packing, branch="kernel"))
    turned = q.transpose(1, 2).contiguous().transpose(1, 2)  # places are not contiguous
    assert torch.equal(out, attend(turned, k, v, packing, branch="kernel"))


@here
def test_auto_takes_it_where_it_can():
    packing = Packing((7, 5))
    q = draw(12, 2, 32, 1)

    def choice(q, k, v, dropout=0.0, weights=False):
        return choose_branch(q, k, v, packing, packing, False, dropout, weights)

    assert choice(q, q, q) == "kernel"
    assert choice(q.float(), q.float(), q.float()) == "kernel"
    assert choice(q.double(), q.double(), q.double()) == "grouped"
    assert choice(q[..., :24], q[..., :24], q[..., :24]) == "grouped"
    assert choice(q, q, q[..., :16]) == "grouped"
    assert choice(q, q, q, dropout=0.1) == "explicit"
    assert choice(q, q, q, weights=True) == "grouped"
    learned = q.clone().requires_grad_()
    assert choice(learned, q, q, weights=True) == "explicit"


def test_what_it_cannot_do_is_refused():
    q = torch.zeros(5, 2, 24)
    with pytest.raises(ConfigError, match=r"no kernel for this.*branch=auto"):
        attend(q, q, q, Packing((5,)), branch="kernel")


PROGRAM = """
import torch
from glassformer.nn import attend, kernels
from glassformer.packing import Packing
q = torch.ones(5, 2, 16, dtype=torch.bfloat16)
out = attend(q, q, q, Packing((2, 3)))
print(kernels.why_not(), bool((out == 1).all()))
"""


def run(**environment):
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout


WITHOUT_AMX = """
import sys, torch
from glassformer.nn import attend, kernels
from glassformer.packing import Packing
found = []
for lengths, width, causal in (((7, 33, 131), 32, False), ((65, 1), 48, True), ((97, 64), 128, False)):
    generator = torch.Generator().manual_seed(3)
    qkv = torch.randn(sum(lengths), 3, 3, width, generator=generator).bfloat16().requires_grad_()
    out = attend(*qkv.unbind(1), Packing(lengths), causal=causal, branch="kernel")
    out.square().sum().backward()
    found += [out.detach(), qkv.grad]
torch.save(found, sys.argv[1])
print(kernels.has_amx())
"""


@pytest.mark.skipif(
    kernels.why_not() is not None or not kernels.has_amx(), reason="no AMX, or it is switched off"
)
def test_both_kinds_of_products_give_the_same(tmp_path):
    found = {}
    for name in ("1", "avx512"):
        command = [sys.executable, "-c", WITHOUT_AMX, str(tmp_path / name)]
        env = {**os.environ, "GLASSFORMER_KERNELS": name}
        said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
        assert said == f"{name == '1'}\n"
        found[name] = torch.load(tmp_path / name, weights_only=True)
    for a, b in zip(*found.values(), strict=True):
        assert float((a - b).float().norm()) <= 0.01 * float(b.float().norm())  # roundings of bf16


def test_it_can_be_switched_off():
    assert run(GLASSFORMER_KERNELS="0") == "switched off by GLASSFORMER_KERNELS=0 True\n"


def test_a_refusal_says_why(monkeypatch):
    q = torch.zeros(5, 2, 24)
    monkeypatch.setattr(kernels, "why_not", lambda: None)
    with pytest.raises(
        ConfigError, match="no kernel for this: it wants fp32 or bf16 on a CPU and heads of a multiple of 16"
    ):
        attend(q, q, q, Packing((5,)), branch="kernel")
    monkeypatch.setattr(kernels, "why_not", lambda: "no library")
    with pytest.raises(ConfigError, match="no kernel for this: no library"):
        attend(q, q, q, Packing((5,)), branch="kernel")
